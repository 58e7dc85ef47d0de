"""Functions of operators with windows that slide over an image: poolings, and the transpose of a convolution.

Each function processes the image once for each tap (element) of the window, so no window is copied. `WindowAxis` has
the positions of a window along an axis, and the elements under each tap:

>>> axis = WindowAxis(extent=5, kernel=3, stride=2, dilation=1, before=1, behind=1, positions=3)
>>> [axis.under(tap) for tap in range(3)]
[(slice(1, 3, None), slice(1, 4, 2)), (slice(0, 3, None), slice(0, 5, 2)), (slice(0, 2, None), slice(1, 4, 2))]
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.graph.network import Node
from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float
from inlay.graph.numpy_operators.normalization import mean_over
from inlay.graph.op_graph import Array
from inlay.layout import Dims

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
"""Values of the attribute `auto_pad`."""

Slices: TypeAlias = tuple[slice, ...]
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """A window along one spatial axis."""

    extent: int
    """Elements of the image."""
    kernel: int
    """Taps of the window."""
    stride: int
    """Elements from one position to the next."""
    dilation: int
    """Elements from one tap to the next; 1 for a dense window."""
    before: int
    """Elements of padding before the image."""
    behind: int
    """Elements of padding after the image."""
    positions: int
    """Number of positions of the window."""

    def under(self, tap: int) -> tuple[slice, slice]:
        """Return the positions at which `tap` is on the image, and the elements of the image there."""
        start = tap * self.dilation - self.before
        first = max(0, -(start // self.stride))
        last = min(self.positions - 1, (self.extent - 1 - start) // self.stride)
        if last < first:
            return slice(0, 0), slice(0, 0)
        at = first * self.stride + start
        return slice(first, last + 1), slice(at, at + (last - first) * self.stride + 1, self.stride)

    def taps_inside(self, position: int) -> int:
        """Return the number of taps on the image or its padding; windows of `ceil_mode` may extend beyond."""
        start = position * self.stride - self.before
        room = self.extent + self.behind - start
        return min(self.kernel, max(0, -(-room // self.dilation)))

    def taps_on_image(self, position: int) -> int:
        """Return the number of taps on the image, at a position."""
        start = position * self.stride - self.before
        first = max(0, -(start // self.dilation))
        last = min(self.kernel - 1, (self.extent - 1 - start) // self.dilation)
        return max(0, last - first + 1)


def split_padding(total: int, mode: str) -> tuple[int, int]:
    """Return the padding before and after the image, `total` in all.

    An odd element is put after the image for SAME_UPPER, and before it for any other mode.
    """
    less, more = total // 2, total - total // 2
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def window_fault(node: Node, count: int) -> str:
    """Return what is wrong with the attributes of a window over `count` spatial axes; an empty text if nothing is."""
    for name, each in (("strides", 1), ("dilations", 1), ("pads", 2), ("output_padding", 1), ("kernel_shape", 1)):
        numbers = node.attributes.get(name) or ()
        if numbers and len(numbers) != each * count:
            return f"{name} has {len(numbers)} numbers for {count} axes of space"
        if name in ("strides", "dilations", "kernel_shape") and min((*numbers, 1)) < 1:
            return f"{name} {tuple(numbers)} are not all positive"
    shape = node.attributes.get("output_shape") or ()
    return f"output_shape has {len(shape)} numbers for {count} axes" if len(shape) not in (0, count, count + 2) else ""


def _window_attributes(call: OperatorCall, count: int) -> tuple[Dims, Dims, Dims, str]:
    """Return strides, dilations, padding and `auto_pad` of a window over `count` spatial axes."""
    strides, dilations = (tuple(call.attribute(name) or (1,) * count) for name in ("strides", "dilations"))
    pads, mode = tuple(call.attribute("pads") or (0,) * 2 * count), call.attribute("auto_pad", "NOTSET")
    fault = window_fault(call.node, count)
    if not fault and (mode not in AUTO_PADS or min((*pads, 0)) < 0):
        fault = f"auto_pad {mode!r} and padding {pads} do not fit {count} axes"
    if fault:
        raise call.invalid(fault)
    return strides, dilations, pads, mode


# Pooling


def _pooling_axes(call: OperatorCall, image: Dims) -> tuple[WindowAxis, ...]:
    """Return the window of a pooling over an image, without batch and channels.

    Raises:
        InvalidArguments: `kernel_shape` is left out; or a reason of `window_axes`.
    """
    kernel = tuple(call.attribute("kernel_shape") or ())
    if not kernel:
        raise call.invalid("its kernel_shape is left out")
    return window_axes(call, image, kernel)


def window_axes(call: OperatorCall, image: Dims, kernel: Dims) -> tuple[WindowAxis, ...]:
    """Return the window of `kernel` taps that the node's attributes move over an image.

    Raises:
        InvalidArguments: an attribute has another length than the image has axes, or is not positive, or the window is
            larger than the padded image.
    """
    strides, dilations, pads, mode = _window_attributes(call, len(image))
    axes = []
    for k, (n, taps, stride, dilation) in enumerate(zip(image, kernel, strides, dilations, strict=True)):
        reach = (taps - 1) * dilation + 1
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-n // stride)
            before, behind = split_padding(max((count - 1) * stride + reach - n, 0), mode)
            axes.append(WindowAxis(n, taps, stride, dilation, before, behind, count))
            continue
        before, behind = (pads[k], pads[k + len(image)]) if mode == "NOTSET" else (0, 0)
        count = _positions(n + before + behind - reach, stride, n + before, bool(call.attribute("ceil_mode", 0)))
        if count < 1:
            raise call.invalid(f"a window of {reach} elements finds no place in {n} elements and their padding")
        axes.append(WindowAxis(n, taps, stride, dilation, before, behind, count))
    return tuple(axes)


def _positions(room: int, stride: int, end_padding_start: int, is_ceil: bool) -> int:
    """Return the number of positions of a window that can move by `room` elements.

    With `ceil_mode` there is one more, unless it begins in the padding after the image.
    """
    if room < 0:
        return 0
    count = (-(-room // stride) if is_ceil else room // stride) + 1
    return count - 1 if is_ceil and (count - 1) * stride >= end_padding_start else count


def max_pool(call: OperatorCall) -> tuple[Array, ...]:
    """Compute MaxPool: the greatest element of each window, NaN if it has one, and its index in the whole tensor."""
    src = call.input(0)
    axes = _pooling_axes(call, src.shape[2:])
    dims = (*src.shape[:2], *(axis.positions for axis in axes))
    result = np.full(dims, -np.inf if is_float(src.dtype) else np.iinfo(src.dtype).min, src.dtype)
    flat_indices = _element_indices(src.shape, bool(call.attribute("storage_order", 0))) if call.has_output(1) else None
    indices = np.zeros(dims, np.int64)
    reached = np.zeros(dims, bool)
    for positions, elements in _taps(axes):
        values, best = src[elements], result[positions]
        is_better = (values > best) | ~reached[positions]
        if is_float(src.dtype):
            is_better |= np.isnan(values) & ~np.isnan(best)
        np.copyto(best, values, where=is_better)
        reached[positions] = True
        if flat_indices is not None:
            np.copyto(indices[positions], np.broadcast_to(flat_indices[elements], values.shape), where=is_better)
    return result if flat_indices is None else (result, indices)  # type: ignore[return-value]


def _element_indices(dims: tuple[int, ...], is_column_major: bool) -> Indices:
    """Return the index of each element in the tensor.

    `storage_order` makes the spatial axes column-major.
    """
    image = dims[2:]
    flat = np.arange(prod(image), dtype=np.int64)
    within = flat.reshape(image[::-1]).transpose() if is_column_major else flat.reshape(image)
    planes = np.arange(prod(dims[:2]), dtype=np.int64) * prod(image)
    return np.asarray(planes.reshape(*dims[:2], *(1,) * len(image)) + within)


def average_pool(call: OperatorCall) -> Array:
    """Compute AveragePool: the mean of each window, with or without its padding."""
    src = call.input(0)
    axes = _pooling_axes(call, src.shape[2:])
    total = _sum_windows(src, axes, _sum_dtype(src.dtype))
    counts_padding = bool(call.attribute("count_include_pad", 0))
    for k, axis in enumerate(axes):
        count = axis.taps_inside if counts_padding else axis.taps_on_image
        taps = np.array([count(position) for position in range(axis.positions)], total.dtype)
        total /= np.maximum(taps, 1).reshape(-1, *(1,) * (len(axes) - 1 - k))
    return total.astype(src.dtype)


def lp_pool(call: OperatorCall) -> Array:
    """Compute LpPool: the norm of each window."""
    src, p = call.input(0), float(call.attribute("p", 2))
    axes = _pooling_axes(call, src.shape[2:])
    powers = np.power(np.abs(src.astype(_sum_dtype(src.dtype))), p)
    return np.power(_sum_windows(powers, axes, powers.dtype), 1 / p).astype(src.dtype)


def global_pooling(compute: Callable[[Array, tuple[int, ...], float], Array]) -> Callable[[OperatorCall], Array]:
    """Return the function of an operator whose window is the whole image."""

    def pool(call: OperatorCall) -> Array:
        src = call.input(0)
        axes = tuple(range(2, src.ndim))
        return compute(src.astype(_sum_dtype(src.dtype)), axes, float(call.attribute("p", 2))).astype(src.dtype)

    return pool


def _sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which sums are computed: f64 for integers and f64, else f32."""
    return np.dtype(np.float32) if is_float(dtype) and dtype.itemsize < 8 else np.dtype(np.float64)


