"""A softmax whose result is quantized: NumPy's integers, in one operation."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array

RNG = np.random.default_rng(21)
QUANTIZATIONS: dict[str, tuple[float, Any]] = {
    "u8": (1 / 255, np.uint8(0)),
    "u8 with a zero point": (1 / 200, np.uint8(31)),
    "s8 from 0 on": (1 / 127, np.int8(0)),
    "s8": (1 / 255, np.int8(-128)),
    "saturating": (1 / 700, np.uint8(5)),
}


def model_of(dims: tuple[int, ...], axis: int, scale: float, zero: Any, opset: int = 17) -> bytes:
    constants = {"s": np.float32(scale), "z": zero}
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], axis=axis),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
    ends = [helper.make_tensor_value_info("x", 1, dims), helper.make_tensor_value_info("y", kind, dims)]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "softmax", ends[:1], ends[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize(("dims", "axis"), [((2, 3, 8, 16), -1), ((4, 37), 1), ((2, 5, 4, 3), 1), ((3, 130), -1)])
@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_a_quantized_softmax_has_the_integers_of_numpy(
    name: str, dims: tuple[int, ...], axis: int, engine: str | None
) -> None:
    scale, zero = QUANTIZATIONS[name]
    x = (3 * RNG.standard_normal(dims)).astype(np.float32)
    with inlay.compile(inlay.load(model_of(dims, axis, scale, zero)), costs="analytic", engine=engine) as session:
        found = session.run({"x": x})["y"]
    limits, real = np.iinfo(zero.dtype), softmax(x, axis) / scale
    expected = np.clip(np.rint(real) + int(zero), limits.min, limits.max)
    is_half = np.abs(real - np.floor(real) - 0.5) < 1e-3  # rounding of f32 decides
    np.testing.assert_array_equal(found[~is_half], expected[~is_half])
    assert is_half.mean() < 0.05


def kinds(model: bytes) -> list[str]:
    return [op.kind for op in lower_network(load_bound(model)).ops if op.kind != "view"]


def test_a_quantized_softmax_is_one_operation() -> None:
    assert kinds(model_of((4, 16), -1, 1 / 255, np.uint8(0))) == ["softmax"]


@pytest.mark.parametrize(("dims", "opset"), [((4, 1), 17), ((2, 3, 4), 12)])
def test_other_softmaxes_stay_in_f32(dims: tuple[int, ...], opset: int) -> None:
    """One axis of one element, and before opset 13 all axes from one on."""
    assert kinds(model_of(dims, 1, 1 / 255, np.uint8(0), opset)) == ["softmax", "reorder"]
