"""Machines that tests simulate: small caches, many threads, narrow registers, an empty cache directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from inlay.machine import MemoryModel
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compiled, planning, threads
from inlay.reordering.target import TARGETS, host_target

X86 = {16: "x86-64-v2", 32: "x86-64-v3"}
"""The target with registers of so many bytes."""


@pytest.fixture
def fresh_reorders() -> Iterator[None]:
    """Compile what the test moves in the test, and forget it afterwards."""
    find_reorder.cache_clear()
    yield
    find_reorder.cache_clear()


@pytest.fixture
def five_threads(monkeypatch: pytest.MonkeyPatch, fresh_reorders: None) -> None:
    """Treat every move as large enough for five threads."""
    monkeypatch.setattr(threads, "_PART_BYTES", 1)
    monkeypatch.setattr(threads, "available_threads", lambda: 5)


@pytest.fixture
def always_streaming(monkeypatch: pytest.MonkeyPatch, five_threads: None) -> None:
    """Treat every tensor as larger than the caches, on five threads."""
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))


def use_narrow_registers(width: int, patch: pytest.MonkeyPatch) -> None:
    """Compile for a processor whose registers have so many bytes."""
    host = host_target()
    if not host.triple.startswith("x86_64") or host.vector_bytes < width:
        pytest.skip(f"no x86-64 processor with registers of {width} bytes")
    patch.setattr(compiled, "host_target", lambda: TARGETS[X86[width]])


@pytest.fixture(params=X86)
def narrow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fresh_reorders: None) -> None:
    """Compile for a processor with narrower registers than this one."""
    use_narrow_registers(request.param, monkeypatch)


@pytest.fixture(params=["as it is", "streaming", *X86])
def each_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fresh_reorders: None) -> None:
    """Use this machine as it is, one that streams on five threads, and those with narrower registers."""
    if request.param in X86:
        use_narrow_registers(request.param, monkeypatch)
    elif request.param == "streaming":
        request.getfixturevalue("always_streaming")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_reorders: None) -> Path:
    """Provide a cache directory that is yet to be made."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
