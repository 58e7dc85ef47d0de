"""Coordinates of a tensor and other dims of the same volume, for the laws of views."""

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from inlay.layout import Dims


def coordinates(dims: Sequence[int]) -> npt.NDArray[np.int64]:
    """Every coordinate of a tensor of `dims` in row-major order, shape (elements, ndims)."""
    return np.indices(tuple(dims), dtype=np.int64).reshape(len(dims), prod(dims)).T


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
