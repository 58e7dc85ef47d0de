"""Rules of operators on integers with scales and zero points that the model states.

Operators of quantized elements become primitives with `Op.attributes`, whose values are constant arguments. Those of
the domain `inlay` are described in `passes.quantization`. Their results are quantized in the kernel: by the scale and
zero point of the destination where it has them, else by post-operations that the operation itself has.

A sum of integers, with scales s and zero points z of the sources 0 and 1 and of the result 2:

    q2 = s0 / s2 * q0 + s1 / s2 * q1 + c,    c = z2 - z0 * s0 / s2 - z1 * s1 / s2

The zero point of a matrix of weights is one number; a source of u8 that is the second factor becomes s8 first.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.graph.lowering.broadcasting import broadcast_dims, with_leading_axes
from inlay.graph.lowering.context import F32, LoweringContext, LoweringRule, Operand, require
from inlay.graph.lowering.spatial import Window, pooling_window, sliding_window, swap_channels, transposed_window
from inlay.graph.op_graph import Array
from inlay.layout import Dims
from inlay.primitives.attributes import EltwisePostOp, PostOp, PrimitiveAttributes
from inlay.primitives.engine import Parameter
from inlay.reordering.attributes import Scales, ZeroPoints

_S8, _U8 = np.dtype(np.int8), np.dtype(np.uint8)
_BYTES = (_S8, _U8)
_LIMITS: Mapping[np.dtype[Any], tuple[int, int]] = {_S8: (-128, 127), _U8: (0, 255)}


def _number(value: Any) -> Array:
    """Return a scale as the one value of an attribute."""
    return np.asarray(value, np.float32).reshape(1)


def _integer(value: Any) -> Array:
    """Return a zero point as the one value of an attribute."""
    return np.asarray(value, np.int32).reshape(1)


class _Values:
    """Scales and zero points of a primitive, with the operands that hold their values."""

    def __init__(self, post_ops: tuple[PostOp, ...] = ()) -> None:
        self.scales: dict[str, Scales] = {}
        self.zero_points: dict[str, ZeroPoints] = {}
        self.operands: dict[str, Operand] = {}
        self._post_ops = post_ops

    def add(self, argument: str, scales: Any, zero_point: Any = 0, mask: int = 0) -> None:
        """Add scales of an argument, along the axes of `mask`, and its zero point, unless that is 0."""
        self.scales[argument] = Scales(mask=mask)
        self.operands[f"{argument}_scales"] = np.ascontiguousarray(scales, np.float32).reshape(-1)
        self.add_zero_point(argument, zero_point)

    def add_zero_point(self, argument: str, zero_point: Any) -> None:
        """Add the zero point of an argument, unless that is 0."""
        if zero_point:
            self.zero_points[argument] = ZeroPoints()
            self.operands[f"{argument}_zero_points"] = _integer(zero_point)

    @property
    def attributes(self) -> PrimitiveAttributes:
        """The attributes of the primitive."""
        return PrimitiveAttributes(scales=self.scales, zero_points=self.zero_points, post_ops=self._post_ops)


def _post_ops(context: LoweringContext) -> tuple[PostOp, ...]:
    """Return the functions of the real result that an operator on integers applies."""
    return tuple(EltwisePostOp(*function) for function in context.attribute("post_ops"))


def _real_values(context: LoweringContext) -> _Values:
    """Return the quantization of source and result of an operator whose kernel computes real numbers in between."""
    values = _Values(_post_ops(context))
    values.add("src", context.attribute("src_scale"), context.attribute("src_zero_point"))
    if context.attribute("dst_scale") is not None:
        values.add("dst", context.attribute("dst_scale"), context.attribute("dst_zero_point"))
    return values


# Changes of type


def quantize(context: LoweringContext) -> Operand:
    """Lower QuantizeLinear to a reorder to integers of 8 bits."""
    src = context.source(0)
    dtype = context.output().dtype
    require(dtype in _BYTES, f"its result is {dtype}, and reorders quantize to int8 and uint8")
    return _reorder(context, src, "dst", dtype)


def dequantize(context: LoweringContext) -> Operand:
    """Lower DequantizeLinear to a reorder from integers of 8 bits, or of 32 bits."""
    src = context.operand(0, (*_BYTES, np.dtype(np.int32)))
    require(context.output().dtype == F32, f"its result is {context.output().dtype}")
    require(isinstance(src, str), "its input is a constant")
    return _reorder(context, str(src), "src", F32)


def _reorder(context: LoweringContext, src: str, argument: str, dtype: np.dtype[Any]) -> Operand:
    """Emit a reorder with the node's scales and zero points for one argument."""
    dims = context.dims(src)
    scales = context.constant(1, "scale")
    zeros = context.constant(2, "zero point") if context.has_input(2) else np.zeros(1, np.int32)
    axis = context.attribute("axis", 1) % len(dims)
    require(not context.attribute("block_size", 0), "its scales are of blocks")
    require(scales.dtype == F32 and bool(np.isfinite(scales).all() and (scales > 0).all()), "its scales are unusual")
    require(scales.size == 1 or scales.shape == dims[axis : axis + 1], f"its scales have dims {scales.shape}")
    zero = np.unique(zeros)
    require(zero.size == 1, "its zero points differ")
    values = _Values()
    values.add(argument, scales, int(zero[0]), 1 << axis if scales.size > 1 else 0)
    return context.emit("reorder", {"src": src, **values.operands}, dims, dtype, values.attributes)


