"""Sparse descriptors and memory as functions of `Choices`.

The buffers are filled element by element, from the meaning of each encoding: no code is shared with `inlay.sparse`, so
what is drawn here can judge it.

    >>> from inlay.testing.choices import Seeded
    >>> draw_sparse_memory(Seeded(2), (3, 4), "f32").desc.dims
    (3, 4)
"""

from math import prod

import numpy as np

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.testing.checked import checked
from inlay.testing.choices import Choices
from inlay.testing.drawing import draw_data_type, draw_shape

INDEX_TYPES = ("s32", "s64", "s8", "u8")
"""The types that indices and pointers are drawn from."""

_LARGEST = 60
_EITHER = (False, True)


@checked()
def draw_sparse_descriptor(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, packed: bool = False
) -> MemoryDesc:
    """A CSR or COO descriptor, or a packed one if `packed`, that stores none, some or all of its elements.

    Types of indices and pointers are wide enough for every coordinate and for `nnz`.
    """
    element = draw_data_type(choose) if data_type is None else as_data_type(data_type)
    wants_rows = choose.pick(_EITHER) if dims is None else len(dims) == 2 and choose.pick(_EITHER)
    shape = draw_shape(choose, 2 if wants_rows else None, max_size=_LARGEST) if dims is None else dims
    nnz = choose.integer(0, prod(shape))
    index_type, pointer_type = (_wide_enough(choose, limit) for limit in (max(shape), nnz))
    if packed and choose.pick(_EITHER):
        return MemoryDesc.packed(shape, element, nnz)
    if wants_rows:
        return MemoryDesc.csr(shape, element, nnz, index_type, pointer_type)
    return MemoryDesc.coo(shape, element, nnz, index_type)


def _wide_enough(choose: Choices, limit: int) -> DataType:
    return DATA_TYPES[choose.pick([name for name in INDEX_TYPES if limit <= DATA_TYPES[name].highest])]


@checked()
def draw_sparse_memory(
    choose: Choices, dims: Dims | None = None, data_type: DataTypeLike | None = None, *, ordered: bool = True
) -> Memory:
    """CSR or COO memory with any bits for values, zeros among them; entries in any order unless `ordered`."""
    desc = draw_sparse_descriptor(choose, dims, data_type)
    places = choose.shuffled(range(prod(desc.dims)))[: desc.nnz]
    if ordered:
        places.sort()
    elif desc.sparse_encoding == "csr":
        places.sort(key=lambda place: place // desc.dims[1])
    coordinates = [_coordinate(place, desc.dims) for place in places]
    positions = [[point[i] for point in coordinates] for i in range(desc.ndims)]
    if desc.sparse_encoding == "csr":
        rows, columns = positions
        positions = [columns, [sum(row < i for row in rows) for i in range(desc.dims[0] + 1)]]
    assert desc.data_type is not None
    codes = [choose.integer(0, 2**desc.data_type.bits - 1) for _ in places]
    values = np.array(codes, f"u{desc.data_type.itemsize}").view(np.uint8)
    held = [np.array(p, t.dtype) for p, t in zip(positions, desc.data_types[1:], strict=True) if t is not None]
    return Memory(desc, [values, *held])


def _coordinate(place: int, dims: Dims) -> tuple[int, ...]:
    """The coordinate of a row-major index."""
    reversed_point = []
    for n in reversed(dims):
        reversed_point.append(place % n)
        place //= n
    return tuple(reversed(reversed_point))
