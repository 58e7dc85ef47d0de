"""The inverse of `offset`: the coordinate of the element at an offset, and the test whether a coordinate is padding.

An offset is a sum of digit values times strides. With the digits sorted by falling stride, each digit value is the
quotient of what the larger digits leave, provided that each stride exceeds the reach of all smaller ones:

    (2, 17, 5, 4) nChw8c    strides 480, 160, 32, 8, 1    offset 952 = 1*480 + 2*160 + 4*32 + 3*8 + 0
                                                          coordinate (1, 2*8 + 0, 4, 3)

A digit of negative stride counts down: it is replaced by its complement, whose stride is positive, and the lowest
offset becomes the origin. Where strides interleave, as in (2, 3) with strides (3, 2), several quotients are possible.
Then a search tries all that the smaller digits can complete. A swizzle is its own inverse, and is applied first.

>>> from inlay.descriptor import MemoryDesc
>>> desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
>>> desc.coordinate(952), desc.coordinate(953), desc.is_padding((1, 17, 4, 3))
((1, 16, 4, 3), (1, 17, 4, 3), True)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_integer
from inlay.descriptor.fields import DescriptorFields, addressed_layout, swizzle
from inlay.descriptor.validation import LARGEST
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import Dims, Layout
from inlay.layout.address import as_points


@dataclass(frozen=True, slots=True)
class PlacedDigit:
    """One digit of one axis, as a term of the offset with a positive stride."""

    axis: int
    """Number of the axis."""
    weight: int
    """Distance from one value of the digit to the next, in coordinates."""
    extent: int
    """Number of values."""
    stride: int
    """Distance from one value to the next, in elements; positive."""
    is_reversed: bool
    """True if the stride of the layout is negative: the value of the digit is `extent - 1` minus the value here."""
    reach: int
    """Greatest sum that all digits of smaller stride contribute, in elements."""


@lru_cache(maxsize=256)
def _placed_digits(layout: Layout) -> tuple[tuple[PlacedDigit, ...], int]:
    """Return the digits of extent 2 or more by falling stride, and the offset at which all their values are 0."""
    terms, start = [], 0
    for i, digits in enumerate(layout.digits):
        weight = 1
        for digit in reversed(digits):
            if digit.extent > 1:
                terms.append((abs(digit.stride), i, weight, digit.extent, digit.stride < 0))
                start += min(digit.stride, 0) * (digit.extent - 1)
            weight *= digit.extent
    reach, placed = 0, []
    for stride, i, weight, extent, is_reversed in sorted(terms):
        placed.append(PlacedDigit(i, weight, extent, stride, is_reversed, reach))
        reach += stride * (extent - 1)
    return tuple(reversed(placed)), start


@lru_cache(maxsize=256)
def _overlaps(layout: Layout) -> bool:
    """Return `layout.overlaps`, with a cache."""
    return layout.overlaps


def coordinate(desc: DescriptorFields, offset: object) -> Any:
    """Return the coordinate of the element at `offset`, which counts elements from the start of the buffer.

    One offset gives a tuple of integers, or None if no element has the offset: it is in a gap, or outside the tensor.
    An array of offsets gives an int64 array with one more axis, of length ndims; the entries of an offset without an
    element are -1. A coordinate of padding has an entry that is not below its dim; `is_padding` tests for it.

    Post-conditions:
        desc.coordinate(desc.offset(x)) == x for every coordinate x below the padded dims.
        desc.offset(desc.coordinate(o)) == o for every offset o of an element or of padding.

    Raises:
        InvalidArguments: there is no layout, elements overlap, so that an offset has several coordinates, or `offset`
            is neither an integer nor an array of integers.
        Unimplemented: a dim or stride is RUNTIME.

    >>> from inlay.descriptor import MemoryDesc
    >>> rows = MemoryDesc((3, 5), "f32", strides=(8, 1))
    >>> rows.coordinate(12), rows.coordinate(6), rows.coordinate([0, 6, 20]).tolist()
    ((1, 4), None, [[0, 0], [-1, -1], [2, 4]])
    """
    layout, _ = addressed_layout(desc, "coordinate")
    if layout.has_runtime:
        raise Unimplemented(f"coordinate needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    if _overlaps(layout):
        raise InvalidArguments(f"elements of {desc!r} overlap, so an offset has several coordinates, not one")
    if not isinstance(offset, (np.ndarray, list, tuple)):
        return _find_coordinate(layout, _unswizzle_offset(desc, as_integer("offset", offset) - desc.offset0))
    offsets = _as_offsets(offset)
    flat = _unswizzle_offsets(desc, offsets.reshape(-1).astype(np.int64) - desc.offset0)
    digits, start = _placed_digits(layout)
    if all(digit.reach < digit.stride for digit in digits) and layout.size:
        points = _divide(digits, flat - start, layout.dims)
    else:
        missing = (-1,) * layout.ndims
        rows = [_find_coordinate(layout, int(value)) or missing for value in flat]
        points = np.array(rows, np.int64).reshape(len(rows), layout.ndims)
    return points.reshape(*offsets.shape, layout.ndims)


def _as_offsets(offset: object) -> npt.NDArray[np.integer[Any]]:
    """Return `offset` as an array of integers."""
    try:
        offsets: npt.NDArray[Any] = np.asarray(offset)
    except (TypeError, ValueError, OverflowError):
        offsets = np.empty(1, object)
    if offsets.size == 0:
        return offsets.astype(np.int64)
    if offsets.dtype.kind not in "iu":
        raise InvalidArguments(f"offset is {shown(offset)}: give an integer, or an array of integers")
    return np.minimum(offsets, LARGEST) if offsets.dtype == np.uint64 else offsets


def _unswizzle_offset(desc: DescriptorFields, offset: int) -> int:
    """Return an offset from the origin before the swizzle of `desc`; itself if no element can have it."""
    permutation = swizzle(desc)
    return offset if permutation is None or not 0 <= offset <= LARGEST else int(permutation.apply(offset))


def _unswizzle_offsets(desc: DescriptorFields, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return offsets from the origin before the swizzle of `desc`; negative ones as they are."""
    permutation = swizzle(desc)
    if permutation is None:
        return offsets
    return np.where(offsets < 0, offsets, permutation.apply(np.maximum(offsets, 0)))


