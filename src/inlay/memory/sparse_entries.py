"""The stored elements of sparse memory in a form that all encodings share: `Entries`, in row-major order.

Every encoding is read into this form and written from it. So there is a conversion between each pair of encodings, the
result of a conversion is in order even if its source is not, and buffers are validated in one place. A flat index is
the row-major index of an element; conversions are arithmetic on flat indices:

    . . 5 .     flat indices  2 8     rows     flat index // 4  ->  0 2     pointers: number of entries before each row
    . . . .     codes         5 7     columns  flat index % 4   ->  2 0
    7 . . .

An element of a dense tensor is stored if any of its bits is set. So -0.0 is stored, and every conversion is exact.
Stored zeros stay stored between encodings. Two entries for one element are an error and are never summed, because no
definition of their sum fits all data types.

The packed encoding has the elements of a blocked tensor in memory order, without the zeros:

    blocks of 4     . 1 . 2   . . . .   1 2 . 3
    values          1 2 1 2 3
    block offsets   0 2 2                 number of values before each block
    bitmask         0101 0000 1101        from bit 0 on; bit i is 1 if element i of the blocked tensor is stored

A tensor is packed by a reorder into the blocked format of the tag, after which the zeros are removed. It is unpacked by
the inverse steps. As in oneDNN, and unlike in CSR and COO, -0.0 counts as a zero.

A conversion with a sparse side reads the entries of the source, converts them to the type of the destination, and
writes them in the encoding of the destination. A dense destination is written by a reorder of a row-major copy, which
also writes zeros into its padding.

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
    buffer_handles,
    decode_elements,
    encode_elements,
    index_arrays,
    value_codes,
)
from inlay.memory.reorder_cache import cached_desc, find_reorder, logical_array
from inlay.reordering.reference import convert
from inlay.reordering.requirements import require_same_dims

Codes = npt.NDArray[Any]
"""Elements as unsigned integers with the same bits."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The stored elements of a tensor, in row-major order."""

    dims: Dims
    """Logical dims of the tensor."""
    data_type: DataType
    """Data type of the elements."""
    codes: Codes
    """Codes of the stored elements."""
    flat_indices: Positions
    """Row-major indices of the stored elements, strictly increasing."""

    @property
    def count(self) -> int:
        """Number of stored elements."""
        return self.flat_indices.size

    @property
    def values(self) -> npt.NDArray[Any]:
        """Stored elements as an array of their type."""
        return decode_elements(self.codes, self.data_type)


def nonzero_entries(dims: Dims, data_type: DataType, codes: Codes) -> Entries:
    """Return the elements of a dense row-major tensor that have a bit set.

    >>> from inlay.data_type import DATA_TYPES
    >>> nonzero_entries((2, 3), DATA_TYPES["u8"], np.array([0, 7, 0, 0, 0, 9], np.uint8)).flat_indices.tolist()
    [1, 5]
    """
    flat = codes.reshape(-1)
    flat_indices = np.flatnonzero(flat)
    return Entries(dims, data_type, flat[flat_indices], flat_indices)


def dense_codes(entries: Entries) -> Codes:
    """Return the codes of the whole tensor in row-major order, with 0 for elements that are not stored.

    Raises:
        OutOfMemory: the operating system cannot provide the bytes.
    """
    nbytes = prod(entries.dims) * entries.data_type.itemsize
    codes = allocate(nbytes).view(f"u{entries.data_type.itemsize}")
    # New memory holds poison if INLAY_POISON is 1.
    codes.fill(0)
    codes[entries.flat_indices] = entries.codes
    return codes.reshape(entries.dims)


def convert_entries(entries: Entries, data_type: DataType) -> Entries:
    """Return the entries with their elements converted to another type.

    Raises:
        Unimplemented: no conversion exists between the types.
    """
    if entries.data_type == data_type:
        return entries
    return Entries(entries.dims, data_type, convert(entries.codes, entries.data_type, data_type), entries.flat_indices)


# CSR and COO


