"""`dequantize_unsupported`: operations on integers for which an engine has only a reference kernel are computed in f32.

Such an operation becomes reorders that dequantize what it reads, the operation in f32, its post-operations, and a
reorder that quantizes the result. So it takes no longer than in f32 but for these reorders.

So do products with integer weights in blocks, whose constants become f32.

So do products whose kernels are not exact: without VNNI, they add two products of u8 and s8 in 16 bits, which saturate
beyond 32,767, or halve the weights of a source of s8. Weights from -64 to 64 of a source of u8 cannot saturate.

Source: Intel, "Intel 64 and IA-32 Architectures Software Developer's Manual": PMADDUBSW; oneDNN, "Nuances of int8
Computations".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.graph.costs.estimates import Costs
from inlay.graph.network import Tensor, unused_name
from inlay.graph.op_graph import Array, Op, OpGraph, operation_of
from inlay.graph.planner.formats import channels_last
from inlay.layout import Dims
from inlay.primitives.attributes import PLAIN, EltwisePostOp, PrimitiveAttributes
from inlay.primitives.engine import Parameter
from inlay.primitives.rules import WEIGHTED
from inlay.reordering.attributes import Scales, ZeroPoints

_F32 = np.dtype(np.float32)
_KINDS = frozenset((*WEIGHTED, "binary", "pooling", "resampling"))
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


def dequantize_unsupported(graph: OpGraph, costs: Costs) -> OpGraph:
    """Return the graph with f32 operations in place of those on integers that no optimized kernel of `costs` computes.

    Operations that no optimized kernel computes in f32 either stay as they are.
    """
    if not any(_computes_integers(op, graph) for op in graph.ops):
        return graph
    ops, tensors = list[Op](), dict(graph.tensors)
    for op in graph.ops:
        if not _computes_integers(op, graph) or is_supported(op, graph, costs):
            ops.append(op)
            continue
        expansion = _Expansion(op, tensors)
        found = expansion.run()
        inner = replace(graph, tensors=tensors | expansion.added)
        if is_supported(expansion.real, inner, costs):
            ops += found
            tensors |= expansion.added
        else:
            ops.append(op)
    return replace(graph, ops=tuple(ops), tensors=tensors)


def _computes_integers(op: Op, graph: OpGraph) -> bool:
    """Return whether an operation computes with integers of 8 bits, or with integer weights in f32."""
    return op.attributes.fpmath_integers or _reads_bytes(op, graph) or _writes_bytes(op, graph)


def _reads_bytes(op: Op, graph: OpGraph) -> bool:
    """Return whether an operation computes with integers of 8 bits."""
    return op.kind in _KINDS and any(
        graph.tensors[name].dtype in _BYTES for argument, name in op.reads.items() if argument in _SOURCES
    )


def _writes_bytes(op: Op, graph: OpGraph) -> bool:
    """Return whether an operation is a softmax with a quantized result."""
    return op.kind == "softmax" and graph.tensors[op.writes["dst"]].dtype in _BYTES


_SOURCES = ("src", "src_0", "src_1", "weights")


def is_supported(op: Op, graph: OpGraph, costs: Costs) -> bool:
    """Return whether an engine has an exact kernel for an operation, other than a reference one, in some format."""
    if op.kind in WEIGHTED and _reads_bytes(op, graph) and not _is_exact(op, graph, costs.isa):
        return False
    kernels = (costs.kernel(operation_of(op, descs)) for descs in _list_descs(op, graph))
    return any(kernel is not None and not is_reference_kernel(kernel.impl) for kernel in kernels)


def is_reference_kernel(impl: str) -> bool:
    """Return whether a kernel is a reference one, or a part of it is, by its name.

    >>> [is_reference_kernel(impl) for impl in ("ref_int8:any", "conv:any+ref:any", "brgconv:avx512_core")]
    [True, True, False]
    """
    return any(part.startswith("ref") for part in impl.split("+"))


_INEXACT = frozenset({"SSE41", "AVX", "AVX2", "AVX512_CORE"})
"""Instruction sets without VNNI."""
_MOST_EXACT = 64  # 2 * 255 * 64 = 32,640


def _is_exact(op: Op, graph: OpGraph, isa: str) -> bool:
    """Return whether sums of products of integers are exact with an instruction set."""
    if isa.upper() not in _INEXACT:
        return True
    weights, src = op.constants.get("weights"), graph.tensors[op.reads["src"]]
    return weights is not None and src.dtype == np.uint8 and int(np.abs(weights.astype(np.int16)).max()) <= _MOST_EXACT


def _list_descs(op: Op, graph: OpGraph) -> Iterator[dict[str, MemoryDesc]]:
    """Yield descriptors of the arguments of an operation: `any`, channels last, and plain."""
    values = op.attributes.value_names
    names = {argument: name for argument, name in (*op.reads.items(), *op.writes.items()) if argument not in values}
    for tag in ("any", "channels last", None) if op.kind in WEIGHTED else ("channels last", None):
        descs = {}
        for argument, name in names.items():
            tensor = graph.tensors[name]
            last = channels_last(len(tensor.dims)) if len(tensor.dims) > 2 and op.kind != "matmul" else None
            descs[argument] = MemoryDesc(tensor.dims, _type_name(tensor), last if tag == "channels last" else tag)
        yield descs


def _type_name(tensor: Tensor) -> str:
    """Return the data type of a tensor of integers or of f32."""
    return {"float32": "f32", "int8": "s8", "uint8": "u8", "int32": "s32"}[tensor.dtype.name]


class _Expansion:
    """An operation on integers as operations in f32."""

    def __init__(self, op: Op, tensors: Mapping[str, Tensor]) -> None:
        self.op, self.tensors = op, tensors
        self.added: dict[str, Tensor] = {}
        """Tensors that the operations write, by name."""
        self.real = op
        """The operation in f32, once `run` has returned."""

    def run(self) -> list[Op]:
        """Return the operations in order."""
        op = self.op
        values = op.attributes.value_names
        before, reads, constants = list[Op](), dict[str, str](), dict[str, Array]()
        for argument, name in op.reads.items():
            if argument in values:
                continue
            reads[argument] = name
            if argument in _SOURCES and self.tensors[name].dtype != _F32:
                reads[argument] = self.add(f"{name}:f32", self.tensors[name].dims, _F32)
                before.append(self.reorder(argument, "src", name, reads[argument]))
        for argument, array in op.constants.items():
            if argument not in values:
                constants[argument] = self.dequantize(argument, array) if argument in _SOURCES else array
        (dst,) = op.writes.values()
        result = self.add(f"{dst}:f32", self.tensors[dst].dims, _F32)
        self.real = replace(op, reads=reads, writes={"dst": result}, constants=constants, attributes=PLAIN)
        ops = [*before, self.real, *self.apply_post_ops(result)]
        if self.tensors[dst].dtype != _F32:
            return [*ops, self.reorder("dst", "dst", ops[-1].writes["dst"], dst)]
        ops[-1] = replace(ops[-1], writes={"dst": dst})
        self.real = ops[len(before)]
        return ops

    def add(self, name: str, dims: Sequence[int], dtype: np.dtype[np.generic]) -> str:
        """Add a tensor under an unused name, and return the name."""
        name = unused_name(name, self.tensors, self.added)
        self.added[name] = Tensor(name, tuple(dims), dtype)
        return name

    def reorder(self, argument: str, side: str, src: str, dst: str) -> Op:
        """Return the reorder that applies scales and zero points of an argument to one side, `src` or `dst`."""
        own = self.op.attributes
        attributes = PrimitiveAttributes(
            scales={side: own.scales[argument]} if argument in own.scales else {},
            zero_points={side: own.zero_points[argument]} if argument in own.zero_points else {},
        )
        renamed = {f"{argument}_{end}": f"{side}_{end}" for end in ("scales", "zero_points")}
        reads = {renamed[name]: tensor for name, tensor in self.op.reads.items() if name in renamed}
        constants = {renamed[name]: array for name, array in self.op.constants.items() if name in renamed}
        name = f"{self.op.name}:{argument}"
        return Op(name, "reorder", {"src": src, **reads}, {"dst": dst}, constants, {}, attributes, nodes=self.op.nodes)

    def dequantize(self, argument: str, array: Array) -> Array:
        """Return a constant of integers as f32; one of f32 as it is."""
        attributes, constants = self.op.attributes, self.op.constants
        if array.dtype == _F32 and argument not in attributes.scales:
            return array
        real = array.astype(np.float64)
        if argument in attributes.zero_points:
            zeros = constants[f"{argument}_zero_points"].astype(np.float64)
            real = real - _expand(zeros, attributes.zero_points[argument], array.shape)
        if argument in attributes.scales:
            real = real * _expand(constants[f"{argument}_scales"], attributes.scales[argument], array.shape)
        return np.asarray(real, _F32)

    def apply_post_ops(self, result: str) -> Iterator[Op]:
        """Yield an operation for each post-operation of the operation itself."""
        for i, post_op in enumerate(self.op.attributes.post_ops):
            assert isinstance(post_op, EltwisePostOp)
            dst = self.add(f"{result}:{i}", self.added[result].dims, _F32)
            parameters: dict[str, Parameter] = {
                "algorithm": post_op.algorithm,
                "alpha": post_op.alpha,
                "beta": post_op.beta,
            }
            yield Op(f"{self.op.name}:post_op_{i}", "eltwise", {"src": result}, {"dst": dst}, parameters=parameters)
            result = dst


def _expand(values: Array, entry: Scales | ZeroPoints, dims: Dims) -> Array:
    """Return scales or zero points of a tensor with so many axes that they are broadcast to it; groups are repeated."""
    expanded = values.reshape(entry.shape(dims))
    for axis, size in zip((len(dims) - 2, len(dims) - 1), entry.groups, strict=False):
        expanded = expanded.repeat(size, axis)
    return expanded
