"""`cpu_quota`: how many processors the control groups of this process let it use, as a number that may be fractional.

    cgroup v2    cpu.max                                "150000 100000": 1.5 processors; "max 100000": no quota
    cgroup v1    cpu.cfs_quota_us, cpu.cfs_period_us    -1: no quota

A quota of any group on the path from the process to the root counts; the least one holds. In a container the root is
the container's own group, whose path the file /proc/self/cgroup may name from outside: folders that do not exist are
skipped, and the root is read in any case.

Source: Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst of Linux.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

MEMBERSHIP = Path("/proc/self/cgroup")
"""The groups of this process, one line for each hierarchy."""
ROOTS = Path("/sys/fs/cgroup")
"""Where hierarchies are mounted."""


def cpu_quota(membership: Path = MEMBERSHIP, roots: Path = ROOTS) -> float | None:
    """The least quota of all groups that the process is in, in processors; None where none has a quota."""
    try:
        lines = membership.read_text().splitlines()
    except (OSError, ValueError):
        return None
    quotas = [quota for folder in _folders(lines, roots) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _folders(lines: list[str], roots: Path) -> Iterator[Path]:
    """The folder of each group that may have a quota, and of every group above it."""
    for line in lines:
        hierarchy, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if hierarchy == "0":
            mounts = [roots, roots / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [roots / controllers, roots / "cpu"]
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


def _ratio(quota: str, period: str) -> float | None:
    """The processors that a quota in a period amounts to.

    Raises:
        ValueError: these are no numbers.
    """
    if quota.strip() == "max":
        return None
    time, each = int(quota), int(period)
    return time / each if time > 0 and each > 0 else None
