"""Measured tuning: times alternative plans of a problem in turns, and stores a choice that is clearly the fastest.

The first candidate is the plan of the models. Each other candidate differs from it in one or two decisions: traversal
of the other side, a longer or shorter prefetch distance or none, tiles of more or fewer registers, narrower registers,
ordinary or streaming stores, fewer threads. Candidates are ranked by the roofline estimate (`planning.Roofline`),
corrected for effects that it does not contain: new pages with each access, and lines that are not prefetched. Equal
plans are tried once. The estimate only orders the candidates; it is too inexact to choose one without measurement.

Measured times are noisy on a busy machine, so calls that follow each other closely are compared. All candidates are
timed in turns, round after round, and slow ones are dropped. Then the best one and the plan of the models are timed in
turns. The candidate is chosen only if it is more than 3 % faster in three quarters of the rounds, so that a candidate
that was best by chance is rejected. Tuning keeps to a time budget that includes compilation.

    >>> from itertools import count
    >>> clock = count(0, 1e-3)
    >>> select_fastest([lambda: None, lambda: None], [0.0, 0.0], 0.5, lambda: next(clock))
    TuningResult(index=0, gain=1.0)
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
from inlay.reordering.choice import BY_MODEL, UNMEASURED, Choice, Decision, load_decision, store_decision
from inlay.reordering.compiled import compile_problem
from inlay.reordering.kernel import TableShape
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.network import Side
from inlay.reordering.planning import ReorderPlan, bandwidth_of, estimate_roofline, plan_reorder
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.target import TargetMachine, host_target
from inlay.reordering.threads import choose_thread_count

SECONDS = 1.0
"""Default time budget in seconds."""
MOST = 12
"""Maximum number of candidates, including the plan of the models."""
_COMPILING = 0.4  # share of the budget after which no further candidate is compiled
_one_at_a_time = ForkResetLock()


def tune(
    problem: ReorderProblem, src_address: int, dst_address: int, seconds: float = SECONDS, *, again: bool = False
) -> Decision:
    """Measure which choice solves `problem` fastest, and store the decision; a stored decision is not measured again.

    Args:
        src_address: a buffer that the source of `problem` fits in, with numbers in it.
        dst_address: a buffer that its destination fits in, which is written.
        seconds: the time budget. A call that has begun is not interrupted.
        again: measure even if a measurement of the same duration is stored.

    Post-condition: a reorder of the same problem that is compiled from now on, here or in another process on the same
    machine with as many threads, uses the resulting decision.

    Raises:
        Unimplemented: LLVM does not support the processor.
    """
    target = host_target()
    if problem.is_empty:
        return UNMEASURED
    with _one_at_a_time:
        known = None if again else load_decision(problem, target)
        if known is None or known.seconds < seconds:
            known = _measure_candidates(problem, src_address, dst_address, seconds)
            store_decision(problem, target, known)
    return known


def _measure_candidates(problem: ReorderProblem, src_address: int, dst_address: int, seconds: float) -> Decision:
    """Return the decision for the fastest of the candidates that could be compiled and timed within the budget."""
    start = clock()
    calls: list[Call] = []
    choices, reader_costs = [], []
    for candidate in islice(enumerate_candidates(problem, host_target(), memory_model()), MOST):
        if calls and clock() - start > _COMPILING * seconds:
            break
        calls.append(bind_call(problem, candidate.choice, src_address, dst_address))
        choices.append(candidate.choice)
        reader_costs.append(candidate.reader_cost / 1e6)
    left = seconds - (clock() - start)
    verdict = select_fastest(calls, reader_costs, left)
    return Decision(choices[verdict.index], verdict.gain, seconds)


def bind_call(problem: ReorderProblem, choice: Choice, src_address: int, dst_address: int) -> Call:
    """Return the reorder with `choice` as a call without arguments; every value of an attribute is 1."""
    reorder = compile_problem(problem, Decision(choice))
    return lambda: reorder.run(src_address, dst_address)


# Candidates


# Assumed increases of the transfer time, as shares of it.
_NEW_PAGES: dict[Side, float] = {"src": 0.4, "dst": 0.2}  # if each tile accesses a new page on that side
_NO_PREFETCH = 0.15  # without prefetching
_OFF_DISTANCE = 0.01  # for each doubling or halving of the model's prefetch distance
_PAGE = 4096  # bytes
_TIMES_AHEAD = (2, 4, 8)  # multiples of the model's prefetch distance that are tried


@dataclass(frozen=True, slots=True)
class ScheduleCandidate:
    """A choice, with its plan and estimated times."""

    choice: Choice
    """The decisions that differ from the models."""
    plan: ReorderPlan
    """The resulting plan."""
    estimate: float
    """Estimated run time in microseconds."""
    reader_cost: float = 0.0
    """Microseconds that the next reader of the destination loses because streaming stores left it outside the
    caches."""


def enumerate_candidates(
    problem: ReorderProblem, target: TargetMachine, memory: MemoryModel
) -> tuple[ScheduleCandidate, ...]:
    """Return the candidates for `problem`, which is not empty: the models' plan, then the others by estimate.

    Post-condition: no two have the same plan and the same number of threads.
    """
    first = _evaluate_choice(problem, target, memory, BY_MODEL, None)
    distinct = {_identity(first): first}
    for choice in _alternatives(problem, first.plan, target, memory):
        with suppress(Unimplemented):  # the table cannot describe some tiles
            candidate = _evaluate_choice(problem, target, memory, choice, first.plan)
            distinct.setdefault(_identity(candidate), candidate)
    others = [candidate for candidate in distinct.values() if candidate is not first]
    return (first, *sorted(others, key=lambda candidate: candidate.estimate + candidate.reader_cost))


def _alternatives(
    problem: ReorderProblem, plan: ReorderPlan, target: TargetMachine, memory: MemoryModel
) -> Iterator[Choice]:
    """Yield the choices that differ from `plan`, the plan of the models, in one or two decisions."""
    other: Side = "dst" if plan.schedule.traversal == "src" else "src"
    fetched = plan_prefetch_distance(plan)
    yield Choice(traversal=other)
    if fetched:
        yield from (Choice(prefetch_distance=fetched * times) for times in _TIMES_AHEAD)
        yield Choice(prefetch_distance=fetched // 2)
        yield Choice(prefetch_distance=0)
        yield Choice(traversal=other, prefetch_distance=1024)
    registers = plan.schedule.tile.registers
    yield from (Choice(registers=count) for count in (1, 4, 16, 32) if count != registers)
    yield Choice(width=target.vector_bytes // 2)
    if problem.moved_bytes > memory.l2:
        is_streamed = plan.kernel.stores != "cached" or plan.panels is not None
        yield Choice(streams=not is_streamed)
        yield Choice(streams=True, panels=plan.panels is None)
    threads = choose_thread_count(problem.moved_bytes)
    if threads > 1 and problem.moved_bytes <= memory.last_level:
        yield Choice(threads=threads // 2)


def plan_prefetch_distance(plan: ReorderPlan) -> int:
    """Return the prefetch distance of a plan in bytes; 0 if it does not prefetch."""
    return int(plan.table.words[TableShape.PREFETCH]) if plan.kernel.prefetches else 0


def _identity(candidate: ScheduleCandidate) -> tuple[object, ...]:
    """Return what distinguishes a candidate from others: its plan and the number of threads."""
    plan = candidate.plan
    return plan.schedule, plan.kernel, plan_prefetch_distance(plan), candidate.choice.threads, plan.panels is None


def _evaluate_choice(
    problem: ReorderProblem, target: TargetMachine, memory: MemoryModel, choice: Choice, model: ReorderPlan | None
) -> ScheduleCandidate:
    """Build the plan of `choice` and estimate its times; `model` is the plan of the models, None if this is it."""
    plan = plan_reorder(problem, target, choice)
    threads = min(
        choose_thread_count(problem.moved_bytes),
        choice.threads or choose_thread_count(problem.moved_bytes),
        plan.pieces,
    )
    bound = estimate_roofline(problem, plan, target.vector_bytes, memory, threads)
    bytes_us = bound.bytes_us * (
        1 + sum(_NEW_PAGES[side] * _new_page_share(problem, plan, side) for side in _NEW_PAGES)
    )
    if bound.level != "L2":
        bytes_us *= 1 + _prefetch_penalty(plan_prefetch_distance(plan), plan_prefetch_distance(model or plan))
    reader_cost = 0.0
    if bound.level != "memory" and plan.kernel.stores != "cached":
        reader_cost = (
            problem.written_bits / 8 * (1 / bandwidth_of(memory, "memory") - 1 / bound.bandwidth) / threads / 1000
        )
    return ScheduleCandidate(choice, plan, bound.call_us + max(bytes_us, bound.instructions_us), reader_cost)


def _new_page_share(problem: ReorderProblem, plan: ReorderPlan, side: Side) -> float:
    """Return the share of tiles that access another page than the tile before; 1 if each step is a page or more."""
    if not plan.schedule.outer:
        return 0.0
    inner = plan.schedule.outer[-1]
    loop, kind = plan.schedule.nest.loops[inner.loop], problem.src_type if side == "src" else problem.dst_type
    where = loop.src if side == "src" else loop.dst
    step = abs(where) if isinstance(where, int) else _PAGE
    return min(1.0, step * inner.step * kind.bits / 8 / _PAGE)


def _prefetch_penalty(ahead: int, model: int) -> float:
    """Return the relative increase of the transfer time for a prefetch distance other than the model's."""
    if not ahead:
        return _NO_PREFETCH
    return _OFF_DISTANCE * abs(log2(abs(ahead / model))) if model else 0.0


