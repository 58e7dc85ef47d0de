"""How a time is taken: everybody takes turns, round after round, and each figure comes with its spread.

In one round each runner does one block of calls, timed as a whole. Neighbours in time are compared with each other: a
ratio is formed within each round, and the figure is the median of these ratios. What slows the machine down for a
second then slows both sides of a ratio. The spread is the range of the middle half of the rounds.

    >>> paired([2.0, 2.0, 6.0], [1.0, 2.0, 2.0])
    Spread(median=2.0, low=1.5, high=2.5)

Before its block a runner waits until the threads of its predecessor have gone to sleep: OpenMP's workers spin for
milliseconds after each call, on a processor that somebody else then lacks. Where the case fits a cache it then runs
untimed, eight calls and three milliseconds at least, or forty milliseconds: until its own threads are awake, the data
is there and the processors have left the sleep in which the wait put them.

Whoever takes longer than `Rounds.patience` for one call takes a turn in the first third of the
rounds only: his figure needs no more, and everybody else can be measured more often.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from statistics import geometric_mean, median, quantiles

Call = Callable[[], object]

DEFAULT_ROUNDS = 9
SETTLE_SECONDS = 0.012
"""Longer than OpenMP's workers spin by default."""
WARM_CALLS, WARM_SECONDS = 8, 3e-3
"""How many untimed calls a warm block follows, and how long they take at least."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure that was measured several times."""

    median: float
    """The figure."""
    low: float
    """A quarter of the rounds gave less."""
    high: float
    """A quarter of the rounds gave more."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long to measure."""

    count: int = DEFAULT_ROUNDS
    """Rounds; each gives one time per runner."""
    block_seconds: float = 2e-3
    """A block repeats its call until it takes about this long."""
    settle_seconds: float = SETTLE_SECONDS
    """The wait before each block."""
    patience: float = 50e-3
    """Seconds of one call from which on its runner takes a turn in a third of the rounds."""
    warm_enough: float = 40e-3
    """Seconds of untimed calls that are enough before a block, however few they were."""

    def turns(self, call_seconds: float) -> int:
        """Rounds in which a runner takes part whose call takes so long.

        >>> Rounds(count=9).turns(1e-3), Rounds(count=9).turns(0.2), Rounds(count=2).turns(0.2)
        (9, 3, 1)
        """
        return self.count if call_seconds < self.patience else ceil(self.count / 3)


QUICK = Rounds(count=3, block_seconds=1e-3, settle_seconds=4e-3, patience=5e-3, warm_enough=8e-3)
"""Enough for a look."""


def spread(values: Sequence[float]) -> Spread:
    """The median and the quartiles of some measurements."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def paired(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """The ratio of two runners: formed in each round in which both took a turn, then taken together.

    Each began in the first round; one that is slow has fewer.
    """
    return spread([a / b for a, b in zip(numerators, denominators, strict=False)])


def mean_ratio(ratios: Sequence[float]) -> float:
    """The geometric mean: that of the inverse ratios is its inverse."""
    return geometric_mean(ratios)


def fastest(times: Mapping[str, Sequence[float]]) -> str:
    """The runner with the least median."""
    return min(times, key=lambda name: median(times[name]))


def take_turns(runners: Mapping[str, Call], rounds: Rounds, warm: bool) -> dict[str, list[float]]:
    """Seconds per call of each runner, one entry per round; of a slow one fewer.

    Each round begins with another runner. With `warm`, each block follows calls that are not timed.
    """
    if warm:
        for call in runners.values():
            _warm_up(call, rounds.warm_enough)
    shortest = {name: _shortest(call, rounds.block_seconds) for name, call in runners.items()}
    calls = {name: max(1, ceil(rounds.block_seconds / seconds)) for name, seconds in shortest.items()}
    turns = {name: rounds.turns(seconds) for name, seconds in shortest.items()}
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = list(runners)
    with _no_collection():
        for i in range(rounds.count):
            first = i % len(order)
            for name in order[first:] + order[:first]:
                if i >= turns[name]:
                    continue
                time.sleep(rounds.settle_seconds)
                if warm:
                    _warm_up(runners[name], rounds.warm_enough)
                times[name].append(seconds_per_call(runners[name], calls[name]))
    return times


def _warm_up(call: Call, enough: float) -> None:
    """Call untimed. The same for everybody: with a share of a block, the slower of two would also be the colder."""
    started, calls, seconds = time.perf_counter(), 0, 0.0
    while seconds < enough and (calls < WARM_CALLS or seconds < WARM_SECONDS):
        call()
        calls += 1
        seconds = time.perf_counter() - started


def seconds_per_call(call: Call, count: int) -> float:
    """The time of `count` calls in a row, divided by their number."""
    repeats = range(count)
    started = time.perf_counter()
    for _ in repeats:
        call()
    return (time.perf_counter() - started) / count


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
