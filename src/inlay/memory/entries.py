"""Sparse tensors in one form: `Entries`, the stored elements in row-major order.

Every encoding is read into this form and written from it, so each pair of encodings has a conversion, a matrix that was
not in order is in order afterwards, and what is wrong in the buffers is found in one place. A place is the row-major
index of an element; all conversions are arithmetic on places:

    . . 5 .     places 2 8     rows     places // 4   ->  0 2     pointers: how many places lie before each row
    . . . .     codes  5 7     columns  places % 4    ->  2 0
    7 . . .

An element of a dense tensor is stored if any of its bits is set, so -0.0 is kept and each conversion is exact. Stored
zeros stay stored between encodings. Two entries for one element are refused, never summed: a sum has no meaning that
all data types share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.memory.buffers import Bytes, allocate
from inlay.memory.handles import Positions, codes_in, handles_of, positions_in
from inlay.memory.nibbles import decoded
from inlay.reordering.reference import convert
from inlay.views import axis_name

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
        is_sub_byte = self.data_type.is_sub_byte
        return decoded(self.codes, self.data_type) if is_sub_byte else self.codes.view(self.data_type.dtype)


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
