"""Functions of operators that select or count elements: Compress, NonZero, OneHot, Unique, ArgMax, TopK, CumSum.

Elements of ml_dtypes are compared as float32, which represents them exactly. Equal elements are ordered by index.

- **Non-maximum suppression** selects the box with the greatest score, drops all boxes that overlap it by more than a
threshold, and repeats this with the boxes that are left. Overlap is intersection over union (IoU), computed for one
selected box and all others at once.

Source: ONNX, "Operators".
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float
from inlay.graph.op_graph import Array

# Selection


def compress(call: OperatorCall) -> Array:
    """Compute Compress: the slices of an axis, or the elements, whose condition is true."""
    src, condition, named = call.input(0), call.input(1), call.attribute("axis")
    axis = 0 if named is None else call.axis(int(named), src.ndim)
    data = src.reshape(-1) if named is None else src
    indices = np.flatnonzero(condition)
    if indices.size and indices[-1] >= data.shape[axis]:
        raise call.invalid(f"its condition selects element {indices[-1]} of {data.shape[axis]}")
    return np.take(data, indices, axis)


def non_zero(call: OperatorCall) -> Array:
    """Compute NonZero: the coordinates of elements other than 0, a row for each axis."""
    src = call.input(0)
    count = int(np.count_nonzero(src != 0))
    if not src.ndim:
        return np.zeros((0, count), np.int64)
    return np.stack(np.nonzero(src != 0)).astype(np.int64)


def one_hot(call: OperatorCall) -> Array:
    """Compute OneHot: for each index, an axis whose element at the index has the second value, the others the first."""
    indices, depth, values = call.input(0).astype(np.int64), call.input(1), call.input(2)
    if depth.size != 1 or values.size != 2 or int(depth.reshape(-1)[0]) < 0:
        raise call.invalid(f"it needs one depth of 0 or more and two values, not {depth.tolist()} and {values.size}")
    extent = int(depth.reshape(-1)[0])
    axis = call.axis(int(call.attribute("axis", -1)), indices.ndim + 1)
    places = np.expand_dims(np.where(indices < 0, indices + extent, indices), axis)
    steps = np.arange(extent).reshape(-1, *(1,) * (indices.ndim - axis))
    off, on = values.reshape(-1)
    return np.where(places == steps, np.asarray(on, values.dtype), np.asarray(off, values.dtype))


def unique(call: OperatorCall) -> tuple[Array, ...]:
    """Compute Unique: distinct elements or slices, the index of the first of each, the inverse indices, the counts."""
    src, named = call.input(0), call.attribute("axis")
    axis = 0 if named is None else call.axis(int(named), src.ndim)
    data = src.reshape(-1) if named is None else src
    slices = _orderable(np.moveaxis(data, axis, 0))
    first, inverse, counts = _group_rows(slices.reshape(len(slices), prod(slices.shape[1:])))
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(order.size)
        first, inverse, counts = first[order], ranks[inverse], counts[order]
    return (np.take(data, first, axis), *(array.astype(np.int64) for array in (first, inverse, counts)))


def _group_rows(rows: Array) -> tuple[Array, Array, Array]:
    """Return the index of the first of each group of equal rows in ascending order, the group of each row, the counts.

    Rows are compared by codes of their elements, so that every type is compared in the same way.
    """
    count, width = rows.shape
    codes = np.unique(rows, return_inverse=True)[1].reshape(rows.shape) if width else np.zeros((count, 1), np.intp)
    order = np.lexsort(codes.T[::-1])
    is_first = np.ones(count, bool)
    is_first[1:] = (codes[order[1:]] != codes[order[:-1]]).any(1)
    groups = np.empty(count, np.intp)
    groups[order] = np.cumsum(is_first) - 1
    return order[is_first], groups, np.bincount(groups)


# Order


def arg_max(call: OperatorCall) -> Array:
    """Compute ArgMax: the index of the greatest element of each row of an axis."""
    return _extreme_index(call, np.argmax)


def arg_min(call: OperatorCall) -> Array:
    """Compute ArgMin: the index of the least element of each row of an axis."""
    return _extreme_index(call, np.argmin)


def _extreme_index(call: OperatorCall, find: Callable[..., Any]) -> Array:
    """Return the index of the first extreme element of each row, or of the last one if the node states so."""
    src = _orderable(call.input(0))
    axis = call.axis(int(call.attribute("axis", 0)), src.ndim)
    if not src.shape[axis]:
        raise call.invalid(f"axis {axis} of dims {src.shape} has no elements")
    keeps = bool(call.attribute("keepdims", 1))
    if call.attribute("select_last_index", 0):
        return np.asarray(src.shape[axis] - 1 - find(np.flip(src, axis), axis=axis, keepdims=keeps), np.int64)
    return np.asarray(find(src, axis=axis, keepdims=keeps), np.int64)


def top_k(call: OperatorCall) -> tuple[Array, Array]:
    """Compute TopK: the greatest or least elements of each row in order, with their indices."""
    src = call.input(0)
    axis, numbers = call.axis(int(call.attribute("axis", -1)), src.ndim), call.integers("k", 1, 10) or []
    extent = src.shape[axis]
    if len(numbers) != 1 or not 0 <= numbers[0] <= extent:
        raise call.invalid(f"k is {numbers}, and axis {axis} has {extent} elements: give one number up to that")
    keys, chosen = _orderable(src), [slice(None)] * src.ndim
    chosen[axis] = slice(numbers[0])
    if call.attribute("largest", 1):  # descending, where equal elements remain in order
        order = extent - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis, kind="stable")
    indices = order[tuple(chosen)].astype(np.int64)
    return np.take_along_axis(src, indices, axis), indices


def _orderable(array: Array) -> Array:
    """Return elements in a type that NumPy compares; small floats and integers of ml_dtypes become float32."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array


