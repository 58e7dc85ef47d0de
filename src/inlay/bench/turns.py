"""How a time is taken: everybody takes turns, and neighbors in time are compared.

In one round each call does one block, timed as a whole. A ratio is formed within each round, and the figure is the
median of these ratios: what slows the machine down for a second slows both sides. The spread is the range of the middle
half of the rounds.

    >>> paired([2.0, 2.0, 6.0], [1.0, 2.0, 2.0])
    Spread(median=2.0, low=1.5, high=2.5)

Before its block each waits until the threads of its predecessor sleep: those of OpenMP spin for some milliseconds,
those of ONNX Runtime for tens. Then it runs untimed, until its own threads are awake and what fits a cache is there.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import quantiles

Call = Callable[[], object]

_SETTLE = 0.012
_GLANCE = 2e-3  # of so many seconds
_ASLEEP = 0.25  # less than this share of a processor is used where all threads sleep
_GLANCES = 8  # in a row at which all threads sleep
_MOST_GLANCES = 100
_WARM = 3e-3
_BLOCK = 2e-3
_PATIENCE = 50e-3  # of one call: who takes longer takes a turn in a third of the rounds


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure that was measured several times."""

    median: float
    """The figure."""
    low: float
    """A quarter of the rounds gave less."""
    high: float
    """A quarter of the rounds gave more."""


def spread(values: Sequence[float]) -> Spread:
    """The median and the quartiles of some measurements."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def paired(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """The ratio of two calls: formed in each round in which both took a turn, then taken together.

    Each began in the first round; one that is slow has fewer.
    """
    return spread([a / b for a, b in zip(numerators, denominators, strict=False)])


def take_turns(
    calls: Mapping[str, Call], rounds: int, *, warm: float = _WARM, block: float = _BLOCK
) -> dict[str, list[float]]:
    """Seconds per call of each, one entry per round; of a slow one fewer. Each round begins with another.

    A turn is untimed calls for `warm` seconds, then about `block` seconds of timed ones. Calls that wake several
    threads many times need longer turns: after a sleep of 12 ms processors are slow for some tens of ms.
    """
    first = {name: seconds_per_call(call, 1) for name, call in calls.items()}
    turns = {name: rounds if seconds < _PATIENCE else ceil(rounds / 3) for name, seconds in first.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for i in range(rounds):
        begin = i % len(order)
        for name in order[begin:] + order[:begin]:
            if i < turns[name]:
                _settle()
                times[name].append(_block(calls[name], warm, block))
    return times


def _settle() -> None:
    """Wait until no thread of this process spins any more, a fifth of a second at most.

    On processors that others use as well a thread that spins may not run for some milliseconds: a single glance at an
    idle process does not suffice.
    """
    time.sleep(_SETTLE)
    asleep = 0
    for _ in range(_MOST_GLANCES if _SETTLE else 0):
        began, used = time.perf_counter(), time.process_time()
        time.sleep(_GLANCE)
        is_asleep = time.process_time() - used < _ASLEEP * (time.perf_counter() - began)
        asleep = asleep + 1 if is_asleep else 0
        if asleep >= _GLANCES:
            return


def _block(call: Call, warm: float, block: float) -> float:
    """Seconds of one call, in a block that follows untimed calls."""
    started, calls, spent = time.perf_counter(), 0, 0.0
    while not calls or spent < warm:
        call()
        calls += 1
        spent = time.perf_counter() - started
    return seconds_per_call(call, max(1, ceil(block * calls / max(spent, 1e-9))))


def seconds_per_call(call: Call, count: int) -> float:
    """The time of `count` calls in a row, divided by their number."""
    repeats = range(count)
    started = time.perf_counter()
    for _ in repeats:
        call()
    return (time.perf_counter() - started) / count
