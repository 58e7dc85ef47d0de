"""`Candidate`: one way to run a group: the formats it reads and writes, its calls, what they take.

view              formats that it carries through, at no cost
concatenation     the primitive; or no call, where each source can lie in the result
all else          as `fusing` says: fused and unfused, in each format that is worth asking for
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.graph.assignments import Assignments, Descs
from inlay.graph.domains import Domain
from inlay.graph.formats import Formats
from inlay.graph.fusing import Call, Fusing, call_of
from inlay.graph.groups import Group
from inlay.graph.op import Op, OpGraph
from inlay.graph.operations import operation_of
from inlay.graph.prices import Priced, Prices
from inlay.primitives.attributes import Sum

Format: TypeAlias = MemoryDesc | None
"""How a tensor lies; None where it has no descriptor."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a group."""

    reads: tuple[Format, ...]
    """The format of each tensor that the group reads."""
    writes: tuple[Format, ...]
    """The format of each tensor that it writes."""
    calls: tuple[Call, ...]
    """What is called; nothing for a view and for a concatenation without a copy."""
    ms: float
    """What the calls take."""
    parts: tuple[int, ...] | None = None
    """Of a concatenation without a call: the byte of the result at which each source begins; `reads` says how they lie
    there."""

    @property
    def takes(self) -> int | None:
        """The operation of the group whose operand lies where the result will, if there is one."""
        for call in self.calls:
            if call.operation is not None:
                for i, post_op in enumerate(call.operation.attributes.post_ops):
                    if isinstance(post_op, Sum):
                        return call.first + 1 + i
        return None


