"""Coordinates: rows in columns as a newspaper has them, and within a column each item above what it leads to.

A network is long and narrow, a page is not: the rows are cut where few wires pass, into as many columns as make the
picture about as wide as it is high. Within a column, items move to the mean of their neighbors' places, as far as order
and distances allow: what is nearest to all wishes in the sense of least squares is found by pooling those that push
against each other. Wires that pass rows wish to be straight most of all.

Source: Gansner et al., "A Technique for Drawing Directed Graphs", 1993; Barlow et al., "Statistical Inference under
Order Restrictions", 1972, for pooling.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from inlay.render.network.flow import Flow, Mark, Shape
from inlay.render.network.layering import Layering, Link

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

_PASSING = (12.0, 0.0)
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
class Box:
    """Where an item is."""

    x: float
    """Its middle."""
    y: float
    """Its upper edge."""
    width: float
    """In pixels."""
    height: float
    """In pixels."""
    column: int
    """In which column it is."""
    row: tuple[float, float]
    """Where its row begins and ends, from top to bottom."""


@dataclass(frozen=True, slots=True)
class Column:
    """Rows that stand under each other."""

    left: float
    """Where its items begin."""
    right: float
    """Where they end."""
    bottom: float
    """Where its last row ends."""


@dataclass(frozen=True, slots=True)
class Placing:
    """All coordinates."""

    boxes: tuple[Box, ...]
    """By item."""
    columns: tuple[Column, ...]
    """From left to right."""
    top: float
    """Where each column begins: above it is room for wires that come from the column before."""


def placed(flow: Flow, layering: Layering) -> Placing:
    """Coordinates for all items, from (0, 0) on.

    Post-condition: no two items of a row are nearer than `GAP`, and their order is that of the row.
    """
    items = sum(map(len, layering.rows))
    sizes = [_size(flow.marks[i]) if i < layering.marks else _PASSING for i in range(items)]
    heights = [max(sizes[item][1] for item in row) for row in layering.rows]
    cuts = _cuts(layering, heights, sizes)
    passing = [_passing(layering, cut) for cut in cuts[1:-1]]
    top = LANE * max(passing, default=0) + FOOT * bool(passing)
    boxes: dict[int, Box] = {}
    columns: list[Column] = []
    left = 0.0
    for number, (first, last) in enumerate(pairwise(cuts)):
        rows = layering.rows[first:last]
        xs = _across(rows, _links_within(layering, rows), sizes)
        shift = left - min(xs[i] - sizes[i][0] / 2 for i in xs)
        y = top
        for row, height in zip(rows, heights[first:last], strict=True):
            for i in row:
                upper = y + (height - sizes[i][1]) / 2
                boxes[i] = Box(xs[i] + shift, upper, *sizes[i], number, (y, y + height))
            y += height + GAP
        right = shift + max(xs[i] + sizes[i][0] / 2 for i in xs)
        columns.append(Column(left, right, y - GAP))
        left = right + _GUTTER + LANE * (passing[number] if number < len(passing) else 0)
    return Placing(tuple(boxes[i] for i in range(items)), tuple(columns), top)


def _size(mark: Mark) -> tuple[float, float]:
    """A shape and the words beside it, with as much room on the other side."""
    width, height = SIZES[mark.shape]
    beside = {"view": (32.0, mark.title), "reorder": (26.0, mark.note)}.get(mark.shape)
    return (width if beside is None else max(width, 2 * (beside[0] + len(beside[1]) * EM))), height


def _passing(layering: Layering, cut: int) -> int:
    """How many wires lead to the row `cut` from the one before."""
    below = set(layering.rows[cut])
    return len({link.upper for link in layering.links if link.lower in below})


def _links_within(layering: Layering, rows: Sequence[Sequence[int]]) -> list[Link]:
    inside = {item for row in rows for item in row}
    return [link for link in layering.links if link.upper in inside and link.lower in inside]


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


def _across(
    rows: Sequence[Sequence[int]], links: Sequence[Link], sizes: Sequence[tuple[float, float]]
) -> dict[int, float]:
    """The middle of each item, from left to right."""
    neighbors: dict[int, list[tuple[int, float]]] = {i: [] for row in rows for i in row}
    for link in links:
        passing = (sizes[link.upper] == _PASSING) + (sizes[link.lower] == _PASSING)
        weight = 8.0 if passing == 2 else 1.0
        neighbors[link.upper].append((link.lower, weight))
        neighbors[link.lower].append((link.upper, weight))
    xs: dict[int, float] = {}
    for row in rows:
        xs.update(_apart(row, dict.fromkeys(row, 0.0), dict.fromkeys(row, 1.0), sizes))
    for turn in range(_ROUNDS):
        settled: set[int] = set()
        for row in rows if turn % 2 == 0 else rows[::-1]:
            # The first rounds look back only, which carries places through the whole column at once.
            heard = {i: [(n, w) for n, w in neighbors[i] if turn > 2 or n in settled] for i in row}
            weights = {i: sum(weight for _, weight in heard[i]) for i in row}
            wishes = {i: sum(xs[n] * w for n, w in heard[i]) / weights[i] if weights[i] else xs[i] for i in row}
            xs.update(_apart(row, wishes, weights, sizes))
            settled.update(row)
    return xs


def _apart(
    row: Sequence[int],
    wishes: Mapping[int, float],
    weights: Mapping[int, float],
    sizes: Sequence[tuple[float, float]],
) -> dict[int, float]:
    """The places nearest to all wishes at which nothing overlaps, in the order of the row."""
    starts = [0.0]
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
