"""Scales and shifts of channels, folded into the weights of what comes before them.

BatchNormalization with fixed statistics, and products and sums with a constant for each channel, are `a x + b` with an
a and a b for each channel. After a Conv, a ConvTranspose or a Gemm of constants they go into its weights and bias,
after a BatchNormalization into its scale and shift. Factors and biases are computed in f64 and
rounded once; weights are multiplied in their own type.

Source: ONNX, "Operators": BatchNormalization, Conv, ConvTranspose, Gemm.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.graph.network import Network, Node
from inlay.graph.op import Array
from inlay.graph.patterns.rewriting import Draft, rewritten

Doubles = npt.NDArray[np.float64]
Affine = tuple[Doubles, Doubles]
"""Factor and addend, an element for each channel."""

_TYPES = ("float32", "float64")


def affine_folded(network: Network) -> Network:
    """The network with the scales and shifts of channels in weights; its outputs are the same within rounding."""
    return rewritten(network, _folded)


def _folded(draft: Draft, node: Node) -> Node | None:
    """What stands for a scale or shift and the node before it."""
    for src, other in _sides(node):
        before = draft.producer(src)
        if before is None or before.operator not in _TAKERS or not draft.is_read_once(src):
            continue
        if draft.tensors[src].dtype.name not in _TYPES or draft.dims(src) != draft.dims(node.outputs[0]):
            continue
        affine = _affine(draft, node, draft.dims(src), other)
        if affine is not None:
            return _TAKERS[before.operator](draft, node, before, affine)
    return None


def _sides(node: Node) -> tuple[tuple[str, str], ...]:
    """What is scaled, and by what: either input may be the constant."""
    if node.operator in ("Mul", "Add"):
        return (node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])
    if node.operator in ("Sub", "Div"):
        return ((node.inputs[0], node.inputs[1]),)
    return ((node.inputs[0], ""),) if is_fixed_normalization(node) else ()


def is_fixed_normalization(node: Node) -> bool:
    """Whether a node is a BatchNormalization by given statistics, which it answers no more than the result."""
    training = node.attributes.get("training_mode", 0)
    return node.operator == "BatchNormalization" and not training and not any(node.outputs[1:])


def _affine(draft: Draft, node: Node, dims: tuple[int, ...], other: str) -> Affine | None:
    """Factor and addend of each channel."""
    channels = dims[1] if len(dims) > 1 else 0
    if node.operator == "BatchNormalization":
        return _of_normalization(draft, node)
    array = draft.constants.get(other)
    if array is None or not channels or not _is_per_channel(array, dims):
        return None
    values = np.broadcast_to(np.asarray(array, np.float64).reshape(-1), channels)
    zeros, ones = np.zeros(channels), np.ones(channels)
    with np.errstate(all="ignore"):
        by = {"Mul": (values, zeros), "Add": (ones, values), "Sub": (ones, -values), "Div": (1 / values, zeros)}
    return by[node.operator]


def _is_per_channel(array: Array, dims: tuple[int, ...]) -> bool:
    """Whether an array that is spread over dims differs along axis 1 alone."""
    if array.ndim > len(dims):
        return False
    shape = (1,) * (len(dims) - array.ndim) + array.shape
    return all(n == 1 or (axis == 1 and n == dims[1]) for axis, n in enumerate(shape))


def _of_normalization(draft: Draft, node: Node) -> Affine | None:
    held = [draft.constants.get(name) for name in node.inputs[1:5]]
    if len(held) != 4 or any(array is None for array in held):
        return None
    scale, shift, mean, variance = (np.asarray(array, np.float64) for array in held)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
        addend = shift - mean * factor
    return (factor, addend) if np.isfinite(factor).all() and np.isfinite(addend).all() else None


# What takes them


def _into_conv(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """Conv has an output channel to each row of its weights."""
    weights = draft.constants.get(before.inputs[1])
    if weights is None:
        return None
    return _with_weights(draft, node, before, _along(weights, affine[0], 0), affine)


def _into_transposed(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """ConvTranspose has input channels in rows, and in each group the group's output channels in columns."""
    weights = draft.constants.get(before.inputs[1])
    if weights is None:
        return None
    groups = int(before.attributes.get("group", 1))
    split = weights.reshape(groups, weights.shape[0] // groups, *weights.shape[1:])
    factor = affine[0].astype(weights.dtype).reshape(groups, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
    return _with_weights(draft, node, before, (split * factor).reshape(weights.shape), affine)


def _with_weights(draft: Draft, node: Node, before: Node, weights: Array, affine: Affine) -> Node | None:
    """The convolution with these weights, and the bias scaled and shifted."""
    bias: Any = 0.0
    if len(before.inputs) > 2 and before.inputs[2]:
        bias = draft.constants.get(before.inputs[2])
        if bias is None:
            return None
    shifted = np.asarray(bias, np.float64) * affine[0] + affine[1]
    names = _added(draft, node, weights, shifted.astype(weights.dtype))
    return Node(before.name, before.operator, (before.inputs[0], *names), node.outputs, before.attributes)


def _into_gemm(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """Gemm has an output channel to each column of its second matrix, alpha and beta aside."""
    weights = draft.constants.get(before.inputs[1])
    bias = draft.constants.get(before.inputs[2]) if len(before.inputs) > 2 and before.inputs[2] else np.zeros(1)
    if weights is None or bias is None or bias.ndim > 2 or bias.shape[:-1] not in ((), (1,)):
        return None
    axis = 0 if before.attributes.get("transB", 0) else 1
    shifted = np.asarray(bias, np.float64).reshape(-1) * before.attributes.get("beta", 1.0) * affine[0] + affine[1]
    names = _added(draft, node, _along(weights, affine[0], axis), shifted.astype(weights.dtype))
    attributes = {**before.attributes, "beta": 1.0}
    return Node(before.name, before.operator, (before.inputs[0], *names), node.outputs, attributes)


def _into_normalization(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """BatchNormalization has a scale and a shift for each channel."""
    if not is_fixed_normalization(before):
        return None
    scale, shift = (draft.constants.get(name) for name in before.inputs[1:3])
    if scale is None or shift is None:
        return None
    scales = np.asarray(scale, np.float64) * affine[0]
    shifts = np.asarray(shift, np.float64) * affine[0] + affine[1]
    names = _added(draft, node, scales.astype(scale.dtype), shifts.astype(shift.dtype))
    inputs = (before.inputs[0], *names, *before.inputs[3:])
    return Node(before.name, before.operator, inputs, node.outputs, before.attributes)


_TAKERS = {
    "BatchNormalization": _into_normalization,
    "Conv": _into_conv,
    "ConvTranspose": _into_transposed,
    "Gemm": _into_gemm,
}


def _along(weights: Array, factor: Doubles, axis: int) -> Array:
    shape = [1] * weights.ndim
    shape[axis] = -1
    return np.asarray(weights * factor.astype(weights.dtype).reshape(shape))


def _added(draft: Draft, node: Node, *arrays: Array) -> list[str]:
    """Names of new weights and their bias."""
    return [draft.constant(f"{node.outputs[0]}:{part}", a) for part, a in zip(("weights", "bias"), arrays, strict=True)]
