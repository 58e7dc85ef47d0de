"""Pooling: one pass over the image for each tap of the window, so that no window is copied."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.types import is_float
from inlay.graph.numpy_operators.windows import WindowAxis, pooling_axes
from inlay.graph.op import Array

Slices: TypeAlias = tuple[slice, ...]
Indices: TypeAlias = npt.NDArray[np.int64]


def max_pool(call: OperatorCall) -> tuple[Array, ...]:
    """The greatest element of each window, NaN if it has one, and its index in the whole tensor."""
    src = call.input(0)
    axes = pooling_axes(call, src.shape[2:])
    dims = (*src.shape[:2], *(axis.positions for axis in axes))
    result = np.full(dims, -np.inf if is_float(src.dtype) else np.iinfo(src.dtype).min, src.dtype)
    places = _places(src.shape, bool(call.attribute("storage_order", 0))) if call.has_output(1) else None
    indices = np.zeros(dims, np.int64)
    reached = np.zeros(dims, bool)
    for positions, elements in _taps(axes):
        taken, best = src[elements], result[positions]
        is_better = (taken > best) | ~reached[positions]
        if is_float(src.dtype):
            is_better |= np.isnan(taken) & ~np.isnan(best)
        np.copyto(best, taken, where=is_better)
        reached[positions] = True
        if places is not None:
            np.copyto(indices[positions], np.broadcast_to(places[elements], taken.shape), where=is_better)
    return result if places is None else (result, indices)  # type: ignore[return-value]


def _places(dims: tuple[int, ...], is_column_major: bool) -> Indices:
    """The index of each element in the tensor; with `storage_order`, the spatial axes are counted column by column."""
    image = dims[2:]
    flat = np.arange(prod(image), dtype=np.int64)
    within = flat.reshape(image[::-1]).transpose() if is_column_major else flat.reshape(image)
    planes = np.arange(prod(dims[:2]), dtype=np.int64) * prod(image)
    return np.asarray(planes.reshape(*dims[:2], *(1,) * len(image)) + within)


def average_pool(call: OperatorCall) -> Array:
    """The mean element of each window, with or without its padding."""
    src = call.input(0)
    axes = pooling_axes(call, src.shape[2:])
    total = _total(src, axes, _wide(src.dtype))
    counts_padding = bool(call.attribute("count_include_pad", 0))
    for k, axis in enumerate(axes):
        count = axis.taps_inside if counts_padding else axis.taps_on_image
        taps = np.array([count(position) for position in range(axis.positions)], total.dtype)
        total /= np.maximum(taps, 1).reshape(-1, *(1,) * (len(axes) - 1 - k))
    return total.astype(src.dtype)


def lp_pool(call: OperatorCall) -> Array:
    """The norm of each window."""
    src, p = call.input(0), float(call.attribute("p", 2))
    axes = pooling_axes(call, src.shape[2:])
    powers = np.power(np.abs(src.astype(_wide(src.dtype))), p)
    return np.power(_total(powers, axes, powers.dtype), 1 / p).astype(src.dtype)


def over_image(compute: Callable[[Array, tuple[int, ...], float], Array]) -> Callable[[OperatorCall], Array]:
    """The function of an operator whose window is the whole image."""

    def pool(call: OperatorCall) -> Array:
        src = call.input(0)
        axes = tuple(range(2, src.ndim))
        return compute(src.astype(_wide(src.dtype)), axes, float(call.attribute("p", 2))).astype(src.dtype)

    return pool


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which sums are computed: f64 for integers and f64, else f32."""
    return np.dtype(np.float32) if is_float(dtype) and dtype.itemsize < 8 else np.dtype(np.float64)


def _total(src: Array, axes: tuple[WindowAxis, ...], dtype: np.dtype[Any]) -> Array:
    total = np.zeros((*src.shape[:2], *(axis.positions for axis in axes)), dtype)
    for positions, elements in _taps(axes):
        total[positions] += src[elements]
    return total


def _taps(axes: tuple[WindowAxis, ...]) -> Iterator[tuple[Slices, Slices]]:
    """For each tap of the window, the positions at which it lies on the image, and the elements there."""
    every = (slice(None), slice(None))
    sides = [[axis.under(tap) for tap in range(axis.kernel)] for axis in axes]
    for both in product(*([side for side in along if side[0].start < side[0].stop] for along in sides)):
        yield (*every, *(positions for positions, _ in both)), (*every, *(elements for _, elements in both))


POOLING: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "AveragePool": average_pool,
    "GlobalAveragePool": over_image(lambda src, axes, p: np.asarray(src.mean(axes, keepdims=True))),
    "GlobalLpPool": over_image(
        lambda src, axes, p: np.asarray(np.power(np.power(np.abs(src), p).sum(axes, keepdims=True), 1 / p))
    ),
    "GlobalMaxPool": over_image(lambda src, axes, p: np.asarray(src.max(axes, keepdims=True))),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
}
"""The function of each operator."""
