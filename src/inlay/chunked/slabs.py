"""Tensors converted slab by slab: a megabyte of the source is read, counted and reordered while in the cache.

A **slab** is a range of the outermost axis of the source, so its bytes are one range of the file. All slabs but the
last have equal descriptors, and one compiled reorder moves them. Where the axis is the outermost of the destination
too, each slab is a range of the result and nothing else is held; else the result is put together in memory.

    source, ab     slab 0 | slab 1 | slab 2            read one after the other into one buffer
    result, ba     every slab is a range of each row

Formats without such an axis, and elements of less than a byte, are one slab.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm, prod

import numpy as np

from inlay.chunked.loss import LossCounter
from inlay.chunked.store import Bytes, StoredTensor, StoreReader
from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import NO_EXTRAS
from inlay.layout import Layout
from inlay.memory import Memory, reorder
from inlay.memory.buffers import allocate

_SLAB = 1 << 20
"""Bytes of a slab, about: in the second-level cache while it is counted and reordered."""


@dataclass(frozen=True, slots=True)
class Slab:
    """A part of a tensor on both sides of a conversion."""

    src: MemoryDesc
    """What is read."""
    dst: MemoryDesc
    """What is written."""
    src_begin: int
    """The byte of the source at which its memory begins."""
    dst_begin: int
    """The byte of the result at which its memory begins."""

    @property
    def src_nbytes(self) -> int:
        """How many bytes are read."""
        return _reached(self.src)


def converted_pieces(
    reader: StoreReader, tensor: StoredTensor, src: MemoryDesc, dst: MemoryDesc, nbytes: int, counter: LossCounter
) -> Iterator[Bytes]:
    """The `nbytes` bytes of a tensor in the format `dst`, in order; `counter` is told all that is read.

    A piece may be overwritten by the next. Bytes that `dst` places nothing at are zero.

    Raises:
        FileError: the file cannot be read, or became shorter.
        OutOfMemory: there is no room.
    """
    slabs = cut_into_slabs(src, dst)
    if len(slabs) < 2:
        memory = Memory(src, reader.read(tensor))
        counter.add(memory)
        out = allocate(nbytes)
        reorder(memory, dst, out=Memory(dst, out))
        yield out
        return
    data = allocate(max(slab.src_nbytes for slab in slabs))
    is_ordered = _outermost_axis(dst) == _outermost_axis(src)
    out = allocate(max(_reached(slab.dst) for slab in slabs) if is_ordered else nbytes)
    for slab in slabs:
        part = data[: slab.src_nbytes]
        reader.read_part(tensor, slab.src_begin, part)
        memory = Memory(slab.src, part)
        counter.add(memory)
        reorder(memory, slab.dst, out=Memory(slab.dst, out if is_ordered else out[slab.dst_begin :]))
        if is_ordered:
            yield out[: _reached(slab.dst)]
    yield np.zeros(nbytes - _reached(dst), np.uint8) if is_ordered else out


def cut_into_slabs(src: MemoryDesc, dst: MemoryDesc) -> list[Slab]:
    """The slabs of a tensor in order, none where it is not to be cut.

    >>> wide = MemoryDesc((1 << 20, 8), "f32", "ab")
    >>> slabs = cut_into_slabs(wide, MemoryDesc((1 << 20, 8), "bf16", "ba"))
    >>> len(slabs), slabs[1].src, slabs[1].src_begin, slabs[1].dst_begin
    (32, MemoryDesc((32768, 8), 'f32', 'ab'), 1048576, 65536)
    """
    axis = _outermost_axis(src)
    if axis is None or not _has_whole_bytes(dst):
        return []
    src_axis, dst_axis = (desc.require_layout("a slab")[0].axes[axis] for desc in (src, dst))
    unit = lcm(src_axis.block, dst_axis.block)
    rows = max(_SLAB * src.dims[axis] // _reached(src) // unit, 1) * unit
    slabs = []
    for begin in range(0, src.dims[axis], rows):
        end = min(begin + rows, src.dims[axis])
        starts = (begin // one.block * one.stride * _itemsize(desc) for one, desc in ((src_axis, src), (dst_axis, dst)))
        slabs.append(Slab(_range_of(src, axis, begin, end), _range_of(dst, axis, begin, end), *starts))
    return slabs


def _outermost_axis(desc: MemoryDesc) -> int | None:
    """The axis whose ranges are ranges of the memory, which has no gap; None if there is none."""
    if not _has_whole_bytes(desc):
        return None
    layout, _ = desc.require_layout("a slab")
    count = prod(layout.dims)
    if not count or layout.span != (0, count):
        return None
    outermost = (i for i, n in enumerate(layout.dims) if layout.axes[i].stride * n == count * layout.axes[i].block)
    return next((i for i in outermost if layout.dims[i] > layout.axes[i].block), None)


def _has_whole_bytes(desc: MemoryDesc) -> bool:
    data_type = desc.data_type
    is_plain = desc.offset0 == 0 and desc.extras == NO_EXTRAS
    return is_plain and data_type is not None and not data_type.is_sub_byte


def _itemsize(desc: MemoryDesc) -> int:
    return desc.require_layout("a slab")[1].itemsize


def _reached(desc: MemoryDesc) -> int:
    """The bytes from the first element to the last."""
    return desc.require_layout("a slab")[0].span[1] * _itemsize(desc)


def _range_of(desc: MemoryDesc, axis: int, begin: int, end: int) -> MemoryDesc:
    """The descriptor of coordinates `begin` to `end` of an axis, of memory that begins there."""
    layout, data_type = desc.require_layout("a slab")
    block = layout.axes[axis].block
    stored = layout.dims[axis] - begin if end == desc.dims[axis] else -(-(end - begin) // block) * block
    dims, padded = list(desc.dims), list(layout.dims)
    dims[axis], padded[axis] = end - begin, stored
    return MemoryDesc.from_layout(Layout(tuple(padded), layout.axes), data_type, dims=tuple(dims))
