"""Whether a small move is shared among threads: what was faster when both were tried.

What fits in one core's cache can go either way. A series of calls on data that nobody else touches is up to 1.6 times
as fast on two threads: each finds its part in its own cache. But where the calling thread wrote the source just before,
or reads the result, the other thread's part crosses from cache to cache, and the same move takes twice as long. No
model knows who touches the data between two calls; their times do. Not only those of the calls: it is the program that
waits for lines that another core has. So the time from call to call must show what the calls seem to gain, too.

A habit counts the calls of one reorder. The first calls are the caller's alone, so that a program with a few moves
wakes nobody. Then a trial: some calls alone, some shared. What was faster is kept for many calls, until the next trial.

    >>> habit = Habit()
    >>> while habit.left:
    ...     habit.left -= 1
    >>> for i in range(2 * EACH):  # a call every ten microseconds, then every eight
    ...     habit.took(10_000 * i, 6_000) if i < EACH else habit.took(20_000 + 8_000 * i, 4_000)
    >>> habit.shares, habit.left == KEPT
    (True, True)
"""

from itertools import pairwise
from statistics import median

EACH = 10
"""Calls of a trial on one thread, and as many shared."""
FIRST, KEPT = 24, 1000
"""Calls before the first trial, and after one that sharing won."""
SOON, LATE = 250, 4000
"""Calls after a trial that sharing lost, for the first time in a row; after each further one twice as many, up to so
many: a single trial may have been disturbed, and each costs as much as some ten calls."""
_SETTLING = 4  # calls in which lines come to the caches that they are in for the rest of them
_GAIN = 0.95  # what is gained by less is not worth a second processor
_SHOWN = 0.5  # of what the calls gain, the share that is gained from call to call at least


class Habit:
    """What one reorder does in its next calls. Several threads may use it: a count that is off by one does no harm."""

    __slots__ = ("_times", "_wait", "left", "shares")

    def __init__(self) -> None:
        """Alone, until the first trial."""
        self.shares = False
        """Whether calls are shared now."""
        self.left = FIRST
        """Calls until the next trial; 0 in a trial, whose calls are timed."""
        self._times: list[tuple[int, int]] = []
        self._wait = SOON

    def took(self, began: int, nanoseconds: int) -> None:
        """Note when a call of a trial began and how long it took; the last one decides."""
        times = self._times
        times.append((began, nanoseconds))
        self.shares = len(times) >= EACH
        if len(times) >= 2 * EACH:
            self.shares = is_faster(times[_SETTLING:EACH], times[EACH + _SETTLING :])
            self.left, self._times = KEPT if self.shares else self._wait, []
            self._wait = SOON if self.shares else min(2 * self._wait, LATE)

    def doubt(self) -> None:
        """Try anew in the next calls: one that was shared met a thread that sleeps, so they no longer come in a row."""
        if self.left:
            self.shares, self.left, self._times = False, 0, []


def is_faster(alone: list[tuple[int, int]], shared: list[tuple[int, int]]) -> bool:
    """Whether sharing pays: from when calls in a row began, in nanoseconds, and how long each of them took.

    >>> alone = [(0, 6), (10, 6), (20, 6)]
    >>> is_faster(alone, [(0, 4), (8, 4), (16, 4)])
    True
    >>> is_faster(alone, [(0, 4), (12, 4), (24, 4)])  # what was gained was lost in between
    False
    """
    gain = median(took for _, took in alone) - median(took for _, took in shared)
    lost = median(_between(shared)) - median(_between(alone))
    return gain > (1 - _GAIN) * median(took for _, took in alone) and lost < (1 - _SHOWN) * gain


def _between(times: list[tuple[int, int]]) -> list[int]:
    """From the end of one call to the beginning of the next: calls that somebody disturbed do not count here too."""
    return [following - began - took for (began, took), (following, _) in pairwise(times)]
