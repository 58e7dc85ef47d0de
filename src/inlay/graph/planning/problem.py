"""`Problem`: everything that choosing formats needs: groups, candidates, domains, the price of a reorder.

A choice of one candidate for each group says it all: the format that each tensor is produced in is that which the
candidate of its producer writes; the formats it is kept in are those that candidates of its readers read. Each kept
format costs one reorder, from the format produced, however many read it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from inlay.descriptor import MemoryDesc
from inlay.graph.algorithms import Convolutions
from inlay.graph.candidates import Candidate, Candidates, Format
from inlay.graph.costs.kernel import Costs
from inlay.graph.domains import Domain, domains
from inlay.graph.formats import Formats
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
    """In the order in which they run."""
    candidates: tuple[tuple[Candidate, ...], ...]
    """Of each group."""
    domains: Mapping[str, Domain]
    """Formats of each tensor between groups."""
    formats: Formats
    """Of all descriptors here."""
    asked: Prices
    """Prices."""
    producers: Mapping[str, int]
    """The group that writes each tensor; -1 for what a run is given."""
    readers: Mapping[str, tuple[int, ...]]
    """The groups that read each tensor, as often as they do."""
    homes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of each tensor that may lie in the result of a concatenation: which group that is, which of its sources."""

    def reorder(self, name: str, src: Format, dst: Format) -> float:
        """Milliseconds to bring a tensor from `src` to `dst`; nothing where both are the same bytes."""
        if src is dst or src is None or dst is None:
            return 0.0
        return 0.0 if self.is_alias(name, src, dst) else self.asked.reorder(src, dst)

    def is_alias(self, name: str, src: MemoryDesc, dst: MemoryDesc) -> bool:
        """Whether `dst` is another description of the bytes of `src`, which then need not be copied."""
        return name not in self.homes and self.formats.equivalent(src, dst)

    def lies(self, group: int, source: int, part: Format, produced: Format) -> bool:
        """Whether a source of a concatenation without a call lies in the result, if it is kept in the format `part`.

        Else it is copied there: it has another home, is given or answered, or the format cannot be one of it.
        """
        name = self.groups[group].reads[source]
        if self.homes.get(name) != (group, source) or not any(part is desc for desc in self.domains[name]):
            return False
        return part is not produced or self.may_move(name)

    def may_move(self, name: str) -> bool:
        """Whether the bytes that a tensor is produced in may lie anywhere: it is neither given nor a view."""
        producer = self.producers[name]
        return producer >= 0 and self.groups[producer].kind != "view"

    def copy(self, produced: Format, part: Format) -> float:
        """Milliseconds to copy a source of a concatenation to its place in the result."""
        assert produced is not None
        assert part is not None
        return self.asked.reorder(produced, part)


def make_problem(graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> Problem:
    """The problem of choosing formats for `graph` at these costs, and algorithms as `convolutions` allows.

    Raises:
        Unimplemented: an operation has no candidate (see `Candidates.of`).
    """
    formats = Formats()
    asked = Prices(costs, formats, convolutions)
    groups = grouped(graph)
    found = domains(graph, formats, asked, costs.isa)
    costs.prepare(_operations(graph, groups, found, asked, formats), _pairs(groups, found))
    candidates = Candidates(graph, found, asked, formats)
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
        groups,
        tuple(candidates.of(group) for group in groups),
        {name: found[name] for name in producers},
        formats,
        asked,
        producers,
        {name: tuple(by) for name, by in readers.items()},
        _homes(graph, groups),
    )


def _operations(
    graph: OpGraph, groups: tuple[Group, ...], found: Mapping[str, Domain], asked: Prices, formats: Formats
) -> Iterator[Operation]:
    """All operations that candidates will be priced by; found when the first is wanted."""
    with asked.listing() as operations:
        candidates = Candidates(graph, found, asked, formats)
        for group in groups:
            candidates.of(group)
    yield from operations


def _pairs(groups: tuple[Group, ...], found: Mapping[str, Domain]) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
    """All formats between which a tensor may be reordered or copied into a concatenation, once each."""
    seen = set()
    joined = {name for group in groups if group.kind == "concat" for name in group.reads}
    for name in dict.fromkeys(name for group in groups for name in (*group.reads, *group.writes)):
        descs = [desc for desc in found[name] if desc is not None]
        copies = zip(descs, descs, strict=True) if name in joined else ()
        for src, dst in (*permutations(descs, 2), *copies):
            if (id(src), id(dst)) not in seen:
                seen.add((id(src), id(dst)))
                yield src, dst


def _homes(graph: OpGraph, groups: tuple[Group, ...]) -> dict[str, tuple[int, int]]:
    """The first concatenation that each tensor is a source of may hold it; what a run answers has its own place."""
    found: dict[str, tuple[int, int]] = {}
    for i, group in enumerate(groups):
        if group.kind == "concat":
            for source, name in enumerate(group.reads):
                if name not in graph.outputs:
                    found.setdefault(name, (i, source))
    return found
