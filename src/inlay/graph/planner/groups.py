"""`Group`: an operation and what may be fused into it, a chain in which nobody else reads what lies between.

    conv -> add (constant per channel) -> relu -> y        one group: convolution with bias, post-operation relu
    conv -> add (x) -> relu -> y                           one group: x is read too, perhaps where the result goes

Which of it is fused is decided by cost, for each format: a group has a `Candidate` for each way to run it, and a plan
is one candidate of each. A constant added to each channel is a bias and costs nothing, so that is settled here. A group
runs where its last operation stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from inlay.graph.costs.kernel import Source
from inlay.graph.op_graph import Array, Op, OpGraph, readers_of, writers_of
from inlay.graph.passes.range_guards import may_leave_range, propagates
from inlay.graph.planner.formats import Format
from inlay.primitives.attributes import SumPostOp
from inlay.primitives.engine import Operation
from inlay.primitives.rules import WEIGHTED

MOST_FOLLOWERS = 5
"""Operations that are tried as post-operations of one."""

_ALL = frozenset(("eltwise", "binary", "sum"))
_FUSES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(WEIGHTED, _ALL),
    "binary": _ALL,
    "reduction": _ALL,
    # Pooling and resampling of oneDNN 3.2 read a second operand of the full dims wrongly.
    "resampling": frozenset(("eltwise",)),
    "pooling": frozenset(("eltwise",)),
    "softmax": frozenset(("eltwise", "binary")),
    "layer_normalization": frozenset(("eltwise", "binary")),
    "batch_normalization": frozenset(("eltwise",)),
    "eltwise": frozenset(("binary",)),
}
"""What may follow as post-operation, by kind: what an engine lacks it declines."""
SUMMING = frozenset((*WEIGHTED, "binary", "reduction"))
"""Kinds whose result may take the place of what is added to it: for others oneDNN 3.2 forgets to add."""
_COMMUTING = ("add", "mul", "max", "min")
_Readers: TypeAlias = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a candidate, with its price."""

    operation: Operation | None
    """What the engine is asked, weights `any`; None for what NumPy computes."""
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
    first: int = 0
    """Which operation of the group it computes: 0 is the head."""
    last: int = 0
    """The last of those that follow as its post-operations."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a group."""

    reads: tuple[Format, ...]
    """The format of each tensor that the group reads."""
    writes: tuple[Format, ...]
    """The format of each tensor that it writes."""
    calls: tuple[KernelCall, ...] = ()
    """What is called; nothing for a view and for a concatenation without a copy."""
    parts: tuple[int, ...] | None = None
    """Of a concatenation without a call: the byte of the result at which each source begins; `reads` says how they lie
    there."""

    @property
    def ms(self) -> float:
        """What the calls take."""
        return sum((call.ms for call in self.calls), 0.0)

    @property
    def takes(self) -> int | None:
        """The operation of the group whose operand lies where the result will, if there is one."""
        for call in self.calls:
            if call.operation is not None:
                for i, post_op in enumerate(call.operation.attributes.post_ops):
                    if isinstance(post_op, SumPostOp):
                        return call.first + 1 + i
        return None


@dataclass(frozen=True, slots=True)
class Group:
    """A head and what may be fused into it."""

    head: Op
    """The first operation; a constant added to its channels has become its bias."""
    followers: tuple[Op, ...]
    """Eltwise and binary operations, each on the result of the one before, its `src` or `src_0`; binary ones take
    another operand as `src_1`. A sum has become a binary one."""
    names: tuple[tuple[str, ...], ...]
    """Of head and followers, the operations of the graph that each stands for."""
    position: int
    """Where the last of them stands in the graph."""
    reads: tuple[str, ...]
    """Tensors that are read, in the order of arguments; those between are left out. Each stands once, but the sources
    of a concatenation as often as they are sources."""
    writes: tuple[str, ...]
    """Tensors that are written for others."""
    dies: frozenset[str] = frozenset()
    """Tensors read here at last, so that the result may take their place."""
    candidates: tuple[Candidate, ...] = ()
    """The ways to run it; nothing until they are priced."""

    @property
    def kind(self) -> str:
        """Of its head."""
        return self.head.kind

    @property
    def ops(self) -> tuple[Op, ...]:
        """Head and followers."""
        return (self.head, *self.followers)


