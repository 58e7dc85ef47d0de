"""The processors that run threads of this process: affinity, quotas of control groups, and a short measurement.

    measured = measure_processors()
    measured.shares      (0.98, 0.51): a thread ran nearly all the time on one processor, half of the time on the other
    measured.threads     1: a team of two threads would wait at every barrier for the thread that does not run
    measured.is_busy     True

**Control groups** limit the processors (possibly to a fraction) and the memory of a process:

    cgroup v2    cpu.max                                "150000 100000": 1.5 processors; "max 100000": no quota
                 memory.max                             bytes, or "max"
    cgroup v1    cpu.cfs_quota_us, cpu.cfs_period_us    -1: no quota
                 memory.limit_in_bytes                  bytes; a number near 2^63 means no limit

The smallest quota of all groups on the path from the process to the root applies. Inside a container the root is the
container's own group, but /proc/self/cgroup may contain its path on the host. Folders that do not exist are therefore
skipped, and the root is always read.

**Shares.** The number of processors does not tell how much of them a process gets: other programs may use them, and a
hypervisor may run two virtual processors in turns on one, which no file reports. So one thread computes on each
processor for some milliseconds, all at the same time. The amount of work that a thread completes, relative to the
fastest execution of the same work, is its share of the processor.

Source: Documentation/admin-guide/cgroup-v2.rst, Documentation/admin-guide/cgroup-v1/memory.rst and
Documentation/scheduler/sched-bwc.rst of Linux.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path, PurePosixPath

from inlay.forks import ForkResetLock, at_fork
from inlay.measure.interleaved import Clock, clock

MEMBERSHIP = Path("/proc/self/cgroup")
"""File that lists the control groups of this process, one line for each hierarchy."""
ROOTS = Path("/sys/fs/cgroup")
"""Folder in which the hierarchies of control groups are mounted."""
_NO_LIMIT = 1 << 60  # bytes; cgroup v1 reports a number above this if there is no limit


def cpu_quota(membership: Path = MEMBERSHIP, roots: Path = ROOTS) -> float | None:
    """Return the smallest quota of the control groups of this process, in processors; None without a quota."""
    folders = _folders("cpu", membership, roots)
    return min((quota for folder in folders if (quota := _quota_of(folder)) is not None), default=None)


def memory_limit(membership: Path = MEMBERSHIP, roots: Path = ROOTS) -> int | None:
    """Return the smallest memory limit of the control groups of this process, in bytes; None without a limit."""
    folders = _folders("memory", membership, roots)
    return min((limit for folder in folders if (limit := _limit_of(folder)) is not None), default=None)


def _folders(controller: str, membership: Path, roots: Path) -> Iterator[Path]:
    """Iterate over the folders of the groups of this process for a controller, and of all groups above them."""
    try:
        lines = membership.read_text().splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if hierarchy == "0":
            mounts = [roots, roots / "unified"]
        elif controller in controllers.split(","):
            mounts = [roots / controllers, roots / controller]
        else:
            continue
        path = PurePosixPath(group.lstrip("/"))
        if ".." not in path.parts:
            for mount in mounts:
                yield from (mount / each for each in (path, *path.parents))


def _quota_of(folder: Path) -> float | None:
    """Return the quota of one group in processors; None without a quota or if its files are invalid."""
    with suppress(OSError, ValueError):
        quota, _, period = (folder / "cpu.max").read_text().strip().partition(" ")
        return _ratio(quota, period)
    with suppress(OSError, ValueError):
        return _ratio((folder / "cpu.cfs_quota_us").read_text(), (folder / "cpu.cfs_period_us").read_text())
    return None


def _limit_of(folder: Path) -> int | None:
    """Return the memory limit of one group in bytes; None without a limit or if its file is invalid."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int((folder / name).read_text())  # "max" raises ValueError
            return limit if 0 <= limit < _NO_LIMIT else None
    return None


def _ratio(quota: str, period: str) -> float | None:
    """Return the number of processors of a quota, both texts in microseconds; None without a quota.

    Raises:
        ValueError: a text is not a number.
    """
    if quota.strip() == "max":
        return None
    time, each = int(quota), int(period)
    return time / each if time > 0 and each > 0 else None


# Shares of processors


_FREE = 0.75  # minimum share of a free processor
_MIN_GAIN = 0.2  # a larger team must gain at least this part of the ideal gain


@dataclass(frozen=True, slots=True)
class Processors:
    """The shares of the processors that threads of this process get, and the quota of its control groups.

    >>> Processors((1.0, 0.5)).threads, Processors((1.0, 0.98)).threads, Processors((1.0, 1.0), 1.2).threads
    (1, 2, 1)
    >>> print(Processors((1.0, 0.5)))
    1.5 of 2 processors are free
    """

    shares: tuple[float, ...]
    """Share of each allowed processor, from 0 to 1; the largest share first."""
    quota: float | None = None
    """Quota of the control groups in processors; None without a quota."""

    @property
    def count(self) -> int:
        """Number of processors that the affinity of this process allows."""
        return len(self.shares)

    @property
    def effective(self) -> float:
        """Sum of the shares, at most the quota."""
        total = sum(self.shares)
        return total if self.quota is None else min(total, self.quota)

    @property
    def threads(self) -> int:
        """Number of threads of the fastest team that synchronizes at barriers; at least 1.

        A team makes progress only while all its threads run: for the product of their shares of the time. A larger team
        is chosen only if its speed, the number of threads times this product, is clearly higher.
        """
        most = self.count if self.quota is None else max(1, min(self.count, round(self.quota)))
        best, speed = 1, self.shares[0] if self.shares else 1.0
        for threads in range(2, most + 1):
            candidate = threads * prod(self.shares[:threads])
            if candidate > (1 + _MIN_GAIN / best) * speed:
                best, speed = threads, candidate
        return best

    @property
    def is_busy(self) -> bool:
        """True if other programs use one of the processors; a quota does not count."""
        return any(share < _FREE for share in self.shares)

    def __str__(self) -> str:
        """Return the number of free processors as text."""
        quota = "" if self.quota is None else f", and the quota is {self.quota:g}"
        return f"{min(sum(self.shares), self.count):.1f} of {self.count} processors are free{quota}"


