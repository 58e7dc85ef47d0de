"""Files that appear whole or not at all, and the words for what can go wrong with them.

A result is written under a temporary name in the directory of its target, flushed to the disk and then renamed over
the target, so a reader sees the old file or the new one and never a part. Whatever goes wrong, the temporary file is
removed and the target is as it was. Only a process that is killed leaves one, and a later one can tell that it did: the
lock on the file ended with its writer.
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
except ImportError:  # the system locks files in another way, and removes none that is open
    fcntl = None  # type: ignore[assignment]

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes that were just written."""

_PIECE = 1 << 23
"""Bytes handed to the operating system at once: enough to be fast, few enough for a smooth progress bar."""

_SHOWN = 40
"""Characters of the name of a file in that of its temporary file; a name may have 255 bytes."""

_SUFFIX = ".inlay.tmp"
"""The end of the names of temporary files."""

_MOVES_OPEN_FILES = os.name == "posix"
"""Whether a file may be renamed while it is open: so it stays locked until it is in place."""

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
    errno.ELOOP: "its links lead in a circle; remove one of them",
    errno.ENAMETOOLONG: "the name is too long; use a shorter one",
}


def file_error(action: str, path: Path, error: OSError) -> FileError:
    """The `FileError` that says `action` failed on `path` because of `error`.

    >>> print(file_error("read", Path("a.npy"), FileNotFoundError(errno.ENOENT, "")))
    cannot read a.npy: there is no such file; check the name
    """
    return FileError(f"cannot {action} {path}: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    """What the operating system refused, and what helps, as far as it is known."""
    return _REASONS.get(error.errno or 0) or error.strerror or str(error)


def require_path(path: Path, action: str = "read") -> None:
    """Refuse a path that no file can have.

    Raises:
        FileError: it contains the character NUL.
    """
    if "\0" in str(path):
        raise FileError(f"cannot {action} {str(path)!r}: no file name contains the character NUL; check the name")


def require_file(path: Path) -> int:
    """The size in bytes of the regular file `path`.

    Raises:
        FileError: there is no such file, it may not be read, or it is a directory or a device.
    """
    require_path(path)
    try:
        # Its status before its content: to open a pipe would wait for its writer.
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
    """Whether both paths lead to one existing file, by whatever links."""
    try:
        return first.samefile(second)
    except (OSError, ValueError):
        return False


def require_unused(target: Path, *sources: Path) -> None:
    """Refuse to write to a file that is being read.

    Raises:
        FileError: `target` is one of `sources`, by whatever links.
    """
    if any(is_same_file(source, target) for source in sources):
        raise FileError(f"cannot write {target}: it is the file that is being read; choose another name")


@contextmanager
def atomic_write(target: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing, that takes the place of `target` when the block ends without an error.

    Post-conditions:
        The block ended: `target` holds what was written, with the permissions of the file it replaces if there was
        one. The block raised: `target` is as it was and its directory holds no new file. The process was killed: a
        temporary file may be left, which `find_abandoned` finds.

    Raises:
        FileError: the file cannot be created, written or put in place.
    """
    require_path(target, "write")
    try:
        final = _writable(target)
        temporary, file = _new_temporary(final)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if final.exists():
                    shutil.copymode(final, temporary)
                if not _MOVES_OPEN_FILES:
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
    """Temporary files that writers of `target` left behind because they were killed; those still being written are not.

    >>> find_abandoned(Path("weights.safetensors"))
    []
    """
    try:
        final = target.resolve()
        found = sorted(final.parent.glob(f".*.{_digest(final)}.*{_SUFFIX}"))
        return [path for path in found if _is_abandoned(path)]
    except (OSError, RuntimeError, ValueError):
        return []


def remove_abandoned(target: Path) -> list[Path]:
    """Remove the files that `find_abandoned` finds, and return them.

    Raises:
        FileError: one cannot be removed.
    """
    found = find_abandoned(target)
    for path in found:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise file_error("remove", path, error) from error
    return found


def _new_temporary(final: Path) -> tuple[Path, BinaryIO]:
    """A new file beside `final`, locked as long as it is open: who finds it locked knows that its writer lives."""
    while True:
        path = final.with_name(f".{final.name[:_SHOWN]}.{_digest(final)}.{os.urandom(4).hex()}{_SUFFIX}")
        file = path.open("xb")
        if _lock(file) is not False and path.exists():
            return path, file
        file.close()  # somebody took it for abandoned before it was locked


def _digest(final: Path) -> str:
    """What tells temporary files of one target from those of another: names may be longer than is shown of them."""
    return sha256(os.fsencode(final.name)).hexdigest()[:12]


def _is_abandoned(path: Path) -> bool:
    try:
        if not S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            return _lock(file) is True
    except OSError:
        return False


def _lock(file: BinaryIO) -> bool | None:
    """Lock an open file until it is closed; False if another one has it locked, None where files cannot be locked."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return None
    return True


def _writable(target: Path) -> Path:
    """Where a file named `target` really goes: links are followed.

    Raises:
        FileError: a directory or a device is in the way, or there is no directory for it.
        OSError: links lead in a circle, or the file may not be written.
    """
    try:
        final = target.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, "") from None
    if final.is_symlink():  # nothing is left to follow, so the links lead in a circle
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