def read_entries(desc: MemoryDesc, buffers: Sequence[Bytes], *, ordered: bool = False) -> Entries:
    """Validate the indices and pointers of CSR or COO buffers, and return the stored elements.

    Raises:
        InvalidArguments: pointers do not increase from 0 to nnz, a coordinate is outside `dims`, two entries are for
            the same element, or `ordered` is True and entries are not in row-major order. The message names the first
            such entry.
    """
    codes, positions = value_codes(desc, buffers), index_arrays(desc, buffers)
    data_type = desc.data_types[0]
    assert data_type is not None
    if data_type.is_sub_byte:
        codes = codes & 15
    if 0 in desc.dims:
        return Entries(desc.dims, data_type, codes, np.zeros(0, np.int64))
    if isinstance(desc.layout, kinds.CSR):
        coordinates = [_row_indices(positions[1], desc.nnz), positions[0]]
    else:
        coordinates = positions
    flat_indices = _flat_indices(desc.dims, coordinates)
    is_increasing = flat_indices[1:] > flat_indices[:-1]
    if is_increasing.all():
        return Entries(desc.dims, data_type, codes, flat_indices)
    if ordered:
        _refuse_order(desc.dims, flat_indices, int(np.argmin(is_increasing)))
    order = np.argsort(flat_indices, kind="stable")
    flat_indices = flat_indices[order]
    _require_distinct(desc.dims, flat_indices, order)
    return Entries(desc.dims, data_type, codes[order], flat_indices)


def is_ordered(desc: MemoryDesc, buffers: Sequence[Bytes]) -> bool:
    """Return True if CSR or COO buffers pass the checks of `read_entries` with `ordered`.

    This takes fewer passes over the buffers than `read_entries`, which also finds the first wrong entry.
    """
    positions = index_arrays(desc, buffers)
    if 0 in desc.dims:
        return True
    if isinstance(desc.layout, kinds.CSR):
        return _has_ordered_rows(desc.dims[1], desc.nnz, positions[0], positions[1])
    if not all(_is_within(along, n) for along, n in zip(positions, desc.dims, strict=True)):
        return False
    flat_indices = _flat_indices(desc.dims, positions)
    return bool((flat_indices[1:] > flat_indices[:-1]).all())


def _has_ordered_rows(columns: int, nnz: int, indices: npt.NDArray[Any], pointers: npt.NDArray[Any]) -> bool:
    """Return True if CSR pointers increase from 0 to nnz, and column indices are in range and increase in each row."""
    if pointers[0] != 0 or pointers[-1] != nnz or (pointers[1:] < pointers[:-1]).any():
        return False
    if not _is_within(indices, columns):
        return False
    decreases = indices[1:] <= indices[:-1]
    # An index may be smaller than the one before it where a new row starts.
    starts = pointers[(pointers > 0) & (pointers < nnz)].astype(np.int64)
    decreases[starts - 1] = False
    return not decreases.any()


def _is_within(coordinates: npt.NDArray[Any], dim: int) -> bool:
    """Return True if all coordinates along an axis are at least 0 and below its dim."""
    return not coordinates.size or bool(coordinates.min() >= 0 and coordinates.max() < dim)


def _row_indices(pointers: npt.NDArray[Any], nnz: int) -> Positions:
    """Validate CSR pointers, and return the row of each entry."""
    starts = pointers.astype(np.int64)
    if starts[0] != 0:
        raise InvalidArguments(f"pointers[0] is {starts[0]}: the first row starts at entry 0")
    # A comparison, since the difference of two arbitrary integers may overflow.
    decreases = starts[1:] < starts[:-1]
    if decreases.any():
        i = int(np.argmax(decreases)) + 1
        raise InvalidArguments(
            f"pointers[{i}] is {starts[i]}, less than pointers[{i - 1}], which is {starts[i - 1]}: "
            "each row starts where the one before it ends"
        )
    if starts[-1] != nnz:
        last = starts.size - 1
        raise InvalidArguments(f"pointers[{last}] is {starts[-1]}, but nnz is {nnz}: the last row ends with the values")
    return np.repeat(np.arange(starts.size - 1), np.diff(starts))