# Timing


_CHOOSING = 0.7  # share of the budget for the comparison of all candidates
_TURN = 1e-3  # least seconds of one measurement: shorter calls are repeated
_BEHIND = 1.1  # multiple of the best time above which a candidate is dropped
_CLEARLY = 1.03  # least speed-up for which a candidate is chosen
_ROUNDS = (5, 100)  # least and greatest number of rounds of the comparison with the models' plan


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a comparison of calls."""

    index: int
    """Number of the chosen call."""
    gain: float
    """Its speed-up over call 0."""


def select_fastest(
    calls: Sequence[Call],
    reader_costs: Sequence[float],
    seconds: float,
    clock: Clock = clock,
) -> TuningResult:
    """Return the call that is clearly faster than the first; the first if there is none.

    Args:
        calls: the calls to compare, at least one.
        reader_costs: seconds to add to the duration of each call.
        seconds: the time budget; a call that has begun is not interrupted.
        clock: returns the time in seconds.
    """
    start = clock()
    if len(calls) == 1 or seconds <= 0:
        return TuningResult(0, 1.0)
    timing = _PairedTiming(calls, reader_costs, clock, start + seconds)
    best = timing.find_leader(start + _CHOOSING * seconds)
    if best == 0:
        return TuningResult(0, 1.0)
    ratios = timing.compare_with_first(best)
    if len(ratios) < _ROUNDS[0] or (gain := spread(ratios)).low <= _CLEARLY:
        return TuningResult(0, 1.0)
    return TuningResult(best, gain.median)


@dataclass(frozen=True, slots=True)
class _PairedTiming:
    """The timing of calls in turns until a deadline."""

    calls: Sequence[Call]
    reader_costs: Sequence[float]
    clock: Clock
    deadline: float

    def find_leader(self, until: float) -> int:
        """Return the call with the least median; 0 if some call could not be timed before `until`."""
        alive = list(range(len(self.calls)))
        repeats = [1] * len(alive)
        for i in alive:
            if self.clock() >= until:
                return 0
            self.calls[i]()  # warms up code and data
            repeats[i] = self._repeats(i)
        times: list[list[float]] = [[] for _ in alive]

        def in_round(number: int) -> list[int]:
            """Return the calls to time in a round, in order; drop slow ones after the first two rounds."""
            if number > 1:
                best = median(times[_least(times, alive)])
                alive[:] = [i for i in alive if min(times[i]) < _BEHIND * best]
            return rotate(alive, number) if len(alive) > 1 else []

        for i in interleave(in_round, _ROUNDS[1]):
            if self.clock() >= until:
                break
            times[i].append(self._turn(i, repeats[i]))
        return _least(times, alive)

    def compare_with_first(self, best: int) -> list[float]:
        """Return the speed-up of call `best` over call 0 in each round."""
        repeats = {i: self._repeats(i) for i in (0, best)}
        ratios: list[float] = []
        while len(ratios) < _ROUNDS[1] and self.clock() < self.deadline:
            seconds = {i: self._turn(i, repeats[i]) for i in rotate((0, best), len(ratios) % 2)}
            ratios.append(seconds[0] / seconds[best])
        return ratios

    def _repeats(self, i: int) -> int:
        """Return the number of repetitions for which call `i` takes at least `_TURN` seconds."""
        return max(1, ceil(_TURN / max(self._turn(i, 1), 1e-7)))

    def _turn(self, i: int, repeats: int) -> float:
        """Return the seconds of one call, with its reader cost."""
        return seconds_per_call(self.calls[i], repeats, self.clock) + self.reader_costs[i]


def _least(times: Sequence[Sequence[float]], among: Sequence[int]) -> int:
    """Return the number with the least median; 0 if a call among them was not timed."""
    return min(among, key=lambda i: median(times[i])) if all(times[i] for i in among) else 0
