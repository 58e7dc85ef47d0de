"""A store: what a file of tensors holds, whatever its format.

    weights.safetensors
        conv1.weight   F32  (64, 3, 7, 7)   bytes 37632 from 1024
        conv1.bias     F32  (64,)           bytes   256 from 38656

Opening a store reads the header alone. The data is mapped, so a file larger than memory costs nothing until a tensor
of it is used. Everything a header claims is checked against the length of the file before a byte is mapped.

A mapped file must not become shorter while its bytes are used: the operating system then ends the process (SIGBUS).
`StoreReader` reads in place of mapping, so a file that somebody cuts short or rewrites meanwhile is an error in words.
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
"""Bytes that are read at once where a tensor is copied as it is: they are written while they are in the cache."""


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

    @property
    def label(self) -> str:
        """The name as it may be shown."""
        return printable(self.name)


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


class StoreReader:
    """The file of a store, open for reading without a map; a context that closes it."""

    def __init__(self, store: Store) -> None:
        """Open the file.

        Raises:
            FileError: it is missing or may not be read.
        """
        self._path = store.path
        try:
            self._file: BinaryIO = store.path.open("rb", buffering=0)
            self._state = _state_of(self._file)
        except OSError as error:
            raise file_error("read", store.path, error) from error

    def read(self, tensor: StoredTensor) -> Bytes:
        """Read all bytes of `tensor` into memory that begins on a multiple of 64.

        Raises:
            FileError: the file cannot be read, or became shorter.
            OutOfMemory: there is no room for the bytes.
        """
        data = allocate(tensor.nbytes)
        self._fill(data, tensor.begin)
        return data

    def read_part(self, tensor: StoredTensor, begin: int, data: Bytes) -> None:
        """Fill `data` with the bytes of `tensor` from its byte `begin` on.

        Raises:
            FileError: the file cannot be read, or became shorter.
        """
        self._fill(data, tensor.begin + begin)

    def pieces(self, tensor: StoredTensor) -> Iterator[Bytes]:
        """The bytes of `tensor` in order, at most 1 MiB at a time; a piece is overwritten by the next.

        Raises:
            FileError: the file cannot be read, or became shorter.
        """
        buffer = allocate(min(_PIECE, tensor.nbytes))
        for done in range(0, tensor.nbytes, _PIECE):
            piece = buffer[: min(_PIECE, tensor.nbytes - done)]
            self._fill(piece, tensor.begin + done)
            yield piece

    def require_unchanged(self) -> None:
        """Refuse a file that somebody wrote to since it was opened: bytes of both contents may have been read.

        Raises:
            FileError: its length or its time of modification changed.
        """
        if _state_of(self._file) != self._state:
            raise FileError(f"cannot read {self._path}: it changed while it was being read; try again")

    def _fill(self, buffer: Bytes, begin: int) -> None:
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


def _state_of(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


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
