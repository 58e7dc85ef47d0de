"""Ordinary or streaming stores, by a paired trial where the machine model cannot decide.

Between the footprint from which streaming stores win while nobody reads the result and some last levels, what is faster
depends on the program: streaming stores leave the caches to others, ordinary ones leave the result in a cache for
whoever reads it next. So some calls are done one way and some the other, and the times from call to call decide, as for
threads (`habit`).

>>> memory = MemoryModel(l2=1 << 20, last_level=32 << 20, streaming_from=8 << 20)
>>> [is_contested(size << 20, memory) for size in (4, 16, 100, 200)]
[False, True, True, False]
"""

import time
from collections.abc import Callable
from typing import Protocol

from inlay.machine import MemoryModel
from inlay.reordering.habit import Habit

_FAR = 4  # times the last level, from which on streaming stores win whatever follows


class Way(Protocol):
    """A reorder that is done in one way."""

    def run(self, src_address: int, dst_address: int) -> None:
        """Move the tensor."""


def is_contested(moved_bytes: int, memory: MemoryModel) -> bool:
    """Return whether a footprint lies where a trial decides between ordinary and streaming stores."""
    return memory.streaming_from <= moved_bytes < _FAR * memory.last_level


class StoreTrial:
    """Two ways to do a reorder, and which of them the next calls take. Several threads may use it."""

    __slots__ = ("_first", "_make", "_other", "habit")

    def __init__(self, first: Way, make: Callable[[], Way]) -> None:
        """Begin with the `first` way; `make` compiles the second when it is first tried."""
        self._first, self._make = first, make
        self._other: Way | None = None
        self.habit = Habit()
        """Counts calls and holds the times of a trial; it says `shares` where the second way is to be taken."""

    def run(self, src_address: int, dst_address: int) -> None:
        """Carry out one call in the way whose turn it is, or that won the last trial."""
        habit = self.habit
        way = self.other if habit.shares else self._first
        if habit.left > 0:
            habit.left -= 1
            way.run(src_address, dst_address)
            return
        began = time.perf_counter_ns()
        way.run(src_address, dst_address)
        habit.took(began, time.perf_counter_ns() - began)

    @property
    def other(self) -> Way:
        """The second way."""
        if self._other is None:
            self._other = self._make()
        return self._other
