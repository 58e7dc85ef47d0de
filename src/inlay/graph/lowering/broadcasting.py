"""Broadcasting for the primitive binary: dims in which oneDNN has machine code, and how operands get them.

The primitive repeats only its second source, and computes many patterns of repeated axes in its reference code (see
`broadcast_patterns`). The cause is often an axis too many: (1, 64, 4, 32) by (1, 64, 4, 1) has no machine code,
(256, 32) by (256, 1) has. So neighboring axes of the same kind are merged, and axes that have extent 1 in both sources
are dropped. Three merged axes or fewer always have machine code. If more remain, the smallest of the repeated axes are
expanded first.
"""

from math import prod

import numpy as np

from inlay.graph.broadcast_patterns import has_machine_code, merge_axes
from inlay.graph.lowering.context import F32, LoweringContext, Operand
from inlay.layout import Dims

_COMMUTATIVE = ("add", "mul", "max", "min")
"""Algorithms of binary whose sources may be swapped."""
_MOST_MERGED = 3
"""Number of merged axes up to which every pattern has machine code."""


def emit_binary(context: LoweringContext, algorithm: str, first: Operand, second: Operand, dims: Dims) -> str:
    """Emit an arithmetic operation on two operands that are broadcast to `dims`, in dims that have machine code.

    A difference whose minuend is broadcast becomes a sum with the negated subtrahend. The dividend of a quotient is
    expanded.
    """
    one, other = (with_leading_axes(context, operand, len(dims)) for operand in (first, second))
    if algorithm == "sub" and context.dims(one) != dims:
        return emit_binary(context, "add", one, _negate(context, other), dims)
    if algorithm in _COMMUTATIVE and _is_better_second(context, one, other, dims):
        one, other = other, one
    if not has_machine_code(context.dims(one), context.dims(other)):
        merged = merge_axes(context.dims(one), context.dims(other))
        one, other = (context.reshape(*pair) for pair in zip((one, other), merged, strict=True))
        one, other = _expand_operands(context, one, other)
    result = context.emit("binary", {"src_0": one, "src_1": other}, context.dims(one), algorithm=algorithm)
    return str(context.reshape(result, dims))


def with_leading_axes(context: LoweringContext, operand: Operand, count: int) -> Operand:
    """Return the operand with leading axes of length 1, `count` axes in all."""
    dims = context.dims(operand)
    return context.reshape(operand, (1,) * (count - len(dims)) + dims)


def broadcast_dims(one: Dims, other: Dims) -> Dims:
    """Return the dims to which two operands are broadcast."""
    count = max(len(one), len(other))
    aligned = [(1,) * (count - len(dims)) + dims for dims in (one, other)]
    return tuple(m if n == 1 else n for n, m in zip(*aligned, strict=True))


def _negate(context: LoweringContext, operand: Operand) -> Operand:
    """Return the operand times -1."""
    if not isinstance(operand, str):
        return -operand
    return context.emit("eltwise", {"src": operand}, context.dims(operand), algorithm="linear", alpha=-1.0, beta=0.0)


def _is_better_second(context: LoweringContext, one: Operand, other: Operand, dims: Dims) -> bool:
    """Return whether `one` should be the second source of a commutative operation, `other` the first.

    The first source should be whole. If both are, it should be computed. If none is, it should be constant, or else the
    larger one, since it is expanded.
    """
    is_whole, is_other_whole = context.dims(one) == dims, context.dims(other) == dims
    if is_whole and is_other_whole:
        return not isinstance(one, str)
    if is_whole or is_other_whole:
        return is_other_whole
    if isinstance(one, str) != isinstance(other, str):
        return isinstance(one, str)
    return prod(context.dims(other)) > prod(context.dims(one))


def _expand_operands(context: LoweringContext, one: Operand, other: Operand) -> tuple[Operand, Operand]:
    """Return operands with merged axes such that the first one is whole, and there are at most three merged axes."""
    dims = broadcast_dims(context.dims(one), context.dims(other))
    for axis in sorted(range(len(dims)), key=dims.__getitem__):
        if context.dims(one)[axis] != dims[axis]:
            one = expand_axis(context, one, axis, dims[axis])
    for axis in sorted(range(len(dims)), key=dims.__getitem__):
        if len(merge_axes(dims, context.dims(other))[0]) <= _MOST_MERGED:
            break
        if context.dims(other)[axis] != dims[axis]:
            other = expand_axis(context, other, axis, dims[axis])
    merged = merge_axes(dims, context.dims(other))
    return context.reshape(one, merged[0]), context.reshape(other, merged[1])


def expand_axis(context: LoweringContext, operand: Operand, axis: int, extent: int) -> Operand:
    """Return the operand repeated `extent` times along an axis where it has extent 1.

    A tensor is multiplied by ones, which preserves every number, NaN and infinities.
    """
    dims = context.dims(operand)
    whole = (*dims[:axis], extent, *dims[axis + 1 :])
    if not isinstance(operand, str):
        return np.ascontiguousarray(np.broadcast_to(operand, whole))
    return emit_binary(context, "mul", np.ones(whole, F32), operand, whole)
