"""`Group`: an operation with an epilogue, the element-wise operations that its kernel may apply as post-operations.

    conv -> add (constant per channel) -> relu -> y        one group: convolution with bias, post-operation relu
    conv -> add (x) -> relu -> y                           one group that also reads x, and may write y in its place

Between the operations of a group no tensor has another reader. How many of them are fused is decided by cost, in each
format: a group has a `Candidate` for each way to run it, and a plan has one candidate of each group. A constant that is
added to each channel becomes a bias, which costs nothing, before costs are known. A group runs at the position of its
last operation.

The epilogue of a product that writes quantized integers has sums of integers alone; the calls that fuse them round and
bound between the two (`quantized_sums`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from inlay.graph.costs.estimates import Source
from inlay.graph.op_graph import Array, Op, OpGraph, readers_of, writers_of
from inlay.graph.passes.range_guards import may_leave_range, propagates
from inlay.graph.planner.formats import Format
from inlay.graph.planner.quantized_sums import is_quantized_sum, normalize_sum, quantizes_bytes
from inlay.primitives.attributes import BinaryPostOp, PostOp, SumPostOp
from inlay.primitives.engine import Operation
from inlay.primitives.rules import WEIGHTED

MOST_EPILOGUE_OPS = 5
"""Most operations in an epilogue."""

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
"""For each kind, the kinds that may follow as post-operations. An engine may support fewer."""
SUMMING = frozenset((*WEIGHTED, "binary", "reduction"))
"""Kinds whose result may overwrite an operand that is added to it; for other kinds oneDNN 3.2 does not add it."""
_COMMUTING = ("add", "mul", "max", "min")
_Readers: TypeAlias = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One call of a candidate, with its cost."""

    operation: Operation | None
    """The engine's operation, with weights of format `any`; None for a call that NumPy computes."""
    impl: str
    """Name of the implementation."""
    ms: float
    """Estimated time in milliseconds."""
    nbytes: int = 0
    """Bytes that it must read and write."""
    roofline: float = 0.0
    """Lower bound of the time in milliseconds."""
    is_cliff: bool = False
    """True if it takes over ten times the roofline."""
    source: Source = "modelled"
    """Origin of `ms`: see `KernelEstimate.source`."""
    first: int = 0
    """Index of the first operation of the group that it computes; 0 is the head."""
    last: int = 0
    """Index of the last operation of the group that it computes, as a post-operation."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a group."""

    reads: tuple[Format, ...]
    """Format of each tensor that the group reads."""
    writes: tuple[Format, ...]
    """Format of each tensor that the group writes."""
    calls: tuple[KernelCall, ...] = ()
    """The calls in order; none for a view, and for a concatenation without a copy."""
    concat_offsets: tuple[int, ...] | None = None
    """For a concatenation without a call: the byte offset of each source in the result.

    The formats of `reads` are then those of the slices of the result.
    """

    @property
    def ms(self) -> float:
        """Estimated time of all calls in milliseconds."""
        return sum((call.ms for call in self.calls), 0.0)


@dataclass(frozen=True, slots=True)
class Group:
    """An operation and its epilogue."""

    head: Op
    """The first operation; a constant that was added to its channels has become its bias."""
    epilogue: tuple[Op, ...]
    """Element-wise operations, each on the result of the one before, which is its `src` or `src_0`.

    Binary ones read another operand as `src_1`. A sum of two tensors has become a binary addition.
    """
    names: tuple[tuple[str, ...], ...]
    """For head and epilogue: names of the graph's operations that each stands for."""
    position: int
    """Index of the last operation in the graph."""
    reads: tuple[str, ...]
    """Tensors that the group reads from outside, in the order of arguments.

    Each is listed once, except sources of a concatenation, which are listed for each argument.
    """
    writes: tuple[str, ...]
    """Tensors that the group writes for others."""
    last_uses: frozenset[str] = frozenset()
    """Operands that nothing reads after the group, so that the result may overwrite them."""
    candidates: tuple[Candidate, ...] = ()
    """The ways to run the group; empty until `CandidateGenerator` has found them."""

    @property
    def kind(self) -> str:
        """Kind of the head."""
        return self.head.kind

    @property
    def ops(self) -> tuple[Op, ...]:
        """Head and epilogue."""
        return (self.head, *self.epilogue)

    def operands(self, call: KernelCall) -> Iterator[tuple[int, PostOp, Op]]:
        """Yield the post-operations of a call that have a second operand: index, post-operation, and operation."""
        post_ops = call.operation.attributes.post_ops if call.operation is not None else ()
        binary = (op for op in self.ops[call.first + 1 : call.last + 1] if op.kind == "binary")
        added = ((i, one) for i, one in enumerate(post_ops) if isinstance(one, (BinaryPostOp, SumPostOp)))
        for (i, post_op), op in zip(added, binary, strict=True):
            yield i, post_op, op

    def find_overwritten(self, candidate: Candidate) -> str | None:
        """Return the operand that the result of a candidate overwrites; None if there is none."""
        found = (op for call in candidate.calls for _, one, op in self.operands(call) if isinstance(one, SumPostOp))
        return next((op.reads["src_1"] for op in found), None)


