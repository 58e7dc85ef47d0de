"""How a group is computed in given formats: which of its operations are fused into which.

    conv + add(x) + relu    [conv, sum, relu]       one call, the result in the place of x
                            [conv, binary, relu]    one call
                            [conv, binary] [relu]   relu in place
                            [conv] [binary, relu]   ...

What lies between has one reader and the format of the result, so the split for given formats is settled here: the best
way to do the rest follows whatever came first. It is the cheapest, where near-ties go to fewer calls.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from inlay.descriptor import MemoryDesc
from inlay.graph.assignments import Assignments, Descs
from inlay.graph.costs.kernel import Source
from inlay.graph.groups import SUMMING, Group, may_fuse
from inlay.graph.op import Op
from inlay.graph.prices import Priced, Prices
from inlay.primitives.attributes import Binary, Eltwise, PostOp, Sum
from inlay.primitives.operation import Operation

NEAR = 0.1
"""What fewer calls may take more, of the whole: prices of single kernels are no more exact."""
IN_PLACE = 0.2
"""What the result in the place of an operand may take more: it is the same arithmetic on fewer bytes, and memory that
other tensors need not leave the caches for. Prices of two such kernels were seen to differ by 15 % by chance."""


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a candidate."""

    first: int
    """Which operation of the group it computes: 0 is the head."""
    last: int
    """The last of those that follow as its post-operations."""
    operation: Operation | None
    """What the engine is asked; None for a reference."""
    impl: str
    """How the engine computes it."""
    ms: float
    """What it takes."""
    nbytes: int = 0
    """Bytes it must read and write."""
    roofline: float = 0.0
    """The least that it could take, in ms."""
    is_cliff: bool = False
    """Whether it takes far longer than that."""
    source: Source = "modelled"
    """How `ms` is known: see `Kernel.source`."""


@dataclass(frozen=True, slots=True)
class Way:
    """Calls that compute a group."""

    formats: Mapping[str, MemoryDesc]
    """Of each tensor that the group reads and writes."""
    calls: tuple[Call, ...]
    """In order."""
    ms: float
    """Of all calls."""


def call_of(first: int, last: int, priced: Priced) -> Call:
    """A call of the engine, as it was priced."""
    kernel = priced.kernel
    known = kernel.impl, kernel.ms, kernel.nbytes, kernel.roofline, kernel.is_cliff, kernel.source
    return Call(first, last, priced.operation, *known)


class Fusing:
    """The ways to compute one group."""

    def __init__(self, group: Group, assignments: Assignments, asked: Prices) -> None:
        """For formats that `assignments` gives, at these prices."""
        self.group, self.assignments, self.asked = group, assignments, asked
        self.written = next(iter(group.head.writes))

    def ways(self) -> Iterator[Way]:
        """The cheapest way in each choice of formats that is tried and that the engine computes."""
        for head in self.assignments.of(self.group.head):
            for descs in product(*(self._operands(op, head[self.written]) for op in self.group.followers)):
                formats = self._formats(head, descs)
                if formats is None:
                    continue
                calls = self._best(0, head, descs, {})
                if calls is not None:
                    yield Way(formats, calls, sum(call.ms for call in calls))

    def _operands(self, op: Op, dst: MemoryDesc) -> list[MemoryDesc | None]:
        """Formats of what a follower takes besides the chain; None alone where it takes nothing."""
        if op.kind != "binary":
            return [None]
        return list(self.assignments.operands(op, "src_1", dst))

    def _formats(self, head: Descs, descs: tuple[MemoryDesc | None, ...]) -> dict[str, MemoryDesc] | None:
        """By tensor; None where one would be read in two formats."""
        group = self.group
        found = {name: head[argument] for argument, name in group.head.reads.items()}
        for op, desc in zip(group.followers, descs, strict=True):
            if desc is not None and "src_1" in op.reads and found.setdefault(op.reads["src_1"], desc) is not desc:
                return None
        for argument, name in (group.ops[-1] if group.followers else group.head).writes.items():
            found[name] = head[argument] if not group.followers else head[self.written]
        return found

    def _best(
        self, first: int, head: Descs, descs: tuple[MemoryDesc | None, ...], known: dict[int, tuple[Call, ...] | None]
    ) -> tuple[Call, ...] | None:
        """The best calls for the operations from `first` on; None where the engine has none."""
        ops = self.group.ops
        if first == len(ops):
            return ()
        if first not in known:
            best, least = None, float("inf")
            for last in range(first, len(ops)):
                if last > first and not may_fuse(ops[first].kind, ops[last].kind):
                    break
                call = self._call(first, last, head, descs)
                rest = None if call is None else self._best(last + 1, head, descs, known)
                if call is not None and rest is not None:
                    ms = call.ms + sum(other.ms for other in rest)
                    # What is fused further comes later.
                    if ms <= least * (1 + NEAR):
                        best, least = (call, *rest), min(ms, least)
            known[first] = best
        return known[first]

    def _call(self, first: int, last: int, head: Descs, descs: tuple[MemoryDesc | None, ...]) -> Call | None:
        """The call that computes operations `first` to `last` at once: in the place of an operand, unless dearer."""
        op, dst = self.group.ops[first], head[self.written]
        given = head if first == 0 else self._inner(op, dst, descs[first - 1])
        found = []
        for post_ops in self._post_ops(first, last, dst, descs):
            priced = self.asked.kernel(op, given, post_ops)
            if priced is not None:
                found.append(call_of(first, last, priced))
        least = min((call.ms for call in found), default=0.0)
        return next((call for call in found if call.ms <= least * (1 + IN_PLACE)), None)

    def _inner(self, op: Op, dst: MemoryDesc, operand: MemoryDesc | None) -> Descs:
        """The formats of a follower that is called itself, in place."""
        (written,) = op.writes
        if operand is None:
            return {"src": dst, written: dst}
        return {"src_0": dst, "src_1": operand, written: dst}

    def _post_ops(
        self, first: int, last: int, dst: MemoryDesc, descs: tuple[MemoryDesc | None, ...]
    ) -> Iterator[tuple[PostOp, ...]]:
        """Followers as post-operations; where an operand dies, also with the result in its place."""
        followers, sums = list(range(first + 1, last + 1)), first == 0 and self.group.kind in SUMMING
        dying = [i for i in followers if sums and descs[i - 1] is dst and self._other(i) in self.group.dies]
        for taken in (*dying, None):
            yield tuple(Sum() if i == taken else self._post_op(self.group.ops[i], descs[i - 1]) for i in followers)

    def _other(self, i: int) -> str | None:
        return self.group.ops[i].reads.get("src_1")

    @staticmethod
    def _post_op(op: Op, operand: MemoryDesc | None) -> PostOp:
        told = op.parameters
        if operand is None:
            alpha, beta = told["alpha"], told["beta"]
            assert isinstance(alpha, (int, float))
            assert isinstance(beta, (int, float))
            return Eltwise(str(told["algorithm"]), float(alpha), float(beta))
        return Binary(str(told["algorithm"]), operand)
