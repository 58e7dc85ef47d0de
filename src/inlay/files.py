"""Files that appear whole or not at all, and the words for what can go wrong with them.

A result is written under a temporary name in the directory of its target, flushed to the disk and then renamed over
the target, so a reader sees the old file or the new one and never a part. Whatever goes wrong, the temporary file is
removed and the target is as it was.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.errors import FileError

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes that were just written."""

_PIECE = 1 << 23
"""Bytes handed to the operating system at once: enough to be fast, few enough for a smooth progress bar."""

_REASONS = {
    errno.ENOENT: "there is no such file; check the name",
    errno.EACCES: "permission denied; check who may use it",
    errno.EPERM: "the operation is not permitted; check who may use it",
    errno.EISDIR: "it is a directory; name a file",
    errno.ENOTDIR: "a part of its path is a file and no directory; check the path",
    errno.ENOSPC: "the disk is full; free space or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free space or write elsewhere",
    errno.EFBIG: "it passes the size limit of this process or file system; raise it (ulimit -f) or write elsewhere",
    errno.EROFS: "the file system is read-only; write elsewhere",
    errno.ENAMETOOLONG: "the name is too long; use a shorter one",
}


def file_error(action: str, path: Path, error: OSError) -> FileError:
    """The `FileError` that says `action` failed on `path` because of `error`.

    >>> print(file_error("read", Path("a.npy"), FileNotFoundError(errno.ENOENT, "")))
    cannot read a.npy: there is no such file; check the name
    """
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return FileError(f"cannot {action} {path}: {reason}")


def require_file(path: Path) -> int:
    """The size in bytes of the regular file `path`.

    Raises:
        FileError: there is no such file, it may not be read, or it is a directory or a device.
    """
    try:
        # Prices before opening: to open a pipe would wait for its writer.
        status = path.stat()
        if S_ISREG(status.st_mode):
            path.open("rb").close()
            return status.st_size
    except OSError as error:
        raise file_error("read", path, error) from error
    if S_ISDIR(status.st_mode):
        raise file_error("read", path, IsADirectoryError(errno.EISDIR, ""))
    raise FileError(f"cannot read {path}: it is a device or pipe; copy its content into a file")


def same_file(first: Path, second: Path) -> bool:
    """Whether both paths lead to one existing file, by whatever links."""
    try:
        return first.samefile(second)
    except OSError:
        return False


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing, that takes the place of `target` when the block ends without an error.

    Post-conditions:
        The block ended: `target` holds what was written, with the permissions of the file it replaces if there was
        one. The block raised: `target` is as it was and its directory holds no new file.

    Raises:
        FileError: the file cannot be created, written or put in place.
    """
    try:
        final = _writable(target)
        temporary = final.with_name(f".{final.name[:100]}.{os.urandom(4).hex()}.tmp")
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if final.exists():
                shutil.copymode(final, temporary)
            temporary.replace(final)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
    except FileError:
        raise
    except OSError as error:
        raise file_error("write", target, error) from error


def _writable(target: Path) -> Path:
    """Where a file named `target` really goes: links are followed."""
    final = target.resolve()
    if not final.parent.exists():
        raise FileError(f"cannot write {target}: the directory {target.parent} does not exist; create it first")
    if final.exists() and not final.is_file():
        kind = "a directory" if final.is_dir() else "a device or pipe"
        raise FileError(f"cannot write {target}: it is {kind}; name a file")
    return final


def write_pieces(file: BinaryIO, pieces: Iterable[npt.NDArray[np.uint8]], progress: Progress | None = None) -> None:
    """Append `pieces` to `file` one after the other; at most one is held here."""
    for piece in pieces:
        write_bytes(file, piece, progress)
        del piece  # or it would live on while the next is made


def write_bytes(file: BinaryIO, data: npt.NDArray[np.uint8], progress: Progress | None = None) -> None:
    """Append `data` to `file` in parts, telling `progress` after each."""
    for begin in range(0, data.size, _PIECE):
        piece = data[begin : begin + _PIECE]
        file.write(np.ascontiguousarray(piece).data)
        if progress is not None:
            progress(piece.size)
