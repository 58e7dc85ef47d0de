"""Files kept between processes: machine code, tuned choices, costs of kernels, the machine model.

They lie in a directory that only the user can write to: `INLAY_CACHE_DIR`, or `inlay` in the user's cache directory as
`platformdirs` finds it (see `private_directory`). Everything that reads or writes there goes through this package. The
name of a file is the digest of what its content follows from, which `reordering.target` says for machine code. The
content begins with a digest of itself, so a file that was cut short, damaged or put there by somebody else's mistake is
not used but written again. A file appears by renaming: two processes that write the same one both succeed; who changes
a file takes its lock. `size_limit` bounds the directory.

No part of this may fail a reorder or a plan: where the directory cannot be used, code is compiled anew.
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

_DIGEST = sha256().digest_size
_LARGEST = 1 << 26
"""Bytes of the largest file that is read: 64 MiB, a hundred times what the largest holds."""


def require_cache_directory() -> Path:
    """Return the directory of the cache, and create it if it does not exist.

    Raises:
        FileError: it cannot be created, it or a directory on the way belongs to another user, or other users may write
            to one of them.
    """
    with _opened() as directory:
        return directory.path


def configured_directory() -> str:
    """Return the directory of the cache as the environment names it now; it need not exist."""
    return os.environ.get("INLAY_CACHE_DIR") or str(_user_cache_directory())


def _opened() -> PrivateDirectory:
    """The directory, open.

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
    """The name under which the object that follows from `parts` is kept."""
    return sha256("\0".join(parts).encode()).hexdigest()


def read_object(key: str, kind: str = "o") -> bytes | None:
    """The object of this kind kept under `key`, or None if there is no sound one."""
    try:
        with _opened() as directory:
            content = directory.read(f"{key}.{kind}", _LARGEST)
    except FileError:
        return None
    if content is None:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    return data if digest == _seal(key, data) else None


def write_object(key: str, data: bytes, kind: str = "o") -> None:
    """Keep `data` of this kind under `key`; nothing happens where the directory cannot be written."""
    with suppress(FileError):
        store_object(key, data, kind)


def store_object(key: str, data: bytes, kind: str = "o") -> None:
    """Store `data` of this kind under `key`.

    Raises:
        FileError: the directory cannot be used or written; no part of the file remains.
        InvalidArguments: INLAY_CACHE_MB is no number.
    """
    with _opened() as directory:
        try:
            directory.write(f"{key}.{kind}", _seal(key, data) + data)
        except OSError as error:
            raise file_error("write to the cache directory", directory.path, error) from error
    size_limit.count_written(directory.path, len(data) + _DIGEST)


@contextmanager
def locked(key: str, seconds: float) -> Iterator[None]:
    """Hold the lock of `key`, a file that only this user can open, for the time of the block.

    Raises:
        FileError: the directory cannot be used or written, or its file system has no locks.
        TimeoutError: another process, or another thread of this one, holds the lock for `seconds`.
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
        with suppress(OSError):  # what was to be written is
            lock.release()


def _seal(key: str, data: bytes) -> bytes:
    """A digest that holds for this data under this key only."""
    return sha256(key.encode() + data).digest()
