"""A network run by Inlay and by the runtimes that are installed: numbers are compared, then runs are timed in turns.

    bench_network("model.onnx", batch=8)

All contenders get the same arrays, seeded normal numbers, and the same number of threads. A runtime whose numbers
differ from Inlay's is not timed; where an output is a softmax, its input is compared too. Each runtime takes part in
the fastest of its configurations.

A runtime that crashes on a quantized network, or in another precision than f32, is absent (see `inlay.bench.crashes`).

With `precision` each runtime is asked for the same types (see `inlay.bench.precision`). The numbers of all, Inlay's
included, are then compared with a run in f64, and the errors stand beside the times.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from inlay.bench.crashes import find_crashes
from inlay.bench.measurement import INLAY, Measurement, table_text
from inlay.bench.precision import REQUESTS, BenchPrecision, is_quantized, require_precision, run_in_f64
from inlay.bench.runtimes import Configuration, NetworkInputs, Runtime, chosen_runtimes, prepare_model, softmax_inputs
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs import CostSources
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.fallback.assignment import Fallback
from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network
from inlay.graph.onnx.reading import Source, load_bound
from inlay.graph.onnx_package import onnx
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan, Tier, plan
from inlay.graph.program import FallbackShare, NumpyShare
from inlay.graph.runtime.arguments import draw_input
from inlay.graph.runtime.program_session import ProgramSession
from inlay.layout import Dims
from inlay.measure.interleaved import Turn, measure_interleaved, time_call
from inlay.primitives.engine import EngineLike, explain_fallback
from inlay.reordering.threads import available_threads, get_num_threads, set_num_threads

ROUNDS = 15
"""The default number of rounds; a run of over 50 ms takes part in a third of them."""
CLOSE = 1e-4
"""The largest accepted difference from Inlay's numbers, as a part of the largest number."""
_TURN = Turn(warm=50e-3, block=25e-3)  # a run wakes every thread for each of some hundred kernels
_TRIAL = 3  # rounds in which the configurations of a runtime compete


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """The measurement of one network."""

    network: str
    """Its name."""
    inputs: Mapping[str, Dims]
    """The dims of each input."""
    threads: int
    """The number of threads that each contender may use."""
    measured: Measurement
    """Times of Inlay and of the other runtimes."""
    configurations: Mapping[str, str]
    """The configuration in which each contender was timed, in words."""
    differences: Mapping[str, float]
    """The largest difference of each contender's numbers from Inlay's, as a part of the largest number.

    With a precision it is that from a run in f64, and Inlay has one too.
    """
    predicted_ms: float
    """Milliseconds of a run, as the plan predicts them."""
    bound_ms: float
    """Milliseconds that no plan among the same candidates can fall below."""
    arena_bytes: int
    """Memory for tensors."""
    steps: int
    """Steps of a run."""
    reorders: int
    """Steps that change a format."""
    planning: float
    """Seconds from the network to the plan."""
    compiling: float
    """Seconds from the plan to the session."""
    note: str = ""
    """The session's note on steps that the engine does not support; empty if there are none."""
    numpy: NumpyShare | None = None
    """The number of steps that NumPy computes, and their share of the measured time; None if it computes none."""
    fallback: FallbackShare | None = None
    """The number of steps that ONNX Runtime computes, and their share of the measured time; None if there are none."""
    sources: CostSources | None = None
    """The numbers of kernel costs that were measured and estimated; None where an analytic model has all costs."""
    precision: BenchPrecision | None = None
    """The precision that every runtime was asked for; None for that of the file, without a run in f64."""

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON holds it: seconds, ratios with their quartiles."""
        names = ("predicted_ms", "bound_ms", "arena_bytes", "steps", "reorders", "planning", "compiling", "note")
        return {
            "network": self.network,
            "inputs": {name: list(dims) for name, dims in self.inputs.items()},
            "threads": self.threads,
            "precision": self.precision,
            "measured": {
                name: {"how": how, "difference": self.differences[name], **self.measured.figures(name)}
                for name, how in self.configurations.items()
            },
            "absent": dict(self.measured.absent),
            **{name: getattr(self, name) for name in names},
            "numpy": None if self.numpy is None else {"steps": self.numpy.count, "share": self.numpy.share},
            "fallback": None if self.fallback is None else {"steps": self.fallback.count, "share": self.fallback.share},
            "sources": None if self.sources is None else self.sources.as_json(),
        }

    def __str__(self) -> str:
        """Return a table: time, how many times as fast Inlay is with the spread, and the configuration."""
        dims = ", ".join(f"{name} {'x'.join(map(str, its))}" for name, its in self.inputs.items())
        rows = [
            f"{self.network}, {dims}, {self.threads} thread{'s' * (self.threads != 1)}"
            + ("" if self.precision is None else f", {self.precision}, errors against f64"),
            f"planned in {self.planning:.2f} s, compiled in {self.compiling:.2f} s: {self.steps} steps, "
            f"{self.reorders} reorder{'s' * (self.reorders != 1)}, arena {self.arena_bytes / 1e6:.2f} MB",
            f"predicted {self.predicted_ms:.3g} ms, measured {1e3 * self.measured.time(INLAY):.3g} ms",
        ]
        costs = "" if self.sources is None else f"costs of {self.sources}"
        rows += filter(None, [costs, str(self.fallback or ""), str(self.numpy or ""), self.note])
        absent = (f"{name}: {reason}" for name, reason in self.measured.absent.items())
        errors = None if self.precision is None else self.differences
        return "\n".join([*rows, runtimes_text(self.measured, self.configurations, errors), *absent])


def runtimes_text(
    measured: Measurement, configurations: Mapping[str, str], errors: Mapping[str, float] | None = None
) -> str:
    """Return a table of contenders that run the same network, with their errors against f64 if there are any."""
    rows = []
    for name, how in configurations.items():
        ratio = measured.times_faster_than(name)
        faster = f"{ratio.median:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
        error = () if errors is None else (f"{errors[name]:.1e}",)
        rows.append((name, f"{1e3 * measured.time(name):.3f}", *error, "" if name == INLAY else faster, how))
    heading = () if errors is None else ("error",)
    return table_text(("", "ms", *heading, "Inlay is", "how"), rows, left=("Inlay is", "how"))


def bench_network(
    source: Source,
    *,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    rounds: int = ROUNDS,
    costs: Tier | Costs = "measured",
    convolutions: Convolutions = "auto",
    fallback: Fallback = "auto",
    seconds: float | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    engine: EngineLike = None,
    peers: str | None = None,
    compiles: bool = False,
    precision: BenchPrecision | None = None,
    tolerance: float | None = None,
    against: Source | None = None,
) -> NetworkReport:
    """Plan and compile a network, and time its runs beside those of other runtimes.

    Args:
        source: as `inlay.load` takes it, with `dims` and `batch`.
        rounds: how many turns each contender takes.
        costs: as `inlay.plan` takes them, with `convolutions`, `fallback`, `seconds` and `progress`.
        threads: the number of threads of each contender: the limit of this process from now on. None leaves it as it
            is.
        engine: the engine that computes for Inlay; the default engine if None, which must not be the reference engine
            unless INLAY_ENGINE or `set_engine` chose it: NumPy would be timed in place of what users run.
        peers: names of the other runtimes, joined by commas; all for None.
        compiles: let PyTorch compile the network too, which may take a minute.
        precision: the types that each runtime is asked for: `f32`, `bf16` or `f16`; `int8` for a quantized model; or
            `auto` for the choice of each runtime. Errors of all are against a run in f64. None for the types of the
            file, and numbers that are compared with Inlay's.
        tolerance: as `inlay.plan` takes it, for `bf16`, `f16` and `auto`.
        against: the f32 model that `source` was quantized from, whose run in f64 errors are against; `source` if None.

    Raises:
        InvalidArguments: there is to be no round, more threads than processors, or an unknown runtime; there is no such
            precision, or it is `int8` and the model is not quantized; `tolerance` or `against` is given without a
            precision; `against` has other inputs, or no output of the same name; or as `inlay.load` and `inlay.plan`.
        FileError, MissingExtra, OutOfMemory, Unimplemented: as `inlay.load`, `inlay.plan` and `Plan.compile`.
    """
    _require_rounds_and_engine(rounds, engine)
    _limit_threads(threads)
    runtimes, network = chosen_runtimes(peers), load_bound(source, dims=dims, batch=batch)
    _require_suitable_precision(precision, tolerance, against, network)
    exact = network if against is None else load_bound(against, dims=dims, batch=batch)
    _require_same_ends(network, exact)
    choices: dict[str, Any] = {"costs": costs, "convolutions": convolutions, "fallback": fallback, "engine": engine}
    choices |= {} if precision is None else {"precision": REQUESTS[precision].inlay, "tolerance": tolerance}
    planning, planned = time_call(lambda: plan(network, seconds=seconds, progress=progress, **choices))
    compiling, session = time_call(lambda: planned.compile().prepare())
    model = _model_for_runtimes(source, network) if runtimes else None
    case = _inputs_for_runtimes(model, network, planned, compiles, precision)
    comparison = _compare(case, session, precision, exact)
    return _time_all(comparison, runtimes, rounds, network, planned, session, planning=planning, compiling=compiling)


def _inputs_for_runtimes(
    model: Any, network: Network, planned: Plan, compiles: bool, precision: BenchPrecision | None
) -> NetworkInputs:
    """Return what each runtime gets: the model, which may be None if there are no runtimes, and drawn inputs."""
    inputs = {name: draw_input(network.tensors[name]) for name in network.inputs}
    compared = () if model is None else tuple(dict.fromkeys(softmax_inputs(model).values()))
    return NetworkInputs(model, planned.graph, inputs, compared, get_num_threads(), compiles, precision or "f32")


def _time_all(
    comparison: "_Comparison",
    runtimes: Mapping[str, Runtime],
    rounds: int,
    network: Network,
    planned: Plan,
    session: ProgramSession,
    **seconds: Any,
) -> NetworkReport:
    """Time Inlay and the runtimes with right numbers in turns, and return the report."""
    is_wide = comparison.precision in (None, "f32") and not is_quantized(network)
    crashed = {} if is_wide else find_crashes(runtimes, comparison.case)
    chosen, absent = _agreeing(comparison, {name: one for name, one in runtimes.items() if name not in crashed})
    inputs = comparison.case.inputs
    calls = {INLAY: lambda: session.run(inputs)} | {name: one.call for name, (one, _) in chosen.items()}
    by = ", the reference engine" if session.engine.name == "reference" else ""
    hows = {INLAY: f"{planned.costs} costs{by}"} | {name: one.how for name, (one, _) in chosen.items()}
    return NetworkReport(
        network.name,
        {name: network.tensors[name].dims for name in network.inputs},
        get_num_threads(),
        Measurement(measure_interleaved(calls, rounds, _TURN), absent={**crashed, **absent}),
        hows,
        {INLAY: comparison.own} | {name: error for name, (_, error) in chosen.items()},
        numpy=session.measure_numpy(inputs) if session.numpy.count else None,
        fallback=session.measure_fallback(inputs) if session.fallback.count else None,
        precision=comparison.precision,
        **_plan_figures(planned, session),
        **seconds,
    )


def _plan_figures(planned: Plan, session: ProgramSession) -> dict[str, Any]:
    """Return the figures of a plan and its session, by name."""
    figures = {"predicted_ms": planned.ms, "bound_ms": planned.bound, "arena_bytes": session.arena.nbytes}
    counts = {"steps": len(planned.program.steps), "reorders": len(planned.reorders)}
    note = "; ".join(filter(None, (planned.load, session.note)))
    return {**figures, **counts, "note": note, "sources": planned.sources}


def _require_rounds_and_engine(rounds: int, engine: EngineLike) -> None:
    """Raise unless there are rounds and an engine that is worth timing."""
    if rounds < 1:
        raise InvalidArguments(f"rounds is {rounds}: give a whole number from 1 on")
    reason = explain_fallback() if engine is None else None
    if reason is not None:
        raise MissingExtra(
            f"{reason}\n(in its place NumPy would be timed, far slower: choose the engine 'reference' to see that)"
        )


def _limit_threads(threads: int | None) -> None:
    """Set the number of threads, after a check that as many processors are available."""
    if threads is None:
        return
    if threads > available_threads():
        raise InvalidArguments(
            f"threads is {threads}, and this process may run on {available_threads()} processors: threads that share "
            "one wait for each other"
        )
    set_num_threads(threads)


def _require_suitable_precision(
    precision: BenchPrecision | None, tolerance: float | None, against: Source | None, network: Network
) -> None:
    """Raise unless the network can be timed in the precision, and nothing is given that needs one."""
    if precision is not None:
        require_precision(precision, network)
    for name, value in {"tolerance": tolerance, "against": against}.items():
        if value is not None and precision is None:
            raise InvalidArguments(f"{name} is given, and no precision, which it is for: give precision too")


def _require_same_ends(network: Network, exact: Network) -> None:
    """Raise unless the network of f32 has the inputs of the timed one, and an output of the same name."""
    for name in network.inputs:
        one, other = network.tensors[name], exact.tensors.get(name) if name in exact.inputs else None
        if other is None or (one.dims, one.dtype) != (other.dims, other.dtype):
            raise InvalidArguments(
                f"against has no input {name} of {one.dtype} and dims {one.dims}, as {network.name} has: give the "
                "model that it was quantized from"
            )
    if not set(network.outputs) & set(exact.outputs):
        raise InvalidArguments(
            f"against has outputs {', '.join(exact.outputs)}, and {network.name} has {', '.join(network.outputs)}: "
            "give the model that it was quantized from"
        )


def _model_for_runtimes(source: Source, network: Network) -> Any:
    """Return the model as runtimes get it; raise `Unimplemented` if it is too large for them."""
    return prepare_model(onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source), network)


_Chosen = tuple[Configuration, float]  # a configuration, and its error


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A network as runtimes get it, and the numbers that theirs are compared with."""

    case: NetworkInputs  # what each runtime gets
    expected: Mapping[str, Array]  # the numbers: Inlay's own, or those of f64
    own: float  # error of Inlay's numbers
    limit: float  # largest error of a runtime that is timed
    than: str  # whose numbers they are, in words
    precision: BenchPrecision | None  # the precision that was asked for


