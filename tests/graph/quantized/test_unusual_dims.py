"""Sums of integers whose dims no descriptor has are computed by NumPy."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.graph.op_graph import Array


@pytest.mark.parametrize("dims", [(), (1,) * 12 + (3,), (2, 3)])
def test_sums_have_the_results_of_numpy(tmp_path: Path, dims: tuple[int, ...]) -> None:
    values: dict[str, Array] = {"s": np.array(0.05, np.float32), "z": np.array(120, np.uint8)}
    constants = [numpy_helper.from_array(array, name) for name, array in values.items()]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("Add", ["a", "a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT8, dims) for name in "xy"]
    graph = helper.make_graph(nodes, "sum", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    x = np.random.default_rng(4).integers(0, 256, dims).astype(np.uint8)
    plan = inlay.plan(inlay.load(tmp_path / "m.onnx"), costs="analytic", fallback=False)
    with plan.compile() as session:
        found = session.run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.clip(2 * (x.astype(int) - 120) + 120, 0, 255))
