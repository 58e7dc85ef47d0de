"""A reorder whose code is in the cache, and what it should give: for tests of the cache directory."""

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compiled, machine_code

SRC = MemoryDesc((3, 19, 5, 7), "f32", "nchw")
DST = MemoryDesc((3, 19, 5, 7), "f32", "nChw8c")


def forget_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no code in memory, so that the next reorder reads the directory."""
    monkeypatch.setattr(machine_code, "_codes", {})
    machine_code.machine_code.cache_clear()
    find_reorder.cache_clear()


def reorder_is_right() -> bool:
    """Whether the reorder, compiled or loaded now, gives what NumPy does."""
    x = np.arange(SRC.size // 4, dtype=np.float32)
    y = np.full(DST.size // 4, -1, np.float32)
    compiled.compile_reorder(SRC, DST).run(x.ctypes.data, y.ctypes.data)
    padded = np.zeros((3, 24, 5, 7), np.float32)
    padded[:, :19] = x.reshape(SRC.dims)
    return bool((y == padded.reshape(3, 3, 8, 5, 7).transpose(0, 1, 3, 4, 2).ravel()).all())
