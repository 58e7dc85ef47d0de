"""Element by element: functions of one tensor, then arithmetic of two or more.

A function of one element is an algorithm of eltwise with its numbers; Clip and Pow have inputs that must be constants.

Two or more tensors are binary, sum, and eltwise where one of two is a number. Tensors with fewer axes get axes of
length 1 in front, which is a view. In binary the first source has the dims of the result where the operation allows
that sources swap, since engines spread the second one only.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite

import numpy as np

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.op_graph import Array
from inlay.layout import Dims

# Functions of one tensor


def eltwise(draft: Draft, src: Operand, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> str:
    """A function of each element of `src`."""
    numbers = {"alpha": float(alpha), "beta": float(beta)}
    return draft.put("eltwise", {"src": src}, draft.dims(src), algorithm=algorithm, **numbers)


def plain(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Draft], Operand]:
    """The rule of an operator that is an algorithm with fixed numbers."""

    def rule(draft: Draft) -> Operand:
        return eltwise(draft, draft.source(0), algorithm, alpha, beta)

    return rule


def sloped(algorithm: str, default: float) -> Callable[[Draft], Operand]:
    """The rule of an operator whose attribute alpha is that of the algorithm."""

    def rule(draft: Draft) -> Operand:
        return eltwise(draft, draft.source(0), algorithm, draft.attribute("alpha", default))

    return rule


def hard_sigmoid(draft: Draft) -> Operand:
    """max(0, min(1, alpha x + beta))."""
    alpha, beta = draft.attribute("alpha", 0.2), draft.attribute("beta", 0.5)
    return eltwise(draft, draft.source(0), "hardsigmoid", alpha, beta)


def selu(draft: Draft) -> Operand:
    """gamma times elu."""
    alpha, gamma = draft.attribute("alpha", 1.6732632423543772), draft.attribute("gamma", 1.0507009873554805)
    return eltwise(draft, eltwise(draft, draft.source(0), "elu", alpha), "linear", gamma)


def celu(draft: Draft) -> Operand:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)), which is alpha elu(x / alpha)."""
    alpha = draft.attribute("alpha", 1.0)
    require(alpha > 0, f"alpha is {alpha}, which is no slope of elu")
    if alpha == 1:
        return eltwise(draft, draft.source(0), "elu", 1.0)
    scaled = eltwise(draft, draft.source(0), "linear", 1 / alpha)
    return eltwise(draft, eltwise(draft, scaled, "elu", 1.0), "linear", alpha)


def gelu(draft: Draft) -> Operand:
    """x / 2 (1 + erf(x / sqrt 2)), or by the tanh."""
    approximate = draft.attribute("approximate", "none")
    require(approximate in ("none", "tanh"), f"approximate is {approximate!r}")
    return eltwise(draft, draft.source(0), "gelu_tanh" if approximate == "tanh" else "gelu_erf")


def clip(draft: Draft) -> Operand:
    """min(high, max(low, x)): attributes before opset 11, then inputs."""
    if draft.opset < 11:
        low, high = draft.attribute("min", -inf), draft.attribute("max", inf)
    else:
        low, high = (_bound(draft, index, default) for index, default in ((1, -inf), (2, inf)))
    require(low <= high, f"its bounds {low} and {high} are in no order")
    src = draft.source(0)
    if (low, high) == (0, inf):
        return eltwise(draft, src, "relu")
    return eltwise(draft, src, "clip_v2", low, high)


def _bound(draft: Draft, index: int, default: float) -> float:
    return scalar(draft.constant(index, "bound")) if draft.given(index) else default


def scalar(array: Array) -> float:
    """The number of a constant with one element.

    Raises:
        Declined: it has several.
    """
    require(array.size == 1, "a constant has several elements")
    return float(array.reshape(-1)[0])


def power(draft: Draft) -> Operand:
    """x to a constant power, the same for all."""
    exponent = scalar(draft.constant(1, "exponent"))
    src = draft.source(0)
    require(draft.dims(src) == draft.result().dims, "its exponent has more axes")
    return powered(draft, src, exponent)


def powered(draft: Draft, src: Operand, exponent: float, factor: float = 1.0) -> Operand:
    """factor times src to a power."""
    if (exponent, factor) == (2, 1):
        return eltwise(draft, src, "square")
    if (exponent, factor) == (0.5, 1):
        return eltwise(draft, src, "sqrt")
    return eltwise(draft, src, "pow", factor, exponent)


# Arithmetic

_SWAPPING = ("add", "mul", "max", "min")


def pairwise(algorithm: str) -> Callable[[Draft], Operand]:
    """The rule of an operator of two tensors, or of one and a number."""

    def rule(draft: Draft) -> Operand:
        first, second = draft.operand(0), draft.operand(1)
        dims = draft.result().dims
        for operand, other, is_first in ((first, second, True), (second, first, False)):
            if not isinstance(operand, str) and operand.size == 1 and draft.dims(other) == dims:
                number = float(operand.reshape(-1)[0])
                found = _with_number(draft, other, algorithm, number, is_first)
                if found is not None:
                    return found
        return binary(draft, algorithm, first, second, dims)

    return rule


