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

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Node, Tensor
from inlay.graph.nodes import computed
from inlay.graph.op import Array

MOST_FOLDED = 1 << 30
"""Bytes of all constants that are computed when a model is read."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""Operators that give something else at each run, or may."""

SHORTENING = frozenset({"NonZero", "Unique", "Compress"})
"""Operators whose dims follow from elements, and that give no more elements than a small multiple of what they take."""

_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What `onnx.reference` raises on elements and attributes that its operators do not expect."""


def folded(node: Node, opset: int, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> dict[str, Array]:
    """What a node of constants gives, by name, read-only.

    `tensors` are what it gives where that is known; its bytes have been found to be few enough.

    Raises:
        InvalidArguments: its operator cannot be computed on these elements.
        MissingExtra: the package onnx is not installed.
        Unimplemented: `onnx.reference` does not compute the operator.
    """
    known = next((tensor for tensor in tensors if tensor is not None), None)
    if node.operator == "ConstantOfShape" and known is not None:
        fill = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)[:1]
        return {known.name: np.broadcast_to(fill.reshape(()), known.dims)}
    if node.operator == "Expand" and known is not None:
        return {known.name: np.broadcast_to(values[node.inputs[0]], known.dims)}
    try:
        results = computed(node, opset, {name: values[name] for name in node.inputs if name})
    except Unimplemented:
        raise
    except _FAILURES as error:
        raise InvalidArguments(
            f"node {node.name!r}: {node.operator} cannot be computed on its constants: correct the model, or give its "
            "inputs other dims"
        ) from error
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


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor, as one that is stored whole."""
    return math.prod(tensor.dims) * tensor.dtype.itemsize


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
