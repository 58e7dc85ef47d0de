"""`CostSources`: how many prices were measured now, measured earlier, or estimated by a model.

>>> print(CostSources(measured=5, remembered=10, scaled=40, modelled=4, is_out_of_time=True))
59 kernels and reorders: 5 measured now, 10 measured earlier, 44 estimated by a model
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CostSources:
    """Numbers of kernels and reorders by the origin of their run times, and whether the measured ones were saved."""

    measured: int = 0
    """Kernels and reorders that this process measured."""
    remembered: int = 0
    """Those that were measured earlier, and were read from the cache directory."""
    scaled: int = 0
    """Those that the model of the machine estimated, times the median error of that model for measured ones like it."""
    modelled: int = 0
    """Those that the model of the machine estimated alone."""
    is_out_of_time: bool = False
    """Whether the time for measuring ran out."""
    unsaved: str = ""
    """Why measured times were not saved for other processes; empty if they were, or if there were none."""

    @property
    def estimated(self) -> int:
        """Kernels and reorders that were estimated by a model."""
        return self.scaled + self.modelled

    @property
    def total(self) -> int:
        """All kernels and reorders."""
        return self.measured + self.remembered + self.estimated

    def as_json(self) -> dict[str, Any]:
        """The counts by name; `unsaved` is null where nothing was lost."""
        return {
            "measured": self.measured,
            "remembered": self.remembered,
            "estimated": {"scaled": self.scaled, "modelled": self.modelled},
            "is_out_of_time": self.is_out_of_time,
            "unsaved": self.unsaved or None,
        }

    def __str__(self) -> str:
        """The counts that are not zero, in words."""
        counts = (
            (self.measured, "measured now"),
            (self.remembered, "measured earlier"),
            (self.estimated, "estimated by a model"),
        )
        parts = ", ".join(f"{count} {origin}" for count, origin in counts if count)
        return f"{self.total} kernels and reorders: {parts}" if parts else "no kernels and no reorders"
