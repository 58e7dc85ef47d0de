"""The search for the cheapest plan, the proof of its optimality, and plans to compare it with.

A `FormatAssignment` is a plan: one candidate for each group, the formats that follow from these, and the total cost.

**The greedy plan** propagates formats as oneDNN's specification describes, one group after the other: it takes the
formats that the engine prefers where it may choose, else the format in which the first source arrives.

**The optimal plan** is the minimum of a sum of cost tables (`elimination`). Costs are measured, so differences of up to
`NEAR` are not significant: among plans within that distance of the optimum, one with fewer reorders is taken. Such
plans are found by adding a growing charge to each reorder. All searches for one plan together take at most
`MOST_SECONDS`. If half of that yields no plan, the greedy plan is taken, and the bound is the sum of the least entries
of all tables.

**Costs without a reorder** are min-marginals: for each state of each variable, the least cost of all assignments with
that state. Elimination passes a remainder from each bucket to a later one. In the opposite order, each bucket receives
the least cost of all that is outside of it, by the states of its scope; together with its own factors that gives its
min-marginals. So all min-marginals take about twice the time of one minimum.

**Compared plans** have the same candidates and costs (`compare_plans`):

    plain            all formats dense and row-major
    greedy           as above
    channels last    this format wherever it is in the domain; inputs may also be read as they are
    blocked by 16    likewise
    bf16             this type wherever tensors may have it, in any format (`compare_types`)

Source: Shenoy and Shafer, "Axioms for probability and belief-function propagation" (1990), with min and plus.
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
    ReducedProblem,
    Solution,
    check_factors,
    eliminate,
    elimination_order,
    minimize,
    reduce_problem,
    sum_factors,
)
from inlay.graph.planner.formats import Format, blocked, channels_last
from inlay.graph.planner.groups import Candidate, Group
from inlay.graph.planner.problem import CostTables, Problem
from inlay.primitives.rules import RECURRENT, WEIGHTED


@dataclass(frozen=True, slots=True)
class ConcatCopy:
    """A source of a concatenation that is copied into the result."""

    group: int
    """Index of the concatenation."""
    source: int
    """Number of the source."""
    part: Format
    """Format of the source's slice of the result."""


@dataclass(frozen=True, slots=True)
class FormatAssignment:
    """A plan: a candidate for each group, and all that follows from this choice."""

    candidates: tuple[Candidate, ...]
    """The candidate of each group."""
    produced: Mapping[str, Format]
    """The format in which each tensor is produced."""
    extra_formats: Mapping[str, tuple[Format, ...]]
    """The further formats in which each tensor is available, in the order of their first reads."""
    copies: tuple[ConcatCopy, ...]
    """The sources of concatenations that are copied."""
    ms: float
    """Milliseconds of all calls, reorders and copies."""
    penalty: float
    """Milliseconds of the penalties of all candidates, which the search adds to `ms` (see `Problem`)."""
    reorders: int
    """Number of reorders and copies."""

    @property
    def cost(self) -> float:
        """Milliseconds with penalties, which the search minimizes."""
        return self.ms + self.penalty


def assign_formats(problem: Problem, choices: Sequence[int]) -> FormatAssignment:
    """Return the plan that consists of one candidate for each group; any choice is valid.

    Post-condition: every format that a candidate reads is produced or among the further formats.
    """
    chosen = tuple(group.candidates[choice] for group, choice in zip(problem.groups, choices, strict=True))
    produced = {name: problem.domains[name][0] for name in problem.graph.inputs}
    for group, candidate in zip(problem.groups, chosen, strict=True):
        produced.update(zip(group.writes, candidate.writes, strict=True))
    extra: dict[str, list[Format]] = {name: [] for name in produced}
    copies = []
    for name, read, copy in _list_reads(problem, chosen, produced):
        if copy is not None:
            copies.append(copy)
        elif read not in (produced[name], *extra[name]):
            extra[name].append(read)
    reorders = [(name, produced[name], dst) for name in extra for dst in extra[name]]
    call_costs = [candidate.ms for candidate in chosen]
    reorder_costs = [problem.reorder(src, dst) for _, src, dst in reorders]
    sources = [produced[problem.groups[copy.group].reads[copy.source]] for copy in copies]
    copy_costs = [problem.cost_cache.reorder(src, copy.part) for src, copy in zip(sources, copies, strict=True)]
    aliases = sum(problem.formats.equivalent(src, dst) for _, src, dst in reorders)
    return FormatAssignment(
        chosen,
        produced,
        {name: tuple(formats) for name, formats in extra.items()},
        tuple(copies),
        math.fsum((*call_costs, *reorder_costs, *copy_costs)),
        sum(problem.penalty(i, one) for i, one in enumerate(chosen)),
        len(reorders) + len(copies) - aliases,
    )


