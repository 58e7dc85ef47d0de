"""`Plan`: the cheapest program of a network under given costs, the proof of that, and other plans to compare it with.

    plan = inlay.plan(network)            choose formats by measured costs
    plan.program.steps                    the steps with their formats and predicted times
    plan.bound                            lower bound of the time of any choice among the same candidates
    plan.totals["greedy"]                 time of the plan that oneDNN's propagation of formats finds
    plan.compile().run({"data": x})

See `planner` for the search.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from inlay.errors import InvalidArguments
from inlay.graph.algorithms import CONVOLUTIONS, Convolutions
from inlay.graph.costs import CostSources, MeasuredCosts, analytic, measured, probed
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.fallback.assignment import Fallback, assign_fallback, require_fallback
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.op_graph import OpGraph
from inlay.graph.passes.concatenations import nest_concatenations
from inlay.graph.passes.elementwise_motion import hoist_elementwise
from inlay.graph.planner.emission import emit_program
from inlay.graph.planner.formats import Format
from inlay.graph.planner.plan_search import ELIMINATION, FormatAssignment, PlanSearch, compare_plans
from inlay.graph.planner.problem import Problem, make_problem
from inlay.graph.program import FallbackShare, NumpyShare, Program, Step, fallback_share, numpy_share
from inlay.graph.runtime.session import Replan, Session
from inlay.layout import Dims
from inlay.measure.processors import Processors, recent_processors
from inlay.primitives.engine import EngineLike
from inlay.reordering.threads import ThreadLimit, get_num_threads

Tier: TypeAlias = Literal["analytic", "probed", "measured"]
"""The origin of costs."""


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
    """Names of the plans that contain the kernel: those of `Plan.totals`, and `plan` for the plan itself."""


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
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
    found a better plan in 10 s.
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
    """Milliseconds of compared plans, by name: plain, greedy, channels last, blocked by 16 ..."""
    cliffs: tuple[Cliff, ...]
    """Kernels of this plan and of the compared plans that take over ten times their roofline."""
    replan: Replan | None = field(default=None, repr=False, compare=False)
    """Function that plans the same network for other dims of its inputs; None where only these dims are known."""
    sources: CostSources | None = field(default=None, compare=False)
    """Numbers of costs by their origin: measured now, measured earlier, estimated; None unless costs are measured."""
    computed_by: EngineLike = field(default=None, repr=False, compare=False)
    """Engine that `compile` uses unless another is passed to it; None for the default one."""
    processors: Processors | None = field(default=None, repr=False, compare=False)
    """Free share of each processor while the plan was made; None if it was not measured."""

    def compile(self, engine: EngineLike = None) -> Session:
        """Compile the program for `engine`, or for the engine that the plan was made for.

        Raises:
            InvalidArguments: the engine requires other formats than the plan has.
            Unimplemented, MissingExtra, OutOfMemory: as `Session`.
        """
        chosen = self.computed_by if engine is None else engine
        return Session(self.program, self.graph, engine=chosen, replan=self.replan)

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
            f"<Plan of {self.graph.name}: {self.ms:.3f} ms by {self.costs} costs of {self.engine}, "
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

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        from inlay.render.network import PlanPicture

        return PlanPicture(self).svg()


def plan(
    network: Network | OpGraph,
    *,
    costs: Tier | Costs = "measured",
    isa: str | None = None,
    threads: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    convolutions: Convolutions = "auto",
    engine: EngineLike = None,
    fallback: Fallback = "auto",
) -> Plan:
    """Plan a network: choose the formats of its tensors, the operations that are fused, and the reorders.

    Args:
        network: the network, or the graph of its operations.
        costs: `measured` for times on this machine, which are stored; `probed` for the engine's implementations and a
            model of their times; `analytic` for a model alone; or an object with the methods of `costs.Costs`.
        isa: instruction set of analytic costs; this processor's if None.
        threads: number of threads of analytic costs; Inlay's threads if None.
        seconds: limit of the time for measuring.
        progress: receives the numbers of finished and of all planned kernels and reorders while kernels are measured.
        convolutions: `auto` for whichever algorithm is faster, Winograd's where the engine has it; `direct` for sums of
            products alone, which have smaller rounding errors.
        engine: engine whose kernels are measured or probed, and which `Plan.compile` uses; the default one if None (see
            `primitives.get_engine`).
        fallback: what computes nodes without a primitive: `auto` for ONNX Runtime where it is installed and supports
            the node, else NumPy; False for NumPy alone; None for neither, so that such nodes are refused.

    While other programs compute, nothing is measured, and the plan is for as many threads as really run (see
    `Plan.load`).

    Post-condition: no plan among the same candidates takes less than `bound`, and `ms` is at most 2 % more; it may be
    more than that where `method` is not `elimination`.

    Raises:
        InvalidArguments: there are no costs of that name; `isa` or `threads` are given for costs of this machine, or
            `seconds` or `progress` for costs that are not measured; or `convolutions`, `engine` or `fallback` is
            unknown.
        MissingExtra: the engine is needed and not installed.
        Unimplemented: a tensor has no format that an engine supports, or nothing that `fallback` allows computes a
            node.
    """
    if not isinstance(network, (Network, OpGraph)):
        raise InvalidArguments(f"a {type(network).__name__} is no network: plan what inlay.load reads from a file")
    if convolutions not in CONVOLUTIONS:
        raise InvalidArguments(f"convolutions are {convolutions!r}: give auto, the fastest, or direct")
    require_fallback(fallback)
    graph = _rewrite(lower_network(network) if isinstance(network, Network) else network, fallback)
    is_of_this_machine = costs in ("probed", "measured")
    processors = recent_processors() if is_of_this_machine and get_num_threads() > 1 else None
    with ThreadLimit(None if processors is None else processors.threads):
        cost_source = _select_costs(costs, graph, isa, threads, seconds, progress, engine)
        found = plan_graph(graph, cost_source, convolutions)
    found = replace(found, computed_by=engine, processors=getattr(cost_source, "processors", None) or processors)
    again = network.again if isinstance(network, Network) else None
    return found if again is None else replace(found, replan=Replanner(again, cost_source, convolutions, fallback))


def _rewrite(graph: OpGraph, fallback: Fallback) -> OpGraph:
    """Rewrite the graph so that it computes the same with fewer bytes to move, and choose what computes references."""
    return assign_fallback(nest_concatenations(hoist_elementwise(graph)), fallback)


@dataclass(frozen=True, slots=True)
class Replanner:
    """A function that plans a network for other dims with the same costs."""

    again: Callable[[Mapping[str, Dims]], Network]
    """Returns the network for given dims."""
    costs: Costs
    """The costs of all plans."""
    convolutions: Convolutions
    """The algorithms that convolutions may use."""
    fallback: Fallback
    """What computes nodes without a primitive."""

    def __call__(self, dims: Mapping[str, Dims]) -> tuple[Program, OpGraph]:
        """Return the program and its graph for inputs of these dims, by name.

        Raises:
            InvalidArguments, Unimplemented: as `load` and `plan_graph`.
        """
        with ThreadLimit(self.costs.threads):
            graph = _rewrite(lower_network(self.again(dims)), self.fallback)
            other = plan_graph(graph, self.costs, self.convolutions)
        return other.program, other.graph

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in a pickle: costs are of one process, so an unpickled plan is for its own dims only."""
        return type(None), ()


