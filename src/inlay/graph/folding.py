"""Constants that follow from constants, computed when a model is read.

Exports compute shapes with nodes: Shape, Gather, Concat, Cast, Expand. Once dims are numbers, all of these are
constants. What a fold may take is bounded before it is computed, since a few bytes of a file can ask for a tensor that
no machine holds; a fill or a broadcast takes no memory at all, as its elements all lie in one place.

Source: ONNX, "Operators"; the package onnx, `onnx.reference`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlay.errors import OutOfMemory, Unimplemented
from inlay.graph.network import Node, Tensor
from inlay.graph.nodes import computed
from inlay.graph.op import Array

MOST_FOLDED = 1 << 30
"""Bytes of all constants that are computed when a model is read."""

MOST_OPERATIONS = 1 << 34
"""Multiplications and additions that are computed when a model is read: a few seconds."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""Operators that give something else at each run, or may."""

SHORTENING = frozenset({"NonZero", "Unique", "Compress"})
"""Operators whose dims follow from elements, and that give no more elements than a small multiple of what they take."""


def folded(
    node: Node, opset: int, tensors: Sequence[Tensor | None], values: Mapping[str, Array]
) -> dict[str, Array] | None:
    """What a node of constants gives, by name, read-only; None where nothing here computes it.

    `tensors` are what it gives where that is known; its bytes have been found to be few enough.

    Raises:
        InvalidArguments: the constants are not such as its operator allows.
        MissingExtra: the package onnx is not installed.
    """
    known = next((tensor for tensor in tensors if tensor is not None), None)
    if node.operator == "ConstantOfShape" and known is not None:
        fill = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)[:1]
        return {known.name: np.broadcast_to(fill.reshape(()), known.dims)}
    if node.operator == "Expand" and known is not None:
        return {known.name: np.broadcast_to(values[node.inputs[0]], known.dims)}
    try:
        results = computed(node, opset, {name: values[name] for name in node.inputs if name})
    except (OutOfMemory, Unimplemented):
        return None
    for array in results.values():
        array.flags.writeable = False
    return results


def stored_constant(node: Node) -> Array | None:
    """The elements of a node Constant; None for another node.

    Raises:
        Unimplemented: it is sparse, or holds texts.
    """
    if node.operator != "Constant":
        return None
    for name, value in node.attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in ("value_float", "value_floats"):
            return _read_only(np.array(value, np.float32))
        if name in ("value_int", "value_ints"):
            return _read_only(np.array(value, np.int64))
    held = ", ".join(node.attributes) or "nothing"
    raise Unimplemented(
        f"node {node.name!r}: Constant holds {held}: only dense tensors of numbers and booleans are supported"
    )


def size_or_dims(node: Node, src: Tensor) -> Array | None:
    """What Shape and Size give of a tensor whose dims are known; None for another node."""
    if node.operator == "Size":
        return _read_only(np.array(math.prod(src.dims), np.int64))
    if node.operator != "Shape":
        return None
    part = slice(node.attributes.get("start", 0), node.attributes.get("end"))
    return _read_only(np.array(src.dims[part], np.int64))


def foldable(node: Node, values: Mapping[str, Any]) -> bool:
    """Whether a node gives constants: all that it takes are."""
    return node.operator not in RANDOM and all(name in values for name in node.inputs if name)


def bytes_to_fold(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """The most bytes that are written when a node of constants is computed; fills and broadcasts are written out."""
    inputs = [values[name] for name in node.inputs if name]
    spread = sum(_WIDEST * array.size for array in inputs if is_spread(array)) if node.operator not in VIEWING else 0
    most = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    if node.operator in SHORTENING:
        most += sum(_WIDEST * array.size * max(array.ndim, 3) for array in inputs)
    return most + spread


def is_spread(array: Array) -> bool:
    """Whether elements of an array lie in the same place, so that it takes less memory than it has elements."""
    return any(n > 1 and not stride for n, stride in zip(array.shape, array.strides, strict=True))


def operations_to_fold(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """About how many multiplications and additions compute a node of constants."""
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
"""Operators that read no more elements of a constant than they give."""


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
