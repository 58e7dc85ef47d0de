"""From a descriptor to its scene: which cells there are, what they say, and which of them fit.

>>> scene = compose(MemoryDesc((2, 3), "f32", "ba"), "ab", SpaceLimits(width=40))
>>> [cell.label for cell in scene.strip.rows[0].cells]
['0', '3', '1', '4', '2', '5']

A layout answers "where does this coordinate lie". A picture of memory asks the opposite, for any stretch of a tensor of
any size, so the digits of the layout are sorted by how far one step of them jumps, and searched outermost first; every
value whose reach misses the stretch is left out. nChw8c of 2 x 17 x 5 x 4, outermost first:

    n      c // 8   h     w     c % 8
    480    160      32    8     1

The outer ones, all but the inner blocks, number the blocks: elements that agree in them are one block, and get one
color. A plain layout has no inner blocks; there the two innermost digits play their part, so that the colors change
where memory goes from one row or plane to the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.errors import Unimplemented
from inlay.layout import Dims, Layout
from inlay.render.scene import (
    INDEX,
    OFFSET,
    VALUE,
    Cell,
    Elision,
    Grid,
    Picks,
    Plane,
    Scene,
    Shelf,
    SpaceLimits,
    Strip,
    StripRow,
    borders,
    pick,
)

COLORS = 7
"""Number of colors that blocks take in turn. A prime, so that the usual extents do not give two neighbors the same."""

_MOST_HITS = 20_000
"""Elements looked at for one stretch of memory: far more than it shows, unless a layout overlaps itself heavily."""


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


@dataclass(frozen=True, slots=True)
class Blocks:
    """The partition of a layout's elements into blocks, and the color of each block."""

    outer: tuple[AxisDigit, ...]
    """The digits that number the blocks, outermost first; strides of 0 number none."""
    inner: tuple[AxisDigit, ...]
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
        """True if a full block fills one contiguous range of memory."""
        run = 1
        for place in reversed(self.inner):
            if place.stride != run:
                return False
            run *= place.extent
        return True


