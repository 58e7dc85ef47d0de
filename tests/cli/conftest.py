"""Fixtures of the tests of commands: an empty directory, and an engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from inlay.primitives import engine, set_engine


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INLAY_DEBUG", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def has_engine() -> Iterator[bool]:
    """Return True if oneDNN computes; otherwise the reference engine is selected, and no note is printed."""
    before = list(engine._default)
    is_here = engine.explain_fallback() is None
    if not is_here:
        set_engine("reference")
    yield is_here
    engine._default[:] = before
