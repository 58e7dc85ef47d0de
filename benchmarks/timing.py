"""How a time is taken: everybody takes turns, round after round, and each figure comes with its spread.

In one round each runner does one block of calls, timed as a whole. Neighbours in time are compared with each other: a
ratio is formed within each round, and the figure is the median of these ratios. What slows the machine down for a
second then slows both sides of a ratio. The spread is the range of the middle half of the rounds.

    >>> from inlay.bench.turns import paired
    >>> paired([2.0, 2.0, 6.0], [1.0, 2.0, 2.0])
    Spread(median=2.0, low=1.5, high=2.5)

Before its block a runner waits until every thread of this process has gone to sleep: OpenMP's workers spin for
milliseconds after each call, on a processor that somebody else then lacks. Where the case fits a cache it then runs
untimed, four calls and three milliseconds at least, or twenty milliseconds: until its own threads are awake, the data
is there and the processors have left the sleep in which the wait put them.

Not everybody's figure needs all rounds. After the first third a judge may say whose does not: of a copy that cannot
become the best one, of a peer that is far behind. Whoever takes longer than `Rounds.patience` for one call has those
rounds only as well, and whoever takes longer than `Rounds.once` has none: one call is timed. All times that were taken
are kept, so that a reader sees how many they are.
"""

import gc
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import geometric_mean, median

from inlay.bench.turns import Call, seconds_per_call

Judge = Callable[[Mapping[str, Sequence[float]]], Collection[str]]
"""Says of whom the times of the first rounds say enough."""

DEFAULT_ROUNDS = 9
FEWEST = 3
"""Rounds in which everybody takes part."""
SETTLE_SECONDS = 0.25
"""Longer than any runtime's workers spin by default: OpenMP's of GNU do so for some 8 ms, Intel's for 200."""
WARM_CALLS, WARM_SECONDS = 4, 3e-3
"""How many untimed calls a warm block follows, and how long they take at least."""
_LOOK_SECONDS, _LOOKS, _IDLE = 1e-3, 2, 0.15
"""The process rests where it works for less than this share of a processor, look after look."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long to measure."""

    count: int = DEFAULT_ROUNDS
    """Rounds; each gives one time per runner."""
    block_seconds: float = 2e-3
    """A block repeats its call until it takes about this long."""
    settle_seconds: float = SETTLE_SECONDS
    """The longest wait before a block for threads that spin; 0 is no wait."""
    patience: float = 50e-3
    """Seconds of one call from which on its runner takes part in the first rounds only."""
    once: float = 200e-3
    """Seconds of one call from which on it is timed once, before the rounds."""
    warm_enough: float = 20e-3
    """Seconds of untimed calls that are enough before a block, however few; longer calls need none."""

    @property
    def first(self) -> int:
        """Rounds in which everybody takes part: a third, three at least.

        >>> Rounds(count=21).first, Rounds(count=9).first, Rounds(count=2).first
        (7, 3, 2)
        """
        return min(self.count, max(FEWEST, ceil(self.count / 3)))


QUICK = Rounds(count=3, block_seconds=1e-3, settle_seconds=12e-3, warm_enough=8e-3)
"""Enough for a look."""


def mean_ratio(ratios: Sequence[float]) -> float:
    """The geometric mean: that of the inverse ratios is its inverse."""
    return geometric_mean(ratios)


def fastest(times: Mapping[str, Sequence[float]]) -> str:
    """The runner with the least median, of those that took part in the most rounds.

    Whoever left early was not the fastest then; if the machine slowed down later, only the others saw it.

    >>> fastest({"left": [1.1, 1.1], "stayed": [1.0, 1.0, 1.5, 1.5], "behind": [1.2, 1.0, 1.6, 1.6]})
    'stayed'
    """
    most = max(map(len, times.values()))
    return min((name for name in times if len(times[name]) == most), key=lambda name: median(times[name]))


def _nobody(times: Mapping[str, Sequence[float]]) -> Collection[str]:
    """Everybody's figure needs all rounds."""
    return ()


def take_turns(
    runners: Mapping[str, Call], rounds: Rounds, warm: bool, judge: Judge = _nobody
) -> dict[str, list[float]]:
    """Seconds per call of each runner, one entry per round; fewer of one that is slow or that `judge` names.

    Each round begins with another runner. With `warm`, each block follows calls that are not timed.
    """
    shortest = {name: _shortest(call, rounds.block_seconds) for name, call in runners.items()}
    calls = {name: max(1, ceil(rounds.block_seconds / seconds)) for name, seconds in shortest.items()}
    times = {name: [seconds] if seconds >= rounds.once else [] for name, seconds in shortest.items()}
    order = [name for name, taken in times.items() if not taken]
    with _no_collection():
        for i in range(rounds.count):
            if i == rounds.first:
                slow = {name for name, seconds in shortest.items() if seconds >= rounds.patience}
                done = slow.union(judge(times))
                order = [name for name in order if name not in done]
            first = i % max(1, len(order))
            for name in order[first:] + order[:first]:
                _rest(rounds.settle_seconds)
                if warm and shortest[name] < rounds.warm_enough:
                    _warm_up(runners[name], rounds.warm_enough)
                times[name].append(seconds_per_call(runners[name], calls[name]))
    return times


def _rest(longest: float) -> None:
    """Sleep until no thread of this process works any more."""
    end, looks = time.perf_counter() + longest, 0
    while looks < _LOOKS and time.perf_counter() < end:
        worked, started = time.process_time(), time.perf_counter()
        time.sleep(_LOOK_SECONDS)
        is_idle = time.process_time() - worked < _IDLE * (time.perf_counter() - started)
        looks = looks + 1 if is_idle else 0


def _warm_up(call: Call, enough: float) -> None:
    """Call untimed. The same for everybody: with a share of a block, the slower of two would also be the colder."""
    started, calls, seconds = time.perf_counter(), 0, 0.0
    while seconds < enough and (calls < WARM_CALLS or seconds < WARM_SECONDS):
        call()
        calls += 1
        seconds = time.perf_counter() - started


def _shortest(call: Call, block_seconds: float) -> float:
    """Seconds of one call: the least of three, or of one that is longer than any block."""
    first = seconds_per_call(call, 1)
    if first > 3 * block_seconds > 0:
        return first
    return min(first, *(seconds_per_call(call, 1) for _ in range(2)))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of the timed blocks."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
