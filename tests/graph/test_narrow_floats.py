"""Networks of float16 and bfloat16: computed in float32, with the types of inputs and outputs kept."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import inlay
from inlay.data_type import as_data_type
from inlay.graph.costs.instruction_sets import allowed_isa
from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.precision import supported_types
from tests.support.lowered_models import normal
from tests.support.written_models import written_model

NARROW: Mapping[int, np.dtype[Any]] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
ERRORS: Mapping[int, float] = {TensorProto.FLOAT16: 2.0**-11, TensorProto.BFLOAT16: 2.0**-8}
kinds = pytest.mark.parametrize("kind", NARROW, ids=["float16", "bfloat16"])


def read(text: str, dims: tuple[int, ...], outputs: Mapping[str, int], *, opset: int = 18, **rest: Any) -> Network:
    """Read a model of these nodes, with the types of its outputs."""
    model = written_model(text, dims, " ".join(outputs), opset=opset, **rest)
    for value in model.graph.output:
        value.type.tensor_type.elem_type = outputs[value.name]
    return load_bound(model.SerializeToString())


def run(network: Network, x: Array) -> dict[str, Array]:
    return inlay.plan(network, costs="probed").compile().run({"x": x})


def operators(network: Network) -> list[str]:
    return [node.operator for node in network.nodes]


@kinds
@pytest.mark.parametrize("opset", [13, 18, 22])
def test_a_convolution_is_rounded_once(kind: int, opset: int) -> None:
    """Opsets before 22 have no Conv of bfloat16, and exporters write it all the same."""
    x, w = normal(0, (2, 4, 6, 6)).astype(NARROW[kind]), normal(1, (4, 4, 1, 1)).astype(NARROW[kind])
    network = read("c = Conv(x, w) y = Relu(c)", x.shape, {"y": kind}, kind=kind, opset=opset, w=w)
    assert operators(network) == ["Cast", "Conv", "Relu", "Cast"]
    found = run(network, x)["y"]
    assert found.dtype == NARROW[kind]
    exact = np.maximum(np.einsum("oi,nihw->nohw", w[:, :, 0, 0].astype(float), x.astype(float)), 0)
    assert (np.abs(found.astype(float) - exact) <= 1.01 * ERRORS[kind] * np.abs(exact) + 1e-5).all()


@kinds
def test_what_overflows_between_does_not(kind: int) -> None:
    """300 * 300 is over 65504, and what is computed of it is not."""
    x = np.full((2, 3), 300, NARROW[kind])
    found = run(read("s = Mul(x, x) y = Sqrt(s)", x.shape, {"y": kind}, kind=kind), x)
    assert found["y"].astype(float).tolist() == [[300.0] * 3] * 2


@kinds
def test_an_output_that_others_read_is_rounded_and_they_read_it_unrounded(kind: int) -> None:
    x, c = np.full((1, 2), 2.0**-9, NARROW[kind]), np.array([256.0], NARROW[kind])
    found = run(read("a = Add(x, c) y = Sub(a, c)", x.shape, {"a": kind, "y": kind}, kind=kind, c=c), x)
    assert found["a"].astype(float).tolist() == [[256.0, 256.0]]
    # A plan in the narrow type has rounded `a` in memory.
    is_stored = as_data_type(NARROW[kind]).name in supported_types(allowed_isa())
    assert found["y"].astype(float).tolist() in ([[2.0**-9] * 2], *([[[0.0, 0.0]]] if is_stored else []))


@kinds
def test_a_cast_to_compute_in_is_nothing(kind: int) -> None:
    x = np.array([[1.0001, 3.0]], np.float32)
    text = f"n = Cast <to = {kind}> (x) t = Add(n, n) y = Cast <to = 1> (t)"
    network = read(text, x.shape, {"y": TensorProto.FLOAT})
    assert operators(network) == ["Add"]
    assert run(network, x)["y"].tolist() == (2 * x).tolist()


@kinds
def test_a_cast_that_nothing_but_casts_read_rounds(kind: int) -> None:
    x = np.array([[1.0001, 3.0, 1e9]], np.float32)
    with np.errstate(over="ignore"):
        wanted = x.astype(NARROW[kind]).astype(np.float32)
    network = read(f"n = Cast <to = {kind}> (x) y = Cast <to = 1> (n)", x.shape, {"y": TensorProto.FLOAT})
    assert run(network, x)["y"].tolist() == wanted.tolist()


@kinds
def test_casts_from_integers_and_to_truth_values_stay(kind: int) -> None:
    x, half = np.array([[0, 1, 5]], np.int64), np.array([0.5], NARROW[kind])
    text = f"n = Cast <to = {kind}> (x) y = Mul(n, half) b = Cast <to = {TensorProto.BOOL}> (y) z = CastLike(x, half)"
    outputs = {"y": kind, "b": TensorProto.BOOL, "z": kind}
    found = run(read(text, x.shape, outputs, kind=TensorProto.INT64, half=half), x)
    assert [found[name].dtype for name in "ybz"] == [NARROW[kind], np.dtype(bool), NARROW[kind]]
    assert [found[name].astype(float).tolist() for name in "ybz"] == [[[0.0, 0.5, 2.5]], [[0, 1, 1]], [[0.0, 1.0, 5.0]]]


@kinds
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("node", ["Cast <to = 17, saturate = {}> (x)", "CastLike <saturate = {}> (x, like)"])
def test_a_cast_to_8_bits_saturates_where_the_node_says_so(kind: int, saturate: int, node: str) -> None:
    small = np.dtype(ml_dtypes.float8_e4m3fn)
    x = np.array([[1.0, -448.0, 480.0, -1e4]], NARROW[kind])
    outputs = {"y": TensorProto.FLOAT8E4M3FN}
    network = read(f"y = {node.format(saturate)}", x.shape, outputs, kind=kind, opset=19, like=np.zeros(1, small))
    found = run(network, x)["y"]
    beyond = [448.0, -448.0] if saturate else [np.nan, np.nan]
    assert found.dtype == small
    np.testing.assert_array_equal(found.astype(float), [[1.0, -448.0, *beyond]])


@kinds
def test_a_constant_that_is_an_output_keeps_its_type(kind: int) -> None:
    c = np.array([1.5, 2.5], NARROW[kind])
    found = run(read("y = Relu(x) k = Identity(c)", (2,), {"y": kind, "k": kind}, kind=kind, c=c), -c)
    assert found["k"].dtype == NARROW[kind]
    assert found["k"].astype(float).tolist() == [1.5, 2.5]
    assert found["y"].astype(float).tolist() == [0.0, 0.0]


@kinds
def test_nan_and_infinity_come_through(kind: int) -> None:
    x = np.array([[np.nan, np.inf, -np.inf, -1.0]], NARROW[kind])
    found = run(read("y = Relu(x)", x.shape, {"y": kind}, kind=kind), x)["y"]
    np.testing.assert_array_equal(found.astype(float), [[np.nan, np.inf, 0.0, 0.0]])
