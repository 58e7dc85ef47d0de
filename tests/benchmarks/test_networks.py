"""The table of networks beside other runtimes: what is kept, what is aimed at, what is missed and why."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from benchmarks import network_table
from benchmarks.aims import Aim
from benchmarks.misses import Reason, Unreadable
from benchmarks.network_results import NETWORKS, PIECES, Folder, Result, Slow, known_reasons, mean, slow
from benchmarks.network_table import UNFINISHED, aims, bystander_lines, run
from inlay.measure.statistics import Spread

QUIET = {"share_of_others": 0.01, "arena_bytes": 5_200_000, "predicted_ms": 2.0, "times_predicted": 1.1}


def line(times: float) -> Mapping[str, Any]:
    """A peer that takes so many times as long as Inlay."""
    return {"inlay_is_times_as_fast": {"median": times, "low": 0.9 * times, "high": 1.1 * times}}


def result(name: str = "resnet50", batch: int = 1, ort: float = 1.3, openvino: float | None = 1.1) -> Result:
    measured: dict[str, Any] = {"Inlay": {"seconds": [0.002, 0.003, 0.0021]}, "ONNX Runtime": line(ort)}
    if openvino is not None:
        measured["OpenVINO"] = line(openvino)
    times = {"planning": 0.5, "compiling": 0.25}
    return Result(name, batch, {"cold": times, "warm": times, "run": {**QUIET, "measured": measured}})


def test_a_result_says_what_was_measured() -> None:
    one = result()
    assert (one.label, one.is_complete, one.ms.median, one.arena) == ("resnet50 b1", True, 2.1, 5_200_000)
    assert one.predicted == 2.0
    assert one.error == pytest.approx(0.1)
    assert one.seconds("warm") == 0.75
    assert one.ratio("OpenVINO") == Spread(**line(1.1)["inlay_is_times_as_fast"])
    assert one.ratio("torch") is None
    assert not replace(one, found={"cold": {}}).is_complete


def test_the_mean_is_geometric_and_of_those_that_were_compared() -> None:
    several = [result(openvino=None), result(openvino=2.0), result(openvino=0.5)]
    assert mean(several, "OpenVINO") == pytest.approx(1.0)
    assert mean(several, "torch") is None


def test_whoever_is_below_the_aim_of_the_mean_is_slow_and_below_the_least_is_missed() -> None:
    reasons = [Reason("vgg19 b*", "OpenVINO", "memory", ""), Reason("*", "ONNX Runtime", "any", "much")]
    found = list(slow([result("vgg19", 8, 1.2, 0.97), result("bert", 1, 1.25, 1.07)], reasons))
    assert [(one.result.label, one.peer, one.is_missed, one.reason) for one in found] == [
        ("vgg19 b8", "ONNX Runtime", False, reasons[1]),
        ("vgg19 b8", "OpenVINO", True, reasons[0]),
    ]
    assert next(slow([result(ort=0.9)], [])).reason is None


def test_aims_are_over_each_batch_and_all_and_of_resnet() -> None:
    found = aims([result(), result(batch=8, ort=1.0, openvino=0.9)])
    assert [(aim.name, aim.is_met) for aim in found] == [
        ("batch 1: mean beside ONNX Runtime", True),
        ("batch 1: mean beside OpenVINO", True),
        ("batch 8: mean beside ONNX Runtime", False),
        ("batch 8: mean beside OpenVINO", False),
        ("all: mean beside ONNX Runtime", False),
        ("all: mean beside OpenVINO", False),
        ("least beside ONNX Runtime: resnet50 b8", True),
        ("least beside OpenVINO: resnet50 b8", False),
        ("ResNet-50: plan and compile, cold", True),
        ("ResNet-50: plan and compile, warm", True),
        ("ResNet-50: arena", True),
        ("ResNet-50: measured beside predicted", True),
    ]
    assert found[-1] == Aim("ResNet-50: measured beside predicted", "+10 %", "within 15 %", True)


def test_a_loud_machine_is_told() -> None:
    loud = result("bert")
    run_piece = {**loud.found["run"], "share_of_others": 0.2}
    assert bystander_lines([result(), replace(loud, found={**loud.found, "run": run_piece})]) == [
        "others took over 10 % of the processors in bert b1: not to be quoted"
    ]
    assert bystander_lines([result()]) == []


# What is kept


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{",
            "holds no result: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); remove it",
        ),
        ("[]", "holds no result of a network; remove it"),
        ('{"hot": {}}', "holds no result of a network; remove it"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bert-b1.json"
    file.write_text(text)
    with pytest.raises(Unreadable) as caught:
        Folder(tmp_path).result("bert", 1)
    assert str(caught.value) == f"{file} {words}, and measure again"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[miss]]\ncase = "bert b1"\nreason = ""\ntried = ""', "has an entry without a case or without a reason: "),
        (
            '[[miss]]\ncase = "a"\nmisses = "torch"\nreason = "b"\ntried = ""',
            ": 'torch' is nobody to be compared with, ",
        ),
        ('[[miss]]\nreason = "b"', " holds no list of reasons: TypeError("),
    ],
)
def test_reasons_that_say_nothing_are_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "reasons.toml"
    file.write_text(text)
    with pytest.raises(Unreadable) as caught:
        known_reasons(file)
    assert words in str(caught.value)


def test_the_projects_reasons_are_of_networks_that_are_measured() -> None:
    labels = [f"{name} b{batch}" for name in NETWORKS for batch in (1, 8)]
    for reason in known_reasons():
        assert any(reason.fits(label, reason.misses) for label in labels), reason.case


# The command


def ran(folder: Path, *arguments: str) -> tuple[int, str]:
    app = Typer()
    app.command()(run)
    done = CliRunner().invoke(app, [str(folder), *arguments])
    return done.exit_code, done.stdout


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """Pieces that were measured, in order; what they find is `result`."""
    found: list[tuple[str, int, str]] = []

    def measure(self: Folder, name: str, batch: int, piece: str, rounds: int) -> None:
        found.append((name, batch, piece))
        known = self.result(name, batch).found
        new = {**known, piece: result(name, batch).found[piece]}
        (self.path / f"{name}-b{batch}.json").write_text(json.dumps(new))

    monkeypatch.setattr(Folder, "measure", measure)
    return found


def test_what_is_there_is_not_measured_again(tmp_path: Path, measured: list[tuple[str, int, str]]) -> None:
    code, _ = ran(tmp_path, "--only", "resnet50 b1")
    assert (code, measured) == (0, [("resnet50", 1, piece) for piece in PIECES])
    measured.clear()
    code, out = ran(tmp_path, "--only", "resnet50 b1")
    assert (code, measured) == (0, [])
    assert "resnet50 b1" in out
    ran(tmp_path, "--only", "resnet50 b1", "--again")
    assert measured == [("resnet50", 1, "run")]


def test_a_run_stops_in_time_and_says_what_is_left(tmp_path: Path, measured: list[tuple[str, int, str]]) -> None:
    code, out = ran(tmp_path, "--minutes", "0", "--batches", "8")
    assert (code, measured) == (UNFINISHED, [])
    assert "21 pieces are still to be measured: the same command goes on" in out


def test_a_miss_without_a_reason_is_an_error(
    tmp_path: Path, measured: list[tuple[str, int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(tmp_path, "--only", "resnet50 b1")
    missed = Slow(result(), "OpenVINO", Spread(0.9, 0.9, 0.9), None)
    monkeypatch.setattr(network_table, "slow", lambda results, reasons: [missed])
    assert ran(tmp_path, "--only", "resnet50 b1", "--show")[0] == 1
    known = replace(missed, reason=Reason("*", "", "a reason", ""))
    monkeypatch.setattr(network_table, "slow", lambda results, reasons: [known])
    assert ran(tmp_path, "--only", "resnet50 b1", "--show")[0] == 0
