"""`recognize_quantized`: operators between DequantizeLinear and QuantizeLinear become operators on integers.

Quantizers write a network of f32 operators, in which each tensor is quantized and dequantized again. Five rewrites
make operators on integers of it, in this order:

    motion        a DequantizeLinear moves behind operators that move elements, a QuantizeLinear before them
    tables        element-wise functions of one tensor of integers become a `TableLookup` (`lookup_tables`)
    recognition   DequantizeLinear, Conv, Relu, QuantizeLinear become `QuantizedConv`, and so on
    absorption    a product whose integers only a DequantizeLinear reads writes the numbers that they represent
    folding       a DequantizeLinear of a constant that no operator on integers reads becomes a constant

No pair of QuantizeLinear and DequantizeLinear is removed unless the scales and zero points of both are equal and what
is quantized is an integer already: a quantizer deletes a Relu whose result the saturation of QuantizeLinear bounds.

The operators on integers have the domain `inlay`. Their attributes are those of ONNX's operator, and:

    src_scale, src_zero_point           of the first input
    src_1_scale, src_1_zero_point       of the second input of QuantizedAdd, unless that is a constant of f32
    weights_scales, weights_zero_point  of the second input of QuantizedConv and QuantizedMatMul
    dst_scale, dst_zero_point           of the result; absent if the result is f32
    post_ops                            functions of oneDNN of the real result, as tuples of name, alpha and beta

Source: ONNX, "Operators": DequantizeLinear, QuantizeLinear; Jacob et al., "Quantization and Training of Neural Networks
for Efficient Integer-Arithmetic-Only Inference", 2018.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from inlay.errors import InlayError
from inlay.graph.network import Network, Node, TensorQuantization
from inlay.graph.numpy_operators.evaluation import compute_node
from inlay.graph.op_graph import Array
from inlay.graph.passes.lookup_tables import tabulate_functions
from inlay.graph.passes.patterns import remove_noops
from inlay.graph.passes.rewriting import NetworkRewriter, is_describable, rewrite_nodes

INTERNAL_DOMAIN = "inlay"
"""Domain of the operators on integers."""
PostOps: TypeAlias = tuple[tuple[str, float, float], ...]
"""Functions of oneDNN, each with its alpha and beta."""

_BYTES = ("s8", "u8")


def recognize_quantized(network: Network) -> Network:
    """Return the network with operators on integers where a quantizer wrote operators between Q and DQ.

    Results are those of the network within one quantum of each tensor.
    """
    if not any(node.operator in ("DequantizeLinear", "QuantizeLinear") for node in network.nodes):
        return network
    network = _divide_splits(network)
    for rule in (_fold_quantize, _move_dequantize, _move_quantize):
        network = rewrite_nodes(network, rule)
    network = tabulate_functions(network, _changes_bytes)
    for rule in (_recognize_quantize, _recognize_product, _absorb_dequantize, _fold_constant):
        network = rewrite_nodes(network, rule)
    return remove_noops(network)


def fold_dequantized(network: Network) -> Network:
    """Return the network with a constant in place of each DequantizeLinear of constants."""
    return rewrite_nodes(network, _fold_constant)


# Quantization of a tensor


def read_quantization(rewriter: NetworkRewriter, node: Node) -> TensorQuantization | None:
    """Return scales and zero points of a QuantizeLinear or DequantizeLinear; None unless they are usual constants.

    Scales are positive and finite numbers of f32: one, or one for each coordinate of an axis.
    """
    integers = node.inputs[0] if node.operator == "DequantizeLinear" else node.outputs[0]
    dtype, dims = rewriter.tensors[integers].dtype, rewriter.dims(integers)
    scales = rewriter.constants.get(node.inputs[1])
    has_zero = len(node.inputs) > 2 and node.inputs[2]
    zeros = rewriter.constants.get(node.inputs[2]) if has_zero else None
    if scales is None or (has_zero and zeros is None) or scales.dtype != np.float32 or scales.size == 0:
        return None
    if dtype not in _INTEGERS or not np.isfinite(scales).all() or not (scales > 0).all():
        return None
    axis = int(node.attributes.get("axis", 1)) if scales.size > 1 else None
    if axis is not None:
        axis += len(dims) if axis < 0 else 0
        if scales.ndim != 1 or not 0 <= axis < len(dims) or dims[axis] != scales.size:
            return None
    zeros = None if zeros is None or not zeros.any() else zeros.reshape(-1)
    if zeros is not None and zeros.size != scales.size:
        return None
    dims = () if axis is None else (scales.size,)
    return TensorQuantization(
        _INTEGERS[dtype], scales.reshape(dims), None if zeros is None else zeros.reshape(dims), axis
    )


_INTEGERS: Mapping[np.dtype[Any], str] = {np.dtype(np.int8): "s8", np.dtype(np.uint8): "u8", np.dtype(np.int32): "s32"}


def zero_point(quantization: TensorQuantization) -> int:
    """Return the zero point of a tensor that has one."""
    return 0 if quantization.zero_points is None else int(quantization.zero_points)


class _Quantized(NamedTuple):
    """An f32 tensor of the network that a DequantizeLinear computes."""

    integers: str
    """Name of the tensor of integers."""
    quantization: TensorQuantization
    """Scales and zero points."""


def _dequantized(rewriter: NetworkRewriter, name: str) -> _Quantized | None:
    """Return the integers of an f32 tensor that a DequantizeLinear computes; None for any other tensor."""
    node = rewriter.producer_of_kind(name, "DequantizeLinear")
    quantization = None if node is None else read_quantization(rewriter, node)
    return None if node is None or quantization is None else _Quantized(node.inputs[0], quantization)


def _dequantized_bytes(rewriter: NetworkRewriter, name: str) -> _Quantized | None:
    """Return the integers of an f32 tensor if they have 8 bits and one scale, and are no constant."""
    found = _dequantized(rewriter, name)
    if found is None or found.integers in rewriter.constants:
        return None
    quantization = found.quantization
    return found if quantization.data_type in _BYTES and quantization.axis is None else None


# Motion

_MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "DepthToSpace", "SpaceToDepth", "Gather"),
        *("Identity", "Expand", "Tile", "MaxPool"),
    }
)
"""Operators whose result has elements of the first input, or the greatest of some, for integers and numbers alike."""


def _is_move(rewriter: NetworkRewriter, node: Node | None) -> bool:
    """Return whether a node moves elements, and only its first result is used."""
    return (
        node is not None
        and node.operator in _MOVES
        and not node.domain
        and not any(rewriter.is_read(name) for name in node.outputs[1:])
        and all(name in rewriter.constants for name in node.inputs[1:] if name)
    )


def _move_dequantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a DequantizeLinear of moved integers for a node that moves dequantized elements."""
    if node.operator == "Concat":
        return _move_dequantize_behind_concat(rewriter, node)
    if not _is_move(rewriter, node) or _dequantized_bytes(rewriter, node.inputs[0]) is None:
        return None
    dequantize = rewriter.producer(node.inputs[0])
    assert dequantize is not None
    return _dequantize_after(rewriter, node, (dequantize.inputs[0], *node.inputs[1:]), dequantize)


