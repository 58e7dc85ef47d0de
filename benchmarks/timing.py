"""How the benchmark takes times: calls take turns (see `inlay.measure.interleaved`), each figure comes with its spread.

Before a block every thread of this process has gone to sleep. Where the case fits a cache, the call then runs untimed,
four times and three milliseconds at least, or twenty milliseconds: until its threads are awake, the data is there and
the processors have left the sleep in which the wait put them. The same holds for every call: with a share of a block,
the slower of two would also be the colder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import geometric_mean, median

from inlay.measure.disturbance import IdleWait
from inlay.measure.interleaved import Call, Judge, Turn, measure_interleaved

DEFAULT_ROUNDS = 9
FEWEST = 3
"""Rounds in which everybody takes part."""
SETTLE_SECONDS = 0.25
"""Longer than any runtime's workers spin by default: OpenMP's of GNU do so for some 8 ms, Intel's for 200."""
WARM_CALLS, WARM_SECONDS = 4, 3e-3
"""How many untimed calls a warm block follows, and how long they take at least."""
_LOOK_SECONDS = 1e-3
"""How long the process is watched before it counts as asleep, twice in a row."""


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

    def turn(self, warm: bool) -> Turn:
        """How a turn is taken; with `warm`, each block follows calls that are not timed."""
        looks = round(self.settle_seconds / _LOOK_SECONDS)
        idle = IdleWait(sleep=0.0, look=_LOOK_SECONDS, share=0.15, looks=2, most=looks)
        return Turn(self.block_seconds, WARM_SECONDS, WARM_CALLS, self.warm_enough if warm else 0.0, idle)


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


def take_turns(
    runners: Mapping[str, Call], rounds: Rounds, warm: bool, judge: Judge | None = None
) -> dict[str, list[float]]:
    """Seconds per call of each runner, one entry per round; fewer of one that is slow or that `judge` names."""
    return measure_interleaved(
        runners,
        rounds.count,
        rounds.turn(warm),
        first=rounds.first,
        once=rounds.once,
        patience=rounds.patience,
        judge=judge,
    )
