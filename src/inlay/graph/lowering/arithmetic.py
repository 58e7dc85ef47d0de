"""Two or more tensors, element by element: binary, sum, and eltwise where one of two is a number.

Tensors with fewer axes get axes of length 1 in front, which is a view. In binary the first source has the dims of the
result where the operation allows that sources swap, since engines spread the second one only.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

import numpy as np

from inlay.graph.lowering.draft import Draft, Operand, require
from inlay.graph.lowering.elementwise import eltwise, powered
from inlay.layout import Dims

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


ARITHMETIC: Mapping[str, Callable[[Draft], Operand]] = {
    "Add": pairwise("add"),
    "Div": pairwise("div"),
    "Max": variadic("max"),
    "Mean": variadic("mean"),
    "Min": variadic("min"),
    "Mul": pairwise("mul"),
    "PRelu": prelu,
    "Sub": pairwise("sub"),
    "Sum": variadic("sum"),
}
"""The rule of each operator."""