def _flat_indices(dims: Dims, coordinates: Sequence[npt.NDArray[Any]]) -> Positions:
    """Check that coordinates are in range, and return the row-major index of each entry."""
    flat_indices = np.zeros(coordinates[0].size, np.int64)
    for i, (dim, coordinate) in enumerate(zip(dims, coordinates, strict=True)):
        is_outside = (coordinate < 0) | (coordinate >= dim)
        if is_outside.any():
            k = int(np.argmax(is_outside))
            raise InvalidArguments(f"entry {k} has coordinate {coordinate[k]} along {axis_name(i)}: its dim is {dim}")
        flat_indices *= dim
        flat_indices += coordinate
    return flat_indices


def _require_distinct(dims: Dims, flat_indices: Positions, order: Positions) -> None:
    """Raise an error if two entries are for one element.

    `flat_indices` are sorted; `order` has the number of each entry in the buffers.
    """
    same = np.flatnonzero(flat_indices[1:] == flat_indices[:-1])
    if same.size:
        # Report the pair whose second entry is first in the buffers.
        i = same[np.argmin(order[same + 1])]
        _refuse_pair(dims, int(flat_indices[i]), int(order[i]), int(order[i + 1]))


def _refuse_pair(dims: Dims, flat_index: int, first: int, second: int) -> NoReturn:
    raise InvalidArguments(
        f"entries {first} and {second} are both for element {_coordinate(dims, flat_index)}: each is stored once; "
        "add them up first, as sum_duplicates() of SciPy and coalesce() of torch do"
    )


def _refuse_order(dims: Dims, flat_indices: Positions, k: int) -> NoReturn:
    """Raise the error for entry `k + 1`, which is for the same element as entry `k` or for one before it."""
    before, after = int(flat_indices[k]), int(flat_indices[k + 1])
    if before == after:
        _refuse_pair(dims, before, k, k + 1)
    raise InvalidArguments(
        f"entry {k + 1} is for element {_coordinate(dims, after)}, after one for {_coordinate(dims, before)}: entries "
        "are in row-major order; inlay.reorder(memory, memory.desc) sorts them"
    )


def _coordinate(dims: Dims, flat_index: int) -> Dims:
    """Return the coordinate of the element with this row-major index."""
    return tuple(int(x) for x in np.unravel_index(flat_index, dims))


