"""The format-assignment problem: groups, candidates, domains and costs; and the same as cost tables for elimination.

One candidate for each group determines a plan. A tensor is produced in the format that the candidate of its producer
writes. It is made available in all formats that the candidates of its readers read. Each further format costs one
reorder from the format produced, however many groups read it.

So the state of a tensor is the format produced and the set of formats available, as bits:

    domain {nchw, nhwc}, one reader    (nchw, {nchw}) 0    (nchw, {nchw, nhwc}) reorder    (nhwc, {nhwc}) 0    ...

A tensor needs no more further formats than it has readers, and none that no candidate reads. An output of the graph is
available in the plain format.

A group whose tensors have few states is one factor over its tensors, in which each entry is the cost of the cheapest
candidate. A group with more, as a concatenation of many sources, is a variable over its candidates, with one factor for
each tensor. The sum of all factors is the cost of a plan.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from inlay.graph.algorithms import Convolutions
from inlay.graph.background import yield_to_runs
from inlay.graph.costs.estimates import Costs
from inlay.graph.op_graph import OpGraph
from inlay.graph.planner.candidates import CandidateGenerator
from inlay.graph.planner.cost_cache import NO_ALGORITHMS, CostCache
from inlay.graph.planner.domains import Domain, Tags, domains
from inlay.graph.planner.elimination import Factor
from inlay.graph.planner.formats import Format, Formats
from inlay.graph.planner.groups import Candidate, Group, group_operations
from inlay.graph.planner.types import find_views
from inlay.primitives.engine import Operation

Penalties: TypeAlias = Mapping[tuple[str, str], float]
"""Milliseconds by name of an operation and narrow type that its kernel computes in."""
NO_PENALTIES: Penalties = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """The format-assignment problem of a graph."""

    graph: OpGraph
    """The operations."""
    groups: tuple[Group, ...]
    """The groups in the order in which they run, with their candidates."""
    domains: Mapping[str, Domain]
    """The domain of each tensor between groups."""
    cost_cache: CostCache
    """Costs of kernels and reorders, and the table of formats."""
    producers: Mapping[str, int]
    """Index of the group that writes each tensor; -1 for an input."""
    readers: Mapping[str, tuple[int, ...]]
    """Indices of the groups that read each tensor, once for each argument."""
    concat_targets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """For each tensor that can be stored in the result of a concatenation: the group, and the number of the source."""
    penalties: Penalties = field(default_factory=lambda: NO_PENALTIES)
    """Milliseconds that count in the choice of candidates, and not in their reported times."""

    @property
    def formats(self) -> Formats:
        """The table of formats."""
        return self.cost_cache.formats

    def reorder(self, src: Format, dst: Format) -> float:
        """Return the milliseconds of a reorder; 0 where both formats describe the same bytes."""
        return 0.0 if self.formats.equivalent(src, dst) else self.cost_cache.reorder(src, dst)

    def is_in_concat_result(self, group: int, source: int, part: Format, produced: Format) -> bool:
        """Return whether a source is written into the result of a concatenation that runs no kernel.

        If not, the source is copied into the result: it is stored in another result, is an input or output, or cannot
        have the format of the slice.

        Args:
            group: index of the concatenation.
            source: index of the source among its operands.
            part: format of the source's slice of the result.
            produced: format that the producer of the source writes.
        """
        name = self.groups[group].reads[source]
        if self.concat_targets.get(name) != (group, source) or part not in self.domains[name]:
            return False
        # Between different formats a reorder writes the slice; otherwise the producer itself has to write there.
        return self.can_relocate(name) or not self.formats.equivalent(part, produced)

    def cost(self, group: int, one: Candidate) -> float:
        """Return the milliseconds of a candidate of a group, with its penalties."""
        return one.ms + self.penalty(group, one)

    def penalty(self, group: int, one: Candidate) -> float:
        """Return the penalties of the narrow types that a candidate of a group has, in milliseconds."""
        if not self.penalties:
            return 0.0
        types = {self.formats.data_type(fmt) for fmt in (*one.reads, *one.writes) if fmt}
        names = (name for names in self.groups[group].names for name in names)
        return sum(self.penalties.get((name, data_type), 0.0) for name in names for data_type in types)

    def can_relocate(self, name: str) -> bool:
        """Return whether a tensor can be produced at any address: it is neither an input nor a view."""
        producer = self.producers[name]
        return producer >= 0 and self.groups[producer].kind != "view"


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """The formats and algorithms of a plan, by name, for the same operations with other dims."""

    tags: Tags
    """The tags and data types of each tensor's formats."""
    algorithms: Mapping[str, str]
    """The algorithm of each convolution."""
    steps: frozenset[tuple[str, ...]]
    """The names of the operations that each step computes."""