def group_operations(graph: OpGraph) -> tuple[Group, ...]:
    """Divide the operations into groups, in an order in which these can run.

    Post-conditions: each operation is in one group; a tensor between operations of a group has one reader and is no
    output.

    >>> from inlay.graph.network import Tensor
    >>> function = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
    >>> ops = (
    ...     Op("double", "binary", {"src_0": "x", "src_1": "x"}, {"dst": "y"}, parameters={"algorithm": "add"}),
    ...     Op("relu", "eltwise", {"src": "y"}, {"dst": "z"}, parameters=function),
    ... )
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xyz"}
    >>> (group,) = group_operations(OpGraph("tiny", 17, ("x",), ("z",), ops, tensors))
    >>> group.reads, group.writes, [op.name for op in group.epilogue]
    (('x',), ('z',), ['relu'])
    """
    taken: set[int] = set()
    readers = readers_of(graph)
    chains = []
    # Of two convolutions whose results are added, the later one gets the addition. Convolutions come first, so that
    # element-wise operations join their epilogues.
    last_first = [i for i in reversed(range(len(graph.ops))) if graph.ops[i].kind in WEIGHTED]
    for i in [*last_first, *(i for i in range(len(graph.ops)) if graph.ops[i].kind not in WEIGHTED)]:
        if i not in taken:
            chain = list(_chain(graph, i, readers, taken))
            taken.update(chain)
            chains.append(chain)
    chains.sort(key=lambda chain: chain[-1])
    groups = tuple(_group(graph, chain) for chain in chains)
    writers = writers_of(graph)
    return tuple(replace(group, last_uses=_find_last_uses(graph, group, groups, writers)) for group in groups)


def _chain(graph: OpGraph, first: int, readers: _Readers, taken: set[int]) -> Iterator[int]:
    """Yield the index of an operation, then those of the operations that its epilogue can have."""
    yield first
    head, kinds = graph.ops[first], _FUSES.get(graph.ops[first].kind)
    is_quantized = kinds is not None and quantizes_bytes(head, graph)
    if kinds is None or len(head.writes) != 1 or (_quantizes_result(head) and not is_quantized):
        return
    (tensor,) = head.writes.values()
    may_follow = is_quantized_sum if is_quantized else _is_fusible
    leaves_range = may_leave_range(head)
    for _ in range(MOST_EPILOGUE_OPS):
        if len(readers[tensor]) != 1 or tensor in graph.outputs:
            return
        (after,) = readers[tensor]
        follower = graph.ops[after]
        # A run may check the tensor between the two for NaN and infinities, so it must be in memory.
        if leaves_range and not propagates(follower.kind, follower.parameters.get("algorithm")):
            return
        leaves_range = leaves_range or may_leave_range(follower)
        if after in taken or follower.kind not in kinds or not may_follow(graph, tensor, follower):
            return
        yield after
        (tensor,) = follower.writes.values()


def _quantizes_result(op: Op) -> bool:
    """Return whether nothing may follow in the kernel: scales or zero points of the result, or own post-operations."""
    attributes = op.attributes
    return "dst" in attributes.scales or "dst" in attributes.zero_points or bool(attributes.post_ops)


def _is_fusible(graph: OpGraph, tensor: str, op: Op) -> bool:
    """Return whether `op` may be a post-operation of the operation that writes `tensor`.

    It must be element-wise without scales and zero points, in the same dims and type, and read the tensor once.
    """
    if op.attributes.value_names or op.attributes.post_ops:
        return False
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
    """Return the group of a chain of operations."""
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
        followers[i] = _normalize_follower(op, tensor)
        (tensor,) = op.writes.values()
    between = {name for op in (head, *followers[:-1]) for name in op.writes.values()} if followers else set()
    reads = dict.fromkeys(name for op in (head, *followers) for name in op.reads.values() if name not in between)
    writes = tuple((followers[-1] if followers else head).writes.values())
    sources = tuple(reads) if head.kind != "concat" else tuple(head.reads.values())
    return Group(head, tuple(followers), tuple(names), chain[-1], sources, writes)


def _normalize_follower(op: Op, tensor: str) -> Op:
    """Return an operation of an epilogue with `tensor` as its first operand, and a sum as a binary addition."""
    if op.kind == "sum":
        op = replace(op, kind="binary", parameters={"algorithm": "add"})
    if op.kind != "binary" or op.reads.get("src_0") == tensor:
        return op
    if op.attributes.value_names:
        return normalize_sum(op, tensor)
    reads = {"src_0": tensor, **({"src_1": op.reads["src_0"]} if "src_0" in op.reads else {})}
    constants = {"src_1": op.constants["src_0"]} if "src_0" in op.constants else {}
    return replace(op, reads=reads, constants=constants)


def may_fuse(head: str, follower: str) -> bool:
    """Return whether an operation of kind `follower` is tried as a post-operation of one of kind `head`."""
    return follower in _FUSES.get(head, ())


def _bias(graph: OpGraph, head: Op, op: Op) -> Array | None:
    """Return the bias that `op` adds to the result of `head`; None where it does anything else."""
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


def _find_last_uses(
    graph: OpGraph, group: Group, groups: Sequence[Group], writers: Mapping[str, int]
) -> frozenset[str]:
    """Return the operands that the epilogue adds and may overwrite: nothing reads them later, directly or by a view.

    Results of views, concatenations and references are left out: others may share their bytes.
    """
    added = {op.reads["src_1"] for op in group.epilogue if "src_1" in op.reads and op.parameters["algorithm"] == "add"}
    in_own_bytes = {
        n for n in added & writers.keys() if graph.ops[writers[n]].kind not in ("view", "concat", "reference")
    }
    return frozenset(name for name in in_own_bytes if _is_last_use(graph, name, group, groups))


def _is_last_use(graph: OpGraph, name: str, group: Group, groups: Sequence[Group]) -> bool:
    """Return whether `group` is the last reader of `name` and of all views of it."""
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
