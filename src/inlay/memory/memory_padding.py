"""Padding of a `Memory`: check it, write zeros into it, and apply functions that leave it zero.

Custom code that runs over all bytes of a memory in a blocked format changes the padding too. oneDNN's developer guide
("Understanding Memory Formats") warns of this loop:

    for (int e = 0; e < phys_size; ++e)
        x[e] = eltwise_op(x[e])

17 channels in blocks of 8 have 7 lanes of padding. If eltwise_op is exp, they become 1, and the next convolution adds
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

`map_padded` first evaluates the function at zero, and leaves the padding out if the result is not zero:

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
from inlay.memory.buffers import decode_elements, encode_elements
from inlay.memory.memory import Memory, require_memory
from inlay.memory.padding import (
    Box,
    Elementwise,
    PaddingReport,
    apply_elementwise,
    box_view,
    boxes,
    even_stride_boxes,
    find_dirty,
    preserves_padding,
    zero_lanes,
)

_CHUNK = 1 << 18
"""Maximum number of elements per call of a function, so that its result is in the cache when it is written back."""


def check_padding(memory: Memory) -> PaddingReport:
    """Report whether all padding of `memory` is zero, with the coordinates of the first lanes that are not.

    Only padding is read, so the run time depends on the amount of padding and not on the size of the tensor.

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

    If f(0) == 0, `f` is applied to data and padding together, in memory order. Otherwise it is applied to the data
    only, and zeros are written into the padding. `f` takes arrays of the memory's type and of any shape, and returns
    arrays of the same shape and type. 4-bit types are passed as ml_dtypes arrays with one element in each byte. Gaps
    keep every bit.

    Post-conditions:
        memory.unpack() equals f(memory.unpack() before the call).
        Padding that was zero is zero, -0.0 included; where f(0) != 0, all padding is zero.

    Raises:
        InvalidArguments: `memory` is no Memory, is read-only, or its elements overlap; or `f` returns another shape or
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
    includes_padding = preserves_padding(f, data_type)
    for box in boxes(desc, (0,) * desc.ndims, desc.padded_dims if includes_padding else desc.dims):
        for part in even_stride_boxes(box) if data_type.is_sub_byte else (box,):
            _map_box(f, part, memory)
    if not includes_padding:
        zero_lanes(desc, buffer)


def _map_box(f: Elementwise, box: Box, memory: Memory) -> None:
    """Apply `f` to the elements of one box of coordinates, in place."""
    _, data_type = memory.desc.require_layout("map_padded")
    view, shift = box_view(box, memory.buffer, data_type)
    for part in _split_view(view):
        if not data_type.is_sub_byte:
            values = part.view(data_type.dtype)
            values[...] = apply_elementwise(f, values)
            continue
        codes = encode_elements(
            apply_elementwise(f, decode_elements(part >> np.uint8(shift) & 15, data_type)), data_type
        )
        other_half = part & np.uint8(0xF0 >> shift)
        part[...] = other_half | codes.reshape(part.shape) << np.uint8(shift)


def _split_view(view: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Split `view` into parts of at most `_CHUNK` elements, by halving the axis with the largest stride."""
    if view.size <= _CHUNK:
        yield view
        return
    axis = max((i for i, n in enumerate(view.shape) if n > 1), key=lambda i: abs(view.strides[i]))
    middle = view.shape[axis] // 2
    front, back = np.split(view, [middle], axis)
    yield from _split_view(front)
    yield from _split_view(back)
