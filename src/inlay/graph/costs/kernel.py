"""What a planner is told: a `Kernel` for an operation in given formats, the protocol of those who tell, how they know.

>>> relu = Operation("eltwise", "forward_inference", {}, {"algorithm": "relu"})
>>> Kernel(relu, "jit:avx2", ms=0.4, roofline=0.1, scratch=0, nbytes=1024).is_cliff
False
>>> Kernel(relu, "ref:any", ms=57.0, roofline=0.1, scratch=0, nbytes=1024).is_cliff
True
>>> print(CostSources(measured=5, remembered=10, scaled=40, modelled=4, is_out_of_time=True))
59 kernels and reorders: 5 measured now, 10 measured earlier, 44 estimated by a model
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.graph.op_graph import Op, OpGraph
from inlay.primitives.engine import Operation

Source: TypeAlias = Literal["modelled", "probed", "scaled", "measured"]
Progress: TypeAlias = Callable[[int, int], None]
"""Told how many kernels are done, and how many are planned."""

CLIFF = 10.0
"""Times its roofline: who takes longer has fallen off a cliff."""
NOISE = 0.05
"""Milliseconds beyond that which a call and its threads may take."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """How an engine computes an operation, and what that takes."""

    operation: Operation
    """What was asked, with the formats that were chosen: none of an activation is `any`. Weights are settled too where
    an engine was asked."""
    impl: str
    """How it is computed: the engine's name for it, or what the model takes it to be."""
    ms: float
    """What it takes, in milliseconds."""
    roofline: float
    """The least that its arithmetic and its bytes take on this machine, in milliseconds."""
    scratch: int
    """Bytes of scratchpad."""
    nbytes: int
    """Bytes that it must read and write, weights included."""
    source: Source = "modelled"
    """How `ms` is known: from the model; from the model and the engine's name of the implementation; from that and what
    others like it took; or timed."""

    @property
    def is_cliff(self) -> bool:
        """Whether it takes over 10 times its roofline, and not only because a call takes its time."""
        return self.ms > CLIFF * self.roofline + NOISE


class Costs(Protocol):
    """Somebody who knows what things take."""

    @property
    def name(self) -> str:
        """The tier: `analytic`, `probed` or `measured`."""

    @property
    def isa(self) -> str:
        """The instruction set, as ONEDNN_MAX_CPU_ISA names it."""

    @property
    def threads(self) -> int:
        """On how many threads."""

    @property
    def engine(self) -> str:
        """Name and version of the engine; empty if none was asked."""

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Be told what will be asked: who measures does it now, alternating between these, and says how far it is."""

    def kernel(self, operation: Operation) -> Kernel | None:
        """The kernel for `operation`, with `any` answered; None where there is none for these formats."""

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Milliseconds of Inlay's reorder from `src` to `dst`, a copy where they are equal; 0 where no byte moves."""

    def reference(self, op: Op, graph: OpGraph) -> float:
        """Milliseconds of an operator that only NumPy computes."""


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
