"""A cache directory of its own for each test of costs."""

from pathlib import Path

import pytest


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir(0o700)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(folder))
    return folder
