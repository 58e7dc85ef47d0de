"""Errors of layers, and the choice of types under a limit of the error, with a stand-in for the planner."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from inlay.errors import InvalidArguments
from inlay.graph import precision_search
from inlay.graph.costs import analytic
from inlay.graph.layer_errors import Layer, measure_error, measure_layers, measure_outputs, run_in_f32
from inlay.graph.op_graph import Array, Op, OpGraph
from inlay.graph.planned_program import PlannedProgram, TrialPlan
from inlay.graph.planner.problem import Penalties
from inlay.graph.planning import plan_program
from inlay.graph.precision_search import choose_types, is_narrow, list_layers, open_session, run_planned
from inlay.graph.runtime.program_session import ProgramSession
from tests.support.graph_programs import conv, drawn, graph_of, plain_plan, pointwise, relu
from tests.support.narrow_graphs import narrow_graph
from tests.support.refusals import raises_exactly

DIMS = (2, 16, 6, 6)
WEIGHTS = [drawn(16, 16, 1, 1, seed=seed) for seed in range(3)]
SAVED_MS = 1.0


def shifted(name: str, src: str, dst: str, beta: float) -> Op:
    """x + beta."""
    return Op(
        name, "eltwise", {"src": src}, {"dst": dst}, parameters={"algorithm": "linear", "alpha": 1.0, "beta": beta}
    )


def chain(offset: float = 1000.0) -> OpGraph:
    """A convolution, then an offset that the next operation takes away: there a narrow type loses most bits.

    The sum is an output too, so that no kernel computes both operations.
    """
    ops = [
        conv("first", "x", "a", WEIGHTS[0]),
        relu("relu", "a", "b"),
        shifted("raise", "b", "c", offset),
        shifted("lower", "c", "d", -offset),
        conv("last", "d", "y", WEIGHTS[1]),
    ]
    graph = graph_of(ops, dict.fromkeys("xabcdy", DIMS), "x", "y c")
    return replace(graph, storage_types=dict.fromkeys("xabcdy", ("bf16",)))


def rounded(array: Array) -> Array:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


class StandIn:
    """Plans each operation in bf16 whose penalty is below what it saves, all with as much."""

    def __init__(self, graph: OpGraph) -> None:
        self.graph = graph

    def __call__(self, penalties: Penalties | None) -> TrialPlan:
        names = [op.name for op in self.graph.ops]
        chosen = [one for one in names if penalties is not None and penalties.get((one, "bf16"), 0.0) < SAVED_MS]
        typed = narrow_graph(replace(self.graph, storage_types={}), "bf16", chosen)
        planned = plan_program(typed, analytic("AVX512_CORE_BF16", 1))
        graph, ms = replace(self.graph, tensors=typed.tensors), 10.0 - SAVED_MS * len(chosen)
        return trial_of(replace(planned, graph=graph, ms=ms))


def trial_of(planned: PlannedProgram) -> TrialPlan:
    """A plan that needs no completion."""
    return TrialPlan(planned, lambda: planned)


def choose(graph: OpGraph, tolerance: float) -> tuple[frozenset[str], float]:
    """The operations in bf16, and the error of the output as NumPy measures it."""
    planner, arrays = StandIn(graph), {"x": drawn(*DIMS)}
    planned = choose_types(planner, arrays, tolerance, "reference").planned
    found, expected = (run_planned(one, arrays, "reference")["y"] for one in (planned, planner(None).planned))
    narrow = {name for step in planned.program.steps if is_narrow(step) for name in step.ops}
    return frozenset(narrow), float(np.abs(found - expected).max() / np.abs(expected).max())


def test_all_layers_are_narrow_if_the_limit_allows_it() -> None:
    narrow, error = choose(chain(), 0.9)
    assert narrow == {"first", "relu", "raise", "lower", "last"}
    assert 0.01 < error <= 0.9


def test_the_layer_with_the_error_stays_in_f32() -> None:
    narrow, error = choose(chain(), 0.02)
    assert narrow >= {"first", "last"}
    assert narrow.isdisjoint(("raise", "lower"))
    assert error <= 0.02


def test_no_layer_is_narrow_if_none_is_exact_enough() -> None:
    narrow, error = choose(chain(), 1e-7)
    assert (narrow, error) == (frozenset(), 0.0)


def test_a_limit_without_an_output_of_floats_is_refused() -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 8)), "x", "y", x=np.int32, y=np.int32)
    planned = plain_plan(graph)
    text = "by hand has no output of floating-point numbers, so tolerance limits nothing: leave it out"
    with raises_exactly(InvalidArguments, text):
        choose_types(lambda penalties: trial_of(planned), {"x": np.ones((2, 8), np.int32)}, 0.1, "reference")


def test_samples_without_a_finite_result_are_refused() -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 8)), "x", "y")
    trial = trial_of(plain_plan(graph))
    text = "no output of by hand has a finite number for these inputs, so tolerance limits nothing: give other samples"
    with raises_exactly(InvalidArguments, text):
        choose_types(lambda penalties: trial, {"x": np.full((2, 8), np.nan, np.float32)}, 0.1, "reference")
    assert choose_types(lambda penalties: trial, {"x": np.ones((2, 8), np.float32)}, 0.1, "reference") is trial


def test_no_program_is_run_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plans of several weights may be the same."""
    runs: list[PlannedProgram] = []

    def counted(planned: PlannedProgram, engine: Any, weights: Any = None) -> ProgramSession:
        if weights is not None:
            runs.append(planned)
        return open_session(planned, engine, weights)

    monkeypatch.setattr(precision_search, "open_session", counted)
    choose(chain(), 0.02)
    programs = [planned.program for planned in runs]
    assert 1 < len(programs) < precision_search.MOST_BISECTIONS
    assert not any(one == other for one, other in combinations(programs, 2))


