"""The report of a conversion: formats, bytes, losses and errors of each tensor, and the rate.

reports = []
convert(plan, report=reports.append)
Path("report.json").write_text(json.dumps(reports[0].to_json(), indent=1))
"""

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from inlay.storage.conversion_plan import ConversionPlan
from inlay.storage.operation import BoxCounts


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The result of an executed plan."""

    plan: ConversionPlan
    """The plan."""
    counts: tuple[BoxCounts, ...]
    """Counts of each tensor of the plan."""
    seconds: float
    """Run time, in seconds, until everything was on disk."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object: that of the plan, with what was counted in each tensor."""
        planned = self.plan.to_json()
        rate = planned["bytes_written"] / self.seconds if self.seconds else None
        tensors = zip(planned.pop("tensors"), self.counts, strict=True)
        described = [tensor | _describe_counts(counts) for tensor, counts in tensors]
        return planned | {"seconds": self.seconds, "bytes_written_per_second": rate, "tensors": described}


def _describe_counts(counts: BoxCounts) -> dict[str, Any]:
    """Return what was counted in a tensor as a JSON object; errors are there if the operation measures them.

    >>> _describe_counts(BoxCounts(8, zeroed=1, saturated=1, squared_error=0.5, squared=8, greatest_error=0.5))
    {'nonzero': 8, 'zeroed': 1, 'saturated': 1, 'loss': 0.25, 'relative_error': 0.25, 'greatest_error': 0.5}
    """
    lost = (counts.zeroed + counts.saturated) / counts.nonzero if counts.nonzero else 0.0
    result: dict[str, Any] = {"nonzero": counts.nonzero, "zeroed": counts.zeroed, "saturated": counts.saturated}
    result["loss"] = lost
    if counts.squared:
        relative = sqrt(counts.squared_error / counts.squared)
        result |= {"relative_error": _finite(relative), "greatest_error": _finite(counts.greatest_error)}
    return result


def _finite(number: float) -> float | None:
    """Return a number, or None for NaN and infinity, which JSON does not have."""
    return number if isfinite(number) else None
