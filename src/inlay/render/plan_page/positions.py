"""Coordinates of the graph of a plan: each segment by itself, folded and unfolded, so that any of them may be folded.

The folded graph is placed as a whole, with a row between two segments in which nothing but wires is. The places of
wires in these rows are boundaries: a segment that is unfolded has other rows, but its wires begin and end at the same
places. So the page moves whole segments up and down, and computes no coordinates.

Coordinates are in pixels; those of a segment begin at 0 at its upper boundary.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from inlay.render.network.drawing import assign_ports, descend, round_corners
from inlay.render.network.flow import Mark, Shape
from inlay.render.network.placing import (
    EM,
    GAP,
    LANE,
    PASSING,
    SIZES,
    ItemBounds,
    Layering,
    Link,
    assign_centers,
    keep_apart,
    layer_items,
    size_of,
)
from inlay.render.plan_page.folding import FoldedFlow, FoldedLoop, FoldedWire
from inlay.render.svg import px

_HEAD = 46.0
"""Pixels between the upper boundary of a block and its first row: its frame and its heading."""
_FOOT = 30.0
"""Pixels between the last row of a block and its lower boundary."""
_SIDE = 16.0
"""Pixels between the steps of a block and its frame."""
FRAME_TOP, FRAME_BOTTOM = 8.0, 8.0
"""Pixels between the boundaries of a block and its frame."""
_TURN = GAP / 2
"""Pixels between a row and the horizontal part of a loop."""
_PORT = 30.0
"""Pixels between the middle of a step and the end of a loop."""
_REORDER_TEXT = 26.0 + len("0.010 ms, 692.2 kB.") * EM
"""Pixels from the middle of a reorder to the end of the text beside it."""
_LONG = 30
"""Rows that a wire passes at least to get a lane of its own."""


@dataclass(frozen=True, slots=True)
class DrawnWire:
    """A wire, or several in one line, within a segment."""

    path: str
    """Path in the syntax of SVG."""
    wires: tuple[int, ...]
    """Its wires: indices of `Flow.wires`."""
    format: str
    """Format of all of them."""
    is_loop: bool = False
    """True if it leads from an occurrence to the next."""


@dataclass(frozen=True, slots=True)
class SegmentForm:
    """A segment as it is drawn, folded or unfolded."""

    boxes: Mapping[int, ItemBounds]
    """Bounds of each node of the folded graph, or of each mark if the segment is unfolded."""
    wires: tuple[DrawnWire, ...]
    """The wires between the two boundaries."""
    height: float
    """Distance of the two boundaries."""
    left: float
    """Left edge of all that is drawn."""
    right: float
    """Right edge of all that is drawn."""
    frame: tuple[float, float] | None = None
    """Left and right edge of the frame; None for a segment that is no block."""
    starts: tuple[float, ...] = ()
    """In an unfolded block: upper edge of the first step of each occurrence."""


@dataclass(frozen=True, slots=True)
class GraphPositions:
    """All segments, from top to bottom."""

    folded: tuple[SegmentForm, ...]
    """Each segment; its blocks are folded."""
    unfolded: tuple[SegmentForm | None, ...]
    """Each block with all its occurrences; None for a segment that is no block."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A wire between items of one layering."""

    source: int
    """Item at which it begins."""
    targets: tuple[int, ...]
    """Items at which it ends."""
    wires: tuple[int, ...]
    """Its wires: indices of `Flow.wires`."""
    format: str
    """Its format."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """The wires that cross from one segment to the next, from left to right."""

    wires: tuple[int, ...]
    """Indices of `FoldedFlow.wires`."""
    centers: tuple[float, ...]
    """Their places."""


@dataclass(frozen=True, slots=True)
class _Items:
    """Items that are drawn in one layering: nodes or marks, and then parts of wires."""

    shapes: tuple[Shape | None, ...]
    """Shape of each node; None for a wire at a boundary. Items after these are parts of wires."""
    sizes: tuple[tuple[float, float], ...]
    """Width and height of each item."""
    centers: Mapping[int, float]
    """Middle of each item, from left to right."""
    lines: Sequence[_Line | FoldedWire]
    """The wires, by the numbers that links have."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Positions of items, for centering: the first ones are nodes, the others are parts of wires."""

    nodes: range
    """The items that are nodes."""
    sizes: Sequence[tuple[float, float]]
    """Width and height of each item."""
    wire_of: Mapping[int, int]
    """The wire of each item that is a part of one."""

    def middle(self, items: Iterable[int], centers: Mapping[int, float]) -> float | None:
        """Return the middle of the nodes among these items; None if there are none."""
        spans = [(centers[i], self.sizes[i][0] / 2) for i in items if i in self.nodes]
        if not spans:
            return None
        return (min(x - half for x, half in spans) + max(x + half for x, half in spans)) / 2


