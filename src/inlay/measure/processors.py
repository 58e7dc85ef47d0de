"""The processors that really run threads of this process now: affinity, quotas of control groups, and a short trial.

    found = measure_processors()
    found.shares      (0.98, 0.51): on one processor a thread ran nearly all the time, on the other half of it
    found.threads     1: a team of two would wait at every barrier for the thread that does not run
    found.is_busy     True

**Control groups** limit the processors of this process, to a number that may be fractional, and its memory:

    cgroup v2    cpu.max                                "150000 100000": 1.5 processors; "max 100000": no quota
                 memory.max                             bytes, or "max"
    cgroup v1    cpu.cfs_quota_us, cpu.cfs_period_us    -1: no quota
                 memory.limit_in_bytes                  bytes; a number near 2^63 where there is no limit

A quota of any group on the path from the process to the root counts; the least one holds. In a container the root is
the container's own group, whose path the file /proc/self/cgroup may name from outside: folders that do not exist are
skipped, and the root is read in any case.

**Shares.** The system's count of processors says little: another program may compute on them, a hypervisor may run two
of them in turns, and no file says so. So on each processor one thread computes for some milliseconds, all at once; what
it gets done, compared with the fastest execution of the same work, is the share of the processor that it has.

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
from statistics import fmean

from inlay.forks import ForkResetLock, at_fork
from inlay.measure.interleaved import Clock, clock

MEMBERSHIP = Path("/proc/self/cgroup")
"""The groups of this process, one line for each hierarchy."""
ROOTS = Path("/sys/fs/cgroup")
"""Where hierarchies are mounted."""
_NO_LIMIT = 1 << 60


def cpu_quota(membership: Path = MEMBERSHIP, roots: Path = ROOTS) -> float | None:
    """The least quota of all groups that the process is in, in processors; None where none has a quota."""
    folders = _folders("cpu", membership, roots)
    return min((quota for folder in folders if (quota := _quota_of(folder)) is not None), default=None)


def memory_limit(membership: Path = MEMBERSHIP, roots: Path = ROOTS) -> int | None:
    """The least memory limit of all groups that the process is in, in bytes; None where none has a limit."""
    folders = _folders("memory", membership, roots)
    return min((limit for folder in folders if (limit := _limit_of(folder)) is not None), default=None)


def _folders(controller: str, membership: Path, roots: Path) -> Iterator[Path]:
    """The folder of each group that `controller` may limit, and of every group above it."""
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
    """The quota of one group; None where there is none, or nothing sensible stands there."""
    with suppress(OSError, ValueError):
        quota, _, period = (folder / "cpu.max").read_text().strip().partition(" ")
        return _ratio(quota, period)
    with suppress(OSError, ValueError):
        return _ratio((folder / "cpu.cfs_quota_us").read_text(), (folder / "cpu.cfs_period_us").read_text())
    return None


def _limit_of(folder: Path) -> int | None:
    """The memory limit of one group; None where there is none, or nothing sensible stands there."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int((folder / name).read_text())  # "max" is no number
            return limit if 0 <= limit < _NO_LIMIT else None
    return None


def _ratio(quota: str, period: str) -> float | None:
    """The processors that a quota in a period amounts to.

    Raises:
        ValueError: these are no numbers.
    """
    if quota.strip() == "max":
        return None
    time, each = int(quota), int(period)
    return time / each if time > 0 and each > 0 else None


# Shares of processors


_FREE = 0.75  # the share of a processor from which on it counts as free
_WORTH = 0.2  # of what one more thread gains at best, the part that it must gain


@dataclass(frozen=True, slots=True)
class Processors:
    """What threads of this process get of each processor that they may run on.

    >>> Processors((1.0, 0.5)).threads, Processors((1.0, 0.98)).threads, Processors((1.0, 1.0), 1.2).threads
    (1, 2, 1)
    >>> print(Processors((1.0, 0.5)))
    1.5 of 2 processors are free
    """

    shares: tuple[float, ...]
    """For each processor the share of its time that a thread had, from 0 to 1, the freest processor first."""
    quota: float | None = None
    """Processors that control groups allow; None for as many as there are."""

    @property
    def count(self) -> int:
        """How many processors the affinity allows."""
        return len(self.shares)

    @property
    def effective(self) -> float:
        """How many processors the shares add up to, and no more than the quota."""
        whole = sum(self.shares)
        return whole if self.quota is None else min(whole, self.quota)

    @property
    def threads(self) -> int:
        """The size of the team that computes fastest if it meets at barriers; at least 1, and the least of equals.

        A team proceeds while all of its threads run. These are the shares' product of the time.
        """
        most = self.count if self.quota is None else max(1, min(self.count, round(self.quota)))
        best, speed = 1, self.shares[0] if self.shares else 1.0
        for threads in range(2, most + 1):
            other = threads * prod(self.shares[:threads])
            if other > (1 + _WORTH / best) * speed:
                best, speed = threads, other
        return best

    @property
    def is_busy(self) -> bool:
        """Whether something else computes on one of the processors; a quota is no such thing."""
        return any(share < _FREE for share in self.shares)

    def __str__(self) -> str:
        """How many are free, in words."""
        quota = "" if self.quota is None else f", and the quota is {self.quota:g}"
        return f"{min(sum(self.shares), self.count):.1f} of {self.count} processors are free{quota}"


