"""The coordinates that are stored in a stretch of memory.

A layout maps each coordinate to its offset. A picture of memory needs the reverse, for any stretch of a tensor of any
size. So the digits of the layout are searched outermost first, and each value is left out whose reach, the offsets that
it and all digits inside it can add up to, misses the stretch. The work is in proportion to the stretch.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from inlay.layout import Dims, Layout
from inlay.render.blocks import AxisDigit, places

_MOST_HITS = 20_000
"""Elements looked at for one stretch of memory: far more than it shows, unless a layout overlaps itself heavily."""


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


def _search(moving: Sequence[AxisDigit], ndims: int, low: int, high: int) -> Iterator[tuple[int, Dims]]:
    """Every combination of digit values whose offset is in low..high-1, with the coordinate it makes."""
    least, most = _reaches(moving)
    coordinate = [0] * ndims

    def visit(i: int, base: int) -> Iterator[tuple[int, Dims]]:
        """Yield the elements of the digits from `i` on, whose offset so far is `base`."""
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


def _values_in_reach(place: AxisDigit, low: int, high: int) -> range:
    """The values of `place` whose step, value times stride, is in low..high (inclusive)."""
    if place.stride < 0:
        low, high = -high, -low
    stride = abs(place.stride)
    return range(max(0, -(-low // stride)), min(place.extent - 1, high // stride) + 1)


def _reaches(moving: Sequence[AxisDigit]) -> tuple[list[int], list[int]]:
    """Per digit, the least and the greatest offset that it and all inside it can add; 0 after the last."""

    def sums(bound: Callable[[int, int], int]) -> list[int]:
        """Return, for each index, the bound of what the digits from there on add to an offset."""
        totals = [0]
        for place in reversed(moving):
            totals.append(totals[-1] + bound(0, (place.extent - 1) * place.stride))
        return totals[::-1]

    return sums(min), sums(max)
