"""A store: a file of tensors, with the type, shape and byte range of each, independent of the file format.

    weights.safetensors
        conv1.weight   F32  (64, 3, 7, 7)   bytes 37632 from 1024
        conv1.bias     F32  (64,)           bytes   256 from 38656

Opening a store reads only the header. The data is mapped, so pages of the file are read when they are first used.
Every offset in a header is checked against the length of the file before a byte is mapped.

A mapped file must not become shorter while its bytes are used: the operating system then ends the process (SIGBUS).
`StoreReader` reads the file instead, so truncation or a concurrent write raises an exception.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from inlay.data_type import DataTypeLike
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, printable
from inlay.files import file_error
from inlay.layout import Dims
from inlay.layout.axis import LETTERS
from inlay.memory.buffers import Bytes, allocate
from inlay.notation.format_tag import FormatTag

_PIECE = 1 << 20
"""Bytes per read when a tensor is copied unchanged, so that they are in the cache when they are written."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file."""

    name: str
    """Name in the file; the stem of the file name in formats without names."""
    stored_type: str
    """Element type in the notation of the file: `F32`, `BOOL`, or NumPy's type string in a .npy file."""
    shape: Dims
    """Shape in the file."""
    begin: int
    """Offset of the first byte from the start of the file, in bytes."""
    nbytes: int
    """Size, in bytes."""
    desc: MemoryDesc | None
    """Descriptor of the bytes; None for a scalar or a type without descriptors, such as F6_E2M3."""
    refusal: str = ""
    """Reason why `desc` is None, with a remedy; empty if there is a descriptor."""
    is_packed: bool = False
    """True if `desc` is from Inlay's metadata; False if it follows from type and shape."""

    @property
    def label(self) -> str:
        """Name without control characters, for messages."""
        return printable(self.name)


@dataclass(frozen=True, slots=True)
class Store:
    """A file of tensors, opened for reading."""

    path: Path
    """Path of the file."""
    tensors: tuple[StoredTensor, ...]
    """All tensors, in the order of their bytes in the file."""
    metadata: Mapping[str, str]
    """Metadata of the file, without the text that Inlay writes."""

    def data(self, tensor: StoredTensor) -> Bytes:
        """Map the bytes of `tensor` read-only, and return them."""
        if tensor.nbytes == 0:
            return np.empty(0, np.uint8)
        mapped = np.memmap(self.path, np.uint8, "r", offset=tensor.begin, shape=(tensor.nbytes,))
        return np.asarray(mapped)


class StoreReader:
    """The file of a store, opened for reading without a memory map; a context manager that closes it."""

    def __init__(self, store: Store) -> None:
        """Open the file.

        Raises:
            FileError: the file is missing, or this user may not read it.
        """
        self._path = store.path
        try:
            self._file: BinaryIO = store.path.open("rb", buffering=0)
            self._state = _file_state(self._file)
        except OSError as error:
            raise file_error("read", store.path, error) from error

    def read(self, tensor: StoredTensor) -> Bytes:
        """Read all bytes of `tensor` into a new buffer at an address that is a multiple of 64.

        Raises:
            FileError: the file cannot be read, or became shorter.
            OutOfMemory: the operating system cannot provide the bytes.
        """
        data = allocate(tensor.nbytes)
        self._fill(data, tensor.begin)
        return data

    def read_part(self, tensor: StoredTensor, begin: int, data: Bytes) -> None:
        """Fill `data` with the bytes of `tensor` that start at its byte `begin`.

        Raises:
            FileError: the file cannot be read, or became shorter.
        """
        self._fill(data, tensor.begin + begin)

    def pieces(self, tensor: StoredTensor) -> Iterator[Bytes]:
        """Yield the bytes of `tensor` in order, at most 1 MiB at a time; the next piece overwrites the previous one.

        Raises:
            FileError: the file cannot be read, or became shorter.
        """
        buffer = allocate(min(_PIECE, tensor.nbytes))
        for done in range(0, tensor.nbytes, _PIECE):
            piece = buffer[: min(_PIECE, tensor.nbytes - done)]
            self._fill(piece, tensor.begin + done)
            yield piece

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the file since it was opened, so that all bytes read are from one version.

        Raises:
            FileError: the length or the modification time of the file changed.
        """
        if _file_state(self._file) != self._state:
            raise FileError(f"cannot read {self._path}: it changed while it was being read; try again")

    def _fill(self, buffer: Bytes, begin: int) -> None:
        """Fill `buffer` with bytes of the file that start at byte `begin`."""
        view, done = buffer.data, 0
        try:
            self._file.seek(begin)
            while done < len(view):
                count = self._file.readinto(view[done:])  # type: ignore[attr-defined]
                if not count:
                    raise FileError(f"cannot read {self._path}: it became shorter while it was being read; try again")
                done += count
        except FileError:
            raise
        except OSError as error:
            raise file_error("read", self._path, error) from error

    def __enter__(self) -> "StoreReader":
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._file.close()


def _file_state(file: BinaryIO) -> tuple[int, int]:
    """Return the length, in bytes, and the modification time, in nanoseconds, of an open file."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def require_dims_for_layout(shape: Dims) -> None:
    """Check that a descriptor can have as many dims as `shape`.

    Raises:
        InvalidArguments: there are no dims, or more than 12.
    """
    if not 1 <= len(shape) <= len(LETTERS):
        has = "it is a scalar" if not shape else f"it has {len(shape)} dims"
        raise InvalidArguments(f"{has}, and a layout places 1 to {len(LETTERS)} dims; reshape it first")


def row_major(dims: Dims, data_type: DataTypeLike) -> MemoryDesc:
    """Return the descriptor of a row-major tensor; dims may be 0.

    Raises:
        InvalidArguments: there are no dims, or more than 12, or they are too large.
    """
    require_dims_for_layout(dims)
    return MemoryDesc(dims, data_type, FormatTag(tuple(range(len(dims)))))
