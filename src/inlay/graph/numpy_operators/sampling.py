"""Functions of operators that sample images: Resize, Upsample, AffineGrid, GridSample, RoiAlign, MaxRoiPool.

A resize processes one axis after another: each element of the result is a weighted sum of a few source elements (taps).
An axis in mode `nearest` is indexed. Other modes sum over taps, so no window is copied.

Source: ONNX, "Operators", Resize; Keys, "Cubic convolution interpolation", 1981.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil, floor

import numpy as np
import numpy.typing as npt

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype, is_float
from inlay.graph.op_graph import Array
from inlay.layout import Dims

LINEAR_MODES = ("linear", "bilinear", "trilinear")
"""Values of the attribute `mode` of Resize and Upsample that mean linear interpolation."""
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
"""Values of the attribute `coordinate_transformation_mode`, of all versions of Resize."""
ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda at: np.ceil(at - at.dtype.type(0.5)),
    "round_prefer_ceil": lambda at: np.floor(at + at.dtype.type(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Values of the attribute `nearest_mode`, each with the function from coordinates to the nearest elements."""
_PART = 1 << 18  # elements of an axis that are resized at once
_CUBIC = -0.75  # the factor of Keys's polynomials where the node gives none
Reals = npt.NDArray[np.float64]


# Resize and Upsample


@dataclass(frozen=True, slots=True)
class _SampledAxis:
    """An axis that is resized."""

    index: int
    """Number of the axis."""
    extent: int
    """Elements of the source."""
    result: int
    """Elements of the result."""
    scale: float
    """Factor by which the axis becomes longer, as the node states it."""
    roi: tuple[float, float]
    """Beginning and end of the region that is resized, as fractions of the axis."""


def resize(call: OperatorCall) -> Array:
    """Compute Resize or Upsample: the image at another resolution."""
    src = call.input(0)
    mode = call.attribute("mode", "nearest")
    is_old = call.node.operator == "Upsample" or call.opset < 11
    transformation = call.attribute("coordinate_transformation_mode", "asymmetric" if is_old else "half_pixel")
    if mode not in ("nearest", "cubic", *LINEAR_MODES) or transformation not in COORDINATES:
        raise call.invalid(f"mode {mode!r} with coordinates {transformation!r} is not defined")
    result = src if mode == "nearest" else src.astype(np.result_type(src.dtype, np.float32))
    outside = np.zeros((1,) * src.ndim, bool)
    for axis in _axes(call, src.shape, is_old):
        if axis.extent == axis.result and axis.scale == 1 and transformation != "tf_crop_and_resize":
            continue
        result = _resize_axis(call, result, axis, transformation, mode, is_old)
        if transformation == "tf_crop_and_resize":
            at = _coordinates(axis, transformation, np.arange(axis.result, dtype=np.float64))
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


def _axes(call: OperatorCall, dims: Dims, is_old: bool) -> list[_SampledAxis]:
    """Return the axes that the node resizes."""
    named = call.attribute("axes")
    axes = list(range(len(dims))) if named is None else [call.axis(int(axis), len(dims)) for axis in named]
    scales, sizes = _scales(call, is_old), call.optional(3)
    roi = call.optional(1) if not is_old else None
    regions = [0.0] * len(axes) + [1.0] * len(axes) if roi is None or not roi.size else roi.astype(np.float64).tolist()
    if len(regions) != 2 * len(axes):
        raise call.invalid(f"a region of {len(regions)} numbers does not fit {len(axes)} axes")
    if sizes is not None and sizes.size:
        results, scales = _scales_for_sizes(call, [dims[axis] for axis in axes], [int(n) for n in sizes.reshape(-1)])
    elif scales is not None and len(scales) == len(axes) and all(0 < scale < np.inf for scale in scales):
        results = [floor(dims[axis] * (b - a) * s) for axis, s, a, b in _with_roi(call, axes, scales, regions)]
    else:
        raise call.invalid("it has neither a positive scale nor a size for each axis")
    return [
        _SampledAxis(axis, dims[axis], result, scale, (regions[k], regions[k + len(axes)]))
        for k, (axis, result, scale) in enumerate(zip(axes, results, scales, strict=True))
    ]


