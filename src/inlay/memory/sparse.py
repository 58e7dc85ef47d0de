"""Sparse memory: convert CSR and COO memory from and to dense arrays, SciPy and torch, and validate it.

Only some elements are stored, each with its coordinates (see `inlay.descriptor.sparsity`); all other elements are zero.

>>> import numpy as np
>>> matrix = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
>>> rows = to_csr(matrix)
>>> rows.desc
MemoryDesc.csr((3, 4), 'f32', 2)
>>> values, indices, pointers = rows.buffers
>>> values.view(np.float32).tolist(), indices.view(np.int32).tolist(), pointers.view(np.int32).tolist()
([5.0, 7.0], [2, 0], [0, 1, 1, 2])
>>> np.array_equal(to_coo(rows).unpack(), matrix)
True

`to_csr` and `to_coo` count the stored elements. If `nnz` is known beforehand, `inlay.reorder` and `inlay.pack` also
accept sparse descriptors.

An element is stored if any of its bits is set. So -0.0 is stored, and dense -> CSR -> COO -> dense changes no bit.
Entries are written in row-major order and read in any order. Two entries for one element are an error and are not
summed. All functions that read sparse memory validate indices and pointers first; the error names the first wrong
entry.

Buffers are shared with two other libraries, which are imported when one of their functions is called:

    scipy.sparse.csr_array, csr_matrix, torch.sparse_csr    <->  CSR
    scipy.sparse.coo_array, coo_matrix, torch.sparse_coo    <->  COO

SciPy computes with f32, f64, s8, u8, s32 and s64 only. It sums duplicates silently; here they are an error. torch
supports bf16, f16 and f8 too. Its tensors share memory if they are contiguous, on the CPU, and of a type that both
libraries support.
"""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import require_csr_ndims
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.memory import Memory, reorder
from inlay.memory.buffers import index_arrays, value_codes
from inlay.memory.memory import Format
from inlay.memory.pack_reorder import array_entries
from inlay.memory.sparse_entries import Entries, collect_entries, read_sparse, write_entries

__all__ = ["check", "from_scipy", "from_torch", "to_coo", "to_csr", "to_dense", "to_scipy", "to_torch"]


def to_csr(
    source: object, *, index_type: DataTypeLike | None = None, pointer_type: DataTypeLike | None = None
) -> Memory:
    """Convert a matrix to compressed sparse rows, in new memory.

    `source` is a dense or sparse `Memory`, or a logical array as for `pack`. If `index_type` or `pointer_type` is None,
    it is s32, or s64 if s32 is too narrow.

    Post-conditions:
        to_dense(to_csr(source)) has the elements of `source`, bit for bit.
        Elements with all bits zero are not stored, except those that a sparse source stores.
        Column indices increase within each row.

    Raises:
        InvalidArguments: `source` is no array, is sparse with wrong indices or pointers, or an index or pointer does
            not fit its type.
        Unimplemented: `source` does not have 2 dims.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> import numpy as np
    >>> to_csr(np.eye(3, dtype=np.int8), pointer_type="s64").desc
    MemoryDesc.csr((3, 3), 's8', 3, pointer_type='s64')
    """
    entries = _entries(source)
    require_csr_ndims(entries.dims)
    indices = _choose_index_type(max(entries.dims)) if index_type is None else index_type
    pointers = _choose_index_type(entries.count) if pointer_type is None else pointer_type
    return _write_memory(entries, MemoryDesc.csr(entries.dims, entries.data_type, entries.count, indices, pointers))


def to_coo(source: object, *, index_type: DataTypeLike | None = None) -> Memory:
    """Convert a tensor of any number of dims to values with coordinates, in new memory.

    `source` is a dense or sparse `Memory`, or a logical array as for `pack`. If `index_type` is None, it is s32, or s64
    if s32 is too narrow.

    Post-conditions:
        to_dense(to_coo(source)) has the elements of `source`, bit for bit.
        Elements with all bits zero are not stored, except those that a sparse source stores.
        Entries are in row-major order.

    Raises:
        InvalidArguments: `source` is no array, is sparse with wrong indices or pointers, or an index does not fit its
            type.
        OutOfMemory: the operating system cannot provide the bytes of the result.

    >>> import numpy as np
    >>> to_coo(np.eye(3, dtype=np.int8).reshape(3, 1, 3)).desc
    MemoryDesc.coo((3, 1, 3), 's8', 3)
    """
    entries = _entries(source)
    indices = _choose_index_type(max(entries.dims)) if index_type is None else index_type
    return _write_memory(entries, MemoryDesc.coo(entries.dims, entries.data_type, entries.count, indices))


