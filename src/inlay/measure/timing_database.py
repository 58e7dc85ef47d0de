"""The timing database: what was measured, kept between processes as tables of keys and values.

    table = TimingTable("costs", "5", engine, processor)
    table.get("kernel 5be0")            None, or what this process or another one stored
    table.put("kernel 5be0", 9.25)
    table.save()

A table is one file of the cache directory (`inlay.cache`), a JSON object. Its name follows from its kind, its version
and the facts that its values hang on: another engine or processor has a table of its own. It is sealed like machine
code: a file that is damaged is as good as none. Two processes that write at once both succeed: a lock file lets each
add to what the other has written. A table holds a bounded number of entries; those that were written first are dropped.

Where the directory cannot be written, or another process holds the lock for over a second, nothing is saved, and
`TimingTable.unsaved` tells why: no part of this may fail what is computed.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import Any, TypeGuard

from inlay import cache
from inlay.errors import FileError

_PATIENCE = 1.0  # seconds to wait for another process that writes, once in the life of a table
MOST = 1 << 14
"""Entries of a table, unless it has a bound of its own."""


class TimingTable:
    """Values of JSON by key; reading and writing go through memory, and `save` adds what is new to the file."""

    def __init__(self, kind: str, *facts: str, most: int | None = None) -> None:
        """Open the table of this kind for these facts, of which the first is its version; nothing is read yet.

        It keeps `most` entries: those that were written last.
        """
        self._most = MOST if most is None else most
        self.kind = kind
        """The suffix of the file."""
        self.name = cache.object_key(kind, *facts)
        """The name of the file without its suffix."""
        self.unsaved = ""
        """Why the last `save` wrote nothing; empty if it succeeded."""
        self._known: Mapping[str, Any] | None = None
        self._new: dict[str, Any] = {}
        self._least: dict[str, float] = {}
        self._patience = _PATIENCE
        self._directory = cache.configured_directory()

    def get(self, key: str) -> Any:
        """Return what `put` stored, here or in another process, as JSON holds it; None where nothing was.

        What is in the file may be of any form: it is read from a directory, where another version may have written.
        """
        return self._new[key] if key in self._new else self._read().get(key)

    def put(self, key: str, value: Any) -> None:
        """Store a value that JSON can hold."""
        self._new[key] = value

    def least(self, key: str) -> float | None:
        """Return the least time that `put_least` stored before this table was opened; None where there is none."""
        value = self._read().get(key)
        return value if is_time(value) else None

    def put_least(self, key: str, seconds: float) -> None:
        """Store a time, if no process has stored a lesser one; it is saved together with other values."""
        self._least[key] = min(seconds, self._least.get(key, seconds))

    def save(self) -> None:
        """Add what is new to the file, and set `unsaved` where that is impossible."""
        if not self._new:
            return
        if cache.configured_directory() != self._directory:  # a table that dies late would fill a directory not its own
            self.unsaved = f"the cache directory is no longer {self._directory}: set it before anything is measured"
            return
        try:
            self._add()
            self.unsaved = ""
        except TimeoutError as error:
            self._patience, self.unsaved = 0.0, str(error)
        except FileError as error:
            self.unsaved = str(error)

    def _read(self) -> Mapping[str, Any]:
        if self._known is None:
            self._known = read_table(cache.read_object(self.name, self.kind))
        return self._known

    def _add(self) -> None:
        """Merge what is new with what other processes wrote.

        Raises:
            FileError: the directory of the cache cannot be used or written.
            TimeoutError: another process holds the lock.
        """
        with cache.hold_lock(self.name, self._patience):
            found = read_table(cache.read_object(self.name, self.kind))
            times = {key: _least(seconds, found.get(key)) for key, seconds in self._least.items()}
            added = self._new | times
            merged = {key: value for key, value in found.items() if key not in added} | added
            for key in list(merged)[: max(0, len(merged) - self._most)]:
                del merged[key]
            cache.store_object(self.name, json.dumps(merged, separators=(",", ":")).encode(), self.kind)
        self._known, self._new, self._least = merged, {}, {}


@lru_cache(maxsize=8)
def read_table(data: bytes | None) -> Mapping[str, Any]:
    """Return the entries of a file; none where there is no file, or one that is no table.

    >>> read_table(b'{"yardstick": 1e-05}'), read_table(b"[1]")
    ({'yardstick': 1e-05}, {})
    """
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_time(value: Any) -> TypeGuard[float]:
    """Return whether a value that was read is a positive finite number.

    >>> is_time(1e-5), is_time(float("nan")), is_time("1")
    (True, False, False)
    """
    return isinstance(value, float) and isfinite(value) and value > 0


def _least(seconds: float, value: Any) -> float:
    return min(seconds, value) if is_time(value) else seconds
