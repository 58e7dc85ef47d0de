"""A picture of measurements: a row per pair, a panel per size, each case a bar from 0 to its percent of the best copy.

The bar is Inlay, its spread a line across its end; other contenders are marks on the same scale, and an upright line is
the aim. A bar is blue where the aims are met and orange where one is missed. Values beyond the scale are drawn at its
edge. The picture is readable on light and dark pages; a tooltip has the figures of each case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from inlay.measure.statistics import Spread
from inlay.render.colors import CHALK, INK

SCALE = 130
"""Percent of the copy at the right edge of a panel."""
MARKS = {
    "oneDNN": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "oneDNN 3.13": "M0-5L5 0L0 5L-5 0z",
    "NumPy": "M-3-3h6v6h-6z",
    "torch": "M0-4L4.5 4h-9z",
}
"""The outline of each contender's mark, around its position."""
_LEFT, _PANEL, _GAP, _ROW, _LINE, _MARGIN, _HEAD, _EM = 400, 260, 84, 18, 17, 20, 24, 6.7


@dataclass(frozen=True, slots=True)
class Bar:
    """One case."""

    table: str
    """Name of the table that the row belongs to."""
    label: str
    """Name of the row."""
    panel: str
    """Name of the panel: the size of the case."""
    percent: Mapping[str, Spread]
    """Percent of the best copy of each contender; Inlay is the first."""
    aim: float | None = None
    """Percent to reach; None without an aim."""
    state: str = "free"
    """`met`, `missed`, or `free` if there is no aim."""
    tooltip: str = ""
    """The figures in words."""


def draw_bars(bars: Sequence[Bar], head: Sequence[str]) -> str:
    """Return the picture as one `svg` element; the lines of `head` tell machine and versions."""
    panels = list(dict.fromkeys(bar.panel for bar in bars))
    body: list[str] = []
    y = _draw_head(body, head, [name for name in MARKS if any(name in bar.percent for bar in bars)])
    for table, group in groupby(bars, key=lambda bar: bar.table):
        y = _draw_table(body, table, list(group), panels, y)
    width, height = _LEFT + len(panels) * (_PANEL + _GAP), y + _MARGIN
    size = f'width="{width}" height="{height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height:.0f}" {size}>',
            "<title>Speed of reorders in percent of the best copy of the same bytes</title>",
            f"<desc>{escape(chr(10).join(head))}</desc>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" {size} rx="8"/>',
            *body,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, words: str, style: str = "") -> str:
    """Return SVG text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(words)}</text>'


def _path(style: str, outline: str, x: float = 0, y: float = 0) -> str:
    """Return an SVG path, moved to a point."""
    return f'<path class="{style}" d="{outline}" transform="translate({x:.1f} {y:.1f})"/>'


def _rect(style: str, x: float, y: float, width: float, height: float = 10) -> str:
    """Return an SVG rectangle."""
    return f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"/>'


def _mark(name: str, x: float, y: float) -> str:
    """Return the mark of a peer at a point."""
    return _path(f"mark p{list(MARKS).index(name)}", MARKS[name], x, y)


def _at(percent: float) -> float:
    """Return the distance of a percentage from the left edge of its panel."""
    return min(percent, SCALE) / SCALE * _PANEL


def _draw_head(body: list[str], head: Sequence[str], marks: Sequence[str]) -> float:
    """Draw the title, the lines of the head and the legend; return the y below them."""
    y = _MARGIN + 14.0
    body.append(_text(_MARGIN, y, "Reorders in percent of the best copy of the same bytes", "title"))
    body += [_text(_MARGIN, y + (i + 1) * _LINE, line, "muted") for i, line in enumerate(head)]
    x, y = float(_MARGIN), y + len(head) * _LINE + 24
    for state, words in (("met", "Inlay, aims met"), ("missed", "Inlay, an aim missed"), ("free", "Inlay, no aim")):
        body += [_rect(state, x, y - 9, 22), _text(x + 28, y, words)]
        x += 28 + (len(words) + 3) * _EM
    for name in marks:
        body += [_mark(name, x + 5, y - 4), _text(x + 15, y, name)]
        x += 15 + (len(name) + 3) * _EM
    body += [_path("aim", "M0-7v14", x, y - 4), _text(x + 8, y, "aim")]
    return y + 14


def _draw_table(body: list[str], name: str, bars: Sequence[Bar], panels: Sequence[str], y: float) -> float:
    """Draw one table: its name, the panels and their scales, a row per pair; return the y below it."""
    top = y + 24
    labels = list(dict.fromkeys(bar.label for bar in bars))
    bottom = top + _HEAD + len(labels) * _ROW
    lefts = {panel: float(_LEFT + i * (_PANEL + _GAP)) for i, panel in enumerate(panels)}
    middles = {label: top + _HEAD + (i + 0.5) * _ROW for i, label in enumerate(labels)}
    body.append(_text(_MARGIN, top, name, "heading"))
    for i, (label, middle) in enumerate(middles.items()):
        if i % 2:
            body.append(_rect("band", _MARGIN, middle - _ROW / 2, _LEFT + len(panels) * (_PANEL + _GAP) - 40, _ROW))
        body.append(_text(_LEFT - 10, middle + 4, label, "right"))
    for panel, left in lefts.items():
        body.append(_text(left, top, panel, "strong"))
        for percent in (0, 25, 50, 75, 100, 125):
            x = left + _at(percent)
            body.append(_path("copy" if percent == 100 else "grid", f"M{x:.1f} {top + 20:.1f}V{bottom:.1f}"))
            body.append(_text(x, top + 16, f"{percent}", "middle"))
    for bar in bars:
        _draw_bar(body, bar, lefts[bar.panel], middles[bar.label])
    return bottom


def _draw_bar(body: list[str], bar: Bar, x: float, y: float) -> None:
    """Add a bar with its spread, aim, peers' marks and percentage to the body of an SVG."""
    figure = next(iter(bar.percent.values()))
    body += [f"<g><title>{escape(bar.tooltip)}</title>", _rect(bar.state, x, y - 5, _at(figure.median))]
    body.append(_path("spread", f"M{x + _at(figure.low):.1f} {y:.1f}H{x + _at(figure.high):.1f}"))
    if bar.aim is not None:
        body.append(_path("aim", "M0-8v16", x + _at(bar.aim), y))
    body += [_mark(name, x + _at(bar.percent[name].median), y) for name in MARKS if name in bar.percent]
    body += [_text(x + _PANEL + 34, y + 4, f"{figure.median:.0f}", f"right strong {bar.state}"), "</g>"]


