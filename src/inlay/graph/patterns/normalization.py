"""LayerNormalization that exports before opset 17 write in parts: mean, deviation, variance, root, quotient.

    mean = ReduceMean(x)     deviation = x - mean     variance = ReduceMean(deviation ^ 2)
    y = deviation / sqrt(variance + epsilon)          and then times a scale, plus a shift, along the same axes

The quotient becomes a LayerNormalization with scale 1; products and sums with constants after one go into its scale
and shift, whoever wrote it.

Source: Ba, Kiros and Hinton, "Layer Normalization", 2016; ONNX, "Operators": LayerNormalization.
"""

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.op import Array
from inlay.graph.patterns.rewriting import Draft, rewritten

_TYPES = ("float32", "float64")


def normalizations_whole(network: Network) -> Network:
    """The network with each LayerNormalization in one node; its outputs are the same within rounding."""
    return rewritten(rewritten(network, _normalization), _scaled)


def _normalization(draft: Draft, node: Node) -> Node | None:
    """The LayerNormalization that a quotient is."""
    deviation = draft.made_by(node.inputs[0], "Sub") if node.operator == "Div" else None
    root = draft.made_by(node.inputs[1], "Sqrt") if deviation is not None else None
    total = draft.made_by(root.inputs[0], "Add") if root is not None else None
    if deviation is None or total is None or draft.tensors[node.outputs[0]].dtype.name not in _TYPES:
        return None
    x = deviation.inputs[0]
    axis = _mean_axis(draft, deviation.inputs[1], x)
    for variance, added in (total.inputs, total.inputs[::-1]):
        epsilon = draft.scalar(added)
        if epsilon is not None and axis is not None and _is_variance(draft, variance, node.inputs[0], axis):
            return _layer_normalization(draft, node, x, axis, epsilon)
    return None


def _layer_normalization(draft: Draft, node: Node, x: str, axis: int, epsilon: float) -> Node:
    ones = np.ones(draft.dims(x)[axis:], draft.tensors[x].dtype)
    scale = draft.constant(f"{node.outputs[0]}:scale", ones)
    attributes = {"axis": axis, "epsilon": epsilon, "stash_type": 1}
    return Node(node.name, "LayerNormalization", (x, scale), node.outputs, attributes)


def _is_variance(draft: Draft, name: str, deviation: str, axis: int) -> bool:
    """Whether a tensor is the mean of the squares of the deviation; a copy of its node is as good."""
    mean = draft.made_by(name, "ReduceMean")
    square = draft.producer(mean.inputs[0]) if mean is not None else None
    if square is None or _mean_axis(draft, name, square.outputs[0]) != axis:
        return False
    if square.operator == "Pow":
        return draft.scalar(square.inputs[1]) == 2 and _same(draft, square.inputs[0], deviation)
    return square.operator == "Mul" and all(_same(draft, side, deviation) for side in square.inputs)


def _same(draft: Draft, name: str, other: str) -> bool:
    """Whether two tensors are one, or are written by nodes that do the same to the same."""
    first, second = draft.producer(name), draft.producer(other)
    if name == other or first is None or second is None:
        return name == other
    return first.operator == second.operator == "Sub" and first.inputs == second.inputs


def _mean_axis(draft: Draft, name: str, x: str) -> int | None:
    """The first axis of a mean over the last axes of x that keeps them as 1; None for any other tensor."""
    node = draft.made_by(name, "ReduceMean")
    if node is None or node.inputs[0] != x or not node.attributes.get("keepdims", 1):
        return None
    ndims = len(draft.dims(x))
    stored = draft.constants.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    axes = stored.reshape(-1).tolist() if stored is not None else node.attributes.get("axes", ())
    if node.attributes.get("noop_with_empty_axes", 0) and not axes:
        return None
    last = sorted(axis % ndims for axis in axes) if axes else list(range(ndims))
    return last[0] if last == list(range(last[0], ndims)) and ndims else None


# Scale and shift


def _scaled(draft: Draft, node: Node) -> Node | None:
    """A LayerNormalization that has taken in the product or sum with a constant after it."""
    if node.operator not in ("Mul", "Add"):
        return None
    for src, other in (node.inputs, node.inputs[::-1]):
        before = draft.made_by(src, "LayerNormalization")
        array = draft.constants.get(other)
        if before is not None and array is not None and draft.is_read_once(src) and _first_result_alone(before):
            return _taken_in(draft, node, before, array)
    return None


def _first_result_alone(node: Node) -> bool:
    return not any(node.outputs[1:])


def _taken_in(draft: Draft, node: Node, before: Node, array: Array) -> Node | None:
    dims = draft.dims(before.outputs[0])
    own = dims[int(before.attributes.get("axis", -1)) % len(dims) :]
    held = [draft.constants.get(name) for name in before.inputs[1:] if name]
    same = draft.dims(node.outputs[0]) == dims and array.dtype.name in _TYPES
    if not same or not _fits(array, own) or any(value is None for value in held):
        return None
    scale, *shift = held
    factor = np.broadcast_to(array.reshape(array.shape[max(0, array.ndim - len(own)) :]), own).astype(np.float64)
    scales, shifts = np.asarray(scale, np.float64), np.asarray(shift[0] if shift else np.zeros(own), np.float64)
    scales, shifts = (scales * factor, shifts * factor) if node.operator == "Mul" else (scales, shifts + factor)
    names = [draft.constant(f"{node.outputs[0]}:scale", np.broadcast_to(scales, own).astype(array.dtype))]
    names.append(draft.constant(f"{node.outputs[0]}:shift", np.broadcast_to(shifts, own).astype(array.dtype)))
    return Node(before.name, before.operator, (before.inputs[0], *names), node.outputs, before.attributes)


def _fits(array: Array, own: tuple[int, ...]) -> bool:
    """Whether an array is spread over the axes of the normalization alone."""
    outer, inner = array.shape[: max(0, array.ndim - len(own))], array.shape[max(0, array.ndim - len(own)) :]
    aligned = own[len(own) - len(inner) :]
    return all(n == 1 for n in outer) and all(n in (1, whole) for n, whole in zip(inner, aligned, strict=True))
