"""Where elements of a resized axis come from: coordinates by ONNX's modes, the nearest element, shares of several.

>>> linear(np.array([-0.25, 0.25, 0.75, 1.25]), 2)
array([[1.  , 0.  ],
       [0.75, 0.25],
       [0.25, 0.75],
       [0.  , 1.  ]])

Source: ONNX, "Operators", Resize; Keys, "Cubic convolution interpolation", 1981.
"""

from typing import Any

import numpy as np

from inlay.graph.lowering.draft import require
from inlay.graph.numpy_operators.resizing import ROUNDINGS, keys
from inlay.graph.op import Array


def coordinates(n: int, out: int, scale: float, way: str, dtype: Any) -> Array:
    """Where each element of the result lies in the source."""
    index, factor, half = np.arange(out, dtype=dtype), dtype(scale), dtype(0.5)
    if way == "asymmetric":
        return np.asarray(index / factor)
    if way == "align_corners":
        # Whether the last corner is that of the rounded size, ONNX's cases and runtimes disagree.
        require(abs(scale * n - out) < 1e-3, f"its corners are those of {scale * n:g} elements, and {out} are there")
        return np.asarray(index * dtype(n - 1) / dtype(max(out - 1, 1)))
    if way == "pytorch_half_pixel" and out == 1:
        return np.zeros(1, dtype)
    middle = np.asarray((index + half) / factor - half)
    if way == "half_pixel_symmetric":
        return np.asarray(dtype(n) / 2 * (1 - dtype(out) / (factor * dtype(n))) + middle)
    require(way in ("half_pixel", "pytorch_half_pixel"), f"its coordinates are {way}")
    return middle


def nearest(at: Array, n: int, rounding: str) -> Array:
    """The index of the element that is taken."""
    require(rounding in ROUNDINGS, f"its nearest_mode is {rounding}")
    return np.asarray(np.clip(ROUNDINGS[rounding](at), 0, n - 1).astype(np.int64))


def linear(at: Array, n: int) -> Array:
    """The share that each of `n` elements has in each of the result: the two beside a coordinate, by nearness."""
    below = np.floor(at)
    return _gathered(below, {0: below + 1 - at, 1: at - below}, n)


def cubic(at: Array, n: int, factor: float, is_inside: bool) -> Array:
    """As `linear`, of four elements, with Keys's polynomials of `factor`; those outside are the border or left out."""
    below = np.floor(at)
    shares: dict[int, Array] = {step: keys(factor)(np.abs(at - below - step)) for step in (-1, 0, 1, 2)}
    if is_inside:
        shares = {step: np.where((below + step < 0) | (below + step >= n), 0, one) for step, one in shares.items()}
        total = sum(shares.values())
        shares = {step: one / total for step, one in shares.items()}
    return _gathered(below, shares, n)


def _gathered(below: Array, shares: dict[int, Array], n: int) -> Array:
    """The matrix (result, source) of shares of the elements `step` after `below`, at most the border."""
    matrix = np.zeros((len(below), n))
    for step, share in shares.items():
        np.add.at(matrix, (np.arange(len(below)), np.clip(below + step, 0, n - 1).astype(np.int64)), share)
    return matrix
