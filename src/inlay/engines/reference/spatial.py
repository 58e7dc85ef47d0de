"""Formulas over space: convolution, deconvolution, pooling and resampling, in any number of spatial dimensions.

`Taps` is the geometry of sliding windows. Tap k of window o is at the element o * stride + k * (dilation + 1) -
padding_l of the source, which may be outside of it. The source is therefore copied to a canvas, an array that contains
all elements under windows; with negative padding on the right, the end of the source is not on the canvas. Windows are
strided views of the canvas:

>>> taps = Taps(kernel=(3,), strides=(2,), dilations=(0,), padding_l=(1,))
>>> taps.windows(np.arange(4.0).reshape(1, 1, 4), (2,))[0, 0]
array([[0., 0., 1.],
       [1., 2., 3.]])
>>> taps.spread(lambda tap: np.array([[[1.0, 10.0]]]), (2,), (1, 1, 4))[0, 0]
array([ 1., 11., 10., 10.])

Convolution:

    dst(n, go, x) = bias(go) + sum over c and taps u of src(n, gc, at) * w(g, o, c, u)
    at            = x * stride + u * (dilation + 1) - padding_l

Each group g has its own channels. Weights have axes (o, c, taps ...), with groups (g, o, c, taps ...). Elements outside
the source are 0.

Deconvolution is the transpose of convolution: its result is the gradient of the source of a convolution, and the
gradient of its source is a convolution. Its weights have axes (o, c, taps ...) from the viewpoint of the deconvolution,
so o and c are swapped for the convolution.

Pooling:

    max                  dst(n, c, x) = max over taps inside the source; of equal ones the first, in row-major order
    avg_include_padding  dst(n, c, x) = sum over taps / number of taps
    avg_exclude_padding  dst(n, c, x) = sum over taps / number of taps inside the source

The workspace of max is the row-major index of the tap with the maximum. A window without a tap inside the source has
the lowest number of the type as result, and no gradient.

Resampling: element o of the destination corresponds to the coordinate (o + 1/2) * n_src / n_dst - 1/2 of the source.
`nearest` rounds it, halves up; `linear` interpolates between the elements below and above. Coordinates outside the
source have the element at the border. A resampling is a product with one matrix for each spatial axis, and its gradient
a product with the transposed matrices:

>>> interpolation_matrix(2, 4, "linear")
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
    """Sliding windows over the spatial axes, which are all axes except the first two."""

    kernel: Shape
    """Number of taps along each axis."""
    strides: Shape
    """Steps between neighboring windows, in elements."""
    dilations: Shape
    """Numbers of elements skipped between neighboring taps of a window."""
    padding_l: Shape
    """Numbers of elements before the first element of the source."""

    @property
    def extents(self) -> Shape:
        """The extent of a window along each axis: the elements from the first tap to the last, both included."""
        return tuple((k - 1) * (d + 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def windows(self, source: Array, out: Shape, fill: float = 0.0) -> Array:
        """Return the elements under all taps of `out` windows, as axes (n, c, windows ..., taps ...).

        Elements outside of the source are `fill`.
        """
        canvas = np.full(source.shape[:2] + self._canvas_dims(out), fill)
        on_canvas, of_source = self._overlap_slices(source.shape, canvas.shape)
        canvas[on_canvas] = source[of_source]
        axes = tuple(range(2, source.ndim))
        views = np.lib.stride_tricks.sliding_window_view(canvas, self.extents, axis=axes)
        starts = [slice(0, (o - 1) * s + 1 if o else 0, s) for o, s in zip(out, self.strides, strict=True)]
        steps = [slice(None, None, d + 1) for d in self.dilations]
        index: Any = (..., *starts, *steps)
        windows: Array = views[index]
        return windows

    def spread(self, contribution: Callable[[Shape], Array], out: Shape, shape: Shape) -> Array:
        """Add the contribution of every tap to the elements under it: the transpose of `windows`.

        `contribution` returns an array with axes (n, c, windows ...) for the coordinates of a tap. `shape` are the dims
        of the source, and of the result.
        """
        canvas = np.zeros(shape[:2] + self._canvas_dims(out))
        for tap in np.ndindex(self.kernel):
            starts = [k * (d + 1) for k, d in zip(tap, self.dilations, strict=True)]
            ends = [at + o * s for at, o, s in zip(starts, out, self.strides, strict=True)]
            index: Any = (..., *map(slice, starts, ends, self.strides))
            canvas[index] += contribution(tap)
        result = np.zeros(shape)
        on_canvas, of_source = self._overlap_slices(shape, canvas.shape)
        result[of_source] = canvas[on_canvas]
        return result

    def _canvas_dims(self, out: Shape) -> Shape:
        """Return the extents of the canvas, which contains all windows."""
        return tuple(
            max(o - 1, 0) * s + window_extent
            for o, s, window_extent in zip(out, self.strides, self.extents, strict=True)
        )

    def _overlap_slices(self, source: Shape, canvas: Shape) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the part of the canvas that the source covers, and the corresponding part of the source."""
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
    """Compute the convolution, group by group."""
    w = with_group_axis(weights, src.ndim)
    x, u = _einsum_letters(src.ndim - 2)
    windows = Taps(w.shape[3:], strides, dilations, padding_l).windows(src, shapes["dst"][2:])
    parts = zip(_split_channels(windows, len(w)), w, strict=True)
    dst = np.concatenate([np.einsum(f"nc{x}{u},oc{u}->no{x}", part, v, optimize=True) for part, v in parts], axis=1)
    return {"dst": dst if bias is None else dst + expand_channels(bias, dst.ndim)}


