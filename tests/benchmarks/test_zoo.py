"""The benchmark of processes that take turns: intervals, means, who is named, what is kept, and one real comparison."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import zoo
from benchmarks.__main__ import UNFINISHED, app
from benchmarks.record import Unreadable
from tests.support.refusals import raises_exactly


def result(name: str = "zoo-vit", batch: int = 1, times: float = 1.2, **more: Any) -> zoo.PairedResult:
    """Return a result of seven rounds in which ONNX Runtime takes so many times as long as Inlay."""
    seconds = {"Inlay": [0.002] * 7, "ONNX Runtime": [0.002 * times] * 7}
    return zoo.PairedResult(name, batch, {"seconds": seconds, "absent": {}, "others": 0.0, **more})


@pytest.mark.parametrize(("count", "low", "high"), [(1, 0, 0), (5, 0, 4), (6, 0, 5), (9, 1, 7), (15, 3, 11)])
def test_an_interval_is_that_of_the_sign_test(count: int, low: int, high: int) -> None:
    found = zoo.interval_of([float(value) for value in reversed(range(count))])
    assert (found.median, found.low, found.high) == ((count - 1) / 2, low, high)


def test_means_are_of_the_zoo_and_of_the_seven() -> None:
    results = [result(times=2.0), result(batch=8, times=0.5), result("bert", times=1.5)]
    assert zoo.mean_lines(results) == [
        "zoo, batch 1: x ONNX Runtime 2.000 in the geometric mean of 1",
        "zoo, batch 8: x ONNX Runtime 0.500 in the geometric mean of 1",
        "zoo, both batches: x ONNX Runtime 1.000 in the geometric mean of 2, aim 1.25",
        "the seven, batch 1: x ONNX Runtime 1.500 in the geometric mean of 1",
        "the seven, both batches: x ONNX Runtime 1.500 in the geometric mean of 1",
    ]


def test_slow_absent_and_disturbed_networks_are_named() -> None:
    results = [result(times=0.949), result(times=0.951, others=0.2), result("bert", absent={"MNN": "no"})]
    assert zoo.notes(results) == [
        "zoo-vit b1: wholly under 0.95 of ONNX Runtime: 0.95 [0.95-0.95]",
        "zoo-vit b1: others took 20 %: not to be quoted",
        "bert b1: MNN is absent: no",
    ]
    assert [zoo.is_slow([one]) for one in results] == [True, False, False]


def test_only_convolutional_networks_are_for_mnn_and_ncnn() -> None:
    assert zoo.peers_of("zoo-resnext", zoo.PEERS) == list(zoo.PEERS)
    assert zoo.peers_of("zoo-t5", zoo.PEERS) == zoo.peers_of("bert", zoo.PEERS) == ["ONNX Runtime", "OpenVINO"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{",
            "holds no result: Expecting property name enclosed in double quotes: line 1 column 2 (char 1); remove it",
        ),
        ("[]", "holds no times of a network; remove it"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "bert-b1.json"
    file.write_text(text)
    with raises_exactly(Unreadable, f"{file} {words}, and measure again"):
        zoo.load_paired(tmp_path, "bert", 1)


def test_what_is_there_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(folder: Path, name: str, batch: int, **options: object) -> None:
        measured.append(name)
        times = 0.9 if name == "zoo-t5" else 1.2
        (folder / f"{name}-b{batch}.json").write_text(json.dumps(result(name, batch, times).found))

    def ran(*arguments: str) -> int:
        return CliRunner().invoke(app, ["zoo", str(tmp_path), *arguments]).exit_code

    monkeypatch.setattr(zoo, "measure_network", measure)
    assert ran("--only", "zoo-vit b1", "--minutes", "0") == UNFINISHED
    assert [ran("--only", f"zoo-{name} b1") for name in ("vit", "vit", "t5")] == [0, 0, 1]
    assert measured == ["zoo-vit", "zoo-t5"]
    assert ran("--only", "zoo-vit b1", "--again") == 0
    assert measured == ["zoo-vit", "zoo-t5", "zoo-vit"]


@pytest.mark.parametrize("command", ["zoo", "networks"])
def test_a_pattern_that_matches_no_network_is_refused_with_the_labels(tmp_path: Path, command: str) -> None:
    done = CliRunner().invoke(app, [command, str(tmp_path / "new"), "--only", "nothing", "--show"])
    words = " ".join(done.stderr.replace("│", " ").split())
    assert done.exit_code == 2
    assert "no label matches 'nothing': give a pattern such as '*bert*' for one of " in words
    assert ("zoo-t5 b1, " in words) == (command == "zoo")
    assert "bert b1, " in words
    assert words.count("b8") >= 7
    assert not (tmp_path / "new").exists()


@pytest.mark.heavy
def test_processes_take_turns_at_a_network(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    zoo.measure_network(tmp_path, "squeezenet", 1, 2, 1, ["ONNX Runtime", "nobody"])
    found = zoo.load_paired(tmp_path, "squeezenet", 1)
    assert found is not None
    assert {name: len(times) for name, times in found.found["seconds"].items()} == {"Inlay": 2, "ONNX Runtime": 2}
    assert found.found["absent"] == {"nobody": "its process has ended"}