def _compare(
    case: NetworkInputs, session: ProgramSession, precision: BenchPrecision | None, exact: Network
) -> _Comparison:
    """Run Inlay, and with a precision the network `exact` in f64."""
    traced = session.trace(case.inputs) if case.compared else {}
    compared = tuple(name for name in case.compared if name in traced)
    case = replace(case, compared=compared)
    found = {**session.run(case.inputs), **{name: traced[name] for name in compared}}
    if precision is None:
        return _Comparison(case, found, 0.0, CLOSE, "Inlay's", None)
    expected = run_in_f64(lower_network(exact), case.inputs, compared)
    own = difference(found, {name: array for name, array in expected.items() if name in found})
    return _Comparison(case, expected, own, REQUESTS[precision].largest_error, "those of f64", precision)


def _agreeing(comparison: _Comparison, runtimes: Mapping[str, Runtime]) -> tuple[dict[str, _Chosen], dict[str, str]]:
    """Return the fastest configuration of each runtime with right numbers, and why other runtimes are absent."""
    chosen: dict[str, _Chosen] = {}
    absent: dict[str, str] = {}
    for name, runtime in runtimes.items():
        try:
            chosen[name] = _fastest(runtime, comparison)
        except Unimplemented as reason:
            absent[name] = str(reason)
    return chosen, absent


