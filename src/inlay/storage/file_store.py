"""Stores whose tensors are ranges of bytes of files: .npy, .safetensors, sharded checkpoints, raw bytes and others.

The bytes are read at their offsets, run by run (`inlay.storage.box_bytes`). The files are not mapped: a mapped file
that becomes shorter ends the process (SIGBUS), a read raises an exception. `FileStore.data` maps the bytes for callers
that want the tensors themselves; there the caller answers for the file.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.files import file_error, require_path
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.memory.result_pool import result_pool_of_process
from inlay.storage.box import Box
from inlay.storage.box_bytes import require_place
from inlay.storage.positioned_io import open_to_read, read_at
from inlay.storage.store import StoredTensor


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file as it was when its header was read."""

    path: Path
    """Path of the file."""
    nbytes: int
    """Size, in bytes."""
    modified: int
    """Time of the last modification, in nanoseconds."""


def version_of(path: Path) -> FileVersion:
    """Return the present version of a file.

    Raises:
        FileError: there is no such file, or this user may not look at it.
    """
    require_path(path)
    try:
        status = path.stat()
    except OSError as error:
        raise file_error("read", path, error) from error
    return FileVersion(path, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class FileStore:
    """A `Store` whose tensors are ranges of bytes of files."""

    path: Path
    """Path that the caller gave: of the only file, of an index of files, or of a folder."""
    tensors: tuple[StoredTensor, ...]
    """All tensors, in the order of their bytes; `StoredTensor.file` is an index of `files`."""
    metadata: Mapping[str, str]
    """Metadata of the files, without the text that Inlay writes."""
    files: tuple[FileVersion, ...]
    """The files, as they were when their headers were read."""

    @property
    def location(self) -> str:
        """Path, for messages."""
        return str(self.path)

    @property
    def version(self) -> str:
        """Sizes and times of modification of all files."""
        return " ".join(f"{file.path.name}:{file.nbytes}:{file.modified}" for file in self.files)

    def open(self) -> "FileReader":
        """Return a reader, which opens each file when its first box is read."""
        return FileReader(self.files)

    def data(self, tensor: StoredTensor) -> Bytes:
        """Map the bytes of `tensor` read-only, and return them."""
        if tensor.nbytes == 0:
            return np.empty(0, np.uint8)
        path = self.files[tensor.file].path
        return np.asarray(np.memmap(path, np.uint8, "r", offset=tensor.begin, shape=(tensor.nbytes,)))


class FileReader:
    """The files of a `FileStore`, open for reading; a context manager that closes them."""

    def __init__(self, files: Sequence[FileVersion]) -> None:
        """Open the files, each when its first box is read."""
        self._files, self._descriptors = tuple(files), dict[int, int]()

    def read_box(self, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Memory:
        """Return the elements of a box, in the order in which the file has them.

        Raises:
            InvalidArguments: the box does not exist in `desc` (`locate_box`).
            FileError: the file cannot be read, or became shorter.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """
        place = require_place(desc, box)
        data = result_pool_of_process().allocate(place.nbytes, is_overwritten=True)
        run = place.run_nbytes
        for begin, offset in zip(range(0, place.nbytes, run or 1), place.offsets(), strict=False):
            # The file may end before the padding of the last run, which holds no element.
            nbytes = max(min(run, tensor.nbytes - offset), 0)
            self._fill(tensor.file, data[begin : begin + nbytes], tensor.begin + offset)
            data[begin + nbytes : begin + run] = 0
        return Memory(place.desc, data)

    def _fill(self, file: int, data: Bytes, begin: int) -> None:
        """Fill `data` with bytes of a file that start at byte `begin`."""
        path = self._files[file].path
        try:
            count = read_at(self._open(file), data.data, begin)
        except OSError as error:
            raise file_error("read", path, error) from error
        if count < data.size:
            raise FileError(f"cannot read {path}: it became shorter while it was being read; try again")

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the open files since their headers were read.

        Raises:
            FileError: the size or the time of modification of a file changed.
        """
        for number, descriptor in self._descriptors.items():
            file, status = self._files[number], os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) != (file.nbytes, file.modified):
                raise FileError(f"cannot read {file.path}: it changed while it was being read; try again")

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _open(self, file: int) -> int:
        """Return the descriptor of a file, which is opened at its first use."""
        descriptor = self._descriptors.get(file)
        if descriptor is None:
            opened = open_to_read(self._files[file].path)
            descriptor = self._descriptors.setdefault(file, opened)
            if descriptor != opened:  # another thread opened it at the same time
                os.close(opened)
        return descriptor

    def __enter__(self) -> "FileReader":
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()
