"""`Settled`: one candidate for each group, the formats that follow from that, and what it all costs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inlay.graph.formats import Format
from inlay.graph.groups import Candidate
from inlay.graph.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class Copy:
    """A source of a concatenation that is copied to its place in the result."""

    group: int
    """The concatenation."""
    source: int
    """Which source."""
    part: Format
    """How it lies there."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Everything chosen."""

    candidates: tuple[Candidate, ...]
    """The candidate of each group."""
    produced: Mapping[str, Format]
    """The format that each tensor is produced in."""
    kept: Mapping[str, tuple[Format, ...]]
    """The other formats it is kept in, in the order in which they are first read."""
    copies: tuple[Copy, ...]
    """Sources of concatenations that are copied."""
    ms: float
    """What all calls, reorders and copies take."""
    reorders: int
    """How many reorders and copies there are."""


def settle(problem: Problem, choices: Sequence[int]) -> Settled:
    """What follows from one candidate for each group; any choice is legal.

    Post-condition: every format that is read is produced or kept.
    """
    chosen = tuple(group.candidates[choice] for group, choice in zip(problem.groups, choices, strict=True))
    produced = {name: problem.domains[name][0] for name in problem.graph.inputs}
    for group, candidate in zip(problem.groups, chosen, strict=True):
        produced.update(zip(group.writes, candidate.writes, strict=True))
    kept: dict[str, list[Format]] = {name: [] for name in produced}
    copies = []
    for name, read, copy in _read(problem, chosen, produced):
        if copy is not None:
            copies.append(copy)
        elif read not in (produced[name], *kept[name]):
            kept[name].append(read)
    costs = [candidate.ms for candidate in chosen]
    moves = [(name, produced[name], dst) for name in kept for dst in kept[name]]
    moved = [problem.reorder(*move) for move in moves]
    copied = [problem.prices.reorder(produced[problem.groups[c.group].reads[c.source]], c.part) for c in copies]
    aliases = sum(problem.is_alias(*move) for move in moves)
    return Settled(
        chosen,
        produced,
        {name: tuple(found) for name, found in kept.items()},
        tuple(copies),
        math.fsum((*costs, *moved, *copied)),
        len(moved) + len(copied) - aliases,
    )


def _read(
    problem: Problem, chosen: Sequence[Candidate], produced: Mapping[str, Format]
) -> Iterator[tuple[str, Format, Copy | None]]:
    """Each tensor that is read, in which format, or how it is copied instead."""
    for i, (group, candidate) in enumerate(zip(problem.groups, chosen, strict=True)):
        for source, (name, read) in enumerate(zip(group.reads, candidate.reads, strict=True)):
            copied = candidate.parts is not None and not problem.lies(i, source, read, produced[name])
            yield name, read, Copy(i, source, read) if copied else None
    for name in problem.graph.outputs:
        yield name, problem.domains[name][0], None
