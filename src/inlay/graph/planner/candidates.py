"""`CandidateGenerator`: the candidates of each group: the formats that it reads and writes, its calls, and their costs.

    view              the formats that it converts at no cost
    concatenation     the primitive, of float32; or no call, if each source can be stored in the result
    all else          fused and unfused, in each combination of formats of `FormatCombinations`

In given formats, `FusionSearch` decides which operations are fused:

    conv + add(x) + relu    [conv, sum, relu]       one call, which overwrites x with the result
                            [conv, binary, relu]    one call
                            [conv, binary] [relu]   relu in place
                            [conv] [binary, relu]   ...

A tensor between two calls has one reader and the format of the result. So the best way to compute the remaining
operations does not depend on how the first ones are divided, and the cheapest division follows by recursion. Of
divisions with nearly equal cost, the one with fewer calls is taken.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import Unimplemented
from inlay.graph.op_graph import Op, OpGraph, operation_of
from inlay.graph.planner.cost_cache import CostCache
from inlay.graph.planner.dequantization import is_reference_kernel
from inlay.graph.planner.domains import ArgumentFormats, Domain, FormatCombinations
from inlay.graph.planner.formats import NO_FORMAT, Format
from inlay.graph.planner.groups import SUMMING, Candidate, Group, KernelCall, may_fuse
from inlay.graph.planner.quantized_sums import (
    chain_sums,
    omit_quantization,
    quantization_values,
    quantizes_bytes,
)
from inlay.graph.program import reference_impl
from inlay.primitives.attributes import BinaryPostOp, EltwisePostOp, PostOp, SumPostOp

NEAR = 0.1
"""Share of the cost that fewer calls may add: costs of single kernels are no more exact than that."""
IN_PLACE_TOLERANCE = 0.2
"""Share of the cost that an in-place sum may add to be preferred.

