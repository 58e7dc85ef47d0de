"""Targets whose tensors are ranges of bytes of files: .npy, .safetensors, sharded checkpoints, raw bytes and others.

Files are created in the directory of the target, under hidden names that contain the token, and get their final names
at the end. Their space is reserved at the start, so a full disk shows before the first box.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from inlay.descriptor import MemoryDesc
from inlay.files import file_error
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.storage.box import Box
from inlay.storage.box_bytes import require_place
from inlay.storage.target import TargetTensor

PARTIAL_SUFFIX = ".inlay.partial"
"""Suffix of the name of a file until the conversion is complete."""

_NAME_CHARACTERS = 60
"""Number of characters of the final name in the hidden one; names are limited to 255 bytes."""


@dataclass(frozen=True, slots=True)
class TargetFile:
    """One file of a target."""

    path: Path
    """Final path."""
    nbytes: int
    """Size, in bytes."""
    header: bytes
    """Bytes at the start of the file that belong to no tensor."""

    def partial(self, token: str) -> Path:
        """Return the path of the file until the conversion is complete.

        >>> TargetFile(Path("w/a.safetensors"), 64, b"").partial("5f3a").name
        '.a.safetensors.5f3a.inlay.partial'
        """
        return self.path.with_name(f".{self.path.name[:_NAME_CHARACTERS]}.{token}{PARTIAL_SUFFIX}")


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A `Target` whose tensors are ranges of bytes of files."""

    path: Path
    """Path that the caller gave: of the only file, or of an index of files."""
    tensors: Mapping[str, TargetTensor]
    """The tensors by name, in the order of their bytes; `TargetTensor.file` is an index of `files`."""
    files: tuple[TargetFile, ...]
    """The files, in the order in which they get their names: an index of the others comes last."""

    @property
    def location(self) -> str:
        """Path, for messages."""
        return str(self.path)

    def create(self, token: str) -> None:
        """Create all files with their headers, and reserve their space.

        Raises:
            FileError: a file cannot be written, as on a full disk; what was created remains for `discard`.
        """
        for file in self.files:
            try:
                with file.partial(token).open("xb") as opened:
                    if file.nbytes:
                        os.posix_fallocate(opened.fileno(), 0, file.nbytes)
                    opened.write(file.header)
            except OSError as error:
                raise file_error("write", file.path, error) from error

    def is_whole(self, token: str) -> bool:
        """Return True if all files of `create` still exist in their sizes."""
        return all(_size_of(file.partial(token)) == file.nbytes for file in self.files)

    def open(self, token: str) -> "FileWriter":
        """Open all files of `create`.

        Raises:
            FileError: a file does not exist, or this user may not write it.
        """
        return FileWriter(self.files, token)

    def commit(self, token: str) -> None:
        """Write all files to disk, and give them their final names, in order.

        Raises:
            FileError: a file cannot be written or renamed.
        """
        for file in self.files:
            try:
                with file.partial(token).open("rb") as opened:
                    os.fsync(opened.fileno())
            except OSError as error:
                raise file_error("write", file.path, error) from error
        for file in self.files:
            try:
                file.partial(token).replace(file.path)
            except OSError as error:
                raise file_error("write", file.path, error) from error

    def discard(self, token: str) -> None:
        """Remove the files of `create` that still have their hidden names."""
        for file in self.files:
            with suppress(OSError):
                file.partial(token).unlink()


def _size_of(path: Path) -> int:
    """Return the size of a file in bytes, -1 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


class FileWriter:
    """The files of a `FileTarget`, open for writing; a context manager that closes them."""

    syncs_while_writing = True
    """`sync` may run in another thread while boxes are written."""

    def __init__(self, files: Sequence[TargetFile], token: str) -> None:
        """Open the files that `FileTarget.create` made.

        Raises:
            FileError: a file does not exist, or this user may not write it.
        """
        self._files, self._descriptors = tuple(files), list[int]()
        for file in files:
            try:
                self._descriptors.append(os.open(file.partial(token), os.O_WRONLY | getattr(os, "O_CLOEXEC", 0)))
            except OSError as error:
                self.close()
                raise file_error("write", file.path, error) from error

    def box_desc(self, tensor: TargetTensor, box: Box) -> MemoryDesc:
        """Return the descriptor of the runs of a box, one after the other.

        Raises:
            InvalidArguments: the box does not exist in the layout of the tensor (`locate_box`).
        """
        return require_place(tensor.desc, box).desc

    def write_box(self, tensor: TargetTensor, box: Box, memory: Memory) -> None:
        """Write the elements of a box run by run; `memory` has the descriptor of `box_desc`.

        Raises:
            InvalidArguments: the box does not exist in the layout of the tensor (`locate_box`).
            FileError: the file cannot be written, as on a full disk.
        """
        place = require_place(tensor.desc, box)
        data = memory.buffer.reshape(-1).view("u1")
        for i, offset in enumerate(place.offsets()):
            nbytes = min(place.run_nbytes, tensor.nbytes - offset)
            self._write(tensor.file, data[i * place.run_nbytes :][:nbytes], tensor.begin + offset)

    def sync(self) -> None:
        """Wait until the files are on disk.

        Raises:
            FileError: a file cannot be written.
        """
        for file, descriptor in zip(self._files, self._descriptors, strict=True):
            try:
                os.fdatasync(descriptor)
            except OSError as error:
                raise file_error("write", file.path, error) from error

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _write(self, file: int, data: Bytes, begin: int) -> None:
        """Write bytes into a file from byte `begin` on."""
        view, done = data.data, 0
        try:
            while done < len(view):
                done += os.pwritev(self._descriptors[file], [view[done:]], begin + done)
        except OSError as error:
            raise file_error("write", self._files[file].path, error) from error

    def __enter__(self) -> "FileWriter":
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()