def write_entries(entries: Entries, desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Write the entries into CSR or COO buffers, in row-major order.

    Raises:
        InvalidArguments: nnz of `desc` is not the number of entries, or a coordinate or pointer is too large for its
            type.
    """
    if entries.count != desc.nnz:
        raise InvalidArguments(
            f"the source stores {entries.count} elements, but {desc!r} has nnz {desc.nnz}: describe it with "
            f"nnz={entries.count}, or use inlay.to_{desc.sparse_encoding}, which counts them"
        )
    positions = index_arrays(desc, buffers)
    if 0 in desc.dims:
        return
    coordinates: list[Positions] = list(np.unravel_index(entries.flat_indices, desc.dims))
    if isinstance(desc.layout, kinds.CSR):
        row_ends = np.cumsum(np.bincount(coordinates[0], minlength=desc.dims[0]))
        coordinates = [coordinates[1], np.concatenate([[0], row_ends])]
    for handle, values in zip(buffer_handles(desc)[1:], coordinates, strict=True):
        if values.size and values.max() > handle.data_type.highest:
            raise InvalidArguments(
                f"{handle.name} reach {values.max()}, more than {handle.data_type} holds ({handle.data_type.highest}): "
                "describe it with a wider type"
            )
    for buffer, values in zip(positions, coordinates, strict=True):
        buffer[...] = values
    value_codes(desc, buffers)[...] = entries.codes


# The packed encoding


def read_packed(desc: MemoryDesc, buffers: Sequence[Bytes]) -> Entries:
    """Validate packed buffers, and return the stored elements.

    Raises:
        InvalidArguments: as `require_packed`, or an element of the padding is stored.
        OutOfMemory: the operating system cannot provide the bytes of the dense tensor.
    """
    require_packed(desc, buffers)
    codes = value_codes(desc, buffers)
    if 0 in desc.dims:
        return Entries(desc.dims, _data_type(desc), codes, np.zeros(0, np.int64))
    blocked, code_type = _blocked_desc(desc)
    whole = allocate(blocked.size).view(codes.dtype)
    whole.fill(0)
    stored = np.flatnonzero(np.unpackbits(_bits(desc, buffers), bitorder="little"))
    whole[stored] = codes[: stored.size]
    rows = cached_desc(desc.dims, code_type, None)
    dense = allocate(rows.size)
    find_reorder(blocked, rows).run(address_of(whole), address_of(dense))
    entries = nonzero_entries(desc.dims, _data_type(desc), dense.view(codes.dtype))
    if entries.count != np.count_nonzero(codes[: stored.size]):
        raise InvalidArguments(f"bitmask marks an element of the padding of {desc!r}: padding stores no elements")
    return entries


def write_packed(entries: Entries, desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Write the entries that are not zero into packed buffers.

    Raises:
        InvalidArguments: more than `nnz` entries are not zero.
        OutOfMemory: the operating system cannot provide the bytes of the dense tensor.
    """
    is_stored = entries.values.astype(np.float64) != 0
    nonzero = Entries(entries.dims, entries.data_type, entries.codes[is_stored], entries.flat_indices[is_stored])
    count = nonzero.count
    if count > desc.nnz:
        raise InvalidArguments(
            f"the source has {count} elements that are not zero, but {desc!r} has room for nnz {desc.nnz}: describe it "
            f"with nnz={count} or more"
        )
    if 0 in desc.dims:
        return
    blocked, code_type = _blocked_desc(desc)
    dense = dense_codes(nonzero)
    whole = allocate(blocked.size)
    find_reorder(cached_desc(desc.dims, code_type, None), blocked).run(address_of(dense), address_of(whole))
    codes = whole.view(dense.dtype)
    stored = codes != 0
    value_codes(desc, buffers)[:count] = codes[stored]
    offsets, bits = index_arrays(desc, buffers)
    bits[...] = np.packbits(stored, bitorder="little")
    offsets[...] = _exclusive_sums(stored.reshape(offsets.size, -1).sum(axis=1))


def require_packed(desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Validate the bitmask and block offsets of packed buffers, which kernels use as indices without a check.

    Raises:
        InvalidArguments: more than `nnz` bits are set, or an offset is not the number of set bits before its block. The
            message names the first such offset.
    """
    if 0 in desc.dims:
        return
    offsets, _ = index_arrays(desc, buffers)
    words = _bits(desc, buffers).view(np.uint64)
    counts = np.bitwise_count(words).reshape(offsets.size, -1).sum(axis=1, dtype=np.int64)
    expected = _exclusive_sums(counts)
    if int(counts.sum()) > desc.nnz:
        raise InvalidArguments(f"bitmask stores {counts.sum()} elements, but nnz is {desc.nnz}")
    if (wrong := offsets != expected).any():
        i = int(np.argmax(wrong))
        raise InvalidArguments(
            f"block offsets[{i}] is {offsets[i]}: {expected[i]} elements are stored in the blocks before it"
        )


def _exclusive_sums(counts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the exclusive prefix sums of `counts`: for each block, the number of elements stored before it."""
    before: npt.NDArray[np.int64] = np.cumsum(counts, dtype=np.int64) - counts
    return before


def _bits(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[np.uint8]:
    """Return the bitmask as bytes at an address that is a multiple of 8, copied if necessary."""
    bits: npt.NDArray[np.uint8] = index_arrays(desc, buffers)[1]
    return bits if address_of(bits) % 8 == 0 else bits.copy()


def _data_type(desc: MemoryDesc) -> DataType:
    assert desc.data_type is not None
    return desc.data_type


@lru_cache(maxsize=512)
def _blocked_desc(desc: MemoryDesc) -> tuple[MemoryDesc, DataType]:
    """Return the blocked descriptor with the layout of a packed one and elements of whole bytes, and their type."""
    assert isinstance(desc.layout, kinds.Packed)
    carrier = _data_type(desc).moved_as
    return MemoryDesc.from_layout(packed_layout(desc.dims, desc.layout), carrier, dims=desc.dims), carrier


# Conversions


def convert_sparse(
    src: MemoryDesc, src_buffers: Sequence[Bytes], dst: MemoryDesc, dst_buffers: Sequence[Bytes]
) -> None:
    """Convert the memory `src` into the memory `dst`, of which at least one is sparse.

    Raises:
        InvalidArguments: the dims differ; a dense side has no layout; elements of the destination overlap; indices of
            the source are wrong (see `read_sparse`); `nnz` of a CSR or COO destination is not the number of stored
            elements, or `nnz` of a packed one is smaller than the number of nonzero elements; or an index type of the
            destination is too narrow.
        Unimplemented: a packed encoding has no tag, or no conversion exists between the types.
        OutOfMemory: the operating system cannot provide the bytes of a row-major copy.
    """
    require_same_dims(src, dst)
    assert dst.data_type is not None
    entries = convert_entries(collect_entries(src, src_buffers), dst.data_type)
    if dst.kind == "sparse":
        write_sparse(entries, dst, dst_buffers)
    else:
        _write_dense(dense_codes(entries), dst, dst_buffers[0])


def read_sparse(desc: MemoryDesc, buffers: Sequence[Bytes], *, ordered: bool = False) -> Entries:
    """Validate sparse buffers, and return the stored elements.

    Raises:
        InvalidArguments: as `read_entries` and `read_packed`.
    """
    if isinstance(desc.layout, kinds.Packed):
        return read_packed(desc, buffers)
    return read_entries(desc, buffers, ordered=ordered)


def validate_sparse(desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Validate sparse buffers before a kernel reads them; buffers in row-major order are not sorted for this.

    Raises:
        InvalidArguments: as `read_sparse` with `ordered`.
    """
    if isinstance(desc.layout, kinds.Packed):
        require_packed(desc, buffers)
    elif not is_ordered(desc, buffers):
        read_entries(desc, buffers, ordered=True)


def write_sparse(entries: Entries, desc: MemoryDesc, buffers: Sequence[Bytes]) -> None:
    """Write the entries into sparse buffers.

    Raises:
        InvalidArguments: as `write_entries` and `write_packed`.
    """
    if isinstance(desc.layout, kinds.Packed):
        write_packed(entries, desc, buffers)
    else:
        write_entries(entries, desc, buffers)


def collect_entries(desc: MemoryDesc, buffers: Sequence[Bytes]) -> Entries:
    """Return the stored elements of sparse memory, or the elements of dense memory that have a bit set.

    Raises:
        InvalidArguments: as `read_sparse`.
    """
    if desc.kind == "sparse":
        return read_sparse(desc, buffers)
    _, data_type = desc.require_layout("reorder")
    return nonzero_entries(
        desc.dims, data_type, encode_elements(logical_array(desc, address_of(buffers[0])), data_type)
    )


def _write_dense(codes: Codes, dst: MemoryDesc, buffer: Bytes) -> None:
    """Reorder row-major codes of elements of the type of `dst` into dense memory."""
    _, data_type = dst.require_layout("reorder")
    carrier = data_type.widened
    if carrier != data_type:
        codes = decode_elements(codes, data_type).astype(carrier.dtype)
    find_reorder(cached_desc(dst.dims, carrier, None), dst).run(address_of(codes), address_of(buffer))


def unpack_sparse(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[Any]:
    """Return the elements of sparse memory as a new logical array.

    Raises:
        InvalidArguments: as `read_sparse`.
        OutOfMemory: the operating system cannot provide the bytes of the array.
    """
    entries = read_sparse(desc, buffers)
    return decode_elements(dense_codes(entries), entries.data_type)


def with_data_type(desc: MemoryDesc, data_type: DataType) -> MemoryDesc:
    """Return the sparse descriptor with another data type of the values.

    >>> from inlay.data_type import DATA_TYPES
    >>> with_data_type(MemoryDesc.coo((3, 4), "f32", 2, "s64"), DATA_TYPES["bf16"])
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