It does the same arithmetic on fewer bytes, and evicts fewer bytes of other tensors from the caches. Measured costs of
two such kernels were seen to differ by 15 % by chance.
"""


Calls: TypeAlias = frozenset[tuple[int, int]]
"""For each call of a group, the indices of its first and its last operation."""
Operands: TypeAlias = tuple[Format, ...]
"""For each operation of the epilogue, the format of its second operand; `NO_FORMAT` without one."""


def integers_of(group: Group, graph: OpGraph) -> np.dtype[Any] | None:
    """Return the type of the integers that a group adds to those of its head; None for any other group."""
    is_quantized = bool(group.epilogue) and quantizes_bytes(group.head, graph)
    return graph.tensors[group.writes[0]].dtype if is_quantized else None


class FusionSearch:
    """The search for the cheapest calls that compute one group, in each combination of formats."""

    def __init__(
        self, group: Group, combinations: FormatCombinations, costs: CostCache, calls: Calls | None = None
    ) -> None:
        """Prepare the search for a group; if `calls` are given, no others are tried."""
        self.group, self.combinations, self.costs, self.calls = group, combinations, costs, calls
        self.written = next(iter(group.head.writes))
        self.integers = integers_of(group, combinations.graph)
        self.real_head = group.head if self.integers is None else omit_quantization(group.head)

    def candidates(self) -> Iterator[Candidate]:
        """Yield the cheapest candidate for each combination of formats that the engine supports."""
        for first_formats in self.combinations.of(self.group.head):
            for operands in product(*(self._operands(op, first_formats[self.written]) for op in self.group.epilogue)):
                formats = self._formats(first_formats, operands)
                calls = None if formats is None else self._best_calls(0, first_formats, operands, {})
                if formats is not None and calls is not None:
                    reads, writes = (
                        tuple(formats[name] for name in names) for names in (self.group.reads, self.group.writes)
                    )
                    yield Candidate(reads, writes, calls)

    def _operands(self, op: Op, dst: Format) -> list[Format]:
        """Return the formats to try for the second operand of an operation; `NO_FORMAT` alone without one."""
        return [NO_FORMAT] if op.kind != "binary" else self.combinations.operands(op, "src_1", dst)

    def _formats(self, first_formats: ArgumentFormats, operands: Operands) -> dict[str, Format] | None:
        """Return the format of each tensor; None where one would be read in two formats."""
        group = self.group
        found = {name: first_formats[argument] for argument, name in group.head.reads.items()}
        for op, fmt in zip(group.epilogue, operands, strict=True):
            if fmt and "src_1" in op.reads and found.setdefault(op.reads["src_1"], fmt) != fmt:
                return None
        for argument, name in group.ops[-1].writes.items():
            found[name] = first_formats[self.written] if group.epilogue else first_formats[argument]
        return found

    def _best_calls(
        self,
        first: int,
        first_formats: ArgumentFormats,
        operands: Operands,
        known: dict[int, tuple[KernelCall, ...] | None],
    ) -> tuple[KernelCall, ...] | None:
        """Return the cheapest calls for the operations from `first` on; None where the engine supports none."""
        ops = self.group.ops
        if first == len(ops):
            return ()
        if first not in known:
            best, least = None, float("inf")
            for last in range(first, len(ops)):
                if last > first and not (may_fuse(ops[first].kind, ops[last].kind) and self._is_fusible(first)):
                    break
                if self.calls is not None and (first, last) not in self.calls:
                    continue
                call = self._fused_call(first, last, first_formats, operands)
                rest = None if call is None else self._best_calls(last + 1, first_formats, operands, known)
                if call is not None and rest is not None:
                    ms = call.ms + sum(other.ms for other in rest)
                    # Later candidates fuse more operations.
                    if ms <= least * (1 + NEAR):
                        best, least = (call, *rest), min(ms, least)
            known[first] = best
        return known[first]

    def _fused_call(
        self, first: int, last: int, first_formats: ArgumentFormats, operands: Operands
    ) -> KernelCall | None:
        """Return the call that computes operations `first` to `last`; None where the engine supports none.

        A call that overwrites an operand with the result is preferred if it is at most `IN_PLACE_TOLERANCE` slower than
        the fastest one; `_post_ops` yields such calls first.
        """
        op, dst = self.group.ops[first], first_formats[self.written]
        formats = first_formats if first == 0 else self._follower_formats(op, dst, operands[first - 1])
        if last > first == 0:
            op = self.real_head
        tried = (self.costs.kernel(op, formats, post_ops) for post_ops in self._post_ops(first, last, dst, operands))
        found = [call for call in tried if call is not None and not self._is_slow(call, last > first)]
        least = min((call.ms for call in found), default=0.0)
        best = next((call for call in found if call.ms <= least * (1 + IN_PLACE_TOLERANCE)), None)
        return best if best is None or not last else replace(best, first=first, last=last)

    def _is_fusible(self, first: int) -> bool:
        """Return whether operations may follow operation `first` in its call: products alone fuse sums of integers."""
        return self.integers is None or first == 0

    def _is_slow(self, call: KernelCall, is_fused: bool) -> bool:
        """Return whether a call fuses sums of integers, and only a reference kernel computes it."""
        return is_fused and self.integers is not None and is_reference_kernel(call.impl)

    def _follower_formats(self, op: Op, dst: Format, operand: Format) -> ArgumentFormats:
        """Return the formats of an operation of the epilogue that has a call of its own, in place."""
        (written,) = op.writes
        return {"src_0": dst, "src_1": operand, written: dst} if operand else {"src": dst, written: dst}

    def _post_ops(self, first: int, last: int, dst: Format, operands: Operands) -> Iterator[tuple[PostOp, ...]]:
        """Yield the post-operations of a call; first those that overwrite an operand that nothing reads later."""
        followers, sums = list(range(first + 1, last + 1)), first == 0 and self.group.kind in SUMMING
        ops, dies = self.group.ops, self.group.last_uses
        ending = [i for i in followers if sums and operands[i - 1] == dst and ops[i].reads.get("src_1") in dies]
        for taken in (*ending, None):
            post_ops = tuple(SumPostOp() if i == taken else self._post_op(ops[i], operands[i - 1]) for i in followers)
            if followers and self.integers is not None:
                post_ops = chain_sums(ops[0], ops[1 : last + 1], post_ops, self.integers)
            yield post_ops

    def _post_op(self, op: Op, operand: Format) -> PostOp:
        """Return an operation of the epilogue as a post-operation."""
        parameters = op.parameters
        if operand:
            return BinaryPostOp(str(parameters["algorithm"]), self.costs.formats[operand])
        alpha, beta = parameters["alpha"], parameters["beta"]
        assert isinstance(alpha, (int, float))
        assert isinstance(beta, (int, float))
        return EltwisePostOp(str(parameters["algorithm"]), float(alpha), float(beta))


class CandidateGenerator:
    """The candidates of groups; groups that differ in names alone share them."""

    def __init__(
        self,
        graph: OpGraph,
        domains: Mapping[str, Domain],
        costs: CostCache,
        steps: frozenset[tuple[str, ...]] | None = None,
    ) -> None:
        """Prepare candidates for the operations of `graph`, whose tensors have the formats of `domains`.

        `steps` are the names of the operations that each step of another plan computes: only these are tried.
        """
        self.steps = steps
        self.graph, self.domains, self.costs, self.formats = graph, domains, costs, costs.formats
        self.combinations = FormatCombinations(graph, domains, costs)
        self._known: dict[object, tuple[Candidate, ...]] = {}

    def of(self, group: Group) -> tuple[Candidate, ...]:
        """Return the candidates of a group, the cheapest for each combination of formats.

        Post-condition: there is at least one.

        Raises:
            Unimplemented: no engine supports the group, and one of its tensors has no descriptor.
        """
        if group.kind == "reference":
            return (self._reference(group),)
        key = self._key(group)
        if key not in self._known:
            found = _cheapest(self._generate(group)) or _cheapest(self._generate(group, is_restricted=False))
            self._known[key] = found or (self._unsupported(group),)
        return self._known[key]

    def _key(self, group: Group) -> object:
        """Return a key that is equal for groups that differ in names alone."""
        slots = {name: i for i, name in enumerate((*group.reads, *group.writes))}
        shapes = tuple(self.costs.shape_key(op) for op in group.ops)
        links = tuple(tuple(slots.get(name, -1) for name in op.reads.values()) for op in group.ops)
        formats = tuple(self.domains[name] for name in slots)
        overwritten = tuple(sorted(slots[name] for name in group.last_uses))
        values = quantization_values(group.ops) if integers_of(group, self.graph) is not None else ()
        return shapes, links, formats, overwritten, group.head.transforms, self._calls(group), values

    def _calls(self, group: Group) -> Calls | None:
        """Return the calls that are tried for a group; None for all."""
        if self.steps is None or not group.epilogue:
            return None
        indices = range(len(group.names))
        pairs = ((first, last) for first in indices for last in indices[first:])
        return frozenset(pair for pair in pairs if sum(group.names[pair[0] : pair[1] + 1], ()) in self.steps)

    def _is_allowed(self, group: Group, one: Candidate) -> bool:
        """Return whether every format is in the domain of its tensor."""
        sides = (*zip(group.reads, one.reads, strict=True), *zip(group.writes, one.writes, strict=True))
        return all(fmt in self.domains[name] for name, fmt in sides)

    def _generate(self, group: Group, *, is_restricted: bool = True) -> Iterator[Candidate]:
        """Yield candidates by the rule of the group's kind; if not `is_restricted`, with calls of any operations."""
        if group.kind == "view":
            return self._view_candidates(group)
        if group.kind == "concat":
            return self._concat_candidates(group)
        calls = self._calls(group) if is_restricted else None
        candidates = FusionSearch(group, self.combinations, self.costs, calls).candidates()
        return (one for one in candidates if self._is_allowed(group, one))

    def _view_candidates(self, group: Group) -> Iterator[Candidate]:
        """Yield the formats that a view converts at no cost."""
        for fmt in self.domains[group.reads[0]]:
            seen = self.formats.view(fmt, group.head.transforms)
            if seen is not None and seen[0] in self.domains[group.writes[0]]:
                yield Candidate((fmt,), seen[:1])

    def _concat_candidates(self, group: Group) -> Iterator[Candidate]:
        """Yield, for each format of the result, the concatenation without a call and the primitive."""
        op, (dst,) = group.head, group.writes
        for whole in self.combinations.choices(dst):
            within = self._concat_in_place(group, whole)
            if within is not None and self._is_allowed(group, within):
                yield within
            sources = {name: self._source(tensor, whole) for name, tensor in op.reads.items()}
            has_kernel = self.graph.tensors[dst].dtype == np.float32 and all(sources.values())
            call = self.costs.kernel(op, {**sources, "dst": whole}) if has_kernel else None
            if call is not None:
                yield Candidate(tuple(sources.values()), (whole,), (call,))
            elif within is not None:
                yield within

    def _source(self, tensor: str, whole: Format) -> Format:
        """Return the format of a source that has the tag and type of the result.

        If there is none, it is the plain one of that type; `NO_FORMAT` if the source cannot have the type.
        """
        choices = self.combinations.choices(tensor, self.formats.data_type(whole))
        return self.combinations.like(whole, tensor, choices) or next(iter(choices), NO_FORMAT)

    def _concat_in_place(self, group: Group, whole: Format) -> Candidate | None:
        """Return the concatenation whose sources are stored in the result.

        None is returned where the boundary between sources cuts a block, or where a source is constant.
        """
        axis = group.head.parameters["axis"]
        assert isinstance(axis, int)
        if group.head.constants:
            return None
        parts = self.formats.slices(whole, [self.graph.tensors[name].dims for name in group.reads], axis)
        if parts is None:
            return None
        return Candidate(tuple(part for part, _ in parts), (whole,), concat_offsets=tuple(at for _, at in parts))

    def _reference(self, group: Group) -> Candidate:
        """Return the candidate of a reference: ONNX Runtime or NumPy in plain formats."""
        call = KernelCall(None, reference_impl(group.head.node), self.costs.source.reference(group.head, self.graph))
        return Candidate(*self._plain_formats(group), (call,))

    def _plain_formats(self, group: Group) -> tuple[tuple[Format, ...], tuple[Format, ...]]:
        """Return the first format of each tensor that the group reads and writes."""
        reads, writes = (tuple(self.domains[name][0] for name in names) for names in (group.reads, group.writes))
        return reads, writes

    def _unsupported(self, group: Group) -> Candidate:
        """Return the candidate of a group that no engine supports in the formats that were tried.

        It has a call for each operation, in plain formats.

        Raises:
            Unimplemented: a tensor has no descriptor.
        """
        return Candidate(*self._plain_formats(group), tuple(self._plain_call(i, op) for i, op in enumerate(group.ops)))

    def _plain_call(self, i: int, op: Op) -> KernelCall:
        """Return the call of one operation in plain formats, by the reference engine if need be."""
        plain = self._plain_arguments(op)
        call = self.costs.kernel(op, plain)
        if call is None:
            operation = operation_of(op, {name: self.formats[fmt] for name, fmt in plain.items()})
            call = KernelCall(operation, "reference", self.costs.source.reference(op, self.graph))
        return replace(call, first=i, last=i)

    def _plain_arguments(self, op: Op) -> ArgumentFormats:
        """Return the plain format of each argument."""
        formats = {}
        for argument, name in (*op.reads.items(), *op.writes.items()):
            tensor = self.graph.tensors[name]
            formats[argument] = self.formats.plain(tensor)
            if not formats[argument]:
                raise Unimplemented(
                    f"{op.name}, a {op.kind}: {argument} has dims {tensor.dims} and type {tensor.dtype}, of which no "
                    "descriptor can be made: make a reference of the operation"
                )
        return formats


def _cheapest(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    """Return the cheapest candidate for each combination of formats, in the order of their first occurrences.

    Candidates that write into parts of a concatenation's result count separately.
    """
    best: dict[object, Candidate] = {}
    for one in candidates:
        key = one.reads, one.writes, one.concat_offsets is None
        if key not in best or one.ms < best[key].ms:
            best[key] = one
    return tuple(best.values())
