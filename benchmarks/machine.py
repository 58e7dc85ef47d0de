"""The machine: what the figures of a run depend on and its table must name.

>>> caches = ReportedCache(1, "Data", 1 << 15, (0,)), ReportedCache(2, "Unified", 1 << 20, (0,))
>>> Machine("a processor", (0, 1), caches, 1 << 34, "", "").cache_bytes(2)
1048576
"""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from inlay.machine import MemoryModel, ReportedCache, reported_caches
from inlay.measure.processors import allowed_processors
from inlay.reordering.compiled import CompiledCopies
from inlay.reordering.memory_levels import measure_all, memory_model

_FALLBACK = {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}
_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a run took place."""

    processor: str
    """The name of the processor, as the system says it."""
    processors: tuple[int, ...]
    """The processors this process may run on: the number of threads everybody gets."""
    caches: tuple[ReportedCache, ...]
    """The caches of the first processor, with the capacities of the machine model in place of the reported ones."""
    memory: int
    """Bytes of memory."""
    system: str
    """The operating system, Python, and their versions."""
    huge_pages: str
    """The setting of transparent huge pages; empty where there are none."""

    @property
    def threads(self) -> int:
        """The threads everybody may use."""
        return len(self.processors)

    def cache_bytes(self, level: int) -> int:
        """Capacity of the data cache of this level; that of a common machine where the system does not say."""
        found = [cache.nbytes for cache in self.caches if cache.level == level and cache.holds_data]
        return found[0] if found else _FALLBACK[level]

    def lines(self) -> list[str]:
        """The description, a line per fact."""
        caches = [
            f"L{cache.level} {cache.nbytes >> 10} KiB shared by {len(cache.shared_by)}"
            for cache in self.caches
            if cache.holds_data
        ]
        return [
            f"{self.processor}, {self.threads} threads for everybody",
            "caches, effective: " + (", ".join(caches) or "unknown, sizes taken for 1 MiB L2 and 32 MiB L3"),
            f"{self.memory / 2**30:.0f} GiB of memory, transparent huge pages: {self.huge_pages or 'none'}",
            self.system,
        ]


def this_machine() -> Machine:
    """The machine that runs this process."""
    return Machine(
        processor=_processor_name(),
        processors=allowed_processors(),
        caches=effective_caches(reported_caches(), _measured_model()),
        memory=_memory_bytes(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}",
        huge_pages=_PAGES.read_text().strip() if _PAGES.exists() else "",
    )


def effective_caches(reported: Iterable[ReportedCache], model: MemoryModel) -> tuple[ReportedCache, ...]:
    """Return the reported caches with the capacities that were measured; sizes of cases follow from these.

    >>> model = MemoryModel(1 << 20, 32 << 20, 32 << 20)
    >>> effective_caches([ReportedCache(3, "Unified", 480 << 20, (0, 1))], model)[0].nbytes
    33554432
    """
    measured = {2: model.l2, 3: model.last_level}
    return tuple(
        replace(cache, nbytes=measured.get(cache.level, cache.nbytes)) if cache.holds_data else cache
        for cache in reported
    )


def _measured_model() -> MemoryModel:
    """Return the machine model, measured now if it was not before."""
    model = memory_model()
    return measure_all(CompiledCopies()) if model.source == "assumed" else model


def _processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    facts: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = ", ".join(f"{key} {facts[key]}" for key in ("cpu family", "model", "stepping") if key in facts)
    return f"{name} ({numbers})" if numbers else name


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
