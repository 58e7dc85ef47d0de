"""A picture as a value: what to draw and how, drawn when somebody looks.

`str` and `repr` are the text, so a plain Python prompt shows the picture; a notebook asks for the markup; `save` writes
a file. What the terminal can show is asked at that moment, so one picture suits a window that has been widened since.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Literal

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.files import atomic_write
from inlay.render.compose import compose
from inlay.render.legend import Legend, legend
from inlay.render.scene import Scene, SpaceLimits
from inlay.render.svg import draw_svg
from inlay.render.text import Colors, Terminal, draw_text, this_terminal

PictureFormat = Literal["text", "svg", "html"]

_SVG_WIDTH = 110
_HTML = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<body>
{body}</body>
</html>
"""


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
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
    values: tuple[str, ...] | None = None
    """Texts of the elements in row-major order, which cells show without `offsets`; None to number the cells."""

    def text(self) -> str:
        """The picture as lines of text, none longer than the width."""
        here = this_terminal()
        depth: Colors = here.colors if self.color is None else (here.colors or 256) if self.color else 0
        terminal = Terminal(self.width or here.width, depth, here.glyphs)
        words, scene = self._drawn(SpaceLimits(terminal.width, mark=0 if depth else 1))
        return draw_text(words, scene, terminal)

    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""
        words, scene = self._drawn(SpaceLimits(self.width or _SVG_WIDTH))
        return draw_svg(words, scene, self.desc.data_type)

    def html(self) -> str:
        """The picture as an HTML element that scrolls where the page is too narrow."""
        return f'<div style="overflow-x:auto">\n{self.svg()}</div>\n'

    def _drawn(self, room: SpaceLimits) -> tuple[Legend, Scene | None]:
        """Return the legend, and the scene in the given room; None for the scene if there is nothing to draw."""
        words = legend(self.desc, self.names, has_type=self.has_type)
        return words, None if words.note else compose(self.desc, self.names, room, self.offsets, self.values)

    def __str__(self) -> str:
        """The picture in its format."""
        return {"text": self.text, "svg": self.svg, "html": self.html}[self.format]()

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        """Return the SVG for a notebook."""
        return self.svg()

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        return self.html()

    def save(self, path: str | Path) -> None:
        """Write the picture to `path`: SVG, a page of HTML, or text without color, by its ending.

        Post-condition: `path` holds the whole picture, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` ends in none of .svg, .html and .txt.
            FileError: the file cannot be written.
        """
        save_picture(
            path,
            {
                ".svg": self.svg,
                ".html": lambda: html_page(legend(self.desc, self.names, has_type=self.has_type).title, self.html()),
                ".txt": lambda: replace(self, format="text", width=self.width or 80, color=False).text() + "\n",
            },
        )


def html_page(title: str, body: str) -> str:
    """Return an HTML page with a picture."""
    return _HTML.format(title=escape(title), body=body)


def save_picture(path: str | Path, contents: Mapping[str, Callable[[], str]]) -> None:
    """Write the content for the ending of `path`.

    Raises:
        InvalidArguments: `contents` has none for this ending.
        FileError: the file cannot be written.
    """
    target = Path(path)
    content = contents.get(target.suffix.lower())
    if content is None:
        raise InvalidArguments(
            f"a picture is saved as .svg, .html or .txt, not {target.suffix or 'without an ending'!r}"
        )
    with atomic_write(target) as file:
        file.write(content().encode())
