"""A scene as text for a terminal or a file.

A terminal says how wide it is, how many colors it has and which characters. Color is used where standard output is a
terminal that has it. NO_COLOR (any value) turns it off, FORCE_COLOR on, as https://no-color.org and
https://force-color.org ask. Box drawing is used where the encoding has it. No line is longer than the terminal is wide.

Cells of one block share a background color. Where there is no color, where the user chose the colors of the terminal,
and where blocks repeat colors, they share a letter before the number too: `C17` is element 17 in a block of letter C.
Padding is hatched, memory that belongs to no element is dotted. A heat map has a digit for each tenth of the addresses.
"""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TextIO, TypeAlias

from inlay.render.colors import HEAT_256, TERMINAL_16, TERMINAL_256
from inlay.render.legend import Legend
from inlay.render.scene import VALUE, Cell, Elision, Grid, HeatMap, Plane, SampledAxis, Scene, Shelf, StripRow

Colors = Literal[0, 16, 256]

NARROWEST, WIDEST = 20, 400
"""The widths, in characters, that a picture can have."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters a picture is made of; all are one column wide."""

    walls: str
    """Left of a cell: no wall, then the levels of walls of `blocks`, from groups to blocks."""
    hatch: str
    """Fills padding."""
    gap: str
    """Fills memory that belongs to no element."""
    across: str
    """Something is left out to the right."""
    down: str
    """Something is left out below."""


UNICODE = Glyphs(" ┊│┃", "╱", "·", "⋯", "⋮")
ASCII = Glyphs(" .:|", "/", "-", "~", ":")


@dataclass(frozen=True, slots=True)
class Terminal:
    """The capabilities of a terminal that a picture may use."""

    width: int = 80
    """Characters across."""
    colors: Colors = 0
    """Number of colors."""
    glyphs: Glyphs = UNICODE
    """The characters to draw with."""


def this_terminal() -> Terminal:
    """Return the capabilities of standard output now; 80 characters without color if it is no terminal."""
    columns = shutil.get_terminal_size((80, 24)).columns
    # A process without a console, or one whose output is closed, has no stream at all.
    stream = sys.stdout or io.StringIO()
    return Terminal(min(max(columns, NARROWEST), WIDEST), color_depth(stream), glyphs_of(stream))


def color_depth(stream: TextIO) -> Colors:
    """Return how many colors `stream` shows, by what it is and by the environment."""
    term = os.environ.get("TERM", "")
    forced = bool(os.environ.get("FORCE_COLOR"))
    if os.environ.get("NO_COLOR") or (not forced and (term == "dumb" or not stream.isatty())):
        return 0
    return 256 if "256" in term or os.environ.get("COLORTERM") in ("truecolor", "24bit") else 16


def glyphs_of(stream: TextIO) -> Glyphs:
    """Box drawing where the encoding of `stream` has it, plain ASCII otherwise."""
    wanted = UNICODE.walls + UNICODE.hatch + UNICODE.gap + UNICODE.across + UNICODE.down
    try:
        # A stream without an encoding, such as StringIO, keeps characters as they are.
        wanted.encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


Span: TypeAlias = tuple[str, str]
"""Characters, and the parameters of the escape sequence that styles them; empty for none."""

SHARED = "several coordinates share the element; memory names the first"
"""The meaning of a plus after a number."""

_BOLD, _DIM = "1", "2"
_BLACK, _WHITE = 16, 231
"""Black and white of 256 colors."""
_FACT_WIDTH = 8
_ELISION_WIDTH = 5


def draw_text(legend: Legend, scene: Scene | None, terminal: Terminal) -> str:
    """The words and, where there is one, the scene below them; lines end in a newline, except the last."""
    drawing = TextDrawing(terminal)
    lines = [*drawing.words(legend)]
    if scene is not None:
        lines += [[], *drawing.grid(scene), *drawing.heat_map(scene.heat_map)]
        lines += [[], *drawing.strip(scene), [], *drawing.key(scene)]
    return drawing.finished(lines)


def shows_letters(colors: Colors, has_letters: bool) -> bool:
    """Return whether letters mark the blocks: where the 256 colors are missing, or blocks repeat them."""
    return has_letters or colors < 256