def blocks_of(layout: Layout) -> Blocks:
    """The blocks of `layout`: what agrees in all digits but the inner ones, or but the last two where there are none.

    Post-condition: two coordinates at one offset of a layout that does not overlap have one color, and blocks that
    follow one another in memory have different colors unless a stride is 0, or blocks that are many steps apart
    interleave.
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


_ELISION_WIDTH = 5
"""Characters that planes left out take between two that are shown."""


def compose(
    desc: MemoryDesc,
    names: Sequence[str],
    room: SpaceLimits,
    offsets: bool = False,
    values: Sequence[str] | None = None,
) -> Scene:
    """The scene of a descriptor that has a bound layout and at least one element.

    Cells are numbered by row-major index, or by offset with `offsets`; else they have `values`, in row-major order.

    Post-conditions: an element shown in both views has one number and one color. Cells of the grid cover, and skip,
    each padded coordinate once; rows of the strip each offset from `strip.start` to `strip.stop` once.

    Raises:
        InvalidArguments: the kind of `desc` has no layout.
        Unimplemented: a dim or stride is RUNTIME.
    """
    return _Composer(desc, tuple(names), room, offsets, None if offsets else values).scene()


class _Composer:
    """One run of `compose`: the descriptor and all that is derived from it."""

    def __init__(
        self,
        desc: MemoryDesc,
        names: tuple[str, ...],
        room: SpaceLimits,
        offsets: bool,
        values: Sequence[str] | None,
    ) -> None:
        self.desc = desc
        self.layout, self.data_type = addressed_layout(desc, "a picture")
        self.names = names
        self.room = room
        self.offsets = offsets
        # A letter of a block and a value such as 1.5 need a space between them.
        self.values = values and [" " * room.mark + value for value in values]
        self.places = places(self.layout)
        self.blocks = blocks_of(self.layout)
        low, high = self.layout.span
        in_size = desc.size * 8 // self.data_type.bits
        self.start, self.stop = desc.offset0 + low, desc.offset0 + max(high, in_size)
        self.shares = shares_elements(self.layout)
        largest = str(max(abs(self.start), self.stop - 1) if offsets else prod(desc.dims) - 1)
        # Numbers in padding keep a character of hatching, shared ones a plus, negative ones their sign.
        extra = self.shares + (offsets and self.start < 0) + (offsets and desc.padded_dims != desc.dims)
        self.label_width = max(map(len, self.values or [largest])) + extra

    @property
    def cell_width(self) -> int:
        """Characters of a cell, the border on its left included."""
        return self.label_width + self.room.mark + 1

    def scene(self) -> Scene:
        """Both views."""
        digits = sum(len(str(n - 1)) for n in self.layout.dims)
        width = digits + self.layout.ndims - 1
        numbers = OFFSET if self.offsets else INDEX if self.values is None else VALUE
        return Scene(self.names, self.label_width, width, numbers, self._grid(), self._strip())

    def cell(self, coordinate: Dims, offset: int, is_shared: bool = False) -> Cell:
        """The cell of an element or of padding; equal in both views up to `starts_block`."""
        is_data = all(x < n for x, n in zip(coordinate, self.desc.dims, strict=True))
        index = 0
        for x, n in zip(coordinate, self.desc.dims, strict=True):
            index = index * n + x
        number = index if self.values is None else self.values[index] if is_data else ""
        label = str(offset) if self.offsets else str(number) if is_data else ""
        color = self.blocks.color(coordinate)
        is_shared = is_shared or self.shares
        return Cell("data" if is_data else "padding", offset, coordinate, label, color, is_shared=is_shared)

    def _grid(self) -> Grid:
        """Return the grid of the tensor: planes of the last two axes, as many as the room has space for."""
        row, column = plane_axes(self.layout.dims)
        leading = [axis for axis in range(self.layout.ndims) if axis not in (row, column)]
        long = [axis for axis in leading if self.layout.dims[axis] > 1]
        across, down = (long[-1], tuple(long[:-1])) if long else (None, ())
        gutter = 1 + max(self._title_width(row), sum(self._title_width(axis) + 1 for axis in down))
        columns = self._picks(column, (self.room.width - gutter) // self.cell_width)
        rows: Picks = (0,) if row is None else self._picks(row, self.room.plane_rows)
        cost = max(len(columns) * self.cell_width, self._title_width(across)) + 1
        planes: Picks = (0,) if across is None else self._picks(across, self.room.width - gutter, cost, _ELISION_WIDTH)
        shelves = self._shelves(down, self.room.grid_lines // (len(rows) + 3))
        frame = _Frame(row, rows, column, columns, across, planes, down)
        drawn = tuple(s if isinstance(s, Elision) else self._shelf(frame, s) for s in shelves)
        shown = sum(isinstance(p, int) for p in planes) * sum(isinstance(s, int) for s in shelves)
        row_name = "" if row is None else self.names[row]
        return Grid(
            row_name, rows, self.names[column], columns, drawn, prod(self.layout.dims[i] for i in leading), shown
        )

    def _title_width(self, axis: int | None) -> int:
        """Return the number of characters of the longest title `name=coordinate` of an axis."""
        return 0 if axis is None else len(f"{self.names[axis]}={self.layout.dims[axis] - 1}")

    def _picks(self, axis: int, room: int, cost: int = 1, gap_cost: int = 1) -> Picks:
        """Return the coordinates of an axis to draw in `room` characters or lines."""
        return pick(self.layout.dims[axis], self._borders(axis), room, cost, gap_cost)

    def _borders(self, axis: int) -> list[int]:
        """Return the coordinates of an axis at which blocks begin or the padding begins."""
        weights = [place.weight for place in self.places if place.axis == axis]
        return borders(self.layout.dims[axis], self.desc.dims[axis], weights)

    def _shelves(self, down: Sequence[int], room: int) -> Picks:
        """Return the combinations of coordinates along `down`, numbered row by row, to show."""
        if not down:
            return (0,)
        count = prod(self.layout.dims[axis] for axis in down)
        return pick(count, [0, count - 1, *self._borders(down[-1])], max(room, 2))

    def _shelf(self, frame: "_Frame", number: int) -> Shelf:
        """Return the shelf of this number: the planes at one coordinate of the axes that run down."""
        coordinate = [0] * self.layout.ndims
        for axis in reversed(frame.down):
            number, coordinate[axis] = divmod(number, self.layout.dims[axis])
        title = " ".join(f"{self.names[axis]}={coordinate[axis]}" for axis in frame.down)
        planes = [p if isinstance(p, Elision) else self._plane(frame, coordinate, p) for p in frame.planes]
        return Shelf(title, tuple(planes))

    def _plane(self, frame: "_Frame", coordinate: list[int], number: int) -> Plane:
        """Return the plane at a coordinate, whose last axis across has the index `number`."""
        at = list(coordinate)
        title = ""
        if frame.across is not None:
            at[frame.across] = number
            title = f"{self.names[frame.across]}={number}"
        points = [frame.point(at, r, c) for r in frame.rows for c in frame.columns]
        known = [point for point in points if point is not None]
        offsets = iter(self.desc.offset(known))
        cells = [None if point is None else self.cell(point, int(next(offsets))) for point in points]
        n = len(frame.columns)
        return Plane(title, tuple(tuple(cells[i : i + n]) for i in range(0, len(cells), n)))

    def _strip(self) -> Strip:
        """Return the rows of memory to draw, in lines as long as a whole number of blocks where these fit."""
        before = max(len(str(self.start)), len(str(self.stop))) + 2
        coordinates = sum(len(str(n - 1)) + 1 for n in self.layout.dims)
        has_coordinates = before + coordinates <= self.room.width // 2
        most = max(1, (self.room.width - before - coordinates * has_coordinates) // self.cell_width)
        length = row_length(self.places, self.stop - self.start, most)
        count = -(-(self.stop - self.start) // length)
        # Where most of memory is gaps, rows of nothing else would push out the elements.
        is_sparse = self.stop - self.start > 4 * self.layout.size
        picks = pick(count, self._telling_rows(length, count), self.room.strip_rows, fill=not is_sparse)
        rows = [self._left_out(p, length) if isinstance(p, Elision) else self._strip_row(p, length) for p in picks]
        return Strip(self.start, self.stop, length, has_coordinates, tuple(rows))

    def _telling_rows(self, length: int, count: int) -> list[int]:
        """Rows of the strip worth seeing: the ends, then both sides of each jump, then where padding begins."""
        dims, padded = self.desc.dims, self.layout.dims
        first = self.desc.offset0 - self.start
        edges = [
            tuple(n if i == axis else 0 for i in range(len(dims))) for axis, n in enumerate(dims) if n < padded[axis]
        ]
        padding = [self.layout.offset(edge) + first for edge in edges]
        jumps = [first + place.stride + step for place in reversed(self.places) for step in (0, -1)]
        outermost = [first + k * place.stride for place in self.places[:1] for k in range(2, min(place.extent, 8))]
        told = [offset // length for offset in (*padding, *jumps, *outermost)]
        return [0, count - 1, 1, *(row for row in told if 0 <= row < count), count - 2]

    def _left_out(self, rows: Elision, length: int) -> Elision:
        """Return the elements of hidden rows of memory: first offset and count."""
        first = self.start + rows.first * length
        return Elision(first, min(rows.count * length, self.stop - first))

    def _strip_row(self, number: int, length: int) -> StripRow:
        """Return one row of memory with its cells."""
        low = self.start + number * length
        high = min(low + length, self.stop)
        offset0 = self.desc.offset0
        # One more to the left: whether the first cell starts a block depends on the cell before it.
        found = self._elements_between(low - 1 - offset0, high - offset0)
        cells: list[Cell] = []
        before: tuple[int, ...] | None = None
        for offset in range(low - 1, high):
            there = found.get(offset - offset0)
            block = None if there is None else tuple(p.value(there[0]) for p in self.blocks.outer)
            cell = self.cell(there[0], offset, len(there) > 1) if there else Cell("gap", offset, None)
            if offset >= low:
                cells.append(replace(cell, starts_block=block != before))
            before = block
        return StripRow(low, tuple(cells))

    def _elements_between(self, low: int, high: int) -> dict[int, list[Dims]]:
        """Return the coordinates at each offset from `low` to `high`, counted from the origin, after the swizzle."""
        swizzle = self.desc.swizzle
        if swizzle is None:
            return elements_between(self.layout, low, high)
        found = {}
        for offset in range(max(low, 0), high):
            linear = swizzle.apply(offset)
            for coordinates in elements_between(self.layout, linear, linear + 1).values():
                found[offset] = coordinates
        return found


@dataclass(frozen=True, slots=True)
class _Frame:
    """The axes that span the grid, and the coordinates that are shown of each."""

    row: int | None
    rows: Picks
    column: int
    columns: Picks
    across: int | None
    planes: Picks
    down: tuple[int, ...]

    def point(self, at: Sequence[int], row: int | Elision, column: int | Elision) -> Dims | None:
        """The coordinate in the plane `at`, None where its row or column is left out."""
        if isinstance(row, Elision) or isinstance(column, Elision):
            return None
        point = list(at)
        if self.row is not None:
            point[self.row] = row
        point[self.column] = column
        return tuple(point)


def plane_axes(dims: Dims) -> tuple[int | None, int]:
    """The axes that run down and across in a plane: the last two with more than one coordinate, filled up from the end.

    >>> plane_axes((2, 16, 5, 4)), plane_axes((64, 32, 1, 1)), plane_axes((6,))
    ((2, 3), (0, 1), (None, 0))
    """
    long = [axis for axis, n in enumerate(dims) if n > 1][-2:]
    short = [axis for axis in reversed(range(len(dims))) if axis not in long]
    row, column = sorted([*long, *short, -1][:2])
    return (None if row < 0 else row, column)


def row_length(places: Sequence[AxisDigit], total: int, most: int) -> int:
    """Return the number of cells in a row of the strip: up to `most`, if possible whole steps of one digit.

    >>> from inlay.layout import Layout
    >>> [row_length(places(Layout.from_strides((16, 5, 4), (20, 4, 1))), 320, most) for most in (24, 16, 6)]
    [20, 16, 4]
    """
    if total <= most:
        return max(1, total)
    fitting = [place for place in places if 0 < abs(place.stride) <= most]
    for place in fitting:
        stride = abs(place.stride)
        even = [k for k in range(most // stride, 0, -1) if place.extent % k == 0]
        if even and even[0] * stride * 2 > most:
            return even[0] * stride
    largest = abs(fitting[0].stride) if fitting else 1
    return most - most % largest
