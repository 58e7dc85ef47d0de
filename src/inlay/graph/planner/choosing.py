"""The plan that costs least, the proof of it, and what it would cost without one of its reorders.

The minimum is exact (`elimination`). Among plans within `NEAR` of it one with fewer reorders is taken: prices are
measured, and what differs by less than they do is decided by what is simpler. Such plans are found by charging more and
more for each reorder.

All searches for one plan together take at most `MOST_SECONDS`. Where half of that finds no plan, the greedy plan is
taken, and the bound is one that is always known: the sum of the least entries of all tables.

**Min-marginals: for each state of each variable, the least cost of all assignments in which the variable has it.**

Elimination sends what each bucket leaves to a later one (see `elimination`). Going back from the last bucket to the
first, each is told the least of all that lies outside it; with its own factors that makes the least of the whole, by
its states. So all min-marginals take about as long as two minima.

Source: Shenoy and Shafer, "Axioms for probability and belief-function propagation" (1990), with min and plus.

**`Settled`: one candidate for each group, the formats that follow from that, and what it all costs.**

**The greedy plan: formats as oneDNN's specification propagates them, one group after the other.**

**What other ways to choose would take, from the same candidates at the same prices.**

plain            everything dense and row-major
greedy           the specification's propagation: the engine's answer to any where it may choose, else what arrives
channels last    one format wherever tensors may have it; what a run is given may be read as it is
blocked by 16    likewise
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.planner.elimination import (
    MOST_STATES,
    Bucket,
    Factor,
    Reduced,
    Solution,
    check,
    eliminate,
    elimination_order,
    minimum,
    reduced,
    summed,
)
from inlay.graph.planner.formats import Format, blocked, channels_last
from inlay.graph.planner.groups import Candidate, Group
from inlay.graph.planner.problem import Problem, Tables
from inlay.primitives.rules import RECURRENT, WEIGHTED


def min_marginals(sizes: Sequence[int], factors: Sequence[Factor]) -> list[NDArray[np.float64]]:
    """By variable and state, the least cost; `inf` for a state that no assignment of finite cost has.

    Raises:
        InvalidArguments: every assignment costs infinity.
        Unimplemented: elimination would need a table of over `elimination.MOST_STATES` entries.

    >>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
    >>> [found.tolist() for found in min_marginals((2, 2), factors)]
    [[1.0, 2.0], [1.0, 2.0]]
    """
    problem = reduced(sizes, factors)
    left, least = _of_reduced(problem)
    found = [np.full(size, np.inf) for size in sizes]
    for v, states in enumerate(problem.states):
        found[v][states] = least
    for v, costs in zip(problem.variables, left, strict=True):
        found[v][problem.states[v]] = costs
    return found


def _of_reduced(problem: Reduced) -> tuple[list[NDArray[np.float64]], float]:
    """The min-marginals of the variables that are left, and the least cost."""
    sizes = problem.sizes
    order, _, largest = elimination_order(sizes, [factor.variables for factor in problem.factors])
    if largest > MOST_STATES:
        raise Unimplemented("the graph is too wide for elimination: compare whole plans instead")
    buckets = eliminate(sizes, problem.factors, order)
    own = _own_factors(problem.factors, order)
    roots = {place: float(bucket.remainder) for place, bucket in enumerate(buckets) if not bucket.scope}
    least = problem.constant + sum(roots.values())
    outside = {place: np.asarray(least - root) for place, root in roots.items()}
    found = [np.zeros(0)] * len(sizes)
    for place in reversed(range(len(buckets))):
        bucket = buckets[place]
        scope = (bucket.variable, *bucket.scope)
        inner = [Factor(buckets[source].scope, buckets[source].remainder) for source in bucket.sources]
        whole = summed([*own[place], *inner, Factor(bucket.scope, outside.pop(place))], scope, sizes)
        found[bucket.variable] = whole.min(axis=tuple(range(1, whole.ndim)))
        for source in bucket.sources:
            outside[source] = _without(buckets[source], scope, whole)
    return found, least


def _own_factors(factors: Sequence[Factor], order: Sequence[int]) -> list[list[Factor]]:
    """By place in the order, the factors whose first variable in the order that is."""
    rank = {v: place for place, v in enumerate(order)}
    found: list[list[Factor]] = [[] for _ in order]
    for factor in factors:
        found[min(rank[v] for v in factor.variables)].append(factor)
    return found


def _without(source: Bucket, scope: tuple[int, ...], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least of a sum over `scope` by states of the scope of `source`, less what `source` contributed to it.

    Where that is infinite nothing finite can be said, nor need be: the bucket itself is infinite there.
    """
    least = whole.min(axis=tuple(axis for axis, v in enumerate(scope) if v not in source.scope))
    kept = [v for v in scope if v in source.scope]
    least = least.transpose([kept.index(v) for v in source.scope])
    is_finite = np.isfinite(source.remainder)
    found: NDArray[np.float64] = np.subtract(least, source.remainder, out=np.zeros_like(least), where=is_finite)
    return found


