"""Formulas over space: convolution, deconvolution, pooling and resampling, in any number of spatial dimensions.

`Taps` is the geometry of windows that slide over space. Tap k of window o lies on element
o * stride + k * (dilation + 1) - padding_l, which may be outside. So the source is placed on a canvas as long as the
windows reach, and read, or added to, in steps. What of the source no window reaches (where padding on the right is
negative) is not on the canvas:

>>> taps = Taps(kernel=(3,), strides=(2,), dilations=(0,), padding_l=(1,))
>>> taps.windows(np.arange(4.0).reshape(1, 1, 4), (2,))[0, 0]
array([[0., 0., 1.],
       [1., 2., 3.]])
>>> taps.spread(lambda tap: np.array([[[1.0, 10.0]]]), (2,), (1, 1, 4))[0, 0]
array([ 1., 11., 10., 10.])

Convolution:

    dst(n, go, x) = bias(go) + sum over c and taps u of src(n, gc, at) * w(g, o, c, u)
    at            = x * stride + u * (dilation + 1) - padding_l

Group g maps its own channels. Weights have axes (o, c, taps ...), with groups (g, o, c, taps ...). A tap outside the
source is on a zero.

Deconvolution is the transpose of convolution: what a convolution gives back to its source is what a deconvolution
computes, and what a convolution computes is the gradient of a deconvolution's source. Weights have axes
(o, c, taps ...) seen from the deconvolution, so both axes swap.

Pooling:

    max                  dst(n, c, x) = max over taps inside the source; of equal ones the first, in row-major order
    avg_include_padding  dst(n, c, x) = sum over taps / number of taps
    avg_exclude_padding  dst(n, c, x) = sum over taps / number of taps inside the source

The workspace of max holds the row-major index of the tap that was the greatest. A window without any tap inside has
the lowest number of the type, and no gradient.

Resampling: the center of element o of the destination lies at (o + 1/2) * n_src / n_dst - 1/2 of the source. `nearest`
rounds this, halves up; `linear` weighs the elements below and above by their distance. Beyond the border is the element
at it. A resampling is one matrix for each spatial axis, and its gradient the transposed ones:

>>> along(2, 4, "linear")
array([[1.  , 0.  ],
       [0.75, 0.25],
       [0.25, 0.75],
       [0.  , 1.  ]])

Source: oneAPI specification, "Convolution" (dilation 0 is dense), "Deconvolution", "Pooling" and "Resampling"; oneDNN
for ties and empty windows of pooling.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.engines.reference.values import Array, Results, Shape, Shapes


@dataclass(frozen=True, slots=True)
class Taps:
    """Windows over the spatial axes, which are all but the first two."""

    kernel: Shape
    """Taps along each axis."""
    strides: Shape
    """Elements between neighboring windows."""
    dilations: Shape
    """Elements between neighboring taps of a window."""
    padding_l: Shape
    """Elements before the first one of the source."""

    @property
    def spans(self) -> Shape:
        """Elements from the first tap to the last, both included."""
        return tuple((k - 1) * (d + 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def windows(self, source: Array, out: Shape, fill: float = 0.0) -> Array:
        """The elements under all taps, as axes (n, c, windows ..., taps ...); those outside are `fill`."""
        canvas = np.full(source.shape[:2] + self._reach(out), fill)
        on_canvas, of_source = self._overlap(source.shape, canvas.shape)
        canvas[on_canvas] = source[of_source]
        axes = tuple(range(2, source.ndim))
        views = np.lib.stride_tricks.sliding_window_view(canvas, self.spans, axis=axes)
        starts = [slice(0, (o - 1) * s + 1 if o else 0, s) for o, s in zip(out, self.strides, strict=True)]
        steps = [slice(None, None, d + 1) for d in self.dilations]
        index: Any = (..., *starts, *steps)
        windows: Array = views[index]
        return windows

    def spread(self, contribution: Callable[[Shape], Array], out: Shape, shape: Shape) -> Array:
        """The transpose of `windows`: for every tap, what it contributes, added to the elements it lies on.

        `contribution` is given the tap's coordinate and gives an array with axes (n, c, windows ...).
        """
        canvas = np.zeros(shape[:2] + self._reach(out))
        for tap in np.ndindex(self.kernel):
            starts = [k * (d + 1) for k, d in zip(tap, self.dilations, strict=True)]
            ends = [at + o * s for at, o, s in zip(starts, out, self.strides, strict=True)]
            index: Any = (..., *map(slice, starts, ends, self.strides))
            canvas[index] += contribution(tap)
        result = np.zeros(shape)
        on_canvas, of_source = self._overlap(shape, canvas.shape)
        result[of_source] = canvas[on_canvas]
        return result

    def _reach(self, out: Shape) -> Shape:
        """Elements that windows lie on along each axis."""
        return tuple(max(o - 1, 0) * s + span for o, s, span in zip(out, self.strides, self.spans, strict=True))

    def _overlap(self, source: Shape, canvas: Shape) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of the canvas that the source covers, and the part of the source that lies on the canvas."""
        on_canvas, of_source = [slice(None)] * 2, [slice(None)] * 2
        for n, extent, padding in zip(source[2:], canvas[2:], self.padding_l, strict=True):
            first, last = max(padding, 0), max(min(padding + n, extent), max(padding, 0))
            on_canvas.append(slice(first, last))
            of_source.append(slice(first - padding, last - padding))
        return tuple(on_canvas), tuple(of_source)


