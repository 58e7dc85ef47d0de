"""Wrong programs, inputs, plans and costs: golden/mistakes/graphs.txt has calls and the whole text of their errors."""

import copy  # noqa: F401  calls of the file name it
import pickle  # noqa: F401
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.descriptor import MemoryDesc as M
from inlay.graph.costs import analytic  # noqa: F401
from inlay.graph.op_graph import Op, OpGraph, operation_of  # noqa: F401
from inlay.graph.plan import plan_graph  # noqa: F401
from inlay.graph.planner.elimination import Factor  # noqa: F401
from inlay.graph.program import Buffer
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from tests.graph.planner.test_elimination import minimize  # noqa: F401
from tests.support import graph_programs
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.graph_programs import POINTWISE, Case, Writing, add, conv, drawn, graph_of, join, relu
from tests.support.network_runs import model_of, node
from tests.support.planner_graphs import HashedCosts  # noqa: F401

X, BLOCKS = drawn(2, 3), M((2, 3), "f32", "aB16b")
CHAIN = graph_of(
    [relu("one", "x", "a"), relu("two", "a", "b"), relu("three", "b", "y")],
    dict.fromkeys("xaby", (2, 16, 3, 3)),
    "x",
    "y",
)
BRANCHES = graph_of(
    [relu("one", "x", "a"), relu("two", "a", "b"), relu("three", "a", "c"), relu("four", "b", "y")],
    dict.fromkeys("xabcy", (2, 3)),
    "x",
    "y",
)
JOINED = graph_of(
    [relu("one", "x", "a"), relu("two", "x", "b"), join("a", "b", "c", 0), relu("three", "c", "y")],
    {**dict.fromkeys("xab", (2, 3)), **dict.fromkeys("cy", (4, 3))},
    "x",
    "y",
)
READ_TWICE = graph_of(
    [conv("conv", "x", "m", drawn(4, 4, 1, 1)), relu("act", "x", "z"), add("m", "x", "y")],
    dict.fromkeys("xmyz", (1, 4, 2, 2)),
    "x",
    "y z",
)
CONVOLUTION = Op(
    "conv", "convolution", {"src": "x"}, {"dst": "y"}, {"weights": drawn(8, 4, 3, 3), "bias": drawn(8)}, POINTWISE
)
RELU_MODEL = model_of([node("Relu", "x", "y")], {"x": (1,)}, ["y"])
OPEN_MODEL = model_of([], {"x": ("n", 16)}, ["x"])
UNEQUAL = np.where(np.eye(2) > 0, np.inf, 0.0)
ONE_ROW = np.full((1000, 1000), np.inf)
ONE_ROW[[3, 7], 5] = 0.0


def written(graph: OpGraph, steps: str = "", **bases: str) -> Writing:
    """A program of steps with a buffer for each tensor, each in memory of its own where no base is given."""
    writing = Writing(graph)
    for name in graph.tensors:
        writing.buffer(name, base=bases.get(name, ""))
    return writing.step(steps)


def session(
    case: Writing | Case,
    buffers: Mapping[str, Buffer] | None = None,
    steps: Mapping[str, Mapping[str, Any]] | None = None,
    **program: Any,
) -> ProgramSession:
    """A session of a program in which these buffers, fields of steps, and fields of the program are others."""
    case = case.case() if isinstance(case, Writing) else case
    changed = tuple(replace(step, **(steps or {}).get(step.name, {})) for step in case.program.steps)
    program = {"buffers": {**case.program.buffers, **(buffers or {})}, "steps": changed, **program}
    return ProgramSession(replace(case.program, **program), case.graph, engine="reference")


def small() -> ProgramSession:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3)), "x", "y")
    return ProgramSession(plain_program(graph), graph, engine="reference")


def closed(session: ProgramSession) -> ProgramSession:
    with session:
        session.run({"x": X})
    session.close()
    assert not session._pools
    return session


@pytest.mark.parametrize(("call", "error"), read_mistakes("graphs"))
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, {**vars(graph_programs), **globals()})


def test_valid_calls_raise_no_error() -> None:
    for bases in ({}, {"b": "a", "y": "a"}):
        session(written(CHAIN, "one two three", **bases))
    assert small().run({"x": X}, out={"y": np.empty((2, 3), np.float32)})["y"].shape == (2, 3)
    assert inlay.plan(CHAIN, costs="analytic", isa="avx2", threads=1).threads == 1
