"""Splitting a kernel's tiles over threads: how many a reorder may use, and workers that stay alive between calls.

**Limit.** A reorder uses at most as many threads as this process has processors, or as it was told:

    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(None)

A limit is a number and starts no thread. Processors are those of the affinity of the thread that asks, so `taskset`,
`os.sched_setaffinity` and the processor set of a container count, also when they change while the process runs:
`get_num_threads` says so at once, reorders notice within a millisecond.

**`TeamWatch`.** A call ends when its last thread does. Where another program has the processor of a worker, the caller
waits for some milliseconds, whatever the call takes alone. So the times of shared calls are watched:

    shared          all calls are; of those that took twice as long as ever, or waited for longer than the caller's own
                    part took, the lost time is added up
    alone, tried    a third of the time since the first of these was lost: a few calls alone show whether that is better
    alone           it was: calls are the caller's alone for a quarter of a second, later for up to two
    shared, tried   then a few are shared; if they take less than alone, all are

Slow memory looks the same at first, and costs a few calls alone.

>>> watch = TeamWatch()
>>> for _ in range(2):
...     watch.note(began=0, took=5_000_000, waited=4_900_000)
>>> watch.limit == 0, watch.shares(0)
(True, False)

**`Team`.** Machine code runs without Python's global lock, so plain threads serve. The calling thread works too: with n
parts, n - 1 workers are called. A call is posted, shared and awaited in machine code (`emit_team`), in one step while
workers are awake; Python is needed only to wake one that sleeps.

One call has the workers at a time. A call from another thread meanwhile runs on its own thread alone: the processors
are taken already.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments, shown
from inlay.forks import ForkResetLock, at_fork
from inlay.measure.processors import allowed_processors
from inlay.reordering.emit_team import LOOKS, PARKED, SLOT_WORDS, SYMBOLS, WAITING, WAS, team_ir
from inlay.reordering.target import Target, host_target, linked

_limit: int | None = None


class _OfThread(threading.local):
    """A limit of one Python thread, below that of the process; None for none."""

    limit: int | None = None


_of_thread = _OfThread()


def available_threads() -> int:
    """The processors that this thread may run on."""
    return len(allowed_processors())


def set_num_threads(n: SupportsIndex | None) -> None:
    """Let every reorder of this process use at most `n` threads, the calling one included.

    1 starts no workers: every move runs on the thread that asks for it. None takes the limit away. Moves too small for
    several threads use fewer in any case. Calls that run meanwhile keep the number that they began with.

    Post-condition: get_num_threads() is the smaller of `n` and the processors that this thread may run on.

    Raises:
        InvalidArguments: `n` is no whole number, or less than 1.
    """
    global _limit
    if n is None:
        _limit = None
        return
    count = integer_or_none(n)
    if count is None or count < 1:
        raise InvalidArguments(
            f"the number of threads is {shown(n)}: give a whole number from 1 on, or None for every processor"
        )
    _limit = count


def get_num_threads() -> int:
    """The most threads that a reorder uses: what `set_num_threads` was given, and no more than there are processors."""
    return limited(available_threads())


def limited(threads: int) -> int:
    """So many threads, or fewer if `set_num_threads` or `ThreadLimit` says so."""
    limit = _of_thread.limit
    if limit is not None and limit < threads:
        threads = limit
    return threads if _limit is None or _limit > threads else _limit


class ThreadLimit:
    """While this lasts, what the calling Python thread computes or prepares uses at most so many threads.

    The limit of `set_num_threads` stays as it is; of all limits the lowest counts. None limits nothing.

    >>> with ThreadLimit(1):
    ...     get_num_threads()
    1
    """

    __slots__ = ("_outer", "_threads")

    def __init__(self, threads: int | None) -> None:
        """Limit the `with` block to so many threads."""
        self._threads = threads

    def __enter__(self) -> None:
        """Begin."""
        outer = self._outer = _of_thread.limit
        if self._threads is not None and (outer is None or self._threads < outer):
            _of_thread.limit = self._threads

    def __exit__(self, *exception: object) -> None:
        """Return to the limit of before."""
        _of_thread.limit = self._outer


# Parts


_PART_BYTES = 1 << 19  # less than this lies in one second-level cache, out of which another thread may be slower
_SMALL_PART = 1 << 16  # less than this takes about as long as handing it over
_FRESH = 1_000_000  # nanoseconds for which the processors that a thread may run on are taken to stay the same


def parts_for(moved_bytes: int, threads: int | None = None) -> int:
    """How many threads pay for a move of so many bytes: at most `threads`, or as many as the process may use."""
    wanted = moved_bytes // _PART_BYTES
    if wanted < 2:
        return 1
    return max(1, min(limited(available_threads()) if threads is None else threads, wanted))


def small_parts_for(moved_bytes: int) -> int:
    """How many threads may pay for a move that lies in one core's cache; 1 where it does not, or is too small."""
    return moved_bytes // _SMALL_PART if 2 * _SMALL_PART <= moved_bytes < 2 * _PART_BYTES else 1


