"""Types of tensors as a choice of the planner: the best plan, what removes candidates, and what steps compute."""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from inlay.graph import planning
from inlay.graph.costs import AnalyticCosts, Machine
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.plan import plan_graph
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.planner.dominance import remove_dominated
from inlay.graph.planner.plan_search import PlanSearch
from inlay.graph.planner.problem import Penalties, Problem, make_problem
from inlay.graph.planner.types import find_views, list_type_combinations
from inlay.graph.planning import GraphPlanner, adapt_program, plan_program
from inlay.graph.precision import PrecisionRequest
from inlay.graph.precision_search import is_narrow
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives.engine import Operation
from tests.support.graph_programs import add, conv, drawn, graph_of, relu
from tests.support.narrow_graphs import NarrowPays
from tests.support.planner_graphs import HashedCosts, drawn_graph, recost, require_useful_reorders
from tests.support.planner_oracles import Reordered, all_costs, assert_sound, cost_of

MACHINE = Machine("AVX512_CORE_BF16", 1, peak=200.0, cache_bandwidth=80.0, memory_bandwidth=20.0, cache_bytes=1 << 24)
MOST_COMBINATIONS = 1500


@dataclass(frozen=True)
class TypedCosts(HashedCosts):
    """Prices by a hash, of kernels in bf16 often so low that those in f32 are dominated."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        found = super().kernel(operation)
        types = {desc.data_type.name for desc in operation.descs.values() if desc.data_type is not None}
        share = self.drawn("share", operation.kind) if "bf16" in types else 1.0
        return None if found is None else replace(found, ms=found.ms * share)


def typed_graph(seed: int, steps: int) -> OpGraph:
    """A random graph in which most tensors may be stored in bf16."""
    graph = drawn_graph(seed, steps, 1 + seed % 2, size=1 if seed % 4 == 0 else 4)
    rng = random.Random(seed)
    return replace(graph, storage_types={name: ("bf16",) for name in graph.tensors if rng.random() < 0.8})


def typed_problems(count: int, penalties: bool = False) -> Iterator[tuple[int, Problem, Penalties]]:
    """Problems with more than one choice and few enough to try each."""
    seed = 0
    while count:
        seed += 1
        graph = typed_graph(seed, 1 + seed % 3)
        rng = random.Random(seed)
        charged = {(op.name, "bf16"): 2 * rng.random() for op in graph.ops if rng.random() < 0.5} if penalties else {}
        problem = make_problem(graph, TypedCosts(seed), penalties=charged)
        if 1 < math.prod(len(group.candidates) for group in problem.groups) <= MOST_COMBINATIONS:
            count -= 1
            yield seed, problem, charged


def test_the_plan_of_300_random_graphs_is_what_brute_force_finds() -> None:
    narrow = removed = 0
    for seed, problem, _ in typed_problems(300):
        costs = TypedCosts(seed)
        plan = plan_graph(problem.graph, costs)
        least = min(total for total, _ in all_costs(problem, costs))
        assert plan.bound == pytest.approx(least, rel=1e-12), f"seed {seed}"
        assert least * (1 - 1e-12) <= plan.ms <= 1.02 * least, f"seed {seed}"
        assert recost(plan, costs) == pytest.approx(plan.ms, rel=1e-12)
        narrow += any(map(is_narrow, plan.program.steps))
        removed += count_candidates(problem) - count_candidates(remove_dominated(problem))
    assert narrow > 100
    assert removed > 500


def count_candidates(problem: Problem) -> int:
    return sum(len(group.candidates) for group in problem.groups)


def test_penalties_count_in_the_choice_and_not_in_the_times() -> None:
    differ = 0
    for seed, problem, penalties in typed_problems(100, penalties=True):
        costs = TypedCosts(seed)
        plan = plan_program(problem.graph, costs, penalties=penalties)
        assert recost(plan, costs) == pytest.approx(plan.ms, rel=1e-12)
        least = min(total for total, _ in charged_costs(problem, costs))
        charge = charge_of(plan, penalties)
        assert plan.bound == pytest.approx(min(least - charge, plan.ms), rel=1e-12), f"seed {seed}"
        assert plan.ms + charge <= 1.02 * least * (1 + 1e-12), f"seed {seed}"
        differ += plan.program != plan_program(problem.graph, costs).program
    assert differ > 20


def test_plans_of_one_planner_are_those_of_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """With penalties, without and with others, in f32, and completed in another order."""
    built = []

    def counted(*arguments: Any, **named: Any) -> Problem:
        built.append(arguments)
        return make_problem(*arguments, **named)

    reordered = 0
    for seed, problem, penalties in typed_problems(40, penalties=True):
        graph, costs = problem.graph, TypedCosts(seed)
        others = {key: 3 * penalty for key, penalty in penalties.items()}
        with monkeypatch.context() as patch:
            patch.setattr(planning, "make_problem", counted)
            planner = GraphPlanner(graph, costs)
            trials = [planner.choose(penalties), planner.choose(), planner.choose(others), planner.of_f32.choose()]
            found = [trial.complete() for trial in reversed(trials)]
        assert len(built) == 2, f"seed {seed}"
        built.clear()
        wanted = [plan_program(graph, costs, penalties=one) for one in (penalties, {}, others)]
        wanted.append(plan_program(replace(graph, storage_types={}), costs))
        for trial, complete, plan in zip(trials, reversed(found), wanted, strict=True):
            assert complete == plan, f"seed {seed}"
            assert trial.planned == replace(plan, totals={}, cliffs=()), f"seed {seed}"
            alternatives = [step.without for step in plan.program.steps]
            assert [step.without for step in complete.program.steps] == alternatives, f"seed {seed}"
            reordered += any(alternatives)
    assert reordered > 20


def charge_of(plan: PlannedProgram, penalties: Penalties) -> float:
    """The penalties of the steps of a plan that compute in bf16."""
    steps = [step for step in plan.program.steps if is_narrow(step)]
    return sum(penalties.get((name, "bf16"), 0.0) for step in steps for name in step.ops)


def test_what_a_reorder_is_worth_is_what_the_best_plan_without_it_takes_more() -> None:
    """Candidates that the search does without may be those of the best plan without a reorder."""
    count = 0
    for seed, problem, penalties in typed_problems(60, penalties=True):
        costs = TypedCosts(seed)
        plan = plan_program(problem.graph, costs, penalties=penalties)
        known = [step for step in plan.program.steps if step.alternative is not None]
        plans = list(charged_costs(problem, costs)) if known else []
        for step in known:
            buffers = [plan.program.buffers[name] for name in (*step.reads.values(), *step.writes.values())]
            src, dst = (buffer.desc for buffer in buffers)
            others = [cost for cost, reordered in plans if (buffers[0].tensor, src, dst) not in reordered]
            own = plan.ms + charge_of(plan, penalties)
            wanted = pytest.approx(max(min(others) - own, 0.0), abs=1e-9) if others else None
            assert step.without == wanted, f"seed {seed}, {step.name}"
            count += step.without is not None
    assert count > 50


def charged_costs(problem: Problem, costs: TypedCosts) -> Iterator[tuple[float, set[Reordered]]]:
    """The cost of every combination of candidates with penalties, and the tensors that it reorders."""
    for chosen in product(*(group.candidates for group in problem.groups)):
        total, reordered = cost_of(problem, chosen, costs)
        yield total + sum(problem.cost(i, one) - one.ms for i, one in enumerate(chosen)), reordered


def test_an_infinite_penalty_keeps_an_operation_in_f32() -> None:
    for seed in range(40):
        graph = typed_graph(seed, 8)
        name = graph.ops[seed % len(graph.ops)].name
        penalties = PrecisionRequest("bf16", keep_f32=frozenset((name,))).penalties
        plan = plan_program(graph, TypedCosts(seed), penalties=penalties)
        steps = [step for step in plan.program.steps if name in step.ops]
        assert not any(map(is_narrow, steps)), f"seed {seed}"


def test_the_greedy_plan_has_no_infinite_penalty() -> None:
    """It is the result where the search has no time."""
    for seed in range(40):
        graph = typed_graph(seed, 8)
        penalties = PrecisionRequest("bf16", keep_f32=frozenset(op.name for op in graph.ops[::2])).penalties
        result = PlanSearch(make_problem(graph, TypedCosts(seed), penalties=penalties), seconds=0.0).best()
        assert result.method == "greedy"
        assert result.assignment.penalty == 0, f"seed {seed}"


@pytest.mark.parametrize("seed", range(40))
def test_every_step_reads_only_what_was_written_in_its_type(seed: int) -> None:
    graph = typed_graph(seed, 10)
    plan = plan_graph(graph, TypedCosts(seed))
    assert_sound(graph, plan.program)
    require_useful_reorders(plan)
    for name, buffer in plan.program.buffers.items():
        assert buffer.desc is not None
        assert buffer.desc.data_type is not None
        stored = {plan.program.buffers[one].tensor for one in (name, buffer.base)}  # a copy has the type of its result
        allowed = {"f32", *(one for tensor in stored for one in graph.storage_types.get(tensor, ()))}
        assert buffer.desc.data_type.name in allowed, name


@pytest.mark.parametrize("seed", range(30))
def test_a_program_computes_the_graph_but_for_rounding(seed: int) -> None:
    graph = typed_graph(seed, 8)
    plan = plan_graph(graph, TypedCosts(seed))
    x = drawn(*graph.tensors["x"].dims)
    with ProgramSession(plan.program, graph, engine="reference") as session:
        found = session.run({"x": x})
        traced = session.trace({"x": x})
    plain = replace(graph, storage_types={})
    with ProgramSession(plain_program(plain), plain, engine="reference") as session:
        wanted = session.trace({"x": x})
    for name, array in {**traced, **found}.items():
        assert array.dtype == np.float32
        largest = np.abs(wanted[name]).max()
        assert np.abs(array - wanted[name]).max() <= 0.05 * largest + 1e-6, name


def block() -> OpGraph:
    """Two convolutions with a sum around them, and a view."""
    ops = [
        conv("first", "x", "a", drawn(64, 64, 1, 1) / 8),
        relu("relu", "a", "b"),
        conv("second", "b", "c", drawn(64, 64, 1, 1) / 8),
        add("c", "b", "y"),
    ]
    return graph_of(ops, dict.fromkeys("xabcy", (1, 64, 8, 8)), "x", "y")


def test_reorders_and_buffers_name_their_types() -> None:
    graph = replace(block(), storage_types=dict.fromkeys("xabcy", ("bf16",)))
    plan = plan_graph(graph, NarrowPays(AnalyticCosts(MACHINE)))
    assert plan.program.buffers.keys() == {"x", "x:bf16 acdb", "b", "y", "y:f32 abcd"}
    assert [step.why for step in plan.reorders] == [
        "first reads bf16 acdb",
        "y is returned in f32 abcd",
    ]
    assert plan.totals.keys() >= {"f32", "bf16", "plain", "greedy"}
    assert plan.totals["bf16"] == pytest.approx(plan.ms)
    assert plan.totals["f32"] > plan.ms


def test_a_plan_for_other_dims_has_the_same_types() -> None:
    graph = replace(block(), storage_types=dict.fromkeys("xabcy", ("bf16",)))
    costs = NarrowPays(AnalyticCosts(MACHINE))
    plan = plan_graph(graph, costs)
    tensors = {name: replace(tensor, dims=(3, *tensor.dims[1:])) for name, tensor in graph.tensors.items()}
    adapted = adapt_program(replace(graph, tensors=tensors), costs, plan)
    assert adapted is not None
    assert types_of(adapted.program.buffers) == types_of(plan.program.buffers)


def test_a_conversion_to_the_type_of_a_reader_is_a_view() -> None:
    """The caller's bf16 is read as it is, and the rounded result is stored where the caller reads it."""
    middle = block()
    ends = [
        Op(name, "reorder", {"src": src}, {"dst": dst}) for name, src, dst in (("in", "given", "x"), ("out", "y", "z"))
    ]
    narrow = {name: Tensor(name, (1, 64, 8, 8), np.dtype(ml_dtypes.bfloat16)) for name in ("given", "z")}
    graph = replace(
        middle,
        inputs=("given",),
        outputs=("z",),
        ops=(ends[0], *middle.ops, ends[1]),
        tensors={**middle.tensors, **narrow},
        storage_types=dict.fromkeys("xabcy", ("bf16",)),
    )
    plan = plan_graph(graph, NarrowPays(AnalyticCosts(MACHINE)))
    assert [step.kind for step in plan.program.steps] == ["convolution", "convolution"]
    assert_sound(find_views(graph), plan.program)
    x = drawn(1, 64, 8, 8).astype(ml_dtypes.bfloat16)
    with ProgramSession(plan.program, graph, engine="reference") as session:
        found = session.run({"given": x})["z"]
    plain = replace(graph, storage_types={})
    with ProgramSession(plain_program(plain), plain, engine="reference") as session:
        wanted = session.run({"given": x})["z"].astype(np.float32)
    assert np.abs(found.astype(np.float32) - wanted).max() <= 2.0**-6 * np.abs(wanted).max()


