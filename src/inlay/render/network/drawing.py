"""A flow as SVG: one self-contained drawing for pages and notebooks, light and dark.

A box is a step, with what it computes, how, and how long it takes; the bar at its foot is that time beside the longest
step. A diamond is a reorder, in the colors of its two formats. A thin mark is what costs nothing: a view, or a
concatenation without a copy. Tooltips say the rest; readers that do not see it get the legend as the description.
"""

import textwrap
import zlib
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from inlay.graph.plan import Plan
from inlay.render.markup import markup_of
from inlay.render.network.colors import format_colors
from inlay.render.network.flow import Flow, Mark, flow_of
from inlay.render.network.layering import layered
from inlay.render.network.placing import EM, Box, placed
from inlay.render.network.routes import depth_of, routes_of
from inlay.render.palette import CHALK, INK

_MARGIN = 22.0
_LINE = 20.0
_NARROWEST = 560.0


def draw_plan(plan: Plan) -> str:
    """The plan as one `svg` element."""
    flow = flow_of(plan)
    layering = layered(flow)
    placing = placed(flow, layering)
    drawing = _Drawing(flow)
    lines = list(heading(plan))
    width = max(_NARROWEST, *(column.right for column in placing.columns), len(lines[1]) * EM)
    body_top = drawing.legend(lines, width)
    body = ElementTree.SubElement(drawing.root, "g", {"transform": f"translate({_n(_MARGIN)} {_n(body_top)})"})
    for wire, path in zip(flow.wires, routes_of(flow, layering, placing), strict=True):
        line = ElementTree.SubElement(body, "path", {"class": "wire", "d": path, "stroke": drawing.colors[wire.format]})
        ElementTree.SubElement(line, "title").text = wire.about
    for mark, box in zip(flow.marks, placing.boxes, strict=False):
        drawing.mark(body, mark, box)
    height = body_top + depth_of(layering, placing) + _MARGIN
    return drawing.finished(lines, width + 2 * _MARGIN, height)


def heading(plan: Plan) -> Iterator[str]:
    """The title of the picture, and under it where its numbers come from."""
    steps, reorders = len(plan.program.steps), len(plan.reorders)
    counts = f"{steps} step{'s' * (steps != 1)}, {reorders} reorder{'s' * (reorders != 1)}"
    yield f"{plan.graph.name}: {plan.ms:.3f} ms predicted, {counts}"
    of = f" of {plan.engine}" if plan.engine else ""
    yield f"{plan.costs} costs{of}, {plan.isa}, {plan.threads} thread{'s' * (plan.threads != 1)}"


