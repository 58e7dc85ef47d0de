"""What a descriptor answers in numbers: its size in bytes, the offsets of coordinates, the keys of equality and caches.

Size is oneDNN's, the bytes up to the end of the axis that reaches farthest, inner blocks included:

    (4, 6) strides (8, 1), f32    axis 0 reaches 4 * 8 = 32 elements: 128 bytes, the last gap included
    (2, 17, 5, 4) nChw8c, f32     axis 0 reaches 2 * 480: 3840 bytes, padding included

It says what to allocate for a fresh tensor, not what a view touches: `offset0` is left out, all-zero strides give 0 or
one block, and so does a box inside one block. What offsets really reach is `Layout.span`.

A layout counts elements from its own origin; a descriptor adds `offset0`, and bytes are elements times their width.
Where many coordinates are asked at once the answers are 64-bit integers, which wrap silently in NumPy and do not here.
"""

from collections.abc import Hashable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import kinds
from inlay.descriptor.described import Described, InnerBlocks, require_layout, strides
from inlay.descriptor.extras import Extras
from inlay.descriptor.sparsity import RUNTIME_SIZE, sparse_sizes
from inlay.descriptor.validation import LARGEST
from inlay.errors import Unimplemented
from inlay.layout import Layout


def bytes_of(elements: int, data_type: DataType) -> int:
    """Whole bytes that hold this many elements.

    >>> from inlay.data_type import as_data_type
    >>> bytes_of(5, as_data_type("s4")), bytes_of(5, as_data_type("bf16"))
    (3, 10)
    """
    return -(-elements * data_type.bits // 8)


def bytes_text(count: int) -> str:
    """A number of bytes as a reader takes it in, in powers of 1000.

    >>> bytes_text(640), bytes_text(5760)
    ('640 bytes', '5.8 kB')
    """
    if count < 1000:
        return "1 byte" if count == 1 else f"{count} bytes"
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}"


def size(desc: Described) -> int:
    """Bytes of a fresh buffer, oneDNN's measure: gaps and extras counted, `offset0` not; 2**63 if it is RUNTIME.

    The zero descriptor, `any`, and tensors with a dim of 0 have none. What the offsets reach is `layout.span`.
    """
    match desc.layout:
        case Layout():
            return layout_size(desc, desc.layout, desc.extras)
        case kinds.Opaque(nbytes=nbytes):
            return nbytes
        case kinds.HostScalar():
            assert desc.data_type is not None
            return desc.data_type.itemsize
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            return sizes(desc)[0]
        case kinds.Undefined() | kinds.Any():
            return 0


def layout_size(desc: Described, layout: Layout, extras: Extras) -> int:
    """The size in bytes of a tensor that `layout`, that of `desc`, places with `extras` behind it.

    A layout that oneDNN cannot say takes the bytes up to its last element, from its first if that lies below 0.
    """
    assert desc.data_type is not None
    if 0 in desc.dims:
        return 0
    if layout.has_runtime:
        return RUNTIME_SIZE
    if desc._blocks is None:
        low, high = layout.span
        nbytes = bytes_of(high - min(low, 0), desc.data_type)
    else:
        nbytes = bytes_of(_reach(layout, desc._blocks), desc.data_type)
    return extras.size_with(nbytes, layout.dims) if extras else nbytes


def _reach(layout: Layout, blocks: InnerBlocks) -> int:
    reach = 0
    for dim, axis in zip(layout.dims, layout.axes, strict=True):
        count = dim // axis.block
        reach = max(reach, count * axis.stride if count != 1 else 1)
    return prod([size for _, size in blocks]) if reach == 1 else reach


