"""Measured tuning: the first candidates take turns, and one that clearly wins is remembered.

Times of a busy machine are noise with a signal in it, so neighbors in time are compared with each other. All candidates
take turns, round after round, and those that fall behind drop out. Then the best one and what the models decide take
turns alone, and the candidate is chosen only if it was more than 3 % faster in three quarters of the rounds: whoever is
fastest of ten by luck does not come through that. All of it, compilation included, keeps to a budget of time.

    >>> from itertools import count
    >>> clock = count(0, 1e-3)
    >>> fastest([lambda: None, lambda: None], [0.0, 0.0], 0.5, lambda: next(clock))
    Verdict(index=0, gain=1.0)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from statistics import median

from inlay.forks import RenewedLock
from inlay.measure.interleaved import Call, Clock, clock, interleave, rotate, seconds_per_call
from inlay.measure.statistics import spread
from inlay.reordering.choice import UNMEASURED, Choice, Decision
from inlay.reordering.compiled import compile_problem
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.ranking import candidates
from inlay.reordering.target import host_target
from inlay.reordering.tuned import remember, remembered

SECONDS = 1.0
"""How long tuning takes unless told otherwise."""
MOST = 12
"""How many candidates are tried at most, that of the models included."""
_COMPILING = 0.4  # of the budget, at most
_CHOOSING = 0.7  # of the budget: until then all take turns
_TURN = 1e-3  # seconds of one turn at least: a call that is shorter is repeated
_BEHIND = 1.1  # times the best: who is slower drops out
_CLEARLY = 1.03
_ROUNDS = (5, 100)  # of the final: fewer decide nothing, more are not needed


def tune(
    problem: ReorderProblem, src_address: int, dst_address: int, seconds: float = SECONDS, *, again: bool = False
) -> Decision:
    """Decide by measuring how `problem` is solved, and remember it; what is remembered already is not measured again.

    Args:
        src_address: a buffer that the source of `problem` fits in, with numbers in it.
        dst_address: a buffer that its destination fits in, which is written.
        seconds: how long it may take. A call that has begun is not interrupted.
        again: measure although as long a measurement is remembered.

    Post-condition: a reorder of the same problem that is compiled from now on, here or in another process on the same
    machine with as many threads, is done as the result says.

    Raises:
        Unimplemented: LLVM knows no such processor.
    """
    target = host_target()
    if problem.is_empty:
        return UNMEASURED
    with _one_at_a_time:
        known = None if again else remembered(problem, target)
        if known is None or known.seconds < seconds:
            known = _measured(problem, src_address, dst_address, seconds)
            remember(problem, target, known)
    return known


_one_at_a_time = RenewedLock()


def _measured(problem: ReorderProblem, src_address: int, dst_address: int, seconds: float) -> Decision:
    """The winner among the candidates that could be compiled and tried in time."""
    start = clock()
    calls: list[Call] = []
    choices, debts = [], []
    for candidate in islice(candidates(problem, host_target(), memory_model()), MOST):
        if calls and clock() - start > _COMPILING * seconds:
            break
        calls.append(running(problem, candidate.choice, src_address, dst_address))
        choices.append(candidate.choice)
        debts.append(candidate.debt / 1e6)
    left = seconds - (clock() - start)
    verdict = fastest(calls, debts, left)
    return Decision(choices[verdict.index], verdict.gain, seconds)


def running(problem: ReorderProblem, choice: Choice, src_address: int, dst_address: int) -> Call:
    """The reorder with the decisions of `choice` as a call without arguments, 1 for every value of an attribute."""
    reorder = compile_problem(problem, Decision(choice))
    return lambda: reorder.run(src_address, dst_address)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who won."""

    index: int
    """Its number."""
    gain: float
    """How many times as fast as number 0 it was."""


def fastest(
    calls: Sequence[Call],
    debts: Sequence[float],
    seconds: float,
    clock: Clock = clock,
) -> Verdict:
    """The call that is clearly faster than the first, or the first.

    Args:
        calls: those that compete, at least one.
        debts: seconds that count for each call beside those it takes.
        seconds: how long it may take; a call that has begun is not interrupted.
        clock: what tells the time in seconds.
    """
    start = clock()
    if len(calls) == 1 or seconds <= 0:
        return Verdict(0, 1.0)
    race = _Race(calls, debts, clock, start + seconds)
    best = race.leader(start + _CHOOSING * seconds)
    if best == 0:
        return Verdict(0, 1.0)
    ratios = race.final(best)
    if len(ratios) < _ROUNDS[0] or (gain := spread(ratios)).low <= _CLEARLY:
        return Verdict(0, 1.0)
    return Verdict(best, gain.median)


@dataclass(frozen=True, slots=True)
class _Race:
    """Calls that take turns until the time is over."""

    calls: Sequence[Call]
    debts: Sequence[float]
    clock: Clock
    deadline: float

    def leader(self, until: float) -> int:
        """The call with the least median; 0 where some had no turn in time."""
        alive = list(range(len(self.calls)))
        repeats = [1] * len(alive)
        for i in alive:
            if self.clock() >= until:
                return 0
            self.calls[i]()  # brings in code and data
            repeats[i] = self._repeats(i)
        times: list[list[float]] = [[] for _ in alive]

        def in_round(number: int) -> list[int]:
            if number > 1:
                best = median(times[_least(times, alive)])
                alive[:] = [i for i in alive if min(times[i]) < _BEHIND * best]
            return rotate(alive, number) if len(alive) > 1 else []

        for i in interleave(in_round, _ROUNDS[1]):
            if self.clock() >= until:
                break
            times[i].append(self._turn(i, repeats[i]))
        return _least(times, alive)

    def final(self, best: int) -> list[float]:
        """In each round, how many times as fast as number 0 the best was."""
        repeats = {i: self._repeats(i) for i in (0, best)}
        ratios: list[float] = []
        while len(ratios) < _ROUNDS[1] and self.clock() < self.deadline:
            seconds = {i: self._turn(i, repeats[i]) for i in rotate((0, best), len(ratios) % 2)}
            ratios.append(seconds[0] / seconds[best])
        return ratios

    def _repeats(self, i: int) -> int:
        return max(1, ceil(_TURN / max(self._turn(i, 1), 1e-7)))

    def _turn(self, i: int, repeats: int) -> float:
        """Seconds of one call, the debt included."""
        return seconds_per_call(self.calls[i], repeats, self.clock) + self.debts[i]


def _least(times: Sequence[Sequence[float]], among: Sequence[int]) -> int:
    """The number with the least median; 0 where not everybody had a turn."""
    return min(among, key=lambda i: median(times[i])) if all(times[i] for i in among) else 0
