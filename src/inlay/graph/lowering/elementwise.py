"""Lowering rules of element-wise operators: functions of one tensor, and arithmetic on two or more.

A function of one tensor is an algorithm of the primitive eltwise. The bounds of Clip and the exponent of Pow are inputs
in ONNX; the rules require them to be constant.

Arithmetic on two or more tensors becomes the primitives binary or sum, or eltwise if one of two operands is a number. A
tensor with fewer axes than the result gets leading axes of length 1, by a view. See `broadcasting` for the dims and the
order of the sources of binary.

PRelu becomes the eltwise relu if its slopes are constant and equal, since convolutions apply that at no cost.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite, prod

import numpy as np

from inlay.graph.broadcast_patterns import merge_axes
from inlay.graph.lowering.broadcasting import (
    broadcast_dims,
    emit_binary,
    expand_axis,
    with_leading_axes,
)
from inlay.graph.lowering.context import LoweringContext, Operand, require
from inlay.graph.op_graph import Array
from inlay.layout import Dims

# Functions of one tensor


def emit_eltwise(context: LoweringContext, src: Operand, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> str:
    """Emit a function of each element of `src`."""
    numbers = {"alpha": float(alpha), "beta": float(beta)}
    return context.emit("eltwise", {"src": src}, context.dims(src), algorithm=algorithm, **numbers)


def fixed_eltwise(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[LoweringContext], Operand]:
    """Return the rule of an operator that is an eltwise algorithm with fixed parameters."""

    def rule(context: LoweringContext) -> Operand:
        return emit_eltwise(context, context.source(0), algorithm, alpha, beta)

    return rule


def eltwise_with_alpha(algorithm: str, default: float) -> Callable[[LoweringContext], Operand]:
    """Return the rule of an operator whose attribute `alpha` is that of the eltwise algorithm."""

    def rule(context: LoweringContext) -> Operand:
        return emit_eltwise(context, context.source(0), algorithm, context.attribute("alpha", default))

    return rule


def hard_sigmoid(context: LoweringContext) -> Operand:
    """Lower HardSigmoid: max(0, min(1, alpha x + beta))."""
    alpha, beta = context.attribute("alpha", 0.2), context.attribute("beta", 0.5)
    return emit_eltwise(context, context.source(0), "hardsigmoid", alpha, beta)


def selu(context: LoweringContext) -> Operand:
    """Lower Selu: gamma times elu."""
    alpha, gamma = context.attribute("alpha", 1.6732632423543772), context.attribute("gamma", 1.0507009873554805)
    return emit_eltwise(context, emit_eltwise(context, context.source(0), "elu", alpha), "linear", gamma)


def celu(context: LoweringContext) -> Operand:
    """Lower Celu: max(0, x) + min(0, alpha (exp(x / alpha) - 1)), which is alpha elu(x / alpha)."""
    alpha = context.attribute("alpha", 1.0)
    require(alpha > 0, f"alpha is {alpha}, and must be positive")
    if alpha == 1:
        return emit_eltwise(context, context.source(0), "elu", 1.0)
    scaled = emit_eltwise(context, context.source(0), "linear", 1 / alpha)
    return emit_eltwise(context, emit_eltwise(context, scaled, "elu", 1.0), "linear", alpha)


def gelu(context: LoweringContext) -> Operand:
    """Lower Gelu: x / 2 (1 + erf(x / sqrt 2)), or its approximation by tanh."""
    approximate = context.attribute("approximate", "none")
    require(approximate in ("none", "tanh"), f"approximate is {approximate!r}")
    return emit_eltwise(context, context.source(0), "gelu_tanh" if approximate == "tanh" else "gelu_erf")


def clip(context: LoweringContext) -> Operand:
    """Lower Clip: min(high, max(low, x)). The bounds are attributes before opset 11 and inputs from then on."""
    if context.opset < 11:
        low, high = context.attribute("min", -inf), context.attribute("max", inf)
    else:
        low, high = (_clip_bound(context, index, default) for index, default in ((1, -inf), (2, inf)))
    require(low <= high, f"its lower bound {low} exceeds its upper bound {high}")
    src = context.source(0)
    if (low, high) == (0, inf):
        return emit_eltwise(context, src, "relu")
    return emit_eltwise(context, src, "clip_v2", low, high)


def _clip_bound(context: LoweringContext, index: int, default: float) -> float:
    """Return a bound of Clip that is input `index`, or `default` if it is left out."""
    return scalar(context.constant(index, "bound")) if context.has_input(index) else default


def scalar(array: Array) -> float:
    """Return the number of a constant with one element.

    Raises:
        UnsupportedNode: the constant has several elements.
    """
    require(array.size == 1, "a constant has several elements")
    return float(array.reshape(-1)[0])


def power(context: LoweringContext) -> Operand:
    """Lower Pow with a constant exponent that is the same for all elements."""
    exponent = scalar(context.constant(1, "exponent"))
    src = context.source(0)
    require(context.dims(src) == context.output().dims, "its exponent has more axes")
    return emit_power(context, src, exponent)


def emit_power(context: LoweringContext, src: Operand, exponent: float, factor: float = 1.0) -> Operand:
    """Emit `factor` times `src` to the power of `exponent`."""
    if (exponent, factor) == (2, 1):
        return emit_eltwise(context, src, "square")
    if (exponent, factor) == (0.5, 1):
        return emit_eltwise(context, src, "sqrt")
    return emit_eltwise(context, src, "pow", factor, exponent)


# Arithmetic


def pairwise(algorithm: str) -> Callable[[LoweringContext], Operand]:
    """Return the rule of an arithmetic operator of two operands."""

    def rule(context: LoweringContext) -> Operand:
        first, second = context.operand(0), context.operand(1)
        dims = context.output().dims
        for operand, other, is_first in ((first, second, True), (second, first, False)):
            if not isinstance(operand, str) and operand.size == 1 and context.dims(other) == dims:
                number = float(operand.reshape(-1)[0])
                result = _emit_with_constant(context, other, algorithm, number, is_first)
                if result is not None:
                    return result
        return emit_binary(context, algorithm, first, second, dims)

    return rule


def _emit_with_constant(
    context: LoweringContext, src: Operand, algorithm: str, number: float, is_first: bool
) -> Operand | None:
    """Emit `src op number`, or `number op src` if the number `is_first`; return None if eltwise cannot express it."""
    if algorithm == "add":
        return emit_eltwise(context, src, "linear", 1.0, number)
    if algorithm == "sub":
        return emit_eltwise(context, src, "linear", -1.0 if is_first else 1.0, number if is_first else -number)
    if algorithm == "mul" and isfinite(number):
        return emit_eltwise(context, src, "linear", number)
    if algorithm == "div" and is_first:
        return emit_power(context, src, -1.0, number) if isfinite(number) else None
    if algorithm == "div" and _has_reciprocal(number):
        return emit_eltwise(context, src, "linear", 1 / number)
    return None


def _has_reciprocal(number: float) -> bool:
    """Return whether multiplying by 1 / number may replace a division in float32: neither is infinite or subnormal."""
    least = float(np.finfo(np.float32).tiny)
    return isfinite(number) and least <= abs(number) <= 1 / least


def variadic(algorithm: str) -> Callable[[LoweringContext], Operand]:
    """Return the rule of Sum, Mean, Max or Min, which have any number of inputs."""

    def rule(context: LoweringContext) -> Operand:
        operands = [context.operand(index) for index in range(len(context.node.inputs))]
        dims = context.output().dims
        factor = 1 / len(operands) if algorithm == "mean" else 1.0
        pairwise_algorithm = "add" if algorithm in ("sum", "mean") else algorithm
        if len(operands) == 1:
            return context.alias(context.source(0))
        is_sum = pairwise_algorithm == "add" and all(context.dims(operand) == dims for operand in operands)
        if is_sum and (len(operands) > 2 or factor != 1):
            return _emit_sum(context, operands, dims, factor)
        total = _reduce_pairwise(context, pairwise_algorithm, operands)
        return total if factor == 1 else emit_eltwise(context, total, "linear", factor)

    return rule


def _emit_sum(context: LoweringContext, operands: Sequence[Operand], dims: Dims, factor: float) -> str:
    """Emit a sum of operands of the same dims, each multiplied by `factor`."""
    sources = {f"src_{index}": operand for index, operand in enumerate(operands)}
    return context.emit("sum", sources, dims, scales=(factor,) * len(operands))


def _reduce_pairwise(context: LoweringContext, algorithm: str, operands: Sequence[Operand]) -> str:
    """Emit binary operations that combine all operands one after another, beginning with tensors."""
    ordered = sorted(operands, key=lambda operand: not isinstance(operand, str))
    require(isinstance(ordered[0], str), "all of its inputs are constant")
    total = ordered[0]
    for operand in ordered[1:]:
        dims = broadcast_dims(context.dims(total), context.dims(operand))
        total = emit_binary(context, algorithm, total, operand, dims)
    assert isinstance(total, str)
    return total


# PRelu

_MOST_AXES_OF_PRELU = 5


def prelu(context: LoweringContext) -> Operand:
    """Lower PRelu: x if x > 0 else slope * x, where the slope is broadcast to x."""
    src: Operand = context.source(0)
    slope = context.operand(1)
    dims = context.dims(src)
    require(len(context.dims(slope)) <= len(dims), "its slope has more axes than its input")
    weights = with_leading_axes(context, slope, len(dims))
    fits = all(n in (1, extent) for n, extent in zip(context.dims(weights), dims, strict=True))
    require(fits, f"its slope {context.dims(slope)} cannot be broadcast to {dims}")
    if not isinstance(slope, str) and np.isfinite(slope).all() and (slope == slope.flat[0]).all():
        return emit_eltwise(context, src, "relu", slope.flat[0])
    if not 2 <= len(dims) <= _MOST_AXES_OF_PRELU or context.dims(weights) != (1, dims[1], *(1,) * (len(dims) - 2)):
        src, weights = _merge_slope(context, src, weights)
    result = context.emit("prelu", {"src": src, "weights": weights}, context.dims(src))
    return context.reshape(result, dims)


def _merge_slope(context: LoweringContext, src: Operand, slope: Operand) -> tuple[Operand, Operand]:
    """Return source and slope of a PRelu in dims for which oneDNN has machine code: a slope for each channel, or whole.

    Neighboring axes along which the slope differs are merged to the channels. If there are several such groups of axes,
    the slope is expanded to all elements; if there is none, to the last axis.
    """
    dims, last = context.dims(src), context.dims(src)[-1]
    merged, shape = merge_axes(dims, context.dims(slope))
    channels = [axis for axis, n in enumerate(shape) if n > 1]
    if not channels:
        merged, slope = (prod(dims) // last, last), context.reshape(slope, (1, 1))
        slope = slope if last == 1 else expand_axis(context, slope, 1, last)
    elif len(channels) > 1:
        for axis, n in enumerate(merged):
            slope = slope if shape[axis] == n else expand_axis(context, context.reshape(slope, shape), axis, n)
            shape = (*shape[:axis], n, *shape[axis + 1 :])
        merged = (1, prod(dims))
    elif channels == [0]:
        merged = (1, *merged)
    shape = (1, merged[1], *(1,) * (len(merged) - 2))
    return context.reshape(src, merged), context.reshape(slope, shape)


ELEMENTWISE: Mapping[str, Callable[[LoweringContext], Operand]] = {
    "Abs": fixed_eltwise("abs"),
    "Add": pairwise("add"),
    "Celu": celu,
    "Clip": clip,
    "Div": pairwise("div"),
    "Elu": eltwise_with_alpha("elu", 1.0),
    "Exp": fixed_eltwise("exp"),
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": fixed_eltwise("hardswish", float(np.float32(1 / 6)), 0.5),
    "LeakyRelu": eltwise_with_alpha("relu", float(np.float32(0.01))),
    "Log": fixed_eltwise("log"),
    "Max": variadic("max"),
    "Mean": variadic("mean"),
    "Min": variadic("min"),
    "Mish": fixed_eltwise("mish"),
    "Mul": pairwise("mul"),
    "Neg": fixed_eltwise("linear", -1.0),
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": fixed_eltwise("pow", 1.0, -1.0),
    "Relu": fixed_eltwise("relu"),
    "Round": fixed_eltwise("round"),
    "Selu": selu,
    "Sigmoid": fixed_eltwise("logistic"),
    "Softplus": fixed_eltwise("soft_relu", 1.0),
    "Sqrt": fixed_eltwise("sqrt"),
    "Sub": pairwise("sub"),
    "Sum": variadic("sum"),
    "Swish": eltwise_with_alpha("swish", 1.0),
    "Tanh": fixed_eltwise("tanh"),
}
"""Rule of each element-wise operator."""
