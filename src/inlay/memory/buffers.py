"""Bytes: those of a caller's buffer, seen without a copy, and our own, aligned.

Whatever a caller has - an array of NumPy or ml_dtypes, bytes, a memory map, a tensor of another framework - becomes a
flat array of bytes in address order. Our own bytes are zero; large ones start on a boundary of 2 MiB and are offered to
the operating system for huge pages, since a move through pages of 4 KiB spends much of its time on their addresses.

**Poison.** Code that relies on new memory being zero works until it is given a buffer that was used before. With
INLAY_POISON=1 in the environment our own bytes are 0xFF instead: NaN in every float type that has one, and not zero in
the others. What a move writes is the same as ever, zeros in padding included; what nobody wrote shows.

The **code** of an element is the unsigned integer of its bits. Codes of 4 bits lie one in each byte of an array:

>>> from inlay.data_type import DATA_TYPES
>>> decoded(np.array([1, 15], np.uint8), DATA_TYPES["s4"])
array([1, -1], dtype=int4)

A host scalar has one value: a number goes in as the bytes of its data type, and comes back. Floats are rounded to the
type, to nearest even; integers must be exact and in range.

>>> scalar_bytes(-2, DATA_TYPES["s4"]).tolist(), scalar_value(scalar_bytes(-2, DATA_TYPES["s4"]), DATA_TYPES["s4"])
([14], -2)

A dense tensor has one buffer, a sparse one several (oneDNN's handles): values first, then what says where they belong.
Each is checked by itself, when wrapped, and is an array of its own type afterwards. Values of 4 bits lie one in a byte,
the code in its low half: oneDNN's sizes count a byte for each.

>>> from inlay.descriptor import MemoryDesc
>>> [f"{h.name}: {h.count} of {h.data_type}" for h in handles_of(MemoryDesc.csr((3, 4), "f32", 2))]
['values: 2 of f32', 'indices: 2 of s32', 'pointers: 4 of s32']
"""

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, number_kind
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import sparse_counts
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented, shown

# New bytes


Bytes: TypeAlias = npt.NDArray[np.uint8]

LINE = 64
"""Every buffer of ours starts at a multiple of so many bytes: a cache line."""

HUGE_PAGE = 2 << 20
"""Every buffer of ours that has so many bytes starts at a multiple of them."""

POISON = 0xFF
"""What each of our own bytes holds where INLAY_POISON asks for it."""

_LARGEST = 2**62


def allocate(nbytes: int) -> Bytes:
    """Zero bytes at an address that is a multiple of 64, or of 2 MiB if they are that many; poison where asked for.

    Raises:
        OutOfMemory: the operating system has not so many bytes.
        InvalidArguments: INLAY_POISON is set to something else than 1, 0 or nothing.

    >>> buffer = allocate(1000)
    >>> buffer.size, buffer.ctypes.data % 64, int(buffer.max())
    (1000, 0, 0)
    """
    try:
        if nbytes > _LARGEST:
            raise MemoryError
        new = (
            _aligned_pages(nbytes) if nbytes >= HUGE_PAGE else _aligned(np.zeros(nbytes + LINE, np.uint8), nbytes, LINE)
        )
    except (MemoryError, OSError):
        problem = f"{nbytes} bytes cannot be allocated: reorder in parts (`submemory`), or give a memory-mapped buffer"
        raise OutOfMemory(problem) from None
    if _poisoned():
        new[:] = POISON
    return new


def _poisoned() -> bool:
    wanted = os.environ.get("INLAY_POISON", "")
    if wanted not in ("", "0", "1"):
        raise InvalidArguments(
            f"INLAY_POISON is {wanted!r}: set it to 1 to fill new memory with 0xFF in place of zeros, or to 0"
        )
    return wanted == "1"


def _aligned_pages(nbytes: int) -> Bytes:
    # A mapping is shared unless told otherwise, and shared pages are never huge.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    pages = mmap.mmap(-1, nbytes + HUGE_PAGE, **private)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel built without huge pages refuses the advice, and nothing is lost.
        with suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    return _aligned(np.frombuffer(pages, np.uint8), nbytes, HUGE_PAGE)


def _aligned(whole: Bytes, nbytes: int, boundary: int) -> Bytes:
    start = -address_of(whole) % boundary
    return whole[start : start + nbytes]


def address_of(array: npt.NDArray[Any]) -> int:
    """Where the element at the origin lies."""
    return int(array.__array_interface__["data"][0])


# Bytes of a caller


_BYTES_TYPE = np.dtype(np.uint8)


def bytes_of(buffer: object, data_type: DataType, name: str = "buffer") -> Bytes:
    """The bytes of a buffer of elements of `data_type`, or of raw bytes (uint8), in address order, without a copy.

    `name` is what messages call it.

    Raises:
        InvalidArguments: `buffer` cannot be read as memory, holds another type, or has gaps between its elements.

    >>> from inlay.data_type import DATA_TYPES
    >>> bytes_of(np.array([1.0], np.float32), DATA_TYPES["f32"]).tolist()
    [0, 0, 128, 63]
    """
    array = array_of(buffer, name)
    _require_type(array, data_type, name)
    if not array.flags.forc:
        raise InvalidArguments(
            f"{name} of shape {array.shape} and byte strides {array.strides} is not contiguous: wrap the array it is a "
            "view of, or move its elements with inlay.pack"
        )
    flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
    return flat.view(np.uint8)


