"""The planner's laws: its plan is the best there is, costs what it says, and is made of what was priced."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

import inlay
from inlay.graph.algorithms import CONVOLUTIONS
from inlay.graph.costs import AnalyticCosts, Costs, Machine
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import OpGraph
from inlay.graph.passes.concatenations import nest_concatenations
from inlay.graph.plan import plan_graph
from inlay.graph.planner.plan_search import assign_formats
from inlay.graph.planner.problem import Problem, make_problem
from inlay.primitives.engine import Operation
from tests.support.networks import LIGHT, light
from tests.support.planner_graphs import HashedCosts, drawn_graph, random_plan, recost, require_useful_reorders
from tests.support.planner_oracles import all_costs, assert_sound

MACHINE = Machine("AVX2", threads=2, peak=200.0, cache_bandwidth=80.0, memory_bandwidth=20.0, cache_bytes=1 << 24)
MOST_COMBINATIONS = 200
SEEDS_AND_SIZES = [*((seed, 4) for seed in range(30)), *((seed, 1) for seed in range(10))]
"""Seeds of random graphs, and rows and columns of their images; formats of one pixel place elements alike."""


def small_problems(count: int) -> Iterator[tuple[int, Problem, HashedCosts]]:
    seed = 0
    while count:
        seed += 1
        costs = HashedCosts(seed)
        graph = drawn_graph(seed, 1 + seed % 5, 1 + seed % 2, size=1 if seed % 4 == 0 else 4)
        problem = make_problem(graph, costs)
        if 1 < math.prod(len(group.candidates) for group in problem.groups) <= MOST_COMBINATIONS:
            count -= 1
            yield seed, problem, costs


def test_the_plan_of_500_random_graphs_is_what_brute_force_finds() -> None:
    reorders = 0
    for seed, problem, costs in small_problems(500):
        plan = plan_graph(problem.graph, costs)
        least = min(total for total, _ in all_costs(problem, costs))
        assert plan.bound == pytest.approx(least, rel=1e-12), f"seed {seed}"
        assert least <= plan.ms * (1 + 1e-12)
        assert plan.ms <= 1.02 * least
        reorders += len(plan.reorders)
    assert reorders > 300


@pytest.mark.parametrize("seed", range(60))
def test_a_plan_costs_what_its_steps_cost_and_no_other_way_is_cheaper(seed: int) -> None:
    """By costs that price everything alike, and by those that plans have; in a graph as it is, and nested."""
    small, analytic = drawn_graph(seed, 10, 1 + seed % 2), AnalyticCosts(MACHINE)
    cases: list[tuple[OpGraph, Costs]] = [(drawn_graph(seed, 12), HashedCosts(seed))]
    cases += [(small, analytic), (nest_concatenations(small), analytic)]
    for graph, costs in cases:
        plan = plan_graph(graph, costs)
        assert all(step.ms > 0 for step in plan.program.steps)
        assert math.fsum(step.ms for step in plan.program.steps) == pytest.approx(plan.ms, rel=1e-12)
        assert recost(plan, costs) == pytest.approx(plan.ms, rel=1e-12)
        assert {"plain", "greedy"} <= plan.totals.keys()
        assert plan.bound <= plan.ms * (1 + 1e-12)
        assert all(total >= plan.bound * (1 - 1e-12) for total in plan.totals.values())
        for step in plan.reorders:
            if step.without is not None:
                assert step.without >= 0
                assert costs is analytic or "reads" in step.why or "returned" in step.why


class FastWinograd(HashedCosts):
    """Costs by which Winograd's algorithm takes a tenth of the time."""

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        found = super().kernel(operation)
        is_fast = operation.parameters.get("algorithm") == "winograd"
        return replace(found, ms=found.ms / 10) if found is not None and is_fast else found


def test_the_direct_plan_is_the_best_one_without_other_algorithms() -> None:
    compared = 0
    for seed in range(20):
        graph = drawn_graph(seed, 8)
        plan, direct = (plan_graph(graph, FastWinograd(seed), mode) for mode in CONVOLUTIONS)
        steps = [step.operation for step in plan.program.steps if step.kind == "convolution"]
        is_used = any(one is not None and one.parameters["algorithm"] == "winograd" for one in steps)
        assert is_used == ("direct" in plan.totals)
        assert "direct" not in direct.totals
        if is_used:
            compared += 1
            assert plan.ms * (1 - 0.02) <= plan.totals["direct"] == direct.ms
    assert 3 < compared < 20


def test_a_plan_without_one_of_its_reorders_is_as_much_slower_as_it_says() -> None:
    compared = 0
    for seed, problem, costs in small_problems(200):
        plan = plan_graph(problem.graph, costs)
        buffers = plan.program.buffers
        for step in plan.reorders:
            if step.without is None:
                continue
            source, result = buffers[step.reads["src"]], buffers[step.writes["dst"]]
            reorder = source.tensor, source.desc, result.desc
            least = min(total for total, reordered in all_costs(problem, costs) if reorder not in reordered)
            assert plan.ms + step.without == pytest.approx(max(least, plan.ms), rel=1e-12), f"seed {seed}, {step.name}"
            compared += 1
    assert compared > 50


@pytest.mark.parametrize(("seed", "size"), SEEDS_AND_SIZES)
def test_every_reorder_changes_the_format_or_the_place(seed: int, size: int) -> None:
    require_useful_reorders(plan_graph(drawn_graph(seed, 10, 1 + seed % 2, size=size), HashedCosts(seed)))


@pytest.mark.parametrize("name", sorted(set(LIGHT) - {"vgg19", "alexnet", "zfnet512"}))  # those have large weights
def test_so_does_every_reorder_of_a_network(name: str) -> None:
    network = load_bound(light(name).SerializeToString())
    for isa in ("SSE41", "AVX512_CORE"):
        plan = inlay.plan(network, costs="analytic", isa=isa, threads=4)
        require_useful_reorders(plan)
        assert max(map(len, plan.explain(every_step=True).split("\n"))) <= 80


def test_a_reorder_that_saves_nothing_would_only_be_replaced_by_others() -> None:
    """No plan that takes no longer has fewer reorders and copies."""
    free = 0
    for seed, problem, costs in small_problems(200):
        plan = plan_graph(problem.graph, costs)
        free += sum(step.without == 0 for step in plan.reorders)
        assignments = product(*(range(len(group.candidates)) for group in problem.groups))
        others = (assign_formats(problem, choices) for choices in assignments)
        least = min(other.reorders for other in others if other.ms <= plan.ms * (1 + 1e-12))
        assert len(plan.reorders) <= least, f"seed {seed}"
    assert free > 0


@pytest.mark.parametrize(("seed", "size"), SEEDS_AND_SIZES)
def test_every_plan_reads_only_what_was_written_and_is_still_there(seed: int, size: int) -> None:
    """Of the best and of random plans: each byte that a step reads was last written for the tensor that it reads."""
    graph, costs = drawn_graph(seed, 10, 1 + seed % 2, size=size), HashedCosts(seed)
    rng = random.Random(seed)
    for program in [plan_graph(graph, costs).program, *(random_plan(graph, costs, rng) for _ in range(10))]:
        assert_sound(graph, program)
