"""Disturbance of a measurement: other threads and other processes that compute while something is timed.

    IdleWait().wait()           before a turn, until the threads that the turn before woke sleep again
    thread_wait_seconds()       how long threads of this process waited for a processor that another process had
    OtherLoad().share()         what other processes took of all processors

Linux counts for each thread the time in which it could have run and did not. A kernel of two threads that is timed
while that grows is not what is timed: each of its barriers waits for the thread that waits.

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
_LOST = 0.03  # of the time of a round, waited for a processor by all threads together, beyond which it does not count
_WAKING = 50e-6  # seconds that threads which sleep may wait until they run, on a machine that has nothing else to do


@dataclass(frozen=True, slots=True)
class IdleWait:
    """A wait until all threads of this process sleep.

    Threads of OpenMP spin for some milliseconds after each call, those of ONNX Runtime for tens, on a processor that
    the next call then lacks. On processors that others use as well a thread that spins may not run for some
    milliseconds: a single look at an idle process does not suffice.
    """

    sleep: float = 12e-3
    """Seconds to sleep before the first look."""
    look: float = 2e-3
    """Seconds of one look."""
    share: float = 0.25
    """Part of a processor below which the process uses nothing: all threads sleep."""
    looks: int = 8
    """Looks in a row at which all threads sleep."""
    most: int = 100
    """Looks after which the wait ends, whatever spins."""

    def wait(self) -> None:
        """Wait."""
        time.sleep(self.sleep)
        asleep = 0
        for _ in range(self.most):
            began, used = time.perf_counter(), time.process_time()
            time.sleep(self.look)
            is_asleep = time.process_time() - used < self.share * (time.perf_counter() - began)
            asleep = asleep + 1 if is_asleep else 0
            if asleep >= self.looks:
                return


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of what is timed in this block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def thread_wait_seconds() -> float:
    """Return the seconds that the threads which live now have waited for a processor; 0.0 where no system tells."""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return 0.0
    return sum(map(_wait_nanoseconds, tasks)) * 1e-9


def _wait_nanoseconds(task: Path) -> int:
    """Return the nanoseconds of one thread; 0 for one that has ended."""
    # A line of three numbers: time on a processor, time waiting for one, and how often it got one.
    with suppress(OSError, ValueError, IndexError):
        return int((task / "schedstat").read_bytes().split()[1])
    return 0


def is_disturbed(waited: float, seconds: float) -> bool:
    """Return whether threads waited for a processor for too long a part of these seconds for them to count.

    >>> is_disturbed(waited=1e-3, seconds=0.1), is_disturbed(waited=4e-3, seconds=0.1)
    (False, True)
    """
    return waited > _LOST * seconds + _WAKING


class OtherLoad:
    """What other processes take of the processors: figures taken beside them are not to be quoted."""

    def __init__(self) -> None:
        """Begin to watch."""
        self._before = _busy_seconds(), _own_seconds(), time.monotonic()

    def share(self) -> float | None:
        """Return their share of all processors since the beginning; None where the system does not tell.

        Of a second it is known to some hundredths only, since the system counts in hundredths of a second: that of an
        idle machine lies around 0, on both sides.
        """
        busy, own, now = _busy_seconds(), _own_seconds(), time.monotonic()
        if busy is None or self._before[0] is None:
            return None
        others = (busy - self._before[0]) - (own - self._before[1])
        return others / ((now - self._before[2]) * (os.cpu_count() or 1))


def _busy_seconds() -> float | None:
    """Return the seconds that all processors together have worked since the machine started, for whatever process."""
    if not _STATISTICS.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, _STATISTICS.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Return the processor seconds of this process and of those that it started and waited for."""
    return sum(os.times()[:4])
