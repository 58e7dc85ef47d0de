"""Files of pictures and pages: SVG, PNG, HTML or text, by the suffix of the name; parts of a page in one file."""

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

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


def save_contents(path: str | Path, contents: Contents, subject: str = "a picture") -> None:
    """Write the content for the suffix of `path`.

    Raises:
        InvalidArguments: `contents` has none for this suffix; the text calls the picture or page `subject`.
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
    """Check that the suffix of a name is one of `suffixes`.

    Raises:
        InvalidArguments: it is not.
    """
    if target.suffix.lower() not in suffixes:
        formats = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise InvalidArguments(f"{subject} is saved as {formats}, not {target.suffix or 'without an ending'!r}")


def inline_source(text: str) -> str:
    """Return the source of a content security policy (W3C) that allows an inline script or style of this text.

    >>> inline_source("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def embed_json(value: Any) -> str:
    r"""Return JSON for a script element of HTML: no character of it can end the element.

    Raises:
        ValueError: a number is not finite.

    >>> embed_json({"text": "</script>"})
    '{"text":"\\u003c/script>"}'
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
