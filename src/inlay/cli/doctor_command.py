"""The command that checks an installation: `inlay doctor`."""

import textwrap
from collections.abc import Sequence
from typing import Any

import typer

from inlay.cli.application import JsonOption, app
from inlay.cli.extras import ExtraState, extra_states
from inlay.cli.installation import InstallationFact, list_facts
from inlay.cli.output import echo, print_json

_WIDTH = 80
"""Longest line, in columns, unless a word is longer."""
_NO_BREAK = "\xa0"
"""A space at which no line ends."""


@app.command(short_help="Check this installation: processor, caches, engine, packages, cache directory.")
def doctor(as_json: JsonOption = False) -> None:
    """Check this installation, and print what it consists of and what is missing.

    The facts are: versions, processor, free processors, memory, measured caches, the engine of networks, the cache
    directory, whether machine code gives right values, variables of the environment, and the state of each extra with
    the command that installs it.

    The exit code is 1 if a part does not work; an extra that is not installed is no fault.

    Examples: inlay doctor    inlay doctor --json
    """
    facts, extras = list(list_facts()), extra_states()
    if as_json:
        print_json(doctor_document(facts, extras))
    else:
        echo("\n".join([*_fact_lines(facts), "", *_extra_lines(extras), "", *_fault_lines(facts)]))
    if any(fact.fault for fact in facts):
        raise typer.Exit(1)


def doctor_document(facts: Sequence[InstallationFact], extras: Sequence[ExtraState]) -> dict[str, Any]:
    """Return facts and extras as a JSON object."""
    return {
        "is_sound": not any(fact.fault for fact in facts),
        **{fact.name.replace(" ", "_"): fact.as_json() for fact in facts},
        "extras": [extra.as_json() for extra in extras],
    }


def _fact_lines(facts: Sequence[InstallationFact]) -> list[str]:
    """Return lines on each fact."""
    width = max(len(fact.name) for fact in facts) + 2
    texts = (fact.text or "does not work, see below" for fact in facts)
    return [line for fact, text in zip(facts, texts, strict=True) for line in _wrap(f"{fact.name:<{width}}", text)]


def _wrap(heading: str, text: str) -> list[str]:
    """Return a text behind a heading; further lines begin below the text."""
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=heading,
        subsequent_indent=" " * len(heading),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _extra_lines(extras: Sequence[ExtraState]) -> list[str]:
    """Return a table of the extras."""
    if not extras:
        return ["the packages of extras are unknown, since Inlay is used without being installed"]
    names, purposes = (
        max(len(text) for text in column) for column in zip(*((e.name, e.purpose) for e in extras), strict=True)
    )
    headings = [f"{extra.name:<{names}}  {extra.purpose:<{purposes}}  " for extra in extras]
    return [
        line for extra, heading in zip(extras, headings, strict=True) for line in _wrap(heading, _state_text(extra))
    ]


def _state_text(extra: ExtraState) -> str:
    """Return the packages of an extra that is usable, or what is missing and the command that installs it."""
    packages = [package for package in extra.packages if extra.is_usable or not package.is_usable]
    states = ", ".join(str(package).replace(" ", _NO_BREAK) for package in packages)
    return states if extra.is_usable else f"{states}: {extra.command.replace(' ', _NO_BREAK)}"


def _fault_lines(facts: Sequence[InstallationFact]) -> list[str]:
    """Return a line for each fault."""
    return [f"fault: {fact.name}: {fact.fault}" for fact in facts if fact.fault] or ["no faults found"]
