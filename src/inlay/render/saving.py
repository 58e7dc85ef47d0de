"""Files of pictures: SVG, PNG, a page of HTML or text, by the suffix of the name."""

from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from inlay.errors import InvalidArguments
from inlay.files import atomic_write
from inlay.render.png import png_bytes

Contents = Mapping[str, Callable[[], str | bytes]]
"""For each suffix the function that returns the content of the file."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>body{{margin:0;background:#fff}}@media (prefers-color-scheme:dark){{body{{background:#15191f}}}}</style>
<body>
{body}</body>
</html>
"""


def scrolling(svg: str, height: str = "") -> str:
    """Return an HTML element in which a picture scrolls where the page is narrower, or it is higher than `height`.

    `height` is a length of CSS. Pages may limit the width of images; that of the picture is not limited.
    """
    limit = f"overflow:auto;max-height:{height}" if height else "overflow-x:auto"
    # A block has no line of text around it, which would scroll too.
    unlimited = '<svg style="display:block;max-width:none" '
    return f'<div style="{limit}">\n{svg.replace("<svg ", unlimited, 1)}</div>\n'


def file_contents(title: str, svg: Callable[[], str], text: Callable[[], str] | None = None) -> Contents:
    """Return the contents of files with a picture; `.txt` is one of them if the picture has a `text`."""
    contents: dict[str, Callable[[], str | bytes]] = {
        ".svg": svg,
        ".png": lambda: png_bytes(svg()),
        ".html": lambda: _PAGE.format(title=escape(title), body=scrolling(svg())),
    }
    return contents if text is None else {**contents, ".txt": lambda: f"{text()}\n"}


def save_picture(path: str | Path, contents: Contents, subject: str = "a picture") -> None:
    """Write the content for the suffix of `path`.

    Raises:
        InvalidArguments: `contents` has none for this suffix; the text calls the picture `subject`.
        MissingExtra: the suffix is .png, and resvg-py is not installed.
        FileError: the file cannot be written.
    """
    target = Path(path)
    require_suffix(target, tuple(contents), subject)
    content = contents[target.suffix.lower()]()
    with atomic_write(target) as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def require_suffix(
    target: Path, suffixes: tuple[str, ...] = (".svg", ".png", ".html", ".txt"), subject: str = "a picture"
) -> None:
    """Check that the suffix of a name is that of a picture's file.

    Raises:
        InvalidArguments: it is not.
    """
    if target.suffix.lower() not in suffixes:
        formats = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise InvalidArguments(f"{subject} is saved as {formats}, not {target.suffix or 'without an ending'!r}")
