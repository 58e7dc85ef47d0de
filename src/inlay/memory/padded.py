"""Padding of a `Memory`: checked, made zero, and kept zero by functions that run over it.

What custom code does to a memory in a blocked format, it does to the padding too, unless it takes care. oneDNN's
article on formats warns of this loop:

    for (int e = 0; e < phys_size; ++e)
        x[e] = eltwise_op(x[e])

17 channels in blocks of 8 have 7 lanes of padding, and where eltwise_op is exp they become 1. The next convolution adds
them to its sums:

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> image = np.ones((1, 17, 1, 1), np.float32)
    >>> naive = pack(image, "nChw8c")
    >>> elements = naive.buffer.view(np.float32)
    >>> elements[:] = np.exp(elements)
    >>> print(check_padding(naive))
    7 of 7 padding lanes of MemoryDesc((1, 17, 1, 1), 'f32', 'nChw8c') are not zero:
        (0, 17, 0, 0)  beyond b >= 17  element 17  byte 68  holds 1.0 (00 00 80 3f)
        (0, 18, 0, 0)  beyond b >= 17  element 18  byte 72  holds 1.0 (00 00 80 3f)
        ...

`map_padded` asks first what the function makes of zero:

    >>> safe = pack(image, "nChw8c")
    >>> map_padded(np.exp, safe)
    >>> check_padding(safe).is_clean, np.array_equal(safe.unpack(), np.exp(image))
    (True, True)
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.errors import InvalidArguments
from inlay.memory.buffers import decoded, encoded
from inlay.memory.memory import Memory, require_memory
from inlay.memory.padding import (
    Box,
    Elementwise,
    PaddingReport,
    applied,
    boxes,
    even_boxes,
    find_dirty,
    lanes,
    preserves_padding,
    zero_lanes,
)

_AT_ONCE = 1 << 18
"""Elements that a function is given at once: what it makes of them still lies in the cache when it is written back."""


def check_padding(memory: Memory) -> PaddingReport:
    """Whether all padding of `memory` is zero, and if not, where the first lanes lie that are not.

    Data and gaps are not read, so the time it takes grows with the padding alone.

    Raises:
        InvalidArguments: `memory` is no Memory.

    >>> from inlay.descriptor import MemoryDesc
    >>> memory = Memory(MemoryDesc((3,), "u8", "A4a"), np.array([1, 2, 3, 4], np.uint8))
    >>> print(check_padding(memory))
    1 of 1 padding lanes of MemoryDesc((3,), 'u8', 'A4a') are not zero:
        (3,)  beyond a >= 3  element 3  byte 3  holds 4 (04)
    """
    require_memory(memory)
    return find_dirty(memory.desc, memory.buffer)


def zero_padding(memory: Memory) -> None:
    """Write zeros into the padding of `memory`; data and gaps keep every bit.

    Post-condition: check_padding(memory).is_clean.

    Raises:
        InvalidArguments: `memory` is no Memory, is read-only, or has padding and elements that overlap.

    >>> from inlay.descriptor import MemoryDesc
    >>> memory = Memory(MemoryDesc((3,), "u8", "A4a"), np.array([1, 2, 3, 4], np.uint8))
    >>> zero_padding(memory)
    >>> memory.buffer.tolist()
    [1, 2, 3, 0]
    """
    require_memory(memory)
    zero_lanes(memory.desc, memory.buffer)


def map_padded(f: Elementwise, memory: Memory) -> None:
    """Apply an elementwise function to every element of `memory`, in place, and leave its padding zero.

    Where f(0) == 0, `f` runs over data and padding together, in the order they lie in memory; otherwise over the data
    alone, and padding is made zero. `f` is given arrays of the memory's type and of any shape, and gives arrays of the
    same shape and type. Types of 4 bits come in ml_dtypes' arrays, one element in a byte. Gaps keep every bit.

    Post-conditions:
        memory.unpack() equals f of what it was before.
        Padding that was zero is zero, -0.0 included; where f(0) != 0, all padding is zero.

    Raises:
        InvalidArguments: `memory` is no Memory, is read-only, or its elements overlap; or `f` gives another shape or
            type, or is not elementwise.

    >>> from inlay.memory import pack
    >>> memory = pack(np.zeros(3, np.float32), "A4a")
    >>> map_padded(np.cos, memory)
    >>> memory.buffer.view(np.float32).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    require_memory(memory)
    desc, buffer = memory.desc, memory.buffer
    layout, data_type = desc.require_layout("map_padded")
    if not memory.is_writable:
        raise InvalidArguments("map_padded writes to a memory that is read-only: give it a writable buffer")
    if layout.overlaps:
        raise InvalidArguments(
            f"elements of {desc!r} overlap, so f would be applied twice to some: reorder to a dense format first"
        )
    keeps = preserves_padding(f, data_type)
    for box in boxes(desc, (0,) * desc.ndims, desc.padded_dims if keeps else desc.dims):
        for even in even_boxes(box) if data_type.is_sub_byte else (box,):
            _map_box(f, even, memory)
    if not keeps:
        zero_lanes(desc, buffer)


def _map_box(f: Elementwise, box: Box, memory: Memory) -> None:
    _, data_type = memory.desc.require_layout("map_padded")
    view, shift = lanes(box, memory.buffer, data_type)
    for part in _parts(view):
        if not data_type.is_sub_byte:
            values = part.view(data_type.dtype)
            values[...] = applied(f, values)
            continue
        codes = encoded(applied(f, decoded(part >> np.uint8(shift) & 15, data_type)), data_type)
        part[...] = part & np.uint8(0xF0 >> shift) | codes.reshape(part.shape) << np.uint8(shift)


def _parts(view: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """`view` in parts of at most `_AT_ONCE` elements, halved along the axis of the longest steps."""
    if view.size <= _AT_ONCE:
        yield view
        return
    axis = max((i for i, n in enumerate(view.shape) if n > 1), key=lambda i: abs(view.strides[i]))
    middle = view.shape[axis] // 2
    front, back = np.split(view, [middle], axis)
    yield from _parts(front)
    yield from _parts(back)
