"""Sparse memory: CSR and COO from dense arrays and back, from SciPy and torch and back, and checked.

Only some elements are stored, with what says where they belong (see `inlay.descriptor.sparsity`); all others are zero.

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

`to_csr` and `to_coo` count the stored elements; `inlay.reorder` and `inlay.pack` take sparse descriptors too, where
`nnz` is known beforehand.

An element is stored if any of its bits is set, so -0.0 is kept, and dense -> CSR -> COO -> dense changes no bit.
Entries are written in row-major order and read in any; two for one element are refused, not summed. Wrong positions
never reach a computation: whatever reads sparse memory checks them first, and names the first entry that is wrong.

Other libraries share their buffers with us; they are imported when asked for:

    scipy.sparse.csr_array, csr_matrix, torch.sparse_csr    <->  CSR
    scipy.sparse.coo_array, coo_matrix, torch.sparse_coo    <->  COO

SciPy computes with f32, f64, s8, u8, s32 and s64 only. It sums duplicates silently; here they are refused. torch has
bf16, f16 and f8 too; memory is shared where its tensors are contiguous, on this machine's processor, and of a type both
know.
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
from inlay.memory.buffers import codes_in, positions_in
from inlay.memory.entries import Entries, entries_in, read_stored, write_entries
from inlay.memory.memory import Format
from inlay.memory.reordered import stored_in

__all__ = ["check", "from_scipy", "from_torch", "to_coo", "to_csr", "to_dense", "to_scipy", "to_torch"]


def to_csr(
    source: object, *, index_type: DataTypeLike | None = None, pointer_type: DataTypeLike | None = None
) -> Memory:
    """A matrix in compressed sparse rows, in new memory.

    `source` is a `Memory`, dense or sparse, or a logical array as `pack` takes. Indices and pointers are s32, or s64
    where s32 is too narrow, unless said otherwise.

    Post-conditions:
        to_dense(to_csr(source)) has the elements of `source`, bit for bit.
        Elements with all bits zero are not stored, except those that a sparse source stores.
        Columns rise within each row.

    Raises:
        InvalidArguments: `source` is no array, a sparse one has wrong indices or pointers, or a given type cannot hold
            them.
        Unimplemented: `source` has not 2 dims.
        OutOfMemory: there is no room for the result.

    >>> import numpy as np
    >>> to_csr(np.eye(3, dtype=np.int8), pointer_type="s64").desc
    MemoryDesc.csr((3, 3), 's8', 3, pointer_type='s64')
    """
    entries = _entries(source)
    require_csr_ndims(entries.dims)
    indices = _wide_enough(max(entries.dims)) if index_type is None else index_type
    pointers = _wide_enough(entries.count) if pointer_type is None else pointer_type
    return _written(entries, MemoryDesc.csr(entries.dims, entries.data_type, entries.count, indices, pointers))


def to_coo(source: object, *, index_type: DataTypeLike | None = None) -> Memory:
    """A tensor of any number of dims as values with their coordinates, in new memory.

    `source` is a `Memory`, dense or sparse, or a logical array as `pack` takes. Indices are s32, or s64 where s32 is
    too narrow, unless said otherwise.

    Post-conditions:
        to_dense(to_coo(source)) has the elements of `source`, bit for bit.
        Elements with all bits zero are not stored, except those that a sparse source stores.
        Entries are in row-major order.

    Raises:
        InvalidArguments: `source` is no array, a sparse one has wrong indices or pointers, or a given type cannot hold
            them.
        OutOfMemory: there is no room for the result.

    >>> import numpy as np
    >>> to_coo(np.eye(3, dtype=np.int8).reshape(3, 1, 3)).desc
    MemoryDesc.coo((3, 1, 3), 's8', 3)
    """
    entries = _entries(source)
    indices = _wide_enough(max(entries.dims)) if index_type is None else index_type
    return _written(entries, MemoryDesc.coo(entries.dims, entries.data_type, entries.count, indices))


def to_dense(memory: Memory, format: Format | None = None) -> Memory:
    """The elements of sparse memory in new dense memory, in this format; in row-major order if it is None.

    Rows of 4-bit elements begin at whole bytes, so an odd one is followed by a gap of one element.

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
    """The dense descriptor of these dims and type; a stride of 4-bit elements that is not 1 is even."""
    if desc.data_type is None or not desc.data_type.is_sub_byte:
        return MemoryDesc(desc.dims, desc.data_type)
    strides = [1] * desc.ndims
    for i in reversed(range(desc.ndims - 1)):
        beyond = strides[i + 1] * max(1, desc.dims[i + 1])
        strides[i] = beyond + beyond % 2 if beyond > 1 else 1
    return MemoryDesc(desc.dims, desc.data_type, strides=strides)


