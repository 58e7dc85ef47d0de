"""Sizes of the boxes into which a conversion cuts a tensor.

A box is read from one layout and written in another. Its bytes are runs on both sides, and long runs are fast:

    row-major (4096, 4096) f32 to row-major bf16     boxes [512, 4096]: one run of 8 MiB, one of 4 MiB
    row-major (65536, 65536) f32 to column-major     boxes [8192, 4096]: runs of 16 KiB and 32 KiB under 256 MB

`cut_extents` starts with the smallest box that exists in both layouts. It doubles the axis that makes the shorter run
longer, until both runs and the box have the wanted sizes, or the memory limit is reached.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import lcm, prod

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Dims
from inlay.layout.axis import split_range
from inlay.storage.box import Box
from inlay.storage.box_bytes import BoxBytes, can_cut, locate_box

BOX_NBYTES = 8 << 20
"""Wanted size of a box, source and result together, in bytes: large beside the cost of a task, small beside memory."""
RUN_NBYTES = 64 << 10
"""Wanted size of a run, in bytes: a system call costs little beside moving it."""


@lru_cache(4096)
def cut_extents(src: MemoryDesc, dst: MemoryDesc, limit: int, units: Dims | None = None) -> Dims:
    """Return the extents of the boxes of a tensor, for `iterate_boxes`.

    `limit` is the maximum size of a box in bytes, source and result together. Each extent is a multiple of the entry of
    `units`, such as a chunk of an array or a group that shares a scale, or the whole axis.

    Post-conditions: each box exists in both layouts (`locate_box`), boxes of `dst` do not overlap, and none is larger
    than `limit`.

    Raises:
        InvalidArguments: the smallest box is larger than `limit`.

    >>> cut_extents(MemoryDesc((4096, 4096), "f32", "ab"), MemoryDesc((4096, 4096), "bf16", "ab"), 1 << 30)
    (512, 4096)
    >>> cut_extents(MemoryDesc((1 << 16, 1 << 16), "f32", "ab"), MemoryDesc((1 << 16, 1 << 16), "f32", "ba"), 256 << 20)
    (4096, 8192)
    """
    candidates = candidate_extents(src, dst, units or (1,) * src.ndims)
    extents = [options[0] for options in candidates]
    if _nbytes(src, dst, extents) > limit:
        raise InvalidArguments(
            f"a box {tuple(extents)} of a tensor {src.dims} takes {_nbytes(src, dst, extents)} bytes in {src} and "
            f"{dst}, and {limit} are allowed: allow more (--memory)"
        )
    while (axis := _axis_to_grow(src, dst, extents, candidates, limit)) is not None:
        extents[axis] = _next(candidates[axis], extents[axis])
    return tuple(extents)


def candidate_extents(src: MemoryDesc, dst: MemoryDesc, units: Dims) -> list[list[int]]:
    """Return the possible extents of a box along each axis, ascending; the last one is the whole axis."""
    if not (can_cut(src) and can_cut(dst)):
        return [[max(n, 1)] for n in src.dims]
    sides = [desc.require_layout("a box") for desc in (src, dst)]
    candidates = []
    for i, n in enumerate(src.dims):
        axes = [(layout.axes[i], layout.dims[i], data_type.bits) for layout, data_type in sides]
        bases = {lcm(a, b, units[i]) for a in _weights(axes[0][0]) for b in _weights(axes[1][0])}
        sizes = {base << power for base in bases for power in range((n // base).bit_length())}
        fitting = {
            size
            for size in sizes
            if size < n
            and all(_exists(axis, bits, size) and _last_exists(axis, n, padded, size) for axis, padded, bits in axes)
        }
        candidates.append([*sorted(fitting), n])
    return candidates


def _weights(axis: Axis) -> list[int]:
    """Return the place values of the digits of an axis, ascending."""
    weights = [1]
    for digit in reversed(axis.inner):
        weights.append(weights[-1] * digit.extent)
    return weights


def _exists(axis: Axis, bits: int, size: int) -> bool:
    """Return True if each range of `size` coordinates from a multiple of `size` has independent digits in whole bytes.

    It is a number of values of one digit, with all lower digits, and does not reach beyond the values of that digit.
    """
    digits = axis.digits(size)
    weights = _weights(axis)[::-1]
    for i, (digit, weight) in enumerate(zip(digits, weights, strict=True)):
        if size % weight == 0 and (i == 0 or weight * digit.extent % size == 0):
            steps = [size // weight * digit.stride, *(above.stride for above in digits[:i])]
            return not any(step * bits % 8 for step in steps)
    return False


def _last_exists(axis: Axis, n: int, padded: int, size: int) -> bool:
    """Return True if the last range of `size` of `n` coordinates has independent digits together with the padding."""
    return len(list(split_range(axis, (n - 1) // size * size, padded))) == 1


def _axis_to_grow(
    src: MemoryDesc, dst: MemoryDesc, extents: list[int], candidates: list[list[int]], limit: int
) -> int | None:
    """Return the axis along which the box should be larger; None if it is large enough or no axis can grow.

    An axis that makes the runs longer goes first: of the side with the shorter run, and from the innermost on.
    """
    box = Box((0,) * len(extents), tuple(extents))
    found = [(desc, locate_box(desc, box)) for desc in (src, dst)]
    is_large = all(_has_long_runs(desc, place) for desc, place in found)
    if is_large and _nbytes(src, dst, extents) >= BOX_NBYTES:
        return None
    sides = sorted(found, key=lambda side: 0 if side[1] is None else side[1].run_nbytes)
    for must_lengthen in (True, False):
        for desc, place in sides:
            for axis in _axes_from_innermost(desc):
                if extents[axis] == candidates[axis][-1]:
                    continue
                larger = list(extents)
                larger[axis] = _next(candidates[axis], extents[axis])
                if _nbytes(src, dst, larger) > limit:
                    continue
                if not must_lengthen or _lengthens_runs(desc, place, larger):
                    return axis
    return None


def _lengthens_runs(desc: MemoryDesc, place: BoxBytes | None, larger: list[int]) -> bool:
    """Return True if a larger box has longer runs than the one at `place`."""
    grown = locate_box(desc, Box((0,) * len(larger), tuple(larger)))
    return grown is not None and (place is None or grown.run_nbytes > place.run_nbytes)


def _has_long_runs(desc: MemoryDesc, place: BoxBytes | None) -> bool:
    """Return True if the runs of a box are long enough, or the box is one run."""
    return place is not None and (place.run_nbytes >= RUN_NBYTES or place.count == 1)


def _axes_from_innermost(desc: MemoryDesc) -> list[int]:
    """Return the axes in the order of the least strides of their digits."""
    layout, _ = desc.require_layout("a box")
    return sorted(range(layout.ndims), key=lambda i: min(d.stride for d in layout.axes[i].digits(layout.dims[i])))


def _nbytes(src: MemoryDesc, dst: MemoryDesc, extents: Sequence[int]) -> int:
    """Return the size of a box of the source and of the result, with padding to whole blocks, in bytes."""
    return sum(padded_nbytes(desc, extents) for desc in (src, dst))


def padded_nbytes(desc: MemoryDesc, extents: Sequence[int]) -> int:
    """Return the size of a box at the end of each axis, in bytes."""
    layout, data_type = desc.require_layout("a box")
    sizes = (
        min(padded, extent + padded - n) for n, padded, extent in zip(desc.dims, layout.dims, extents, strict=True)
    )
    return -(-prod(sizes) * data_type.bits // 8)


def _next(options: list[int], extent: int) -> int:
    return next(option for option in options if option > extent)
