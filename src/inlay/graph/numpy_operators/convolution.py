"""Functions of convolutions, and of operators that put the windows of an image back together.

A convolution copies the elements under each tap of the window into a column, then multiplies by the weights.
`convolve` serves Conv, the convolutions of integers, and CausalConvWithState:

>>> from inlay.graph.network import Node
>>> call = OperatorCall(Node("n", "Conv", ("x", "w"), ("y",)), 11, ())
>>> convolve(call, np.array([[[1.0, 2.0, 3.0]]]), np.array([[[1.0, 10.0]]])).tolist()
[[[21.0, 32.0]]]
"""

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype
from inlay.graph.numpy_operators.pooling import Indices, WindowAxis, iterate_taps, window_axes
from inlay.graph.numpy_operators.products import product_dtype
from inlay.graph.op_graph import Array
from inlay.layout import Dims


def conv(call: OperatorCall) -> Array:
    """Compute Conv, in groups."""
    src, weights, bias = call.input(0), call.input(1), call.optional(2)
    working = accumulation_dtype(src.dtype)
    result = convolve(call, src.astype(working), weights.astype(working))
    return (result if bias is None else result + shape_channels(call, bias, result).astype(working)).astype(src.dtype)


def convolve(call: OperatorCall, src: Array, weights: Array, groups: int | None = None) -> Array:
    """Return the convolution of an image with weights of the same type, by the window and groups of the node.

    `groups` replaces the number of groups that the node states.

    Raises:
        InvalidArguments: dims or attributes do not fit.
    """
    count = int(call.attribute("group", 1)) if groups is None else groups
    require_convolution(call, src, weights, count)
    axes = window_axes(call, src.shape[2:], weights.shape[2:])
    image = tuple(axis.positions for axis in axes)
    outputs, inner = weights.shape[0], weights.shape[1]
    kernel = weights.reshape(count, outputs // count, inner * prod(weights.shape[2:]))
    result = np.empty((src.shape[0], outputs, *image), src.dtype)
    for k, one in enumerate(src):
        columns = _columns(one, axes).reshape(count, kernel.shape[2], prod(image))
        result[k] = np.matmul(kernel, columns).reshape(outputs, *image)
    return result


def require_convolution(call: OperatorCall, src: Array, weights: Array, groups: int) -> None:
    """Require that the dims of an image, its weights and the node's attributes fit.

    Raises:
        InvalidArguments: they do not fit.
    """
    stated = tuple(call.attribute("kernel_shape") or weights.shape[2:])
    if src.ndim < 3 or weights.ndim != src.ndim or stated != weights.shape[2:]:
        raise call.invalid(f"weights of dims {weights.shape}, kernel {stated}, do not fit an image of {src.shape}")
    if groups < 1 or src.shape[1] != weights.shape[1] * groups or weights.shape[0] % groups:
        raise call.invalid(f"{groups} groups of dims {weights.shape} do not fit {src.shape[1]} channels")


def shape_channels(call: OperatorCall, values: Array, result: Array) -> Array:
    """Return one number for each channel of a result, or one for all, with dims to be broadcast over the result.

    Raises:
        InvalidArguments: there are neither one number nor as many as channels.
    """
    if values.size not in (1, result.shape[1]):
        raise call.invalid(f"dims {values.shape} do not fit {result.shape[1]} channels")
    return values.reshape(-1, *(1,) * (result.ndim - 2))


def _columns(image: Array, axes: tuple[WindowAxis, ...]) -> Array:
    """Return the elements under each tap: channels, taps, positions of the window. Padding is 0."""
    kernel = tuple(axis.kernel for axis in axes)
    columns = np.zeros((image.shape[0], *kernel, *(axis.positions for axis in axes)), image.dtype)
    for tap, positions, elements in iterate_taps(axes):
        at: Any = (slice(None), *tap, *positions)
        columns[at] = image[(slice(None), *elements)]
    return columns


def causal_conv(call: OperatorCall) -> tuple[Array, Array]:
    """Compute CausalConvWithState: a convolution of each channel with itself that reads earlier elements only.

    The second result is the last elements of the input, as many as the window has taps but one.
    """
    src, weights, bias, past = call.input(0), call.input(1), call.optional(2), call.optional(3)
    activation = call.attribute("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise call.invalid(f"activation {activation!r} is none of none, silu, swish")
    if src.ndim != 3 or weights.ndim != 3 or not weights.shape[2]:
        raise call.invalid(f"weights of dims {weights.shape} do not fit an input of {src.shape}")
    kept = (*src.shape[:2], weights.shape[2] - 1)
    if past is not None and past.shape != kept:
        raise call.invalid(f"its state has dims {past.shape}, and needs {kept}")
    padded = np.concatenate([np.zeros(kept, src.dtype) if past is None else past, src], 2)
    state = padded[:, :, padded.shape[2] - kept[2] :]
    if not src.shape[2]:
        return src, state
    working = accumulation_dtype(src.dtype)
    result = convolve(call, padded.astype(working), weights.astype(working), src.shape[1])
    if bias is not None:
        result += shape_channels(call, bias, result).astype(working)
    if activation != "none":
        result = result / (1 + np.exp(-result))
    return result.astype(src.dtype), state


# Deformable convolution


def deform_conv(call: OperatorCall) -> Array:
    """Compute DeformConv: a convolution whose taps are moved by offsets, and weighted by a mask.

    Elements between those of the image are interpolated linearly. Elements outside of it are 0.
    """
    src, weights, offsets, bias, mask = (call.optional(index) for index in range(5))
    if src is None or weights is None or offsets is None:
        raise call.invalid("input 0, 1 or 2 is left out")
    groups, blocks = int(call.attribute("group", 1)), int(call.attribute("offset_group", 1))
    require_convolution(call, src, weights, groups)
    axes = window_axes(call, src.shape[2:], weights.shape[2:])
    batch, taps, image = src.shape[0], prod(weights.shape[2:]), tuple(axis.positions for axis in axes)
    channels = blocks * taps
    if blocks < 1 or src.shape[1] % blocks or offsets.shape != (batch, channels * len(axes), *image):
        raise call.invalid(f"offsets of dims {offsets.shape} do not fit {blocks} groups of an image of {src.shape}")
    if mask is not None and mask.shape != (batch, channels, *image):
        raise call.invalid(f"a mask of dims {mask.shape} does not fit offsets of dims {offsets.shape}")
    working = accumulation_dtype(src.dtype)
    moved = offsets.astype(working).reshape(batch, blocks, taps, len(axes), *image)
    columns = _interpolate(src.astype(working), moved + _tap_positions(axes, working.type), blocks)
    if mask is not None:
        columns *= mask.astype(working).reshape(batch, blocks, 1, taps, prod(image))
    kernel = weights.astype(working).reshape(groups, weights.shape[0] // groups, -1)
    columns = columns.reshape(batch, groups, kernel.shape[2], prod(image))
    result = np.asarray(np.matmul(kernel, columns)).reshape(batch, weights.shape[0], *image)
    return (result if bias is None else result + shape_channels(call, bias, result).astype(working)).astype(src.dtype)


def _tap_positions(axes: tuple[WindowAxis, ...], to_type: Callable[[Array], Array]) -> Array:
    """Return the coordinates of the taps: taps, axes, positions of the window."""
    count = len(axes)
    taps = np.stack(np.meshgrid(*(np.arange(axis.kernel) * axis.dilation for axis in axes), indexing="ij"))
    places = (np.arange(axis.positions) * axis.stride - axis.before for axis in axes)
    starts = np.stack(np.meshgrid(*places, indexing="ij"))
    return np.asarray(to_type(taps.reshape(count, -1, *(1,) * count).swapaxes(0, 1) + starts))


def _interpolate(src: Array, coordinates: Array, blocks: int) -> Array:
    """Return the elements of an image at coordinates: batch, blocks, channels of a block, taps, positions.

    `coordinates` has the axes batch, blocks, taps, axes of the image, and those of the positions.
    """
    batch, image, taps = src.shape[0], src.shape[2:], coordinates.shape[2]
    flat = src.reshape(batch, blocks, src.shape[1] // blocks, prod(image))
    points = coordinates.reshape(batch, blocks, taps, len(image), -1)
    lower = np.floor(points)
    total = np.zeros((*flat.shape[:3], taps * points.shape[4]), src.dtype)
    for corner in product((0, 1), repeat=len(image)):
        shift = np.array(corner).reshape(-1, 1)
        places = lower + shift.astype(src.dtype)
        weight = np.prod(1 - np.abs(points - places), axis=3)
        extents = np.array(image).reshape(-1, 1)
        weight = np.where(((places >= 0) & (places < extents)).all(3), weight, 0)
        index = _flatten_indices(np.clip(np.nan_to_num(places), 0, np.maximum(extents - 1, 0)).astype(np.int64), image)
        index, weight = (array.reshape(batch, blocks, 1, -1) for array in (index, weight))
        if prod(image):
            total += np.take_along_axis(flat, index, 3) * weight
    return total.reshape(*flat.shape[:3], taps, -1)


def _flatten_indices(places: Indices, image: Dims) -> Indices:
    """Return the index in a flattened image for coordinates in axis 3."""
    total = np.zeros((*places.shape[:3], *places.shape[4:]), np.int64)
    for axis, n in enumerate(image):
        total = total * n + places[:, :, :, axis]
    return total


# Windows put back


def col2im(call: OperatorCall) -> Array:
    """Compute Col2Im: the sum of windows, each put where it was taken from an image."""
    src = call.input(0)
    image, kernel = (tuple(int(n) for n in call.input(index).reshape(-1)) for index in (1, 2))
    if src.ndim != 3 or len(image) != len(kernel) or src.shape[1] % max(prod(kernel), 1) or min(kernel, default=0) < 1:
        raise call.invalid(f"blocks {kernel} of an image {image} do not fit dims {src.shape}")
    axes = window_axes(call, image, kernel)
    places = tuple(axis.positions for axis in axes)
    if prod(places) != src.shape[2]:
        raise call.invalid(f"an image {image} has {prod(places)} blocks, and the input has {src.shape[2]}")
    working = src.dtype if src.dtype.kind == "c" else product_dtype(src.dtype)
    columns = src.astype(working).reshape(src.shape[0], -1, *kernel, *places)
    result = np.zeros((*columns.shape[:2], *image), working)
    every = (slice(None), slice(None))
    for tap, positions, elements in iterate_taps(axes):
        at: Any = (*every, *tap, *positions)
        result[(*every, *elements)] += columns[at]
    return result.astype(src.dtype)


def max_unpool(call: OperatorCall) -> Array:
    """Compute MaxUnpool: elements of MaxPool, each at its index in the image; 0 elsewhere."""
    src, indices, shape = call.input(0), call.input(1), call.optional(2)
    kernel, count = tuple(call.attribute("kernel_shape") or ()), src.ndim - 2
    strides, pads = tuple(call.attribute("strides") or (1,) * count), tuple(call.attribute("pads") or (0,) * 2 * count)
    if indices.shape != src.shape or not len(kernel) == len(strides) == len(pads) // 2 == count:
        raise call.invalid(f"kernel {kernel} and indices of dims {indices.shape} do not fit dims {src.shape}")
    sides = zip(src.shape[2:], kernel, strides, pads[:count], pads[count:], strict=True)
    dims = (*src.shape[:2], *((n - 1) * stride + taps - a - b for n, taps, stride, a, b in sides))
    if shape is not None and tuple(shape.reshape(-1).tolist()) != dims:
        raise call.unsupported(f"output_shape {tuple(shape.reshape(-1).tolist())}, not {dims},")
    result = np.zeros(prod(dims), src.dtype)
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < result.size:
        raise call.invalid(f"{call.node.inputs[1]!r} has indices outside of its result of {result.size} elements")
    result[indices.reshape(-1)] = src.reshape(-1)
    return result.reshape(dims)


CONVOLUTION: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "CausalConvWithState": causal_conv,
    "Col2Im": col2im,
    "Conv": conv,
    "DeformConv": deform_conv,
    "MaxUnpool": max_unpool,
}
"""Function of each convolution, and of operators that put windows back."""
