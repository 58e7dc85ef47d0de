"""`Problem`: everything that choosing formats needs: groups, candidates, domains, the price of a reorder.

A choice of one candidate for each group says it all: the format that each tensor is produced in is that which the
candidate of its producer writes; the formats it is kept in are those that candidates of its readers read. Each kept
format costs one reorder, from the format produced, however many read it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations

from inlay.graph.algorithms import Convolutions
from inlay.graph.candidates import Candidates
from inlay.graph.costs.kernel import Costs
from inlay.graph.domains import Domain, domains
from inlay.graph.formats import Format, Formats
from inlay.graph.groups import Group, grouped
from inlay.graph.op import OpGraph
from inlay.graph.prices import Prices
from inlay.primitives.operation import Operation


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
