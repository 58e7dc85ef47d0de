"""`Plan`: the cheapest way to run a network under given costs, with what proves it and what else it could have been.

    plan = inlay.plan(network)            formats chosen by measured costs
    plan.program.steps                    what runs, in which formats, how long each step takes
    plan.bound                            no choice among the same candidates takes less
    plan.totals["greedy"]                 what propagation as the specification has it would take
    plan.compile().run({"data": x})

See `planner` for how it is chosen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from inlay.errors import InvalidArguments
from inlay.graph.algorithms import CONVOLUTIONS, Convolutions
from inlay.graph.costs import CostSources, MeasuredCosts, analytic, measured, probed
from inlay.graph.costs.kernel import Costs, Progress
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.op_graph import OpGraph
from inlay.graph.passes.concatenations import nest_concatenations
from inlay.graph.passes.elementwise_motion import hoist_elementwise
from inlay.graph.planner.choosing import ELIMINATION, Choosing, Settled, compared
from inlay.graph.planner.emission import emitted
from inlay.graph.planner.formats import Format
from inlay.graph.planner.problem import Problem, make_problem
from inlay.graph.program import NumpyShare, Program, Step, numpy_share
from inlay.graph.runtime.session import Replan, Session
from inlay.layout import Dims
from inlay.measure.processors import Processors, recent_processors
from inlay.primitives.engine import EngineLike
from inlay.reordering.threads import ThreadLimit, get_num_threads

Tier: TypeAlias = Literal["analytic", "probed", "measured"]
"""Where prices come from."""


@dataclass(frozen=True, slots=True)
class Cliff:
    """A kernel that takes far longer than it must, in a plan that was not taken."""

    op: str
    """The operation."""
    formats: Mapping[str, str]
    """Argument to format, of what it reads and writes."""
    impl: str
    """How the engine would compute it."""
    ms: float
    """What it would take."""
    roofline: float
    """The least that its bytes and operations take."""
    plans: tuple[str, ...]
    """The plans that would run it: names of `Plan.totals`; `plan` is the one that was taken."""


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A program, and why it is this one."""

    graph: OpGraph
    """The operations that it computes."""
    program: Program
    """Steps and buffers."""
    ms: float
    """What its steps are predicted to take together."""
    bound: float
    """No choice among the same candidates takes less; after `elimination`, `ms` is that, or up to 2 % more for fewer
    reorders."""
    method: str
    """How formats were chosen: `elimination`, exactly; `milp`, by a solver of integer programs; or `greedy`, by
    propagation, where neither found a better plan in 10 s."""
    width: int
    """Of the elimination: 2 or 3 for most networks; 0 where nothing was found in time."""
    costs: str
    """Where prices come from: analytic, probed or measured. Of a plan in which no step has a measured time, because no
    time was left to measure, it is probed."""
    isa: str
    """Instruction set that it was planned for."""
    threads: int
    """How many threads it was planned for."""
    engine: str
    """The engine that was asked."""
    totals: Mapping[str, float]
    """What other ways to choose would take, by name: plain, greedy, channels last, blocked by 16 ..."""
    cliffs: tuple[Cliff, ...]
    """Kernels far slower than they must be that one of these ways, or this plan, would run."""
    replan: Replan | None = field(default=None, repr=False, compare=False)
    """Plans the same network for other dims of its inputs; None where only these are known."""
    sources: CostSources | None = field(default=None, compare=False)
    """How many prices were measured, now or earlier, and how many estimated; None where a model has them all."""
    computed_by: EngineLike = field(default=None, repr=False, compare=False)
    """The engine that `compile` takes unless one is passed to it; None for the default one."""
    processors: Processors | None = field(default=None, repr=False, compare=False)
    """What threads got of the processors while it was planned; None where they were not looked at."""

    def compile(self, engine: EngineLike = None) -> Session:
        """The program made ready to run by `engine`, or by the one that it was planned for.

        Raises:
            InvalidArguments: `engine`, or the default one, takes other formats than the plan was made for.
            Unimplemented, MissingExtra, OutOfMemory: as `Session`.
        """
        chosen = self.computed_by if engine is None else engine
        return Session(self.program, self.graph, engine=chosen, replan=self.replan)

    @property
    def is_limited(self) -> bool:
        """Whether other programs or a quota left fewer threads to plan for than there are processors."""
        return self.processors is not None and self.processors.threads < self.processors.count

    @property
    def load(self) -> str:
        """One line on what other programs or a quota left of the processors; empty where they left all."""
        found = self.processors
        if found is None or not (found.is_busy or self.is_limited):
            return ""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        if not found.is_busy:
            return f"{found}: planned for {threads}"
        return f"the machine is busy, {found}: planned for {threads}, and prices that are not remembered are estimated"

    def __repr__(self) -> str:
        """The network, what it takes, and how many steps; the report is `inlay.graph.report.explained`."""
        return (
            f"<Plan of {self.graph.name}: {self.ms:.3f} ms by {self.costs} costs of {self.engine}, "
            f"{len(self.program.steps)} steps, {len(self.reorders)} reorders"
            f"{f'; {self.numpy}' if self.numpy.count else ''}>"
        )

    @property
    def numpy(self) -> NumpyShare:
        """How many steps NumPy computes, since no primitive does, and their share of the predicted time."""
        return numpy_share(((step, step.impl, step.ms) for step in self.program.steps), "predicted")

    @property
    def reorders(self) -> tuple[Step, ...]:
        """The steps that change the format of a tensor."""
        return tuple(step for step in self.program.steps if step.kind == "reorder")

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows."""
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
) -> Plan:
    """Choose how a network runs: the formats of its tensors, what is fused, where reorders stand.

    `costs` are prices of kernels: `measured` on this machine, once, and remembered; `probed`, from what the engine has;
    `analytic`, without an engine, for the instruction set `isa` and so many `threads`; or an object with prices (see
    `costs`). `seconds` bound the measuring, `progress` is told how far it is. Where other programs compute, nothing is
    measured, and the plan is for as many threads as really run (see `Plan.load`). `convolutions` are computed by
    whichever algorithm takes less, Winograd's where the engine has it, with `auto`; by sums of products alone, whose
    rounding errors are smaller, with `direct`. `engine` computes, or the default one (see `primitives.get_engine`): its
    kernels are measured or probed, and `compile` takes it.

    Post-condition: of all plans among the same candidates none takes less than `bound`, and `ms` is at most 2 % more;
    where `method` is not `elimination`, it may be more than that.

    Raises:
        InvalidArguments: there are no costs of that name, `isa` or `threads` are said where the machine decides,
            `seconds` or `progress` where nothing is measured, `convolutions` is another word, or no engine is called
            `engine`.
        MissingExtra: the engine is needed and not installed.
        Unimplemented: a tensor has no format that an engine takes.
    """
    if not isinstance(network, (Network, OpGraph)):
        raise InvalidArguments(f"a {type(network).__name__} is no network: plan what inlay.load reads from a file")
    if convolutions not in CONVOLUTIONS:
        raise InvalidArguments(f"convolutions are {convolutions!r}: give auto, whichever takes less, or direct")
    graph = _rewritten(lower_network(network) if isinstance(network, Network) else network)
    is_of_this_machine = costs in ("probed", "measured")
    processors = recent_processors() if is_of_this_machine and get_num_threads() > 1 else None
    with ThreadLimit(None if processors is None else processors.threads):
        prices = _costs(costs, graph, isa, threads, seconds, progress, engine)
        found = planned(graph, prices, convolutions)
    found = replace(found, computed_by=engine, processors=getattr(prices, "processors", None) or processors)
    again = network.again if isinstance(network, Network) else None
    return found if again is None else replace(found, replan=Replanning(again, prices, convolutions))


def _rewritten(graph: OpGraph) -> OpGraph:
    """The graph as it is planned: it computes the same, with less to move."""
    return nest_concatenations(hoist_elementwise(graph))


@dataclass(frozen=True, slots=True)
class Replanning:
    """Plans a network for other dims, at the same prices."""

    again: Callable[[Mapping[str, Dims]], Network]
    """The network for these dims."""
    prices: Costs
    """What it is planned with."""
    convolutions: Convolutions
    """Which algorithms convolutions may be computed by."""

    def __call__(self, dims: Mapping[str, Dims]) -> tuple[Program, OpGraph]:
        """The program for inputs of these dims, by name.

        Raises:
            InvalidArguments, Unimplemented: as `load` and `planned`.
        """
        with ThreadLimit(self.prices.threads):
            other = planned(_rewritten(lower_network(self.again(dims))), self.prices, self.convolutions)
        return other.program, other.graph

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in a pickle: prices are of one process, and a plan from a pickle is for its own dims."""
        return type(None), ()


