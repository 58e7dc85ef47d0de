"""The way of each wire, as the data of an SVG path: down through the rows, and from the foot of a column to the next.

A wire that goes on in the next column runs in a lane of its own, below its column, up between the two, and into the
next one from above; the lanes are nested, so that they do not cross where the order of the wires is kept.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from inlay.render.network.flow import Flow
from inlay.render.network.layering import Layering, Link
from inlay.render.network.placing import FOOT, LANE, Placing

_BEND = 7.0
_PORT = 22.0


def routes_of(flow: Flow, layering: Layering, placing: Placing) -> list[str]:
    """The path of each wire, by its index."""
    lanes = _lanes(layering, placing)
    ports = _ports(flow, layering, placing)
    paths = ["" for _ in flow.wires]
    for link in layering.links:
        end = placing.boxes[link.lower].x + ports.get(link, 0.0)
        if placing.boxes[link.upper].column != placing.boxes[link.lower].column:
            paths[link.wire] += "".join(_over(link, end, *lanes[link.upper], placing))
        else:
            paths[link.wire] += "".join(_down(link, end, placing))
    return paths


def depth_of(layering: Layering, placing: Placing) -> float:
    """How far down columns and lanes reach."""
    lanes = max((count for _, count in _lanes(layering, placing).values()), default=0)
    return max((column.bottom for column in placing.columns), default=0.0) + LANE * lanes + FOOT * bool(lanes)


def _lanes(layering: Layering, placing: Placing) -> dict[int, tuple[int, int]]:
    """Of each item that leads to another column: its lane, the innermost first, and how many there are."""
    found: dict[int, set[int]] = {}
    for link in layering.links:
        column = placing.boxes[link.upper].column
        if placing.boxes[link.lower].column != column:
            found.setdefault(column, set()).add(link.upper)
    return {
        item: (lane, len(items))
        for items in found.values()
        for lane, item in enumerate(sorted(items, key=lambda item: (-placing.boxes[item].x, item)))
    }


def _ports(flow: Flow, layering: Layering, placing: Placing) -> dict[Link, float]:
    """How far from the middle of a mark each link ends, where several do."""
    ending: dict[int, list[Link]] = {}
    for link in layering.links:
        if link.lower < layering.marks:
            ending.setdefault(link.lower, []).append(link)
    ports = {}
    for mark, links in ending.items():
        links.sort(key=lambda link: placing.boxes[link.upper].x)
        room = 0.7 * placing.boxes[mark].width
        step = min(_PORT, room / len(links)) if flow.marks[mark].shape != "reorder" else 0.0
        ports.update({link: (i - (len(links) - 1) / 2) * step for i, link in enumerate(links)})
    return ports


def _down(link: Link, end: float, placing: Placing) -> Iterator[str]:
    """From a row to the next of the same column."""
    upper, lower = placing.boxes[link.upper], placing.boxes[link.lower]
    yield f"M{_n(upper.x)} {_n(upper.y + upper.height)}V{_n(upper.row[1])}"
    if abs(upper.x - end) < 0.5:
        yield f"V{_n(lower.y)}"
        return
    middle = (upper.row[1] + lower.row[0]) / 2
    yield f"C{_n(upper.x)} {_n(middle)} {_n(end)} {_n(middle)} {_n(end)} {_n(lower.row[0])}V{_n(lower.y)}"


def _over(link: Link, end: float, lane: int, lanes: int, placing: Placing) -> Iterator[str]:
    """From the last row of a column to the first of the next."""
    upper, lower = placing.boxes[link.upper], placing.boxes[link.lower]
    column = placing.columns[upper.column]
    foot = max(column.bottom, upper.row[1]) + FOOT + LANE * lane
    between = column.right + 14 + LANE * lane
    head = placing.top - FOOT - LANE * (lanes - 1 - lane)
    corners = [(upper.x, foot), (between, foot), (between, head), (end, head)]
    yield f"M{_n(upper.x)} {_n(upper.y + upper.height)}"
    yield from _rounded([*corners, (end, lower.y)], (upper.x, upper.y + upper.height))


def _rounded(points: Sequence[tuple[float, float]], start: tuple[float, float]) -> Iterator[str]:
    """Straight lines through these points, rounded at all but the last."""
    before = start
    for (x, y), (after_x, after_y) in pairwise(points):
        first = _toward((x, y), before)
        second = _toward((x, y), (after_x, after_y))
        yield f"L{_n(first[0])} {_n(first[1])}Q{_n(x)} {_n(y)} {_n(second[0])} {_n(second[1])}"
        before = x, y
    yield f"L{_n(points[-1][0])} {_n(points[-1][1])}"


def _toward(point: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Where the bend at `point` begins or ends on the way to `other`."""
    length = abs(other[0] - point[0]) + abs(other[1] - point[1])
    share = min(_BEND, length / 2) / length if length else 0.0
    return point[0] + (other[0] - point[0]) * share, point[1] + (other[1] - point[1]) * share


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
