"""Dims and types of results of operators of com.microsoft, the domain of ONNX Runtime's own operators.

ONNX's shape inference does not know the domain. A node of it is a region of ONNX Runtime unless `is_known` returns
true; such nodes are imported like ONNX's own. `passes.quantized_operators` replaces those on quantized tensors,
and `passes.block_products` products with weights of few bits.

Source: ONNX Runtime, "Contrib Operators".
"""

import operator
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.network import Node, Tensor
from inlay.graph.op_graph import Array
from inlay.layout import Dims

CONTRIB_DOMAIN = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
Inputs: TypeAlias = list[Tensor | None]
"""The tensor of each input of a node; None for one that is left out."""


def is_known(node: Node, values: Mapping[str, Array]) -> bool:
    """Return whether a node of the domain needs no region: other operators compute it.

    Its scales and zero points are constants, and so is each input that is left out.
    """
    places = _CONSTANT_INPUTS.get(node.operator) if node.domain == CONTRIB_DOMAIN else None
    if places is None:
        return False
    inputs = dict(enumerate(node.inputs))
    if node.operator == "QLinearConcat":
        places = tuple(place for place in inputs if place < 2 or place % 3 != 2)
    if node.operator == "MatMulNBits" and not _has_usual_blocks(node, values):
        return False
    if node.attributes.get("channels_last") or node.attributes.get("transA"):
        return False
    return all(not inputs.get(place) or inputs[place] in values for place in places)


def _has_usual_blocks(node: Node, values: Mapping[str, Array]) -> bool:
    """Return whether a MatMulNBits has integers of 4 or 8 bits in order, and zero points packed like them."""
    inputs = (*node.inputs, *("",) * (6 - len(node.inputs)))
    if inputs[4] or node.attributes.get("bits", 4) not in (4, 8):
        return False
    arrays = [values.get(name) for name in inputs[1:4]]
    weights, scales, zeros = arrays
    if weights is None or scales is None or weights.dtype != np.uint8 or scales.dtype not in _REAL:
        return False
    return (zeros is None or zeros.dtype == np.uint8) and weights.size > 0


_REAL = (np.dtype(np.float32), np.dtype(np.float16))
_UNARY = (1, 2, 3, 4)
_BINARY = (1, 2, 4, 5, 6, 7)
_CONSTANT_INPUTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "MatMulNBits": (1, 2, 3, 5),
        "QGemm": (1, 2, 4, 5, 6, 7, 8),
        "QLinearAdd": _BINARY,
        "QLinearAveragePool": _UNARY,
        "QLinearConcat": (),
        "QLinearGlobalAveragePool": _UNARY,
        "QLinearLeakyRelu": _UNARY,
        "QLinearMul": _BINARY,
        "QLinearSigmoid": _UNARY,
        "QLinearSoftmax": _UNARY,
    }
)
"""Operators that `passes.quantized_operators` and `passes.block_products` replace, with their inputs that must be
constant."""


