"""Evaluation of functions of floats block by block, in a wider type.

A function of several ufuncs would read and write memory once for each of them. A block stays in the caches, and its
temporary arrays are small:

>>> halves = np.array([[1.0, 2.0]], np.float16)
>>> map_blocks(lambda x: x * x + 1, halves).tolist(), map_blocks(np.exp, halves).dtype
([[2.0, 5.0]], dtype('float16'))
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from inlay.graph.numpy_operators.call import accumulation_dtype, is_float
from inlay.graph.op_graph import Array

_BLOCK = 1 << 14  # elements


def map_blocks(function: Callable[..., Array], *srcs: Array, working: np.dtype[Any] | None = None) -> Array:
    """Return a function of floats of the same dims and type, in this type.

    The function gets one array with one axis for each of `srcs`, of the type `working`: if this is None, float64 for
    float64, and float32 for all others. It must not write to them.
    """
    src = srcs[0]
    flat = [np.ascontiguousarray(array).reshape(-1) for array in srcs]
    dtype = accumulation_dtype(src.dtype) if working is None else working
    result = np.empty(src.size, src.dtype)
    for start in range(0, src.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = function(*(array[block].astype(dtype, copy=False) for array in flat))
    return result.reshape(src.shape)


def compute_widened(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return a function of arrays of one type; floats narrower than float32 are computed in float32."""
    dtype = arrays[0].dtype
    if not is_float(dtype) or dtype.itemsize >= np.dtype(np.float32).itemsize:
        return np.asarray(function(*arrays))
    return np.asarray(function(*(array.astype(np.float32) for array in arrays))).astype(dtype)
