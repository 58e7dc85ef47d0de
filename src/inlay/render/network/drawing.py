"""A flow as SVG: one self-contained drawing for pages and notebooks, light and dark.

A box is a step, with what it computes, how, and how long it takes; the bar at its foot is that time beside the longest
step. A diamond is a reorder, in the colors of its two formats. A thin mark is what costs nothing: a view, or a
concatenation without a copy. Tooltips say the rest; readers that do not see it get the legend as the description.

Each format has a color, the same in every picture for those that most networks use: seven that are told apart in normal
and in color-blind vision, on light pages and dark ones; what is row-major is gray.

A wire leads down through the rows. One that goes on in the next column runs in a lane of its own, below its column, up
between the two, and into the next one from above; the lanes are nested, so that they do not cross where the wires keep
their order.

Source: Paul Tol, "Colour Schemes", the bright qualitative scheme.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from xml.etree import ElementTree

from inlay.graph.plan import Plan
from inlay.graph.report import heading
from inlay.render.colors import CHALK, INK
from inlay.render.network.flow import ROW_MAJOR, Flow, Mark, Shape, flow_of
from inlay.render.network.placing import EM, FOOT, LANE, ItemBounds, Layering, Link, Placing, layered, placed
from inlay.render.svg import document, identity_of, px

GRAY = "#8a939e"
BRIGHT = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")

_USUAL = {ROW_MAJOR: GRAY, "aBcd16b": BRIGHT[0], "aBcd8b": BRIGHT[1], "acdb": BRIGHT[2], "aBcd4b": BRIGHT[5]}
_RARE = "#b58863"


def format_colors(formats: Iterable[str]) -> dict[str, str]:
    """A color for each format; those after the seventh share one.

    A format of another type than f32 has the color of its tag, if that of f32 does not occur.

    >>> format_colors(["aBcd16b", "plain", "bacd"])
    {'aBcd16b': '#4477aa', 'plain': '#8a939e', 'bacd': '#ee6677'}
    >>> format_colors(["u8 acdb", "plain", "u8 plain"])
    {'u8 acdb': '#228833', 'plain': '#8a939e', 'u8 plain': '#4477aa'}
    """
    wanted, owners = list(formats), dict[str, str]()
    for name in sorted(wanted, key=lambda name: " " in name):
        color = _USUAL.get(name.rpartition(" ")[2])
        if color is not None:
            owners.setdefault(color, name)
    usual = {name: color for color, name in owners.items()}
    free = [color for color in BRIGHT if color not in owners]
    return {name: usual.get(name) or (free.pop(0) if free else _RARE) for name in wanted}


_BEND = 7.0
_PORT = 22.0


def routes_of(flow: Flow, layering: Layering, placing: Placing) -> list[str]:
    """The path of each wire, by its index."""
    lanes = _lanes(layering, placing)
    ports = assign_ports([mark.shape for mark in flow.marks], layering.links, dict(enumerate(placing.boxes)))
    paths = ["" for _ in flow.wires]
    for link in layering.links:
        end = placing.boxes[link.lower].x + ports.get(link, 0.0)
        if placing.boxes[link.upper].column != placing.boxes[link.lower].column:
            paths[link.wire] += "".join(_over(link, end, *lanes[link.upper], placing))
        else:
            paths[link.wire] += "".join(descend(placing.boxes[link.upper], placing.boxes[link.lower], end))
    return paths


def depth_of(layering: Layering, placing: Placing) -> float:
    """Return the lower edge of all columns and lanes, in pixels."""
    lanes = max((count for _, count in _lanes(layering, placing).values()), default=0)
    return max((column.bottom for column in placing.columns), default=0.0) + LANE * lanes + FOOT * bool(lanes)


def _lanes(layering: Layering, placing: Placing) -> dict[int, tuple[int, int]]:
    """Return for each item that leads to another column its lane, the innermost first, and how many there are."""
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


def assign_ports(
    shapes: Sequence[Shape | None], links: Iterable[Link], boxes: Mapping[int, ItemBounds]
) -> dict[Link, float]:
    """Return the distance from the center of a mark at which each link ends, where several do.

    `shapes` has the shape of each mark; None for an item that is a part of a wire.
    """
    ending: dict[int, list[Link]] = {}
    for link in links:
        if link.lower < len(shapes):
            ending.setdefault(link.lower, []).append(link)
    ports = {}
    for mark, those in ending.items():
        those.sort(key=lambda link: boxes[link.upper].x)
        room = 0.7 * boxes[mark].width
        step = min(_PORT, room / len(those)) if shapes[mark] not in (None, "reorder") else 0.0
        ports.update({link: (i - (len(those) - 1) / 2) * step for i, link in enumerate(those)})
    return ports


def descend(upper: ItemBounds, lower: ItemBounds, end: float) -> Iterator[str]:
    """Yield the parts of the path from an item to the place `end` of an item in the next row of the same column."""
    yield f"M{px(upper.x)} {px(upper.y + upper.height)}V{px(upper.row[1])}"
    if abs(upper.x - end) < 0.5:
        yield f"V{px(lower.y)}"
        return
    middle = (upper.row[1] + lower.row[0]) / 2
    yield f"C{px(upper.x)} {px(middle)} {px(end)} {px(middle)} {px(end)} {px(lower.row[0])}V{px(lower.y)}"


def _over(link: Link, end: float, lane: int, lanes: int, placing: Placing) -> Iterator[str]:
    """From the last row of a column to the first of the next."""
    upper, lower = placing.boxes[link.upper], placing.boxes[link.lower]
    column = placing.columns[upper.column]
    foot = max(column.bottom, upper.row[1]) + FOOT + LANE * lane
    between = column.right + 14 + LANE * lane
    head = placing.top - FOOT - LANE * (lanes - 1 - lane)
    corners = [(upper.x, foot), (between, foot), (between, head), (end, head)]
    yield f"M{px(upper.x)} {px(upper.y + upper.height)}"
    yield from round_corners([*corners, (end, lower.y)], (upper.x, upper.y + upper.height))


def round_corners(points: Sequence[tuple[float, float]], start: tuple[float, float]) -> Iterator[str]:
    """Yield the parts of a path of straight lines through these points, rounded at all but the last."""
    before = start
    for (x, y), (after_x, after_y) in pairwise(points):
        first = _toward((x, y), before)
        second = _toward((x, y), (after_x, after_y))
        yield f"L{px(first[0])} {px(first[1])}Q{px(x)} {px(y)} {px(second[0])} {px(second[1])}"
        before = x, y
    yield f"L{px(points[-1][0])} {px(points[-1][1])}"


def _toward(point: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the point at which the bend at `point` begins or ends on the way to `other`."""
    length = abs(other[0] - point[0]) + abs(other[1] - point[1])
    share = min(_BEND, length / 2) / length if length else 0.0
    return point[0] + (other[0] - point[0]) * share, point[1] + (other[1] - point[1]) * share


