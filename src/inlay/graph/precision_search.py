"""The search for the layers that a plan computes in a narrow type, under a limit of the error of its outputs.

    plan with all types    if its errors are within the limit, it is the result
    measure the layers     the error that each has in the narrow type, alone, and the error that the rounding of its
                           result causes in its readers (`layer_errors.measure_layers`)
    bisect a weight        the planner adds weight * error**2 to the time of each layer in the narrow type; the least
                           weight of which the plan is within the limit, in eight steps
    else                   the plan in f32

So a layer stays in f32 if it saves little time for its error, and the planner counts the conversions around it. Errors
of layers add up as independent random numbers do, by their squares, if they reach the outputs equally; how far they
reach them is not known. So each plan is run on the samples, and its own errors decide. Only the plan that is chosen is
compared with others (`TrialPlan.complete`).

Source: Everett, "Generalized Lagrange Multiplier Method for Solving Problems of Optimum Allocation of Resources", 1963.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from inlay.errors import InvalidArguments
from inlay.graph.layer_errors import Layer, RoundingErrors, measure_layers, measure_outputs, run_in_f32
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.passes.value_ranges import is_float
from inlay.graph.planned_program import PlannedProgram, TrialPlan
from inlay.graph.planner.problem import NO_PENALTIES, Penalties
from inlay.graph.precision import NARROW_TYPES
from inlay.graph.program import Program, Step
from inlay.graph.runtime.compiling import Weights
from inlay.graph.runtime.program_session import ProgramSession
from inlay.primitives.engine import EngineLike

MOST_BISECTIONS = 8
"""Number of plans that are tried between the fastest one and the one in f32."""
_LEAST_SHARE, _MOST_SHARE = 1e-5, 1e3  # of the time of the plan: penalties that change nothing, and everything


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """Tensors and operations that a plan has in f32, and that plans for other dims or by other costs keep in f32.

    So their errors are about those of the plan, whatever time narrow types save.
    """

    tensors: frozenset[str]
    """Names of the tensors that it stores in f32 alone."""
    ops: frozenset[str]
    """Names of the operations that it computes in f32."""

    def restrict(self, graph: OpGraph) -> OpGraph:
        """Return the graph without types of storage for `tensors`."""
        stored = {name: types for name, types in graph.storage_types.items() if name not in self.tensors}
        return replace(graph, storage_types=stored)


def find_type_limits(planned: PlannedProgram) -> TypeLimits:
    """Return the tensors and operations that a planned program has in f32, of those that may be in a narrow type."""
    program, graph = planned.program, planned.graph
    layers = {layer.ops[0]: layer.ops for layer in list_layers(program, graph)}
    narrow = {step.ops[0] for step in program.steps if step.ops and is_narrow(step)}
    types: dict[str, set[str]] = {}
    for buffer in program.buffers.values():
        if buffer.desc is not None and buffer.desc.data_type is not None:
            types.setdefault(buffer.tensor, set()).add(buffer.desc.data_type.name)
    return TypeLimits(
        frozenset(name for name in graph.storage_types if types.get(name) == {"f32"}),
        frozenset(name for first, names in layers.items() if first not in narrow for name in names),
    )


def choose_types(
    plan_with: Callable[[Penalties | None], TrialPlan],
    arrays: Mapping[str, Array],
    tolerance: float,
    engine: EngineLike = None,
) -> TrialPlan:
    """Return the fastest plan that was found of which no output has an error over `tolerance` on these inputs.

    If none is within the limit, it is the plan in f32.

    Args:
        plan_with: plans with these penalties; in f32 for None.
        arrays: inputs, by name.
        tolerance: limit of the error of each output, as part of its largest element.
        engine: engine that computes.

    Raises:
        InvalidArguments: no output is of floating-point numbers, or has a finite one.
        Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    trial = plan_with(NO_PENALTIES)
    fastest = trial.planned
    expected = run_in_f32(fastest.graph, arrays, engine)
    _require_limited(fastest.graph.name, expected)
    with closing(_ErrorLimit(arrays, expected, tolerance, engine)) as limit:
        if not any(map(is_narrow, fastest.program.steps)) or limit.holds_for(fastest):
            return trial
        layers = list_layers(fastest.program, fastest.graph)
        measured = measure_layers(fastest.graph, layers, arrays, engine)
        penalties_of = _penalties_by_weight(fastest, layers, measured)
        return _bisect(plan_with, limit.holds_for, penalties_of) or plan_with(None)


def _require_limited(name: str, outputs: Mapping[str, Array]) -> None:
    """Raise `InvalidArguments` unless a limit of errors has a meaning for the outputs of a network."""
    if not measure_outputs(outputs, outputs):
        raise InvalidArguments(
            f"{name} has no output of floating-point numbers, so tolerance limits nothing: leave it out"
        )
    counted = [array for array in outputs.values() if is_float(array.dtype) and array.size]
    if counted and not any(np.isfinite(array).any() for array in counted):
        raise InvalidArguments(
            f"no output of {name} has a finite number for these inputs, so tolerance limits nothing: give other samples"
        )