class TextDrawing:
    """The parts of a picture as lines of spans."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.glyphs = terminal.glyphs
        self.has_letters = False
        self.gap = ""

    def finished(self, lines: Iterable[Sequence[Span]]) -> str:
        """The text of these lines."""
        return "\n".join(_line(line, self.terminal) for line in lines)

    def _mark_blocks(self, scene: Scene) -> None:
        """Note if letters mark the blocks of a scene; one and a value such as 1.5 need a space between them."""
        self.has_letters = shows_letters(self.terminal.colors, scene.has_letters)
        self.gap = " " * (self.has_letters and scene.numbers == VALUE)

    def words(self, legend: Legend) -> Iterator[list[Span]]:
        """Yield the lines of the legend: title, facts with their names, note."""
        yield from ([(line, _BOLD)] for line in self._wrapped(legend.title))
        for name, fact in legend.facts:
            for i, line in enumerate(self._wrapped(fact, _FACT_WIDTH)):
                yield [(("" if i else name).ljust(_FACT_WIDTH), _DIM), (line, "")]
        yield from ([(line, "")] for line in self._wrapped(legend.note))

    def _wrapped(self, text: str, indent: int = 0) -> list[str]:
        """Return `text` in lines of the terminal's width less `indent` characters."""
        return textwrap.wrap(text, self.terminal.width - indent, break_on_hyphens=False)

    def grid(self, scene: Scene) -> Iterator[list[Span]]:
        """Yield the lines of the tensor: heading, each shelf (a row of planes side by side), count of hidden planes."""
        grid = scene.grid
        self._mark_blocks(scene)
        yield from ([(line, _BOLD)] for line in self._wrapped(f"Tensor: {grid_words(grid)}"))
        gutter = self._gutter(grid)
        for i, shelf in enumerate(grid.shelves):
            if isinstance(shelf, Elision):
                yield [(f"{self.glyphs.down} {shelf.count} more", _DIM)]
            else:
                yield from self._shelf(scene, shelf, gutter)
            if i < len(grid.shelves) - 1 and grid.row_name:
                yield []
        yield from ([(line, _DIM)] for line in self._wrapped(self._left_out(grid)))

    def _gutter(self, grid: Grid) -> int:
        """Return the number of characters left of the cells: the longest row name or shelf title, and a space."""
        titles = [len(shelf.title) for shelf in grid.shelves if isinstance(shelf, Shelf)]
        last = max((row for row in grid.rows if isinstance(row, int)), default=0)
        row = len(f"{grid.row_name}={last}") if grid.row_name else 0
        return max([row, *titles]) + 1

    def _left_out(self, grid: Grid) -> str:
        """Return the words on hidden planes, rows and columns; an empty text if all are shown."""
        hidden = [(grid.planes, grid.planes_shown, "planes")]
        for picks, word in ((grid.rows, "rows"), (grid.columns, "columns")):
            shown = sum(isinstance(item, int) for item in picks)
            hidden.append((shown + sum(e.count for e in picks if isinstance(e, Elision)), shown, word))
        words = [
            f"{total - shown} more {word} ({shown} of {total} shown)" for total, shown, word in hidden if shown < total
        ]
        return f"{self.glyphs.across} {', '.join(words)}" if words else ""

    def _shelf(self, scene: Scene, shelf: Shelf, gutter: int) -> Iterator[list[Span]]:
        """Yield the lines of a shelf: titles of its planes, column numbers, and a line for each row."""
        grid, width = scene.grid, self._cell_width(scene)
        if shelf.title or any(isinstance(p, Elision) or p.title for p in shelf.planes):
            titles = [self._title(plane, self._plane_width(grid, plane, width)) for plane in shelf.planes]
            yield [(shelf.title.ljust(gutter), _BOLD), *titles]
        if any(isinstance(row, int) for row in grid.rows):
            yield [(" " * gutter, ""), *self._headings(grid, shelf, width)]
        for i, row in enumerate(grid.rows):
            yield [(self._row_name(grid, i, row).ljust(gutter), _DIM), *self._row(grid, shelf, i, width)]

    def _cell_width(self, scene: Scene) -> int:
        """Return the number of characters of a cell: border, letter of the block where there are no colors, label."""
        return scene.label_width + 1 + self.has_letters

    def _plane_width(self, grid: Grid, plane: Plane | Elision, width: int) -> int:
        """Return the number of characters of a plane, or of the mark of hidden planes."""
        if isinstance(plane, Elision):
            return _ELISION_WIDTH
        return max(len(grid.columns) * width, len(plane.title)) + 1

    def _title(self, plane: Plane | Elision, width: int) -> Span:
        """Return the title of a plane, or the number of hidden planes."""
        if isinstance(plane, Elision):
            count = f"+{plane.count}"
            return ((count if len(count) < width else self.glyphs.across).center(width), _DIM)
        return (f" {plane.title}".ljust(width), _BOLD)

    def _headings(self, grid: Grid, shelf: Shelf, width: int) -> Iterator[Span]:
        """Yield the column numbers of each plane of a shelf."""
        for plane in shelf.planes:
            text = ""
            for i, column in enumerate(grid.columns) if isinstance(plane, Plane) else ():
                name = f"{grid.column_name}=" if i == 0 else ""
                word = self.glyphs.across if isinstance(column, Elision) else f"{name}{column}"
                text += (word if len(word) < width else str(column)).rjust(width)
            yield (text.ljust(self._plane_width(grid, plane, width)), _DIM)

    def _row_name(self, grid: Grid, i: int, row: int | Elision) -> str:
        """Return the name of row `i` of the grid: axis and number in the first row, then the number."""
        if isinstance(row, Elision):
            return self.glyphs.down
        return (
            "" if not grid.row_name else f"{grid.row_name}={row}" if i == 0 else str(row).rjust(len(grid.row_name) + 2)
        )

    def _row(self, grid: Grid, shelf: Shelf, i: int, width: int) -> Iterator[Span]:
        """Yield the cells of row `i` of each plane of a shelf."""
        for plane in shelf.planes:
            whole = self._plane_width(grid, plane, width)
            if isinstance(plane, Elision):
                yield ((self.glyphs.across if i == len(grid.rows) // 2 else "").center(whole), _DIM)
                continue
            for column, cell in zip(grid.columns, plane.cells[i], strict=True):
                mark = self.glyphs.across if isinstance(column, Elision) else self.glyphs.down
                yield (mark.rjust(width), _DIM) if cell is None else self._cell(cell, width)
            yield (" " * (whole - len(grid.columns) * width), "")

    def strip(self, scene: Scene, heading: str = "Memory") -> Iterator[list[Span]]:
        """Yield the lines of memory: a heading, and for each row its first offset, coordinate and cells."""
        strip = scene.strip
        self._mark_blocks(scene)
        yield from ([(line, _BOLD)] for line in self._wrapped(f"{heading}: {strip_words(scene)}"))
        prefix = scene.offset_width
        for row in strip.rows:
            if isinstance(row, Elision):
                words = f"{self.glyphs.down} {row.count} more, offsets {row.first} to {row.last}"
                yield [(" " * (prefix - 1) + words, _DIM)]
            else:
                cells = [self._cell(cell, self._cell_width(scene)) for cell in row.cells]
                yield [(self._beside(scene, row), _DIM), *cells]

    def _beside(self, scene: Scene, row: StripRow) -> str:
        """Return the text left of a row of memory: its first offset and, where there is room, its coordinate."""
        offset = f"{row.offset:>{scene.offset_width}}: "
        if not scene.strip.has_coordinates:
            return offset
        return offset + coordinate_text(row.cells[0]).ljust(scene.coordinate_width) + " "

    def _cell(self, cell: Cell, width: int) -> Span:
        """Return a cell of `width` characters, of which the first is the wall on its left."""
        mark = cell.letter if self.has_letters else ""
        room = width - 1
        label = cell.label + "+" * cell.is_shared
        if cell.kind == "gap":
            text = self.glyphs.gap * room
        elif cell.kind == "padding":
            text = mark + label.rjust(room - len(mark), self.glyphs.hatch)
        else:
            text = (mark + (self.gap if mark else "") + label).rjust(room)
        return self.glyphs.walls[cell.wall] + text, self._style(cell)

    def _style(self, cell: Cell) -> str:
        """Return the style of a cell: the background of its block, or dim for a gap and what was not chosen."""
        if cell.color is None:
            return _DIM if cell.kind in ("gap", "other") else ""
        return _on_background(cell.color, self.terminal.colors)

    def heat_map(self, heat: HeatMap | None) -> Iterator[list[Span]]:
        """Yield the lines of a heat map, after an empty one: a heading, and a digit for each cell."""
        if heat is None:
            return
        yield []
        yield from ([(line, _BOLD)] for line in self._wrapped(f"Addresses: {heat_words(heat)}"))
        for row in heat.shares:
            tenths = [min(9, int(10 * share)) for share in row]
            yield [(f"{tenth}", self._shade(tenth)) for tenth in tenths]
        ends = f"0 is offset {heat.lowest}, 9 is up to offset {heat.highest}"
        yield from ([(line, _DIM)] for line in self._wrapped(ends))

    def _shade(self, tenth: int) -> str:
        """Return the style of a cell of a heat map."""
        if self.terminal.colors < 256:
            return ""
        return f"38;5;{_WHITE if tenth < 5 else _BLACK};48;5;{HEAT_256[tenth]}"

    def key(self, scene: Scene, of_source: str = "") -> Iterator[list[Span]]:
        """Yield the lines that explain one example of each kind of cell, and each level of walls."""
        width = self._cell_width(scene)
        letter = f"the letter of its block{of_source}, " if self.has_letters else ""
        for example, meaning in examples(scene, letter):
            yield from self._meaning(self._cell(replace(example, wall=0), width), meaning)
        if any(cell.is_shared for cell in scene.cells):
            yield from self._meaning(("+".rjust(width), ""), SHARED)
        for level, meaning in scene.walls:
            yield from self._meaning((self.glyphs.walls[level].rjust(width), ""), meaning)

    def _meaning(self, example: Span, words: str) -> Iterator[list[Span]]:
        """Yield the lines of an explanation, the first with its example."""
        indent = len(example[0]) + 2
        for i, line in enumerate(self._wrapped(words, min(indent, self.terminal.width // 2))):
            yield [(" " * indent, "") if i else example, ("" if i else "  ", ""), (line, "")]


def grid_words(grid: Grid) -> str:
    """Return the heading of the grid: the coordinates that were chosen, and the axes of a plane."""
    at = f"at {grid.fixed}; " if grid.fixed else ""
    down = f"{grid.row_name} runs down, " if grid.row_name else ""
    return f"{at}{down}{grid.column_name} across"


def strip_words(scene: Scene) -> str:
    """Return the heading of the strip: the offsets that it shows, and the meaning of its row labels."""
    beside = f"offset: {','.join(scene.names)}" if scene.strip.has_coordinates else "offset"
    return f"offsets {scene.strip.start} to {scene.strip.stop - 1}; rows begin with {beside}"


def heat_words(heat: HeatMap) -> str:
    """Return the heading of a heat map: its axes, and how many coordinates of each it has."""
    down, across = (", ".join(map(_sampled_words, axes)) for axes in (heat.down, heat.across))
    return f"{down} run{'s' * (len(heat.down) == 1)} down; {across} across" if down else f"{across} across"


def _sampled_words(axis: SampledAxis) -> str:
    """Return the name of an axis of a heat map, and the share of it that is shown."""
    return axis.name if axis.shown == axis.extent else f"{axis.name} ({axis.shown} of {axis.extent})"


def examples(scene: Scene, before_number: str = "") -> Iterator[tuple[Cell, str]]:
    """The first cell of each kind that is shown, with what it means."""
    meanings = {
        "data": f"element, {before_number}{scene.numbers}",
        "padding": "padding, kept zero",
        "dirty": "padding that is not zero",
        "gap": "gap, belongs to no element",
        "other": "element that was not chosen",
    }
    found: dict[str, Cell] = {}
    for cell in scene.cells:
        is_dirty = cell.kind == "padding" and cell.label and scene.numbers == VALUE
        found.setdefault("dirty" if is_dirty else cell.kind, cell)
    yield from ((found[kind], meaning) for kind, meaning in meanings.items() if kind in found)


def coordinate_text(cell: Cell) -> str:
    """The coordinate of a cell, such as `0,16,4,3`; a dash for a gap."""
    return "-" if cell.coordinate is None else ",".join(map(str, cell.coordinate))


def _on_background(color: int, depth: Colors) -> str:
    """Return the parameters of the escape sequence for black on a color of `TERMINAL_256` or `TERMINAL_16`.

    Terminals may show the black of 16 colors as grey, but not that of 256.
    """
    return f"38;5;{_BLACK};48;5;{TERMINAL_256[color]}" if depth == 256 else f"30;{TERMINAL_16[color]}"


def _line(spans: Iterable[Span], terminal: Terminal) -> str:
    """One line of at most the width of the terminal, without trailing blanks, in color where there is any."""
    room = terminal.width
    parts: list[Span] = []
    for text, style in spans:
        parts.append((text[:room], style))
        room -= len(parts[-1][0])
    if not terminal.colors:
        return "".join(text for text, _ in parts).rstrip()
    while parts and not parts[-1][0].strip() and "4" not in parts[-1][1]:
        parts.pop()
    return "".join(f"\x1b[{style}m{text}\x1b[0m" if style and text else text for text, style in parts)
