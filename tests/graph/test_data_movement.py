"""Operators that only move elements: no step is NumPy's, and results are NumPy's bit for bit, for every type."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import helper

from inlay.data_type import ALL_TYPES
from inlay.descriptor import MemoryDesc
from inlay.graph.costs import analytic, probed
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan_graph
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from tests.graph.runtime.test_session import ENGINES
from tests.support.planner_graphs import HashedCosts
from tests.support.written_models import written_model

TYPES = ["bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "complex64", "complex128"]
"""Types that ONNX's operators accept, without those that a pass widens to float32."""


def constant(name: str, *numbers: int) -> str:
    return f"{name} = Constant <value_ints = {list(numbers)}> () "


def part(starts: list[int], axes: list[int], steps: list[int]) -> str:
    """Return the text of Slice's constants; each part reaches the end of its axes."""
    ends = [100 if step > 0 else -100 for step in steps]
    return constant("s", *starts) + constant("e", *ends) + constant("a", *axes) + constant("t", *steps)


NODES: Mapping[str, Callable[[Array], Array]] = {
    constant("c", 5, -1) + "y = Reshape(x, c)": lambda x: x.reshape(5, 48),
    "y = Flatten <axis = 2> (x)": lambda x: x.reshape(12, 20),
    constant("c", 0, 3) + "u = Unsqueeze(x, c) y = Squeeze(u, c)": lambda x: x,
    "y = Transpose <perm = [0, 2, 3, 1]> (x)": lambda x: x.transpose(0, 2, 3, 1),
    "u = Transpose(x) y = Flatten <axis = 1> (u)": lambda x: x.transpose().reshape(4, 60),
    "u, v = Split <axis = 1> (x) y = Concat <axis = 1> (v, u)": lambda x: np.concatenate([x[:, 3:], x[:, :3]], 1),
    constant("c", 2, 3) + "y = Gather <axis = 1> (x, c)": lambda x: x[:, 2:4],
    part([1], [1], [1]) + "y = Slice(x, s, e, a, t)": lambda x: x[:, 1:],
    part([0], [2], [2]) + "y = Slice(x, s, e, a, t)": lambda x: x[:, :, ::2],
    part([1, 0], [2, 3], [2, 3]) + "u = Slice(x, s, e, a, t) y = Transpose(u)": lambda x: x[:, :, 1::2, ::3].T,
    constant("c", -1, 0, 0, 2, 4) + "y = Gather <axis = 2> (x, c)": lambda x: x[:, :, [4, 0, 0, 2, 4]],
    part([-1, 100], [1, 3], [-2, -1]) + "y = Slice(x, s, e, a, t)": lambda x: x[:, ::-2, :, ::-1],
    constant("c", 0, 3, 0, -1, 0, 9, -1, 0) + 'y = Pad <mode = "reflect"> (x, c)': lambda x: np.pad(
        x[:, :, :4, 1:], ((0, 0), (3, 9), (0, 0), (0, 0)), "reflect"
    ),
    constant("c", 1, 0, 0, 2, 0, 0, 0, 7) + 'y = Pad <mode = "edge"> (x, c)': lambda x: np.pad(
        x, ((1, 0), (0, 0), (0, 0), (2, 7)), "edge"
    ),
    constant("c", 0, -1, 0, 0, 0, -2, 0, 0) + "y = Pad(x, c)": lambda x: x[:, 1:4],
    constant("c", 3, 1, 6, 1, 1) + "y = Expand(x, c)": lambda x: np.stack([x] * 3),
    constant("c", 2, 6, 1, 20)
    + constant("d", 2, 6, 4, 20)
    + constant("r", 2, 24, 20)
    + "u = Reshape(x, c) v = Expand(u, d) y = Reshape(v, r)": lambda x: np.repeat(x.reshape(2, 6, 20), 4, 1),
    constant("c", 1, 2, 1, 3) + "y = Tile(x, c)": lambda x: np.tile(x, (1, 2, 1, 3)),
    constant("c", 2, 1, 1, 1) + "u = Tile(x, c) y = Concat <axis = 0> (u, x, u)": lambda x: np.concatenate([x] * 5),
    "u = Transpose(x) v = Transpose(u) y = Concat <axis = -1> (x, v, x)": lambda x: np.concatenate([x] * 3, -1),
}
"""Texts of nodes, and the same by NumPy."""


def bits(name: str) -> Array:
    """Return an image whose elements have random bits, among them those of NaN with payloads."""
    dtype, rng = ALL_TYPES[name].dtype, np.random.default_rng(0)
    if dtype.kind == "b":
        return rng.integers(0, 2, (2, 6, 5, 4)).astype(bool)
    return np.frombuffer(rng.bytes(240 * dtype.itemsize), dtype).reshape(2, 6, 5, 4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", TYPES)
def test_elements_of_every_type_are_moved_without_numpy(name: str, engine: str) -> None:
    x = bits(name)
    for text, function in NODES.items():
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        graph = lower_network(load_bound(written_model(text, x.shape, kind=kind).SerializeToString()))
        programs = [plain_program(graph), plan_graph(graph, analytic(threads=1)).program]
        if engine == "onednn":
            programs.append(plan_graph(graph, probed()).program)
        expected = function(x)
        for program in programs:
            assert "reference" not in {step.kind for step in program.steps}
            found = ProgramSession(program, graph, engine=engine).run({"x": x})["y"]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert found.tobytes() == np.ascontiguousarray(expected).tobytes(), text


def test_no_reorder_to_a_format_whose_elements_share_bytes_is_priced() -> None:
    """Expand is a view with a stride of 0, which no reorder can write: engines refuse to be timed at it."""
    asked: list[MemoryDesc] = []

    class RecordedCosts(HashedCosts):
        def prepare(self, operations: Any, reorders: Any = ()) -> None:
            asked.extend(dst for _, dst in reorders)

        def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
            asked.append(dst)
            return super().reorder(src, dst)

    text = constant("c", 3, 1, 6, 1, 1) + "y = Expand(x, c)"
    model = written_model(text, (2, 6, 5, 4), kind=helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)))
    plan_graph(lower_network(load_bound(model.SerializeToString())), RecordedCosts())
    assert asked
    strides = [pair for dst in asked for pair in zip(dst.dims, dst.strides, strict=True)]
    assert not [pair for pair in strides if pair[0] > 1 and not pair[1]]