def position_graph(folded: FoldedFlow) -> GraphPositions:
    """Return the coordinates of all segments, folded and unfolded, each with its nodes around the same middle line.

    Post-condition: at a boundary, the forms of both segments have the same wires at the same places.
    """
    levels, ends = _level_segments(folded)
    layering = layer_items(levels, folded.wires)
    rows = [*layering.rows, *[()] * (ends[-1] + 1 - len(layering.rows))]
    shapes = tuple(folded.flow.marks[node.marks[0]].shape for node in folded.nodes)
    sizes = _size_items(folded, [node.marks[0] for node in folded.nodes], sum(map(len, rows)))
    centers = assign_centers(layering.rows, layering.links, sizes)
    parts = [[rows[begin] if begin >= 0 else (), *rows[begin + 1 : end + 1]] for begin, end in pairwise([-1, *ends])]
    wire_of = {link.lower: link.wire for link in layering.links}
    _center_segments(parts, layering, _Layout(range(len(shapes)), sizes, wire_of), centers)
    items = _Items(shapes, sizes, centers, folded.wires)
    boundaries = [_Boundary((), ())]
    forms, unfolded = [], []
    for number, (part, segment) in enumerate(zip(parts, folded.segments, strict=True)):
        loops = [loop for loop in folded.loops if folded.nodes[loop.source].segment == number]
        forms.append(_build_form(part, layering.links, items, loops, is_block=segment.is_block))
        boundaries.append(_Boundary(tuple(wire_of[item] for item in part[-1]), tuple(centers[i] for i in part[-1])))
        unfolded.append(_unfold(folded, number, *boundaries[-2:]) if segment.is_block else None)
    return GraphPositions(tuple(forms), tuple(unfolded))


def _center_segments(
    parts: Sequence[Sequence[Sequence[int]]], layering: Layering, layout: _Layout, centers: dict[int, float]
) -> None:
    """Move the rows of each segment to the middle line, and wires at boundaries below what they come from."""
    for part in parts:
        _center_rows(part[1:-1], layout, centers)
    above = {link.lower: link.upper for link in layering.links}
    for row in (part[-1] for part in parts):
        wishes = {item: centers[above[item]] for item in row}
        centers.update(keep_apart(row, wishes, dict.fromkeys(row, 1.0), layout.sizes))


def _center_rows(rows: Sequence[Sequence[int]], layout: _Layout, centers: dict[int, float]) -> None:
    """Move rows so that the nodes between two narrow ones, and those of a narrow one, have their middle at 0.

    A row is narrow if one node is all that it has, without wires that pass many rows: these get lanes of their own,
    beside all others. Within the rows between two narrow ones, nothing moves. Without this, a sequence of hundreds of
    rows would drift to one side.
    """
    passing = [item for row in rows for item in row if item not in layout.nodes]
    passed = Counter(layout.wire_of[item] for item in passing)
    is_long = frozenset(item for item in passing if passed[layout.wire_of[item]] > _LONG)

    def is_narrow(row: Sequence[int]) -> bool:
        others = [item for item in row if item not in is_long]
        return len(others) == 1 and others[0] in layout.nodes

    for has_one, group in groupby(rows, is_narrow):
        for part in ([row] for row in group) if has_one else (list(group),):
            items = [item for row in part for item in row]
            shift = -(layout.middle(items, centers) or 0.0)
            centers.update({item: centers[item] + shift for item in items})
    _assign_lanes(rows, is_long, layout, centers)


def _assign_lanes(
    rows: Sequence[Sequence[int]], is_long: frozenset[int], layout: _Layout, centers: dict[int, float]
) -> None:
    """Move the wires that pass many rows beside all others, to the side on which they mostly are."""
    spans = [(centers[i], layout.sizes[i][0] / 2) for row in rows for i in row if i not in is_long]
    left, right = min((x - half for x, half in spans), default=0.0), max((x + half for x, half in spans), default=0.0)
    votes: Counter[int] = Counter()
    for row in rows:
        middle = layout.middle(row, centers) or 0.0
        for item in is_long.intersection(row):
            votes[layout.wire_of[item]] += 1 if centers[item] > middle else -1
    for wire in sorted(votes):
        if votes[wire] > 0:
            right += GAP
        else:
            left -= GAP
        lane = right if votes[wire] > 0 else left
        centers.update({item: lane for item in is_long if layout.wire_of[item] == wire})


def _size_items(folded: FoldedFlow, marks: Sequence[int], count: int) -> tuple[tuple[float, float], ...]:
    """Return the sizes of `count` items, of which the first draw these marks, and the others are parts of wires."""
    sizes = [_size_of(folded.flow.marks[mark]) for mark in marks]
    return (*sizes, *[PASSING] * (count - len(sizes)))


