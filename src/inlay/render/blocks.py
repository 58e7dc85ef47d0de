"""The blocks of a layout: which elements are drawn in one color, and which walls stand between them.

The digits of a layout are sorted by how far one step of them jumps in memory. nChw8c of 2 x 17 x 5 x 4:

    n      c // 8   h     w     c % 8
    480    160      32    8     1

The outer ones, all but the inner blocks, number the blocks: elements that agree in them are one block, and get one
color and one letter. A plain layout has no inner blocks; there the two innermost digits play their part, so that the
colors change where memory goes from one row or plane to the next.

The numbers of colors and of letters are primes, so that the usual extents do not give two neighbors the same, and the
pair of both repeats after 161 blocks only.

Inside a block, walls stand where an inner digit changes: in BA16a8b2a the elements of one value of a % 32 // 2 are a
row, and the elements of one value of b % 8 in it are a pair.

>>> from inlay.notation.format_tag import FormatTag
>>> blocks = blocks_of(FormatTag.parse("BA16a8b2a").layout((64, 16)))
>>> [(wall.level, wall.elements) for wall in blocks.walls]
[(3, 256), (2, 16), (1, 2)]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.render.colors import BLOCK_LETTERS, COLORS

BLOCK_WALL, ROW_WALL, GROUP_WALL = 3, 2, 1
"""Levels of walls: between blocks, between values of the outermost inner digit, between those of the others."""


@dataclass(frozen=True, slots=True)
class AxisDigit:
    """One digit of one axis, with its stride in memory."""

    axis: int
    """Index of the axis."""
    extent: int
    """Number of values that the digit takes; 2 or more."""
    stride: int
    """Distance in memory from one value to the next, in elements."""
    weight: int
    """Distance along the axis from one value to the next, in coordinates."""
    is_inner: bool
    """True for an inner digit, False for the leading digit of its axis."""
    is_top: bool
    """True if no higher digit of its axis takes more than one value."""

    def value(self, coordinate: Sequence[int]) -> int:
        """The value of this digit at `coordinate`."""
        x = coordinate[self.axis] // self.weight
        return x if self.is_top else x % self.extent


def places(layout: Layout) -> tuple[AxisDigit, ...]:
    """Every digit of `layout` that takes more than one value, outermost (largest stride, or 0) first.

    >>> from inlay.notation.format_tag import FormatTag
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
                found.append(AxisDigit(i, extent, digit.stride, weight // digit.extent, level > 0, is_top))
    return tuple(sorted(found, key=lambda p: (p.stride != 0, -abs(p.stride), p.is_inner, p.axis)))


def digit_in_words(place: AxisDigit, names: Sequence[str]) -> str:
    """One digit as an expression of its coordinate: `n`, `c//8`, `c%8` or `c//4%4`."""
    word = names[place.axis] + (f"//{place.weight}" if place.weight > 1 else "")
    return word if place.is_top else f"{word}%{place.extent}"


@dataclass(frozen=True, slots=True)
class Wall:
    """The walls of one level."""

    level: int
    """BLOCK_WALL, ROW_WALL or GROUP_WALL."""
    digits: tuple[AxisDigit, ...]
    """The digits that change where such a wall stands; empty for blocks."""
    elements: int
    """Elements between two walls that enclose a full part."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The partition of a layout's elements into blocks, with the color and the letter of each block."""

    outer: tuple[AxisDigit, ...]
    """The digits that number the blocks, outermost first; strides of 0 number none."""
    inner: tuple[AxisDigit, ...]
    """The digits inside a block, outermost first."""
    color_steps: tuple[int, ...]
    """Per outer digit, by how many colors one step of it moves on."""
    letter_steps: tuple[int, ...]
    """Per outer digit, by how many letters one step of it moves on."""

    def color(self, coordinate: Sequence[int]) -> int:
        """The color of the block that holds `coordinate`, 0 to COLORS - 1."""
        return sum(p.value(coordinate) * step for p, step in zip(self.outer, self.color_steps, strict=True)) % COLORS

    def letter(self, coordinate: Sequence[int]) -> str:
        """The letter of the block that holds `coordinate`."""
        number = sum(p.value(coordinate) * step for p, step in zip(self.outer, self.letter_steps, strict=True))
        return BLOCK_LETTERS[number % len(BLOCK_LETTERS)]

    @property
    def count(self) -> int:
        """Number of blocks."""
        return prod(p.extent for p in self.outer)

    @property
    def repeats_colors(self) -> bool:
        """True if several blocks have the same color."""
        return self.count > COLORS

    @property
    def size(self) -> int:
        """Elements of a full block."""
        return prod(p.extent for p in self.inner)

    @property
    def is_contiguous(self) -> bool:
        """True if a full block fills one contiguous range of memory."""
        run = 1
        for place in reversed(self.inner):
            if place.stride != run:
                return False
            run *= place.extent
        return True

    @property
    def walls(self) -> tuple[Wall, ...]:
        """The levels of walls that the layout has, thickest first."""
        return tuple(self._walls())

    def _walls(self) -> Iterator[Wall]:
        """Yield the levels of walls; the innermost digit changes at each element, which is no wall."""
        if self.outer:
            yield Wall(BLOCK_WALL, (), self.size)
        if len(self.inner) > 1:
            yield Wall(ROW_WALL, self.inner[:1], prod(p.extent for p in self.inner[1:]))
        if len(self.inner) > 2:
            yield Wall(GROUP_WALL, self.inner[1:-1], self.inner[-1].extent)

    def wall_between(self, before: Sequence[int], coordinate: Sequence[int]) -> int:
        """The level of the wall between two elements that follow one another in memory; 0 for none."""
        if any(p.value(before) != p.value(coordinate) for p in self.outer):
            return BLOCK_WALL
        changed = next((i for i, p in enumerate(self.inner) if p.value(before) != p.value(coordinate)), len(self.inner))
        return self._level(changed)

    def _level(self, inner: int) -> int:
        """Return the level of the wall at which the inner digit of this index changes; 0 for the innermost."""
        if inner >= len(self.inner) - 1:
            return 0
        return ROW_WALL if inner == 0 else GROUP_WALL

    def wall_along(self, axis: int, x: int) -> int:
        """The level of the wall of the grid before coordinate `x` of an axis; 0 for none.

        Walls along an axis stand where a digit changes that is not the lowest of its axis.
        """
        places = [p for p in (*self.outer, *self.inner) if p.axis == axis and p.weight > 1 and x and x % p.weight == 0]
        return max((BLOCK_WALL if p in self.outer else self._level(self.inner.index(p)) for p in places), default=0)


def blocks_of(layout: Layout) -> Blocks:
    """The blocks of `layout`: what agrees in all digits but the inner ones, or but the last two where there are none.

    Post-condition: two coordinates at one offset of a layout that does not overlap have one color, and blocks that
    follow one another in memory have different colors and letters unless a stride is 0, or blocks that are many steps
    apart interleave.
    """
    moving = [p for p in places(layout) if p.stride]
    outer = [p for p in moving if not p.is_inner]
    if not outer or len(outer) == len(moving):
        outer = moving[: max(1, len(moving) - 2)]
    inner = [p for p in moving if p not in outer]
    return Blocks(tuple(outer), tuple(inner), _cycle_steps(outer, COLORS), _cycle_steps(outer, len(BLOCK_LETTERS)))


def _cycle_steps(outer: Sequence[AxisDigit], period: int) -> tuple[int, ...]:
    """Return per digit by how many of `period` marks one step of it moves on; never by none."""
    steps: list[int] = []
    step = 1
    for place in reversed(outer):
        steps.append(step)
        # A step of 0 would give all values of the next digit one mark.
        step = step * place.extent % period or 1
    return tuple(reversed(steps))


def shares_elements(layout: Layout) -> bool:
    """Return whether several coordinates may share one offset; True where it would take too long to tell.

    >>> shares_elements(Layout.from_strides((4, 3), (1, 1))), shares_elements(Layout.from_strides((4, 3), (3, 1)))
    (True, False)
    """
    if layout.has_runtime:
        return any(axis.stride == 0 for axis in layout.axes)
    try:
        return not layout.is_non_overlapping and layout.overlaps
    except Unimplemented:
        return True
