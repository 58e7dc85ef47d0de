"""Elements between pixels: GridSample at given places, RoiAlign over regions."""

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall
from inlay.graph.op import Array

_MODES = {
    "bilinear": "linear",
    "linear": "linear",
    "bicubic": "cubic",
    "cubic": "cubic",
    "nearest": "nearest",
}
_CUBIC = -0.75


def grid_sample(call: OperatorCall) -> Array:
    """The image at the places of a grid, whose coordinates run from -1 to 1, the last axis first."""
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
    images, places = np.moveaxis(src, 1, -1).astype(working), grid[..., ::-1].astype(working)
    axes = []
    for k, n in enumerate(src.shape[2:]):
        at = places[..., k]
        center = (at + 1) / 2 * (n - 1) if is_aligned else ((at + 1) * n - 1) / 2
        axes.append([(_pixels(base, n, padding, is_aligned), share) for base, share in _shares(center, mode)])
    batch = np.arange(src.shape[0]).reshape(-1, *(1,) * count)
    result = np.zeros((*grid.shape[:-1], src.shape[1]), working)
    for taps in product(*axes):
        share = np.ones(grid.shape[:-1], working)
        for (_, is_inside), its in taps:
            share = share * np.where(is_inside, its, 0)
        taken = images[(batch, *(index for (index, _), _ in taps))]
        result += np.where(share[..., None] == 0, 0, taken) * share[..., None]
    return np.moveaxis(result, -1, 1).astype(src.dtype)


def _shares(center: Array, mode: str) -> list[tuple[Array, Array]]:
    """The pixels about each place along an axis, and the share that each has."""
    if mode == "nearest":
        return [(np.rint(center), np.ones_like(center))]
    below = np.floor(center)
    near = center - below
    if mode == "linear":
        return [(below, 1 - near), (below + 1, near)]
    distances = {-1: near + 1, 0: near, 1: 1 - near, 2: 2 - near}
    return [(below + step, _keys(distance)) for step, distance in distances.items()]


def _keys(t: Array, a: float = _CUBIC) -> Array:
    """Keys's cubic convolution at a distance."""
    return np.where(t <= 1, ((a + 2) * t - (a + 3)) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a)


def _pixels(at: Array, n: int, padding: str, is_aligned: bool) -> tuple[Array, Array]:
    """Indices of pixels that may lie outside of `n`, and whether they have a value."""
    is_known = np.isfinite(at) & (np.abs(at) < 2.0**31)
    at = np.where(is_known, at, -2.0)
    if padding == "zeros":
        is_inside = is_known & (at >= 0) & (at <= n - 1)
        return np.where(is_inside, at, 0).astype(np.intp), is_inside
    if padding == "reflection":
        low, high = (0.0, n - 1.0) if is_aligned else (-0.5, n - 0.5)
        at = _reflected(at, low, high)
    return np.clip(at, 0, n - 1).astype(np.intp), np.ones(at.shape, bool)


def _reflected(at: Array, low: float, high: float) -> Array:
    """Places brought between two mirrors."""
    length = high - low
    if length == 0:
        return np.zeros_like(at)
    phase = np.mod(at - low, 2 * length)
    return np.where(phase > length, 2 * length - phase, phase) + low


def roi_align(call: OperatorCall) -> Array:
    """The mean of interpolated samples in each bin of each region."""
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
        high, wide = _samples(call, top, bottom, rows, is_half), _samples(call, left, right, columns, is_half)
        result[k] = _sampled(image, high, wide).reshape(src.shape[1], rows, high.size // rows, columns, -1).mean((2, 4))
    return result.astype(src.dtype)


def _samples(call: OperatorCall, start: float, stop: float, bins: int, is_half: bool) -> Array:
    """Where samples lie along an axis, those of a bin side by side."""
    length = stop - start if is_half else max(stop - start, type(start)(1))
    ratio = int(call.attribute("sampling_ratio", 0))
    count = ratio if ratio > 0 else max(int(np.ceil(length / bins)), 1)
    if bins * count > _MOST_SAMPLES:
        raise call.invalid(f"a region of {float(length)} elements asks for {bins * count} samples along an axis")
    steps = np.arange(bins * count, dtype=np.result_type(start))
    return np.asarray(start + (steps // count) * (length / bins) + (steps % count + 0.5) * (length / bins) / count)


_MOST_SAMPLES = 1 << 20


def _sampled(image: Array, high: Array, wide: Array) -> Array:
    """An image (C, H, W) interpolated at each row and column; 0 more than one element outside."""
    rows, columns = _linear(high, image.shape[1]), _linear(wide, image.shape[2])
    along = sum(image[:, index] * share[:, None] for index, share in rows)
    return np.asarray(sum(np.asarray(along)[:, :, index] * share for index, share in columns))


def _linear(at: Array, n: int) -> list[tuple[Array, Array]]:
    is_inside = (at >= -1) & (at <= n)
    at = np.clip(np.where(is_inside, at, 0), 0, n - 1)
    below = np.minimum(np.floor(at), max(n - 2, 0))
    near = at - below
    index = below.astype(np.intp)
    return [(index, np.where(is_inside, 1 - near, 0)), (np.minimum(index + 1, n - 1), np.where(is_inside, near, 0))]


SAMPLING: Mapping[str, Callable[[OperatorCall], Array]] = {"GridSample": grid_sample, "RoiAlign": roi_align}
"""The function of each operator."""
