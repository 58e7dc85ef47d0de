"""The sizes of the machine's caches, which decide where stores go and what is fetched ahead."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SECOND, _LAST = 1 << 20, 32 << 20


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Bytes of the caches of the first processor."""

    second: int
    """Of the second level, which one core has to itself."""
    last: int
    """Of the largest, which cores share."""


@lru_cache(maxsize=1)
def cache_sizes() -> CacheSizes:
    """The caches of this machine; those of a common one where the system does not say."""
    sizes = {int(level): nbytes for index in _SYSTEM.glob("index*") for level, nbytes in _size(index)}
    return CacheSizes(sizes.get(2, _SECOND), max(sizes.values(), default=_LAST))


def _size(index: Path) -> list[tuple[str, int]]:
    """The level and the bytes of one cache that holds data, as far as its files can be read."""
    try:
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
    except OSError:
        return []
    if kind == "Instruction" or size[-1:] not in _UNITS or not size[:-1].isdigit():
        return []
    return [(level, int(size[:-1]) * _UNITS[size[-1]])]
