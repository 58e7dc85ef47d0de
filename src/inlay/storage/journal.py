"""The journal of a conversion: which boxes are written, in a file beside the target.

A conversion whose process ended goes on after the boxes in its journal. Each line is a JSON object, after a checksum of
its text:

    5d1f0a3c {"begin": "9c41e07a", "plan": "3a...", "source": "81..."}
    0e77b2c4 {"of": "9c41e07a", "task": 0, "boot": "b1946ac92492"}
    c2d8391f {"of": "9c41e07a", "task": 1, "boot": "b1946ac92492", "counts": {"nonzero": 4096, "zeroed": 2}}
    71ab44d0 {"of": "9c41e07a", "synced": [0, 1]}
    3b90e1d7 {"of": "9c41e07a", "commit": true}

`begin` starts a conversion: its token, the fingerprint of its plan, and the digest of the version of its source. Each
process appends a line when it has written a box. The line is in the page cache of the operating system before the next
box begins, so a killed process loses the box that it was writing, and no other. If the machine stops, boxes whose line
is on disk may be missing themselves. Therefore processes write their boxes to disk from time to time and append the
numbers of the tasks (`synced`). Only those tasks count after the machine was started again.

When all boxes are on disk, `commit` says that files get their final names from now on: a run that goes on after that
finishes the rest of them. A `commit` that is false says that this failed, as for an upload.

A line that is damaged does not count. A killed process can leave the beginning of a line, since Linux writes page by
page, and a power failure zeros at the end. So each line has a line feed at both ends.

The conversion that is running holds a lock on the journal. Its name is derived from the target, so a second conversion
to the same target finds the lock.
"""

import errno
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np

from inlay.cache import private_path
from inlay.errors import FileError, printable
from inlay.files import file_error, require_path, try_lock
from inlay.storage.file_target import PARTIAL_SUFFIX
from inlay.storage.operation import BoxCounts, ScanResult

JOURNAL_SUFFIX = ".inlay.journal"
"""Suffix of the name of a journal."""

_NAME_CHARACTERS = 40
"""Number of characters of the target's name in that of the journal; names are limited to 255 bytes."""

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_COUNTS = BoxCounts()
_COUNTED = tuple(field.name for field in fields(BoxCounts))


@dataclass(frozen=True, slots=True)
class JournalEntries:
    """The last conversion of a journal, and what it finished."""

    token: str
    """Token of the conversion, which is in the names of its files."""
    plan: str
    """Fingerprint of its plan."""
    source: str
    """Digest of the version of its source."""
    tasks: Mapping[int, BoxCounts]
    """Numbers of the tasks whose boxes are certainly written, with what they counted."""
    scans: Mapping[int, ScanResult]
    """Numbers of the tasks that were scanned, with the results."""
    is_committing: bool = False
    """True if everything was on disk, and the files of the target were getting their final names."""


def journal_path(location: str) -> Path:
    """Return the path of the journal of a target: a hidden file beside it, or in the cache directory for a URL.

    Raises:
        FileError: the location contains a NUL character, its links form a cycle, or there is no cache directory.
    """
    path = Path(location)
    require_path(path, "write")
    if re.match(r"[a-z][a-z0-9+.-]+://", location):
        return private_path(_journal_name(location))
    try:
        final = path.resolve()
    except RuntimeError:  # links form a cycle
        raise file_error("write", path, OSError(errno.ELOOP, "")) from None
    except OSError as error:
        raise file_error("write", path, error) from error
    name = _journal_name(str(final))
    # The conversion may create the directory of the target after the journal.
    existing = (parent / name for parent in final.parents if (parent / name).exists())
    return next(existing, None) or next(parent for parent in final.parents if parent.is_dir()) / name


def _journal_name(location: str) -> str:
    """Return the name of the journal of a target with this full path or URL."""
    digest = sha256(os.fsencode(location)).hexdigest()[:12]
    return f".{Path(location).name[:_NAME_CHARACTERS]}.{digest}{JOURNAL_SUFFIX}"


@cache
def boot_id() -> str:
    """Return a text that changes when the machine starts again; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:12]
    except OSError:
        return ""


class Journal:
    """The journal of a target, locked by this conversion; a context manager that releases it."""

    def __init__(self, location: str, last_name: str | None = None) -> None:
        """Open the journal of the target at `location`, and create it if there is none.

        `last_name` is `Target.last_name`, by default `location`: it names the journal.

        Raises:
            FileError: another process holds its lock, or it cannot be written.
        """
        self.path = journal_path(location if last_name is None else last_name)
        """Path of the journal."""
        self._location, self._is_removed = location, False
        try:
            self._file: BinaryIO = self._lock()
        except FileError:
            raise
        except OSError as error:
            raise file_error("write", Path(location), error) from error

    def _lock(self) -> BinaryIO:
        while True:
            file = self.path.open("a+b")
            if try_lock(file) is False:
                file.close()
                raise FileError(
                    f"cannot write {printable(self._location)}: another process is writing it; wait for its end, or "
                    "choose another name"
                )
            # Another conversion may have finished and removed the journal between the two calls.
            with suppress(FileNotFoundError):
                if os.path.samestat(self.path.stat(), os.fstat(file.fileno())):
                    return file
            file.close()

    def read(self) -> JournalEntries | None:
        """Return the last conversion of the journal, None if there is none.

        Raises:
            FileError: the journal cannot be read.
        """
        try:
            return read_entries(self.path)
        except OSError as error:
            raise file_error("read", self.path, error) from error

    def begin(self, entries: JournalEntries) -> None:
        """Start a conversion; what the journal contains before counts no longer.

        Raises:
            FileError: the journal cannot be written.
        """
        try:
            self._file.truncate(0)
            _append(self._file.fileno(), {"begin": entries.token, "plan": entries.plan, "source": entries.source})
        except OSError as error:
            raise file_error("write", Path(self._location), error) from error

    def note_commit(self, token: str, *, is_going_on: bool) -> None:
        """Append that the files of the target get their final names from now on, or that this failed.

        Raises:
            FileError: the journal cannot be written, as on a full disk.
        """
        try:
            _append(self._file.fileno(), {"of": token, "commit": is_going_on})
            os.fsync(self._file.fileno())
        except OSError as error:
            raise file_error("write", self.path, error) from error

    def discard(self) -> None:
        """Remove the files of the conversion that are beside the journal, as far as possible."""
        entries = self.read()
        if entries is not None:
            for folder in {self.path.parent, Path(self._location).parent, Path(self._location)}:
                for path in folder.glob(f".*.{entries.token}{PARTIAL_SUFFIX}"):
                    with suppress(OSError):
                        rmtree(path) if path.is_dir() else path.unlink()

    def remove(self) -> None:
        """Remove the journal; a conversion that starts now creates another one."""
        if not self._is_removed:
            with suppress(OSError):
                self.path.unlink()
            self._is_removed = True

    def close(self) -> None:
        """Release the lock, and remove the journal if no conversion began."""
        if os.fstat(self._file.fileno()).st_size == 0:
            self.remove()
        self._file.close()
        if self._is_removed and os.name != "posix":  # Windows removes no open file
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> "Journal":
        """Return the journal."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self.close()


