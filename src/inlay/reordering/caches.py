"""The caches of the machine, whose sizes decide where stores go and what is fetched ahead.

>>> [cache.nbytes for cache in machine_caches(Path("nowhere"))]
[]
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SECOND, _LAST = 1 << 20, 32 << 20


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of the first processor."""

    level: int
    """1 is the nearest."""
    kind: str
    """`Data`, `Instruction` or `Unified`."""
    nbytes: int
    """Its capacity."""
    shared_by: tuple[int, ...]
    """The processors that share it."""

    @property
    def holds_data(self) -> bool:
        """Whether it is more than a cache of instructions."""
        return self.kind != "Instruction"


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
    return sizes_of(machine_caches())


def sizes_of(caches: tuple[Cache, ...]) -> CacheSizes:
    """The sizes that matter of these caches; those of a common machine where they are missing.

    >>> sizes_of((Cache(2, "Unified", 1 << 19, (0,)),))
    CacheSizes(second=524288, last=524288)
    """
    sizes = {cache.level: cache.nbytes for cache in caches if cache.holds_data}
    return CacheSizes(sizes.get(2, _SECOND), max(sizes.values(), default=_LAST))


def machine_caches(folder: Path = _SYSTEM) -> tuple[Cache, ...]:
    """The caches that the system describes in `folder`, the nearest first; none where it does not say."""
    found = [_cache(index) for index in folder.glob("index*")]
    return tuple(sorted((cache for cache in found if cache is not None), key=lambda cache: (cache.level, cache.kind)))


def _cache(index: Path) -> Cache | None:
    """One cache, or None where its files cannot be read."""
    try:
        names = ("level", "type", "size", "shared_cpu_list")
        level, kind, size, shared_by = ((index / name).read_text().strip() for name in names)
        return Cache(int(level), kind, int(size[:-1]) * _UNITS[size[-1:]], listed_processors(shared_by))
    except (OSError, ValueError, KeyError):
        return None


def listed_processors(text: str) -> tuple[int, ...]:
    """The processors that a list of the system names.

    Raises:
        ValueError: it is no list of numbers.

    >>> listed_processors("0-2,8")
    (0, 1, 2, 8)
    """
    ends = [part.split("-") for part in text.split(",") if part]
    return tuple(n for end in ends for n in range(int(end[0]), int(end[-1]) + 1))
