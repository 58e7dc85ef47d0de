"""Charts of measured ratios, drawn from a table of a page: the table is the record, the chart shows the same figures.

A row of the chart is a row of the table, and each column of ratios has a mark on a logarithmic scale. Cells are numbers
with or without an interval, `1.05 [1.04-1.09]`; others have no mark.

>>> parse_ratio("1.05 [1.04-1.09]")
Ratio(median=1.05, low=1.04, high=1.09)
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_RATIO = re.compile(r"\**(?P<median>\d+(?:\.\d+)?)\**(?: \[(?P<low>[\d.]+)-(?P<high>[\d.]+)\])?\**")
_CELL = re.compile(r"(?<!\\)\|")
_LEFT, _WIDTH, _ROW, _TOP, _BOTTOM = 230, 480, 22, 58, 30
_MARKS = ("M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "M0-6L6 0L0 6L-6 0z", "M-5-5h10v10h-10z", "M0-6L6 5h-12z")
_TICKS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A measured ratio with its interval."""

    median: float
    """The figure."""
    low: float
    """Lower end of the interval; the figure without one."""
    high: float
    """Upper end of the interval; the figure without one."""


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """A table of ratios."""

    series: tuple[str, ...]
    """Name of each column."""
    rows: tuple[tuple[str, tuple[Ratio | None, ...]], ...]
    """Label of each row, and its ratios in the order of the columns; None for a cell without one."""


def parse_ratio(cell: str) -> Ratio | None:
    """Return the ratio of a cell; None if it has another content."""
    match = _RATIO.fullmatch(cell.strip())
    if not match:
        return None
    median = float(match["median"])
    return Ratio(median, float(match["low"] or median), float(match["high"] or median))


def read_table(text: str, heading: str, columns: Sequence[int], names: Sequence[str]) -> MeasuredTable:
    """Return columns of the first table below a heading of a page that has enough of them.

    `columns` are numbers of columns, 1 for the first; `names` are their names in the chart.

    Raises:
        ValueError: the page has no such heading, or no such table below it.
    """
    _, found, rest = text.partition(f"\n{heading}\n")
    if not found:
        raise ValueError(f"the page has no heading {heading!r}")
    for lines in re.findall(r"(?:^\|.*\n?)+", rest, re.MULTILINE):
        rows = [[cell.strip() for cell in _CELL.split(line.strip()[1:-1])] for line in lines.strip().split("\n")]
        parsed = [
            (row[0], tuple(parse_ratio(row[i - 1]) for i in columns)) for row in rows[2:] if len(row) >= max(columns)
        ]
        measured = [(label, ratios) for label, ratios in parsed if any(ratios)]
        if measured:
            return MeasuredTable(tuple(names), tuple(measured))
    raise ValueError(f"no table below {heading!r} has ratios in columns {', '.join(map(str, columns))}")


def draw_chart(table: MeasuredTable, title: str) -> str:
    """Return the chart as one `svg` element; its colors are classes of the style sheet of the site."""
    scale = _scale_of(table)
    height = _TOP + _ROW * len(table.rows) + _BOTTOM
    body = [*_legend(table.series), *_ticks(scale, height)]
    for i, (label, ratios) in enumerate(table.rows):
        body += _row(label, ratios, table.series, scale, _TOP + _ROW * i + _ROW // 2)
    size = f'viewBox="0 0 {_LEFT + _WIDTH + 20} {height}"'
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="inlay-chart" role="img" aria-label="{escape(title)}" {size}>'
    )
    return "\n".join([start, f"<title>{escape(title)}</title>", *body, "</svg>"])


@dataclass(frozen=True, slots=True)
class Scale:
    """A logarithmic scale."""

    low: float
    """Ratio at the left edge."""
    high: float
    """Ratio at the right edge."""

    def x(self, ratio: float) -> float:
        """Return the position of a ratio; one beyond an edge is at the edge."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return _LEFT + _WIDTH * min(1.0, max(0.0, share))


def _scale_of(table: MeasuredTable) -> Scale:
    """Return the scale between ticks that contains all intervals and 1."""
    ratios = [ratio for _, row in table.rows for ratio in row if ratio]
    low, high = min(1.0, *(one.low for one in ratios)), max(1.0, *(one.high for one in ratios))
    below = [tick for tick in _TICKS if tick <= low] or [low]
    above = [tick for tick in _TICKS if tick >= high] or [high]
    return Scale(below[-1], max(above[0], 1.5))


def _legend(series: Sequence[str]) -> Iterable[str]:
    for i, name in enumerate(series):
        x = _LEFT + 150 * i
        yield f'<path class="mark s{i}" d="{_MARKS[i]}" transform="translate({x + 6},14)"/>'
        yield f'<text x="{x + 18}" y="18">{escape(name)}</text>'


def _ticks(scale: Scale, height: int) -> Iterable[str]:
    """Return the grid; the line of equal speed is bold."""
    for tick in (tick for tick in _TICKS if scale.low <= tick <= scale.high):
        kind, x = ("equal" if tick == 1 else "grid"), scale.x(tick)
        yield f'<path class="{kind}" d="M{x:.1f} {_TOP - 14}V{height - _BOTTOM + 4}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{_TOP - 20}">{tick:g}</text>'


def _row(label: str, ratios: Sequence[Ratio | None], series: Sequence[str], scale: Scale, y: int) -> Iterable[str]:
    """Return label, intervals and marks of a row; each mark has its figures as a tooltip."""
    plain = label.replace("**", "").replace("`", "")
    yield f'<text class="label{" mean" if plain != label else ""}" x="{_LEFT - 12}" y="{y + 4}">{escape(plain)}</text>'
    yield f'<path class="grid" d="M{_LEFT} {y}h{_WIDTH}"/>'
    for i, (name, ratio) in enumerate(zip(series, ratios, strict=True)):
        if ratio:
            figures = f"{ratio.median:g}" + (f" [{ratio.low:g}-{ratio.high:g}]" if ratio.low < ratio.high else "")
            yield f"<g><title>{escape(plain)}, {escape(name)}: {figures}</title>"
            if ratio.low < ratio.high:
                yield f'<path class="interval" d="M{scale.x(ratio.low):.1f} {y}H{scale.x(ratio.high):.1f}"/>'
            place = f"translate({scale.x(ratio.median):.1f},{y})"
            yield f'<path class="mark s{i}" d="{_MARKS[i]}" transform="{place}"/></g>'
