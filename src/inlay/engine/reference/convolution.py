"""Convolution and its two gradients, in any number of spatial dimensions.

    dst(n, go, x) = bias(go) + sum over c and taps u of src(n, gc, at) * w(g, o, c, u)
    at            = x * stride + u * (dilation + 1) - padding_l

Group g maps its own channels. Weights have axes (o, c, taps ...), with groups (g, o, c, taps ...). A tap outside the
source is on a zero.

Source: oneAPI specification, "Convolution".
"""

import numpy as np

from inlay.engine.reference.arrays import Array, Results, Shape, Shapes
from inlay.engine.reference.taps import Taps


def forward(
    *,
    src: Array,
    weights: Array,
    bias: Array | None = None,
    strides: Shape,
    dilations: Shape,
    padding_l: Shape,
    shapes: Shapes,
) -> Results:
    """The formula above."""
    w = in_groups(weights, src.ndim)
    x, u = _letters(src.ndim - 2)
    windows = Taps(w.shape[3:], strides, dilations, padding_l).windows(src, shapes["dst"][2:])
    parts = zip(_split(windows, len(w)), w, strict=True)
    dst = np.concatenate([np.einsum(f"nc{x}{u},oc{u}->no{x}", part, v, optimize=True) for part, v in parts], axis=1)
    return {"dst": dst if bias is None else dst + along_channels(bias, dst.ndim)}


def backward_data(
    *, diff_dst: Array, weights: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """The gradient of the source: what each of its elements was multiplied by, tap for tap."""
    w = in_groups(weights, diff_dst.ndim)
    x, _ = _letters(diff_dst.ndim - 2)
    parts = _split(diff_dst, len(w))

    def contribution(tap: Shape) -> Array:
        under = [np.einsum(f"no{x},oc->nc{x}", d, v[(..., *tap)]) for d, v in zip(parts, w, strict=True)]
        return np.concatenate(under, axis=1)

    taps = Taps(w.shape[3:], strides, dilations, padding_l)
    return {"diff_src": taps.spread(contribution, diff_dst.shape[2:], shapes["diff_src"])}


def backward_weights(
    *, src: Array, diff_dst: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """The gradients of weights and bias: what each was multiplied by, summed over images and windows."""
    shape = shapes["diff_weights"]
    groups = shape[0] if len(shape) > src.ndim else 1
    x, u = _letters(src.ndim - 2)
    windows = Taps(shape[-len(strides) :], strides, dilations, padding_l).windows(src, diff_dst.shape[2:])
    parts = zip(_split(windows, groups), _split(diff_dst, groups), strict=True)
    diffs = [np.einsum(f"nc{x}{u},no{x}->oc{u}", part, d, optimize=True) for part, d in parts]
    return {"diff_weights": np.stack(diffs).reshape(shape), "diff_bias": over_channels(diff_dst)}


def in_groups(weights: Array, ndim: int) -> Array:
    """Weights with an axis of groups, for a source of `ndim` axes."""
    return weights if weights.ndim > ndim else weights[None]


def along_channels(values: Array, ndim: int) -> Array:
    """One value for each channel, which is axis 1 of `ndim`."""
    return values.reshape(-1, *[1] * (ndim - 2))


def over_channels(diff: Array) -> Array:
    """The sum of each channel, which is axis 1."""
    total: Array = diff.sum(axis=tuple(i for i in range(diff.ndim) if i != 1))
    return total


def _split(array: Array, groups: int) -> list[Array]:
    """The channels of each group."""
    size = array.shape[1] // groups
    return [array[:, i * size : (i + 1) * size] for i in range(groups)]


def _letters(spatial: int) -> tuple[str, str]:
    """Names of the axes of windows and of those of taps."""
    return "xyz"[:spatial], "uvw"[:spatial]
