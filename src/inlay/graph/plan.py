"""`Plan`: the cheapest program of a network under given costs, ready to be compiled; `compile` plans at the first call.

    plan = inlay.plan(network)            choose formats by measured costs
    plan.program.steps                    the steps with their formats and predicted times
    plan.bound                            lower bound of the time of any choice among the same candidates
    plan.totals["greedy"]                 time of the plan that oneDNN's propagation of formats finds
    plan.compile().run({"data": x})

See `planner` for the search, and `planned_program` for the evidence of the choice.
"""

from dataclasses import dataclass, field, fields

from inlay.graph.algorithms import Convolutions
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.fallback.assignment import Fallback
from inlay.graph.network import Network
from inlay.graph.op_graph import OpGraph
from inlay.graph.open_network import OpenNetwork
from inlay.graph.planned_program import Cliff, PlannedProgram
from inlay.graph.planning import Planner, PlanOptions, Tier, plan_program
from inlay.graph.session import MOST_SHAPES, Session
from inlay.primitives.engine import EngineLike


@dataclass(frozen=True, slots=True, repr=False)
class Plan(PlannedProgram):
    """A program, the evidence for its choice, and how to compile it."""

    planner: Planner | None = field(default=None, repr=False, compare=False)
    """Plans the same network for other dims of its inputs; None in a plan that was pickled."""
    computed_by: EngineLike = field(default=None, repr=False, compare=False)
    """Engine that `compile` uses unless another is passed to it; None for the default one."""

    def compile(self, engine: EngineLike = None) -> Session:
        """Compile the program for `engine`, or for the engine that the plan was made for.

        The session plans other dims of the inputs when they first occur, if the model leaves them open.

        Raises:
            InvalidArguments: the engine requires other formats than the plan has.
            Unimplemented, MissingExtra, OutOfMemory: as `Session`.
        """
        return Session(self.planner, self, engine=self.computed_by if engine is None else engine)

    def _repr_svg_(self) -> str:
        """Return the picture that a notebook shows."""
        from inlay.render.network import PlanPicture

        return PlanPicture(self).svg()


def plan(
    network: Network | OpGraph | OpenNetwork,
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
        InvalidArguments: the network has open dims; there are no costs of that name; `isa` or `threads` are given for
            costs of this machine, or `seconds` or `progress` for costs that are not measured; or `convolutions`,
            `engine` or `fallback` is unknown.
        MissingExtra: the engine is needed and not installed.
        Unimplemented: a tensor has no format that an engine supports, or nothing that `fallback` allows computes a
            node.
    """
    options = PlanOptions(
        costs=costs,
        isa=isa,
        threads=threads,
        seconds=seconds,
        progress=progress,
        convolutions=convolutions,
        engine=engine,
        fallback=fallback,
    )
    planner = Planner(network, options)
    return _as_plan(planner.plan(), planner, engine)


def compile(
    network: Network | OpenNetwork,
    *,
    costs: Tier | Costs = "measured",
    seconds: float | None = None,
    progress: Progress | None = None,
    convolutions: Convolutions = "auto",
    engine: EngineLike = None,
    fallback: Fallback = "auto",
    most_shapes: int = MOST_SHAPES,
) -> Session:
    """Return a session of a network that plans each shape of the inputs at its first call, or at `Session.prepare`.

    Args:
        network: the network; `OpenNetwork`, which `load` returns, has shapes that are open.
        costs, seconds, progress, convolutions, engine, fallback: as of `plan`. Kernels are measured for the first shape
            and by `Session.prepare`; a run with another new shape takes the formats of a known one.
        most_shapes: number of shapes of which the session keeps the plan; it forgets the least recently used.

    Raises:
        InvalidArguments: an option is not valid (see `plan`), or `most_shapes` is below 1.
    """
    options = PlanOptions(
        costs=costs, seconds=seconds, progress=progress, convolutions=convolutions, engine=engine, fallback=fallback
    )
    return Session(Planner(network, options), engine=engine, most_shapes=most_shapes)


def plan_graph(graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> Plan:
    """Return the plan of a graph as it is with these costs, for its own dims; see `plan_program`.

    Raises:
        Unimplemented, InvalidArguments: as `plan_program`.
    """
    return _as_plan(plan_program(graph, costs, convolutions), None, None)


def _as_plan(planned: PlannedProgram, planner: Planner | None, engine: EngineLike) -> Plan:
    """Return a planned program as a plan that can be compiled."""
    values = {one.name: getattr(planned, one.name) for one in fields(planned)}
    return Plan(**values, planner=planner, computed_by=engine)


__all__ = ["Cliff", "Network", "Plan", "Progress", "Tier", "compile", "plan", "plan_graph"]
