"""`Problem`: everything that choosing formats needs: groups, candidates, domains, the price of a reorder.

A choice of one candidate for each group says it all: the format that each tensor is produced in is that which the
candidate of its producer writes; the formats it is kept in are those that candidates of its readers read. Each kept
format costs one reorder, from the format produced, however many read it.

**What a tensor can be: produced in a format, kept in a set of formats, each reorder between paid once.**

    domain {nchw, nhwc}, one reader    (nchw, {nchw}) 0    (nchw, {nchw, nhwc}) reorder    (nhwc, {nhwc}) 0    ...

Sets are bits. A tensor need not be kept in more formats than it has readers, nor in one that no candidate reads; what a
run answers is kept in the plain one.

**Candidates and reorders as factors: what states of tensors cost together.**

A group that touches few states is one table over its tensors, the cheapest candidate settled in each entry; one with
more, a concatenation of many sources, is a variable over its candidates with a table beside each tensor. Both say the
same, and the sum over all factors is the cost of a plan.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from inlay.graph.algorithms import Convolutions
from inlay.graph.costs.kernel import Costs
from inlay.graph.op_graph import OpGraph
from inlay.graph.planner.candidates import Candidates
from inlay.graph.planner.domains import Domain, domains
from inlay.graph.planner.elimination import Factor
from inlay.graph.planner.formats import Format, Formats
from inlay.graph.planner.groups import Candidate, Group, grouped
from inlay.graph.planner.prices import Prices
from inlay.primitives.engine import Operation


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What to choose from, and at what price."""

    graph: OpGraph
    """The operations."""
    groups: tuple[Group, ...]
    """In the order in which they run, with their candidates."""
    domains: Mapping[str, Domain]
    """Formats of each tensor between groups."""
    prices: Prices
    """Prices of kernels and reorders, and the table of formats."""
    producers: Mapping[str, int]
    """The group that writes each tensor; -1 for what a run is given."""
    readers: Mapping[str, tuple[int, ...]]
    """The groups that read each tensor, as often as they do."""
    homes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each tensor that may lie in the result of a concatenation: which group that is, which of its sources."""

    @property
    def formats(self) -> Formats:
        """The table of formats."""
        return self.prices.formats

    def reorder(self, name: str, src: Format, dst: Format) -> float:
        """Milliseconds to bring a tensor from `src` to `dst`; nothing where both are the same bytes."""
        return 0.0 if src == dst or self.is_alias(name, src, dst) else self.prices.reorder(src, dst)

    def is_alias(self, name: str, src: Format, dst: Format) -> bool:
        """Whether `dst` is another description of the bytes of `src`, which then need not be copied."""
        return name not in self.homes and self.formats.equivalent(src, dst)

    def lies(self, group: int, source: int, part: Format, produced: Format) -> bool:
        """Whether a source of a concatenation without a call lies in the result, if it is kept in the format `part`.

        Else it is copied there: it has another home, is given or answered, or the format cannot be one of it.
        """
        name = self.groups[group].reads[source]
        if self.homes.get(name) != (group, source) or part not in self.domains[name]:
            return False
        return part != produced or self.may_move(name)

    def may_move(self, name: str) -> bool:
        """Whether the bytes that a tensor is produced in may lie anywhere: it is neither given nor a view."""
        producer = self.producers[name]
        return producer >= 0 and self.groups[producer].kind != "view"


def make_problem(graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> Problem:
    """The problem of choosing formats for `graph` at these costs, and algorithms as `convolutions` allows.

    Raises:
        Unimplemented: an operation has no candidate (see `Candidates.of`).
    """
    prices = Prices(costs, Formats(), convolutions)
    groups = grouped(graph)
    found = domains(graph, prices, costs.isa)
    pairs = ((prices.formats[src], prices.formats[dst]) for src, dst in _pairs(groups, found))
    costs.prepare(_operations(graph, groups, found, prices), pairs)
    candidates = Candidates(graph, found, prices)
    producers = dict.fromkeys(graph.inputs, -1)
    readers: dict[str, list[int]] = {name: [] for name in graph.inputs}
    for i, group in enumerate(groups):
        for name in group.writes:
            producers[name] = i
            readers.setdefault(name, [])
        for name in group.reads:
            readers[name].append(i)
    return Problem(
        graph,
        tuple(replace(group, candidates=candidates.of(group)) for group in groups),
        {name: found[name] for name in producers},
        prices,
        producers,
        {name: tuple(by) for name, by in readers.items()},
        _homes(graph, groups),
    )


def _operations(
    graph: OpGraph, groups: tuple[Group, ...], found: Mapping[str, Domain], prices: Prices
) -> Iterator[Operation]:
    """All operations that candidates will be priced by; found when the first is wanted."""
    with prices.listing() as operations:
        candidates = Candidates(graph, found, prices)
        for group in groups:
            candidates.of(group)
    yield from operations


def _pairs(groups: tuple[Group, ...], found: Mapping[str, Domain]) -> Iterable[tuple[Format, Format]]:
    """All formats between which a tensor may be reordered or copied into a concatenation, once each."""
    joined = {name for group in groups if group.kind == "concat" for name in group.reads}
    names = dict.fromkeys(name for group in groups for name in (*group.reads, *group.writes))
    moves = ((name, move) for name in names for move in (*permutations(found[name], 2), *((n, n) for n in found[name])))
    return dict.fromkeys(move for name, move in moves if move[0] != move[1] or name in joined)


def _homes(graph: OpGraph, groups: tuple[Group, ...]) -> dict[str, tuple[int, int]]:
    """The first concatenation that each tensor is a source of may hold it; what a run answers has its own place."""
    found: dict[str, tuple[int, int]] = {}
    for i, group in enumerate(groups):
        if group.kind == "concat":
            for source, name in enumerate(group.reads):
                if name not in graph.outputs:
                    found.setdefault(name, (i, source))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The states of one tensor."""

    produced: NDArray[np.intp]
    """Of each state, the format produced, as a number of the domain."""
    kept: NDArray[np.intp]
    """Of each state, the formats kept, bit by bit; the one produced among them."""
    moves: NDArray[np.intp]
    """Of each state, how many reorders that takes."""
    costs: NDArray[np.float64]
    """Of each state, what these take."""


