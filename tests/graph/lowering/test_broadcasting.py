"""Broadcasts of the primitive binary: results as NumPy's, in dims for which oneDNN has machine code."""

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.graph.broadcast_patterns import merge_axes
from inlay.graph.op_graph import OpGraph, operation_of
from inlay.primitives import get_engine
from tests.oracles import onednn as oracle
from tests.support import lowered_models as lm
from tests.support.lowered_models import SEEDS, normal

FUNCTIONS: dict[str, Any] = {
    "Add": operator.add,
    "Div": operator.truediv,
    "Max": np.maximum,
    "Mul": operator.mul,
    "Sub": operator.sub,
}
AXES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["both", "first", "second"])), min_size=1, max_size=6)
CONSTANTS = st.sampled_from([[], ["a"], ["b"]])


def lower_pair(name: str, shapes: dict[str, tuple[int, ...]], seed: int, constants: list[str]) -> OpGraph:
    """Lower an operation on two tensors, and compare it with NumPy's."""
    arrays = {name: normal(seed + i, shape) + np.float32(6) for i, (name, shape) in enumerate(shapes.items())}
    model, given = lm.model_of(name, arrays, opset=13, constants=constants)
    return lm.lower_and_compare(model, given, values={"y0": FUNCTIONS[name](arrays["a"], arrays["b"])})


def implementations(graph: OpGraph) -> set[str]:
    """Return the names of oneDNN's implementations of the operations, all row-major."""
    engine = get_engine("onednn")
    used = [(op, {**op.reads, **op.writes}) for op in graph.ops if op.kind != "view"]
    descs = [{a: MemoryDesc(graph.tensors[name].dims, "f32") for a, name in names.items()} for _, names in used]
    return {engine.create(operation_of(op, own)).impl for (op, _), own in zip(used, descs, strict=True)}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(axes=AXES, seed=SEEDS, constants=CONSTANTS)
@example(axes=[(1, "both"), (3, "both"), (2, "both"), (3, "first")], seed=0, constants=[])
@example(axes=[(3, "first"), (2, "both"), (3, "second"), (2, "first"), (3, "both")], seed=0, constants=["a"])
def test_every_broadcast_is_numpys_in_machine_code(
    name: str, axes: list[tuple[int, str]], seed: int, constants: list[str]
) -> None:
    shapes = {
        operand: tuple(n if owner in ("both", which) else 1 for n, owner in axes)
        for operand, which in (("a", "first"), ("b", "second"))
    }
    graph = lower_pair(name, shapes, seed, constants)
    if oracle.why_unavailable() is None:
        assert not any(impl.startswith("ref") for impl in implementations(graph))


@pytest.mark.parametrize(
    ("shapes", "name", "kinds", "dims"),
    [
        (((1, 64, 4, 32), (1, 64, 4, 1)), "Mul", ["binary"], (256, 32)),
        (((1, 4, 3, 49), (1, 4, 1, 49)), "Add", ["binary"], (4, 3, 49)),
        (((1, 4, 1, 1), (2, 4, 5, 5)), "Add", ["binary"], (2, 4, 5, 5)),  # channels: any format of images will do
        (((4, 1), (4, 5)), "Sub", ["eltwise", "binary"], (4, 5)),
        (((4, 1), (4, 5)), "Div", ["binary", "binary"], (20,)),
        (((4, 1), (1, 5)), "Mul", ["binary", "binary"], (4, 5)),
        (((2, 3, 2, 3, 2), (2, 1, 2, 1, 2)), "Mul", ["binary", "binary"], (12, 3, 2)),
    ],
)
def test_the_fewest_axes_are_chosen(
    shapes: tuple[tuple[int, ...], ...], name: str, kinds: list[str], dims: tuple[int, ...]
) -> None:
    graph = lower_pair(name, dict(zip("ab", shapes, strict=True)), 0, [])
    assert lm.kinds_of(graph) == kinds
    last = [op for op in graph.ops if op.kind == "binary"][-1]
    assert graph.tensors[last.writes["dst"]].dims == dims


def test_merged_axes_keep_their_kind() -> None:
    assert merge_axes((2, 1, 3, 4, 1, 5), (2, 1, 3, 1, 6, 1)) == ((6, 4, 1, 5), (6, 1, 6, 1))
    assert merge_axes((1, 1), (1, 1)) == ((1,), (1,))