_MARGIN = 22.0
_LINE = 20.0
_NARROWEST = 560.0


def draw_plan(plan: Plan) -> str:
    """The plan as one `svg` element."""
    flow = flow_of(plan)
    layering = layered(flow)
    placing = placed(flow, layering)
    drawing = _Drawing(flow)
    lines = heading(plan)
    width = max(_NARROWEST, *(column.right for column in placing.columns), len(lines[1]) * EM)
    body_top = drawing.legend(lines, width)
    body = ElementTree.SubElement(drawing.root, "g", {"transform": f"translate({px(_MARGIN)} {px(body_top)})"})
    for wire, path in zip(flow.wires, routes_of(flow, layering, placing), strict=True):
        line = ElementTree.SubElement(body, "path", {"class": "wire", "d": path, "stroke": drawing.colors[wire.format]})
        ElementTree.SubElement(line, "title").text = wire.about
    for mark, box in zip(flow.marks, placing.boxes, strict=False):
        drawing.mark(body, mark, box)
    height = body_top + depth_of(layering, placing) + _MARGIN
    return drawing.finished(lines, width + 2 * _MARGIN, height)


class _Drawing:
    """The SVG document and the state that all parts of a drawing share."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.colors: Mapping[str, str] = format_colors(flow.formats)
        self.longest = max((mark.ms for mark in flow.marks if mark.ms is not None), default=0.0)
        self.root = ElementTree.Element("g")

    def legend(self, lines: tuple[str, str], width: float) -> float:
        """Words on top: the heading, the formats, the shapes. Where the graph begins."""
        y = _MARGIN + 12
        _text(self.root, _MARGIN, y, lines[0], "title")
        _text(self.root, _MARGIN, y + _LINE, lines[1], "muted")
        y += 2 * _LINE + 6
        x = _MARGIN
        for name, count in self.flow.formats.items():
            words = f"{name}, {count} tensor{'s' * (count != 1)}"
            if x > _MARGIN and x + 30 + len(words) * EM > width:
                x, y = _MARGIN, y + _LINE
            path = f"M{px(x)} {px(y - 4)}h22"
            ElementTree.SubElement(self.root, "path", {"class": "wire", "d": path, "stroke": self.colors[name]})
            _text(self.root, x + 28, y, words, "words")
            x += 28 + (len(words) + 3) * EM
        y += _LINE
        _diamond(self.root, ItemBounds(_MARGIN + 11, y - 11, 22, 14, 0, (0, 0)), "currentColor", "currentColor")
        _text(self.root, _MARGIN + 28, y, "reorder", "words")
        x = _MARGIN + 28 + 10 * EM
        ElementTree.SubElement(self.root, "path", {"class": "bar", "d": f"M{px(x)} {px(y - 4)}h22"})
        _text(self.root, x + 28, y, "no copy", "words")
        x += 28 + 10 * EM
        ElementTree.SubElement(self.root, "path", {"class": "time", "d": f"M{px(x)} {px(y - 4)}h22"})
        _text(self.root, x + 28, y, "time, beside the longest step's", "words")
        return y + 26

    def mark(self, parent: ElementTree.Element, mark: Mark, box: ItemBounds) -> None:
        """One mark at its place."""
        group = ElementTree.SubElement(parent, "g", {"class": mark.shape})
        ElementTree.SubElement(group, "title").text = mark.about
        if mark.shape == "view":
            self._view(group, mark, box)
        elif mark.shape == "reorder" and mark.formats is not None:
            source, target = (self.colors.get(name, "currentColor") for name in mark.formats)
            shape = ItemBounds(box.x, box.y, 40, box.height, 0, box.row)
            _diamond(group, shape, source, target)
            _text(group, box.x + 26, box.y + 14, f"{mark.ms:.3f} ms", "words")
            _text(group, box.x + 26, box.y + 28, mark.note, "muted")
        else:
            self._box(group, mark, box)

    def _view(self, group: ElementTree.Element, mark: Mark, box: ItemBounds) -> None:
        """Draw a view: a bar with its title."""
        y = box.y + box.height / 2
        half = 26 if mark.title == "concat" else 12
        line = f"M{px(box.x - half)} {px(y)}h{2 * half}"
        ElementTree.SubElement(group, "path", {"class": "bar", "d": line})
        _text(group, box.x + half + 6, y + 4, mark.title, "muted")

    def _box(self, group: ElementTree.Element, mark: Mark, box: ItemBounds) -> None:
        """Draw a step as a box with its title, time, note, and a bar as long as its share of the longest time."""
        left, room = box.x - box.width / 2, int((box.width - 18) / EM)
        shape = {"x": px(left), "y": px(box.y), "width": px(box.width), "height": px(box.height)}
        is_end = mark.shape in ("input", "output")
        ElementTree.SubElement(group, "rect", {"class": "box", "rx": px(box.height / 2 if is_end else 5), **shape})
        if is_end or mark.ms is None:
            _text(group, box.x, box.y + box.height / 2 + 4, shorten_end(mark.title, room), "middle")
            return
        time = f"{mark.ms:.3f} ms"
        _text(group, left + 9, box.y + 17, shorten_end(mark.title, room - len(time) - 1), "strong")
        _text(group, left + box.width - 9, box.y + 17, time, "right")
        _text(group, left + 9, box.y + 32, shorten_start(mark.note, room), "muted")
        if self.longest and mark.ms > 0:
            length = max(1.0, (box.width - 10) * mark.ms / self.longest)
            bar = f"M{px(left + 5)} {px(box.y + box.height - 2)}h{px(length)}"
            ElementTree.SubElement(group, "path", {"class": "time", "d": bar})

    def finished(self, lines: tuple[str, str], width: float, height: float) -> str:
        """The whole `svg` element."""
        formats = ", ".join(f"{name} {count}" for name, count in self.flow.formats.items())
        about = f"{lines[1]}. Tensors by format: {formats}."
        identity = identity_of((about, [mark.about for mark in self.flow.marks]))
        return document(self.root, "inlay-plan", identity, (lines[0], about), (width, height), _style())


def _diamond(parent: ElementTree.Element, box: ItemBounds, upper: str, lower: str) -> None:
    """A diamond whose upper half has one color and whose lower half another."""
    x, y, half, side = box.x, box.y + box.height / 2, box.width / 2, box.height / 2
    for height, color in ((-side, upper), (side, lower)):
        path = f"M{px(x - half)} {px(y)}L{px(x)} {px(y + height)}L{px(x + half)} {px(y)}Z"
        ElementTree.SubElement(parent, "path", {"class": "half", "d": path, "fill": color})


def _text(parent: ElementTree.Element, x: float, y: float, words: str, kind: str) -> None:
    """Add SVG text."""
    ElementTree.SubElement(parent, "text", {"class": kind, "x": px(x), "y": px(y)}).text = words


def shorten_end(words: str, room: int) -> str:
    """Return words, or the beginning of those that are longer than `room` characters."""
    return words if len(words) <= room else words[: room - 1] + "\N{HORIZONTAL ELLIPSIS}"


def shorten_start(words: str, room: int) -> str:
    """Return words, or the end of those that are longer than `room`, since names of nodes begin alike."""
    return words if len(words) <= room else "\N{HORIZONTAL ELLIPSIS}" + words[len(words) - room + 1 :]


def _style() -> str:
    """The style sheet: every rule under the class of the picture, since a notebook has one page for all of them."""
    return textwrap.dedent(f"""
    .inlay-plan{{color:#59636e}}
    .inlay-plan text{{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{INK}}}
    .inlay-plan .title{{font-size:15px;font-weight:bold}}
    .inlay-plan .strong{{font-weight:bold}}
    .inlay-plan .muted{{fill:#59636e}}
    .inlay-plan .middle{{text-anchor:middle;font-weight:bold}}
    .inlay-plan .right{{text-anchor:end}}
    .inlay-plan .page{{fill:#fff}}
    .inlay-plan .box{{fill:#f6f8fa;stroke:#b9c1cb}}
    .inlay-plan .reference .box{{stroke:#8a6d1f;stroke-dasharray:5 3}}
    .inlay-plan .input .box,.inlay-plan .output .box{{fill:#fff}}
    .inlay-plan .wire{{fill:none;stroke-width:2.5}}
    .inlay-plan .wire:hover{{stroke-width:5}}
    .inlay-plan .bar{{fill:none;stroke:#59636e;stroke-width:3}}
    .inlay-plan .time{{fill:none;stroke:#e08a3c;stroke-width:3}}
    .inlay-plan g:hover>.box{{stroke:{INK}}}
    @media (prefers-color-scheme:dark){{
    .inlay-plan{{color:#9da7b3}}
    .inlay-plan text{{fill:{CHALK}}}
    .inlay-plan .muted{{fill:#9da7b3}}
    .inlay-plan .page{{fill:#15191f}}
    .inlay-plan .box{{fill:#1f262e;stroke:#434d58}}
    .inlay-plan .input .box,.inlay-plan .output .box{{fill:#15191f}}
    .inlay-plan .bar{{stroke:#9da7b3}}
    .inlay-plan g:hover>.box{{stroke:{CHALK}}}
    }}
    """)
