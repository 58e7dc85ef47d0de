"""A scene as SVG: one self-contained drawing for pages and notebooks, light and dark.

Every cell is a rectangle in the color of its block with its number on it; its tooltip says coordinate and offset.
Padding is hatched over that color, memory that belongs to no element is an empty dashed box. Where blocks repeat
colors, the first cell of each run has the letter of its block. Lines are walls: thick between blocks, thin between rows
of a block, dashed between smaller groups. Readers that do not see it get the words of the legend as the description.
"""

import textwrap
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from xml.etree import ElementTree

from inlay.data_type import DataType
from inlay.errors import printable_lines
from inlay.render.colors import CHALK, DARK, INK, LIGHT, heat_color
from inlay.render.legend import Legend
from inlay.render.scene import Cell, Elision, Grid, HeatMap, Plane, Scene, Shelf
from inlay.render.text import SHARED, coordinate_text, examples, grid_words, heat_words, strip_words

_EM = 7.25
"""Pixels of one character of a number."""
CELL = 26
"""Pixels from one row of cells to the next."""
_LINE = 19
"""Pixels from one line of words to the next."""
_MARGIN = 20
"""Pixels around a picture."""
_FACT = 62
_ELISION = 44
_WORDS = 96
"""Characters of a line of words."""
_HEAT_CELL = 8
"""Pixels of a cell of a heat map."""
_WORD_EM = {"title": 9.7, "heading": 8.5, "strong": 7.4}
_HEADING_EM = 8.5
_KEY_WIDTH = 760.0
"""Pixels that the key may fill in a picture that is narrower."""
_ACROSS = "\N{MIDLINE HORIZONTAL ELLIPSIS}"
_SHADES = 64
"""Number of shades of a heat map, interpolated between those of `HEAT`."""


def draw_svg(legend: Legend, scene: Scene | None, data_type: DataType | None) -> str:
    """The words and, where there is one, the scene below them, as one `svg` element.

    `data_type` tells the tooltips at which byte an element lies.
    """
    about = description_of(legend)
    canvas = Canvas(data_type, identity_of((about, scene)))
    canvas.words(legend)
    if scene is not None:
        canvas.grid(scene)
        canvas.heat_map(scene.heat_map)
        canvas.strip(scene)
        canvas.key(scene)
    return canvas.finished(legend.title, about)


def description_of(legend: Legend) -> str:
    """The words of a legend as lines, for readers that do not see the drawing."""
    return "\n".join([legend.title, *(f"{name}: {words}" for name, words in legend.facts), legend.note]).strip()


@dataclass(frozen=True, slots=True)
class _SvgFrame:
    """Positions of the parts of the grid, in pixels."""

    cell: float
    """Width of a cell."""
    gutter: float
    """Width of what stands left of the planes."""

    def plane(self, grid: Grid, plane: Plane | Elision) -> float:
        """Width of a plane, or of what stands for those left out."""
        if isinstance(plane, Elision):
            return _ELISION
        return max(len(grid.columns) * self.cell, len(plane.title) * _EM) + 18