def _size_of(mark: Mark) -> tuple[float, float]:
    """Return width and height of a mark; beside a reorder is room for its time and bytes."""
    width, height = size_of(mark)
    return (max(width, 2 * _REORDER_TEXT), height) if mark.shape == "reorder" else (width, height)


def _level_segments(folded: FoldedFlow) -> tuple[list[int], list[int]]:
    """Return the row of each node, and the row of the lower boundary of each segment."""
    pairs: list[list[tuple[int, int]]] = [[] for _ in folded.segments]
    entered = set()
    for wire in folded.wires:
        for target in wire.targets:
            segment = folded.nodes[target].segment
            if folded.nodes[wire.source].segment == segment:
                pairs[segment].append((wire.source, target))
            else:
                entered.add(target)
    members: list[list[int]] = [[] for _ in folded.segments]
    for number, node in enumerate(folded.nodes):
        members[node.segment].append(number)
    levels, ends, first = [0] * len(folded.nodes), [], 0
    for nodes, inner in zip(members, pairs, strict=True):
        found = _assign_levels(nodes, inner, entered)
        for item, level in found.items():
            levels[item] = first + level
        first += max(found.values(), default=-1) + 2
        ends.append(first - 1)
    return levels, ends


def _assign_levels(items: Iterable[int], pairs: Iterable[tuple[int, int]], entered: Iterable[int]) -> dict[int, int]:
    """Return a row for each item, from 0 on: below all that lead to it, or just above what it leads to first.

    Args:
        items: the items.
        pairs: two items, the second of which is below the first one.
        entered: items that something above all of these leads to.
    """
    levels = dict.fromkeys(items, 0)
    order = sorted(pairs)
    for source, target in order:
        levels[target] = max(levels[target], levels[source] + 1)
    fed = {*entered, *(target for _, target in order)}
    first: dict[int, int] = {}
    for source, target in order:
        first[source] = min(first.get(source, levels[target]), levels[target])
    return {item: level if item in fed else max(first.get(item, 1) - 1, 0) for item, level in levels.items()}


def _build_form(
    rows: Sequence[Sequence[int]], links: Iterable[Link], items: _Items, loops: Sequence[FoldedLoop], *, is_block: bool
) -> SegmentForm:
    """Return the form of these rows, of which the first and the last are boundaries."""
    boxes, height = _place_rows(rows, items, is_block=is_block)
    within = [link for link in links if link.upper in boxes and link.lower in boxes]
    ports = assign_ports(items.shapes, within, boxes)
    paths: dict[int, str] = {}
    for link in within:
        upper, lower = boxes[link.upper], boxes[link.lower]
        path = "".join(descend(upper, lower, lower.x + ports.get(link, 0.0)))
        paths[link.wire] = paths.get(link.wire, "") + path
    lines = items.lines
    wires = [DrawnWire(path, lines[wire].wires, lines[wire].format) for wire, path in paths.items()]
    nodes = {item: box for item, box in boxes.items() if item < len(items.shapes) and items.shapes[item] is not None}
    left, right = _find_edges(boxes.values())
    frame = None
    if is_block:
        inner = _find_edges(boxes[item] for row in rows[1:-1] for item in row)
        wires += _draw_loops(loops, nodes, inner[1])
        frame = inner[0] - _SIDE, inner[1] + _SIDE + LANE * len(loops)
        left, right = min(left, frame[0]), max(right, frame[1])
    return SegmentForm(nodes, tuple(wires), height, left, right, frame)


def _find_edges(boxes: Iterable[ItemBounds]) -> tuple[float, float]:
    """Return the left and the right edge of all these boxes; 0 without any."""
    edges = [(box.x - box.width / 2, box.x + box.width / 2) for box in boxes]
    return min((edge for edge, _ in edges), default=0.0), max((edge for _, edge in edges), default=0.0)


def _place_rows(rows: Sequence[Sequence[int]], items: _Items, *, is_block: bool) -> tuple[dict[int, ItemBounds], float]:
    """Return the bounds of all items, and the place of the lower boundary; curves keep out of head and foot."""
    head, foot = (_HEAD, _FOOT) if is_block else (GAP, GAP)
    boxes = {item: ItemBounds(items.centers[item], 0.0, *PASSING, 0, (0.0, head - GAP)) for item in rows[0]}
    y = head
    for row in rows[1:-1]:
        height = max((items.sizes[item][1] for item in row), default=0.0)
        for item in row:
            width, own = items.sizes[item]
            boxes[item] = ItemBounds(items.centers[item], y + (height - own) / 2, width, own, 0, (y, y + height))
        y += height + GAP
    bottom = y - GAP + foot if len(rows) > 2 else head
    for item in rows[-1]:
        boxes[item] = ItemBounds(items.centers[item], bottom, *PASSING, 0, (bottom - foot + GAP, bottom))
    return boxes, bottom


