"""Quantization around operators that move elements: the integers that NumPy has."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.graph.op_graph import Array

SCALE, ZERO = np.float32(0.05), np.uint8(120)
CONSTANTS = {"s": SCALE, "z": ZERO, "dims": np.array([2, 12, 5]), "back": np.array([5, 2, 3, 4])}


def session_of(kinds: tuple[int, int], dims: tuple[int | str, ...], *nodes: Any) -> inlay.Session:
    """A session of nodes between x and y of these types."""
    x = helper.make_tensor_value_info("x", kinds[0], dims)
    y = helper.make_tensor_value_info("y", kinds[1], None)
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items()]
    graph = helper.make_graph(list(nodes), "moves", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return inlay.compile(inlay.load(model.SerializeToString()), costs="analytic")


def quantize(x: Array) -> Array:
    integers: Array = np.clip(np.rint(x / SCALE) + int(ZERO), 0, 255).astype(np.uint8)
    return integers


TRANSPOSE = helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1])
RESHAPE = helper.make_node("Reshape", ["t", "dims"], ["r"])
LAST = helper.make_node("Transpose", ["r"], ["l"], perm=[2, 0, 1])
CHAINS: dict[str, tuple[tuple[Any, ...], str, Callable[[Array], Array]]] = {
    "one move": ((TRANSPOSE,), "t", lambda x: x.transpose(0, 2, 3, 1)),
    "two moves": ((TRANSPOSE, RESHAPE), "r", lambda x: x.transpose(0, 2, 3, 1).reshape(2, 12, 5)),
    "three moves": (
        (TRANSPOSE, RESHAPE, LAST),
        "l",
        lambda x: x.transpose(0, 2, 3, 1).reshape(2, 12, 5).transpose(2, 0, 1),
    ),
    "four moves": (
        (TRANSPOSE, RESHAPE, LAST, helper.make_node("Reshape", ["l", "back"], ["b"])),
        "b",
        lambda x: x.transpose(0, 2, 3, 1).reshape(2, 12, 5).transpose(2, 0, 1).reshape(5, 2, 3, 4),
    ),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_a_quantization_behind_moves_has_their_integers(chain: str) -> None:
    moves, last, expected = CHAINS[chain]
    x = np.random.default_rng(3).standard_normal((2, 5, 3, 4), np.float32)
    nodes = (*moves, helper.make_node("QuantizeLinear", [last, "s", "z"], ["y"]))
    with session_of((TensorProto.FLOAT, TensorProto.UINT8), x.shape, *nodes) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], quantize(expected(x)))


@pytest.mark.parametrize("dims", [(8, 8), (16, 65), (64, 33), (64, 64), (17, 17), (129, 16), (5, 3)])
def test_zero_points_count_where_a_matrix_is_transposed(dims: tuple[int, int]) -> None:
    """oneDNN ignores them for most of these dims."""
    transpose = helper.make_node("Transpose", ["q"], ["t"], perm=[1, 0])
    ends = (
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["y"]),
    )
    x = np.random.default_rng(5).standard_normal(dims, np.float32)
    with session_of((TensorProto.FLOAT, TensorProto.FLOAT), dims, ends[0], transpose, ends[1]) as session:
        found = session.run({"x": x})["y"]
    expected = (quantize(x).astype(np.float32) - int(ZERO)).T * SCALE
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dims", [(2, 17, 5, 1), (3, 34, 1, 1), (2, 5, 3, 3)])
def test_a_tensor_that_is_joined_with_itself_keeps_its_zero_point(dims: tuple[int, ...]) -> None:
    """The reorder that quantizes writes one half of each image, with the other half in between."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Concat", ["d", "d"], ["c"], axis=1),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    x = np.random.default_rng(3).standard_normal(dims, np.float32)
    with session_of((TensorProto.FLOAT, TensorProto.UINT8), dims, *nodes) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], quantize(np.concatenate([x, x], 1)))


def test_a_part_of_a_split_may_have_no_elements() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Split", ["d", "sizes"], ["a", "b", "c"], axis=1),
    ]
    x = np.random.default_rng(3).standard_normal((2, 6, 3), np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "abc"]
    constants = [numpy_helper.from_array(np.asarray(CONSTANTS[name]), name) for name in "sz"]
    constants.append(numpy_helper.from_array(np.array([0, 2, 4]), "sizes"))
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph(nodes, "parts", [source], ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with inlay.compile(inlay.load(model.SerializeToString()), costs="analytic") as session:
        found = session.run({"x": x})
    expected = (quantize(x).astype(np.float32) - int(ZERO)) * SCALE
    for name, part in zip("abc", (expected[:, :0], expected[:, :2], expected[:, 2:]), strict=True):
        np.testing.assert_allclose(found[name], part, rtol=1e-6, atol=1e-6)


def test_lookups_write_into_concatenations_of_other_batches() -> None:
    """The formats of one batch are taken over for another, those of slices too."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Neg", ["d"], ["m"]),
        helper.make_node("Concat", ["r", "m", "r"], ["c"], axis=1),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    rng = np.random.default_rng(3)
    with session_of((TensorProto.FLOAT, TensorProto.UINT8), ("n", 17, 5, 3), *nodes) as session:
        for batch in (2, 1, 3, 2):
            x = rng.standard_normal((batch, 17, 5, 3), np.float32)
            real = (quantize(x).astype(np.float32) - int(ZERO)) * SCALE
            joined = np.concatenate([np.maximum(real, 0), -real, np.maximum(real, 0)], 1)
            np.testing.assert_array_equal(session.run({"x": x})["y"], quantize(joined))
