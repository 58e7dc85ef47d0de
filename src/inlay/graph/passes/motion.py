"""Motion in an `OpGraph`: element-wise operations before reshapes, concatenations onto results of earlier ones.

**Element-wise operations move in front of reshapes**, so that they stand behind what they can be fused into. A product
of many rows is one of two axes, with a reshape before and after; its bias and activation follow the reshape:

    matmul -> reshape -> add (constant) -> gelu -> reshape
    matmul -> add (constant) -> gelu -> reshape -> reshape

Each element is computed as before, from the same operands.

**Concatenations that begin with the sources of an earlier one read its result instead.** A growing block, as
DenseNet's, is exported flat: each layer concatenates everything before it anew. A tensor can lie in one result without
a copy, so all further concatenations copy it. Nested, each result lies at the beginning of the next one, and nothing is
copied:

    c2 = concat(a, b);  c3 = concat(a, b, c);  c4 = concat(a, b, c, d)      flat: 531 copies in a DenseNet-121
    c2 = concat(a, b);  c3 = concat(c2, c);    c4 = concat(c3, d)           nested: none

Each element is where it was. The earlier concatenations are found in a trie of their sources, by axis.
"""

from dataclasses import dataclass, field, replace

from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array, Op, OpGraph, ReshapeView, readers_of
from inlay.layout import Dims
from inlay.primitives.rules import WEIGHTED


def sunk(graph: OpGraph) -> OpGraph:
    """The graph with element-wise operations moved in front of the reshapes of what products write.

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
    >>> [op.name for op in sunk(OpGraph("tiny", 17, ("x",), ("z",), ops, tensors)).ops]
    ['product', 'bias', 'bias:reshape']
    """
    return _ElementwiseMotion(graph).run()


@dataclass(slots=True)
class _ElementwiseMotion:
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
        if op.kind != "view" or len(op.transforms) != 1 or not isinstance(op.transforms[0], ReshapeView):
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
        if not all(_has_equal_rows(array, dims) for array in op.constants.values()):
            return False
        return all(self.tensors[name].dims == self.tensors[tensor].dims for name in op.reads.values())

    def sink(self, op: Op, reshape: Op) -> None:
        """Place `op` before `reshape`."""
        (src,), (seen,), (dst,) = reshape.reads.values(), reshape.writes.values(), op.writes.values()
        rows = self.tensors[src].dims
        reads = {argument: src if name == seen else self.rows(op, name, rows) for argument, name in op.reads.items()}
        constants = {argument: _in_axes(array, len(rows)) for argument, array in op.constants.items()}
        before = self.named(f"{dst}:rows", rows, self.tensors[dst])
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
        if self.may_wait(after):
            self.reshapes[dst] = after
        else:
            self.ops.append(after)

    def rows(self, op: Op, name: str, dims: Dims) -> str:
        """Another operand in the dims of the product."""
        if name in self.reshapes:
            self.ops.append(self.reshapes.pop(name))
        seen = self.named(f"{name}:rows:{op.name}", dims, self.tensors[name])
        self.ops.append(Op(f"{op.name}:{name}", "view", {"src": name}, {"dst": seen}, transforms=(ReshapeView(dims),)))
        return seen

    def named(self, name: str, dims: Dims, like: Tensor) -> str:
        self.tensors[name] = Tensor(name, dims, like.dtype)
        return name


def _has_equal_rows(array: Array, dims: Dims) -> bool:
    """Whether a constant that is spread over `dims` is the same for every row."""
    width = array.shape[-1] if array.ndim else 1
    return array.size == width and width in (1, dims[-1])


def _in_axes(row: Array, count: int) -> Array:
    """A constant that is the same for every row, with `count` axes."""
    return row.reshape((1,) * (count - 1) + (row.size,))


@dataclass(slots=True)
class _Prefix:
    """A node of the trie: concatenations whose sources begin alike."""

    after: dict[str, "_Prefix"] = field(default_factory=dict)
    """By the next source."""
    result: str | None = None
    """The tensor that has exactly these sources, if there is one."""


def nest_concatenations(graph: OpGraph) -> OpGraph:
    """The graph with each concatenation reading the longest result that holds its first sources.

    Post-condition: every tensor of both graphs has the same elements.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> widths = {"a": 1, "b": 2, "c": 3, "ab": 3, "abc": 6}
    >>> tensors = {name: Tensor(name, (1, width), np.dtype(np.float32)) for name, width in widths.items()}
    >>> axis = {"axis": 1}
    >>> ops = (
    ...     Op("two", "concat", {"src_0": "a", "src_1": "b"}, {"dst": "ab"}, parameters=axis),
    ...     Op("three", "concat", {"src_0": "a", "src_1": "b", "src_2": "c"}, {"dst": "abc"}, parameters=axis),
    ... )
    >>> nested = nest_concatenations(OpGraph("tiny", 17, ("a", "b", "c"), ("ab", "abc"), ops, tensors))
    >>> [dict(op.reads) for op in nested.ops]
    [{'src_0': 'a', 'src_1': 'b'}, {'src_0': 'ab', 'src_1': 'c'}]
    """
    roots: dict[object, _Prefix] = {}
    ops = []
    for op in graph.ops:
        if op.kind == "concat" and not op.constants and len(op.reads) > 1:
            op = _nested(op, roots.setdefault(op.parameters["axis"], _Prefix()))
        ops.append(op)
    return replace(graph, ops=tuple(ops))


def _nested(op: Op, root: _Prefix) -> Op:
    """A concatenation that reads the longest earlier one that it begins with; its own sources are remembered."""
    sources = [op.reads[f"src_{i}"] for i in range(len(op.reads))]
    node, longest, result = root, 0, ""
    for count, name in enumerate(sources, 1):
        node = node.after.setdefault(name, _Prefix())
        if node.result is not None and count < len(sources):
            longest, result = count, node.result
    if node.result is None:
        (node.result,) = op.writes.values()
    if not longest:
        return op
    return replace(op, reads={f"src_{i}": name for i, name in enumerate((result, *sources[longest:]))})
