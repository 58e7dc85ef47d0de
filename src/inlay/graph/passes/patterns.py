"""Patterns of a `Network`: nodes that stand for nothing, or for one operation together, and what replaces them.

**Nodes that give what they take**: Identity, Dropout when a network runs, casts and reshapes to the same.

**Activations** that exports write in parts: Gelu by erf or tanh, HardSwish, Swish (SiLU), Mish. Each is a product of
its input with a function of it, and of numbers that stand anywhere in the product: before it, between, after it. So a
product is read as a number and the tensors that it multiplies, in every way that is a few nodes deep, and each way is
compared with the formulas.

**LayerNormalization** that exports before opset 17 write in parts: mean, deviation, variance, root, quotient.

    mean = ReduceMean(x)     deviation = x - mean     variance = ReduceMean(deviation ^ 2)
    y = deviation / sqrt(variance + epsilon)          and then times a scale, plus a shift, along the same axes

The quotient becomes a LayerNormalization with scale 1; products and sums with constants after one go into its scale
and shift, whoever wrote it.

**Scales and shifts of channels**, folded into the weights of what comes before them. BatchNormalization with fixed
statistics, and products and sums with a constant for each channel, are `a x + b` with an a and a b for each channel.
After a Conv, a ConvTranspose or a Gemm of constants they go into its weights and bias, after a BatchNormalization into
its scale and shift. Factors and biases are computed in f64 and rounded once; weights are multiplied in their own type.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; Ba, Kiros and Hinton, "Layer Normalization", 2016;
ONNX, "Operators": BatchNormalization, Conv, ConvTranspose, Gelu, Gemm, LayerNormalization, Mish, Swish.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.graph.network import Network, Node
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import Draft, rewritten, without_dead

# Nodes that give what they take

_SAME_IF_DIMS = frozenset({"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})
"""Operators that keep elements and their order, so that equal dims and types say all."""

_SAME_IF_ALONE = frozenset({"Concat", "Sum", "Max", "Min", "Mean"})
"""Operators of many inputs that give the only one as it is."""


def without_noops(network: Network) -> Network:
    """The network without the nodes that give what they take; one that answers an input or a constant stays.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> nodes = (Node("a", "Identity", ("x",), ("t",)), Node("b", "Relu", ("t",), ("y",)))
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xty"}
    >>> [node.inputs for node in without_noops(Network("", 17, ("x",), ("y",), nodes, tensors)).nodes]
    [('x',)]
    """
    draft = Draft(network)
    same: dict[str, str] = {}
    nodes = []
    for node in network.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if _is_noop(draft, node) and node.outputs[0] not in network.outputs:
            same[node.outputs[0]] = node.inputs[0]
        else:
            nodes.append(node)
    return _answered(without_dead(replace(network, nodes=tuple(nodes))))


def _is_noop(draft: Draft, node: Node) -> bool:
    """Whether the first result is the first input, and the others are not asked for."""
    if not node.inputs or any(draft.is_read(name) for name in node.outputs[1:]):
        return False
    src, dst = draft.tensors[node.inputs[0]], draft.tensors[node.outputs[0]]
    if (src.dims, src.dtype) != (dst.dims, dst.dtype):
        return False
    if node.operator == "Transpose":
        perm = node.attributes.get("perm", tuple(reversed(range(len(src.dims)))))
        return tuple(perm) == tuple(range(len(src.dims)))
    if node.operator == "Dropout":
        return not _is_training(draft, node)
    return node.operator in _SAME_IF_DIMS or (node.operator in _SAME_IF_ALONE and len(node.inputs) == 1)


def _is_training(draft: Draft, node: Node) -> bool:
    """Whether a Dropout drops: only where its third input may be true."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return False
    mode = draft.constants.get(node.inputs[2])
    return mode is None or bool(mode.reshape(-1)[0])


def _answered(network: Network) -> Network:
    """Each output that a no-op gives is written by who writes what it takes, where that is a node and no output."""
    draft = Draft(network)
    renamed: dict[str, str] = {}
    for node in network.nodes:
        if node.outputs[0] in network.outputs and _is_noop(draft, node):
            source = node.inputs[0]
            if draft.producer(source) is not None and source not in network.outputs and source not in renamed:
                renamed[source] = node.outputs[0]
    dropped = set(renamed.items())
    kept = [node for node in network.nodes if not node.inputs or (node.inputs[0], node.outputs[0]) not in dropped]
    return without_dead(replace(network, nodes=tuple(_with_names(node, renamed) for node in kept)))