def _with_roi(
    call: OperatorCall, axes: list[int], scales: list[float], regions: list[float]
) -> list[tuple[int, float, float, float]]:
    """Return each axis with its scale and the region that is resized, which is the whole axis unless the node crops."""
    is_cropped = call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    begins, ends = (
        (regions[: len(axes)], regions[len(axes) :]) if is_cropped else ([0.0] * len(axes), [1.0] * len(axes))
    )
    return list(zip(axes, scales, begins, ends, strict=True))


def _scales(call: OperatorCall, is_old: bool) -> list[float] | None:
    """Return the scales that the node states; None if it states none."""
    attribute = call.attribute("scales")
    array = call.optional(1 if is_old else 2)
    if attribute is not None:
        return [float(scale) for scale in attribute]
    return None if array is None or not array.size else [float(scale) for scale in array.reshape(-1)]


def _scales_for_sizes(call: OperatorCall, dims: list[int], sizes: list[int]) -> tuple[list[int], list[float]]:
    """Return extents and scales for the sizes that the node states."""
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


def _resize_axis(
    call: OperatorCall, src: Array, axis: _SampledAxis, transformation: str, mode: str, is_old: bool
) -> Array:
    """Return the source resized along one axis, part by part, so that weights and indices take little memory."""
    dims = (*src.shape[: axis.index], axis.result, *src.shape[axis.index + 1 :])
    result = np.empty(dims, src.dtype)
    for start in range(0, axis.result, _PART):
        stop = min(start + _PART, axis.result)
        at = _coordinates(axis, transformation, np.arange(start, stop, dtype=np.float64))
        part = (*(slice(None),) * axis.index, slice(start, stop))
        result[part] = _interpolate_axis(call, src, axis, at, mode, is_old)
    return result


def _coordinates(axis: _SampledAxis, transformation: str, at: Reals) -> Reals:
    """Return the coordinates in the source of elements `at` of the result."""
    length = axis.scale * axis.extent
    if transformation == "align_corners":
        return np.zeros_like(at) if length == 1 else at * (axis.extent - 1) / (length - 1)
    if transformation == "asymmetric":
        return at / axis.scale
    if transformation == "tf_crop_and_resize":
        begin, end = axis.roi
        last = axis.extent - 1
        if axis.result == 1:
            return np.full_like(at, 0.5 * (begin + end) * last)
        return begin * last + at * (end - begin) * last / (axis.result - 1)
    if transformation == "pytorch_half_pixel" and axis.result == 1:
        return np.zeros_like(at)
    middle = (at + 0.5) / axis.scale
    if transformation == "tf_half_pixel_for_nn":
        return middle
    if transformation == "half_pixel_symmetric":
        return axis.extent / 2 * (1 - axis.result / length) + middle - 0.5
    return middle - 0.5


def _interpolate_axis(call: OperatorCall, src: Array, axis: _SampledAxis, at: Reals, mode: str, is_old: bool) -> Array:
    """Return elements along one axis at coordinates `at`, by the node's mode."""
    if mode == "nearest":
        rounding = call.attribute("nearest_mode", "floor" if is_old else "round_prefer_floor")
        return np.take(src, np.clip(_nearest(call, at, rounding), 0, axis.extent - 1).astype(np.intp), axis.index)
    radius, kernel = (
        (1.0, _triangle)
        if mode in LINEAR_MODES
        else (2.0, cubic_kernel(float(call.attribute("cubic_coeff_a", _CUBIC))))
    )
    stretch = max(1.0, 1 / axis.scale) if call.attribute("antialias", 0) else 1.0
    first = np.floor(at) - ceil(radius * stretch) + 1
    count = 2 * ceil(radius * stretch)
    leaves_out = bool(call.attribute("exclude_outside", 0))
    weights = []
    for tap in range(count):
        weight = kernel(np.abs(first + tap - at) / stretch)
        inside = (first + tap >= 0) & (first + tap < axis.extent)
        weights.append(np.where(inside, weight, 0) if leaves_out else weight)
    total = np.sum(weights, axis=0) if leaves_out or stretch > 1 else np.ones(at.size)
    dims = (*src.shape[: axis.index], at.size, *src.shape[axis.index + 1 :])
    result, spread = np.zeros(dims, src.dtype), (-1, *(1,) * (src.ndim - axis.index - 1))
    for tap, weight in enumerate(weights):
        if weight.any():
            index = np.clip(first + tap, 0, axis.extent - 1).astype(np.intp)
            result += np.take(src, index, axis.index) * (weight / total).astype(src.dtype).reshape(spread)
    return result