def allowed_processors() -> tuple[int, ...]:
    """Return the numbers of the processors that this thread may run on; all, from 0, if the system has no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


Spin = Callable[[], object]
WINDOW = 12e-3
"""Seconds for which all threads compute at the same time."""
_ALONE = 2e-3  # seconds for which one thread computes alone first, to find the fastest execution
_CHUNK = 1e-4  # seconds of one execution per thread; the threads contend for the GIL between executions
_MAX_CHUNK = 4e-3
_DATA = bytes(1 << 16)


def _hash() -> object:
    """Compute for about 50 us without the GIL; each step depends on the one before."""
    return hashlib.sha256(_DATA).digest()


def measure_processors(
    spin: Spin = _hash,
    *,
    processors: Sequence[int] | None = None,
    quota: Callable[[], float | None] = cpu_quota,
    window: float = WINDOW,
    clock: Clock = clock,
) -> Processors:
    """Measure the share of each processor that threads of this process get; takes about `window` plus 3 ms.

    Args:
        spin: a computation of well below a millisecond that releases the GIL.
        processors: the numbers of the processors; those that this thread may run on if None.
        quota: returns the quota of the control groups.
        window: seconds for which all threads compute.
        clock: returns the time in seconds.
    """
    numbers = allowed_processors() if processors is None else tuple(processors)
    alone = _time_executions(spin, 1, clock() + _ALONE, clock)
    repeats = max(1, round(min(_CHUNK * len(numbers), _MAX_CHUNK) / min(alone)))
    executions: list[list[float]] = [[] for _ in numbers]
    end = clock() + window

    def compute(i: int) -> None:
        _pin_thread(numbers[i])
        executions[i] = _time_executions(spin, repeats, end, clock)

    threads = [threading.Thread(target=compute, args=(i,), name="inlay-spin", daemon=True) for i in range(len(numbers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Processors(compute_shares(executions, repeats * min(alone)), quota())


_SHARED = 0.55  # two virtual processors share one if an execution alone takes less than this part of its time


def compute_shares(executions: Sequence[Sequence[float]], alone: float) -> tuple[float, ...]:
    """Return the share of its processor that each thread had, the largest first.

    The fastest execution of all threads counts as undisturbed. The fastest one of a single thread, `alone`, is not
    used, because the processor may have a higher clock then. The exception: if every execution took nearly twice as
    long as `alone`, the virtual processors run in turns on one processor, and `alone` counts as undisturbed.

    Args:
        executions: for each thread, seconds from the end of each execution to the end of the next.
        alone: seconds of the fastest execution of a single thread.

    >>> compute_shares([[1.0, 1.0, 1.0], [1.0, 3.0]], 1.0)
    (1.0, 0.5)
    >>> compute_shares([[2.0, 2.0], [2.0, 2.0]], 1.0)
    (0.5, 0.5)
    """
    best = min((each for one in executions for each in one), default=alone)
    if alone < _SHARED * best:
        best = alone
    return tuple(sorted((min(1.0, best * len(one) / sum(one)) if one else 0.0 for one in executions), reverse=True))


def _time_executions(spin: Spin, repeats: int, end: float, clock: Clock) -> list[float]:
    """Execute `repeats` spins again and again until `end`, at least once; return the seconds of each execution."""
    seconds: list[float] = []
    before = clock()
    while before < end or not seconds:
        for _ in range(repeats):
            spin()
        now = clock()
        seconds.append(now - before)
        before = now
    return seconds


def _pin_thread(processor: int) -> None:
    """Pin the calling thread, which ends soon, to one processor if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, {processor})


_RECENT = 1.0  # seconds for which a result is reused
_CLEARLY_FREE = 0.9  # if all shares are at least this, one measurement suffices
_measuring = ForkResetLock()
_last: tuple[float, Processors] | None = None


def _forget() -> None:
    """Discard the last result in a forked child, which may run on other processors."""
    global _last
    _last = None


at_fork(after_in_child=_forget)


def recent_processors(seconds: float = _RECENT, measure: Callable[[], Processors] = measure_processors) -> Processors:
    """Return the last measurement if it is at most `seconds` old, else a new one; the quota is always read anew.

    If a processor is not clearly free, the result is the mean of three measurements. A single one may coincide with a
    short disturbance, or with new threads that the scheduler favors.
    """
    global _last
    with _measuring:
        if _last is None or time.monotonic() - _last[0] > seconds or _last[1].count != len(allowed_processors()):
            measured = measure()
            if any(share < _CLEARLY_FREE for share in measured.shares):
                measured = average_processors([measured, measure(), measure()])
            _last = time.monotonic(), measured
        return replace(_last[1], quota=cpu_quota())


def average_processors(measured: Sequence[Processors]) -> Processors:
    """Return the mean shares of several measurements of the same processors, with the quota of the last one.

    >>> average_processors([Processors((1.0, 0.5)), Processors((0.5, 0.5))]).shares
    (0.75, 0.5)
    """
    shares = zip(*(one.shares for one in measured), strict=True)
    return replace(measured[-1], shares=tuple(sum(each) / len(each) for each in shares))