class JournalWriter:
    """A journal that is open for appending lines, in any process; a context manager that closes it."""

    def __init__(self, path: Path, token: str) -> None:
        """Open the journal for the conversion with this token.

        Raises:
            FileError: it does not exist, or this user may not write it.
        """
        self._path, self._token = path, token
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | _FLAGS)
        except OSError as error:
            raise file_error("write", path, error) from error

    def add_task(self, number: int, counts: BoxCounts, boot: str) -> None:
        """Append that a task has written its box, on the machine with this `boot_id`.

        Raises:
            FileError: the journal cannot be written, as on a full disk.
        """
        record: dict[str, Any] = {"of": self._token, "task": number, "boot": boot}
        if counts != _NO_COUNTS:
            record["counts"] = {name: value for name, value in asdict(counts).items() if value}
        self._append(record)

    def add_scan(self, number: int, value: ScanResult) -> None:
        """Append the result of the scan of a box.

        Raises:
            FileError: the journal cannot be written, as on a full disk.
        """
        self._append({"of": self._token, "scan": number, "value": np.asarray(value).tolist()})

    def add_synced(self, numbers: Sequence[int]) -> None:
        """Append that the boxes of these tasks are on disk, and wait until the journal is.

        Raises:
            FileError: the journal cannot be written, as on a full disk.
        """
        self._append({"of": self._token, "synced": list(numbers)})
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise file_error("write", self._path, error) from error

    def close(self) -> None:
        """Close the journal."""
        os.close(self._descriptor)

    def _append(self, record: Mapping[str, Any]) -> None:
        try:
            _append(self._descriptor, record)
        except OSError as error:
            raise file_error("write", self._path, error) from error

    def __enter__(self) -> "JournalWriter":
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the journal."""
        self.close()


def _append(descriptor: int, record: Mapping[str, Any]) -> None:
    """Append one line in one write, so that lines of several processes do not mix."""
    text = json.dumps(record).encode()
    line = b"\n%08x %s\n" % (crc32(text), text)
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, None if it is damaged."""
    text = line[9:].rstrip(b"\n")
    try:
        if line[8:9] != b" " or int(line[:8], 16) != crc32(text):
            return None
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def read_entries(path: Path) -> JournalEntries | None:
    """Return the last conversion of a journal, None if there is none.

    Raises:
        OSError: the journal cannot be read.
    """
    with path.open("rb") as file:
        try:
            return _last_entries(file)
        except (LookupError, TypeError):  # right checksums, but lines of another format
            return None


def _last_entries(lines: Iterable[bytes]) -> JournalEntries | None:
    """Return the last conversion in the lines of a journal; lines of earlier ones do not count."""
    begin = dict[str, Any]()
    tasks, scans, boots, synced = dict[int, BoxCounts](), dict[int, ScanResult](), dict[int, str](), set[int]()
    is_committing = is_on_disk = False
    for record in filter(None, map(_parse_line, lines)):
        if "begin" in record:
            begin, is_committing, is_on_disk = record, False, False
            for found in (tasks, scans, boots, synced):
                found.clear()
        elif record.get("of") != begin.get("begin"):
            continue  # a process of an earlier conversion that still wrote
        elif "task" in record:
            tasks[record["task"]] = _counts_of(record)
            boots[record["task"]] = record["boot"]
        elif "scan" in record:
            value = record["value"]
            scans[record["scan"]] = np.asarray(value) if isinstance(value, list) else value
        elif "commit" in record:
            is_committing, is_on_disk = record["commit"], True
        else:
            synced.update(record["synced"])
    if not begin:
        return None
    current = boot_id() or None  # a machine without it may have been started again
    written = {
        number: counts for number, counts in tasks.items() if is_on_disk or number in synced or boots[number] == current
    }
    return JournalEntries(begin["begin"], begin["plan"], begin["source"], written, scans, is_committing)


def _counts_of(record: Mapping[str, Any]) -> BoxCounts:
    """Return the counts of a task."""
    counts = record.get("counts")
    return BoxCounts(**{name: counts[name] for name in _COUNTED if name in counts}) if counts else _NO_COUNTS
