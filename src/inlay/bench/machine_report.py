"""The machine model, beside the caches that the operating system reports: `inlay bench --machine`."""

from dataclasses import dataclass
from typing import Any

from inlay.bench.measurement import table_text
from inlay.machine import MemoryModel, ReportedCache, model_document, reported_caches
from inlay.reordering.compiled import CompiledCopies
from inlay.reordering.memory_levels import measure_all


@dataclass(frozen=True, slots=True)
class MachineReport:
    """The machine model, and the caches that the operating system reports."""

    model: MemoryModel
    """The measured capacities and bandwidths."""
    reported: tuple[ReportedCache, ...]
    """Caches of the first processor; empty where the system reports none."""

    def as_json(self) -> Any:
        """Return the document that INLAY_MACHINE reads."""
        return model_document(self.model, self.reported)

    def __str__(self) -> str:
        """Return a row for each level: measured capacity, reported capacity, bandwidth."""
        model = self.model
        l2, last = (_megabytes(model.l2), self._reported(2)), (_megabytes(model.last_level), self._reported(3))
        rows = [
            ("L2, per thread", *l2, f"{model.l2_bandwidth:.1f}"),
            ("last level", *last, f"{model.l3_bandwidth:.1f}"),
            ("memory", "", "", f"{model.memory_bandwidth:.1f}"),
        ]
        threads = f"{model.threads} thread{'s' * (model.threads != 1)}"
        return (
            f"capacities in bytes of source plus destination, bandwidths of copies on {threads}\n"
            f"{table_text(('', 'measured', 'reported', 'GB/s a thread'), rows)}\n"
            f"streaming stores win from {_megabytes(model.streaming_from)} where nothing reads the result"
        )

    def _reported(self, level: int) -> str:
        """Return the capacity of the data cache of a level, as the system reports it."""
        return _megabytes(max((c.nbytes for c in self.reported if c.level == level and c.holds_data), default=0))


def measure_machine() -> MachineReport:
    """Measure the machine model anew, store it, and return it beside what the system reports: some 0.3 seconds."""
    return MachineReport(measure_all(CompiledCopies()), reported_caches())


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:g} MB" if nbytes else "-"