def grouped(graph: OpGraph) -> tuple[Group, ...]:
    """The operations in groups, in an order in which they can run.

    Post-conditions: each operation is in one group; what is not written by a group is read within one group alone, by
    one operation, and is no output.

    >>> from inlay.graph.network import Tensor
    >>> function = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    >>> ops = (
    ...     Op("double", "binary", {"src_0": "x", "src_1": "x"}, {"dst": "y"}, parameters={"algorithm": "add"}),
    ...     Op("relu", "eltwise", {"src": "y"}, {"dst": "z"}, parameters=function),
    ... )
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xyz"}
    >>> (group,) = grouped(OpGraph("tiny", 17, ("x",), ("z",), ops, tensors))
    >>> group.reads, group.writes, [op.name for op in group.followers]
    (('x',), ('z',), ['relu'])
    """
    taken: set[int] = set()
    readers = readers_of(graph)
    chains = []
    # The later of two convolutions takes the sum of both, and convolutions come before what only follows them.
    last_first = [i for i in reversed(range(len(graph.ops))) if graph.ops[i].kind in WEIGHTED]
    for i in [*last_first, *(i for i in range(len(graph.ops)) if graph.ops[i].kind not in WEIGHTED)]:
        if i not in taken:
            chain = list(_chain(graph, i, readers, taken))
            taken.update(chain)
            chains.append(chain)
    chains.sort(key=lambda chain: chain[-1])
    groups = tuple(_group(graph, chain) for chain in chains)
    writers = writers_of(graph)
    return tuple(replace(group, dies=_dying(graph, group, groups, writers)) for group in groups)


def _chain(graph: OpGraph, first: int, readers: _Readers, taken: set[int]) -> Iterator[int]:
    """Numbers of an operation and of what may follow it within one group."""
    yield first
    head, kinds = graph.ops[first], _FUSES.get(graph.ops[first].kind)
    if kinds is None or len(head.writes) != 1:
        return
    (tensor,) = head.writes.values()
    leaves_range = may_leave_range(head)
    for _ in range(MOST_FOLLOWERS):
        if len(readers[tensor]) != 1 or tensor in graph.outputs:
            return
        (after,) = readers[tensor]
        follower = graph.ops[after]
        # A run checks for NaN and infinities between the two, so what lies there must be in memory.
        if leaves_range and not propagates(follower.kind, follower.parameters.get("algorithm")):
            return
        leaves_range = leaves_range or may_leave_range(follower)
        if after in taken or follower.kind not in kinds or not _fits(graph, tensor, follower):
            return
        yield after
        (tensor,) = follower.writes.values()


def _fits(graph: OpGraph, tensor: str, op: Op) -> bool:
    """Whether `op` may be a post-operation of what writes `tensor`: it maps each element, in the same dims and type."""
    (dst,) = op.writes.values()
    one, other = graph.tensors[tensor], graph.tensors[dst]
    if one.dims != other.dims or one.dtype != other.dtype:
        return False
    arguments = [argument for argument, name in op.reads.items() if name == tensor]
    if op.kind == "eltwise":
        return True
    if len(arguments) != 1 or len(op.reads) + len(op.constants) != 2:
        return False
    if op.kind == "sum":
        return op.parameters["scales"] == (1.0, 1.0)
    return op.parameters["algorithm"] in _COMMUTING or arguments == ["src_0"]


