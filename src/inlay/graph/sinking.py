"""Element-wise operations move in front of reshapes, so that they stand behind what they can be fused into.

A product of many rows is one of two axes, with a reshape before and after; its bias and activation follow the reshape:

    matmul -> reshape -> add (constant) -> gelu -> reshape
    matmul -> add (constant) -> gelu -> reshape -> reshape

Each element is computed as before, from the same operands.
"""

from dataclasses import dataclass, field, replace

from inlay.graph.network import Tensor
from inlay.graph.op import Array, Op, OpGraph, Reshape, readers_of
from inlay.layout import Dims
from inlay.primitives.signatures import WEIGHTED


def sunk(graph: OpGraph) -> OpGraph:
    """The graph with element-wise operations moved in front of the reshapes of what products write.

    Post-condition: every tensor of both graphs has the same elements.

    >>> import numpy as np
    >>> rows, plane = (3, 4), (1, 3, 4)
    >>> dims = {"x": (3, 2), "m": rows, "r": plane, "z": plane}
    >>> tensors = {name: Tensor(name, extents, np.dtype(np.float32)) for name, extents in dims.items()}
    >>> ops = (
    ...     Op("product", "matmul", {"src": "x"}, {"dst": "m"}, {"weights": np.ones((2, 4), np.float32)}),
    ...     Op("rows", "view", {"src": "m"}, {"dst": "r"}, moves=(Reshape((1, 3, 4)),)),
    ...     Op("bias", "binary", {"src_0": "r"}, {"dst": "z"}, {"src_1": np.ones((1, 1, 4), np.float32)}),
    ... )
    >>> [op.name for op in sunk(OpGraph("tiny", 17, ("x",), ("z",), ops, tensors)).ops]
    ['product', 'bias', 'bias:reshape']
    """
    return _Sinking(graph).run()


@dataclass(slots=True)
class _Sinking:
    """A graph while its operations are gone through."""

    graph: OpGraph
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    fused: set[str] = field(default_factory=set)
    """Tensors that a product writes, with what follows it."""
    reshapes: dict[str, Op] = field(default_factory=dict)
    """By tensor, the reshape that writes it and that is still to be placed."""
    readers: dict[str, list[int]] = field(default_factory=dict)
    """By tensor of the original graph, the operations that read it."""

    def run(self) -> OpGraph:
        self.readers = readers_of(self.graph)
        self.tensors.update(self.graph.tensors)
        for op in self.graph.ops:
            if op.kind in WEIGHTED:
                self.fused.update(op.writes.values())
            if self.may_wait(op):
                self.reshapes[op.writes["dst"]] = op
                continue
            source = next((name for name in op.reads.values() if name in self.reshapes), None)
            self.ops.append(op) if source is None else self.sink(op, self.reshapes.pop(source))
        names = {*self.graph.inputs, *(n for op in self.ops for n in (*op.reads.values(), *op.writes.values()))}
        kept = {name: tensor for name, tensor in self.tensors.items() if name in names}
        return replace(self.graph, ops=tuple(self.ops), tensors=kept)

    def may_wait(self, op: Op) -> bool:
        """Whether `op` is a reshape of what a product writes, and its one reader can go first."""
        if op.kind != "view" or len(op.moves) != 1 or not isinstance(op.moves[0], Reshape):
            return False
        (src,), (dst,) = op.reads.values(), op.writes.values()
        if src not in self.fused or src in self.graph.outputs or dst in self.graph.outputs:
            return False
        # The reshape of an operation that has gone first is read by no operation of the original graph but this one.
        if len(self.readers.get(src, (0,))) > 1 or len(self.readers[dst]) != 1:
            return False
        return self.can_sink(self.graph.ops[self.readers[dst][0]], dst, self.tensors[src].dims)

    def can_sink(self, op: Op, tensor: str, dims: Dims) -> bool:
        """Whether `op`, which reads `tensor`, can be computed in `dims`, which hold the same elements."""
        (dst,) = op.writes.values() if len(op.writes) == 1 else ("",)
        if op.kind not in ("eltwise", "binary") or self.tensors[dst].dims != self.tensors[tensor].dims:
            return False
        if self.tensors[dst].dtype != self.tensors[tensor].dtype or 0 in dims:
            return False
        if any(_in_rows(array, dims) is None for array in op.constants.values()):
            return False
        return all(self.tensors[name].dims == self.tensors[tensor].dims for name in op.reads.values())

    def sink(self, op: Op, reshape: Op) -> None:
        """Place `op` before `reshape`."""
        (src,), (seen,), (dst,) = reshape.reads.values(), reshape.writes.values(), op.writes.values()
        rows = self.tensors[src].dims
        reads = {argument: src if name == seen else self.rows(op, name, rows) for argument, name in op.reads.items()}
        constants = {argument: _rows(array, rows) for argument, array in op.constants.items()}
        before = self.named(f"{dst}:rows", rows, self.tensors[dst])
        self.ops.append(replace(op, reads=reads, writes={"dst": before}, constants=constants))
        self.fused.add(before)
        after = Op(
            f"{op.name}:reshape",
            "view",
            {"src": before},
            {"dst": dst},
            moves=(Reshape(self.tensors[dst].dims),),
            nodes=reshape.nodes,
        )
        if self.may_wait(after):
            self.reshapes[dst] = after
        else:
            self.ops.append(after)

    def rows(self, op: Op, name: str, dims: Dims) -> str:
        """Another operand in the dims of the product."""
        if name in self.reshapes:
            self.ops.append(self.reshapes.pop(name))
        seen = self.named(f"{name}:rows:{op.name}", dims, self.tensors[name])
        self.ops.append(Op(f"{op.name}:{name}", "view", {"src": name}, {"dst": seen}, moves=(Reshape(dims),)))
        return seen

    def named(self, name: str, dims: Dims, like: Tensor) -> str:
        self.tensors[name] = Tensor(name, dims, like.dtype)
        return name


def _in_rows(array: Array, dims: Dims) -> Array | None:
    """A constant that is added to every row, in as many axes as `dims`; None where rows differ."""
    width = array.shape[-1] if array.ndim else 1
    if array.size != width or width not in (1, dims[-1]):
        return None
    return array.reshape((1,) * (len(dims) - 1) + (width,))


def _rows(array: Array, dims: Dims) -> Array:
    found = _in_rows(array, dims)
    assert found is not None
    return found