class Canvas:
    """The drawing so far, filled from top to bottom."""

    def __init__(self, data_type: DataType | None, identity: str) -> None:
        self.data_type = data_type
        self.hatch = f"inlay-hatch-{identity}"
        self.identity = identity
        self.body = ElementTree.Element("g")
        self.left = float(_MARGIN)
        self.y = float(_MARGIN)
        self.right = 0.0
        self.words_width = _WORDS

    def finished(self, title: str, about: str) -> str:
        """The whole `svg` element, as large as what was drawn."""
        size = self.right + _MARGIN, self.y + _MARGIN - 6
        return document(
            self.body, "inlay-picture", self.identity, (title, about), size, _style(), self._hatch_pattern()
        )

    def _hatch_pattern(self) -> ElementTree.Element:
        """Return the definition of the hatching of padding."""
        defs = ElementTree.Element("defs")
        size = {"width": "6", "height": "6", "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
        pattern = ElementTree.SubElement(defs, "pattern", {"id": self.hatch, **size})
        ElementTree.SubElement(pattern, "rect", {"class": "stripe", "width": "1.8", "height": "6"})
        return defs

    def text(self, x: float, y: float, words: str, kind: str) -> None:
        """Write `words` at a baseline; `kind` is the class that styles it."""
        ElementTree.SubElement(self.body, "text", {"class": kind, "x": px(x), "y": px(y)}).text = words
        if not kind.startswith(("number", "right", "letter")):
            self.right = max(self.right, x + len(words) * _WORD_EM.get(kind, _EM))

    def box(self, x: float, y: float, width: float, kind: str) -> ElementTree.Element:
        """Draw a rectangle of the height of a cell; `kind` is the class that styles it."""
        box = {"x": px(x), "y": px(y), "width": px(width), "height": px(CELL)}
        self.right = max(self.right, x + width)
        return ElementTree.SubElement(self.body, "rect", {"class": kind, **box})

    def dots(self, x: float, y: float) -> None:
        """Draw three dots under one another around (x, y), which stand for what is left out; fonts may lack them."""
        self.path("dots", f"M{px(x)} {px(y - 4.5)}v.01m0 4.5v.01m0 4.5v.01")

    def path(self, kind: str, outline: str) -> None:
        """Draw lines; `kind` is the class that styles them."""
        if outline:
            ElementTree.SubElement(self.body, "path", {"class": kind, "d": outline})

    def words(self, legend: Legend, kind: str = "title") -> None:
        """The title, the facts and the note."""
        for line in textwrap.wrap(legend.title, self.words_width, break_on_hyphens=False):
            self.text(self.left, self.y + 12, line, kind)
            self.y += _LINE
        self.y += 11
        for name, fact in legend.facts:
            self.text(self.left, self.y + 8, name, "muted")
            for line in textwrap.wrap(fact, self.words_width, break_on_hyphens=False):
                self.text(self.left + _FACT, self.y + 8, line, "words")
                self.y += _LINE
        for line in textwrap.wrap(legend.note, self.words_width):
            self.text(self.left, self.y + 14, line, "words")
            self.y += _LINE

    @property
    def words_width_px(self) -> float:
        """Pixels of the widest line of facts."""
        return _FACT + self.words_width * _EM

    def draw_beside(self, second: float, parts: Sequence[Callable[[], None]]) -> None:
        """Draw two parts beside one another, the second from x = `second` on, and go on below both."""
        top, first, bottoms = self.y, self.left, []
        for left, draw in zip((first, second), parts, strict=True):
            self.left, self.y = left, top
            draw()
            bottoms.append(self.y)
        self.left, self.y = first, max(bottoms)

    def heading(self, words: str, beside: str = "") -> None:
        """The name of a part, and more about it in a quiet voice."""
        self.y += 16
        self.text(self.left, self.y + 12, words, "heading")
        indent = (len(words) + 1.5) * _HEADING_EM
        for line in textwrap.wrap(beside, max(20, int((self.words_width_px - indent) / _EM))):
            self.text(self.left + indent, self.y + 12, line, "muted")
            self.y += _LINE
        self.y += 26 - _LINE if beside else 26

    def cell(self, scene: Scene, x: float, y: float, cell: Cell, before: Cell | None = None) -> None:
        """One cell of a scene with its top left corner at (x, y), and with the letter of its block.

        A cell after one of the same block, `before`, has no letter.
        """
        width = cell_width(scene)
        shape = self.box(x, y, width, _KINDS[cell.kind] if cell.color is None else f"block b{cell.color}")
        ElementTree.SubElement(shape, "title").text = self._tooltip(cell, scene.names)
        if cell.kind == "padding":
            self.box(x, y, width, "over").set("fill", f"url(#{self.hatch})")
        if scene.has_letters and cell.letter and not _continues(before, cell):
            self.text(x + 2.5, y + 8.5, cell.letter, "letter")
        if cell.label:
            label = cell.label + "+" * cell.is_shared
            style = "number quiet" if cell.kind == "other" else "number"
            self.text(x + width / 2, y + CELL / 2 + (7 if scene.has_letters else 4), label, style)

    def _tooltip(self, cell: Cell, names: Sequence[str]) -> str:
        """Return the text that a browser shows for a cell: coordinate, offset and byte."""
        where = f"offset {cell.offset}, {self._byte(cell.offset)}"
        if cell.coordinate is None:
            return f"{where}: belongs to no element"
        at = ", ".join(f"{name}={x}" for name, x in zip(names, cell.coordinate, strict=True))
        padding = " (padding)" if cell.kind == "padding" else ""
        return f"{at}{padding} \N{RIGHTWARDS ARROW} {where}" + (
            ", shared with other coordinates" if cell.is_shared else ""
        )

    def _byte(self, offset: int) -> str:
        """Return the byte of an offset in words."""
        bits = self.data_type.bits if self.data_type is not None else 8
        if bits < 8:
            return f"byte {offset // 2}, {'high' if offset % 2 else 'low'} half"
        return f"byte {offset * bits // 8}"

    def grid(self, scene: Scene) -> None:
        """The logical tensor, shelf under shelf."""
        grid = scene.grid
        self.heading("Tensor", grid_words(grid))
        titles = [shelf.title for shelf in grid.shelves if isinstance(shelf, Shelf)]
        frame = _SvgFrame(cell_width(scene), (max(map(len, [grid.row_name + "=00", *titles])) + 1) * _EM)
        for shelf in grid.shelves:
            if isinstance(shelf, Elision):
                self.dots(self.left + 3, self.y + 4)
                self.text(self.left + 12, self.y + 8, f"{shelf.count} more", "muted")
                self.y += _LINE + 6
            else:
                self._shelf(scene, shelf, frame)
        if grid.planes_shown < grid.planes:
            hidden = grid.planes - grid.planes_shown
            words = f"{hidden} more planes ({grid.planes_shown} of {grid.planes} shown)"
            self.text(self.left, self.y + 4, f"{_ACROSS} {words}", "muted")
            self.y += _LINE

    def _shelf(self, scene: Scene, shelf: Shelf, frame: _SvgFrame) -> None:
        """Draw a shelf: titles of its planes, column numbers, rows of cells."""
        grid = scene.grid
        if shelf.title or any(isinstance(plane, Elision) or plane.title for plane in shelf.planes):
            self.text(self.left, self.y + 8, shelf.title, "strong")
            for x, plane in self._across(grid, shelf, frame):
                if isinstance(plane, Plane):
                    self.text(x, self.y + 8, plane.title, "strong")
            self.y += 14
        top = self.y + 14
        for x, plane in self._across(grid, shelf, frame):
            if isinstance(plane, Plane):
                self._plane(scene, plane, x, top, frame.cell)
            else:
                middle = top + len(grid.rows) * CELL / 2
                self.text(x + _ELISION / 2 - 9, middle, _ACROSS, "middle")
                self.text(x + _ELISION / 2 - 9, middle + 15, f"{plane.count}", "middle")
        for i, row in enumerate(grid.rows if grid.row_name else ()):
            middle = top + (i + 0.5) * CELL
            if isinstance(row, Elision):
                self.dots(self.left + frame.gutter - 12, middle)
                continue
            name = f"{grid.row_name}={row}" if i == 0 else f"{row}"
            self.text(self.left + frame.gutter - 8, middle + 4, name, "right")
        self.y = top + len(grid.rows) * CELL + 18

    def _across(self, grid: Grid, shelf: Shelf, frame: _SvgFrame) -> Iterator[tuple[float, Plane | Elision]]:
        """Yield each plane of a shelf with its left edge."""
        x = self.left + frame.gutter
        for plane in shelf.planes:
            yield x, plane
            x += frame.plane(grid, plane)

    def _plane(self, scene: Scene, plane: Plane, x: float, top: float, width: float) -> None:
        """Draw a plane with its column numbers."""
        for j, column in enumerate(scene.grid.columns):
            name = f"{scene.grid.column_name}=" if j == 0 and width > 3.5 * _EM else ""
            word = _ACROSS if isinstance(column, Elision) else f"{name}{column}"
            self.text(x + (j + 0.5) * width, top - 5, word, "middle")
        for i, row in enumerate(plane.cells):
            before = None
            for j, cell in enumerate(row):
                if cell is not None:
                    self.cell(scene, x + j * width, top + i * CELL, cell, before)
                elif isinstance(scene.grid.columns[j], Elision):
                    self.text(x + (j + 0.5) * width, top + (i + 0.5) * CELL + 4, _ACROSS, "middle")
                else:
                    self.dots(x + (j + 0.5) * width, top + (i + 0.5) * CELL)
                before = cell
        self._walls(x, top, width, plane.cells)

    def _walls(self, x: float, top: float, width: float, rows: Sequence[Sequence[Cell | None]]) -> None:
        """Draw the walls between the cells of rows that are under one another, the thickest last."""
        outlines: dict[int, list[str]] = {}
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                if cell is not None and cell.wall:
                    outlines.setdefault(cell.wall, []).append(f"M{px(x + j * width)} {px(top + i * CELL)}v{CELL}")
                if cell is not None and cell.wall_above:
                    start = f"M{px(x + j * width)} {px(top + i * CELL)}h{px(width)}"
                    outlines.setdefault(cell.wall_above, []).append(start)
        for level in sorted(outlines):
            self.path(f"wall w{level}", "".join(outlines[level]))

    def heat_map(self, heat: HeatMap | None) -> None:
        """The addresses of a large tensor as shades, with their scale."""
        if heat is None:
            return
        self.heading("Addresses", heat_words(heat))
        outlines: dict[int, list[str]] = {}
        for i, row in enumerate(heat.shares):
            shades = [min(_SHADES - 1, int(_SHADES * share)) for share in row]
            j = 0
            for shade, run in groupby(shades):
                length = len(list(run))
                start = f"M{px(self.left + j * _HEAT_CELL)} {px(self.y + i * _HEAT_CELL)}"
                outlines.setdefault(shade, []).append(
                    f"{start}h{length * _HEAT_CELL}v{_HEAT_CELL}h-{length * _HEAT_CELL}z"
                )
                j += length
        for shade in sorted(outlines):
            self._shade(shade, "".join(outlines[shade]))
        self.right = max(self.right, self.left + len(heat.shares[0]) * _HEAT_CELL)
        self.y += len(heat.shares) * _HEAT_CELL + 8
        self._heat_scale(heat)

    def _heat_scale(self, heat: HeatMap) -> None:
        """Draw the shades with the lowest and the highest offset."""
        lowest = f"offset {heat.lowest}"
        self.text(self.left, self.y + 11, lowest, "muted")
        x = self.left + (len(lowest) + 1) * _EM
        for shade in range(_SHADES):
            self._shade(shade, f"M{px(x + shade * 3)} {px(self.y)}h3v14h-3z")
        self.text(x + _SHADES * 3 + _EM, self.y + 11, f"offset {heat.highest}", "muted")
        self.y += _LINE

    def _shade(self, shade: int, outline: str) -> None:
        """Fill an area of a heat map."""
        ElementTree.SubElement(
            self.body, "path", {"class": "shade", "fill": heat_color(shade / (_SHADES - 1)), "d": outline}
        )

    def strip_width(self, scene: Scene) -> float:
        """Pixels of the widest row of memory."""
        return _strip_gutter(scene) + scene.strip.row_length * cell_width(scene)

    def strip(self, scene: Scene, heading: str = "Memory") -> None:
        """Memory, row under row."""
        strip, width = scene.strip, cell_width(scene)
        self.heading(heading, strip_words(scene))
        left = self.left + (scene.offset_width + 1) * _EM
        x = self.left + _strip_gutter(scene)
        for row in strip.rows:
            if isinstance(row, Elision):
                self.dots(x + 3, self.y + 10)
                self.text(x + 14, self.y + 14, f"{row.count} more, offsets {row.first} to {row.last}", "muted")
                self.y += CELL - 3
                continue
            baseline = self.y + CELL / 2 + 4
            self.text(left - _EM, baseline, str(row.offset), "right strong")
            if strip.has_coordinates:
                self.text(left + 4, baseline, coordinate_text(row.cells[0]), "muted")
            for i, (before, cell) in enumerate(pairwise((None, *row.cells))):
                assert cell is not None
                self.cell(scene, x + i * width, self.y, cell, before)
            if strip.row_length > 1:
                self._walls(x, self.y, width, [row.cells])
            self.y += CELL + 4

    def key(self, scene: Scene, of_source: str = "") -> None:
        """Draw the meaning of each kind of cell and of each level of walls."""
        self.y += 12
        width = cell_width(scene)
        letter = f"the letter of its block{of_source}, " if scene.has_letters else ""
        x = self.left
        for example, meaning in examples(scene, letter):
            x = self._place_key(x, width + 8 + (len(meaning) + 3) * _EM)
            self.cell(scene, x, self.y, example)
            self.text(x + width + 8, self.y + CELL / 2 + 4, meaning, "muted")
            x += width + 8 + (len(meaning) + 3) * _EM
        for level, meaning in scene.walls:
            x = self._place_key(x, 14 + (len(meaning) + 3) * _EM)
            self.path(f"wall w{level}", f"M{px(x + 2)} {px(self.y)}v{CELL}")
            self.text(x + 10, self.y + CELL / 2 + 4, meaning, "muted")
            x += 10 + (len(meaning) + 3) * _EM
        self.y += CELL
        if any(cell.is_shared for cell in scene.cells):
            self.text(self.left + width / 2, self.y + 18, "+", "middle")
            self.text(self.left + width + 8, self.y + 18, SHARED, "muted")
            self.y += _LINE + 4

    def _place_key(self, x: float, width: float) -> float:
        """Return where an entry of the key begins: at `x`, or below if it does not fit there."""
        if x == self.left or x + width <= max(self.right, _KEY_WIDTH):
            return x
        self.y += CELL + 5
        return self.left


def _strip_gutter(scene: Scene) -> float:
    """Return the pixels left of the cells of memory: offset and coordinate of the first."""
    return (scene.offset_width + 1 + (scene.coordinate_width + 2) * scene.strip.has_coordinates) * _EM + 8


_KINDS = {"gap": "gap", "padding": "bare", "other": "bare", "data": "bare"}
"""The class of a cell without a color."""


def _continues(before: Cell | None, cell: Cell) -> bool:
    """Return whether a cell belongs to the block of the cell on its left, which has its letter."""
    return (
        before is not None and before.color is not None and (before.color, before.letter) == (cell.color, cell.letter)
    )


def cell_width(scene: Scene) -> float:
    """Return the width of a cell in pixels."""
    return max(26.0, (scene.label_width + 1) * _EM + 3)


def _style() -> str:
    """The style sheet: every rule under the class of the picture, since a notebook has one page for all of them."""
    fills = "".join(f" .inlay-picture .b{i}{{fill:{color}}}" for i, color in enumerate(LIGHT))
    dark = "".join(f" .inlay-picture .b{i}{{fill:{color}}}" for i, color in enumerate(DARK))
    return textwrap.dedent(f"""
    .inlay-picture text{{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{INK}}}
    .inlay-picture .title{{font-size:16px;font-weight:bold}}
    .inlay-picture .heading{{font-size:14px;font-weight:bold}}
    .inlay-picture .strong{{font-weight:bold}}
    .inlay-picture .muted,.inlay-picture .middle,.inlay-picture .right{{fill:#59636e}}
    .inlay-picture .middle,.inlay-picture .number{{text-anchor:middle}}
    .inlay-picture .right{{text-anchor:end}}
    .inlay-picture .number,.inlay-picture .letter,.inlay-picture .over{{pointer-events:none}}
    .inlay-picture .letter{{font-size:8.5px;fill-opacity:.75}}
    .inlay-picture .quiet{{fill:#59636e}}
    .inlay-picture .page{{fill:#fff}}
    .inlay-picture .block{{stroke:#fff;stroke-width:1}}
    .inlay-picture .stripe{{fill:{INK};fill-opacity:.26}}
    .inlay-picture .gap{{fill:none;stroke:#8b949e;stroke-width:1;stroke-dasharray:2 3}}
    .inlay-picture .shade{{shape-rendering:crispEdges}}
    .inlay-picture .dots{{fill:none;stroke:#59636e;stroke-width:2.2;stroke-linecap:round}}
    .inlay-picture .bare{{fill:none;stroke:#d0d7de;stroke-width:1}}
    .inlay-picture .wall{{fill:none;stroke:{INK}}}
    .inlay-picture .w3{{stroke-width:2.4}}
    .inlay-picture .w2{{stroke-width:1.3;stroke-opacity:.8}}
    .inlay-picture .w1{{stroke-width:1.1;stroke-opacity:.75;stroke-dasharray:2.5 2.5}}
    {fills}
    @media (prefers-color-scheme:dark){{
    .inlay-picture text{{fill:{CHALK}}}
    .inlay-picture .muted,.inlay-picture .middle,.inlay-picture .right{{fill:#9da7b3}}
    .inlay-picture .page{{fill:#15191f}}
    .inlay-picture .block{{stroke:#15191f}}
    .inlay-picture .stripe{{fill:{CHALK};fill-opacity:.26}}
    .inlay-picture .gap{{stroke:#6e7681}}
    .inlay-picture .dots{{stroke:#9da7b3}}
    .inlay-picture .bare{{stroke:#3d444d}}
    .inlay-picture .wall{{stroke:{CHALK}}}
    .inlay-picture .quiet{{fill:#9da7b3}}
    {dark}
    }}
    """)


def px(value: float) -> str:
    """Pixels as an attribute, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def identity_of(words: object) -> str:
    """Eight digits made from what a picture says: names inside it differ where several pictures share a page."""
    return f"{zlib.crc32(repr(words).encode()):08x}"


def document(
    body: ElementTree.Element,
    kind: str,
    identity: str,
    words: tuple[str, str],
    size: tuple[float, float],
    style: str,
    *defs: ElementTree.Element,
) -> str:
    """A self-contained `svg` element of class `kind` that shows `body` on a page; `words` are title and description."""
    width, height = map(px, size)
    names = [f"inlay-title-{identity}", f"inlay-desc-{identity}"]
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "class": kind,
        "role": "img",
        "aria-labelledby": " ".join(names),
    }
    box = {"width": width, "height": height}
    svg = ElementTree.Element("svg", {**attributes, "viewBox": f"0 0 {width} {height}", **box})
    for tag, name, text in zip(("title", "desc"), names, words, strict=True):
        ElementTree.SubElement(svg, tag, {"id": name}).text = text
    ElementTree.SubElement(svg, "style").text = style
    svg.extend(defs)
    ElementTree.SubElement(svg, "rect", {"class": "page", **box, "rx": "8"})
    svg.append(body)
    ElementTree.indent(svg, "")
    return markup_of(svg)


def markup_of(root: ElementTree.Element) -> str:
    r"""`root` as XML with a line end; characters that XML has not, such as control codes, are written as escapes.

    >>> svg = ElementTree.Element("svg", {"id": "a\0"})
    >>> svg.text = "\x1b[31m <b>"
    >>> print(markup_of(svg), end="")
    <svg id="a\x00">\x1b[31m &lt;b&gt;</svg>
    """
    for element in root.iter():
        element.text = printable_lines(element.text or "") or None
        for name, value in element.items():
            element.set(name, printable_lines(value))
    return ElementTree.tostring(root, encoding="unicode") + "\n"
