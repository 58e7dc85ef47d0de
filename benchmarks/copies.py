"""The yardstick: the best copy of the same number of bytes on the same threads.

Nobody knows in advance which copy is the best one on a machine, so several compete in the same rounds as the reorders:
each peer's own copy of a flat array, and the C library's `memcpy` split over all processors. The fastest of them is
100 %.
"""

import ctypes
import os
import threading
from collections.abc import Sequence
from itertools import pairwise
from queue import SimpleQueue

from benchmarks.buffers import Bytes

_PAGE = 4096
_c = ctypes.CDLL(None)
_memcpy = _c.memcpy
_memcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcpy.restype = None


class ThreadedMemcpy:
    """`memcpy` in several threads at once: the calling one, and on every other processor a worker that waits for it.

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
        """Copy `src` to `dst`, of the same size.

        Post-condition: every thread is done.
        """
        others = self._other_inboxes()
        count = len(others) + 1
        begins = [src.size * i // count // _PAGE * _PAGE for i in range(count)] + [src.size]
        to, of = dst.ctypes.data, src.ctypes.data
        for inbox, (begin, end) in zip(others, pairwise(begins[1:]), strict=True):
            inbox.put((to + begin, of + begin, end - begin))
        _memcpy(to, of, begins[1])
        for _ in others:
            self._done.get()

    def _other_inboxes(self) -> list["SimpleQueue[tuple[int, int, int]]"]:
        """Those of all workers but the one on the processor that the calling thread is on."""
        here = _c.sched_getcpu() if hasattr(_c, "sched_getcpu") else -1
        found = [inbox for processor, inbox in self._inboxes.items() if processor != here]
        return found[: len(self._inboxes) - 1]