def _divide_splits(network: Network) -> Network:
    """Return the network with a Slice for each result of a Split of a dequantized tensor."""
    rewriter = NetworkRewriter(network)
    nodes = list[Node]()
    for node in network.nodes:
        is_split = node.operator == "Split" and not node.domain and all(node.outputs) and network.opset >= 10
        if not is_split or _dequantized_bytes(rewriter, node.inputs[0]) is None:
            nodes.append(node)
            continue
        axis, start = node.attributes.get("axis", 0), 0
        for name in node.outputs:
            stop = start + rewriter.dims(name)[axis]
            bounds = [rewriter.add_constant(f"{name}:bound", np.array([n], np.int64)) for n in (start, stop, axis)]
            nodes.append(Node(f"{node.name}:{start}", "Slice", (node.inputs[0], *bounds), (name,)))
            start = stop
    return replace(network, nodes=tuple(nodes), tensors=rewriter.tensors, constants=rewriter.constants)


def _move_dequantize_behind_concat(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a DequantizeLinear of joined integers for a Concat of tensors with one scale and zero point."""
    parts = [_dequantized_bytes(rewriter, name) for name in node.inputs]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or any(part.quantization != found[0].quantization for part in found):
        return None
    dequantize = rewriter.producer(node.inputs[0])
    assert dequantize is not None
    return _dequantize_after(rewriter, node, tuple(part.integers for part in found), dequantize)


def _dequantize_after(rewriter: NetworkRewriter, node: Node, inputs: tuple[str, ...], dequantize: Node) -> Node:
    """Insert `node` with inputs of integers, and return the DequantizeLinear that computes its result."""
    dims, attributes = rewriter.dims(node.outputs[0]), dict(node.attributes)
    moved = rewriter.insert_node(node, node.operator, inputs, dims, attributes)
    return Node(node.name, "DequantizeLinear", (moved, *dequantize.inputs[1:]), node.outputs[:1])


def _move_quantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the last of the operators that move elements before a QuantizeLinear, on integers."""
    if node.operator != "QuantizeLinear" or not _changes_bytes(rewriter, node):
        return None
    moves: list[Node] = []
    name = node.inputs[0]
    while rewriter.is_read_once(name) and _is_move(rewriter, move := rewriter.producer(name)):
        assert move is not None
        moves.insert(0, move)
        name = move.inputs[0]
    joined = rewriter.producer_of_kind(name, "Concat") if rewriter.is_read_once(name) else None
    if joined is not None:
        parts = tuple(_insert_quantize(rewriter, node, part) for part in joined.inputs)
        moves.insert(0, replace(joined, inputs=parts))
    elif not moves:
        return None
    else:
        moves[0] = replace(moves[0], inputs=(_insert_quantize(rewriter, node, name), *moves[0].inputs[1:]))
    dtype, last = rewriter.tensors[node.outputs[0]].dtype, moves[0]
    for move in moves[1:]:
        dims = rewriter.dims(last.outputs[0])
        moved = rewriter.insert_node(node, last.operator, last.inputs, dims, dict(last.attributes), dtype)
        last = replace(move, inputs=(moved, *move.inputs[1:]))
    return replace(last, name=node.name, outputs=node.outputs)


def _changes_bytes(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether a QuantizeLinear or DequantizeLinear has one constant scale, and integers of 8 bits."""
    quantization = read_quantization(rewriter, node)
    return quantization is not None and quantization.axis is None and quantization.data_type in _BYTES


def _insert_quantize(rewriter: NetworkRewriter, node: Node, name: str) -> str:
    """Insert a QuantizeLinear of a tensor with the scale and zero point of another, and return the integers."""
    inputs, dtype = (name, *node.inputs[1:]), rewriter.tensors[node.outputs[0]].dtype
    return rewriter.insert_node(node, "QuantizeLinear", inputs, rewriter.dims(name), dict(node.attributes), dtype)


# Recognition


class _Result(NamedTuple):
    """The end of operators that become one: a QuantizeLinear, or the operator itself."""

    node: Node
    """Node that is replaced."""
    quantization: TensorQuantization | None
    """Scale and zero point of the result; None for f32."""
    post_ops: PostOps
    """Functions between the operator and the result."""


def _recognize_quantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the operator on integers that a QuantizeLinear ends; None if there is none."""
    if (
        node.operator != "QuantizeLinear"
        or not _changes_bytes(rewriter, node)
        or not is_describable(rewriter.dims(node.outputs[0]))
    ):
        return None
    quantization = read_quantization(rewriter, node)
    source, post_ops = _skip_activations(rewriter, node.inputs[0])
    result = _Result(node, quantization, post_ops)
    producer = rewriter.producer(source)
    if producer is None or producer.domain:
        return None
    if producer.operator == "DequantizeLinear" and not post_ops:
        return _requantize(rewriter, source, result)
    rule = _RULES.get(producer.operator)
    return None if rule is None or not rewriter.is_read_once(source) else rule(rewriter, producer, result)


def _recognize_product(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the product of integers with a result of f32 that a product of dequantized tensors computes."""
    if (
        node.operator not in ("Conv", "Gemm", "MatMul")
        or node.domain
        or not is_describable(rewriter.dims(node.outputs[0]))
    ):
        return None
    return _RULES[node.operator](rewriter, node, _Result(node, None, ()))


def _skip_activations(rewriter: NetworkRewriter, name: str) -> tuple[str, PostOps]:
    """Return the tensor before activations that nothing else reads, and these in order."""
    post_ops: PostOps = ()
    while rewriter.is_read_once(name) and (node := rewriter.producer(name)) is not None:
        function = _activation(rewriter, node)
        if function is None:
            break
        post_ops, name = (function, *post_ops), node.inputs[0]
    return name, post_ops


def _activation(rewriter: NetworkRewriter, node: Node) -> tuple[str, float, float] | None:
    """Return a Relu, LeakyRelu or Clip as a function of oneDNN; None for any other node."""
    if node.operator == "Relu":
        return "relu", 0.0, 0.0
    if node.operator == "LeakyRelu":
        return "relu", float(node.attributes.get("alpha", np.float32(0.01))), 0.0
    if node.operator != "Clip":
        return None
    if len(node.inputs) == 1:
        low, high = node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf)
        return "clip", float(low), float(high)
    bounds = [
        rewriter.scalar(name) if name else end for name, end in zip(node.inputs[1:], (-np.inf, np.inf), strict=False)
    ]
    low, high = (*bounds, np.inf)[:2]
    return None if low is None or high is None or low > high else ("clip", float(low), float(high))


def _requantize(rewriter: NetworkRewriter, source: str, result: _Result) -> Node | None:
    """Return the change of scale and zero point of integers; an Identity if both are equal."""
    found = _dequantized_bytes(rewriter, source)
    if found is None:
        return None
    if found.quantization == result.quantization:
        return Node(result.node.name, "Identity", (found.integers,), result.node.outputs)
    return _quantized_node("Requantize", (found.integers,), found.quantization, result, {})


def _quantized_node(
    operator: str,
    inputs: Sequence[str],
    src: TensorQuantization,
    result: _Result,
    attributes: Mapping[str, Any],
) -> Node:
    """Return an operator on integers."""
    values: dict[str, Any] = {"src_scale": src.scales, "src_zero_point": zero_point(src), "post_ops": result.post_ops}
    if result.quantization is not None:
        values |= {"dst_scale": result.quantization.scales, "dst_zero_point": zero_point(result.quantization)}
    name, outputs = result.node.name, result.node.outputs
    return Node(name, operator, tuple(inputs), outputs, {**attributes, **values}, INTERNAL_DOMAIN)


class _Weights(NamedTuple):
    """Constant weights as s8."""

    name: str
    """Name of the constant."""
    attributes: dict[str, Any]
    """Attributes `weights_scales` and `weights_zero_point`."""


def _constant_weights(rewriter: NetworkRewriter, name: str, axis: int, *, transposed: bool = False) -> _Weights | None:
    """Return the weights that a DequantizeLinear of a constant computes, with one scale or one along `axis`.

    `transposed` weights are a matrix whose axes are exchanged; `axis` is that of the result. Weights of u8 become s8,
    by 128 less with a zero point of 128 less. None if their zero points differ.
    """
    found = _dequantized(rewriter, name)
    array = None if found is None else rewriter.constants.get(found.integers)
    if found is None or array is None or found.quantization.data_type not in _BYTES:
        return None
    quantization = found.quantization
    own_axis = 1 - axis if transposed else axis
    zeros = np.unique(np.int32(0) if quantization.zero_points is None else quantization.zero_points)
    if quantization.axis not in (None, own_axis) or zeros.size > 1:
        return None
    zero = int(zeros[0])
    if quantization.data_type == "u8":
        array, zero = (array.astype(np.int16) - 128).astype(np.int8), zero - 128
    constant = rewriter.add_constant(f"{found.integers}:s8", array.T if transposed else array)
    return _Weights(constant, {"weights_scales": quantization.scales, "weights_zero_point": zero})


def _constant_bias(rewriter: NetworkRewriter, name: str) -> Array | None:
    """Return a constant bias, or one that a DequantizeLinear of a constant computes, as f32; None for any other."""
    array = rewriter.constants.get(name)
    if array is not None:
        return array if array.dtype == np.float32 else None
    found = _dequantized(rewriter, name)
    array = None if found is None else rewriter.constants.get(found.integers)
    return None if found is None or array is None else dequantize_array(array, found.quantization)


def dequantize_array(array: Array, quantization: TensorQuantization) -> Array:
    """Return the numbers that integers represent, as f32."""
    shape = tuple(n if axis == quantization.axis else 1 for axis, n in enumerate(array.shape))
    shape = shape if quantization.axis is not None else ()
    zeros = 0.0 if quantization.zero_points is None else quantization.zero_points.astype(np.float64).reshape(shape)
    return ((array.astype(np.float64) - zeros) * quantization.scales.reshape(shape)).astype(np.float32)


def _recognize_conv(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the convolution of integers; None unless weights have the zero point 0 and scales of channels."""
    src = _dequantized_bytes(rewriter, node.inputs[0])
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    bias = _constant_bias(rewriter, node.inputs[2]) if has_bias else None
    if src is None or (has_bias and bias is None) or len(rewriter.dims(node.inputs[1])) not in (3, 4, 5):
        return None
    if any(pad < 0 for pad in node.attributes.get("pads", ())):
        return None
    weights = _constant_weights(rewriter, node.inputs[1], 0)
    if weights is None or weights.attributes["weights_zero_point"]:
        return None
    inputs = [src.integers, weights.name]
    if bias is not None:
        inputs.append(rewriter.add_constant(f"{node.outputs[0]}:bias", bias))
    attributes = {**node.attributes, **weights.attributes}
    return _quantized_node("QuantizedConv", inputs, src.quantization, result, attributes)


def _recognize_gemm(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the matrix product of integers with constant weights and bias; None for other factors than 1."""
    attributes = node.attributes
    src = _dequantized_bytes(rewriter, node.inputs[0])
    if src is None or attributes.get("transA") or attributes.get("alpha", 1.0) != 1 or attributes.get("beta", 1.0) != 1:
        return None
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    bias = _constant_bias(rewriter, node.inputs[2]) if has_bias else None
    columns = rewriter.dims(node.outputs[0])[-1]
    if has_bias and (bias is None or bias.size not in (1, columns) or (bias.ndim == 2 and bias.shape[0] != 1)):
        return None
    weights = _constant_weights(rewriter, node.inputs[1], 1, transposed=bool(attributes.get("transB")))
    if weights is None:
        return None
    inputs = [src.integers, weights.name]
    if bias is not None:
        full = np.ascontiguousarray(np.broadcast_to(bias.reshape(1, -1), (1, columns)))
        inputs.append(rewriter.add_constant(f"{node.outputs[0]}:bias", full))
    return _quantized_node("QuantizedMatMul", inputs, src.quantization, result, weights.attributes)


def _recognize_matmul(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the matrix product of integers; the second factor is a constant, or a tensor with one scale."""
    src = _dequantized_bytes(rewriter, node.inputs[0])
    left, right = (rewriter.dims(name) for name in node.inputs)
    if src is None or min(len(left), len(right)) < 2 or 0 in (*left, *right):
        return None
    other = _dequantized_bytes(rewriter, node.inputs[1])
    if other is not None:
        values = {"weights_scales": other.quantization.scales, "weights_zero_point": zero_point(other.quantization)}
        return _quantized_node("QuantizedMatMul", (src.integers, other.integers), src.quantization, result, values)
    weights = _constant_weights(rewriter, node.inputs[1], len(right) - 1)
    if weights is None or (len(right) > 2 and weights.attributes["weights_scales"].ndim):
        return None
    inputs = (src.integers, weights.name)
    return _quantized_node("QuantizedMatMul", inputs, src.quantization, result, weights.attributes)


def _recognize_add(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the sum of integers of one type with dims of the result, and of others or a constant broadcast to them."""
    assert result.quantization is not None
    if any(algorithm != "clip" and alpha for algorithm, alpha, _ in result.post_ops):
        return None
    dims = rewriter.dims(node.outputs[0])
    for name, other in (node.inputs, node.inputs[::-1]):
        src = _dequantized_bytes(rewriter, name)
        if src is None or rewriter.dims(name) != dims or src.quantization.data_type != result.quantization.data_type:
            continue
        constant = _constant_bias(rewriter, other)
        if constant is not None:
            inputs = (src.integers, rewriter.add_constant(f"{node.outputs[0]}:addend", constant))
            return _quantized_node("QuantizedAdd", inputs, src.quantization, result, {})
        src_1 = _dequantized_bytes(rewriter, other)
        if src_1 is not None and src_1.quantization.data_type == src.quantization.data_type:
            values = {"src_1_scale": src_1.quantization.scales, "src_1_zero_point": zero_point(src_1.quantization)}
            return _quantized_node("QuantizedAdd", (src.integers, src_1.integers), src.quantization, result, values)
    return None


def _recognize_average(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the mean of integers of the type of the result; None if it counts padding, which is a zero point."""
    assert result.quantization is not None
    src = _dequantized_bytes(rewriter, node.inputs[0])
    if src is None or src.quantization.data_type != result.quantization.data_type:
        return None
    attributes = node.attributes
    if attributes.get("count_include_pad", 0) or len(rewriter.dims(node.inputs[0])) not in (3, 4, 5):
        return None
    if any(algorithm != "clip" and alpha for algorithm, alpha, _ in result.post_ops):
        return None
    if (
        attributes.get("ceil_mode", 0)
        or attributes.get("auto_pad", "NOTSET") != "NOTSET"
        or any(attributes.get("pads", ()))
    ):
        return None
    attributes = {**node.attributes, "is_global": int(node.operator == "GlobalAveragePool")}
    return _quantized_node("QuantizedAveragePool", (src.integers,), src.quantization, result, attributes)


def _recognize_softmax(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the softmax of numbers of f32 along one axis, with a result of integers."""
    src, opset = node.inputs[0], rewriter.network.opset
    axis = int(node.attributes.get("axis", -1))
    if opset < 13 or src in rewriter.constants or rewriter.dims(src)[axis] == 1 or result.post_ops:
        return None
    if rewriter.tensors[src].dtype != np.float32:
        return None
    assert result.quantization is not None
    scale, zero = result.quantization.scales, zero_point(result.quantization)
    attributes = {"axis": axis, "dst_scale": scale, "dst_zero_point": zero}
    return Node(result.node.name, "QuantizedSoftmax", (src,), result.node.outputs, attributes, INTERNAL_DOMAIN)


_RULES: Mapping[str, Callable[[NetworkRewriter, Node, _Result], Node | None]] = MappingProxyType(
    {
        "Add": _recognize_add,
        "AveragePool": _recognize_average,
        "Conv": _recognize_conv,
        "Gemm": _recognize_gemm,
        "GlobalAveragePool": _recognize_average,
        "MatMul": _recognize_matmul,
        "Softmax": _recognize_softmax,
    }
)
"""Rule of each operator that has one on integers."""


# Absorption

_LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType({"s8": (-128, 127), "u8": (0, 255)})


def _absorb_dequantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the product that computes the result of a DequantizeLinear, rounded and bounded as its integers are.

    With a scale s and a zero point z, the result is s * clip(round(x / s), low - z, high - z). That is exact: z is an
    integer, so it is the same before and after rounding.
    """
    found = _dequantized_bytes(rewriter, node.outputs[0]) if node.operator == "DequantizeLinear" else None
    product = None if found is None else rewriter.producer(found.integers)
    if found is None or product is None or product.domain != INTERNAL_DOMAIN:
        return None
    if product.operator not in ("QuantizedConv", "QuantizedMatMul") or not rewriter.is_read_once(found.integers):
        return None
    kept = {name: value for name, value in product.attributes.items() if name not in ("dst_scale", "dst_zero_point")}
    zero, scale = zero_point(found.quantization), found.quantization.scales
    written = float(product.attributes["dst_scale"]), product.attributes["dst_zero_point"]
    if written != (float(scale), zero):
        return None
    low, high = _LIMITS[found.quantization.data_type]
    chain = (
        ("linear", float(np.float32(1) / scale), 0.0),
        ("round", 0.0, 0.0),
        ("clip", float(low - zero), float(high - zero)),
        ("linear", float(scale), 0.0),
    )
    attributes = {**kept, "post_ops": (*product.attributes["post_ops"], *chain)}
    return replace(product, name=node.name, outputs=node.outputs, attributes=attributes)


# Folding


def _fold_quantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Replace a QuantizeLinear of constants by its result, a constant."""
    return _replace_by_result(rewriter, node) if node.operator == "QuantizeLinear" else None


def _fold_constant(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Replace a DequantizeLinear of constants by its result, a constant."""
    return _replace_by_result(rewriter, node) if node.operator == "DequantizeLinear" else None


def _replace_by_result(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return an Identity of the node's result; None if an input is no constant, or NumPy cannot compute the node."""
    if not all(name in rewriter.constants for name in node.inputs if name):
        return None
    try:
        (array,) = compute_node(node, rewriter.network.opset, rewriter.constants).values()
    except InlayError:
        return None
    constant = rewriter.add_constant(f"{node.outputs[0]}:value", array)
    return Node(node.name, "Identity", (constant,), node.outputs)
