"""Operators of images: convolutions, pooling, and resizes.

**Windows.** ONNX counts a dense window's dilation as 1, oneDNN as 0. The padding at the end is what the result's dims
ask for, so that `auto_pad` and `ceil_mode` need no rules of their own: of all that give these dims, that nearest to 0.

>>> Window((3,), (2,), (1,), (1,)).parameters((8,), (4,))
{'strides': (2,), 'dilations': (0,), 'padding_l': (1,), 'padding_r': (0,)}

**Convolution and its transpose.** ONNX's weights of a convolution are (G * O, I, ...), oneDNN's (G, O, I, ...); of a
transposed one (G * I, O, ...), which become (G, O, I, ...) too. Without groups the first axis is left out.

**Pooling**, by windows or of the whole image. An average divides by the elements under the window that are not padding,
or by all where `count_include_pad`; where `ceil_mode` lets such a window reach beyond the padding, no primitive divides
as ONNX does.

**Resize and Upsample**: resampling where it takes the same elements with the same shares, else products of matrices.
ONNX has many ways to say which coordinate of the source an element of the result lies on; oneDNN has one, the middle of
its pixel, with halves up for the nearest. So the shares along each axis are computed both ways and compared, in f32 as
runtimes compute them and in f64: where all agree, resampling is exact. Where they do not, linear and cubic resizes are
a product with the matrix of shares along each axis that changes.

Source: ONNX, "Operators": AveragePool, Conv, ConvTranspose, MaxPool, Resize.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

import numpy as np

from inlay.graph.lowering.draft import F32, Draft, Operand, require
from inlay.graph.numpy_operators.pooling import split_padding
from inlay.graph.numpy_operators.sampling import LINEAR_MODES, ROUNDINGS, keys
from inlay.graph.op_graph import Array
from inlay.layout import Dims

MOST_SPATIAL_AXES = 3


# Windows


@dataclass(frozen=True, slots=True)
class Window:
    """A window that walks over an image; one entry for each spatial axis."""

    kernel: Dims
    """Taps."""
    strides: Dims
    """Steps."""
    dilations: Dims
    """Distance between taps, 1 if they are neighbors."""
    padding_l: Dims
    """Padding before the image."""

    @property
    def extents(self) -> Dims:
        """Elements from the first tap to the last, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def padding_r(self, image: Dims, result: Dims) -> Dims:
        """The padding after the image with which the window takes `result` positions."""
        sides = zip(image, result, self.extents, self.strides, self.padding_l, strict=True)
        least = [((o - 1) * s + e - n - p, s) for n, o, e, s, p in sides]
        return tuple(max(pad, min(0, pad + s - 1)) for pad, s in least)

    def parameters(self, image: Dims, result: Dims) -> dict[str, Dims]:
        """What oneDNN is told, where the window walks over `image` and takes `result` positions."""
        return {
            "strides": self.strides,
            "dilations": tuple(d - 1 for d in self.dilations),
            "padding_l": self.padding_l,
            "padding_r": self.padding_r(image, result),
        }


def _window(draft: Draft, kernel: Dims, image: Dims, result: Dims) -> Window:
    """The window of a convolution or a pooling from `image` to `result`, both without batch and channels.

    Raises:
        Declined: there are no or too many spatial axes, or padding is negative.
    """
    strides, dilations = _steps(draft, len(image))
    pads = tuple(draft.attribute("pads") or (0,) * 2 * len(image))[: len(image)]
    mode = draft.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        unpadded = Window(kernel, strides, dilations, (0,) * len(image))
        totals = unpadded.padding_r(image, result)
        pads = tuple(split_padding(max(total, 0), mode)[0] for total in totals)
    elif mode == "VALID":
        pads = (0,) * len(image)
    require(min(draft.attribute("pads") or (0,)) >= 0, "its padding is negative")
    return Window(kernel, strides, dilations, pads)


