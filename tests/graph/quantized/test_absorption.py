"""Products whose integers are dequantized at once: numbers of f32 that NumPy's integers represent, in one operation."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array, Op
from inlay.graph.passes.value_ranges import bounded, infer_range, range_of_array

SRC_SCALE, SRC_ZERO, WEIGHTS_SCALE = np.float32(0.03), 120, np.float32(0.011)
RNG = np.random.default_rng(8)
WEIGHTS = {
    "MatMul": RNG.integers(-127, 128, (40, 24)).astype(np.int8),
    "Conv": RNG.integers(-127, 128, (24, 40, 1, 1)).astype(np.int8),
}
DIMS = {"MatMul": ((30, 40), (30, 24)), "Conv": ((2, 40, 5, 6), (2, 24, 5, 6))}
ZEROS = {"u8": np.uint8(93), "s8": np.int8(-7), "u8 from 0 on": np.uint8(0), "s8 up to 0": np.int8(127)}


def model_of(operator: str, scale: float, zero: Any, *readers: Any) -> bytes:
    """A product of a quantized x, quantized and dequantized to y; `readers` read its integers q too."""
    constants = {
        "ss": SRC_SCALE,
        "sz": np.uint8(SRC_ZERO),
        "ws": WEIGHTS_SCALE,
        "wz": np.int8(0),
        "w": WEIGHTS[operator],
        "ds": np.float32(scale),
        "dz": zero,
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "ss", "sz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "ss", "sz"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node(operator, ["xd", "wd"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "ds", "dz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "ds", "dz"], ["y"]),
        *readers,
    ]
    results = ["y", *(reader.output[0] for reader in readers)]
    src, dst = DIMS[operator]
    ends = [helper.make_tensor_value_info("x", 1, src), *(helper.make_tensor_value_info(n, 1, dst) for n in results)]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "absorption", ends[:1], ends[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    content: bytes = model.SerializeToString()
    return content


def operations(model: bytes) -> list[Op]:
    return [op for op in lower_network(load_bound(model)).ops if op.kind != "view"]


def product_of(operator: str, x: Array) -> Array:
    """The real product of the integers of x and the weights, from sums of integers."""
    integers = np.clip(np.rint(x / SRC_SCALE) + SRC_ZERO, 0, 255).astype(np.int64) - SRC_ZERO
    weights = WEIGHTS[operator].astype(np.int64)
    if operator == "Conv":
        sums = np.einsum("nchw,oc->nohw", integers, weights[:, :, 0, 0])
    else:
        sums = integers @ weights
    return np.asarray(sums * (np.float64(SRC_SCALE) * np.float64(WEIGHTS_SCALE)))


@pytest.mark.parametrize("zero", ZEROS)
@pytest.mark.parametrize("scale", [0.05, 0.0117])
@pytest.mark.parametrize("operator", WEIGHTS)
def test_a_dequantized_product_has_the_numbers_of_its_integers(operator: str, scale: float, zero: str) -> None:
    """With the smaller scale, a tenth of the results saturate."""
    model, x = model_of(operator, scale, ZEROS[zero]), RNG.standard_normal(DIMS[operator][0], np.float32)
    with inlay.compile(inlay.load(model), costs="analytic") as session:
        found = session.run({"x": x})["y"]
    limits, offset, step = np.iinfo(ZEROS[zero].dtype), int(ZEROS[zero]), np.float32(scale)
    real = product_of(operator, x) / np.float64(step)
    integers = np.clip(np.rint(real), limits.min - offset, limits.max - offset)
    is_half = np.abs(real - np.floor(real) - 0.5) < 1e-4  # a float's rounding decides
    np.testing.assert_array_equal(found[~is_half], (integers.astype(np.float32) * step)[~is_half])
    assert is_half.mean() < 0.01
    assert np.abs(found / step - np.rint(found / step)).max() < 1e-3


@pytest.mark.parametrize("operator", WEIGHTS)
def test_a_dequantized_product_is_one_operation(operator: str) -> None:
    model = model_of(operator, 0.05, np.uint8(93))
    assert [op.kind for op in operations(model)] == ["reorder", {"MatMul": "matmul", "Conv": "convolution"}[operator]]


def test_integers_that_others_read_stay() -> None:
    reader = helper.make_node("DequantizeLinear", ["q", "ss", "sz"], ["other"])
    kinds = [op.kind for op in operations(model_of("MatMul", 0.05, np.uint8(93), reader))]
    assert kinds == ["reorder", "matmul", "reorder", "reorder"]


def test_the_range_of_a_dequantized_product_is_that_of_its_integers() -> None:
    """Else the next operation would not be proved finite, and exact kernels would compute it."""
    product = operations(model_of("MatMul", 0.05, np.uint8(93)))[-1]
    ranges = {name: range_of_array(array) for name, array in product.constants.items()} | {"src": bounded(0, 255)}
    dims = {"src": (30, 40), "weights": (40, 24), "dst": (30, 24)}
    found = infer_range(product, ranges, dims)
    assert found.low == pytest.approx(-93 * 0.05, rel=1e-2)
    assert found.high == pytest.approx(162 * 0.05, rel=1e-2)
    assert not found.may_be_nan
