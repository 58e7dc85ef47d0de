"""The table of `docs/dictionary.md`, written from the dictionary. As a program it writes the table into the page.

python -m tests.support.dictionary_page
"""

import re
from collections.abc import Iterator

from inlay.notation.dictionary import ONEDNN, list_rows, list_vendors
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "dictionary.md"
MARKS = ("<!-- rows: begin -->\n", "<!-- rows: end -->\n")


def table() -> str:
    """The sections of all vendors in Markdown."""
    return "\n".join(
        line for vendor, title in list_vendors().items() if vendor != ONEDNN for line in _section(vendor, title)
    )


def _section(vendor: str, title: str) -> Iterator[str]:
    rows = list_rows(vendor)
    yield f"\n### {title}\n"
    yield "| name | pattern | data types | source | notes |"
    yield "|---|---|---|---|---|"
    for row in rows:
        texts = (" ".join(row.data_types), row.source, row.notes)
        yield f"| `{row.name}` | `{row.pattern}` | {' | '.join(_plain(text) for text in texts)} |"


def _plain(text: str) -> str:
    """Text without the signs that Markdown would take for markup."""
    return re.sub(r"([<>_*])", r"\\\1", text)


def written() -> str:
    """The table that the page has."""
    return PAGE.read_text().partition(MARKS[0])[2].partition(MARKS[1])[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    PAGE.write_text(f"{before}{MARKS[0]}{table()}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")
