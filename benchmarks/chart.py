"""The picture of a run: a row per pair, a panel per size, each case a bar from 0 to its percent of the copy.

The bar is Inlay, its spread a line across its end; the peers are marks on the same scale, and an upright line is the
aim. A bar is blue where the case meets its aims and orange where it misses one. What is beyond the scale stands at its
edge. It reads on light and dark pages; every case says its figures in a tooltip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree

from benchmarks.aims import aim_text, misses
from benchmarks.report import percent_text, ratio_text, time_text
from benchmarks.runs import Row
from inlay.render.text import CHALK, INK

SCALE = 130
"""Percent of the copy at the right edge of a panel."""
MARKS = {
    "oneDNN": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "oneDNN 3.13": "M0-5L5 0L0 5L-5 0z",
    "NumPy": "M-3-3h6v6h-6z",
    "torch": "M0-4L4.5 4h-9z",
}
"""The outline of each peer's mark, around its place."""

_LEFT, _PANEL, _GAP, _ROW, _LINE, _MARGIN = 400, 260, 84, 18, 17, 20
_HEAD = 24
"""From the name of a table to its first row: the names of the sizes, and the scales below them."""
_EM = 6.7


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a case stands: the left edge of its panel, and the middle of its row."""

    x: float
    y: float

    def at(self, percent: float) -> float:
        """The x of a percentage; of one beyond the scale that of the edge."""
        return self.x + min(percent, SCALE) / SCALE * _PANEL


def draw_chart(rows: Sequence[Row], head: Sequence[str]) -> str:
    """The picture as one `svg` element. `head` is what a reader must know about the run: machine, versions."""
    sizes = list(dict.fromkeys(row.case.size.name for row in rows))
    body = ElementTree.Element("g")
    y = _head(body, head, [name for name in MARKS if any(name in row.peers for row in rows)])
    for table, group in groupby(rows, key=lambda row: row.case.table):
        y = _table(body, table, list(group), sizes, y)
    width, height = _LEFT + len(sizes) * (_PANEL + _GAP), y + _MARGIN
    box = {"viewBox": f"0 0 {width} {height:.0f}", "width": f"{width}", "height": f"{height:.0f}"}
    svg = ElementTree.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", **box})
    ElementTree.SubElement(svg, "title").text = "Speed of reorders in percent of the best copy of the same bytes"
    ElementTree.SubElement(svg, "desc").text = "\n".join(head)
    ElementTree.SubElement(svg, "style").text = _STYLE
    ElementTree.SubElement(svg, "rect", {"class": "page", "width": f"{width}", "height": f"{height:.0f}", "rx": "8"})
    svg.append(body)
    ElementTree.indent(svg, "")
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _text(parent: ElementTree.Element, x: float, y: float, words: str, kind: str = "") -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    ElementTree.SubElement(parent, "text", place | ({"class": kind} if kind else {})).text = words


def _path(parent: ElementTree.Element, kind: str, outline: str, place: _Place | None = None) -> None:
    moved = {} if place is None else {"transform": f"translate({place.x:.1f} {place.y:.1f})"}
    ElementTree.SubElement(parent, "path", {"class": kind, "d": outline, **moved})


def _bar(parent: ElementTree.Element, kind: str, place: _Place, width: float) -> None:
    box = {"x": f"{place.x:.1f}", "y": f"{place.y - 5:.1f}", "width": f"{width:.1f}", "height": "10"}
    ElementTree.SubElement(parent, "rect", {"class": kind, **box})


def _head(body: ElementTree.Element, head: Sequence[str], marks: Sequence[str]) -> float:
    """The title, the head's lines and the meaning of bars and marks; the y below them."""
    y = float(_MARGIN) + 14
    _text(body, _MARGIN, y, "Reorders in percent of the best copy of the same bytes", "title")
    for line in head:
        y += _LINE
        _text(body, _MARGIN, y, line, "muted")
    y += 24
    x = float(_MARGIN)
    for kind, words in (("met", "Inlay, aims met"), ("missed", "Inlay, an aim missed"), ("free", "Inlay, no aim")):
        _bar(body, kind, _Place(x, y - 4), 22)
        _text(body, x + 28, y, words)
        x += 28 + (len(words) + 3) * _EM
    for name in marks:
        _path(body, _mark_class(name), MARKS[name], _Place(x + 5, y - 4))
        _text(body, x + 15, y, name)
        x += 15 + (len(name) + 3) * _EM
    _path(body, "aim", "M0-7v14", _Place(x, y - 4))
    _text(body, x + 8, y, "aim")
    return y + 14


