"""What sparse memory stores, in one form: `Entries`, the stored elements in row-major order.

Every encoding is read into this form and written from it, so each pair of encodings has a conversion, a matrix that was
not in order is in order afterwards, and what is wrong in the buffers is found in one place. A place is the row-major
index of an element; all conversions are arithmetic on places:

    . . 5 .     places 2 8     rows     places // 4   ->  0 2     pointers: how many places lie before each row
    . . . .     codes  5 7     columns  places % 4    ->  2 0
    7 . . .

An element of a dense tensor is stored if any of its bits is set, so -0.0 is kept and each conversion is exact. Stored
zeros stay stored between encodings. Two entries for one element are refused, never summed: a sum has no meaning that
all data types share.

The packed encoding has the elements of a blocked tensor in memory order, without the zeros:

    blocks of 4     . 1 . 2   . . . .   1 2 . 3
    values          1 2 1 2 3
    block offsets   0 2 2                 how many values come before each block
    bitmask         1010 0000 1011        bit i of the tensor: whether element i is stored

A tensor is packed by a reorder to the blocked format of the tag, and unpacked by one back; in between only zeros are
left out or put in. As in oneDNN, and unlike in CSR and COO, -0.0 is a zero.

A conversion with a sparse side reads what the source stores, gives it the type of the destination, and writes it as the
destination says. A dense destination is made row-major first and then moved into its layout, so blocks and padding are
as ever.

Source: oneDNN, `sparse_desc_t::packed_desc` and `simple_sparse_reorder_impl_t`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import packed_layout
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.layout.views import axis_name
from inlay.memory.buffers import (
    Bytes,
    Positions,
    address_of,
    allocate,
    codes_in,
    decoded,
    encoded,
    handles_of,
    positions_in,
)
from inlay.memory.moves import described, find_reorder, logical_array
from inlay.reordering.problem import require_same_dims
from inlay.reordering.reference import convert

Codes = npt.NDArray[Any]
"""Elements as the unsigned integers of their bits."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The stored elements of a tensor."""

    dims: Dims
    """Of the tensor."""
    data_type: DataType
    """Of its elements."""
    codes: Codes
    """The bits of each stored element."""
    places: Positions
    """The row-major index of each, strictly rising."""

    @property
    def count(self) -> int:
        """How many elements are stored."""
        return self.places.size

    @property
    def values(self) -> npt.NDArray[Any]:
        """The stored elements as an array of their type."""
        return decoded(self.codes, self.data_type)


def entries_of_codes(dims: Dims, data_type: DataType, codes: Codes) -> Entries:
    """The elements of a dense row-major tensor that have a bit set.

    >>> from inlay.data_type import DATA_TYPES
    >>> entries_of_codes((2, 3), DATA_TYPES["u8"], np.array([0, 7, 0, 0, 0, 9], np.uint8)).places.tolist()
    [1, 5]
    """
    flat = codes.reshape(-1)
    places = np.flatnonzero(flat)
    return Entries(dims, data_type, flat[places], places)


def dense_codes(entries: Entries) -> Codes:
    """The whole tensor in row-major order, with zeros where nothing is stored.

    Raises:
        OutOfMemory: there is no room for it.
    """
    nbytes = prod(entries.dims) * entries.data_type.itemsize
    codes = allocate(nbytes).view(f"u{entries.data_type.itemsize}")
    # New memory may be poison.
    codes.fill(0)
    codes[entries.places] = entries.codes
    return codes.reshape(entries.dims)


def converted(entries: Entries, data_type: DataType) -> Entries:
    """The same places with the elements in another type.

    Raises:
        Unimplemented: no conversion exists between the types.
    """
    if entries.data_type == data_type:
        return entries
    return Entries(entries.dims, data_type, convert(entries.codes, entries.data_type, data_type), entries.places)


# CSR and COO


def read_entries(desc: MemoryDesc, buffers: Sequence[Bytes], *, ordered: bool = False) -> Entries:
    """What CSR or COO buffers store, once everything that says where has been checked.

    Raises:
        InvalidArguments: pointers do not rise from 0 to nnz, a coordinate is outside `dims`, two entries are for the
            same element, or, where `ordered`, entries are not in row-major order. The first such entry is named.
    """
    codes, positions = codes_in(desc, buffers), positions_in(desc, buffers)
    data_type = desc.data_types[0]
    assert data_type is not None
    if data_type.is_sub_byte:
        codes = codes & 15
    if 0 in desc.dims:
        return Entries(desc.dims, data_type, codes, np.zeros(0, np.int64))
    if isinstance(desc.layout, kinds.CSR):
        coordinates = [_rows(positions[1], desc.nnz), positions[0]]
    else:
        coordinates = positions
    places = _places(desc.dims, coordinates)
    rising = places[1:] > places[:-1]
    if rising.all():
        return Entries(desc.dims, data_type, codes, places)
    if ordered:
        _refuse_order(desc.dims, places, int(np.argmin(rising)))
    order = np.argsort(places, kind="stable")
    places = places[order]
    _require_distinct(desc.dims, places, order)
    return Entries(desc.dims, data_type, codes[order], places)


