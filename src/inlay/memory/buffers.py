"""Bytes: those of a caller's buffer, seen without a copy, and our own, aligned.

Whatever a caller has - an array of NumPy or ml_dtypes, bytes, a memory map, a tensor of another framework - becomes a
flat array of bytes in address order. Our own bytes are zero; large ones start on a boundary of 2 MiB and are offered to
the operating system for huge pages, since a move through pages of 4 KiB spends much of its time on their addresses.

**Poison.** Code that relies on new memory being zero works until it is given a buffer that was used before. With
INLAY_POISON=1 in the environment our own bytes are 0xFF instead: NaN in every float type that has one, and not zero in
the others. What a move writes is the same as ever, zeros in padding included; what nobody wrote shows.
"""

import mmap
import os
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.errors import InvalidArguments, OutOfMemory

Bytes: TypeAlias = npt.NDArray[np.uint8]

LINE = 64
"""Every buffer of ours starts at a multiple of so many bytes: a cache line."""

HUGE_PAGE = 2 << 20
"""Every buffer of ours that has so many bytes starts at a multiple of them."""

POISON = 0xFF
"""What each of our own bytes holds where INLAY_POISON asks for it."""

_LARGEST = 2**62
_BYTES_TYPE = np.dtype(np.uint8)


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
