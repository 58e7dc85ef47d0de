"""Descriptors of existing memory: of a NumPy array with any strides, and of a layout with negative offsets.

>>> describe_array(np.zeros((3, 4), np.int8)[::-1]).offset((2, 0))
0
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, as_data_type
from inlay.descriptor.memory_desc import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Layout


def place_lowest_first(layout: Layout, data_type: DataType) -> MemoryDesc:
    """Return the descriptor of a buffer that begins with the element of the lowest offset in `layout`.

    Raises:
        InvalidArguments: as `MemoryDesc.from_layout`.
        Unimplemented: a dim or stride is RUNTIME.

    >>> place_lowest_first(Layout.from_strides((3, 4), (-4, 1)), as_data_type("f32")).offset0
    8
    """
    return MemoryDesc.from_layout(layout, data_type, offset0=-layout.span[0])


def describe_array(array: npt.NDArray[Any]) -> MemoryDesc:
    """Return the descriptor of the memory of an array, with its strides; the buffer begins with its lowest address.

    Raises:
        InvalidArguments: the array has no axes, strides that are not multiples of the element size, or a data type
            that descriptors do not have or that has 4 bits in memory.
    """
    data_type = as_data_type(array.dtype)
    if data_type.is_sub_byte:
        raise InvalidArguments(
            f"array holds {array.dtype}, one element in a byte, and {data_type} memory two: use inlay.pack"
        )
    if not array.ndim:
        raise InvalidArguments("array is a scalar, which has no axes to place: give it one with reshape(1)")
    return place_lowest_first(Layout.from_array(np.asarray(array)), data_type)
