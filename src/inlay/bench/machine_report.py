"""The machine model beside what the operating system reports, as a table and as JSON."""

import json
from dataclasses import dataclass
from typing import Any

from inlay.machine import MemoryModel, ReportedCache, model_to_json, reported_caches
from inlay.reordering.compiled import Copies
from inlay.reordering.memory_levels import measure_all


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The machine model, and the caches that the operating system reports."""

    model: MemoryModel
    """What was measured."""
    reported: tuple[ReportedCache, ...]
    """Caches of the first processor; empty where the system reports none."""

    def as_json(self) -> Any:
        """Return the document that INLAY_MACHINE reads."""
        return json.loads(model_to_json(self.model, self.reported))

    def __str__(self) -> str:
        """A row for each level: capacity measured, capacity reported, bandwidth."""
        model = self.model
        rows = [
            ("L2, per thread", _megabytes(model.l2), _megabytes(self._reported(2)), model.l2_bandwidth),
            ("last level", _megabytes(model.last_level), _megabytes(self._reported(3)), model.l3_bandwidth),
            ("memory", "", "", model.memory_bandwidth),
        ]
        threads = f"{model.threads} thread{'s' * (model.threads != 1)}"
        head = f"{'':16}{'measured':>12}{'reported':>12}{'GB/s a thread':>16}"
        lines = [f"{name:16}{size:>12}{reported:>12}{rate:>16.1f}" for name, size, reported, rate in rows]
        return "\n".join(
            [
                f"capacities in bytes of source plus destination, bandwidths of copies on {threads}",
                head,
                *lines,
                f"streaming stores win from {_megabytes(model.streaming_from)} where nothing reads the result",
            ]
        )

    def _reported(self, level: int) -> int:
        """Bytes of the data cache of a level, 0 where the system reports none."""
        return max((c.nbytes for c in self.reported if c.level == level and c.holds_data), default=0)


def measure_machine() -> MachineReport:
    """Measure the machine model anew, remember it, and return it beside what the system reports: some 0.3 seconds."""
    return MachineReport(measure_all(Copies()), reported_caches())


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:g} MB" if nbytes else "-"
