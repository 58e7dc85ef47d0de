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
from inlay.memory.buffers import Bytes, allocate
from inlay.storage.box import Box
from inlay.storage.box_bytes import require_place
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
        """Open all files.

        Raises:
            FileError: a file is missing, or this user may not read it.
        """
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
        """Open the files.

        Raises:
            FileError: a file is missing, or this user may not read it.
        """
        self._files, self._descriptors = tuple(files), list[int]()
        for file in files:
            try:
                self._descriptors.append(os.open(file.path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
            except OSError as error:
                self.close()
                raise file_error("read", file.path, error) from error

    def read_box(self, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Memory:
        """Return the elements of a box, in the order in which the file has them.

        Raises:
            InvalidArguments: the box does not exist in `desc` (`locate_box`).
            FileError: the file cannot be read, or became shorter.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """
        place = require_place(desc, box)
        data = allocate(place.nbytes)
        for i, offset in enumerate(place.offsets()):
            # The file may end before the padding of the last run, which holds no element.
            nbytes = min(place.run_nbytes, tensor.nbytes - offset)
            self._fill(tensor.file, data[i * place.run_nbytes :][:nbytes], tensor.begin + offset)
        return Memory(place.desc, data)

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the files since their headers were read.

        Raises:
            FileError: the size or the time of modification of a file changed.
        """
        for file, descriptor in zip(self._files, self._descriptors, strict=True):
            status = os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) != (file.nbytes, file.modified):
                raise FileError(f"cannot read {file.path}: it changed while it was being read; try again")

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _fill(self, file: int, data: Bytes, begin: int) -> None:
        """Fill `data` with bytes of a file that start at byte `begin`."""
        view, done, path = data.data, 0, self._files[file].path
        try:
            while done < len(view):
                count = os.preadv(self._descriptors[file], [view[done:]], begin + done)
                if not count:
                    raise FileError(f"cannot read {path}: it became shorter while it was being read; try again")
                done += count
        except FileError:
            raise
        except OSError as error:
            raise file_error("read", path, error) from error

    def __enter__(self) -> "FileReader":
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()