def _group(graph: OpGraph, chain: Sequence[int]) -> Group:
    ops = [graph.ops[i] for i in chain]
    names: list[tuple[str, ...]] = [(op.name,) for op in ops]
    head, followers = ops[0], ops[1:]
    while followers and (bias := _bias(graph, head, followers[0])) is not None:
        nodes = (*head.nodes, *followers[0].nodes)
        constants = {**head.constants, "bias": bias}
        head = replace(head, constants=constants, writes=followers[0].writes, nodes=nodes)
        names[0:2] = [(*names[0], *names[1])]
        del followers[0]
    tensor = next(iter(head.writes.values()), "")
    for i, op in enumerate(followers):
        followers[i] = _turned(op, tensor)
        (tensor,) = op.writes.values()
    between = {name for op in (head, *followers[:-1]) for name in op.writes.values()} if followers else set()
    reads = dict.fromkeys(name for op in (head, *followers) for name in op.reads.values() if name not in between)
    writes = tuple((followers[-1] if followers else head).writes.values())
    sources = tuple(reads) if head.kind != "concat" else tuple(head.reads.values())
    return Group(head, tuple(followers), tuple(names), chain[-1], sources, writes)


def _turned(op: Op, tensor: str) -> Op:
    """A follower that reads `tensor` as its first operand, and is no sum."""
    if op.kind == "sum":
        op = replace(op, kind="binary", parameters={"algorithm": "add"})
    if op.kind != "binary" or op.reads.get("src_0") == tensor:
        return op
    reads = {"src_0": tensor, **({"src_1": op.reads["src_0"]} if "src_0" in op.reads else {})}
    constants = {"src_1": op.constants["src_0"]} if "src_0" in op.constants else {}
    return replace(op, reads=reads, constants=constants)


def may_fuse(head: str, follower: str) -> bool:
    """Whether an operation of kind `follower` is tried as post-operation of one of kind `head`."""
    return follower in _FUSES.get(head, ())


def _bias(graph: OpGraph, head: Op, op: Op) -> Array | None:
    """What `op` adds to each channel of the result of `head`, in the dims of a bias; None where it does not."""
    if head.kind not in WEIGHTED or "bias" in head.constants or "bias" in head.reads:
        return None
    if op.kind != "binary" or op.parameters["algorithm"] != "add" or len(op.constants) != 1:
        return None
    (array,) = op.constants.values()
    (name,) = head.writes.values()
    dims = graph.tensors[name].dims
    axis = len(dims) - 1 if head.kind == "matmul" else 1
    along = tuple(n if i == axis else 1 for i, n in enumerate(dims))
    if array.dtype != graph.tensors[name].dtype or array.ndim != len(dims):
        return None
    if any(given not in (1, wanted) for given, wanted in zip(array.shape, along, strict=True)):
        return None
    full = np.ascontiguousarray(np.broadcast_to(array, along))
    return full if head.kind == "matmul" else full.reshape(dims[axis])


def _dying(graph: OpGraph, group: Group, groups: Sequence[Group], writers: Mapping[str, int]) -> frozenset[str]:
    """Tensors that followers add to the chain and nobody needs later, neither itself nor as a view."""
    added = {op.reads["src_1"] for op in group.followers if "src_1" in op.reads and op.parameters["algorithm"] == "add"}
    own = {n for n in added & writers.keys() if graph.ops[writers[n]].kind not in ("view", "concat", "reference")}
    return frozenset(name for name in own if _ends(graph, name, group, groups))


def _ends(graph: OpGraph, name: str, group: Group, groups: Sequence[Group]) -> bool:
    """Whether `group` is the last to read `name`, and all that may lie in the same bytes is read before."""
    if sum(list(op.reads.values()).count(name) for op in group.ops) != 1:
        return False
    alike = {name}
    for other in groups:
        if not alike.intersection(other.reads) or other is group:
            continue
        if other.position > group.position or other.kind == "concat":
            return False
        if other.kind == "view":
            alike.update(other.writes)
    return alike.isdisjoint(graph.outputs) and alike.intersection(group.reads) == {name}
