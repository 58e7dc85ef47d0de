"""Splitting a range of tiles over worker threads that stay alive between calls.

Machine code runs without Python's global lock, so plain threads serve. The calling thread works too: with n parts,
n - 1 workers are woken.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Part = Callable[[int, int], None]
"""Does the items from begin (inclusive) to end (exclusive)."""

_PART_BYTES = 1 << 19  # less than this is done before a worker has woken up


def available_threads() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parts_for(moved_bytes: int, threads: int | None = None) -> int:
    """How many threads pay for a move of so many bytes, at most `threads`."""
    wanted = moved_bytes // _PART_BYTES
    if wanted < 2:
        return 1
    return max(1, min(available_threads() if threads is None else threads, wanted))


class _Pool:
    """Threads that wait for parts."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[tuple[Part, int, int, SimpleQueue[None]]] = SimpleQueue()
        self.size = 0
        self.lock = threading.Lock()

    def grow(self, size: int) -> None:
        """Have at least `size` workers."""
        with self.lock:
            while self.size < size:
                self.size += 1
                threading.Thread(target=self._work, name=f"inlay-{self.size}", daemon=True).start()

    def _work(self) -> None:
        while True:
            part, begin, end, done = self.inbox.get()
            try:
                part(begin, end)
            finally:
                done.put(None)


_pool = _Pool()


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run_parts(part: Part, count: int, parts: int) -> None:
    """Call `part` on consecutive ranges that together are 0..count-1, each in a thread of its own.

    Post-condition: every call has returned.
    """
    pool = _pool
    pool.grow(parts - 1)
    cuts = [count * i // parts for i in range(parts + 1)]
    done: SimpleQueue[None] = SimpleQueue()
    for i in range(1, parts):
        pool.inbox.put((part, cuts[i], cuts[i + 1], done))
    part(cuts[0], cuts[1])
    for _ in range(1, parts):
        done.get()