def convolution_backward_data(
    *, diff_dst: Array, weights: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """Compute the gradient of the source, tap by tap."""
    w = with_group_axis(weights, diff_dst.ndim)
    x, _ = _einsum_letters(diff_dst.ndim - 2)
    parts = _split_channels(diff_dst, len(w))

    def contribution(tap: Shape) -> Array:
        under = [np.einsum(f"no{x},oc->nc{x}", d, v[(..., *tap)]) for d, v in zip(parts, w, strict=True)]
        return np.concatenate(under, axis=1)

    taps = Taps(w.shape[3:], strides, dilations, padding_l)
    return {"diff_src": taps.spread(contribution, diff_dst.shape[2:], shapes["diff_src"])}


def convolution_backward_weights(
    *, src: Array, diff_dst: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """Compute the gradients of weights and bias, which are sums over images and windows."""
    shape = shapes["diff_weights"]
    groups = shape[0] if len(shape) > src.ndim else 1
    x, u = _einsum_letters(src.ndim - 2)
    windows = Taps(shape[-len(strides) :], strides, dilations, padding_l).windows(src, diff_dst.shape[2:])
    parts = zip(_split_channels(windows, groups), _split_channels(diff_dst, groups), strict=True)
    diffs = [np.einsum(f"nc{x}{u},no{x}->oc{u}", part, d, optimize=True) for part, d in parts]
    return {"diff_weights": np.stack(diffs).reshape(shape), "diff_bias": sum_per_channel(diff_dst)}


def with_group_axis(weights: Array, ndim: int) -> Array:
    """Return weights with an axis of groups, for a source of `ndim` axes."""
    return weights if weights.ndim > ndim else weights[None]


def expand_channels(values: Array, ndim: int) -> Array:
    """Reshape one value per channel so that it broadcasts along axis 1 of `ndim` axes."""
    return values.reshape(-1, *[1] * (ndim - 2))


def sum_per_channel(diff: Array) -> Array:
    """Return the sum over all axes except axis 1, the channels."""
    total: Array = diff.sum(axis=tuple(i for i in range(diff.ndim) if i != 1))
    return total


def _split_channels(array: Array, groups: int) -> list[Array]:
    """Split the channels into groups."""
    size = array.shape[1] // groups
    return [array[:, i * size : (i + 1) * size] for i in range(groups)]


def _einsum_letters(spatial: int) -> tuple[str, str]:
    """Return the letters for `einsum` of the axes of windows, and of those of taps."""
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
    """Compute the deconvolution, as the gradient of a convolution."""
    dst = convolution_backward_data(
        diff_dst=src,
        weights=_swap_channels(weights, src.ndim),
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"diff_src": shapes["dst"]},
    )["diff_src"]
    return {"dst": dst if bias is None else dst + expand_channels(bias, dst.ndim)}


def deconvolution_backward_data(
    *, diff_dst: Array, weights: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """Compute the gradient of the source, as a convolution."""
    diff_src = convolution(
        src=diff_dst,
        weights=_swap_channels(weights, diff_dst.ndim),
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"dst": shapes["diff_src"]},
    )["dst"]
    return {"diff_src": diff_src}


def deconvolution_backward_weights(
    *, src: Array, diff_dst: Array, strides: Shape, dilations: Shape, padding_l: Shape, shapes: Shapes
) -> Results:
    """Compute the gradients of weights and bias."""
    shape = shapes["diff_weights"]
    swapped = _swap_channels(np.empty(shape), src.ndim).shape
    diff_weights = convolution_backward_weights(
        src=diff_dst,
        diff_dst=src,
        strides=strides,
        dilations=dilations,
        padding_l=padding_l,
        shapes={"diff_weights": swapped},
    )["diff_weights"]
    return {
        "diff_weights": _swap_channels(diff_weights, src.ndim).reshape(shape),
        "diff_bias": sum_per_channel(diff_dst),
    }


def _swap_channels(weights: Array, ndim: int) -> Array:
    """Return weights with an axis of groups and the two axes of channels swapped, for tensors of `ndim` axes."""
    return with_group_axis(weights, ndim).swapaxes(1, 2)


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
    """Compute the max or the average of each window; `lowest` is the lowest number of the source's type."""
    taps, out = Taps(kernel, strides, dilations, padding_l), shapes["dst"][2:]
    last = tuple(range(-len(kernel), 0))
    if algorithm != "max":
        return {"dst": taps.windows(src, out).sum(axis=last) / _divisor(taps, algorithm, src.shape, out)}
    inside = _inside_mask(taps, src.shape, out)
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
    """Compute the gradient of the source: that of a window is added to its maximum, or divided over all its taps."""
    taps, out = Taps(kernel, strides, dilations, padding_l), diff_dst.shape[2:]
    if algorithm == "max":
        assert workspace is not None

        def contribution(tap: Shape) -> Array:
            return np.where(workspace == np.ravel_multi_index(tap, kernel), diff_dst, 0.0)

    else:
        part = diff_dst / _divisor(taps, algorithm, shapes["diff_src"], out)

        def contribution(tap: Shape) -> Array:
            return part

    return {"diff_src": taps.spread(contribution, out, shapes["diff_src"])}


def _inside_mask(taps: Taps, shape: Shape, out: Shape) -> npt.NDArray[np.bool_]:
    """Return a mask of the taps of each window that are inside the source."""
    return taps.windows(np.ones((1, 1, *shape[2:])), out) > 0


def _divisor(taps: Taps, algorithm: str, shape: Shape, out: Shape) -> Array:
    """Return the number by which the sum of each window is divided."""
    if algorithm == "avg_include_padding":
        return np.full((1,) * len(shape), float(prod(taps.kernel)))
    count: Array = _inside_mask(taps, shape, out).sum(axis=tuple(range(-len(taps.kernel), 0)), dtype=np.float64)
    return count


def resampling(*, src: Array, algorithm: str, shapes: Shapes) -> Results:
    """Interpolate along each spatial axis."""
    dst = src
    for axis in range(2, src.ndim):
        dst = _multiply_axis(interpolation_matrix(src.shape[axis], shapes["dst"][axis], algorithm), dst, axis)
    return {"dst": dst}


def resampling_backward(*, diff_dst: Array, algorithm: str, shapes: Shapes) -> Results:
    """Compute the gradient of the source, with the transposed matrices."""
    diff = diff_dst
    for axis in range(2, diff_dst.ndim):
        diff = _multiply_axis(
            interpolation_matrix(shapes["diff_src"][axis], diff_dst.shape[axis], algorithm).T, diff, axis
        )
    return {"diff_src": diff}


def interpolation_matrix(n_src: int, n_dst: int, algorithm: str) -> Array:
    """Return the matrix of one axis: the weight of each source element (column) in each destination element (row)."""
    matrix = np.zeros((n_dst, n_src))
    if not matrix.size:
        return matrix
    rows = np.arange(n_dst)
    center = (rows + 0.5) * n_src / n_dst - 0.5
    if algorithm == "nearest":
        matrix[rows, np.floor(center + 0.5).astype(int)] = 1
        return matrix
    below = np.floor(center).astype(int)
    for column, weight in ((below, below + 1 - center), (below + 1, center - below)):
        np.add.at(matrix, (rows, np.clip(column, 0, n_src - 1)), weight)
    return matrix


def _multiply_axis(matrix: Array, array: Array, axis: int) -> Array:
    """Multiply a matrix by an array along one axis."""
    return np.moveaxis(np.tensordot(matrix, array, (1, axis)), 0, axis)
