"""The on-disk cache: machine code, tuning results, costs of kernels and the machine model, shared between processes.

The cache is a directory that only its user can write to: `INLAY_CACHE_DIR`, or `inlay` in the user's cache directory
according to `platformdirs`. All reads and writes of the cache go through this package, in this order of modules:

    private_directory   opens the directory, checks owners and permissions, reads and writes files
    size_limit          removes the least recently used files when the directory is too large
    __init__            objects by key, and locks

The name of a file is the SHA-256 digest of the inputs that determine its content (for machine code, see
`reordering.target`). A file begins with a digest of its key and content; a file that is truncated, damaged or stored
under another key is ignored and written again. A file is written under a temporary name and renamed, so two processes
can write one file at the same time, and the last one replaces it. A process that reads a file, changes the content and
writes it back holds its lock (`hold_lock`).

If the directory cannot be used, reorders and plans still work: `read_object` returns None, `write_object` does nothing,
and code is compiled again.

Terms:

    object          the content that is stored under a key
    key             the SHA-256 digest of the inputs that determine an object
    kind            the suffix of the file name, such as `o` for machine code
    sticky bit      the permission bit of a directory in which users may rename and remove only their own files (POSIX,
                    `S_ISVTX`)
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from inlay.cache import size_limit
from inlay.cache.private_directory import PrivateDirectory
from inlay.errors import FileError
from inlay.files import file_error

_DIGEST_BYTES = sha256().digest_size
_MAX_FILE_BYTES = 1 << 26
"""Maximum size of a file that is read, in bytes: 64 MiB, a hundred times the size of the largest object."""


def require_cache_directory() -> Path:
    """Return the directory of the cache, and create it if it does not exist.

    Raises:
        FileError: the directory cannot be created; or it, or one of its parents, belongs to another user, or other
            users may write to it.
    """
    with _open_directory() as directory:
        return directory.path


def private_path(name: str) -> Path:
    """Return the path of a file of this name in the cache, where only this user can write.

    Raises:
        FileError: as `require_cache_directory`.
    """
    return require_cache_directory() / name


def measure_cache() -> tuple[Path, int, int]:
    """Return the directory of the cache, the number of its files, and their size in bytes.

    Raises:
        FileError: as `require_cache_directory`.
    """
    directory = require_cache_directory()
    with os.scandir(directory) as entries:
        sizes = [entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)]
    return directory, len(sizes), sum(sizes)


def configured_directory() -> str:
    """Return the directory of the cache that the environment currently specifies; it may not exist."""
    return os.environ.get("INLAY_CACHE_DIR") or str(_user_cache_directory())


def _open_directory() -> PrivateDirectory:
    """Open the directory of the cache.

    Raises:
        FileError: as `require_cache_directory`.
    """
    path = Path(configured_directory())
    try:
        path = path.expanduser()
    except RuntimeError as error:
        raise FileError(f"cannot find the cache directory {path}: {error}") from error
    return PrivateDirectory(path)


def _user_cache_directory() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("inlay", appauthor=False)


def object_key(*parts: str) -> str:
    """Return the key of the object that these inputs determine."""
    return sha256("\0".join(parts).encode()).hexdigest()


def read_object(key: str, kind: str = "o") -> bytes | None:
    """Return the object of this kind stored under `key`, or None if there is none or its digest is wrong."""
    try:
        with _open_directory() as directory:
            content = directory.read(f"{key}.{kind}", _MAX_FILE_BYTES)
    except FileError:
        return None
    if content is None:
        return None
    digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return data if digest == _digest(key, data) else None


def write_object(key: str, data: bytes, kind: str = "o") -> None:
    """Store an object of this kind under `key`; do nothing if the directory cannot be written."""
    with suppress(FileError):
        store_object(key, data, kind)


def store_object(key: str, data: bytes, kind: str = "o") -> None:
    """Store an object of this kind under `key`.

    Raises:
        FileError: the directory cannot be used or written; no part of the file remains.
        InvalidArguments: INLAY_CACHE_MB is no number.
    """
    with _open_directory() as directory:
        try:
            directory.write(f"{key}.{kind}", _digest(key, data) + data)
        except OSError as error:
            raise file_error("write to the cache directory", directory.path, error) from error
    size_limit.count_written(directory.path, len(data) + _DIGEST_BYTES)


@contextmanager
def hold_lock(key: str, seconds: float) -> Iterator[None]:
    """Hold the lock of `key` during the `with` block; the lock is a file that only this user can open.

    Raises:
        FileError: the directory cannot be used or written, or its file system has no locks.
        TimeoutError: another process or thread held the lock for `seconds`.
    """
    from filelock import FileLock, Timeout

    directory = require_cache_directory()
    lock = FileLock(directory / f"{key}.lock", mode=0o600)
    try:
        lock.acquire(timeout=seconds)
    except Timeout as error:
        raise TimeoutError(f"another process holds the lock {lock.lock_file}") from error
    except NotImplementedError as error:
        raise FileError(f"cannot lock files in the cache directory {directory}: {error}") from error
    except OSError as error:
        raise file_error("write to the cache directory", directory, error) from error
    try:
        yield
    finally:
        with suppress(OSError):  # the caller has finished its write
            lock.release()


def _digest(key: str, data: bytes) -> bytes:
    """Return the digest of a key and its data."""
    return sha256(key.encode() + data).digest()
