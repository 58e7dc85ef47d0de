"""How many threads a reorder may use: a limit of this process, and never more than it has processors.

    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(None)

A limit is a number and starts no thread. Processors are those of the affinity of the thread that asks, so `taskset`,
`os.sched_setaffinity` and the processor set of a container count, also when they change while the process runs:
`get_num_threads` says so at once, reorders notice within a millisecond.
"""

import threading
from typing import SupportsIndex

from inlay.arguments import index_of
from inlay.errors import InvalidArguments, shown
from inlay.measure.processors import allowed_processors

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
    count = index_of(n)
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