def allowed_processors() -> tuple[int, ...]:
    """The numbers of the processors that this thread may run on; counted from 0 where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


Spin = Callable[[], object]
WINDOW = 12e-3
"""Seconds for which all threads compute at once."""
_ALONE = 2e-3  # seconds for which one thread computes before, for the fastest execution
_CHUNK = 1e-4  # seconds of one execution, for each thread: between two executions threads need Python's lock
_MOST_CHUNK = 4e-3
_WORK = bytes(1 << 16)


def _hash() -> object:
    """Some 50 us of arithmetic, each step of which waits for the one before, without Python's lock."""
    return hashlib.sha256(_WORK).digest()


def measure_processors(
    spin: Spin = _hash,
    *,
    processors: Sequence[int] | None = None,
    quota: Callable[[], float | None] = cpu_quota,
    window: float = WINDOW,
    clock: Clock = clock,
) -> Processors:
    """Measure what threads of this process get of each processor; takes about `window` and 3 ms more.

    Args:
        spin: some arithmetic that takes well below a millisecond and runs without Python's lock.
        processors: the numbers of the processors; those that this thread may run on if None.
        quota: what tells how many processors control groups allow.
        window: seconds for which all threads compute.
        clock: what tells the time in seconds.
    """
    places = allowed_processors() if processors is None else tuple(processors)
    alone = _executions(spin, 1, clock() + _ALONE, clock)
    repeats = max(1, round(min(_CHUNK * len(places), _MOST_CHUNK) / min(alone)))
    found: list[list[float]] = [[] for _ in places]
    end = clock() + window

    def compute(i: int) -> None:
        _stay_on(places[i])
        found[i] = _executions(spin, repeats, end, clock)

    threads = [threading.Thread(target=compute, args=(i,), name="inlay-spin", daemon=True) for i in range(len(places))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Processors(shares_of(found, repeats * min(alone)), quota())


_SHARED = 0.55  # of the time that an execution takes beside others, if it takes that alone, they share a processor


def shares_of(executions: Sequence[Sequence[float]], alone: float) -> tuple[float, ...]:
    """The share that each thread had of its processor, greatest first.

    An execution counts as undisturbed if it was the fastest of all threads: with one thread alone the clock of a
    processor may be higher. Only where each took nearly twice what it takes alone, `alone` counts: two processors then
    take turns more often than anyone sees.

    Args:
        executions: by thread, seconds from the end of each execution to that of the next.
        alone: seconds of the fastest execution while no other thread of this process computed.

    >>> shares_of([[1.0, 1.0, 1.0], [1.0, 3.0]], 1.0)
    (1.0, 0.5)
    >>> shares_of([[2.0, 2.0], [2.0, 2.0]], 1.0)
    (0.5, 0.5)
    """
    best = min((each for one in executions for each in one), default=alone)
    if alone < _SHARED * best:
        best = alone
    return tuple(sorted((min(1.0, best * len(one) / sum(one)) if one else 0.0 for one in executions), reverse=True))


def _executions(spin: Spin, repeats: int, end: float, clock: Clock) -> list[float]:
    """Seconds from the end of each execution of `repeats` spins to that of the next, until `end`; at least one."""
    seconds: list[float] = []
    before = clock()
    while before < end or not seconds:
        for _ in range(repeats):
            spin()
        now = clock()
        seconds.append(now - before)
        before = now
    return seconds


def _stay_on(processor: int) -> None:
    """Let the calling thread, which is about to end, run on one processor only, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, {processor})


_RECENT = 1.0  # seconds for which a result is used again
_CLEARLY_FREE = 0.9  # and from which on one measurement suffices
_measuring = ForkResetLock()
_last: tuple[float, Processors] | None = None


def _forget() -> None:
    """A forked child may run elsewhere, and has none of its parent's threads."""
    global _last
    _last = None


at_fork(after_in_child=_forget)


def recent_processors(seconds: float = _RECENT, measure: Callable[[], Processors] = measure_processors) -> Processors:
    """The last result in this process, if it is at most so many seconds old, or a new one; quotas are always read.

    Where one of the processors is not clearly free, the mean of three measurements counts: a single one may meet a
    short disturbance, or threads that the system favors since they are new.
    """
    global _last
    with _measuring:
        if _last is None or time.monotonic() - _last[0] > seconds or _last[1].count != len(allowed_processors()):
            found = measure()
            if any(share < _CLEARLY_FREE for share in found.shares):
                found = mean_of([found, measure(), measure()])
            _last = time.monotonic(), found
        return replace(_last[1], quota=cpu_quota())


def mean_of(measured: Sequence[Processors]) -> Processors:
    """What several measurements of the same processors found on average, with the quota of the last.

    >>> mean_of([Processors((1.0, 0.5)), Processors((0.5, 0.5))]).shares
    (0.75, 0.5)
    """
    shares = zip(*(one.shares for one in measured), strict=True)
    return replace(measured[-1], shares=tuple(fmean(each) for each in shares))