class _Drawing:
    """What all parts of a drawing share."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.colors: Mapping[str, str] = format_colors(flow.formats)
        self.longest = max((mark.ms for mark in flow.marks if mark.ms is not None), default=0.0)
        self.root = ElementTree.Element("g")

    def legend(self, lines: list[str], width: float) -> float:
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
            path = f"M{_n(x)} {_n(y - 4)}h22"
            ElementTree.SubElement(self.root, "path", {"class": "wire", "d": path, "stroke": self.colors[name]})
            _text(self.root, x + 28, y, words, "words")
            x += 28 + (len(words) + 3) * EM
        y += _LINE
        _diamond(self.root, Box(_MARGIN + 11, y - 11, 22, 14, 0, (0, 0)), "currentColor", "currentColor")
        _text(self.root, _MARGIN + 28, y, "reorder", "words")
        x = _MARGIN + 28 + 10 * EM
        ElementTree.SubElement(self.root, "path", {"class": "bar", "d": f"M{_n(x)} {_n(y - 4)}h22"})
        _text(self.root, x + 28, y, "no copy", "words")
        x += 28 + 10 * EM
        ElementTree.SubElement(self.root, "path", {"class": "time", "d": f"M{_n(x)} {_n(y - 4)}h22"})
        _text(self.root, x + 28, y, "time, beside the longest step's", "words")
        return y + 26

    def mark(self, parent: ElementTree.Element, mark: Mark, box: Box) -> None:
        """One mark at its place."""
        group = ElementTree.SubElement(parent, "g", {"class": mark.shape})
        ElementTree.SubElement(group, "title").text = mark.about
        if mark.shape == "view":
            self._view(group, mark, box)
        elif mark.shape == "reorder" and mark.formats is not None:
            source, target = (self.colors.get(name, "currentColor") for name in mark.formats)
            shape = Box(box.x, box.y, 40, box.height, 0, box.row)
            _diamond(group, shape, source, target)
            _text(group, box.x + 26, box.y + 14, f"{mark.ms:.3f} ms", "words")
            _text(group, box.x + 26, box.y + 28, mark.note, "muted")
        else:
            self._box(group, mark, box)

    def _view(self, group: ElementTree.Element, mark: Mark, box: Box) -> None:
        y = box.y + box.height / 2
        half = 26 if mark.title == "concat" else 12
        line = f"M{_n(box.x - half)} {_n(y)}h{2 * half}"
        ElementTree.SubElement(group, "path", {"class": "bar", "d": line})
        _text(group, box.x + half + 6, y + 4, mark.title, "muted")

    def _box(self, group: ElementTree.Element, mark: Mark, box: Box) -> None:
        left, room = box.x - box.width / 2, int((box.width - 18) / EM)
        shape = {"x": _n(left), "y": _n(box.y), "width": _n(box.width), "height": _n(box.height)}
        is_end = mark.shape in ("input", "output")
        ElementTree.SubElement(group, "rect", {"class": "box", "rx": _n(box.height / 2 if is_end else 5), **shape})
        if is_end or mark.ms is None:
            _text(group, box.x, box.y + box.height / 2 + 4, _fitted(mark.title, room), "middle")
            return
        time = f"{mark.ms:.3f} ms"
        _text(group, left + 9, box.y + 17, _fitted(mark.title, room - len(time) - 1), "strong")
        _text(group, left + box.width - 9, box.y + 17, time, "right")
        _text(group, left + 9, box.y + 32, _ending(mark.note, room), "muted")
        if self.longest and mark.ms > 0:
            length = max(1.0, (box.width - 10) * mark.ms / self.longest)
            bar = f"M{_n(left + 5)} {_n(box.y + box.height - 2)}h{_n(length)}"
            ElementTree.SubElement(group, "path", {"class": "time", "d": bar})

    def finished(self, lines: list[str], width: float, height: float) -> str:
        """The whole `svg` element."""
        formats = ", ".join(f"{name} {count}" for name, count in self.flow.formats.items())
        about = f"{lines[1]}. Tensors by format: {formats}."
        # Several pictures can share a page, so names inside are made from the words.
        words = repr((about, [mark.about for mark in self.flow.marks]))
        identity = f"{zlib.crc32(words.encode()):08x}"
        names = {"title": f"inlay-title-{identity}", "desc": f"inlay-desc-{identity}"}
        size = {"viewBox": f"0 0 {_n(width)} {_n(height)}", "width": _n(width), "height": _n(height)}
        labels = {"role": "img", "aria-labelledby": f"{names['title']} {names['desc']}"}
        start = {"xmlns": "http://www.w3.org/2000/svg", "class": "inlay-plan", **labels, **size}
        svg = ElementTree.Element("svg", start)
        ElementTree.SubElement(svg, "title", {"id": names["title"]}).text = lines[0]
        ElementTree.SubElement(svg, "desc", {"id": names["desc"]}).text = about
        ElementTree.SubElement(svg, "style").text = _style()
        ElementTree.SubElement(svg, "rect", {"class": "page", "width": _n(width), "height": _n(height), "rx": "8"})
        svg.append(self.root)
        ElementTree.indent(svg, "")
        return markup_of(svg)


def _diamond(parent: ElementTree.Element, box: Box, upper: str, lower: str) -> None:
    """A diamond whose upper half has one color and whose lower half another."""
    x, y, half, side = box.x, box.y + box.height / 2, box.width / 2, box.height / 2
    for height, color in ((-side, upper), (side, lower)):
        path = f"M{_n(x - half)} {_n(y)}L{_n(x)} {_n(y + height)}L{_n(x + half)} {_n(y)}Z"
        ElementTree.SubElement(parent, "path", {"class": "half", "d": path, "fill": color})


def _text(parent: ElementTree.Element, x: float, y: float, words: str, kind: str) -> None:
    ElementTree.SubElement(parent, "text", {"class": kind, "x": _n(x), "y": _n(y)}).text = words


def _fitted(words: str, room: int) -> str:
    """The beginning of words that are too long."""
    return words if len(words) <= room else words[: room - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _ending(words: str, room: int) -> str:
    """The end of words that are too long: names of nodes begin alike."""
    return words if len(words) <= room else "\N{HORIZONTAL ELLIPSIS}" + words[len(words) - room + 1 :]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


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