_available: tuple[Callable[[], int], int, int, int] = (available_threads, 0, 0, 1)


def allowed(parts: int) -> int:
    """So many parts, or as many as `set_num_threads` allows and as there were processors within the last millisecond.

    To ask the system with each call takes a microsecond, and five where the caches are full of a tensor.
    """
    global _available
    asked, thread, until, count = _available
    now = time.monotonic_ns()
    # One tuple, replaced as a whole: threads that ask in turns ask the system each time.
    if now >= until or thread != threading.get_ident() or asked is not available_threads:
        count = available_threads()
        _available = (available_threads, threading.get_ident(), now + _FRESH, count)
    count = limited(count)
    return count if count < parts else parts


# Waiting for threads that do not run


SLACK = 100_000
"""Nanoseconds that any call may take longer: a worker that sleeps is woken."""
TRIED = 3
"""Calls of a trial."""
WAITS = 250_000_000, 2_000_000_000
"""Nanoseconds for which calls are the caller's alone: for the first time, and at most after more and more of them."""
_WINDOW = 100_000_000  # nanoseconds in which slow calls are added up
_LOST = 3  # the part of the time that must be lost is one of so many
_STALL = 50_000_000  # nanoseconds: who loses so many in one call need not be slow again


class TeamWatch:
    """What one reorder knows of its shared calls. Threads may use it at once: a count that is off by one is no harm."""

    __slots__ = (
        "_alone",
        "_first",
        "_lost",
        "_shared_since",
        "_slow",
        "_spent",
        "_times",
        "_until",
        "_wait",
        "limit",
        "usual",
    )

    def __init__(self) -> None:
        """Share calls; nothing is known of how long they take."""
        self.usual = sys.maxsize
        """Nanoseconds of the fastest shared call."""
        self.limit = sys.maxsize
        """Nanoseconds from which on a shared call is slow; 0 while calls are the caller's alone or tried."""
        self._wait = WAITS[0]
        self._first = self._lost = self._spent = self._slow = 0
        self._times: list[int] = []
        self._alone = 0.0  # nanoseconds of a call alone; 0 before any was tried
        self._until = 0  # when calls may be shared again
        self._shared_since = 0

    def note(self, began: int, took: int, waited: int = 0) -> None:
        """Note a shared call that was faster than any before, or slow, or waited for others.

        Args:
            began: when, in nanoseconds.
            took: nanoseconds of the call.
            waited: nanoseconds of these in which the caller's own part was done.
        """
        best = min(self.usual, took - waited)
        if took < self.usual:
            self.usual, self.limit = took, 2 * took + SLACK
        if took <= 2 * best + SLACK:
            return
        if not self._slow or began - self._first > _WINDOW + 8 * took:
            self._first, self._lost, self._spent, self._slow = began, 0, 0, 0
        self._slow += 1
        self._lost += took - best
        self._spent += took
        if (self._slow > 1 or self._lost > _STALL) and _LOST * self._lost > began + took - self._first:
            self._times, self._alone, self._until = [], 0.0, 0
            self.limit = 0

    def shares(self, began: int) -> bool:
        """Whether a call that begins now is shared, while that is in doubt."""
        return self._alone > 0 and began >= self._until

    def took(self, is_shared: bool, began: int, took: int) -> None:
        """Note how long a call took while that was in doubt."""
        times = self._times
        if is_shared:
            times.append(took)
            if took > 2 * self._alone + SLACK:
                self._be_alone(began + took)
            elif len(times) >= TRIED:
                if sum(times) < self._alone * len(times):
                    self._share(began, min(times))
                else:
                    self._be_alone(began + took)
        elif not self._alone:
            times.append(took)
            if len(times) >= TRIED:
                self._judge(sum(times) / len(times), began + took)

    def _judge(self, alone: float, now: int) -> None:
        """Decide between calls alone and the slow ones before."""
        slow = self._spent / max(1, self._slow)
        if alone < slow:
            self._alone = alone
            if self._first - self._shared_since > self._wait:
                self._wait = WAITS[0]
            self._be_alone(now)
        else:
            # It is not the team: with this data calls take so long.
            self._share(now, round(slow))

    def _be_alone(self, now: int) -> None:
        self._times, self._until = [], now + self._wait
        self._wait = min(2 * self._wait, WAITS[1])

    def _share(self, now: int, usual: int) -> None:
        self.usual, self.limit, self._shared_since = usual, 2 * usual + SLACK, now
        self._first = self._lost = self._spent = self._slow = 0
        self._times = []


# The team


