"""Buffers whose neighbors are out of bounds: a page that must not be touched lies on either side.

The bytes of a buffer end where the upper guard page begins, or begin where the lower one ends, so reading or writing
one byte too far is a fault of the process and not a silent success. A fresh buffer is filled with a pattern that no
correct result has in long runs.

    | guard |      gap | bytes | guard |        flush="upper"
    | guard | bytes | gap      | guard |        flush="lower"
"""

import ctypes
import mmap
from typing import Literal

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc

PAGE = mmap.PAGESIZE
POISON = 0xA5
"""What fresh bytes hold."""

_PROT_NONE, _PROT_READ = 0, 1
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class GuardedBuffer:
    """`size` bytes between two guard pages; `align` bytes alignment may leave a gap before the upper guard."""

    def __init__(self, size: int, flush: Literal["upper", "lower"] = "upper", align: int = 1) -> None:
        """Map the pages, fill them with poison, and close the guards."""
        inner = max(1, -(-size // PAGE)) * PAGE
        self._mapping = mmap.mmap(-1, inner + 2 * PAGE)
        whole = np.frombuffer(self._mapping, np.uint8)
        whole[:] = POISON
        start = PAGE if flush == "lower" else PAGE + (inner - size) // align * align
        self.bytes: npt.NDArray[np.uint8] = whole[start : start + size]
        """The buffer."""
        self.pages: npt.NDArray[np.uint8] = whole[PAGE : PAGE + inner]
        """Everything between the guards: the buffer and the gap."""
        self._first_page = whole.ctypes.data
        self._inner = inner
        for page in (self._first_page, self._first_page + PAGE + inner):
            _protect(page, PAGE, _PROT_NONE)

    @property
    def address(self) -> int:
        """Of the first byte."""
        return int(self.bytes.ctypes.data)

    @property
    def gap_is_untouched(self) -> bool:
        """Whether the bytes between the buffer and the guards still hold poison."""
        start = self.address - self._first_page - PAGE
        gap = np.concatenate([self.pages[:start], self.pages[start + self.bytes.size :]])
        return bool((gap == POISON).all())

    def seal(self) -> None:
        """Make the buffer read-only for the hardware: a write is a fault from now on."""
        _protect(self._first_page + PAGE, self._inner, _PROT_READ)


def _protect(address: int, size: int, rights: int) -> None:
    if _libc.mprotect(address, size, rights):
        raise OSError(ctypes.get_errno(), "mprotect failed")


def stored_bytes(desc: MemoryDesc, nbytes: int) -> npt.NDArray[np.uint8]:
    """A mask of `nbytes` bytes: the bits that belong to elements or padding of `desc`; the others are never touched.

    >>> stored_bytes(MemoryDesc((3,), "u8", strides=(2,)), 6).tolist()
    [255, 0, 255, 0, 255, 0]
    """
    layout, data_type = desc.require_layout("stored_bytes")
    coordinates = np.moveaxis(np.indices(layout.dims), 0, -1)
    offsets = (layout.offset(coordinates) + desc.offset0).ravel()
    mask = np.zeros(nbytes, np.uint8)
    if data_type.is_sub_byte:
        np.bitwise_or.at(mask, offsets // 2, (0x0F << 4 * (offsets % 2)).astype(np.uint8))
    else:
        mask[offsets[:, None] * data_type.itemsize + np.arange(data_type.itemsize)] = 0xFF
    return mask
