"""Targets whose tensors are ranges of bytes of files: .npy, .safetensors, sharded checkpoints, raw bytes and others.

Files are created in the directory of the target, under hidden names that contain the token, and get their final names
at the end. Their space is reserved at the start, so a full disk shows before the first box. Links are followed: the
file at their end is replaced, and keeps its permissions.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.files import file_error, require_writable
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.storage.box import Box
from inlay.storage.box_bytes import require_place
from inlay.storage.positioned_io import open_to_write, reserve, sync, sync_directory, write_at
from inlay.storage.target import TargetTensor

PARTIAL_SUFFIX = ".inlay.partial"
"""Suffix of the name of a file until the conversion is complete."""

_NAME_CHARACTERS = 60
"""Most characters of the final name in the hidden one; names are limited to 255 bytes."""
_DIGEST_CHARACTERS = 12
"""Number of characters of a digest in the place of the rest of a longer name, as those of shards differ at the end."""


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
        """Return the path of the file until the conversion is complete: beside the file that it becomes.

        Raises:
            FileError: links form a cycle.

        >>> TargetFile(Path("w/a.safetensors"), 64, b"").partial("5f3a").name
        '.a.safetensors.5f3a.inlay.partial'
        """
        try:
            final = self.path.resolve()
        except (OSError, RuntimeError) as error:
            raise FileError(f"cannot write {self.path}: its links form a cycle; remove one of them") from error
        name = final.name
        if len(name) > _NAME_CHARACTERS:
            digest = sha256(os.fsencode(name)).hexdigest()[:_DIGEST_CHARACTERS]
            name = name[: _NAME_CHARACTERS - _DIGEST_CHARACTERS] + digest
        return final.with_name(f".{name}.{token}{PARTIAL_SUFFIX}")


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

    @property
    def last_name(self) -> str:
        """Path of the last file: a folder and the index in it are one target."""
        return str(self.files[-1].path)

    def find_existing(self) -> str | None:
        """Return the path of the first file that `commit` would replace; None if there is none."""
        return next((str(file.path) for file in self.files if os.path.isfile(file.path)), None)  # noqa: PTH113

    def create(self, token: str) -> None:
        """Create all files with their headers, and reserve their space.

        Raises:
            FileError: a file cannot be written, as on a full disk, or its directory does not exist; or a directory, a
                device or a file without permission to write has its name. What was created remains for `discard`.
        """
        for file in self.files:
            require_writable(file.path)
        for file in self.files:
            try:
                with file.partial(token).open("xb") as opened:
                    reserve(opened.fileno(), file.nbytes)
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

    def sync(self, token: str) -> None:
        """Wait until all files and their hidden names are on disk.

        Raises:
            FileError: a file cannot be written.
        """
        for file in self.files:
            partial = file.partial(token)
            try:
                _sync_file(partial)
                sync_directory(partial.parent)
            except OSError as error:
                raise file_error("write", file.path, error) from error

    def commit(self, token: str, *, again: bool = False) -> None:
        """Give all files their final names, in order; none if one of them cannot be written now.

        Raises:
            FileError: a file cannot be renamed.
        """
        files = [file for file in self.files if not (again and self._is_renamed(file, token))]
        finals = [require_writable(file.path) for file in files]
        for file, final in zip(files, finals, strict=True):
            partial = file.partial(token)
            try:
                if final.exists():
                    shutil.copymode(final, partial)
                partial.replace(final)
                sync_directory(final.parent)
            except OSError as error:
                raise file_error("write", file.path, error) from error

    def _is_renamed(self, file: TargetFile, token: str) -> bool:
        """Return True if an interrupted commit has given a file its final name."""
        return not file.partial(token).exists() and _size_of(file.path) == file.nbytes

    def discard(self, token: str) -> None:
        """Remove the files of `create` that still have their hidden names."""
        for file in self.files:
            with suppress(OSError):
                file.partial(token).unlink()


def _sync_file(path: Path) -> None:
    """Wait until the bytes of a file are on disk."""
    descriptor = open_to_write(path)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


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
        """Open the files that `FileTarget.create` made; all, since each is to report its write errors to `sync`.

        Raises:
            FileError: a file does not exist, or this user may not write it.
        """
        self._files, self._descriptors = tuple(files), list[int]()
        for file in files:
            try:
                self._descriptors.append(open_to_write(file.partial(token)))
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
        data: Bytes = memory.buffer.reshape(-1).view("u1")
        view, run = data.data, place.run_nbytes
        descriptor = self._descriptors[tensor.file]
        try:
            for begin, offset in zip(range(0, place.nbytes, run or 1), place.offsets(), strict=False):
                # The file may end before the padding of the last run, which holds no element.
                nbytes = max(min(run, tensor.nbytes - offset), 0)
                write_at(descriptor, view[begin : begin + nbytes], tensor.begin + offset)
        except OSError as error:
            raise file_error("write", self._files[tensor.file].path, error) from error

    def sync(self) -> None:
        """Wait until the boxes that were written are on disk.

        Raises:
            FileError: a file cannot be written.
        """
        for file, descriptor in zip(self._files, self._descriptors, strict=True):
            try:
                sync(descriptor)
            except OSError as error:
                raise file_error("write", file.path, error) from error

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> "FileWriter":
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self.close()
