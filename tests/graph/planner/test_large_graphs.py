"""Large graphs: tables of many tensors, long chains, wide concatenations; and what is said where time is too short."""

import itertools
import math
import pickle
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.errors import InvalidArguments, OutOfMemory
from inlay.graph.costs.models import AnalyticCosts
from inlay.graph.op_graph import Op, OpGraph, SubmemoryView
from inlay.graph.passes.concatenations import nest_concatenations
from inlay.graph.plan import Plan, plan_graph
from inlay.graph.planner import elimination, plan_search
from inlay.graph.planner.elimination import Factor
from inlay.graph.planner.plan_search import PlanSearch, min_marginals
from inlay.graph.planner.problem import make_problem
from inlay.graph.report import explain_plan, figures
from inlay.graph.runtime.arena import LiveInterval, assign_offsets
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives.engine import Parameter
from tests.graph.planner.test_elimination import drawn, minimize
from tests.graph.planner.test_planning import MACHINE
from tests.support.graph_programs import conv, graph_of
from tests.support.interpreter import interpret
from tests.support.planner_graphs import RELU, Drawing, HashedCosts, drawn_graph
from tests.support.refusals import raises_exactly

TANH: Mapping[str, Parameter] = {**RELU, "algorithm": "tanh"}


def joined(name: str, sources: Sequence[str], axis: int = 1) -> Op:
    reads = {f"src_{i}": source for i, source in enumerate(sources)}
    return Op(name, "concat", reads, {"dst": name}, parameters={"axis": axis}, nodes=(name,))


def function(name: str, src: str) -> Op:
    return Op(name, "eltwise", {"src": src}, {"dst": name}, parameters=TANH, nodes=(name,))


def chain(count: int) -> OpGraph:
    names = ["x", *(f"t{i}" for i in range(count))]
    ops = [function(dst, src) for src, dst in itertools.pairwise(names)]
    return graph_of(ops, dict.fromkeys(names, (1, 4)), "x", names[-1])


def wide(count: int) -> OpGraph:
    """A concatenation of so many functions of one tensor."""
    names = [f"t{i}" for i in range(count)]
    ops = [*(function(name, "x") for name in names), joined("y", names)]
    return graph_of(ops, {**dict.fromkeys(["x", *names], (1, 2)), "y": (1, 2 * count)}, "x", "y")


def growing(layers: int, batch: int = 1) -> OpGraph:
    """A DenseNet block as frameworks export it: each layer concatenates everything before it."""
    drawing = Drawing(random.Random(layers), batch)
    found = ["x"]
    for _ in range(layers):
        whole = drawing.concat(found) if len(found) > 1 else found[0]
        found.append(drawing.conv(drawing.relu(whole), 16, 3))
    last = drawing.concat(found)
    return replace(drawing.graph(), outputs=(last,))


# Concatenations


def test_nested_concatenations_give_the_same_bits_and_need_no_copies() -> None:
    graph = growing(4)
    nested = nest_concatenations(graph)
    x = np.random.default_rng(0).standard_normal((1, 16, 4, 4)).astype(np.float32)
    before, after = interpret(graph, {"x": x}), interpret(nested, {"x": x})
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    reads = [len(op.reads) for op in nested.ops if op.kind == "concat"]
    assert reads == [2] * len(reads)
    flat, plan = plan_graph(graph, AnalyticCosts(MACHINE)), plan_graph(nested, AnalyticCosts(MACHINE))
    assert [step.kind for step in flat.program.steps].count("concat") + len(flat.reorders) >= 3
    assert plan.ms < flat.ms
    # Only what the run is given has to be copied.
    assert [step.kind for step in plan.program.steps].count("concat") + len(plan.reorders) <= 1
    assert plan.width <= 3


def test_concatenations_of_other_axes_and_ends_stay() -> None:
    names = ("x", "b", "c")
    ops = [
        *(function(name, "x") for name in names[1:]),
        joined("bc", ("b", "c")),
        joined("other", ("b", "c", "x"), axis=2),
        joined("end", ("x", "b", "c")),
        joined("same", ("b", "c")),
    ]
    dims = {**dict.fromkeys(names, (1, 2, 2)), "bc": (1, 4, 2), "other": (1, 2, 6), "end": (1, 6, 2), "same": (1, 4, 2)}
    graph = graph_of(ops, dims, "x", "bc other end same")
    assert nest_concatenations(graph).ops == graph.ops


