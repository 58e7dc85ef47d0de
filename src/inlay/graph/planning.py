"""`Planner`: plans the programs of a network, for its own dims or for others; all its plans share their costs.

    planner = Planner(network, PlanOptions())
    planner.plan({"x": (8, 3, 224, 224)})          a `PlannedProgram` for inputs of these dims
    planner.adapt(known, {"x": (4, 3, 224, 224)})  one with the formats of a plan that is known, in far less time

`plan_program` plans one graph of operations. See `inlay.graph.planner` for the search.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Literal, TypeAlias

from inlay.arguments import integer_or_none
from inlay.errors import InvalidArguments
from inlay.forks import ForkResetLock
from inlay.graph.algorithms import ALGORITHMS, CONVOLUTIONS, Convolutions
from inlay.graph.costs import CostSources, MeasuredCosts, analytic, measured, probed
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.costs.instruction_sets import allowed_isa
from inlay.graph.decoder_inputs import MASK, DecoderInputs
from inlay.graph.decoding import require_equal_constants
from inlay.graph.fallback.assignment import Fallback, assign_fallback, require_fallback
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Tensor
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.open_network import OpenNetwork, OpenTensor, describe_open
from inlay.graph.passes.absent_positions import hide_absent
from inlay.graph.passes.cache_updates import append_updates, fold_counts
from inlay.graph.passes.concatenations import nest_concatenations
from inlay.graph.passes.elementwise_motion import hoist_elementwise
from inlay.graph.passes.group_query_attention import expand_group_query
from inlay.graph.passes.kept_states import keep_states
from inlay.graph.planned_program import ADAPTED, Cliff, PlannedProgram, TrialPlan
from inlay.graph.planner.adaptation import collect_choices, has_same_operations, lacks_kernels, share_constants
from inlay.graph.planner.dequantization import dequantize_unsupported
from inlay.graph.planner.dominance import remove_dominated
from inlay.graph.planner.emission import Without, emit_program
from inlay.graph.planner.formats import Format
from inlay.graph.planner.groups import Candidate
from inlay.graph.planner.plan_search import ELIMINATION, FormatAssignment, PlanSearch, compare_plans, compare_types
from inlay.graph.planner.problem import NO_PENALTIES, Penalties, Problem, make_problem
from inlay.graph.precision import PrecisionRequest, assign_storage_types, narrow_constants
from inlay.graph.precision_search import TypeLimits, choose_types, find_type_limits
from inlay.graph.program import Program
from inlay.graph.runtime.arguments import as_arrays, check_inputs, draw_input, require_dims
from inlay.graph.states import TensorState
from inlay.layout import Dims
from inlay.measure.processors import Processors, recent_processors
from inlay.primitives.engine import EngineLike
from inlay.reordering.threads import ThreadLimit, get_num_threads

Tier: TypeAlias = Literal["analytic", "probed", "measured"]
"""The origin of costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The choices of a caller of `plan`, which has the meaning of each."""

    costs: Tier | Costs = "measured"
    """Origin of the costs, or an object with the methods of `costs.Costs`."""
    isa: str | None = None
    """Instruction set of another processor, for analytic costs; None for this machine."""
    threads: int | None = None
    """Number of threads of this machine, or of the processor with the instruction set `isa`; Inlay's threads if
    None."""
    seconds: float | None = None
    """Limit of the time for measuring."""
    progress: Progress | None = None
    """Receives the numbers of finished and of all kernels and reorders that are measured."""
    convolutions: Convolutions = "auto"
    """Algorithms that convolutions may use."""
    engine: EngineLike = None
    """Engine whose kernels are measured or probed; the default one if None."""
    fallback: Fallback = "auto"
    """Computer of the nodes without a primitive."""
    precision: PrecisionRequest = field(default_factory=PrecisionRequest)
    """Data types in which tensors of f32 may be stored."""
    states: tuple[TensorState, ...] = ()
    """Inputs that the session keeps between steps; see `graph.states`."""
    counts: tuple[str, ...] = ()
    """Inputs with the number of valid positions of each sequence, which follow from the length of the states."""
    samples: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    """Inputs on which errors are measured, by name; seeded random ones if None."""

    @property
    def target_isa(self) -> str:
        """Instruction set that plans are for: that of another processor, of the costs, or of this machine."""
        costs = self.costs
        return self.isa or (allowed_isa() if isinstance(costs, str) else costs.isa)

    def require_valid(self) -> None:
        """Check all options that need no graph.

        Raises:
            InvalidArguments: as `plan`.
        """
        if self.convolutions not in CONVOLUTIONS:
            raise InvalidArguments(f"convolutions are {self.convolutions!r}: give auto, the fastest, or direct")
        require_fallback(self.fallback)
        self.precision.require_valid()
        self._require_samples()
        self._require_threads()
        if _is_costs(self.costs):
            if self.isa is not None or self.threads is not None:
                raise InvalidArguments("isa and threads are those of the costs, which are an object: leave them out")
            return
        if self.costs not in ("analytic", "probed", "measured"):
            raise InvalidArguments(
                f"costs are {self.costs!r}: give measured, probed, analytic, or an object with costs"
            )
        if self.costs != "analytic" and self.isa is not None:
            raise InvalidArguments(
                f"isa is {self.isa!r}, and costs are {self.costs}, which are of this machine: leave it out, or give "
                "costs='analytic'"
            )
        if self.seconds is not None and self.seconds < 0:
            raise InvalidArguments(f"seconds is {self.seconds}: give 0 or more")
        if self.costs != "measured" and (self.seconds is not None or self.progress is not None):
            raise InvalidArguments(
                f"seconds and progress are for what is measured, and costs are {self.costs}: leave them out"
            )

    def _require_samples(self) -> None:
        """Check that samples are used, and that runs that measure errors are on this machine."""
        if self.isa is not None and self.precision.limit is not None:
            raise InvalidArguments(
                f"precision {self.precision.name} runs the plan to measure errors, and isa {self.isa} is of another "
                "processor: leave it out, or give precision='bf16' without a tolerance"
            )
        if self.samples is not None and self.precision.limit is None:
            raise InvalidArguments(
                f"samples are for errors, and precision {self.precision.name} limits none: leave them out, or give "
                "tolerance too, such as precision='bf16', tolerance=0.01"
            )

    def _require_threads(self) -> None:
        """Check the number of threads."""
        if self.threads is None:
            return
        if (integer_or_none(self.threads) or 0) < 1:
            raise InvalidArguments(f"threads is {self.threads!r}: give a whole number from 1 on")
        most = get_num_threads()
        if self.isa is None and self.threads > most:
            raise InvalidArguments(
                f"threads is {self.threads}, and Inlay may use {most} thread{'s' * (most != 1)} on this machine: give "
                f"at most {most}, or the isa of another machine"
            )


class Planner:
    """Plans the programs of one network with the same options, and with the costs of its first plan."""

    def __init__(
        self, network: Network | OpenNetwork | OpGraph, options: PlanOptions, *, is_rewritten: bool = False
    ) -> None:
        """Check the options; nothing is planned.

        If `is_rewritten`, the network is a graph of operations that an earlier plan rewrote, and is planned as it is.

        Raises:
            InvalidArguments: `network` is none, or an option is not valid (see `PlanOptions.require_valid`).
        """
        if not isinstance(network, (Network, OpenNetwork, OpGraph)):
            raise InvalidArguments(f"a {type(network).__name__} is no network: plan what inlay.load reads from a file")
        options.require_valid()
        self.network, self.options, self._is_rewritten = network, options, is_rewritten
        self._costs: Costs | None = None
        self._first: OpGraph | None = None
        self._type_limits: TypeLimits | None = None
        self._lock = ForkResetLock()

    @property
    def inputs(self) -> tuple[Tensor | OpenTensor, ...]:
        """The inputs of the network."""
        network = self.network
        if isinstance(network, OpenNetwork):
            return network.inputs
        return tuple(network.tensors[name] for name in network.inputs)

    def plan(self, dims: Mapping[str, Dims] | None = None) -> PlannedProgram:
        """Return the plan for inputs of these dims, by name; for the dims of the network if None.

        One thread plans at a time, since measurements must not disturb each other.

        Raises:
            InvalidArguments: the network cannot have these dims, or leaves dims open that are not given.
            MissingExtra, Unimplemented: as `plan`.
        """
        with self._lock:
            graph = self._graph_for(dims)
            most = self.options.threads if self.options.isa is None else None
            is_of_this_machine = self.options.costs in ("probed", "measured")
            with ThreadLimit(most if is_of_this_machine else None):
                processors = recent_processors() if is_of_this_machine and get_num_threads() > 1 else None
                with ThreadLimit(self._threads(processors)):
                    costs = self._costs = self._costs or _select_costs(self.options, graph)
                    found = self._plan_graph(dequantize_unsupported(graph, costs), costs)
            processors = getattr(costs, "processors", None) or processors
            return replace(found, processors=processors, most_threads=most, precision=self.options.precision.name)

    def require_states(self, decoder: DecoderInputs) -> None:
        """Check that the network of one new position depends on the length of the past by the mask alone.

        Raises:
            InvalidArguments: it does not, or it uses a state otherwise than by one concatenation.
        """
        require_equal_constants(*(self._lower_for(decoder.example_dims(past)) for past in (7, 8)))

    @contextmanager
    def hold_costs(self) -> Iterator[Costs | None]:
        """Provide the costs of the plans so far, on as many threads, while no other thread plans; None without a plan.

        Measurements must not disturb each other.
        """
        with self._lock:
            costs = self._costs
            with ThreadLimit(None if costs is None else costs.threads):
                yield costs

    def adapt(self, known: PlannedProgram, dims: Mapping[str, Dims]) -> PlannedProgram:
        """Return a plan for inputs of these dims with the formats and algorithms of a plan for other dims.

        It takes a small part of the time of `plan`: few kernels are compared, none is measured, and constants are
        packed in the formats of `known`. Where the operations differ from those of `known`, as in a network whose
        nodes depend on dims, or an engine does not support the formats, it is a full plan by stored and estimated
        costs.

        Raises:
            InvalidArguments: the network cannot have these dims.
            MissingExtra, Unimplemented: as `plan`.
        """
        with self._lock:
            graph = self._graph_for(dims)
            with ThreadLimit(known.threads):
                costs = self._costs = self._costs or _select_costs(self.options, graph)
                with costs.without_measuring() if isinstance(costs, MeasuredCosts) else nullcontext():
                    graph = dequantize_unsupported(graph, costs)
                    options = costs, known, self.options.convolutions, self._penalties
                    adapted = adapt_program(self._restrict_types(graph), *options)
                    found = replace(adapted, graph=graph) if adapted else self._plan_graph(graph, costs)
            return replace(found, most_threads=known.most_threads, precision=self.options.precision.name)

    def plan_again(self, graph: OpGraph, costs: Costs) -> PlannedProgram:
        """Return the plan of a graph of this network by these costs.

        If errors are limited, what the first plan has in f32 stays in f32.
        """
        return self._plan_restricted(graph, costs, self._restrict_types(graph), self._penalties)

    def _plan_restricted(
        self, graph: OpGraph, costs: Costs, restricted: OpGraph, penalties: Penalties
    ) -> PlannedProgram:
        """Return the plan of a graph with the types of another one, `restricted`."""
        return replace(plan_program(restricted, costs, self.options.convolutions, penalties), graph=graph)

    @property
    def _penalties(self) -> Penalties:
        """Penalties of all plans but those that are tried in the search for types."""
        request, limits = self.options.precision, self._type_limits
        kept = request.keep_f32 if limits is None else request.keep_f32 | limits.ops
        return replace(request, keep_f32=kept).penalties

    def _restrict_types(self, graph: OpGraph) -> OpGraph:
        """Return the graph without types of storage that would exceed the limit of errors."""
        return graph if self._type_limits is None else self._type_limits.restrict(graph)

    def _plan_graph(self, graph: OpGraph, costs: Costs) -> PlannedProgram:
        """Return the plan of a graph; the first one chooses the types of its layers if their errors are limited."""
        limit = self.options.precision.limit
        if limit is None or self._type_limits is not None or not graph.storage_types:
            return self.plan_again(graph, costs)

        planner = GraphPlanner(graph, costs, self.options.convolutions)

        def plan_with(penalties: Penalties | None) -> TrialPlan:
            charged = {**(penalties or {}), **self.options.precision.penalties}
            return (planner.of_f32 if penalties is None else planner).choose(charged)

        chosen = choose_types(plan_with, self._samples_for(graph), limit, self.options.engine)
        found = replace(chosen.complete(), graph=graph)
        self._type_limits = find_type_limits(found)
        return found

    def _samples_for(self, graph: OpGraph) -> dict[str, Array]:
        """Return the inputs on which errors are measured: the samples if they have the dims of the graph, else drawn.

        Raises:
            InvalidArguments: a sample is missing, or is not suitable.
        """
        inputs = tuple(graph.tensors[name] for name in graph.inputs)
        if self.options.samples is not None:
            arrays = as_arrays(check_inputs(self.options.samples, inputs))
            if all(arrays[tensor.name].shape == tensor.dims for tensor in inputs):
                return arrays
        return {tensor.name: draw_input(tensor) for tensor in inputs}

    def _graph_for(self, dims: Mapping[str, Dims] | None) -> OpGraph:
        """Return the rewritten graph of operations for these dims, with the constants of the first one."""
        graph = self._lower_for(dims)
        if self._first is None:
            self._first = graph
        return share_constants(graph, self._first)

    def _lower_for(self, dims: Mapping[str, Dims] | None) -> OpGraph:
        """Return the rewritten graph of operations for these dims."""
        network = self.network
        if isinstance(network, OpenNetwork):
            if dims is None and network.open_dims:
                describe = describe_open(network.inputs)
                raise InvalidArguments(f"{describe}; or let inlay.compile plan each shape at its first call")
            network = network.bind() if dims is None else network.again(dims)
        elif dims is not None and any(tensor.dims != dims[tensor.name] for tensor in self.inputs):
            if isinstance(network, OpGraph) or network.again is None:
                require_dims(self.inputs, dims)
            else:
                network = network.again(dims)
        if self.options.states and isinstance(network, Network):
            states = self.options.states
            network = append_updates(network, states)
            network = fold_counts(network, states, self.options.counts)
            network = expand_group_query(network, states)
            network = network if MASK in network.inputs else hide_absent(network, states)
            network = keep_states(network, states)
        graph = network if isinstance(network, OpGraph) else lower_network(network)
        if self._is_rewritten:
            return graph
        declared = {} if isinstance(network, OpGraph) else network.declared_types
        graph = narrow_constants(_rewrite(graph, self.options.fallback), declared)
        return assign_storage_types(graph, declared, self.options.precision, self.options.target_isa)

    def _threads(self, processors: Processors | None) -> int | None:
        """Return the number of threads that the plan is limited to: that of the first plan, if there is one."""
        if self._costs is not None:
            return self._costs.threads
        return None if processors is None else processors.threads

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Become None in a pickle: costs are of one process, so an unpickled plan is for its own dims only."""
        return type(None), ()