def _with_names(node: Node, names: Mapping[str, str]) -> Node:
    inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


# Activations

Product: TypeAlias = tuple[float, tuple[str, ...]]
"""A number, and the tensors it is multiplied with."""

Found: TypeAlias = tuple[str, dict[str, Any]] | None
"""An operator and its attributes."""

_DEPTH = 2
_TOLERANCE = 1e-3
"""Exports round the numbers of these formulas to a few digits."""

_TYPES = ("float32", "float16", "bfloat16")


def activations_whole(network: Network) -> Network:
    """The network with activations in parts as one node each; its outputs are the same within rounding.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> nodes = (Node("s", "Sigmoid", ("x",), ("t",)), Node("m", "Mul", ("x", "t"), ("y",)))
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xty"}
    >>> activations_whole(Network("", 17, ("x",), ("y",), nodes, tensors)).nodes
    (Node(name='m', operator='Swish', inputs=('x',), outputs=('y',), attributes={'alpha': 1.0}, domain=''),)
    """
    return rewritten(network, _activation)


def _activation(draft: Draft, node: Node) -> Node | None:
    """The activation that a product or quotient is."""
    if node.operator not in ("Mul", "Div") or draft.tensors[node.outputs[0]].dtype.name not in _TYPES:
        return None
    for number, tensors in _products(draft, node.outputs[0], _DEPTH):
        if len(tensors) != 2:
            continue
        for x, factor in (tensors, tensors[::-1]):
            found = _formula(draft, number, x, factor)
            if found is not None and draft.dims(x) == draft.dims(node.outputs[0]):
                return Node(node.name, found[0], (x,), node.outputs, found[1])
    return None


def _formula(draft: Draft, number: float, x: str, factor: str) -> Found:
    """What `number` times x times `factor` is, if anything."""
    return next((found for formula in _FORMULAS if (found := formula(draft, number, x, factor)) is not None), None)


def _gelu(draft: Draft, number: float, x: str, factor: str) -> Found:
    """0.5 x (1 + erf(x / sqrt 2)), or with a tanh that is near it."""
    inner = _plus(draft, factor, 1)
    node = None if inner is None else draft.producer(inner)
    if node is None or not _near(number, 0.5):
        return None
    if node.operator == "Erf" and _is_multiple(draft, node.inputs[0], x, math.sqrt(0.5)):
        return "Gelu", {"approximate": "none"}
    if node.operator == "Tanh" and _is_gelu_cubic(draft, node.inputs[0], x):
        return "Gelu", {"approximate": "tanh"}
    return None


def _is_gelu_cubic(draft: Draft, name: str, x: str) -> bool:
    """Whether a tensor is sqrt(2 / pi) (x + 0.044715 x^3)."""
    for number, tensors in _products(draft, name, 1):
        total = draft.made_by(tensors[0], "Add") if len(tensors) == 1 else None
        if total is None or not _near(number, math.sqrt(2 / math.pi)) or x not in total.inputs:
            continue
        other = total.inputs[1 - total.inputs.index(x)]
        for factor, parts in _products(draft, other, _DEPTH):
            if _near(factor, 0.044715) and (parts == (x, x, x) or (len(parts) == 1 and _is_cube(draft, parts[0], x))):
                return True
    return False


def _is_cube(draft: Draft, name: str, x: str) -> bool:
    node = draft.made_by(name, "Pow")
    return node is not None and node.inputs[0] == x and draft.scalar(node.inputs[1]) == 3


def _hard_swish(draft: Draft, number: float, x: str, factor: str) -> Found:
    """x min(max(x + 3, 0), 6) / 6, with HardSigmoid or a Clip."""
    node = draft.producer(factor)
    if node is None:
        return None
    if node.operator == "HardSigmoid":
        alpha, beta = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
        same = node.inputs[0] == x and _near(number, 1) and _near(alpha, 1 / 6) and _near(beta, 0.5)
        return ("HardSwish", {}) if same else None
    if node.operator == "Clip" and _near(number, 1 / 6) and _bounds(draft, node) == (0, 6):
        return ("HardSwish", {}) if _plus(draft, node.inputs[0], 3) == x else None
    return None


