"""Decisions that only calls can show: two variants of a reorder take turns, and the faster one is kept for a while.

Two questions have no answer before the first call, because nobody knows who touches the data between two calls:

    one thread or several        a tensor that fits the cache of one core (see `threads.small_parts_for`)
    ordinary or streaming stores a tensor near the size of the last-level cache (see `is_contested`)

A series of calls on data that nobody else touches is up to 1.6 times as fast on two threads: each finds its part in its
own cache. But where the calling thread wrote the source just before, or reads the result, the other thread's part
crosses from cache to cache, and the same move takes twice as long. Likewise streaming stores leave the caches to
others, and ordinary stores leave the result in a cache for whoever reads it next. So the time of the calls is compared,
and the time from call to call, which must show at least half of what the calls gain.

A trial counts the calls of one reorder. The first calls run the first variant: a program with a few moves wakes no
thread and compiles nothing for the trial. Then some calls run the first variant and some the second, all timed. The
faster one is kept for many calls, until the next trial.

    >>> trial = Trial(None, lambda: None)
    >>> trial.left = 0
    >>> for i in range(2 * EACH):  # a call every ten microseconds, then every eight
    ...     trial.note(10_000 * i, 6_000) if i < EACH else trial.note(20_000 + 8_000 * i, 4_000)
    >>> trial.takes_second, trial.left == KEPT
    (True, True)
"""

import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Protocol

from inlay.machine import MemoryModel

EACH = 10
"""Calls of each variant in a trial."""
FIRST, KEPT = 24, 1000
"""Calls before the first trial, and after one that the second variant won."""
SOON, LATE = 250, 4000
"""Calls after a trial that the second variant lost, for the first time in a row; after each further one twice as many,
up to so many: a single trial may have been disturbed, and each costs as much as some ten calls."""
_SETTLING = 4  # calls in which lines come to the caches that they are in for the rest of them
_GAIN = 0.95  # what is gained by less is not worth a second processor
_SHOWN = 0.5  # of what the calls gain, the share that is gained from call to call at least
_FAR = 4  # times the last level, from which on streaming stores win whatever follows


def is_contested(moved_bytes: int, memory: MemoryModel) -> bool:
    """Return whether a footprint lies where a trial decides between ordinary and streaming stores.

    >>> memory = MemoryModel(l2=1 << 20, last_level=32 << 20, streaming_from=8 << 20)
    >>> [is_contested(size << 20, memory) for size in (4, 16, 100, 200)]
    [False, True, True, False]
    """
    return memory.streaming_from <= moved_bytes < _FAR * memory.last_level


class Variant(Protocol):
    """A reorder that is done in one of two ways."""

    def move(self, src_address: int, dst_address: int, table: int | None) -> bool:
        """Move the elements; return whether a thread had to be woken."""


class Trial:
    """Two variants of a reorder, and which of them the next calls run.

    Several threads may use it: a count that is off by one does no harm.
    """

    __slots__ = ("_first", "_shares", "_times", "_wait", "left", "second", "takes_second")

    def __init__(self, first: Variant, make_second: Callable[[], Variant], *, shares: bool = False) -> None:
        """Run the first variant until the first trial.

        Args:
            first: the variant that is right where nothing is known.
            make_second: returns the second variant; called when that is first run.
            shares: whether the second variant shares its calls among threads, and the first does not.
        """
        self._first, self._shares = first, shares
        self.second = cache(make_second)
        """Returns the second variant."""
        self.takes_second = False
        """Whether the next call runs the second variant."""
        self.left = FIRST
        """Calls until the next trial; 0 in a trial, whose calls are timed."""
        self._times: list[tuple[int, int]] = []
        self._wait = SOON

    def run(self, src_address: int, dst_address: int, table: int | None) -> None:
        """Run one call with the variant whose turn it is, or that won the last trial."""
        variant = self.second() if self.takes_second else self._first
        if self.left > 0:
            self.left -= 1
            if variant.move(src_address, dst_address, table) and self._shares:
                self.restart()
            return
        began = time.perf_counter_ns()
        variant.move(src_address, dst_address, table)
        self.note(began, time.perf_counter_ns() - began)

    def note(self, began: int, nanoseconds: int) -> None:
        """Note when a call of a trial began and how long it took; the last one decides."""
        times = self._times
        times.append((began, nanoseconds))
        self.takes_second = len(times) >= EACH
        if len(times) >= 2 * EACH:
            self.takes_second = is_faster(times[_SETTLING:EACH], times[EACH + _SETTLING :])
            self.left, self._times = KEPT if self.takes_second else self._wait, []
            self._wait = SOON if self.takes_second else min(2 * self._wait, LATE)

    def restart(self) -> None:
        """Begin a trial: a shared call met a thread that sleeps, so calls no longer come in a row."""
        if self.left:
            self.takes_second, self.left, self._times = False, 0, []


def is_faster(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> bool:
    """Whether the second variant pays: from when calls in a row began, in nanoseconds, and how long each of them took.

    >>> first = [(0, 6), (10, 6), (20, 6)]
    >>> is_faster(first, [(0, 4), (8, 4), (16, 4)])
    True
    >>> is_faster(first, [(0, 4), (12, 4), (24, 4)])  # what was gained was lost in between
    False
    """
    alone = median(took for _, took in first)
    gain = alone - median(took for _, took in second)
    lost = median(_between(second)) - median(_between(first))
    return gain > (1 - _GAIN) * alone and lost < (1 - _SHOWN) * gain


def _between(times: list[tuple[int, int]]) -> list[int]:
    """From the end of one call to the beginning of the next: calls that somebody disturbed do not count here too."""
    return [following - began - took for (began, took), (following, _) in pairwise(times)]
