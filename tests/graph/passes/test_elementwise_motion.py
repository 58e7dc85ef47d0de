"""Element-wise operations that moved before reshapes have the same results."""

import numpy as np
import pytest

from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph, ReshapeView
from inlay.graph.passes.elementwise_motion import hoist_elementwise
from inlay.graph.planner.groups import group_operations
from tests.support.interpreter import interpret
from tests.support.planner_graphs import F32, RELU, he

RNG = np.random.default_rng(0)


def dense(outputs: tuple[str, ...] = ("y",)) -> OpGraph:
    """Return a transformer's dense layer: a product of rows, a reshape, bias, residual and activation."""
    dims = {"x": (6, 4), "m": (6, 8), "r": (2, 3, 8), "b": (2, 3, 8), "s": (2, 3, 8), "k": (2, 3, 8), "y": (2, 3, 8)}
    ops = (
        Op("product", "matmul", {"src": "x"}, {"dst": "m"}, {"weights": he(RNG, 4, 8)}),
        Op("rows", "view", {"src": "m"}, {"dst": "r"}, transforms=(ReshapeView((2, 3, 8)),)),
        Op("bias", "binary", {"src_0": "r"}, {"dst": "b"}, {"src_1": he(RNG, 1, 1, 8)}, {"algorithm": "add"}),
        Op("residual", "binary", {"src_0": "k", "src_1": "b"}, {"dst": "s"}, parameters={"algorithm": "add"}),
        Op("relu", "eltwise", {"src": "s"}, {"dst": "y"}, parameters=RELU),
    )
    tensors = {name: Tensor(name, extents, F32) for name, extents in dims.items()}
    return OpGraph("dense", 17, ("x", "k"), outputs, ops, tensors)


@pytest.mark.parametrize("outputs", [("y",), ("y", "b"), ("y", "m"), ("y", "r"), ("b", "s", "y")])
def test_every_tensor_of_both_graphs_has_the_same_elements(outputs: tuple[str, ...]) -> None:
    graph = dense(outputs)
    given = {name: he(RNG, *graph.tensors[name].dims) for name in graph.inputs}
    before, after = interpret(graph, given), interpret(hoist_elementwise(graph), given)
    assert set(outputs) <= before.keys() & after.keys()
    for name in before.keys() & after.keys():
        np.testing.assert_allclose(after[name], before[name], rtol=1e-6, atol=1e-6)


def test_a_dense_layer_behind_a_reshape_becomes_one_group() -> None:
    groups = [group for group in group_operations(hoist_elementwise(dense())) if group.kind != "view"]
    assert [group.names for group in groups] == [(("product", "bias"), ("residual",), ("relu",))]
    assert groups[0].head.constants.keys() == {"weights", "bias"}


def test_a_constant_that_differs_from_row_to_row_stays_behind() -> None:
    graph = dense()
    bias = Op("bias", "binary", {"src_0": "r"}, {"dst": "b"}, {"src_1": he(RNG, 2, 3, 8)}, {"algorithm": "add"})
    kept = OpGraph(graph.name, 17, graph.inputs, graph.outputs, (*graph.ops[:2], bias, *graph.ops[3:]), graph.tensors)
    assert [op.name for op in hoist_elementwise(kept).ops] == [op.name for op in kept.ops]