def _steps(draft: Draft, count: int) -> tuple[Dims, Dims]:
    """Strides and dilations of `count` spatial axes.

    Raises:
        Declined: there are no or too many spatial axes.
    """
    _require_spatial_axes(count)
    strides, dilations = (tuple(draft.attribute(name) or (1,) * count) for name in ("strides", "dilations"))
    return strides, dilations


def _require_spatial_axes(count: int) -> None:
    require(0 < count <= MOST_SPATIAL_AXES, f"it has {count} spatial axes, primitives have 1 to {MOST_SPATIAL_AXES}")


# Convolutions


def convolution(draft: Draft) -> Operand:
    """dst = bias + sum over channels and taps of src * weights."""
    src, weights = draft.source(0), draft.operand(1)
    dims, result, shape = draft.dims(src), draft.result().dims, draft.dims(weights)
    walked = _window(draft, shape[2:], dims[2:], result[2:])
    groups = draft.attribute("group", 1)
    if groups > 1:
        weights = draft.reshaped(weights, (groups, shape[0] // groups, *shape[1:]))
    parameters = walked.parameters(dims[2:], result[2:])
    operands = {"src": src, "weights": weights, **_bias(draft)}
    return draft.put("convolution", operands, result, algorithm="direct", **parameters)


def deconvolution(draft: Draft) -> Operand:
    """The transpose of a convolution, which walks over the result."""
    src, weights = draft.source(0), draft.operand(1)
    dims, result = draft.dims(src), draft.result().dims
    walked = _transposed_window(draft, draft.dims(weights)[2:], dims[2:], result[2:])
    weights = _swapped(draft, weights, draft.attribute("group", 1))
    parameters = walked.parameters(result[2:], dims[2:])
    operands = {"src": src, "weights": weights, **_bias(draft)}
    return draft.put("deconvolution", operands, result, algorithm="direct", **parameters)


def _bias(draft: Draft) -> dict[str, Operand]:
    return {"bias": draft.operand(2)} if draft.given(2) else {}


def _swapped(draft: Draft, weights: Operand, groups: int) -> Operand:
    """(G * I, O, ...) to (G, O, I, ...)."""
    shape = draft.dims(weights)
    if groups == 1:
        return draft.permuted(weights, (1, 0, *range(2, len(shape))))
    split = draft.reshaped(weights, (groups, shape[0] // groups, *shape[1:]))
    return draft.permuted(split, (0, 2, 1, *range(3, len(shape) + 1)))


def _transposed_window(draft: Draft, kernel: Dims, src: Dims, dst: Dims) -> Window:
    """The window that walks over `dst`: padding by attributes, or what the dims that are asked for need.

    Versions of ONNX differ on the side of an odd element, so only even padding is computed where none is said.
    """
    strides, dilations = _steps(draft, len(src))
    pads = tuple(draft.attribute("pads") or (0,) * 2 * len(src))
    mode = draft.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") or draft.attribute("output_shape"):
        more = tuple(draft.attribute("output_padding") or (0,) * len(src))
        extents = Window(kernel, strides, dilations, (0,) * len(src)).extents
        sides = zip(src, dst, extents, strides, more, strict=True)
        totals = [(n - 1) * s + extra + e - o for n, o, e, s, extra in sides]
        require(all(t >= 0 and t % 2 == 0 for t in totals), f"it asks for padding of {tuple(totals)} on both sides")
        pads = tuple(total // 2 for total in totals)
    elif mode == "VALID":
        pads = (0,) * len(src)
    require(min(pads) >= 0, "its padding is negative")
    return Window(kernel, strides, dilations, cast(Dims, pads[: len(src)]))


# Pooling

_MOST_POSITIONS = 1 << 16
_MARGIN = 64


def max_pool(draft: Draft) -> Operand:
    """The greatest element of each window."""
    require(not draft.wants(1), "indices of the greatest elements are asked for")
    return _pooled(draft, "max")


def average_pool(draft: Draft) -> Operand:
    """The mean element of each window."""
    return _pooled(draft, "avg_include_padding" if draft.attribute("count_include_pad", 0) else "avg_exclude_padding")


def _pooled(draft: Draft, algorithm: str) -> str:
    src = draft.source(0)
    dims, result = draft.dims(src), draft.result().dims
    image, out = dims[2:], result[2:]
    walked = _window(draft, tuple(draft.attribute("kernel_shape")), image, out)
    require(
        all(k <= 2 * n + _MARGIN for k, n in zip(walked.kernel, image, strict=True)), "its window is mostly padding"
    )
    require(_is_inside(walked, image, out), "a window lies in padding alone")
    if algorithm == "avg_include_padding":
        require(not _reaches_beyond(draft, walked, image, out), "its mean counts padding that ceil_mode leaves out")
    return draft.put(
        "pooling", {"src": src}, result, algorithm=algorithm, kernel=walked.kernel, **walked.parameters(image, out)
    )


def _is_inside(walked: Window, image: Dims, out: Dims) -> bool:
    """Whether each window has a tap inside the image."""
    sides = zip(walked.kernel, walked.strides, walked.dilations, walked.padding_l, image, out, strict=True)
    return all(_meets(*side) for side in sides)


def _meets(taps: int, stride: int, dilation: int, pad: int, n: int, count: int) -> bool:
    """Whether a window has a tap on an axis of `n` elements at each of its `count` positions.

    A window that begins on the image has; one that begins before it has where its first tap from there on does.
    """
    if (count - 1) * stride - pad >= n:
        return False
    before = min(count, -(-pad // stride))
    if n >= dilation:  # no step over the image: the first window begins the farthest away
        return before == 0 or -(-pad // dilation) < taps
    require(before <= _MOST_POSITIONS, f"{before} windows begin in padding")
    starts = (pad - at * stride for at in range(before))
    return all(-(-start // dilation) < taps and -start % dilation < n for start in starts)


def _reaches_beyond(draft: Draft, walked: Window, image: Dims, out: Dims) -> bool:
    """Whether a window ends behind the padding that the node says."""
    needed = walked.padding_r(image, out)
    mode = draft.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return False
    pads = (draft.attribute("pads") if mode == "NOTSET" else None) or (0,) * 2 * len(image)
    return any(need > said for need, said in zip(needed, pads[len(image) :], strict=True))


def over_image(algorithm: str) -> Callable[[Draft], Operand]:
    """The rule of an operator whose window is the whole image."""

    def rule(draft: Draft) -> Operand:
        return whole_image(draft, draft.source(0), algorithm)

    return rule


def whole_image(draft: Draft, src: Operand, algorithm: str) -> str:
    """The greatest or mean element of each channel, with spatial axes of length 1."""
    dims = draft.dims(src)
    count = len(dims) - 2
    _require_spatial_axes(count)
    still, once = (0,) * count, (1,) * count
    numbers = {"strides": once, "kernel": dims[2:], "dilations": still, "padding_l": still, "padding_r": still}
    return draft.put("pooling", {"src": src}, (*dims[:2], *once), algorithm=algorithm, **numbers)


# Resizes

_OLD = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
"""What Upsample, and Resize before opset 11, do without a word."""
_NEW = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
_CLOSE = 1e-6
_MOST_ELEMENTS = 1 << 22
_MOST_SHARES = 1 << 25


@dataclass(frozen=True, slots=True)
class _ResizeAttributes:
    """What the node says of every axis."""

    mode: str
    """`nearest`, `linear` or `cubic`."""
    way: str
    """How coordinates are transformed."""
    rounding: str
    """Which element is the nearest."""
    scales: tuple[float, ...]
    """How many times larger each axis becomes."""


def resize(draft: Draft) -> Operand:
    """The image at another resolution."""
    src = draft.source(0)
    dims, result = draft.dims(src), draft.result().dims
    asked = _resize_attributes(draft)
    if dims == result and all(scale == 1 for scale in asked.scales):
        return src
    require(draft.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "it keeps the aspect ratio")
    is_smaller = any(out < n for n, out in zip(dims, result, strict=True))
    require(not (draft.attribute("antialias", 0) and is_smaller), "it smooths what it makes smaller")
    require(2 < len(dims) <= 5, f"it has {len(dims)} axes, the primitive has 3 to 5")
    require(dims[:2] == result[:2] and asked.scales[0] == asked.scales[1] == 1, "it resizes batch or channels")
    differences = [_difference(*sizes, asked) for sizes in zip(dims[2:], result[2:], asked.scales[2:], strict=True)]
    if asked.mode == "cubic" or (asked.mode == "linear" and any(differences)):
        return _multiplied(draft, src, asked)
    for difference in differences:
        require(not difference, difference)
    factors = tuple(out / n for n, out in zip(dims[2:], result[2:], strict=True))
    return draft.put("resampling", {"src": src}, result, algorithm=asked.mode, factors=factors)


def _resize_attributes(draft: Draft) -> _ResizeAttributes:
    is_old = draft.node.operator == "Upsample" or draft.opset < 11
    said = {name: draft.attribute(name, default) for name, default in (_OLD if is_old else _NEW).items()}
    mode = draft.attribute("mode", "nearest")
    mode = "linear" if mode in LINEAR_MODES else mode
    require(mode in ("nearest", "linear", "cubic"), f"its mode is {mode}")
    return _ResizeAttributes(mode, said["coordinate_transformation_mode"], said["nearest_mode"], _scales(draft, is_old))


def _scales(draft: Draft, is_old: bool) -> tuple[float, ...]:
    """How many times larger each axis becomes, as the node says, or by the sizes that it says."""
    dims, result = draft.dims(draft.source(0)), draft.result().dims
    found = [out / n for n, out in zip(dims, result, strict=True)]
    index = 1 if is_old else 2
    if draft.attribute("scales") is not None:
        said = [float(scale) for scale in draft.attribute("scales")]
    elif draft.given(index) and draft.constant(index, "scales").size:
        said = [float(scale) for scale in draft.constant(index, "scales")]
    else:
        return tuple(found)
    axes = draft.attribute("axes") or tuple(range(len(dims)))
    for axis, scale in zip(axes, said, strict=True):
        found[axis % len(dims)] = scale
    return tuple(found)


def _difference(n: int, out: int, scale: float, asked: _ResizeAttributes) -> str:
    """Why ONNX's shares along an axis are not oneDNN's; empty if they are."""
    require(max(n, out) <= _MOST_ELEMENTS, f"an axis of {max(n, out)} elements is too long to compare where each lies")
    rounding = f" and {asked.rounding}" if asked.mode == "nearest" else ""
    for dtype in (np.float32, np.float64):
        at = _coordinates(n, out, scale, asked.way, dtype)
        if asked.mode == "nearest":
            same = np.array_equal(_nearest(at, n, asked.rounding), (2 * np.arange(out) + 1) * n // (2 * out))
        else:
            middle = _coordinates(n, out, out / n, "half_pixel", np.float64)
            same = np.allclose(np.clip(at, 0, n - 1), np.clip(middle, 0, n - 1), rtol=0, atol=_CLOSE * max(n, out))
        if not same:
            return f"{asked.way}{rounding} from {n} to {out} elements takes others than the primitive does"
    return ""


def _multiplied(draft: Draft, src: Operand, asked: _ResizeAttributes) -> Operand:
    """Each axis that changes, the last one first, times its matrix of shares."""
    dims, result = draft.dims(src), draft.result().dims
    for axis in reversed(range(2, len(result))):
        shares = _shares(draft, dims[axis], result[axis], asked.scales[axis], asked).astype(F32)
        before, after = prod(dims[:axis]), prod(dims[axis + 1 :])
        dims = (*dims[:axis], result[axis], *dims[axis + 1 :])
        if len(shares) == shares.shape[1] and np.array_equal(shares, np.eye(len(shares))):
            continue
        if after == 1:
            rows = draft.reshaped(src, (before, shares.shape[1]))
            src = draft.put("matmul", {"src": rows, "weights": shares.T}, (before, len(shares)))
        else:
            columns = draft.reshaped(src, (before, shares.shape[1], after))
            operands = {"src": shares[None], "weights": columns}
            src = draft.put("matmul", operands, (before, len(shares), after))
    return draft.reshaped(src, result)


def _shares(draft: Draft, n: int, out: int, scale: float, asked: _ResizeAttributes) -> Array:
    """The matrix (out, n) of shares along an axis."""
    require(n * out <= _MOST_SHARES, f"a matrix of {out} x {n} shares is too large")
    at = _coordinates(n, out, scale, asked.way, np.float64)
    is_inside = bool(draft.attribute("exclude_outside", 0))
    if asked.mode == "cubic":
        return _cubic_shares(at, n, draft.attribute("cubic_coeff_a", -0.75), is_inside)
    require(not is_inside, "it leaves out what is outside")
    return _linear_shares(at, n)


def _coordinates(n: int, out: int, scale: float, way: str, dtype: Any) -> Array:
    """Where each element of the result lies in the source."""
    index, factor, half = np.arange(out, dtype=dtype), dtype(scale), dtype(0.5)
    if way == "asymmetric":
        return np.asarray(index / factor)
    if way == "align_corners":
        # Whether the last corner is that of the rounded size, ONNX's cases and runtimes disagree.
        require(abs(scale * n - out) < 1e-3, f"its corners are those of {scale * n:g} elements, and {out} are there")
        return np.asarray(index * dtype(n - 1) / dtype(max(out - 1, 1)))
    if way == "pytorch_half_pixel" and out == 1:
        return np.zeros(1, dtype)
    middle = np.asarray((index + half) / factor - half)
    if way == "half_pixel_symmetric":
        return np.asarray(dtype(n) / 2 * (1 - dtype(out) / (factor * dtype(n))) + middle)
    require(way in ("half_pixel", "pytorch_half_pixel"), f"its coordinates are {way}")
    return middle


def _nearest(at: Array, n: int, rounding: str) -> Array:
    """The index of the element that is taken."""
    require(rounding in ROUNDINGS, f"its nearest_mode is {rounding}")
    return np.asarray(np.clip(ROUNDINGS[rounding](at), 0, n - 1).astype(np.int64))


def _linear_shares(at: Array, n: int) -> Array:
    """The share that each of `n` elements has in each of the result: the two beside a coordinate, by nearness.

    >>> _linear_shares(np.array([-0.25, 0.25, 0.75, 1.25]), 2)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.  , 1.  ]])
    """
    below = np.floor(at)
    return _gathered(below, {0: below + 1 - at, 1: at - below}, n)


def _cubic_shares(at: Array, n: int, factor: float, is_inside: bool) -> Array:
    """As `_linear_shares`, of four elements, by Keys's polynomials; those outside are the border or left out."""
    below, kernel = np.floor(at), keys(factor)
    shares: dict[int, Array] = {step: kernel(np.abs(at - below - step)) for step in (-1, 0, 1, 2)}
    if is_inside:
        shares = {step: np.where((below + step < 0) | (below + step >= n), 0, one) for step, one in shares.items()}
        total = sum(shares.values())
        shares = {step: one / total for step, one in shares.items()}
    return _gathered(below, shares, n)


def _gathered(below: Array, shares: dict[int, Array], n: int) -> Array:
    """The matrix (result, source) of shares of the elements `step` after `below`, at most the border."""
    matrix = np.zeros((len(below), n))
    for step, share in shares.items():
        np.add.at(matrix, (np.arange(len(below)), np.clip(below + step, 0, n - 1).astype(np.int64)), share)
    return matrix


SPATIAL: Mapping[str, Callable[[Draft], Operand]] = {
    "AveragePool": average_pool,
    "Conv": convolution,
    "ConvTranspose": deconvolution,
    "GlobalAveragePool": over_image("avg_include_padding"),
    "GlobalMaxPool": over_image("max"),
    "MaxPool": max_pool,
    "Resize": resize,
    "Upsample": resize,
}
"""The rule of each operator."""
