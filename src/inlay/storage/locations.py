"""Locations of files: paths of this machine, and URLs of other places, which the package fsspec reads.

    w/model.safetensors            a path
    file:///data/model.safetensors the same as the path /data/model.safetensors
    s3://bucket/model.safetensors  a file of an object store (needs fsspec and s3fs)
    memory://model.safetensors     a file in the memory of this process (needs fsspec)

`UrlPath` has the few methods of `Path` by which headers are read, so one function reads the header of both. Only the
ranges of bytes that a reader asks for are transferred. A URL is opened anew in each process.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO, TypeAlias

from inlay.errors import FileError, InlayError, MissingExtra, printable
from inlay.files import file_error, require_file

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::[A-Za-z][A-Za-z0-9+.-]+)*://")
"""Start of a URL, or of several that fsspec chains; a single letter would be a drive of Windows."""

_HEADER_NBYTES = 1 << 17
"""Bytes that are read ahead while a header is read from a URL."""

LONG_RANGE = 1 << 22
"""Most bytes of a request, which is held in memory beside the box that it fills."""

_TAGS = ("ETag", "etag", "md5Hash", "checksum", "LastModified", "last_modified", "mtime", "modified", "created")
"""Entries of fsspec's `info` that change with the content of a file, in several file systems."""


@dataclass(frozen=True, slots=True)
class UrlPath:
    """A file at a URL."""

    url: str
    """The URL, as the user wrote it."""
    options: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Options of fsspec's file system, such as `("anon", True)`; not printed, as they may hold a password."""

    @property
    def name(self) -> str:
        """Last part of the URL, without a query."""
        return PurePosixPath(self.url.partition("?")[0]).name

    @property
    def stem(self) -> str:
        """Last part of the URL without its suffix."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "UrlPath":
        """URL of the folder."""
        scheme, rest = self._parts()
        return UrlPath(f"{scheme}://{rest.rstrip('/').rpartition('/')[0]}", self.options)

    def __truediv__(self, name: str) -> "UrlPath":
        """Return the URL of a file in this folder."""
        scheme, rest = self._parts()
        folder = rest.rstrip("/")
        return UrlPath(f"{scheme}://{folder}{'/' if folder else ''}{name}", self.options)

    def _parts(self) -> tuple[str, str]:
        """Return the protocol, and the rest without a query."""
        scheme, _, rest = self.url.partition("?")[0].partition("://")
        return scheme, rest

    def __str__(self) -> str:
        """Return the URL, without a password or a query, which may hold a signature."""
        return printable(re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", self.url.partition("?")[0]))

    def file_system(self) -> tuple[Any, str]:
        """Return fsspec's file system of the URL, and the path there.

        Raises:
            MissingExtra: fsspec, or the package of this file system, is not installed.
            FileError: no file system has this protocol, or it cannot be reached.
        """
        try:
            import fsspec
        except ImportError:
            raise MissingExtra(f"{self} needs fsspec, which is not installed: pip install 'inlay[storage]'") from None
        with RemoteErrors("open", self):
            file_system, path = fsspec.core.url_to_fs(self.url, **dict(self.options))
            return file_system, path

    def open(self, mode: str = "rb", buffering: int = _HEADER_NBYTES) -> BinaryIO:
        """Open the file for reading of bytes by ranges, each of `buffering` bytes at least.

        Raises:
            FileError: there is no such file, or it cannot be reached.
        """
        return io.BufferedReader(RangeReader(self), buffering)

    def exists(self) -> bool:
        """Return True if there is a file or folder.

        Raises:
            FileError: it cannot be reached.
        """
        file_system, path = self.file_system()
        with RemoteErrors("read", self):
            return bool(file_system.exists(path))

    def is_dir(self) -> bool:
        """Return True if it is a folder.

        Raises:
            FileError: it cannot be reached.
        """
        file_system, path = self.file_system()
        with RemoteErrors("read", self):
            return bool(file_system.isdir(path))

    def samefile(self, other: object) -> bool:
        """Return True if `other` is the same URL, also with other slashes."""
        if not isinstance(other, UrlPath):
            return False
        queries = [each.url.partition("?")[2] for each in (self, other)]
        return queries[0] == queries[1] and url_parts(self.url) == url_parts(other.url)

    def list_names(self) -> list[str]:
        """Return the names of the files of the folder, sorted.

        Raises:
            FileError: it cannot be reached.
        """
        file_system, path = self.file_system()
        with RemoteErrors("read", self):
            entries = file_system.ls(path, detail=True, refresh=True)
        return sorted(PurePosixPath(entry["name"]).name for entry in entries if entry["type"] == "file")

    def read_range(self, begin: int, end: int) -> bytes:
        """Return the bytes from `begin` to `end`; fewer if the file ends before.

        Raises:
            FileError: the file cannot be read.
        """
        file_system, path = self.file_system()
        with RemoteErrors("read", self):
            return bytes(file_system.cat_file(path, start=begin, end=end))

    def status(self) -> tuple[int, str]:
        """Return the present size in bytes, and a text that changes with the content: ETag and time of modification.

        Raises:
            FileError: there is no such file, it is a folder, or it cannot be reached.
        """
        file_system, path = self.file_system()
        with RemoteErrors("read", self):
            file_system.invalidate_cache(file_system._parent(path))
            info: Mapping[str, Any] = file_system.info(path)
        if info.get("type") == "directory":
            raise FileError(f"cannot read {self}: it is a folder; name a file")
        if info.get("size") is None:
            raise FileError(f"cannot read {self}: its server does not state its size; download it first")
        return int(info["size"]), " ".join(str(info[tag]) for tag in _TAGS if info.get(tag) is not None)


SourcePath: TypeAlias = Path | UrlPath
"""A file to read."""


class RangeReader(io.RawIOBase):
    """A file at a URL as a stream that reads only the ranges that are asked for."""

    def __init__(self, path: UrlPath) -> None:
        """Look up the size of the file.

        Raises:
            FileError: there is no such file, or it cannot be reached.
        """
        self._path, self._position = path, 0
        self._nbytes = path.status()[0]

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._nbytes}[whence]
        if base + offset < 0:
            raise ValueError(f"position {base + offset} is before the start of {self._path}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readall(self) -> bytes:
        """Return the bytes from the position to the end, by requests for long ranges.

        Raises:
            FileError: the file cannot be read.
        """
        pieces = list[bytes]()
        while self._position < self._nbytes:
            pieces.append(self._path.read_range(self._position, min(self._position + LONG_RANGE, self._nbytes)))
            self._position += len(pieces[-1])
            if not pieces[-1]:
                raise FileError(f"cannot read {self._path}: it became shorter while it was being read; try again")
        return b"".join(pieces)

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the position on, and return the number of bytes; 0 at the end.

        Raises:
            FileError: the file cannot be read.
        """
        view = memoryview(buffer).cast("B")
        end = min(self._position + len(view), self._nbytes)
        if end <= self._position:
            return 0
        data = self._path.read_range(self._position, end)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def parse_location(location: str | Path | UrlPath, options: Sequence[tuple[str, Any]] = ()) -> SourcePath:
    """Return the path or the URL that a text names; `file://` and `local://` name paths.

    >>> parse_location("w/a.npy"), parse_location("file:///tmp/a.npy")
    (PosixPath('w/a.npy'), PosixPath('/tmp/a.npy'))
    >>> parse_location("s3://bucket/a.npy")
    UrlPath(url='s3://bucket/a.npy')
    """
    if isinstance(location, (Path, UrlPath)):
        return location
    for scheme in ("file://", "local://"):
        if location.startswith(scheme):
            return Path(location.removeprefix(scheme))
    return UrlPath(location, tuple(options)) if is_url(location) else Path(location)


