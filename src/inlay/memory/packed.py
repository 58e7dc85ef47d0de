"""The packed encoding: the elements of a blocked tensor in memory order, without the zeros.

    blocks of 4     . 1 . 2   . . . .   1 2 . 3
    values          1 2 1 2 3
    block offsets   0 2 2                 how many values come before each block
    bitmask         1010 0000 1011        bit i of the tensor: whether element i is stored

A tensor is packed by a reorder to the blocked format of the tag, and unpacked by one back; in between only zeros are
left out or put in. As in oneDNN, and unlike in CSR and COO, -0.0 is a zero.

Source: oneDNN, `sparse_desc_t::packed_desc` and `simple_sparse_reorder_impl_t`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import packed_layout
from inlay.errors import InvalidArguments
from inlay.memory.buffers import Bytes, address_of, allocate
from inlay.memory.entries import Entries, dense_codes, entries_of_codes
from inlay.memory.handles import codes_in, positions_in
from inlay.memory.moves import described, find_reorder


def read_packed(desc: MemoryDesc, buffers: Sequence[Bytes]) -> Entries:
    """What packed buffers store, once offsets and bits have been checked.

    Raises:
        InvalidArguments: as `require_packed`, or an element of the padding is stored.
        OutOfMemory: there is no room for the dense tensor.
    """
    require_packed(desc, buffers)
    codes = codes_in(desc, buffers)
    if 0 in desc.dims:
        return Entries(desc.dims, _data_type(desc), codes, np.zeros(0, np.int64))
    blocked, carrier = _blocked(desc)
    whole = allocate(blocked.size).view(codes.dtype)
    whole.fill(0)
    stored = np.flatnonzero(np.unpackbits(_bits(desc, buffers), bitorder="little"))
    whole[stored] = codes[: stored.size]
    rows = described(desc.dims, carrier, None)
    dense = allocate(rows.size)
    find_reorder(blocked, rows).run(address_of(whole), address_of(dense))
    entries = entries_of_codes(desc.dims, _data_type(desc), dense.view(codes.dtype))
    if entries.count != np.count_nonzero(codes[: stored.size]):
        raise InvalidArguments(f"bitmask stores an element of the padding of {desc!r}, which is zero")
    return entries


def write_packed(entries: Entries, desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Write the entries that are not zero into packed buffers.

    Raises:
        InvalidArguments: there are more than `nnz`.
        OutOfMemory: there is no room for the dense tensor.
    """
    is_stored = entries.values.astype(np.float64) != 0
    kept = Entries(entries.dims, entries.data_type, entries.codes[is_stored], entries.places[is_stored])
    count = kept.count
    if count > desc.nnz:
        raise InvalidArguments(
            f"the source has {count} elements that are not zero, but {desc!r} has room for nnz {desc.nnz}: describe it "
            f"with nnz={count} or more"
        )
    if 0 in desc.dims:
        return
    blocked, carrier = _blocked(desc)
    dense = dense_codes(kept)
    whole = allocate(blocked.size)
    find_reorder(described(desc.dims, carrier, None), blocked).run(address_of(dense), address_of(whole))
    codes = whole.view(dense.dtype)
    stored = codes != 0
    codes_in(desc, buffers)[:count] = codes[stored]
    offsets, bits = positions_in(desc, buffers)
    bits[...] = np.packbits(stored, bitorder="little")
    offsets[...] = _offsets(stored.reshape(offsets.size, -1).sum(axis=1))


def require_packed(desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Refuse packed buffers that reach past the values: whoever reads trusts offsets and bits.

    Raises:
        InvalidArguments: more bits are set than `nnz`, or an offset is not the number of bits that are set before its
            block. The first such offset is named.
    """
    if 0 in desc.dims:
        return
    offsets, _ = positions_in(desc, buffers)
    words = _bits(desc, buffers).view(np.uint64)
    counts = np.bitwise_count(words).reshape(offsets.size, -1).sum(axis=1, dtype=np.int64)
    expected = _offsets(counts)
    if int(counts.sum()) > desc.nnz:
        raise InvalidArguments(f"bitmask stores {counts.sum()} elements, but nnz is {desc.nnz}")
    if (wrong := offsets != expected).any():
        i = int(np.argmax(wrong))
        raise InvalidArguments(
            f"block offsets[{i}] is {offsets[i]}: {expected[i]} elements are stored in the blocks before it"
        )


def _offsets(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """How many elements the blocks before each one store."""
    before: npt.NDArray[np.int64] = np.cumsum(counts, dtype=np.int64) - counts
    return before


def _bits(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[np.uint8]:
    """The bitmask as bytes at an address that is a multiple of 8."""
    bits: npt.NDArray[np.uint8] = positions_in(desc, buffers)[1]
    return bits if address_of(bits) % 8 == 0 else bits.copy()


def _data_type(desc: MemoryDesc) -> DataType:
    assert desc.data_type is not None
    return desc.data_type


@lru_cache(maxsize=512)
def _blocked(desc: MemoryDesc) -> tuple[MemoryDesc, DataType]:
    """The blocked tensor that is packed, with elements of whole bytes, and their type."""
    assert isinstance(desc.layout, kinds.Packed)
    carrier = _data_type(desc).moved_as
    return MemoryDesc.from_layout(packed_layout(desc.dims, desc.layout), carrier, dims=desc.dims), carrier
