"""`Compared`: equality of values that hold arrays, which compare element by element and so answer no truth.

>>> @dataclass(frozen=True, slots=True, eq=False)
... class Weights(Compared):
...     arrays: Mapping[str, Any]
>>> Weights({"w": np.zeros(2)}) == Weights({"w": np.zeros(2)})
True
>>> Weights({"w": np.zeros(2)}) == Weights({"w": np.zeros(2, np.float32)})
False
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A dataclass whose values are equal if their fields are; arrays, if type, dims and bytes are.

    So elements that are no number equal themselves, and 0 is not -0. Such values have no hash: most hold a dict.
    """

    def __eq__(self, other: object) -> bool:
        """Whether `other` is of the same class and equal in each field that is compared."""
        if type(self) is not type(other):
            return NotImplemented
        names = (field.name for field in fields(self) if field.compare)
        return self is other or all(_same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        is_alike = type(one) is type(other) and one.dtype == other.dtype and one.shape == other.shape
        return is_alike and has_equal_bits(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def has_equal_bits(one: Any, other: Any) -> bool:
    """Whether arrays of one type and shape are equal bit by bit: a NaN is equal to itself, and 0.0 is not -0.0."""
    bits = f"u{one.itemsize}" if one.itemsize in (1, 2, 4, 8) else np.uint8
    first, second = (np.ascontiguousarray(array).reshape(-1).view(bits) for array in (one, other))
    return np.array_equal(first, second)
