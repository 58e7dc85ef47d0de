"""Constant folding: the results of nodes whose inputs are all constant, and the bounds of what that costs.

Exporters compute shapes with nodes: Shape, Gather, Concat, Cast, Expand. Once dims are numbers, all of these are
constants. The size of a result is bounded before it is computed, since a few bytes of a file can describe a tensor that
exceeds any memory. ConstantOfShape and Expand allocate nothing: their results are views with stride 0.

Source: ONNX, "Operators".
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlay.errors import OutOfMemory, Unimplemented
from inlay.graph.network import Node, Tensor, read_only
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.numpy_operators.random_numbers import RANDOM_OPERATORS
from inlay.graph.op_graph import Array

MOST_FOLDED = 1 << 30
"""Limit on the bytes of all constants that are computed at import."""

MOST_OPERATIONS = 1 << 34
"""Limit on the multiplications and additions that are computed at import; they take a few seconds."""

SHORTENING = frozenset({"NonZero", "Unique", "Compress"})
"""Operators whose result dims depend on elements; their results are at most a small multiple of their inputs' size."""


def fold_constants(
    node: Node, opset: int, tensors: Sequence[Tensor | None], values: Mapping[str, Array]
) -> dict[str, Array] | None:
    """Return the results of a node with constant inputs, by name, read-only; None if NumPy cannot compute the node.

    `tensors` are the node's results, None where unknown. The caller has checked that their bytes are within
    `MOST_FOLDED`.

    Raises:
        InvalidArguments: the operator does not allow these constants.
        MissingExtra: the package onnx is not installed.
    """
    result = next((tensor for tensor in tensors if tensor is not None), None)
    if node.operator == "ConstantOfShape" and result is not None:
        fill = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)[:1]
        return {result.name: np.broadcast_to(fill.reshape(()), result.dims)}
    if node.operator == "Expand" and result is not None:
        return {result.name: np.broadcast_to(values[node.inputs[0]], result.dims)}
    try:
        results = compute_node(node, opset, {name: values[name] for name in node.inputs if name})
    except (OutOfMemory, Unimplemented):
        return None
    return {name: read_only(array) for name, array in results.items()}


def constant_value(node: Node) -> Array | None:
    """Return the elements of a Constant node; None for any other node.

    Raises:
        Unimplemented: the constant is sparse, or holds texts.
    """
    if node.operator != "Constant":
        return None
    for name, value in node.attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in ("value_float", "value_floats"):
            return read_only(np.array(value, np.float32))
        if name in ("value_int", "value_ints"):
            return read_only(np.array(value, np.int64))
    attributes = ", ".join(node.attributes) or "nothing"
    raise Unimplemented(
        f"node {node.name!r}: Constant holds {attributes}: only dense tensors of numbers and booleans are supported"
    )


def fold_shape(node: Node, src: Tensor) -> Array | None:
    """Return the result of Shape or Size of a tensor with known dims; None for any other node."""
    if node.operator == "Size":
        return read_only(np.array(math.prod(src.dims), np.int64))
    if node.operator != "Shape":
        return None
    axes = slice(node.attributes.get("start", 0), node.attributes.get("end"))
    return read_only(np.array(src.dims[axes], np.int64))


def is_foldable(node: Node, values: Mapping[str, Any]) -> bool:
    """Return whether a node can be folded: all of its inputs are constant, and its operator is not random."""
    return node.operator not in RANDOM_OPERATORS and all(name in values for name in node.inputs if name)


def keeps_integers(node: Node, values: Mapping[str, Array]) -> bool:
    """Return whether a node is a DequantizeLinear of integers to f32, which operators on integers may read instead.

    `passes.quantization` folds those that no such operator reads.
    """
    if node.operator != "DequantizeLinear" or values[node.inputs[0]].size <= 1:
        return False
    return values[node.inputs[1]].dtype == np.float32 and values[node.inputs[0]].dtype.name in _KEPT_INTEGERS


_KEPT_INTEGERS = frozenset({"int4", "uint4", "int8", "uint8", "int32"})


def count_fold_bytes(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """Return an upper bound of the bytes that NumPy writes to compute a node with constant inputs.

    Inputs with stride 0, such as results of Expand, count as if NumPy copied them, unless the operator returns views.
    """
    inputs = [values[name] for name in node.inputs if name]
    total = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    if node.operator not in VIEWING:
        total += sum(_WIDEST * array.size for array in inputs if is_broadcast(array))
    if node.operator in SHORTENING:
        total += sum(_WIDEST * array.size * max(array.ndim, 3) for array in inputs)
    return total


def is_broadcast(array: Array) -> bool:
    """Return whether an axis of an array has stride 0, so that several elements share memory."""
    return any(n > 1 and not stride for n, stride in zip(array.shape, array.strides, strict=True))


def count_fold_operations(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """Return an estimate of the multiplications and additions that compute a node with constant inputs."""
    inputs = [values[name] for name in node.inputs if name]
    result = sum(int(math.prod(tensor.dims)) for tensor in tensors if tensor is not None)
    if node.operator in _PRODUCTS and len(inputs) > 1:
        weights = inputs[1]
        inner = inputs[0].shape[-1:] if node.operator in ("Gemm", "MatMul", "MatMulInteger") else weights.shape[1:]
        return int(result * math.prod(inputs[0].shape[:1] if node.attributes.get("transA") else inner))
    if node.operator == "Einsum":
        return math.prod(int(array.size) for array in inputs)
    if node.operator in ("AveragePool", "LpPool", "MaxPool"):
        return result * math.prod(int(n) for n in node.attributes.get("kernel_shape", ()))
    if node.operator in ("GRU", "LSTM", "RNN"):
        return sum(int(array.size) for array in inputs) * max(inputs[0].shape, default=1)
    return result + sum(array.size for array in inputs)


_PRODUCTS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger"})
_WIDEST = 8  # bytes of an element that NumPy computes with

VIEWING = frozenset({"Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that read no more elements of a constant than they return."""
