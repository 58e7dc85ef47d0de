"""Buffers that all contenders of a case share, and copies of them on several threads.

All contenders read the same source buffer and write the same destination buffer, so that none is luckier with pages or
cache sets. A buffer begins at a huge page (2 MiB), requests huge pages, and is written before anything is timed.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import pairwise
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType

Bytes = npt.NDArray[np.uint8]

HUGE_PAGE = 2 << 20
_PAGE = 4096
_PERIOD = 1_000_003  # a prime: no layout repeats with it, so that no wrong permutation can go unseen
_c = ctypes.CDLL(None)
_memcpy = _c.memcpy
_memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcpy.restype = None


def huge_buffer(nbytes: int) -> Bytes:
    """Return `nbytes` zero bytes at a multiple of 2 MiB, on huge pages where the system provides them."""
    length = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    pages = mmap.mmap(-1, length + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a system without huge pages: all contenders have small ones
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    skip = -whole.ctypes.data % HUGE_PAGE
    buffer = whole[skip : skip + nbytes]
    buffer.fill(0)
    return buffer


def fill_with_values(buffer: Bytes, data_type: DataType) -> None:
    """Fill `buffer` with ordinary values: integers up to 300 either way, or floats without subnormals and infinities.

    They neither slow down nor change the bytes of a contender that computes `1.0 * x` on the way. Conversions to
    integers round most floats and saturate some. With 4 bits all integers are ordinary.
    """
    period = _values(data_type)
    whole = buffer.size // period.size * period.size
    buffer[:whole].reshape(-1, period.size)[:] = period
    buffer[whole:] = period[: buffer.size - whole]


@cache
def _values(data_type: DataType) -> Bytes:
    random = np.random.default_rng(0)
    if data_type.is_sub_byte:
        return random.integers(0, 255, _PERIOD, np.uint8, endpoint=True)  # two of them; every code is an integer
    if data_type.kind == "float":
        scale = min(64.0, data_type.highest / 8)
        values = (scale * random.standard_normal(_PERIOD, np.float32)).astype(data_type.dtype)
    else:
        low, high = max(-300, int(data_type.lowest)), min(300, int(data_type.highest))
        values = random.integers(low, high, _PERIOD, endpoint=True).astype(data_type.dtype)
    return values.view(np.uint8)


class ThreadedMemcpy:
    """The C library's `memcpy` on several threads: the calling one, and a worker on every other processor.

    Each worker is bound to its processor. A free one is often woken on the processor of the thread that wakes it, and
    both then share it for as long as a copy lasts while another one idles.
    """

    def __init__(self, processors: Sequence[int]) -> None:
        """Start a worker on each processor; they end with the process."""
        self._inboxes = {processor: SimpleQueue[tuple[int, int, int]]() for processor in processors}
        self._done: SimpleQueue[None] = SimpleQueue()
        for processor in processors:
            name = f"memcpy-{processor}"
            threading.Thread(target=self._work, args=(processor,), name=name, daemon=True).start()

    def _work(self, processor: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {processor})
        inbox = self._inboxes[processor]
        while True:
            _memcpy(*inbox.get())
            self._done.put(None)

    def copy(self, src: Bytes, dst: Bytes) -> None:
        """Copy `src` to `dst`, of the same size, and wait until every thread is done."""
        here = _c.sched_getcpu() if hasattr(_c, "sched_getcpu") else -1
        others = [inbox for processor, inbox in self._inboxes.items() if processor != here][: len(self._inboxes) - 1]
        count = len(others) + 1
        begins = [src.size * i // count // _PAGE * _PAGE for i in range(count)] + [src.size]
        to, of = dst.ctypes.data, src.ctypes.data
        for inbox, (begin, end) in zip(others, pairwise(begins[1:]), strict=True):
            inbox.put((to + begin, of + begin, end - begin))
        _memcpy(to, of, begins[1])
        for _ in others:
            self._done.get()