def check(memory: Memory, *, ordered: bool = True) -> None:
    """Refuse sparse memory whose indices or pointers are wrong; name the first entry that is.

    Checked are: pointers rise from 0 to nnz; each coordinate lies in its dim; no element is stored twice; and, where
    `ordered`, entries are in row-major order, as kernels expect. Packed memory: the bitmask stores at most nnz elements
    and none of the padding, and each block offset is the number of elements stored before the block.

    Raises:
        InvalidArguments: one of these does not hold, or `memory` is not sparse.

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
    read_stored(memory.desc, memory.buffers, ordered=ordered)


def _entries(source: object) -> Entries:
    return entries_in(source.desc, source.buffers) if isinstance(source, Memory) else stored_in(source)


def _wide_enough(limit: int) -> DataType:
    narrow = DATA_TYPES["s32"]
    return narrow if limit <= narrow.highest else DATA_TYPES["s64"]


def _written(entries: Entries, desc: MemoryDesc) -> Memory:
    memory = Memory(desc)
    write_entries(entries, desc, memory.buffers)
    return memory


def _require_memory(value: object) -> None:
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"memory is a {type(value).__name__}: make it with Memory(desc, buffers) or inlay.to_csr"
        )


# SciPy's sparse arrays


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
    >>> from inlay.memory.sparse import to_csr
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


# torch's sparse tensors


def from_torch(tensor: Any) -> Memory:
    """The memory of a torch tensor: CSR for `torch.sparse_csr`, COO for `torch.sparse_coo`.

    Raises:
        MissingExtra: torch is not installed.
        InvalidArguments: `tensor` is no sparse tensor of torch, of another layout, not on the CPU, of a type that
            cannot be stored, or its indices or pointers are wrong, which includes elements that are stored twice.
        Unimplemented: `tensor` is a batch of matrices, or its values are not single elements.
    """
    torch = _torch()
    if not isinstance(tensor, torch.Tensor) or tensor.layout not in (torch.sparse_csr, torch.sparse_coo):
        said = str(tensor.layout) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise InvalidArguments(
            f"tensor is {said}, neither torch.sparse_csr nor torch.sparse_coo: convert it with to_sparse_csr() or "
            "to_sparse()"
        )
    if tensor.device.type != "cpu":
        raise InvalidArguments(f"tensor is on {tensor.device}: bring it here with cpu()")
    dims, data_type = tuple(tensor.shape), as_data_type(str(tensor.dtype).removeprefix("torch."))
    if tensor.dense_dim():
        raise Unimplemented(
            f"tensor of shape {dims} stores {tensor.dense_dim()} of its dims densely: here each entry is one element"
        )
    if tensor.layout == torch.sparse_csr:
        memory = _from_rows(tensor, dims, data_type)
    else:
        # Of tensors that are not coalesced, only the private names can be read.
        held = [_bits(along.contiguous()) for along in tensor._indices()]
        desc = MemoryDesc.coo(dims, data_type, tensor._values().numel(), "s64")
        memory = Memory(desc, [_bits(tensor._values().contiguous()), *held])
    check(memory, ordered=False)
    return memory


def _from_rows(tensor: Any, dims: tuple[int, ...], data_type: DataType) -> Memory:
    if len(dims) != 2:
        raise Unimplemented(f"tensor of shape {dims} is a batch of matrices: convert one by one, or use to_sparse()")
    values, indices, pointers = tensor.values(), tensor.col_indices(), tensor.crow_indices()
    index_type = as_data_type(str(indices.dtype).removeprefix("torch."))
    desc = MemoryDesc.csr(dims, data_type, values.numel(), index_type, index_type)
    return Memory(desc, [_bits(held.contiguous()) for held in (values, indices, pointers)])


def _bits(held: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous tensor: NumPy knows not all of torch's types."""
    if not held.numel():
        return np.zeros(0, np.uint8)
    array: npt.NDArray[np.uint8] = held.detach().view(_torch().uint8).numpy()
    return array


def to_torch(memory: Memory) -> Any:
    """A `torch.sparse_csr` or `torch.sparse_coo` tensor; the values of CSR, and indices of s32 or s64, are not copied.

    Packed memory becomes a `torch.sparse_coo` tensor of its own.

    Raises:
        MissingExtra: torch is not installed.
        InvalidArguments: `memory` is not sparse, or its indices or pointers are wrong or not in row-major order.
        Unimplemented: torch holds no such elements.
    """
    torch = _torch()
    check(memory)
    memory = to_coo(memory) if isinstance(memory.desc.layout, kinds.Packed) else memory
    desc = memory.desc
    values = _as_tensor(desc, codes_in(desc, memory.buffers))
    positions = positions_in(desc, memory.buffers)
    if not isinstance(desc.layout, kinds.CSR):
        indices = torch.from_numpy(np.stack([along.astype(np.int64) for along in positions]))
        return torch.sparse_coo_tensor(indices, values, desc.dims, is_coalesced=True, check_invariants=False)
    columns, pointers = positions
    if 0 in desc.dims:
        pointers = np.zeros(desc.dims[0] + 1, pointers.dtype)
    # torch wants one type for both, and knows two of them.
    index_type = np.int32 if {columns.dtype.name, pointers.dtype.name} <= {"int8", "uint8", "int32"} else np.int64
    held = [torch.from_numpy(part.astype(index_type, copy=False)) for part in (pointers, columns)]
    return torch.sparse_csr_tensor(*held, values, size=desc.dims, check_invariants=False)


def _as_tensor(desc: MemoryDesc, codes: npt.NDArray[Any]) -> Any:
    data_type = desc.data_types[0]
    name = "" if data_type is None or data_type.is_sub_byte else data_type.dtype.name
    if not hasattr(_torch(), name or " "):
        raise Unimplemented(f"torch has no sparse tensors of {data_type}: reorder to a type of a byte or more first")
    return _torch().from_numpy(codes.view(np.uint8)).view(getattr(_torch(), name))


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise MissingExtra("torch is not installed: pip install torch") from None
