"""Comparison of two descriptors element by element: the first coordinate whose offsets differ."""

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor.memory_desc import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims

_CHUNK = 1 << 16
"""Number of coordinates whose offsets are compared together."""


def first_difference(desc: MemoryDesc, other: MemoryDesc) -> Dims | None:
    """Return the first coordinate, in row-major order, with different offsets in two descriptors; None if all agree.

    Coordinates of data are compared, not those of padding. Offsets count elements and include `offset0`.

    Raises:
        InvalidArguments: the dims differ, or a descriptor has no layout.
        Unimplemented: a dim or stride is RUNTIME.

    >>> first_difference(MemoryDesc((2, 3), "f32", "ab"), MemoryDesc((2, 3), "f32", "ba"))
    (0, 1)
    """
    if desc.dims != other.dims:
        raise InvalidArguments(f"dims {desc.dims} and {other.dims} differ: compare layouts of equal dims")
    if desc.equivalent(other):
        return None
    is_sum = desc.swizzle is None and other.swizzle is None and 0 not in desc.dims
    for points in _points_on_axes(desc.dims) if is_sum else _all_points(desc.dims):
        wrong = np.flatnonzero(desc.offset(points) != other.offset(points))
        if wrong.size:
            return tuple(int(x) for x in points[wrong[0]])
    return None


def _points_on_axes(dims: Dims) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the coordinates with one entry other than 0, those of the last axis first.

    An offset without a swizzle is a sum over the axes, so two layouts that agree here agree everywhere, and the first
    of these coordinates at which they differ is the first of all in row-major order.
    """
    for axis in reversed(range(len(dims))):
        for start in range(0, dims[axis], _CHUNK):
            numbers = np.arange(start, min(start + _CHUNK, dims[axis]))
            points = np.zeros((len(numbers), len(dims)), np.int64)
            points[:, axis] = numbers
            yield points


def _all_points(dims: Dims) -> Iterator[npt.NDArray[np.int64]]:
    """Yield all coordinates in row-major order."""
    count = prod(dims)
    for start in range(0, count, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, count))
        yield np.stack(np.unravel_index(numbers, dims), axis=-1)
