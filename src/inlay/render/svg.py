"""A scene as SVG: one self-contained drawing for pages and notebooks, light and dark.

Every cell is a rectangle in the color of its block with its number on it; its tooltip says coordinate and offset.
Padding is hatched over that color, memory that belongs to no element is an empty dashed box. A line marks where a block
begins in memory. Readers that do not see it get the words of the legend as the description.
"""

import textwrap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from inlay.data_type import DataType
from inlay.errors import printable_lines
from inlay.render.legend import Legend
from inlay.render.scene import OFFSET, Cell, Elision, Grid, Plane, Scene, Shelf, Strip
from inlay.render.text import CHALK, DARK, INK, LIGHT, SHARED, coordinate_text, examples, strip_words

_EM = 7.25
"""Pixels of one character of a number."""
_CELL = 23
"""Pixels from one row of cells to the next."""
_LINE = 19
"""Pixels from one line of words to the next."""
_MARGIN = 20
_FACT = 62
_ELISION = 44
_WORDS = 96
"""Characters of a line of words."""
_ACROSS, _DOWN = "\N{MIDLINE HORIZONTAL ELLIPSIS}", "\N{VERTICAL ELLIPSIS}"


def draw_svg(legend: Legend, scene: Scene | None, data_type: DataType | None) -> str:
    """The words and, where there is one, the scene below them, as one `svg` element.

    `data_type` tells the tooltips at which byte an element lies.
    """
    about = "\n".join([legend.title, *(f"{name}: {words}" for name, words in legend.facts), legend.note]).strip()
    canvas = _Canvas(data_type, identity_of((about, scene and scene.numbers == OFFSET)))
    canvas.words(legend)
    if scene is not None:
        canvas.grid(scene)
        canvas.strip(scene)
        canvas.key(scene)
    return canvas.finished(legend.title, about)


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


