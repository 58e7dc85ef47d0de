"""Resize and Upsample along one axis after the other: each element is a weighted sum of a few of the source.

An axis that only picks elements (`nearest`) is indexed; the others are sums over taps, so that no window is copied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
import numpy.typing as npt

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.numpy_operators.types import is_float
from inlay.graph.op import Array
from inlay.layout import Dims

_LINEAR = ("linear", "bilinear", "trilinear")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
"""What `coordinate_transformation_mode` can be, of all versions of Resize."""
ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - at.dtype.type(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + at.dtype.type(0.5)),
}
"""What `nearest_mode` can be, from coordinates to the elements nearest to them."""
_PART = 1 << 18  # elements of an axis that are resized at once
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized."""

    index: int
    """Number of the axis."""
    extent: int
    """Elements of the source."""
    result: int
    """Elements of the result."""
    scale: float
    """How many times larger the axis becomes, as the node says."""
    roi: tuple[float, float]
    """Beginning and end of the part that is resized, from 0 to 1."""


def resize(call: OperatorCall) -> Array:
    """The image at another resolution."""
    src = call.input(0)
    mode = call.attribute("mode", "nearest")
    is_old = call.node.operator == "Upsample" or call.opset < 11
    way = call.attribute("coordinate_transformation_mode", "asymmetric" if is_old else "half_pixel")
    if mode not in ("nearest", "cubic", *_LINEAR) or way not in COORDINATES:
        raise call.invalid(f"mode {mode!r} with coordinates {way!r} is not defined")
    result = src if mode == "nearest" else src.astype(np.result_type(src.dtype, np.float32))
    outside = np.zeros((1,) * src.ndim, bool)
    for axis in _axes(call, src.shape, is_old):
        if axis.extent == axis.result and axis.scale == 1 and way != "tf_crop_and_resize":
            continue
        result = _along(call, result, axis, way, mode, is_old)
        if way == "tf_crop_and_resize":
            at = _coordinates(axis, way, np.arange(axis.result, dtype=np.float64))
            beyond = (at < 0) | (at > axis.extent - 1)
            outside = outside | beyond.reshape(-1, *(1,) * (src.ndim - axis.index - 1))
    if outside.any():
        result = np.where(outside, result.dtype.type(call.attribute("extrapolation_value", 0.0)), result)
    if is_float(src.dtype) or mode == "nearest":
        return result.astype(src.dtype, copy=False)
    if call.attribute("antialias", 0):
        raise call.unsupported(f"antialias of {src.dtype}, which runtimes round differently,")
    info = np.iinfo(src.dtype)
    return np.clip(np.trunc(result), info.min, info.max).astype(src.dtype)


def _axes(call: OperatorCall, dims: Dims, is_old: bool) -> list[_Axis]:
    """The axes that the node resizes."""
    named = call.attribute("axes")
    axes = list(range(len(dims))) if named is None else [call.axis(int(axis), len(dims)) for axis in named]
    scales, sizes = _scales(call, is_old), call.optional(3)
    roi = call.optional(1) if not is_old else None
    parts = [0.0] * len(axes) + [1.0] * len(axes) if roi is None or not roi.size else roi.astype(np.float64).tolist()
    if len(parts) != 2 * len(axes):
        raise call.invalid(f"a region of {len(parts)} numbers does not fit {len(axes)} axes")
    if sizes is not None and sizes.size:
        results, scales = _sized(call, [dims[axis] for axis in axes], [int(n) for n in sizes.reshape(-1)])
    elif scales is not None and len(scales) == len(axes) and all(0 < scale < np.inf for scale in scales):
        results = [floor(dims[axis] * (b - a) * s) for axis, s, a, b in _with_roi(call, axes, scales, parts)]
    else:
        raise call.invalid("it has neither a positive scale nor a size for each axis")
    return [
        _Axis(axis, dims[axis], result, scale, (parts[k], parts[k + len(axes)]))
        for k, (axis, result, scale) in enumerate(zip(axes, results, scales, strict=True))
    ]


def _with_roi(
    call: OperatorCall, axes: list[int], scales: list[float], parts: list[float]
) -> list[tuple[int, float, float, float]]:
    is_cropped = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    begins, ends = (parts[: len(axes)], parts[len(axes) :]) if is_cropped else ([0.0] * len(axes), [1.0] * len(axes))
    return list(zip(axes, scales, begins, ends, strict=True))


def _scales(call: OperatorCall, is_old: bool) -> list[float] | None:
    attribute = call.attribute("scales")
    given = call.optional(1 if is_old else 2)
    if attribute is None and (given is None or not given.size):
        return None
    return [float(scale) for scale in (attribute if attribute is not None else given.reshape(-1))]  # type: ignore[union-attr]


