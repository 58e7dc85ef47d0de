"""Buffers that machine code takes and gives back by itself: one for each processor, made when first needed.

Stacks of threads can be as small as 128 KB, so what passes through a second-level cache has memory of its own.
"""

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlay.errors import OutOfMemory
from inlay.forks import RenewedLock, at_fork
from inlay.measure.calibration import Buffer
from inlay.reordering.emit_panels import BUFFER_BYTES
from inlay.reordering.memory_levels import allocate_lines

_LEAST = 4
_making = RenewedLock()
_pool: "BufferPool | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class BufferPool:
    """Buffers, and a flag for each: 0 while it is free."""

    flags: npt.NDArray[np.int64]
    """One word for each buffer."""
    buffers: Buffer
    """`BUFFER_BYTES` for each of them."""

    @property
    def words(self) -> tuple[int, int, int]:
        """What the table of panels says of it: the addresses of the flags and of the buffers, and their number."""
        return int(self.flags.ctypes.data), int(self.buffers.ctypes.data), self.flags.size


def buffer_pool() -> BufferPool:
    """Return the pool of this process, which stays for its life.

    Raises:
        OutOfMemory: there is no room for it.
    """
    global _pool
    with _making:
        if _pool is None:
            count = max(_LEAST, os.cpu_count() or 1)
            try:
                _pool = BufferPool(np.zeros(count, np.int64), allocate_lines(count * BUFFER_BYTES))
            except MemoryError:
                problem = f"{count * BUFFER_BYTES} bytes for the buffers of panels cannot be allocated"
                raise OutOfMemory(problem) from None
        return _pool


def _renew() -> None:
    """In a forked child nobody gives back what threads of the parent had taken: the flags are cleared."""
    if _pool is not None:
        _pool.flags[:] = 0


at_fork(after_in_child=_renew)
