"""Buffers that machine code takes and gives back by itself: one for each processor, made when first needed.

Stacks of threads can be as small as 128 KB, so what passes through a second-level cache has memory of its own.
"""

import os
import threading

from inlay.errors import OutOfMemory
from inlay.reordering.emit_panels import BUFFER_BYTES
from inlay.reordering.memory_levels import allocate_lines

_LEAST = 4
_FLAG_BYTES = 8
_making = threading.Lock()
_pool: tuple[tuple[int, int, int], object] | None = None


def buffer_pool() -> tuple[int, int, int]:
    """Return the addresses of the flags and of the buffers, and how many there are, for the life of the process.

    Raises:
        OutOfMemory: there is no room for them.
    """
    global _pool
    with _making:
        if _pool is None:
            count = max(_LEAST, os.cpu_count() or 1)
            try:
                memory = allocate_lines(count * BUFFER_BYTES), allocate_lines(count * _FLAG_BYTES)
            except MemoryError:
                raise OutOfMemory(
                    f"{count * BUFFER_BYTES} bytes for the buffers of panels cannot be allocated"
                ) from None
            memory[1][:] = 0
            _pool = (int(memory[1].ctypes.data), int(memory[0].ctypes.data), count), memory
        return _pool[0]


def _renew() -> None:
    """In a forked child nobody gives back what threads of the parent had taken: the flags are cleared."""
    global _making
    _making = threading.Lock()
    if _pool is not None:
        memory = _pool[1]
        assert isinstance(memory, tuple)
        memory[1][:] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
