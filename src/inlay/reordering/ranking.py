"""The choices that are worth a try for a problem, the most promising first.

The first is always what the models of the stages decide by themselves. Each of the others departs from it in one or
two things: the other side walked, lines fetched from nearer, farther or not at all, tiles of more or fewer registers,
narrower registers, stores into or past the caches, fewer threads. They are ranked by arithmetic: the estimate of
`bound` (bytes through the level of memory that they live in, instructions, masks at the edges), and what departs from
its assumptions: pages touched in turns, and lines that nobody asked for. Plans that are the same plan are tried once.

The estimate orders what is tried; it is not good enough to decide, or nothing would have to be measured.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import log2

from inlay.errors import Unimplemented
from inlay.machine import MemoryModel
from inlay.reordering.bound import bandwidth_of, bound_of
from inlay.reordering.choice import BY_MODEL, Choice
from inlay.reordering.kernel import TableShape
from inlay.reordering.network import Side
from inlay.reordering.planning import Plan, plan_reorder
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.target import Target
from inlay.reordering.threads import parts_for

# What bytes take more where a page is new with each line of the source or of the destination; where lines come that
# nobody asked for; and for each doubling of the distance from which the model fetches.
_PAGE = 4096
_NEW_PAGES: dict[Side, float] = {"src": 0.4, "dst": 0.2}
_UNASKED = 0.15
_OFF_DISTANCE = 0.01
_TIMES_AHEAD = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice with what follows from it."""

    choice: Choice
    """What is decided."""
    plan: Plan
    """How the problem is solved then."""
    estimate: float
    """Microseconds that it should take."""
    debt: float = 0.0
    """Microseconds that it costs whoever reads the destination next, because it is not in the caches."""


def candidates(problem: ReorderProblem, target: Target, memory: MemoryModel) -> tuple[Candidate, ...]:
    """The choices for `problem`, which is not empty: what the models decide, then the others by their estimate.

    Post-condition: no two have the same plan and the same number of threads.
    """
    first = _candidate(problem, target, memory, BY_MODEL, None)
    found = {_identity(first): first}
    for choice in _alternatives(problem, first.plan, target, memory):
        # A tile may be one that the table cannot describe.
        with suppress(Unimplemented):
            candidate = _candidate(problem, target, memory, choice, first.plan)
            found.setdefault(_identity(candidate), candidate)
    others = [candidate for candidate in found.values() if candidate is not first]
    return (first, *sorted(others, key=lambda candidate: candidate.estimate + candidate.debt))


def _alternatives(problem: ReorderProblem, plan: Plan, target: Target, memory: MemoryModel) -> Iterator[Choice]:
    """What departs from `plan`."""
    other: Side = "dst" if plan.schedule.walk == "src" else "src"
    fetched = ahead_of(plan)
    yield Choice(walk=other)
    if fetched:
        yield from (Choice(ahead=fetched * times) for times in _TIMES_AHEAD)
        yield Choice(ahead=fetched // 2)
        yield Choice(ahead=0)
        yield Choice(walk=other, ahead=1024)
    registers = plan.schedule.tile.registers
    yield from (Choice(registers=count) for count in (1, 4, 16, 32) if count != registers)
    yield Choice(width=target.vector_bytes // 2)
    if problem.moved_bytes > memory.l2:
        is_streamed = plan.kernel.stores != "cached" or plan.panels is not None
        yield Choice(streams=not is_streamed)
        yield Choice(streams=True, panels=plan.panels is None)
    threads = parts_for(problem.moved_bytes)
    if threads > 1 and problem.moved_bytes <= memory.last_level:
        yield Choice(threads=threads // 2)


def ahead_of(plan: Plan) -> int:
    """Bytes from a load to the line that it asks for; 0 where it asks for none."""
    return int(plan.table.words[TableShape.AHEAD]) if plan.kernel.fetches else 0


def _identity(candidate: Candidate) -> tuple[object, ...]:
    plan = candidate.plan
    return plan.schedule, plan.kernel, ahead_of(plan), candidate.choice.threads, plan.panels is None


def _candidate(
    problem: ReorderProblem, target: Target, memory: MemoryModel, choice: Choice, model: Plan | None
) -> Candidate:
    """What follows from `choice`; `model` is the plan of the models, None where this is it."""
    plan = plan_reorder(problem, target, choice)
    threads = min(parts_for(problem.moved_bytes), choice.threads or parts_for(problem.moved_bytes), plan.pieces)
    bound = bound_of(problem, plan, target.vector_bytes, memory, threads)
    bytes_us = bound.bytes_us * (1 + sum(_NEW_PAGES[side] * _new_pages(problem, plan, side) for side in _NEW_PAGES))
    if bound.level != "L2":
        bytes_us *= 1 + _off_distance(ahead_of(plan), ahead_of(model or plan))
    debt = 0.0
    if bound.level != "memory" and plan.kernel.stores != "cached":
        debt = problem.written_bits / 8 * (1 / bandwidth_of(memory, "memory") - 1 / bound.bandwidth) / threads / 1000
    return Candidate(choice, plan, bound.call_us + max(bytes_us, bound.instructions_us), debt)


def _new_pages(problem: ReorderProblem, plan: Plan, side: Side) -> float:
    """The share of the tiles' lines that lie in another page than the tile before: 1 where each step is a page."""
    if not plan.schedule.outer:
        return 0.0
    inner = plan.schedule.outer[-1]
    loop, kind = plan.schedule.nest.loops[inner.loop], problem.src_type if side == "src" else problem.dst_type
    where = loop.src if side == "src" else loop.dst
    step = abs(where) if isinstance(where, int) else _PAGE
    return min(1.0, step * inner.step * kind.bits / 8 / _PAGE)


def _off_distance(ahead: int, model: int) -> float:
    """What bytes take more because of the distance from which lines are fetched, as a share."""
    if not ahead:
        return _UNASKED
    return _OFF_DISTANCE * abs(log2(abs(ahead / model))) if model else 0.0
