"""What a memory is made from besides a descriptor and a flat buffer: arrays with strides of their own, and layouts.

An array of NumPy has dims, a type, strides and an address, whatever its strides are: negative in `a[::-1]`, 0 where it
was broadcast, overlapping in sliding windows. Its memory begins at the lowest byte that an element has.

>>> desc, buffer = view_of(np.arange(6, dtype=np.uint8)[::-1])
>>> desc.offset((0,)), desc.strides, buffer.tolist()
(5, (-1,), [0, 1, 2, 3, 4, 5])
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.descriptor.arrays import describe_array, place_lowest_first
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.memory.buffers import Bytes, address_of, array_of


def view_of(array: object) -> tuple[MemoryDesc, Bytes]:
    """The descriptor of an array as it lies, and the bytes from its lowest element to its highest, without a copy.

    Raises:
        InvalidArguments: `array` cannot be read as memory, has no axes, strides that are no multiple of its elements,
            or a type that no descriptor has or that takes 4 bits in memory.
    """
    values = array_of(array, "array")
    desc = describe_array(values)
    layout, _ = desc.require_layout("a view")
    return desc, bytes_between(values, *layout.byte_span(values.itemsize))


def layout_over(layout: Layout, buffer: object) -> tuple[MemoryDesc, Any]:
    """The descriptor of elements that `layout` places in `buffer`, an array: the lowest one is its first.

    Raises:
        InvalidArguments: `buffer` cannot be read as memory, or has a type that no descriptor has.
        Unimplemented: a dim or stride is RUNTIME.
    """
    if buffer is None:
        raise InvalidArguments(
            "a Layout says no data type: give the array that it lies in, or describe the memory with "
            "MemoryDesc.from_layout(layout, 'f32')"
        )
    if layout.has_runtime:
        raise Unimplemented("memory needs known dims and strides: this layout has RUNTIME ones, bind them first")
    values = array_of(buffer)
    return place_lowest_first(layout, as_data_type(values.dtype)), values


def bytes_between(array: npt.NDArray[Any], low: int, high: int) -> Bytes:
    """The bytes of an array from `low` to `high`, counted from its first element: the memory itself, not a copy."""
    return np.asarray(_Span(array, low, high - low))


class _Span:
    """Bytes from an array's lowest element to its highest, gaps included; keeps the array alive."""

    def __init__(self, array: npt.NDArray[Any], low: int, nbytes: int) -> None:
        self.array = array
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address_of(array) + low, not array.flags.writeable),
        }