def _nearest(call: OperatorCall, at: Reals, rounding: str) -> Reals:
    """Return the nearest element of each coordinate."""
    if rounding not in ROUNDINGS:
        raise call.invalid(f"nearest_mode {rounding!r} is none of {', '.join(ROUNDINGS)}")
    return ROUNDINGS[rounding](at)


def _triangle(distance: Reals) -> Reals:
    """Return the weight of an element in a linear interpolation, by its distance."""
    return np.maximum(1 - distance, 0)


def cubic_kernel(a: float) -> Callable[[Array], Reals]:
    """Return the function from distance to weight of a cubic interpolation: Keys's polynomials with factor `a`.

    >>> cubic_kernel(-0.5)(np.array([0.0, 0.5, 1.0, 1.5, 2.0])).tolist()
    [1.0, 0.5625, 0.0, -0.0625, 0.0]
    """

    def kernel(t: Array) -> Reals:
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.where(t <= 1, near, np.where(t < 2, far, 0))

    return kernel


# GridSample

_MODES = {"bilinear": "linear", "linear": "linear", "bicubic": "cubic", "cubic": "cubic", "nearest": "nearest"}


def grid_sample(call: OperatorCall) -> Array:
    """Compute GridSample: the image at the points of a grid; coordinates range from -1 to 1, the last axis first."""
    src, grid = call.input(0), call.input(1)
    count = src.ndim - 2
    mode = _MODES.get(call.attribute("mode", "linear"))
    padding = call.attribute("padding_mode", "zeros")
    if mode is None or padding not in ("zeros", "border", "reflection"):
        raise call.invalid(f"mode {call.attribute('mode')!r} with padding {padding!r} is not defined")
    if count < 1 or grid.ndim != src.ndim or grid.shape[-1] != count or grid.shape[0] != src.shape[0]:
        raise call.invalid(f"a grid of dims {grid.shape} does not fit an image of dims {src.shape}")
    if 0 in src.shape[2:]:
        raise call.invalid("the image has no elements")
    is_aligned = bool(call.attribute("align_corners", 0))
    working = np.result_type(src.dtype, np.float32)
    images, points = np.moveaxis(src, 1, -1).astype(working), grid[..., ::-1].astype(working)
    axes = []
    for k, n in enumerate(src.shape[2:]):
        at = points[..., k]
        center = (at + 1) / 2 * (n - 1) if is_aligned else ((at + 1) * n - 1) / 2
        axes.append([(_pixels(base, n, padding, is_aligned), weight) for base, weight in _taps(center, mode)])
    batch = np.arange(src.shape[0]).reshape(-1, *(1,) * count)
    result = np.zeros((*grid.shape[:-1], src.shape[1]), working)
    for taps in product(*axes):
        weight = np.ones(grid.shape[:-1], working)
        for (_, is_inside), tap_weight in taps:
            weight = weight * np.where(is_inside, tap_weight, 0)
        pixels = images[(batch, *(index for (index, _), _ in taps))]
        result += np.where(weight[..., None] == 0, 0, pixels) * weight[..., None]
    return np.moveaxis(result, -1, 1).astype(src.dtype)


def _taps(center: Array, mode: str) -> list[tuple[Array, Array]]:
    """Return the pixels around each point along an axis, and the weight of each."""
    if mode == "nearest":
        return [(np.rint(center), np.ones_like(center))]
    below = np.floor(center)
    near = center - below
    if mode == "linear":
        return [(below, 1 - near), (below + 1, near)]
    kernel, distances = cubic_kernel(_CUBIC), {-1: near + 1, 0: near, 1: 1 - near, 2: 2 - near}
    return [(below + step, kernel(distance)) for step, distance in distances.items()]


