"""`inlay bench --precision`: what is asked of each runtime, the errors against f64, and what is refused."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay import cli
from inlay.bench import runtimes
from inlay.bench.networks import bench_network, difference
from inlay.bench.precision import REQUESTS, is_quantized, run_in_f64
from inlay.bench.runtimes import Configuration, NetworkInputs
from inlay.errors import InvalidArguments
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from tests.bench.test_networks import REPORT, fake
from tests.support.networks import Model, inputs_of, light
from tests.support.refusals import raises_exactly

pytestmark = pytest.mark.usefixtures("short_turns")

RNG = np.random.default_rng(5)
WEIGHTS = RNG.standard_normal((64, 32), np.float32)
X = RNG.standard_normal((4, 64), np.float32)


def written(*nodes: Any, output: str = "y", columns: int = 32, **constants: Any) -> bytes:
    """A model of one input x of dims (4, 64)."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("x", [4, 64]), (output, [4, columns]))
    ]
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "products", ends[:1], ends[1:], arrays)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(model.SerializeToString())


def product(output: str = "y") -> bytes:
    return written(helper.make_node("MatMul", ["x", "w"], [output]), output=output, w=WEIGHTS)


def quantized() -> bytes:
    """The product of x and w, both rounded to integers of 8 bits."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["d", "wd"], ["y"]),
    ]
    numbers: dict[str, Any] = {"s": np.float32(3 / 127), "z": np.int8(0), "ws": np.float32(3 / 127), "wz": np.int8(0)}
    integers = np.clip(np.rint(WEIGHTS * 127 / 3), -128, 127).astype(np.int8)
    return written(*nodes, w=integers, **numbers)


def test_primitives_compute_in_f64() -> None:
    found = run_in_f64(lower_network(load_bound(product())), {"x": X})["y"]
    exact = X.astype(np.float64) @ WEIGHTS.astype(np.float64)
    assert found.dtype == np.float64
    assert np.abs(found - exact).max() < 1e-13 * np.abs(exact).max()


def test_a_node_without_a_primitive_computes_in_f32_between_primitives_in_f64() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Erf", ["m"], ["e"]),
        helper.make_node("CumSum", ["e", "axis"], ["c"]),
        helper.make_node("Add", ["c", "c"], ["y"]),
    ]
    graph = lower_network(load_bound(written(*nodes, w=WEIGHTS * np.float32(0.05), axis=np.int64(1))))
    assert any(op.kind == "reference" for op in graph.ops)
    found = run_in_f64(graph, {"x": X}, ("m", "absent"))
    assert list(found) == ["y", "m"]
    assert found["m"].dtype == found["y"].dtype == np.float64
    exact = 2 * np.cumsum(np.vectorize(erf)(X.astype(np.float64) @ (WEIGHTS * np.float32(0.05)).astype(np.float64)), 1)
    assert 0 < difference({"y": found["y"]}, {"y": exact}) < 1e-6


def test_a_concatenation_with_a_constant_is_in_f64() -> None:
    """As of the token of a vision transformer and its patches."""
    token = RNG.standard_normal((1, 32), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Concat", ["t", "m"], ["c"], axis=0),
        helper.make_node("Tanh", ["c"], ["y"]),
    ]
    found = run_in_f64(lower_network(load_bound(written(*nodes, w=WEIGHTS, t=token))), {"x": X})["y"]
    exact = np.tanh(np.concatenate([token.astype(np.float64), X.astype(np.float64) @ WEIGHTS.astype(np.float64)]))
    assert difference({"y": found}, {"y": exact}) < 1e-12


def test_integers_are_rounded_as_in_the_graph() -> None:
    model = quantized()
    found = run_in_f64(lower_network(load_bound(model)), {"x": X})["y"]
    s = np.float64(np.float32(3 / 127))
    x, w = (np.clip(np.rint(a / np.float32(3 / 127)), -128, 127).astype(np.float64) for a in (X, WEIGHTS))
    assert difference({"y": found}, {"y": (x @ w) * s * s}) < 1e-7


def dynamically_quantized() -> bytes:
    """The product of x, whose range is found in each run, and w in integers of 8 bits."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    return written(*nodes, w=np.clip(np.rint(WEIGHTS), -128, 127).astype(np.int8))