def _list_reads(
    problem: Problem, chosen: Sequence[Candidate], produced: Mapping[str, Format]
) -> Iterator[tuple[str, Format, ConcatCopy | None]]:
    """Yield each tensor that is read, the format, and the copy into a concatenation if there is one."""
    for i, (group, candidate) in enumerate(zip(problem.groups, chosen, strict=True)):
        for source, (name, read) in enumerate(zip(group.reads, candidate.reads, strict=True)):
            has_call = candidate.concat_offsets is None
            if has_call or problem.is_in_concat_result(i, source, read, produced[name]):
                yield name, read, None
            else:
                yield name, read, ConcatCopy(i, source, read)
    for name in problem.graph.outputs:
        yield name, problem.domains[name][0], None


def greedy_choices(problem: Problem, allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
    """Return the candidates that propagation chooses, one group after the other; `allowed` restricts those of groups.

    A group takes the engine's own formats if the engine may choose, else the format of its first source; of the
    candidates with these formats, the cheapest, reorders included.
    """
    produced: dict[str, Format] = {name: problem.domains[name][0] for name in problem.graph.inputs}
    found = []
    for i, group in enumerate(problem.groups):
        candidates = group.candidates
        wanted = _propagate_formats(problem, group, produced)
        among = (allowed or {}).get(i, range(len(candidates)))
        among = [c for c in among if math.isfinite(problem.cost(i, candidates[c]))] or among
        fitting = [c for c in among if _has_formats(group, candidates[c], wanted)] or among
        choice = min(fitting, key=lambda c: _greedy_cost(problem, i, candidates[c], produced))
        found.append(choice)
        produced.update(zip(group.writes, candidates[choice].writes, strict=True))
    return tuple(found)


def _propagate_formats(problem: Problem, group: Group, produced: Mapping[str, Format]) -> Mapping[str, Format]:
    """Return the formats that propagation requires of a group's tensors."""
    if group.kind in WEIGHTED or group.kind in RECURRENT:
        natural = problem.cost_cache.preferred_formats(group.head, problem.graph.tensors)
        sources = {name: natural[a] for a, name in group.head.reads.items() if a in natural}
        results = dict(zip(group.writes, (natural[a] for a in group.head.writes if a in natural), strict=False))
        return {**sources, **results}
    return {group.reads[0]: produced[group.reads[0]]} if group.reads else {}


def _has_formats(group: Group, one: Candidate, wanted: Mapping[str, Format]) -> bool:
    """Return whether a candidate has the wanted formats."""
    pairs = (*zip(group.reads, one.reads, strict=True), *zip(group.writes, one.writes, strict=True))
    return all(number == wanted.get(name, number) for name, number in pairs)


def _greedy_cost(problem: Problem, i: int, one: Candidate, produced: Mapping[str, Format]) -> float:
    """Return the cost of a candidate and of the reorders that it alone would need."""
    total = problem.cost(i, one)
    for source, (name, read) in enumerate(zip(problem.groups[i].reads, one.reads, strict=True)):
        if one.concat_offsets is not None and not problem.is_in_concat_result(i, source, read, produced[name]):
            total += problem.cost_cache.reorder(produced[name], read)
        else:
            total += problem.reorder(produced[name], read)
    return total


NEAR = 0.02
"""Share of the cost that fewer reorders may add."""
MOST_TRIALS = 5
"""Number of charges that are tried, each twice the one before."""
MOST_SECONDS = 10.0
"""Time limit of all searches for one plan, in seconds."""
ELIMINATION, GREEDY = "elimination", "greedy"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A plan, and what is proven about it."""

    assignment: FormatAssignment
    """The plan."""
    bound: float
    """Lower bound of the cost of any plan, in ms.

    After elimination, the cost of `assignment` exceeds it only by what fewer reorders may add.
    """
    width: int
    """Width of the elimination order; 0 where no search ended in time."""
    method: str
    """Method that found the plan: `elimination`; `milp` for the solver; `greedy` where neither found a better plan in
    time."""


def _without_penalty(result: SearchResult) -> SearchResult:
    """Return a result whose bound is one of times: of all plans with at least the penalties of the plan."""
    found = result.assignment
    return replace(result, bound=min(result.bound - found.penalty, found.ms))


class PlanSearch:
    """A problem that is solved several times, with different restrictions, in a limited time."""

    def __init__(self, problem: Problem, seconds: float = MOST_SECONDS) -> None:
        """Build the tables of `problem`; all searches together take at most `seconds`.

        Raises:
            InvalidArguments: every plan has infinite cost.
        """
        self.problem, self.tables = problem, CostTables(problem)
        self._sizes, self._factors = self.tables.factors()
        check_factors(self._sizes, self._factors)
        self._reduced_problem = reduce_problem(self._sizes, self._factors)
        self._seconds_left = seconds

    def best(self) -> SearchResult:
        """Return the cheapest plan, or a plan of nearly that cost with fewer reorders.

        If the time is too short, the greedy plan is returned.

        Raises:
            InvalidArguments: every plan has infinite cost.
        """
        solution = self._search(self._reduced_problem, self._factors, self._seconds_left / 2)
        result = self._select_result(solution)
        if result.method == GREEDY:
            return _without_penalty(result)
        found = least = result.assignment
        charge = NEAR * least.cost / max(least.reorders, 1)
        for _ in range(MOST_TRIALS if least.reorders else 0):
            fewer = self._search_with_charge(charge)
            if fewer is None or fewer.cost > least.cost * (1 + NEAR):
                break
            found = min(found, fewer, key=lambda one: (one.reorders, one.cost))
            charge *= 2
        return _without_penalty(replace(result, assignment=found))

    def _select_result(self, solution: Solution | None) -> SearchResult:
        """Return the plan of a solution, or the greedy plan if that is cheaper or there is no solution."""
        if solution is not None and solution.method == ELIMINATION:
            return SearchResult(self._assign(solution), solution.bound, solution.width, solution.method)
        greedy = assign_formats(self.problem, greedy_choices(self.problem))
        if solution is None:
            return SearchResult(greedy, self._reduced_problem.lower_bound, 0, GREEDY)
        found = self._assign(solution)
        if found.cost <= greedy.cost:
            return SearchResult(found, solution.bound, solution.width, solution.method)
        return SearchResult(greedy, solution.bound, solution.width, GREEDY)

    def _assign(self, solution: Solution) -> FormatAssignment:
        return assign_formats(self.problem, self.tables.choices(solution.assignment))

    def _search(self, problem: ReducedProblem, factors: Sequence[Factor], seconds: float) -> Solution | None:
        """Return the minimum of a problem, and subtract the time from the limit; None if it was not found in `seconds`.

        Raises:
            InvalidArguments: every assignment costs infinity.
        """
        if seconds <= 0:
            return None
        started = time.monotonic()
        try:
            return minimize(problem, factors, seconds=seconds)
        except (MissingExtra, Unimplemented):
            return None
        finally:
            self._seconds_left -= time.monotonic() - started

    def _search_with_charge(self, charge: float) -> FormatAssignment | None:
        """Return the cheapest plan if each reorder cost `charge` more; None if it was not found in time."""
        costs = {
            i: np.asarray(states.reorder_counts * charge, dtype=np.float64)
            for i, states in enumerate(self.tables.states)
        }
        extra = [Factor((i,), table) for i, table in costs.items()]
        solution = self._search(self._reduced_problem.with_costs(costs), [*self._factors, *extra], self._seconds_left)
        return None if solution is None else self._assign(solution)

    def best_among(self, allowed: Mapping[int, Sequence[int]]) -> FormatAssignment | None:
        """Return the cheapest plan in which groups have these candidates; None if there is none.

        If the time is too short, the greedy plan among them is returned.
        """
        sizes, factors = self.tables.factors(allowed)
        try:
            solution = self._search(reduce_problem(sizes, factors), factors, self._seconds_left)
        except InvalidArguments:  # nothing is allowed
            return None
        if solution is None:
            return assign_formats(self.problem, greedy_choices(self.problem, allowed))
        return assign_formats(self.problem, self.tables.choices(solution.assignment, allowed))

    def cost_without(self, name: str, src: Format, dst: Format) -> float | None:
        """Return the cost of the cheapest plan without a reorder of a tensor from `src` to `dst`.

        None is returned if every plan has that reorder, or the graph is too wide for elimination. The first call takes
        about as long as two searches; later calls only look up its result.
        """
        if self._marginals is None:
            return None
        number = self.tables.numbers[name]
        states, domain = self.tables.states[number], self.problem.domains[name]
        barred = (states.produced == domain.index(src)) & states.has_format(domain.index(dst))
        least = float(np.min(self._marginals[number], where=~barred, initial=np.inf))
        return least if np.isfinite(least) else None

    @cached_property
    def _marginals(self) -> list[NDArray[np.float64]] | None:
        """The least cost for each state of each variable; None if the graph is too wide for elimination."""
        try:
            return min_marginals(self._sizes, self._factors, self._reduced_problem)
        except Unimplemented:
            return None


def min_marginals(
    sizes: Sequence[int], factors: Sequence[Factor], reduced: ReducedProblem | None = None
) -> list[NDArray[np.float64]]:
    """Return the least cost for each state of each variable; `inf` for a state that no assignment of finite cost has.

    `reduced` is `reduce_problem(sizes, factors)`, if that is known.

    Raises:
        InvalidArguments: every assignment costs infinity.
        Unimplemented: elimination would need a table of over `elimination.MOST_STATES` entries.

    >>> factors = [Factor((0,), np.array([1.0, 0.0])), Factor((0, 1), np.array([[0.0, np.inf], [5.0, 2.0]]))]
    >>> [costs.tolist() for costs in min_marginals((2, 2), factors)]
    [[1.0, 2.0], [1.0, 2.0]]
    """
    problem = reduce_problem(sizes, factors) if reduced is None else reduced
    left, least = _reduced_marginals(problem)
    found = [np.full(size, np.inf) for size in sizes]
    for v, states in enumerate(problem.states):
        found[v][states] = least
    for v, costs in zip(problem.variables, left, strict=True):
        found[v][problem.states[v]] = costs
    return found


def _reduced_marginals(problem: ReducedProblem) -> tuple[list[NDArray[np.float64]], float]:
    """Return the min-marginals of the remaining variables, and the least cost."""
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
        whole = sum_factors([*own[place], *inner, Factor(bucket.scope, outside.pop(place))], scope, sizes)
        found[bucket.variable] = whole.min(axis=tuple(range(1, whole.ndim)))
        for source in bucket.sources:
            outside[source] = _outside_cost(buckets[source], scope, whole)
    return found, least


def _own_factors(factors: Sequence[Factor], order: Sequence[int]) -> list[list[Factor]]:
    """Return, for each variable in the elimination order, the factors of which it is eliminated first."""
    rank = {v: place for place, v in enumerate(order)}
    found: list[list[Factor]] = [[] for _ in order]
    for factor in factors:
        found[min(rank[v] for v in factor.variables)].append(factor)
    return found


def _outside_cost(source: Bucket, scope: tuple[int, ...], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least of a sum over `scope`, by states of the scope of `source`, less the contribution of `source`.

    The result is 0 where the contribution is infinite: the bucket's min-marginals are infinite there anyway.
    """
    least = whole.min(axis=tuple(axis for axis, v in enumerate(scope) if v not in source.scope))
    extra = [v for v in scope if v in source.scope]
    least = least.transpose([extra.index(v) for v in source.scope])
    is_finite = np.isfinite(source.remainder)
    found: NDArray[np.float64] = np.subtract(least, source.remainder, out=np.zeros_like(least), where=is_finite)
    return found


UNIFORM: Mapping[str, Callable[[int], str | None]] = {
    "channels last": channels_last,
    **{f"blocked by {block}": partial(blocked, block=block) for block in (4, 8, 16)},
}
"""For each name of a uniform plan, the tag of its format by the number of axes."""


def compare_plans(search: PlanSearch) -> dict[str, FormatAssignment]:
    """Return the compared plans by name; a uniform one only if some tensor may have its format."""
    problem = search.problem
    plain = search.best_among(_matching_candidates(problem, {}))
    found = {} if plain is None else {"plain": plain}
    found["greedy"] = assign_formats(problem, greedy_choices(problem))
    for name, tag in UNIFORM.items():
        wanted = _find_formats_with_tag(problem, tag)
        assignment = search.best_among(_matching_candidates(problem, wanted)) if wanted else None
        if assignment is not None:
            found[name] = assignment
    return found


def compare_types(search: PlanSearch) -> dict[str, FormatAssignment]:
    """Return the cheapest plan of each further type, by its name, in which tensors have that type where they can."""
    found = {}
    graph = search.problem.graph
    for data_type in sorted({one for types in graph.storage_types.values() for one in types}):
        assignment = search.best_among(_candidates_of_type(search.problem, data_type))
        if assignment is not None:
            found[data_type] = assignment
    return found


def _candidates_of_type(problem: Problem, data_type: str) -> dict[int, Sequence[int]]:
    """Return, for each group, the candidates with a data type for all tensors that may have it; if none, all."""
    formats, stored = problem.formats, problem.graph.storage_types
    found: dict[int, Sequence[int]] = {}
    for i, group in enumerate(problem.groups):
        free = [data_type in stored.get(name, ()) for name in (*group.reads, *group.writes)]
        sides = [(*one.reads, *one.writes) for one in group.candidates]
        fitting = [
            c
            for c, side in enumerate(sides)
            if all(formats.data_type(fmt) == data_type for fmt, is_free in zip(side, free, strict=True) if is_free)
        ]
        found[i] = fitting or range(len(sides))
    return found


def _find_formats_with_tag(problem: Problem, tag: Callable[[int], str | None]) -> dict[str, Format]:
    """Return each tensor with the format of its domain that has the tag, if that is not the first, plain one.

    `tag` returns the tag for a number of axes.
    """
    found: dict[str, Format] = {}
    for name, domain in problem.domains.items():
        for fmt in domain[1:]:
            if problem.formats.tag(fmt) == tag(problem.formats[fmt].ndims):
                found[name] = fmt
    return found


def _matching_candidates(problem: Problem, wanted: Mapping[str, Format]) -> dict[int, Sequence[int]]:
    """Return, for each group, the candidates with the formats of `wanted`, and plain ones for other tensors.

    If there are none, all candidates that read these formats are returned; if there are none of these either, all.
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
    """Return whether tensors have the formats of `wanted`, or plain ones; those of `free` may have any."""
    pairs = zip(names, formats, strict=True)
    return all(number == wanted.get(name, problem.domains[name][0]) or name in free for name, number in pairs)
