"""The current directory of tests of files: an empty one."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INLAY_DEBUG", raising=False)
    return tmp_path