@dataclass(frozen=True, slots=True)
class Copy:
    """A source of a concatenation that is copied to its place in the result."""

    group: int
    """The concatenation."""
    source: int
    """Which source."""
    part: Format
    """How it lies there."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Everything chosen."""

    candidates: tuple[Candidate, ...]
    """The candidate of each group."""
    produced: Mapping[str, Format]
    """The format that each tensor is produced in."""
    kept: Mapping[str, tuple[Format, ...]]
    """The other formats it is kept in, in the order in which they are first read."""
    copies: tuple[Copy, ...]
    """Sources of concatenations that are copied."""
    ms: float
    """What all calls, reorders and copies take."""
    reorders: int
    """How many reorders and copies there are."""


def settle(problem: Problem, choices: Sequence[int]) -> Settled:
    """What follows from one candidate for each group; any choice is legal.

    Post-condition: every format that is read is produced or kept.
    """
    chosen = tuple(group.candidates[choice] for group, choice in zip(problem.groups, choices, strict=True))
    produced = {name: problem.domains[name][0] for name in problem.graph.inputs}
    for group, candidate in zip(problem.groups, chosen, strict=True):
        produced.update(zip(group.writes, candidate.writes, strict=True))
    kept: dict[str, list[Format]] = {name: [] for name in produced}
    copies = []
    for name, read, copy in _read(problem, chosen, produced):
        if copy is not None:
            copies.append(copy)
        elif read not in (produced[name], *kept[name]):
            kept[name].append(read)
    costs = [candidate.ms for candidate in chosen]
    moves = [(name, produced[name], dst) for name in kept for dst in kept[name]]
    moved = [problem.reorder(*move) for move in moves]
    copied = [problem.prices.reorder(produced[problem.groups[c.group].reads[c.source]], c.part) for c in copies]
    aliases = sum(problem.is_alias(*move) for move in moves)
    return Settled(
        chosen,
        produced,
        {name: tuple(found) for name, found in kept.items()},
        tuple(copies),
        math.fsum((*costs, *moved, *copied)),
        len(moved) + len(copied) - aliases,
    )


def _read(
    problem: Problem, chosen: Sequence[Candidate], produced: Mapping[str, Format]
) -> Iterator[tuple[str, Format, Copy | None]]:
    """Each tensor that is read, in which format, or how it is copied instead."""
    for i, (group, candidate) in enumerate(zip(problem.groups, chosen, strict=True)):
        for source, (name, read) in enumerate(zip(group.reads, candidate.reads, strict=True)):
            copied = candidate.parts is not None and not problem.lies(i, source, read, produced[name])
            yield name, read, Copy(i, source, read) if copied else None
    for name in problem.graph.outputs:
        yield name, problem.domains[name][0], None


