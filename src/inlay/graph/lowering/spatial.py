"""Lowering rules of operators on images: convolutions, poolings and resizes.

**Windows.** ONNX counts the dilation of a dense window as 1, oneDNN as 0. The padding at the end follows from the dims
of the result, so `auto_pad` and `ceil_mode` need no rules of their own. If several paddings give these dims, the one
nearest to 0 is used.

>>> Window((3,), (2,), (1,), (1,)).parameters((8,), (4,))
{'strides': (2,), 'dilations': (0,), 'padding_l': (1,), 'padding_r': (0,)}

**Convolution and its transpose.** With G groups, O output channels and I input channels per group, ONNX's weights of
Conv have dims (G * O, I, ...), and those of ConvTranspose (G * I, O, ...). Both become oneDNN's (G, O, I, ...). Without
groups, the axis G is left out.

**Pooling** has a window, or the whole image as its window. AveragePool divides by the number of elements under the
window that are not padding, or by all if `count_include_pad` is set. If `ceil_mode` lets such a window extend beyond
the padding, no primitive divides as ONNX does.

**Resize and Upsample** become the primitive resampling if it is exact, else matrix products. Each element of the result
has a coordinate in the source. ONNX has several formulas for it. oneDNN has one: the middle of the pixel, where halves
are rounded up to the nearest element. So the rule computes the coordinates along each axis by both formulas, in f32 as
runtimes do and in f64. If all agree, resampling is exact. If not, a linear or cubic resize becomes a product with a
matrix of interpolation weights along each axis that changes.

Source: ONNX, "Operators": AveragePool, Conv, ConvTranspose, MaxPool, Resize.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from inlay.graph.lowering.context import F32, LoweringContext, Operand, require
from inlay.graph.numpy_operators.pooling import split_padding
from inlay.graph.numpy_operators.sampling import LINEAR_MODES, ROUNDINGS, cubic_kernel
from inlay.graph.op_graph import Array
from inlay.layout import Dims
from inlay.primitives.engine import Parameter

MOST_SPATIAL_AXES = 3
"""Limit on the spatial axes of primitives."""


# Windows


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides over an image; each field has an entry for each spatial axis."""

    kernel: Dims
    """Taps (elements) of the window."""
    strides: Dims
    """Elements between two positions of the window."""
    dilations: Dims
    """Elements from one tap to the next; 1 for a dense window."""
    padding_l: Dims
    """Padding before the image."""

    @property
    def extents(self) -> Dims:
        """Elements from the first tap to the last, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def padding_r(self, image: Dims, result: Dims) -> Dims:
        """Return the padding after the image with which the window has `result` positions."""
        sides = zip(image, result, self.extents, self.strides, self.padding_l, strict=True)
        least = [((o - 1) * s + e - n - p, s) for n, o, e, s, p in sides]
        return tuple(max(pad, min(0, pad + s - 1)) for pad, s in least)

    def parameters(self, image: Dims, result: Dims) -> dict[str, Dims]:
        """Return oneDNN's parameters of a window that slides over `image` and has `result` positions."""
        return {
            "strides": self.strides,
            "dilations": tuple(d - 1 for d in self.dilations),
            "padding_l": self.padding_l,
            "padding_r": self.padding_r(image, result),
        }


def sliding_window(context: LoweringContext, kernel: Dims, image: Dims, result: Dims) -> Window:
    """Return the window of a convolution or pooling from `image` to `result`, both without batch and channels.

    Raises:
        UnsupportedNode: there are no or too many spatial axes, or padding is negative.
    """
    strides, dilations = _strides_and_dilations(context, len(image))
    pads = tuple(context.attribute("pads") or (0,) * 2 * len(image))[: len(image)]
    mode = context.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        unpadded = Window(kernel, strides, dilations, (0,) * len(image))
        totals = unpadded.padding_r(image, result)
        pads = tuple(split_padding(max(total, 0), mode)[0] for total in totals)
    elif mode == "VALID":
        pads = (0,) * len(image)
    require(min(context.attribute("pads") or (0,)) >= 0, "its padding is negative")
    return Window(kernel, strides, dilations, pads)


def _strides_and_dilations(context: LoweringContext, count: int) -> tuple[Dims, Dims]:
    """Return strides and dilations of `count` spatial axes.

    Raises:
        UnsupportedNode: there are no or too many spatial axes.
    """
    _require_spatial_axes(count)
    strides, dilations = (tuple(context.attribute(name) or (1,) * count) for name in ("strides", "dilations"))
    return strides, dilations


