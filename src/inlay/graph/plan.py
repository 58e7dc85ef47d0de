"""`Plan`: the cheapest program of a network under given costs, ready to be compiled; `compile` plans at the first call.

    plan = inlay.plan(network)            choose formats by measured costs
    plan.program.steps                    the steps with their formats and predicted times
    plan.bound                            lower bound of the time of any choice among the same candidates
    plan.totals["greedy"]                 time of the plan that oneDNN's propagation of formats finds
    print(plan)                           the report
    plan.save_page("network.html")        the page of the plan
    plan.compile().run({"data": x})
    plan.refine({"data": x})              measure again what takes another time in the network than predicted

See `planner` for the search, and `planned_program` for the evidence of the choice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from inlay.errors import InvalidArguments
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.decoder_inputs import describe_decoder
from inlay.graph.fallback.assignment import Fallback
from inlay.graph.layer_errors import PrecisionReport
from inlay.graph.network import Network
from inlay.graph.op_graph import OpGraph
from inlay.graph.open_network import OpenNetwork
from inlay.graph.planned_program import Cliff, PlannedProgram
from inlay.graph.planning import Planner, PlanOptions, Tier, plan_program
from inlay.graph.precision import PrecisionName, PrecisionRequest
from inlay.graph.precision_report import report_precision
from inlay.graph.profiling import Profile
from inlay.graph.refinement import Refinement
from inlay.graph.replanning import refine_program
from inlay.graph.report import explain_plan
from inlay.graph.runtime.arguments import as_arrays, check_inputs, dims_of, draw_input, require_dims, require_runs
from inlay.graph.runtime.program_session import ProgramSession
from inlay.graph.saved_plans.plan_writing import write_plan
from inlay.graph.session import MOST_SHAPES, Session
from inlay.graph.states import StateOptions
from inlay.primitives.engine import EngineLike


@dataclass(frozen=True, slots=True, repr=False)
class Plan(PlannedProgram):
    """A program, the evidence for its choice, and how to compile it."""

    planner: Planner | None = field(default=None, repr=False, compare=False)
    """Plans the same network for other dims of its inputs; None in a plan that was pickled."""
    computed_by: EngineLike = field(default=None, repr=False, compare=False)
    """Engine that `compile` uses unless another is passed to it; None for the default one."""
    refinement: Refinement | None = field(default=None, repr=False, compare=False)
    """Changes from the plan that this one is refined from; None for a plan that `refine` did not return."""

    def compile(self, engine: EngineLike = None) -> Session:
        """Compile the program for `engine`, or for the engine that the plan was made for.

        The session plans other dims of the inputs when they first occur, if the model leaves them open.

        Raises:
            InvalidArguments: the engine requires other formats than the plan has.
            Unimplemented, MissingExtra, OutOfMemory: as `Session`.
        """
        return Session(self.planner, self, engine=self.computed_by if engine is None else engine)

    def explain(self, *, every_step: bool = False) -> str:
        """Return the report as text of 80 columns: the longest steps, the reorders and their reasons, compared plans.

        With `every_step` it lists all steps. `print(plan)` prints it without.

        Raises:
            InvalidArguments: the program is not valid.
        """
        return explain_plan(self, every_step=every_step)

    def __str__(self) -> str:
        """Return the report, as `explain`."""
        return self.explain()

    def refine(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        runs: int = 20,
        seconds: float | None = None,
        progress: Progress | None = None,
    ) -> "Plan":
        """Profile the plan, measure again what takes another time than predicted, and return the plan by the new times.

        A step is measured again if it takes over 30 %, and over 0.02 ms, more or less in the network than predicted:
        all kernels that could compute it are, alone, and their new times replace the stored ones. The result has a
        `refinement`, which can be printed: the steps with their times, and what changed. If nothing was off, or the
        machine is busy, the result equals this plan, and `refinement` says so.

        Args:
            inputs: arrays of the dims that the plan is for; seeded random ones if None.
            runs: number of runs of the profile.
            seconds: limit of the time for measuring; a minute if None.
            progress: receives the numbers of finished and of all planned kernels and reorders.

        Raises:
            InvalidArguments: the plan has other costs than measured ones, or none since it was unpickled; an input is
                not suitable; `runs` is not a whole number from 1 on, or `seconds` is not positive; or the inputs lead
                to NaN or infinities, for which other kernels run.
            OutOfMemory, MissingExtra, Unimplemented: as `compile`.
        """
        planner = self._require_planner("to refine")
        if seconds is not None and not seconds > 0:
            raise InvalidArguments(f"seconds is {seconds}: give a positive number")
        count, drawn = require_runs(runs), {tensor.name: draw_input(tensor) for tensor in self.inputs}
        arrays = check_inputs(drawn if inputs is None else inputs, self.inputs)
        require_dims(self.inputs, {name: dims_of(value) for name, value in arrays.items()})

        def run_profile() -> Profile:
            """Run the program, and return its profile."""
            engine, threads = self.computed_by, self.threads
            with ProgramSession(self.program, self.graph, engine=engine, threads=threads) as session:
                return session.profile(arrays, runs=count)

        planned, refinement = refine_program(self, planner, run_profile, seconds=seconds, progress=progress)
        refined = self if planned is self else _as_plan(planned, planner, self.computed_by)
        return replace(refined, refinement=refinement)

    def precision_report(self, samples: Mapping[str, Any] | None = None) -> PrecisionReport:
        """Return the error of each layer in its narrow type, and the errors of the outputs, against f32.

        Errors are largest absolute differences, as parts of the largest element. Those of layers are of each layer
        alone, with sources computed in f32; those of outputs are of a run of the whole plan. Times are those of kernels
        in the formats of the plan, as predicted; no kernel is measured.

        Args:
            samples: arrays of the dims that the plan is for, by name; seeded random ones if None.

        Raises:
            InvalidArguments: a sample is not suitable; or the plan has no costs, since it was read from a file,
                unpickled, or made of a graph alone.
            OutOfMemory, MissingExtra, Unimplemented: as `compile`.

        >>> import numpy as np
        >>> from inlay.graph.network import Node, Tensor
        >>> tensors = {name: Tensor(name, (2, 8), np.dtype(np.float32)) for name in "xy"}
        >>> network = Network("small", 17, ("x",), ("y",), (Node("relu", "Relu", ("x",), ("y",)),), tensors)
        >>> print(plan(network, costs="analytic", precision="f32").precision_report())
        no layer may be in a narrow type
        error of y: 0.0e+00
        """
        planner = self._require_planner("for the times of layers")
        drawn = {tensor.name: draw_input(tensor) for tensor in self.inputs}
        arrays = as_arrays(check_inputs(drawn if samples is None else samples, self.inputs))
        require_dims(self.inputs, {name: array.shape for name, array in arrays.items()})
        with planner.hold_costs() as costs:
            return report_precision(self, costs, arrays, planner.options.precision.limit, self.computed_by)

    def _require_planner(self, use: str) -> Planner:
        """Return the planner, which has the costs; `use` is what they are needed for, in words.

        Raises:
            InvalidArguments: there is none.
        """
        if self.planner is None:
            raise InvalidArguments(
                f"the plan has no costs {use}, since it was read from a file, unpickled, or made of a graph alone: "
                "plan the network again with inlay.plan"
            )
        return self.planner

    def save(self, path: str | PathLike[str]) -> None:
        """Save the plan with its weights in the formats of its kernels, for `Session.load`, which does not plan.

        The file is a safetensors file; docs/saved-plans.md describes it. It is written completely or not at all.

        Raises:
            FileError: the file cannot be written.
            InvalidArguments, Unimplemented, MissingExtra, OutOfMemory: as `compile`.
        """
        write_plan(self, Path(path), self.computed_by)

    def save_page(self, path: str | PathLike[str], profile: Profile | None = None) -> None:
        """Write a page of the plan as one HTML file, which needs no network: graph, times, reorders, compared plans.

        Repeated blocks are drawn once, and unfolded by a click. docs/plan-page.md describes the page and its JSON. The
        file is written completely or not at all.

        Args:
            path: the file, which ends in .html.
            profile: measured times of the steps, of the session that `compile` returns; None for predicted ones alone.

        Raises:
            InvalidArguments: `path` ends otherwise, or the profile is of other steps than the plan has.
            FileError: the file cannot be written.
        """
        from inlay.render.plan_page import PlanPage

        PlanPage(self, profile).save(Path(path))

    def _repr_html_(self) -> str:
        """Return the picture that a notebook shows, in an element in which it scrolls."""
        from inlay.render.network import PlanPicture

        return PlanPicture(self).html()


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
    precision: PrecisionName = "model",
    tolerance: float | None = None,
    samples: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan a network: choose the formats of its tensors, the operations that are fused, and the reorders.

    Args:
        network: the network, or the graph of its operations.
        costs: `measured` for times on this machine, which are stored; `probed` for the engine's implementations and a
            model of their times; `analytic` for a model alone; or an object with the methods of `costs.Costs`.
        isa: instruction set of another processor, for analytic costs; None for this machine.
        threads: number of threads: of this machine, where kernels are measured on so many, and sessions use no more; or
            of the processor with the instruction set `isa`. Inlay's threads if None.
        seconds: limit of the time for measuring.
        progress: receives the numbers of finished and of all planned kernels and reorders while kernels are measured.
        convolutions: `auto` for whichever algorithm is faster, Winograd's where the engine has it; `direct` for sums of
            products alone, which have smaller rounding errors.
        engine: engine whose kernels are measured or probed, and which `Plan.compile` uses; the default one if None (see
            `primitives.get_engine`).
        fallback: what computes nodes without a primitive: `auto` for ONNX Runtime where it is installed and supports
            the node, else NumPy; False for NumPy alone; None for neither, so that such nodes are refused.
        precision: data types in which f32 tensors may be stored, where the processor computes in them: `model` for
            those that the file declares; `f32` alone; `bf16` or `f16` wherever they are faster; `auto` for bf16 within
            the tolerance. Sums are of f32 in all of them.
        tolerance: limit of the error of each output against f32, as part of its largest element, for `bf16`, `f16` and
            `auto`; layers with large errors stay in f32. 0.01 for `auto` if None, else no limit.
        samples: inputs on which that error is measured, by name; seeded random ones if None.

    While other programs compute, nothing is measured, and the plan is for as many threads as really run (see
    `Plan.load`).

    Post-condition: no plan among the same candidates takes less than `bound`, and `ms` is at most 2 % more; it may be
    more than that where `method` is not `elimination`.

    Raises:
        InvalidArguments: the network has open dims; there are no costs of that name; `isa` is given for costs of this
            machine, or `seconds` or `progress` for costs that are not measured; `threads` is more than Inlay may use on
            this machine; `convolutions`, `engine`, `fallback` or `precision` is unknown; `tolerance` is not positive,
            or for a precision without a choice of types; or `samples` are not suitable, or without a tolerance.
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
        precision=PrecisionRequest(precision, tolerance),
        samples=samples,
    )
    planner = Planner(network, options)
    if samples is not None:
        require_dims(planner.inputs, {name: dims_of(v) for name, v in check_inputs(samples, planner.inputs).items()})
    return _as_plan(planner.plan(), planner, engine)


def compile(
    network: Network | OpenNetwork,
    *,
    costs: Tier | Costs = "measured",
    threads: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    convolutions: Convolutions = "auto",
    engine: EngineLike = None,
    fallback: Fallback = "auto",
    precision: PrecisionName = "model",
    tolerance: float | None = None,
    samples: Mapping[str, Any] | None = None,
    most_shapes: int = MOST_SHAPES,
    state: StateOptions | None = None,
) -> Session:
    """Return a session of a network that plans each shape of the inputs at its first call, or at `Session.prepare`.

    Args:
        network: the network; `OpenNetwork`, which `load` returns, has shapes that are open.
        costs, threads, seconds, progress, convolutions, engine, fallback, precision, tolerance, samples: as of `plan`.
            Kernels are measured for the first shape and by `Session.prepare`; a run with another new shape takes the
            formats of a known one. Errors are measured for the first shape, and layers that it has in f32 for their
            sake are in f32 for all shapes; samples of other dims are not used.
        most_shapes: number of shapes of which the session keeps the plan; it forgets the least recently used.
        state: options of a session whose `Session.step` keeps keys and values; None for one that keeps none.

    Raises:
        InvalidArguments: an option is not valid (see `plan`), `most_shapes` is below 1, or `state` is given and the
            network has no states, or uses them in a way that steps cannot.
    """
    decoder = None if state is None else describe_decoder(network, state)
    options = PlanOptions(
        costs=costs,
        threads=threads,
        seconds=seconds,
        progress=progress,
        convolutions=convolutions,
        engine=engine,
        fallback=fallback,
        precision=PrecisionRequest(precision, tolerance),
        samples=samples,
        states=() if decoder is None else decoder.states,
        counts=() if decoder is None else tuple(one.name for one in decoder.counts),
    )
    planner = Planner(network if decoder is None else decoder.network, options)
    if decoder is None or state is None:
        return Session(planner, engine=engine, most_shapes=most_shapes)
    planner.require_states(decoder)
    return Session(planner, engine=engine, most_shapes=most_shapes, decoder=decoder, page=state.page)


def plan_graph(graph: OpGraph, costs: Costs, convolutions: Convolutions = "auto") -> Plan:
    """Return the plan of a graph as it is with these costs, for its own dims; see `plan_program`.

    Raises:
        Unimplemented, InvalidArguments: as `plan_program`.
    """
    return _as_plan(plan_program(graph, costs, convolutions), None, None)


def _as_plan(planned: PlannedProgram, planner: Planner | None, engine: EngineLike) -> Plan:
    """Return a planned program as a plan that can be compiled."""
    values = {one.name: getattr(planned, one.name) for one in fields(PlannedProgram)}
    return Plan(**values, planner=planner, computed_by=engine)


__all__ = ["Cliff", "Network", "Plan", "Progress", "Tier", "compile", "plan", "plan_graph"]
