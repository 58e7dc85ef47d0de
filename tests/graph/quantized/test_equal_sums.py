"""Sums of integers with equal dims and other scales: each has post-operations of its own."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.graph.op_graph import Array

Values = tuple[float, int]
DIMS = [4, 6]


def quantize(real: Array, values: Values) -> Array:
    scale, zero = np.float32(values[0]), values[1]
    return np.asarray(np.clip(np.rint(real / scale) + zero, 0, 255), np.uint8)


def dequantize(integers: Array, values: Values) -> Array:
    return np.asarray((integers.astype(np.float32) - values[1]) * np.float32(values[0]))


def write_model(path: Path, steps: list[tuple[str, str, Values]]) -> None:
    """A chain of sums of `x` and the sum before, each quantized: name, second operand, scale and zero point."""
    nodes, constants = list[onnx.NodeProto](), list[onnx.TensorProto]()
    for name, other, (scale, zero) in steps:
        constants += [numpy_helper.from_array(np.asarray(scale, np.float32), f"{name}_s")]
        constants += [numpy_helper.from_array(np.asarray(zero, np.uint8), f"{name}_z")]
        source = "x" if not other else f"{name}_sum"
        nodes += [helper.make_node("Add", ["x_d", other], [source])] if other else []
        nodes.append(helper.make_node("QuantizeLinear", [source, f"{name}_s", f"{name}_z"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
    ends = [helper.make_tensor_value_info(one, TensorProto.FLOAT, DIMS) for one in ("x", nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "sums", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize("engine", ["onednn", "reference"])
def test_sums_of_equal_dims_have_their_own_zero_points(tmp_path: Path, engine: str) -> None:
    first, second, third = (0.05, 120), (0.09, 77), (0.2, 10)
    write_model(tmp_path / "sums.onnx", [("x", "", first), ("y", "x_d", second), ("z", "y_d", third)])
    x = np.random.default_rng(0).standard_normal(DIMS).astype(np.float32)
    start = dequantize(quantize(x, first), first)
    middle = dequantize(quantize(start + start, second), second)
    expected = quantize(start + middle, third)
    plan = inlay.plan(inlay.load(tmp_path / "sums.onnx"), costs="analytic")
    with plan.compile(engine=engine) as session:
        found = quantize(next(iter(session.run({"x": x}).values())), third)
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1
