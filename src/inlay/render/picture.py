"""A picture as a value: what to draw and how, drawn when somebody looks.

`str` and `repr` are the text, so a plain Python prompt shows the picture; a notebook asks for the markup; `save` writes
a file. What the terminal can show, and the values of the elements, are read at that moment, so one picture suits a
window that has been widened since.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from inlay.descriptor import MemoryDesc
from inlay.descriptor.kinds import SwizzledLayout
from inlay.layout import Layout
from inlay.render.blocks import blocks_of
from inlay.render.compose import SceneOptions, compose
from inlay.render.legend import Legend, legend
from inlay.render.png import png_bytes
from inlay.render.saving import file_contents, save_contents, scrolling
from inlay.render.scene import Scene, SpaceLimits
from inlay.render.selection import Selection
from inlay.render.svg import draw_svg
from inlay.render.text import Colors, Terminal, draw_text, shows_letters, this_terminal
from inlay.render.values import ElementValues

PictureFormat = Literal["text", "svg", "html"]

SVG_WIDTH = 110
"""Characters across in markup."""


class Drawing(ABC):
    """A picture as text and as markup, in one of which `str` returns it."""

    __slots__ = ()
    format: PictureFormat
    """The format that `str` returns."""

    @abstractmethod
    def text(self) -> str:
        """The picture as lines of text."""

    @abstractmethod
    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""

    def html(self) -> str:
        """The picture as an HTML element that scrolls where the page is too narrow."""
        return scrolling(self.svg())

    def png(self, scale: float = 2.0) -> bytes:
        """The picture as a PNG file, with `scale` pixels for each pixel of the SVG.

        Raises:
            InvalidArguments: `scale` is no number from 0.1 to 16.
            MissingExtra: resvg-py is not installed.
        """
        return png_bytes(self.svg(), scale)

    def __str__(self) -> str:
        """The picture in its format."""
        return {"text": self.text, "svg": self.svg, "html": self.html}[self.format]()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: its only form of markup, since a notebook stores all of them."""
        return self.html()


@dataclass(frozen=True, slots=True, repr=False)
class Picture(Drawing):
    """The picture of one descriptor."""

    desc: MemoryDesc
    """The descriptor or layout that is drawn."""
    names: tuple[str, ...]
    """One per axis."""
    offsets: bool = False
    """True if cells are numbered by offset, False for values or the row-major index."""
    format: PictureFormat = "text"
    """The format that `str` returns."""
    width: int | None = None
    """Characters across; None for the width of the terminal, and a fixed one in markup."""
    color: bool | None = None
    """True for text in color; None to use the colors of the terminal."""
    has_type: bool = True
    """True if the elements have a data type; those of a bare layout have none."""
    values: ElementValues | None = None
    """The values that cells show without `offsets`, read when the picture is drawn; None to number the cells."""
    selection: Selection | None = None
    """The coordinates to show; None for all."""
    heat_map: bool | None = None
    """True for a heat map of addresses, None for one where a large tensor is shown in part."""

    def text(self) -> str:
        """The picture as lines of text, none longer than the width."""
        terminal = terminal_for(self.width, self.color)
        words, scene = self._drawn(terminal.width, terminal.colors)
        return draw_text(words, scene, terminal)

    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""
        words, scene = self._drawn(self.width or SVG_WIDTH, None)
        return draw_svg(words, scene, self.desc.data_type)

    def _drawn(self, width: int, colors: Colors | None) -> tuple[Legend, Scene | None]:
        """Return the legend, and the scene for text of so many colors or, for None, for markup.

        The scene is None if there is nothing to draw.
        """
        words = legend(self.desc, self.names, has_type=self.has_type)
        if words.note:
            return words, None
        room = text_room(width, colors, self.desc) if colors is not None else SpaceLimits(width)
        options = SceneOptions(self.offsets, self.values, self.selection, self.heat_map)
        return words, compose(self.desc, self.names, room, options)

    def save(self, path: str | Path) -> None:
        """Write the picture to `path`: SVG, PNG, a page of HTML, or text without color, by its suffix.

        Post-condition: `path` holds the whole picture, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` ends in none of .svg, .png, .html and .txt.
            MissingExtra: `path` ends in .png, and resvg-py is not installed.
            FileError: the file cannot be written.
        """
        plain = replace(self, format="text", width=self.width or 80, color=False)
        title = legend(self.desc, self.names, has_type=self.has_type).title
        save_contents(path, file_contents(title, self.svg, plain.text))


def terminal_for(width: int | None, color: bool | None) -> Terminal:
    """Return the terminal of standard output, with another width or color where they are not None."""
    here = this_terminal()
    depth: Colors = here.colors if color is None else (here.colors or 256) if color else 0
    return Terminal(width or here.width, depth, here.glyphs)


def text_room(width: int, colors: Colors, desc: MemoryDesc) -> SpaceLimits:
    """Return the space of a picture as text, whose cells have a letter where colors do not tell blocks apart."""
    layout = desc.layout.layout if isinstance(desc.layout, SwizzledLayout) else desc.layout
    has_letters = shows_letters(colors, isinstance(layout, Layout) and blocks_of(layout).repeats_colors)
    return SpaceLimits(width, mark=int(has_letters), heat_rows=16, heat_columns=min(width, 96))