def _with_number(draft: Draft, src: Operand, algorithm: str, number: float, is_first: bool) -> Operand | None:
    """`src op number`, or `number op src` if it is first; None where binary is better."""
    if algorithm == "add":
        return eltwise(draft, src, "linear", 1.0, number)
    if algorithm == "sub":
        return eltwise(draft, src, "linear", -1.0 if is_first else 1.0, number if is_first else -number)
    if algorithm == "mul" and isfinite(number):
        return eltwise(draft, src, "linear", number)
    if algorithm == "div" and is_first:
        return powered(draft, src, -1.0, number) if isfinite(number) else None
    if algorithm == "div" and _has_reciprocal(number):
        return eltwise(draft, src, "linear", 1 / number)
    return None


def _has_reciprocal(number: float) -> bool:
    """Whether to multiply by 1 / number in float32 is to divide: both are finite and neither is subnormal."""
    least = float(np.finfo(np.float32).tiny)
    return isfinite(number) and least <= abs(number) <= 1 / least


def binary(draft: Draft, algorithm: str, first: Operand, second: Operand, dims: Dims) -> str:
    """Two operands, spread to `dims`."""
    one, other = (with_axes(draft, operand, len(dims)) for operand in (first, second))
    is_small = draft.dims(one) != dims or not isinstance(one, str)
    if is_small and draft.dims(other) == dims and isinstance(other, str) and algorithm in _SWAPPING:
        one, other = other, one
    return draft.put("binary", {"src_0": one, "src_1": other}, dims, algorithm=algorithm)


def with_axes(draft: Draft, operand: Operand, count: int) -> Operand:
    """The operand with axes of length 1 in front, `count` in all."""
    dims = draft.dims(operand)
    return draft.reshaped(operand, (1,) * (count - len(dims)) + dims)


def variadic(algorithm: str) -> Callable[[Draft], Operand]:
    """The rule of Sum, Mean, Max and Min, which take any number of tensors."""

    def rule(draft: Draft) -> Operand:
        operands = [draft.operand(index) for index in range(len(draft.node.inputs))]
        dims = draft.result().dims
        factor = 1 / len(operands) if algorithm == "mean" else 1.0
        step = "add" if algorithm in ("sum", "mean") else algorithm
        if len(operands) == 1:
            return draft.same(draft.source(0))
        is_sum = step == "add" and all(draft.dims(operand) == dims for operand in operands)
        if is_sum and (len(operands) > 2 or factor != 1):
            return _summed(draft, operands, dims, factor)
        total = _folded(draft, step, operands)
        return total if factor == 1 else eltwise(draft, total, "linear", factor)

    return rule


def _summed(draft: Draft, operands: Sequence[Operand], dims: Dims, factor: float) -> str:
    sources = {f"src_{index}": operand for index, operand in enumerate(operands)}
    return draft.put("sum", sources, dims, scales=(factor,) * len(operands))


def _folded(draft: Draft, algorithm: str, operands: Sequence[Operand]) -> str:
    """One after the other, tensors first, so that each step reads one."""
    ordered = sorted(operands, key=lambda operand: not isinstance(operand, str))
    require(isinstance(ordered[0], str), "all that it reads is constant")
    total = ordered[0]
    for operand in ordered[1:]:
        total = binary(draft, algorithm, total, operand, spread(draft.dims(total), draft.dims(operand)))
    assert isinstance(total, str)
    return total


def spread(one: Dims, other: Dims) -> Dims:
    """The dims of both together."""
    count = max(len(one), len(other))
    longer = [(1,) * (count - len(dims)) + dims for dims in (one, other)]
    return tuple(m if n == 1 else n for n, m in zip(*longer, strict=True))


def prelu(draft: Draft) -> Operand:
    """x if x > 0 else slope * x, where the slope is spread over x."""
    src, slope = draft.source(0), draft.operand(1)
    dims = draft.dims(src)
    require(len(draft.dims(slope)) <= len(dims), "its slope has more axes than what it is of")
    weights = with_axes(draft, slope, len(dims))
    fits = all(n in (1, of) for n, of in zip(draft.dims(weights), dims, strict=True))
    require(fits, f"its slope {draft.dims(slope)} is not spread over {dims}")
    return draft.put("prelu", {"src": src, "weights": weights}, dims)


ELEMENTWISE: Mapping[str, Callable[[Draft], Operand]] = {
    "Abs": plain("abs"),
    "Add": pairwise("add"),
    "Celu": celu,
    "Clip": clip,
    "Div": pairwise("div"),
    "Elu": sloped("elu", 1.0),
    "Exp": plain("exp"),
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": plain("hardswish", float(np.float32(1 / 6)), 0.5),
    "LeakyRelu": sloped("relu", float(np.float32(0.01))),
    "Log": plain("log"),
    "Max": variadic("max"),
    "Mean": variadic("mean"),
    "Min": variadic("min"),
    "Mish": plain("mish"),
    "Mul": pairwise("mul"),
    "Neg": plain("linear", -1.0),
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": plain("pow", 1.0, -1.0),
    "Relu": plain("relu"),
    "Round": plain("round"),
    "Selu": selu,
    "Sigmoid": plain("logistic"),
    "Softplus": plain("soft_relu", 1.0),
    "Sqrt": plain("sqrt"),
    "Sub": pairwise("sub"),
    "Sum": variadic("sum"),
    "Swish": sloped("swish", 1.0),
    "Tanh": plain("tanh"),
}
"""The rule of each operator."""
