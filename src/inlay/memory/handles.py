"""The buffers of sparse memory: what each holds, how long it is, and arrays over them.

A dense tensor has one buffer, a sparse one several (oneDNN's handles): values first, then what says where they belong.
Each is checked by itself, when wrapped, and is an array of its own type afterwards:

>>> from inlay.descriptor import MemoryDesc
>>> [f"{h.name}: {h.count} of {h.data_type}" for h in handles_of(MemoryDesc.csr((3, 4), "f32", 2))]
['values: 2 of f32', 'indices: 2 of s32', 'pointers: 4 of s32']

Values of 4 bits lie one in a byte, the code in its low half: oneDNN's sizes count a byte for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.sparsity import sparse_counts
from inlay.errors import InvalidArguments, Unimplemented
from inlay.memory.buffers import Bytes, address_of, allocate, bytes_of

Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Handle:
    """One buffer of a sparse tensor."""

    name: str
    """What it holds: `values`, `indices`, `pointers`, `indices of axis 1`."""
    data_type: DataType
    """Of its elements; one of 4 bits is a byte wide here."""
    count: int
    """How many elements it holds."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.count * self.data_type.itemsize


@lru_cache(maxsize=512)
def handles_of(desc: MemoryDesc) -> tuple[Handle, ...]:
    """The buffers of a sparse descriptor, in oneDNN's order.

    Raises:
        InvalidArguments: `desc` is not sparse.
        Unimplemented: the encoding is packed and has no tag, CSR has one dim only, or a dim is RUNTIME.
    """
    match desc.layout:
        case kinds.CSR() if desc.ndims == 1:
            raise Unimplemented(f"{desc!r} has no rows to point to: use MemoryDesc.coo, or dims (1, {desc.dims[0]})")
        case kinds.CSR() as placement:
            names = ["values", "indices", "pointers"]
        case kinds.COO() as placement:
            names = ["values", *(f"indices of axis {i}" for i in range(desc.ndims))]
        case kinds.Packed(tag=""):
            raise Unimplemented(
                f"{desc!r} has no tag yet: take the descriptor of a primitive that was created with it, such as "
                "product.weights_desc, or use MemoryDesc.csr"
            )
        case kinds.Packed() as placement:
            names = ["values", "block offsets", "bitmask"]
        case _:
            raise InvalidArguments(f"{desc!r} is of kind {desc.kind}: only sparse memory has several buffers")
    if desc.has_runtime:
        raise Unimplemented(f"memory needs known dims: {desc!r} has RUNTIME ones, bind them first")
    counts = sparse_counts(desc.dims, placement)
    return tuple(
        Handle(name, data_type.in_whole_bytes, count)
        for name, data_type, count in zip(names, desc.data_types, counts, strict=True)
        if data_type is not None
    )


def wrapped(desc: MemoryDesc, buffers: object) -> tuple[Bytes, ...]:
    """The bytes of a caller's buffers, each checked, without a copy.

    Raises:
        InvalidArguments: `buffers` is no sequence of as many as needed, or one is too small, not contiguous, of another
            type, not aligned to its elements, or no buffer.
        Unimplemented: as `handles_of`.
    """
    handles = handles_of(desc)
    names = ", ".join(handle.name for handle in handles)
    if not isinstance(buffers, (list, tuple)):
        raise InvalidArguments(
            f"buffers is of type {type(buffers).__name__}: {desc!r} has {len(handles)}, give a list of {names}"
        )
    if len(buffers) != len(handles):
        raise InvalidArguments(f"{desc!r} has {len(handles)} buffers, not {len(buffers)}: give {names}")
    return tuple(_checked(i, handle, buffer) for i, (handle, buffer) in enumerate(zip(handles, buffers, strict=True)))


def _checked(i: int, handle: Handle, buffer: object) -> Bytes:
    name = f"buffer {i} ({handle.name})"
    found = bytes_of(buffer, handle.data_type, name)
    if found.size < handle.nbytes:
        raise InvalidArguments(
            f"{name} of {found.size} bytes is too small: {handle.count} elements of {handle.data_type} take "
            f"{handle.nbytes} bytes"
        )
    if handle.count and address_of(found) % handle.data_type.itemsize:
        raise InvalidArguments(
            f"{name} starts at an address that is no multiple of the {handle.data_type.itemsize} bytes of "
            f"{handle.data_type}: copy it to an array of its own"
        )
    return found


def allocated(desc: MemoryDesc) -> tuple[Bytes, ...]:
    """New buffers of zero bytes.

    Raises:
        Unimplemented: as `handles_of`.
        OutOfMemory: there is no room for them.
    """
    return tuple(allocate(handle.nbytes) for handle in handles_of(desc))


def codes_in(desc: MemoryDesc, buffers: Sequence[Bytes]) -> npt.NDArray[Any]:
    """The stored values as codes, the unsigned integers of their bits: the memory itself, not a copy."""
    handle = handles_of(desc)[0]
    return buffers[0][: handle.nbytes].view(f"u{handle.data_type.itemsize}")


def positions_in(desc: MemoryDesc, buffers: Sequence[Bytes]) -> list[npt.NDArray[Any]]:
    """Indices and pointers, each in its own type: the memory itself, not a copy."""
    handles = handles_of(desc)[1:]
    return [b[: h.nbytes].view(h.data_type.dtype) for h, b in zip(handles, buffers[1:], strict=True)]
