"""Measured tuning: the most promising choices for a problem take turns, and one that clearly wins is remembered.

The first candidate is always what the models of the stages decide by themselves. Each of the others departs from it in
one or two things: the other side walked, lines fetched from nearer, farther or not at all, tiles of more or fewer
registers, narrower registers, stores into or past the caches, fewer threads. They are ranked by arithmetic: the
estimate of `planning.Bound` (bytes through the level of memory that they live in, instructions, masks at the edges),
and what departs from its assumptions: pages touched in turns, and lines that nobody asked for. Plans that are the same
plan are tried once. The estimate orders what is tried; it is not good enough to decide, or nothing would have to be
measured.

Times of a busy machine are noise with a signal in it, so neighbors in time are compared with each other. All candidates
take turns, round after round, and those that fall behind drop out. Then the best one and what the models decide take
turns alone, and the candidate is chosen only if it was more than 3 % faster in three quarters of the rounds: whoever is
fastest of ten by luck does not come through that. All of it, compilation included, keeps to a budget of time.

    >>> from itertools import count
    >>> clock = count(0, 1e-3)
    >>> fastest([lambda: None, lambda: None], [0.0, 0.0], 0.5, lambda: next(clock))
    Verdict(index=0, gain=1.0)
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import ceil, log2
from statistics import median

from inlay.errors import Unimplemented
from inlay.forks import ForkResetLock
from inlay.machine import MemoryModel
from inlay.measure.interleaved import Call, Clock, clock, interleave, rotate, seconds_per_call
from inlay.measure.statistics import spread
from inlay.reordering.choice import BY_MODEL, UNMEASURED, Choice, Decision, remember, remembered
from inlay.reordering.compiled import compile_problem
from inlay.reordering.kernel import TableShape
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.network import Side
from inlay.reordering.planning import Plan, bandwidth_of, bound_of, plan_reorder
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.target import Target, host_target
from inlay.reordering.threads import parts_for

SECONDS = 1.0
"""How long tuning takes unless told otherwise."""
MOST = 12
"""How many candidates are tried at most, that of the models included."""
_COMPILING = 0.4  # of the budget, at most
_one_at_a_time = ForkResetLock()


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


# Candidates


# What bytes take more where a page is new with each line of the source or of the destination; where lines come that
# nobody asked for; and for each doubling of the distance from which the model fetches.
_PAGE = 4096


_NEW_PAGES: dict[Side, float] = {"src": 0.4, "dst": 0.2}
_UNASKED = 0.15
_OFF_DISTANCE = 0.01
_TIMES_AHEAD = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice with what follows from it."""

    choice: Choice
    """What is decided."""
    plan: Plan
    """How the problem is solved then."""
    estimate: float
    """Microseconds that it should take."""
    debt: float = 0.0
    """Microseconds that it costs whoever reads the destination next, because it is not in the caches."""


def candidates(problem: ReorderProblem, target: Target, memory: MemoryModel) -> tuple[Candidate, ...]:
    """The choices for `problem`, which is not empty: what the models decide, then the others by their estimate.

    Post-condition: no two have the same plan and the same number of threads.
    """
    first = _candidate(problem, target, memory, BY_MODEL, None)
    found = {_identity(first): first}
    for choice in _alternatives(problem, first.plan, target, memory):
        # A tile may be one that the table cannot describe.
        with suppress(Unimplemented):
            candidate = _candidate(problem, target, memory, choice, first.plan)
            found.setdefault(_identity(candidate), candidate)
    others = [candidate for candidate in found.values() if candidate is not first]
    return (first, *sorted(others, key=lambda candidate: candidate.estimate + candidate.debt))


