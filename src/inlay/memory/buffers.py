"""Byte buffers: views of a caller's buffer without a copy, and aligned buffers that Inlay allocates.

A caller passes an array of NumPy or ml_dtypes, bytes, a memory map, or a tensor of another framework. All become a flat
array of bytes in address order. New buffers are zero. Buffers of 2 MiB and more start at a multiple of 2 MiB, and the
operating system is advised to back them with huge pages: with pages of 4 KiB, address translation takes much of the
time of a reorder.

**Poison.** Code that relies on new memory being zero works until a caller passes a buffer that was used before. With
INLAY_POISON=1 in the environment, new buffers hold 0xFF in every byte: NaN in every float type that has NaN, nonzero in
all other types. The bytes that a reorder writes, zeros in padding included, do not depend on it; bytes that no reorder
wrote stand out.

The **code** of an element is the unsigned integer with its bits. An array of 4-bit codes has one code in each byte:

>>> from inlay.data_type import DATA_TYPES
>>> decode_elements(np.array([1, 15], np.uint8), DATA_TYPES["s4"])
array([1, -1], dtype=int4)

A host scalar is one number, stored as the bytes of its data type. Floats are rounded to the type, ties to even;
integers must be exact and in range.

>>> encode_scalar(-2, DATA_TYPES["s4"]).tolist(), decode_scalar(encode_scalar(-2, DATA_TYPES["s4"]), DATA_TYPES["s4"])
([14], -2)

A dense tensor has one buffer. A sparse tensor has several (oneDNN's handles): the values, then indices and pointers.
Each buffer is checked when it is wrapped, and is an array of its own type afterwards. A 4-bit value takes one byte,
with the code in the low half: oneDNN's sizes count one byte for each.

>>> from inlay.descriptor import MemoryDesc
>>> [f"{h.name}: {h.count} of {h.data_type}" for h in buffer_handles(MemoryDesc.csr((3, 4), "f32", 2))]
['values: 2 of f32', 'indices: 2 of s32', 'pointers: 4 of s32']
"""

import ctypes
import importlib
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES, DataType, number_kind
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import sparse_counts
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented, shown

# New bytes


Bytes: TypeAlias = npt.NDArray[np.uint8]

LINE = 64
"""Alignment of every buffer that Inlay allocates, in bytes: one cache line."""

HUGE_PAGE = 2 << 20
"""Alignment of buffers of at least this many bytes, in bytes: one huge page."""

POISON = 0xFF
"""Value of every byte of a new buffer when INLAY_POISON is 1."""

_LARGEST = 2**62
_BYTES_TYPE = np.dtype(np.uint8)


def bytes_at(address: int, nbytes: int) -> Bytes:
    """Return a view of `nbytes` bytes from `address` on; the caller ensures that they are memory of this process.

    >>> values = np.arange(4, dtype=np.uint8)
    >>> bytes_at(address_of(values) + 1, 2).tolist()
    [1, 2]
    """
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)) if nbytes else np.empty(0, np.uint8)


def allocate(nbytes: int) -> Bytes:
    """Allocate `nbytes` bytes of zeros, or of poison when INLAY_POISON is 1.

    The address is a multiple of 64, and of 2 MiB if there are at least 2 MiB.

    Raises:
        OutOfMemory: the operating system cannot provide the bytes.
        InvalidArguments: INLAY_POISON is set and is neither 1 nor 0 nor empty.

    >>> buffer = allocate(1000)
    >>> buffer.size, buffer.ctypes.data % 64, int(buffer.max())
    (1000, 0, 0)
    """
    try:
        if nbytes > _LARGEST:
            raise MemoryError
        if nbytes >= HUGE_PAGE:
            buffer = _align(np.frombuffer(map_pages(nbytes + HUGE_PAGE), np.uint8), nbytes, HUGE_PAGE)
        else:
            buffer = _align(np.zeros(nbytes + LINE, np.uint8), nbytes, LINE)
    except (MemoryError, OSError):
        problem = f"{nbytes} bytes cannot be allocated: reorder in parts (`submemory`), or give a memory-mapped buffer"
        raise OutOfMemory(problem) from None
    if is_poison_requested():
        buffer[:] = POISON
    return buffer


def allocate_overwritten(nbytes: int) -> Bytes:
    """Allocate `nbytes` bytes of any contents, each of which the caller writes before anybody reads it.

    The address is a multiple of 64. Meant for less than 2 MiB.
    """
    return _align(np.empty(nbytes + LINE, _BYTES_TYPE), nbytes, LINE)


