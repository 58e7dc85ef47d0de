"""The table of operators in docs/networks.md lists the operators that have a lowering rule."""

from inlay.graph.lowering.translation import TABLE
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "networks.md"


def documented() -> list[str]:
    """Return the operators in the first column."""
    section = PAGE.read_text().split("\n## Operators\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| operators")]
    return [name for row in rows for name in row.split("|")[1].strip().split(", ")]


def test_every_operator_is_documented_once() -> None:
    assert sorted(documented()) == sorted(TABLE)
