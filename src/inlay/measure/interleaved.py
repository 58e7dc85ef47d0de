"""Interleaved timing: several calls are timed in alternation, so that measurements adjacent in time can be compared.

    times = measure_interleaved({"one": one, "other": other}, rounds=9)
    paired_ratio(times["one"], times["other"])          see `statistics`

In each round every call gets one turn. A turn waits until the threads that another call woke sleep again
(`disturbance.IdleWait`), runs the call untimed until its own threads are awake and its data is in the caches, and times
one block of calls as a whole.

Slow calls, and calls that a judge names, take part in the first rounds only. All measured times are returned.

    >>> from functools import partial
    >>> [name for name in interleave(partial(rotate, "abc"), 3)]
    ['a', 'b', 'c', 'b', 'c', 'a', 'c', 'a', 'b']
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, inf
from typing import TypeAlias, TypeVar

from inlay.measure.disturbance import IdleWait, without_garbage_collection

Clock: TypeAlias = Callable[[], float]
"""A function that returns the time in seconds; only differences are meaningful."""
Call: TypeAlias = Callable[[], object]
"""A function that is timed."""
Judge: TypeAlias = Callable[[Mapping[str, Sequence[float]]], Collection[str]]
"""A function that returns the names of the calls that need no more rounds, given the times of the first rounds."""
_T = TypeVar("_T")

clock: Clock = time.perf_counter
"""The clock of every measurement."""
PATIENCE = 50e-3
"""Default for the seconds per call from which a call takes part in the first rounds only."""


def time_call(call: Callable[[], _T], clock: Clock = clock) -> tuple[float, _T]:
    """Return the seconds of one call, and its result."""
    started = clock()
    result = call()
    return clock() - started, result


def seconds_per_call(call: Call, count: int, clock: Clock = clock) -> float:
    """Return the mean seconds per call of `count` calls in a row."""
    repeats = range(count)
    started = clock()
    for _ in repeats:
        call()
    return (clock() - started) / count


def mean_of_calls(call: Call, least: float, count: int = 1, most: float = inf, clock: Clock = clock) -> float:
    """Return the mean seconds per call of calls in a row.

    The calls end after at least `count` calls and `least` seconds together, or after `most` seconds.
    """
    started, calls, spent = clock(), 0, 0.0
    while not calls or (spent < most and (calls < count or spent < least)):
        call()
        calls += 1
        spent = clock() - started
    return spent / calls


def fastest_call(call: Call, deadline: float, count: float = inf, clock: Clock = clock) -> float:
    """Return the seconds of the fastest of at most `count` calls that start before `deadline`; at least one is made."""
    best, calls = time_call(call, clock)[0], 1
    while calls < count and clock() < deadline:
        best = min(best, time_call(call, clock)[0])
        calls += 1
    return best


def interleave(order: Callable[[int], Iterable[_T]], rounds: int) -> Iterator[_T]:
    """Iterate over the turns of all rounds; `order(round)`, called when a round begins, returns its turns."""
    return chain.from_iterable(map(order, range(rounds)))


def rotate(names: Sequence[_T], round_: int) -> list[_T]:
    """Return the order of a round, in which the first name changes from round to round.

    >>> rotate(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    first = round_ % max(1, len(names))
    return [*names[first:], *names[:first]]


@dataclass(frozen=True, slots=True)
class Turn:
    """The parameters of a turn: a wait, untimed calls, a timed block of calls."""

    block: float = 2e-3
    """Approximate seconds of the timed block; a shorter call is repeated."""
    warm: float = 3e-3
    """Minimum seconds of the untimed calls."""
    warm_calls: int = 1
    """Minimum number of the untimed calls."""
    warm_enough: float = inf
    """Maximum seconds of the untimed calls, even if they are fewer than the minimum. A call that takes this long has no
    untimed calls; 0 disables them."""
    idle: IdleWait = field(default_factory=IdleWait)
    """Wait before the untimed calls."""

    def take(self, call: Call, seconds: float, clock: Clock = clock) -> float:
        """Take a turn and return the mean seconds per call; one call takes about `seconds`."""
        self.idle.wait()
        if seconds < self.warm_enough:
            seconds = min(seconds, mean_of_calls(call, self.warm, self.warm_calls, self.warm_enough, clock))
        return seconds_per_call(call, max(1, ceil(self.block / max(seconds, 1e-9))), clock)


def measure_interleaved(
    calls: Mapping[str, Call],
    rounds: int,
    turn: Turn | None = None,
    *,
    first: int | None = None,
    once: float = inf,
    patience: float = PATIENCE,
    judge: Judge | None = None,
    clock: Clock = clock,
) -> dict[str, list[float]]:
    """Time calls in alternation; return the seconds per call by name, one entry for each turn.

    Args:
        calls: the calls by name. The first call of a round changes from round to round.
        rounds: the number of rounds.
        turn: the parameters of a turn. Calls that wake several threads often need long turns: after a sleep of 12 ms
            processors are slow for tens of milliseconds.
        first: the number of rounds in which every call takes part; a third of all rounds if None.
        once: seconds per call from which a call is timed only once, before the rounds.
        patience: seconds per call from which a call takes part in the first rounds only.
        judge: returns the names of other calls that take part in the first rounds only.
        clock: returns the time in seconds.
    """
    turn, first = turn or Turn(), ceil(rounds / 3) if first is None else first
    shortest = {name: _shortest(call, turn.block, clock) for name, call in calls.items()}
    times = {name: [seconds] if seconds >= once else [] for name, seconds in shortest.items()}
    order = [name for name, measured in times.items() if not measured]

    def names_of_round(i: int) -> list[str]:
        """Return the order of round `i`; slow and finished calls leave after the first rounds."""
        if i == first:
            slow = {name for name in order if shortest[name] >= patience}
            finished = slow.union(judge(times) if judge is not None else ())
            order[:] = [name for name in order if name not in finished]
        return rotate(order, i)

    with without_garbage_collection():
        for name in interleave(names_of_round, rounds):
            times[name].append(turn.take(calls[name], shortest[name], clock))
    return times


def _shortest(call: Call, block: float, clock: Clock) -> float:
    """Return the seconds of the fastest of three calls, or of the first call if it is longer than three blocks."""
    seconds = seconds_per_call(call, 1, clock)
    if seconds > 3 * block > 0:
        return seconds
    return min(seconds, *(seconds_per_call(call, 1, clock) for _ in range(2)))