def is_url(location: str | Path | UrlPath) -> bool:
    """Return True if a location is a URL, also one of `file://`.

    >>> is_url("s3://bucket/a.npy"), is_url("C:/a.npy"), is_url("a.npy")
    (True, False, False)
    """
    return isinstance(location, UrlPath) or (isinstance(location, str) and _URL.match(location) is not None)


def url_parts(url: str) -> tuple[str, ...]:
    """Return the protocol and the names in a URL without its query; those of its folder are the first of them.

    >>> url_parts("memory:///x/a.zarr/")
    ('memory', 'x', 'a.zarr')
    """
    scheme, _, rest = url.partition("?")[0].partition("://")
    return (scheme, *filter(None, rest.split("/")))


def require_source(path: SourcePath) -> int:
    """Check that a file exists and can be read, and return its size in bytes.

    Raises:
        FileError: there is no such file, this user may not read it, or it is a folder or a device.
    """
    return path.status()[0] if isinstance(path, UrlPath) else require_file(path)


def list_names(folder: SourcePath) -> list[str]:
    """Return the names of the files of a folder, sorted.

    Raises:
        FileError: the folder cannot be read.
    """
    if isinstance(folder, UrlPath):
        return folder.list_names()
    with read_errors(folder):
        return sorted(path.name for path in folder.iterdir() if path.is_file())


@contextmanager
def read_errors(path: SourcePath) -> Iterator[None]:
    """Turn errors of the operating system in the block into `FileError` that says which file cannot be read."""
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        if isinstance(path, UrlPath):
            raise FileError(f"cannot read {path}: {_reason(error)}") from error
        raise file_error("read", path, error) from error


class RemoteErrors:
    """A context manager that turns errors of fsspec and its file systems into `FileError`.

    The packages of object stores raise errors of their own, which have no common class: any class that is neither of
    Python nor of Inlay is one of theirs.
    """

    def __init__(self, action: str, path: UrlPath) -> None:
        """Remember what is done with which URL."""
        self._action, self._path = action, path

    def __enter__(self) -> None:
        """Return None."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raise FileError for an error of a file system."""
        if isinstance(value, ImportError):
            raise MissingExtra(_missing_packages(self._path, str(value))) from None
        if isinstance(value, Exception) and not isinstance(value, InlayError):
            is_theirs = type(value).__module__ != "builtins"
            if is_theirs or isinstance(value, (OSError, ValueError, RuntimeError, LookupError, TypeError)):
                raise FileError(f"cannot {self._action} {self._path}: {_reason(value)}") from value


def _missing_packages(path: UrlPath, text: str) -> str:
    """Return the text of the error for packages of a file system, which fsspec names in its own text."""
    names = re.findall(r'"([\w-]+)"', text) or re.findall(r"[Ii]nstall ([\w-]+)", text)
    command = f": pip install {' '.join(names)}" if names else ""
    return f"{path} needs a package that is not installed ({printable(text)}){command}"


def _reason(error: Exception) -> str:
    """Return the reason of an error of fsspec, with a remedy for the common ones."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file; check the name"
    if isinstance(error, PermissionError):
        return "permission denied; check the credentials"
    text = printable(str(error)) or type(error).__name__
    if "Protocol not known" in text:
        return "fsspec knows no such protocol; use a path, file://, s3://, gs://, https:// or another of fsspec's"
    return f"{text}; check the name, the connection and the credentials"