def test_errors_of_layers_are_those_of_rounded_sources_weights_and_results() -> None:
    """By NumPy: each layer alone, from exact sources."""
    graph, x = chain(), drawn(*DIMS)
    layers = [Layer(("first", "relu"), "bf16"), Layer(("raise",), "bf16"), Layer(("last",), "bf16")]
    found = measure_layers(graph, layers, {"x": x}, "reference")
    b = np.maximum(pointwise(x, WEIGHTS[0]), 0)
    d = (b + np.float32(1000)) - np.float32(1000)
    wanted: Mapping[str, tuple[Array, Array]] = {
        "first": (rounded(np.maximum(pointwise(rounded(x), rounded(WEIGHTS[0])), 0)), b),
        "raise": (rounded(rounded(b) + np.float32(1000)), b + np.float32(1000)),
        "last": (rounded(pointwise(rounded(d), rounded(WEIGHTS[1]))), pointwise(d, WEIGHTS[1])),
    }
    assert list(found.layers) == ["first", "raise", "last"]
    for name, (narrow, exact) in wanted.items():
        assert found.layers[name] == pytest.approx(np.abs(narrow - exact).max() / np.abs(exact).max(), rel=1e-3), name
    c = b + np.float32(1000)
    carried = np.abs(rounded(c) - c).max() / np.abs(d).max()
    assert found.tensors["c"] == pytest.approx(carried, rel=1e-3)
    assert found.tensors["c"] > 50 * found.layers["raise"]
    assert found.tensors["y"] == 0


def test_layers_are_the_steps_with_types_of_storage() -> None:
    graph = chain()
    planned = StandIn(graph)(None).planned
    layers = list_layers(planned.program, graph)
    assert {name for layer in layers for name in layer.ops} == {op.name for op in graph.ops}
    assert {layer.data_type for layer in layers} == {"bf16"}
    assert list_layers(planned.program, replace(graph, storage_types={})) == []


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([0.0], [0.0], 0.0),
        ([1e-9], [0.0], np.inf),
        ([np.nan, 1.0], [1.0, 1.0], np.inf),
        ([np.inf, 1.0], [np.inf, 2.0], 0.5),
        ([], [], 0.0),
    ],
)
def test_errors_are_parts_of_the_largest_element(found: list[float], expected: list[float], error: float) -> None:
    assert measure_error(np.array(found, np.float32), np.array(expected, np.float32)) == error


def test_integers_have_no_error() -> None:
    assert measure_outputs({"i": np.ones(2, np.int64)}, {"i": np.zeros(2, np.int64)}) == {}


def test_a_run_in_f32_reads_weights_of_a_narrow_type() -> None:
    """Kernels get them as f32."""
    narrow = WEIGHTS[0].astype(ml_dtypes.bfloat16)
    graph = graph_of([conv("c", "x", "y", narrow)], dict.fromkeys("xy", DIMS), "x", "y")
    x = drawn(*DIMS)
    found = run_in_f32(graph, {"x": x}, "reference")["y"]
    np.testing.assert_allclose(found, pointwise(x, narrow.astype(np.float32)), rtol=1e-5, atol=1e-5)
