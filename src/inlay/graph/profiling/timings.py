"""`StepTiming`: the measured time of a step, its prediction, a short label, and its formats in familiar tags."""

from dataclasses import dataclass
from typing import Any

from inlay.graph.program import Step
from inlay.measure.statistics import Spread


@dataclass(frozen=True, slots=True, repr=False)
class StepTiming:
    """The measured time of a step beside its prediction."""

    step: Step
    """The step."""
    label: str
    """Short name: that of the first operation, and what the others do, such as `conv1 +relu`."""
    impl: str
    """Name of the implementation that ran."""
    formats: str
    """Formats of the tensors that it reads and writes, such as `nchw -> nChw16c`; one if all are equal."""
    time: Spread
    """Measured time in milliseconds: median and quartiles of the runs."""
    share: float
    """Share of the sum of the medians of all steps, from 0 to 1."""

    @property
    def ms(self) -> float:
        """Median of the measured times in milliseconds."""
        return self.time.median

    @property
    def predicted(self) -> float | None:
        """Predicted time in milliseconds; None for a step of a program that was not planned by costs."""
        return self.step.ms or None

    def as_json(self) -> dict[str, Any]:
        """Return the figures of the step, by name; times are in milliseconds."""
        return {
            "name": self.step.name,
            "label": self.label,
            "kind": self.step.kind,
            "ops": list(self.step.ops),
            "formats": self.formats,
            "impl": self.impl,
            "ms": self.ms,
            "low": self.time.low,
            "high": self.time.high,
            "predicted": self.predicted,
            "source": self.step.source,
            "share": self.share,
            "nbytes": self.step.nbytes,
        }

    def __repr__(self) -> str:
        """Return name, kind, formats, and both times."""
        predicted = "" if self.predicted is None else f", predicted {self.predicted:.3f} ms"
        return f"<{self.label}: {self.step.kind}, {self.formats}, {self.impl}; {self.ms:.3f} ms{predicted}>"
