"""What a planner is told: a `Kernel` for an operation in given formats, and the protocol of those who tell.

>>> relu = Operation("eltwise", "forward_inference", {}, {"algorithm": "relu"})
>>> Kernel(relu, "jit:avx2", ms=0.4, roofline=0.1, scratch=0, nbytes=1024).is_cliff
False
>>> Kernel(relu, "ref:any", ms=57.0, roofline=0.1, scratch=0, nbytes=1024).is_cliff
True
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from inlay.descriptor import MemoryDesc
from inlay.graph.op import Op, OpGraph
from inlay.primitives.operation import Operation

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