def _swish(draft: Draft, number: float, x: str, factor: str) -> Found:
    """x sigmoid(alpha x)."""
    node = draft.made_by(factor, "Sigmoid")
    if node is None or number != 1:
        return None
    for alpha, tensors in _products(draft, node.inputs[0], 1):
        if tensors == (x,):
            return "Swish", {"alpha": alpha}
    return None


def _mish(draft: Draft, number: float, x: str, factor: str) -> Found:
    """x tanh(log(1 + exp(x)))."""
    tanh = draft.made_by(factor, "Tanh")
    softplus = draft.made_by(tanh.inputs[0], "Softplus") if tanh is not None else None
    return ("Mish", {}) if softplus is not None and number == 1 and softplus.inputs[0] == x else None


_FORMULAS: tuple[Callable[[Draft, float, str, str], Found], ...] = (_gelu, _hard_swish, _swish, _mish)


def _products(draft: Draft, name: str, depth: int) -> Iterator[Product]:
    """The ways to read a tensor as a number times tensors: as it is, and as products `depth` nodes deep."""
    number = draft.scalar(name)
    if number is not None:
        yield number, ()
        return
    yield 1.0, (name,)
    node = draft.producer(name)
    if node is None or depth == 0 or node.operator not in ("Mul", "Div"):
        return
    left, right = node.inputs
    if node.operator == "Mul":
        ways = itertools.product(_products(draft, left, depth - 1), list(_products(draft, right, depth - 1)))
        yield from ((a * b, (*xs, *ys)) for (a, xs), (b, ys) in ways)
        return
    divisor = draft.scalar(right)
    if divisor:
        yield from ((number / divisor, tensors) for number, tensors in _products(draft, left, depth - 1))


def _is_multiple(draft: Draft, name: str, x: str, number: float) -> bool:
    return any(tensors == (x,) and _near(found, number) for found, tensors in _products(draft, name, 1))


def _plus(draft: Draft, name: str, number: float) -> str | None:
    """The tensor to which a node adds the number."""
    node = draft.made_by(name, "Add")
    if node is None:
        return None
    for tensor, other in (node.inputs, node.inputs[::-1]):
        added = draft.scalar(other)
        if added is not None and _near(added, number):
            return tensor
    return None


def _bounds(draft: Draft, node: Node) -> tuple[float | None, float | None]:
    """Least and greatest of a Clip: inputs from opset 11 on."""
    if len(node.inputs) == 1:
        return node.attributes.get("min"), node.attributes.get("max")
    least, greatest = (*node.inputs[1:], "")[:2]
    return draft.scalar(least), draft.scalar(greatest)


def _near(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=_TOLERANCE)


# LayerNormalization

_REAL_TYPES = ("float32", "float64")


def normalizations_whole(network: Network) -> Network:
    """The network with each LayerNormalization in one node; its outputs are the same within rounding."""
    return rewritten(rewritten(network, _normalization), _scaled)


def _normalization(draft: Draft, node: Node) -> Node | None:
    """The LayerNormalization that a quotient is."""
    deviation = draft.made_by(node.inputs[0], "Sub") if node.operator == "Div" else None
    root = draft.made_by(node.inputs[1], "Sqrt") if deviation is not None else None
    total = draft.made_by(root.inputs[0], "Add") if root is not None else None
    if deviation is None or total is None or draft.tensors[node.outputs[0]].dtype.name not in _REAL_TYPES:
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


def _scaled(draft: Draft, node: Node) -> Node | None:
    """A LayerNormalization that has taken in the product or sum with a constant after it."""
    if node.operator not in ("Mul", "Add"):
        return None
    for src, other in (node.inputs, node.inputs[::-1]):
        before = draft.made_by(src, "LayerNormalization")
        array = draft.constants.get(other)
        if before is not None and array is not None and draft.is_read_once(src) and not any(before.outputs[1:]):
            return _taken_in(draft, node, before, array)
    return None