def _sum_windows(src: Array, axes: tuple[WindowAxis, ...], dtype: np.dtype[Any]) -> Array:
    """Return the sum of each window."""
    total = np.zeros((*src.shape[:2], *(axis.positions for axis in axes)), dtype)
    for positions, elements in _taps(axes):
        total[positions] += src[elements]
    return total


def _taps(axes: tuple[WindowAxis, ...]) -> Iterator[tuple[Slices, Slices]]:
    """Yield for each tap of the window the positions at which it is on the image, and the elements there.

    The slices begin with those of batch and channels.
    """
    every = (slice(None), slice(None))
    for _, positions, elements in iterate_taps(axes):
        yield (*every, *positions), (*every, *elements)


def iterate_taps(axes: tuple[WindowAxis, ...]) -> Iterator[tuple[Dims, Slices, Slices]]:
    """Yield each tap that is on the image anywhere, with the positions at which it is, and the elements there."""
    sides = [[(tap, *axis.under(tap)) for tap in range(axis.kernel)] for axis in axes]
    for tap in product(*([side for side in along if side[1].start < side[1].stop] for along in sides)):
        yield tuple(k for k, _, _ in tap), tuple(at for _, at, _ in tap), tuple(elements for _, _, elements in tap)


# The transpose of a convolution