_STYLE = f"""
text{{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{INK}}}
.title{{font-size:16px;font-weight:bold}} .heading{{font-size:14px;font-weight:bold}} .strong{{font-weight:bold}}
.muted,.middle{{fill:#59636e}} .middle{{text-anchor:middle}} .right{{text-anchor:end}}
.page{{fill:#fff}} .band{{fill:#f4f6f8}} .grid{{stroke:#dde2e7;fill:none}} .copy{{stroke:#8b949e;fill:none}}
rect.met{{fill:#7fb2e5}} rect.missed{{fill:#f0a07c}} rect.free{{fill:#c4ccd4}} text.missed{{fill:#a8431a}}
.spread{{stroke:{INK};stroke-width:1.5;fill:none}} .aim{{stroke:#c2185b;stroke-width:2.5;fill:none}}
.mark{{stroke-width:1.3;stroke:{INK}}} .p0{{fill:#fff}} .p1{{fill:{INK}}} .p2{{fill:#f2e3a4}} .p3{{fill:#94d3bf}}
@media (prefers-color-scheme:dark){{
text{{fill:{CHALK}}} .muted,.middle{{fill:#9da7b3}} .page{{fill:#15191f}} .band{{fill:#1b2028}}
.grid{{stroke:#2a313a}} .copy{{stroke:#6e7681}}
rect.met{{fill:#2f6ea8}} rect.missed{{fill:#a8572f}} rect.free{{fill:#444d57}} text.missed{{fill:#f0a07c}}
.spread{{stroke:{CHALK}}} .aim{{stroke:#ff6fa3}} .mark{{stroke:{CHALK}}}
.p0{{fill:#15191f}} .p1{{fill:{CHALK}}} .p2{{fill:#7a6a28}} .p3{{fill:#1f6b57}}
}}
"""
