"""Machine code kept between processes, and what was found out about it.

Objects are files in a directory that only the user can read and write, `INLAY_CACHE_DIR` or `inlay` in the user's
cache directory. The name of a file is the digest of what its content follows from, which `linking` says. The content
begins with a digest of itself, so a file that was cut short, damaged or put there by somebody else's mistake is not
used but written again. A file appears by renaming: two processes that write the same one both succeed. `cache_size`
bounds the directory.

No part of this may fail a reorder: where the directory cannot be used, code is compiled anew.
"""

import os
import stat
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from inlay.errors import FileError
from inlay.files import file_error
from inlay.reordering import cache_size

_DIGEST = sha256().digest_size


def cache_directory() -> Path | None:
    """The directory of the cache, made if need be; None where there is none that is private to this user."""
    try:
        return require_cache_directory()
    except FileError:
        return None


def require_cache_directory() -> Path:
    """Return the directory of the cache, and create it if it does not exist.

    Raises:
        FileError: it cannot be created, it belongs to another user, or other users may write to it.
    """
    chosen = os.environ.get("INLAY_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(chosen) if chosen else Path(base) / "inlay"
    try:
        path = path.expanduser()
        status = _status(path)
    except OSError as error:
        raise file_error("create the cache directory", path, error) from error
    except RuntimeError as error:
        raise FileError(f"cannot find the cache directory {path}: {error}") from error
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            raise FileError(f"the cache directory {path} belongs to another user, whose machine code is not run")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise FileError(f"other users may write to the cache directory {path}: chmod go-w {path}")
    return path


def _status(path: Path) -> os.stat_result:
    """What the system says about the directory, which is made if need be.

    Raises:
        OSError: there is none, and none can be made.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            return status
    except FileNotFoundError:
        pass
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path.stat()


def object_key(*parts: str) -> str:
    """The name under which the object that follows from `parts` is kept."""
    return sha256("\0".join(parts).encode()).hexdigest()


def read_object(key: str, kind: str = "o") -> bytes | None:
    """The object of this kind kept under `key`, or None if there is no sound one."""
    directory = cache_directory()
    if directory is None:
        return None
    path = directory / f"{key}.{kind}"
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if digest != _seal(key, data):
        return None
    cache_size.mark_used(path)
    return data


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
    directory = require_cache_directory()
    try:
        handle, name = tempfile.mkstemp(dir=directory, prefix=f".{key[:16]}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_seal(key, data) + data)
            Path(name).replace(directory / f"{key}.{kind}")
        except OSError:
            Path(name).unlink()
            raise
    except OSError as error:
        raise file_error("write to the cache directory", directory, error) from error
    cache_size.count_written(directory, len(data) + _DIGEST)


def _seal(key: str, data: bytes) -> bytes:
    """A digest that holds for this data under this key only."""
    return sha256(key.encode() + data).digest()
