"""A box: a range of coordinates along every axis of a tensor.

A conversion cuts each tensor into boxes. `cut_extents` chooses their size and `iterate_boxes` yields them:

    tensor (6, 5), extents (4, 3)      boxes  [0:4, 0:3] [0:4, 3:5] [4:6, 0:3] [4:6, 3:5]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class Box:
    """The coordinates x of a tensor with begin[i] <= x[i] < end[i] for every axis i."""

    begin: Dims
    """First coordinate along each axis."""
    end: Dims
    """End of the range along each axis, exclusive."""

    @property
    def dims(self) -> Dims:
        """Number of coordinates along each axis."""
        return tuple(end - begin for begin, end in zip(self.begin, self.end, strict=True))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.dims)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index of a NumPy array."""
        return tuple(map(slice, self.begin, self.end))

    def __str__(self) -> str:
        """Return the ranges, such as `[0:4, 3:5]`."""
        return f"[{', '.join(f'{b}:{e}' for b, e in zip(self.begin, self.end, strict=True))}]"


def whole_box(dims: Dims) -> Box:
    """Return the box of all elements of a tensor.

    >>> str(whole_box((6, 5)))
    '[0:6, 0:5]'
    """
    return Box((0,) * len(dims), dims)


def count_boxes(dims: Dims, extents: Dims) -> int:
    """Return the number of boxes of `iterate_boxes`."""
    return prod(-(-n // extent) for n, extent in zip(dims, extents, strict=True))


def iterate_boxes(dims: Dims, extents: Dims) -> Iterator[Box]:
    """Yield the boxes of `extents` elements along each axis that cover a tensor, the last axis fastest.

    Post-condition: each element is in exactly one box; only the last box along an axis may be smaller.

    >>> [str(box) for box in iterate_boxes((6, 5), (4, 3))]
    ['[0:4, 0:3]', '[0:4, 3:5]', '[4:6, 0:3]', '[4:6, 3:5]']
    """
    starts = [range(0, n, extent) for n, extent in zip(dims, extents, strict=True)]
    for begin in product(*starts):
        yield Box(begin, tuple(min(b + extent, n) for b, extent, n in zip(begin, extents, dims, strict=True)))


def box_at(dims: Dims, extents: Dims, number: int) -> Box:
    """Return the box of `iterate_boxes` with this number, counted from 0.

    >>> str(box_at((6, 5), (4, 3), 2))
    '[4:6, 0:3]'
    """
    begin: list[int] = []
    for n, extent in zip(reversed(dims), reversed(extents), strict=True):
        number, place = divmod(number, -(-n // extent))
        begin.append(place * extent)
    starts = tuple(reversed(begin))
    return Box(starts, tuple(min(b + extent, n) for b, extent, n in zip(starts, extents, dims, strict=True)))