def is_ordered(desc: MemoryDesc, buffers: Sequence[Bytes]) -> bool:
    """Whether CSR or COO buffers have nothing that `read_entries` with `ordered` refuses, found in few passes."""
    positions = positions_in(desc, buffers)
    if 0 in desc.dims:
        return True
    if isinstance(desc.layout, kinds.CSR):
        return _has_ordered_rows(desc.dims[1], desc.nnz, positions[0], positions[1])
    if not all(_is_within(along, n) for along, n in zip(positions, desc.dims, strict=True)):
        return False
    places = _places(desc.dims, positions)
    return bool((places[1:] > places[:-1]).all())


def _has_ordered_rows(columns: int, nnz: int, indices: npt.NDArray[Any], pointers: npt.NDArray[Any]) -> bool:
    """Whether rows start one after the other, and the indices of each rise and are columns."""
    if pointers[0] != 0 or pointers[-1] != nnz or (pointers[1:] < pointers[:-1]).any():
        return False
    if not _is_within(indices, columns):
        return False
    falls = indices[1:] <= indices[:-1]
    # They may fall from one row to the next only.
    starts = pointers[(pointers > 0) & (pointers < nnz)].astype(np.int64)
    falls[starts - 1] = False
    return not falls.any()


def _is_within(along: npt.NDArray[Any], n: int) -> bool:
    return not along.size or bool(along.min() >= 0 and along.max() < n)


def _rows(pointers: npt.NDArray[Any], nnz: int) -> Positions:
    """The row of each entry."""
    starts = pointers.astype(np.int64)
    if starts[0] != 0:
        raise InvalidArguments(f"pointers[0] is {starts[0]}: the first row starts at entry 0")
    # Compared, not subtracted: a difference of arbitrary integers can wrap.
    falls = starts[1:] < starts[:-1]
    if falls.any():
        i = int(np.argmax(falls)) + 1
        raise InvalidArguments(
            f"pointers[{i}] is {starts[i]}, less than pointers[{i - 1}], which is {starts[i - 1]}: "
            "each row starts where the one before it ends"
        )
    if starts[-1] != nnz:
        last = starts.size - 1
        raise InvalidArguments(f"pointers[{last}] is {starts[-1]}, but nnz is {nnz}: the last row ends with the values")
    return np.repeat(np.arange(starts.size - 1), np.diff(starts))


def _places(dims: Dims, coordinates: Sequence[npt.NDArray[Any]]) -> Positions:
    """The row-major index of each entry."""
    places = np.zeros(coordinates[0].size, np.int64)
    for i, (n, along) in enumerate(zip(dims, coordinates, strict=True)):
        outside = (along < 0) | (along >= n)
        if outside.any():
            k = int(np.argmax(outside))
            raise InvalidArguments(f"entry {k} has coordinate {along[k]} along {axis_name(i)}: its dim is {n}")
        places *= n
        places += along
    return places


def _require_distinct(dims: Dims, places: Positions, order: Positions) -> None:
    same = np.flatnonzero(places[1:] == places[:-1])
    if same.size:
        # The pair whose second entry comes first in memory, as a reader from the front would find it.
        i = same[np.argmin(order[same + 1])]
        _refuse_pair(dims, int(places[i]), int(order[i]), int(order[i + 1]))


def _refuse_pair(dims: Dims, place: int, first: int, second: int) -> NoReturn:
    raise InvalidArguments(
        f"entries {first} and {second} are both for element {_coordinate(dims, place)}: each is stored once; "
        "add them up first, as sum_duplicates() of SciPy and coalesce() of torch do"
    )


def _refuse_order(dims: Dims, places: Positions, k: int) -> NoReturn:
    before, after = int(places[k]), int(places[k + 1])
    if before == after:
        _refuse_pair(dims, before, k, k + 1)
    raise InvalidArguments(
        f"entry {k + 1} is for element {_coordinate(dims, after)}, after one for {_coordinate(dims, before)}: entries "
        "are in row-major order; inlay.reorder(memory, memory.desc) sorts them"
    )


def _coordinate(dims: Dims, place: int) -> Dims:
    return tuple(int(x) for x in np.unravel_index(place, dims))


def write_entries(entries: Entries, desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Write the entries into CSR or COO buffers, in row-major order.

    Raises:
        InvalidArguments: `desc` is for another number of entries, or a coordinate or pointer does not fit its type.
    """
    if entries.count != desc.nnz:
        raise InvalidArguments(
            f"the source stores {entries.count} elements, but {desc!r} has nnz {desc.nnz}: describe it with "
            f"nnz={entries.count}, or use inlay.to_{desc.sparse_encoding}, which counts them"
        )
    positions = positions_in(desc, buffers)
    if 0 in desc.dims:
        return
    coordinates: list[Positions] = list(np.unravel_index(entries.places, desc.dims))
    if isinstance(desc.layout, kinds.CSR):
        row_ends = np.cumsum(np.bincount(coordinates[0], minlength=desc.dims[0]))
        coordinates = [coordinates[1], np.concatenate([[0], row_ends])]
    for handle, found in zip(handles_of(desc)[1:], coordinates, strict=True):
        if found.size and found.max() > handle.data_type.highest:
            raise InvalidArguments(
                f"{handle.name} reach {found.max()}, more than {handle.data_type} holds ({handle.data_type.highest}): "
                "describe it with a wider type"
            )
    for held, found in zip(positions, coordinates, strict=True):
        held[...] = found
    codes_in(desc, buffers)[...] = entries.codes


# The packed encoding


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


# Conversions, and what they read and write


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
    return entries_of_codes(desc.dims, data_type, encoded(logical_array(desc, address_of(buffers[0])), data_type))


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
    return decoded(dense_codes(entries), entries.data_type)


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
