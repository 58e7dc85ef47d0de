"""Networks of float16 and bfloat16: computed in float32, with the types of inputs and outputs kept."""

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.graph.network import Network

Array = npt.NDArray[Any]

NARROW: Mapping[int, np.dtype[Any]] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}
ERRORS: Mapping[int, float] = {TensorProto.FLOAT16: 2.0**-11, TensorProto.BFLOAT16: 2.0**-8}
kinds = pytest.mark.parametrize("kind", NARROW, ids=["float16", "bfloat16"])


def network_of(
    nodes: Sequence[Any],
    types: tuple[int, Sequence[int], Mapping[str, int]],
    constants: Mapping[str, Array] | None = None,
    opset: int = 18,
) -> Network:
    """Of the input x, with its type and dims, and of outputs with their types."""
    kind, dims, outputs = types
    x = helper.make_tensor_value_info("x", kind, dims)
    values = [helper.make_tensor_value_info(name, its, None) for name, its in outputs.items()]
    stored = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "narrow", [x], values, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return inlay.load(model.SerializeToString())


def run(network: Network, x: Array) -> dict[str, Array]:
    return inlay.plan(network, costs="probed").compile().run({"x": x})


def operators(network: Network) -> list[str]:
    return [node.operator for node in network.nodes]


@kinds
@pytest.mark.parametrize("opset", [13, 18, 22])
def test_a_convolution_is_rounded_once(kind: int, opset: int) -> None:
    """Opsets before 22 have no Conv of bfloat16, and exporters write it all the same."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 6, 6)).astype(NARROW[kind])
    w = rng.standard_normal((4, 4, 1, 1)).astype(NARROW[kind])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    network = network_of(nodes, (kind, x.shape, {"y": kind}), {"w": w}, opset)
    assert operators(network) == ["Cast", "Conv", "Relu", "Cast"]
    found = run(network, x)["y"]
    assert found.dtype == NARROW[kind]
    exact = np.maximum(np.einsum("oi,nihw->nohw", w[:, :, 0, 0].astype(float), x.astype(float)), 0)
    assert (np.abs(found.astype(float) - exact) <= 1.01 * ERRORS[kind] * np.abs(exact) + 1e-5).all()


@kinds
def test_what_overflows_between_does_not(kind: int) -> None:
    """300 * 300 is over 65504, and what is computed of it is not."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Sqrt", ["s"], ["y"]),
    ]
    x = np.full((2, 3), 300, NARROW[kind])
    assert run(network_of(nodes, (kind, x.shape, {"y": kind})), x)["y"].astype(float).tolist() == [[300.0] * 3] * 2


@kinds
def test_an_output_that_others_read_is_rounded_and_they_read_it_unrounded(kind: int) -> None:
    nodes = [helper.make_node("Add", ["x", "c"], ["a"]), helper.make_node("Sub", ["a", "c"], ["y"])]
    x, c = np.full((1, 2), 2.0**-9, NARROW[kind]), np.array([256.0], NARROW[kind])
    found = run(network_of(nodes, (kind, x.shape, {"a": kind, "y": kind}), {"c": c}), x)
    assert found["a"].astype(float).tolist() == [[256.0, 256.0]]
    assert found["y"].astype(float).tolist() == [[2.0**-9] * 2]


@kinds
def test_a_cast_to_compute_in_is_nothing(kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=kind),
        helper.make_node("Add", ["n", "n"], ["t"]),
        helper.make_node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
    ]
    x = np.array([[1.0001, 3.0]], np.float32)
    network = network_of(nodes, (TensorProto.FLOAT, x.shape, {"y": TensorProto.FLOAT}))
    assert operators(network) == ["Add"]
    assert run(network, x)["y"].tolist() == (2 * x).tolist()


@kinds
def test_a_cast_that_nothing_but_casts_read_rounds(kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=kind),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
    ]
    x = np.array([[1.0001, 3.0, 1e9]], np.float32)
    with np.errstate(over="ignore"):
        wanted = x.astype(NARROW[kind]).astype(np.float32)
    network = network_of(nodes, (TensorProto.FLOAT, x.shape, {"y": TensorProto.FLOAT}))
    assert run(network, x)["y"].tolist() == wanted.tolist()


@kinds
def test_casts_from_integers_and_to_truth_values_stay(kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], to=kind),
        helper.make_node("Mul", ["n", "half"], ["y"]),
        helper.make_node("Cast", ["y"], ["b"], to=TensorProto.BOOL),
        helper.make_node("CastLike", ["x", "half"], ["z"]),
    ]
    x = np.array([[0, 1, 5]], np.int64)
    outputs = {"y": kind, "b": TensorProto.BOOL, "z": kind}
    found = run(network_of(nodes, (TensorProto.INT64, x.shape, outputs), {"half": np.array([0.5], NARROW[kind])}), x)
    assert [found[name].dtype for name in "ybz"] == [NARROW[kind], np.dtype(bool), NARROW[kind]]
    assert [found[name].astype(float).tolist() for name in "ybz"] == [[[0.0, 0.5, 2.5]], [[0, 1, 1]], [[0.0, 1.0, 5.0]]]


@kinds
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("operator", ["Cast", "CastLike"])
def test_a_cast_to_8_bits_saturates_where_the_node_says_so(kind: int, saturate: int, operator: str) -> None:
    small = np.dtype(ml_dtypes.float8_e4m3fn)
    to: dict[str, Any] = {"to": TensorProto.FLOAT8E4M3FN} if operator == "Cast" else {}
    reads = ["x"] if operator == "Cast" else ["x", "like"]
    node = helper.make_node(operator, reads, ["y"], saturate=saturate, **to)
    x = np.array([[1.0, -448.0, 480.0, -1e4]], NARROW[kind])
    outputs = {"y": TensorProto.FLOAT8E4M3FN}
    found = run(network_of([node], (kind, x.shape, outputs), {"like": np.zeros(1, small)}, opset=19), x)["y"]
    beyond = [448.0, -448.0] if saturate else [np.nan, np.nan]
    assert found.dtype == small
    np.testing.assert_array_equal(found.astype(float), [[1.0, -448.0, *beyond]])


@kinds
def test_a_constant_that_is_an_output_keeps_its_type(kind: int) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Identity", ["c"], ["k"])]
    c = np.array([1.5, 2.5], NARROW[kind])
    found = run(network_of(nodes, (kind, (2,), {"y": kind, "k": kind}), {"c": c}), -c)
    assert found["k"].dtype == NARROW[kind]
    assert found["k"].astype(float).tolist() == [1.5, 2.5]
    assert found["y"].astype(float).tolist() == [0.0, 0.0]


@kinds
def test_nan_and_infinity_come_through(kind: int) -> None:
    x = np.array([[np.nan, np.inf, -np.inf, -1.0]], NARROW[kind])
    found = run(network_of([helper.make_node("Relu", ["x"], ["y"])], (kind, x.shape, {"y": kind})), x)["y"]
    np.testing.assert_array_equal(found.astype(float), [[np.nan, np.inf, 0.0, 0.0]])