def _select_costs(
    costs: Tier | Costs,
    graph: OpGraph,
    isa: str | None,
    threads: int | None,
    seconds: float | None,
    progress: Progress | None,
    engine: EngineLike,
) -> Costs:
    """Return the costs that the arguments of `plan` select."""
    if not isinstance(costs, str) and hasattr(costs, "kernel"):
        return costs
    if costs not in ("analytic", "probed", "measured"):
        raise InvalidArguments(f"costs are {costs!r}: give measured, probed, analytic, or an object with costs")
    if costs != "analytic" and (isa is not None or threads is not None):
        raise InvalidArguments(
            f"isa and threads are given, and costs are {costs}, which are of this machine: leave them out, or give "
            "costs='analytic'"
        )
    if seconds is not None and seconds < 0:
        raise InvalidArguments(f"seconds is {seconds}: give 0 or more")
    if costs != "measured" and (seconds is not None or progress is not None):
        raise InvalidArguments(f"seconds and progress are for what is measured, and costs are {costs}: leave them out")
    if costs == "analytic":
        return analytic(isa, threads)
    if costs == "probed":
        return probed(engine)
    weights = sum(array.nbytes for op in graph.ops for array in op.constants.values())
    return measured(engine, seconds=seconds, progress=progress, weights=weights)


def plan_graph(graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> Plan:
    """Plan a graph with these costs and the algorithms that `convolutions` allows.

    Raises:
        Unimplemented: no engine supports an operation, and no reference can be made of it.
        InvalidArguments: the cost of an operation is infinite in every format.
    """
    problem = make_problem(graph, costs, convolutions)
    search = PlanSearch(problem)
    chosen = search.best()
    assignment = chosen.assignment

    def without(name: str, src: Format, dst: Format) -> float | None:
        other = search.cost_without(name, src, dst)
        return None if other is None else max(other - assignment.ms, 0.0)

    others = compare_plans(search)
    program = emit_program(problem, assignment, without if chosen.method == ELIMINATION else None)
    sources = _save_sources(costs)
    return Plan(
        graph,
        program,
        assignment.ms,
        chosen.bound,
        chosen.method,
        chosen.width,
        _effective_tier(costs, sources, program),
        costs.isa,
        costs.threads,
        costs.engine,
        {name: other.ms for name, other in others.items()},
        _find_cliffs(problem, {"plan": assignment, **others}),
        sources=sources,
    )


def _save_sources(costs: Costs) -> CostSources | None:
    """Save measured costs, and return their numbers by origin; None for costs that are not measured."""
    if not isinstance(costs, MeasuredCosts):
        return None
    costs.save()
    return costs.sources


def _effective_tier(costs: Costs, sources: CostSources | None, program: Program) -> str:
    """Return the tier that the costs of a program really have.

    It is `probed` for measured costs of which no step has a measured time.
    """
    if sources is None or not sources.total or any(step.source == "measured" for step in program.steps):
        return costs.name
    return "probed"


def _find_cliffs(problem: Problem, plans: Mapping[str, FormatAssignment]) -> tuple[Cliff, ...]:
    """Return each cliff of any of these plans once."""
    found: dict[object, tuple[Cliff, list[str]]] = {}
    for plan, assignment in plans.items():
        for group, candidate in zip(problem.groups, assignment.candidates, strict=True):
            for call in candidate.calls:
                if call.is_cliff and call.operation is not None:
                    arguments = (*group.ops[call.first].reads, *group.ops[call.first].writes)
                    formats = {a: call.operation.descs[a].tag or "strided" for a in arguments}
                    name = group.names[call.first][0]
                    cliff = Cliff(name, formats, call.impl, call.ms, call.roofline, ())
                    found.setdefault((name, tuple(formats.items())), (cliff, []))[1].append(plan)
    return tuple(replace(cliff, plans=tuple(names)) for cliff, names in found.values())


__all__ = ["Cliff", "Network", "Plan", "Progress", "plan_graph"]