def _slots_of(names: Sequence[str]) -> dict[str, list[int]]:
    """By name, the places at which it stands."""
    found: dict[str, list[int]] = {}
    for slot, name in enumerate(names):
        found.setdefault(name, []).append(slot)
    return found


class Spaces:
    """The states of tensors, made once for tensors that are alike."""

    def __init__(self, problem: Problem) -> None:
        """Of the tensors of `problem`."""
        self.problem = problem
        self._known: dict[object, States] = {}
        self._slots = [_slots_of(group.reads) for group in problem.groups]

    def of(self, name: str) -> States:
        """The states of a tensor."""
        problem = self.problem
        domain = problem.domains[name]
        producer = problem.producers[name]
        answered = name in problem.graph.outputs
        if producer < 0:
            written = {0}
        else:
            slot = problem.groups[producer].writes.index(name)
            written = {domain.index(one.writes[slot]) for one in problem.groups[producer].candidates}
        readers = problem.readers[name]
        read = {0} if answered else set()
        for reader in set(readers):
            for one in problem.groups[reader].candidates:
                numbers = (one.reads[slot] for slot in self._slots[reader][name])
                read.update(domain.index(number) for number in numbers if number in domain)
        most = len(readers) + answered
        key = (domain, frozenset(written), frozenset(read), most, answered, name in problem.homes)
        if key not in self._known:
            rows = self._rows(name, sorted(written), read, most)
            produced, kept, moves, prices = zip(*(row for row in rows if row[1] & 1 or not answered), strict=True)
            self._known[key] = States(np.array(produced), np.array(kept), np.array(moves), np.array(prices, float))
        return self._known[key]

    def _rows(
        self, name: str, written: Iterable[int], read: set[int], most: int
    ) -> Iterator[tuple[int, int, int, float]]:
        """Format produced, formats kept, number of reorders, price."""
        domain, problem = self.problem.domains[name], self.problem
        for produced in written:
            others = sorted(read - {produced})
            costs = {other: problem.reorder(name, domain[produced], domain[other]) for other in others}
            free = {other for other in others if problem.is_alias(name, domain[produced], domain[other])}
            for count in range(min(most, len(others)) + 1):
                for extra in combinations(others, count):
                    bits = 1 << produced | sum(1 << other for other in extra)
                    yield produced, bits, len(set(extra) - free), sum(costs[other] for other in extra)


MOST_ENTRIES = 1 << 13
"""States of the tensors of a group, multiplied, up to which it is one table."""
FREE, BARRED = 0.0, np.inf


@dataclass(frozen=True, slots=True)
class Sides:
    """A group, seen from its tensors."""

    variables: tuple[int, ...]
    """Its tensors, each once."""
    tables: tuple[NDArray[np.float64], ...]
    """By state of each tensor and candidate: what that costs."""
    costs: NDArray[np.float64]
    """By candidate: what its calls take."""


