"""Elements in memory, one coordinate at a time: from digits to offsets, from offsets to codes.

Every coordinate is taken by itself. Its digits give the offset; coordinates of padding are written as zeros; no other
bit of a buffer changes. The arithmetic is this file's own: it reads `desc.digits` and nothing of `Layout`.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.reordering.reference.numbers import Codes

Bytes: TypeAlias = npt.NDArray[np.uint8]
Offsets: TypeAlias = npt.NDArray[np.int64]


def read_codes(desc: MemoryDesc, buffer: Bytes) -> Codes:
    """The code of every element, in an array of shape `desc.dims`.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> read_codes(MemoryDesc((2, 2), "s4", "ba"), np.array([0x21, 0x43], np.uint8)).tolist()
    [[1, 3], [2, 4]]
    """
    _, data_type = desc.require_layout("read_codes")
    return _read(buffer, _offsets(desc, desc.dims), data_type.bits).reshape(desc.dims)


def write_codes(desc: MemoryDesc, buffer: Bytes, codes: Codes) -> None:
    """Set every element to its code, from an array of shape `desc.dims`, and every element of padding to zero.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> buffer = np.full(2, 0xFF, np.uint8)
    >>> write_codes(MemoryDesc((3,), "u4", "a"), buffer, np.array([1, 2, 3], np.uint8))
    >>> [hex(byte) for byte in buffer]
    ['0x21', '0xf3']
    """
    _, data_type = desc.require_layout("write_codes")
    stored = _offsets(desc, desc.padded_dims)
    _write(buffer, stored, np.zeros(stored.size, np.uint64), data_type.bits)
    _write(buffer, _offsets(desc, desc.dims), codes.ravel(), data_type.bits)


def _offsets(desc: MemoryDesc, dims: tuple[int, ...]) -> Offsets:
    """The offset of every coordinate below `dims`, in elements from the start of the buffer, in row-major order."""
    total = np.full(dims, desc.offset0, np.int64)
    for i, (n, (lead, *inner)) in enumerate(zip(dims, desc.digits, strict=True)):
        rest = np.arange(n)
        along = np.zeros(n, np.int64)
        for digit in reversed(inner):
            along += rest % digit.extent * digit.stride
            rest //= digit.extent
        along += rest * lead.stride
        total += along.reshape([-1 if j == i else 1 for j in range(len(dims))])
    return total.ravel()


def _read(buffer: Bytes, offsets: Offsets, bits: int) -> Codes:
    """The codes of the elements at `offsets`."""
    if bits == 4:
        low = buffer[offsets // 2]
        return np.where(offsets % 2 == 1, low >> 4, low & 15)
    width = bits // 8
    gathered = buffer[offsets[:, None] * width + np.arange(width)]
    return np.ascontiguousarray(gathered).view(f"u{width}").ravel()


def _write(buffer: Bytes, offsets: Offsets, codes: Codes, bits: int) -> None:
    """Set the elements at `offsets` to `codes` and leave every other bit."""
    if bits == 4:
        # The two elements of a byte take turns: one assignment would keep only the later of them.
        for half in (0, 1):
            chosen = offsets % 2 == half
            where, kept = offsets[chosen] // 2, 15 << 4 * (1 - half)
            buffer[where] = buffer[where] & kept | codes[chosen].astype(np.uint8) << 4 * half
        return
    width = bits // 8
    buffer[offsets[:, None] * width + np.arange(width)] = codes.astype(f"u{width}")[:, None].view(np.uint8)
