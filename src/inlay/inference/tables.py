"""Observations from tables of indices, and from one pair of a logical and a packed buffer.

A table is physical -> logical (`"physical"`: the element in each place) or logical -> physical (`"logical"`: the place
of each element). Elements are counted in row-major order.
"""

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.errors import InvalidArguments, shown
from inlay.inference.observation import Observation, coordinate_text, places_of
from inlay.inference.results import Diagnosis, Offsets
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import encode_elements, view_as_array, view_as_bytes
from inlay.memory.compound import CompoundMemory

TableKind: TypeAlias = Literal["physical", "logical"]
"""The index of a table: `physical` maps places to elements, `logical` maps elements to places."""

_MOST_PLACE = 1 << 48
_DEFAULT_DIRECTION = (
    "a table of as many places as elements is read as physical -> logical; table='logical' reads the inverse"
)

_COUNTED_FROM_1 = (
    "entries beyond the last element are read as places, after a header; subtract 1 from a table that counts from 1"
)


def observe_table(
    table: npt.NDArray[Any], dims: Dims, data_type: DataType, kind: TableKind | None, marker: int
) -> Observation:
    """Return what a table shows; if `kind` is None, shape, size and values decide which table it is.

    Raises:
        InvalidArguments: an entry is not an integer, or neither an index nor `marker`; or the size is not that of
            a table of `dims`.
    """
    if table.dtype.kind not in "iu" or not table.size:
        raise InvalidArguments(
            f"table holds {table.size} entries of {table.dtype}: give one integer for each place or element"
        )
    if table.dtype.kind == "u" and int(table.max()) > _MOST_PLACE:
        raise InvalidArguments(f"table entry {int(table.max())} is no index: give entries up to 2**48, or {marker}")
    count = int(np.prod(dims, dtype=np.int64))
    entries = table.astype(np.int64).reshape(-1)
    notes: tuple[str, ...] = ()
    if kind is None:
        kind, notes = _detect_kind(table, entries, dims, count, marker)
    if kind == "logical":
        return _observe_logical(entries, dims, data_type, count, notes)
    elements = np.where(entries == marker, -1, entries)
    wrong = np.flatnonzero((elements < -1) | (elements >= count) | ((elements == -1) & (entries != marker)))
    if wrong.size:
        raise InvalidArguments(
            f"table entry {wrong[0]} is {entries[wrong[0]]}: elements of dims {dims} are 0..{count - 1}, padding is "
            f"{marker}"
        )
    places, fault = places_of(elements, dims, count)
    return Observation(dims, data_type, places, elements < 0, False, fault, notes, elements)


def _detect_kind(
    table: npt.NDArray[Any], entries: Offsets, dims: Dims, count: int, marker: int
) -> tuple[TableKind, tuple[str, ...]]:
    """Return the kind of a table, and the note if both are possible."""
    if len(entries) != count or bool((entries == marker).any()):
        return "physical", ()
    if int(entries.max()) >= count:
        is_from_1 = int(entries.min()) == 1 and int(entries.max()) == count
        return "logical", (_COUNTED_FROM_1,) if is_from_1 else ()
    if len(dims) > 1 and table.shape == dims:
        return "logical", ()
    return "physical", (_DEFAULT_DIRECTION,)


def _observe_logical(
    entries: Offsets, dims: Dims, data_type: DataType, count: int, notes: tuple[str, ...]
) -> Observation:
    """Return what a table of the places of all elements shows."""
    if len(entries) != count:
        raise InvalidArguments(
            f"table has {len(entries)} entries, but dims {dims} have {count} elements: a logical -> physical table has "
            "one place for each"
        )
    wrong = np.flatnonzero((entries < 0) | (entries > _MOST_PLACE))
    if wrong.size:
        raise InvalidArguments(f"table entry {wrong[0]} is {entries[wrong[0]]}: places are 0 or more, below 2**48")
    return Observation(dims, data_type, entries, None, False, None, notes)


def find_overlap(observation: Observation) -> Diagnosis | None:
    """Return the fault if two elements have one place, or None.

    >>> from inlay.data_type import DataType
    >>> seen = Observation((3,), DataType("u8"), np.array([0, 4, 4]), None, False)
    >>> print(find_overlap(seen))
    1 place has more than one element: elements 1 at (1,) and 2 at (2,) are in place 4
    """
    places = observation.places
    order = np.argsort(places, kind="stable")
    known = order[places[order] >= 0]
    same = np.flatnonzero(np.diff(places[known]) == 0)
    if not same.size:
        return None
    first, second = int(known[same[0]]), int(known[same[0] + 1])
    count = len(np.unique(places[known[same]]))
    problem = (
        f"{count} place{'s have' if count > 1 else ' has'} more than one element: elements "
        f"{coordinate_text(first, observation.dims)} and {coordinate_text(second, observation.dims)} are in place "
        f"{places[first]}"
    )
    return Diagnosis("overlap", problem, (first, second))