def convolution(
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


def convolution_backward_data(
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


def convolution_backward_weights(
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


def deconvolution(
    *,
    src: Array,
    weights: Array,
    bias: Array | None = None,
    strides: Shape,
    dilations: Shape,
    padding_l: Shape,
    shapes: Shapes,
) -> Results:
    """Every element of the source, spread over the taps of its window."""
    dst = convolution_backward_data(
        diff_dst=src,
        weights=_swapped(weights, src.ndim),
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"diff_src": shapes["dst"]},
    )["diff_src"]
    return {"dst": dst if bias is None else dst + along_channels(bias, dst.ndim)}


def deconvolution_backward_data(
    *, diff_dst: Array, weights: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """The gradient of the source: a convolution."""
    diff_src = convolution(
        src=diff_dst,
        weights=_swapped(weights, diff_dst.ndim),
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"dst": shapes["diff_src"]},
    )["dst"]
    return {"diff_src": diff_src}


def deconvolution_backward_weights(
    *, src: Array, diff_dst: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """The gradients of weights and bias."""
    shape = shapes["diff_weights"]
    swapped = _swapped(np.empty(shape), src.ndim).shape
    diff_weights = convolution_backward_weights(
        src=diff_dst,
        diff_dst=src,
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"diff_weights": swapped},
    )["diff_weights"]
    return {
        "diff_weights": _swapped(diff_weights, src.ndim).reshape(shape),
        "diff_bias": over_channels(diff_dst),
    }


def _swapped(weights: Array, ndim: int) -> Array:
    """Weights with their axes of channels swapped, in groups, for tensors of `ndim` axes."""
    return in_groups(weights, ndim).swapaxes(1, 2)


def pooling(
    *,
    src: Array,
    algorithm: str,
    strides: Shape,
    kernel: Shape,
    dilations: Shape,
    padding_l: Shape,
    shapes: Shapes,
    lowest: float,
) -> Results:
    """The formula above; `lowest` is the lowest number of the source's type."""
    taps, out = Taps(kernel, strides, dilations, padding_l), shapes["dst"][2:]
    last = tuple(range(-len(kernel), 0))
    if algorithm != "max":
        return {"dst": taps.windows(src, out).sum(axis=last) / _count(taps, algorithm, src.shape, out)}
    inside = _inside(taps, src.shape, out)
    windows = taps.windows(src, out, -np.inf)
    greatest = windows.max(axis=last, initial=-np.inf)
    is_first = (windows == greatest[(..., *[None] * len(kernel))]) & inside
    index = is_first.reshape(*greatest.shape, prod(kernel)).argmax(axis=-1)
    return {"dst": np.where(inside.any(axis=last), greatest, lowest), "workspace": index}


def pooling_backward(
    *,
    diff_dst: Array,
    workspace: Array | None = None,
    algorithm: str,
    strides: Shape,
    kernel: Shape,
    dilations: Shape,
    padding_l: Shape,
    shapes: Shapes,
) -> Results:
    """The gradient of the source: all of a window's goes to its greatest element, or equal parts to all taps."""
    taps, out = Taps(kernel, strides, dilations, padding_l), diff_dst.shape[2:]
    if algorithm == "max":
        assert workspace is not None

        def contribution(tap: Shape) -> Array:
            return np.where(workspace == np.ravel_multi_index(tap, kernel), diff_dst, 0.0)

    else:
        part = diff_dst / _count(taps, algorithm, shapes["diff_src"], out)

        def contribution(tap: Shape) -> Array:
            return part

    return {"diff_src": taps.spread(contribution, out, shapes["diff_src"])}


def _inside(taps: Taps, shape: Shape, out: Shape) -> npt.NDArray[np.bool_]:
    """Which taps of each window are inside the source."""
    return taps.windows(np.ones((1, 1, *shape[2:])), out) > 0


def _count(taps: Taps, algorithm: str, shape: Shape, out: Shape) -> Array:
    """The number of elements that each window's sum is divided by."""
    if algorithm == "avg_include_padding":
        return np.full((1,) * len(shape), float(prod(taps.kernel)))
    count: Array = _inside(taps, shape, out).sum(axis=tuple(range(-len(taps.kernel), 0)), dtype=np.float64)
    return count


def resampling(*, src: Array, algorithm: str, shapes: Shapes) -> Results:
    """The formula above."""
    dst = src
    for axis in range(2, src.ndim):
        dst = _multiplied(along(src.shape[axis], shapes["dst"][axis], algorithm), dst, axis)
    return {"dst": dst}


def resampling_backward(*, diff_dst: Array, algorithm: str, shapes: Shapes) -> Results:
    """The gradient of the source: each element gets the share that it gave."""
    diff = diff_dst
    for axis in range(2, diff_dst.ndim):
        diff = _multiplied(along(shapes["diff_src"][axis], diff_dst.shape[axis], algorithm).T, diff, axis)
    return {"diff_src": diff}


def along(n_src: int, n_dst: int, algorithm: str) -> Array:
    """The share that each element of the source (columns) has in each of the destination (rows)."""
    shares = np.zeros((n_dst, n_src))
    if not shares.size:
        return shares
    rows = np.arange(n_dst)
    center = (rows + 0.5) * n_src / n_dst - 0.5
    if algorithm == "nearest":
        shares[rows, np.floor(center + 0.5).astype(int)] = 1
        return shares
    below = np.floor(center).astype(int)
    for at, share in ((below, below + 1 - center), (below + 1, center - below)):
        np.add.at(shares, (rows, np.clip(at, 0, n_src - 1)), share)
    return shares


def _multiplied(matrix: Array, array: Array, axis: int) -> Array:
    return np.moveaxis(np.tensordot(matrix, array, (1, axis)), 0, axis)
