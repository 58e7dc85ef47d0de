"""Resampling of space to another size: the nearest element, or a mean of the two nearest along each axis.

The center of element o of the destination lies at (o + 1/2) * n_src / n_dst - 1/2 of the source. `nearest` rounds this,
halves up; `linear` weighs the elements below and above by their distance. Beyond the border is the element at it.

A resampling is one matrix for each spatial axis, and its gradient the transposed ones:

>>> along(2, 4, "linear")
array([[1.  , 0.  ],
       [0.75, 0.25],
       [0.25, 0.75],
       [0.  , 1.  ]])

Source: oneAPI specification, "Resampling".
"""

import numpy as np

from inlay.engine.reference.arrays import Array, Results, Shapes


def forward(*, src: Array, algorithm: str, shapes: Shapes) -> Results:
    """The formula above."""
    dst = src
    for axis in range(2, src.ndim):
        dst = _multiplied(along(src.shape[axis], shapes["dst"][axis], algorithm), dst, axis)
    return {"dst": dst}


def backward(*, diff_dst: Array, algorithm: str, shapes: Shapes) -> Results:
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