def _alternatives(problem: ReorderProblem, plan: Plan, target: Target, memory: MemoryModel) -> Iterator[Choice]:
    """What departs from `plan`."""
    other: Side = "dst" if plan.schedule.walk == "src" else "src"
    fetched = ahead_of(plan)
    yield Choice(walk=other)
    if fetched:
        yield from (Choice(ahead=fetched * times) for times in _TIMES_AHEAD)
        yield Choice(ahead=fetched // 2)
        yield Choice(ahead=0)
        yield Choice(walk=other, ahead=1024)
    registers = plan.schedule.tile.registers
    yield from (Choice(registers=count) for count in (1, 4, 16, 32) if count != registers)
    yield Choice(width=target.vector_bytes // 2)
    if problem.moved_bytes > memory.l2:
        is_streamed = plan.kernel.stores != "cached" or plan.panels is not None
        yield Choice(streams=not is_streamed)
        yield Choice(streams=True, panels=plan.panels is None)
    threads = parts_for(problem.moved_bytes)
    if threads > 1 and problem.moved_bytes <= memory.last_level:
        yield Choice(threads=threads // 2)


def ahead_of(plan: Plan) -> int:
    """Bytes from a load to the line that it asks for; 0 where it asks for none."""
    return int(plan.table.words[TableShape.AHEAD]) if plan.kernel.fetches else 0


def _identity(candidate: Candidate) -> tuple[object, ...]:
    plan = candidate.plan
    return plan.schedule, plan.kernel, ahead_of(plan), candidate.choice.threads, plan.panels is None


def _candidate(
    problem: ReorderProblem, target: Target, memory: MemoryModel, choice: Choice, model: Plan | None
) -> Candidate:
    """What follows from `choice`; `model` is the plan of the models, None where this is it."""
    plan = plan_reorder(problem, target, choice)
    threads = min(parts_for(problem.moved_bytes), choice.threads or parts_for(problem.moved_bytes), plan.pieces)
    bound = bound_of(problem, plan, target.vector_bytes, memory, threads)
    bytes_us = bound.bytes_us * (1 + sum(_NEW_PAGES[side] * _new_pages(problem, plan, side) for side in _NEW_PAGES))
    if bound.level != "L2":
        bytes_us *= 1 + _off_distance(ahead_of(plan), ahead_of(model or plan))
    debt = 0.0
    if bound.level != "memory" and plan.kernel.stores != "cached":
        debt = problem.written_bits / 8 * (1 / bandwidth_of(memory, "memory") - 1 / bound.bandwidth) / threads / 1000
    return Candidate(choice, plan, bound.call_us + max(bytes_us, bound.instructions_us), debt)


def _new_pages(problem: ReorderProblem, plan: Plan, side: Side) -> float:
    """The share of the tiles' lines that lie in another page than the tile before: 1 where each step is a page."""
    if not plan.schedule.outer:
        return 0.0
    inner = plan.schedule.outer[-1]
    loop, kind = plan.schedule.nest.loops[inner.loop], problem.src_type if side == "src" else problem.dst_type
    where = loop.src if side == "src" else loop.dst
    step = abs(where) if isinstance(where, int) else _PAGE
    return min(1.0, step * inner.step * kind.bits / 8 / _PAGE)


def _off_distance(ahead: int, model: int) -> float:
    """What bytes take more because of the distance from which lines are fetched, as a share."""
    if not ahead:
        return _UNASKED
    return _OFF_DISTANCE * abs(log2(abs(ahead / model))) if model else 0.0


# Timing


_CHOOSING = 0.7  # of the budget: until then all take turns
_TURN = 1e-3  # seconds of one turn at least: a call that is shorter is repeated
_BEHIND = 1.1  # times the best: who is slower drops out
_CLEARLY = 1.03
_ROUNDS = (5, 100)  # of the final: fewer decide nothing, more are not needed


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
    timing = _PairedTiming(calls, debts, clock, start + seconds)
    best = timing.leader(start + _CHOOSING * seconds)
    if best == 0:
        return Verdict(0, 1.0)
    ratios = timing.final(best)
    if len(ratios) < _ROUNDS[0] or (gain := spread(ratios)).low <= _CLEARLY:
        return Verdict(0, 1.0)
    return Verdict(best, gain.median)


@dataclass(frozen=True, slots=True)
class _PairedTiming:
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
