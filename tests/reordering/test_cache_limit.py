"""The size limit of the cache directory: files used longest ago are removed."""

import os
import time
from pathlib import Path

import pytest

from inlay import cache
from inlay.cache import size_limit
from inlay.errors import InvalidArguments
from tests.support.refusals import raises_exactly

KEYS = [letter * 64 for letter in "abcdef"]


@pytest.fixture(autouse=True)
def sized_anew(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the cache directory, whose size is computed anew."""
    directory.mkdir(mode=0o700)
    monkeypatch.delenv("INLAY_CACHE_MB", raising=False)
    monkeypatch.setattr(size_limit, "_written", float("inf"))


def test_the_files_used_longest_ago_are_removed(directory: Path) -> None:
    now = time.time()
    for age, key in enumerate(KEYS):
        cache.store_object(key, bytes(968))
        os.utime(directory / f"{key}.o", (now - 1e6 * (age + 1),) * 2)
    assert cache.read_object(KEYS[5]) == bytes(968)  # the oldest is used again
    (directory / "mine.txt").write_text("not Inlay's")
    assert size_limit.trim(directory, 6000) == 6000
    assert size_limit.trim(directory, 4000) == 3000
    assert {path.name for path in directory.iterdir()} == {f"{KEYS[i]}.o" for i in (0, 1, 5)} | {"mine.txt"}


def test_writing_keeps_the_directory_within_its_bound(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_MB", "0.1")
    for i in range(300):
        cache.store_object(f"{i:064x}", bytes(2000))
        assert sum(path.stat().st_size for path in directory.iterdir()) <= 1.1e5
    assert cache.read_object(f"{299:064x}") == bytes(2000)
    monkeypatch.setenv("INLAY_CACHE_MB", "0")
    cache.store_object(f"{300:064x}", bytes(2000))
    assert not list(directory.iterdir())


def test_stray_temporary_files_go_and_those_that_are_written_stay(directory: Path) -> None:
    old, new = directory / f".{'a' * 16}-old", directory / f".{'b' * 16}-new"
    for path in (old, new):
        path.write_bytes(bytes(10))
    os.utime(old, (1.0, 1.0))
    size_limit.trim(directory, 1000)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_file_that_another_process_removed_is_no_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store_object(KEYS[0], bytes(1000))
    monkeypatch.setattr(Path, "unlink", lambda self: (_ for _ in ()).throw(FileNotFoundError(str(self))))
    assert size_limit.trim(directory, 10) == 1032
    assert size_limit.trim(directory / "missing", 10) == 0


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf"])
def test_a_bound_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_MB", text)
    error = f"INLAY_CACHE_MB is {text!r}: set it to the MB that the cache may hold, or unset it"
    with raises_exactly(InvalidArguments, error):
        size_limit.cache_limit()