def _rewrite(graph: OpGraph, fallback: Fallback) -> OpGraph:
    """Rewrite the graph so that it computes the same with fewer bytes to move, and choose what computes references."""
    return assign_fallback(nest_concatenations(hoist_elementwise(graph)), fallback)


def _is_costs(costs: object) -> bool:
    """Return whether an object has the methods of `Costs`."""
    return not isinstance(costs, str) and hasattr(costs, "kernel")


def _select_costs(options: PlanOptions, graph: OpGraph) -> Costs:
    """Return the costs that valid options select."""
    if not isinstance(options.costs, str):
        return options.costs
    if options.costs == "analytic":
        return analytic(options.isa, options.threads)
    if options.costs == "probed":
        return probed(options.engine)
    weights = sum(array.nbytes for op in graph.ops for array in op.constants.values())
    return measured(options.engine, seconds=options.seconds, progress=options.progress, weights=weights)


def plan_program(
    graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto", penalties: Penalties = NO_PENALTIES
) -> PlannedProgram:
    """Plan a graph with these costs and the algorithms that `convolutions` allows.

    `penalties` are added to the times of kernels in narrow types while formats are chosen, and not to predicted times.
    A plan that uses another algorithm than the direct one is also compared with the best plan without.

    Raises:
        Unimplemented: no engine supports an operation, and no reference can be made of it.
        InvalidArguments: the cost of an operation is infinite in every format.
    """
    return GraphPlanner(graph, costs, convolutions).choose(penalties).complete()


