"""What was measured, kept between processes: a file for each version, engine, instruction set, threads and processor.

Times stand in it as multiples of a yardstick, a small kernel that was timed beside each: a processor whose clock goes
up and down changes both. The file says the best time of the yardstick.

    {"yardstick": 6.1e-05, "kernels": {"5be0...": ["brgconv:avx512_core", 9.25, 0, {"weights": "{...}"}], ...},
     "reorders": {"77a1...": 0.31, ...}}

It lies in the directory of the code cache, sealed like the code: one that is damaged is as good as none, and so is an
entry that makes no sense. Two processes that write at once both succeed: a lock file lets each add to what the other
has written. Where the directory cannot be written, or another process holds the lock for over a second, nothing is
saved, and `Book.unsaved` says why.
"""

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any

from inlay.errors import FileError
from inlay.reordering import cache

KIND = "costs"
"""The suffix of the files."""
_VERSION = "4"
_PATIENCE = 1.0  # seconds to wait for another process that writes, once in the life of a book


@dataclass(frozen=True, slots=True)
class Price:
    """A time that nothing disturbed."""

    ratio: float
    """The time, as a multiple of the yardstick's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a kernel."""

    impl: str
    """The engine's name for it."""
    price: Price
    """Its time."""
    scratch: int
    """Bytes of scratchpad."""
    descs: tuple[tuple[str, str], ...]
    """Arguments that were `any`, each with what was chosen, as JSON."""


class Book:
    """Entries by the keys of operations and reorders."""

    def __init__(self, *facts: str) -> None:
        """Open the book of what these facts name; nothing is read yet."""
        self._name = cache.object_key(KIND, _VERSION, *facts)
        self._read: dict[str, Any] | None = None
        self._new: dict[str, Any] = _empty()
        self._patience = _PATIENCE
        self._directory = cache.chosen_directory()
        self.unsaved = ""
        """Why the last `save` wrote nothing; empty if it succeeded."""

    @property
    def yardstick(self) -> float | None:
        """Seconds of the yardstick at its best, as far as was written before; None if it never was."""
        value = self._known["yardstick"]
        return value if _is_time(value) else None

    def kernel(self, key: str) -> Entry | None:
        """What is known of the kernel of an operation; None if nothing is."""
        return _entry(self._new["kernels"].get(key) or self._known["kernels"].get(key))

    def reorder(self, key: str) -> Price | None:
        """The time of a reorder, for each byte that it moves; None if it is not known."""
        return _price(self._new["reorders"].get(key) or self._known["reorders"].get(key))

    def write_kernel(self, key: str, entry: Entry) -> None:
        """Remember a kernel."""
        self._new["kernels"][key] = [entry.impl, entry.price.ratio, entry.scratch, dict(entry.descs)]

    def write_reorder(self, key: str, price: Price) -> None:
        """Remember a reorder."""
        self._new["reorders"][key] = price.ratio

    def write_yardstick(self, seconds: float) -> None:
        """Remember the yardstick, if it was never faster."""
        self._new["yardstick"] = _least(self._new["yardstick"], seconds)

    @property
    def _known(self) -> dict[str, Any]:
        if self._read is None:
            self._read = read_book(cache.read_object(self._name, KIND))
        return self._read

    def save(self) -> None:
        """Add what is new to the file, and set `unsaved` where that is impossible: no part of this fails a plan."""
        if not (self._new["kernels"] or self._new["reorders"]):
            return
        if cache.chosen_directory() != self._directory:  # costs that die late would fill a directory not theirs
            self.unsaved = f"the cache directory is no longer {self._directory}: set it before networks are planned"
            return
        try:
            self._add()
            self.unsaved = ""
        except TimeoutError as error:
            self._patience, self.unsaved = 0.0, str(error)
        except FileError as error:
            self.unsaved = str(error)

    def _add(self) -> None:
        """Merge what is new with what other processes wrote.

        Raises:
            FileError: the directory of the cache cannot be used or written.
            TimeoutError: another process holds the lock.
        """
        new = self._new
        with cache.locked(self._name, self._patience):
            found = read_book(cache.read_object(self._name, KIND))
            merged = {
                "yardstick": _least(found["yardstick"], new["yardstick"]),
                "kernels": {**found["kernels"], **new["kernels"]},
                "reorders": {**found["reorders"], **new["reorders"]},
            }
            cache.store_object(self._name, json.dumps(merged, separators=(",", ":")).encode(), KIND)
        self._read, self._new = merged, _empty()


def read_book(data: bytes | None) -> dict[str, Any]:
    """The parts of a file; empty ones where there is none, or one that is damaged.

    >>> read_book(b'{"yardstick": 1e-05, "kernels": {}, "reorders": []}')
    {'yardstick': None, 'kernels': {}, 'reorders': {}}
    """
    try:
        found = json.loads(data or b"")
    except ValueError:
        return _empty()
    is_sound = (
        isinstance(found, dict)
        and found.keys() == _empty().keys()
        and isinstance(found["kernels"], dict)
        and isinstance(found["reorders"], dict)
    )
    return found if is_sound else _empty()


def _empty() -> dict[str, Any]:
    return {"yardstick": None, "kernels": {}, "reorders": {}}


def _least(*values: Any) -> float | None:
    return min((value for value in values if _is_time(value)), default=None)


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and isfinite(value) and value > 0


def _entry(value: Any) -> Entry | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    impl, price, scratch, descs = value[0], _price(value[1]), *value[2:]
    is_sound = isinstance(impl, str) and isinstance(scratch, int) and isinstance(descs, dict)
    if price is None or not is_sound or not all(isinstance(text, str) for text in descs.values()):
        return None
    return Entry(impl, price, scratch, tuple(descs.items()))


def _price(value: Any) -> Price | None:
    return Price(value) if _is_time(value) else None
