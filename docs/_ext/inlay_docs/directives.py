"""Directives that draw: pictures of layouts, charts of measured ratios, and the explorer.

```{inlay-picture} nChw8c 2x17x5x4      a tag or another notation, dims, and a type; or an expression of Python
:names: n,c,h,w                         names of the axes
:offsets:                               offsets instead of indices
```

```{inlay-chart} networks.md            a page with a table of ratios
:heading: ## Beside other runtimes      the heading above the table
:columns: 3, 4                          numbers of the columns
:names: ONNX Runtime, OpenVINO          their names in the chart
:title: Times as fast                   what a reader of the screen hears
```

```{inlay-explorer} nChw8c 2x17x5x4     arguments of `inlay explore`
:height: 640
```
"""

import hashlib
import shlex
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from inlay_docs.accessible_markup import make_accessible
from inlay_docs.charts import draw_chart, read_table
from inlay_docs.external_links import list_external_links
from inlay_docs.notebook_links import add_notebooks
from inlay_docs.page_expansion import DOCS, expand_page, read_catalog
from inlay_docs.pictures import draw, inline_picture, with_suffix

EXPLORERS = "explorers"
"""Folder of the site with the pages of the explorer that other pages embed."""


def figure(markup: str, label: str) -> nodes.raw:
    """Return a drawing as a node; on a narrow screen it is scrolled sideways, by keyboard too."""
    start = f'<div class="inlay-figure" role="group" tabindex="0" aria-label="{escape(label)}">'
    return nodes.raw("", f"{start}\n{markup}\n</div>", format="html")


class PictureDirective(SphinxDirective):
    """A picture of a layout."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"names": directives.unchanged, "offsets": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Draw the picture; a mistake in the argument is an error of the build."""
        options: dict[str, Any] = {"offsets": True} if "offsets" in self.options else {}
        if "names" in self.options:
            options["names"] = [name.strip() for name in self.options["names"].split(",")]
        try:
            markup = draw(self.arguments[0], **options)
        except Exception as error:
            raise self.error(f"inlay-picture {self.arguments[0]}: {error}") from error
        markup = with_suffix(markup, f"-{self.env.new_serialno('inlay-picture')}")
        return [figure(markup, f"Picture of {self.arguments[0]}")]


class ChartDirective(SphinxDirective):
    """A chart of a table of measured ratios."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {
        "heading": directives.unchanged_required,
        "columns": directives.unchanged_required,
        "names": directives.unchanged_required,
        "title": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        """Draw the chart; a page without the table is an error of the build."""
        page, columns = Path(self.env.srcdir) / self.arguments[0], self.options["columns"].split(",")
        names = [name.strip() for name in self.options["names"].split(",")]
        self.env.note_dependency(str(page))
        try:
            table = read_table(page.read_text(), self.options["heading"], [int(column) for column in columns], names)
        except ValueError as error:
            raise self.error(f"inlay-chart {page.name}: {error}") from error
        return [figure(draw_chart(table, self.options["title"]), self.options["title"])]


class ExplorerDirective(SphinxDirective):
    """The explorer of some layouts, in a frame."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[dict[str, Any]] = {"height": directives.positive_int}

    def run(self) -> list[nodes.Node]:
        """Let `inlay explore` write the page, and embed it; a refused argument is an error of the build."""
        arguments = self.arguments[0]
        name = f"{hashlib.sha256(arguments.encode()).hexdigest()[:12]}.html"
        target = Path(self.env.app.outdir) / EXPLORERS / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        command = [sys.executable, "-m", "inlay", "explore", *shlex.split(arguments), "--out", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise self.error(f"inlay-explorer {arguments}: {done.stderr.strip()}")
        depth = "../" * self.env.docname.count("/")
        frame = f'src="{depth}{EXPLORERS}/{name}" title="Explorer of {escape(arguments)}" loading="lazy"'
        height = self.options.get("height", 640)
        return [nodes.raw("", f'<iframe class="inlay-explorer" {frame} height="{height}"></iframe>', format="html")]


class InlinePictures(SphinxPostTransform):
    """Puts drawings of Inlay into the page instead of linking to them, so that their colors follow the theme."""

    default_priority = 5
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace the images of the page."""
        for i, image in enumerate(list(self.document.findall(nodes.image))):
            path = Path(self.env.srcdir) / image["uri"]
            if path.suffix == ".svg" and path.is_file():
                markup = with_suffix(inline_picture(path), f"-image-{i}")
                image.replace_self(figure(markup, image.get("alt", path.stem)))


def register(app: Sphinx) -> dict[str, Any]:
    """Register directives, transforms and the expansion of pages."""
    catalog = read_catalog()

    def expand(app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = expand_page(page, source[0], catalog)

    def correct(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
        for part in ("body", "furo_navigation_tree"):
            if part in context:
                context[part] = make_accessible(context[part])

    app.add_directive("inlay-picture", PictureDirective)
    app.add_directive("inlay-chart", ChartDirective)
    app.add_directive("inlay-explorer", ExplorerDirective)
    app.add_post_transform(InlinePictures)
    app.connect("source-read", expand)
    app.connect("html-page-context", correct, priority=900)
    list_external_links(app)
    if Path(app.srcdir) == DOCS:
        add_notebooks(app)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