def _divide(digits: Sequence[PlacedDigit], rest: npt.NDArray[np.int64], dims: Dims) -> npt.NDArray[np.int64]:
    """Return the coordinate of each offset `rest` by one division for each digit; -1 where there is no element."""
    points = np.zeros((len(rest), len(dims)), np.int64)
    is_element = rest >= 0
    for digit in digits:
        value, rest = np.divmod(rest, digit.stride)
        is_element &= value < digit.extent
        points[:, digit.axis] += digit.weight * ((digit.extent - 1 - value) if digit.is_reversed else value)
    is_element &= (rest == 0) & (points < np.array(dims, np.int64)).all(axis=1)
    points[~is_element] = -1
    return points


def _find_coordinate(layout: Layout, offset: int) -> Dims | None:
    """Return the coordinate at an offset from the origin of `layout`, or None if there is no element."""
    digits, start = _placed_digits(layout)
    point = [0] * layout.ndims

    def search(i: int, rest: int) -> bool:
        """Return True if digits from `i` on sum up to `rest` at a coordinate below the dims."""
        if i == len(digits):
            return rest == 0 and all(x < dim for x, dim in zip(point, layout.dims, strict=True))
        digit = digits[i]
        highest = min(digit.extent - 1, rest // digit.stride)
        for value in range(max(0, -((digit.reach - rest) // digit.stride)), highest + 1):
            step = digit.weight * (digit.extent - 1 - value if digit.is_reversed else value)
            point[digit.axis] += step
            if search(i + 1, rest - value * digit.stride):
                return True
            point[digit.axis] -= step
        return False

    return tuple(point) if layout.size and search(0, offset - start) else None


def is_padding(desc: DescriptorFields, coordinates: npt.ArrayLike) -> Any:
    """Return True for each coordinate of padding: one with an entry that is not below its dim.

    `coordinates` has shape (..., ndims). One coordinate gives a bool; an array of coordinates gives an array of bools.
    A row of -1, which `coordinate` returns for a gap, is not padding.

    Raises:
        InvalidArguments: there is no layout, or `coordinates` have another last axis or are not integers.

    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((3,), "u8", "A4a")
    >>> desc.is_padding(desc.coordinate(np.arange(6)))
    array([False, False, False,  True, False, False])
    """
    addressed_layout(desc, "is_padding")
    points = as_points(coordinates, len(desc.dims))
    result = (points >= np.array(desc.dims)).any(axis=-1)
    return bool(result) if points.ndim == 1 else result
