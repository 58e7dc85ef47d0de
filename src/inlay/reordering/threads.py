"""Distribution of a kernel's tiles to threads: the number of threads, and worker threads that persist between calls.

**Limit.** A reorder uses at most as many threads as this process has processors, or the limit that was set:

    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(None)

A limit is a number and starts no thread. Processors are those of the calling thread's affinity mask, so `taskset`,
`os.sched_setaffinity` and the processor set of a container are respected, also when they change while the process runs:
`get_num_threads` returns the current number, reorders adapt within a millisecond.

**`TeamWatch`.** A call on several threads ends when its last thread does. If another program occupies the processor of
a worker, the caller waits for milliseconds, however short the call is. So the run times of shared calls are monitored:

    shared          All calls are shared. For each call that took more than twice the shortest time, or that waited
                    longer than the caller's own part took, the lost time is summed.
    alone, trial    Begins when a third of the time since the first of these calls was lost: a few calls run on the
                    calling thread alone, to measure whether that is faster.
    alone           It was faster: calls run alone for a quarter of a second, later for up to two seconds.
    shared, trial   Then a few calls are shared. If they take less time than alone, all calls are shared again.

Slow memory has the same symptoms at first; it costs a few calls alone.

>>> watch = TeamWatch()
>>> for _ in range(2):
...     watch.record(begin=0, duration=5_000_000, waited=4_900_000)
>>> watch.limit == 0, watch.should_share(0)
(True, False)

**`Team`.** Machine code runs without Python's global lock, so Python threads can execute it concurrently. The calling
thread works too: n parts need n - 1 workers. While workers are awake, machine code posts a call, executes it and waits
for its end in one step (`emit_team`); Python is involved only to wake a parked worker.

One call at a time owns the workers. A concurrent call from another thread runs on its own thread alone, since the
processors are busy already.
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
from inlay.reordering.emit_team import PARKED, PREVIOUS_STATE, SLOT_WORDS, SPIN_LIMIT, SYMBOLS, WAITING, team_ir
from inlay.reordering.target import TargetMachine, host_target, load_permanently

_limit: int | None = None


class _ThreadLocalLimit(threading.local):
    """The limit of one Python thread, below that of the process; None for no limit."""

    limit: int | None = None


_thread_local = _ThreadLocalLimit()


def available_threads() -> int:
    """Return the number of processors that this thread may run on."""
    return len(allowed_processors())


def set_num_threads(n: SupportsIndex | None) -> None:
    """Set the maximum number of threads of every reorder in this process, including the calling thread.

    1 starts no workers: every move runs on the calling thread. None removes the limit. Small moves use fewer threads in
    any case. Calls that are running keep the number of threads with which they began.

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
    """Return the maximum number of threads of a reorder: the limit that was set, or the processors if fewer."""
    return apply_thread_limit(available_threads())


def apply_thread_limit(threads: int) -> int:
    """Return the number of threads, reduced to the limits of `set_num_threads` and `ThreadLimit`."""
    limit = _thread_local.limit
    if limit is not None and limit < threads:
        threads = limit
    return threads if _limit is None or _limit > threads else _limit


class ThreadLimit:
    """A context manager that limits the threads of what the calling Python thread computes or compiles.

    The limit of `set_num_threads` is unchanged; the lowest of all limits applies. None limits nothing.

    >>> with ThreadLimit(1):
    ...     get_num_threads()
    1
    """

    __slots__ = ("_outer", "_threads")

    def __init__(self, threads: int | None) -> None:
        """Create a limit of `threads` for a `with` block; None for no limit."""
        self._threads = threads

    def __enter__(self) -> None:
        """Apply the limit."""
        outer = self._outer = _thread_local.limit
        if self._threads is not None and (outer is None or self._threads < outer):
            _thread_local.limit = self._threads

    def __exit__(self, *exception: object) -> None:
        """Restore the previous limit."""
        _thread_local.limit = self._outer


# Parts


_PART_BYTES = 1 << 19  # least bytes for each thread: less is in one second-level cache, and other threads may be slower
_SMALL_PART = 1 << 16  # least bytes for each thread of a small move: less takes about as long as posting it
_FRESH = 1_000_000  # nanoseconds for which the number of available processors is cached


def choose_thread_count(moved_bytes: int, threads: int | None = None) -> int:
    """Return the number of threads worth using to move `moved_bytes`, at most `threads` or the process's limit."""
    wanted = moved_bytes // _PART_BYTES
    if wanted < 2:
        return 1
    return max(1, min(apply_thread_limit(available_threads()) if threads is None else threads, wanted))


