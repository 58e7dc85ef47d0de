"""The timing database: measured values, shared between processes as tables of keys and values in the cache directory.

    table = TimingTable("costs", "5", engine, processor)
    table.get("kernel 5be0")            None, or the value that this or another process stored
    table.put("kernel 5be0", 9.25)
    table.save()

A table is one file of the cache directory (`inlay.cache`) with a JSON object. The name of the file follows from the
kind of the table, its version, and the facts on which its values depend, so another engine or processor has another
table. The file is sealed like machine code: a damaged file counts as missing. If two processes save at the same time,
both succeed: a lock file lets each of them add to the entries of the other. A table has a maximum number of entries;
the oldest ones are dropped.

If the directory is not writable, or another process holds the lock for more than a second, nothing is saved and
`TimingTable.unsaved` contains the reason. Failures to save never raise an exception.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, TypeGuard

from inlay import cache
from inlay.errors import FileError

_LOCK_TIMEOUT = 1.0  # seconds to wait for the lock of another process; after one timeout a table does not wait again
MOST = 1 << 14
"""Default for the maximum number of entries of a table."""


class TimingTable:
    """A table of JSON values by key, held in memory; `save` adds new entries to the file."""

    def __init__(self, kind: str, *facts: str, most: int | None = None) -> None:
        """Open a table; nothing is read yet.

        Args:
            kind: the kind of the table, the suffix of its file.
            facts: the version of the table, and the facts on which its values depend.
            most: the maximum number of entries; the oldest ones are dropped. `MOST` if None.
        """
        self._most = MOST if most is None else most
        self.kind = kind
        """Suffix of the file."""
        self.name = cache.object_key(kind, *facts)
        """Name of the file without its suffix."""
        self.unsaved = ""
        """Reason for which the last `save` wrote nothing; empty if it succeeded."""
        self._known: Mapping[str, Any] | None = None
        self._new: dict[str, Any] = {}
        self._least: dict[str, float] = {}
        self._lock_timeout = _LOCK_TIMEOUT
        self._directory = cache.configured_directory()

    def get(self, key: str) -> Any:
        """Return the value that `put` stored in this or another process; None if there is none.

        The value may have any form that JSON can represent, because another version may have written the file. The
        caller checks it.
        """
        return self._new[key] if key in self._new else self._read().get(key)

    def put(self, key: str, value: Any) -> None:
        """Store a value that JSON can represent; `save` writes it to the file."""
        self._new[key] = value

    def least(self, key: str) -> float | None:
        """Return the smallest time that `put_least` stored before this table was read; None if there is none."""
        value = self._read().get(key)
        return value if is_time(value) else None

    def put_least(self, key: str, seconds: float) -> None:
        """Store a time unless a process has stored a smaller one; `save` writes it if there are other new values."""
        self._least[key] = min(seconds, self._least.get(key, seconds))

    def save(self) -> None:
        """Add new entries to the file; set `unsaved` if that is impossible."""
        if not self._new:
            return
        if cache.configured_directory() != self._directory:  # the table was opened for another directory
            self.unsaved = f"the cache directory is no longer {self._directory}: set it before anything is measured"
            return
        try:
            self._merge()
            self.unsaved = ""
        except TimeoutError as error:
            self._lock_timeout, self.unsaved = 0.0, str(error)
        except FileError as error:
            self.unsaved = str(error)

    def _read(self) -> Mapping[str, Any]:
        """Return the entries of the file, read at the first call."""
        if self._known is None:
            self._known = read_table(cache.read_object(self.name, self.kind))
        return self._known

    def _merge(self) -> None:
        """Merge new entries with those that other processes wrote, and write the file.

        Raises:
            FileError: the cache directory is not usable or not writable.
            TimeoutError: another process holds the lock.
        """
        with cache.hold_lock(self.name, self._lock_timeout):
            stored = read_table(cache.read_object(self.name, self.kind))
            times = {key: _smaller_time(seconds, stored.get(key)) for key, seconds in self._least.items()}
            added = self._new | times
            merged = {key: value for key, value in stored.items() if key not in added} | added
            for key in list(merged)[: max(0, len(merged) - self._most)]:
                del merged[key]
            cache.store_object(self.name, json.dumps(merged, separators=(",", ":")).encode(), self.kind)
        self._known, self._new, self._least = merged, {}, {}


@lru_cache(maxsize=8)
def read_table(data: bytes | None) -> Mapping[str, Any]:
    """Return the entries of a file from its bytes; none for None or invalid data.

    >>> read_table(b'{"yardstick": 1e-05}'), read_table(b"[1]")
    ({'yardstick': 1e-05}, {})
    """
    try:
        table = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def is_time(value: Any) -> TypeGuard[float]:
    """Return whether a value from a file is a positive finite float.

    >>> is_time(1e-5), is_time(float("nan")), is_time("1")
    (True, False, False)
    """
    return isinstance(value, float) and isfinite(value) and value > 0


def _smaller_time(seconds: float, value: Any) -> float:
    """Return the smaller of a time and a value from a file, which is ignored if it is not a time."""
    return min(seconds, value) if is_time(value) else seconds
