"""Pictures of plans: the network as it is computed, saved as SVG, PNG or as a page of HTML.

    PlanPicture(inlay.plan(network)).save("network.html")

A notebook shows it, and shows a plan as its picture.
"""

from dataclasses import dataclass
from pathlib import Path

from inlay.errors import printable
from inlay.graph.plan import Plan
from inlay.graph.report import heading
from inlay.render.network.drawing import draw_plan
from inlay.render.saving import file_contents, save_contents, scrolling
from inlay.render.saving import require_suffix as require_picture_suffix

SUFFIXES = (".svg", ".png", ".html")
"""File formats of a saved picture."""
_SUBJECT = "the picture of a plan"


@dataclass(frozen=True, slots=True)
class PlanPicture:
    """The picture of one plan."""

    plan: Plan
    """The plan that is drawn."""

    def svg(self) -> str:
        """The picture as one self-contained `svg` element."""
        return draw_plan(self.plan)

    def html(self) -> str:
        """The picture as an HTML element that scrolls where the page is too narrow or too low."""
        return scrolling(self.svg(), height="85vh")

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook."""
        return self.html()

    def save(self, path: str | Path) -> None:
        """Write the picture to `path`: SVG, PNG or a page of HTML, by its suffix.

        Post-condition: `path` holds the whole picture, or an error was raised and it is as it was.

        Raises:
            InvalidArguments: `path` ends in none of .svg, .png and .html.
            MissingExtra: `path` ends in .png, and resvg-py is not installed.
            FileError: the file cannot be written.
        """
        save_contents(path, file_contents(printable(heading(self.plan)[0]), self.svg), _SUBJECT)


def require_suffix(target: Path) -> None:
    """Check that the suffix of a name is that of a picture of a plan.

    Raises:
        InvalidArguments: it is not.
    """
    require_picture_suffix(target, SUFFIXES, _SUBJECT)
