"""Pictures as plain values: what is drawn and where, without a character of markup.

A scene has two views of the same elements. The **grid** is the logical tensor: the last two axes that have more than
one coordinate span a plane, the axis before them runs across, all others run down. The **strip** is memory: rows of
consecutive offsets. A cell is one place of either view; an element has the same number and color in both.

    grid   c=0       c=1          strip   0 |  0  6  1  7
           0 1 2     6  7  8              4 |  2  8  3  9
           3 4 5     9 10 11              8 |  4 10  5 11      nhwc of 1 x 2 x 2 x 3

`compose` makes the scene of a descriptor; `text` and `svg` draw it. Widths are in characters, whatever draws it. A
tensor of any size gives a scene of at most a few thousand cells: planes, rows, columns and the lines of the strip are
all sequences of items of which only some fit. The items that teach most are the first ones, the last, and both sides of
a border: the end of a block, the first padding. Everything between is left out as an `Elision` in its place, which
knows how much it stands for.

>>> pick(24, [0, 23, 16, 17, 1], room=7)
(0, 1, Elision(first=2, count=14), 16, 17, Elision(first=18, count=5), 23)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

from inlay.layout import Dims


@dataclass(frozen=True, slots=True)
class Elision:
    """Items left out between two that are shown."""

    first: int
    """The number of the first item left out."""
    count: int
    """Number of items that are left out."""

    @property
    def last(self) -> int:
        """The number of the last item left out."""
        return self.first + self.count - 1


Picks = tuple[int | Elision, ...]
"""Numbers of the items shown, ascending, with an elision wherever some are left out."""


def pick(count: int, wanted: Iterable[int], room: int, cost: int = 1, gap_cost: int = 1, *, fill: bool = True) -> Picks:
    """Return the items of 0 to `count` - 1 that fit: first those of `wanted`, best first, then the first ones.

    An item takes `cost` of the `room`, an elision `gap_cost`. The first item wanted is shown even if it does not fit.
    Without `fill` items that nobody wants are left out even where there is room.

    Post-conditions: the numbers and elisions, read in order, tell each of 0..count-1 exactly once; they cost at most
    `room`, unless one item and its elisions alone cost more.
    """
    if count * cost <= room:
        return tuple(range(count))
    chosen: list[int] = []
    for item in chain(wanted, range(min(count, room // cost) if fill else 0)):
        if not 0 <= item < count or item in chosen:
            continue
        trial = sorted([*chosen, item])
        if not chosen or _cost(trial, count, cost, gap_cost) <= room:
            chosen = trial
    singles = [e.first for e in _with_elisions(chosen, count) if isinstance(e, Elision) and e.count == 1]
    if cost <= gap_cost:
        chosen = sorted([*chosen, *singles])
    return _with_elisions(chosen, count)


def _cost(chosen: Sequence[int], count: int, cost: int, gap_cost: int) -> int:
    """Return the length of chosen items and the gaps between them."""
    gaps = sum(isinstance(item, Elision) for item in _with_elisions(chosen, count))
    return len(chosen) * cost + gaps * gap_cost


def _with_elisions(chosen: Sequence[int], count: int) -> Picks:
    """Return the chosen items with an `Elision` wherever items between them are left out."""
    picks: list[int | Elision] = []
    for before, item in pairwise((-1, *chosen, count)):
        if item - before > 1:
            picks.append(Elision(before + 1, item - before - 1))
        if item < count:
            picks.append(item)
    return tuple(picks)


def borders(count: int, data: int, weights: Iterable[int]) -> list[int]:
    """The items of an axis worth seeing, best first: ends of its data, first padding, borders of its blocks.

    `count` counts data and padding, `data` the data alone; `weights` are the sizes of its blocks.

    >>> borders(24, 17, [8])
    [0, 16, 17, 8, 7, 23, 1]
    """
    inside = [x for weight in sorted(set(weights)) if weight > 1 for x in (weight, weight - 1)]
    return [0, data - 1, data, *inside, count - 1, 1]


CellKind = Literal["data", "padding", "gap", "other"]
INDEX, OFFSET, VALUE = "its index in row-major order", "its offset", "its value"
"""The meanings that the number of an element may have."""


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """Limits of the space that a scene may take."""

    width: int
    """Characters across."""
    mark: int = 0
    """Characters a cell takes besides its number."""
    plane_rows: int = 12
    """The most rows of a plane."""
    grid_lines: int = 32
    """About how many rows all planes may take, headings included."""
    strip_rows: int = 14
    """The most rows of the strip."""
    heat_rows: int = 40
    """The most rows of a heat map."""
    heat_columns: int = 96
    """The most columns of a heat map."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One place in the grid or in the strip."""

    kind: CellKind
    """An element of the tensor, one of its padding, memory that belongs to none, or an element that was not chosen."""
    offset: int
    """Elements from the start of the buffer, offset0 included."""
    coordinate: Dims | None
    """The first coordinate that lies here; None for a gap."""
    label: str = ""
    """The number in the cell, as `Scene.numbers` says; empty where there is none."""
    color: int | None = None
    """The color of its block; None if it has none: a gap, an element not chosen, padding of a destination."""
    letter: str = ""
    """The letter of its block; empty where it has no color."""
    wall: int = 0
    """Level of the wall on its left, as in `blocks`; 0 for none."""
    wall_above: int = 0
    """Level of the wall above it in the grid; 0 for none, as in the strip."""
    is_shared: bool = False
    """True if other coordinates share this offset, as they do where a stride is 0."""


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane of the grid."""

    title: str
    """Its coordinate along the axis that runs across, such as `c=3`; empty where there is none."""
    cells: tuple[tuple[Cell | None, ...], ...]
    """By rows, then columns of the grid; None where either is left out."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Planes side by side."""

    title: str
    """Their coordinate along the axes that run down, such as `n=0`; empty where there are none."""
    planes: tuple[Plane | Elision, ...]
    """From left to right."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The logical tensor."""

    row_name: str
    """Name of the axis that runs down in a plane; empty in a tensor of one axis."""
    rows: Picks
    """The coordinates that are shown."""
    column_name: str
    """Name of the axis that runs across in a plane."""
    columns: Picks
    """The coordinates that are shown."""
    shelves: tuple[Shelf | Elision, ...]
    """From top to bottom."""
    planes: int
    """Number of planes of the tensor, including those that are not shown."""
    planes_shown: int
    """Number of planes that are shown."""
    fixed: str = ""
    """The axes of which the caller chose one coordinate, such as `n=1, h=0`."""

    @property
    def is_partial(self) -> bool:
        """True if planes, rows or columns are left out."""
        is_cut = any(isinstance(item, Elision) for item in (*self.rows, *self.columns))
        return is_cut or self.planes_shown < self.planes


