"""Values of 4 bits and their codes, one in each byte of an array.

>>> from inlay.data_type import DATA_TYPES
>>> decoded(np.array([1, 15], np.uint8), DATA_TYPES["s4"])
array([1, -1], dtype=int4)
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType


def decoded(codes: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """The values of 4-bit codes."""
    if data_type.kind == "signed":
        return ((codes.astype(np.int8) ^ 8) - 8).astype(data_type.dtype)
    return codes.astype(np.uint8).view(data_type.dtype)


def encoded(array: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """The 4-bit codes of values."""
    signed = data_type.kind == "signed"
    return (array.astype(np.int8).view(np.uint8) & 15) if signed else np.ascontiguousarray(array).view(np.uint8) & 15
