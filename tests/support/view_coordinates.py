"""Coordinates and offsets of a tensor, and other dims of the same volume, for the laws of views."""

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from inlay.layout import Axis, Dims, Layout

Offsets = npt.NDArray[np.int64]


def coordinates(dims: Sequence[int]) -> Offsets:
    """Every coordinate of a tensor of `dims` in row-major order, shape (elements, ndims)."""
    return np.indices(tuple(dims), dtype=np.int64).reshape(len(dims), prod(dims)).T


def offsets(layout: Layout) -> Offsets:
    """The offset of every coordinate by `Layout.offset`, in the shape of the layout."""
    return np.asarray(layout.offset(coordinates(layout.dims))).reshape(layout.dims)


def axis_offsets(axis: Axis, n: int) -> Offsets:
    """The offset of each of `n` coordinates of an axis: NumPy splits the coordinates into digits."""
    strides = [axis.stride, *[digit.stride for digit in axis.inner]]
    digits = np.unravel_index(np.arange(n), (max(n, 1), *[digit.extent for digit in axis.inner]))
    return sum((stride * digit for stride, digit in zip(strides, digits, strict=True)), np.zeros(n, np.int64))


def expected_offsets(layout: Layout) -> Offsets:
    """The offset of every coordinate, in the shape of the layout: the sum of the offsets of its axes."""
    return reduce(np.add.outer, map(axis_offsets, layout.axes, layout.dims), np.zeros((), np.int64))


@st.composite
def regroupings(draw: st.DrawFn, dims: Dims) -> Dims:
    """Dims of the same volume: axes split and joined, unit axes dropped and inserted."""
    new: list[int] = []
    for dim in dims:
        factors = [d for d in range(2, dim) if dim % d == 0]
        if dim == 1:
            new += [1] * draw(st.integers(0, 1))
        elif draw(st.booleans()) and factors:
            factor = draw(st.sampled_from(factors))
            new += [factor, dim // factor]
        else:
            new.append(dim)
    for _ in range(draw(st.integers(0, 2))):
        if len(new) > 1:
            i = draw(st.integers(0, len(new) - 2))
            new[i : i + 2] = [new[i] * new[i + 1]]
    for _ in range(draw(st.integers(0, 2))):
        new.insert(draw(st.integers(0, len(new))), 1)
    return tuple(new)
