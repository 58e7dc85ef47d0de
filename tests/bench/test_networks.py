"""`inlay bench model.onnx`: who takes part, what is compared, what is said, and what is refused."""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay import cli
from inlay.bench import networks, runtimes
from inlay.bench.measurement import Measurement
from inlay.bench.networks import NetworkReport, bench_network, difference
from inlay.bench.runtimes import Configuration, NetworkInputs
from inlay.errors import InlayError, InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.program import NumpyShare
from inlay.primitives import get_engine
from tests.support.network_runs import run_model
from tests.support.networks import Model, inputs_of, light

pytestmark = pytest.mark.usefixtures("short_turns")

SECONDS = {"Inlay": [2e-3, 2e-3, 4e-3], "peer": [3e-3, 4e-3, 4e-3]}
MEASURED = Measurement(SECONDS, absent={"torch": "not installed"})
HOWS, DIFFERENCES = {"Inlay": "probed costs", "peer": "opset 13"}, {"Inlay": 0.0, "peer": 2e-7}
REPORT = NetworkReport(
    "net", {"x": (1, 3, 8, 8)}, 2, MEASURED, HOWS, DIFFERENCES, 1.9, 1.8, 5_220_000, 57, 1, 0.5, 0.25
)


def small(opset: int = 17, batch: int | str = 1, listed: bool = False) -> Model:
    """A convolution of a small image, flattened, in a softmax; `listed`: weights are inputs too, as in old files."""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 512])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 3, 3, 3])
    inputs = [x, w] if listed else [x]
    graph = helper.make_graph(nodes, "small", inputs, [y], [numpy_helper.from_array(weights, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if listed else 8)


def fake(change: Callable[[Array], Array] = lambda array: array, how: str = "as it is", pause: float = 0.0) -> Any:
    """A peer that is the package onnx, with what it answers changed."""

    def peer(given: NetworkInputs) -> Iterator[Configuration]:
        found = run_model(runtimes.with_outputs(given.model, list(given.compared)), dict(given.inputs))
        results = {name: change(array) for name, array in found.items()}
        yield Configuration(how, lambda: time.sleep(pause), lambda: results)

    return peer


def absent(given: NetworkInputs) -> Iterator[Configuration]:
    raise Unimplemented("not installed (pip install it)")
    yield


@pytest.fixture
def engine() -> None:
    """The engine, or the end of the test."""
    try:
        get_engine("onednn")
    except MissingExtra:
        pytest.skip("no oneDNN")


@pytest.mark.usefixtures("engine")
def test_those_with_the_same_numbers_take_turns_and_the_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = {"right": fake(), "wrong": fake(lambda array: array * np.float32(1.01)), "absent": absent}
    monkeypatch.setattr(runtimes, "RUNTIMES", peers)
    found = bench_network(small().SerializeToString(), rounds=3, costs="probed")
    assert [(name, how, len(found.measured.seconds[name])) for name, how in found.configurations.items()] == [
        ("Inlay", "probed costs", 3),
        ("right", "as it is", 3),
    ]
    assert found.differences["right"] < 1e-5
    assert dict(found.measured.absent) == {
        "wrong": "its numbers differ from Inlay's, by 1.0e-02 of the largest",
        "absent": "not installed (pip install it)",
    }
    assert (found.network, found.inputs, found.threads) == ("small", {"x": (1, 3, 8, 8)}, inlay.get_num_threads())
    assert found.predicted_ms >= found.bound_ms > 0
    assert min(found.arena_bytes, found.planning, found.compiling) > 0


@pytest.mark.usefixtures("engine")
def test_a_difference_that_the_softmax_hides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All logits 1 greater: the softmax is the same."""

    def shifted(array: Array) -> Array:
        return array + np.float32(1) if array.min() < 0 else array

    monkeypatch.setattr(runtimes, "RUNTIMES", {"shifted": fake(shifted)})
    found = bench_network(small().SerializeToString(), rounds=1, costs="probed")
    assert list(found.measured.seconds) == ["Inlay"]
    assert found.measured.absent["shifted"].startswith("its numbers differ from Inlay's, by ")


@pytest.mark.usefixtures("engine")
def test_the_fastest_right_variant_of_a_peer_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def peer(given: NetworkInputs) -> Iterator[Configuration]:
        yield from fake(how="slow", pause=4e-3)(given)
        yield from fake(lambda array: -array, how="wrong")(given)
        yield from fake(how="fast", pause=1e-3)(given)
        yield from fake(how="middling", pause=3e-3)(given)

    monkeypatch.setattr(runtimes, "RUNTIMES", {"peer": peer})
    found = bench_network(small().SerializeToString(), rounds=1, costs="probed")
    assert list(found.configurations.values()) == ["probed costs", "fast"]


@pytest.mark.usefixtures("engine")
def test_without_peers_inlay_is_timed_alone() -> None:
    found = bench_network(small(batch="n").SerializeToString(), batch=2, rounds=2, costs="analytic", peers="")
    assert found.inputs == {"x": (2, 3, 8, 8)}
    assert list(found.measured.seconds) == ["Inlay"]
    assert found.measured.absent == {}


def test_the_difference_is_the_worst_tensors() -> None:
    a, b = np.array([1.0, -4.0]), np.array([10.0, 0.0])
    expected = {"a": a, "b": b}
    assert difference({"a": a, "b": b}, expected) == 0
    assert difference({"a": a + 0.4, "b": b + 0.5}, expected) == pytest.approx(0.1)
    assert difference({"a": a.reshape(2, 1)}, expected) == 0
    assert difference({"a": a[:1]}, expected) == np.inf
    assert difference({"a": np.array([1.0, np.nan])}, expected) == np.inf
    assert difference({}, expected) == np.inf
    assert difference({"z": np.ones(2)}, {"z": np.zeros(2)}) == 1


# The file as runtimes like it


def test_weights_are_no_inputs_and_dims_are_numbers() -> None:
    model = small(opset=9, batch="n", listed=True)
    network = inlay.load(model.SerializeToString(), batch=4)
    ready = runtimes.prepare_model(model, network)
    assert [value.name for value in ready.graph.input] == ["x"]
    for value in (*ready.graph.input, *ready.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_value == 4
    assert ready.ir_version == runtimes.IR_VERSION
    onnx.checker.check_model(ready, full_check=True)


def test_an_older_opset_is_raised_once() -> None:
    model = runtimes.convert_to_newer_opset(small(opset=9))
    assert model is not None
    assert model.opset_import[0].version == 13
    assert runtimes.convert_to_newer_opset(model) is None
    assert runtimes.convert_to_newer_opset(small(opset=17)) is None
    x = inputs_of(model)
    one, other = (run_model(each, x) for each in (small(opset=9), model))
    assert difference(one, other) < 1e-6


def test_what_a_softmax_reads_can_be_an_output() -> None:
    model = small()
    assert runtimes.softmax_inputs(model) == {"y": "f"}
    shown = runtimes.with_outputs(model, ["f"])
    assert [value.name for value in shown.graph.output] == ["y", "f"]
    assert [value.name for value in model.graph.output] == ["y"]


# What is said


def test_the_report_in_words() -> None:
    assert str(REPORT) == (
        "net, x 1x3x8x8, 2 threads\n"
        "planned in 0.50 s, compiled in 0.25 s: 57 steps, 1 reorder, arena 5.22 MB\n"
        "predicted 1.9 ms, measured 2 ms\n"
        "          ms  Inlay is                           how\n"
        "Inlay  2.000                                     probed costs\n"
        "peer   4.000  1.50 times as fast (1.25 to 1.75)  opset 13\n"
        "torch: not installed"
    )


def test_json_holds_every_time() -> None:
    found = json.loads(json.dumps(REPORT.as_json()))
    peer = found.pop("measured")["peer"]
    ratio = pytest.approx({"median": 1.5, "low": 1.25, "high": 1.75})
    assert peer.pop("inlay_is_times_as_fast") == ratio
    assert peer == {"how": "opset 13", "seconds": [3e-3, 4e-3, 4e-3], "difference": 2e-7}
    assert found == {
        "network": "net",
        "inputs": {"x": [1, 3, 8, 8]},
        "threads": 2,
        "precision": None,
        "absent": {"torch": "not installed"},
        "predicted_ms": 1.9,
        "bound_ms": 1.8,
        "arena_bytes": 5_220_000,
        "steps": 57,
        "reorders": 1,
        "planning": 0.5,
        "compiling": 0.25,
        "note": "",
        "numpy": None,
        "fallback": None,
        "sources": None,
    }


def test_the_report_says_what_the_reference_engine_computes() -> None:
    note = "1 step is computed by the reference engine: softmax"
    report = replace(REPORT, note=note)
    assert str(report).splitlines() == [*str(REPORT).splitlines()[:3], note, *str(REPORT).splitlines()[3:]]
    assert report.as_json()["note"] == note


def test_the_share_of_numpy_stands_in_the_table_and_in_json() -> None:
    report = replace(REPORT, numpy=NumpyShare(2, 61, 0.07, "measured"))
    assert str(report).splitlines()[3] == "NumPy computes 2 of 61 steps, 7 % of the measured time"
    assert report.as_json()["numpy"] == {"steps": 2, "share": 0.07}


# Refusals and the command


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rounds": 0}, "rounds is 0: give a whole number from 1 on"),
        (
            {"threads": 4096},
            r"threads is 4096, and this process may run on \d+ processors: threads that share one wait for each other",
        ),
        (
            {"peers": "onnx,torch"},
            "no peer is called 'onnx': give some of onnxruntime, openvino, torch, joined by commas",
        ),
        (
            {"costs": "guessed", "peers": ""},
            "costs are 'guessed': give measured, probed, analytic, or an object with costs",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(options: Mapping[str, Any], text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        bench_network(small().SerializeToString(), engine="reference", **options)
    assert re.fullmatch(text, str(caught.value))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["nchw", "nhwc"],
            "bench measures a reorder, as in `inlay bench nchw nhwc 8x64x56x56`, or the file of a network, as in "
            "`inlay bench model.onnx`, or --machine: 'nchw nhwc' has no dims",
        ),
        (["net.onnx", "--tune"], "--tune is for a reorder, and a network is given: leave it out"),
        (["net.onnx", "--dtype", "bf16"], "--dtype is for a reorder, and a network is given: leave it out"),
        (["ab", "ba", "8x8", "--batch", "8"], "--batch is for a network, and a reorder is given: leave it out"),
        (
            ["ab", "ba", "8x8", "--torch-compile"],
            "--torch-compile is for a network, and a reorder is given: leave it out",
        ),
        (["net.onnx", "--seconds", "-1"], "--seconds is -1: give a number greater than 0"),
        (["net.onnx", "--dim", "224"], "--dim is NAME=N, such as height=224 or x[2]=224: '224' is not"),
    ],
)
def test_the_command_refuses_what_does_not_fit(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {text}\n"


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["bench", str(tmp_path / "net.onnx"), "--engine", "reference"]) == 2
    assert "net.onnx" in capsys.readouterr().err


def test_the_command_passes_on_what_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[Any] = []

    def carried_out(path: str, **named: Any) -> NetworkReport:
        asked.append((path, {name: value for name, value in named.items() if name != "progress"}))
        assert (named["progress"] is None) == (named["costs"] != "measured")
        return REPORT

    monkeypatch.setattr(networks, "bench_network", carried_out)
    assert cli.main(["bench", "net.onnx", "--costs", "measured"]) == 0
    assert capsys.readouterr().out == f"{REPORT}\n"
    options = "--batch 8 --dim height=224 --rounds 3 --costs probed --threads 1 --peers torch --torch-compile --json"
    options += " --convolutions direct --engine reference --precision auto --tolerance 0.02"
    assert cli.main(["bench", "net.onnx", *options.split()]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(REPORT.as_json()))
    plain: dict[str, Any] = {"batch": None, "dims": {}, "threads": None, "peers": None, "compiles": False}
    plain |= {"convolutions": "auto", "fallback": "auto", "engine": None}
    plain |= {"precision": None, "tolerance": None, "against": None}
    assert asked[0] == ("net.onnx", {"rounds": 15, "costs": "measured", "seconds": None, **plain})
    told: dict[str, Any] = {"batch": 8, "dims": {"height": 224}, "threads": 1, "peers": "torch", "compiles": True}
    told |= {"convolutions": "direct", "fallback": "auto", "engine": "reference"}
    told |= {"precision": "auto", "tolerance": 0.02, "against": None}
    assert asked[1] == ("net.onnx", {"rounds": 3, "costs": "probed", "seconds": None, **told})


# The peers that are here


def results_of(peer: runtimes.Runtime, model: Model) -> list[tuple[str, float]]:
    """Each variant with how far its numbers are from those of the reference."""
    data = model.SerializeToString()
    network = load_bound(data)
    ready = runtimes.prepare_model(onnx.load_from_string(data), network)
    graph = inlay.plan(network, costs="analytic").graph
    inputs = inputs_of(ready)
    shown = tuple(runtimes.softmax_inputs(ready).values())
    traced = inlay.plan(network, costs="probed").compile().trace(inputs)
    given = NetworkInputs(ready, graph, inputs, shown, 1)
    return [(variant.how, difference(variant.results(), traced)) for variant in _skipping(peer, given)]


def _skipping(peer: runtimes.Runtime, given: NetworkInputs) -> Iterator[Configuration]:
    try:
        yield from peer(given)
    except InlayError as reason:
        if "not installed" in str(reason):
            pytest.skip(str(reason))
        raise


@pytest.mark.heavy
@pytest.mark.usefixtures("engine")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "hows"),
    [
        ("ONNX Runtime", ["the file's opset", "opset 13"]),
        ("OpenVINO", ["for latency, 1 stream, f32"]),
        ("torch", ["eager, channels last", "eager, contiguous"]),
    ],
)
@pytest.mark.parametrize("network", ["squeezenet", "shufflenet"])
def test_a_peer_computes_the_same_in_every_variant(name: str, hows: list[str], network: str) -> None:
    found = results_of(runtimes.RUNTIMES[name], light(network))
    assert [how for how, _ in found] == hows
    assert max(error for _, error in found) < networks.CLOSE


@pytest.mark.heavy
@pytest.mark.usefixtures("engine")
@pytest.mark.filterwarnings("ignore")
def test_squeezenet_is_timed_beside_all_that_are_here() -> None:
    found = bench_network(light("squeezenet").SerializeToString(), rounds=3, costs="probed")
    assert set(found.measured.seconds) | set(found.measured.absent) == {"Inlay", *runtimes.RUNTIMES}
    assert all("not installed" in reason for reason in found.measured.absent.values())
