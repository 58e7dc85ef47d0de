"""Atomic writes of files, checks of paths, and error messages for what the operating system refuses.

`atomic_write` writes under a temporary name in the directory of the target, flushes the file to disk and renames it to
the target. So a reader sees the old file or the new one, never a part. If an exception is raised, the temporary file is
removed and the target is unchanged. Only a killed process leaves a temporary file. `find_abandoned` recognizes it: the
writer holds a lock on the file, and the operating system releases the lock when the process ends.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.errors import FileError

try:
    import fcntl
except ImportError:  # Windows, which does not remove open files
    fcntl = None  # type: ignore[assignment]

Progress: TypeAlias = Callable[[int], None]
"""A callback that gets the number of bytes of each write."""

_PIECE = 1 << 23
"""Bytes per write: large enough for full speed, small enough for frequent updates of a progress bar."""

_NAME_CHARACTERS = 40
"""Number of characters of the target's name in the name of its temporary file; names are limited to 255 bytes."""

_SUFFIX = ".inlay.tmp"
"""Suffix of temporary files."""

_CAN_RENAME_OPEN_FILES = os.name == "posix"
"""True if a file can be renamed while it is open, so that it stays locked until it has its final name."""

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
    errno.ELOOP: "its links form a cycle; remove one of them",
    errno.ENAMETOOLONG: "the name is too long; use a shorter one",
}