class GraphPlanner:
    """Plans one graph with the same costs and with several penalties.

    Candidates do not depend on penalties, nor do plans in f32 to compare others with: both are computed once.
    """

    def __init__(self, graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> None:
        """Plan nothing yet; arguments are those of `plan_program`."""
        self.graph, self.costs, self.convolutions = graph, costs, convolutions
        self._problem_with = cache(partial(make_problem, graph, costs))

    @cached_property
    def of_f32(self) -> "GraphPlanner":
        """The planner of the same graph with all tensors in f32."""
        return GraphPlanner(replace(self.graph, storage_types={}), self.costs, self.convolutions)

    def choose(self, penalties: Penalties = NO_PENALTIES) -> TrialPlan:
        """Return the cheapest plan with these penalties, which is not compared with others yet.

        Raises:
            Unimplemented, InvalidArguments: as `plan_program`.
        """
        whole = replace(self._problem_with(self.convolutions), penalties=penalties)
        search = PlanSearch(remove_dominated(whole))
        chosen, costs = search.best(), self.costs
        assignment = chosen.assignment
        without = _compare_without(whole, search, assignment) if chosen.method == ELIMINATION else None
        program = emit_program(search.problem, assignment, without)
        sources = _save_sources(costs)
        of_search = assignment.ms, chosen.bound, chosen.method, chosen.width
        of_costs = _effective_tier(costs, sources, program), costs.isa, costs.threads, costs.engine
        planned = PlannedProgram(self.graph, program, *of_search, *of_costs, {}, (), sources)
        return TrialPlan(planned, lambda: self._compare(planned, search, assignment))

    def _compare(self, planned: PlannedProgram, search: PlanSearch, assignment: FormatAssignment) -> PlannedProgram:
        """Return a plan with the plans to compare it with: of several types, those in f32 and those of each type."""
        if self.graph.storage_types:
            others = {**self.of_f32.compared, **compare_types(search)}
        else:
            others = compare_plans(search)
        if self.convolutions == "auto" and any(map(_uses_algorithm, assignment.candidates)):
            direct = replace(self._problem_with("direct"), penalties=search.problem.penalties)
            others["direct"] = PlanSearch(remove_dominated(direct)).best().assignment
        totals = {name: other.ms for name, other in others.items()}
        cliffs = _find_cliffs(search.problem, {"plan": assignment, **others})
        return replace(planned, totals=totals, cliffs=cliffs, sources=_save_sources(self.costs))

    @cached_property
    def compared(self) -> dict[str, FormatAssignment]:
        """The cheapest plan in f32, and the plans in f32 to compare it with."""
        search = PlanSearch(self._problem_with(self.convolutions))
        return {"f32": search.best().assignment, **compare_plans(search)}


def _compare_without(whole: Problem, search: PlanSearch, assignment: FormatAssignment) -> Without:
    """Return the function that computes the cost which the best plan without a reorder would add.

    Such a plan may need candidates of `whole` that the problem of `search` is without, since they are dominated by
    others with this reorder.
    """
    search_whole = cache(lambda: search if search.problem is whole else PlanSearch(whole))

    def without(name: str, src: Format, dst: Format) -> float | None:
        other = search_whole().cost_without(name, src, dst)
        return None if other is None else max(other - assignment.cost, 0.0)

    return without


def _uses_algorithm(candidate: Candidate) -> bool:
    """Return whether a candidate computes a convolution by an algorithm other than the direct one."""
    operations = (call.operation for call in candidate.calls if call.operation is not None)
    return any(one.kind == "convolution" and one.parameters["algorithm"] in ALGORITHMS for one in operations)


def adapt_program(
    graph: OpGraph,
    costs: Costs,
    known: PlannedProgram,
    convolutions: Convolutions = "auto",
    penalties: Penalties = NO_PENALTIES,
) -> PlannedProgram | None:
    """Plan a graph with the formats and algorithms of a plan for other dims, and the costs of that plan's tier.

    None is returned if `known` has other operations, or an operation has no kernel in its formats.

    Raises:
        Unimplemented, InvalidArguments: as `plan_program`.
    """
    if not has_same_operations(graph, known.graph):
        return None
    choices = collect_choices(known.program, known.graph)
    problem = remove_dominated(make_problem(graph, costs, convolutions, choices, penalties))
    try:
        chosen = PlanSearch(problem).best()
    except InvalidArguments:  # no choice of formats is allowed
        return None
    program = emit_program(problem, chosen.assignment)
    if lacks_kernels(program, known.program):
        return None
    sources = costs.sources if isinstance(costs, MeasuredCosts) else None
    tier = _effective_tier(costs, sources, program)
    of_search = chosen.assignment.ms, chosen.bound, ADAPTED, chosen.width
    return PlannedProgram(graph, program, *of_search, tier, costs.isa, costs.threads, costs.engine, {}, (), sources)


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
                    descs = call.operation.descs  # without scales and zero points that the network computes
                    formats = {a: descs[a].tag or "strided" for a in arguments if a in descs}
                    name = group.names[call.first][0]
                    cliff = Cliff(name, formats, call.impl, call.ms, call.roofline, ())
                    found.setdefault((name, tuple(formats.items())), (cliff, []))[1].append(plan)
    return tuple(replace(cliff, plans=tuple(names)) for cliff, names in found.values())