def _sized(call: OperatorCall, dims: list[int], sizes: list[int]) -> tuple[list[int], list[float]]:
    """Extents and scales for the sizes that the node asks for."""
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    if len(sizes) != len(dims) or min(sizes, default=1) < 0 or 0 in dims:
        raise call.invalid(f"sizes {sizes} do not fit dims {dims}")
    if policy == "stretch":
        return sizes, [size / n for size, n in zip(sizes, dims, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        raise call.invalid(f"keep_aspect_ratio_policy {policy!r} is not defined")
    choose = min if policy == "not_larger" else max
    scale = choose(size / n for size, n in zip(sizes, dims, strict=True))
    return [floor(scale * n + 0.5) for n in dims], [scale] * len(dims)


def _along(call: OperatorCall, src: Array, axis: _Axis, way: str, mode: str, is_old: bool) -> Array:
    """The source resized along one axis, part by part, so that shares and indices take little memory."""
    dims = (*src.shape[: axis.index], axis.result, *src.shape[axis.index + 1 :])
    result = np.empty(dims, src.dtype)
    for start in range(0, axis.result, _PART):
        stop = min(start + _PART, axis.result)
        at = _coordinates(axis, way, np.arange(start, stop, dtype=np.float64))
        part = (*(slice(None),) * axis.index, slice(start, stop))
        result[part] = _resized(call, src, axis, at, mode, is_old)
    return result


def _coordinates(axis: _Axis, way: str, at: Reals) -> Reals:
    """Where elements `at` of the result lie in the source."""
    length = axis.scale * axis.extent
    if way == "align_corners":
        return np.zeros_like(at) if length == 1 else at * (axis.extent - 1) / (length - 1)
    if way == "asymmetric":
        return at / axis.scale
    if way == "tf_crop_and_resize":
        begin, end = axis.roi
        last = axis.extent - 1
        if axis.result == 1:
            return np.full_like(at, 0.5 * (begin + end) * last)
        return begin * last + at * (end - begin) * last / (axis.result - 1)
    if way == "pytorch_half_pixel" and axis.result == 1:
        return np.zeros_like(at)
    middle = (at + 0.5) / axis.scale
    if way == "tf_half_pixel_for_nn":
        return middle
    if way == "half_pixel_symmetric":
        return axis.extent / 2 * (1 - axis.result / length) + middle - 0.5
    return middle - 0.5


def _resized(call: OperatorCall, src: Array, axis: _Axis, at: Reals, mode: str, is_old: bool) -> Array:
    """The source resized along one axis."""
    if mode == "nearest":
        rounding = call.attribute("nearest_mode", "floor" if is_old else "round_prefer_floor")
        return np.take(src, np.clip(_nearest(call, at, rounding), 0, axis.extent - 1).astype(np.intp), axis.index)
    radius, kernel = (1.0, _triangle) if mode in _LINEAR else (2.0, keys(float(call.attribute("cubic_coeff_a", -0.75))))
    stretch = max(1.0, 1 / axis.scale) if call.attribute("antialias", 0) else 1.0
    first = np.floor(at) - ceil(radius * stretch) + 1
    count = 2 * ceil(radius * stretch)
    leaves_out = bool(call.attribute("exclude_outside", 0))
    shares = []
    for tap in range(count):
        share = kernel(np.abs(first + tap - at) / stretch)
        inside = (first + tap >= 0) & (first + tap < axis.extent)
        shares.append(np.where(inside, share, 0) if leaves_out else share)
    total = np.sum(shares, axis=0) if leaves_out or stretch > 1 else np.ones(at.size)
    dims = (*src.shape[: axis.index], at.size, *src.shape[axis.index + 1 :])
    result, spread = np.zeros(dims, src.dtype), (-1, *(1,) * (src.ndim - axis.index - 1))
    for tap, share in enumerate(shares):
        if share.any():
            index = np.clip(first + tap, 0, axis.extent - 1).astype(np.intp)
            result += np.take(src, index, axis.index) * (share / total).astype(src.dtype).reshape(spread)
    return result


def _nearest(call: OperatorCall, at: Reals, rounding: str) -> Reals:
    if rounding not in ROUNDINGS:
        raise call.invalid(f"nearest_mode {rounding!r} is none of {', '.join(ROUNDINGS)}")
    return ROUNDINGS[rounding](at)


def _triangle(distance: Reals) -> Reals:
    return np.maximum(1 - distance, 0)


def keys(a: float) -> Callable[[Array], Reals]:
    """The share of an element in a cubic interpolation by its distance: Keys's polynomials of factor `a`.

    >>> keys(-0.5)(np.array([0.0, 0.5, 1.0, 1.5, 2.0])).tolist()
    [1.0, 0.5625, 0.0, -0.0625, 0.0]
    """

    def kernel(t: Array) -> Reals:
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.where(t <= 1, near, np.where(t < 2, far, 0))

    return kernel


RESIZING: Mapping[str, Callable[[OperatorCall], Array]] = {"Resize": resize, "Upsample": resize}
"""The function of each operator."""
