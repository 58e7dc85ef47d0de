"""torch's sparse tensors in and out, bits preserved: bf16, f16 and f8 too.

    torch.sparse_csr    <->  CSR
    torch.sparse_coo    <->  COO

Memory is shared where torch's tensors are contiguous, on this machine's processor, and of a type both know.
"""

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, as_data_type
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.memory import Memory
from inlay.memory.handles import codes_in, positions_in
from inlay.sparse.encoding import check, to_coo


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