def to_dense(memory: Memory, format: Format | None = None) -> Memory:
    """Convert sparse memory to new dense memory in this format, or in row-major order if `format` is None.

    In row-major order, rows of 4-bit elements begin at whole bytes: a row with an odd number of elements is followed by
    a gap of one element.

    Post-condition: to_dense(memory).unpack() equals memory.unpack(), bit for bit.

    Raises:
        InvalidArguments, FormatTagError, Unimplemented, OutOfMemory: as `reorder`.

    >>> import numpy as np
    >>> to_dense(to_csr(np.eye(4, dtype=np.float32)), "Ba2b").desc
    MemoryDesc((4, 4), 'f32', 'Ba2b')
    """
    _require_memory(memory)
    return reorder(memory, _row_major(memory.desc) if format is None else format)


def _row_major(desc: MemoryDesc) -> MemoryDesc:
    """Return the row-major descriptor with these dims and this type; strides of 4-bit elements are 1 or even."""
    if desc.data_type is None or not desc.data_type.is_sub_byte:
        return MemoryDesc(desc.dims, desc.data_type)
    strides = [1] * desc.ndims
    for i in reversed(range(desc.ndims - 1)):
        dense_stride = strides[i + 1] * max(1, desc.dims[i + 1])
        strides[i] = dense_stride + dense_stride % 2 if dense_stride > 1 else 1
    return MemoryDesc(desc.dims, desc.data_type, strides=strides)


def check(memory: Memory, *, ordered: bool = True) -> None:
    """Validate the indices and pointers of sparse memory; the error names the first wrong entry.

    For CSR and COO: pointers increase from 0 to nnz; each coordinate is within its dim; no element is stored twice;
    and, if `ordered` is True, entries are in row-major order, which kernels require. For packed memory: at most nnz
    bits of the bitmask are set, none of them for padding, and each block offset is the number of elements stored before
    the block.

    Raises:
        InvalidArguments: one of these conditions is violated, or `memory` is not sparse.

    >>> import numpy as np
    >>> desc = MemoryDesc.coo((3, 4), "f32", 2)
    >>> buffers = [np.ones(2, np.float32), np.array([0, 3], np.int32), np.array([1, 0], np.int32)]
    >>> check(Memory(desc, buffers))
    Traceback (most recent call last):
    inlay.errors.InvalidArguments: entry 1 has coordinate 3 along axis 0 (a): its dim is 3
    """
    _require_memory(memory)
    if memory.desc.kind != "sparse":
        raise InvalidArguments(f"check is for sparse memory: {memory.desc!r} is of kind {memory.desc.kind}")
    read_sparse(memory.desc, memory.buffers, ordered=ordered)


def _entries(source: object) -> Entries:
    """Return the stored elements of a `Memory`, or the elements of an array that have a bit set."""
    return collect_entries(source.desc, source.buffers) if isinstance(source, Memory) else array_entries(source)


def _choose_index_type(largest: int) -> DataType:
    """Return s32, or s64 if s32 cannot represent `largest`."""
    s32 = DATA_TYPES["s32"]
    return s32 if largest <= s32.highest else DATA_TYPES["s64"]


def _write_memory(entries: Entries, desc: MemoryDesc) -> Memory:
    """Return new sparse memory with these entries."""
    memory = Memory(desc)
    write_entries(entries, desc, memory.buffers)
    return memory


def _require_memory(value: object) -> None:
    """Raise InvalidArguments unless `value` is a Memory."""
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"memory is a {type(value).__name__}: make it with Memory(desc, buffers) or inlay.to_csr"
        )


# SciPy's sparse arrays


_SCIPY_TYPES = ("f32", "f64", "s8", "u8", "s32", "s64")
"""Data types of elements that SciPy's sparse arrays support."""


