"""Padding lanes in a buffer: found where they are not zero, and made zero.

The bytes of each box of padding are one strided view. Whether all of it is zero is one reduction; only a box that is
not clean is looked at lane by lane.
"""

from math import prod

import numpy as np

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.padding.regions import Box, Bytes, Codes, even_boxes, lanes, padding_boxes
from inlay.padding.report import DirtyLane, PaddingReport

MOST_NAMED = 8
"""How many dirty lanes a report names, unless told otherwise."""


def value_bits(data_type: DataType) -> int:
    """The bits of a code, or of each half of 64 bits, that must be 0 for the value to be zero: all but a float's sign.

    >>> from inlay.data_type import DATA_TYPES
    >>> [hex(value_bits(DATA_TYPES[name])) for name in ("s8", "bf16", "e8m0")]
    ['0xff', '0x7fff', '0xff']
    """
    has_sign = data_type.kind == "float" and data_type.is_signed
    return (1 << min(data_type.bits, 64) - has_sign) - 1


def find_dirty(desc: MemoryDesc, buffer: Bytes, most: int = MOST_NAMED) -> PaddingReport:
    """What the padding of the tensor that `desc` describes in `buffer` holds; at most `most` dirty lanes are named.

    `buffer` holds bytes, in one dimension. Data and gaps are not read.

    Raises:
        InvalidArguments: `desc` has no layout, or `buffer` is smaller than what it reaches.
        Unimplemented: a dim or stride is RUNTIME.
    """
    layout, data_type = desc.require_layout("check_padding")
    count = 0
    first: list[DirtyLane] = []
    padded = layout.size - prod(desc.dims)
    for box in _boxes(desc, data_type) if padded else ():
        view, shift = lanes(box, buffer, data_type)
        mask = view.dtype.type(value_bits(data_type) << shift)
        if not np.bitwise_or.reduce(view, axis=None) & mask:
            continue
        dirty = ((view & mask) != 0).reshape(*box.shape, -1).any(axis=-1)
        count += int(np.count_nonzero(dirty))
        first += [_lane(box, index, view, shift, data_type) for index in _first_true(dirty, most)]
        first = sorted(first, key=lambda lane: lane.coordinate)[:most]
    return PaddingReport(desc, padded, count, tuple(first))


def _boxes(desc: MemoryDesc, data_type: DataType) -> list[Box]:
    """The padding, as `lanes` can view it."""
    found = padding_boxes(desc)
    return [half for box in found for half in even_boxes(box)] if data_type.is_sub_byte else list(found)


def _first_true(flags: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int) -> list[int]:
    """The row-major indices of the first `most` True entries."""
    flat = flags.reshape(-1)
    found: list[int] = []
    begin = 0
    while len(found) < most and begin < flat.size:
        # argmax stops at the first True, where flatnonzero would list all of them.
        begin += int(flat[begin:].argmax())
        if not flat[begin]:
            break
        found.append(begin)
        begin += 1
    return found


def _lane(box: Box, index: int, view: Codes, shift: int, data_type: DataType) -> DirtyLane:
    coordinate, offset = box.place(index)
    code = view[np.unravel_index(index, box.shape)]
    held = bytes([int(code) >> shift & 15]) if data_type.is_sub_byte else code.tobytes()
    return DirtyLane(coordinate, offset, offset * data_type.bits // 8, held)


def zero_lanes(desc: MemoryDesc, buffer: Bytes) -> None:
    """Write zeros into the padding of the tensor that `desc` describes in `buffer`, and into nothing else.

    Post-conditions:
        find_dirty(desc, buffer).is_clean, and every lane of padding has the code 0.
        Every other bit of `buffer` is unchanged.

    Raises:
        InvalidArguments: `desc` has no layout or its elements overlap, so that padding may lie on data; `buffer` is
            read-only, or smaller than what `desc` reaches.
        Unimplemented: a dim or stride is RUNTIME.
    """
    layout, data_type = desc.require_layout("zero_padding")
    if not buffer.flags.writeable:
        raise InvalidArguments("zero_padding writes to a memory that is read-only: give it a writable buffer")
    if layout.size == prod(desc.dims):
        return
    if layout.overlaps:
        raise InvalidArguments(
            f"elements of {desc!r} overlap, so its padding may lie on its data: give every element an offset of its own"
        )
    for box in _boxes(desc, data_type):
        view, shift = lanes(box, buffer, data_type)
        if data_type.is_sub_byte:
            view &= np.uint8(0xF0 >> shift)
        else:
            view[...] = 0
