"""Rules of matrix products whose constant weights have a scale for each group of elements.

They become `matmul` with integer weights and the attribute `fpmath_integers`, as in oneDNN. `passes.block_products`
makes the operator BlockMatMul of those that models have.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

import numpy as np

from inlay.graph.lowering.context import LoweringContext, LoweringRule, Operand
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.reordering.attributes import Scales, ZeroPoints


def block_matmul(context: LoweringContext) -> Operand:
    """Lower BlockMatMul to a matmul of two matrices: all axes of the source but the last are rows."""
    src, weights = context.source(0), context.constant(1, "weights")
    groups, dims = (context.attribute("group"), 1), context.dims(src)
    rows = prod(dims[:-1])
    operands: dict[str, Operand] = {
        "src": context.reshape(src, (rows, dims[-1])),
        "weights": weights,
        "weights_scales": context.constant(2, "scales").reshape(-1),
    }
    zero_points = {}
    if context.has_input(3):
        operands["weights_zero_points"] = context.constant(3, "zero points").astype(np.int32).reshape(-1)
        zero_points = {"weights": ZeroPoints(mask=3, groups=groups)}
    if context.has_input(4):
        operands["bias"] = context.constant(4, "bias").reshape(1, -1)
    attributes = PrimitiveAttributes(
        scales={"weights": Scales(mask=3, groups=groups)}, zero_points=zero_points, fpmath_integers=True
    )
    product = context.emit("matmul", operands, (rows, weights.shape[1]), None, attributes)
    return context.reshape(product, context.output().dims)


BLOCK_RULES: Mapping[str, LoweringRule] = MappingProxyType({"inlay:BlockMatMul": block_matmul})
"""Rule of each operator, by its key in `translation.TABLE`."""
