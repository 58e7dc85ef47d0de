"""What the control groups of this process let it use: processors, a number that may be fractional, and memory.

    cgroup v2    cpu.max                                "150000 100000": 1.5 processors; "max 100000": no quota
                 memory.max                             bytes, or "max"
    cgroup v1    cpu.cfs_quota_us, cpu.cfs_period_us    -1: no quota
                 memory.limit_in_bytes                  bytes; a number near 2^63 where there is no limit

A quota of any group on the path from the process to the root counts; the least one holds. In a container the root is
the container's own group, whose path the file /proc/self/cgroup may name from outside: folders that do not exist are
skipped, and the root is read in any case.

Source: Documentation/admin-guide/cgroup-v2.rst, Documentation/admin-guide/cgroup-v1/memory.rst and
Documentation/scheduler/sched-bwc.rst of Linux.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

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
