"""Reads and writes of open files at given offsets: system calls where a system has them, seeks under a lock elsewhere.

`pread` and `pwrite` do not move the position of a file, so threads share one descriptor. Windows has neither. There,
each access sets the position first, and a lock keeps other threads of the process away.

Each function raises the OSError of the operating system.
"""

import errno
import os
import threading
from pathlib import Path

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
_position_lock = threading.Lock()


def open_to_read(path: Path) -> int:
    """Open a file, and return its descriptor."""
    return os.open(path, os.O_RDONLY | _FLAGS)


def open_to_write(path: Path) -> int:
    """Open an existing file, and return its descriptor."""
    return os.open(path, os.O_RDWR | _FLAGS)


def read_at(descriptor: int, data: memoryview, offset: int) -> int:
    """Fill `data` with bytes of a file from `offset` on, and return their number: less if the file ends before."""
    done = 0
    while done < len(data):
        count = _read_some(descriptor, data[done:], offset + done)
        if not count:
            break
        done += count
    return done


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all bytes of `data` to a file from `offset` on."""
    done = 0
    while done < len(data):
        done += _write_some(descriptor, data[done:], offset + done)


def reserve(descriptor: int, nbytes: int) -> None:
    """Give a new file a size; if the file system can, reserve its space, so that later writes do not fill the disk."""
    if nbytes and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
        else:
            return
    os.ftruncate(descriptor, nbytes)


def sync(descriptor: int) -> None:
    """Wait until the bytes of a file are on disk."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names of the files in a directory are on disk, where the system and its user can do that."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except PermissionError:  # a directory that may be written and not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def _read_some(descriptor: int, data: memoryview, offset: int) -> int:
    """Read up to `len(data)` bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [data], offset)
    with _position_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        piece = os.read(descriptor, len(data))
    data[: len(piece)] = piece
    return len(piece)


def _write_some(descriptor: int, data: memoryview, offset: int) -> int:
    """Write up to `len(data)` bytes."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _position_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)
