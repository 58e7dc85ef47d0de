"""Dense <-> CSR <-> COO where the number of stored elements is counted, and the check of what buffers say.

dense array or Memory  ->  to_csr, to_coo  ->  Memory of several buffers  ->  to_dense  ->  Memory in any format
"""

from inlay.data_type import DATA_TYPES, DataType, DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.descriptor.sparsity import require_csr_ndims
from inlay.errors import InvalidArguments
from inlay.memory import Memory, reorder
from inlay.memory.conversion import entries_in, read_stored
from inlay.memory.entries import Entries, write_entries
from inlay.memory.memory import Format
from inlay.memory.packing import stored_in


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