def table_lookup(context: LoweringContext) -> Operand:
    """Lower a function of integers of 8 bits to the primitive that reads its table."""
    src, table = context.operand(0, _BYTES), context.constant(1, "table")
    return context.emit("table_lookup", {"src": src, "table": table}, context.dims(src), table.dtype)


# Products


def convolution(context: LoweringContext) -> Operand:
    """Lower a convolution of integers; weights have a scale for each channel of the result, or one."""
    src, weights = context.operand(0, _BYTES), context.constant(1, "weights")
    dims, result, shape = context.dims(src), context.output().dims, weights.shape
    window = sliding_window(context, shape[2:], dims[2:], result[2:])
    groups, scales = context.attribute("group", 1), context.attribute("weights_scales")
    mask = 0 if scales.size == 1 else 1
    if groups > 1:
        weights, mask = weights.reshape(groups, shape[0] // groups, *shape[1:]), mask * 3
    parameters = window.parameters(dims[2:], result[2:])
    is_padded = any(pad > 0 for side in ("padding_l", "padding_r") for pad in parameters[side])
    sums = None if is_padded else weights.reshape(shape[0], -1).sum(1, np.float64)
    values, bias = _product_values(context, scales, 0, mask, shape[:1], sums)
    operands: dict[str, Operand] = {"src": src, "weights": weights, **bias, **values.operands}
    dtype = context.output().dtype
    return context.emit("convolution", operands, result, dtype, values.attributes, algorithm="direct", **parameters)


def _product_values(
    context: LoweringContext, scales: Array, weights_zero_point: int, mask: int, dims: Dims, sums: Array | None
) -> tuple[_Values, dict[str, Operand]]:
    """Return the quantization of a product, and its constant bias of `dims` by argument.

    All scales become one, that of the weights, and the kernel computes numbers of quanta of the result: bias and
    activations are divided by its scale. Where that is not possible, each tensor has its own scale. Zero points become
    a part of the bias where they are the same for all elements of a column or channel. A stack of matrices gets no
    bias, which would save nothing.

    `sums` are the sums of the weights of each column or channel of the result, where each element of the result is a
    product with all of these weights; None elsewhere.
    """
    bias = context.constant(2, "bias") if context.has_input(2) else None
    folded = None if context.attribute("dst_scale") is None else _fold_scales(context, scales, bias)
    if folded is None:
        values = _real_values(context)
        values.add("weights", scales, weights_zero_point, mask)
        return values, {} if bias is None else {"bias": bias}
    scales, shift = folded
    zeros = {argument: context.attribute(f"{argument}_zero_point") for argument in ("src", "dst")}
    added = np.zeros(1) if sums is None else zeros["src"] * sums * scales.reshape(-1).astype(np.float64)
    if sums is not None and np.abs(added).max(initial=0) <= _MOST_QUANTA:
        shift, zeros["src"] = shift - added, 0
    post_ops = _shift_activations(context, zeros["dst"]) if len(dims) < 3 else None
    if post_ops is not None:
        shift, zeros["dst"] = shift + zeros["dst"], 0
    values = _Values(_divide_activations(context) if post_ops is None else post_ops)
    values.add("weights", scales, weights_zero_point, mask)
    for argument, zero in zeros.items():
        values.add_zero_point(argument, zero)
    if bias is None and not shift.any():
        return values, {}
    return values, {"bias": np.broadcast_to(shift, dims[-1:]).reshape(dims).astype(np.float32)}


_MOST_QUANTA = 4096
"""Most quanta of the result that a zero point adds to it as a part of the bias: f32 has a precision of 2^-12 there."""


def _fold_scales(context: LoweringContext, scales: Array, bias: Array | None) -> tuple[Array, Array] | None:
    """Return scales of weights that include those of source and result, and the bias in quanta of the result.

    The bias has one axis, in f64. None if an activation is not linear on each side of 0, or if a number would not be a
    normal one of f32.
    """
    if any(algorithm not in ("relu", "clip") for algorithm, _, _ in context.attribute("post_ops")):
        return None
    dst, limits = np.float64(context.attribute("dst_scale")), np.finfo(np.float32)
    folded = scales.astype(np.float64) * np.float64(context.attribute("src_scale")) / dst
    quanta = np.zeros(1) if bias is None else bias.reshape(-1).astype(np.float64) / dst
    if folded.min() < limits.tiny or max(folded.max(), np.abs(quanta).max(initial=0)) > limits.max:
        return None
    return folded.astype(np.float32), quanta


def _divide_activations(context: LoweringContext) -> tuple[PostOp, ...]:
    """Return the activations of numbers of quanta: a clip has its bounds in quanta, and a ReLU is the same."""
    scale = float(context.attribute("dst_scale"))
    factors = {"clip": 1 / scale, "relu": 1.0}
    return tuple(
        EltwisePostOp(algorithm, alpha * factors[algorithm], beta * factors[algorithm])
        for algorithm, alpha, beta in context.attribute("post_ops")
    )


def _shift_activations(context: LoweringContext, zero: int) -> tuple[PostOp, ...] | None:
    """Return the activations of numbers of quanta to which the zero point was added; None if one is a leaky ReLU."""
    (least, most), shifted = _LIMITS[context.output().dtype], list[PostOp]()
    for one in _divide_activations(context):
        assert isinstance(one, EltwisePostOp)
        if one.algorithm == "relu" and one.alpha:
            return None
        low, high = (0.0, np.inf) if one.algorithm == "relu" else (one.alpha, one.beta)
        low, high = (float(np.clip(end + zero, least, most)) for end in (low, high))
        shifted += [EltwisePostOp("clip", low, high)] if (low, high) != (least, most) else []
    return tuple(shifted)


def deconvolution(context: LoweringContext) -> Operand:
    """Lower a transposed convolution of integers; weights have a scale for each channel of a group, or one."""
    src, weights = context.operand(0, _BYTES), context.constant(1, "weights")
    dims, result = context.dims(src), context.output().dims
    window = transposed_window(context, weights.shape[2:], dims[2:], result[2:])
    groups, scales = context.attribute("group", 1), context.attribute("weights_scales")
    mask = 0 if scales.size == 1 else 1 if groups == 1 else 3
    values = _real_values(context)
    values.add("weights", np.tile(scales, groups) if mask == 3 else scales, mask=mask)
    swapped = swap_channels(context, weights, groups)
    operands: dict[str, Operand] = {"src": src, "weights": swapped, **_bias(context), **values.operands}
    parameters = window.parameters(result[2:], dims[2:])
    dtype = context.output().dtype
    return context.emit("deconvolution", operands, result, dtype, values.attributes, algorithm="direct", **parameters)


def _bias(context: LoweringContext) -> dict[str, Operand]:
    """Return the constant bias, if the node has one."""
    return {"bias": context.constant(2, "bias")} if context.has_input(2) else {}


def matmul(context: LoweringContext) -> Operand:
    """Lower a matrix product of integers; rows of a stack that is multiplied by one matrix become one matrix."""
    src, weights = context.operand(0, _BYTES), context.operand(1, _BYTES)
    scales, zero = context.attribute("weights_scales"), context.attribute("weights_zero_point")
    result = context.output().dims
    if isinstance(weights, str) and context.dtype(weights) == _U8:
        weights, zero = _shift_to_s8(context, weights), zero - 128
    left, right = context.dims(src), context.dims(weights)
    dims: Dims
    if len(right) == 2 and not isinstance(weights, str):
        rows = prod(left[:-1])
        src, dims = context.reshape(src, (rows, left[-1])), (rows, right[-1])
    else:
        src, weights = (with_leading_axes(context, one, max(len(left), len(right))) for one in (src, weights))
        dims = (*broadcast_dims(context.dims(src)[:-2], context.dims(weights)[:-2]), left[-2], right[-1])
    is_matrix = len(right) == 2 and not isinstance(weights, str) and not zero
    sums = context.constant(1, "weights").sum(0, np.float64) if is_matrix else None
    mask, columns = 0 if scales.size == 1 else 1 << (len(dims) - 1), (*(1,) * (len(dims) - 1), dims[-1])
    values, bias = _product_values(context, scales, zero, mask, columns, sums)
    operands: dict[str, Operand] = {"src": src, "weights": weights, **bias, **values.operands}
    product = context.emit("matmul", operands, dims, context.output().dtype, values.attributes)
    return context.reshape(product, result)


def _shift_to_s8(context: LoweringContext, src: str) -> str:
    """Emit a reorder from u8 to s8 that subtracts 128."""
    values = _Values()
    values.zero_points["src"] = ZeroPoints()
    values.operands["src_zero_points"] = _integer(128)
    return context.emit("reorder", {"src": src, **values.operands}, context.dims(src), _S8, values.attributes)


# Sums, means and softmax


def add(context: LoweringContext) -> Operand:
    """Lower a sum of integers to a binary primitive whose post-operations add zero points and bound the result."""
    src, other = context.operand(0, _BYTES), context.operand(1, (*_BYTES, F32))
    dst = float(context.attribute("dst_scale"))
    scale = float(context.attribute("src_scale")) / dst
    shift = context.attribute("dst_zero_point") - context.attribute("src_zero_point") * scale
    aligned = with_leading_axes(context, other, len(context.dims(src)))
    if isinstance(aligned, str):
        ratio = float(context.attribute("src_1_scale")) / dst
        values = _Values((EltwisePostOp("linear", 1.0, shift - context.attribute("src_1_zero_point") * ratio),))
        values.add("src_1", ratio)
    else:
        aligned, values = (aligned.astype(np.float64) / dst + shift).astype(np.float32), _Values()
    values.add("src_0", scale)
    attributes = _with_bounds(context, values.attributes)
    operands: dict[str, Operand] = {"src_0": src, "src_1": aligned, **values.operands}
    return context.emit("binary", operands, context.dims(src), context.output().dtype, attributes, algorithm="add")


def _with_bounds(context: LoweringContext, attributes: PrimitiveAttributes) -> PrimitiveAttributes:
    """Return attributes with the post-operations of the real result as post-operations of the quantized one."""
    scale, zero = float(context.attribute("dst_scale")), context.attribute("dst_zero_point")
    low, high = _LIMITS[context.output().dtype]
    added: list[PostOp] = []
    for algorithm, alpha, beta in context.attribute("post_ops"):
        require(algorithm == "clip" or alpha == 0, f"{algorithm} does not only bound the result")
        ends = (0.0, np.inf) if algorithm == "relu" else (alpha, beta)
        least, most = (float(np.clip(end / scale + zero, low, high)) for end in ends)
        added.append(EltwisePostOp("clip", least, most))
    return PrimitiveAttributes(
        scales=attributes.scales, zero_points=attributes.zero_points, post_ops=(*attributes.post_ops, *added)
    )


def average_pool(context: LoweringContext) -> Operand:
    """Lower a mean of integers: a pooling whose post-operation changes scale and zero point."""
    src, result = context.operand(0, _BYTES), context.output()
    dims: Dims = context.dims(src)
    attributes = _mean_attributes(context)
    window = Window(dims[2:], (1,) * len(dims[2:]), (1,) * len(dims[2:]), (0,) * len(dims[2:]))
    if not context.attribute("is_global"):
        window = pooling_window(context, dims[2:], result.dims[2:])
    parameters: dict[str, Parameter] = {"algorithm": "avg_exclude_padding", "kernel": window.kernel}
    parameters |= window.parameters(dims[2:], result.dims[2:])
    return context.emit("pooling", {"src": src}, result.dims, result.dtype, attributes, **parameters)


def resize(context: LoweringContext) -> Operand:
    """Lower a linear interpolation of integers: a resampling whose post-operation changes scale and zero point."""
    src, result = context.operand(0, _BYTES), context.output()
    factors = tuple(out / n for n, out in zip(context.dims(src)[2:], result.dims[2:], strict=True))
    parameters: dict[str, Parameter] = {"algorithm": "linear", "factors": factors}
    return context.emit("resampling", {"src": src}, result.dims, result.dtype, _mean_attributes(context), **parameters)


def _mean_attributes(context: LoweringContext) -> PrimitiveAttributes:
    """Return attributes that change scale and zero point of a weighted mean of integers, and bound it."""
    ratio = float(context.attribute("src_scale")) / float(context.attribute("dst_scale"))
    shift = context.attribute("dst_zero_point") - context.attribute("src_zero_point") * ratio
    is_same = ratio == 1 and shift == 0
    post_ops: tuple[PostOp, ...] = () if is_same else (EltwisePostOp("linear", ratio, shift),)
    return _with_bounds(context, PrimitiveAttributes(post_ops=post_ops))


def softmax(context: LoweringContext) -> Operand:
    """Lower a softmax with a quantized result; a post-operation adds the zero point, before the scale is applied."""
    src, scale, zero = context.source(0), context.attribute("dst_scale"), context.attribute("dst_zero_point")
    dims: Dims = context.dims(src)
    shift: tuple[PostOp, ...] = (EltwisePostOp("linear", 1.0, float(scale) * zero),) if zero else ()
    values = _Values(shift)
    values.add("dst", scale)
    operands: dict[str, Operand] = {"src": src, **values.operands}
    axis, dtype = context.attribute("axis") % len(dims), context.output().dtype
    return context.emit("softmax", operands, dims, dtype, values.attributes, algorithm="accurate", axis=axis)


QUANTIZED_RULES: Mapping[str, LoweringRule] = MappingProxyType(
    {
        "DequantizeLinear": dequantize,
        "QuantizeLinear": quantize,
        "inlay:QuantizedAdd": add,
        "inlay:QuantizedAveragePool": average_pool,
        "inlay:QuantizedConv": convolution,
        "inlay:QuantizedConvTranspose": deconvolution,
        "inlay:QuantizedMatMul": matmul,
        "inlay:QuantizedResize": resize,
        "inlay:QuantizedSoftmax": softmax,
        "inlay:TableLookup": table_lookup,
    }
)
"""Rule of each operator, by its key in `translation.TABLE`."""
