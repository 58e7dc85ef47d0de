"""The table of a profile: a row for all equal steps, the largest share first, and the repeated blocks below.

Steps are equal if they are of the same kind, formats, implementation, dims and parameters
(`inlay.graph.step_groups`). The times of a row are sums over its steps.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from inlay.graph.profiling.timings import StepTiming
from inlay.graph.step_groups import find_equal_steps, group_steps
from inlay.graph.text_layout import COLUMNS, count_text, format_table, merge_names, ms_text, share_text, shorten_middle

_HEAD = ("share", "ms", "predicted", "count", "step", "formats", "kernel")
_NUMBERS = (0, 1, 2, 3)  # columns of the head that are right-aligned
_WIDTHS = {4: 24, 5: 16, 6: 10}  # widths to which the columns of texts shrink alike
_ISAS = ("avx", "sse")
"""Beginnings of instruction sets, with which names of oneDNN's implementations end: one for a whole plan."""
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
    def cells(self) -> tuple[str, ...]:
        """Texts of the row, a text for each column of the table."""
        predictions = [one.predicted for one in self.timings if one.predicted is not None]
        predicted = f"{math.fsum(predictions):.3f}" if predictions else "-"
        numbers = share_text(self.share), f"{self.ms:.3f}", predicted, str(len(self.timings))
        first, labels = self.timings[0], [one.label for one in self.timings]
        return *numbers, merge_names(labels), first.formats, shorten_impl(first.impl)


def make_rows(timings: Sequence[StepTiming], keys: Sequence[Hashable]) -> tuple[ProfileRow, ...]:
    """Return equal steps together, the largest sum of times first.

    Args:
        timings: the steps of a program in order.
        keys: a key for each step, equal for equal steps.
    """
    rows = [ProfileRow(tuple(timings[i] for i in indices)) for indices in find_equal_steps(keys)]
    return tuple(sorted(rows, key=lambda row: -row.ms))


def draw_table(rows: Sequence[ProfileRow], top: int | None) -> str:
    """Return the table with the first `top` rows, and a line on the others; all rows if `top` is None."""
    shown, rest = (rows, ()) if top is None else (rows[:top], rows[top:])
    table = format_table([_HEAD, *(row.cells for row in shown)], right=_NUMBERS, shrink=_WIDTHS)
    if not rest:
        return table
    steps = count_text(sum(len(row.timings) for row in rest), "more step")
    ms, share = math.fsum(row.ms for row in rest), math.fsum(row.share for row in rest)
    return f"{table}\n{steps}: {ms_text(ms)}, {share_text(share)}"


def describe_blocks(timings: Sequence[StepTiming], keys: Sequence[Hashable]) -> Iterator[str]:
    """Yield a line for each block of several steps that follows itself, those that take the most time first."""
    blocks = [group for group in group_steps(keys) if group.is_block]
    times, shares = [one.ms for one in timings], [one.share for one in timings]
    blocks.sort(key=lambda group: -math.fsum(group.sum_times(times)))
    for group in blocks[:_MOST_BLOCKS]:
        ms, share = math.fsum(group.sum_times(times)), math.fsum(group.sum_times(shares))
        figures = f"{group.count} x {group.length} equal steps take {ms_text(ms)}, {share_text(share)}: "
        first, last = (timings[i].label for i in (group.first, group.first + group.length - 1))
        columns = (COLUMNS - len(figures) - len(" to ")) // 2
        yield f"{figures}{shorten_middle(first, columns)} to {shorten_middle(last, columns)}"


def shorten_impl(impl: str) -> str:
    """Return the name of an implementation without its instruction set.

    >>> shorten_impl("brgconv:avx512_core"), shorten_impl("winograd:4x4_3x3"), shorten_impl("numpy")
    ('brgconv', 'winograd:4x4_3x3', 'numpy')
    """
    name, _, isa = impl.rpartition(":")
    return name if name and isa.startswith(_ISAS) else impl