def _require_spatial_axes(count: int) -> None:
    """Raise UnsupportedNode if primitives do not support `count` spatial axes."""
    require(0 < count <= MOST_SPATIAL_AXES, f"it has {count} spatial axes, primitives have 1 to {MOST_SPATIAL_AXES}")


# Convolutions


def convolution(context: LoweringContext) -> Operand:
    """Lower Conv: dst = bias + sum over channels and taps of src * weights."""
    src, weights = context.source(0), context.operand(1)
    dims, result, shape = context.dims(src), context.output().dims, context.dims(weights)
    window = sliding_window(context, shape[2:], dims[2:], result[2:])
    groups = context.attribute("group", 1)
    if groups > 1:
        weights = context.reshape(weights, (groups, shape[0] // groups, *shape[1:]))
    parameters = window.parameters(dims[2:], result[2:])
    operands = {"src": src, "weights": weights, **_bias(context)}
    return context.emit("convolution", operands, result, algorithm="direct", **parameters)


def deconvolution(context: LoweringContext) -> Operand:
    """Lower ConvTranspose, whose window slides over the result."""
    src, weights = context.source(0), context.operand(1)
    dims, result = context.dims(src), context.output().dims
    window = transposed_window(context, context.dims(weights)[2:], dims[2:], result[2:])
    weights = swap_channels(context, weights, context.attribute("group", 1))
    parameters = window.parameters(result[2:], dims[2:])
    operands = {"src": src, "weights": weights, **_bias(context)}
    return context.emit("deconvolution", operands, result, algorithm="direct", **parameters)


def _bias(context: LoweringContext) -> dict[str, Operand]:
    """Return the operand bias, if the node has one."""
    return {"bias": context.operand(2)} if context.has_input(2) else {}


def swap_channels(context: LoweringContext, weights: Operand, groups: int) -> Operand:
    """Return weights (G * I, O, ...) as (G, O, I, ...)."""
    shape = context.dims(weights)
    if groups == 1:
        return context.permute(weights, (1, 0, *range(2, len(shape))))
    split = context.reshape(weights, (groups, shape[0] // groups, *shape[1:]))
    return context.permute(split, (0, 2, 1, *range(3, len(shape) + 1)))


def transposed_window(context: LoweringContext, kernel: Dims, src: Dims, dst: Dims) -> Window:
    """Return the window that slides over `dst`, with padding from attributes, or from the dims of the result.

    Versions of ONNX differ in the side that gets an odd element of padding. So padding that follows from dims must be
    even.

    Raises:
        UnsupportedNode: there are no or too many spatial axes, or padding is odd or negative.
    """
    strides, dilations = _strides_and_dilations(context, len(src))
    pads = tuple(context.attribute("pads") or (0,) * 2 * len(src))
    mode = context.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") or context.attribute("output_shape"):
        more = tuple(context.attribute("output_padding") or (0,) * len(src))
        extents = Window(kernel, strides, dilations, (0,) * len(src)).extents
        sides = zip(src, dst, extents, strides, more, strict=True)
        totals = [(n - 1) * s + extra + e - o for n, o, e, s, extra in sides]
        require(
            all(t >= 0 and t % 2 == 0 for t in totals),
            (f"its dims need padding of {tuple(totals)} in all, which is odd or negative"),
        )
        pads = tuple(total // 2 for total in totals)
    elif mode == "VALID":
        pads = (0,) * len(src)
    require(min(pads) >= 0, "its padding is negative")
    return Window(kernel, strides, dilations, cast(Dims, pads[: len(src)]))


# Pooling

_MOST_POSITIONS = 1 << 16
"""Limit on the positions of a window that are checked one by one."""
_MARGIN = 64
"""Elements by which a pooling window may exceed twice the image."""


def max_pool(context: LoweringContext) -> Operand:
    """Lower MaxPool without indices."""
    require(not context.is_output_used(1), "indices of the greatest elements are attributes for")
    return _emit_pooling(context, "max")


def average_pool(context: LoweringContext) -> Operand:
    """Lower AveragePool."""
    counts_padding = context.attribute("count_include_pad", 0)
    return _emit_pooling(context, "avg_include_padding" if counts_padding else "avg_exclude_padding")


def _emit_pooling(context: LoweringContext, algorithm: str) -> str:
    """Emit a pooling with the node's window; the greatest of integers is one of them."""
    src = context.operand(0, (F32, *_INTEGERS) if algorithm == "max" else (F32,))
    require(isinstance(src, str), "its input is a constant")
    dims, result = context.dims(src), context.output().dims
    window = pooling_window(context, dims[2:], result[2:])
    if algorithm == "avg_include_padding":
        image, out = dims[2:], result[2:]
        require(not _exceeds_padding(context, window, image, out), "its mean counts padding that ceil_mode leaves out")
    parameters: dict[str, Parameter] = dict(window.parameters(dims[2:], result[2:]))
    parameters |= {"algorithm": algorithm, "kernel": window.kernel}
    return context.emit("pooling", {"src": src}, result, context.output().dtype, **parameters)


_INTEGERS = (np.dtype(np.int8), np.dtype(np.uint8))


def pooling_window(context: LoweringContext, image: Dims, out: Dims) -> Window:
    """Return the window of a pooling from `image` to `out`, both without batch and channels.

    Raises:
        UnsupportedNode: the window is mostly padding, or covers only padding at a position; or a reason of
            `sliding_window`.
    """
    window = sliding_window(context, tuple(context.attribute("kernel_shape")), image, out)
    is_small = all(k <= 2 * n + _MARGIN for k, n in zip(window.kernel, image, strict=True))
    require(is_small, "its window is mostly padding")
    require(_is_on_image(window, image, out), "a window covers only padding")
    return window


def _is_on_image(window: Window, image: Dims, out: Dims) -> bool:
    """Return whether the window has a tap on the image at each position."""
    sides = zip(window.kernel, window.strides, window.dilations, window.padding_l, image, out, strict=True)
    return all(_overlaps_axis(*side) for side in sides)


def _overlaps_axis(taps: int, stride: int, dilation: int, pad: int, n: int, count: int) -> bool:
    """Return whether a window has a tap on an axis of `n` elements at each of its `count` positions.

    A window that begins on the image has one. A window that begins before the image has one if its first tap at or
    after the image's first element is within the image.
    """
    if (count - 1) * stride - pad >= n:
        return False
    before = min(count, -(-pad // stride))
    if n >= dilation:  # no tap can skip the image, so only the first window, which begins farthest away, matters
        return before == 0 or -(-pad // dilation) < taps
    require(before <= _MOST_POSITIONS, f"{before} windows begin in padding")
    starts = (pad - at * stride for at in range(before))
    return all(-(-start // dilation) < taps and -start % dilation < n for start in starts)


def _exceeds_padding(context: LoweringContext, window: Window, image: Dims, out: Dims) -> bool:
    """Return whether the last window ends behind the padding that the node states."""
    needed = window.padding_r(image, out)
    mode = context.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return False
    pads = (context.attribute("pads") if mode == "NOTSET" else None) or (0,) * 2 * len(image)
    return any(need > pad for need, pad in zip(needed, pads[len(image) :], strict=True))


def global_pooling(algorithm: str) -> Callable[[LoweringContext], Operand]:
    """Return the rule of an operator whose window is the whole image."""

    def rule(context: LoweringContext) -> Operand:
        return emit_global_pooling(context, context.source(0), algorithm)

    return rule


def emit_global_pooling(context: LoweringContext, src: Operand, algorithm: str) -> str:
    """Emit the maximum or mean of each channel, with spatial axes of length 1."""
    dims = context.dims(src)
    count = len(dims) - 2
    _require_spatial_axes(count)
    still, once = (0,) * count, (1,) * count
    numbers = {"strides": once, "kernel": dims[2:], "dilations": still, "padding_l": still, "padding_r": still}
    return context.emit("pooling", {"src": src}, (*dims[:2], *once), algorithm=algorithm, **numbers)


# Resizes

_DEFAULTS_BEFORE_11 = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
"""Fixed choices of Upsample, and of Resize before opset 11."""
_DEFAULTS_SINCE_11 = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
"""Defaults of the attributes of Resize."""
_CLOSE = 1e-6
"""Tolerance of coordinates that count as equal, as a fraction of the longer axis."""
_MOST_ELEMENTS = 1 << 22
"""Limit on the extent of an axis whose coordinates are compared."""
_MOST_WEIGHTS = 1 << 25
"""Limit on the elements of a matrix of interpolation weights."""


@dataclass(frozen=True, slots=True)
class _ResizeAttributes:
    """Attributes of a resize."""

    mode: str
    """`nearest`, `linear` or `cubic`."""
    transformation: str
    """Name of the coordinate transformation, such as `half_pixel`."""
    rounding: str
    """Name of the rounding of a coordinate to the nearest element, such as `floor`."""
    scales: tuple[float, ...]
    """Factor by which each axis of the source becomes longer."""


def resize(context: LoweringContext) -> Operand:
    """Lower Resize or Upsample, with the primitive resampling or with matrix products.

    Of integers of 8 bits, only those next to a coordinate are taken.
    """
    src = _resize_source(context)
    dims, result = context.dims(src), context.output().dims
    attributes = _resize_attributes(context)
    require(attributes.mode == "nearest" or context.dtype(src) == F32, f"its mode is {attributes.mode}, of integers")
    if dims == result and all(scale == 1 for scale in attributes.scales):
        return src
    require(context.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "it keeps the aspect ratio")
    is_smaller = any(out < n for n, out in zip(dims, result, strict=True))
    require(not (context.attribute("antialias", 0) and is_smaller), "it shrinks an axis with antialias")
    require(2 < len(dims) <= 5, f"it has {len(dims)} axes, the primitive has 3 to 5")
    require(
        dims[:2] == result[:2] and attributes.scales[0] == attributes.scales[1] == 1, "it resizes batch or channels"
    )
    differences = [
        _find_difference(*sizes, attributes) for sizes in zip(dims[2:], result[2:], attributes.scales[2:], strict=True)
    ]
    if attributes.mode == "cubic" or (attributes.mode == "linear" and any(differences)):
        return _emit_weight_products(context, src, attributes)
    for difference in differences:
        require(not difference, difference)
    factors = tuple(out / n for n, out in zip(dims[2:], result[2:], strict=True))
    dtype = context.dtype(src)
    return context.emit("resampling", {"src": src}, result, dtype, algorithm=attributes.mode, factors=factors)


def _resize_source(context: LoweringContext) -> str:
    """Return the first input of a resize, a tensor of f32 or of integers of 8 bits."""
    src = context.operand(0, (F32, *_INTEGERS))
    require(isinstance(src, str), "its input is a constant")
    return str(src)


def _resize_attributes(context: LoweringContext) -> _ResizeAttributes:
    """Return the attributes of a resize, with defaults of its opset."""
    is_old = context.node.operator == "Upsample" or context.opset < 11
    defaults = _DEFAULTS_BEFORE_11 if is_old else _DEFAULTS_SINCE_11
    values = {name: context.attribute(name, default) for name, default in defaults.items()}
    mode = context.attribute("mode", "nearest")
    mode = "linear" if mode in LINEAR_MODES else mode
    require(mode in ("nearest", "linear", "cubic"), f"its mode is {mode}")
    transformation, rounding = values["coordinate_transformation_mode"], values["nearest_mode"]
    return _ResizeAttributes(mode, transformation, rounding, _scales(context, is_old))


def _scales(context: LoweringContext, is_old: bool) -> tuple[float, ...]:
    """Return the factor of each axis, from the node's scales or from the dims of source and result."""
    dims, result = context.dims(_resize_source(context)), context.output().dims
    scales = [out / n for n, out in zip(dims, result, strict=True)]
    index = 1 if is_old else 2
    if context.attribute("scales") is not None:
        stated = [float(scale) for scale in context.attribute("scales")]
    elif context.has_input(index) and context.constant(index, "scales").size:
        stated = [float(scale) for scale in context.constant(index, "scales")]
    else:
        return tuple(scales)
    axes = context.attribute("axes") or tuple(range(len(dims)))
    for axis, scale in zip(axes, stated, strict=True):
        scales[axis % len(dims)] = scale
    return tuple(scales)


def _find_difference(n: int, out: int, scale: float, attributes: _ResizeAttributes) -> str:
    """Return why ONNX's interpolation along an axis differs from oneDNN's; an empty text if it does not."""
    require(max(n, out) <= _MOST_ELEMENTS, f"an axis of {max(n, out)} elements is too long to compare coordinates")
    rounding = f" and {attributes.rounding}" if attributes.mode == "nearest" else ""
    for dtype in (np.float32, np.float64):
        at = _coordinates(n, out, scale, attributes.transformation, dtype)
        if attributes.mode == "nearest":
            same = np.array_equal(_nearest(at, n, attributes.rounding), (2 * np.arange(out) + 1) * n // (2 * out))
        else:
            middle = _coordinates(n, out, out / n, "half_pixel", np.float64)
            same = np.allclose(np.clip(at, 0, n - 1), np.clip(middle, 0, n - 1), rtol=0, atol=_CLOSE * max(n, out))
        if not same:
            return (
                f"{attributes.transformation}{rounding} from {n} to {out} elements uses other elements than the "
                "primitive"
            )
    return ""


def _emit_weight_products(context: LoweringContext, src: Operand, attributes: _ResizeAttributes) -> Operand:
    """Emit a product with the matrix of interpolation weights for each axis that changes, beginning with the last."""
    dims, result = context.dims(src), context.output().dims
    for axis in reversed(range(2, len(result))):
        weights = _weights(context, dims[axis], result[axis], attributes.scales[axis], attributes).astype(F32)
        before, after = prod(dims[:axis]), prod(dims[axis + 1 :])
        dims = (*dims[:axis], result[axis], *dims[axis + 1 :])
        if len(weights) == weights.shape[1] and np.array_equal(weights, np.eye(len(weights))):
            continue
        if after == 1:
            rows = context.reshape(src, (before, weights.shape[1]))
            src = context.emit("matmul", {"src": rows, "weights": weights.T}, (before, len(weights)))
        else:
            columns = context.reshape(src, (before, weights.shape[1], after))
            operands = {"src": weights[None], "weights": columns}
            src = context.emit("matmul", operands, (before, len(weights), after))
    return context.reshape(src, result)


def _weights(context: LoweringContext, n: int, out: int, scale: float, attributes: _ResizeAttributes) -> Array:
    """Return the matrix (out, n) of interpolation weights along an axis."""
    require(n * out <= _MOST_WEIGHTS, f"a matrix of {out} x {n} weights is too large")
    at = _coordinates(n, out, scale, attributes.transformation, np.float64)
    is_inside = bool(context.attribute("exclude_outside", 0))
    if attributes.mode == "cubic":
        return _cubic_weights(at, n, context.attribute("cubic_coeff_a", -0.75), is_inside)
    require(not is_inside, "it excludes elements outside the image")
    return _linear_weights(at, n)


def _coordinates(n: int, out: int, scale: float, transformation: str, dtype: Any) -> Array:
    """Return the coordinate in the source of each element of the result, along an axis."""
    index, factor, half = np.arange(out, dtype=dtype), dtype(scale), dtype(0.5)
    if transformation == "asymmetric":
        return np.asarray(index / factor)
    if transformation == "align_corners":
        # ONNX's cases and runtimes disagree on whether the last corner is that of the rounded extent.
        require(abs(scale * n - out) < 1e-3, f"its scale leads to {scale * n:g} elements, and its result has {out}")
        return np.asarray(index * dtype(n - 1) / dtype(max(out - 1, 1)))
    if transformation == "pytorch_half_pixel" and out == 1:
        return np.zeros(1, dtype)
    middle = np.asarray((index + half) / factor - half)
    if transformation == "half_pixel_symmetric":
        return np.asarray(dtype(n) / 2 * (1 - dtype(out) / (factor * dtype(n))) + middle)
    require(transformation in ("half_pixel", "pytorch_half_pixel"), f"its coordinates are {transformation}")
    return middle


def _nearest(at: Array, n: int, rounding: str) -> Array:
    """Return the index of the nearest element of each coordinate."""
    require(rounding in ROUNDINGS, f"its nearest_mode is {rounding}")
    return np.asarray(np.clip(ROUNDINGS[rounding](at), 0, n - 1).astype(np.int64))


def _linear_weights(at: Array, n: int) -> Array:
    """Return the weight of each of `n` elements in each result: the two next to a coordinate, by their distance.

    >>> _linear_weights(np.array([-0.25, 0.25, 0.75, 1.25]), 2)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.  , 1.  ]])
    """
    below = np.floor(at)
    return _build_matrix(below, {0: below + 1 - at, 1: at - below}, n)


def _cubic_weights(at: Array, n: int, factor: float, is_inside: bool) -> Array:
    """Return weights as `_linear_weights`, of four elements, by Keys's polynomials.

    Elements outside of the source are those at its border, or are left out if only those inside count.
    """
    below, kernel = np.floor(at), cubic_kernel(factor)
    weights: dict[int, Array] = {step: kernel(np.abs(at - below - step)) for step in (-1, 0, 1, 2)}
    if is_inside:
        weights = {step: np.where((below + step < 0) | (below + step >= n), 0, one) for step, one in weights.items()}
        total = sum(weights.values())
        weights = {step: one / total for step, one in weights.items()}
    return _build_matrix(below, weights, n)


def _build_matrix(below: Array, weights: dict[int, Array], n: int) -> Array:
    """Return the matrix (result, source) of weights of the elements `step` after `below`, clamped to the source."""
    matrix = np.zeros((len(below), n))
    for step, share in weights.items():
        np.add.at(matrix, (np.arange(len(below)), np.clip(below + step, 0, n - 1).astype(np.int64)), share)
    return matrix


SPATIAL: Mapping[str, Callable[[LoweringContext], Operand]] = {
    "AveragePool": average_pool,
    "Conv": convolution,
    "ConvTranspose": deconvolution,
    "GlobalAveragePool": global_pooling("avg_include_padding"),
    "GlobalMaxPool": global_pooling("max"),
    "MaxPool": max_pool,
    "Resize": resize,
    "Upsample": resize,
}
"""Rule of each operator on images."""