def require_row_major(buffer: object, name: str) -> npt.NDArray[Any]:
    """Return a buffer as an array whose elements are in memory in the order of their indices; a memory gives its bytes.

    Raises:
        InvalidArguments: `buffer` has no memory, or its elements are in another order, so that it is ambiguous which of
            the two orders is that of the packed elements.
    """
    array = view_as_array(buffer.buffer if isinstance(buffer, (Memory, CompoundMemory)) else buffer, name)
    if not array.flags.c_contiguous:
        raise InvalidArguments(
            f"{name} of shape {array.shape} and byte strides {array.strides} is not row-major: give "
            "np.ascontiguousarray(array) for the order of its indices, or array.ravel('K') for the order in memory"
        )
    return array


def codes_of(buffer: object, data_type: DataType, name: str) -> npt.NDArray[Any]:
    """Return one unsigned code for each element of a buffer, in address order; two for a byte of 4-bit elements.

    Raises:
        InvalidArguments: `buffer` holds another type, is not row-major, or has a partial element.
    """
    array = require_row_major(buffer, name)
    if data_type.is_sub_byte and array.dtype == data_type.dtype:
        return encode_elements(array.reshape(-1), data_type)
    data = view_as_bytes(array, data_type, name)
    if data_type.is_sub_byte:
        return np.stack([data & 15, data >> 4], axis=1).reshape(-1)
    if data.size % data_type.itemsize:
        raise InvalidArguments(f"{name} has {data.size} bytes: elements of {data_type} have {data_type.itemsize}")
    return data.view(f"u{data_type.itemsize}")


def observe_pair(packed: object, logical: object, dims: Dims, data_type: DataType) -> Observation:
    """Return what one packed buffer shows of a logical array whose values are all different.

    Places with another value can be padding.

    Raises:
        InvalidArguments: `logical` is not of these dims and this type or has repeated values, or `packed` cannot be
            read as `data_type`.
        Unimplemented: elements have 128 bits.
    """
    codes = codes_of(packed, data_type, "packed buffer")
    values = logical_codes(logical, dims, data_type)
    order = np.argsort(values, kind="stable")
    repeated = np.flatnonzero(np.diff(values[order]) == 0)
    if repeated.size:
        first, second = int(order[repeated[0]]), int(order[repeated[0] + 1])
        raise InvalidArguments(
            f"elements {coordinate_text(first, dims)} and {coordinate_text(second, dims)} of logical are equal: one "
            "pair shows a layout only if all values differ; give the packer, or a table"
        )
    at = np.searchsorted(values[order], codes).clip(0, len(order) - 1)
    elements = np.where(values[order][at] == codes, order[at], -1).astype(np.int64)
    places, fault = places_of(elements, dims, len(values))
    foreign = np.flatnonzero((elements < 0) & (codes != 0))
    notes: tuple[str, ...] = ()
    if foreign.size:
        many = f"{len(foreign)} places hold" if len(foreign) > 1 else "1 place holds"
        notes = (f"{many} a value that is neither an element nor 0, the first is {foreign[0]}",)
    return Observation(dims, data_type, places, elements < 0, False, fault, notes, elements)


def logical_codes(logical: object, dims: Dims, data_type: DataType) -> npt.NDArray[Any]:
    """Return the code of each element of a logical array, in row-major order.

    Raises:
        InvalidArguments: it is no array, or has other dims or another type.
    """
    if not isinstance(logical, np.ndarray):
        raise InvalidArguments(f"logical is {shown(logical)}: give a NumPy array of dims {dims}")
    if logical.shape != dims:
        raise InvalidArguments(f"logical has shape {logical.shape}, not dims {dims}")
    is_code = logical.dtype == np.uint8 and data_type.itemsize == 1 and not data_type.is_sub_byte
    if logical.dtype != data_type.dtype and not is_code:
        raise InvalidArguments(
            f"logical holds {logical.dtype}, but the data type is {data_type}: give {data_type.dtype}, or the data "
            "type of the array"
        )
    return codes_of(np.ascontiguousarray(logical), data_type, "logical")
