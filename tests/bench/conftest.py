"""The fixture of the tests of comparisons with other runtimes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import inlay
from inlay.bench import networks
from inlay.measure.disturbance import IdleWait
from inlay.measure.interleaved import Turn


@pytest.fixture
def short_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waits, nothing remembered, no limit of threads left behind."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(IdleWait, "wait", lambda self: None)
    monkeypatch.setattr(networks, "_TURN", Turn(warm=0.0, block=0.0))
    yield
    inlay.set_num_threads(None)
