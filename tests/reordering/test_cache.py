"""The cache of machine code: reorders are correct whatever the directory contains."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from inlay import cache
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.reordering import emit, planning
from inlay.reordering import target as target_module
from inlay.reordering.emit_team import team_ir
from inlay.reordering.kernel import Kernel
from inlay.reordering.machine_code import ir_of
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.target import compile_ir, host_target
from inlay.testing import reorder_problems
from tests.support.cached_reorders import DST, SRC, forget_memory, reorder_is_right
from tests.support.refusals import raises_exactly
from tests.support.reorders import Pair


@pytest.fixture(autouse=True)
def no_code_in_memory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_memory(monkeypatch)


def kernel_for(src: MemoryDesc, dst: MemoryDesc) -> Kernel | None:
    """Return the kernel that a reorder needs; None if there is nothing to move."""
    problem = build_reorder_problem(src, dst)
    return None if problem.is_empty else planning.plan_reorder(problem, host_target()).kernel


def module_text() -> str:
    return ir_of(kernel_for(SRC, DST), host_target())  # type: ignore[arg-type]


def entries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_kept_code_is_neither_written_nor_compiled_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reorder_is_right()
    assert len(entries(directory)) == 1
    forget_memory(monkeypatch)
    monkeypatch.setattr(emit, "kernel_ir", lambda *_: pytest.fail("written though its code was kept"))
    monkeypatch.setattr(target_module, "compile_ir", lambda *_: pytest.fail("compiled though it was kept"))
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
    directory: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    assert reorder_is_right()
    (path,) = entries(directory)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.read_object(path.stem) is None
    forget_memory(monkeypatch)
    assert reorder_is_right()
    assert entries(directory) == [path]
    # An object file may differ from one compilation to the next in nothing that matters; its seal holds again.
    assert cache.read_object(path.stem) is not None


@pytest.mark.parametrize(
    "change", [{"cpu": "another"}, {"features": "+another"}, {"triple": "another"}, {"vector_bytes": 16}]
)
def test_another_processor_has_entries_of_its_own(change: dict[str, Any]) -> None:
    target = host_target()
    assert target_module.cache_key("text", replace(target, **change)) != target_module.cache_key("text", target)


def test_another_emitter_has_entries_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    key = target_module.cache_key("text", host_target())
    monkeypatch.setattr(target_module, "SOURCES", "another")
    assert target_module.cache_key("text", host_target()) != key


@pytest.mark.parametrize("change", [(b"x = 1", b"x = 2"), (b"x = 1", b""), (b"x = 1\n", b"x = 1")])
def test_every_byte_of_the_emitter_counts(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    files = [tmp_path / name for name in ("one.py", "two.py")]
    digests = set()
    for contents in ((change[0], change[0]), (change[1], change[1]), change):
        for path, content in zip(files, contents, strict=True):
            path.write_bytes(content)
        digests.add(target_module.digest_of(files))
    assert len(digests) == 3


def test_every_file_that_writes_code_is_among_the_sources() -> None:
    files, kernel = set[str](), kernel_for(SRC, DST)
    assert kernel is not None
    sys.setprofile(lambda frame, event, argument: files.add(frame.f_code.co_filename))
    try:
        compile_ir(ir_of(kernel, host_target()), host_target())
        team_ir(host_target().pause, host_target().attributes)
    finally:
        sys.setprofile(None)
    ours = {Path(name) for name in files if f"{os.sep}inlay{os.sep}" in name}
    assert {path.stem for path in ours} >= {"emit", "emit_tile", "emit_team", "ir", "network", "target"}
    assert ours <= set(target_module.emitter_files())


def test_without_its_sources_the_emitter_is_known_by_what_it_writes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "SOURCES", target_module.digest_of([directory / "missing.py"]))
    assert target_module.SOURCES == ""
    assert reorder_is_right()
    (kept,) = entries(directory)
    assert kept.stem == target_module.cache_key(module_text(), host_target())


@given(reorder_problems(convert=True), reorder_problems())
def test_kernels_are_equal_if_their_texts_are(one: Pair, other: Pair) -> None:
    first, second = kernel_for(*one), kernel_for(*other)
    assert (target_module.canonical_text(first) == target_module.canonical_text(second)) == (first == second)


@pytest.mark.parametrize("value", [np.zeros(3), {1, 2}, [1], (1, b"2"), lambda: 1])
def test_what_could_be_spelled_in_two_ways_is_refused(value: object) -> None:
    part = value[1] if isinstance(value, tuple) else value
    text = f"{part!r} cannot identify machine code: build kernels from numbers, text, tuples and dataclasses"
    with raises_exactly(TypeError, text):
        target_module.canonical_text((1, value))


def test_entry_moved_to_another_name_is_not_used(directory: Path) -> None:
    cache.write_object("a" * 64, b"code")
    assert cache.read_object("a" * 64) == b"code"
    (path,) = entries(directory)
    path.rename(directory / f"{'b' * 64}.o")
    assert cache.read_object("b" * 64) is None


@pytest.mark.skipif(sys.platform == "win32", reason="permission bits are Unix's")
def test_directory_that_others_can_write_is_not_used(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(FileError):
        cache.require_cache_directory()
    assert reorder_is_right()
    assert entries(directory) == []


def test_directory_that_is_a_file_is_not_used(directory: Path) -> None:
    directory.write_text("in the way")
    with pytest.raises(FileError):
        cache.require_cache_directory()
    assert reorder_is_right()


def test_failed_write_leaves_nothing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.write_object("a" * 64, b"code")
    assert entries(directory) == []


def test_processes_share_the_directory(directory: Path) -> None:
    code = "from tests.support.cached_reorders import reorder_is_right; assert reorder_is_right()"
    runs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [run.wait(60) for run in runs] == [0, 0, 0]
    assert [path.suffix for path in entries(directory)] == [".o"]
