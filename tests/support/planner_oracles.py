"""Oracles of plans: the cost of every choice of candidates, and the bytes that steps read and write."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.costs import Costs
from inlay.graph.op_graph import OpGraph
from inlay.graph.planner.groups import Candidate
from inlay.graph.planner.problem import Problem
from inlay.graph.program import Program
from tests.support.graph_programs import NUMPY

Numbers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Homes: TypeAlias = dict[str, dict[int, int]]
Reordered: TypeAlias = tuple[str, MemoryDesc, MemoryDesc]
"""A tensor, the format in which it is produced, and another in which it is read."""


def all_costs(problem: Problem, costs: Costs) -> Iterator[tuple[float, set[Reordered]]]:
    """The cost of every combination of candidates, and the tensors that it reorders, by trying every one."""
    for combination in product(*(group.candidates for group in problem.groups)):
        yield cost_of(problem, combination, costs)


def cost_of(problem: Problem, combination: Sequence[Candidate], costs: Costs) -> tuple[float, set[Reordered]]:
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


def contents(program: Program, name: str, numbers: Mapping[str, Numbers]) -> list[int]:
    """What each byte of a buffer holds: the number of its element, and the size of the type that it is stored in."""
    _, at = places(program, name)
    size = at.shape[-1]
    elements = numbers[program.buffers[name].tensor].ravel() * 8 + size
    held: list[int] = elements.repeat(size).tolist()
    return held


def places(program: Program, name: str) -> tuple[str, Numbers]:
    buffer = program.buffers[name]
    assert buffer.desc is not None
    assert program.buffers[buffer.base].base == buffer.base
    offsets = buffer.desc.offset(np.indices(buffer.desc.dims).reshape(buffer.desc.ndims, -1).T)
    assert buffer.desc.data_type is not None
    size = buffer.desc.data_type.itemsize
    first = (np.asarray(offsets) * size + buffer.offset).reshape(buffer.desc.dims)
    return buffer.base, first[..., None] + np.arange(size)


def assert_apart(program: Program, written: str, read: str, what: str) -> None:
    """What is written lies exactly in what is read, element on element, or nowhere in it."""
    (home, at), (other, there) = places(program, written), places(program, read)
    if home == other and np.intersect1d(at, there).size:
        assert np.array_equal(at, there), what


def write(program: Program, name: str, numbers: Mapping[str, Numbers], homes: Homes) -> None:
    home, at = places(program, name)
    held = homes.setdefault(home, {})
    held.update(zip(at.ravel().tolist(), contents(program, name, numbers), strict=True))


def check(program: Program, name: str, numbers: Mapping[str, Numbers], homes: Homes, what: str) -> None:
    home, at = places(program, name)
    held = homes.get(home, {})
    found = [held.get(place) for place in at.ravel().tolist()]
    assert found == contents(program, name, numbers), what
