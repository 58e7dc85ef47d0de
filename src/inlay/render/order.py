"""The digits of a layout as memory meets them, and the way back from an offset to a coordinate.

A layout answers "where does this coordinate lie". A picture of memory asks the opposite, for any stretch of a tensor of
any size, so this module sorts the digits by how far one step of them jumps and searches them outermost first, leaving
out every value whose reach misses the stretch. nChw8c of 2 x 17 x 5 x 4, outermost first:

    n      c // 8   h     w     c % 8
    480    160      32    8     1

The outer ones, all but the inner blocks, number the blocks: elements that agree in them are one block, and get one
color. A plain layout has no inner blocks; there the two innermost digits play their part, so that the colors change
where memory goes from one row or plane to the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

from inlay.errors import Unimplemented
from inlay.layout import Dims, Layout

COLORS = 7
"""How many colors blocks take in turn. A prime, so that the usual extents do not give two neighbors the same."""

_MOST_HITS = 20_000
"""Elements looked at for one stretch of memory: far more than it shows, unless a layout overlaps itself heavily."""


@dataclass(frozen=True, slots=True)
class Place:
    """One digit of one axis, as memory sees it."""

    axis: int
    """The axis it is a digit of."""
    extent: int
    """How many values it takes for the coordinates there are; 2 or more."""
    stride: int
    """Elements from one value to the next."""
    weight: int
    """Coordinates from one value to the next."""
    is_inner: bool
    """Whether it is an inner digit and not the leading one of its axis."""
    is_top: bool
    """Whether no digit of its axis above it takes more than one value."""

    def value(self, coordinate: Sequence[int]) -> int:
        """The value of this digit at `coordinate`."""
        x = coordinate[self.axis] // self.weight
        return x if self.is_top else x % self.extent


def places(layout: Layout) -> tuple[Place, ...]:
    """Every digit of `layout` that takes more than one value, outermost (largest stride, or 0) first.

    >>> from inlay.format_tag import FormatTag
    >>> [(p.axis, p.extent, p.stride) for p in places(FormatTag.parse("aBc8b").layout((2, 17, 5)))]
    [(0, 2, 120), (1, 3, 40), (2, 5, 8), (1, 8, 1)]
    """
    found = []
    for i, (axis, dim) in enumerate(zip(layout.axes, layout.dims, strict=True)):
        weight = 1
        for level, digit in reversed(list(enumerate(axis.digits(dim)))):
            left = -(-dim // weight)
            weight *= digit.extent
            if left > 1 and digit.extent > 1:
                is_top = left <= digit.extent
                extent = min(digit.extent, left)
                found.append(Place(i, extent, digit.stride, weight // digit.extent, level > 0, is_top))
    return tuple(sorted(found, key=lambda p: (p.stride != 0, -abs(p.stride), p.is_inner, p.axis)))


@dataclass(frozen=True, slots=True)
class Blocks:
    """How the elements of a layout fall into blocks, and which color each block has."""

    outer: tuple[Place, ...]
    """The digits that number the blocks, outermost first; strides of 0 number none."""
    inner: tuple[Place, ...]
    """The digits inside a block, outermost first."""
    steps: tuple[int, ...]
    """Per outer digit, by how many colors one step of it moves on."""

    def color(self, coordinate: Sequence[int]) -> int:
        """The color of the block that holds `coordinate`, 0 to COLORS - 1."""
        return sum(p.value(coordinate) * step for p, step in zip(self.outer, self.steps, strict=True)) % COLORS

    @property
    def size(self) -> int:
        """Elements of a full block."""
        return prod(p.extent for p in self.inner)

    @property
    def is_contiguous(self) -> bool:
        """Whether a full block fills one stretch of memory."""
        run = 1
        for place in reversed(self.inner):
            if place.stride != run:
                return False
            run *= place.extent
        return True


def blocks_of(layout: Layout) -> Blocks:
    """The blocks of `layout`: what agrees in all digits but the inner ones, or but the last two where there are none.

    Post-condition: two coordinates at one offset of a layout that does not overlap have one color, and blocks that
    follow one another in memory have different colors unless a stride is 0.
    """
    moving = [p for p in places(layout) if p.stride]
    outer = [p for p in moving if not p.is_inner]
    if not outer or len(outer) == len(moving):
        outer = moving[: max(1, len(moving) - 2)]
    inner = [p for p in moving if p not in outer]
    steps: list[int] = []
    step = 1
    for place in reversed(outer):
        steps.append(step)
        # A step of 0 would give all values of the next digit one color.
        step = step * place.extent % COLORS or 1
    return Blocks(tuple(outer), tuple(inner), tuple(reversed(steps)))


def shares_elements(layout: Layout) -> bool:
    """Whether several coordinates may lie at one offset; True where it would take too long to tell.

    >>> shares_elements(Layout.from_strides((4, 3), (1, 1))), shares_elements(Layout.from_strides((4, 3), (3, 1)))
    (True, False)
    """
    if layout.has_runtime:
        return any(axis.stride == 0 for axis in layout.axes)
    try:
        return not layout.is_non_overlapping and layout.overlaps
    except Unimplemented:
        return True


def elements_between(layout: Layout, low: int, high: int) -> dict[int, list[Dims]]:
    """The coordinates at each offset from `low` (inclusive) to `high` (exclusive), without offset0; in elements.

    An offset that no coordinate has is no key. Of the coordinates that a stride of 0 puts at one offset only the first
    is listed. The work is in proportion to the stretch, not to the tensor.

    >>> elements_between(Layout.from_strides((1000, 3), (4, 1)), 2, 5)
    {2: [(0, 2)], 4: [(1, 0)]}
    """
    if 0 in layout.dims:
        return {}
    moving = [p for p in places(layout) if p.stride]
    found: dict[int, list[Dims]] = {}
    for offset, coordinate in islice(_search(moving, layout.ndims, low, high), _MOST_HITS):
        if all(x < n for x, n in zip(coordinate, layout.dims, strict=True)):
            found.setdefault(offset, []).append(coordinate)
    return {offset: sorted(found[offset]) for offset in sorted(found)}


def _search(moving: Sequence[Place], ndims: int, low: int, high: int) -> Iterator[tuple[int, Dims]]:
    """Every combination of digit values whose offset is in low..high-1, with the coordinate it makes."""
    least, most = _reaches(moving)
    coordinate = [0] * ndims

    def visit(i: int, base: int) -> Iterator[tuple[int, Dims]]:
        if i == len(moving):
            if low <= base < high:
                yield base, tuple(coordinate)
            return
        place = moving[i]
        for value in _values_in_reach(place, low - base - most[i + 1], high - 1 - base - least[i + 1]):
            coordinate[place.axis] += value * place.weight
            yield from visit(i + 1, base + value * place.stride)
            coordinate[place.axis] -= value * place.weight

    return visit(0, 0)


def _values_in_reach(place: Place, low: int, high: int) -> range:
    """The values of `place` whose step, value times stride, is in low..high (inclusive)."""
    if place.stride < 0:
        low, high = -high, -low
    stride = abs(place.stride)
    return range(max(0, -(-low // stride)), min(place.extent - 1, high // stride) + 1)


def _reaches(moving: Sequence[Place]) -> tuple[list[int], list[int]]:
    """Per digit, the least and the greatest offset that it and all inside it can add; 0 after the last."""

    def sums(bound: Callable[[int, int], int]) -> list[int]:
        totals = [0]
        for place in reversed(moving):
            totals.append(totals[-1] + bound(0, (place.extent - 1) * place.stride))
        return totals[::-1]

    return sums(min), sums(max)
