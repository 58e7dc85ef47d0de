"""What was measured of kernels and reorders: a table of the timing database for each engine and processor.

Times stand in it as multiples of a yardstick, a small kernel that was timed beside each: a processor whose clock goes
up and down changes both. The table holds the best time of the yardstick, in seconds.

    {"yardstick": 6.1e-05, "kernel 5be0...": ["brgconv:avx512_core", 9.25, 0, {"weights": "{...}"}],
     "reorder 77a1...": 0.31, ...}

An entry that makes no sense is as good as none.
"""

from dataclasses import dataclass
from typing import Any

from inlay.measure.timing_database import TimingTable, is_time

KIND = "costs"
"""The suffix of the files."""
_VERSION = "5"
_YARDSTICK = "yardstick"


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


class Book(TimingTable):
    """Entries by the keys of operations and reorders."""

    def __init__(self, *facts: str) -> None:
        """Open the book of what these facts name; nothing is read yet."""
        super().__init__(KIND, _VERSION, *facts)

    @property
    def yardstick(self) -> float | None:
        """Seconds of the yardstick at its best, as far as was written before; None if it never was."""
        return self.least(_YARDSTICK)

    def kernel(self, key: str) -> Entry | None:
        """What is known of the kernel of an operation; None if nothing is."""
        return _entry(self.get(f"kernel {key}"))

    def reorder(self, key: str) -> Price | None:
        """The time of a reorder, for each byte that it moves; None if it is not known."""
        return _price(self.get(f"reorder {key}"))

    def write_kernel(self, key: str, entry: Entry) -> None:
        """Remember a kernel."""
        self.put(f"kernel {key}", [entry.impl, entry.price.ratio, entry.scratch, dict(entry.descs)])

    def write_reorder(self, key: str, price: Price) -> None:
        """Remember a reorder."""
        self.put(f"reorder {key}", price.ratio)

    def write_yardstick(self, seconds: float) -> None:
        """Remember the yardstick, if it was never faster."""
        self.put_least(_YARDSTICK, seconds)


def _entry(value: Any) -> Entry | None:
    if not isinstance(value, list) or len(value) != 4:
        return None
    impl, price, scratch, descs = value[0], _price(value[1]), *value[2:]
    is_sound = isinstance(impl, str) and isinstance(scratch, int) and isinstance(descs, dict)
    if price is None or not is_sound or not all(isinstance(text, str) for text in descs.values()):
        return None
    return Entry(impl, price, scratch, tuple(descs.items()))


def _price(value: Any) -> Price | None:
    return Price(value) if is_time(value) else None
