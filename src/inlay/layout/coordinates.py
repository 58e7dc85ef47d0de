"""Many coordinates at once: where they lie, computed by NumPy, and what is refused among them.

Coordinates come as rows of an array, offsets are computed axis by axis. So a part of the rows is turned into columns of
its own, small enough to stay in the cache, and every column is read into digits in place:

    rows (1000000, 4)   ->   62 times   columns (4, 16384)   ->   16384 offsets
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.errors import InvalidArguments
from inlay.layout.axis import Axis, Dims

_AT_ONCE = 16384
"""Coordinates whose offsets are computed together: they and all that is computed from them stay in the cache."""


def as_points(coordinates: npt.ArrayLike, ndims: int) -> npt.NDArray[np.integer[Any]]:
    """`coordinates` as an array of integers of shape (..., ndims).

    Raises:
        InvalidArguments: they are no integers, or their last axis is not `ndims` long.
    """
    try:
        points = np.asarray(coordinates)
    except ValueError:
        raise InvalidArguments("coordinates have rows of different lengths: each needs one entry per axis") from None
    if points.shape[-1:] != (ndims,):
        raise InvalidArguments(f"a coordinate of this layout has {ndims} entries, got shape {points.shape}")
    if points.size and not np.issubdtype(points.dtype, np.integer):
        raise InvalidArguments(f"coordinates are integers of at most 64 bits, got {points.dtype}")
    return points


def require_inside(dims: Dims, points: npt.NDArray[np.integer[Any]]) -> None:
    """Refuse coordinates beyond `dims`.

    Raises:
        InvalidArguments: there is one; the first of the first axis concerned is named.
    """
    for i, dim in enumerate(dims):
        x = points[..., i]
        if x.size == 0 or (x.min() >= 0 and x.max() < dim):
            continue
        first = int(x[(x < 0) | (x >= dim)].flat[0])
        bounds = f"outside 0..{dim - 1}" if dim else "outside this axis, which has none"
        raise InvalidArguments(f"coordinate {first} of axis {i} is {bounds}")


def offsets_of(dims: Dims, axes: Sequence[Axis], points: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Where `axes` put `points`, of shape (..., ndims); the offsets fit 64 bits.

    Raises:
        InvalidArguments: as `require_inside`.

    >>> offsets_of((3, 4), (Axis(4), Axis(1)), np.array([[0, 3], [2, 1]]))
    array([3, 9])
    """
    rows = points.reshape(prod(points.shape[:-1]), len(dims))
    total = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        if not _add_inside(total[part], dims, axes, rows[part].T.astype(np.int64, "C")):
            require_inside(dims, points)
    return total.reshape(points.shape[:-1])


def _add_inside(total: npt.NDArray[np.int64], dims: Dims, axes: Sequence[Axis], columns: npt.NDArray[np.int64]) -> bool:
    """Add to `total` the offsets of the coordinates `columns`, one row per axis; False if one lies outside."""
    for dim, axis, x in zip(dims, axes, columns, strict=True):
        if x.min() < 0 or x.max() >= dim:
            return False
        _add_offsets(total, axis, x)
    return True


def _add_offsets(total: npt.NDArray[np.int64], axis: Axis, x: npt.NDArray[np.int64]) -> None:
    """Add to `total` where `axis` puts each of the coordinates `x`, which are used up."""
    for digit in reversed(axis.inner):
        # A shift and a mask take a tenth of the time of a division.
        if digit.extent & (digit.extent - 1) == 0:
            low = x & (digit.extent - 1)
            x >>= digit.extent.bit_length() - 1
        else:
            x, low = np.divmod(x, digit.extent)
        low *= digit.stride
        total += low
    x *= axis.stride
    total += x
