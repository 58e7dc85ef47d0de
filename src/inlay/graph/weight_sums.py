"""Sums of the positive and of the negative weights of each result of a linear map, computed once for each array.

>>> positive, negative = signed_sums(np.array([[1.0, -2.0], [3.0, 4.0]], np.float32), "inner_product")
>>> positive.tolist(), negative.tolist()
([1.0, 7.0], [2.0, 0.0])
"""

import threading
import weakref
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.graph.op import Array

_Sums: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]

_lock = threading.Lock()
_known: dict[tuple[int, str, bool], tuple["weakref.ref[Any]", _Sums]] = {}


def signed_sums(weights: Array, kind: str, *, grouped: bool = False) -> _Sums:
    """The sums of the positive weights, and of the magnitudes of the negative ones, of each result.

    `weights` are those of a primitive of this kind, finite; of a convolution, with groups if `grouped`.
    """
    key = id(weights), kind, grouped
    with _lock:
        found = _known.get(key)
    if found is not None and found[0]() is weights:
        return found[1]
    sums = _summed(weights, _summed_axes(weights.ndim, kind, grouped))
    with _lock:
        _known[key] = weakref.ref(weights, lambda _: _known.pop(key, None)), sums
    return sums


def _summed_axes(count: int, kind: str, grouped: bool) -> tuple[int, ...]:
    if kind == "matmul":
        return (count - 2,)
    return tuple(range(1 + grouped, count))


def _summed(weights: Array, axes: tuple[int, ...]) -> _Sums:
    """Float32 sums a row of weights to within a few millionths; the bounds have far more room than that."""
    total = weights.sum(axis=axes, dtype=np.float64 if weights.size < 1 << 16 else None)
    magnitude = np.abs(weights).sum(axis=axes)
    return (magnitude + total) / np.float64(2), (magnitude - total) / np.float64(2)
