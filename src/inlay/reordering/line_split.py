"""Splitting of a reorder at the cache lines of its destination, for memory that does not begin at a line.

Streaming stores write whole cache lines. The data of a large NumPy array begins 16 bytes behind a line. If all rows of
the destination begin at the same distance from a line, the reorder is split along the rows into three: the whole lines,
which are streamed, and the two ends of the rows, which are written with ordinary stores.

    distance from a line   0     16                       64
    row of 70 f32          |     xxxxxxxxxxxxxxxxxxxxxxxxx|xxx ... xxx|xxxxxxxxxx
                                 first end                 whole lines  last end
"""

from dataclasses import dataclass, replace

from inlay.reordering.conversion import LINE
from inlay.reordering.problem import ProblemAxis, ReorderProblem

_FEWEST_LINES = 16  # least number of whole lines in a row. Measured: with 8, panels are faster


@dataclass(frozen=True, slots=True)
class SplitProblem:
    """The parts of a problem whose destination begins at some distance from a cache line."""

    lines: ReorderProblem
    """The whole lines of all rows; its first element begins a line."""
    ends: tuple[ReorderProblem, ...]
    """The elements before and behind them; none without such."""


def split_at_lines(problem: ReorderProblem, distance: int) -> SplitProblem | None:
    """Return the parts of a problem whose coordinate of all zeros is written `distance` bytes behind a cache line.

    None if the problem computes, or if its rows are not contiguous, are short, or begin at several distances.

    Post-condition: each element of the destination belongs to one part.
    """
    size = problem.dst_type.bits // 8
    row = find_row(problem)
    if row is None or distance % size:
        return None
    extent, per_line = problem.axes[row].stored, LINE // size
    first = -distance % LINE // size
    lines = (extent - first) // per_line
    if lines < _FEWEST_LINES:
        return None
    last = first + lines * per_line
    ends = [(start, end) for start, end in ((0, first), (last, extent)) if end > start]
    return SplitProblem(_part(problem, row, first, last), tuple(_part(problem, row, *end) for end in ends))


def find_row(problem: ReorderProblem) -> int | None:
    """Return the number of the axis along which all rows of the destination can be split alike; None without one."""
    if problem.computes or problem.dst_type.is_sub_byte or problem.src_type.is_sub_byte or any(problem.swizzles):
        return None
    rows = [i for i, axis in enumerate(problem.axes) if axis.stored > 1 and axis.dst.stride == 1]
    if len(rows) != 1 or not _has_one_stride(problem.axes[rows[0]]):
        return None
    others = [axis for i, axis in enumerate(problem.axes) if i != rows[0]]
    strides = [digit.stride for axis in others for digit in axis.dst.digits(axis.stored) if digit.extent > 1]
    return None if any(stride * problem.dst_type.bits // 8 % LINE for stride in strides) else rows[0]


def _has_one_stride(axis: ProblemAxis) -> bool:
    """Return whether an axis has no padding, and one stride on each side."""
    return axis.data == axis.stored and not axis.src.inner and not axis.dst.inner


def _part(problem: ReorderProblem, row: int, start: int, end: int) -> ReorderProblem:
    """Return the problem of the elements from `start` to `end`, exclusive, of all rows along axis `row`."""
    axes, axis = list(problem.axes), problem.axes[row]
    axes[row] = replace(axis, data=end - start, stored=end - start)
    return replace(
        problem,
        axes=tuple(axes),
        src_offset=problem.src_offset + start * axis.src.stride,
        dst_offset=problem.dst_offset + start * axis.dst.stride,
    )
