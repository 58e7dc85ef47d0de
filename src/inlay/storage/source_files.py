"""Files that are open for reading, found by number: a few at a time, local or at URLs.

A checkpoint may have thousands of files, and a process may open about a thousand. So files are opened when they are
read, and the one that was read longest ago is closed. Each file is checked against the version that its header had.

At a URL, each read is a request. So runs that are close to one another are read as one range.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inlay.errors import FileError
from inlay.files import file_error, require_path
from inlay.memory.buffers import Bytes
from inlay.storage.locations import LONG_RANGE, SourcePath, UrlPath
from inlay.storage.positioned_io import open_to_read, read_at

MAX_OPEN = 64
"""Most files that are open at once."""

MAX_GAP = 1 << 18
"""Most bytes between two runs at a URL that are read as one range: their transfer takes as long as a request."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file as it was when its header was read."""

    path: SourcePath
    """Path or URL of the file."""
    nbytes: int
    """Size, in bytes."""
    modified: int
    """Time of the last modification, in nanoseconds; 0 for a URL."""
    tag: str = ""
    """ETag and time of modification of a file at a URL; empty for a path."""

    def __str__(self) -> str:
        """Return name, size and time or tag, for the version of a store."""
        return f"{self.path.name}:{self.nbytes}:{self.tag or self.modified}"


@dataclass(frozen=True, slots=True)
class ByteRun:
    """Consecutive bytes of a file, and the bytes of a buffer that they fill."""

    begin: int
    """Offset from the start of the file, in bytes."""
    data: Bytes
    """The bytes to fill."""

    @property
    def end(self) -> int:
        """End in the file, exclusive."""
        return self.begin + self.data.size


def version_of(path: SourcePath) -> FileVersion:
    """Return the present version of a file.

    Raises:
        FileError: there is no such file, or this user may not look at it.
    """
    if isinstance(path, UrlPath):
        nbytes, tag = path.status()
        return FileVersion(path, nbytes, 0, tag or "no tag")
    require_path(path)
    try:
        status = path.stat()
    except OSError as error:
        raise file_error("read", path, error) from error
    return FileVersion(path, status.st_size, status.st_mtime_ns)


class SourceFiles:
    """Files that are opened when they are read; threads share them."""

    def __init__(self, files: Sequence[FileVersion]) -> None:
        """Remember the files; none is opened."""
        self._files, self._read = tuple(files), set[int]()
        self._descriptors, self._users = dict[int, int](), dict[int, int]()
        self._lock = threading.Lock()

    def fill(self, file: int, runs: Iterator[ByteRun]) -> None:
        """Fill buffers with runs of bytes of a file.

        Raises:
            FileError: the file cannot be read, or became shorter.
        """
        self._read.add(file)
        path = self._files[file].path
        if isinstance(path, UrlPath):
            for group in _near_runs(runs):
                _fill_from_url(path, group)
            return
        with self._open(file, path) as descriptor:
            for run in runs:
                if read_at(descriptor, run.data.data, run.begin) < run.data.size:
                    raise _shorter(path)

    def mark_read(self, file: int) -> None:
        """Let the next check include a file that was read in another way."""
        self._read.add(file)

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the files that were read since the last check.

        Raises:
            FileError: the size, the time of modification or the ETag of a file changed.
        """
        with self._lock:
            numbers, self._read = self._read, set()
        for number in numbers:
            file = self._files[number]
            if isinstance(file.path, UrlPath):
                is_same = version_of(file.path) == file
            else:
                with self._open(number, file.path) as descriptor:
                    status = os.fstat(descriptor)
                is_same = (status.st_size, status.st_mtime_ns) == (file.nbytes, file.modified)
            if not is_same:
                self._read.add(number)  # the next check finds it too
                raise FileError(f"cannot read {file.path}: it changed while it was being read; try again")

    def close(self) -> None:
        """Close the files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    @contextmanager
    def _open(self, number: int, path: Path) -> Iterator[int]:
        """Open a file if it is closed, and return its descriptor, which is not closed in the block."""
        try:
            descriptor = self._acquire(number, path)
            try:
                yield descriptor
            finally:
                with self._lock:
                    self._users[number] -= 1
        except FileError:
            raise
        except OSError as error:
            raise file_error("read", path, error) from error

    def _acquire(self, number: int, path: Path) -> int:
        """Return the descriptor of a file, which becomes the last one to be closed."""
        with self._lock:
            descriptor = self._descriptors.pop(number, None)
            if descriptor is None:
                idle = [each for each in self._descriptors if not self._users.get(each)]
                if len(self._descriptors) >= MAX_OPEN and idle:
                    os.close(self._descriptors.pop(idle[0]))
                descriptor = open_to_read(path)
            self._descriptors[number] = descriptor
            self._users[number] = self._users.get(number, 0) + 1
            return descriptor


def _near_runs(runs: Iterator[ByteRun]) -> Iterator[list[ByteRun]]:
    """Yield ascending runs in groups that one request reads, with the bytes between them."""
    group = list[ByteRun]()
    for run in runs:
        is_near = not group or 0 <= run.begin - group[-1].end <= MAX_GAP
        if not is_near or (group and run.end - group[0].begin > LONG_RANGE):
            yield group
            group = []
        group.append(run)
    if group:
        yield group


def _fill_from_url(path: UrlPath, group: Sequence[ByteRun]) -> None:
    """Fill buffers with bytes of a file at a URL by one request, or by several if a run is long."""
    if len(group) > 1:
        begin, end = group[0].begin, group[-1].end
        data = np.frombuffer(path.read_range(begin, end), np.uint8)
        if data.size < end - begin:
            raise _shorter(path)
        for run in group:
            run.data[:] = data[run.begin - begin : run.end - begin]
        return
    for run in group:
        for offset in range(0, run.data.size, LONG_RANGE):
            part = run.data[offset : offset + LONG_RANGE]
            data = np.frombuffer(path.read_range(run.begin + offset, run.begin + offset + part.size), np.uint8)
            if data.size < part.size:
                raise _shorter(path)
            part[:] = data


def _shorter(path: SourcePath) -> FileError:
    return FileError(f"cannot read {path}: it became shorter while it was being read; try again")
