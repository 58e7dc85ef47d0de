"""Reductions along axes, of floats and integers; of no elements, the neutral element of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.types import is_float, number_limits
from inlay.graph.op import Array

Axes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Reduction:
    """How one operator reduces."""

    compute: Callable[[Array, Axes], Array]
    """From the data and the axes, kept with length 1, to the result."""
    axes_are_input_since: int = 18
    """Opset from which on axes are an input."""
    is_in_f64: bool = False
    """Whether integers are computed in f64 and cut to integers at the end."""


def _rule(reduction: _Reduction) -> Callable[[OperatorCall], Array]:
    def reduce(call: OperatorCall) -> Array:
        data = call.input(0)
        axes = _axes(call, data.ndim, reduction.axes_are_input_since)
        if axes is None:
            axes = () if call.attribute("noop_with_empty_axes", 0) else tuple(range(data.ndim))
        exact = data.astype(np.float64) if reduction.is_in_f64 and not is_float(data.dtype) else data
        with np.errstate(all="ignore"):
            result = np.asarray(reduction.compute(exact, axes))
        if not call.attribute("keepdims", 1):
            result = result.reshape(tuple(n for i, n in enumerate(data.shape) if i not in axes))
        return _converted(result, data.dtype)

    return reduce


def _converted(values: Array, dtype: np.dtype[Any]) -> Array:
    """Of the data's type; numbers that an integer cannot hold become its least or greatest."""
    if is_float(values.dtype) and not is_float(dtype) and dtype.kind != "b":
        low, high = number_limits(dtype)
        # 2**63 - 1 is no number of f64: the one below it is the greatest that converts.
        values = np.clip(np.nan_to_num(values, nan=0.0), low, np.nextafter(high, 0) if high > 2**53 else high)
    return values.astype(dtype, copy=False)


def _axes(call: OperatorCall, count: int, input_since: int) -> Axes | None:
    """The axes that the node names, from 0 on; None where it names none."""
    if call.opset < input_since:
        named = call.attribute("axes")
    else:
        given = call.optional(1)
        named = None if given is None else given.reshape(-1).tolist()
    return tuple(dict.fromkeys(call.axis(int(axis), count) for axis in named)) if named else None


def _extreme(which: np.ufunc, is_greatest: bool) -> Callable[[Array, Axes], Array]:
    def compute(data: Array, axes: Axes) -> Array:
        if data.dtype == bool:
            return np.asarray(which.reduce(data, axis=axes, keepdims=True, initial=not is_greatest))
        if is_float(data.dtype):
            neutral: Any = data.dtype.type(-np.inf if is_greatest else np.inf)
        else:
            info = np.iinfo(data.dtype)
            neutral = info.min if is_greatest else info.max
        return np.asarray(which.reduce(data, axis=axes, keepdims=True, initial=neutral))

    return compute


def _sum(data: Array, axes: Axes) -> Array:
    return np.asarray(np.sum(data, axis=axes, keepdims=True, dtype=data.dtype))


def _mean(data: Array, axes: Axes) -> Array:
    return np.asarray(np.mean(data, axis=axes, keepdims=True))


def _log_sum_exp(data: Array, axes: Axes) -> Array:
    greatest = _extreme(np.maximum, True)(data, axes)
    shift = np.where(np.isfinite(greatest), greatest, 0)
    return np.asarray(np.log(_sum(np.exp(data - shift), axes)) + shift)


_REDUCTIONS = {
    "ReduceL1": _Reduction(lambda data, axes: _sum(np.abs(data), axes)),
    "ReduceL2": _Reduction(lambda data, axes: np.sqrt(_sum(np.square(data), axes)), is_in_f64=True),
    "ReduceLogSum": _Reduction(lambda data, axes: np.log(_sum(data, axes)), is_in_f64=True),
    "ReduceLogSumExp": _Reduction(_log_sum_exp, is_in_f64=True),
    "ReduceMax": _Reduction(_extreme(np.maximum, True)),
    "ReduceMean": _Reduction(_mean, is_in_f64=True),
    "ReduceMin": _Reduction(_extreme(np.minimum, False)),
    "ReduceProd": _Reduction(lambda data, axes: np.prod(data, axis=axes, keepdims=True, dtype=data.dtype)),
    "ReduceSum": _Reduction(_sum, axes_are_input_since=13),
    "ReduceSumSquare": _Reduction(lambda data, axes: _sum(np.square(data), axes)),
}

REDUCTIONS: Mapping[str, Callable[[OperatorCall], Array]] = {name: _rule(one) for name, one in _REDUCTIONS.items()}
"""The function of each operator."""