def infer_contrib(node: Node, tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the results of a node as tensors, in order, without those that it leaves out.

    Raises:
        InvalidArguments: dims of the inputs do not fit the operator.
    """
    inputs = [tensors[name] if name else None for name in node.inputs]
    try:
        results = _INFERENCE[node.operator](node, inputs)
    except (ValueError, IndexError, KeyError, AttributeError, TypeError) as error:
        shown = " and ".join(f"{tensor.dtype} {tensor.dims}" for tensor in inputs if tensor is not None)
        raise InvalidArguments(
            f"node {node.name!r}: {node.operator} of {node.domain} does not accept {shown}: correct the model, or give "
            "its inputs other dims"
        ) from error
    return [
        Tensor(name, tuple(map(int, dims)), dtype)
        for name, (dims, dtype) in zip(node.outputs, results, strict=False)
        if name
    ]


_Results: TypeAlias = list[tuple[Dims, np.dtype[Any]]]
_F32 = np.dtype(np.float32)


def _tensor(inputs: Inputs, place: int) -> Tensor:
    """Return an input that must not be left out."""
    tensor = inputs[place]
    if tensor is None:
        raise ValueError(f"input {place} is left out")
    return tensor


def _same(node: Node, inputs: Inputs) -> _Results:
    """Return the dims and type of the first input."""
    src = _tensor(inputs, 0)
    return [(src.dims, src.dtype)]


def _broadcast(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of two tensors that are broadcast to each other."""
    src, other = _tensor(inputs, 0), _tensor(inputs, 3)
    return [(np.broadcast_shapes(src.dims, other.dims), src.dtype)]


def _concat(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of tensors that are joined; their scales and zero points are inputs in between."""
    parts = [_tensor(inputs, place) for place in range(2, len(inputs), 3)]
    axis = node.attributes["axis"] % len(parts[0].dims)
    rest = {part.dims[:axis] + part.dims[axis + 1 :] for part in parts}
    if len(rest) != 1:
        raise ValueError("extents differ")
    total = sum(part.dims[axis] for part in parts)
    return [((*parts[0].dims[:axis], total, *parts[0].dims[axis + 1 :]), parts[0].dtype)]


def _global_pool(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of a pooling of whole images."""
    src = _tensor(inputs, 0)
    return [((*src.dims[:2], *(1,) * len(src.dims[2:])), src.dtype)]


def _pool(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of a pooling with a window."""
    src, attributes = _tensor(inputs, 0), node.attributes
    kernel, count = attributes["kernel_shape"], len(src.dims) - 2
    strides = attributes.get("strides") or (1,) * count
    pads = attributes.get("pads") or (0,) * 2 * count
    mode = attributes.get("auto_pad", "NOTSET")
    extents = []
    for axis, (n, k, s) in enumerate(zip(src.dims[2:], kernel, strides, strict=True)):
        total = pads[axis] + pads[axis + count] if mode == "NOTSET" else 0
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            extents.append(-(-n // s))
            continue
        free = n + total - k
        steps = -(-free // s) if attributes.get("ceil_mode") else free // s
        last_starts_inside = steps * s < n + pads[axis]
        extents.append(steps + 1 if last_starts_inside else steps)
    if min(extents, default=1) < 1:
        raise ValueError("the window is longer than the image")
    return [((*src.dims[:2], *extents), src.dtype)]


def _gemm(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of a matrix product; f32 without a scale of the result."""
    a, b = _tensor(inputs, 0), _tensor(inputs, 3)
    (rows, inner), (first, second) = a.dims[:: -1 if node.attributes.get("transA") else 1], b.dims
    columns, depth = (first, second) if node.attributes.get("transB") else (second, first)
    if inner != depth:
        raise ValueError("inner extents differ")
    is_integer = len(inputs) > 7 and inputs[7] is not None
    zero = inputs[8] if len(inputs) > 8 else None
    return [((rows, columns), (a.dtype if zero is None else zero.dtype) if is_integer else _F32)]


def _matmul_nbits(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of a product with a matrix of integers of few bits."""
    src, attributes = _tensor(inputs, 0), node.attributes
    rows, columns, block = (operator.index(attributes[name]) for name in ("K", "N", "block_size"))
    bits = attributes.get("bits", 4)
    if min(rows, columns, block) < 1 or block * bits % 8 or src.dims[-1] != rows:
        raise ValueError("the attributes do not fit")
    blocks = -(-rows // block)
    sizes = {1: blocks * block * bits // 8, 2: blocks, 3: -(-blocks * bits // 8), 5: 1}
    for place, size in sizes.items():
        tensor = inputs[place] if place < len(inputs) else None
        if tensor is not None and prod(tensor.dims) != columns * size:
            raise ValueError(f"input {place} has another number of elements")
    return [((*src.dims[:-1], columns), src.dtype)]


def _group_query_attention(node: Node, inputs: Inputs) -> _Results:
    """Return the dims of attention, and of keys and values with those of the past."""
    query, heads = _tensor(inputs, 0), node.attributes["num_heads"]
    kv_heads = node.attributes["kv_num_heads"]
    is_packed = inputs[1] is None
    batch, length, width = query.dims
    size = width // (heads + 2 * kv_heads) if is_packed else width // heads
    past = inputs[3] if len(inputs) > 3 else None
    total = length if past is None else max(past.dims[2], length)
    cache = ((batch, kv_heads, total, size), query.dtype)
    return [((batch, length, heads * size), query.dtype), cache, cache]


_INFERENCE: Mapping[str, Callable[[Node, Inputs], _Results]] = MappingProxyType(
    {
        "GroupQueryAttention": _group_query_attention,
        "MatMulNBits": _matmul_nbits,
        "QGemm": _gemm,
        "QLinearAdd": _broadcast,
        "QLinearAveragePool": _pool,
        "QLinearConcat": _concat,
        "QLinearGlobalAveragePool": _global_pool,
        "QLinearLeakyRelu": _same,
        "QLinearMul": _broadcast,
        "QLinearSigmoid": _same,
        "QLinearSoftmax": _same,
    }
)
"""Function of each operator that returns dims and types of its results."""
