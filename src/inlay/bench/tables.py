"""Tables of what was measured, as text."""

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Literal

_WIDE = 1 << 12


def table_text(columns: Mapping[str, Literal["left", "right"]], rows: Iterable[Iterable[str]]) -> str:
    """Return a table without lines: the headings of `columns`, then the rows, each column as wide as it needs.

    >>> print(table_text({"": "left", "us": "right"}, [("copy", "2000.0"), ("Inlay", "4.0")]))
               us
    copy   2000.0
    Inlay     4.0
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, justify in columns.items():
        table.add_column(heading, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    text = StringIO()
    Console(file=text, width=_WIDE, color_system=None, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
