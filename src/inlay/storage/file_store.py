"""Stores whose tensors are ranges of bytes of files: .npy, .safetensors, sharded checkpoints, raw bytes and others.

The bytes are read at their offsets, run by run (`inlay.storage.box_bytes`). The files are not mapped: a mapped file
that becomes shorter ends the process (SIGBUS), a read raises an exception. `FileStore.data` maps the bytes for callers
that want the tensors themselves; there the caller answers for the file.

A few tensors are no range of bytes, such as compressed ones. They are read as a whole (`WholeTensor`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.memory.result_pool import result_pool_of_process
from inlay.storage.box import Box
from inlay.storage.box_bytes import BoxBytes, require_place
from inlay.storage.locations import SourcePath
from inlay.storage.source_files import ByteRun, FileVersion, SourceFiles
from inlay.storage.source_files import version_of as version_of
from inlay.storage.store import StoredTensor


class WholeTensor(Protocol):
    """The bytes of a tensor that are no range of bytes of a file: a value that can be pickled."""

    def read(self) -> Bytes:
        """Return all bytes of the tensor.

        Raises:
            FileError: they cannot be read.
        """


@dataclass(frozen=True, slots=True)
class FileStore:
    """A `Store` whose tensors are ranges of bytes of files."""

    path: SourcePath
    """Path or URL that the caller gave: of the only file, of an index of files, or of a folder."""
    tensors: tuple[StoredTensor, ...]
    """All tensors, in the order of their bytes; `StoredTensor.file` is an index of `files`."""
    metadata: Mapping[str, str]
    """Metadata of the files, without the text that Inlay writes."""
    files: tuple[FileVersion, ...]
    """The files, as they were when their headers were read."""
    whole: Mapping[str, WholeTensor] = field(default_factory=dict)
    """Tensors that are no ranges of bytes, by name."""

    @property
    def location(self) -> str:
        """Path or URL, for messages."""
        return str(self.path)

    @property
    def version(self) -> str:
        """Sizes and times of modification of all files."""
        return " ".join(map(str, self.files))

    def open(self) -> "FileReader":
        """Return a reader, which opens the files when it reads them."""
        return FileReader(self.files, self.whole)

    def data(self, tensor: StoredTensor) -> Bytes:
        """Map the bytes of `tensor` read-only, and return them.

        Raises:
            FileError: the file is at a URL, or the tensor cannot be read.
        """
        if tensor.nbytes == 0:
            return np.empty(0, np.uint8)
        if tensor.name in self.whole:
            return self.whole[tensor.name].read()
        path = self.files[tensor.file].path
        if not isinstance(path, Path):
            raise FileError(f"cannot map {path}: only files of this machine are mapped; download it first")
        return np.asarray(np.memmap(path, np.uint8, "r", offset=tensor.begin, shape=(tensor.nbytes,)))


class FileReader:
    """The files of a `FileStore`, for reading; a context manager that closes them."""

    def __init__(self, files: Sequence[FileVersion], whole: Mapping[str, WholeTensor] | None = None) -> None:
        """Remember the files; each is opened at its first read."""
        self._files, self._whole = SourceFiles(files), whole or {}

    def read_box(self, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Memory:
        """Return the elements of a box, in the order in which the file has them.

        Raises:
            InvalidArguments: the box does not exist in `desc` (`locate_box`).
            FileError: the file cannot be read, or became shorter.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """
        place = require_place(desc, box)
        if tensor.name in self._whole:
            return Memory(place.desc, self._read_whole(tensor, place))
        data = result_pool_of_process().allocate(place.nbytes, is_overwritten=True)
        self._files.fill(tensor.file, _byte_runs(place, tensor.begin, tensor.nbytes, data))
        return Memory(place.desc, data)

    def _read_whole(self, tensor: StoredTensor, place: BoxBytes) -> Bytes:
        """Return the bytes of a box of a tensor that is read as a whole; all of them without a copy."""
        self._files.mark_read(tensor.file)
        whole = self._whole[tensor.name].read()
        if (place.begin, place.count, place.nbytes) == (0, 1, whole.size):
            return whole
        data = result_pool_of_process().allocate(place.nbytes, is_overwritten=True)
        for run in _byte_runs(place, 0, tensor.nbytes, data):
            run.data[:] = whole[run.begin : run.end]
        return data

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the files that were read since the last check.

        Raises:
            FileError: the size, the time of modification or the ETag of a file changed.
        """
        self._files.require_unchanged()

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def __enter__(self) -> "FileReader":
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()


def _byte_runs(place: BoxBytes, begin: int, nbytes: int, data: Bytes) -> Iterator[ByteRun]:
    """Yield the runs of a box of a tensor of `nbytes` bytes that starts at byte `begin`, with the parts of `data`."""
    for i, offset in enumerate(place.offsets()):
        # The file may end before the padding of the last run, which holds no element.
        run = data[i * place.run_nbytes : (i + 1) * place.run_nbytes]
        stored = max(min(run.size, nbytes - offset), 0)
        run[stored:] = 0
        yield ByteRun(begin + offset, run[:stored])