def _fastest(runtime: Runtime, comparison: _Comparison) -> _Chosen:
    """Return the fastest configuration of a runtime whose numbers agree.

    Raises:
        Unimplemented: the runtime cannot run the network, or its numbers differ.
    """
    best: _Chosen | None = None
    reason = "runs it in no way"
    for one in runtime(comparison.case):
        try:
            error = difference(one.results(), comparison.expected)
        except Unimplemented as unknown:
            reason = str(unknown)
            continue
        if error > comparison.limit:
            reason = f"its numbers differ from {comparison.than}, by {error:.1e} of the largest"
        elif best is None or _is_faster(one, best[0]):
            best = one, error
    if best is None:
        raise Unimplemented(reason)
    return best


def _is_faster(one: Configuration, other: Configuration) -> bool:
    """Return whether the first of two calls has the lower median."""
    times = measure_interleaved({"one": one.call, "other": other.call}, _TRIAL, _TURN)
    return median(times["one"]) < median(times["other"])


def difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Return the largest difference of a tensor that both have, as a part of the largest expected number.

    It is infinite where there is none to compare, a tensor has another size, or a number is missing (NaN).

    >>> difference({"y": np.array([1.0, 2.0])}, {"y": np.array([1.0, 2.5])})
    0.2
    """
    shared = [(found[name], expected[name]) for name in expected if name in found]
    return max((_difference(one, other) for one, other in shared), default=float("inf"))


def _difference(found: Array, expected: Array) -> float:
    """Return the largest difference, relative to the largest number expected."""
    if found.size != expected.size:
        return float("inf")
    one, other = (np.asarray(array, np.float64).reshape(-1) for array in (found, expected))
    largest, error = (float(np.abs(numbers).max(initial=0.0)) for numbers in (other, one - other))
    if not np.isfinite(error):
        return float("inf")
    return error / largest if largest else error
