"""Conversions with a sparse side: CSR, COO, packed and dense memory in any layout, each to each.

What a source stores is read as `Entries`, gets the type of the destination, and is written as the destination says. A
dense destination is made row-major first and then moved into its layout, so blocks and padding are as ever.
"""

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments
from inlay.memory.buffers import Bytes, address_of
from inlay.memory.entries import (
    Codes,
    Entries,
    converted,
    dense_codes,
    entries_of_codes,
    is_ordered,
    read_entries,
    write_entries,
)
from inlay.memory.moves import described, find_reorder, logical_array
from inlay.memory.nibbles import decoded, encoded
from inlay.memory.packed import read_packed, require_packed, write_packed
from inlay.reordering.problem import require_same_dims


def recode(src: MemoryDesc, src_buffers: Sequence[Bytes], dst: MemoryDesc, dst_buffers: Sequence[Bytes]) -> None:
    """Write what the source stores into the destination; at least one of them is sparse.

    Raises:
        InvalidArguments: the dims differ, a dense side has no layout, elements of the destination overlap, the source
            holds wrong positions (see `read_stored`), or a sparse destination is for another number of elements (packed
            ones: for fewer) or its indices are too narrow.
        Unimplemented: a packed encoding has no tag, or no conversion exists between the types.
        OutOfMemory: there is no room for a row-major copy on the way to dense memory.
    """
    require_same_dims(src, dst)
    assert dst.data_type is not None
    entries = converted(entries_in(src, src_buffers), dst.data_type)
    if dst.kind == "sparse":
        write_stored(entries, dst, dst_buffers)
    else:
        _write_dense(dense_codes(entries), dst, dst_buffers[0])


def read_stored(desc: MemoryDesc, buffers: Sequence[Bytes], *, ordered: bool = False) -> Entries:
    """What sparse buffers store, once everything that says where has been checked.

    Raises:
        InvalidArguments: as `read_entries` and `read_packed`.
    """
    if isinstance(desc.layout, kinds.Packed):
        return read_packed(desc, buffers)
    return read_entries(desc, buffers, ordered=ordered)


def require_stored(desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Refuse sparse buffers that a kernel must not be given; those that are in order are not sorted to find out.

    Raises:
        InvalidArguments: as `read_stored` with `ordered`.
    """
    if isinstance(desc.layout, kinds.Packed):
        require_packed(desc, buffers)
    elif not is_ordered(desc, buffers):
        read_entries(desc, buffers, ordered=True)


def write_stored(entries: Entries, desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Write the entries into sparse buffers.

    Raises:
        InvalidArguments: as `write_entries` and `write_packed`.
    """
    if isinstance(desc.layout, kinds.Packed):
        write_packed(entries, desc, buffers)
    else:
        write_entries(entries, desc, buffers)


def entries_in(desc: MemoryDesc, buffers: Sequence[Bytes]) -> Entries:
    """The stored elements of sparse memory, or the elements of dense memory that have a bit set.

    Raises:
        InvalidArguments: as `read_stored`.
    """
    if desc.kind == "sparse":
        return read_stored(desc, buffers)
    _, data_type = desc.require_layout("reorder")
    return entries_of_codes(desc.dims, data_type, _dense_codes_in(desc, buffers[0], data_type))


def _dense_codes_in(desc: MemoryDesc, buffer: Bytes, data_type: DataType) -> Codes:
    """The elements of dense memory as codes, row-major."""
    array = logical_array(desc, address_of(buffer))
    return encoded(array, data_type) if data_type.is_sub_byte else array.view(f"u{data_type.itemsize}")


def _write_dense(codes: Codes, dst: MemoryDesc, buffer: Bytes) -> None:
    _, data_type = dst.require_layout("reorder")
    carrier = data_type.widened
    if carrier != data_type:
        codes = decoded(codes, data_type).astype(carrier.dtype)
    find_reorder(described(dst.dims, carrier, None), dst).run(address_of(codes), address_of(buffer))


def dense_array(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[Any]:
    """What sparse memory stores, as a new logical array.

    Raises:
        InvalidArguments: as `read_stored`.
        OutOfMemory: there is no room for it.
    """
    entries = read_stored(desc, buffers)
    codes = dense_codes(entries)
    return decoded(codes, entries.data_type) if entries.data_type.is_sub_byte else codes.view(entries.data_type.dtype)


def retyped(desc: MemoryDesc, data_type: DataType) -> MemoryDesc:
    """The sparse descriptor with elements of another type.

    >>> from inlay.data_type import DATA_TYPES
    >>> retyped(MemoryDesc.coo((3, 4), "f32", 2, "s64"), DATA_TYPES["bf16"])
    MemoryDesc.coo((3, 4), 'bf16', 2, index_type='s64')
    """
    match desc.layout:
        case kinds.CSR(nnz, index_type, pointer_type):
            return MemoryDesc.csr(desc.dims, data_type, nnz, index_type, pointer_type)
        case kinds.COO(nnz, index_type):
            return MemoryDesc.coo(desc.dims, data_type, nnz, index_type)
        case kinds.Packed(nnz, tag):
            return MemoryDesc.packed(desc.dims, data_type, nnz, tag)
    raise InvalidArguments(f"{desc!r} is of kind {desc.kind}: only sparse memory is converted so")