def _pixels(at: Array, n: int, padding: str, is_aligned: bool) -> tuple[Array, Array]:
    """Return indices of pixels, padded as the node states, and whether each has a value; `at` may be outside of `n`."""
    is_known = np.isfinite(at) & (np.abs(at) < 2.0**31)
    at = np.where(is_known, at, -2.0)
    if padding == "zeros":
        is_inside = is_known & (at >= 0) & (at <= n - 1)
        return np.where(is_inside, at, 0).astype(np.intp), is_inside
    if padding == "reflection":
        low, high = (0.0, n - 1.0) if is_aligned else (-0.5, n - 0.5)
        at = _reflect(at, low, high)
    return np.clip(at, 0, n - 1).astype(np.intp), np.ones(at.shape, bool)


def _reflect(at: Array, low: float, high: float) -> Array:
    """Return coordinates reflected at `low` and `high` until they are between them."""
    length = high - low
    if length == 0:
        return np.zeros_like(at)
    phase = np.mod(at - low, 2 * length)
    return np.where(phase > length, 2 * length - phase, phase) + low


def affine_grid(call: OperatorCall) -> Array:
    """Compute AffineGrid: the coordinates of each element of an image, -1 to 1, transformed by a matrix.

    Coordinates are in the order of GridSample, the last axis of the image first.
    """
    theta, sizes = call.input(0), [int(n) for n in call.input(1).reshape(-1)]
    image = sizes[2:]
    count = len(image)
    if count not in (2, 3) or theta.shape != (sizes[0], count, count + 1) or min(sizes) < 0:
        raise call.invalid(f"matrices of dims {theta.shape} do not fit an image of dims {tuple(sizes)}")
    working = accumulation_dtype(theta.dtype)
    is_aligned = bool(call.attribute("align_corners", 0))
    axes = [_grid_line(n, is_aligned).astype(working) for n in image]
    places = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(image, working)], -1)
    grid = places.reshape(-1, count + 1) @ theta.astype(working).swapaxes(1, 2)
    return np.asarray(grid.reshape(sizes[0], *image, count).astype(theta.dtype))


def _grid_line(n: int, is_aligned: bool) -> Reals:
    """Return the coordinates of `n` elements; the corners are at -1 and 1 if aligned. One element alone is at 0."""
    if is_aligned:
        return np.linspace(-1, 1, n) if n != 1 else np.zeros(1)
    return np.asarray((2 * np.arange(n) + 1) / n - 1)


# Regions


