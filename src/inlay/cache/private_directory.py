"""A directory that only this user can write to, held open while its files are read and written.

Files from this directory are executed as machine code, so other users must not be able to write them. The directory is
opened once, and files are opened relative to its descriptor. So replacing a directory on the path has no effect after
the check. The directory and its files must belong to this user and must not be writable by others. The same holds for
the parent directories, because whoever can write to a parent can replace the directory; a parent with the sticky bit
(such as /tmp) is safe. Symbolic links in the path are followed, and their targets are checked. A parent may be writable
by a group whose only member is this user, as on systems where every user has a group of the same name.

On systems without file owners, or without relative opening (Windows), paths are used and nothing is checked: there the
profile directory of the user is private.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from inlay.errors import FileError
from inlay.files import file_error

_MARK_INTERVAL = 86_400.0
"""Minimum time between two updates of the modification time of a file that is read, in seconds."""
_RELATIVE = {os.open, os.rename, os.unlink} <= os.supports_dir_fd
_HAS_OWNERS = hasattr(os, "geteuid")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _flags(*names: str) -> int:
    """Return the flags of `os.open` with these names, without those that this system lacks."""
    value = 0
    for name in names:
        value |= getattr(os, name, 0)
    return value


_DIRECTORY = _flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
# O_NONBLOCK: opening a pipe without a writer must not block.
_READ = _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_WRITE = _flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")


class PrivateDirectory:
    """A private directory, created if it does not exist; a context manager that closes it."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        """Open the directory `path`.

        Raises:
            FileError: the directory cannot be created or opened; or it, or one of its parents, belongs to another user,
                or other users may write to it.
        """
        self.path = path
        """Path that the caller passed."""
        self._descriptor: int | None = None
        try:
            _create_directories(path)
            final = Path(os.path.realpath(path))
            if _RELATIVE:
                self._descriptor = os.open(final, _DIRECTORY)
            if _HAS_OWNERS:
                _require_private(path, final.stat() if self._descriptor is None else os.fstat(self._descriptor))
                _require_safe_parents(path, final)
        except OSError as error:
            self.close()
            if isinstance(error, FileError):
                raise
            raise file_error("create the cache directory", path, error) from error

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file, or None if there is none or it must not be used.

        A file must not be used if it is not a regular file, belongs to another user, is writable by others, or has more
        than `most` bytes.
        """
        try:
            descriptor = os.open(self._open_path(name), _READ, dir_fd=self._descriptor)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not _is_trusted_file(status) or status.st_size > most:
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(most + 1)
            _mark_used(descriptor, status)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return content if len(content) <= most else None

    def write(self, name: str, data: bytes) -> None:
        """Write a file, readable by this user only, under a temporary name, and rename it.

        Raises:
            OSError: the file cannot be written; no part of it remains.
        """
        temporary = f".{name[:16]}-{os.urandom(8).hex()}"
        descriptor = os.open(self._open_path(temporary), _WRITE, 0o600, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(
                self._open_path(temporary),
                self._open_path(name),
                src_dir_fd=self._descriptor,
                dst_dir_fd=self._descriptor,
            )
        finally:
            with suppress(OSError):  # after a successful rename there is no temporary file
                os.unlink(self._open_path(temporary), dir_fd=self._descriptor)

    def close(self) -> None:
        """Close the directory."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open_path(self, name: str) -> str:
        """Return the argument for `os.open`: the name if the directory has a descriptor, else the whole path."""
        return name if self._descriptor is not None else str(self.path / name)

    def __enter__(self) -> "PrivateDirectory":
        """Return the directory."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the directory."""
        self.close()


def _mark_used(descriptor: int, status: os.stat_result) -> None:
    """Set the modification time of a file that was read to now, at most once a day, for `size_limit`."""
    if os.utime in os.supports_fd and time.time() - status.st_mtime > _MARK_INTERVAL:
        with suppress(OSError):
            os.utime(descriptor)


def _create_directories(path: Path) -> None:
    """Create the directory and its missing parents, accessible to this user only.

    Raises:
        OSError: a part of the path is a file, or this user has no permission.
    """
    if path.is_dir():
        return
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            directory.mkdir(mode=0o700, exist_ok=True)


def _require_private(path: Path, status: os.stat_result) -> None:
    """Check that the directory belongs to this user and is not writable by others."""
    if status.st_uid != os.geteuid():
        raise FileError(f"the cache directory {path} belongs to another user, whose machine code is not run")
    if status.st_mode & _OTHERS_WRITE:
        raise FileError(f"other users may write to the cache directory {path}: chmod go-w {path}")


def _require_safe_parents(path: Path, final: Path) -> None:
    """Check that no other user can replace the directory by renaming one of its parents.

    The owner of the root directory is trusted; in a container it may be another user than user 0.
    """
    trusted = {0, os.geteuid(), final.anchor and os.stat(final.anchor).st_uid}  # noqa: PTH116  no link
    remedy = "set INLAY_CACHE_DIR to a directory in one that is yours alone"
    for parent in final.parents:
        status = parent.lstat()
        if status.st_uid not in trusted:
            raise FileError(f"the cache directory {path} is in {parent}, which belongs to another user: {remedy}")
        if _is_replaceable_by_others(status):
            raise FileError(
                f"the cache directory {path} is in {parent}, to which other users may write: chmod go-w {parent}, or "
                f"{remedy}"
            )


def _is_replaceable_by_others(status: os.stat_result) -> bool:
    """Return True if other users may rename the entries of the directory with this status."""
    if not status.st_mode & _OTHERS_WRITE or status.st_mode & stat.S_ISVTX:
        return False
    return bool(status.st_mode & stat.S_IWOTH) or not _is_private_group(status.st_gid)


def _is_private_group(group: int) -> bool:
    """Return True if a group is the primary group of this user, has the user's name and no other members."""
    try:
        import grp
        import pwd

        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except (ImportError, KeyError, OSError):
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}


def _is_trusted_file(status: os.stat_result) -> bool:
    """Return True for a regular file that belongs to this user and is not writable by others."""
    if not stat.S_ISREG(status.st_mode):
        return False
    return not _HAS_OWNERS or (status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE)