def _draw_loops(loops: Sequence[FoldedLoop], boxes: Mapping[int, ItemBounds], right: float) -> Iterator[DrawnWire]:
    """Yield the loops of a folded block, each in a lane of its own to the right of `right`."""
    for lane, loop in enumerate(loops):
        source, x = boxes[loop.source], right + 12 + LANE * lane
        foot, start = source.row[1] + _TURN, (source.x + _port(source), source.y + source.height)
        path = ""
        for target in (boxes[target] for target in loop.targets):
            head, end = target.row[0] - _TURN, target.x + _port(target)
            points = [(start[0], foot), (x, foot), (x, head), (end, head), (end, target.y)]
            path += f"M{px(start[0])} {px(start[1])}" + "".join(round_corners(points, start))
        yield DrawnWire(path, loop.wires, loop.format, is_loop=True)


def _port(box: ItemBounds) -> float:
    """Return the distance between the middle of a node and the end of a loop: on a view, within its thin line."""
    return _PORT if box.height > SIZES["view"][1] else _PORT / 3


def _unfold(folded: FoldedFlow, number: int, top: _Boundary, bottom: _Boundary) -> SegmentForm:
    """Return an unfolded block between its boundaries."""
    marks = [mark for mark, position in enumerate(folded.positions) if position.segment == number]
    head, stop = len(top.wires), len(top.wires) + len(marks)
    item_of = {mark: head + i for i, mark in enumerate(marks)}
    lines = _connect_marks(folded, item_of, top, bottom)
    pairs = [(line.source, target) for line in lines for target in line.targets if target < stop]
    inner = [(source, target) for source, target in pairs if source >= head]
    levels = _assign_levels(range(head, stop), inner, {target for source, target in pairs if source < head})
    last = max(levels.values()) + 2
    rows = [*[0] * head, *(level + 1 for level in levels.values()), *[last] * len(bottom.wires)]
    layering = layer_items(rows, lines, (0, last))
    drawn = [folded.flow.marks[mark].shape for mark in marks]
    shapes = (*[None] * head, *drawn, *[None] * len(bottom.wires))
    sizes = (*[PASSING] * head, *_size_items(folded, marks, sum(map(len, layering.rows)) - head))
    fixed = dict(enumerate(top.centers)) | {stop + i: x for i, x in enumerate(bottom.centers)}
    centers = assign_centers(layering.rows, layering.links, sizes, fixed)
    wire_of = {link.lower: link.wire for link in layering.links}
    _center_rows(layering.rows[1:last], _Layout(range(head, stop), sizes, wire_of), centers)
    parts = layering.rows if bottom.wires else [*layering.rows, ()]
    form = _build_form(parts, layering.links, _Items(shapes, sizes, centers, lines), (), is_block=True)
    boxes = {mark: form.boxes[item] for mark, item in item_of.items()}
    return replace(form, boxes=boxes, starts=_find_starts(folded, boxes))


def _connect_marks(folded: FoldedFlow, item_of: Mapping[int, int], top: _Boundary, bottom: _Boundary) -> list[_Line]:
    """Return the wires of an unfolded block; items are those of the upper boundary, the marks, the lower boundary."""
    flow, exits = folded.flow, {wire: len(top.wires) + len(item_of) + i for i, wire in enumerate(bottom.wires)}
    lines = []
    for i, wire in enumerate(top.wires):
        line = folded.wires[wire]
        inner = {item_of[target] for one in line.wires for target in flow.wires[one].targets if target in item_of}
        targets = (*sorted(inner), *([exits[wire]] if wire in exits else []))
        lines.append(_Line(i, targets, line.wires, line.format))
    folded_of = {one: wire for wire, line in enumerate(folded.wires) for one in line.wires}
    for one, flow_wire in enumerate(flow.wires):
        if flow_wire.source in item_of:
            inner = {item_of[target] for target in flow_wire.targets if target in item_of}
            is_leaving = any(target not in item_of for target in flow_wire.targets)
            targets = (*sorted(inner), *([exits[folded_of[one]]] if is_leaving else []))
            lines.append(_Line(item_of[flow_wire.source], targets, (one,), flow_wire.format))
    return lines


def _find_starts(folded: FoldedFlow, boxes: Mapping[int, ItemBounds]) -> tuple[float, ...]:
    """Return the upper edge of the first step of each occurrence."""
    tops: dict[int, float] = {}
    for mark, box in boxes.items():
        if folded.flow.marks[mark].ms is not None:
            occurrence = folded.positions[mark].occurrence
            tops[occurrence] = min(tops.get(occurrence, math.inf), box.y)
    return tuple(tops[occurrence] for occurrence in sorted(tops))
