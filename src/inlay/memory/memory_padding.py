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

from inlay.arguments import as_flag
from inlay.errors import InvalidArguments
from inlay.memory.buffers import POISON, decode_elements, encode_elements
from inlay.memory.memory import Memory, require_memory
from inlay.memory.padding import (
    DigitBox,
    Elementwise,
    PaddingReport,
    apply_elementwise,
    box_view,
    boxes,
    element_of,
    even_stride_boxes,
    fill_lanes,
    find_dirty,
    image_of,
    is_same_value,
    zero_lanes,
)
from inlay.memory.padding_contents import (
    UNDEFINED,
    ZERO,
    Filled,
    PaddingContents,
    count_lanes,
    element_bytes,
    filled_with,
    require_contents,
)

_CHUNK = 1 << 18
"""Maximum number of elements per call of a function, so that its result is in the cache when it is written back."""


def check_padding(memory: Memory, contents: PaddingContents = ZERO) -> PaddingReport:
    """Report whether all padding of `memory` holds `contents`, with the coordinates of the first lanes that do not.

    `check_padding(memory, memory.padding)` verifies what the memory states; undefined contents are those of any lane.
    Only padding is read, so the run time depends on the amount of padding and not on the size of the tensor.

    Raises:
        InvalidArguments: `memory` is no Memory, or `contents` are none, or a value that its type cannot hold.

    >>> from inlay.descriptor import MemoryDesc
    >>> memory = Memory(MemoryDesc((3,), "u8", "A4a"), np.array([1, 2, 3, 4], np.uint8))
    >>> print(check_padding(memory))
    1 of 1 padding lanes of MemoryDesc((3,), 'u8', 'A4a') are not zero:
        (3,)  beyond a >= 3  element 3  byte 3  holds 4 (04)
    """
    require_memory(memory)
    wanted = require_contents(contents)
    if isinstance(wanted, Filled):
        return find_dirty(memory.desc, memory.buffer, contents=wanted)
    return PaddingReport(memory.desc, count_lanes(memory.desc), 0, ())


