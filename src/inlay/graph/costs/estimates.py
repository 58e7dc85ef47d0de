"""The interface between costs and the planner: the protocol `Costs`, and `KernelEstimate`, its result for an operation.

>>> relu = Operation("eltwise", "forward_inference", {}, {"algorithm": "relu"})
>>> KernelEstimate(relu, "jit:avx2", ms=0.4, roofline=0.1, scratch=0, nbytes=1024).is_cliff
False
>>> KernelEstimate(relu, "ref:any", ms=57.0, roofline=0.1, scratch=0, nbytes=1024).is_cliff
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
"""A callback that receives the number of finished kernels and reorders, and the number of all planned ones."""

CLIFF = 10.0
"""Ratio of run time to roofline above which a kernel counts as a cliff."""
NOISE = 0.05
"""Milliseconds that are allowed beyond `CLIFF` times the roofline: the cost of a call and of waking threads."""


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """The implementation that an engine would use for an operation, and its estimated run time."""

    operation: Operation
    """The operation in concrete formats: no activation is `any`. Weights are concrete too where an engine chose their
    format."""
    impl: str
    """Name of the implementation: the engine's, or the sort of code that the model assumes."""
    ms: float
    """Estimated run time in milliseconds."""
    roofline: float
    """Lower bound of the run time on this machine, from arithmetic and bytes, in milliseconds."""
    scratch: int
    """Size of the scratchpad in bytes."""
    nbytes: int
    """Bytes that the kernel must read and write, weights included."""
    source: Source = "modelled"
    """Origin of `ms`.

    `modelled`: from the model of the machine. `probed`: from the same model and the name of the engine's
    implementation. `scaled`: the probed time, times the median error of that model for measured kernels of the same
    kind. `measured`: timed.
    """

    @property
    def is_cliff(self) -> bool:
        """Return whether the kernel takes over ten times its roofline, the cost of a call left out."""
        return self.ms > CLIFF * self.roofline + NOISE


class Costs(Protocol):
    """A source of run times for kernels, reorders and NumPy operators."""

    @property
    def name(self) -> str:
        """Name of the source: `analytic`, `probed` or `measured`."""

    @property
    def isa(self) -> str:
        """Instruction set, by its name in ONEDNN_MAX_CPU_ISA."""

    @property
    def threads(self) -> int:
        """Number of threads that kernels run on."""

    @property
    def engine(self) -> str:
        """Name and version of the engine; empty for a model without an engine."""

    def prepare(self, operations: Iterable[Operation], reorders: Iterable[tuple[MemoryDesc, MemoryDesc]] = ()) -> None:
        """Announce the operations and reorders that will be requested.

        A source that measures does so now, in rounds of several kernels, and reports progress.
        """

    def kernel(self, operation: Operation) -> KernelEstimate | None:
        """Return the kernel for `operation`, with concrete formats for `any`; None where there is none."""

    def reorder(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Return the milliseconds of a reorder from `src` to `dst`.

        Equal descriptors mean a copy. The time is 0 where no byte moves.
        """

    def reference(self, op: Op, graph: OpGraph) -> float:
        """Return the milliseconds of a reference, which NumPy or ONNX Runtime computes."""


@dataclass(frozen=True, slots=True)
class CostSources:
    """Numbers of kernels and reorders by the origin of their run times, and the reason why times were not saved."""

    measured: int = 0
    """Number of kernels and reorders that this process measured."""
    remembered: int = 0
    """Number of kernels and reorders that were measured earlier and read from the cache directory."""
    scaled: int = 0
    """Number of kernels and reorders whose time is that of the model, times the
    median ratio of measured to modelled times of their kind."""
    modelled: int = 0
    """Number of kernels and reorders whose time is that of the model."""
    is_out_of_time: bool = False
    """True if the time limit for measuring was reached."""
    unsaved: str = ""
    """Reason why measured times were not saved for other processes; empty if they were, or if there were none."""

    @property
    def estimated(self) -> int:
        """Number of kernels and reorders that were estimated by a model."""
        return self.scaled + self.modelled

    @property
    def total(self) -> int:
        """Number of all kernels and reorders."""
        return self.measured + self.remembered + self.estimated

    def as_json(self) -> dict[str, Any]:
        """Return the counts by name; `unsaved` is null where nothing was lost."""
        return {
            "measured": self.measured,
            "remembered": self.remembered,
            "estimated": {"scaled": self.scaled, "modelled": self.modelled},
            "is_out_of_time": self.is_out_of_time,
            "unsaved": self.unsaved or None,
        }

    def __str__(self) -> str:
        """Return the counts that are not zero as one clause."""
        counts = (
            (self.measured, "measured now"),
            (self.remembered, "measured earlier"),
            (self.estimated, "estimated by a model"),
        )
        parts = ", ".join(f"{count} {origin}" for count, origin in counts if count)
        return f"{self.total} kernels and reorders: {parts}" if parts else "no kernels and no reorders"