# Cumulative


def cumulative_sum(call: OperatorCall) -> Array:
    """Compute CumSum: the sum of the elements up to each one, along an axis."""
    return _accumulate(call, np.add, 0)


def cumulative_product(call: OperatorCall) -> Array:
    """Compute CumProd: the product of the elements up to each one, along an axis."""
    return _accumulate(call, np.multiply, 1)


def _accumulate(call: OperatorCall, combine: np.ufunc, neutral: int) -> Array:
    """Return the accumulated elements of an axis; floats of 16 bits are accumulated in float32.

    If the node is exclusive, an element is not part of its own result. If it is reversed, the axis is accumulated from
    its end.
    """
    src, named = call.input(0), call.input(1)
    if named.size != 1:
        raise call.invalid(f"its axis is one number, not {named.size}")
    axis = call.axis(int(named.reshape(())[()]), src.ndim)
    dtype = accumulation_dtype(src.dtype) if is_float(src.dtype) and src.dtype.kind != "c" else src.dtype
    is_reversed = bool(call.attribute("reverse", 0))
    rows = np.moveaxis(np.flip(src, axis) if is_reversed else src, axis, 0)
    result = np.empty(rows.shape, dtype)
    if call.attribute("exclusive", 0):
        result[:1] = neutral
        combine.accumulate(rows[:-1], 0, dtype, result[1:])
    else:
        combine.accumulate(rows, 0, dtype, result)
    moved = np.moveaxis(result.astype(src.dtype, copy=False), 0, axis)
    return np.flip(moved, axis) if is_reversed else moved


# Non-maximum suppression


def non_max_suppression(call: OperatorCall) -> Array:
    """Compute NonMaxSuppression: batch, class and box of the boxes that are selected, the greatest scores first.

    A box that is equal in score to another one follows it if its index is greater. Numbers are computed in f32, in the
    order of ONNX Runtime.
    """
    boxes, scores = call.input(0), call.input(1)
    is_fitting = boxes.ndim == scores.ndim == 3 and boxes.shape[::2] == (scores.shape[0], 4)
    if not is_fitting or boxes.shape[1] != scores.shape[2]:
        raise call.invalid(f"boxes of dims {boxes.shape} and scores of dims {scores.shape} do not fit")
    most, threshold = int(_scalar(call, 2, 0)), np.float32(_scalar(call, 3, 0.0))
    least = None if call.optional(4) is None else np.float32(_scalar(call, 4, 0.0))
    if not 0 <= threshold <= 1:
        raise call.invalid(f"iou_threshold is {threshold}, and must be from 0 to 1")
    corners = _corners(boxes, bool(call.attribute("center_point_box", 0)))
    selected = [
        (batch, label, box)
        for batch, label in np.ndindex(scores.shape[:2])
        for box in _select_boxes(corners[batch], scores[batch, label], max(most, 0), threshold, least)
    ]
    return np.array(selected, np.int64).reshape(-1, 3)


def _scalar(call: OperatorCall, index: int, default: float) -> Any:
    """Return the one element of input `index`, or `default` if it is left out."""
    array = call.optional(index)
    if array is None:
        return default
    if array.size != 1:
        raise call.invalid(f"input {index} has dims {array.shape}, and must be one number")
    return array.reshape(())[()]


def _corners(boxes: Array, is_centered: bool) -> Array:
    """Return the least and then the greatest corner of each box, from corners in any order or from center and size."""
    if is_centered:
        half = boxes[..., 2:] / np.float32(2)
        return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _select_boxes(corners: Array, scores: Array, most: int, threshold: Any, least: Any) -> list[int]:
    """Return the indices of the boxes of one class that remain, at most `most`."""
    order = np.argsort(-scores, kind="stable")
    left = order if least is None else order[scores[order] > least]
    selected: list[int] = []
    while left.size and len(selected) < most:
        selected.append(int(left[0]))
        left = left[1:]
        left = left[~(_overlap(corners[selected[-1]], corners[left]) > threshold)]
    return selected


def _overlap(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box and each of some others; 0 if it is empty."""
    inner = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    area, areas = _area(box), _area(others)
    common = inner[:, 0] * inner[:, 1]
    union = area + areas - common
    is_common = (inner > 0).all(1) & (common > 0) & (area > 0) & (areas > 0) & (union > 0)
    return np.asarray(np.where(is_common, common / union, 0), common.dtype)


def _area(corners: Array) -> Array:
    """Return the area of each box."""
    sides = corners[..., 2:] - corners[..., :2]
    return np.asarray(sides[..., 0] * sides[..., 1])


SELECTION: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "ArgMax": arg_max,
    "ArgMin": arg_min,
    "Compress": compress,
    "CumProd": cumulative_product,
    "CumSum": cumulative_sum,
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "TopK": top_k,
    "Unique": unique,
}
"""Function of each operator that selects, orders or accumulates elements."""