def sizes(desc: Described) -> tuple[int, ...]:
    """Bytes of each buffer: one for every kind but sparse, whose buffers are listed in `kinds`.

    A sparse tensor with a dim of 0 has only empty buffers, and values of 4 bits take a byte each. The sizes of the
    packed encoding are 0 until a primitive has chosen its tag.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc.csr((3, 4), "f32", 2).sizes, MemoryDesc((3, 4), "f32").sizes
    ((8, 8, 16), (48,))
    """
    return sparse_sizes(desc, desc.layout) if isinstance(desc.layout, kinds.Sparse) else (size(desc),)


def offset(desc: Described, coordinates: npt.ArrayLike) -> Any:
    """Elements from the start of the buffer to each coordinate, `offset0` included; padding has coordinates too.

    `coordinates` has shape (..., ndims): one coordinate gives an int, an array of them an int64 array.

    Raises:
        InvalidArguments: there is no layout, or a coordinate has the wrong length or lies outside `padded_dims`.
        Unimplemented: a dim or stride is RUNTIME, or an array was given and offsets exceed 64 bits.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((2, 16, 5, 4), "f32", "nhwc").offset((1, 2, 3, 1))
    530
    """
    return scaled(require_layout(desc, "offset")[0].offset(coordinates), desc.offset0, 1)


def byte_offset(desc: Described, coordinates: npt.ArrayLike) -> Any:
    """The byte of the buffer in which each element starts; 4-bit elements of even offset are in its low half.

    Raises:
        InvalidArguments, Unimplemented: as `offset`.

    >>> from inlay.descriptor import MemoryDesc
    >>> MemoryDesc((4, 6), "s4", "ab").byte_offset([(0, 0), (0, 1), (1, 1)])
    array([0, 0, 3])
    """
    layout, data_type = require_layout(desc, "byte_offset")
    nbytes = scaled(layout.offset(coordinates), desc.offset0, data_type.itemsize)
    return nbytes // 2 if data_type.is_sub_byte else nbytes


def scaled(offsets: Any, start: int, step: int) -> Any:
    """`start + offsets` times `step`: of an int exactly, of an int64 array where the results fit.

    Raises:
        Unimplemented: `offsets` is an array and a result exceeds 64 bits.

    >>> scaled(2, 1, 4), scaled(np.array([0, 2]), 1, 4)
    (12, array([ 4, 12]))
    """
    if isinstance(offsets, np.ndarray) and offsets.size:
        low, high = ((start + int(end)) * step for end in (offsets.min(), offsets.max()))
        if low < -LARGEST or high > LARGEST:
            raise Unimplemented(f"offsets {low}..{high} exceed 64 bits: ask one coordinate at a time")
    moved = offsets + start if start else offsets
    return moved if step == 1 else moved * step


def equality_key(desc: Described) -> tuple[object, ...]:
    """What two descriptors must share to be equal: all of the spelling, except strides of unpadded unit axes."""
    if not desc.dims or desc.data_type is None:
        return ()
    placement, code = desc.layout, desc.data_type.code or desc.data_type.name
    if not isinstance(placement, Layout):
        return (desc.dims, code, placement)
    strides = tuple(
        [
            None if dim == padded == 1 else axis.stride
            for dim, padded, axis in zip(desc.dims, placement.dims, placement.axes, strict=True)
        ]
    )
    digits = None if desc._blocks is not None else tuple(axis.inner for axis in placement.axes)
    key = (desc.dims, code, placement.dims, desc.offset0, desc._blocks, strides, digits)
    return (*key, desc.extras) if desc.extras else key


def exact_key(desc: Described) -> Hashable:
    """A key for caches of what depends on all strides: those of unpadded unit axes too, which equality ignores.

    Post-condition: descriptors with equal keys are equal and have the same strides.

    >>> from inlay.descriptor import MemoryDesc
    >>> first, last = (MemoryDesc((2, 1, 4, 4), "f32", tag) for tag in ("nchw", "nhwc"))
    >>> first == last, first.exact_key == last.exact_key
    (True, False)
    """
    return (desc, strides(desc)) if 1 in desc.dims and desc._blocks is not None else desc