def from_scipy(array: Any) -> Memory:
    """Wrap a SciPy sparse array: format `csr` becomes CSR, `coo` becomes COO; a `csr` array of one dim becomes COO.

    Contiguous buffers of SciPy are shared, so a write to one side is visible in the other; other buffers are copied.

    Raises:
        MissingExtra: SciPy is not installed.
        InvalidArguments: `array` is no sparse array of SciPy, or has another format; no descriptor has its type; or its
            indices or pointers are wrong, or an element is stored twice.

    >>> import numpy as np, scipy.sparse
    >>> from_scipy(scipy.sparse.csr_array(np.eye(3, dtype=np.float32))).desc
    MemoryDesc.csr((3, 3), 'f32', 3)
    """
    if not _import_scipy_sparse().issparse(array):
        raise InvalidArguments(
            f"array is a {type(array).__name__}, not a sparse array of SciPy: inlay.to_csr and to_coo take dense ones"
        )
    if array.format not in ("csr", "coo"):
        raise InvalidArguments(
            f"array is a {type(array).__name__} in format {array.format}: convert it with tocsr() or tocoo()"
        )
    if array.ndim == 1:
        array = array.tocoo()
    is_csr = array.format == "csr"
    positions = (array.indices, array.indptr) if is_csr else array.coords
    buffers = [np.ascontiguousarray(buffer) for buffer in (array.data, *positions)]
    types = [as_data_type(buffer.dtype) for buffer in buffers]
    make = MemoryDesc.csr if is_csr else MemoryDesc.coo
    # The indices of all axes of a COO array have one type.
    desc = make(array.shape, types[0], array.data.size, *types[1 : 3 if is_csr else 2])
    memory = Memory(desc, buffers)
    check(memory, ordered=False)
    return memory


def to_scipy(memory: Memory) -> Any:
    """Return a `csr_array` or `coo_array` over sparse memory.

    Values are shared, and so are indices and pointers of s32 or s64; narrower ones are copied. Packed memory is copied
    into a `coo_array`.

    Raises:
        MissingExtra: SciPy is not installed.
        InvalidArguments: `memory` is not sparse, or its indices or pointers are wrong.
        Unimplemented: SciPy's sparse arrays do not support the data type.

    >>> import numpy as np
    >>> from inlay.memory.sparse import to_csr
    >>> to_scipy(to_csr(np.eye(3, dtype=np.float32))).trace()
    np.float32(3.0)
    """
    scipy_sparse = _import_scipy_sparse()
    # SciPy's kernels use indices without a range check.
    check(memory, ordered=False)
    memory = to_coo(memory) if isinstance(memory.desc.layout, kinds.Packed) else memory
    desc = memory.desc
    values = value_codes(desc, memory.buffers).view(_require_scipy_type(desc).dtype)
    positions = [_as_scipy_index(indices) for indices in index_arrays(desc, memory.buffers)]
    if not isinstance(desc.layout, kinds.CSR):
        return scipy_sparse.coo_array((values, tuple(positions)), shape=desc.dims)
    indices, pointers = positions
    if 0 in desc.dims:
        pointers = np.zeros(desc.dims[0] + 1, pointers.dtype)
    return scipy_sparse.csr_array((values, indices, pointers), shape=desc.dims)


def _require_scipy_type(desc: MemoryDesc) -> DataType:
    """Return the data type of the values after checking that SciPy's sparse arrays support it."""
    data_type = desc.data_types[0]
    if data_type is None or data_type.name not in _SCIPY_TYPES:
        raise Unimplemented(
            f"SciPy's sparse arrays hold {', '.join(_SCIPY_TYPES)}, not {data_type}: convert to one of these first"
        )
    return data_type


def _as_scipy_index(indices: Any) -> Any:
    """Return indices of at least 32 bits, since SciPy supports no narrower ones."""
    return indices if indices.dtype.itemsize >= DATA_TYPES["s32"].itemsize else indices.astype(np.int32)


def _import_scipy_sparse() -> Any:
    """Return `scipy.sparse`, or raise MissingExtra."""
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError:
        raise MissingExtra("SciPy is not installed: pip install 'inlay[sparse]'") from None


# torch's sparse tensors


