"""Patterns of a `Network`: no-ops, and nodes that together compute one operation, with the rules that replace them.

**No-ops**: Identity, Dropout outside of training, and casts and reshapes that change nothing.

**Activations** that exporters write as several nodes: Gelu by erf or tanh, HardSwish, Swish (SiLU), Mish. Each is a
product of its input, a function of its input, and numbers. The numbers may occur anywhere in the product: before it,
between its factors, after it. So the rule lists the ways to read a tensor as a number times tensors, a few nodes deep,
and compares each with the formulas.

**Scales and shifts of channels** are folded into the weights of the node before them. BatchNormalization with fixed
statistics, and products and sums with one constant per channel, compute `a x + b` with an a and a b for each channel.
After a Conv, ConvTranspose or Gemm with constant weights, a and b are folded into weights and bias. After a
BatchNormalization, they are folded into its scale and shift. Factors and biases are computed in f64 and rounded once;
weights are multiplied in their own type.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; ONNX, "Operators": BatchNormalization, Conv,
ConvTranspose, Gelu, Gemm, Mish, Swish.
"""

import itertools
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.graph.network import Network, Node, Subgraph
from inlay.graph.op_graph import Array
from inlay.graph.passes.rewriting import NetworkRewriter, remove_dead_nodes, rewrite_nodes

# Nodes that give what they take