class _ErrorLimit:
    """The limit of errors of outputs, and the plans of one graph that were run to check it.

    The session of a plan stays open until that of the next one is compiled, which shares packed constants with it.
    """

    def __init__(
        self, arrays: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float, engine: EngineLike
    ) -> None:
        """Run nothing yet; `expected` are the outputs in f32 for the inputs `arrays`."""
        self._arrays, self._expected, self._tolerance, self._engine = arrays, expected, tolerance, engine
        self._tried: list[tuple[Program, bool]] = []
        self._weights = Weights()
        self._session: ProgramSession | None = None

    def holds_for(self, planned: PlannedProgram) -> bool:
        """Return whether no output of a plan exceeds the limit; an equal program is not run again."""
        for program, is_within in self._tried:
            if program == planned.program:
                return is_within
        found = self._run(planned)
        is_within = max(measure_outputs(found, self._expected).values()) <= self._tolerance
        self._tried.append((planned.program, is_within))
        return is_within

    def _run(self, planned: PlannedProgram) -> dict[str, Array]:
        """Return the outputs of a plan."""
        session = open_session(planned, self._engine, self._weights)
        self.close()
        self._session = session
        return session.run(self._arrays)

    def close(self) -> None:
        """Release the memory of the last plan."""
        if self._session is not None:
            self._session.close()


def _bisect(
    plan_with: Callable[[Penalties | None], TrialPlan],
    is_within: Callable[[PlannedProgram], bool],
    penalties_of: Callable[[float], Penalties],
) -> TrialPlan | None:
    """Return the plan within the limit by the least weight, from 0 to 1 on a logarithmic scale; None if there is none.

    Of two plans within the limit, it is the faster one.
    """
    low, high = _LEAST_SHARE / _MOST_SHARE, 1.0
    best: TrialPlan | None = None
    for _ in range(MOST_BISECTIONS):
        weight = sqrt(low * high)
        trial = plan_with(penalties_of(weight))
        if not is_within(trial.planned):
            low = weight
            continue
        high = weight
        if best is None or trial.planned.ms <= best.planned.ms:
            best = trial
    return best


def _penalties_by_weight(
    planned: PlannedProgram, layers: Sequence[Layer], measured: RoundingErrors
) -> Callable[[float], Penalties]:
    """Return the function from a weight to penalties: with the weight 1, each exceeds the time of the plan by far."""
    squares = _squared_errors(layers, planned.graph, measured)
    least = min((square for square in squares.values() if 0 < square < inf), default=1.0)

    def penalties(weight: float) -> Penalties:
        unit = weight * planned.ms * _MOST_SHARE / least
        return {key: unit * square for key, square in squares.items()}

    return penalties


def _squared_errors(layers: Sequence[Layer], graph: OpGraph, measured: RoundingErrors) -> dict[tuple[str, str], float]:
    """Return the squares of errors by operation and type, without those that are 0.

    The error of a layer is that of its first operation, and the error in the readers of its results that of its last.
    """
    written = {op.name: tuple(op.writes.values()) for op in graph.ops}
    squares: dict[tuple[str, str], float] = {}
    for layer in layers:
        carried = max(measured.tensors.get(name, 0.0) for name in written[layer.ops[-1]])
        for op, error in ((layer.ops[0], measured.layers[layer.ops[0]]), (layer.ops[-1], carried)):
            key = op, layer.data_type
            squares[key] = squares.get(key, 0.0) + error**2
    return {key: square for key, square in squares.items() if square}


def run_planned(planned: PlannedProgram, arrays: Mapping[str, Array], engine: EngineLike = None) -> dict[str, Array]:
    """Return the outputs of a planned program for these inputs.

    Raises:
        InvalidArguments, Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    with open_session(planned, engine) as session:
        return session.run(arrays)


def open_session(planned: PlannedProgram, engine: EngineLike = None, weights: Weights | None = None) -> ProgramSession:
    """Compile a planned program; `weights` are packed constants that it shares with other sessions.

    Raises:
        InvalidArguments, Unimplemented, MissingExtra, OutOfMemory: as `ProgramSession`.
    """
    return ProgramSession(planned.program, planned.graph, engine=engine, weights=weights, threads=planned.threads)


def list_layers(program: Program, graph: OpGraph) -> list[Layer]:
    """Return the operations of each step of which a tensor may be stored in a narrow type, with that type."""
    tensors = {op.name: (*op.reads.values(), *op.writes.values()) for op in graph.ops}
    layers = []
    for step in program.steps:
        if step.operation is None or step.kind in ("reorder", "concat"):
            continue
        ops = tuple(name for name in step.ops if name in tensors)
        types = [t for op in ops for name in tensors[op] for t in graph.storage_types.get(name, ())]
        if types:
            layers.append(Layer(ops, types[0]))
    return layers


def is_narrow(step: Step) -> bool:
    """Return whether a step computes with a tensor in a narrow type."""
    descs = {} if step.operation is None or step.kind == "reorder" else step.operation.descs
    types = {descs[name].data_type for name in (*step.reads, *step.writes) if name in descs}
    return any(one is not None and one.name in NARROW_TYPES for one in types)
