"""Pad: elements before and behind, or taken away where the padding is negative."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.op import Array

_MODES = ("constant", "reflect", "edge", "wrap")


def pad(call: OperatorCall) -> Array:
    """What is negative is cut off first; the rest is padded."""
    data = call.input(0)
    if call.opset < 11:
        pads, axes = call.attribute("pads", ()), tuple(range(data.ndim))
    else:
        pads, axes = call.input(1).reshape(-1).tolist(), _axes(call, data.ndim)
    if len(pads) != 2 * len(axes):
        raise call.invalid(f"{len(pads)} numbers pad {len(axes)} axes, which take {2 * len(axes)}")
    before, behind = [0] * data.ndim, [0] * data.ndim
    for k, axis in enumerate(axes):
        before[axis], behind[axis] = int(pads[k]), int(pads[k + len(axes)])
    sides = list(zip(before, behind, data.shape, strict=True))
    if any(n + min(a, 0) + min(b, 0) < 0 for a, b, n in sides):
        raise call.invalid(f"padding {list(pads)} takes away more than dims {data.shape} have")
    cut = data[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in sides)]
    return _padded(call, cut, [(max(a, 0), max(b, 0)) for a, b, _ in sides])


def _axes(call: OperatorCall, count: int) -> tuple[int, ...]:
    given = call.optional(3)
    return tuple(range(count)) if given is None else tuple(call.axis(int(axis), count) for axis in given.reshape(-1))


def _padded(call: OperatorCall, data: Array, widths: list[tuple[int, int]]) -> Array:
    mode = call.attribute("mode", "constant")
    if mode not in _MODES:
        raise call.invalid(f"mode {mode!r} is none of {', '.join(_MODES)}")
    if mode == "constant":
        dims = tuple(a + n + b for (a, b), n in zip(widths, data.shape, strict=True))
        result = np.full(dims, _value(call, data.dtype), data.dtype)
        result[tuple(slice(a, a + n) for (a, _), n in zip(widths, data.shape, strict=True))] = data
        return result
    if any(n == 0 and (a or b) for (a, b), n in zip(widths, data.shape, strict=True)):
        raise call.invalid(f"mode {mode} cannot pad an axis without elements")
    extend: Any = np.pad
    return np.asarray(extend(data, widths, mode=mode))


def _value(call: OperatorCall, dtype: np.dtype[Any]) -> Any:
    if call.opset < 11:
        return dtype.type(call.attribute("value", 0.0))
    value = call.optional(2)
    return np.zeros((), dtype) if value is None or value.size == 0 else value.reshape(-1)[0]


PADDING: Mapping[str, Callable[[OperatorCall], Array]] = {"Pad": pad}
"""The function of each operator."""
