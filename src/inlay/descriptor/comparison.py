"""Comparison of two descriptors element by element: the first coordinate whose offsets differ."""

from math import prod

import numpy as np

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
    count = prod(desc.dims)
    for start in range(0, count, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, count))
        points = np.stack(np.unravel_index(numbers, desc.dims), axis=-1)
        wrong = np.flatnonzero(desc.offset(points) != other.offset(points))
        if wrong.size:
            return tuple(int(x) for x in points[wrong[0]])
    return None