def is_poison_requested() -> bool:
    """Return True if INLAY_POISON is 1.

    Raises:
        InvalidArguments: INLAY_POISON is neither 1 nor 0 nor empty.
    """
    setting = os.environ.get("INLAY_POISON", "")
    if setting not in ("", "0", "1"):
        raise InvalidArguments(
            f"INLAY_POISON is {setting!r}: set it to 1 to fill new memory with 0xFF in place of zeros, or to 0"
        )
    return setting == "1"


def map_pages(nbytes: int) -> mmap.mmap:
    """Return a new anonymous mapping of `nbytes` zero bytes, with advice to use huge pages from `HUGE_PAGE` bytes on.

    Raises:
        OSError: the operating system cannot provide the bytes.
    """
    # Mappings are shared by default, and the kernel backs shared mappings with small pages only.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    pages = mmap.mmap(-1, nbytes, **private)
    if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without support for huge pages rejects the advice; the mapping stays usable.
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _align(buffer: Bytes, nbytes: int, alignment: int) -> Bytes:
    """Return `nbytes` bytes of `buffer` that start at a multiple of `alignment`."""
    start = -address_of(buffer) % alignment
    return buffer[start : start + nbytes]


# An array object begins with the head of every Python object, followed by the pointer to its first element; NumPy's
# macro PyArray_DATA fixes that. Reading it takes a seventh of the time of `__array_interface__`.
_POINTER_AT = object.__basicsize__
_read_word = ctypes.c_size_t.from_address
_probe: Bytes = np.zeros(1, np.uint8)
_CAN_READ_POINTER = (
    sys.implementation.name == "cpython" and _read_word(id(_probe) + _POINTER_AT).value == _probe.ctypes.data
)


def _address_by_interface(array: npt.NDArray[Any]) -> int:
    """Return the address of the first element of an array."""
    return int(array.__array_interface__["data"][0])


def _address_by_pointer(array: npt.NDArray[Any]) -> int:
    """Return the address of the first element of an array, read from the array object."""
    return _read_word(id(array) + _POINTER_AT).value


address_of: Callable[[npt.NDArray[Any]], int] = _address_by_pointer if _CAN_READ_POINTER else _address_by_interface
"""Returns the address of the first element of an array."""


# Buffers of callers


def view_as_bytes(buffer: object, data_type: DataType, name: str = "buffer") -> Bytes:
    """Return the bytes of a buffer in address order, without a copy.

    `buffer` holds elements of `data_type`, or raw bytes (uint8). Error messages call it `name`.

    Raises:
        InvalidArguments: `buffer` cannot be read as memory, holds another type, or has gaps between its elements.

    >>> from inlay.data_type import DATA_TYPES
    >>> view_as_bytes(np.array([1.0], np.float32), DATA_TYPES["f32"]).tolist()
    [0, 0, 128, 63]
    """
    array = view_as_array(buffer, name)
    _require_type(array, data_type, name)
    if not array.flags.forc:
        raise InvalidArguments(
            f"{name} of shape {array.shape} and byte strides {array.strides} is not contiguous: wrap the array it is a "
            "view of, or move its elements with inlay.pack"
        )
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    return flat.view(np.uint8)


def view_as_array(buffer: object, name: str = "buffer") -> npt.NDArray[Any]:
    """Return an array over the memory of `buffer`, without a copy.

    `buffer` is a NumPy array, or supports `__array_interface__`, DLPack or the buffer protocol.

    Raises:
        InvalidArguments: `buffer` supports none of these, or its owner refuses to export it.
    """
    if isinstance(buffer, np.ndarray):
        if hasattr(buffer, "mask"):
            _refuse_buffer(buffer, name, "its mask would be lost")
        return buffer
    if isinstance(buffer, np.generic):
        _refuse_buffer(buffer, name, "a NumPy scalar has no memory of its own")
    try:
        if hasattr(buffer, "__array_interface__"):
            return np.array(buffer, copy=False)
        if hasattr(buffer, "__dlpack__"):
            return _view_narrow_tensor(buffer) if _is_narrow_tensor(buffer) else np.from_dlpack(buffer)
        return np.array(memoryview(buffer), copy=False)  # type: ignore[arg-type]
    except TypeError:
        _refuse_buffer(buffer, name, "it has neither the buffer protocol, nor __array_interface__, nor DLPack")
    except (BufferError, RuntimeError, ValueError) as error:
        _refuse_buffer(buffer, name, str(error))


_NARROW_TYPES = {
    f"torch.{t.dtype.name}": t.dtype for t in DATA_TYPES.values() if t.dtype.isbuiltin == 2 and not t.is_sub_byte
}
"""PyTorch's types that NumPy has through ml_dtypes."""


