"""Positions of marks and wires: rows, an order in each, columns as a newspaper has them, and coordinates.

A mark stands one row below the lowest of its sources. A wire that passes rows has an item in each, so that all links
lead from one row to the next; it forks where it must. The order in a row begins as the marks come and is improved by
sweeps: each item moves to the mean place of its neighbors in the row above, then of those in the row below; the order
with the fewest crossings is taken.

A network is long and narrow, a page is not: the rows are cut where few wires pass, into as many columns as make the
picture about as wide as it is high. Within a column, items move to the mean of their neighbors' places, as far as order
and distances allow: what is nearest to all wishes in the sense of least squares is found by pooling those that push
against each other. Wires that pass rows wish to be straight most of all.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981; Gansner et
al., "A Technique for Drawing Directed Graphs", 1993; Barlow et al., "Statistical Inference under Order Restrictions",
1972, for pooling.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol, TypeAlias

from inlay.render.network.flow import Flow, Mark, Shape

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
    """Number of items that are marks."""


def layered(flow: Flow) -> Layering:
    """The marks and wires of `flow` in rows.

    Post-condition: each link leads from one row to the next, and the links of a wire from its source to its targets.
    """
    return layer_items(_levels(flow), flow.wires)


class Connection(Protocol):
    """A wire, by the items that it connects."""

    @property
    def source(self) -> int:
        """Index of the item at which it begins."""

    @property
    def targets(self) -> Sequence[int]:
        """Indices of the items at which it ends."""


def layer_items(levels: Sequence[int], wires: Sequence[Connection], fixed: Sequence[int] = ()) -> Layering:
    """The items in rows, with further items where wires pass a row, in the order with the fewest crossings found.

    Args:
        levels: the row of each item that wires connect, by its index; items of `fixed` rows keep their order.
        wires: wires between these items, each from a row to rows below it.
        fixed: rows whose order stays that of the items' indices.
    """
    rows: Rows = [[] for _ in range(max(levels, default=-1) + 1)]
    for item, level in enumerate(levels):
        rows[level].append(item)
    links: list[Link] = []
    items = len(levels)
    for number, wire in enumerate(wires):
        upper = wire.source
        last = max(levels[target] for target in wire.targets)
        for level in range(levels[wire.source] + 1, last + 1):
            links += [Link(upper, target, number) for target in wire.targets if levels[target] == level]
            if level < last:
                rows[level].append(items)
                links.append(Link(upper, items, number))
                upper, items = items, items + 1
    return Layering(tuple(map(tuple, _ordered(rows, links, frozenset(fixed)))), tuple(links), len(levels))


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


def _ordered(rows: Rows, links: Sequence[Link], fixed: frozenset[int]) -> Rows:
    """The rows in the order with the fewest crossings that sweeps find; `fixed` rows keep theirs."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for link in links:
        above.setdefault(link.lower, []).append(link.upper)
        below.setdefault(link.upper, []).append(link.lower)
    best, fewest = rows, crossings(rows, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        if sweep % 2 == 0:
            rows = _swept(rows, above, fixed)
        else:
            rows = _swept(rows[::-1], below, frozenset(len(rows) - 1 - row for row in fixed))[::-1]
        count = crossings(rows, below)
        if count < fewest:
            best, fewest = rows, count
    return best


def _swept(rows: Rows, neighbors: dict[int, list[int]], fixed: frozenset[int]) -> Rows:
    """Each row after the first, but those of `fixed`, ordered by the mean place of its neighbors in the row before."""
    swept = [rows[0]] if rows else []
    for number, row in enumerate(rows[1:], 1):
        if number in fixed:
            swept.append(row)
            continue
        place = {item: x for x, item in enumerate(swept[-1])}
        means = {}
        for x, item in enumerate(row):
            found = [place[n] for n in neighbors.get(item, ())]
            means[item] = sum(found) / len(found) if found else float(x)
        swept.append(sorted(row, key=means.__getitem__))
    return swept


def crossings(rows: Sequence[Sequence[int]], below: dict[int, list[int]]) -> int:
    """Return the number of pairs of links that cross."""
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


SIZES: Mapping[Shape, tuple[float, float]] = {
    "input": (236.0, 26.0),
    "output": (236.0, 26.0),
    "step": (264.0, 42.0),
    "reference": (264.0, 42.0),
    "reorder": (120.0, 34.0),
    "view": (120.0, 4.0),
}
"""Width and height of each shape, in pixels, without words beside it."""

EM = 6.63
"""Pixels of one character."""

PASSING = (12.0, 0.0)
"""Width and height, in pixels, of the item of a wire that passes a row."""
GAP = 20.0
"""Between two rows, and between two items of a row."""
LANE = 9.0
"""Between two wires that pass from one column to the next."""
FOOT = 12.0
"""Between a column and the first lane."""
_GUTTER = 28.0
_ASPECT = 1.5
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class ItemBounds:
    """The position and size of an item."""

    x: float
    """Horizontal center, in pixels."""
    y: float
    """Upper edge, in pixels."""
    width: float
    """In pixels."""
    height: float
    """In pixels."""
    column: int
    """Index of its column."""
    row: tuple[float, float]
    """Upper and lower edge of its row, in pixels."""


@dataclass(frozen=True, slots=True)
class Column:
    """Rows that stand under each other."""

    left: float
    """Left edge of its items, in pixels."""
    right: float
    """Right edge of its items, in pixels."""
    bottom: float
    """Lower edge of its last row, in pixels."""


@dataclass(frozen=True, slots=True)
class Placing:
    """All coordinates."""

    boxes: tuple[ItemBounds, ...]
    """By item."""
    columns: tuple[Column, ...]
    """From left to right."""
    top: float
    """Upper edge of each column, in pixels: wires from the column before pass above it."""


def placed(flow: Flow, layering: Layering) -> Placing:
    """Coordinates for all items, from (0, 0) on.

    Post-condition: no two items of a row are nearer than `GAP`, and their order is that of the row.
    """
    items = sum(map(len, layering.rows))
    sizes = [size_of(flow.marks[i]) if i < layering.marks else PASSING for i in range(items)]
    heights = [max(sizes[item][1] for item in row) for row in layering.rows]
    cuts = _cuts(layering, heights, sizes)
    passing = [_passing(layering, cut) for cut in cuts[1:-1]]
    top = LANE * max(passing, default=0) + FOOT * bool(passing)
    boxes: dict[int, ItemBounds] = {}
    columns: list[Column] = []
    left = 0.0
    for number, (first, last) in enumerate(pairwise(cuts)):
        rows = layering.rows[first:last]
        xs = assign_centers(rows, layering.links, sizes)
        shift = left - min(xs[i] - sizes[i][0] / 2 for i in xs)
        y = top
        for row, height in zip(rows, heights[first:last], strict=True):
            for i in row:
                upper = y + (height - sizes[i][1]) / 2
                boxes[i] = ItemBounds(xs[i] + shift, upper, *sizes[i], number, (y, y + height))
            y += height + GAP
        right = shift + max(xs[i] + sizes[i][0] / 2 for i in xs)
        columns.append(Column(left, right, y - GAP))
        left = right + _GUTTER + LANE * (passing[number] if number < len(passing) else 0)
    return Placing(tuple(boxes[i] for i in range(items)), tuple(columns), top)


def size_of(mark: Mark) -> tuple[float, float]:
    """Return width and height of a mark: a shape and the words beside it, with as much room on the other side."""
    width, height = SIZES[mark.shape]
    beside = {"view": (32.0, mark.title), "reorder": (26.0, mark.note)}.get(mark.shape)
    return (width if beside is None else max(width, 2 * (beside[0] + len(beside[1]) * EM))), height


def _passing(layering: Layering, cut: int) -> int:
    """Return the number of wires that lead to the row `cut` from the row before."""
    below = set(layering.rows[cut])
    return len({link.upper for link in layering.links if link.lower in below})


def _cuts(layering: Layering, heights: Sequence[float], sizes: Sequence[tuple[float, float]]) -> list[int]:
    """The first row of each column, and the number of rows at the end."""
    count = len(layering.rows)
    if not count:
        return [0]
    width = max(sum(sizes[i][0] + GAP for i in row) for row in layering.rows) + _GUTTER
    tops = [0.0]
    for height in heights:
        tops.append(tops[-1] + height + GAP)
    columns = max(1, round(math.sqrt(tops[-1] * _ASPECT / width)))
    cuts = [0]
    for column in range(1, columns):
        wanted = tops[-1] * column / columns
        near = [row for row in range(cuts[-1] + 1, count) if abs(tops[row] - wanted) <= 0.25 * tops[-1] / columns]
        if near:
            cuts.append(min(near, key=lambda row: (_passing(layering, row), abs(tops[row] - wanted))))
    return [*cuts, count]


def assign_centers(
    rows: Sequence[Sequence[int]],
    links: Sequence[Link],
    sizes: Sequence[tuple[float, float]],
    fixed: Mapping[int, float] = MappingProxyType({}),
) -> dict[int, float]:
    """Return the middle of each item of some rows, from left to right; rows of `fixed` items have these middles."""
    neighbors: dict[int, list[tuple[int, float]]] = {i: [] for row in rows for i in row}
    for link in links:
        if link.upper not in neighbors or link.lower not in neighbors:
            continue
        passing = (sizes[link.upper] == PASSING) + (sizes[link.lower] == PASSING)
        weight = 8.0 if passing == 2 else 1.0
        neighbors[link.upper].append((link.lower, weight))
        neighbors[link.lower].append((link.upper, weight))
    xs: dict[int, float] = {}
    for row in rows:
        xs.update(keep_apart(row, dict.fromkeys(row, 0.0), dict.fromkeys(row, 1.0), sizes))
    xs.update(fixed)
    for turn in range(_ROUNDS):
        settled: set[int] = set()
        for row in rows if turn % 2 == 0 else rows[::-1]:
            if row and row[0] in fixed:
                settled.update(row)
                continue
            # The first rounds look back only, which carries places through the whole column at once.
            heard = {i: [(n, w) for n, w in neighbors[i] if turn > 2 or n in settled] for i in row}
            weights = {i: sum(weight for _, weight in heard[i]) for i in row}
            wishes = {i: sum(xs[n] * w for n, w in heard[i]) / weights[i] if weights[i] else xs[i] for i in row}
            xs.update(keep_apart(row, wishes, weights, sizes))
            settled.update(row)
    return xs


def keep_apart(
    row: Sequence[int],
    wishes: Mapping[int, float],
    weights: Mapping[int, float],
    sizes: Sequence[tuple[float, float]],
) -> dict[int, float]:
    """Return the places nearest to all wishes at which nothing overlaps, in the order of the row."""
    starts = [0.0] * bool(row)
    for one, other in pairwise(row):
        starts.append(starts[-1] + (sizes[one][0] + sizes[other][0]) / 2 + GAP)
    pools: list[tuple[float, float, int]] = []  # mean wish, weight, how many
    for i, start in zip(row, starts, strict=True):
        mean, weight, count = wishes[i] - start, weights[i] or 1.0, 1
        while pools and pools[-1][0] > mean:
            before, its_weight, its_count = pools.pop()
            mean = (before * its_weight + mean * weight) / (its_weight + weight)
            weight, count = weight + its_weight, count + its_count
        pools.append((mean, weight, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    return {i: mean + start for i, mean, start in zip(row, means, starts, strict=True)}
