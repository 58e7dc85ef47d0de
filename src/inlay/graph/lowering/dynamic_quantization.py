"""Rules of operators whose scales and zero points are computed by the network.

A scale that the network computes is an argument that the operation reads, such as `src_scales`. The operators of the
domain `inlay` are described in `passes.dynamic_quantization`.

Weights have the type s8. A matrix may have one zero point. No convolution has a zero point of weights: then the source
is dequantized, and the convolution is computed in f32, in which sums of integers are as exact as the scales.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.graph.lowering.context import F32, LoweringContext, LoweringRule, Operand
from inlay.graph.lowering.spatial import sliding_window
from inlay.graph.op_graph import Array
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.reordering.attributes import Scales, ZeroPoints

_U8, _S32 = np.dtype(np.uint8), np.dtype(np.int32)


def quantize(context: LoweringContext) -> tuple[Operand, ...]:
    """Lower DynamicQuantize to a dynamic quantization."""
    src = context.source(0)
    results = {"dst": context.dims(src), "scale": (1,), "zero_point": (1,)}
    types: dict[str, np.dtype[Any]] = {"dst": _U8, "scale": F32, "zero_point": _S32}
    found = context.emit_all("dynamic_quantization", {"src": src}, results, types)
    return found["dst"], found["scale"], found["zero_point"]


def matmul(context: LoweringContext) -> Operand:
    """Lower DynamicMatMul to a matrix product; the rows of a stack of matrices become those of one."""
    src, weights = str(context.operand(0, (_U8,))), context.constant(3, "weights")
    left, zero = context.dims(src), context.attribute("weights_zero_point")
    rows = context.reshape(src, (prod(left[:-1]), left[-1]))
    scales = context.attribute("weights_scales")
    zero_points, operands = {"src": ZeroPoints()}, _values(context, rows, weights, scales)
    if zero:
        zero_points["weights"] = ZeroPoints()
        operands["weights_zero_points"] = np.array([zero], np.int32)
    if context.has_input(4):
        operands["bias"] = context.constant(4, "bias").reshape(1, -1)
    attributes = PrimitiveAttributes(scales=_scales(scales, 2), zero_points=zero_points)
    product = context.emit("matmul", operands, (prod(left[:-1]), weights.shape[1]), F32, attributes)
    return context.reshape(product, context.output().dims)


def convolution(context: LoweringContext) -> Operand:
    """Lower DynamicConv to a convolution, of integers if the weights have no zero point."""
    src, weights = str(context.operand(0, (_U8,))), context.constant(3, "weights")
    dims, result, shape = context.dims(src), context.output().dims, weights.shape
    window = sliding_window(context, shape[2:], dims[2:], result[2:])
    groups, scales = context.attribute("group", 1), context.attribute("weights_scales")
    zero = context.attribute("weights_zero_point")
    if zero:
        factors = scales.astype(np.float64).reshape(-1, *(1,) * (weights.ndim - 1))
        weights = ((weights.astype(np.float64) - zero) * factors).astype(np.float32)
    if groups > 1:
        weights = weights.reshape(groups, shape[0] // groups, *shape[1:])
    attributes = PrimitiveAttributes(scales=_scales(scales, 3 if groups > 1 else 1), zero_points={"src": ZeroPoints()})
    operands = _values(context, src, weights, scales)
    if zero:
        operands, attributes = {"src": _dequantize(context, src), "weights": weights}, PrimitiveAttributes()
    if context.has_input(4):
        operands["bias"] = context.constant(4, "bias")
    parameters = window.parameters(dims[2:], result[2:])
    return context.emit("convolution", operands, result, F32, attributes, algorithm="direct", **parameters)


def _values(context: LoweringContext, src: Operand, weights: Array, scales: Array) -> dict[str, Operand]:
    """Return the operands of a product: those that are multiplied, and their scales and zero point."""
    zero_point, scale = context.operand(2, (_S32,)), context.operand(1)
    operands: dict[str, Operand] = {"src": src, "weights": weights, "src_scales": scale, "src_zero_points": zero_point}
    return operands | {"weights_scales": np.ascontiguousarray(scales, np.float32)}


def _scales(scales: Array, mask: int) -> dict[str, Scales]:
    """Return the scales of source and weights; several scales of weights are along the axes of `mask`."""
    return {"src": Scales(), "weights": Scales(mask=mask if scales.size > 1 else 0)}


def _dequantize(context: LoweringContext, src: str) -> str:
    """Emit the reorder that dequantizes the source."""
    values = {"src_scales": context.operand(1), "src_zero_points": context.operand(2, (_S32,))}
    attributes = PrimitiveAttributes(scales={"src": Scales()}, zero_points={"src": ZeroPoints()})
    return context.emit("reorder", {"src": src, **values}, context.dims(src), F32, attributes)


DYNAMIC_RULES: Mapping[str, LoweringRule] = MappingProxyType(
    {
        "inlay:DynamicConv": convolution,
        "inlay:DynamicMatMul": matmul,
        "inlay:DynamicQuantize": quantize,
    }
)
"""Rule of each operator, by its key in `translation.TABLE`."""
