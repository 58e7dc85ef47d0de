"""Rules of matrix products whose constant weights have a scale for each group of elements.

They become `matmul` with integer weights and the attribute `fpmath_integers`, as in oneDNN. `passes.block_products`
makes the operator BlockMatMul of those that models have. Weights whose groups no kernel supports become f32.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from inlay.graph.lowering.context import LoweringContext, LoweringRule, Operand
from inlay.graph.op_graph import Array
from inlay.primitives.attributes import PLAIN, PrimitiveAttributes
from inlay.reordering.attributes import Scales, ZeroPoints

GROUP_MULTIPLE = 8
"""Divisor of the rows of groups that kernels support."""


def block_matmul(context: LoweringContext) -> Operand:
    """Lower BlockMatMul to a matmul of two matrices: all axes of the source but the last are rows."""
    src, weights = context.source(0), context.constant(1, "weights")
    dims = context.dims(src)
    rows = prod(dims[:-1])
    operands: dict[str, Operand] = {"src": context.reshape(src, (rows, dims[-1])), "weights": weights}
    attributes = PLAIN
    if context.attribute("group") % GROUP_MULTIPLE:
        operands["weights"] = _dequantize(context, weights)
    else:
        attributes, values = _quantization(context)
        operands |= values
    if context.has_input(4):
        operands["bias"] = context.constant(4, "bias").reshape(1, -1)
    product = context.emit("matmul", operands, (rows, weights.shape[1]), None, attributes)
    return context.reshape(product, context.output().dims)


def _quantization(context: LoweringContext) -> tuple[PrimitiveAttributes, dict[str, Operand]]:
    """Return the attributes of the product, and the operands that hold their values."""
    groups = (context.attribute("group"), 1)
    values: dict[str, Operand] = {"weights_scales": context.constant(2, "scales").reshape(-1)}
    zero_points = {}
    if context.has_input(3):
        values["weights_zero_points"] = context.constant(3, "zero points").astype(np.int32).reshape(-1)
        zero_points = {"weights": ZeroPoints(mask=3, groups=groups)}
    scales = {"weights": Scales(mask=3, groups=groups)}
    rounds_source = bool(context.attribute("rounds_source", 0))
    attributes = PrimitiveAttributes(
        scales=scales, zero_points=zero_points, fpmath_integers=True, rounds_source=rounds_source
    )
    return attributes, values


def _dequantize(context: LoweringContext, weights: Array) -> Array:
    """Return the weights as numbers of f32."""
    group, real = context.attribute("group"), weights.astype(np.float32)
    if context.has_input(3):
        real -= context.constant(3, "zero points").astype(np.float32).repeat(group, 0)
    return np.asarray(real * context.constant(2, "scales").repeat(group, 0), np.float32)


BLOCK_RULES: Mapping[str, LoweringRule] = MappingProxyType({"inlay:BlockMatMul": block_matmul})
"""Rule of each operator, by its key in `translation.TABLE`."""