def zero_padding(memory: Memory) -> None:
    """Write zeros into the padding of `memory`; data and gaps keep every bit.

    Post-condition: check_padding(memory).is_clean, and memory.padding == ZERO.

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
    memory.note_padding(ZERO)


def fill_padding(memory: Memory, value: object) -> None:
    """Write `value`, rounded to the type of `memory`, into its padding; data and gaps keep every bit.

    Post-condition: every lane of padding holds the value, and memory.padding is `Filled` with it.

    Raises:
        InvalidArguments: `memory` is no Memory, is read-only, or has padding and elements that overlap; or `value` is
            no number, or one that an integer type cannot hold.

    >>> from inlay.memory import pack
    >>> memory = pack(np.ones(3, np.float32), "A4a")
    >>> fill_padding(memory, -np.inf)
    >>> memory.buffer.view(np.float32).tolist(), str(memory.padding)
    ([1.0, 1.0, 1.0, -inf], '-inf')
    """
    require_memory(memory)
    _, data_type = memory.desc.require_layout("fill_padding")
    element = element_bytes(value, data_type)
    fill_lanes(memory.desc, memory.buffer, element, "fill_padding")
    memory.note_padding(filled_with(element, data_type))


def poison_padding(memory: Memory) -> None:
    """Write the poison 0xFF into every byte of the padding of `memory`, to find code that relies on its contents.

    Poison is NaN in every float type that has NaN, and not zero in all other types. The padding is then undefined:
    primitives that need zeros write them first, or refuse the memory.

    Raises:
        InvalidArguments: `memory` is no Memory, is read-only, or has padding and elements that overlap.

    >>> from inlay.memory import pack
    >>> memory = pack(np.ones(3, np.float32), "A4a")
    >>> poison_padding(memory)
    >>> memory.buffer.view(np.float32).tolist(), str(memory.padding)
    ([1.0, 1.0, 1.0, nan], 'undefined')
    """
    require_memory(memory)
    _, data_type = memory.desc.require_layout("poison_padding")
    poison = np.full(data_type.itemsize, POISON, np.uint8)
    fill_lanes(memory.desc, memory.buffer, poison, "poison_padding")
    memory.note_padding(UNDEFINED)


def require_zero_padding(memory: Memory, purpose: str) -> None:
    """Make sure that the padding of `memory` is zero, for `purpose`, which reads it.

    Nothing is read if the memory states that it is zero. Otherwise its padding is checked. Lanes that are not zero
    are overwritten with zeros, or refused if the memory is read-only.

    Post-condition: check_padding(memory).is_clean if memory.padding was a true statement.

    Raises:
        InvalidArguments: the memory is read-only, and a lane of its padding is not zero.
    """
    if memory.padding == ZERO:
        return
    report = find_dirty(memory.desc, memory.buffer)
    if not report.is_clean:
        if not memory.is_writable:
            raise InvalidArguments(
                f"{purpose} has padding that must be zero, and is read-only: copy it with m.copy(), and call "
                f"inlay.zero_padding\n{report}"
            )
        zero_lanes(memory.desc, memory.buffer)
    memory.note_padding(ZERO)


def map_padded(f: Elementwise, memory: Memory, *, include_padding: bool | None = None) -> None:
    """Apply an elementwise function to every element of `memory`, in place, and keep track of its padding.

    By default, `f` is applied to data and padding together, in memory order, if it preserves what the padding holds:
    relu preserves zero, exp does not. Otherwise it is applied to the data only, and zeros are written into the padding.
    With `include_padding=True`, it is always applied to both, and the padding then holds f of what it held: exp makes
    1 of zeros. With False, it is applied to the data only, and the padding keeps every bit.

    `f` takes arrays of the memory's type and of any shape, and returns arrays of the same shape and type. 4-bit types
    are passed as ml_dtypes arrays with one element in each byte. Gaps keep every bit. If the padding is undefined, `f`
    is applied to it if it preserves zero, and it stays undefined.

    Post-conditions:
        memory.unpack() equals f(memory.unpack() before the call).
        check_padding(memory, memory.padding).is_clean if it was before.

    Raises:
        InvalidArguments: `memory` is no Memory, is read-only, or its elements overlap; `f` returns another shape or
            type, or is not elementwise; or `include_padding` is no bool.

    >>> from inlay.memory import pack
    >>> memory = pack(np.zeros(3, np.float32), "A4a")
    >>> map_padded(np.cos, memory)
    >>> memory.buffer.view(np.float32).tolist(), str(memory.padding)
    ([1.0, 1.0, 1.0, 0.0], 'zero')
    >>> map_padded(np.exp, memory, include_padding=True)
    >>> str(memory.padding)
    '1.0'
    """
    require_memory(memory)
    is_asked = None if include_padding is None else as_flag("include_padding", include_padding)
    desc = memory.desc
    layout, data_type = desc.require_layout("map_padded")
    if not memory.is_writable:
        raise InvalidArguments("map_padded writes to a memory that is read-only: give it a writable buffer")
    if layout.overlaps:
        raise InvalidArguments(
            f"elements of {desc!r} overlap, so f would be applied twice to some: reorder to a dense format first"
        )
    held = memory.padding
    element = element_of(held if isinstance(held, Filled) else ZERO, data_type)
    image = image_of(f, element, data_type)
    includes_padding = is_same_value(element, image, data_type) if is_asked is None else is_asked
    for box in boxes(desc, (0,) * desc.ndims, desc.padded_dims if includes_padding else desc.dims):
        for part in even_stride_boxes(box) if data_type.is_sub_byte else (box,):
            _map_box(f, part, memory)
    if is_asked is None and not includes_padding:
        zero_lanes(desc, memory.buffer)
        memory.note_padding(ZERO)
    elif includes_padding and isinstance(held, Filled):
        memory.note_padding(filled_with(image, data_type))


def _map_box(f: Elementwise, box: DigitBox, memory: Memory) -> None:
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