def _is_narrow_tensor(buffer: Any) -> bool:
    """Return True for a tensor of PyTorch of a type of ml_dtypes, which NumPy does not import by DLPack.

    DLPack refuses tensors that require gradients, whatever their type.
    """
    return str(getattr(buffer, "dtype", None)) in _NARROW_TYPES and not buffer.requires_grad


def _view_narrow_tensor(tensor: Any) -> npt.NDArray[Any]:
    """Return an array of ml_dtypes over the memory of a tensor, by way of unsigned integers."""
    dtype = _NARROW_TYPES[str(tensor.dtype)]
    bits = tensor.view(getattr(importlib.import_module("torch"), f"uint{8 * dtype.itemsize}"))
    return np.from_dlpack(bits).view(dtype)


def _refuse_buffer(buffer: object, name: str, reason: str) -> NoReturn:
    raise InvalidArguments(
        f"{name} of type {type(buffer).__name__} cannot be wrapped ({reason}): pass a NumPy array or bytes"
    )


def _require_type(array: npt.NDArray[Any], data_type: DataType, name: str) -> None:
    """Check that the elements of a buffer are of `data_type` or raw bytes; 4-bit elements must be raw bytes."""
    if array.dtype == _BYTES_TYPE:
        return
    if data_type.is_sub_byte:
        raise InvalidArguments(
            f"{name} holds {array.dtype}, one element in a byte, and {data_type} memory two: "
            "pass its bytes as uint8, or make the memory with inlay.pack"
        )
    if array.dtype != data_type.dtype:
        raise InvalidArguments(
            f"{name} holds {array.dtype}, the descriptor {data_type} ({data_type.dtype}): convert values with "
            "astype, or pass the bits as they are with view('u1')"
        )


# Codes