def with_4_bits() -> bytes:
    """The product of x and w, with weights in blocks of 4 bits."""
    rows, columns = WEIGHTS.shape
    packed = np.full((columns, -(-rows // 16), 8), 0x97, np.uint8)
    attributes: Any = {"K": rows, "N": columns, "bits": 4, "block_size": 16}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **attributes)
    return written(node, w=packed, s=np.ones(packed.shape[:2], np.float32))


@pytest.mark.parametrize("made", [quantized, dynamically_quantized, with_4_bits])
def test_a_network_with_integer_operators_is_quantized(made: Callable[[], bytes]) -> None:
    assert is_quantized(load_bound(made()))


def test_a_network_of_f32_is_not_quantized() -> None:
    assert not is_quantized(load_bound(product()))


# The comparison


def test_errors_of_all_are_against_f64(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = {
        "near": fake(lambda array: array * np.float32(1 + 1e-3), how="rounded"),
        "far": fake(lambda array: array * np.float32(1.5)),
    }
    monkeypatch.setattr(runtimes, "RUNTIMES", peers)
    found = bench_network(product(), rounds=1, costs="analytic", engine="reference", precision="bf16")
    assert found.precision == "bf16"
    assert found.differences["near"] == pytest.approx(1e-3, rel=1e-2)
    assert 0 <= found.differences["Inlay"] < REQUESTS["bf16"].largest_error
    assert found.measured.absent == {"far": "its numbers differ from those of f64, by 5.0e-01 of the largest"}
    assert str(found).splitlines()[0].endswith(", bf16, errors against f64")


def test_a_precision_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "RUNTIMES", {"near": fake(lambda array: array * np.float32(1 + 1e-3))})
    found = bench_network(product(), rounds=1, costs="analytic", engine="reference", precision="f32")
    assert found.measured.absent == {"near": "its numbers differ from those of f64, by 1.0e-03 of the largest"}
    assert found.differences["Inlay"] < 1e-6


def test_a_quantized_network_is_compared_with_the_one_of_f32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "RUNTIMES", {})
    options: dict[str, Any] = {"rounds": 1, "costs": "analytic", "engine": "reference", "precision": "int8"}
    alone = bench_network(quantized(), **options)
    beside = bench_network(quantized(), against=product(), **options)
    assert alone.differences["Inlay"] < 1e-5
    assert 1e-3 < beside.differences["Inlay"] < 0.1


def test_runtimes_get_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def peer(given: NetworkInputs) -> Iterator[Configuration]:
        asked.append(given.precision)
        yield from fake()(given)

    monkeypatch.setattr(runtimes, "RUNTIMES", {"peer": peer})
    precisions: tuple[Any, ...] = (None, "f32", "f16")
    for precision in precisions:
        bench_network(product(), rounds=1, costs="analytic", engine="reference", precision=precision)
    assert asked == ["f32", "f32", "f16"]


def test_the_report_has_a_column_of_errors() -> None:
    report = replace(REPORT, precision="bf16", differences={"Inlay": 2.5e-3, "peer": 1e-2})
    assert str(report) == (
        "net, x 1x3x8x8, 2 threads, bf16, errors against f64\n"
        "planned in 0.50 s, compiled in 0.25 s: 57 steps, 1 reorder, arena 5.22 MB\n"
        "predicted 1.9 ms, measured 2 ms\n"
        "          ms    error  Inlay is                           how\n"
        "Inlay  2.000  2.5e-03                                     probed costs\n"
        "peer   4.000  1.0e-02  1.50 times as fast (1.25 to 1.75)  opset 13\n"
        "torch: not installed"
    )
    found = json.loads(json.dumps(report.as_json()))
    assert (found["precision"], found["measured"]["peer"]["difference"]) == ("bf16", 1e-2)


# Refusals


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision": "fp16"}, "precision is 'fp16': give one of f32, bf16, f16, int8, auto"),
        (
            {"precision": "int8"},
            "precision is int8, and products has no quantized operators: quantize the model first, for example with "
            "onnxruntime.quantization, or give bf16",
        ),
        ({"tolerance": 0.1}, "tolerance is given, and no precision, which it is for: give precision too"),
        ({"against": product()}, "against is given, and no precision, which it is for: give precision too"),
        (
            {"precision": "bf16", "against": light("squeezenet").SerializeToString()},
            "against has no input x of float32 and dims (4, 64), as products has: give the model that it was quantized "
            "from",
        ),
        (
            {"precision": "bf16", "against": product("z")},
            "against has outputs z, and products has y: give the model that it was quantized from",
        ),
        (
            {"precision": "f32", "tolerance": 0.1},
            "tolerance is 0.1, and precision f32 chooses no types by their error: leave it out, or give "
            "precision='auto'",
        ),
    ],
)
def test_what_has_no_precision_or_error_is_refused(options: dict[str, Any], text: str) -> None:
    with raises_exactly(InvalidArguments, text):
        bench_network(product(), engine="reference", costs="analytic", **options)


def test_the_command_prints_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "int8.onnx").write_bytes(quantized())
    (tmp_path / "f32.onnx").write_bytes(product())
    options = f"--precision int8 --against {tmp_path / 'f32.onnx'} --engine reference --peers= --rounds 1"
    assert cli.main(["bench", str(tmp_path / "int8.onnx"), *options.split()]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "int8, errors against f64" in lines[0]
    assert any(line.startswith("Inlay") and "e-0" in line for line in lines)


# The peers that are here


def variants(peer: str, model: Model, precision: Any) -> dict[str, float]:
    """The error of each configuration of a peer against f64."""
    runtime = pytest.importorskip({"OpenVINO": "openvino", "torch": "torch"}[peer])
    assert runtime is not None
    network = load_bound(model.SerializeToString())
    ready = runtimes.prepare_model(onnx.load_from_string(model.SerializeToString()), network)
    inputs = inputs_of(ready)
    shown = tuple(runtimes.softmax_inputs(ready).values())
    graph = lower_network(network)
    given = NetworkInputs(ready, graph, inputs, shown, 1, precision=precision)
    exact = run_in_f64(graph, inputs, shown)
    return {one.how: difference(one.results(), exact) for one in runtimes.RUNTIMES[peer](given)}


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("precision", "least", "most"), [("f32", 0.0, 1e-5), ("bf16", 1e-3, 0.1), ("f16", 1e-4, 0.02), ("auto", 1e-3, 0.1)]
)
def test_torch_computes_in_the_precision(precision: str, least: float, most: float) -> None:
    found = variants("torch", light("squeezenet"), precision)
    assert len(found) == 2 * len(REQUESTS[precision].torch)
    assert all(least <= error <= most for error in found.values())


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16", "auto"])
def test_openvino_says_in_which_type_it_computes(precision: str) -> None:
    ((how, error),) = variants("OpenVINO", light("squeezenet"), precision).items()
    limits = {"f32": 1e-5, "bf16": 0.1, "f16": 0.02}
    assert how.startswith("for latency, 1 stream, ")
    assert error < limits[how.rpartition(" ")[2]]
