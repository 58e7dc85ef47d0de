"""Batch, layer and group normalization, and local response normalization.

The first three normalize tensors to mean 0 and variance 1:

    dst = scale * (src - mean) / sqrt(variance + epsilon) + shift

They differ in the axes of the mean: all except channels (batch), the last one (layer), or space and the channels of a
group (group). The variance is that of the population (biased). With `use_global_stats`, mean and variance are inputs,
and constants for the gradient. Batch normalization may end in a ReLU, `dst = max(0, ...)`, before which it may add a
second source; the workspace is 1 where the result was positive, else 0. With `rms_norm` the mean is 0.

Source: oneAPI specification, "Batch normalization", "Layer normalization" and "Group normalization"; oneDNN for the
fused forms.

Local response normalization divides each element by a power of the squares around it:

    dst = src * base^-beta,    base = k + alpha / count * sum of src^2 over the window

The window is centered at the element: `local_size` channels, or `local_size` elements along each spatial axis. `count`
is the number of elements of a full window; at the border, elements outside the tensor count as 0. The window extends
(local_size - 1) / 2 elements to both sides, rounded down, so an even size acts like the next smaller odd size. The
workspace contains `base`.

Source: oneAPI specification, "Local response normalization".
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.engines.reference.values import Array, Results, Shape

FUSED = frozenset({"fuse_norm_relu", "fuse_norm_add_relu"})
"""Flags with which batch normalization ends in a ReLU."""

RMS = "rms_norm"
"""Flag for a mean of 0: elements are divided by the root of their mean square, which takes the role of the variance."""


@dataclass(frozen=True, slots=True)
class _StatisticsAxes:
    """The axes over which mean and variance are computed, in a view of the tensor that splits channels into groups."""

    view: Shape
    """Dims of the view."""
    axes: Shape
    """Axes of the view over which mean and variance are computed."""
    statistics: Shape
    """Dims of mean and variance."""
    channels: int
    """Axis of the tensor along which scale and shift differ."""

    def mean(self, array: Array) -> Array:
        """Return the mean of a view over `axes`, which become axes of length 1; 0 for no elements."""
        count = max(1, prod([array.shape[i] for i in self.axes]))
        mean: Array = array.sum(axis=self.axes, keepdims=True) / count
        return mean

    def expand_statistics(self, statistics: Array) -> Array:
        """Reshape mean or variance so that it broadcasts to the view."""
        return statistics.reshape([1 if i in self.axes else n for i, n in enumerate(self.view)])

    def expand_channels(self, values: Array, ndim: int) -> Array:
        """Reshape scale or shift so that it broadcasts to a tensor of `ndim` axes."""
        return values.reshape([-1 if i == self.channels else 1 for i in range(ndim)])

    def sum_per_channel(self, array: Array) -> Array:
        """Return the sum over all axes except that of scale and shift."""
        total: Array = array.sum(axis=tuple(i for i in range(array.ndim) if i != self.channels))
        return total


def _batch_axes(shape: Shape) -> _StatisticsAxes:
    """Return the axes of batch normalization: all except channels."""
    return _StatisticsAxes(shape, tuple(i for i in range(len(shape)) if i != 1), shape[1:2], 1)


def _layer_axes(shape: Shape) -> _StatisticsAxes:
    """Return the axes of layer normalization: the last one."""
    last = len(shape) - 1
    return _StatisticsAxes(shape, (last,), shape[:-1], last)


def _group_axes(shape: Shape, groups: int) -> _StatisticsAxes:
    """Return the axes of group normalization: space and the channels of a group."""
    view = (shape[0], groups, shape[1] // groups, *shape[2:])
    return _StatisticsAxes(view, tuple(range(2, len(view))), view[:2], 1)


def batch_forward(
    *,
    src: Array,
    mean: Array | None = None,
    variance: Array | None = None,
    scale: Array | None = None,
    shift: Array | None = None,
    src_1: Array | None = None,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Normalize over batch and space: each channel has a mean."""
    results = _forward(_batch_axes(src.shape), src, mean, variance, scale, shift, epsilon, flags)
    if flags & FUSED:
        total = results["dst"] if src_1 is None else results["dst"] + src_1
        results |= {"dst": np.maximum(total, 0), "workspace": (total > 0).astype(np.float64)}
    return results


