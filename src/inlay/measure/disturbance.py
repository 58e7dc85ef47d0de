"""Disturbances of a measurement: other threads and processes that compute while calls are timed.

    IdleWait().wait()           waits until the threads that the previous turn woke sleep again
    thread_wait_seconds()       time that threads of this process spent waiting for a processor
    OtherLoad().share()         share of all processors that other processes used

Linux counts for each thread how long it was ready to run but did not run. If this time grows while a kernel of two
threads is timed, the measurement is invalid: at each barrier one thread waits for the other to get a processor.

>>> before = thread_wait_seconds()
>>> thread_wait_seconds() >= before
True
"""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")
_STATISTICS = Path("/proc/stat")
_MAX_WAIT_SHARE = 0.03  # a round is invalid if its threads together waited longer than this part of its time
_WAKE_UP = 50e-6  # seconds that waking threads may wait for a processor on an idle machine


@dataclass(frozen=True, slots=True)
class IdleWait:
    """A wait until all threads of this process sleep.

    After a call, threads of OpenMP spin for some milliseconds and those of ONNX Runtime for tens of milliseconds. They
    use processors that the next call needs. On a busy machine a spinning thread may not run for some milliseconds, so
    the process must appear idle in several observations in a row.
    """

    sleep: float = 12e-3
    """Seconds to sleep before the first observation."""
    look: float = 2e-3
    """Seconds of one observation."""
    share: float = 0.25
    """Fraction of a processor below which the process counts as idle."""
    looks: int = 8
    """Number of idle observations in a row that end the wait."""
    most: int = 100
    """Maximum number of observations; the wait ends then even if threads spin."""

    def wait(self) -> None:
        """Wait until the process is idle, or for the maximum number of observations."""
        time.sleep(self.sleep)
        idle_looks = 0
        for _ in range(self.most):
            began, used = time.perf_counter(), time.process_time()
            time.sleep(self.look)
            is_idle = time.process_time() - used < self.share * (time.perf_counter() - began)
            idle_looks = idle_looks + 1 if is_idle else 0
            if idle_looks >= self.looks:
                return


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector for the duration of the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def thread_wait_seconds() -> float:
    """Return the seconds that the running threads of this process have waited for a processor; 0.0 if unknown."""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return 0.0
    return sum(map(_wait_nanoseconds, tasks)) * 1e-9


def _wait_nanoseconds(task: Path) -> int:
    """Return the nanoseconds that one thread waited for a processor; 0 if it has ended."""
    # schedstat has three numbers: time on a processor, time waiting for one, number of time slices.
    with suppress(OSError, ValueError, IndexError):
        return int((task / "schedstat").read_bytes().split()[1])
    return 0


def is_disturbed(waited: float, seconds: float) -> bool:
    """Return whether threads waited for a processor too long for a measurement of `seconds` to be valid.

    >>> is_disturbed(waited=1e-3, seconds=0.1), is_disturbed(waited=4e-3, seconds=0.1)
    (False, True)
    """
    return waited > _MAX_WAIT_SHARE * seconds + _WAKE_UP


class OtherLoad:
    """The load of other processes since the creation of this object; figures taken under load must not be quoted."""

    def __init__(self) -> None:
        """Record the counters of the system."""
        self._before = _busy_seconds(), _own_seconds(), time.monotonic()

    def share(self) -> float | None:
        """Return the share of all processors that other processes used; None if the system does not report it.

        The system counts in hundredths of a second, so the error over one second is some hundredths. On an idle machine
        the result is near 0 and may be negative.
        """
        busy, own, now = _busy_seconds(), _own_seconds(), time.monotonic()
        if busy is None or self._before[0] is None:
            return None
        others = (busy - self._before[0]) - (own - self._before[1])
        return others / ((now - self._before[2]) * (os.cpu_count() or 1))


def _busy_seconds() -> float | None:
    """Return the busy seconds of all processors together since the machine started; None if unknown."""
    if not _STATISTICS.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, _STATISTICS.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Return the processor seconds of this process and of its ended children."""
    return sum(os.times()[:4])
