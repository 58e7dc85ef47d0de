"""`PlannedProgram`: a program with its predicted times, and the evidence that it is the cheapest.

    planned.program.steps      the steps with their formats and predicted times
    planned.bound              lower bound of the time of any choice among the same candidates
    planned.totals["greedy"]   time of the plan that oneDNN's propagation of formats finds

See `planner` for the search, and `plan` for `Plan`, which compiles it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from inlay.graph.costs.estimates import CostSources
from inlay.graph.network import Tensor
from inlay.graph.op_graph import OpGraph
from inlay.graph.program import FallbackShare, NumpyShare, Program, Step, fallback_share, numpy_share
from inlay.graph.runtime.guards import RunGuards
from inlay.measure.processors import Processors

ADAPTED = "adapted"
"""Method of a plan that has the formats of a plan for other dims."""


@dataclass(frozen=True, slots=True)
class Cliff:
    """A kernel of one of the compared plans that takes over ten times its roofline."""

    op: str
    """Name of the operation."""
    formats: Mapping[str, str]
    """Format of each argument that is read or written."""
    impl: str
    """Name of the implementation."""
    ms: float
    """Predicted time in milliseconds."""
    roofline: float
    """Lower bound of the time from arithmetic and bytes, in milliseconds."""
    plans: tuple[str, ...]
    """Names of the plans that contain the kernel: those of `PlannedProgram.totals`, and `plan` for the plan itself."""


@dataclass(frozen=True, slots=True, repr=False)
class PlannedProgram:
    """A program, and the evidence for its choice."""

    graph: OpGraph
    """The operations that the program computes."""
    program: Program
    """The steps and buffers."""
    ms: float
    """Predicted time of all steps in milliseconds."""
    bound: float
    """Lower bound in milliseconds of the time of any choice among the same candidates.

    After `elimination`, `ms` equals it, or exceeds it by up to 2 % for the sake of fewer reorders.
    """
    method: str
    """Method by which formats were chosen.

    `elimination` is exact. `milp` is a solver of integer programs. `greedy` is propagation, where neither of the others
    found a better plan in 10 s. `adapted` takes the formats of a plan for other dims (see `Planner.adapt`), and `bound`
    is that of plans with these formats.
    """
    width: int
    """Width of the elimination order, 2 or 3 for most networks; 0 where no search ended in time."""
    costs: str
    """Origin of the costs: `analytic`, `probed` or `measured`.

    It is `probed` for measured costs if no step has a measured time, because no time was left to measure.
    """
    isa: str
    """Instruction set that the plan is for."""
    threads: int
    """Number of threads that the plan is for."""
    engine: str
    """Name and version of the engine that the costs are of; empty without an engine."""
    totals: Mapping[str, float]
    """Milliseconds of compared plans, by name: plain, greedy, channels last, blocked by 16 ...

    `direct` is the best plan without Winograd's algorithm, if this plan uses it.
    """
    cliffs: tuple[Cliff, ...]
    """Kernels of this plan and of the compared plans that take over ten times their roofline."""
    sources: CostSources | None = field(default=None, compare=False)
    """Numbers of costs by their origin: measured now, measured earlier, estimated; None unless costs are measured."""
    processors: Processors | None = field(default=None, repr=False, compare=False)
    """Free share of each processor while the plan was made; None if it was not measured."""
    most_threads: int | None = None
    """Number of threads that the plan was requested for, which a session does not exceed; None without a limit."""
    precision: str = "model"
    """Precision that the plan was requested for: a `precision.PrecisionName`."""
    guards: RunGuards | None = field(default=None, repr=False, compare=False)
    """Buffers that runs check for NaN and infinities, in a plan from a file; None if compilation computes them."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of the network, with the dims that the plan is for."""
        return tuple(self.graph.tensors[name] for name in self.graph.inputs)

    @property
    def is_limited(self) -> bool:
        """Return whether other programs or a quota left fewer threads than there are processors."""
        return self.processors is not None and self.processors.threads < self.processors.count

    @property
    def load(self) -> str:
        """One line on the processors that other programs or a quota have taken; empty if none."""
        found = self.processors
        if found is None or not (found.is_busy or self.is_limited):
            return ""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        if not found.is_busy:
            return f"{found}: planned for {threads}"
        return f"the machine is busy, {found}: planned for {threads}, and costs that are not stored are estimated"

    def __repr__(self) -> str:
        """Return the network, its time and the number of steps; `inlay.graph.report` has the full report."""
        return (
            f"<{type(self).__name__} of {self.graph.name}: {self.ms:.3f} ms by {self.costs} costs of {self.engine}, "
            f"{len(self.program.steps)} steps, {len(self.reorders)} reorders"
            f"{''.join(f'; {share}' for share in (self.fallback, self.numpy) if share.count)}>"
        )

    @property
    def numpy(self) -> NumpyShare:
        """The number of steps that NumPy computes for want of a primitive, and their share of the predicted time."""
        return numpy_share(((step, step.impl, step.ms) for step in self.program.steps), "predicted")

    @property
    def fallback(self) -> FallbackShare:
        """The number of steps that ONNX Runtime computes, and their share of the predicted time."""
        return fallback_share(((step, step.impl, step.ms) for step in self.program.steps), "predicted")

    @property
    def reorders(self) -> tuple[Step, ...]:
        """The steps that change the format of a tensor."""
        return tuple(step for step in self.program.steps if step.kind == "reorder")


@dataclass(frozen=True, slots=True, eq=False)
class TrialPlan:
    """A plan that may be discarded, so that it is not compared with others yet."""

    planned: PlannedProgram
    """The plan without `totals` and `cliffs`."""
    complete: Callable[[], PlannedProgram]
    """Function that returns the same plan with them."""
