"""Elements of boxes by the coordinate map of their layout: a second way to read, for verification and comparison.

A conversion reads runs of bytes (`box_bytes`) and moves elements by generated code. What is read here shares neither.
For each coordinate, the digits of its layout give an offset; the elements at these offsets are gathered with NumPy:

    aB4b (6, 8), box [2:4, 3:6]      rows 2, 3 have the offsets 8, 12; columns 3, 4, 5 have 3, 24, 25
                                     elements 11, 32, 33 and 15, 36, 37

The part of the file between the least and the greatest offset is read at once. If the elements are few in it, the box
is halved first, so little is read that is not used. An element is represented by its **code**, the unsigned integer of
its bits.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.layout import Axis
from inlay.memory.buffers import Bytes
from inlay.reordering.reference import read_codes as read_memory_codes
from inlay.storage.box import Box
from inlay.storage.store import StoredTensor, StoreReader, raw_bytes

Codes: TypeAlias = npt.NDArray[Any]
"""Unsigned integers with the bits of elements; bytes of type `V16` for elements of 16 bytes."""
Offsets: TypeAlias = npt.NDArray[np.int64] | range
"""Offset of each coordinate along one axis, in elements; a range if the axis has one stride."""

_SPAN = 1 << 15
"""Number of elements that are read at once, however few of them are used."""
_WASTE = 4
"""Elements that are read for each one that is used, at most, beyond `_SPAN`."""
_PIECE = 1 << 20
"""Number of elements that are gathered at once, at most: their offsets take eight bytes each."""


def read_codes(reader: StoreReader, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Codes:
    """Return the codes of the elements of a box, in an array of its dims; a code of 4 bits takes one byte.

    `desc` describes the bytes of `tensor`. The box may contain padding, unless the tensor is stored in chunks.

    Raises:
        FileError: the store cannot be read.
    """
    if tensor.chunks is not None:
        memory = reader.read_box(tensor, desc, box)
        return read_memory_codes(memory.desc, memory.buffer)
    layout, data_type = desc.require_layout("a tensor")
    axes = zip(layout.axes, box.begin, box.end, strict=True)
    offsets = [_axis_offsets(axis, begin, end) for axis, begin, end in axes]
    codes: Codes = np.empty(box.dims, code_type(data_type))

    def read(begin: int, end: int) -> Bytes:
        """Return a range of bytes of the tensor; those beyond its end are zero."""
        inside = min(end, tensor.nbytes)
        if begin >= inside:
            return np.zeros(end - begin, np.uint8)
        data = reader.read_box(tensor, raw_bytes(tensor.nbytes), Box((begin,), (inside,))).buffer
        return data if inside == end else np.pad(data, (0, end - inside))

    if codes.size:
        _gather(read, offsets, desc.offset0, data_type.bits, codes)
    return codes


def code_type(data_type: DataType) -> np.dtype[Any]:
    """Return the NumPy type of the codes of a data type."""
    return np.dtype(f"u{data_type.itemsize}" if data_type.itemsize <= 8 else f"V{data_type.itemsize}")


def find_differences(first: Codes, second: Codes) -> npt.NDArray[np.bool_]:
    """Return True for each element whose codes differ; both arrays have the same shape and type."""
    differs: npt.NDArray[np.bool_]
    if first.dtype.kind != "V":
        differs = first != second
    else:
        parts = [np.ascontiguousarray(codes).view(np.uint8) for codes in (first, second)]
        differs = (parts[0] != parts[1]).reshape(*first.shape, first.itemsize).any(-1)
    return differs


def _axis_offsets(axis: Axis, begin: int, end: int) -> Offsets:
    """Return the distance in memory from coordinate 0 to each coordinate of a range of one axis, in elements.

    >>> from inlay.layout import Digit
    >>> _axis_offsets(Axis(24, (Digit(4, 1),)), 3, 6).tolist(), _axis_offsets(Axis(8), 2, 4)
    ([3, 24, 25], range(16, 32, 8))
    """
    if not axis.inner and axis.stride:
        return range(begin * axis.stride, end * axis.stride, axis.stride)
    rest, total = np.arange(begin, end), np.zeros(end - begin, np.int64)
    for digit in reversed(axis.inner):
        total += rest % digit.extent * digit.stride
        rest //= digit.extent
    return total + rest * axis.stride


def _bounds(along: Offsets) -> tuple[int, int]:
    """Return the least and the greatest offset."""
    if isinstance(along, range):
        return min(along[0], along[-1]), max(along[0], along[-1])
    return int(along.min()), int(along.max())


def _gather(read: Callable[[int, int], Bytes], offsets: Sequence[Offsets], start: int, bits: int, codes: Codes) -> None:
    """Fill `codes` with the elements whose offsets are `start` plus one entry of each of `offsets`."""
    for part in _split(offsets):
        chosen = [along[span] for along, span in zip(offsets, part, strict=True)]
        bounds = [_bounds(along) for along in chosen]
        low, high = (start + sum(ends) for ends in zip(*bounds, strict=True))
        first = low * bits // 8
        data = read(first, -(-(high + 1) * bits // 8))
        codes[part] = _pick(data, chosen, start - first * 8 // bits, bits, codes.dtype)


def _split(offsets: Sequence[Offsets]) -> Iterator[tuple[slice, ...]]:
    """Yield parts of a box, as an index, that are small and whose elements are near one another."""
    stack = [tuple(slice(0, len(along)) for along in offsets)]
    while stack:
        part = stack.pop()
        bounds = [_bounds(along[span]) for along, span in zip(offsets, part, strict=True)]
        reaches = [high - low for low, high in bounds]
        counts = [span.stop - span.start for span in part]
        count, reach = prod(counts), sum(reaches) + 1
        if count == 1 or (count <= _PIECE and reach <= max(_SPAN, _WASTE * count)):
            yield part
            continue
        axis = max(range(len(part)), key=lambda i: (counts[i] > 1, reaches[i], counts[i]))
        middle = part[axis].start + counts[axis] // 2
        for half in (slice(middle, part[axis].stop), slice(part[axis].start, middle)):
            stack.append((*part[:axis], half, *part[axis + 1 :]))


def _pick(data: Bytes, offsets: Sequence[Offsets], start: int, bits: int, dtype: np.dtype[Any]) -> Codes:
    """Return the codes at `start` plus sums of `offsets`, counted from the start of `data` in elements."""
    if bits != 4 and all(isinstance(along, range) for along in offsets):
        begin = start + sum(along[0] for along in offsets)
        strides = [along.step * dtype.itemsize for along in offsets if isinstance(along, range)]
        elements: Codes = as_strided(data.view(dtype)[begin:], [len(along) for along in offsets], strides)
        return elements
    total = np.full((), start, np.int64)
    for along in offsets:
        total = total[..., None] + np.asarray(along)
    if bits == 4:
        pairs = data[total >> 1]
        codes: Codes = np.where(total & 1, pairs >> 4, pairs & 15)
    else:
        codes = data.view(dtype)[total]
    return codes
