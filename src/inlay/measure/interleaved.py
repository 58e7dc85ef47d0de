"""Interleaved timing: calls take turns round after round, and neighbors in time are compared (see `statistics`).

    times = measure_interleaved({"one": one, "other": other}, rounds=9)
    paired_ratio(times["one"], times["other"])

In one round each call does one block, timed as a whole. Before its block a call waits until the threads that another
call woke sleep again (`disturbance.IdleWait`). Then it runs untimed, until its own threads are awake and what fits a
cache is there.

Not every call needs all rounds. After the first rounds those leave that are slow, and those of whom a judge says that
their times say enough. All times that were taken are kept, so that a reader sees how many they are.

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
"""Returns the time in seconds; only differences mean something."""
Call: TypeAlias = Callable[[], object]
"""What is timed."""
Judge: TypeAlias = Callable[[Mapping[str, Sequence[float]]], Collection[str]]
"""Returns the names of the calls of which the times of the first rounds say enough."""
_T = TypeVar("_T")

clock: Clock = time.perf_counter
"""The clock of every measurement."""
PATIENCE = 50e-3
"""Seconds of one call from which on it takes part in the first rounds only."""


def time_call(call: Callable[[], _T], clock: Clock = clock) -> tuple[float, _T]:
    """Return the seconds of one call, and its result."""
    started = clock()
    result = call()
    return clock() - started, result


def seconds_per_call(call: Call, count: int, clock: Clock = clock) -> float:
    """Return the time of `count` calls in a row, divided by their number."""
    repeats = range(count)
    started = clock()
    for _ in repeats:
        call()
    return (clock() - started) / count


def mean_of_calls(call: Call, least: float, count: int = 1, most: float = inf, clock: Clock = clock) -> float:
    """Return the seconds of one call, the mean of calls in a row.

    The calls end when there were `count` of them that took `least` seconds together, or when they took `most`.
    """
    started, calls, spent = clock(), 0, 0.0
    while not calls or (spent < most and (calls < count or spent < least)):
        call()
        calls += 1
        spent = clock() - started
    return spent / calls


def fastest_call(call: Call, deadline: float, count: float = inf, clock: Clock = clock) -> float:
    """Return the seconds of the fastest of `count` calls, or of those that begin before `deadline`; at least one."""
    best, calls = time_call(call, clock)[0], 1
    while calls < count and clock() < deadline:
        best = min(best, time_call(call, clock)[0])
        calls += 1
    return best


def interleave(order: Callable[[int], Iterable[_T]], rounds: int) -> Iterator[_T]:
    """Iterate over whose turn it is: in each round over `order(round)`, which is called when the round begins."""
    return chain.from_iterable(map(order, range(rounds)))


def rotate(names: Sequence[_T], round_: int) -> list[_T]:
    """Return the order of a round: another name is the first in each.

    >>> rotate(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    first = round_ % max(1, len(names))
    return [*names[first:], *names[:first]]


@dataclass(frozen=True, slots=True)
class Turn:
    """How one turn of a call is taken: a wait, untimed calls, a timed block."""

    block: float = 2e-3
    """Seconds of the timed block, about: a shorter call is repeated."""
    warm: float = 3e-3
    """Seconds of the untimed calls, at least."""
    warm_calls: int = 1
    """Number of the untimed calls, at least."""
    warm_enough: float = inf
    """Seconds of untimed calls that are enough, however few; a call that takes as long needs none, and with 0 none
    does."""
    idle: IdleWait = field(default_factory=IdleWait)
    """The wait before."""

    def take(self, call: Call, seconds: float, clock: Clock = clock) -> float:
        """Return the seconds of one call in a block, where a call takes about `seconds`."""
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
    """Return the seconds per call of each, one entry per round; fewer of one that is slow or that `judge` names.

    Args:
        calls: what takes turns, by name. Each round begins with another.
        rounds: how many turns a call takes.
        turn: how a turn is taken. Calls that wake several threads many times need long ones: after a sleep of 12 ms
            processors are slow for some tens of ms.
        first: rounds in which every call takes part; a third of all if None.
        once: seconds of one call from which on it is timed once, before the rounds.
        patience: seconds of one call from which on it takes part in the first rounds only.
        judge: names those that leave after the first rounds.
        clock: returns the time in seconds.
    """
    turn, first = turn or Turn(), ceil(rounds / 3) if first is None else first
    shortest = {name: _shortest(call, turn.block, clock) for name, call in calls.items()}
    times = {name: [seconds] if seconds >= once else [] for name, seconds in shortest.items()}
    order = [name for name, taken in times.items() if not taken]

    def in_round(i: int) -> list[str]:
        if i == first:
            slow = {name for name in order if shortest[name] >= patience}
            left = slow.union(judge(times) if judge is not None else ())
            order[:] = [name for name in order if name not in left]
        return rotate(order, i)

    with without_garbage_collection():
        for name in interleave(in_round, rounds):
            times[name].append(turn.take(calls[name], shortest[name], clock))
    return times


def _shortest(call: Call, block: float, clock: Clock) -> float:
    """Return the seconds of one call: the least of three, or of one that is longer than any block."""
    seconds = seconds_per_call(call, 1, clock)
    if seconds > 3 * block > 0:
        return seconds
    return min(seconds, *(seconds_per_call(call, 1, clock) for _ in range(2)))
