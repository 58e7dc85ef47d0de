"""`Candidates`: the ways to run each group: the formats that it reads and writes, its calls, what they take.

view              formats that it carries through, at no cost
concatenation     the primitive; or no call, where each source can lie in the result
all else          as `fusing` says: fused and unfused, in each format that is worth asking for
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from inlay.errors import Unimplemented
from inlay.graph.assignments import ArgumentFormats, Assignments
from inlay.graph.domains import Domain
from inlay.graph.formats import Format
from inlay.graph.fusing import Fusing
from inlay.graph.groups import Candidate, Group, KernelCall
from inlay.graph.op import Op, OpGraph
from inlay.graph.operations import operation_of
from inlay.graph.prices import Prices


class Candidates:
    """The candidates of groups, found once for groups that differ in names alone."""

    def __init__(self, graph: OpGraph, domains: Mapping[str, Domain], prices: Prices) -> None:
        """For the operations of `graph`, whose tensors may have the formats of `domains`."""
        self.graph, self.domains, self.prices, self.formats = graph, domains, prices, prices.formats
        self.assignments = Assignments(graph, domains, prices)
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
        shapes = tuple(self.prices.shape(op) for op in group.ops)
        links = tuple(tuple(slots.get(name, -1) for name in op.reads.values()) for op in group.ops)
        formats = tuple(self.domains[name] for name in slots)
        return shapes, links, formats, tuple(sorted(slots[name] for name in group.dies)), group.head.moves

    def _is_allowed(self, group: Group, one: Candidate) -> bool:
        """Whether every tensor may have its format; what lies between operations may have more than the result."""
        sides = (*zip(group.reads, one.reads, strict=True), *zip(group.writes, one.writes, strict=True))
        return all(number in self.domains[name] for name, number in sides)

    def _made(self, group: Group) -> Iterator[Candidate]:
        if group.kind == "view":
            return self._views(group)
        if group.kind == "concat":
            return self._joined(group)
        ways = Fusing(group, self.assignments, self.prices).ways()
        return (one for one in ways if self._is_allowed(group, one))

    def _views(self, group: Group) -> Iterator[Candidate]:
        for number in self.domains[group.reads[0]]:
            seen = self.formats.viewed(number, group.head.moves)
            if seen is not None and seen[0] in self.domains[group.writes[0]]:
                yield Candidate((number,), seen[:1])

    def _joined(self, group: Group) -> Iterator[Candidate]:
        """A concatenation to each format: sources that lie in the result, or the primitive."""
        op, (dst,) = group.head, group.writes
        for whole in self.assignments.choices(dst):
            within = self._within(group, whole)
            if within is not None and self._is_allowed(group, within):
                yield within
            sources = {name: self._source(tensor, whole) for name, tensor in op.reads.items()}
            call = self.prices.kernel(op, {**sources, "dst": whole})
            if call is not None:
                yield Candidate(tuple(sources.values()), (whole,), (call,))
            elif within is not None:
                yield within

    def _source(self, tensor: str, whole: Format) -> Format:
        return self.assignments.like(whole, tensor) or self.assignments.choices(tensor)[0]

    def _within(self, group: Group, whole: Format) -> Candidate | None:
        """Each source in its box of the result; None where one cuts a block, or a source is constant."""
        axis = group.head.parameters["axis"]
        assert isinstance(axis, int)
        if group.head.constants:
            return None
        parts = self.formats.slices(whole, [self.graph.tensors[name].dims for name in group.reads], axis)
        if parts is None:
            return None
        return Candidate(tuple(part for part, _ in parts), (whole,), parts=tuple(at for _, at in parts))

    def _reference(self, group: Group) -> Candidate:
        call = KernelCall(None, "numpy", self.prices.costs.reference(group.head, self.graph))
        return Candidate(*self._plain_sides(group), (call,))

    def _plain_sides(self, group: Group) -> tuple[tuple[Format, ...], tuple[Format, ...]]:
        reads, writes = (tuple(self.domains[name][0] for name in names) for names in (group.reads, group.writes))
        return reads, writes

    def _declined(self, group: Group) -> Candidate:
        """In plain formats, by the reference engine where the engine declines.

        Raises:
            Unimplemented: a tensor has no descriptor.
        """
        return Candidate(*self._plain_sides(group), tuple(self._slow(i, op) for i, op in enumerate(group.ops)))

    def _slow(self, i: int, op: Op) -> KernelCall:
        plain = self._plain(op)
        call = self.prices.kernel(op, plain)
        if call is None:
            operation = operation_of(op, {name: self.formats[number] for name, number in plain.items()})
            call = KernelCall(operation, "reference", self.prices.costs.reference(op, self.graph))
        return replace(call, first=i, last=i)

    def _plain(self, op: Op) -> ArgumentFormats:
        found = {}
        for argument, name in (*op.reads.items(), *op.writes.items()):
            tensor = self.graph.tensors[name]
            found[argument] = self.formats.plain(tensor)
            if not found[argument]:
                raise Unimplemented(
                    f"{op.name}, a {op.kind}: {argument} has dims {tensor.dims} and type {tensor.dtype}, of which no "
                    "descriptor can be made: make a reference of the operation"
                )
        return found


def _cheapest(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """The cheapest for each choice of formats, in the order in which the choices came; the first of equals."""
    best: dict[object, Candidate] = {}
    for one in candidates:
        key = one.reads, one.writes, one.parts is None
        if key not in best or one.ms < best[key].ms:
            best[key] = one
    return tuple(best.values())
