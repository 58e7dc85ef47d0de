"""The table of a profile: a row for all equal steps, the largest share first, and the repeated blocks below.

Steps are equal if they are of the same kind, formats, implementation, dims and parameters
(`inlay.graph.step_groups`). The times of a row are sums over its steps.

No line is longer than `WIDTH` characters: the longest texts of the columns are cut in the middle.
"""

import math
import textwrap
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from inlay.errors import printable
from inlay.graph.profiling.timings import StepTiming
from inlay.graph.step_groups import find_equal_steps, group_steps

WIDTH = 80
"""Most characters of a line."""
_HEAD = ("share", "ms", "predicted", "count", "step", "formats", "kernel")
_NUMBERS = 4  # columns that are right-aligned; the texts follow
_LEAST = 8  # characters that are left of a text, unless it is shorter
_GAP = "  "
_ELLIPSIS = "..."
_MOST_BLOCKS = 3  # repeated blocks that are named


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Equal steps of a profile."""

    timings: tuple[StepTiming, ...]
    """The steps, in the order in which they run."""

    @property
    def ms(self) -> float:
        """Sum of the measured times in milliseconds."""
        return math.fsum(one.ms for one in self.timings)

    @property
    def share(self) -> float:
        """Share of the time of all steps, from 0 to 1."""
        return math.fsum(one.share for one in self.timings)

    @property
    def predicted(self) -> float | None:
        """Sum of the predicted times in milliseconds; None if no step has one."""
        known = [one.predicted for one in self.timings if one.predicted is not None]
        return math.fsum(known) if known else None

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of the row, a text for each column of the table."""
        first = self.timings[0]
        predicted = "-" if self.predicted is None else _decimal(self.predicted)
        numbers = percent(self.share), _decimal(self.ms), predicted, str(len(self.timings))
        # The name of the implementation ends with its instruction set, which is one for all.
        return *numbers, printable(first.name), first.formats, printable(first.impl.partition(":")[0])


def make_rows(timings: Sequence[StepTiming], keys: Sequence[Hashable]) -> tuple[ProfileRow, ...]:
    """Return equal steps together, the largest sum of times first.

    Args:
        timings: the steps of a program in order.
        keys: a key for each step, equal for equal steps.
    """
    rows = [ProfileRow(tuple(timings[i] for i in indices)) for indices in find_equal_steps(keys)]
    return tuple(sorted(rows, key=lambda row: -row.ms))


def draw_table(rows: Sequence[ProfileRow], top: int | None) -> Iterator[str]:
    """Yield the lines of the table with the first `top` rows, and a line on the others; all rows if `top` is None."""
    shown, rest = (rows, ()) if top is None else (rows[:top], rows[top:])
    yield from _align([_HEAD, *(row.cells for row in shown)])
    if rest:
        steps = sum(len(row.timings) for row in rest)
        ms, share = math.fsum(row.ms for row in rest), math.fsum(row.share for row in rest)
        yield f"{count_of(steps, 'more step')}: {_decimal(ms)} ms, {percent(share)}"


def describe_blocks(timings: Sequence[StepTiming], keys: Sequence[Hashable]) -> Iterator[str]:
    """Yield lines on the blocks of several steps that follow themselves, those that take the most time first."""
    blocks = [group for group in group_steps(keys) if group.is_block]
    times, shares = [one.ms for one in timings], [one.share for one in timings]
    blocks.sort(key=lambda group: -math.fsum(group.sum_times(times)))
    for group in blocks[:_MOST_BLOCKS]:
        first, last = (printable(timings[i].name) for i in (group.first, group.first + group.length - 1))
        ms, share = math.fsum(group.sum_times(times)), math.fsum(group.sum_times(shares))
        figures = f"{group.count} x {group.length} equal steps take {_decimal(ms)} ms, {percent(share)}: "
        left = (WIDTH - len(figures) - len(" to ")) // 2
        yield f"{figures}{cut_text(first, left)} to {cut_text(last, left)}"


def wrap_line(text: str) -> list[str]:
    """Return a text as lines that are not too long; the second and later ones are indented.

    >>> wrap_line("a short line")
    ['a short line']
    """
    return textwrap.wrap(printable(text), WIDTH, subsequent_indent=_GAP, break_on_hyphens=False)


def percent(share: float) -> str:
    """Return a share as text.

    >>> percent(0.0625)
    '6.2 %'
    """
    return f"{100 * share:.1f} %"


def count_of(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural if it is not 1."""
    return f"{count} {noun}{'s' * (count != 1)}"


def cut_text(text: str, length: int) -> str:
    """Return a text of at most `length` characters, with an ellipsis for its middle where it is longer.

    >>> cut_text("layers.0.attention + add", 14)
    'layers... + add'
    """
    if len(text) <= length:
        return text
    kept = length - len(_ELLIPSIS)
    return f"{text[: kept - kept // 2]}{_ELLIPSIS}{text[len(text) - kept // 2 :]}"


def _align(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as lines with aligned columns, with texts cut so that no line is too long."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = range(_NUMBERS, len(widths))
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - WIDTH
    while excess > 0 and max(widths[i] for i in texts) > _LEAST:
        widths[max(texts, key=widths.__getitem__)] -= 1
        excess -= 1
    for row in rows:
        cells = [
            cell.rjust(width) if i < _NUMBERS else cut_text(cell, width).ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield _GAP.join(cells).rstrip()


def _decimal(ms: float) -> str:
    """Return milliseconds with three digits after the point."""
    return f"{ms:.3f}"
