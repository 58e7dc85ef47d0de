"""`pack`: from a logical array to memory in any format."""

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.format_tag import FormatTag
from inlay.layout import Dims
from inlay.memory.buffers import address_of, array_of
from inlay.memory.conversion import write_stored
from inlay.memory.entries import Entries, converted, entries_of_codes
from inlay.memory.memory import Format, Memory
from inlay.memory.moves import described, find_reorder
from inlay.memory.nibbles import decoded, encoded


def pack(array: object, format: Format, data_type: DataTypeLike | None = None) -> Memory:
    """The elements of a logical array in new memory of this format, converted to `data_type` if that is given.

    `array` is a NumPy or ml_dtypes array with any strides, or whatever `Memory` can wrap. `format` is a tag, an alias,
    or a whole descriptor of the array's dims. A sparse one says how many elements are stored; `to_csr` counts them.

    Post-condition: pack(array, format).unpack() equals `array`, bit for bit where the type is kept.

    Raises:
        InvalidArguments: `array` is no array or has no axes, its type cannot be stored, `format` is of another kind or
            has other dims, `data_type` is given beside a descriptor of another type, or a sparse format has another
            `nnz` than the array has elements with a bit set (packed: a smaller one), or indices too narrow for them.
        FormatTagError: `format` cannot be read.
        OutOfMemory: there is no room for the result.

    >>> pack(np.ones((2, 3, 4, 4), np.float32), "nhwc", "bf16").desc
    MemoryDesc((2, 3, 4, 4), 'bf16', 'nhwc')
    """
    logical = _as_array(array)
    src_type = as_data_type(logical.dtype)
    memory = Memory(_destination(logical.shape, src_type, format, data_type))
    dst, dst_type = memory.desc, memory.desc.data_type
    if dst.kind == "sparse" and dst_type is not None:
        write_stored(converted(stored_in(logical), dst_type), dst, memory.buffers)
        return memory
    if src_type.is_sub_byte:
        numbers, src_type = decoded(encoded(logical, src_type), src_type), src_type.widened
        logical = numbers.astype(src_type.dtype)
    src, logical = _source(logical, src_type)
    find_reorder(src, dst).run(address_of(logical), memory.address)
    return memory


def stored_in(array: object) -> Entries:
    """The elements of a logical array that have a bit set: what is stored of it in sparse memory.

    Raises:
        InvalidArguments: `array` is no array or has no axes, or its type cannot be stored.

    >>> stored_in(np.array([[0, 7], [9, 0]], np.int8)).places.tolist()
    [1, 2]
    """
    logical = _as_array(array)
    data_type = as_data_type(logical.dtype)
    if not data_type.is_number:
        raise InvalidArguments(f"sparse tensors hold numbers: {data_type} only moves; convert the array with astype")
    if data_type.is_sub_byte:
        return entries_of_codes(logical.shape, data_type, encoded(logical, data_type))
    return entries_of_codes(logical.shape, data_type, np.ascontiguousarray(logical).view(f"u{data_type.itemsize}"))


def _as_array(array: object) -> npt.NDArray[Any]:
    """What NumPy sees, with at least one axis."""
    if isinstance(array, (list, tuple, str, int, float)):
        raise InvalidArguments(
            f"array is of type {type(array).__name__}, which says no data type: give an array, "
            "as np.asarray(values, np.float32) is"
        )
    logical = np.asarray(array) if isinstance(array, np.generic) else array_of(array)
    if not logical.ndim:
        raise InvalidArguments("array is a scalar, which has no axes to place: give it one with reshape(1)")
    return logical


def _destination(
    dims: tuple[int, ...], src_type: DataType, format: Format, data_type: DataTypeLike | None
) -> MemoryDesc:
    wanted = None if data_type is None else as_data_type(data_type)
    if isinstance(format, (str, FormatTag)):
        return described(dims, wanted or src_type, format)
    if not isinstance(format, MemoryDesc):
        raise InvalidArguments(f"format is {shown(format)}: give a format tag such as 'nChw16c', or a MemoryDesc")
    if format.dims != dims:
        raise InvalidArguments(f"array has dims {dims}, but format {format!r} has {format.dims}: give equal dims")
    if wanted not in (None, format.data_type):
        raise InvalidArguments(f"data_type is {wanted}, but format {format!r} is {format.data_type}: leave one out")
    return format


def _source(array: npt.NDArray[Any], data_type: DataType) -> tuple[MemoryDesc, npt.NDArray[Any]]:
    """A descriptor of an array, and the array, copied where descriptors cannot say its strides."""
    width = array.itemsize
    if address_of(array) % width == 0 and all(stride % width == 0 for stride in array.strides):
        desc = _by_strides(array.shape, tuple(stride // width for stride in array.strides), data_type)
        if not desc.is_zero:
            return desc, array
    return described(array.shape, data_type, None), np.ascontiguousarray(array)


@lru_cache(maxsize=512)
def _by_strides(dims: Dims, strides: Dims, data_type: DataType) -> MemoryDesc:
    """The descriptor of these strides, or the zero descriptor where there is none."""
    return MemoryDesc(dims, data_type, strides=strides, allow_empty=True)
