"""The table of networks beside other runtimes: what is kept, what is aimed at, what is missed and why."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import networks
from benchmarks.__main__ import UNFINISHED, app
from benchmarks.aims import Aim, Reason, known_reasons
from benchmarks.networks import (
    AIMS,
    LEAST,
    NETWORKS,
    PIECES,
    REASONS,
    NetworkResult,
    load_result,
    loud_lines,
    network_aims,
    slow_networks,
)
from benchmarks.record import Unreadable
from inlay.measure.statistics import Spread
from tests.support.refusals import raises_exactly

QUIET = {"share_of_others": 0.01, "arena_bytes": 5_200_000, "predicted_ms": 2.0, "times_predicted": 1.1}


def line(times: float) -> Mapping[str, Any]:
    """A peer that takes so many times as long as Inlay."""
    return {"inlay_is_times_as_fast": {"median": times, "low": 0.9 * times, "high": 1.1 * times}}


def result(name: str = "resnet50", batch: int = 1, ort: float = 1.3, openvino: float | None = 1.1) -> NetworkResult:
    measured: dict[str, Any] = {"Inlay": {"seconds": [0.002, 0.003, 0.0021]}, "ONNX Runtime": line(ort)}
    if openvino is not None:
        measured["OpenVINO"] = line(openvino)
    times = {"planning": 0.5, "compiling": 0.25}
    return NetworkResult(name, batch, {"cold": times, "warm": times, "run": {**QUIET, "measured": measured}})


def test_a_result_says_what_was_measured() -> None:
    one = result()
    assert one.label == "resnet50 b1"
    assert one.error == pytest.approx(0.1)
    assert one.seconds("warm") == 0.75
    assert one.ratio("OpenVINO") == Spread(**line(1.1)["inlay_is_times_as_fast"])
    assert one.ratio("torch") is None


def test_the_mean_is_geometric_and_of_those_that_were_compared() -> None:
    several = [result(openvino=None), result(openvino=2.0), result(openvino=0.5)]
    assert Aim("all: mean beside OpenVINO", "1.000", "1.07", False) in network_aims(several)


def test_whoever_is_below_the_aim_of_the_mean_is_slow_and_below_the_least_is_missed() -> None:
    reasons = [Reason("vgg19 b*", "OpenVINO", "memory", ""), Reason("*", "ONNX Runtime", "any", "much")]
    found = slow_networks([result("vgg19", 8, 1.2, 0.97), result("bert", 1, 1.25, 1.07)], reasons)
    assert [(label, peer, ratio.median < LEAST, reason) for label, peer, ratio, reason in found] == [
        ("vgg19 b8", "ONNX Runtime", False, reasons[1]),
        ("vgg19 b8", "OpenVINO", True, reasons[0]),
    ]
    assert slow_networks([result(ort=0.9)], [])[0][-1] is None


def test_aims_are_over_each_batch_and_all_and_of_resnet() -> None:
    found = network_aims([result(), result(batch=8, ort=1.0, openvino=0.9)])
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
    run_piece = {**loud.pieces["run"], "share_of_others": 0.2}
    assert loud_lines([result(), replace(loud, pieces={**loud.pieces, "run": run_piece})]) == [
        "others took over 10 % of the processors in bert b1: not to be quoted"
    ]
    assert loud_lines([result()]) == []


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
    with raises_exactly(Unreadable, f"{file} {words}, and measure again"):
        load_result(tmp_path, "bert", 1)


def test_a_reason_for_missing_a_peer_that_is_not_compared_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "reasons.toml"
    file.write_text('[[miss]]\ncase = "a"\nmisses = "torch"\nreason = "b"\ntried = ""')
    with raises_exactly(Unreadable, f"{file.name}: 'torch' is no aim: give one of ONNX Runtime, OpenVINO"):
        known_reasons(file, tuple(AIMS))


def test_the_projects_reasons_are_of_networks_that_are_measured() -> None:
    labels = [f"{name} b{batch}" for name in NETWORKS for batch in (1, 8)]
    for reason in known_reasons(REASONS, tuple(AIMS)):
        assert any(reason.fits(label, reason.misses) for label in labels), reason.case


# The command


def ran(folder: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["networks", str(folder), *arguments])
    return done.exit_code, done.stdout


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """Pieces that were measured, in order; what they find is `result`."""
    found: list[tuple[str, int, str]] = []

    def measure(folder: Path, name: str, batch: int, piece: str, rounds: int) -> None:
        found.append((name, batch, piece))
        new = {**load_result(folder, name, batch).pieces, piece: result(name, batch).pieces[piece]}
        (folder / f"{name}-b{batch}.json").write_text(json.dumps(new))

    monkeypatch.setattr(networks, "measure_piece", measure)
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
    missed = ("resnet50 b1", "OpenVINO", Spread(0.9, 0.9, 0.9))
    monkeypatch.setattr(networks, "slow_networks", lambda results, reasons: [(*missed, None)])
    assert ran(tmp_path, "--only", "resnet50 b1", "--show")[0] == 1
    known = Reason("*", "", "a reason", "")
    monkeypatch.setattr(networks, "slow_networks", lambda results, reasons: [(*missed, known)])
    assert ran(tmp_path, "--only", "resnet50 b1", "--show")[0] == 0
