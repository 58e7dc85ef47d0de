"""The cache of machine code: whatever lies in the directory, a reorder is right."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.reordering import cache, compiled, linking
from inlay.reordering.target import host_target

SRC = MemoryDesc((3, 19, 5, 7), "f32", "nchw")
DST = MemoryDesc((3, 19, 5, 7), "f32", "nChw8c")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache directory, and no code in memory."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_codes", {})
    compiled._compiled.cache_clear()
    yield tmp_path / "cache"
    compiled._compiled.cache_clear()


def forget_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_codes", {})
    compiled._compiled.cache_clear()


def reorder_is_right() -> bool:
    x = np.arange(SRC.size // 4, dtype=np.float32)
    y = np.full(DST.size // 4, -1, np.float32)
    compiled.compile_reorder(SRC, DST).run(x.ctypes.data, y.ctypes.data)
    padded = np.zeros((3, 24, 5, 7), np.float32)
    padded[:, :19] = x.reshape(SRC.dims)
    return bool((y == padded.reshape(3, 3, 8, 5, 7).transpose(0, 1, 3, 4, 2).ravel()).all())


def entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_second_process_does_not_compile(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reorder_is_right()
    assert len(entries(directory)) == 1
    forget_memory(monkeypatch)
    monkeypatch.setattr(linking, "compile_ir", lambda text, target: pytest.fail("compiled though it was kept"))
    assert reorder_is_right()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data + b"\0",
        lambda data: bytes(len(data)),
    ],
    ids=["empty", "in the seal", "half", "last bit", "first bit", "longer", "zeros"],
)
def test_damaged_entry_is_ignored_and_written_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch, damage: object
) -> None:
    assert callable(damage)
    assert reorder_is_right()
    (path,) = entries(directory)
    sound = path.read_bytes()
    path.write_bytes(damage(sound))
    forget_memory(monkeypatch)
    assert reorder_is_right()
    assert entries(directory) == [path]
    # An object file may differ from one compilation to the next in nothing that matters; its seal holds again.
    assert cache.read_object(path.stem) is not None


@pytest.mark.parametrize("change", [{"cpu": "another"}, {"features": "+another"}, {"triple": "another"}])
def test_another_processor_has_entries_of_its_own(change: dict[str, str]) -> None:
    target = host_target()
    assert linking.cache_key("text", replace(target, **change)) != linking.cache_key("text", target)  # type: ignore[arg-type]


def test_entry_moved_to_another_name_is_not_used(directory: Path) -> None:
    cache.write_object("a" * 64, b"code")
    assert cache.read_object("a" * 64) == b"code"
    (path,) = entries(directory)
    path.rename(directory / f"{'b' * 64}.o")
    assert cache.read_object("b" * 64) is None


def test_directory_is_private(directory: Path) -> None:
    cache.write_object("a" * 64, b"code")
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(sys.platform == "win32", reason="permission bits are Unix's")
def test_directory_that_others_can_write_is_not_used(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    assert cache.cache_directory() is None
    assert reorder_is_right()
    assert entries(directory) == []


def test_directory_that_is_a_file_is_not_used(directory: Path) -> None:
    directory.write_text("in the way")
    assert cache.cache_directory() is None
    assert reorder_is_right()


def test_failed_write_leaves_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.write_object("a" * 64, b"code")
    assert entries(directory) == []


def test_processes_share_the_directory(directory: Path) -> None:
    code = "from tests.test_reorder_cache import reorder_is_right; import sys; sys.exit(0 if reorder_is_right() else 1)"
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    runs = [subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=root) for _ in range(3)]
    assert [run.wait(60) for run in runs] == [0, 0, 0]
    assert [path.suffix for path in entries(directory)] == [".o"]
