"""Ranges of what no primitive computes: constants, tensors of a type, and results of nodes that NumPy computes."""

from collections.abc import Iterable
from math import isnan
from typing import Any

import numpy as np

from inlay.graph.op import Array
from inlay.graph.value_ranges import ANY, BOOLEAN, ValueRange, bounded, hull, symmetric

_MOVING = frozenset(
    (
        *(
            "Compress",
            "Concat",
            "DepthToSpace",
            "Expand",
            "Flatten",
            "Gather",
            "GatherElements",
            "GatherND",
            "Identity",
        ),
        *("Max", "Min", "Pad", "Reshape", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split"),
        *("Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
"""Operators whose results are elements of what they read, or 0."""
_UNIT = frozenset(("Cos", "Erf", "Sign", "Sin", "Softmax", "Tanh", "Sigmoid", "Hardmax"))
"""Operators whose results are in [-1, 1] for finite elements."""


def infer_reference_range(operator: str, ranges: Iterable[ValueRange]) -> ValueRange:
    """The range of the results of an operator that NumPy computes, of sources and constants with these ranges."""
    known = tuple(ranges)
    if operator in _MOVING:
        return hull((*known, ValueRange(0.0, 0.0)))
    if operator == "Cast" and known[0].is_finite:
        return known[0]
    if operator in _UNIT and all(one.is_finite for one in known):
        return symmetric(1.0)
    return ANY


def range_of_dtype(dtype: np.dtype[Any]) -> ValueRange:
    """The range of any tensor of a type."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return ValueRange(float(info.min), float(info.max))
    return BOOLEAN if dtype.kind == "b" else ANY


def range_of_array(array: Array) -> ValueRange:
    """The range of a constant."""
    if array.dtype.kind in "biu":
        return BOOLEAN if array.dtype.kind == "b" or not array.size else bounded(float(array.min()), float(array.max()))
    if array.dtype.kind != "f" or not array.size:
        return ANY if array.size else ValueRange(0.0, 0.0)
    low, high = float(array.min()), float(array.max())
    return ANY if isnan(low) else bounded(low, high)
