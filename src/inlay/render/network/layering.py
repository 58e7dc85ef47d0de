"""Rows: each mark under all that lead to it, and in each row an order in which few edges cross.

A mark stands one row below the lowest of its sources. A wire that passes rows has an item in each, so that all links
lead from one row to the next; it forks where it must. The order begins as the marks come and is improved by sweeps:
each item moves to the mean place of its neighbors in the row above, then of those in the row below; the best that was
seen stays.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from inlay.render.network.flow import Flow

Rows: TypeAlias = list[list[int]]
"""Items in each row, from left to right."""

_SWEEPS = 12


@dataclass(frozen=True, slots=True)
class Link:
    """A part of a wire, from one row to the next."""

    upper: int
    """The item where it begins."""
    lower: int
    """The item where it ends."""
    wire: int
    """Index of the wire."""


@dataclass(frozen=True, slots=True)
class Layering:
    """Items in rows. The first items are the marks, by their index; the others are where wires pass a row."""

    rows: tuple[tuple[int, ...], ...]
    """Items of each row, from left to right."""
    links: tuple[Link, ...]
    """Between items of neighboring rows."""
    marks: int
    """How many items are marks."""

    def row_of(self) -> dict[int, int]:
        """The row of each item."""
        return {item: number for number, row in enumerate(self.rows) for item in row}


def layered(flow: Flow) -> Layering:
    """The marks and wires of `flow` in rows.

    Post-condition: each link leads from one row to the next, and the links of a wire from its source to its targets.
    """
    levels = _levels(flow)
    rows: Rows = [[] for _ in range(max(levels, default=-1) + 1)]
    for mark, level in enumerate(levels):
        rows[level].append(mark)
    links: list[Link] = []
    items = len(flow.marks)
    for number, wire in enumerate(flow.wires):
        upper = wire.source
        last = max(levels[target] for target in wire.targets)
        for level in range(levels[wire.source] + 1, last + 1):
            links += [Link(upper, target, number) for target in wire.targets if levels[target] == level]
            if level < last:
                rows[level].append(items)
                links.append(Link(upper, items, number))
                upper, items = items, items + 1
    return Layering(tuple(map(tuple, _ordered(rows, links))), tuple(links), len(flow.marks))


def _levels(flow: Flow) -> list[int]:
    """The row of each mark; what nothing leads to stands just above the first that it leads to."""
    levels = [0] * len(flow.marks)
    pairs = sorted((wire.source, target) for wire in flow.wires for target in wire.targets)
    for source, target in pairs:
        levels[target] = max(levels[target], levels[source] + 1)
    first: dict[int, int] = {}
    for source, target in pairs:
        first[source] = min(first.get(source, levels[target]), levels[target])
    fed = {target for _, target in pairs}
    return [level if mark in fed else first.get(mark, 1) - 1 for mark, level in enumerate(levels)]


def _ordered(rows: Rows, links: Sequence[Link]) -> Rows:
    """The rows in the order with the fewest crossings that sweeps find."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for link in links:
        above.setdefault(link.lower, []).append(link.upper)
        below.setdefault(link.upper, []).append(link.lower)
    best, fewest = rows, crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        rows = _swept(rows, above) if sweep % 2 == 0 else _swept(rows[::-1], below)[::-1]
        count = crossings(rows, below)
        if count < fewest:
            best, fewest = rows, count
    return best


def _swept(rows: Rows, neighbors: dict[int, list[int]]) -> Rows:
    """Each row after the first ordered by the mean place of its neighbors in the row before."""
    swept = [rows[0]] if rows else []
    for row in rows[1:]:
        place = {item: x for x, item in enumerate(swept[-1])}
        means = {}
        for x, item in enumerate(row):
            found = [place[n] for n in neighbors.get(item, ())]
            means[item] = sum(found) / len(found) if found else float(x)
        swept.append(sorted(row, key=means.__getitem__))
    return swept


def crossings(rows: Sequence[Sequence[int]], below: dict[int, list[int]]) -> int:
    """How many pairs of links cross."""
    total = 0
    for row, following in pairwise(rows):
        place = {item: x for x, item in enumerate(following)}
        seen: list[int] = []
        for item in row:
            ends = sorted(place[lower] for lower in below.get(item, ()))
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
