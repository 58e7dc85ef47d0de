"""`Candidates`: the ways to run each group: the formats that it reads and writes, its calls, what they take.

    view              formats that it carries through, at no cost
    concatenation     the primitive; or no call, where each source can lie in the result
    all else          fused and unfused, in each format that `Assignments` tries

In given formats, `Fusing` decides which operations are fused into which:

    conv + add(x) + relu    [conv, sum, relu]       one call, the result in the place of x
                            [conv, binary, relu]    one call
                            [conv, binary] [relu]   relu in place
                            [conv] [binary, relu]   ...

What lies between has one reader and the format of the result, so the split is chosen here: the best way to do the rest
follows whatever came first. It is the cheapest, where near-ties go to fewer calls.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from inlay.errors import Unimplemented
from inlay.graph.op_graph import Op, OpGraph, operation_of
from inlay.graph.planner.domains import ArgumentFormats, Assignments, Domain
from inlay.graph.planner.formats import NO_FORMAT, Format
from inlay.graph.planner.groups import SUMMING, Candidate, Group, KernelCall, may_fuse
from inlay.graph.planner.prices import Prices
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, SumPostOp

NEAR = 0.1
"""What fewer calls may take more, of the whole: prices of single kernels are no more exact."""
IN_PLACE = 0.2
"""What the result in the place of an operand may take more: it is the same arithmetic on fewer bytes, and memory that
other tensors need not leave the caches for. Prices of two such kernels were seen to differ by 15 % by chance."""


Operands: TypeAlias = tuple[Format, ...]
"""Of each follower, the format of what it takes besides the chain."""


class Fusing:
    """The ways to compute one group."""

    def __init__(self, group: Group, assignments: Assignments, prices: Prices) -> None:
        """For formats that `assignments` gives, at these prices."""
        self.group, self.assignments, self.prices = group, assignments, prices
        self.written = next(iter(group.head.writes))

    def ways(self) -> Iterator[Candidate]:
        """The cheapest way in each choice of formats that is tried and that the engine computes."""
        for head in self.assignments.of(self.group.head):
            for operands in product(*(self._operands(op, head[self.written]) for op in self.group.followers)):
                formats = self._formats(head, operands)
                calls = None if formats is None else self._best(0, head, operands, {})
                if formats is not None and calls is not None:
                    reads, writes = (
                        tuple(formats[name] for name in names) for names in (self.group.reads, self.group.writes)
                    )
                    yield Candidate(reads, writes, calls)

    def _operands(self, op: Op, dst: Format) -> list[Format]:
        """Formats of what a follower takes besides the chain; none alone where it takes nothing."""
        return [NO_FORMAT] if op.kind != "binary" else self.assignments.operands(op, "src_1", dst)

    def _formats(self, head: ArgumentFormats, operands: Operands) -> dict[str, Format] | None:
        """By tensor; None where one would be read in two formats."""
        group = self.group
        found = {name: head[argument] for argument, name in group.head.reads.items()}
        for op, number in zip(group.followers, operands, strict=True):
            if number and "src_1" in op.reads and found.setdefault(op.reads["src_1"], number) != number:
                return None
        for argument, name in group.ops[-1].writes.items():
            found[name] = head[self.written] if group.followers else head[argument]
        return found

    def _best(
        self,
        first: int,
        head: ArgumentFormats,
        operands: Operands,
        known: dict[int, tuple[KernelCall, ...] | None],
    ) -> tuple[KernelCall, ...] | None:
        """The best calls for the operations from `first` on; None where the engine has none."""
        ops = self.group.ops
        if first == len(ops):
            return ()
        if first not in known:
            best, least = None, float("inf")
            for last in range(first, len(ops)):
                if last > first and not may_fuse(ops[first].kind, ops[last].kind):
                    break
                call = self._call(first, last, head, operands)
                rest = None if call is None else self._best(last + 1, head, operands, known)
                if call is not None and rest is not None:
                    ms = call.ms + sum(other.ms for other in rest)
                    # What is fused further comes later.
                    if ms <= least * (1 + NEAR):
                        best, least = (call, *rest), min(ms, least)
            known[first] = best
        return known[first]

    def _call(self, first: int, last: int, head: ArgumentFormats, operands: Operands) -> KernelCall | None:
        """The call that computes operations `first` to `last` at once: in the place of an operand, unless dearer."""
        op, dst = self.group.ops[first], head[self.written]
        formats = head if first == 0 else self._inner(op, dst, operands[first - 1])
        tried = (self.prices.kernel(op, formats, post_ops) for post_ops in self._post_ops(first, last, dst, operands))
        found = [call for call in tried if call is not None]
        least = min((call.ms for call in found), default=0.0)
        best = next((call for call in found if call.ms <= least * (1 + IN_PLACE)), None)
        return best if best is None or not last else replace(best, first=first, last=last)

    def _inner(self, op: Op, dst: Format, operand: Format) -> ArgumentFormats:
        """The formats of a follower that is called itself, in place."""
        (written,) = op.writes
        return {"src_0": dst, "src_1": operand, written: dst} if operand else {"src": dst, written: dst}

    def _post_ops(self, first: int, last: int, dst: Format, operands: Operands) -> Iterator[tuple[PostOp, ...]]:
        """Followers as post-operations; where an operand dies, also with the result in its place."""
        followers, sums = list(range(first + 1, last + 1)), first == 0 and self.group.kind in SUMMING
        ops, dies = self.group.ops, self.group.dies
        dying = [i for i in followers if sums and operands[i - 1] == dst and ops[i].reads.get("src_1") in dies]
        for taken in (*dying, None):
            yield tuple(SumPostOp() if i == taken else self._post_op(ops[i], operands[i - 1]) for i in followers)

    def _post_op(self, op: Op, operand: Format) -> PostOp:
        told = op.parameters
        if operand:
            return BinaryPostOp(str(told["algorithm"]), self.prices.formats[operand])
        alpha, beta = told["alpha"], told["beta"]
        assert isinstance(alpha, (int, float))
        assert isinstance(beta, (int, float))
        return EltwisePostOp(str(told["algorithm"]), float(alpha), float(beta))


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