def file_error(action: str, path: Path, error: OSError) -> FileError:
    """Return a `FileError` which states that `action` failed on `path` because of `error`.

    >>> print(file_error("read", Path("a.npy"), FileNotFoundError(errno.ENOENT, "")))
    cannot read a.npy: there is no such file; check the name
    """
    return FileError(f"cannot {action} {path}: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    """Return the reason of an error of the operating system, with a remedy for the common ones."""
    return _REASONS.get(error.errno or 0) or error.strerror or str(error)


def require_path(path: Path, action: str = "read") -> None:
    """Check that a path contains no NUL character.

    Raises:
        FileError: it does.
    """
    if "\0" in str(path):
        raise FileError(f"cannot {action} {str(path)!r}: no file name contains the character NUL; check the name")


def require_file(path: Path) -> int:
    """Check that `path` is a regular file that can be read, and return its size in bytes.

    Raises:
        FileError: there is no such file, this user may not read it, or it is a directory or a device.
    """
    require_path(path)
    try:
        # Check the type before opening: opening a pipe would block until it has a writer.
        status = path.stat()
        if S_ISREG(status.st_mode):
            path.open("rb").close()
            return status.st_size
    except OSError as error:
        raise file_error("read", path, error) from error
    if S_ISDIR(status.st_mode):
        raise file_error("read", path, IsADirectoryError(errno.EISDIR, ""))
    raise FileError(f"cannot read {path}: it is a device or pipe; copy its content into a file")


def is_same_file(first: Path, second: Path) -> bool:
    """Return True if both paths lead, directly or through links, to the same existing file."""
    try:
        return first.samefile(second)
    except (OSError, ValueError):
        return False


def require_unused(target: Path, *sources: Path) -> None:
    """Check that the file to write is not one of the files that are read.

    Raises:
        FileError: `target` and one of `sources` lead, directly or through links, to the same file.
    """
    if any(is_same_file(source, target) for source in sources):
        raise FileError(f"cannot write {target}: it is the file that is being read; choose another name")


@contextmanager
def atomic_write(target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing, and rename it to `target` when the `with` block ends.

    Post-conditions:
        After a block without an exception, `target` has the written content, and the permissions of the file that it
        replaces, if there was one.
        After a block with an exception, `target` is unchanged and its directory has no new file.
        If the process is killed, a temporary file may remain, which `find_abandoned` finds.

    Raises:
        FileError: the file cannot be created, written or renamed.
    """
    require_path(target, "write")
    try:
        final = _resolve_target(target)
        temporary, file = _new_temporary(final)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if final.exists():
                    shutil.copymode(final, temporary)
                if not _CAN_RENAME_OPEN_FILES:
                    file.close()
                temporary.replace(final)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
    except FileError:
        raise
    except OSError as error:
        raise file_error("write", target, error) from error


def find_abandoned(target: Path) -> list[Path]:
    """Return the temporary files that killed writers of `target` left; files of running writers are not included.

    >>> find_abandoned(Path("weights.safetensors"))
    []
    """
    try:
        final = target.resolve()
        candidates = sorted(final.parent.glob(f".*.{_name_digest(final)}.*{_SUFFIX}"))
        return [path for path in candidates if _is_abandoned(path)]
    except (OSError, RuntimeError, ValueError):
        return []


def remove_abandoned(target: Path) -> list[Path]:
    """Remove the files that `find_abandoned` returns, and return their paths.

    Raises:
        FileError: a file cannot be removed.
    """
    paths = find_abandoned(target)
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise file_error("remove", path, error) from error
    return paths


def _new_temporary(final: Path) -> tuple[Path, BinaryIO]:
    """Create a temporary file in the directory of `final`, and lock it; the lock shows that its writer is running."""
    while True:
        path = final.with_name(f".{final.name[:_NAME_CHARACTERS]}.{_name_digest(final)}.{os.urandom(4).hex()}{_SUFFIX}")
        file = path.open("xb")
        if try_lock(file) is not False and path.exists():
            return path, file
        file.close()  # another process removed it as abandoned before it was locked: try again


def _name_digest(final: Path) -> str:
    """Return a digest of the whole name of the target, since temporary names contain only a part of it."""
    return sha256(os.fsencode(final.name)).hexdigest()[:12]


def _is_abandoned(path: Path) -> bool:
    """Return True if `path` is a regular file without a lock."""
    try:
        if not S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            return try_lock(file) is True
    except OSError:
        return False


def try_lock(file: BinaryIO) -> bool | None:
    """Try to lock an open file until it is closed.

    Return True if it is locked now, False if another process or file object holds the lock, None if locks are not
    supported.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system does not support locks
        return None
    return True


def _resolve_target(target: Path) -> Path:
    """Follow symbolic links from `target`, and return the path of the file to write.

    Raises:
        FileError: the path is a directory or a device, or its parent directory does not exist.
        OSError: links form a cycle, or this user may not write the file.
    """
    try:
        final = target.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, "") from None
    if final.is_symlink():  # `resolve` stops at a link only if links form a cycle
        raise OSError(errno.ELOOP, "")
    if not final.parent.exists():
        link = f"it is a link to {final}, and " if target.is_symlink() else ""
        missing = final.parent if link else target.parent
        raise FileError(f"cannot write {target}: {link}the directory {missing} does not exist; create it first")
    if final.exists() and not final.is_file():
        kind = "a directory" if final.is_dir() else "a device or pipe"
        raise FileError(f"cannot write {target}: it is {kind}; name a file")
    if final.exists() and not os.access(final, os.W_OK):
        raise PermissionError(errno.EACCES, "")
    return final


def require_writable(target: Path) -> Path:
    """Check that a file can be written, and return the one at the end of all links from `target`.

    Raises:
        FileError: the path is a directory or a device, its directory does not exist, links form a cycle, or this user
            may not replace the file.
    """
    require_path(target, "write")
    try:
        return _resolve_target(target)
    except FileError:
        raise
    except OSError as error:
        raise file_error("write", target, error) from error


def write_pieces(file: BinaryIO, pieces: Iterable[npt.NDArray[np.uint8]], progress: Progress | None = None) -> None:
    """Append `pieces` to `file`, with at most one piece in memory at a time."""
    for piece in pieces:
        write_bytes(file, piece, progress)
        del piece  # free its memory before the iterator makes the next piece


def write_bytes(file: BinaryIO, data: npt.NDArray[np.uint8], progress: Progress | None = None) -> None:
    """Append `data` to `file` in parts of `_PIECE` bytes, and call `progress` after each part."""
    for begin in range(0, data.size, _PIECE):
        piece = data[begin : begin + _PIECE]
        file.write(np.ascontiguousarray(piece).data)
        if progress is not None:
            progress(piece.size)