def conv_transpose(call: OperatorCall) -> Array:
    """Compute ConvTranspose, in groups."""
    src, weights, bias = call.input(0), call.input(1), call.optional(2)
    groups = int(call.attribute("group", 1))
    axes = _transposed_axes(call, src.shape[2:], weights.shape[2:])
    batch, outputs = src.shape[0], weights.shape[1]
    working = accumulation_dtype(src.dtype)
    images = src.astype(working).reshape(batch, groups, src.shape[1] // groups, prod(src.shape[2:]))
    kernel = weights.astype(working).reshape(groups, src.shape[1] // groups, *weights.shape[1:])
    result = np.zeros((batch, groups, outputs, *(axis.extent for axis in axes)), working)
    every = (slice(None),) * 3
    for tap in product(*(range(axis.kernel) for axis in axes)):
        sides = [axis.under(k) for axis, k in zip(axes, tap, strict=True)]
        if all(positions.start < positions.stop for positions, _ in sides):
            products = np.einsum("bgcs,gco->bgos", images, kernel[every + tap])
            products = products.reshape(batch, groups, outputs, *src.shape[2:])
            result[(*every, *(elements for _, elements in sides))] += products[(*every, *(at for at, _ in sides))]
    if bias is not None:
        result += bias.astype(working).reshape(groups, outputs, *(1,) * len(axes))
    return result.reshape(batch, groups * outputs, *result.shape[3:]).astype(src.dtype)


def _transposed_axes(call: OperatorCall, image: Dims, kernel: Dims) -> tuple[WindowAxis, ...]:
    """Return the window that slides over the result, with as many positions as the image has elements."""
    count = len(image)
    strides, dilations, pads, mode = _window_attributes(call, count)
    more, shape = tuple(call.attribute("output_padding") or (0,) * count), call.attribute("output_shape")
    if min((*more, 0)) < 0:
        raise call.invalid(f"output_padding {more} is negative")
    sizes = tuple(shape)[-count:] if shape else tuple(n * s for n, s in zip(image, strides, strict=True))
    axes = []
    for k, (n, taps, stride, dilation) in enumerate(zip(image, kernel, strides, dilations, strict=True)):
        full = (n - 1) * stride + (taps - 1) * dilation + 1 + more[k]
        if shape or mode in ("SAME_UPPER", "SAME_LOWER"):
            before, _ = split_padding(max(full - sizes[k], 0), mode)
            extent = sizes[k]
        else:
            before, behind = (pads[k], pads[k + count]) if mode == "NOTSET" else (0, 0)
            extent = full - before - behind
        if extent < 1:
            raise call.invalid(f"padding removes all elements of axis {k + 2}")
        axes.append(WindowAxis(extent, taps, stride, dilation, before, 0, n))
    return tuple(axes)


POOLING: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "AveragePool": average_pool,
    "ConvTranspose": conv_transpose,
    "GlobalAveragePool": global_pooling(lambda src, axes, p: mean_over(src, axes)),
    "GlobalLpPool": global_pooling(
        lambda src, axes, p: np.asarray(np.power(np.power(np.abs(src), p).sum(axes, keepdims=True), 1 / p))
    ),
    "GlobalMaxPool": global_pooling(lambda src, axes, p: np.asarray(src.max(axes, keepdims=True))),
    "LpPool": lp_pool,
    "MaxPool": max_pool,
}
"""Function of each pooling and of ConvTranspose."""