def decode_elements(codes: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """Return the values of an array of codes, as an array of the NumPy type of `data_type`.

    A code takes the bytes of its type; a 4-bit code takes one byte.
    """
    if not data_type.is_sub_byte:
        return codes.view(data_type.dtype)
    if data_type.kind == "signed":
        return ((codes.astype(np.int8) ^ 8) - 8).astype(data_type.dtype)
    return codes.astype(np.uint8).view(data_type.dtype)


def encode_elements(array: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """Return the codes of an array of values, as an array of unsigned integers.

    A code takes the bytes of its type; a 4-bit code takes one byte.
    """
    if not data_type.is_sub_byte:
        return np.ascontiguousarray(array).view(f"u{data_type.itemsize}")
    signed = data_type.kind == "signed"
    return (array.astype(np.int8).view(np.uint8) & 15) if signed else np.ascontiguousarray(array).view(np.uint8) & 15


# Host scalars


def encode_scalar(value: object, data_type: DataType) -> Bytes:
    """Return the bytes of one number as `data_type`.

    `value` is a number or an array of one element. A 4-bit value is the low half of one byte.

    Raises:
        InvalidArguments: `value` is no number, or an integer type cannot hold it.
    """
    number = _as_number(value)
    if data_type.kind != "float":
        _require_exact(number[0].item(), data_type)
    if data_type.kind == "float" and number.dtype != data_type.dtype:
        with np.errstate(over="ignore"):
            number = number.astype(data_type.dtype)
    elif data_type.kind != "float":
        number = number.astype(np.int64 if data_type.kind == "signed" else np.uint64).astype(data_type.dtype)
    if data_type.is_sub_byte:
        return encode_elements(number, data_type)
    return number.view(np.uint8).copy()


def _as_number(value: object) -> npt.NDArray[Any]:
    """Return an array with the number as its only element.

    Raises:
        InvalidArguments: `value` is no number.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.size != 1 or number_kind(array.dtype) is None:
        raise InvalidArguments(f"the value of a host scalar is {shown(value)}: give one number")
    return array.reshape(1)


def _require_exact(number: float, data_type: DataType) -> None:
    """Check that an integer type can represent a number exactly."""
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise InvalidArguments(f"the value of a host scalar is {number}: {data_type} holds whole numbers only")
    if not data_type.lowest <= number <= data_type.highest:
        raise InvalidArguments(
            f"the value of a host scalar is {number}: {data_type} holds {data_type.lowest} to {data_type.highest}"
        )


def decode_scalar(data: Bytes, data_type: DataType) -> Any:
    """Return the number whose bytes are `data`, as a NumPy or ml_dtypes scalar."""
    return decode_elements(data, data_type)[0]


# Buffers of sparse memory


Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BufferHandle:
    """One buffer of a sparse tensor."""

    name: str
    """Name for messages: `values`, `indices`, `pointers`, `indices of axis 1`, `block offsets`, `bitmask`."""
    data_type: DataType
    """Data type of the elements; an 8-bit type in place of a 4-bit one."""
    count: int
    """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Size of the buffer, in bytes."""
        return self.count * self.data_type.itemsize


@lru_cache(maxsize=512)
def buffer_handles(desc: MemoryDesc) -> tuple[BufferHandle, ...]:
    """Return the name, data type and size of each buffer of a sparse descriptor, in oneDNN's order.

    Raises:
        InvalidArguments: `desc` is not sparse.
        Unimplemented: the encoding is packed and has no tag, CSR has one dim only, or a dim is RUNTIME.
    """
    match desc.layout:
        case kinds.CSR() if desc.ndims == 1:
            raise Unimplemented(f"{desc!r} has no rows to point to: use MemoryDesc.coo, or dims (1, {desc.dims[0]})")
        case kinds.CSR() as placement:
            names = ["values", "indices", "pointers"]
        case kinds.COO() as placement:
            names = ["values", *(f"indices of axis {i}" for i in range(desc.ndims))]
        case kinds.Packed(tag=""):
            raise Unimplemented(
                f"{desc!r} has no tag yet: take the descriptor of a primitive that was created with it, such as "
                "product.weights_desc, or use MemoryDesc.csr"
            )
        case kinds.Packed() as placement:
            names = ["values", "block offsets", "bitmask"]
        case _:
            raise InvalidArguments(f"{desc!r} is of kind {desc.kind}: only sparse memory has several buffers")
    if desc.has_runtime:
        raise Unimplemented(f"memory needs known dims: {desc!r} has RUNTIME ones, bind them first")
    counts = sparse_counts(desc.dims, placement)
    return tuple(
        BufferHandle(name, data_type.in_whole_bytes, count)
        for name, data_type, count in zip(names, desc.data_types, counts, strict=True)
        if data_type is not None
    )


def wrap_buffers(desc: MemoryDesc, buffers: object) -> tuple[Bytes, ...]:
    """Check the buffers of sparse memory that a caller passes, and return their bytes without a copy.

    Raises:
        InvalidArguments: `buffers` is not a list or tuple of the right length, or a buffer is too small, not
            contiguous, of another type, not aligned to its elements, or cannot be read as memory.
        Unimplemented: as `buffer_handles`.
    """
    handles = buffer_handles(desc)
    names = ", ".join(handle.name for handle in handles)
    if not isinstance(buffers, (list, tuple)):
        raise InvalidArguments(
            f"buffers is of type {type(buffers).__name__}: {desc!r} has {len(handles)}, give a list of {names}"
        )
    if len(buffers) != len(handles):
        raise InvalidArguments(f"{desc!r} has {len(handles)} buffers, not {len(buffers)}: give {names}")
    pairs = zip(handles, buffers, strict=True)
    return tuple(_wrap_buffer(i, handle, buffer) for i, (handle, buffer) in enumerate(pairs))


def _wrap_buffer(i: int, handle: BufferHandle, buffer: object) -> Bytes:
    """Check buffer number `i` of sparse memory, and return its bytes without a copy."""
    name = f"buffer {i} ({handle.name})"
    data = view_as_bytes(buffer, handle.data_type, name)
    if data.size < handle.nbytes:
        raise InvalidArguments(
            f"{name} of {data.size} bytes is too small: {handle.count} elements of {handle.data_type} take "
            f"{handle.nbytes} bytes"
        )
    if handle.count and address_of(data) % handle.data_type.itemsize:
        raise InvalidArguments(
            f"{name} starts at an address that is no multiple of the {handle.data_type.itemsize} bytes of "
            f"{handle.data_type}: copy it to an array of its own"
        )
    return data


def allocate_buffers(desc: MemoryDesc) -> tuple[Bytes, ...]:
    """Allocate the buffers of sparse memory, as `allocate` does: zeros, or poison if INLAY_POISON is 1.

    Raises:
        Unimplemented: as `buffer_handles`.
        OutOfMemory: the operating system cannot provide the bytes.
    """
    return tuple(allocate(handle.nbytes) for handle in buffer_handles(desc))


def value_codes(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[Any]:
    """Return the codes of the stored values: a view of the first buffer, not a copy."""
    handle = buffer_handles(desc)[0]
    return buffers[0][: handle.nbytes].view(f"u{handle.data_type.itemsize}")


def index_arrays(desc: MemoryDesc, buffers: Sequence[Bytes]) -> list[npt.NDArray[Any]]:
    """Return indices and pointers (packed memory: offsets and bitmask), each in its own type: views, not copies."""
    handles = buffer_handles(desc)[1:]
    return [b[: h.nbytes].view(h.data_type.dtype) for h, b in zip(handles, buffers[1:], strict=True)]
