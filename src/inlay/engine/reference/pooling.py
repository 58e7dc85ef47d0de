"""Pooling: the greatest element of each window, or the average.

    max                  dst(n, c, x) = max over taps inside the source; of equal ones the first, in row-major order
    avg_include_padding  dst(n, c, x) = sum over taps / number of taps
    avg_exclude_padding  dst(n, c, x) = sum over taps / number of taps inside the source

The workspace of max holds the row-major index of the tap that was the greatest. A window without any tap inside has
the lowest number of the type, and no gradient.

Source: oneAPI specification, "Pooling"; oneDNN for ties and empty windows.
"""

from math import prod

import numpy as np
import numpy.typing as npt

from inlay.engine.reference.arrays import Array, Results, Shape, Shapes
from inlay.engine.reference.taps import Taps


def forward(
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


def backward(
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