@dataclass(slots=True, eq=False, repr=False)
class Task:
    """A kernel with its tiles, as the machine code that splits them wants it."""

    entry: Callable[[int, int, int, int, int], None]
    """The kernel's code."""
    code: int
    """Its address."""
    tiles: int
    """How many tiles there are."""
    run: int = 1
    """How many of them stay together on one thread."""
    kept: object = None
    """What keeps the code loaded, and what the kernel's table refers to by address."""
    watch: TeamWatch = field(default_factory=TeamWatch, init=False)
    """How long it takes on several threads, and whether they run."""
    waited: int = field(default=0, init=False)
    """Nanoseconds for which the last caller waited for other threads after it had looked for them in vain."""
    address: int = field(init=False)
    """Where machine code finds all that."""
    _words: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Write down what machine code reads."""
        self._words = np.array([self.code, self.tiles, self.run], np.int64)
        self.address = int(self._words.ctypes.data)


_AWAKE = 4_000  # looks, some 100 us: how long a worker without work stays awake
_FUNCTIONS = (
    ctypes.CFUNCTYPE(
        ctypes.c_int64,
        *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    ),
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p),
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64),
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64),
)
# Only where threads can be bound to processors at all.
_sched_getcpu = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None


class Team:
    """Worker threads, each with a slot in which calls are posted."""

    def __init__(self, size: int, target: Target) -> None:
        """Start `size` workers, asleep."""
        addresses = linked("team", lambda: team_ir(target.pause, target.attributes), target, *SYMBOLS)
        functions = (f(a) for f, a in zip(_FUNCTIONS, addresses, strict=True))
        self._share, self._work, self._unfinished, self._leave = functions
        room: npt.NDArray[np.int64] = np.zeros((size + 2) * SLOT_WORDS, np.int64)
        words = room[-(room.ctypes.data // 8) % SLOT_WORDS :][: (size + 1) * SLOT_WORDS]
        self._head, self._slots = words[:SLOT_WORDS], words[SLOT_WORDS:].reshape(size, SLOT_WORDS)
        self._head[LOOKS], self._slots[:, 0] = _AWAKE, PARKED
        self._base = int(words.ctypes.data)
        self._wakes = [threading.Lock() for _ in range(size)]
        self.size = size
        """How many workers there are."""
        self._threads = [
            threading.Thread(target=self._serve, args=(i, wake), name=f"inlay-{i + 1}", daemon=True)
            for i, wake in enumerate(self._wakes)
        ]
        self._places: list[int | None] = [None] * size
        for thread, wake in zip(self._threads, self._wakes, strict=True):
            wake.acquire()
            thread.start()

    def _serve(self, i: int, wake: threading.Lock) -> None:
        while True:
            wake.acquire()
            self._work(self._base + 8 * SLOT_WORDS * (i + 1), self._base)

    def run(self, task: Task, src: int, dst: int, table: int, parts: int) -> bool:
        """Carry out `task` on the calling thread and `parts` - 1 workers, or alone if another call has the workers.

        `src` and `dst` are the addresses of the coordinates of all zeros, `table` is that of the kernel's table.
        Answers whether a worker had to be woken.

        Post-condition: every tile is done; when an interrupt ends the call, no worker is at it any more.
        """
        workers = parts - 1
        name = threading.get_ident()
        left = -1
        try:
            left = self._share(self._base, workers, name, task.address, src, dst, table)
            if left < 0:
                self._wake(workers)
                task.entry(src, dst, table, 0, task.tiles // task.run // parts * task.run)
                return True
        finally:
            if left:
                own_part_done = time.perf_counter_ns()
                self._end(workers, name)
                task.waited = time.perf_counter_ns() - own_part_done
        return False

    def _end(self, workers: int, name: int) -> None:
        """Wait for the workers, then let others have them.

        Where an interrupt came before the answer of a call that is long done, or that never had the workers, the team
        is not `name`'s and there is nothing to end.
        """
        if self._head[0] == name:
            try:
                self._join(workers)
            finally:
                self._leave(self._base, name)

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
        others = [] if _sched_getcpu is None else sorted(os.sched_getaffinity(0) - {_sched_getcpu()})
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
        return bool(self._unfinished(self._base, workers))


def _give_way() -> None:
    """Let another thread have this processor: the worker that is awaited may be waiting for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


_team: Team | None = None
_making = ForkResetLock()


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _team
    _team = None


at_fork(after_in_child=_forget)


def _team_of(size: int, target: Target) -> Team:
    """The team of this process, with at least `size` workers."""
    global _team
    with _making:
        if _team is None or _team.size < size:
            _team = Team(size, target)
        return _team


def run_parts(task: Task, src: int, dst: int, table: int, parts: int) -> bool:
    """Carry out `task` in `parts` consecutive ranges of tiles, each on a thread of its own if threads are free and run.

    Where calls wait for a thread that does not run, the caller carries out all for a while (see `TeamWatch`). The
    arguments and the answer are those of `Team.run`.

    Post-condition: every tile is done.
    """
    watch, is_shared, is_woken = task.watch, True, False
    began = time.perf_counter_ns()
    if not watch.limit:
        is_shared = watch.shares(began)
    if is_shared:
        team = _team
        if team is None or team.size < parts - 1:
            team = _team_of(parts - 1, host_target())
        is_woken = team.run(task, src, dst, table, parts)
    else:
        task.entry(src, dst, table, 0, task.tiles)
    took = time.perf_counter_ns() - began
    if not watch.limit:
        watch.took(is_shared, began, took)
    elif task.waited or not watch.usual <= took <= watch.limit:
        watch.note(began, took, min(took, task.waited))
        task.waited = 0
    return is_woken
