"""Calls that raise errors, with the whole text of each error: the files in `tests/golden/mistakes`.

A file has cases: a Python expression on a line, and indented below it the class and text of the error that it raises.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from inlay.errors import InlayError
from tests.support.paths import GOLDEN


def read_mistakes(name: str) -> list[Any]:
    """Return the (expression, error) pairs of a file as parameters of a test."""
    text = (GOLDEN / "mistakes" / f"{name}.txt").read_text()
    cases: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("    "):
            cases[-1].append(line[4:])
        elif line and not line.startswith("#"):
            cases.append([line])
    return [pytest.param(call, "\n".join(error), id=call[:60]) for call, *error in cases]


def assert_mistake(call: str, error: str, names: Mapping[str, Any]) -> None:
    """Evaluate an expression with these names, and compare the error that it raises."""
    with pytest.raises(InlayError) as raised:
        eval(call, dict(names))
    assert f"{type(raised.value).__name__}: {raised.value}" == error
