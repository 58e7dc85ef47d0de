"""Slice with any steps, and Unsqueeze with axes in any order."""

from collections.abc import Callable, Mapping

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.op import Array


def take_slice(call: OperatorCall) -> Array:
    """Every `step`-th element between two places of some axes; places beyond the axis are its ends."""
    src = call.input(0)
    starts, ends, named, steps = _numbers(call)
    axes = range(len(starts)) if named is None else [call.axis(axis, src.ndim) for axis in named]
    strides = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(strides) or 0 in strides or len(starts) > src.ndim:
        raise call.invalid(f"starts {starts}, ends {ends}, axes {named} and steps {steps} do not fit {src.ndim} axes")
    places = [slice(None)] * src.ndim
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        places[axis] = _places(src.shape[axis], start, end, step)
    return src[tuple(places)]


def _places(n: int, start: int, end: int, step: int) -> slice:
    """The elements of an axis of `n`, as ONNX clamps them."""
    start, end = (at + n if at < 0 else at for at in (start, end))
    if step > 0:
        return slice(min(max(start, 0), n), min(max(end, 0), n), step)
    first, last = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
    return slice(first, None if last < 0 else last, step) if n else slice(0, 0)


def _numbers(call: OperatorCall) -> tuple[list[int], list[int], list[int] | None, list[int] | None]:
    """Starts, ends, axes and steps: attributes before opset 10, then inputs."""
    if call.opset < 10:
        axes = call.attribute("axes")
        starts, ends = (list(call.attribute(name, ())) for name in ("starts", "ends"))
        return starts, ends, None if axes is None else list(axes), None
    given = [call.optional(index) for index in range(1, 5)]
    lists = [None if array is None else [int(n) for n in array.reshape(-1)] for array in given]
    return lists[0] or [], lists[1] or [], lists[2], lists[3]


def unsqueeze(call: OperatorCall) -> Array:
    """Axes of length 1 at these places of the result."""
    src = call.input(0)
    named = call.attribute("axes", ()) if call.opset < 13 else call.input(1).reshape(-1).tolist()
    count = src.ndim + len(named)
    axes = tuple(call.axis(int(axis), count) for axis in named)
    if len(set(axes)) < len(axes):
        raise call.invalid(f"axes {list(named)} name one twice")
    return np.expand_dims(src, axes)


SHAPING: Mapping[str, Callable[[OperatorCall], Array]] = {"Slice": take_slice, "Unsqueeze": unsqueeze}
"""The function of each operator."""
