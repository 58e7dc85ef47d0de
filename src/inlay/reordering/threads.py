"""Splitting a kernel's tiles over worker threads that stay alive between calls.

Machine code runs without Python's global lock, so plain threads serve. The calling thread works too: with n parts,
n - 1 workers are called. A call is posted, shared and awaited in machine code (`emit_team`), in one step while workers
are awake; Python is needed only to wake one that sleeps.

One call has the workers at a time. A call from another thread meanwhile runs on its own thread alone: the processors
are taken already.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inlay.reordering.emit_team import PARKED, SLOT_WORDS, SYMBOLS, WAITING, WAS, team_ir
from inlay.reordering.linking import linked
from inlay.reordering.processors import available_threads, limited
from inlay.reordering.target import Target

_PART_BYTES = 1 << 19  # less than this lies in one second-level cache, out of which another thread is slower
_AWAKE = 4_000  # looks, some 100 us: how long a worker without work stays awake
_FUNCTIONS = (
    ctypes.CFUNCTYPE(
        ctypes.c_int64,
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
    ),
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64),
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
)


def parts_for(moved_bytes: int, threads: int | None = None) -> int:
    """How many threads pay for a move of so many bytes: at most `threads`, or as many as the process may use."""
    wanted = moved_bytes // _PART_BYTES
    if wanted < 2:
        return 1
    return max(1, min(limited(available_threads()) if threads is None else threads, wanted))


class Call(NamedTuple):
    """One call of a kernel, to be split by tiles; a tuple, since each is made for one use."""

    entry: Callable[[int, int, int, int, int], None]
    """The kernel's code."""
    code: int
    """Its address."""
    src: int
    """Address of the coordinate of all zeros in the source."""
    dst: int
    """The same in the destination."""
    table: int
    """Address of the kernel's table."""
    tiles: int
    """How many tiles there are."""
    run: int = 1
    """How many of them stay together on one thread."""


class Team:
    """Worker threads, each with a slot in which calls are posted."""

    def __init__(self, size: int, target: Target) -> None:
        """Start `size` workers, asleep."""
        addresses = linked("team", lambda: team_ir(target.pause, target.attributes), target, *SYMBOLS)
        self._share, self._work, self._unfinished = (f(a) for f, a in zip(_FUNCTIONS, addresses, strict=True))
        self._slots: npt.NDArray[np.int64] = np.full((size, SLOT_WORDS), PARKED, np.int64)
        self._base = int(self._slots.ctypes.data)
        self._wakes = [threading.Lock() for _ in range(size)]
        self.free = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, args=(i, wake), name=f"inlay-{i + 1}", daemon=True)
            for i, wake in enumerate(self._wakes)
        ]
        self._places: list[int | None] = [None] * size
        for thread, wake in zip(self._threads, self._wakes, strict=True):
            wake.acquire()
            thread.start()

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._wakes)

    def _address(self, i: int) -> int:
        return self._base + 8 * SLOT_WORDS * i

    def _serve(self, i: int, wake: threading.Lock) -> None:
        while True:
            wake.acquire()
            self._work(self._address(i), _AWAKE)

    def run(self, call: Call, parts: int) -> None:
        """Carry out `call` on the calling thread and `parts` - 1 workers; the caller holds `free`.

        Post-condition: every tile is done; when an interrupt ends the call, no worker is at it any more.
        """
        workers = parts - 1
        _, code, *rest = call
        left = -1
        try:
            left = self._share(self._base, workers, _AWAKE, code, *rest)
            if left < 0:
                self._wake(workers)
                call.entry(call.src, call.dst, call.table, 0, call.tiles // call.run // parts * call.run)
        finally:
            if left:
                self._join(workers)

    def _wake(self, workers: int) -> None:
        """Wake those of the first `workers` that were asleep when a call was posted."""
        for i in range(workers):
            if self._slots[i, WAS] == PARKED:
                self._place(i)
                # Woken twice, if an interrupt comes before the mark, a worker finds nothing to do and sleeps again.
                if self._wakes[i].locked():
                    self._wakes[i].release()
                self._slots[i, WAS] = WAITING

    def _place(self, i: int) -> None:
        """Bind worker `i` to a processor that the caller is not on.

        Left alone, a worker is often woken on the caller's own processor, and the two take turns for as long as calls
        come in.
        """
        here = _this_processor()
        others = [] if here is None else sorted(os.sched_getaffinity(0) - {here})
        if others and self._places[i] != (place := others[i % len(others)]):
            with suppress(OSError):  # the worker may run where it wants to
                os.sched_setaffinity(self._threads[i].native_id or 0, {place})
                self._places[i] = place

    def _join(self, workers: int) -> None:
        """Return only when no worker is busy: until then they write into memory of the caller."""
        interrupt: KeyboardInterrupt | None = None
        is_busy = True
        while is_busy:
            try:
                self._wake(workers)  # an interrupt may have come between the call and its waking
                if is_busy := self._still_busy(workers):
                    _give_way()
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _still_busy(self, workers: int) -> bool:
        return bool(self._unfinished(self._base, workers, _AWAKE))


def _system_call() -> Callable[[], int] | None:
    """The system's `sched_getcpu`, where threads can be bound to processors at all."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


_sched_getcpu = _system_call()


def _this_processor() -> int | None:
    """The number of the processor that runs this thread, or None if the system does not tell."""
    return None if _sched_getcpu is None else _sched_getcpu()


def _give_way() -> None:
    """Let another thread have this processor: the worker that is awaited may be waiting for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


_team: Team | None = None
_making = threading.Lock()


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _team, _making
    _team, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _team_of(size: int, target: Target) -> Team:
    """The team of this process, with at least `size` workers."""
    global _team
    with _making:
        if _team is None or _team.size < size:
            _team = Team(size, target)
        return _team


def run_parts(call: Call, parts: int, target: Target) -> None:
    """Carry out `call` in `parts` consecutive ranges of tiles, each on a thread of its own if threads are free.

    Post-condition: every tile is done.
    """
    team = _team_of(parts - 1, target)
    if not team.free.acquire(blocking=False):
        call.entry(call.src, call.dst, call.table, 0, call.tiles)
        return
    try:
        team.run(call, parts)
    finally:
        team.free.release()
