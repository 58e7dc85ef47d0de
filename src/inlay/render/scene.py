"""Pictures as plain values: what is drawn and where, without a character of markup.

A scene has two views of the same elements. The **grid** is the logical tensor: the last two axes that have more than
one coordinate span a plane, the axis before them runs across, all others run down. The **strip** is memory: rows of
consecutive offsets. A cell is one place of either view; an element has the same number and color in both.

    grid   c=0       c=1          strip   0 |  0  6  1  7
           0 1 2     6  7  8              4 |  2  8  3  9
           3 4 5     9 10 11              8 |  4 10  5 11      nhwc of 1 x 2 x 2 x 3

`compose` makes the scene of a descriptor; `text` and `svg` draw it. Widths are in characters, whatever draws it. A
tensor of any size gives a scene of at most a few thousand cells; what is left out is an `Elision` in its place.
"""

from dataclasses import dataclass
from typing import Literal

from inlay.layout import Dims
from inlay.render.picks import Elision, Picks

CellKind = Literal["data", "padding", "gap"]


@dataclass(frozen=True, slots=True)
class Room:
    """How much space a scene may take."""

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


@dataclass(frozen=True, slots=True)
class Cell:
    """One place in the grid or in the strip."""

    kind: CellKind
    """An element of the tensor, one of its padding, or memory that belongs to none."""
    offset: int
    """Elements from the start of the buffer, offset0 included."""
    coordinate: Dims | None
    """The first coordinate that lies here; None for a gap."""
    label: str = ""
    """The number in the cell: the row-major index of the element, or its offset; empty where there is none."""
    color: int = 0
    """The color of its block."""
    starts_block: bool = False
    """Whether the cell before it in the strip belongs to another block."""
    is_shared: bool = False
    """Whether other coordinates lie here too, as they do where a stride is 0."""


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
    """Which of its coordinates are shown."""
    column_name: str
    """Name of the axis that runs across in a plane."""
    columns: Picks
    """Which of its coordinates are shown."""
    shelves: tuple[Shelf | Elision, ...]
    """From top to bottom."""
    planes: int
    """How many planes the tensor has, shown or not."""
    planes_shown: int
    """How many of them are shown."""


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
    """Whether there is room for the coordinate of the first cell beside each row."""
    rows: tuple[StripRow | Elision, ...]
    """In address order; an elision counts elements and its `first` is an offset."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture of one descriptor."""

    names: tuple[str, ...]
    """One per axis."""
    label_width: int
    """Characters of the widest number in a cell, at least 1."""
    coordinate_width: int
    """Characters of the widest coordinate, written with commas."""
    is_numbered_by_offset: bool
    """Whether the numbers in the cells are offsets, and not row-major indices."""
    grid: Grid
    """The logical tensor."""
    strip: Strip
    """Its memory."""

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