def make_problem(
    graph: OpGraph,
    costs: Costs,
    convolutions: Convolutions = "auto",
    choices: PlanChoices | None = None,
    penalties: Penalties = NO_PENALTIES,
) -> Problem:
    """Build the problem of assigning formats to `graph` at these costs; `convolutions` names the allowed algorithms.

    `choices` restricts the formats and algorithms to those of another plan. `penalties` are those of `Problem`.

    Raises:
        Unimplemented: an operation has no candidate (see `CandidateGenerator.of`).
    """
    graph = find_views(graph)
    tags, algorithms = (None, NO_ALGORITHMS) if choices is None else (choices.tags, choices.algorithms)
    cost_cache = CostCache(costs, Formats(), convolutions, algorithms)
    groups = group_operations(graph)
    found = domains(graph, cost_cache, costs.isa, tags)
    reorders = [pair for pair in _list_reorders(groups, found) if not cost_cache.formats.repeats(pair[1])]
    pairs = ((cost_cache.formats[src], cost_cache.formats[dst]) for src, dst in reorders)
    steps = None if choices is None else choices.steps
    costs.prepare(collect_operations(graph, groups, found, cost_cache, steps), pairs)
    candidates = CandidateGenerator(graph, found, cost_cache, steps)
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
        cost_cache,
        producers,
        {name: tuple(by) for name, by in readers.items()},
        _find_concat_targets(graph, groups),
        penalties,
    )


def collect_operations(
    graph: OpGraph,
    groups: Sequence[Group],
    found: Mapping[str, Domain],
    cost_cache: CostCache,
    steps: frozenset[tuple[str, ...]] | None = None,
) -> Iterator[Operation]:
    """Yield all operations whose costs the candidates of these groups request; no cost is computed.

    They are collected when the first is requested.

    Args:
        graph: the graph of the groups.
        groups: some or all of its groups.
        found: the domain of each tensor.
        cost_cache: the costs and formats of the problem.
        steps: see `PlanChoices.steps`; None for all.
    """
    with cost_cache.collect_operations() as operations:
        candidates = CandidateGenerator(graph, found, cost_cache, steps)
        for group in groups:
            candidates.of(group)
    yield from operations


def _list_reorders(groups: tuple[Group, ...], found: Mapping[str, Domain]) -> Iterable[tuple[Format, Format]]:
    """Return all pairs of formats that a tensor may be reordered between, or copied between into a concatenation."""
    joined = {name for group in groups if group.kind == "concat" for name in group.reads}
    names = dict.fromkeys(name for group in groups for name in (*group.reads, *group.writes))
    moves = ((name, move) for name in names for move in (*permutations(found[name], 2), *((n, n) for n in found[name])))
    return dict.fromkeys(move for name, move in moves if move[0] != move[1] or name in joined)