@dataclass(frozen=True, slots=True)
class StripRow:
    """A stretch of memory."""

    offset: int
    """Offset of its first cell, in elements."""
    cells: tuple[Cell, ...]
    """At consecutive offsets."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Memory from the first to the last element."""

    start: int
    """Offset of the first row, in elements."""
    stop: int
    """Offset after the last row, in elements."""
    row_length: int
    """Elements of a full row."""
    has_coordinates: bool
    """True if the coordinate of the first cell fits beside each row."""
    rows: tuple[StripRow | Elision, ...]
    """In address order; an elision counts elements and its `first` is an offset."""


@dataclass(frozen=True, slots=True)
class SampledAxis:
    """An axis of a heat map."""

    name: str
    """Its name."""
    shown: int
    """Number of coordinates in the map, evenly spaced from 0 on."""
    extent: int
    """Number of coordinates."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The addresses of elements of a whole tensor, sampled along every axis and unfolded into rows and columns."""

    down: tuple[SampledAxis, ...]
    """The axes that run down, outermost first; empty in a tensor of one axis."""
    across: tuple[SampledAxis, ...]
    """The axes that run across, outermost first."""
    lowest: int
    """The lowest offset of the map, in elements."""
    highest: int
    """The highest offset of the map, in elements."""
    shares: tuple[tuple[float, ...], ...]
    """Per row and column, where the offset is between the lowest, 0, and the highest, 1."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture of one descriptor."""

    names: tuple[str, ...]
    """One per axis."""
    label_width: int
    """Characters of the widest number in a cell, at least 1."""
    coordinate_width: int
    """Characters of the widest coordinate, written with commas."""
    numbers: str
    """The meaning of the numbers in the cells: INDEX, OFFSET or VALUE."""
    grid: Grid
    """The logical tensor."""
    strip: Strip
    """Its memory."""
    has_letters: bool = False
    """True if letters mark the blocks, since there are more of them than colors."""
    walls: tuple[tuple[int, str], ...] = ()
    """The levels of walls in the strip, thickest first, with their meaning."""
    heat_map: HeatMap | None = None
    """The addresses of a tensor that is too large to be shown whole."""

    @property
    def offset_width(self) -> int:
        """Characters of the widest offset beside the strip."""
        return max(len(str(self.strip.start)), len(str(self.strip.stop)))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell shown, those of the grid first."""
        shelves = [shelf for shelf in self.grid.shelves if isinstance(shelf, Shelf)]
        planes = [plane for shelf in shelves for plane in shelf.planes if isinstance(plane, Plane)]
        in_grid = [cell for plane in planes for row in plane.cells for cell in row if cell is not None]
        in_strip = [cell for row in self.strip.rows if isinstance(row, StripRow) for cell in row.cells]
        return (*in_grid, *in_strip)
