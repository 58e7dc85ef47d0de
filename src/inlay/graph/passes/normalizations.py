"""Patterns of a `Network` that are normalizations: LayerNormalization and RMSNormalization in several nodes.

Exporters write LayerNormalization as several nodes before opset 17, and RMSNormalization before opset 23:

    mean = ReduceMean(x)     deviation = x - mean     variance = ReduceMean(deviation ^ 2)
    y = deviation / sqrt(variance + epsilon)          LayerNormalization

    square = ReduceMean(x ^ 2)
    y = x / sqrt(square + epsilon)                    RMSNormalization (Llama, Qwen, T5)

and then times a scale, plus a shift, along the same axes. Squares are `Pow(x, 2)` or `Mul(x, x)`. Instead of a quotient
by the root, there may be a product with its reciprocal, by `Reciprocal`, `Div` or `Pow`. The quotient becomes a
normalization with scale 1. Products and sums with constants after any normalization are folded into its scale and
shift; an RMSNormalization has no shift.

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016; Zhang and Sennrich, "Root Mean Square Layer Normalization",
2019; ONNX, "Operators": LayerNormalization, RMSNormalization.
"""

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes

_REAL_TYPES = ("float32", "float64")
"""Types of the normalizations that are rewritten."""

_FOLDABLE = {"LayerNormalization": ("Mul", "Add"), "RMSNormalization": ("Mul",)}
"""Operators with a constant that are folded into a normalization, by the normalization's operator."""


def fuse_normalizations(network: Network) -> Network:
    """Return the network with one node for each normalization; its outputs are the same within rounding."""
    return rewrite_nodes(rewrite_nodes(network, _match_normalization), _fold_into_normalization)


