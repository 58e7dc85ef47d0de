"""Markdown of the golden tables of errors: text, remedy, and the call that raises it.

The tables are those that the tests compare with: `tests/golden/mistakes/*.txt` for Python, `tests/data/mistakes.txt`
for the command line. Errors that differ in numbers and names alone are one row, with the first of them as the example.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inlay_docs.markdown_text import code_cell, stack_cells, table, to_cell

TESTS = Path(__file__).resolve().parents[3] / "tests"
"""The folder of the golden tables."""
COMMANDS = TESTS / "data" / "mistakes.txt"
"""Errors of the command line."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\[\]]*\]|-?\d[\d.]*")
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class GoldenError:
    """An error whose whole text a test compares."""

    section: str
    """Title of the errors that follow it in the table; empty before the first title."""
    call: str
    """Expression or command that raises it."""
    kind: str
    """Name of the class; empty for an error of the command line."""
    text: str
    """First line of the text, without the class."""
    hint: str = ""
    """Further lines of a refusal: what works instead; empty for most errors."""

    @property
    def pattern(self) -> str:
        """The text with a mark in place of numbers, quoted words and lists."""
        return f"{self.kind} {_QUOTED.sub('~', self.text)}"

    @property
    def remedy(self) -> str:
        """The part of the text that follows the fault, and what works instead."""
        return "; ".join(part for part in (split_text(self.text)[1], self.hint) if part)


def split_text(text: str) -> tuple[str, str]:
    """Return fault and remedy of an error: what precedes and what follows the last colon outside of brackets.

    >>> split_text("stride 1 is 1.0: strides are integers")
    ('stride 1 is 1.0', 'strides are integers')
    >>> split_text("a format tag starts with an axis letter a..l")
    ('a format tag starts with an axis letter a..l', '')
    """
    depth, quote, colon = 0, "", 0
    for i, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and not text[max(0, i - 1)].isalnum():
            quote = character
        elif character in _OPENING or character in _CLOSING:
            depth += 1 if character in _OPENING else -1
        elif not depth and text.startswith(": ", i):
            colon = i
    return (text[:colon], text[colon + 2 :]) if colon else (text, "")


@functools.cache
def read_errors(name: str) -> tuple[GoldenError, ...]:
    """Return the errors of a golden table, such as `views`.

    Raises:
        OSError: there is no such table.
    """
    section, calls = "", list[tuple[str, str, list[str]]]()
    for line in (TESTS / "golden" / "mistakes" / f"{name}.txt").read_text().splitlines():
        if line.startswith("    "):
            calls[-1][2].append(line[4:])
        elif line.startswith("# "):
            section = line[2:]
        elif line:
            calls.append((section, line, []))
    return tuple(_error_of(*one) for one in calls)


def _error_of(section: str, call: str, lines: list[str]) -> GoldenError:
    """Return the error of a case; lines that repeat the text with carets below it are left out."""
    kind, _, text = lines[0].partition(": ")
    rest = [line.strip() for line in lines[1:]]
    is_marked = bool(rest) and bool(re.fullmatch(r"[~ ]*\^+", rest[-1]))
    return GoldenError(section, call, kind, text, "" if is_marked else " ".join(rest))


def describe_errors(name: str) -> str:
    """Return the Markdown of a golden table: a table for each of its sections."""
    errors = read_errors(name)
    sections = dict.fromkeys(error.section for error in errors)
    parts = [(section, [error for error in errors if error.section == section]) for section in sections]
    return "\n\n".join(f"**{to_cell(section, _no_link)}**\n\n{_rows(part)}" for section, part in parts)


def _rows(errors: Iterable[GoldenError]) -> str:
    """Return a table of errors; of those with one pattern only the first is shown."""
    examples = {error.pattern: error for error in reversed(list(errors))}
    cells = [
        [
            f"`{error.kind}` {to_cell(split_text(error.text)[0], _no_link)}",
            to_cell(error.remedy, _no_link),
            code_cell(error.call.replace("`", "'")),
        ]
        for error in reversed(examples.values())
    ]
    return stack_cells(table(["error", "reason and remedy", "raised by"], cells))


def _no_link(name: str) -> None:
    """Return None: errors name no documented objects by backquotes."""


def command_errors() -> str:
    """Return the Markdown of the errors of the command line."""
    blocks = COMMANDS.read_text().split("\n\n# ")[1:]
    rows = []
    for title, command, first in (block.split("\n")[:3] for block in blocks):
        fault, remedy = split_text(first.removeprefix("error: "))
        cells = [to_cell(title, _no_link), to_cell(fault, _no_link), to_cell(remedy, _no_link)]
        rows.append([*cells, code_cell(command.removeprefix("$ ").replace("`", "'"))])
    return stack_cells(table(["mistake", "error", "reason and remedy", "command"], rows))