class Tables:
    """The factors of a problem."""

    def __init__(self, problem: Problem) -> None:
        """Make the states of every tensor and the tables of every group."""
        self.problem = problem
        self.names = tuple(problem.domains)
        self.numbers = {name: i for i, name in enumerate(self.names)}
        spaces = Spaces(problem)
        self.states = tuple(spaces.of(name) for name in self.names)
        self._slots: dict[object, NDArray[np.float64]] = {}
        self._joined: dict[object, NDArray[np.float64]] = {}
        self.sides = tuple(self._sides(i) for i in range(len(problem.groups)))

    def factors(self, allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[list[int], list[Factor]]:
        """The numbers of states and the factors; `allowed` says candidates of groups, all of them where it does not.

        The first variables are the tensors, in the order of `names`.
        """
        allowed = allowed or {}
        sizes = [len(states.costs) for states in self.states]
        factors = [Factor((i,), states.costs) for i, states in enumerate(self.states)]
        for i, side in enumerate(self.sides):
            among = tuple(allowed.get(i, range(len(side.costs))))
            choices = tuple(v for v in side.variables if sizes[v] > 1)
            if math.prod(sizes[v] for v in choices) <= MOST_ENTRIES:
                factors.append(Factor(choices, self._table(side, choices, among)))
                continue
            choice = len(sizes)
            sizes.append(len(among))
            factors.append(Factor((choice,), side.costs[list(among)]))
            for variable, table in zip(side.variables, side.tables, strict=True):
                factors.append(Factor((variable, choice), table[:, among]))
        return sizes, factors

    def choices(self, assignment: Sequence[int], allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
        """The cheapest candidate of each group where tensors are in these states."""
        found = []
        for i, side in enumerate(self.sides):
            costs = side.costs + sum(t[assignment[v]] for v, t in zip(side.variables, side.tables, strict=True))
            among = (allowed or {}).get(i)
            if among is not None:
                barred = np.full(len(costs), BARRED)
                barred[list(among)] = FREE
                costs = costs + barred
            found.append(int(np.argmin(costs)))
        return tuple(found)

    def _sides(self, number: int) -> Sides:
        """The tables of a group."""
        group = self.problem.groups[number]
        found: dict[int, NDArray[np.float64]] = {}
        for slot, name in enumerate((*group.reads, *group.writes)):
            variable = self.numbers[name]
            table = self._slot(number, slot, name)
            found[variable] = found[variable] + table if variable in found else table
        return Sides(tuple(found), tuple(found.values()), np.array([one.ms for one in group.candidates]))

    def _slot(self, number: int, slot: int, name: str) -> NDArray[np.float64]:
        """By state of a tensor and candidate: whether they fit, or what a copy costs."""
        group, states = self.problem.groups[number], self.states[self.numbers[name]]
        candidates, domain = group.candidates, self.problem.domains[name]
        if any(one.parts is not None for one in candidates) and slot < len(group.reads):
            return self._sources(number, slot, states, candidates)
        writes = slot >= len(group.reads)
        numbers = tuple(domain.index((*one.reads, *one.writes)[slot]) for one in candidates)
        key = (id(states), numbers, writes)
        if key not in self._slots:
            wanted = np.array(numbers)
            if writes:
                fits = states.produced[:, None] == wanted
            else:
                fits = (states.kept[:, None] >> wanted & 1).astype(bool)
            self._slots[key] = np.where(fits, FREE, BARRED)
        return self._slots[key]

    def _sources(self, number: int, slot: int, states: States, candidates: Sequence[Candidate]) -> NDArray[np.float64]:
        """Of a source of a concatenation: it lies in the result, is copied there, or is read by the primitive."""
        problem, name = self.problem, self.problem.groups[number].reads[slot]
        domain = problem.domains[name]
        movable = (problem.homes.get(name) == (number, slot), problem.may_move(name))
        key = (id(states), tuple((one.reads[slot], one.parts is None) for one in candidates), movable)
        if key in self._slots:
            return self._slots[key]
        table = np.full((len(states.costs), len(candidates)), BARRED)
        for c, one in enumerate(candidates):
            read = one.reads[slot]
            for f in np.unique(states.produced):
                rows = states.produced == f
                if one.parts is not None and not problem.lies(number, slot, read, domain[f]):
                    table[rows, c] = problem.prices.reorder(domain[f], read)
                else:
                    table[rows & (states.kept >> domain.index(read) & 1).astype(bool), c] = FREE
        self._slots[key] = table
        return table

    def _table(self, side: Sides, choices: tuple[int, ...], among: tuple[int, ...]) -> NDArray[np.float64]:
        """The cheapest of these candidates for each states of the tensors in `choices`; the others have one state."""
        key = (tuple(map(id, side.tables)), tuple(side.costs), among)
        if key not in self._joined:
            total: NDArray[np.float64] = side.costs[list(among)]
            for variable, table in zip(side.variables, side.tables, strict=True):
                # Candidates stay the last axis; there are no axes for the many tensors of one state.
                total = (total[..., None, :] if variable in choices else total) + (
                    table[:, among] if variable in choices else table[0, among]
                )
            self._joined[key] = total.min(axis=-1)
        return self._joined[key]
