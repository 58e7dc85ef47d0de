"""The picture of a plan as a value: drawn when somebody looks, saved as SVG or as a page of HTML.

    PlanPicture(inlay.plan(network)).save("network.html")

A notebook shows it, and shows a plan as its picture.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from inlay.errors import InvalidArguments, printable
from inlay.files import atomic_write
from inlay.graph.plan import Plan
from inlay.graph.report import heading
from inlay.render.network.drawing import draw_plan

SUFFIXES = (".svg", ".html")
"""File formats of a saved picture."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>body{{margin:0;background:#fff}}@media (prefers-color-scheme:dark){{body{{background:#15191f}}}}</style>
<body>
{body}</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """The picture of one plan."""

    plan: Plan
    """The plan that is drawn."""

    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""
        return draw_plan(self.plan)

    def html(self) -> str:
        """The picture as an HTML element that scrolls where the page is too narrow."""
        return f'<div style="overflow-x:auto">\n{self.svg()}</div>\n'

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str | Path) -> None:
        """Write the picture to `path`: SVG or a page of HTML, by its ending.

        Post-condition: `path` holds the whole picture, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` ends in neither .svg nor .html.
            FileError: the file cannot be written.
        """
        target = Path(path)
        require_suffix(target)
        is_page = target.suffix.lower() == ".html"
        title = escape(printable(heading(self.plan)[0]))
        content = _PAGE.format(title=title, body=self.html()) if is_page else self.svg()
        with atomic_write(target) as file:
            file.write(content.encode())


def require_suffix(target: Path) -> None:
    """Refuse a name that says no format of pictures.

    Raises:
        InvalidArguments: so it is.
    """
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidArguments(
            f"the picture of a plan is saved as .svg or .html, not {target.suffix or 'without an ending'!r}"
        )