def choose_small_thread_count(moved_bytes: int) -> int:
    """Return the number of threads that may be worth using for a move that fits one core's cache.

    1 if the move is too small for two threads, or does not fit; only trials can show whether more threads are faster.
    """
    return moved_bytes // _SMALL_PART if 2 * _SMALL_PART <= moved_bytes < 2 * _PART_BYTES else 1


_available: tuple[Callable[[], int], int, int, int] = (available_threads, 0, 0, 1)


def cap_thread_count(parts: int) -> int:
    """Return `parts`, or less if the limit or the number of processors within the last millisecond is less.

    The number of processors is cached: to query the system takes a microsecond, and five when the caches are full of a
    tensor's data.
    """
    global _available
    function, thread, until, count = _available
    now = time.monotonic_ns()
    # The cache is one tuple, replaced atomically. It is valid for one thread: alternating threads query the system.
    if now >= until or thread != threading.get_ident() or function is not available_threads:
        count = available_threads()
        _available = (available_threads, threading.get_ident(), now + _FRESH, count)
    count = apply_thread_limit(count)
    return count if count < parts else parts


# Detection of workers that have no processor


SLACK_NS = 100_000
"""Nanoseconds by which any call may be longer without being slow: the time to wake a parked worker."""
TRIAL_CALLS = 3
"""Number of calls of a trial."""
BACKOFF_NS = 250_000_000, 2_000_000_000
"""Nanoseconds during which calls run alone: the first time, and the limit of its repeated doubling."""
_WINDOW = 100_000_000  # nanoseconds over which the lost time of slow calls is summed
_LOST = 3  # a trial begins when more than one part in `_LOST` of the time is lost
_STALL = 50_000_000  # nanoseconds: a trial begins after a single call that loses more


class TeamWatch:
    """The state of the monitoring of one reorder's shared calls.

    Threads may use it concurrently without a lock: an inexact count does no harm.
    """

    __slots__ = (
        "_alone_until",
        "_backoff",
        "_lost_time",
        "_shared_since",
        "_slow_calls",
        "_slow_time",
        "_time_alone",
        "_trial_times",
        "_window_begin",
        "limit",
        "usual",
    )

    def __init__(self) -> None:
        """Start in the state `shared`, without any measured time."""
        self.usual = sys.maxsize
        """Time of the fastest shared call in nanoseconds."""
        self.limit = sys.maxsize
        """Time in nanoseconds from which a shared call is slow; 0 in all other states."""
        self._backoff = BACKOFF_NS[0]
        self._window_begin = self._lost_time = self._slow_time = self._slow_calls = 0
        self._trial_times: list[int] = []
        self._time_alone = 0.0  # nanoseconds of a call alone; 0 before any was tried
        self._alone_until = 0  # when calls may be shared again
        self._shared_since = 0

    def record(self, begin: int, duration: int, waited: int = 0) -> None:
        """Record a shared call that was faster than any before, or slow, or waited for other threads.

        Args:
            begin: start of the call, in nanoseconds.
            duration: duration of the call in nanoseconds.
            waited: the nanoseconds of these that followed the end of the caller's own part.
        """
        best = min(self.usual, duration - waited)
        if duration < self.usual:
            self.usual, self.limit = duration, 2 * duration + SLACK_NS
        if duration <= 2 * best + SLACK_NS:
            return
        if not self._slow_calls or begin - self._window_begin > _WINDOW + 8 * duration:
            self._window_begin, self._lost_time, self._slow_time, self._slow_calls = begin, 0, 0, 0
        self._slow_calls += 1
        self._lost_time += duration - best
        self._slow_time += duration
        is_repeated = self._slow_calls > 1 or self._lost_time > _STALL
        if is_repeated and _LOST * self._lost_time > begin + duration - self._window_begin:
            self._trial_times, self._time_alone, self._alone_until = [], 0.0, 0
            self.limit = 0

    def should_share(self, begin: int) -> bool:
        """Return whether a call that begins now is shared; for all states but `shared`."""
        return self._time_alone > 0 and begin >= self._alone_until

    def record_trial(self, is_shared: bool, begin: int, duration: int) -> None:
        """Record the duration of a call; for all states but `shared`."""
        times = self._trial_times
        if is_shared:
            times.append(duration)
            if duration > 2 * self._time_alone + SLACK_NS:
                self._enter_alone(begin + duration)
            elif len(times) >= TRIAL_CALLS:
                if sum(times) < self._time_alone * len(times):
                    self._enter_shared(begin, min(times))
                else:
                    self._enter_alone(begin + duration)
        elif not self._time_alone:
            times.append(duration)
            if len(times) >= TRIAL_CALLS:
                self._judge_trial(sum(times) / len(times), begin + duration)

    def _judge_trial(self, alone: float, now: int) -> None:
        """Compare the mean time of calls alone with that of the slow shared calls before, and choose the next state."""
        slow = self._slow_time / max(1, self._slow_calls)
        if alone < slow:
            self._time_alone = alone
            if self._window_begin - self._shared_since > self._backoff:
                self._backoff = BACKOFF_NS[0]
            self._enter_alone(now)
        else:
            # Calls alone are as slow, so the data is the cause, not the workers.
            self._enter_shared(now, round(slow))

    def _enter_alone(self, now: int) -> None:
        """Enter the state `alone`, and double the time for the next entry."""
        self._trial_times, self._alone_until = [], now + self._backoff
        self._backoff = min(2 * self._backoff, BACKOFF_NS[1])

    def _enter_shared(self, now: int, usual: int) -> None:
        """Enter the state `shared` with a new usual time."""
        self.usual, self.limit, self._shared_since = usual, 2 * usual + SLACK_NS, now
        self._window_begin = self._lost_time = self._slow_time = self._slow_calls = 0
        self._trial_times = []