def roi_align(call: OperatorCall) -> Array:
    """Compute RoiAlign: the mean of interpolated samples in each bin of each region."""
    src, regions, images = (call.input(index) for index in range(3))
    if call.attribute("mode", "avg") != "avg":
        raise call.unsupported("mode 'max', whose samples runtimes weigh differently,")
    if src.ndim != 4 or regions.ndim != 2 or regions.shape[1] != 4 or images.shape != regions.shape[:1]:
        raise call.invalid(f"regions {regions.shape} of images {images.shape} do not fit dims {src.shape}")
    batch = call.require_indices(2, src.shape[0], 0)
    rows, columns = (int(call.attribute(name, 1)) for name in ("output_height", "output_width"))
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    is_half = call.attribute("coordinate_transformation_mode", default) == "half_pixel"
    working = np.result_type(src.dtype, np.float32)
    scaled = regions.astype(working) * working.type(call.attribute("spatial_scale", 1.0))
    scaled = scaled - working.type(0.5 if is_half else 0)
    result = np.zeros((len(regions), src.shape[1], rows, columns), working)
    for k, (left, top, right, bottom) in enumerate(scaled):
        image = src[batch[k]].astype(working)
        row_positions = _sample_positions(call, top, bottom, rows, is_half)
        column_positions = _sample_positions(call, left, right, columns, is_half)
        samples = _interpolate_image(image, row_positions, column_positions)
        result[k] = samples.reshape(src.shape[1], rows, row_positions.size // rows, columns, -1).mean((2, 4))
    return result.astype(src.dtype)


def _sample_positions(call: OperatorCall, start: float, stop: float, bins: int, is_half: bool) -> Array:
    """Return the coordinates of samples along an axis; those of a bin are adjacent."""
    length = stop - start if is_half else max(stop - start, type(start)(1))
    ratio = int(call.attribute("sampling_ratio", 0))
    count = ratio if ratio > 0 else max(int(np.ceil(length / bins)), 1)
    if bins * count > _MOST_SAMPLES:
        raise call.invalid(f"a region of {float(length)} elements asks for {bins * count} samples along an axis")
    steps = np.arange(bins * count, dtype=np.result_type(start))
    return np.asarray(start + (steps // count) * (length / bins) + (steps % count + 0.5) * (length / bins) / count)


_MOST_SAMPLES = 1 << 20


def max_roi_pool(call: OperatorCall) -> Array:
    """Compute MaxRoiPool: the greatest element of each bin of each region; 0 for a bin outside of the image."""
    src, regions = call.input(0), call.input(1)
    if src.ndim != 4 or regions.ndim != 2 or regions.shape[1] != 5:
        raise call.invalid(f"regions {regions.shape} do not fit dims {src.shape}")
    rows, columns = (int(n) for n in call.attribute("pooled_shape", ()))
    images = regions[:, 0].astype(np.int64)
    if not np.array_equal(images, regions[:, 0]) or ((images < 0) | (images >= src.shape[0])).any():
        raise call.invalid(f"a region is of another image than 0 to {src.shape[0] - 1}")
    corners = regions[:, 1:].astype(np.float32) * np.float32(call.attribute("spatial_scale", 1.0))
    if not (np.abs(corners) < _MOST_SAMPLES).all():
        raise call.invalid(f"a corner of a region is {_MOST_SAMPLES} or more elements away, or NaN")
    rounded = (np.sign(corners) * np.floor(np.abs(corners) + np.float32(0.5))).astype(np.int64)
    result = np.zeros((len(regions), src.shape[1], rows, columns), src.dtype)
    for k, (left, top, right, bottom) in enumerate(rounded.tolist()):
        down, across = _bins(top, bottom, rows, src.shape[2]), _bins(left, right, columns, src.shape[3])
        for (i, row), (j, column) in product(enumerate(down), enumerate(across)):
            part = src[images[k], :, row, column]
            if part.size:
                result[k, :, i, j] = part.max((1, 2))
    return result


def _bins(start: int, last: int, count: int, extent: int) -> list[slice]:
    """Return the elements of an axis that each bin of a region has, both ends of the region included."""
    size = np.float32(max(last - start + 1, 1)) / np.float32(count)
    ends = [(floor(np.float32(i) * size) + start, ceil(np.float32(i + 1) * size) + start) for i in range(count)]
    return [slice(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in ends]


def _interpolate_image(image: Array, row_positions: Array, column_positions: Array) -> Array:
    """Return an image (C, H, W) interpolated at each row and column; 0 more than one element outside."""
    rows, columns = _linear_taps(row_positions, image.shape[1]), _linear_taps(column_positions, image.shape[2])
    along = sum(image[:, index] * weight[:, None] for index, weight in rows)
    return np.asarray(sum(np.asarray(along)[:, :, index] * weight for index, weight in columns))


def _linear_taps(at: Array, n: int) -> list[tuple[Array, Array]]:
    """Return the two elements next to each coordinate, and their weights."""
    is_inside = (at >= -1) & (at <= n)
    at = np.clip(np.where(is_inside, at, 0), 0, n - 1)
    below = np.minimum(np.floor(at), max(n - 2, 0))
    near = at - below
    index = below.astype(np.intp)
    return [(index, np.where(is_inside, 1 - near, 0)), (np.minimum(index + 1, n - 1), np.where(is_inside, near, 0))]


SAMPLING: Mapping[str, Callable[[OperatorCall], Array]] = {
    "AffineGrid": affine_grid,
    "GridSample": grid_sample,
    "MaxRoiPool": max_roi_pool,
    "Resize": resize,
    "RoiAlign": roi_align,
    "Upsample": resize,
}
"""Function of each interpolating operator."""
