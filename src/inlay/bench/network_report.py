"""What was measured of a network, and how it is said."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from inlay.bench.tables import table_text
from inlay.graph.costs import CostSources
from inlay.graph.numpy_share import NumpyShare
from inlay.layout import Dims
from inlay.measure.statistics import Spread, paired_ratio

INLAY = "Inlay"
"""How Inlay's line is called."""


_FIGURES = ("predicted_ms", "bound_ms", "arena_bytes", "steps", "reorders", "planning", "compiling", "note")


@dataclass(frozen=True, slots=True)
class NetworkLine:
    """One who took part."""

    name: str
    """Who."""
    how: str
    """In which configuration, in words."""
    seconds: tuple[float, ...]
    """Seconds of a run in each round in which it took a turn."""
    difference: float
    """How far its numbers are from Inlay's, as a part of the largest one."""

    @property
    def time(self) -> float:
        """Their median."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """What was measured of one network."""

    network: str
    """Its name."""
    inputs: Mapping[str, Dims]
    """The dims of each input."""
    threads: int
    """How many threads everybody may use."""
    lines: tuple[NetworkLine, ...]
    """Inlay, then the others."""
    absent: Mapping[str, str]
    """Who did not take part, and why."""
    predicted_ms: float
    """What the plan takes a run to last."""
    bound_ms: float
    """What no plan among the same candidates can be below."""
    arena_bytes: int
    """Memory for tensors."""
    steps: int
    """Steps of a run."""
    reorders: int
    """Those of them that change a format."""
    planning: float
    """Seconds from the network to the plan."""
    compiling: float
    """Seconds from the plan to the session."""
    note: str = ""
    """What `Session.note` says of steps that the engine declined; empty if there are none."""

    numpy: NumpyShare | None = None
    """How many steps NumPy computes, and their share of the measured time; None if it computes none."""

    sources: CostSources | None = None
    """How many costs of kernels were measured, now or earlier, and how many estimated; None where a model has all."""

    def ratio(self, line: NetworkLine) -> Spread:
        """How many times as fast as `line` Inlay is."""
        return paired_ratio(line.seconds, self.lines[0].seconds)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON holds it: seconds, ratios with their quartiles."""
        lines = {
            line.name: {
                "how": line.how,
                "seconds": list(line.seconds),
                "difference": line.difference,
                "inlay_is_times_as_fast": asdict(self.ratio(line)),
            }
            for line in self.lines
        }
        return {
            "network": self.network,
            "inputs": {name: list(dims) for name, dims in self.inputs.items()},
            "threads": self.threads,
            "measured": lines,
            "absent": dict(self.absent),
            **{name: getattr(self, name) for name in _FIGURES},
            "numpy": None if self.numpy is None else {"steps": self.numpy.count, "share": self.numpy.share},
            "sources": None if self.sources is None else self.sources.as_json(),
        }

    def __str__(self) -> str:
        """A table: time, how many times as fast Inlay is with the spread, and in which configuration."""
        dims = ", ".join(f"{name} {'x'.join(map(str, its))}" for name, its in self.inputs.items())
        own = self.lines[0]
        many = "s" * (self.reorders != 1)
        rows = [
            f"{self.network}, {dims}, {self.threads} thread{'s' * (self.threads != 1)}",
            f"planned in {self.planning:.2f} s, compiled in {self.compiling:.2f} s: {self.steps} steps, "
            f"{self.reorders} reorder{many}, arena {self.arena_bytes / 1e6:.2f} MB",
            f"predicted {self.predicted_ms:.3g} ms, measured {1e3 * own.time:.3g} ms",
        ]
        rows += [f"costs of {self.sources}"] if self.sources is not None else []
        rows += [str(self.numpy)] if self.numpy is not None else []
        rows += [self.note] if self.note else []
        table = []
        for line in self.lines:
            ratio = self.ratio(line)
            faster = f"{ratio.median:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
            table.append((line.name, f"{1e3 * line.time:.3f}", "" if line is own else faster, line.how))
        rows.append(table_text({"": "left", "ms": "right", "Inlay is": "left", "how": "left"}, table))
        return "\n".join([*rows, *(f"{name}: {reason}" for name, reason in self.absent.items())])
