"""How many threads a reorder may use: a limit of this process, and never more than it has processors.

    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(None)

A limit is a number and starts no thread. Processors are those of the affinity of the thread that asks, so `taskset`,
`os.sched_setaffinity` and the processor set of a container count, also when they change while the process runs:
`get_num_threads` says so at once, reorders notice within a millisecond.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import SupportsIndex

from inlay.errors import InvalidArguments

_limit: int | None = None


class _OfThread(threading.local):
    """A limit of one Python thread, below that of the process; None for none."""

    limit: int | None = None


_of_thread = _OfThread()


def available_threads() -> int:
    """The processors that this thread may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    try:
        count = index(n)
    except TypeError:
        count = 0
    if count < 1 or isinstance(n, bool):
        raise InvalidArguments(
            f"the number of threads is {n!r}: give a whole number from 1 on, or None for every processor"
        )
    _limit = count


def get_num_threads() -> int:
    """The most threads that a reorder uses: what `set_num_threads` was given, and no more than there are processors."""
    return limited(available_threads())


def limited(threads: int) -> int:
    """So many threads, or fewer if `set_num_threads` or `at_most` says so."""
    limit = _of_thread.limit
    if limit is not None and limit < threads:
        threads = limit
    return threads if _limit is None or _limit > threads else _limit


@contextmanager
def at_most(threads: int | None) -> Iterator[None]:
    """While this lasts, what the calling Python thread computes or prepares uses at most so many threads.

    It lowers the limit of `set_num_threads` and does not change it; within another `at_most` the lower number counts.
    None changes nothing.

    >>> with at_most(1):
    ...     get_num_threads()
    1
    """
    outer = _of_thread.limit
    _of_thread.limit = threads if outer is None or (threads is not None and threads < outer) else outer
    try:
        yield
    finally:
        _of_thread.limit = outer
