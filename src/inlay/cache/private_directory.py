"""A directory that only this user can write to, open for as long as its files are read and written.

What is read from it is run as machine code, so nobody else may have put it there. The directory is opened once and
every file is opened relative to it: whoever exchanges a directory on the path meanwhile changes nothing. The directory
and the files have to belong to this user and be closed to the writing of others, and so have the directories on the way
to it, which could be exchanged as a whole, except where the sticky bit protects what is in them (as in /tmp). Symbolic
links in the path are followed, and what they lead to is checked. A directory on the way may be writable by a group that
has no other member, as where every user has a group of the same name.

Where the system has no owners or cannot open relative to a directory (Windows), paths are used and nothing is checked:
there the user's profile is private.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from inlay.errors import FileError
from inlay.files import file_error

_USED_WITHIN = 86_400.0
"""Seconds after which a file that is read is marked as used again."""
_RELATIVE = {os.open, os.rename, os.unlink} <= os.supports_dir_fd
_HAS_OWNERS = hasattr(os, "geteuid")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def _flags(*names: str) -> int:
    """The flags of `os.open` of these names that the system has."""
    value = 0
    for name in names:
        value |= getattr(os, name, 0)
    return value


_DIRECTORY = _flags("O_RDONLY", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
# Not to wait for the writer of a pipe.
_READ = _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_WRITE = _flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY")


class PrivateDirectory:
    """A private directory, made if need be; a context that closes it."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        """Open `path`.

        Raises:
            FileError: it cannot be created or opened, it or a directory on the way to it belongs to another user, or
                other users may write to one of them.
        """
        self.path = path
        """The directory as it was named."""
        self._descriptor: int | None = None
        try:
            _make(path)
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
        """The content of a file of this user; None if there is none, or it is no sound one.

        Not sound is what is no regular file, belongs to another user, may be written by others, or is longer than
        `most` bytes.
        """
        try:
            descriptor = os.open(self._place(name), _READ, dir_fd=self._descriptor)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not _is_sound(status) or status.st_size > most:
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
        """Write a file that appears whole, readable by this user alone.

        Raises:
            OSError: it cannot be written; no part of it remains.
        """
        temporary = f".{name[:16]}-{os.urandom(8).hex()}"
        descriptor = os.open(self._place(temporary), _WRITE, 0o600, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(
                self._place(temporary), self._place(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor
            )
        finally:
            with suppress(OSError):  # where all went well it is gone
                os.unlink(self._place(temporary), dir_fd=self._descriptor)

    def close(self) -> None:
        """Close the directory."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _place(self, name: str) -> str:
        """What to open: a name where the directory is open, else a path."""
        return name if self._descriptor is not None else str(self.path / name)

    def __enter__(self) -> "PrivateDirectory":
        """Return the directory."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the directory."""
        self.close()


def _mark_used(descriptor: int, status: os.stat_result) -> None:
    """Let a file that was read be among the last that are removed; once a day is enough."""
    if os.utime in os.supports_fd and time.time() - status.st_mtime > _USED_WITHIN:
        with suppress(OSError):
            os.utime(descriptor)


def _make(path: Path) -> None:
    """Make the directory, and those on the way to it, private to this user.

    Raises:
        OSError: a file is in the way, or there is no permission.
    """
    if path.is_dir():
        return
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            directory.mkdir(mode=0o700, exist_ok=True)


def _require_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise FileError(f"the cache directory {path} belongs to another user, whose machine code is not run")
    if status.st_mode & _OTHERS_WRITE:
        raise FileError(f"other users may write to the cache directory {path}: chmod go-w {path}")


def _require_safe_parents(path: Path, final: Path) -> None:
    """Refuse a directory that another user could put one of his own in place of.

    Whoever owns the root directory can do everything; in a container that need not be user 0.
    """
    trusted = {0, os.geteuid(), final.anchor and os.stat(final.anchor).st_uid}  # noqa: PTH116  no link
    remedy = "set INLAY_CACHE_DIR to a directory in one that is yours alone"
    for parent in final.parents:
        status = parent.lstat()
        if status.st_uid not in trusted:
            raise FileError(f"the cache directory {path} is in {parent}, which belongs to another user: {remedy}")
        if _may_be_exchanged(status):
            raise FileError(
                f"the cache directory {path} is in {parent}, to which other users may write: chmod go-w {parent}, or "
                f"{remedy}"
            )


def _may_be_exchanged(status: os.stat_result) -> bool:
    """Whether other users may rename what is in a directory."""
    if not status.st_mode & _OTHERS_WRITE or status.st_mode & stat.S_ISVTX:
        return False
    return bool(status.st_mode & stat.S_IWOTH) or not _is_of_one(status.st_gid)


def _is_of_one(group: int) -> bool:
    """Whether a group is that of this user alone: his first one, of his name, and without other members."""
    try:
        import grp
        import pwd

        user, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except (ImportError, KeyError, OSError):
        return False
    return user.pw_gid == group and entry.gr_name == user.pw_name and set(entry.gr_mem) <= {user.pw_name}


def _is_sound(status: os.stat_result) -> bool:
    if not stat.S_ISREG(status.st_mode):
        return False
    return not _HAS_OWNERS or (status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE)
