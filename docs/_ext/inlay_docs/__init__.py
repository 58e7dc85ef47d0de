"""Sphinx extension of Inlay's documentation: API reference, error index, pictures, charts, changes.

A page of `docs/` is plain Markdown with a few fenced directives, which a code host shows as code blocks. Before Sphinx
parses a page, `page_expansion` replaces the directives whose content is text by Markdown. `directives` draws pictures.

The modules in the order in which data flows:

    docstrings      the parts of a docstring: summary, text, arguments, exceptions
    definitions     the source of a public name: assignments, fields and signatures with their docstrings
    markdown_text   text of docstrings as Markdown: code blocks, escaped characters, links to names
    reference       Markdown of public names: signature, table of parameters, members
    error_index     Markdown of the golden tables of errors: text, remedy, and the call that raises it
    changes         Markdown of the changes that wait for a release
    charts          SVG of a table of measured ratios
    page_expansion  directives of text in a page
    pictures        pictures of layouts, with colors that follow the theme
    external_links  the list of links to other hosts
    notebook_links  guides as notebooks
    accessible_markup   corrections of the markup of Sphinx
    directives      pictures, charts and the explorer; registration of all this

Only `directives` and `external_links` need Sphinx, so that tests of the others run without it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: "Sphinx") -> dict[str, Any]:
    """Register the directives and the expansion of pages with Sphinx."""
    from inlay_docs.directives import register

    return register(app)