# Costs


def test_a_copy_into_a_concatenation_costs_what_its_bytes_do() -> None:
    """A tensor lies in the first of two results; into the other it is copied, in the same format."""
    ops = [function("a", "x"), function("b", "x"), joined("one", ("a", "b")), joined("two", ("b", "a"))]
    dims = {**dict.fromkeys(("x", "a", "b"), (1, 1 << 20)), **dict.fromkeys(("one", "two"), (1, 2 << 20))}
    plan = plan_graph(graph_of(ops, dims, "x", "one two"), AnalyticCosts(MACHINE))
    assert [step.kind for step in plan.program.steps].count("reorder") in (0, 2)
    for step in plan.reorders:
        assert step.operation is not None
        assert step.operation.descs["src"] == step.operation.descs["dst"]
        assert step.ms > step.nbytes / 1e6 / (2 * MACHINE.cache_bandwidth)


# Large graphs


@pytest.mark.parametrize("count", [63, 64, 200])
def test_a_concatenation_of_many_tensors_is_planned_and_runs(count: int) -> None:
    """NumPy's arrays have at most 64 axes, and such a table has one for each tensor."""
    graph = wide(count)
    x = np.array([[0.5, -2.0]], np.float32)
    session = ProgramSession(plan_graph(graph, AnalyticCosts(MACHINE)).program, graph, engine="reference")
    assert np.allclose(session.run({"x": x})["y"], np.tanh(np.tile(x, count)))


def seconds_of(graph: OpGraph) -> float:
    started = time.process_time()
    plan_graph(graph, HashedCosts(1))
    return time.process_time() - started


@pytest.mark.heavy
@pytest.mark.parametrize("make", [chain, wide])
def test_planning_takes_time_in_proportion_to_the_graph(make: Callable[[int], OpGraph]) -> None:
    small, large = (min(seconds_of(make(count)) for _ in range(2)) for count in (2000, 16000))
    assert large < 3 * 8 * small  # 64 times as long where it is quadratic


@pytest.mark.heavy
def test_a_growing_block_of_80_layers_is_planned_in_seconds() -> None:
    graph = nest_concatenations(growing(80))
    started = time.process_time()
    plan = plan_graph(graph, HashedCosts(3))
    assert time.process_time() - started < 20
    assert plan.method == "elimination"
    assert len(plan.reorders) < 80


def test_many_homes_are_placed_without_looking_at_every_pair() -> None:
    rng = random.Random(5)
    lives = {str(i): LiveInterval(i, i + rng.randrange(1, 4), 64 * rng.randrange(1, 50)) for i in range(20_000)}
    started = time.process_time()
    arena = assign_offsets(lives)
    assert time.process_time() - started < 10
    assert arena.needed <= arena.nbytes < 3 * arena.needed
    together = assign_offsets({str(i): LiveInterval(0, 9, 64) for i in range(3000)})  # 4.5 million pairs
    assert together.nbytes == 64 * 3000
    assert len(set(together.offsets.values())) == 3000


# The time limit


def test_without_time_the_greedy_plan_is_taken_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, costs = drawn_graph(7, 12), HashedCosts(7)
    exact = plan_graph(graph, costs)
    monkeypatch.setattr(plan_search.PlanSearch.__init__, "__defaults__", (0.0,))
    plan = plan_graph(graph, costs)
    assert (exact.method, plan.method, plan.width) == ("elimination", "greedy", 0)
    assert plan.ms == plan.totals["greedy"] >= exact.ms
    assert 0 < plan.bound <= exact.bound
    assert all(step.without is None and step.alternative is None for step in plan.reorders)
    assert math.fsum(step.ms for step in plan.program.steps) == pytest.approx(plan.ms, rel=1e-12)
    text = " ".join(explain_plan(plan).split())
    assert (
        "the greedy plan, as no better one was found in time; no plan of the same kernels takes less than "
        f"{plan.bound:.3f} ms (greedy, width 0)" in text
    )
    assert figures(plan)["method"] == "greedy"


