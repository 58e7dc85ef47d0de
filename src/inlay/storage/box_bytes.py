"""The bytes of a box: where the elements of a box of a tensor lie in memory, as runs of equal length.

A box of a tensor in a file is read run by run into a buffer without gaps. The buffer has a descriptor of its own, with
the digits of the box in the same order:

    tensor ab (6, 8) f32, box [2:4, 0:4]     runs of 16 bytes at 64 and 96      buffer: ab (2, 4)
    tensor aB4b (6, 8) f32, box [2:4, 4:8]   runs of 16 bytes at 80 and 112     buffer: aB4b (2, 4)

A box exists only where its digits vary independently of one another (`inlay.layout.axis.split_range`): along an axis in
blocks of 8, from a multiple of 8 to another or to the end, or within one block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import NO_EXTRAS
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Layout
from inlay.layout.axis import CoordinateRange, RangeDigit, split_range
from inlay.storage.box import Box, whole_box


@dataclass(frozen=True, slots=True)
class BoxBytes:
    """The runs of bytes that hold the elements of a box."""

    desc: MemoryDesc
    """Descriptor of the runs, one after the other, in a buffer of `nbytes` bytes."""
    begin: int
    """Offset of the first run from the start of the tensor, in bytes."""
    loops: tuple[tuple[int, int], ...]
    """Number of steps and bytes per step of each loop over runs, outermost first."""
    run_nbytes: int
    """Size of a run, in bytes."""

    @property
    def count(self) -> int:
        """Number of runs."""
        return prod(count for count, _ in self.loops)

    @property
    def nbytes(self) -> int:
        """Size of all runs, in bytes."""
        return self.count * self.run_nbytes

    def offsets(self) -> Iterator[int]:
        """Yield the offset of each run from the start of the tensor, in bytes, in the order of the buffer."""
        offsets = np.array([self.begin], np.int64)
        for count, step in self.loops:
            offsets = (offsets[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
        yield from offsets.tolist()


@lru_cache(1024)
def locate_box(desc: MemoryDesc, box: Box) -> BoxBytes | None:
    """Return the bytes of a box; None if its digits depend on one another, or a run does not have whole bytes.

    A box at the end of an axis includes the padding there. The box of all elements exists for every descriptor: if its
    elements overlap or the descriptor has extras, it is one run from the start of the tensor, in the same layout.

    >>> from inlay.storage.box import Box
    >>> found = locate_box(MemoryDesc((6, 8), "f32", "aB4b"), Box((2, 4), (4, 8)))
    >>> found.run_nbytes, list(found.offsets()), found.desc
    (16, [80, 112], MemoryDesc((2, 4), 'f32', 'aB4b'))
    """
    layout, data_type = desc.require_layout("a box of a tensor")
    ranges = _axis_ranges(desc, layout, box)
    found = None
    if ranges is not None and desc.extras == NO_EXTRAS and box.size:
        found = _locate_ranges(desc, data_type, ranges, box)
    return _one_run(desc) if found is None and box == whole_box(desc.dims) else found


def require_place(desc: MemoryDesc, box: Box) -> BoxBytes:
    """Return the bytes of a box that `cut_extents` made.

    Raises:
        InvalidArguments: the box does not exist in this layout (`locate_box`).
    """
    place = locate_box(desc, box)
    if place is None:
        raise InvalidArguments(f"the box {box} is no product of digits of {desc}: choose boxes with cut_extents")
    return place


def can_cut(desc: MemoryDesc) -> bool:
    """Return True if boxes of a part of the tensor exist: elements do not overlap, strides are positive, no extras."""
    layout, _ = desc.require_layout("a box of a tensor")
    ranges = _axis_ranges(desc, layout, whole_box(desc.dims)) if 0 not in desc.dims else None
    if ranges is None or desc.extras != NO_EXTRAS:
        return False
    return not _overlap(sorted((digit for part in ranges for digit in part.digits), key=lambda digit: digit.stride))


def _axis_ranges(desc: MemoryDesc, layout: Layout, box: Box) -> list[CoordinateRange] | None:
    """Return the digits of the box along each axis, with the padding at its end; None if they are not independent."""
    ranges = []
    for axis, begin, end, dim, padded in zip(layout.axes, box.begin, box.end, desc.dims, layout.dims, strict=True):
        parts = list(split_range(axis, begin, padded if end == dim else end))
        if len(parts) != 1:
            return None
        ranges.append(parts[0])
    return ranges


def _locate_ranges(desc: MemoryDesc, data_type: DataType, ranges: list[CoordinateRange], box: Box) -> BoxBytes | None:
    """Return the bytes of a box whose digits are `ranges`; None if elements overlap or a run has no whole bytes."""
    digits = sorted((digit for part in ranges for digit in part.digits), key=lambda digit: digit.stride)
    if _overlap(digits):
        return None
    run, loops = _merge_runs(digits)
    begin = desc.offset0 + sum(part.offset for part in ranges)
    bits = [n * data_type.bits for n in (begin, run, *(step for _, step in loops))]
    if any(n % 8 for n in bits):
        return None
    strides = dict(zip(map(id, digits), accumulate((digit.extent for digit in digits), mul, initial=1), strict=False))
    axes = tuple(_dense_axis(part.digits, strides) for part in ranges)
    padded = tuple(part.count for part in ranges)
    dense = MemoryDesc.from_layout(Layout(padded, axes), data_type, dims=box.dims)
    return BoxBytes(dense, bits[0] // 8, tuple((n, step * data_type.bits // 8) for n, step in loops), bits[1] // 8)


def _overlap(digits: list[RangeDigit]) -> bool:
    """Return True if elements may overlap, given digits by ascending stride: one steps over less than all below."""
    reach = 1
    for digit in digits:
        if digit.extent > 1:
            if digit.stride < reach:
                return True
            reach = digit.extent * digit.stride
    return False


def _merge_runs(digits: list[RangeDigit]) -> tuple[int, list[tuple[int, int]]]:
    """Return the elements of a run, and the count and step (in elements) of each loop over runs, outermost first."""
    run, loops = 1, list[tuple[int, int]]()
    for digit in digits:
        if digit.extent == 1:
            continue
        if not loops and digit.stride == run:
            run *= digit.extent
        elif loops and digit.stride == loops[0][0] * loops[0][1]:
            loops[0] = (loops[0][0] * digit.extent, loops[0][1])
        else:
            loops.insert(0, (digit.extent, digit.stride))
    return run, loops


def _dense_axis(digits: tuple[RangeDigit, ...], strides: dict[int, int]) -> Axis:
    """Return the axis of these digits with the strides that they have in a buffer without gaps."""
    leading, *inner = (Digit(digit.extent, strides[id(digit)]) for digit in digits) if digits else (Digit(1, 1),)
    return Axis(leading.stride, tuple(inner))


def _one_run(desc: MemoryDesc) -> BoxBytes:
    """Return all bytes of a tensor as one run, in the layout that it has."""
    layout, data_type = desc.require_layout("a tensor")
    end = -(-(desc.offset0 + layout.span[1]) * data_type.bits // 8)
    return BoxBytes(desc, 0, (), max(desc.size, end))