def _costs(
    costs: Tier | Costs,
    graph: OpGraph,
    isa: str | None,
    threads: int | None,
    seconds: float | None,
    progress: Progress | None,
    engine: EngineLike,
) -> Costs:
    if not isinstance(costs, str) and hasattr(costs, "kernel"):
        return costs
    if costs not in ("analytic", "probed", "measured"):
        raise InvalidArguments(f"costs are {costs!r}: give measured, probed, analytic, or an object that tells them")
    if costs != "analytic" and (isa is not None or threads is not None):
        raise InvalidArguments(
            f"isa and threads are said, and costs are {costs}, which are of this machine: leave them out, or give "
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


def planned(graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> Plan:
    """The plan of a graph at these costs, where `convolutions` says by which algorithms they may be computed.

    Raises:
        Unimplemented: no engine computes an operation, and no reference can be made of it.
        InvalidArguments: an operation has a price of infinity in every format.
    """
    problem = make_problem(graph, costs, convolutions)
    choosing = Choosing(problem)
    chosen = choosing.best()
    settled = chosen.settled

    def without(name: str, src: Format, dst: Format) -> float | None:
        other = choosing.without(name, src, dst)
        return None if other is None else max(other - settled.ms, 0.0)

    others = compared(choosing)
    program = emitted(problem, settled, without if chosen.method == ELIMINATION else None)
    sources = _sources(costs)
    return Plan(
        graph,
        program,
        settled.ms,
        chosen.bound,
        chosen.method,
        chosen.width,
        _tier(costs, sources, program),
        costs.isa,
        costs.threads,
        costs.engine,
        {name: other.ms for name, other in others.items()},
        _cliffs(problem, {"plan": settled, **others}),
        sources=sources,
    )


def _sources(costs: Costs) -> CostSources | None:
    """Where measured costs come from, once what is new of them is saved, or cannot be."""
    if not isinstance(costs, MeasuredCosts):
        return None
    costs.save()
    return costs.sources


def _tier(costs: Costs, sources: CostSources | None, program: Program) -> str:
    """The name of the tier that the prices of a program really have: one that is measured in part is measured."""
    if sources is None or not sources.total or any(step.source == "measured" for step in program.steps):
        return costs.name
    return "probed"


def _cliffs(problem: Problem, plans: Mapping[str, Settled]) -> tuple[Cliff, ...]:
    """Each flagged kernel of any of these plans, once."""
    found: dict[object, tuple[Cliff, list[str]]] = {}
    for plan, settled in plans.items():
        for group, candidate in zip(problem.groups, settled.candidates, strict=True):
            for call in candidate.calls:
                if call.is_cliff and call.operation is not None:
                    arguments = (*group.ops[call.first].reads, *group.ops[call.first].writes)
                    formats = {a: call.operation.descs[a].tag or "strided" for a in arguments}
                    name = group.names[call.first][0]
                    cliff = Cliff(name, formats, call.impl, call.ms, call.roofline, ())
                    found.setdefault((name, tuple(formats.items())), (cliff, []))[1].append(plan)
    return tuple(replace(cliff, plans=tuple(names)) for cliff, names in found.values())


__all__ = ["Cliff", "Network", "Plan", "Progress", "planned"]
