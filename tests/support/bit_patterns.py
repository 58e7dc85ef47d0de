"""Arrays of any bit patterns, NaNs with their payload too, and their comparison bit for bit."""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType

Array = npt.NDArray[Any]


def random_bits(dims: tuple[int, ...], data_type: Any, seed: int = 0) -> Array:
    """Return an array of random bits that the data type can have."""
    kind = DataType(data_type)
    codes = np.random.default_rng(seed).integers(0, 256, (*dims, kind.itemsize), np.uint8)
    if kind.name == "s4":
        return np.asarray((codes.view(np.int8) >> 4)[..., 0].astype(kind.dtype))
    codes &= 1 if kind.name == "bool" else (1 << min(kind.bits, 8)) - 1
    return np.asarray(codes.view(kind.dtype)[..., 0])


def same_bits(one: Array, two: Array) -> bool:
    return (one.shape, one.dtype, one.tobytes()) == (two.shape, two.dtype, two.tobytes())