_NOOP_IF_SAME_TYPE = frozenset({"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})
"""Operators that keep elements and their order; they are no-ops if dims and type of result and input are equal."""

_NOOP_IF_ONE_INPUT = frozenset({"Concat", "Sum", "Max", "Min", "Mean"})
"""Operators with any number of inputs that are no-ops if there is one."""


def remove_noops(network: Network) -> Network:
    """Return the network without no-ops; one whose result is an output and whose input no node computes stays.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> nodes = (Node("a", "Identity", ("x",), ("t",)), Node("b", "Relu", ("t",), ("y",)))
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xty"}
    >>> [node.inputs for node in remove_noops(Network("", 17, ("x",), ("y",), nodes, tensors)).nodes]
    [('x',)]
    """
    rewriter = NetworkRewriter(network)
    same: dict[str, str] = {}
    nodes = []
    for node in network.nodes:
        node = replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        if _is_noop(rewriter, node) and node.outputs[0] not in network.outputs:
            same[node.outputs[0]] = node.inputs[0]
        else:
            nodes.append(node)
    return _rename_outputs(remove_dead_nodes(replace(network, nodes=tuple(nodes))))


def _is_noop(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether a node's first result equals its first input, and no other result is used."""
    if not node.inputs or any(rewriter.is_read(name) for name in node.outputs[1:]):
        return False
    src, dst = rewriter.tensors[node.inputs[0]], rewriter.tensors[node.outputs[0]]
    if (src.dims, src.dtype) != (dst.dims, dst.dtype):
        return False
    if node.operator == "Transpose":
        perm = node.attributes.get("perm", tuple(reversed(range(len(src.dims)))))
        return tuple(perm) == tuple(range(len(src.dims)))
    if node.operator == "Dropout":
        return not _is_training(rewriter, node)
    return node.operator in _NOOP_IF_SAME_TYPE or (node.operator in _NOOP_IF_ONE_INPUT and len(node.inputs) == 1)


def _is_training(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether a Dropout may drop elements: its third input is not known to be false."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return False
    mode = rewriter.constants.get(node.inputs[2])
    return mode is None or bool(mode.reshape(-1)[0])


def _rename_outputs(network: Network) -> Network:
    """Return the network without no-ops that write outputs: the node before each of them writes the output itself.

    A no-op stays if its input is an output too, or is not computed by a node, or by a subgraph, in which the input has
    its name.
    """
    rewriter = NetworkRewriter(network)
    renamed: dict[str, str] = {}  # source of a no-op to the output that the no-op writes
    for node in network.nodes:
        if node.outputs[0] in network.outputs and _is_noop(rewriter, node):
            source = node.inputs[0]
            producer = rewriter.producer(source)
            can_rename = producer is not None and not isinstance(producer, Subgraph)
            if can_rename and source not in network.outputs and source not in renamed:
                renamed[source] = node.outputs[0]
    dropped = set(renamed.items())
    nodes = [node for node in network.nodes if not node.inputs or (node.inputs[0], node.outputs[0]) not in dropped]
    return remove_dead_nodes(replace(network, nodes=tuple(_rename_tensors(node, renamed) for node in nodes)))


def _rename_tensors(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node with some tensors renamed."""
    inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


# Activations

Product: TypeAlias = tuple[float, tuple[str, ...]]
"""A number, and the tensors that it is multiplied by."""

Match: TypeAlias = tuple[str, dict[str, Any]] | None
"""Operator and attributes of the node that replaces a pattern; None if there is no match."""

_DEPTH = 2
"""Depth in nodes to which a product is read."""
_TOLERANCE = 1e-3
"""Relative tolerance of the numbers in formulas, since exporters round them to a few digits."""

_TYPES = ("float32", "float16", "bfloat16")
"""Types of the activations that are fused."""


def fuse_activations(network: Network) -> Network:
    """Return the network with one node for each activation; its outputs are the same within rounding.

    >>> import numpy as np
    >>> from inlay.graph.network import Tensor
    >>> nodes = (Node("s", "Sigmoid", ("x",), ("t",)), Node("m", "Mul", ("x", "t"), ("y",)))
    >>> tensors = {name: Tensor(name, (2, 3), np.dtype(np.float32)) for name in "xty"}
    >>> fuse_activations(Network("", 17, ("x",), ("y",), nodes, tensors)).nodes
    (Node(name='m', operator='Swish', inputs=('x',), outputs=('y',), attributes={'alpha': 1.0}, domain=''),)
    """
    return rewrite_nodes(network, _match_activation)


def _match_activation(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the activation that a product or quotient computes; None if it computes none."""
    if node.operator not in ("Mul", "Div") or rewriter.tensors[node.outputs[0]].dtype.name not in _TYPES:
        return None
    for number, tensors in _products(rewriter, node.outputs[0], _DEPTH):
        if len(tensors) != 2:
            continue
        for x, factor in (tensors, tensors[::-1]):
            match = _match_formula(rewriter, number, x, factor)
            if match is not None and rewriter.dims(x) == rewriter.dims(node.outputs[0]):
                operator, attributes = match
                return Node(node.name, operator, (x,), node.outputs, attributes)
    return None


def _match_formula(rewriter: NetworkRewriter, number: float, x: str, factor: str) -> Match:
    """Return the activation that is `number` times `x` times `factor`; None if there is none."""
    matches = (formula(rewriter, number, x, factor) for formula in _FORMULAS)
    return next((match for match in matches if match is not None), None)


def _match_gelu(rewriter: NetworkRewriter, number: float, x: str, factor: str) -> Match:
    """Match `number` * `x` * `factor` as Gelu: 0.5 x (1 + erf(x / sqrt 2)), or its approximation by tanh."""
    inner = _other_addend(rewriter, factor, 1)
    node = None if inner is None else rewriter.producer(inner)
    if node is None or not _is_close(number, 0.5):
        return None
    if node.operator == "Erf" and _is_multiple(rewriter, node.inputs[0], x, math.sqrt(0.5)):
        return "Gelu", {"approximate": "none"}
    if node.operator == "Tanh" and _is_gelu_cubic(rewriter, node.inputs[0], x):
        return "Gelu", {"approximate": "tanh"}
    return None


def _is_gelu_cubic(rewriter: NetworkRewriter, name: str, x: str) -> bool:
    """Return whether a tensor is sqrt(2 / pi) (x + 0.044715 x^3)."""
    for number, tensors in _products(rewriter, name, 1):
        total = rewriter.producer_of_kind(tensors[0], "Add") if len(tensors) == 1 else None
        if total is None or not _is_close(number, math.sqrt(2 / math.pi)) or x not in total.inputs:
            continue
        other = total.inputs[1 - total.inputs.index(x)]
        for factor, parts in _products(rewriter, other, _DEPTH + 1):
            if _is_close(factor, 0.044715) and (
                parts == (x, x, x) or (len(parts) == 1 and _is_cube(rewriter, parts[0], x))
            ):
                return True
    return False


def _is_cube(rewriter: NetworkRewriter, name: str, x: str) -> bool:
    """Return whether a tensor is x^3, by the operator Pow."""
    node = rewriter.producer_of_kind(name, "Pow")
    return node is not None and node.inputs[0] == x and rewriter.scalar(node.inputs[1]) == 3


def _match_hard_swish(rewriter: NetworkRewriter, number: float, x: str, factor: str) -> Match:
    """Match HardSwish: x min(max(x + 3, 0), 6) / 6, by HardSigmoid or Clip."""
    node = rewriter.producer(factor)
    if node is None:
        return None
    if node.operator == "HardSigmoid":
        alpha, beta = node.attributes.get("alpha", 0.2), node.attributes.get("beta", 0.5)
        same = node.inputs[0] == x and _is_close(number, 1) and _is_close(alpha, 1 / 6) and _is_close(beta, 0.5)
        return ("HardSwish", {}) if same else None
    if node.operator == "Clip" and _is_close(number, 1 / 6) and _clip_bounds(rewriter, node) == (0, 6):
        return ("HardSwish", {}) if _other_addend(rewriter, node.inputs[0], 3) == x else None
    return None


def _match_swish(rewriter: NetworkRewriter, number: float, x: str, factor: str) -> Match:
    """Match Swish: x sigmoid(alpha x)."""
    node = rewriter.producer_of_kind(factor, "Sigmoid")
    if node is None or number != 1:
        return None
    for alpha, tensors in _products(rewriter, node.inputs[0], 1):
        if tensors == (x,):
            return "Swish", {"alpha": alpha}
    return None


def _match_mish(rewriter: NetworkRewriter, number: float, x: str, factor: str) -> Match:
    """Match Mish: x tanh(log(1 + exp(x)))."""
    tanh = rewriter.producer_of_kind(factor, "Tanh")
    softplus = rewriter.producer_of_kind(tanh.inputs[0], "Softplus") if tanh is not None else None
    return ("Mish", {}) if softplus is not None and number == 1 and softplus.inputs[0] == x else None


_FORMULAS: tuple[Callable[[NetworkRewriter, float, str, str], Match], ...] = (
    _match_gelu,
    _match_hard_swish,
    _match_swish,
    _match_mish,
)
"""Functions that match `number` times `x` times `factor` with one activation each."""


def _products(rewriter: NetworkRewriter, name: str, depth: int) -> Iterator[Product]:
    """Yield the ways to read a tensor as a number times tensors: as itself, and as products up to `depth` deep."""
    number = rewriter.scalar(name)
    if number is not None:
        yield number, ()
        return
    yield 1.0, (name,)
    node = rewriter.producer(name)
    if node is None or depth == 0 or node.operator not in ("Mul", "Div"):
        return
    left, right = node.inputs
    if node.operator == "Mul":
        pairs = itertools.product(_products(rewriter, left, depth - 1), list(_products(rewriter, right, depth - 1)))
        yield from ((a * b, (*xs, *ys)) for (a, xs), (b, ys) in pairs)
        return
    divisor = rewriter.scalar(right)
    if divisor:
        yield from ((number / divisor, tensors) for number, tensors in _products(rewriter, left, depth - 1))


def _is_multiple(rewriter: NetworkRewriter, name: str, x: str, number: float) -> bool:
    """Return whether a tensor is `number` times x."""
    return any(tensors == (x,) and _is_close(factor, number) for factor, tensors in _products(rewriter, name, 1))


def _other_addend(rewriter: NetworkRewriter, name: str, number: float) -> str | None:
    """Return the tensor to which a node adds `number` to compute tensor `name`; None if there is none."""
    node = rewriter.producer_of_kind(name, "Add")
    if node is None:
        return None
    for tensor, other in (node.inputs, node.inputs[::-1]):
        added = rewriter.scalar(other)
        if added is not None and _is_close(added, number):
            return tensor
    return None


def _clip_bounds(rewriter: NetworkRewriter, node: Node) -> tuple[float | None, float | None]:
    """Return the least and greatest value of a Clip, which are inputs from opset 11 on; None for an unknown one."""
    if len(node.inputs) == 1:
        return node.attributes.get("min"), node.attributes.get("max")
    least, greatest = (*node.inputs[1:], "")[:2]
    return rewriter.scalar(least), rewriter.scalar(greatest)


def _is_close(value: float, expected: float) -> bool:
    """Return whether two numbers are equal within the tolerance of formulas."""
    return math.isclose(value, expected, rel_tol=_TOLERANCE)


# Scales and shifts of channels

_REAL_TYPES = ("float32", "float64")
"""Types of the weights that are rewritten."""

Doubles = npt.NDArray[np.float64]


class ChannelAffine(NamedTuple):
    """The map x * factor + addend, with a factor and an addend for each channel."""

    factor: Doubles
    """Factor of each channel."""
    addend: Doubles
    """Addend of each channel."""


def fold_affine(network: Network) -> Network:
    """Return the network with scales and shifts of channels folded into weights.

    Its outputs are the same within rounding.
    """
    return rewrite_nodes(network, _fold_into_producer)


def _fold_into_producer(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a node that includes a scale or shift of channels and the node before it; None if there is none."""
    for src, other in _affine_operands(node):
        producer = rewriter.producer(src)
        if producer is None or producer.operator not in _FOLD_INTO or not rewriter.is_read_once(src):
            continue
        if rewriter.tensors[src].dtype.name not in _REAL_TYPES or rewriter.dims(src) != rewriter.dims(node.outputs[0]):
            continue
        affine = _channel_affine(rewriter, node, rewriter.dims(src), other)
        if affine is not None:
            return _FOLD_INTO[producer.operator](rewriter, node, producer, affine)
    return None


def _affine_operands(node: Node) -> tuple[tuple[str, str], ...]:
    """Return the pairs of operand and constant of a scale or shift; either input of Mul and Add may be the constant."""
    if node.operator in ("Mul", "Add"):
        return (node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])
    if node.operator in ("Sub", "Div"):
        return ((node.inputs[0], node.inputs[1]),)
    return ((node.inputs[0], ""),) if _is_fixed_normalization(node) else ()


def _is_fixed_normalization(node: Node) -> bool:
    """Return whether a node is a BatchNormalization with statistics as inputs and with one result."""
    training = node.attributes.get("training_mode", 0)
    return node.operator == "BatchNormalization" and not training and not any(node.outputs[1:])


def _channel_affine(rewriter: NetworkRewriter, node: Node, dims: tuple[int, ...], other: str) -> ChannelAffine | None:
    """Return factor and addend of each channel; None if the node does not scale or shift channels."""
    channels = dims[1] if len(dims) > 1 else 0
    if node.operator == "BatchNormalization":
        return _batch_normalization_affine(rewriter, node)
    array = rewriter.constants.get(other)
    if array is None or not channels or not _is_per_channel(array, dims):
        return None
    values = np.broadcast_to(np.asarray(array, np.float64).reshape(-1), channels)
    zeros, ones = np.zeros(channels), np.ones(channels)
    maps = {"Mul": (values, zeros), "Add": (ones, values), "Sub": (ones, -values), "Div": (1 / values, zeros)}
    return ChannelAffine(*maps[node.operator])


def _is_per_channel(array: Array, dims: tuple[int, ...]) -> bool:
    """Return whether an array that is broadcast to `dims` varies along axis 1 only."""
    if array.ndim > len(dims):
        return False
    shape = (1,) * (len(dims) - array.ndim) + array.shape
    return all(n == 1 or (axis == 1 and n == dims[1]) for axis, n in enumerate(shape))


def _batch_normalization_affine(rewriter: NetworkRewriter, node: Node) -> ChannelAffine | None:
    """Return factor and addend of a BatchNormalization.

    Return None if its inputs are not constant, or factor or addend are not finite.
    """
    arrays = [rewriter.constants.get(name) for name in node.inputs[1:5]]
    if len(arrays) != 4 or any(array is None for array in arrays):
        return None
    scale, shift, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    addend = shift - mean * factor
    return ChannelAffine(factor, addend) if np.isfinite(factor).all() and np.isfinite(addend).all() else None


def _weights_and_bias(rewriter: NetworkRewriter, producer: Node) -> tuple[Array | None, Array | None]:
    """Return the constant weights and bias of a node; None for one that is not constant.

    A bias that is left out is returned as 0.
    """
    weights, has_bias = rewriter.constants.get(producer.inputs[1]), any(producer.inputs[2:])
    return weights, rewriter.constants.get(producer.inputs[2]) if has_bias else np.zeros(1)


def _fold_into_convolution(rewriter: NetworkRewriter, node: Node, producer: Node, affine: ChannelAffine) -> Node | None:
    """Fold an affine map into a Conv or ConvTranspose; rows of Conv's weights are output channels."""
    weights, bias = _weights_and_bias(rewriter, producer)
    if weights is None or bias is None:
        return None
    is_forward, groups = producer.operator == "Conv", int(producer.attributes.get("group", 1))
    scaled = _scale_axis(weights, affine.factor, 0) if is_forward else _scale_columns(weights, affine.factor, groups)
    shifted = np.asarray(bias, np.float64) * affine.factor + affine.addend
    names = _add_weights(rewriter, node, scaled, shifted.astype(weights.dtype))
    return Node(producer.name, producer.operator, (producer.inputs[0], *names), node.outputs, producer.attributes)


def _scale_columns(weights: Array, factor: Doubles, groups: int) -> Array:
    """Return ConvTranspose's weights with each output channel scaled.

    Rows are input channels. Columns are, within each group, the output channels of the group.
    """
    split = weights.reshape(groups, weights.shape[0] // groups, *weights.shape[1:])
    factors = factor.astype(weights.dtype).reshape(groups, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
    return np.asarray(split * factors).reshape(weights.shape)


def _fold_into_gemm(rewriter: NetworkRewriter, node: Node, producer: Node, affine: ChannelAffine) -> Node | None:
    """Fold an affine map into a Gemm, whose second matrix has an output channel in each column."""
    weights, bias = _weights_and_bias(rewriter, producer)
    if weights is None or bias is None or bias.ndim > 2 or bias.shape[:-1] not in ((), (1,)):
        return None
    axis = 0 if producer.attributes.get("transB", 0) else 1
    shifted = (
        np.asarray(bias, np.float64).reshape(-1) * producer.attributes.get("beta", 1.0) * affine.factor + affine.addend
    )
    names = _add_weights(rewriter, node, _scale_axis(weights, affine.factor, axis), shifted.astype(weights.dtype))
    attributes = {**producer.attributes, "beta": 1.0}
    return Node(producer.name, producer.operator, (producer.inputs[0], *names), node.outputs, attributes)


def _fold_into_normalization(
    rewriter: NetworkRewriter, node: Node, producer: Node, affine: ChannelAffine
) -> Node | None:
    """Fold an affine map into a BatchNormalization, which has a scale and a shift for each channel."""
    if not _is_fixed_normalization(producer):
        return None
    scale, shift = (rewriter.constants.get(name) for name in producer.inputs[1:3])
    if scale is None or shift is None:
        return None
    scales = np.asarray(scale, np.float64) * affine.factor
    shifts = np.asarray(shift, np.float64) * affine.factor + affine.addend
    names = _add_weights(rewriter, node, scales.astype(scale.dtype), shifts.astype(shift.dtype))
    inputs = (producer.inputs[0], *names, *producer.inputs[3:])
    return Node(producer.name, producer.operator, inputs, node.outputs, producer.attributes)


_FOLD_INTO = {
    "BatchNormalization": _fold_into_normalization,
    "Conv": _fold_into_convolution,
    "ConvTranspose": _fold_into_convolution,
    "Gemm": _fold_into_gemm,
}
"""Functions that fold an affine map into a node, by the node's operator."""


_lock = threading.Lock()
_cached_products: dict[tuple[int, int, bytes], tuple["weakref.ref[Any]", "weakref.ref[Any]"]] = {}
"""Weights and their product, by identity of the weights, axis and factors."""


def _scale_axis(weights: Array, factor: Doubles, axis: int) -> Array:
    """Return weights with each element of one axis scaled.

    The result is the same array as before while that exists: a model is simplified for each batch, with equal weights.
    """
    key = id(weights), axis, factor.tobytes()
    with _lock:
        source, product = (reference() for reference in _cached_products.get(key, (_nothing, _nothing)))
    if source is weights and product is not None:
        return np.asarray(product)
    shape = [1] * weights.ndim
    shape[axis] = -1
    scaled = np.asarray(weights * factor.astype(weights.dtype).reshape(shape))
    with _lock:
        _cached_products[key] = weakref.ref(weights), weakref.ref(scaled, partial(_forget_product, key))
    return scaled


def _forget_product(key: tuple[int, int, bytes], product: "weakref.ref[Any]") -> None:
    """Remove the entry of a product that exists no more, unless another one has its place."""
    if _cached_products.get(key, (None, None))[1] is product:
        _cached_products.pop(key, None)


def _nothing() -> None:
    """Return None, as a dead reference does."""


def _add_weights(rewriter: NetworkRewriter, node: Node, *arrays: Array) -> list[str]:
    """Add new weights and a new bias as constants, and return their names."""
    return [
        rewriter.add_constant(f"{node.outputs[0]}:{part}", a)
        for part, a in zip(("weights", "bias"), arrays, strict=True)
    ]
