"""The yardstick: the best copy of the same number of bytes on the same threads.

Nobody knows in advance which copy is the best one on a machine, so several compete in the same rounds as the reorders:
each peer's own copy of a flat array, and the C library's `memcpy` split over all threads. The fastest of them is 100 %.
"""

import ctypes
import threading
from itertools import pairwise
from queue import SimpleQueue

from benchmarks.buffers import Bytes

_PAGE = 4096
_memcpy = ctypes.CDLL(None).memcpy
_memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcpy.restype = None


class ThreadedMemcpy:
    """`memcpy` in several threads at once: the calling one and workers that wait for it."""

    def __init__(self, threads: int) -> None:
        """Start the workers; they end with the process."""
        self._threads = threads
        self._inbox: SimpleQueue[tuple[int, int, int]] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        for i in range(threads - 1):
            threading.Thread(target=self._work, name=f"memcpy-{i}", daemon=True).start()

    def _work(self) -> None:
        while True:
            _memcpy(*self._inbox.get())
            self._done.put(None)

    def copy(self, src: Bytes, dst: Bytes) -> None:
        """Copy `src` to `dst`, of the same size.

        Post-condition: every thread is done.
        """
        begins = [src.size * i // self._threads // _PAGE * _PAGE for i in range(self._threads)] + [src.size]
        to, of = dst.ctypes.data, src.ctypes.data
        for begin, end in pairwise(begins[1:]):
            self._inbox.put((to + begin, of + begin, end - begin))
        _memcpy(to, of, begins[1])
        for _ in begins[2:]:
            self._done.get()
