"""The planner's laws: its plan is the best there is, costs what it says, and is made of what was priced."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np
import pytest

import inlay
from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import CONVOLUTIONS
from inlay.graph.costs import AnalyticCosts, Costs, Machine
from inlay.graph.costs.estimates import KernelEstimate
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import OpGraph
from inlay.graph.passes.concatenations import nest_concatenations
from inlay.graph.plan import plan_graph
from inlay.graph.planner.groups import Candidate
from inlay.graph.planner.plan_search import assign_formats
from inlay.graph.planner.problem import Problem, make_problem
from inlay.graph.program import Program
from inlay.primitives.engine import Operation
from tests.support.graph_programs import NUMPY
from tests.support.networks import LIGHT, light
from tests.support.planner_graphs import HashedCosts, drawn_graph, random_plan, recost, require_useful_reorders

MACHINE = Machine("AVX2", threads=2, peak=200.0, cache_bandwidth=80.0, memory_bandwidth=20.0, cache_bytes=1 << 24)
MOST_COMBINATIONS = 200
SEEDS_AND_SIZES = [*((seed, 4) for seed in range(30)), *((seed, 1) for seed in range(10))]
"""Seeds of random graphs, and rows and columns of their images; formats of one pixel place elements alike."""

Numbers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Homes: TypeAlias = dict[str, dict[int, int]]
Reordered: TypeAlias = tuple[str, MemoryDesc, MemoryDesc]
"""A tensor, the format in which it is produced, and another in which it is read."""


def all_costs(problem: Problem, costs: HashedCosts) -> Iterator[tuple[float, set[Reordered]]]:
    """The cost of every combination of candidates, and the tensors that it reorders, by trying every one."""
    for combination in product(*(group.candidates for group in problem.groups)):
        yield cost_of(problem, combination, costs)


def cost_of(problem: Problem, combination: Sequence[Candidate], costs: HashedCosts) -> tuple[float, set[Reordered]]:
    graph, formats = problem.graph, problem.formats
    lies = {name: MemoryDesc(graph.tensors[name].dims, "f32") for name in graph.inputs}
    for group, candidate in zip(problem.groups, combination, strict=True):
        lies.update((name, formats[number]) for name, number in zip(group.writes, candidate.writes, strict=True))
    needed: set[tuple[str, MemoryDesc]] = set()
    total, joined = 0.0, set()
    kinds = {name: group.kind for group in problem.groups for name in group.writes}
    for group, candidate in zip(problem.groups, combination, strict=True):
        total += candidate.ms
        for name, number in zip(group.reads, candidate.reads, strict=True):
            desc = formats[number]
            is_first = group.kind == "concat" and name not in joined and name not in graph.outputs
            joined.update([name] if group.kind == "concat" else [])
            has_home = is_first and (kinds.get(name, "view") != "view" or not alike(lies[name], desc))
            if candidate.concat_offsets is None or (has_home and number in problem.domains[name]):
                needed.add((name, desc))
            else:
                total += costs.reorder(lies[name], desc)
    needed.update((name, MemoryDesc(graph.tensors[name].dims, "f32")) for name in graph.outputs)
    reordered = {(name, lies[name], desc) for name, desc in needed if not alike(lies[name], desc)}
    return total + sum(costs.reorder(src, dst) for _, src, dst in reordered), reordered


@cache
def alike(one: MemoryDesc, other: MemoryDesc) -> bool:
    return one.equivalent(other) and one.size == other.size


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


def assert_sound(graph: OpGraph, program: Program) -> None:
    """Follow the bytes: what each holds is an element of a tensor that no view or concatenation has renamed."""
    numbers = canonical(graph)
    homes: Homes = {}
    for name in program.inputs.values():
        write(program, name, numbers, homes)
    for step in program.steps:
        for argument, name in step.reads.items():
            check(program, name, numbers, homes, f"{step.name} reads {argument}")
        for name in step.writes.values():
            for argument, read in step.reads.items():
                assert_apart(program, name, read, f"{step.name} reads {argument}")
            write(program, name, numbers, homes)
    for tensor, name in program.outputs.items():
        check(program, name, numbers, homes, f"answer {tensor}")


def canonical(graph: OpGraph) -> dict[str, Numbers]:
    """A number for each element of each tensor, the same for elements that views and concatenations pass on."""
    found: dict[str, Numbers] = {}
    count = 0

    def number(name: str) -> None:
        nonlocal count
        dims = graph.tensors[name].dims
        found[name] = count + np.arange(math.prod(dims)).reshape(dims)
        count += math.prod(dims)

    for name in graph.inputs:
        number(name)
    for op in graph.ops:
        sources = [found[name] for name in op.reads.values()]
        if op.kind in ("concat", "view"):
            found[op.writes["dst"]] = NUMPY[op.kind](op, *sources)
        else:
            number(op.writes["dst"])
    return found


def places(program: Program, name: str) -> tuple[str, Numbers]:
    buffer = program.buffers[name]
    assert buffer.desc is not None
    assert program.buffers[buffer.base].base == buffer.base
    offsets = buffer.desc.offset(np.indices(buffer.desc.dims).reshape(buffer.desc.ndims, -1).T)
    return buffer.base, (np.asarray(offsets) * 4 + buffer.offset).reshape(buffer.desc.dims)


def assert_apart(program: Program, written: str, read: str, what: str) -> None:
    """What is written lies exactly in what is read, element on element, or nowhere in it."""
    (home, at), (other, there) = places(program, written), places(program, read)
    if home == other and np.intersect1d(at, there).size:
        assert np.array_equal(at, there), what


def write(program: Program, name: str, numbers: Mapping[str, Numbers], homes: Homes) -> None:
    home, at = places(program, name)
    held = homes.setdefault(home, {})
    held.update(zip(at.ravel().tolist(), numbers[program.buffers[name].tensor].ravel().tolist(), strict=True))


def check(program: Program, name: str, numbers: Mapping[str, Numbers], homes: Homes, what: str) -> None:
    home, at = places(program, name)
    held = homes.get(home, {})
    found = [held.get(place) for place in at.ravel().tolist()]
    assert found == numbers[program.buffers[name].tensor].ravel().tolist(), what