def greedy_choices(problem: Problem, allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
    """The candidates that propagation takes, one group after the other; `allowed` says which, where groups are named.

    The engine's own formats where it may choose, else the format in which the first source arrives; the cheapest of
    these, reorders included.
    """
    produced: dict[str, Format] = {name: problem.domains[name][0] for name in problem.graph.inputs}
    found = []
    for i, group in enumerate(problem.groups):
        candidates = group.candidates
        wanted = _propagated(problem, group, produced)
        among = (allowed or {}).get(i, range(len(candidates)))
        fitting = [c for c in among if _agrees(group, candidates[c], wanted)] or among
        choice = min(fitting, key=lambda c: _price(problem, i, candidates[c], produced))
        found.append(choice)
        produced.update(zip(group.writes, candidates[choice].writes, strict=True))
    return tuple(found)


def _propagated(problem: Problem, group: Group, produced: Mapping[str, Format]) -> Mapping[str, Format]:
    """The formats that propagation asks for, by tensor."""
    if group.kind in WEIGHTED or group.kind in RECURRENT:
        natural = problem.prices.natural(group.head, problem.graph.tensors)
        sources = {name: natural[a] for a, name in group.head.reads.items() if a in natural}
        results = dict(zip(group.writes, (natural[a] for a in group.head.writes if a in natural), strict=False))
        return {**sources, **results}
    return {group.reads[0]: produced[group.reads[0]]} if group.reads else {}


def _agrees(group: Group, one: Candidate, wanted: Mapping[str, Format]) -> bool:
    pairs = (*zip(group.reads, one.reads, strict=True), *zip(group.writes, one.writes, strict=True))
    return all(number == wanted.get(name, number) for name, number in pairs)


def _price(problem: Problem, i: int, one: Candidate, produced: Mapping[str, Format]) -> float:
    """What a candidate takes, with the reorders that it alone would need."""
    total = one.ms
    for source, (name, read) in enumerate(zip(problem.groups[i].reads, one.reads, strict=True)):
        if one.parts is not None and not problem.lies(i, source, read, produced[name]):
            total += problem.prices.reorder(produced[name], read)
        else:
            total += problem.reorder(name, produced[name], read)
    return total


NEAR = 0.02
"""What fewer reorders may cost, of the whole."""
MOST_TRIALS = 5
"""Charges that are tried, each twice the one before."""
MOST_SECONDS = 10.0
"""Seconds that all searches for one plan may take together."""
ELIMINATION, GREEDY = "elimination", "greedy"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plan, and what is proven about it."""

    settled: Settled
    """The plan."""
    bound: float
    """No plan takes less, in ms. After elimination, `settled.ms` exceeds it only by what fewer reorders may cost."""
    width: int
    """Of the elimination; 0 where no search ended in time."""
    method: str
    """`elimination`; `milp` where the solver found the plan; `greedy` where neither found a better one in time."""


class Choosing:
    """Solves one problem as often as is asked, in a limited time."""

    def __init__(self, problem: Problem, seconds: float = MOST_SECONDS) -> None:
        """Make the tables of `problem`; all searches together take `seconds`.

        Raises:
            InvalidArguments: every plan has a price of infinity.
        """
        self.problem, self.tables = problem, Tables(problem)
        self._sizes, self._factors = self.tables.factors()
        check(self._sizes, self._factors)
        self._reduced = reduced(self._sizes, self._factors)
        self._left = seconds

    def best(self) -> Chosen:
        """The cheapest plan; near-ties go to fewer reorders. Where the time is too short for it, the greedy plan.

        Raises:
            InvalidArguments: every plan has a price of infinity.
        """
        solution = self._search(self._reduced, self._factors, self._left / 2)
        chosen = self._chosen(solution)
        if chosen.method == GREEDY:
            return chosen
        found = least = chosen.settled
        charge = NEAR * least.ms / max(least.reorders, 1)
        for _ in range(MOST_TRIALS if least.reorders else 0):
            fewer = self._charged(charge)
            if fewer is None or fewer.ms > least.ms * (1 + NEAR):
                break
            found = min(found, fewer, key=lambda one: (one.reorders, one.ms))
            charge *= 2
        return replace(chosen, settled=found, bound=min(chosen.bound, found.ms))

    def _chosen(self, solution: Solution | None) -> Chosen:
        """What a search found; unless that is the least, the greedy plan if it takes less."""
        if solution is not None and solution.method == ELIMINATION:
            return Chosen(self._settled(solution), solution.bound, solution.width, solution.method)
        greedy = settle(self.problem, greedy_choices(self.problem))
        if solution is None:
            return Chosen(greedy, min(self._reduced.lower_bound, greedy.ms), 0, GREEDY)
        found = self._settled(solution)
        if found.ms <= greedy.ms:
            return Chosen(found, solution.bound, solution.width, solution.method)
        return Chosen(greedy, min(solution.bound, greedy.ms), solution.width, GREEDY)

    def _settled(self, solution: Solution) -> Settled:
        return settle(self.problem, self.tables.choices(solution.assignment))

    def _search(self, problem: Reduced, factors: Sequence[Factor], seconds: float) -> Solution | None:
        """The least of a problem; None where it was not found in `seconds`, which count.

        Raises:
            InvalidArguments: every assignment costs infinity.
        """
        if seconds <= 0:
            return None
        started = time.monotonic()
        try:
            return minimum(problem, factors, seconds=seconds)
        except (MissingExtra, Unimplemented):
            return None
        finally:
            self._left -= time.monotonic() - started

    def _charged(self, charge: float) -> Settled | None:
        """The cheapest plan if each reorder took `charge` more; None where it was not found in time."""
        costs = {i: np.asarray(states.moves * charge, dtype=np.float64) for i, states in enumerate(self.tables.states)}
        extra = [Factor((i,), table) for i, table in costs.items()]
        solution = self._search(self._reduced.with_costs(costs), [*self._factors, *extra], self._left)
        return None if solution is None else self._settled(solution)

    def among(self, allowed: Mapping[int, Sequence[int]]) -> Settled | None:
        """The cheapest plan of these candidates, where groups are named; None where there is none.

        Where it is not found in time, the greedy one of them.
        """
        sizes, factors = self.tables.factors(allowed)
        try:
            solution = self._search(reduced(sizes, factors), factors, self._left)
        except InvalidArguments:  # nothing is allowed
            return None
        if solution is None:
            return settle(self.problem, greedy_choices(self.problem, allowed))
        return settle(self.problem, self.tables.choices(solution.assignment, allowed))

    def without(self, name: str, src: Format, dst: Format) -> float | None:
        """What the cheapest plan takes that does not reorder a tensor from `src` to `dst`; None where there is none.

        The first call takes about as long as two searches, the others no time.

        Raises:
            Unimplemented: the plan was not found by elimination.
        """
        number = self.tables.numbers[name]
        states, domain = self.tables.states[number], self.problem.domains[name]
        barred = (states.produced == domain.index(src)) & (states.kept >> domain.index(dst) & 1).astype(bool)
        least = float(np.min(self._marginals[number], where=~barred, initial=np.inf))
        return least if np.isfinite(least) else None

    @cached_property
    def _marginals(self) -> list[NDArray[np.float64]]:
        return min_marginals(self._sizes, self._factors)


UNIFORM: Mapping[str, Callable[[int], str | None]] = {
    "channels last": channels_last,
    **{f"blocked by {block}": partial(blocked, block=block) for block in (4, 8, 16)},
}
"""Formats by name, each as a tag by number of axes."""


def compared(choosing: Choosing) -> dict[str, Settled]:
    """The other plans by name; a uniform one only where tensors may have its format."""
    problem = choosing.problem
    plain = choosing.among(_allowed(problem, {}))
    found = {} if plain is None else {"plain": plain}
    found["greedy"] = settle(problem, greedy_choices(problem))
    for name, tag in UNIFORM.items():
        wanted = _uniform(problem, tag)
        settled = choosing.among(_allowed(problem, wanted)) if wanted else None
        if settled is not None:
            found[name] = settled
    return found


def _uniform(problem: Problem, tag: Callable[[int], str | None]) -> dict[str, Format]:
    """The tensors that may have a format other than plain by this tag, and that format."""
    found: dict[str, Format] = {}
    for name, domain in problem.domains.items():
        for number in domain[1:]:
            if problem.formats.tag(number) == tag(problem.formats[number].ndims):
                found[name] = number
    return found


def _allowed(problem: Problem, wanted: Mapping[str, Format]) -> dict[int, Sequence[int]]:
    """The candidates of each group that have the formats of `wanted`, and plain ones elsewhere.

    Where there is none, those that read so; where there is none of them either, all.
    """
    found: dict[int, Sequence[int]] = {}
    for i, group in enumerate(problem.groups):
        candidates = group.candidates
        given = problem.graph.inputs if wanted else ()
        reading = [
            c for c, one in enumerate(candidates) if _has_same_formats(problem, group.reads, one.reads, wanted, given)
        ]
        is_view = group.kind == "view"
        both = [c for c in reading if is_view or _has_same_formats(problem, group.writes, candidates[c].writes, wanted)]
        found[i] = both or reading or range(len(candidates))
    return found


def _has_same_formats(
    problem: Problem,
    names: Sequence[str],
    formats: Sequence[Format],
    wanted: Mapping[str, Format],
    free: Sequence[str] = (),
) -> bool:
    """Whether tensors have the formats of `wanted`, or the plain one; those of `free` may have any."""
    pairs = zip(names, formats, strict=True)
    return all(number == wanted.get(name, problem.domains[name][0]) or name in free for name, number in pairs)
