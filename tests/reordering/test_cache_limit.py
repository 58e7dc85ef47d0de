"""The size limit of the cache directory: files used longest ago are removed."""

import os
import random
import time
from pathlib import Path

import pytest

import inlay
from inlay import cache
from inlay.cache import size_limit
from inlay.errors import InvalidArguments

LETTERS = "abcde"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a cache directory for one test, whose size is computed anew."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(folder))
    monkeypatch.delenv("INLAY_CACHE_MB", raising=False)
    monkeypatch.setattr(size_limit, "_written", float("inf"))
    return folder


def drawn_reorders(seed: int, count: int) -> list[tuple[inlay.MemoryDesc, inlay.MemoryDesc]]:
    """Return so many pairs of formats, most of which need kernels of their own."""
    rng = random.Random(seed)
    found: list[tuple[inlay.MemoryDesc, inlay.MemoryDesc]] = []
    while len(found) < count:
        letters = LETTERS[: rng.randint(2, 4)]
        dims = [rng.choice([3, 8, 16, 17, 24]) for _ in letters]
        orders = ["".join(rng.sample(letters, len(letters))) for _ in range(2)]
        types = [rng.choice(["f32", "bf16", "s8"]) for _ in range(2)]
        found.append((inlay.MemoryDesc(dims, types[0], orders[0]), inlay.MemoryDesc(dims, types[1], orders[1])))
    return found


def entries(folder: Path) -> list[str]:
    return sorted(path.name[:1] for path in folder.iterdir() if path.suffix == ".o")


def key(letter: str) -> str:
    return letter * 64


def test_the_files_used_longest_ago_are_removed(own_cache: Path) -> None:
    now = time.time()
    for age, letter in enumerate("abcdef"):
        cache.store_object(key(letter), bytes(968))
        os.utime(own_cache / f"{key(letter)}.o", (now - 1e6 * (age + 1),) * 2)
    assert cache.read_object(key("f")) == bytes(968)  # the oldest is used again
    (own_cache / "mine.txt").write_text("not Inlay's")
    assert size_limit.trim(own_cache, 6000) == 6000
    assert size_limit.trim(own_cache, 4000) == 3000
    assert entries(own_cache) == ["a", "b", "f"]
    assert (own_cache / "mine.txt").exists()


def test_writing_keeps_the_directory_within_its_bound(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_MB", "0.1")
    for i in range(300):
        cache.store_object(f"{i:064x}", bytes(2000))
        assert sum(path.stat().st_size for path in own_cache.iterdir()) <= 1.1e5
    assert cache.read_object(f"{299:064x}") == bytes(2000)
    monkeypatch.setenv("INLAY_CACHE_MB", "0")
    cache.store_object(f"{300:064x}", bytes(2000))
    assert not list(own_cache.iterdir())


def test_stray_temporary_files_go_and_those_that_are_written_stay(own_cache: Path) -> None:
    old, new = own_cache / f".{'a' * 16}-old", own_cache / f".{'b' * 16}-new"
    for path in (old, new):
        path.write_bytes(bytes(10))
    os.utime(old, (1.0, 1.0))
    size_limit.trim(own_cache, 1000)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_file_that_another_process_removed_is_no_error(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store_object(key("a"), bytes(1000))
    monkeypatch.setattr(Path, "unlink", lambda self: (_ for _ in ()).throw(FileNotFoundError(str(self))))
    assert size_limit.trim(own_cache, 10) == 1032
    assert size_limit.trim(own_cache / "missing", 10) == 0


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf"])
def test_a_bound_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_MB", text)
    with pytest.raises(InvalidArguments) as caught:
        size_limit.cache_limit()
    assert str(caught.value) == f"INLAY_CACHE_MB is {text!r}: set it to the MB that the cache may hold, or unset it"