def from_torch(tensor: Any) -> Memory:
    """Wrap a sparse torch tensor: `torch.sparse_csr` becomes CSR, `torch.sparse_coo` becomes COO.

    Raises:
        MissingExtra: torch is not installed.
        InvalidArguments: `tensor` is no sparse tensor of torch, has another layout, or is not on the CPU; no descriptor
            has its type; or its indices or pointers are wrong, or an element is stored twice.
        Unimplemented: `tensor` is a batch of matrices, or an entry has more than one element.
    """
    torch = _import_torch()
    if not isinstance(tensor, torch.Tensor) or tensor.layout not in (torch.sparse_csr, torch.sparse_coo):
        layout = str(tensor.layout) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise InvalidArguments(
            f"tensor is {layout}, neither torch.sparse_csr nor torch.sparse_coo: convert it with to_sparse_csr() or "
            "to_sparse()"
        )
    if tensor.device.type != "cpu":
        raise InvalidArguments(f"tensor is on {tensor.device}: copy it to the CPU with cpu()")
    dims, data_type = tuple(tensor.shape), as_data_type(str(tensor.dtype).removeprefix("torch."))
    if tensor.dense_dim():
        raise Unimplemented(
            f"tensor of shape {dims} stores {tensor.dense_dim()} of its dims densely: here each entry is one element"
        )
    if tensor.layout == torch.sparse_csr:
        memory = _from_torch_csr(tensor, dims, data_type)
    else:
        # The public methods `indices` and `values` raise an error for tensors that are not coalesced.
        indices = [_tensor_bytes(axis.contiguous()) for axis in tensor._indices()]
        desc = MemoryDesc.coo(dims, data_type, tensor._values().numel(), "s64")
        memory = Memory(desc, [_tensor_bytes(tensor._values().contiguous()), *indices])
    check(memory, ordered=False)
    return memory


def _from_torch_csr(tensor: Any, dims: tuple[int, ...], data_type: DataType) -> Memory:
    """Wrap a `torch.sparse_csr` tensor; indices are not validated here."""
    if len(dims) != 2:
        raise Unimplemented(f"tensor of shape {dims} is a batch of matrices: convert one by one, or use to_sparse()")
    values, indices, pointers = tensor.values(), tensor.col_indices(), tensor.crow_indices()
    index_type = as_data_type(str(indices.dtype).removeprefix("torch."))
    desc = MemoryDesc.csr(dims, data_type, values.numel(), index_type, index_type)
    return Memory(desc, [_tensor_bytes(part.contiguous()) for part in (values, indices, pointers)])


def _tensor_bytes(tensor: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a contiguous tensor, since NumPy lacks some of torch's data types."""
    if not tensor.numel():
        return np.zeros(0, np.uint8)
    array: npt.NDArray[np.uint8] = tensor.detach().view(_import_torch().uint8).numpy()
    return array


def to_torch(memory: Memory) -> Any:
    """Return a `torch.sparse_csr` or `torch.sparse_coo` tensor over sparse memory.

    The values of CSR are shared, and so are its indices and pointers if both are s32 or both are s64. Indices of COO
    are copied, and packed memory is copied into a `torch.sparse_coo` tensor.

    Raises:
        MissingExtra: torch is not installed.
        InvalidArguments: `memory` is not sparse, or its indices or pointers are wrong or not in row-major order.
        Unimplemented: torch does not support the data type.
    """
    torch = _import_torch()
    check(memory)
    memory = to_coo(memory) if isinstance(memory.desc.layout, kinds.Packed) else memory
    desc = memory.desc
    values = _values_as_tensor(desc, value_codes(desc, memory.buffers))
    positions = index_arrays(desc, memory.buffers)
    if not isinstance(desc.layout, kinds.CSR):
        indices = torch.from_numpy(np.stack([axis.astype(np.int64) for axis in positions]))
        return torch.sparse_coo_tensor(indices, values, desc.dims, is_coalesced=True, check_invariants=False)
    columns, pointers = positions
    if 0 in desc.dims:
        pointers = np.zeros(desc.dims[0] + 1, pointers.dtype)
    # torch requires one type for both, either int32 or int64.
    index_type = np.int32 if {columns.dtype.name, pointers.dtype.name} <= {"int8", "uint8", "int32"} else np.int64
    indices = [torch.from_numpy(part.astype(index_type, copy=False)) for part in (pointers, columns)]
    return torch.sparse_csr_tensor(*indices, values, size=desc.dims, check_invariants=False)


def _values_as_tensor(desc: MemoryDesc, codes: npt.NDArray[Any]) -> Any:
    """Return the stored values as a dense torch tensor of one axis that shares their memory."""
    data_type = desc.data_types[0]
    name = "" if data_type is None or data_type.is_sub_byte else data_type.dtype.name
    if not hasattr(_import_torch(), name or " "):
        raise Unimplemented(f"torch has no sparse tensors of {data_type}: reorder to a type of a byte or more first")
    return _import_torch().from_numpy(codes.view(np.uint8)).view(getattr(_import_torch(), name))


def _import_torch() -> Any:
    """Return torch, or raise MissingExtra."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtra("torch is not installed: pip install torch") from None
