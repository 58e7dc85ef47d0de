"""The order that the library chose for a packed sparse tensor, which no function of it tells.

A packed descriptor holds, behind the fields that queries answer, the strides and inner blocks of the blocked format
whose zeros are left out. They stand where a blocked descriptor has its own, three fields later:

    blocked    strides, number of blocks, sizes, axes
    packed     encoding, nnz, two types, then the same

Where the fields before are not found there, or the sizes of the buffers do not follow from what was read, the
structure is another one, and the descriptor is refused.

Source: oneDNN, `memory_desc_t`, `sparse_desc_t` and `memory_desc_wrapper::size`.
"""

from ctypes import byref, c_int, c_int64
from dataclasses import dataclass
from math import prod

from inlay import onednn_abi as abi
from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.handles import created, query
from inlay.engine.onednn.library import Library
from inlay.errors import InlayError, Unimplemented
from inlay.format_tag import tag_of
from inlay.layout import Axis, Digit, Dims, Layout

_NNZ_AT, _BLOCKED_AT, _COUNT_AT = 8, 24, 8 * abi.MAX_NDIMS


@dataclass(frozen=True, slots=True)
class _Places:
    """Bytes from the start of a blocked descriptor to its fields."""

    strides: int
    """To the strides, where those of other kinds begin."""
    blocks: int
    """To the sizes of the inner blocks."""
    axes: int
    """To their axes."""


def is_filled(library: Library, pointer: int) -> bool:
    """Whether a sparse descriptor is packed and the library has chosen an order for it."""
    if "memory_desc_create_with_packed_encoding" not in library.functions:
        return False
    encoding = c_int()
    if library.functions["memory_desc_query_v2"](pointer, abi.QUERY_ENCODING, 0, byref(encoding)):
        return False
    return encoding.value == abi.PACKED and bool(library.functions["memory_desc_get_size_v2"](pointer, 1))


def read_packed_desc(library: Library, pointer: int, dims: Dims, data_type: DataType) -> MemoryDesc:
    """The descriptor of these dims and type that a filled packed one says.

    Raises:
        Unimplemented: it is not found in the library's structure, or its order has no tag.
    """
    nnz = c_int64()
    library.require(
        library.functions["memory_desc_query_v2"](pointer, abi.QUERY_NNZ, 0, byref(nnz)), lambda: "query nnz"
    )
    places = _places(library)
    start = pointer + places.strides
    at = start + _BLOCKED_AT
    count = c_int.from_address(at + _COUNT_AT).value
    is_known = (
        c_int.from_address(start).value == abi.PACKED and c_int64.from_address(start + _NNZ_AT).value == nnz.value
    )
    if is_known and 0 < count <= abi.MAX_NDIMS:
        sizes, axes = (
            tuple(abi.DIMS.from_address(at + place - places.strides))[:count] for place in (places.blocks, places.axes)
        )
        padded = tuple(abi.DIMS.from_address(query(library, pointer, abi.QUERY_PADDED)))[: len(dims)]
        layout = _layout(padded, tuple(abi.DIMS.from_address(at))[: len(dims)], sizes, axes)
        tag = None if layout is None else tag_of(layout)
        if tag is not None:
            desc = _described(dims, data_type, nnz.value, str(tag))
            size_of = library.functions["memory_desc_get_size_v2"]
            if desc is not None and desc.sizes == tuple(int(size_of(pointer, i)) for i in range(3)):
                return desc
    raise Unimplemented(f"{library.name} chose a packed order of dims {dims} that is no format tag")


def _described(dims: Dims, data_type: DataType, nnz: int, tag: str) -> MemoryDesc | None:
    try:
        return MemoryDesc.packed(dims, data_type, nnz, tag)
    except InlayError:
        return None


def _places(library: Library) -> _Places:
    """The places of the fields, from the pointers that queries of a blocked descriptor answer."""
    some = created(library, "memory_desc_create_with_strides", "memory_desc", 1, abi.DIMS(2), abi.F32, abi.DIMS(1))
    return _Places(
        *(query(library, some.value, what) - some.value for what in (abi.QUERY_STRIDES, abi.QUERY_BLKS, abi.QUERY_IDXS))
    )


def _layout(padded: Dims, strides: Dims, sizes: Dims, axes: Dims) -> Layout | None:
    """The layout of these outer strides and inner blocks; None where there is none."""
    if min(*padded, *sizes) < 1 or not set(axes) <= set(range(len(padded))):
        return None
    inner: list[tuple[Digit, ...]] = [()] * len(padded)
    for i, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        inner[axis] = (*inner[axis], Digit(size, prod(sizes[i + 1 :])))
    try:
        return Layout(padded, tuple(map(Axis, strides, inner)))
    except InlayError:
        return None