# The team


@dataclass(slots=True, eq=False, repr=False)
class Task:
    """A kernel and its tiles, in the form that the machine code of a team reads."""

    entry: Callable[[int, int, int, int, int], None]
    """The kernel's function."""
    code: int
    """Address of the kernel's function."""
    tiles: int
    """Number of tiles."""
    grain: int = 1
    """Number of consecutive tiles that must be executed by one thread."""
    keeps_alive: object = None
    """References to the loaded code and to objects whose addresses the kernel's table holds."""
    watch: TeamWatch = field(default_factory=TeamWatch, init=False)
    """Monitoring of the calls on several threads."""
    waited: int = field(default=0, init=False)
    """Nanoseconds for which the last caller waited for other threads in Python, after polling in machine code."""
    address: int = field(init=False)
    """Address of the three words that machine code reads: code, tiles, grain."""
    _words: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        """Store the words that machine code reads."""
        self._words = np.array([self.code, self.tiles, self.grain], np.int64)
        self.address = int(self._words.ctypes.data)


_SPINS = 4_000  # polls, some 100 us, before an idle worker parks
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
# None if the system cannot bind threads to processors.
_sched_getcpu = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None


class Team:
    """Worker threads, each with a slot for posted calls."""

    def __init__(self, size: int, target: TargetMachine) -> None:
        """Start `size` workers; they are parked."""
        addresses = load_permanently("team", lambda: team_ir(target.pause, target.attributes), target, *SYMBOLS)
        functions = (f(a) for f, a in zip(_FUNCTIONS, addresses, strict=True))
        self._share, self._work, self._unfinished, self._leave = functions
        room: npt.NDArray[np.int64] = np.zeros((size + 2) * SLOT_WORDS, np.int64)
        words = room[-(room.ctypes.data // 8) % SLOT_WORDS :][: (size + 1) * SLOT_WORDS]
        self._head, self._slots = words[:SLOT_WORDS], words[SLOT_WORDS:].reshape(size, SLOT_WORDS)
        self._head[SPIN_LIMIT], self._slots[:, 0] = _SPINS, PARKED
        self._base = int(words.ctypes.data)
        self._wakes = [threading.Lock() for _ in range(size)]
        self.size = size
        """Number of workers."""
        self._threads = [
            threading.Thread(target=self._serve, args=(i, wake), name=f"inlay-{i + 1}", daemon=True)
            for i, wake in enumerate(self._wakes)
        ]
        self._places: list[int | None] = [None] * size
        for thread, wake in zip(self._threads, self._wakes, strict=True):
            wake.acquire()
            thread.start()

    def _serve(self, i: int, wake: threading.Lock) -> None:
        """Run worker `i`: wait until it is woken, then execute posted calls until it parks."""
        while True:
            wake.acquire()
            self._work(self._base + 8 * SLOT_WORDS * (i + 1), self._base)

    def run(self, task: Task, src: int, dst: int, table: int, parts: int) -> bool:
        """Execute `task` on the calling thread and `parts` - 1 workers, or alone if another call owns the workers.

        `src` and `dst` are the addresses of the coordinates of all zeros, `table` is the address of the kernel's table.

        Returns:
            True if a worker had to be woken.

        Post-condition: every tile is done; if an interrupt ends the call, no worker executes a part of it any more.
        """
        workers = parts - 1
        name = threading.get_ident()
        left = -1
        try:
            left = self._share(self._base, workers, name, task.address, src, dst, table)
            if left < 0:
                self._wake(workers)
                task.entry(src, dst, table, 0, task.tiles // task.grain // parts * task.grain)
                return True
        finally:
            if left:
                own_part_done = time.perf_counter_ns()
                self._end(workers, name)
                task.waited = time.perf_counter_ns() - own_part_done
        return False

    def _end(self, workers: int, name: int) -> None:
        """Wait for the workers, then free the team.

        After an interrupt, the team may not belong to `name`: the call had ended already, or never owned the workers.
        Then nothing is done.
        """
        if self._head[0] == name:
            try:
                self._join(workers)
            finally:
                self._leave(self._base, name)

    def _wake(self, workers: int) -> None:
        """Wake those of the first `workers` that were parked when a call was posted."""
        for i in range(workers):
            if self._slots[i, PREVIOUS_STATE] == PARKED:
                self._place(i)
                # An interrupt before the next assignment causes a second wake-up, which is harmless.
                if self._wakes[i].locked():
                    self._wakes[i].release()
                self._slots[i, PREVIOUS_STATE] = WAITING

    def _place(self, i: int) -> None:
        """Bind worker `i` to a processor other than the caller's.

        Without that, the system often wakes a worker on the caller's processor, and the two alternate there as long as
        calls follow each other.
        """
        others = [] if _sched_getcpu is None else sorted(os.sched_getaffinity(0) - {_sched_getcpu()})
        if others and self._places[i] != (place := others[i % len(others)]):
            with suppress(OSError):  # the binding is only an optimization
                os.sched_setaffinity(self._threads[i].native_id or 0, {place})
                self._places[i] = place

    def _join(self, workers: int) -> None:
        """Wait until no worker is busy: busy workers write to memory of the caller.

        An interrupt is raised afterwards.
        """
        interrupt: KeyboardInterrupt | None = None
        is_busy = True
        while is_busy:
            try:
                self._wake(workers)  # an interrupt may have prevented the call from waking them
                if is_busy := self._still_busy(workers):
                    _give_way()
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _still_busy(self, workers: int) -> bool:
        """Poll the workers; return whether some are busy when polling gives up."""
        return bool(self._unfinished(self._base, workers))


def _give_way() -> None:
    """Yield the processor, as the awaited worker may need it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()


_team: Team | None = None
_making = ForkResetLock()


def _forget() -> None:
    """Drop the team in a forked child, which has none of its parent's threads."""
    global _team
    _team = None


at_fork(after_in_child=_forget)


def _team_of(size: int, target: TargetMachine) -> Team:
    """Return the team of this process, with at least `size` workers."""
    global _team
    with _making:
        if _team is None or _team.size < size:
            _team = Team(size, target)
        return _team


def run_parts(task: Task, src: int, dst: int, table: int, parts: int) -> bool:
    """Execute `task` in `parts` consecutive ranges of tiles, each on its own thread if workers are free.

    If calls lose time waiting for workers that have no processor, the caller executes all tiles for a while
    (`TeamWatch`). Arguments and result are those of `Team.run`.

    Post-condition: every tile is done.
    """
    watch, is_shared, is_woken = task.watch, True, False
    begin = time.perf_counter_ns()
    if not watch.limit:
        is_shared = watch.should_share(begin)
    if is_shared:
        team = _team
        if team is None or team.size < parts - 1:
            team = _team_of(parts - 1, host_target())
        is_woken = team.run(task, src, dst, table, parts)
    else:
        task.entry(src, dst, table, 0, task.tiles)
    duration = time.perf_counter_ns() - begin
    if not watch.limit:
        watch.record_trial(is_shared, begin, duration)
    elif task.waited or not watch.usual <= duration <= watch.limit:
        watch.record(begin, duration, min(duration, task.waited))
        task.waited = 0
    return is_woken