class Candidates:
    """The candidates of groups, found once for groups that differ in names alone."""

    def __init__(self, graph: OpGraph, domains: Mapping[str, Domain], asked: Prices, formats: Formats) -> None:
        """For the operations of `graph`, whose tensors may have the formats of `domains`."""
        self.graph, self.domains, self.asked, self.formats = graph, domains, asked, formats
        self.assignments = Assignments(graph, domains, asked, formats)
        self._known: dict[object, tuple[Candidate, ...]] = {}

    def of(self, group: Group) -> tuple[Candidate, ...]:
        """The candidates of a group, the cheapest for each choice of formats.

        Post-condition: there is at least one.

        Raises:
            Unimplemented: no engine computes it, and a tensor of it has no descriptor.
        """
        if group.kind == "reference":
            return (self._reference(group),)
        key = self._key(group)
        if key not in self._known:
            found = _cheapest(self._made(group))
            self._known[key] = found or (self._declined(group),)
        return self._known[key]

    def _key(self, group: Group) -> object:
        slots = {name: i for i, name in enumerate((*group.reads, *group.writes))}
        shapes = tuple(self.asked.shape(op) for op in group.ops)
        links = tuple(tuple(slots.get(name, -1) for name in op.reads.values()) for op in group.ops)
        lies = tuple(tuple(map(id, self.domains[name])) for name in slots)
        return shapes, links, lies, tuple(sorted(slots[name] for name in group.dies)), group.head.moves

    def _made(self, group: Group) -> Iterator[Candidate]:
        if group.kind == "view":
            return self._views(group)
        if group.kind == "concat":
            return self._joined(group)
        return self._computed(group)

    def _views(self, group: Group) -> Iterator[Candidate]:
        (src,), (dst,) = group.reads, group.writes
        for desc in self.domains[src]:
            seen = self.formats.viewed(desc, group.head.moves) if desc is not None else (None, 0)
            if seen is not None and self._may(dst, seen[0]):
                yield Candidate((desc,), (seen[0],), (), 0.0)

    def _may(self, name: str, desc: Format) -> bool:
        return any(desc is other for other in self.domains[name])

    def _joined(self, group: Group) -> Iterator[Candidate]:
        """A concatenation to each format: sources that lie in the result, or the primitive."""
        op, (dst,) = group.head, group.writes
        for whole in self.assignments.choices(dst):
            parts = self._parts(group, whole)
            if parts is not None and all(self._may(n, p) for n, (p, _) in zip(group.reads, parts, strict=True)):
                yield _without_call(parts, whole)
            sources = {name: self._source(tensor, whole) for name, tensor in op.reads.items()}
            priced = self.asked.kernel(op, {**sources, "dst": whole})
            if priced is not None:
                call = call_of(0, 0, priced)
                yield Candidate(tuple(sources.values()), (whole,), (call,), call.ms)
            elif parts is not None:
                yield _without_call(parts, whole)

    def _source(self, tensor: str, whole: MemoryDesc) -> MemoryDesc:
        return self.assignments.like(whole, tensor) or self.assignments.choices(tensor)[0]

    def _parts(self, group: Group, whole: MemoryDesc) -> tuple[tuple[MemoryDesc, int], ...] | None:
        """The box of each source in the result; None where one cuts a block, or a source is constant."""
        axis = group.head.parameters["axis"]
        assert isinstance(axis, int)
        if group.head.constants:
            return None
        return self.formats.slices(whole, [self.graph.tensors[name].dims for name in group.reads], axis)

    def _computed(self, group: Group) -> Iterator[Candidate]:
        for way in Fusing(group, self.assignments, self.asked).ways():
            reads, writes = (tuple(way.formats[name] for name in names) for names in (group.reads, group.writes))
            # What lies between may have more formats than the result.
            if all(map(self._may, (*group.reads, *group.writes), (*reads, *writes))):
                yield Candidate(reads, writes, way.calls, way.ms)

    def _reference(self, group: Group) -> Candidate:
        call = Call(0, 0, None, "numpy", self.asked.costs.reference(group.head, self.graph))
        return Candidate(*self._plain_sides(group), (call,), call.ms)

    def _plain_sides(self, group: Group) -> tuple[tuple[Format, ...], tuple[Format, ...]]:
        reads, writes = (tuple(self.domains[name][0] for name in names) for names in (group.reads, group.writes))
        return reads, writes

    def _declined(self, group: Group) -> Candidate:
        """In plain formats, by the reference engine where the engine declines.

        Raises:
            Unimplemented: a tensor has no descriptor.
        """
        calls = tuple(self._slow(i, op) for i, op in enumerate(group.ops))
        return Candidate(*self._plain_sides(group), calls, sum(call.ms for call in calls))

    def _slow(self, i: int, op: Op) -> Call:
        descs = self._plain(op)
        priced = self.asked.kernel(op, descs)
        if priced is not None:
            return call_of(i, i, priced)
        return Call(i, i, operation_of(op, descs), "reference", self.asked.costs.reference(op, self.graph))

    def _plain(self, op: Op) -> Descs:
        found = {}
        for argument, name in (*op.reads.items(), *op.writes.items()):
            tensor = self.graph.tensors[name]
            desc = self.formats.plain(tensor)
            if desc is None:
                raise Unimplemented(
                    f"{op.name}, a {op.kind}: {argument} has dims {tensor.dims} and type {tensor.dtype}, of which no "
                    "descriptor can be made: make a reference of the operation"
                )
            found[argument] = desc
        return found


def _without_call(parts: tuple[tuple[MemoryDesc, int], ...], whole: MemoryDesc) -> Candidate:
    return Candidate(tuple(desc for desc, _ in parts), (whole,), (), 0.0, tuple(at for _, at in parts))


def _cheapest(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The cheapest for each choice of formats, in the order in which the choices came; the first of equals."""
    best: dict[object, Candidate] = {}
    for one in candidates:
        key = tuple(map(id, one.reads)), tuple(map(id, one.writes)), one.parts is None
        if key not in best or one.ms < best[key].ms:
            best[key] = one
    return tuple(best.values())


__all__ = ["Call", "Candidate", "Candidates", "Format", "Priced"]
