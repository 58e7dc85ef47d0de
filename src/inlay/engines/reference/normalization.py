"""Batch, layer and group normalization, and local response normalization.

The first three bring tensors to mean 0 and variance 1:

    dst = scale * (src - mean) / sqrt(variance + epsilon) + shift

They differ in the axes that share a mean: all but channels, the last one, or a group of channels and space. The
variance is the biased one. With `use_global_stats` mean and variance are given and constant, also to the gradient.
Batch normalization may end in a ReLU, `dst = max(0, ...)`, before which it may add a second source; the workspace says
where the result was positive. With `rms_norm` the mean is taken to be 0.

Source: oneAPI specification, "Batch normalization", "Layer normalization" and "Group normalization"; oneDNN for the
fused forms.

Local response normalization divides each element by a power of the squares around it:

    dst = src * base^-beta,    base = k + alpha / count * sum of src^2 over the window

The window is `local_size` channels around the element, or `local_size` elements along each spatial axis; `count` is the
number of elements of a whole window, also at the border, where squares outside are 0. The half of an even size is
rounded down, so it spans one element less. The workspace holds `base`.

Source: oneAPI specification, "Local response normalization".
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from inlay.engines.reference.values import Array, Results, Shape

FUSED = frozenset({"fuse_norm_relu", "fuse_norm_add_relu"})
"""The flags with which batch normalization ends in a ReLU."""

RMS = "rms_norm"
"""The flag without a mean: the root of the mean square divides, and variance stands for the mean square."""


@dataclass(frozen=True, slots=True)
class _StatisticsAxes:
    """Which axes share a mean, in a view of the tensor where these are axes of their own."""

    view: Shape
    """The dims of the view."""
    axes: Shape
    """The axes of the view that share a mean and a variance."""
    statistics: Shape
    """The dims of mean and variance."""
    channels: int
    """The axis of the tensor along which scale and shift differ."""

    def mean(self, array: Array) -> Array:
        """The mean over these axes, which stay as axes of length 1; 0 of nothing."""
        count = max(1, prod([array.shape[i] for i in self.axes]))
        mean: Array = array.sum(axis=self.axes, keepdims=True) / count
        return mean

    def kept(self, statistics: Array) -> Array:
        """Mean or variance with axes of length 1."""
        return statistics.reshape([1 if i in self.axes else n for i, n in enumerate(self.view)])

    def along(self, values: Array, ndim: int) -> Array:
        """Scale or shift with axes of length 1."""
        return values.reshape([-1 if i == self.channels else 1 for i in range(ndim)])

    def over(self, array: Array) -> Array:
        """The sum over all axes but that of scale and shift."""
        total: Array = array.sum(axis=tuple(i for i in range(array.ndim) if i != self.channels))
        return total


def _batch(shape: Shape) -> _StatisticsAxes:
    return _StatisticsAxes(shape, tuple(i for i in range(len(shape)) if i != 1), shape[1:2], 1)


def _layer(shape: Shape) -> _StatisticsAxes:
    last = len(shape) - 1
    return _StatisticsAxes(shape, (last,), shape[:-1], last)


def _group(shape: Shape, groups: int) -> _StatisticsAxes:
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
    """Batch normalization: channels have a mean each."""
    results = _forward(_batch(src.shape), src, mean, variance, scale, shift, epsilon, flags)
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
    """The gradients of batch normalization; that of a second source is what the ReLU let through."""
    diff = diff_dst
    if flags & FUSED:
        assert workspace is not None
        diff = np.where(workspace != 0, diff_dst, 0.0)
    results = _backward(_batch(src.shape), src, mean, variance, scale, diff, epsilon, flags)
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
    """Layer normalization: each row along the last axis has its mean."""
    return _forward(_layer(src.shape), src, mean, variance, scale, shift, epsilon, flags)


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
    """The gradients of layer normalization."""
    return _backward(_layer(src.shape), src, mean, variance, scale, diff_dst, epsilon, flags)


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
    """Group normalization: each group of channels of an image has its mean; scale and shift are by channel."""
    return _forward(_group(src.shape, groups), src, mean, variance, scale, shift, epsilon, flags)


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
    """The gradients of group normalization."""
    return _backward(_group(src.shape, groups), src, mean, variance, scale, diff_dst, epsilon, flags)


def _center(kind: _StatisticsAxes, mean: Array | None, flags: frozenset[str]) -> Array:
    """What is subtracted: the mean that is given, or nothing."""
    if RMS in flags:
        return np.zeros(())
    assert mean is not None
    return kind.kept(mean)


def _forward(
    kind: _StatisticsAxes,
    src: Array,
    mean: Array | None,
    variance: Array | None,
    scale: Array | None,
    shift: Array | None,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    x = src.reshape(kind.view)
    if "use_global_stats" in flags:
        assert variance is not None
        center, spread = _center(kind, mean, flags), kind.kept(variance)
    else:
        center = np.zeros(()) if RMS in flags else kind.mean(x)
        spread = kind.mean((x - center) ** 2)
    dst = ((x - center) / np.sqrt(spread + epsilon)).reshape(src.shape)
    dst = dst if scale is None else dst * kind.along(scale, src.ndim)
    dst = dst if shift is None else dst + kind.along(shift, src.ndim)
    computed = {"variance": spread.reshape(kind.statistics)}
    computed |= {} if RMS in flags else {"mean": center.reshape(kind.statistics)}
    return {"dst": dst} | ({} if "use_global_stats" in flags else computed)


def _backward(
    kind: _StatisticsAxes,
    src: Array,
    mean: Array | None,
    variance: Array,
    scale: Array | None,
    diff_dst: Array,
    epsilon: float,
    flags: frozenset[str],
) -> Results:
    """What varies of the source also moves mean and variance, unless these are constant."""
    inverse = 1 / np.sqrt(kind.kept(variance) + epsilon)
    normal = (src.reshape(kind.view) - _center(kind, mean, flags)) * inverse
    scaled = diff_dst if scale is None else diff_dst * kind.along(scale, src.ndim)
    diff = scaled.reshape(kind.view)
    if "use_global_stats" not in flags:
        through_mean = 0.0 if RMS in flags else kind.mean(diff)
        diff = diff - through_mean - normal * kind.mean(diff * normal)
    return {
        "diff_src": (diff * inverse).reshape(src.shape),
        "diff_scale": kind.over(diff_dst * normal.reshape(src.shape)),
        "diff_shift": kind.over(diff_dst),
    }


def forward(*, src: Array, algorithm: str, local_size: int, alpha: float, beta: float, k: float) -> Results:
    """The formula above."""
    axes = _axes(src, algorithm)
    base = k + alpha / local_size ** len(axes) * _around(src**2, axes, local_size)
    return {"dst": src * base**-beta, "workspace": base}


def backward(
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
    """The gradient of the source: an element is in its own window and in those around it."""
    axes = _axes(src, algorithm)
    share = alpha / local_size ** len(axes)
    base = k + share * _around(src**2, axes, local_size) if workspace is None else workspace
    through_base = _around(diff_dst * src * base ** (-beta - 1), axes, local_size)
    return {"diff_src": diff_dst * base**-beta - 2 * share * beta * src * through_base}


def _axes(src: Array, algorithm: str) -> tuple[int, ...]:
    """The axes of the window."""
    return (1,) if algorithm == "across_channels" else tuple(range(2, src.ndim))


def _around(array: Array, axes: tuple[int, ...], local_size: int) -> Array:
    """The sum over the window around each element."""
    half = (local_size - 1) // 2
    for axis in axes:
        at = np.arange(array.shape[axis])
        near = (abs(at[:, None] - at) <= half).astype(np.float64)
        array = np.moveaxis(np.tensordot(near, array, (1, axis)), 0, axis)
    return array
