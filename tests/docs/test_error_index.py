"""The index of error texts has every golden table, and each error in it."""

import re

import pytest
from inlay_docs.error_index import COMMANDS, command_errors, describe_errors, read_errors, split_text

from tests.support.paths import DATA, GOLDEN, ROOT

TABLES = sorted(path.stem for path in (GOLDEN / "mistakes").glob("*.txt"))
PAGE = (ROOT / "docs" / "errors.md").read_text()


def plain(markdown: str) -> str:
    """Markdown without the signs that escape others."""
    return re.sub(r"\\(.)", r"\1", markdown)


def test_the_page_has_every_table_with_a_cause_and_a_remedy_above_it() -> None:
    parts = re.findall(r"^```\{error-table\} (.*)$", PAGE, re.MULTILINE)
    assert sorted(parts) == TABLES
    areas = PAGE.split("\n## ")[1:]
    assert [area.split("\n")[0] for area in areas if "**Cause:**" not in area or "**Remedy:**" not in area] == []
    assert all("```{" in area for area in areas)


@pytest.mark.parametrize("table", TABLES)
def test_every_error_of_a_table_has_a_row(table: str) -> None:
    text = plain(describe_errors(table))
    errors = read_errors(table)
    assert errors
    shown = {error.pattern for error in errors if f"`{error.kind}` {split_text(error.text)[0]} |" in text}
    assert shown == {error.pattern for error in errors}
    assert all(error.section in text for error in errors)


def test_the_number_of_errors_is_that_of_the_golden_tables() -> None:
    lines = [line for table in TABLES for line in (GOLDEN / "mistakes" / f"{table}.txt").read_text().splitlines()]
    calls = [line for line in lines if line and not line.startswith(("#", "    "))]
    assert sum(len(read_errors(table)) for table in TABLES) == len(calls) > 1000


def test_every_mistake_on_the_command_line_has_a_row() -> None:
    assert COMMANDS == DATA / "mistakes.txt"
    titles = re.findall(r"^# (.*)$", COMMANDS.read_text(), re.MULTILINE)
    rows = [line for line in plain(command_errors()).split("\n") if line.startswith("| ")][2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == titles
    assert any("did you mean nchw?" in row for row in rows)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("dims[1] is 3.0: entries are integers", ("dims[1] is 3.0", "entries are integers")),
        ("no format 'a: b' is known", ("no format 'a: b' is known", "")),
        ("Sum: src (x: 3) is one: give two", ("Sum: src (x: 3) is one", "give two")),
    ],
)
def test_the_remedy_follows_the_last_colon_outside_of_brackets(text: str, parts: tuple[str, str]) -> None:
    assert split_text(text) == parts