def batch_backward(
    *,
    src: Array,
    mean: Array | None = None,
    variance: Array,
    scale: Array | None = None,
    diff_dst: Array,
    workspace: Array | None = None,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Compute the gradients of batch normalization; that of the second source is diff_dst where the ReLU was active."""
    diff = diff_dst
    if flags & FUSED:
        assert workspace is not None
        diff = np.where(workspace != 0, diff_dst, 0.0)
    results = _backward(_batch_axes(src.shape), src, mean, variance, scale, diff, epsilon, flags)
    return results | ({"diff_src_1": diff} if "fuse_norm_add_relu" in flags else {})


def layer_forward(
    *,
    src: Array,
    mean: Array | None = None,
    variance: Array | None = None,
    scale: Array | None = None,
    shift: Array | None = None,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Normalize over the last axis: each row has a mean."""
    return _forward(_layer_axes(src.shape), src, mean, variance, scale, shift, epsilon, flags)


def layer_backward(
    *,
    src: Array,
    mean: Array | None = None,
    variance: Array,
    scale: Array | None = None,
    diff_dst: Array,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Compute the gradients of layer normalization."""
    return _backward(_layer_axes(src.shape), src, mean, variance, scale, diff_dst, epsilon, flags)


def group_forward(
    *,
    src: Array,
    mean: Array | None = None,
    variance: Array | None = None,
    scale: Array | None = None,
    shift: Array | None = None,
    groups: int,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Normalize each group of channels of each image; scale and shift differ by channel."""
    return _forward(_group_axes(src.shape, groups), src, mean, variance, scale, shift, epsilon, flags)


def group_backward(
    *,
    src: Array,
    mean: Array | None = None,
    variance: Array,
    scale: Array | None = None,
    diff_dst: Array,
    groups: int,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Compute the gradients of group normalization."""
    return _backward(_group_axes(src.shape, groups), src, mean, variance, scale, diff_dst, epsilon, flags)


def _center(axes: _StatisticsAxes, mean: Array | None, flags: frozenset[str]) -> Array:
    """Return the mean in the shape of statistics of the view; 0 with `rms_norm`."""
    if RMS in flags:
        return np.zeros(())
    assert mean is not None
    return axes.expand_statistics(mean)


def _forward(
    axes: _StatisticsAxes,
    src: Array,
    mean: Array | None,
    variance: Array | None,
    scale: Array | None,
    shift: Array | None,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Normalize; mean and variance are returned if they are computed."""
    x = src.reshape(axes.view)
    if "use_global_stats" in flags:
        assert variance is not None
        center, spread = _center(axes, mean, flags), axes.expand_statistics(variance)
    else:
        center = np.zeros(()) if RMS in flags else axes.mean(x)
        spread = axes.mean((x - center) ** 2)
    dst = ((x - center) / np.sqrt(spread + epsilon)).reshape(src.shape)
    dst = dst if scale is None else dst * axes.expand_channels(scale, src.ndim)
    dst = dst if shift is None else dst + axes.expand_channels(shift, src.ndim)
    computed = {"variance": spread.reshape(axes.statistics)}
    computed |= {} if RMS in flags else {"mean": center.reshape(axes.statistics)}
    return {"dst": dst} | ({} if "use_global_stats" in flags else computed)


def _backward(
    axes: _StatisticsAxes,
    src: Array,
    mean: Array | None,
    variance: Array,
    scale: Array | None,
    diff_dst: Array,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """Compute the gradients; unless mean and variance are constants, they depend on the source too."""
    inverse = 1 / np.sqrt(axes.expand_statistics(variance) + epsilon)
    normal = (src.reshape(axes.view) - _center(axes, mean, flags)) * inverse
    scaled = diff_dst if scale is None else diff_dst * axes.expand_channels(scale, src.ndim)
    diff = scaled.reshape(axes.view)
    if "use_global_stats" not in flags:
        through_mean = 0.0 if RMS in flags else axes.mean(diff)
        diff = diff - through_mean - normal * axes.mean(diff * normal)
    return {
        "diff_src": (diff * inverse).reshape(src.shape),
        "diff_scale": axes.sum_per_channel(diff_dst * normal.reshape(src.shape)),
        "diff_shift": axes.sum_per_channel(diff_dst),
    }


def lrn_forward(*, src: Array, algorithm: str, local_size: int, alpha: float, beta: float, k: float) -> Results:
    """Compute local response normalization; the workspace is `base`."""
    axes = _window_axes(src, algorithm)
    base = k + alpha / local_size ** len(axes) * _window_sum(src**2, axes, local_size)
    return {"dst": src * base**-beta, "workspace": base}


def lrn_backward(
    *,
    src: Array,
    diff_dst: Array,
    workspace: Array | None = None,
    algorithm: str,
    local_size: int,
    alpha: float,
    beta: float,
    k: float,
) -> Results:
    """Compute the gradient of the source; an element contributes to the windows of all its neighbors."""
    axes = _window_axes(src, algorithm)
    share = alpha / local_size ** len(axes)
    base = k + share * _window_sum(src**2, axes, local_size) if workspace is None else workspace
    through_base = _window_sum(diff_dst * src * base ** (-beta - 1), axes, local_size)
    return {"diff_src": diff_dst * base**-beta - 2 * share * beta * src * through_base}


def _window_axes(src: Array, algorithm: str) -> tuple[int, ...]:
    """Return the axes along which the window extends."""
    return (1,) if algorithm == "across_channels" else tuple(range(2, src.ndim))


def _window_sum(array: Array, axes: tuple[int, ...], local_size: int) -> Array:
    """Return the sum over the window around each element."""
    half = (local_size - 1) // 2
    for axis in axes:
        coordinates = np.arange(array.shape[axis])
        is_near = (abs(coordinates[:, None] - coordinates) <= half).astype(np.float64)
        array = np.moveaxis(np.tensordot(is_near, array, (1, axis)), 0, axis)
    return array