class _Canvas:
    """The drawing so far, filled from top to bottom."""

    def __init__(self, data_type: DataType | None, identity: str) -> None:
        self.data_type = data_type
        self.hatch = f"inlay-hatch-{identity}"
        self.identity = identity
        self.body = ElementTree.Element("g")
        self.y = float(_MARGIN)
        self.right = 0.0

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
        if not kind.startswith(("number", "right")):
            self.right = max(self.right, x + len(words) * _EM)

    def words(self, legend: Legend) -> None:
        """The title, the facts and the note."""
        self.text(_MARGIN, self.y + 12, legend.title, "title")
        self.y += 30
        for name, fact in legend.facts:
            self.text(_MARGIN, self.y + 8, name, "muted")
            for line in textwrap.wrap(fact, _WORDS, break_on_hyphens=False):
                self.text(_MARGIN + _FACT, self.y + 8, line, "words")
                self.y += _LINE
        for line in textwrap.wrap(legend.note, _WORDS):
            self.text(_MARGIN, self.y + 14, line, "words")
            self.y += _LINE

    def heading(self, words: str, beside: str = "") -> None:
        """The name of a part, and more about it in a quiet voice."""
        self.y += 16
        self.text(_MARGIN, self.y + 12, words, "heading")
        self.text(_MARGIN + (len(words) + 1.5) * 8, self.y + 12, beside, "muted")
        self.y += 26

    def cell(self, x: float, y: float, width: float, cell: Cell, names: Sequence[str]) -> None:
        """One cell with its top left corner at (x, y)."""
        box = {"x": px(x), "y": px(y), "width": px(width), "height": px(_CELL)}
        kind = "gap" if cell.kind == "gap" else f"block b{cell.color}"
        shape = ElementTree.SubElement(self.body, "rect", {"class": kind, **box})
        ElementTree.SubElement(shape, "title").text = self._tooltip(cell, names)
        if cell.kind == "padding":
            ElementTree.SubElement(self.body, "rect", {"class": "over", "fill": f"url(#{self.hatch})", **box})
        if cell.label:
            label = cell.label + "+" * cell.is_shared
            self.text(x + width / 2, y + _CELL / 2 + 4, label, "number faint" if cell.kind == "padding" else "number")
        self.right = max(self.right, x + width)

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
        down = f"{grid.row_name} runs down, " if grid.row_name else ""
        self.heading("Tensor", f"{down}{grid.column_name} across")
        titles = [shelf.title for shelf in grid.shelves if isinstance(shelf, Shelf)]
        frame = _SvgFrame(_cell_width(scene), (max(map(len, [grid.row_name + "=00", *titles])) + 1) * _EM)
        for shelf in grid.shelves:
            if isinstance(shelf, Elision):
                self.text(_MARGIN, self.y + 8, f"{_DOWN} {shelf.count} more", "muted")
                self.y += _LINE + 6
            else:
                self._shelf(scene, shelf, frame)
        if grid.planes_shown < grid.planes:
            hidden = grid.planes - grid.planes_shown
            words = f"{hidden} more planes ({grid.planes_shown} of {grid.planes} shown)"
            self.text(_MARGIN, self.y + 4, f"{_ACROSS} {words}", "muted")
            self.y += _LINE

    def _shelf(self, scene: Scene, shelf: Shelf, frame: _SvgFrame) -> None:
        """Draw a shelf: titles of its planes, column numbers, rows of cells."""
        grid = scene.grid
        if shelf.title or any(isinstance(plane, Elision) or plane.title for plane in shelf.planes):
            self.text(_MARGIN, self.y + 8, shelf.title, "strong")
            for x, plane in self._across(grid, shelf, frame):
                if isinstance(plane, Plane):
                    self.text(x, self.y + 8, plane.title, "strong")
            self.y += 14
        top = self.y + 14
        for x, plane in self._across(grid, shelf, frame):
            if isinstance(plane, Plane):
                self._plane(scene, plane, x, top, frame.cell)
            else:
                middle = top + len(grid.rows) * _CELL / 2
                self.text(x + _ELISION / 2 - 9, middle, _ACROSS, "middle")
                self.text(x + _ELISION / 2 - 9, middle + 15, f"{plane.count}", "middle")
        for i, row in enumerate(grid.rows if grid.row_name else ()):
            name = _DOWN if isinstance(row, Elision) else f"{grid.row_name}={row}" if i == 0 else f"{row}"
            self.text(_MARGIN + frame.gutter - 8, top + i * _CELL + 16, name, "right")
        self.y = top + len(grid.rows) * _CELL + 18

    def _across(self, grid: Grid, shelf: Shelf, frame: _SvgFrame) -> Iterator[tuple[float, Plane | Elision]]:
        """Yield each plane of a shelf with its left edge."""
        x = _MARGIN + frame.gutter
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
            for j, cell in enumerate(row):
                if cell is not None:
                    self.cell(x + j * width, top + i * _CELL, width, cell, scene.names)
                else:
                    across = isinstance(scene.grid.columns[j], Elision)
                    mark = _ACROSS if across else _DOWN
                    self.text(x + (j + 0.5) * width, top + i * _CELL + 16, mark, "middle")

    def strip(self, scene: Scene) -> None:
        """Memory, row under row."""
        strip, width = scene.strip, _cell_width(scene)
        self.heading("Memory", strip_words(scene))
        left = _MARGIN + (scene.offset_width + 1) * _EM
        x = left + (scene.coordinate_width + 2) * _EM * strip.has_coordinates + 8
        for row in strip.rows:
            if isinstance(row, Elision):
                words = f"{_DOWN}  {row.count} more, offsets {row.first} to {row.last}"
                self.text(x, self.y + 14, words, "muted")
                self.y += _CELL - 1
                continue
            self.text(left - _EM, self.y + 16, str(row.offset), "right strong")
            if strip.has_coordinates:
                self.text(left + 4, self.y + 16, coordinate_text(row.cells[0]), "muted")
            for i, cell in enumerate(row.cells):
                self.cell(x + i * width, self.y, width, cell, scene.names)
            self._edges(strip, row.cells, x, width)
            self.y += _CELL + 4

    def _edges(self, strip: Strip, cells: Sequence[Cell], x: float, width: float) -> None:
        """Draw a wall left of each cell that starts a block."""
        starts = [x + i * width for i, cell in enumerate(cells) if cell.starts_block]
        path = "".join(f"M{px(at)} {px(self.y - 1)}v{_CELL + 2}" for at in starts)
        if path and strip.row_length > 1:
            ElementTree.SubElement(self.body, "path", {"class": "edge", "d": path})

    def key(self, scene: Scene) -> None:
        """Draw the meaning of each kind of cell."""
        self.y += 12
        width, x = _cell_width(scene), float(_MARGIN)
        for example, meaning in examples(scene):
            self.cell(x, self.y, width, example, scene.names)
            self.text(x + width + 8, self.y + 16, meaning, "muted")
            x += width + 8 + (len(meaning) + 3) * _EM
        self.y += _CELL
        if any(cell.is_shared for cell in scene.cells):
            self.text(_MARGIN + width / 2, self.y + 18, "+", "middle")
            self.text(_MARGIN + width + 8, self.y + 18, SHARED, "muted")
            self.y += _LINE + 4


def _cell_width(scene: Scene) -> float:
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
    .inlay-picture .number,.inlay-picture .over{{pointer-events:none}}
    .inlay-picture .page{{fill:#fff}}
    .inlay-picture .block{{stroke:#fff;stroke-width:1}}
    .inlay-picture .stripe{{fill:{INK};fill-opacity:.26}}
    .inlay-picture .gap{{fill:none;stroke:#8b949e;stroke-width:1;stroke-dasharray:2 3}}
    .inlay-picture .edge{{fill:none;stroke:{INK};stroke-width:2}}
    {fills}
    @media (prefers-color-scheme:dark){{
    .inlay-picture text{{fill:{CHALK}}}
    .inlay-picture .muted,.inlay-picture .middle,.inlay-picture .right{{fill:#9da7b3}}
    .inlay-picture .page{{fill:#15191f}}
    .inlay-picture .block{{stroke:#15191f}}
    .inlay-picture .stripe{{fill:{CHALK};fill-opacity:.26}}
    .inlay-picture .gap{{stroke:#6e7681}}
    .inlay-picture .edge{{stroke:{CHALK}}}
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
