"""Basic indexing of a descriptor: integers remove an axis, slices keep a range of it.

An integer adds the offset of its coordinate to `offset0`, in every layout. A slice is the box that
`MemoryDesc.submemory` describes: any range of a plain axis, whole blocks or part of one block of a blocked axis. Steps,
arrays of indices, masks and new axes have no descriptor in general; they are for the array that `unpack` returns.

>>> desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
>>> index_view(desc, (1, slice(8, None))).dims, index_view(desc, (1, 16, 4, 3)).ndims
((9, 5, 4), 0)
"""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.fields import addressed_layout
from inlay.descriptor.validation import as_integers
from inlay.errors import InvalidArguments, InvalidIndex, Unimplemented, shown
from inlay.layout import Layout
from inlay.memory.buffers import Bytes, decode_elements

_REMEDY = "m.unpack() copies the elements into an array that NumPy indexes"


def _complete_key(desc: MemoryDesc, key: object) -> list[Any]:
    """Return one integer or slice for each axis; an ellipsis and missing entries become whole axes.

    Raises:
        InvalidIndex: there are more entries than axes, or several ellipses.
    """
    entries: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    ellipses = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    named = len(entries) - len(ellipses)
    if named > desc.ndims or len(ellipses) > 1:
        problem = "several ellipses" if len(ellipses) > 1 else f"{named} entries"
        raise InvalidIndex(f"index {shown(key)} has {problem}: the memory has {desc.ndims} axes")
    at = ellipses[0] if ellipses else named
    whole = [slice(None)] * (desc.ndims - named)
    return [*entries[:at], *whole, *entries[at + len(ellipses) :]]


def _as_coordinate(entry: object, axis: int, dim: int) -> int:
    """Return an integer entry as a coordinate of 0 or more.

    Raises:
        InvalidIndex: it is no integer, or outside the axis.
    """
    try:
        if isinstance(entry, (bool, np.bool_)):
            raise TypeError
        x = index(entry)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidIndex(f"index {shown(entry)} is neither an integer nor a slice: {_REMEDY}") from None
    if not -dim <= x < dim:
        raise InvalidIndex(f"index {x} is outside axis {axis}, which has {dim} elements")
    return x % dim


def _as_range(entry: slice, axis: int, dim: int) -> tuple[int, int]:
    """Return the start and the length of a slice.

    Raises:
        InvalidIndex: an entry of the slice is no integer, or it has a step and more than one element.
    """
    try:
        start, stop, step = entry.indices(dim)
    except (TypeError, ValueError) as error:
        raise InvalidIndex(f"index {entry} of axis {axis} is no slice: {error}") from None
    count = len(range(start, stop, step))
    if step != 1 and count > 1:
        raise InvalidIndex(f"index {entry} of axis {axis} has a step, and a view is a box: {_REMEDY}")
    return (start, count) if count else (0, 0)


def index_view(desc: MemoryDesc, key: object) -> MemoryDesc:
    """Return the descriptor of the elements that a basic index selects; no data moves.

    An index of one integer for each axis gives the zero descriptor, since a descriptor has at least one axis.

    Post-condition: result.offset(y) == desc.offset(x), where x are the integers of `key` and the coordinates y plus
    the starts of the slices.

    Raises:
        InvalidIndex: an entry is neither an integer nor a slice, is outside its axis, or has a step.
        InvalidArguments: `desc` has no layout.
        Unimplemented: a slice cuts a block, so that `submemory` has no descriptor for it, or the other axes have none.
    """
    layout, data_type = desc.require_layout("an index")
    entries = _complete_key(desc, key)
    offset0 = desc.offset0
    kept: list[int] = []
    starts: list[int] = []
    dims: list[int] = []
    for i, (entry, axis) in enumerate(zip(entries, layout.axes, strict=True)):
        if isinstance(entry, slice):
            start, count = _as_range(entry, i, desc.dims[i])
            kept.append(i)
            starts.append(start)
            dims.append(count)
        else:
            offset0 += axis.offset(_as_coordinate(entry, i, desc.dims[i]))
    if not kept:
        return MemoryDesc()
    try:
        view = desc
        if len(kept) < desc.ndims:
            part = Layout(tuple([layout.dims[i] for i in kept]), tuple([layout.axes[i] for i in kept]))
            view = MemoryDesc.from_layout(part, data_type, dims=[desc.dims[i] for i in kept], offset0=offset0)
        return view if view.dims == tuple(dims) else view.submemory(dims, starts)
    except (InvalidArguments, Unimplemented) as error:
        # Without the indexed axes, strides of 4-bit elements may split bytes, which descriptors refuse.
        raise Unimplemented(f"{error}\n    {_REMEDY}") from None


def read_element(desc: MemoryDesc, buffer: Bytes, key: object) -> Any:
    """Return the element at an index of one integer for each axis, as a scalar of NumPy or ml_dtypes.

    Raises:
        InvalidIndex: an entry is no integer, or outside its axis.
        InvalidArguments: `desc` has no layout.
    """
    _, data_type = addressed_layout(desc, "an index")
    entries = _complete_key(desc, key)
    point = [_as_coordinate(entry, i, dim) for i, (entry, dim) in enumerate(zip(entries, desc.dims, strict=True))]
    return _element_at(buffer, desc.offset(tuple(point)), data_type)


def _element_at(buffer: Bytes, offset: int, data_type: DataType) -> Any:
    """Return the element at an offset, which counts elements."""
    begin = offset * data_type.bits // 8
    held = buffer[begin : begin + max(1, data_type.bits // 8)].copy()
    if data_type.is_sub_byte:
        held = held >> np.uint8(4 * (offset % 2)) & np.uint8(15)
    return decode_elements(held, data_type)[0]


def is_one_element(desc: MemoryDesc, key: object) -> bool:
    """Return True if `key` has one entry for each axis and none of them is a slice."""
    return not any(isinstance(entry, slice) for entry in _complete_key(desc, key))


def require_axes(ndims: int, axes: object) -> tuple[int, ...]:
    """Return axes, one or a sequence of them, with the negative ones counted from the last axis.

    Raises:
        InvalidArguments: an axis is no integer.

    >>> require_axes(4, (0, -1, 1, 2))
    (0, 3, 1, 2)
    """
    values: Any = (axes,) if isinstance(axes, int) and not isinstance(axes, bool) else axes
    return tuple([i + ndims if -ndims <= i < 0 else i for i in as_integers("permutation", values)])