def _find_concat_targets(graph: OpGraph, groups: tuple[Group, ...]) -> dict[str, tuple[int, int]]:
    """Return, for each source of a concatenation, the first concatenation that may store it.

    Graph outputs get an allocation of their own.
    """
    found: dict[str, tuple[int, int]] = {}
    for i, group in enumerate(groups):
        if group.kind == "concat":
            for source, name in enumerate(group.reads):
                if name not in graph.outputs:
                    found.setdefault(name, (i, source))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class TensorStates:
    """The states of one tensor."""

    produced: NDArray[np.intp]
    """For each state, the format produced, as an index in the domain."""
    available: NDArray[np.intp]
    """For each state, the formats available, as bits of indices in the domain; the produced one is among them."""
    reorder_counts: NDArray[np.intp]
    """For each state, the number of reorders that it needs."""
    costs: NDArray[np.float64]
    """For each state, the milliseconds of its reorders."""

    def has_format(self, numbers: int | NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return, for each state, whether the format of this index in the domain is available.

        For several indices the result has a column for each.
        """
        return (np.right_shift.outer(self.available, numbers) & 1).astype(bool)


class StateSpaces:
    """The states of all tensors; tensors with equal domains and uses share them."""

    def __init__(self, problem: Problem) -> None:
        """Prepare the states of the tensors of `problem`."""
        self.problem = problem
        self._known: dict[object, TensorStates] = {}
        self._slots: list[dict[str, list[int]]] = [{} for _ in problem.groups]
        for group, slots in zip(problem.groups, self._slots, strict=True):
            for slot, name in enumerate(group.reads):
                slots.setdefault(name, []).append(slot)

    def of(self, name: str) -> TensorStates:
        """Return the states of a tensor."""
        problem = self.problem
        domain = problem.domains[name]
        producer = problem.producers[name]
        is_output = name in problem.graph.outputs
        if producer < 0:
            written = {0}
        else:
            slot = problem.groups[producer].writes.index(name)
            written = {domain.index(one.writes[slot]) for one in problem.groups[producer].candidates}
        readers = problem.readers[name]
        read = {0} if is_output else set()
        for reader in set(readers):
            for one in problem.groups[reader].candidates:
                numbers = (one.reads[slot] for slot in self._slots[reader][name])
                read.update(domain.index(number) for number in numbers if number in domain)
        most = len(readers) + is_output
        key = (domain, frozenset(written), frozenset(read), most, is_output)
        if key not in self._known:
            rows = self._enumerate_states(name, sorted(written), read, most)
            produced, available, counts, costs = zip(*(row for row in rows if row[1] & 1 or not is_output), strict=True)
            self._known[key] = TensorStates(
                np.array(produced), np.array(available), np.array(counts), np.array(costs, float)
            )
        return self._known[key]

    def _enumerate_states(
        self, name: str, written: Iterable[int], read: set[int], most: int
    ) -> Iterator[tuple[int, int, int, float]]:
        """Yield, for each state, the format produced, the formats available, the number of reorders, and their cost."""
        domain, problem = self.problem.domains[name], self.problem
        for produced in written:
            others = sorted(read - {produced})
            costs = {other: problem.reorder(domain[produced], domain[other]) for other in others}
            free = {other for other in others if problem.formats.equivalent(domain[produced], domain[other])}
            for count in range(min(most, len(others)) + 1):
                for extra in combinations(others, count):
                    bits = 1 << produced | sum(1 << other for other in extra)
                    yield produced, bits, len(set(extra) - free), sum(costs[other] for other in extra)


MOST_ENTRIES = 1 << 13
"""Most combinations of states of a group's tensors for which the group is a single factor."""
FREE, FORBIDDEN = 0.0, np.inf


@dataclass(frozen=True, slots=True)
class GroupTables:
    """The cost tables of one group."""

    variables: tuple[int, ...]
    """Variables of its tensors, each once."""
    tables: tuple[NDArray[np.float64], ...]
    """For each variable, the cost by state and candidate: 0, infinity, or that of a copy."""
    costs: NDArray[np.float64]
    """For each candidate, the milliseconds of its calls, with penalties."""


class CostTables:
    """A problem as factors: the states of its tensors, and the cost tables of its groups."""

    def __init__(self, problem: Problem) -> None:
        """Build the states of every tensor and the tables of every group."""
        self.problem = problem
        self.names = tuple(problem.domains)
        self.numbers = {name: i for i, name in enumerate(self.names)}
        spaces = StateSpaces(problem)
        self.states = tuple(spaces.of(name) for name in self.names)
        self._slot_tables: dict[object, NDArray[np.float64]] = {}
        self._group_table_cache: dict[object, NDArray[np.float64]] = {}
        self.groups = tuple(self._group_tables(i) for i in range(len(problem.groups)))

    def factors(self, allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[list[int], list[Factor]]:
        """Return the number of states of each variable, and the factors.

        `allowed` restricts the candidates of groups; a group that is not among its keys has all. The first variables
        are the tensors, in the order of `names`.
        """
        allowed = allowed or {}
        sizes = [len(states.costs) for states in self.states]
        factors = [Factor((i,), states.costs) for i, states in enumerate(self.states)]
        for i, tables in enumerate(self.groups):
            among = tuple(allowed.get(i, range(len(tables.costs))))
            choices = tuple(v for v in tables.variables if sizes[v] > 1)
            if math.prod(sizes[v] for v in choices) <= MOST_ENTRIES:
                factors.append(Factor(choices, self._group_factor(tables, choices, among)))
                continue
            choice = len(sizes)
            sizes.append(len(among))
            factors.append(Factor((choice,), tables.costs[list(among)]))
            for variable, table in zip(tables.variables, tables.tables, strict=True):
                factors.append(Factor((variable, choice), table[:, among]))
        return sizes, factors

    def choices(self, assignment: Sequence[int], allowed: Mapping[int, Sequence[int]] | None = None) -> tuple[int, ...]:
        """Return the cheapest candidate of each group, given the states of the tensors."""
        found = []
        for i, tables in enumerate(self.groups):
            costs = tables.costs + sum(t[assignment[v]] for v, t in zip(tables.variables, tables.tables, strict=True))
            among = (allowed or {}).get(i, range(len(costs)))
            found.append(min(among, key=costs.__getitem__))
        return tuple(found)

    def _group_tables(self, number: int) -> GroupTables:
        """Build the tables of a group."""
        yield_to_runs()
        group = self.problem.groups[number]
        found: dict[int, NDArray[np.float64]] = {}
        for slot, name in enumerate((*group.reads, *group.writes)):
            variable = self.numbers[name]
            table = self._slot_table(number, slot, name)
            found[variable] = found[variable] + table if variable in found else table
        costs = np.array([self.problem.cost(number, one) for one in group.candidates])
        return GroupTables(tuple(found), tuple(found.values()), costs)

    def _slot_table(self, number: int, slot: int, name: str) -> NDArray[np.float64]:
        """Return, by state of one tensor and candidate, 0 where they fit, infinity where not, or the cost of a copy."""
        group, states = self.problem.groups[number], self.states[self.numbers[name]]
        candidates, domain = group.candidates, self.problem.domains[name]
        if any(one.concat_offsets is not None for one in candidates) and slot < len(group.reads):
            return self._concat_source_table(number, slot, states, candidates)
        writes = slot >= len(group.reads)
        numbers = tuple(domain.index((*one.reads, *one.writes)[slot]) for one in candidates)
        key = (id(states), numbers, writes)
        if key not in self._slot_tables:
            wanted = np.array(numbers)
            fits = states.produced[:, None] == wanted if writes else states.has_format(wanted)
            self._slot_tables[key] = np.where(fits, FREE, FORBIDDEN)
        return self._slot_tables[key]

    def _concat_source_table(
        self, number: int, slot: int, states: TensorStates, candidates: Sequence[Candidate]
    ) -> NDArray[np.float64]:
        """Return the table of a source of a concatenation.

        By candidate, the source is stored in the result, is copied there, or is read by the primitive.
        """
        problem, name = self.problem, self.problem.groups[number].reads[slot]
        domain = problem.domains[name]
        movable = (problem.concat_targets.get(name) == (number, slot), problem.can_relocate(name))
        key = (id(states), tuple((one.reads[slot], one.concat_offsets is None) for one in candidates), movable)
        if key in self._slot_tables:
            return self._slot_tables[key]
        table = np.full((len(states.costs), len(candidates)), FORBIDDEN)
        for c, one in enumerate(candidates):
            read = one.reads[slot]
            for f in np.unique(states.produced):
                rows = states.produced == f
                if one.concat_offsets is not None and not problem.is_in_concat_result(number, slot, read, domain[f]):
                    table[rows, c] = problem.cost_cache.reorder(domain[f], read)
                else:
                    table[rows & states.has_format(domain.index(read)), c] = FREE
        self._slot_tables[key] = table
        return table

    def _group_factor(
        self, tables: GroupTables, choices: tuple[int, ...], among: tuple[int, ...]
    ) -> NDArray[np.float64]:
        """Return the cost of the cheapest of these candidates, by the states of the tensors in `choices`.

        All other tensors of the group have one state.
        """
        key = (tuple(map(id, tables.tables)), tables.costs.tobytes(), among)
        if key not in self._group_table_cache:
            total: NDArray[np.float64] = tables.costs[list(among)]
            for variable, table in zip(tables.variables, tables.tables, strict=True):
                # The last axis is that of candidates; tensors of one state have no axis.
                total = (total[..., None, :] if variable in choices else total) + (
                    table[:, among] if variable in choices else table[0, among]
                )
            self._group_table_cache[key] = total.min(axis=-1)
        return self._group_table_cache[key]
