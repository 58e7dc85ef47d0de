"""Guides as notebooks: written into the site when it is built, with a link at the end of each page.

`guide_notebooks` makes them from the pages. A site that is built without jupytext has no notebooks and no links.
"""

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "notebooks"
"""Folder of the site for notebooks."""


def notebook_link(page: str) -> str:
    """Return the link to the notebook of a page as HTML.

    >>> notebook_link("guides/pytorch")
    '<p><a class="notebook" href="../notebooks/guides/pytorch.ipynb" download>This page as a notebook</a></p>'
    """
    target = f"{'../' * page.count('/')}{FOLDER}/{page}.ipynb"
    return f'<p><a class="notebook" href="{target}" download>This page as a notebook</a></p>'


def add_notebooks(app: "Sphinx") -> None:
    """Let the site have notebooks, if they can be made."""
    if not (find_spec("guide_notebooks") and find_spec("jupytext")):
        return
    notebooks: Any = importlib.import_module("guide_notebooks")
    pages = {str(path.relative_to(notebooks.DOCS).with_suffix("")) for path in notebooks.list_pages()}

    def link(app: "Sphinx", page: str, template: str, context: dict[str, Any], doctree: object) -> None:
        if page in pages:
            context["body"] += notebook_link(page)

    def write(app: "Sphinx", exception: Exception | None) -> None:
        if exception is None and app.builder.name == "html":
            notebooks.main(Path(app.outdir) / FOLDER)

    app.connect("html-page-context", link)
    app.connect("build-finished", write)