def _taken_in(draft: Draft, node: Node, before: Node, array: Array) -> Node | None:
    dims = draft.dims(before.outputs[0])
    own = dims[int(before.attributes.get("axis", -1)) % len(dims) :]
    held = [draft.constants.get(name) for name in before.inputs[1:] if name]
    same = draft.dims(node.outputs[0]) == dims and array.dtype.name in _REAL_TYPES
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


# Scales and shifts of channels

Doubles = npt.NDArray[np.float64]
Affine = tuple[Doubles, Doubles]
"""Factor and addend, an element for each channel."""


def affine_folded(network: Network) -> Network:
    """The network with the scales and shifts of channels in weights; its outputs are the same within rounding."""
    return rewritten(network, _folded)


def _folded(draft: Draft, node: Node) -> Node | None:
    """What stands for a scale or shift and the node before it."""
    for src, other in _sides(node):
        before = draft.producer(src)
        if before is None or before.operator not in _TAKERS or not draft.is_read_once(src):
            continue
        if draft.tensors[src].dtype.name not in _REAL_TYPES or draft.dims(src) != draft.dims(node.outputs[0]):
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
    return ((node.inputs[0], ""),) if _is_fixed_normalization(node) else ()


def _is_fixed_normalization(node: Node) -> bool:
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
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    addend = shift - mean * factor
    return (factor, addend) if np.isfinite(factor).all() and np.isfinite(addend).all() else None


def _weights_and_bias(draft: Draft, before: Node) -> tuple[Array | None, Array | None]:
    """The constants of a product; None for one that is computed, 0 for a bias that is left out."""
    weights, has_bias = draft.constants.get(before.inputs[1]), any(before.inputs[2:])
    return weights, draft.constants.get(before.inputs[2]) if has_bias else np.zeros(1)


def _into_convolution(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """Conv has an output channel to each row of its weights; ConvTranspose, see `_scaled_columns`."""
    weights, bias = _weights_and_bias(draft, before)
    if weights is None or bias is None:
        return None
    is_forward, groups = before.operator == "Conv", int(before.attributes.get("group", 1))
    scaled = _along(weights, affine[0], 0) if is_forward else _scaled_columns(weights, affine[0], groups)
    shifted = np.asarray(bias, np.float64) * affine[0] + affine[1]
    names = _added(draft, node, scaled, shifted.astype(weights.dtype))
    return Node(before.name, before.operator, (before.inputs[0], *names), node.outputs, before.attributes)


def _scaled_columns(weights: Array, factor: Doubles, groups: int) -> Array:
    """ConvTranspose has input channels in rows, and in each group the group's output channels in columns."""
    split = weights.reshape(groups, weights.shape[0] // groups, *weights.shape[1:])
    factors = factor.astype(weights.dtype).reshape(groups, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
    return np.asarray(split * factors).reshape(weights.shape)


def _into_gemm(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """Gemm has an output channel to each column of its second matrix, alpha and beta aside."""
    weights, bias = _weights_and_bias(draft, before)
    if weights is None or bias is None or bias.ndim > 2 or bias.shape[:-1] not in ((), (1,)):
        return None
    axis = 0 if before.attributes.get("transB", 0) else 1
    shifted = np.asarray(bias, np.float64).reshape(-1) * before.attributes.get("beta", 1.0) * affine[0] + affine[1]
    names = _added(draft, node, _along(weights, affine[0], axis), shifted.astype(weights.dtype))
    attributes = {**before.attributes, "beta": 1.0}
    return Node(before.name, before.operator, (before.inputs[0], *names), node.outputs, attributes)


def _into_normalization(draft: Draft, node: Node, before: Node, affine: Affine) -> Node | None:
    """BatchNormalization has a scale and a shift for each channel."""
    if not _is_fixed_normalization(before):
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
    "Conv": _into_convolution,
    "ConvTranspose": _into_convolution,
    "Gemm": _into_gemm,
}


def _along(weights: Array, factor: Doubles, axis: int) -> Array:
    shape = [1] * weights.ndim
    shape[axis] = -1
    return np.asarray(weights * factor.astype(weights.dtype).reshape(shape))


def _added(draft: Draft, node: Node, *arrays: Array) -> list[str]:
    """Names of new weights and their bias."""
    return [draft.constant(f"{node.outputs[0]}:{part}", a) for part, a in zip(("weights", "bias"), arrays, strict=True)]
