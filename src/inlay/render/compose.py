"""From a descriptor to its scene: which cells there are, what they say, and which of them fit.

>>> scene = compose(MemoryDesc((2, 3), "f32", "ba"), "ab", SpaceLimits(width=40))
>>> [cell.label for cell in scene.strip.rows[0].cells]
['0', '3', '1', '4', '2', '5']

The grid has the coordinates that the caller chose, else those at which blocks and padding begin. The strip has the ends
of memory, both sides of each jump, and the rows with the elements that were chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.layout import Dims, Layout
from inlay.render.address_search import elements_between
from inlay.render.blocks import BLOCK_WALL, AxisDigit, Wall, blocks_of, digit_in_words, places, shares_elements
from inlay.render.heat_map import FEWEST_ELEMENTS, heat_map_of
from inlay.render.scene import (
    INDEX,
    OFFSET,
    VALUE,
    Cell,
    CellKind,
    Elision,
    Grid,
    HeatMap,
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
from inlay.render.selection import Selection
from inlay.render.values import ElementValues

_ELISION_WIDTH = 5
"""Characters that planes left out take between two that are shown."""


@dataclass(frozen=True, slots=True)
class SceneOptions:
    """The contents of a scene, where they differ from the usual."""

    offsets: bool = False
    """True if cells are numbered by offset, False for values or the row-major index."""
    values: ElementValues | None = None
    """The values that cells show without `offsets`; None to number the cells."""
    selection: Selection | None = None
    """The coordinates to show; None for all."""
    heat_map: bool | None = None
    """True for a heat map of addresses, None for one where a large tensor is shown in part."""
    colored_by: Layout | None = None
    """The layout whose blocks color the elements, and no padding; None for the layout that is drawn."""
    data_only: bool = False
    """True for a grid without padding."""


def compose(desc: MemoryDesc, names: Sequence[str], room: SpaceLimits, options: SceneOptions | None = None) -> Scene:
    """The scene of a descriptor that has a bound layout and at least one element.

    Post-conditions: an element shown in both views has one number and one color. Cells of the grid cover, and skip,
    each chosen coordinate once; rows of the strip each offset from `strip.start` to `strip.stop` once.

    Raises:
        InvalidArguments: the kind of `desc` has no layout.
        Unimplemented: a dim or stride is RUNTIME.
    """
    options = options or SceneOptions()
    if options.offsets:
        options = replace(options, values=None)
    scene = _Composer(desc, tuple(names), room, options).scene()
    label_width = 1
    while options.values is not None and (widest := max(len(cell.label) for cell in scene.cells)) > label_width:
        # The widest value is known once the elements that fit are, and fewer fit of wider ones.
        label_width = widest
        scene = _Composer(desc, tuple(names), room, options, label_width).scene()
    return scene


class _Composer:
    """One run of `compose`: the descriptor and all that is derived from it."""

    def __init__(
        self, desc: MemoryDesc, names: tuple[str, ...], room: SpaceLimits, options: SceneOptions, label_width: int = 1
    ) -> None:
        self.desc = desc
        self.layout, self.data_type = addressed_layout(desc, "a picture")
        self.names = names
        self.room = room
        self.options = options
        self.selection = options.selection
        self.places = places(self.layout)
        self.blocks = blocks_of(self.layout)
        self.colors = self.blocks if options.colored_by is None else blocks_of(options.colored_by)
        extents = desc.dims if options.data_only else self.layout.dims
        self.choices = tuple(map(range, extents)) if self.selection is None else self.selection.coordinates(extents)
        low, high = self.layout.span
        in_size = desc.size * 8 // self.data_type.bits
        self.start, self.stop = desc.offset0 + low, desc.offset0 + max(high, in_size)
        self.shares = shares_elements(self.layout)
        # A plus for shared elements; between the letter of a block and a value a space, or the hatching of padding.
        extra = self.shares + (options.values is not None and (room.mark > 0 or desc.padded_dims != desc.dims))
        self.label_width = extra + (label_width if options.values is not None else self._number_width())

    def _number_width(self) -> int:
        """Return the number of characters of the widest index or offset."""
        offsets = self.options.offsets
        largest = str(max(abs(self.start), self.stop - 1) if offsets else prod(self.desc.dims) - 1)
        # Numbers in padding keep a character of hatching, negative ones their sign.
        return len(largest) + (offsets and self.start < 0) + (offsets and self.desc.padded_dims != self.desc.dims)

    @property
    def cell_width(self) -> int:
        """Characters of a cell, the border on its left included."""
        return self.label_width + self.room.mark + 1

    @cached_property
    def extents(self) -> Dims:
        """Number of coordinates to show along each axis."""
        return tuple(map(len, self.choices))

    def scene(self) -> Scene:
        """Both views, and the heat map if there is one."""
        digits = sum(len(str(n - 1)) for n in self.layout.dims)
        width = digits + self.layout.ndims - 1
        numbers = OFFSET if self.options.offsets else INDEX if self.options.values is None else VALUE
        grid, strip = self._grid(), self._strip()
        shown = {cell.wall for row in strip.rows if isinstance(row, StripRow) for cell in row.cells}
        walls = [(wall.level, self._meaning(wall)) for wall in self.blocks.walls if wall.level in shown]
        heat_map = self._heat_map(grid)
        has_letters = self.colors.repeats_colors
        return Scene(self.names, self.label_width, width, numbers, grid, strip, has_letters, tuple(walls), heat_map)

    def _meaning(self, wall: Wall) -> str:
        """Return the words on the walls of one level."""
        words = " or ".join(digit_in_words(place, self.names) for place in wall.digits) or "block"
        return f"next {words}: {wall.elements} element{'s' * (wall.elements != 1)}"

    def _heat_map(self, grid: Grid) -> HeatMap | None:
        """Return the heat map, if one was requested, or if the grid shows a large tensor in part."""
        is_wanted = self.options.heat_map
        if is_wanted is None:
            is_wanted = prod(self.extents) > FEWEST_ELEMENTS and grid.is_partial
        if not is_wanted:
            return None
        return heat_map_of(self.desc, self.names, self.room.heat_rows, self.room.heat_columns, self.selection)

    def _labels(self, points: Sequence[Dims], offsets: Sequence[int]) -> list[str]:
        """Return the text of each element: value, offset or row-major index; padding has no index."""
        if self.options.values is not None:
            return self.options.values.texts(points)
        if self.options.offsets:
            return list(map(str, offsets))
        return [str(self._index(point)) if self._is_data(point) else "" for point in points]

    def _is_data(self, point: Dims) -> bool:
        """Return whether a coordinate is that of an element, not of padding."""
        return all(x < n for x, n in zip(point, self.desc.dims, strict=True))

    def _index(self, point: Dims) -> int:
        """Return the row-major index of an element."""
        index = 0
        for x, n in zip(point, self.desc.dims, strict=True):
            index = index * n + x
        return index

    def cell(self, point: Dims, offset: int, label: str, is_shared: bool = False) -> Cell:
        """The cell of an element or of padding; equal in both views up to its walls."""
        is_data = self._is_data(point)
        kind: CellKind = "data" if is_data else "padding"
        is_shared = is_shared or self.shares
        if self.selection is not None and not self.selection.has(point):
            return Cell("other", offset, point, label, is_shared=is_shared)
        if self.options.colored_by is not None and not is_data:
            return Cell(kind, offset, point, label, is_shared=is_shared)
        color, letter = self.colors.color(point), self.colors.letter(point)
        return Cell(kind, offset, point, label, color, letter, is_shared=is_shared)

    def _grid(self) -> Grid:
        """Return the grid of the tensor: planes of the last two axes, as many as the room has space for."""
        row, column = plane_axes(self.extents)
        leading = [axis for axis in range(self.layout.ndims) if axis not in (row, column)]
        long = [axis for axis in leading if self.extents[axis] > 1]
        across, down = (long[-1], tuple(long[:-1])) if long else (None, ())
        gutter = 1 + max(self._title_width(row), sum(self._title_width(axis) + 1 for axis in down))
        columns = self._picks(column, self._plane_width(across, self.room.width - gutter) // self.cell_width)
        rows: Picks = (0,) if row is None else self._picks(row, self.room.plane_rows)
        cost = max(len(columns) * self.cell_width, self._title_width(across)) + 1
        planes: Picks = (0,) if across is None else self._picks(across, self.room.width - gutter, cost, _ELISION_WIDTH)
        shelves = self._shelves(down, self.room.grid_lines // (len(rows) + 3))
        frame = _Frame(row, rows, column, columns, across, planes, down)
        drawn = tuple(s if isinstance(s, Elision) else self._shelf(frame, s) for s in shelves)
        shown = sum(isinstance(p, int) for p in planes) * sum(isinstance(s, int) for s in shelves)
        count = prod(self.extents[axis] for axis in leading)
        row_name = "" if row is None else self.names[row]
        fixed = "" if self.selection is None else self._fixed({row, column})
        return Grid(row_name, rows, self.names[column], columns, drawn, count, shown, fixed)

    def _plane_width(self, across: int | None, width: int) -> int:
        """Return the characters that the columns of a plane may take: a share of them where planes were chosen."""
        if self.selection is None or across is None or self.selection.choices[across] is None:
            return width
        return max(width // self.extents[across] - 1, min(width, 4 * self.cell_width))

    def _fixed(self, plane: set[int | None]) -> str:
        """Return the axes outside the plane of which the caller chose one coordinate, such as `n=1, h=0`."""
        assert self.selection is not None
        chosen = [
            f"{name}={choice[0]}"
            for axis, (name, choice) in enumerate(zip(self.names, self.selection.choices, strict=True))
            if choice is not None and len(choice) == 1 and axis not in plane
        ]
        return ", ".join(chosen)

    def _title_width(self, axis: int | None) -> int:
        """Return the number of characters of the longest title `name=coordinate` of an axis."""
        return 0 if axis is None else len(f"{self.names[axis]}={self.choices[axis][-1]}")

    def _picks(self, axis: int, room: int, cost: int = 1, gap_cost: int = 1) -> Picks:
        """Return the coordinates of an axis to draw in `room` characters or lines."""
        choice = self.choices[axis]
        picks = pick(len(choice), self._borders(axis), room, cost, gap_cost)
        return tuple(item if isinstance(item, Elision) else choice[item] for item in picks)

    def _borders(self, axis: int) -> list[int]:
        """Return the positions along an axis at which blocks begin or the padding begins."""
        if self.selection is not None and self.selection.choices[axis] is not None:
            return [0, self.extents[axis] - 1, 1]
        weights = [place.weight for place in self.places if place.axis == axis]
        return borders(self.extents[axis], self.desc.dims[axis], weights)

    def _shelves(self, down: Sequence[int], room: int) -> Picks:
        """Return the combinations of positions along `down`, numbered row by row, to show."""
        if not down:
            return (0,)
        count = prod(self.extents[axis] for axis in down)
        return pick(count, [0, count - 1, *self._borders(down[-1])], max(room, 2))

    def _shelf(self, frame: "_Frame", number: int) -> Shelf:
        """Return the shelf of this number: the planes at one coordinate of the axes that run down."""
        coordinate = [choice[0] for choice in self.choices]
        for axis in reversed(frame.down):
            number, position = divmod(number, self.extents[axis])
            coordinate[axis] = self.choices[axis][position]
        title = " ".join(f"{self.names[axis]}={coordinate[axis]}" for axis in frame.down)
        planes = [p if isinstance(p, Elision) else self._plane(frame, coordinate, p) for p in frame.planes]
        return Shelf(title, tuple(planes))

    def _plane(self, frame: "_Frame", coordinate: list[int], number: int) -> Plane:
        """Return the plane at a coordinate; `number` is that along the axis that runs across."""
        at = list(coordinate)
        title = ""
        if frame.across is not None:
            at[frame.across] = number
            title = f"{self.names[frame.across]}={number}"
        points = [frame.point(at, r, c) for r in frame.rows for c in frame.columns]
        known = [point for point in points if point is not None]
        offsets = [int(offset) for offset in self.desc.offset(known)]
        drawn = iter(map(self._grid_cell, known, offsets, self._labels(known, offsets), [frame] * len(known)))
        cells = [None if point is None else next(drawn) for point in points]
        n = len(frame.columns)
        return Plane(title, tuple(tuple(cells[i : i + n]) for i in range(0, len(cells), n)))

    def _grid_cell(self, point: Dims, offset: int, label: str, frame: "_Frame") -> Cell:
        """Return a cell of the grid with its walls."""
        above = 0 if frame.row is None else self.blocks.wall_along(frame.row, point[frame.row])
        left = self.blocks.wall_along(frame.column, point[frame.column])
        return replace(self.cell(point, offset, label), wall=left, wall_above=above)

    def _strip(self) -> Strip:
        """Return the rows of memory to draw, in lines as long as a whole number of blocks where these fit."""
        before = max(len(str(self.start)), len(str(self.stop))) + 2
        coordinates = sum(len(str(n - 1)) + 1 for n in self.layout.dims)
        has_coordinates = before + coordinates <= self.room.width // 2
        most = max(1, (self.room.width - before - coordinates * has_coordinates) // self.cell_width)
        length = row_length(self.places, self.stop - self.start, most)
        count = -(-(self.stop - self.start) // length)
        # Where most of memory is gaps or was not chosen, rows of nothing else would push out the elements.
        is_sparse = self.stop - self.start > 4 * prod(self.extents)
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
        usual = [0, count - 1, 1, *(row for row in told if 0 <= row < count), count - 2]
        return usual if self.selection is None else [*self._chosen_rows(length), *usual]

    def _chosen_rows(self, length: int) -> list[int]:
        """Return rows of the strip with elements that were chosen: the first, the last, and steps along each axis."""
        first = tuple(choice[0] for choice in self.choices)
        points = [first, tuple(choice[-1] for choice in self.choices)]
        for axis in reversed(range(len(first))):
            for x in self.choices[axis][1 : self.room.strip_rows]:
                points.append((*first[:axis], x, *first[axis + 1 :]))
        return [(int(offset) - self.start) // length for offset in self.desc.offset(points)]

    def _left_out(self, rows: Elision, length: int) -> Elision:
        """Return the elements of hidden rows of memory: first offset and count."""
        first = self.start + rows.first * length
        return Elision(first, min(rows.count * length, self.stop - first))

    def _strip_row(self, number: int, length: int) -> StripRow:
        """Return one row of memory with its cells."""
        low = self.start + number * length
        high = min(low + length, self.stop)
        offset0 = self.desc.offset0
        # One more to the left: the wall of the first cell depends on the cell before it.
        found = self._elements_between(low - 1 - offset0, high - offset0)
        stored = {offset + offset0: points for offset, points in found.items() if offset + offset0 >= low}
        labels = dict(zip(stored, self._labels([points[0] for points in stored.values()], list(stored)), strict=True))
        cells: list[Cell] = []
        for offset in range(low, high):
            there = stored.get(offset)
            cell = self.cell(there[0], offset, labels[offset], len(there) > 1) if there else Cell("gap", offset, None)
            cells.append(replace(cell, wall=self._wall(found.get(offset - 1 - offset0), there)))
        return StripRow(low, tuple(cells))

    def _wall(self, before: list[Dims] | None, there: list[Dims] | None) -> int:
        """Return the level of the wall between two neighbors in memory, of which either may be a gap."""
        if before is None or there is None:
            return 0 if before is there else BLOCK_WALL
        return self.blocks.wall_between(before[0], there[0])

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
