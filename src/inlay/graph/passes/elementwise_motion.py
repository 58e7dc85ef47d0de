"""`hoist_elementwise`: move element-wise operations of an `OpGraph` before reshapes, so that products can fuse them.

Exporters write a product with many rows as a matmul of two axes, with a reshape before and after it. Bias and
activation follow the second reshape, where they cannot be fused into the matmul:

    matmul -> reshape -> add (constant) -> gelu -> reshape
    matmul -> add (constant) -> gelu -> reshape -> reshape

Each element is computed as before, from the same operands.
"""

from dataclasses import dataclass, field, replace

from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array, Op, OpGraph, ReshapeView, readers_of
from inlay.layout import Dims
from inlay.primitives.rules import WEIGHTED


def hoist_elementwise(graph: OpGraph) -> OpGraph:
    """Return the graph with element-wise operations moved before the reshapes of products' results.

    Post-condition: every tensor of both graphs has the same elements.

    >>> import numpy as np
    >>> rows, plane = (3, 4), (1, 3, 4)
    >>> dims = {"x": (3, 2), "m": rows, "r": plane, "z": plane}
    >>> tensors = {name: Tensor(name, extents, np.dtype(np.float32)) for name, extents in dims.items()}
    >>> ops = (
    ...     Op("product", "matmul", {"src": "x"}, {"dst": "m"}, {"weights": np.ones((2, 4), np.float32)}),
    ...     Op("rows", "view", {"src": "m"}, {"dst": "r"}, transforms=(ReshapeView((1, 3, 4)),)),
    ...     Op("bias", "binary", {"src_0": "r"}, {"dst": "z"}, {"src_1": np.ones((1, 1, 4), np.float32)}),
    ... )
    >>> [op.name for op in hoist_elementwise(OpGraph("tiny", 17, ("x",), ("z",), ops, tensors)).ops]
    ['product', 'bias', 'bias:reshape']
    """
    return _ElementwiseMotion(graph).run()


@dataclass(slots=True)
class _ElementwiseMotion:
    """A traversal of a graph's operations in order, with the rewritten graph so far."""

    graph: OpGraph
    """Original graph."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """Tensors of both graphs, by name."""
    ops: list[Op] = field(default_factory=list)
    """Operations of the rewritten graph so far."""
    fused: set[str] = field(default_factory=set)
    """Tensors that a product writes, or an element-wise operation that can be fused into one."""
    reshapes: dict[str, Op] = field(default_factory=dict)
    """Delayed reshapes, by the tensor that each writes: the operations that read them may move before them."""
    readers: dict[str, list[int]] = field(default_factory=dict)
    """Indices of the original operations that read a tensor, by tensor."""

    def run(self) -> OpGraph:
        """Return the rewritten graph."""
        self.readers = readers_of(self.graph)
        self.tensors.update(self.graph.tensors)
        for op in self.graph.ops:
            if op.kind in WEIGHTED:
                self.fused.update(op.writes.values())
            if self.can_delay(op):
                self.reshapes[op.writes["dst"]] = op
                continue
            source = next((name for name in op.reads.values() if name in self.reshapes), None)
            if source is None:
                self.ops.append(op)
            else:
                self.hoist(op, self.reshapes.pop(source))
        names = {*self.graph.inputs, *(n for op in self.ops for n in (*op.reads.values(), *op.writes.values()))}
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in names}
        return replace(self.graph, ops=tuple(self.ops), tensors=tensors)

    def can_delay(self, op: Op) -> bool:
        """Return whether `op` is a reshape of a product's result, and its only reader can move before it."""
        if op.kind != "view" or len(op.transforms) != 1 or not isinstance(op.transforms[0], ReshapeView):
            return False
        (src,), (dst,) = op.reads.values(), op.writes.values()
        if src not in self.fused or src in self.graph.outputs or dst in self.graph.outputs:
            return False
        # A reshape that `hoist` appended reads a new tensor, which no operation of the original graph reads.
        if len(self.readers.get(src, (0,))) > 1 or len(self.readers[dst]) != 1:
            return False
        return self.can_hoist(self.graph.ops[self.readers[dst][0]], dst, self.tensors[src].dims)

    def can_hoist(self, op: Op, tensor: str, dims: Dims) -> bool:
        """Return whether `op` can compute the elements of `tensor`, which it reads, in other dims."""
        (dst,) = op.writes.values() if len(op.writes) == 1 else ("",)
        if op.kind not in ("eltwise", "binary") or op.exact is not None or not _has_plain_values(op):
            return False
        if self.tensors[dst].dims != self.tensors[tensor].dims or 0 in dims:
            return False
        if self.tensors[dst].dtype != self.tensors[tensor].dtype:
            return False
        if not all(_has_equal_rows(array, dims) for array in op.constants.values()):
            return False
        return all(self.tensors[name].dims == self.tensors[tensor].dims for name in op.reads.values())

    def hoist(self, op: Op, reshape: Op) -> None:
        """Append `op` on the source of `reshape`, and then a reshape of its result."""
        (src,), (reshaped,), (dst,) = reshape.reads.values(), reshape.writes.values(), op.writes.values()
        rows = self.tensors[src].dims
        reads = {
            argument: src if name == reshaped else self.reshape_operand(op, name, rows)
            for argument, name in op.reads.items()
        }
        values = op.attributes.value_names
        constants = {
            argument: array if argument in values else _with_axes(array, len(rows))
            for argument, array in op.constants.items()
        }
        before = self.add_tensor(f"{dst}:rows", rows, self.tensors[dst])
        self.ops.append(replace(op, reads=reads, writes={"dst": before}, constants=constants))
        self.fused.add(before)
        after = Op(
            f"{op.name}:reshape",
            "view",
            {"src": before},
            {"dst": dst},
            transforms=(ReshapeView(self.tensors[dst].dims),),
            nodes=reshape.nodes,
        )
        if self.can_delay(after):
            self.reshapes[dst] = after
        else:
            self.ops.append(after)

    def reshape_operand(self, op: Op, name: str, dims: Dims) -> str:
        """Append a reshape of operand `name` of `op` to `dims`, and return its result."""
        if name in self.reshapes:
            self.ops.append(self.reshapes.pop(name))
        result = self.add_tensor(f"{name}:rows:{op.name}", dims, self.tensors[name])
        self.ops.append(
            Op(f"{op.name}:{name}", "view", {"src": name}, {"dst": result}, transforms=(ReshapeView(dims),))
        )
        return result

    def add_tensor(self, name: str, dims: Dims, like: Tensor) -> str:
        """Add a tensor with the type of another one, and return its name."""
        self.tensors[name] = Tensor(name, dims, like.dtype)
        return name


def _has_plain_values(op: Op) -> bool:
    """Return whether each scale and zero point of an operation is one constant number."""
    return all(name in op.constants and op.constants[name].size == 1 for name in op.attributes.value_names)


def _has_equal_rows(array: Array, dims: Dims) -> bool:
    """Return whether a constant that is broadcast to `dims` is the same for every row."""
    width = array.shape[-1] if array.ndim else 1
    return array.size == width and width in (1, dims[-1])


def _with_axes(row: Array, count: int) -> Array:
    """Return a constant that is the same for every row with `count` axes."""
    return row.reshape((1,) * (count - 1) + (row.size,))