def array_of(buffer: object, name: str = "buffer") -> npt.NDArray[Any]:
    """An array over the memory of `buffer`, without a copy: NumPy's own, `__array_interface__`, bytes-like, DLPack.

    Raises:
        InvalidArguments: `buffer` is none of these, or its owner does not export it.
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
            return np.from_dlpack(buffer)
        return np.array(memoryview(buffer), copy=False)  # type: ignore[arg-type]
    except TypeError:
        _refuse_buffer(buffer, name, "it has neither the buffer protocol, nor __array_interface__, nor DLPack")
    except (BufferError, RuntimeError, ValueError) as error:
        _refuse_buffer(buffer, name, str(error))


def _refuse_buffer(buffer: object, name: str, reason: str) -> NoReturn:
    raise InvalidArguments(
        f"{name} of type {type(buffer).__name__} cannot be wrapped ({reason}): pass a NumPy array or bytes"
    )


def _require_type(array: npt.NDArray[Any], data_type: DataType, name: str) -> None:
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


def decoded(codes: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """The values of an array of codes, each in as many bytes as its type has, at least one."""
    if not data_type.is_sub_byte:
        return codes.view(data_type.dtype)
    if data_type.kind == "signed":
        return ((codes.astype(np.int8) ^ 8) - 8).astype(data_type.dtype)
    return codes.astype(np.uint8).view(data_type.dtype)


def encoded(array: npt.NDArray[Any], data_type: DataType) -> npt.NDArray[Any]:
    """The codes of an array of values, each in as many bytes as its type has, at least one."""
    if not data_type.is_sub_byte:
        return np.ascontiguousarray(array).view(f"u{data_type.itemsize}")
    signed = data_type.kind == "signed"
    return (array.astype(np.int8).view(np.uint8) & 15) if signed else np.ascontiguousarray(array).view(np.uint8) & 15


# Host scalars


def scalar_bytes(value: object, data_type: DataType) -> Bytes:
    """The bytes of `value`, a number or an array of one, as `data_type`; values of 4 bits lie in the low half of one.

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
        return encoded(number, data_type)
    return number.view(np.uint8).copy()


def _as_number(value: object) -> npt.NDArray[Any]:
    """An array of the one number.

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
    if number != number or number in (float("inf"), float("-inf")) or number != int(number):
        raise InvalidArguments(f"the value of a host scalar is {number}: {data_type} holds whole numbers only")
    if not data_type.lowest <= number <= data_type.highest:
        raise InvalidArguments(
            f"the value of a host scalar is {number}: {data_type} holds {data_type.lowest} to {data_type.highest}"
        )


def scalar_value(data: Bytes, data_type: DataType) -> Any:
    """The value that the bytes hold, as a NumPy or ml_dtypes scalar."""
    return decoded(data, data_type)[0]


# Buffers of sparse memory


Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Handle:
    """One buffer of a sparse tensor."""

    name: str
    """What it holds: `values`, `indices`, `pointers`, `indices of axis 1`."""
    data_type: DataType
    """Of its elements; one of 4 bits is a byte wide here."""
    count: int
    """How many elements it holds."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.count * self.data_type.itemsize


@lru_cache(maxsize=512)
def handles_of(desc: MemoryDesc) -> tuple[Handle, ...]:
    """The buffers of a sparse descriptor, in oneDNN's order.

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
        Handle(name, data_type.in_whole_bytes, count)
        for name, data_type, count in zip(names, desc.data_types, counts, strict=True)
        if data_type is not None
    )


def wrapped(desc: MemoryDesc, buffers: object) -> tuple[Bytes, ...]:
    """The bytes of a caller's buffers, each checked, without a copy.

    Raises:
        InvalidArguments: `buffers` is no sequence of as many as needed, or one is too small, not contiguous, of another
            type, not aligned to its elements, or no buffer.
        Unimplemented: as `handles_of`.
    """
    handles = handles_of(desc)
    names = ", ".join(handle.name for handle in handles)
    if not isinstance(buffers, (list, tuple)):
        raise InvalidArguments(
            f"buffers is of type {type(buffers).__name__}: {desc!r} has {len(handles)}, give a list of {names}"
        )
    if len(buffers) != len(handles):
        raise InvalidArguments(f"{desc!r} has {len(handles)} buffers, not {len(buffers)}: give {names}")
    return tuple(_checked(i, handle, buffer) for i, (handle, buffer) in enumerate(zip(handles, buffers, strict=True)))


def _checked(i: int, handle: Handle, buffer: object) -> Bytes:
    name = f"buffer {i} ({handle.name})"
    found = bytes_of(buffer, handle.data_type, name)
    if found.size < handle.nbytes:
        raise InvalidArguments(
            f"{name} of {found.size} bytes is too small: {handle.count} elements of {handle.data_type} take "
            f"{handle.nbytes} bytes"
        )
    if handle.count and address_of(found) % handle.data_type.itemsize:
        raise InvalidArguments(
            f"{name} starts at an address that is no multiple of the {handle.data_type.itemsize} bytes of "
            f"{handle.data_type}: copy it to an array of its own"
        )
    return found


def allocated(desc: MemoryDesc) -> tuple[Bytes, ...]:
    """New buffers of zero bytes.

    Raises:
        Unimplemented: as `handles_of`.
        OutOfMemory: there is no room for them.
    """
    return tuple(allocate(handle.nbytes) for handle in handles_of(desc))


def codes_in(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[Any]:
    """The stored values as codes, the unsigned integers of their bits: the memory itself, not a copy."""
    handle = handles_of(desc)[0]
    return buffers[0][: handle.nbytes].view(f"u{handle.data_type.itemsize}")


def positions_in(desc: MemoryDesc, buffers: Sequence[Bytes]) -> list[npt.NDArray[Any]]:
    """Indices and pointers, each in its own type: the memory itself, not a copy."""
    handles = handles_of(desc)[1:]
    return [b[: h.nbytes].view(h.data_type.dtype) for h, b in zip(handles, buffers[1:], strict=True)]
