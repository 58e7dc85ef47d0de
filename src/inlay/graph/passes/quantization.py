"""`recognize_quantized`: operators between DequantizeLinear and QuantizeLinear become operators on integers.

Quantizers write a network of f32 operators, in which each tensor is quantized and dequantized again. Six rewrites
make operators on integers of it, in this order:

    constants     a QuantizeLinear of constants becomes a constant
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
    weights_scales, weights_zero_point  of the second input of a product: QuantizedConv, QuantizedConvTranspose and
                                        QuantizedMatMul
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
from inlay.graph.passes.padding import join_padding
from inlay.graph.passes.patterns import remove_noops
from inlay.graph.passes.quantized_motion import divide_splits, move_dequantize, move_quantize
from inlay.graph.passes.quantized_tensors import (
    BYTES,
    DequantizedTensor,
    changes_bytes,
    dequantized,
    dequantized_bytes,
    read_quantization,
    zero_point,
)
from inlay.graph.passes.rewriting import NetworkRewriter, is_describable, rewrite_nodes

INTERNAL_DOMAIN = "inlay"
"""Domain of the operators on integers."""
PostOps: TypeAlias = tuple[tuple[str, float, float], ...]
"""Functions of oneDNN, each with its alpha and beta."""


def recognize_quantized(network: Network) -> Network:
    """Return the network with operators on integers where a quantizer wrote operators between Q and DQ.

    Results are those of the network within one quantum of each tensor.
    """
    if not any(node.operator in ("DequantizeLinear", "QuantizeLinear") for node in network.nodes):
        return network
    network = divide_splits(network)
    network = remove_noops(rewrite_nodes(network, _fold_quantize))
    for rule in (move_dequantize, move_quantize):
        network = rewrite_nodes(network, rule)
    network = remove_noops(tabulate_functions(network, changes_bytes))
    for rule in (_recognize_quantize, _recognize_product, _absorb_dequantize, _fold_constant):
        network = rewrite_nodes(network, rule)
    return remove_noops(network)


def fold_dequantized(network: Network) -> Network:
    """Return the network with a constant in place of each DequantizeLinear of constants."""
    return rewrite_nodes(network, _fold_constant)


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
        or not changes_bytes(rewriter, node)
        or not is_describable(rewriter.dims(node.outputs[0]))
    ):
        return None
    quantization = read_quantization(rewriter, node)
    source, post_ops = _skip_activations(rewriter, node.inputs[0])
    result = _Result(node, quantization, post_ops)
    producer = rewriter.producer(source)
    if producer is None or producer.domain:
        return None
    rule = _RULES.get(producer.operator)
    return None if rule is None or not rewriter.is_read_once(source) else rule(rewriter, producer, result)


def _recognize_product(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the product of integers with a result of f32 that a product of dequantized tensors computes."""
    if (
        node.operator not in ("Conv", "ConvTranspose", "Gemm", "MatMul")
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
    by 128 less with a zero point of 128 less; without a zero point where s8 has all weights less that. None if their
    zero points differ.
    """
    found = dequantized(rewriter, name)
    array = None if found is None else rewriter.constants.get(found.integers)
    if found is None or array is None or found.quantization.data_type not in BYTES:
        return None
    quantization = found.quantization
    own_axis = 1 - axis if transposed else axis
    zeros = np.unique(np.int32(0) if quantization.zero_points is None else quantization.zero_points)
    if quantization.axis not in (None, own_axis) or zeros.size > 1:
        return None
    zero = int(zeros[0])
    shift = 128 if quantization.data_type == "u8" else 0
    if int(array.min(initial=zero)) - zero >= -128 and int(array.max(initial=zero)) - zero <= 127:
        shift = zero
    array, zero = (array.astype(np.int16) - shift).astype(np.int8), zero - shift
    constant = rewriter.add_constant(f"{found.integers}:s8", array.T if transposed else array)
    return _Weights(constant, {"weights_scales": quantization.scales, "weights_zero_point": zero})


def _constant_bias(rewriter: NetworkRewriter, name: str) -> Array | None:
    """Return a constant bias, or one that a DequantizeLinear of a constant computes, as f32; None for any other."""
    array = rewriter.constants.get(name)
    if array is not None:
        return array if array.dtype == np.float32 else None
    found = dequantized(rewriter, name)
    array = None if found is None else rewriter.constants.get(found.integers)
    return None if found is None or array is None else dequantize_array(array, found.quantization)


def dequantize_array(array: Array, quantization: TensorQuantization) -> Array:
    """Return the numbers that integers represent, as f32."""
    shape = tuple(n if axis == quantization.axis else 1 for axis, n in enumerate(array.shape))
    shape = shape if quantization.axis is not None else ()
    zeros = 0.0 if quantization.zero_points is None else quantization.zero_points.astype(np.float64).reshape(shape)
    return ((array.astype(np.float64) - zeros) * quantization.scales.reshape(shape)).astype(np.float32)


def _recognize_conv(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the convolution of integers, or its transpose.

    None unless weights have the zero point 0 and scales of channels, and source, weights and padding are usual. The
    padding of a transpose must be stated: if it follows from the dims, a primitive may not have it.
    """
    src = dequantized_bytes(rewriter, node.inputs[0])
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    bias = _constant_bias(rewriter, node.inputs[2]) if has_bias else None
    if src is None or (has_bias and bias is None) or len(rewriter.dims(node.inputs[1])) not in (3, 4, 5):
        return None
    if any(pad < 0 for pad in node.attributes.get("pads", ())):
        return None
    if node.operator == "ConvTranspose" and _derives_padding(node):
        return None
    weights = _constant_weights(rewriter, node.inputs[1], 1 if node.operator == "ConvTranspose" else 0)
    if weights is None or weights.attributes["weights_zero_point"]:
        return None
    integers, attributes = _take_padding(rewriter, node, src)
    inputs = [integers, weights.name]
    if bias is not None:
        inputs.append(rewriter.add_constant(f"{node.outputs[0]}:bias", bias))
    attributes = {**attributes, **weights.attributes}
    return _quantized_node(f"Quantized{node.operator}", inputs, src.quantization, result, attributes)


def _derives_padding(node: Node) -> bool:
    """Return whether the padding of a transposed convolution follows from its dims."""
    return node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or "output_shape" in node.attributes


def _take_padding(rewriter: NetworkRewriter, node: Node, src: DequantizedTensor) -> tuple[str, Mapping[str, Any]]:
    """Return the integers that a convolution reads, and its attributes: with the padding of a Pad before it."""
    pad = rewriter.producer_of_kind(src.integers, "Pad") if node.operator == "Conv" else None
    kernel = rewriter.dims(node.inputs[1])[2:]
    total = None if pad is None else join_padding(rewriter, node, pad, kernel, zero_point(src.quantization))
    if pad is None or total is None:
        return src.integers, node.attributes
    return pad.inputs[0], {**node.attributes, "pads": total}


def _recognize_normalization(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return a batch normalization with constant statistics as the convolution of each channel with one weight.

    The weight is 1 or -1, and its scale the factor of the channel, so no factor is rounded to an integer.
    """
    src, rank = dequantized_bytes(rewriter, node.inputs[0]), len(rewriter.dims(node.inputs[0]))
    values = [_constant_bias(rewriter, name) for name in node.inputs[1:5]]
    is_usual = not node.attributes.get("training_mode", 0) and node.attributes.get("spatial", 1)
    if src is None or rank not in (3, 4, 5) or not is_usual or any(rewriter.is_read(name) for name in node.outputs[1:]):
        return None
    known = [array.astype(np.float64) for array in values if array is not None]
    if len(known) < 4:
        return None
    scale, shift, mean, variance = known
    factors = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    bias = (shift - mean * factors).astype(np.float32)
    scales = np.where(factors == 0, 1, np.abs(factors)).astype(np.float32)
    if not (np.isfinite(bias).all() and np.isfinite(scales).all() and (scales > 0).all()):
        return None
    weights = np.sign(factors).astype(np.int8).reshape(-1, *(1,) * (rank - 1))
    constants = (("weights", weights), ("bias", bias))
    inputs = [src.integers, *(rewriter.add_constant(f"{node.outputs[0]}:{name}", array) for name, array in constants)]
    attributes = {"group": len(weights), "weights_scales": scales, "weights_zero_point": 0}
    return _quantized_node("QuantizedConv", inputs, src.quantization, result, attributes)


def _recognize_gemm(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the matrix product of integers with constant weights and bias; None for other factors than 1."""
    attributes = node.attributes
    src = dequantized_bytes(rewriter, node.inputs[0])
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
    src = dequantized_bytes(rewriter, node.inputs[0])
    left, right = (rewriter.dims(name) for name in node.inputs)
    if src is None or min(len(left), len(right)) < 2 or 0 in (*left, *right):
        return None
    other = dequantized_bytes(rewriter, node.inputs[1])
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
    if not _bounds_only(result):
        return None
    dims = rewriter.dims(node.outputs[0])
    for name, other in (node.inputs, node.inputs[::-1]):
        src = dequantized_bytes(rewriter, name)
        if src is None or rewriter.dims(name) != dims or src.quantization.data_type != result.quantization.data_type:
            continue
        constant = _constant_bias(rewriter, other)
        if constant is not None:
            inputs = (src.integers, rewriter.add_constant(f"{node.outputs[0]}:addend", constant))
            return _quantized_node("QuantizedAdd", inputs, src.quantization, result, {})
        src_1 = dequantized_bytes(rewriter, other)
        if src_1 is not None and src_1.quantization.data_type == src.quantization.data_type:
            values = {"src_1_scale": src_1.quantization.scales, "src_1_zero_point": zero_point(src_1.quantization)}
            return _quantized_node("QuantizedAdd", (src.integers, src_1.integers), src.quantization, result, values)
    return None


def _recognize_average(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the mean of integers of the type of the result; None if it has padding, which is a zero point."""
    assert result.quantization is not None
    src = dequantized_bytes(rewriter, node.inputs[0])
    if src is None or src.quantization.data_type != result.quantization.data_type:
        return None
    attributes = node.attributes
    if len(rewriter.dims(node.inputs[0])) not in (3, 4, 5) or not _bounds_only(result):
        return None
    if (
        attributes.get("ceil_mode", 0)
        or attributes.get("auto_pad", "NOTSET") != "NOTSET"
        or any(attributes.get("pads", ()))
    ):
        return None
    attributes = {**node.attributes, "is_global": int(node.operator == "GlobalAveragePool")}
    return _quantized_node("QuantizedAveragePool", (src.integers,), src.quantization, result, attributes)


def _recognize_resize(rewriter: NetworkRewriter, node: Node, result: _Result) -> Node | None:
    """Return the linear interpolation of integers of the type of the result, at the middles of pixels."""
    assert result.quantization is not None
    src = dequantized_bytes(rewriter, node.inputs[0])
    if src is None or src.quantization.data_type != result.quantization.data_type or not _bounds_only(result):
        return None
    if rewriter.network.opset < 11 or not _interpolates_middles(rewriter, node):
        return None
    return _quantized_node("QuantizedResize", (src.integers,), src.quantization, result, {})


def _interpolates_middles(rewriter: NetworkRewriter, node: Node) -> bool:
    """Return whether a Resize interpolates between the middles of pixels, by the ratio of the extents of each axis."""
    dims, out, attributes = rewriter.dims(node.inputs[0]), rewriter.dims(node.outputs[0]), node.attributes
    is_smaller = any(m < n for n, m in zip(dims, out, strict=True))
    mode = attributes.get("coordinate_transformation_mode", "half_pixel")
    if attributes.get("mode", "nearest") != "linear" or (attributes.get("antialias", 0) and is_smaller):
        return False
    if mode != "half_pixel" and (mode != "pytorch_half_pixel" or 1 in out[2:]):
        return False
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch" or attributes.get("exclude_outside", 0):
        return False
    scales = rewriter.constants.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if scales is not None and scales.size:
        axes = attributes.get("axes") or range(len(dims))
        if any(scale * dims[axis] != out[axis] for axis, scale in zip(axes, scales.tolist(), strict=True)):
            return False
    return len(dims) in (3, 4, 5) and dims[:2] == out[:2] and dims != out


def _bounds_only(result: _Result) -> bool:
    """Return whether the functions between an operator and its result only bound the result."""
    return not any(algorithm != "clip" and alpha for algorithm, alpha, _ in result.post_ops)


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
        "BatchNormalization": _recognize_normalization,
        "Conv": _recognize_conv,
        "ConvTranspose": _recognize_conv,
        "Gemm": _recognize_gemm,
        "GlobalAveragePool": _recognize_average,
        "MatMul": _recognize_matmul,
        "Resize": _recognize_resize,
        "Softmax": _recognize_softmax,
    }
)
"""Rule of each operator that has one on integers."""


# Absorption

_LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType({"s8": (-128, 127), "u8": (0, 255)})
_PRODUCTS = ("QuantizedConv", "QuantizedConvTranspose", "QuantizedMatMul")


def _absorb_dequantize(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the product that computes the result of a DequantizeLinear, rounded and bounded as its integers are.

    With a scale s and a zero point z, the result is s * clip(round(x / s), low - z, high - z). That is exact: z is an
    integer, so it is the same before and after rounding.
    """
    found = dequantized_bytes(rewriter, node.outputs[0]) if node.operator == "DequantizeLinear" else None
    product = None if found is None else rewriter.producer(found.integers)
    if found is None or product is None or product.domain != INTERNAL_DOMAIN:
        return None
    if product.operator not in _PRODUCTS or not rewriter.is_read_once(found.integers):
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
    """Replace a QuantizeLinear of constants, or of such that a DequantizeLinear computes, by its result, a constant."""
    if node.operator != "QuantizeLinear":
        return None
    found = dequantized(rewriter, node.inputs[0])
    array = None if found is None else rewriter.constants.get(found.integers)
    if found is not None and array is not None:
        real = rewriter.add_constant(f"{node.inputs[0]}:value", dequantize_array(array, found.quantization))
        node = replace(node, inputs=(real, *node.inputs[1:]))
    return _replace_by_result(rewriter, node)


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