def _match_normalization(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the normalization that a quotient or product computes; None if it computes none."""
    if node.operator not in ("Div", "Mul") or rewriter.tensors[node.outputs[0]].dtype.name not in _REAL_TYPES:
        return None
    for numerator, total in _quotients_by_root(rewriter, node):
        for square, added in (total.inputs, total.inputs[::-1]):
            epsilon = rewriter.scalar(added)
            if epsilon is not None and rewriter.dims(numerator) == rewriter.dims(node.outputs[0]):
                match = _match_layer(rewriter, node, numerator, square, epsilon)
                match = match or _match_rms(rewriter, node, numerator, square, epsilon)
                if match is not None:
                    return match
    return None


def _quotients_by_root(rewriter: NetworkRewriter, node: Node) -> list[tuple[str, Node]]:
    """Return each tensor that a node divides by the root of a sum, with the node that computes the sum."""
    pairs = {"Div": [node.inputs], "Mul": [node.inputs, node.inputs[::-1]]}.get(node.operator, [])
    exponent = 0.5 if node.operator == "Div" else -0.5
    found = []
    for numerator, other in pairs:
        base = _rooted(rewriter, other, exponent)
        total = None if base is None else rewriter.producer_of_kind(base, "Add")
        if total is not None:
            found.append((numerator, total))
    return found


def _rooted(rewriter: NetworkRewriter, name: str, exponent: float) -> str | None:
    """Return the tensor whose power by `exponent`, 0.5 or -0.5, a tensor is; None if it is none."""
    node = rewriter.producer(name)
    if node is None:
        return None
    if node.operator == "Pow":
        return node.inputs[0] if rewriter.scalar(node.inputs[1]) == exponent else None
    if exponent > 0:
        return node.inputs[0] if node.operator == "Sqrt" else None
    if node.operator == "Reciprocal":
        return _rooted(rewriter, node.inputs[0], 0.5)
    is_reciprocal = node.operator == "Div" and rewriter.scalar(node.inputs[0]) == 1
    return _rooted(rewriter, node.inputs[1], 0.5) if is_reciprocal else None


def _match_layer(rewriter: NetworkRewriter, node: Node, numerator: str, square: str, epsilon: float) -> Node | None:
    """Return the LayerNormalization that `numerator` over the root of `square` + `epsilon` is; None if it is none."""
    deviation = rewriter.producer_of_kind(numerator, "Sub")
    axis = None if deviation is None else _mean_axis(rewriter, deviation.inputs[1], deviation.inputs[0])
    if deviation is None or axis is None or not _is_mean_square(rewriter, square, numerator, axis):
        return None
    return _normalization(rewriter, node, "LayerNormalization", deviation.inputs[0], axis, epsilon)


def _match_rms(rewriter: NetworkRewriter, node: Node, numerator: str, square: str, epsilon: float) -> Node | None:
    """Return the RMSNormalization that `numerator` over the root of `square` + `epsilon` is; None if it is none."""
    mean = rewriter.producer_of_kind(square, "ReduceMean")
    axis = None if mean is None else _mean_axis(rewriter, square, mean.inputs[0])
    if axis is None or not _is_mean_square(rewriter, square, numerator, axis):
        return None
    return _normalization(rewriter, node, "RMSNormalization", numerator, axis, epsilon)


def _normalization(
    rewriter: NetworkRewriter, node: Node, operator: str, x: str, axis: int, epsilon: float
) -> Node | None:
    """Return a normalization of x with scale 1 in place of `node`; None if the result has other dims than x."""
    if rewriter.dims(x) != rewriter.dims(node.outputs[0]):
        return None
    ones = np.ones(rewriter.dims(x)[axis:], rewriter.tensors[x].dtype)
    scale = rewriter.add_constant(f"{node.outputs[0]}:scale", ones)
    attributes = {"axis": axis, "epsilon": epsilon, "stash_type": 1}
    return Node(node.name, operator, (x, scale), node.outputs, attributes)


def _is_mean_square(rewriter: NetworkRewriter, name: str, x: str, axis: int) -> bool:
    """Return whether a tensor is the mean of the squares of x, or of an equal tensor."""
    mean = rewriter.producer_of_kind(name, "ReduceMean")
    square = rewriter.producer(mean.inputs[0]) if mean is not None else None
    if square is None or _mean_axis(rewriter, name, square.outputs[0]) != axis:
        return False
    if square.operator == "Pow":
        return rewriter.scalar(square.inputs[1]) == 2 and _is_same_value(rewriter, square.inputs[0], x)
    return square.operator == "Mul" and all(_is_same_value(rewriter, side, x) for side in square.inputs)


def _is_same_value(rewriter: NetworkRewriter, name: str, other: str) -> bool:
    """Return whether two tensors are the same, or are computed by subtractions with the same inputs."""
    first, second = rewriter.producer(name), rewriter.producer(other)
    if name == other or first is None or second is None:
        return name == other
    return first.operator == second.operator == "Sub" and first.inputs == second.inputs


def _mean_axis(rewriter: NetworkRewriter, name: str, x: str) -> int | None:
    """Return the first axis of a mean over the last axes of x; None for a tensor that is no such mean.

    The mean must keep these axes with length 1.
    """
    node = rewriter.producer_of_kind(name, "ReduceMean")
    if node is None or node.inputs[0] != x or not node.attributes.get("keepdims", 1):
        return None
    ndims = len(rewriter.dims(x))
    if not ndims:
        return None
    stored = rewriter.constants.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    axes = stored.reshape(-1).tolist() if stored is not None else node.attributes.get("axes", ())
    if node.attributes.get("noop_with_empty_axes", 0) and not axes:
        return None
    last = sorted(axis % ndims for axis in axes) if axes else list(range(ndims))
    return last[0] if last == list(range(last[0], ndims)) else None


def _fold_into_normalization(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a normalization that includes the product or sum with a constant after it; None if there is none."""
    if node.operator not in _FOLDABLE["LayerNormalization"]:
        return None
    for src, other in (node.inputs, node.inputs[::-1]):
        producer, array = rewriter.producer(src), rewriter.constants.get(other)
        if producer is None or array is None or not rewriter.is_read_once(src) or any(producer.outputs[1:]):
            continue
        if producer.operator == "LayerNormalization" or (producer.operator, node.operator) == (
            "RMSNormalization",
            "Mul",
        ):
            return _with_affine(rewriter, node, producer, array)
    return None


def _with_affine(rewriter: NetworkRewriter, node: Node, producer: Node, array: Array) -> Node | None:
    """Return a normalization whose scale or shift includes `array`; None if its axes or types do not fit."""
    dims = rewriter.dims(producer.outputs[0])
    own = dims[int(producer.attributes.get("axis", -1)) % len(dims) :]
    arrays = [rewriter.constants.get(name) for name in producer.inputs[1:] if name]
    same = rewriter.dims(node.outputs[0]) == dims and array.dtype.name in _REAL_TYPES
    if not same or not _is_over_normalized_axes(array, own) or any(value is None for value in arrays):
        return None
    scale, *shift = arrays
    factor = np.broadcast_to(array.reshape(array.shape[max(0, array.ndim - len(own)) :]), own).astype(np.float64)
    scales, shifts = np.asarray(scale, np.float64), np.asarray(shift[0] if shift else np.zeros(own), np.float64)
    scales, shifts = (scales * factor, shifts * factor) if node.operator == "Mul" else (scales, shifts + factor)
    names = [rewriter.add_constant(f"{node.outputs[0]}:scale", np.broadcast_to(scales, own).astype(array.dtype))]
    if producer.operator == "LayerNormalization":
        moved = np.broadcast_to(shifts, own).astype(array.dtype)
        names.append(rewriter.add_constant(f"{node.outputs[0]}:shift", moved))
    return Node(producer.name, producer.operator, (producer.inputs[0], *names), node.outputs, producer.attributes)


def _is_over_normalized_axes(array: Array, own: tuple[int, ...]) -> bool:
    """Return whether an array is broadcast over all axes but the normalized ones, whose extents are `own`."""
    split = max(0, array.ndim - len(own))
    outer, inner = array.shape[:split], array.shape[split:]
    aligned = own[len(own) - len(inner) :]
    return all(n == 1 for n in outer) and all(n in (1, extent) for n, extent in zip(inner, aligned, strict=True))
