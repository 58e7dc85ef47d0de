"""How long the threads of this process have waited for a processor that another process had, where the system tells.

Linux counts for each thread the time in which it could have run and did not. A kernel of two threads that is timed
while that grows is not what is timed: each of its barriers waits for the thread that waits.

>>> before = waited()
>>> waited() >= before
True
"""

from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")


def waited() -> float:
    """Seconds that the threads which live now have waited in all; always 0.0 where the system does not tell."""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return 0.0
    return sum(map(_waited, tasks)) * 1e-9


def _waited(task: Path) -> int:
    """Nanoseconds of one thread; 0 for one that has ended."""
    # A line of three numbers: time on a processor, time waiting for one, and how often it got one.
    with suppress(OSError, ValueError, IndexError):
        return int((task / "schedstat").read_bytes().split()[1])
    return 0
