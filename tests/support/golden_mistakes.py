"""Calls that raise errors, with the whole text of each error: the files in `tests/golden/mistakes`.

A file has pairs of lines: a Python expression, and the class and text of the error that it raises, indented.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from inlay.errors import InlayError
from tests.support.paths import GOLDEN


def read_mistakes(name: str) -> list[Any]:
    """Return the (expression, error) pairs of a file as parameters of a test."""
    text = (GOLDEN / "mistakes" / f"{name}.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = zip(lines[::2], map(str.strip, lines[1::2]), strict=True)
    return [pytest.param(call, error, id=call[:60]) for call, error in pairs]


def assert_mistake(call: str, error: str, names: Mapping[str, Any]) -> None:
    """Evaluate an expression with these names, and compare the error that it raises."""
    with pytest.raises(InlayError) as raised:
        eval(call, dict(names))
    assert f"{type(raised.value).__name__}: {raised.value}" == error
