"""Rearrangement of arrays: the axes of any NumPy, PyTorch or JAX array in another order, at the speed of a reorder.

>>> import numpy as np
>>> rearrange(np.arange(6).reshape(2, 3), "h w -> w h").tolist()
[[0, 3], [1, 4], [2, 5]]

Data flows through the modules in this order:

    einops_notation  patterns of einops: parser, checks and lengths of axes
    axis_moves       moves between two strided arrays, axis by axis
    array_kinds      what a rearrangement needs of arrays of NumPy, PyTorch and JAX
    array_calls      planned calls of a rearrangement
    rearrangement    `rearrange`, `repeat`, `transpose`, `ascontiguous`

Terms:

    pattern          the axes of an array and of the result, as in `b (h p) -> (b h) p` (einops)
    elementary axis  an axis that a pattern neither splits nor joins with another: one name, number or part of `...`
    kind             the library of an array, with its functions
    form             shape, strides and type of an array: what a call depends on besides its arguments
    move             a reorder between two strided arrays
"""

from inlay.rearranging.rearrangement import ascontiguous, rearrange, repeat, transpose

__all__ = ["ascontiguous", "rearrange", "repeat", "transpose"]
