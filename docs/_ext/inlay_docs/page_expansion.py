"""Directives whose content is text, replaced by Markdown before Sphinx parses a page.

A directive is a fenced block on a page: its first line names it and its argument, the other lines are its content.

    ```{api} inlay.storage          names of a module, one a line: their reference
    ```{api-types}                  the type aliases of all signatures
    ```{error-table} views          the errors of a golden table
    ```{command-errors}             the errors of the command line
    ```{unreleased-changes}         what waits in changes/ for the next release
    ```{released-changes}           the changes of each release
"""

import re
from collections.abc import Callable
from pathlib import Path

from inlay_docs.changes import released_changes, unreleased_changes
from inlay_docs.error_index import command_errors, describe_errors
from inlay_docs.reference import Catalog, describe_aliases, describe_name

DOCS = Path(__file__).resolve().parents[2]
"""The folder of the pages."""
_BLOCK = re.compile(
    r"^```\{(?P<name>[a-z-]+)\}[ \t]*(?P<argument>.*)\n(?P<content>(?:(?!```).*\n)*?)```$", re.MULTILINE
)

_LAST_LINE = re.compile(r"\n\n```$", re.MULTILINE)
"""The empty line by which a doctest tells a result from the end of its block."""


def read_catalog(docs: Path = DOCS) -> Catalog:
    """Return the names that the pages of the reference list, by module."""
    modules: dict[str, tuple[str, ...]] = {}
    for page in sorted((docs / "reference").glob("*.md")):
        for block in _BLOCK.finditer(page.read_text()):
            if block["name"] == "api":
                module = block["argument"].strip()
                modules[module] = (*modules.get(module, ()), *block["content"].split())
    return Catalog(modules)


def _describe_names(catalog: Catalog, argument: str, content: str) -> str:
    return "\n\n".join(describe_name(catalog, argument, name) for name in content.split())


EXPANSIONS: dict[str, Callable[[Catalog, str, str], str]] = {
    "api": _describe_names,
    "api-types": lambda catalog, argument, content: describe_aliases(catalog),
    "error-table": lambda catalog, argument, content: describe_errors(argument),
    "command-errors": lambda catalog, argument, content: command_errors(),
    "unreleased-changes": lambda catalog, argument, content: unreleased_changes(),
    "released-changes": lambda catalog, argument, content: released_changes(),
}
"""The function of each directive: from the names of the reference, the argument and the content to Markdown."""


APPENDED = {"decisions/README": "```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```"}
"""What the site needs at the end of a page, and readers on a code host do not."""


def expand_page(name: str, text: str, catalog: Catalog) -> str:
    """Return the text of a page in which these directives are replaced by Markdown; others stay.

    `name` is that of the page, without suffix.
    """

    def expand(block: re.Match[str]) -> str:
        expansion = EXPANSIONS.get(block["name"])
        return expansion(catalog, block["argument"].strip(), block["content"]) if expansion else block[0]

    whole = _LAST_LINE.sub("\n```", text)
    return f"{_BLOCK.sub(expand, whole)}\n{APPENDED.get(name, '')}\n"
