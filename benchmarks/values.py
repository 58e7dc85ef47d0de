"""The values of attributes: the same for everybody, and such that nobody's order of rounding shows.

Scales are powers of two. Multiplying by one is exact, and so is dividing, so that the same bytes are due from whoever
multiplies by a reciprocal instead, or adds in the same instruction. Zero points are small integers.
"""

from math import prod

import numpy as np

from inlay.layout import Dims
from inlay.reordering.attributes import Attributes, Operands, Scales

_EXPONENTS, _POINTS = 5, 7


def values_of(attributes: Attributes, dims: Dims) -> Operands:
    """By name, the values of each attribute of a reorder of these dims: 1/4 to 4, and 1 to 7.

    >>> from inlay.reordering.attributes import ZeroPoints
    >>> attributes = Attributes(src_scales=Scales(mask=0b10), src_zero_points=ZeroPoints())
    >>> values = values_of(attributes, (8, 3))
    >>> values["src_scales"].tolist(), values["src_zero_points"].tolist()
    ([[0.25, 0.5, 1.0]], [[1]])
    """
    values: Operands = {}
    for name in attributes.names:
        entry = attributes.entry(name)
        shape = entry.shape(dims)
        indices = np.arange(prod(shape)).reshape(shape)
        if isinstance(entry, Scales):
            values[name] = np.ldexp(1.0, indices % _EXPONENTS - 2).astype(entry.type.dtype)
        else:
            values[name] = (indices % _POINTS + 1).astype(entry.type.dtype)
    return values
