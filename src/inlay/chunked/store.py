"""A store: what a file of tensors holds, whatever its format.

    weights.safetensors
        conv1.weight   F32  (64, 3, 7, 7)   bytes 37632 from 1024
        conv1.bias     F32  (64,)           bytes   256 from 38656

Opening a store reads the header alone. The data is mapped, so a file larger than memory costs nothing until a tensor
of it is used. Everything a header claims is checked against the length of the file before a byte is mapped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.format_tag import LETTERS, FormatTag
from inlay.layout import Dims

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file."""

    name: str
    """Its name in the file; the stem of the file name where the format keeps none."""
    stored_type: str
    """The element type as the file states it: `F32`, `BOOL`, or NumPy's text in a .npy file."""
    shape: Dims
    """The shape as the file states it."""
    begin: int
    """Where its bytes begin, counted from the start of the file."""
    nbytes: int
    """How many bytes it has."""
    desc: MemoryDesc | None
    """The descriptor of these bytes; None where none can be made: a scalar, or a type such as BOOL."""
    refusal: str = ""
    """Why no descriptor can be made, and what helps; empty where there is one."""
    is_packed: bool = False
    """Whether the descriptor was read from Inlay's metadata and not from the type and shape."""


@dataclass(frozen=True, slots=True)
class Store:
    """A file of tensors, opened for reading."""

    path: Path
    """The file."""
    tensors: tuple[StoredTensor, ...]
    """Every tensor, in the order of the bytes."""
    metadata: Mapping[str, str]
    """The texts that the file keeps beside its tensors, without Inlay's own."""

    def data(self, tensor: StoredTensor) -> Bytes:
        """The bytes of `tensor`, mapped and read-only."""
        if tensor.nbytes == 0:
            return np.empty(0, np.uint8)
        mapped = np.memmap(self.path, np.uint8, "r", offset=tensor.begin, shape=(tensor.nbytes,))
        return np.asarray(mapped)


def require_dims_for_layout(shape: Dims) -> None:
    """Refuse the shape of a tensor that no layout can place.

    Raises:
        InvalidArguments: there are no dims, or more than a descriptor has.
    """
    if not 1 <= len(shape) <= len(LETTERS):
        has = "it is a scalar" if not shape else f"it has {len(shape)} dims"
        raise InvalidArguments(f"{has}, and a layout places 1 to {len(LETTERS)} dims; reshape it first")


def row_major(dims: Dims, data_type: DataTypeLike) -> MemoryDesc:
    """The descriptor of a row-major tensor: letters in their order, dims of 0 included.

    Raises:
        InvalidArguments: there are no dims, or more than a descriptor has, or they are too large.
    """
    require_dims_for_layout(dims)
    return MemoryDesc(dims, data_type, FormatTag(tuple(range(len(dims)))))
