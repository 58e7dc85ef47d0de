"""How a group is computed in given formats: which of its operations are fused into which.

    conv + add(x) + relu    [conv, sum, relu]       one call, the result in the place of x
                            [conv, binary, relu]    one call
                            [conv, binary] [relu]   relu in place
                            [conv] [binary, relu]   ...

What lies between has one reader and the format of the result, so the split for given formats is settled here: the best
way to do the rest follows whatever came first. It is the cheapest, where near-ties go to fewer calls.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TypeAlias

from inlay.graph.assignments import ArgumentFormats, Assignments
from inlay.graph.formats import NO_FORMAT, Format
from inlay.graph.groups import SUMMING, Candidate, Group, KernelCall, may_fuse
from inlay.graph.op import Op
from inlay.graph.prices import Prices
from inlay.primitives.attributes import Binary, Eltwise, PostOp, Sum

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
            yield tuple(Sum() if i == taken else self._post_op(ops[i], operands[i - 1]) for i in followers)

    def _post_op(self, op: Op, operand: Format) -> PostOp:
        told = op.parameters
        if operand:
            return Binary(str(told["algorithm"]), self.prices.formats[operand])
        alpha, beta = told["alpha"], told["beta"]
        assert isinstance(alpha, (int, float))
        assert isinstance(beta, (int, float))
        return Eltwise(str(told["algorithm"]), float(alpha), float(beta))