def types_of(buffers: Mapping[str, object]) -> dict[str, str]:
    return {name: str(buffer.desc.data_type) for name, buffer in buffers.items()}  # type: ignore[attr-defined]


def test_without_further_types_no_candidate_is_removed() -> None:
    problem = make_problem(drawn_graph(3, 8), HashedCosts(3))
    assert remove_dominated(problem) is problem


B, F = "bf16", "f32"
CONSTANT: dict[str, Any] = {"weights": drawn(8, 8)}
OPS = [
    (Op("op", "matmul", {"src": "x"}, {"dst": "y"}, CONSTANT), {(B, B), (B, F)}),
    (Op("op", "matmul", {"src": "x", "weights": "z"}, {"dst": "y"}), {(B, B, B), (B, B, F)}),
    (Op("op", "binary", {"src_0": "x", "src_1": "z"}, {"dst": "y"}), {(B, B, B), (B, F, B)}),
    (Op("op", "binary", {"src_0": "x", "src_1": "x"}, {"dst": "y"}), {(B, B, B)}),
    (Op("op", "eltwise", {"src": "x"}, {"dst": "y"}), {(B, B)}),
    (Op("op", "softmax", {"src": "x"}, {"dst": "y"}), {(B, B), (B, F), (F, B)}),
    (Op("op", "reorder", {"src": "x"}, {"dst": "y"}), set()),
    (Op("op", "lstm", {"src_layer": "x"}, {"dst_layer": "y"}), set()),
]


@pytest.mark.parametrize(("op", "narrow"), OPS)
def test_each_kind_is_tried_in_the_types_that_engines_compute(op: Op, narrow: set[tuple[str, ...]]) -> None:
    graph = graph_of([op], dict.fromkeys("xyz", (8, 8)), "x z", "y")
    own = ("f32",) * (len(op.reads) + len(op.writes))
    assert [tuple(types.values()) for types in list_type_combinations(op, graph)] == [own]
    typed = replace(graph, storage_types=dict.fromkeys("xyz", ("bf16",)))
    first, *others = [tuple(types.values()) for types in list_type_combinations(op, typed)]
    assert first == own
    assert set(others) == narrow
    source_only = list_type_combinations(op, replace(graph, storage_types={"x": ("bf16",)}))
    assert {tuple(types.values()) for types in source_only[1:]} <= {types for types in narrow if types[1:] == (F,)}