def test_without_scipy_a_graph_that_is_too_wide_gets_the_greedy_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(drawn_graph(7, 12), HashedCosts(7))
    exact = PlanSearch(problem).best()
    monkeypatch.setattr(elimination.minimize, "__kwdefaults__", {"most_states": 0, "seconds": 1.0})
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    chosen = PlanSearch(problem).best()
    assert chosen.method == "greedy"
    assert chosen.bound <= exact.bound <= chosen.assignment.ms


# What the best plan without a reorder takes


def test_min_marginals_are_what_trying_everything_finds() -> None:
    for seed in range(150):
        sizes, factors = drawn(seed)
        costs = sum(
            factor.table.transpose(np.argsort(factor.variables)).reshape(
                [size if v in factor.variables else 1 for v, size in enumerate(sizes)]
            )
            for factor in factors
        )
        every: np.ndarray = np.broadcast_to(costs, sizes)
        if every.min() < math.inf:
            for v, found in enumerate(min_marginals(sizes, factors)):
                others = tuple(axis for axis in range(len(sizes)) if axis != v)
                assert found == pytest.approx(every.min(axis=others), rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_reorder_is_worth_is_what_the_best_plan_without_it_takes_more(seed: int) -> None:
    """Against a search of its own for each reorder, with that reorder barred."""
    problem = make_problem(drawn_graph(seed, 8), HashedCosts(seed))
    found = PlanSearch(problem)
    plan = plan_graph(problem.graph, HashedCosts(seed))
    for i, name in enumerate(found.tables.names):
        states, domain = found.tables.states[i], problem.domains[name]
        for step in (step for step in plan.reorders if step.alternative is not None):
            if plan.program.buffers[step.reads["src"]].tensor == name:
                assert step.operation is not None
                formats = [step.operation.descs["src"], step.operation.descs["dst"]]
                src, dst = (domain.index(problem.formats.add(desc)) for desc in formats)
                barred = (states.produced == src) & (states.available >> dst & 1).astype(bool)
                sizes, factors = found.tables.factors()
                extra = Factor((i,), np.where(barred, math.inf, 0.0))
                assert step.without == worth(sizes, [*factors, extra], plan)


def worth(sizes: Sequence[int], factors: Sequence[Factor], plan: Plan) -> object:
    try:
        return pytest.approx(max(minimize(sizes, factors).cost - plan.ms, 0.0), abs=1e-9)
    except InvalidArguments:
        return None


def test_what_a_reorder_is_worth_is_computed_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: Any) -> Any:
        calls.append(1)
        return min_marginals(*args)

    monkeypatch.setattr("inlay.graph.planner.plan_search.min_marginals", counted)
    plans = (plan_graph(drawn_graph(seed, 8), HashedCosts(seed)) for seed in range(100))
    plan = next(plan for plan in plans if sum(step.alternative is not None for step in plan.reorders) > 1)
    assert not calls
    first = [step.without for step in plan.reorders]
    assert len(calls) == 1
    assert [step.without for step in plan.reorders] == first
    copy = pickle.loads(pickle.dumps(plan.program))
    assert [step.without for step in copy.steps if step.kind == "reorder"] == first
    assert len(calls) == 1


# Memory


def test_a_program_that_cannot_fit_in_memory_is_refused_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of 67 million rows out of 200 GB: compiling looked at each row for minutes."""
    monkeypatch.setattr("inlay.graph.runtime.arena.usable_memory", lambda: 8_000_000_000)
    padded, taken = (1 << 26, 8, 10, 10), (1 << 26, 1, 10, 10)
    ops = [
        conv("pad", "x", "p", np.ones((8, 1, 1, 1), np.float32)),
        Op("slice", "view", {"src": "p"}, {"dst": "s"}, transforms=(SubmemoryView((0, 3, 0, 0), taken),)),
        function("y", "s"),
    ]
    graph = graph_of(ops, {"x": taken, "p": padded, "s": taken, "y": taken}, "x", "y")
    plan = plan_graph(graph, AnalyticCosts(MACHINE))
    text = (
        "network 'by hand' needs 268.4 GB for its tensors at once, and this process can have 8.0 GB: give its inputs "
        "smaller dims, or a smaller batch"
    )
    started = time.process_time()
    with raises_exactly(OutOfMemory, text):
        plan.compile("reference")
    assert time.process_time() - started < 5
