"""The list of links to other hosts: `external-links.txt` of the site names each address with the pages that have it.

Continuous integration has no network, so the addresses are listed and not opened. `make docs-links` opens them.
"""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

from inlay.files import atomic_write

if TYPE_CHECKING:
    from sphinx.application import Sphinx

LISTING = "external-links.txt"
"""Name of the list in the folder of the site."""


def list_external_links(app: "Sphinx") -> None:
    """Write the list whenever the site has been built."""
    links: dict[str, set[str]] = defaultdict(set)

    def collect(app: "Sphinx", doctree: nodes.document, page: str) -> None:
        for reference in doctree.findall(nodes.reference):
            address = reference.get("refuri", "")
            if address.startswith(("http://", "https://")):
                links[address].add(page)

    def write(app: "Sphinx", exception: Exception | None) -> None:
        if exception is None and app.builder.name == "html":
            with atomic_write(Path(app.outdir) / LISTING) as file:
                for address, pages in sorted(links.items()):
                    file.write(f"{address}  {', '.join(sorted(pages))}\n".encode())

    app.connect("doctree-resolved", collect)
    app.connect("build-finished", write)
