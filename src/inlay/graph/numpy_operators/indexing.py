"""Elements by index: Gather and Scatter in their forms. An index out of range is an error, never another element."""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.op import Array


def gather(call: OperatorCall) -> Array:
    """Slices along one axis."""
    data = call.input(0)
    axis = call.axis(call.attribute("axis", 0), data.ndim)
    return np.take(data, call.require_indices(1, data.shape[axis], axis), axis=axis)


def gather_elements(call: OperatorCall) -> Array:
    """One element for each index, in the row of the index."""
    data, indices = call.input(0), call.input(1)
    axis = call.axis(call.attribute("axis", 0), data.ndim)
    rows = _rows_of(call, data, indices, axis)
    return np.take_along_axis(data[rows], call.require_indices(1, data.shape[axis], axis), axis)


def scatter_elements(call: OperatorCall) -> Array:
    """The data with one element replaced, or combined, for each index."""
    data, indices, updates = (call.input(index) for index in range(3))
    axis = call.axis(call.attribute("axis", 0), data.ndim)
    if updates.shape != indices.shape:
        raise call.invalid(f"updates have dims {updates.shape}, indices {indices.shape}: they must be the same")
    _rows_of(call, data, indices, axis)
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = call.require_indices(1, data.shape[axis], axis)
    result = data.copy()
    _combine(call, result, tuple(grid), updates)
    return result


def _rows_of(call: OperatorCall, data: Array, indices: Array, axis: int) -> tuple[slice, ...]:
    """The part of `data` that has an index for each row."""
    if data.ndim != indices.ndim or data.ndim == 0:
        raise call.invalid(f"indices have {indices.ndim} axes, the data {data.ndim}: they must be as many, 1 or more")
    if any(n > of for i, (n, of) in enumerate(zip(indices.shape, data.shape, strict=True)) if i != axis):
        raise call.invalid(f"indices of dims {indices.shape} exceed the data's, {data.shape}")
    return tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))


def gather_nd(call: OperatorCall) -> Array:
    """One slice for each tuple of indices."""
    data, indices = call.input(0), call.input(1)
    batch = int(call.attribute("batch_dims", 0))
    tuples = _tuples(call, data, indices, batch)
    lead = np.ogrid[tuple(slice(n) for n in data.shape[:batch])]
    spread = indices.ndim - 1 - batch
    first = [axis.reshape(axis.shape + (1,) * spread) for axis in lead]
    return np.asarray(data[(*first, *tuples)])


def scatter_nd(call: OperatorCall) -> Array:
    """The data with one slice replaced, or combined, for each tuple of indices."""
    data, indices, updates = (call.input(index) for index in range(3))
    tuples = _tuples(call, data, indices, 0)
    dims = indices.shape[:-1] + data.shape[indices.shape[-1] :]
    if updates.shape != dims:
        raise call.invalid(f"updates have dims {updates.shape}, and data and indices ask for {dims}")
    result = data.copy()
    _combine(call, result, tuples, updates)
    return result


def _tuples(call: OperatorCall, data: Array, indices: Array, batch: int) -> tuple[Array, ...]:
    """The indices of each axis, apart."""
    if indices.ndim < 1 + batch or not 0 <= batch <= data.ndim or indices.shape[-1] > data.ndim - batch:
        raise call.invalid(f"indices of dims {indices.shape} do not fit data of dims {data.shape}")
    if indices.shape[:batch] != data.shape[:batch]:
        raise call.invalid(f"the {batch} axes of batches differ: {indices.shape} and {data.shape}")
    return tuple(
        call.require_indices(1, data.shape[batch + k], batch + k, indices[..., k]) for k in range(indices.shape[-1])
    )


def _combine(call: OperatorCall, result: Array, where: tuple[Array, ...], updates: Array) -> None:
    reduction = call.attribute("reduction", "none")
    if reduction not in ("none", *_REDUCTIONS):
        raise call.invalid(f"reduction {reduction!r} is none of none, {', '.join(_REDUCTIONS)}")
    if not prod(updates.shape):
        return
    if reduction == "none":
        result[where] = updates
    else:
        _REDUCTIONS[reduction].at(result, where, updates)


_REDUCTIONS: Mapping[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}

INDEXING: Mapping[str, Callable[[OperatorCall], Array]] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
}
"""The function of each operator."""
