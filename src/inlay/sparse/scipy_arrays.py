"""SciPy's sparse arrays in and out, without a copy of the values.

    scipy.sparse.csr_array, csr_matrix    <->  CSR
    scipy.sparse.coo_array, coo_matrix    <->  COO

SciPy computes with f32, f64, s8, u8, s32 and s64 only. It sums duplicates silently; here they are refused.
"""

import importlib
from typing import Any

import numpy as np

from inlay.data_type import DATA_TYPES, DataType, as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.memory import Memory
from inlay.memory.handles import codes_in, positions_in
from inlay.sparse.encoding import check, to_coo

_HELD = ("f32", "f64", "s8", "u8", "s32", "s64")
"""The types that SciPy's sparse arrays can hold."""


def from_scipy(array: Any) -> Memory:
    """The memory of a SciPy sparse array: CSR for its `csr` format, COO for `coo`; a `csr` of one dim becomes COO.

    The buffers are SciPy's own wherever they are contiguous: what is written to one shows in the other.

    Raises:
        MissingExtra: SciPy is not installed.
        InvalidArguments: `array` is no sparse array of SciPy or of another format, its type cannot be stored, or its
            indices or pointers are wrong, which includes elements that are stored twice.

    >>> import numpy as np, scipy.sparse
    >>> from_scipy(scipy.sparse.csr_array(np.eye(3, dtype=np.float32))).desc
    MemoryDesc.csr((3, 3), 'f32', 3)
    """
    if not _scipy().issparse(array):
        raise InvalidArguments(
            f"array is a {type(array).__name__}, not a sparse array of SciPy: inlay.to_csr and to_coo take dense ones"
        )
    if array.format not in ("csr", "coo"):
        raise InvalidArguments(
            f"array is a {type(array).__name__} in format {array.format}: convert it with tocsr() or tocoo()"
        )
    found = array.tocoo() if array.ndim == 1 else array
    is_rows = found.format == "csr"
    positions = (found.indices, found.indptr) if is_rows else found.coords
    types = [as_data_type(held.dtype) for held in (found.data, *positions)]
    make = MemoryDesc.csr if is_rows else MemoryDesc.coo
    # All axes of COO have one type.
    desc = make(found.shape, types[0], found.data.size, *types[1 : 3 if is_rows else 2])
    memory = Memory(desc, [np.ascontiguousarray(held) for held in (found.data, *positions)])
    check(memory, ordered=False)
    return memory


def to_scipy(memory: Memory) -> Any:
    """A `csr_array` or `coo_array` over sparse memory; values, and indices of s32 or s64, are not copied.

    Packed memory becomes a `coo_array` of its own.

    Raises:
        MissingExtra: SciPy is not installed.
        InvalidArguments: `memory` is not sparse, or its indices or pointers are wrong.
        Unimplemented: SciPy holds no such elements.

    >>> import numpy as np
    >>> from inlay.sparse import to_csr
    >>> to_scipy(to_csr(np.eye(3, dtype=np.float32))).trace()
    np.float32(3.0)
    """
    scipy_sparse = _scipy()
    # SciPy's loops trust their indices.
    check(memory, ordered=False)
    memory = to_coo(memory) if isinstance(memory.desc.layout, kinds.Packed) else memory
    desc = memory.desc
    values = codes_in(desc, memory.buffers).view(_held_type(desc).dtype)
    positions = [_as_scipy_index(held) for held in positions_in(desc, memory.buffers)]
    if not isinstance(desc.layout, kinds.CSR):
        return scipy_sparse.coo_array((values, tuple(positions)), shape=desc.dims)
    indices, pointers = positions
    if 0 in desc.dims:
        pointers = np.zeros(desc.dims[0] + 1, pointers.dtype)
    return scipy_sparse.csr_array((values, indices, pointers), shape=desc.dims)


def _held_type(desc: MemoryDesc) -> DataType:
    data_type = desc.data_types[0]
    if data_type is None or data_type.name not in _HELD:
        raise Unimplemented(
            f"SciPy's sparse arrays hold {', '.join(_HELD)}, not {data_type}: convert to one of these first"
        )
    return data_type


def _as_scipy_index(held: Any) -> Any:
    return held if held.dtype.itemsize >= DATA_TYPES["s32"].itemsize else held.astype(np.int32)


def _scipy() -> Any:
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError:
        raise MissingExtra("SciPy is not installed: pip install 'inlay[sparse]'") from None