def _table(body: ElementTree.Element, name: str, rows: Sequence[Row], sizes: Sequence[str], y: float) -> float:
    """One table: its name, the sizes and their scales, a line per pair; the y below it."""
    y += 24
    _text(body, _MARGIN, y, name, "heading")
    pairs = list(dict.fromkeys(row.case.pair for row in rows))
    bottom = y + _HEAD + len(pairs) * _ROW
    lefts = {size: float(_LEFT + i * (_PANEL + _GAP)) for i, size in enumerate(sizes)}
    lines = {pair: y + _HEAD + (i + 0.5) * _ROW for i, pair in enumerate(pairs)}
    for i, (pair, middle) in enumerate(lines.items()):
        if i % 2:
            _band(body, middle, len(sizes))
        _text(body, _LEFT - 10, middle + 4, pair, "right")
    for size, x in lefts.items():
        _scale(body, size, _Place(x, y), bottom)
    for row in rows:
        _case(body, row, _Place(lefts[row.case.size.name], lines[row.case.pair]))
    return bottom


def _band(body: ElementTree.Element, middle: float, panels: int) -> None:
    """The shade of every other line, which leads the eye from the pair to its bars."""
    width = _LEFT + panels * (_PANEL + _GAP) - 2 * _MARGIN
    box = {"x": f"{_MARGIN}", "y": f"{middle - _ROW / 2:.1f}", "width": f"{width}", "height": f"{_ROW}"}
    ElementTree.SubElement(body, "rect", {"class": "band", **box})


def _scale(body: ElementTree.Element, size: str, place: _Place, bottom: float) -> None:
    _text(body, place.x, place.y, size, "strong")
    for percent in (0, 25, 50, 75, 100, 125):
        x = place.at(percent)
        _path(body, "copy" if percent == 100 else "grid", f"M{x:.1f} {place.y + 20:.1f}V{bottom:.1f}")
        _text(body, x, place.y + 16, f"{percent}", "middle")


def _case(body: ElementTree.Element, row: Row, place: _Place) -> None:
    group = ElementTree.SubElement(body, "g")
    ElementTree.SubElement(group, "title").text = _tooltip(row)
    missed, figure = misses(row), row.percent_of_copy("Inlay")
    kind = "free" if missed is None else "missed" if missed else "met"
    _bar(group, kind, place, place.at(figure.median) - place.x)
    _path(group, "spread", f"M{place.at(figure.low):.1f} {place.y:.1f}H{place.at(figure.high):.1f}")
    if row.case.aim is not None:
        _path(group, "aim", "M0-8v16", _Place(place.at(row.case.aim), place.y))
    for name, outline in MARKS.items():
        if name in row.peers:
            at = place.at(row.percent_of_copy(name).median)
            _path(group, _mark_class(name), outline, _Place(at, place.y))
    _text(group, place.x + _PANEL + 34, place.y + 4, f"{figure.median:.0f}", f"right strong {kind}")


def _tooltip(row: Row) -> str:
    """The figures of a case in words."""
    dims = "x".join(map(str, row.case.dims))
    lines = [f"{row.case.label}, {dims}: copy {time_text(row.copy_time)} ({row.best_copy}); aim {aim_text(row)}"]
    for name in row.peers:
        faster = "" if name == "Inlay" else f", Inlay is {ratio_text(row.times_faster_than(name))} times as fast"
        lines.append(f"{name}: {percent_text(row.percent_of_copy(name))} % of the copy{faster}")
    return "\n".join(lines)


def _mark_class(name: str) -> str:
    return f"mark p{list(MARKS).index(name)}"


_STYLE = f"""
text{{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{INK}}}
.title{{font-size:16px;font-weight:bold}} .heading{{font-size:14px;font-weight:bold}} .strong{{font-weight:bold}}
.muted,.middle{{fill:#59636e}} .middle{{text-anchor:middle}} .right{{text-anchor:end}}
.page{{fill:#fff}} .band{{fill:#f4f6f8}}
.grid{{stroke:#dde2e7;fill:none}} .copy{{stroke:#8b949e;fill:none}}
rect.met{{fill:#7fb2e5}} rect.missed{{fill:#f0a07c}} rect.free{{fill:#c4ccd4}} text.missed{{fill:#a8431a}}
.spread{{stroke:{INK};stroke-width:1.5;fill:none}} .aim{{stroke:#c2185b;stroke-width:2.5;fill:none}}
.mark{{stroke-width:1.3;stroke:{INK}}}
.p0{{fill:#fff}} .p1{{fill:{INK}}} .p2{{fill:#f2e3a4}} .p3{{fill:#94d3bf}}
@media (prefers-color-scheme:dark){{
text{{fill:{CHALK}}} .muted,.middle{{fill:#9da7b3}} .page{{fill:#15191f}} .band{{fill:#1b2028}}
.grid{{stroke:#2a313a}} .copy{{stroke:#6e7681}}
rect.met{{fill:#2f6ea8}} rect.missed{{fill:#a8572f}} rect.free{{fill:#444d57}} text.missed{{fill:#f0a07c}}
.spread{{stroke:{CHALK}}} .aim{{stroke:#ff6fa3}} .mark{{stroke:{CHALK}}}
.p0{{fill:#15191f}} .p1{{fill:{CHALK}}} .p2{{fill:#7a6a28}} .p3{{fill:#1f6b57}}
}}
"""
