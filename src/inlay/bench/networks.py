"""A network run by Inlay and by the runtimes that are installed: numbers are compared, then runs are timed in turns.

    bench_network("model.onnx", batch=8)

All contenders get the same arrays, seeded normal numbers, and the same number of threads. A runtime whose numbers
differ from Inlay's is not timed; where an output is a softmax, its input is compared too. Each runtime takes part in
the fastest of its configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from inlay.bench.measurement import INLAY, Measurement, table_text
from inlay.bench.runtimes import Configuration, NetworkInputs, Runtime, chosen_runtimes, prepare_model, softmax_inputs
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs import CostSources
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.fallback.assignment import Fallback
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
    """The largest difference of each contender's numbers from Inlay's, as a part of the largest number."""
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

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON holds it: seconds, ratios with their quartiles."""
        names = ("predicted_ms", "bound_ms", "arena_bytes", "steps", "reorders", "planning", "compiling", "note")
        return {
            "network": self.network,
            "inputs": {name: list(dims) for name, dims in self.inputs.items()},
            "threads": self.threads,
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
            f"{self.network}, {dims}, {self.threads} thread{'s' * (self.threads != 1)}",
            f"planned in {self.planning:.2f} s, compiled in {self.compiling:.2f} s: {self.steps} steps, "
            f"{self.reorders} reorder{'s' * (self.reorders != 1)}, arena {self.arena_bytes / 1e6:.2f} MB",
            f"predicted {self.predicted_ms:.3g} ms, measured {1e3 * self.measured.time(INLAY):.3g} ms",
        ]
        costs = "" if self.sources is None else f"costs of {self.sources}"
        rows += filter(None, [costs, str(self.fallback or ""), str(self.numpy or ""), self.note])
        absent = (f"{name}: {reason}" for name, reason in self.measured.absent.items())
        return "\n".join([*rows, runtimes_text(self.measured, self.configurations), *absent])


def runtimes_text(measured: Measurement, configurations: Mapping[str, str]) -> str:
    """Return a table of contenders that run the same network."""
    rows = []
    for name, how in configurations.items():
        ratio = measured.times_faster_than(name)
        faster = f"{ratio.median:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
        rows.append((name, f"{1e3 * measured.time(name):.3f}", "" if name == INLAY else faster, how))
    return table_text(("", "ms", "Inlay is", "how"), rows, left=("Inlay is", "how"))


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

    Raises:
        InvalidArguments: there is to be no round, more threads than processors, or an unknown runtime; or as
            `inlay.load` and `inlay.plan`.
        FileError, MissingExtra, OutOfMemory, Unimplemented: as `inlay.load`, `inlay.plan` and `Plan.compile`.
    """
    _require_rounds_and_engine(rounds, engine)
    _limit_threads(threads)
    runtimes, network = chosen_runtimes(peers), load_bound(source, dims=dims, batch=batch)
    choices: dict[str, Any] = {"costs": costs, "convolutions": convolutions, "fallback": fallback, "engine": engine}
    planning, planned = time_call(lambda: plan(network, seconds=seconds, progress=progress, **choices))
    compiling, session = time_call(lambda: planned.compile().prepare())
    inputs = {name: draw_input(network.tensors[name]) for name in network.inputs}
    chosen, absent = _agreeing(source, network, planned, session, inputs, runtimes, compiles)
    calls = {INLAY: lambda: session.run(inputs)} | {name: one.call for name, (one, _) in chosen.items()}
    by = ", the reference engine" if session.engine.name == "reference" else ""
    hows = {INLAY: f"{planned.costs} costs{by}"} | {name: one.how for name, (one, _) in chosen.items()}
    return NetworkReport(
        network.name,
        {name: network.tensors[name].dims for name in network.inputs},
        get_num_threads(),
        Measurement(measure_interleaved(calls, rounds, _TURN), absent=absent),
        hows,
        {INLAY: 0.0} | {name: error for name, (_, error) in chosen.items()},
        planning=planning,
        compiling=compiling,
        numpy=session.measure_numpy(inputs) if session.numpy.count else None,
        fallback=session.measure_fallback(inputs) if session.fallback.count else None,
        **_plan_figures(planned, session),
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


_Chosen = tuple[Configuration, float]  # a configuration, and how far its numbers differ from Inlay's


def _agreeing(
    source: Source,
    network: Network,
    planned: Plan,
    session: ProgramSession,
    inputs: Mapping[str, Array],
    runtimes: Mapping[str, Runtime],
    compiles: bool,
) -> tuple[dict[str, _Chosen], dict[str, str]]:
    """Return the fastest configuration of each runtime with Inlay's numbers, and why other runtimes are absent."""
    chosen: dict[str, _Chosen] = {}
    absent: dict[str, str] = {}
    if not runtimes:
        return chosen, absent
    model: Any = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
    model = prepare_model(model, network)
    traced = session.trace(inputs)
    compared = tuple(name for name in dict.fromkeys(softmax_inputs(model).values()) if name in traced)
    expected = {**session.run(inputs), **{name: traced[name] for name in compared}}
    case = NetworkInputs(model, planned.graph, inputs, compared, get_num_threads(), compiles)
    for name, runtime in runtimes.items():
        try:
            chosen[name] = _fastest(runtime, case, expected)
        except Unimplemented as reason:
            absent[name] = str(reason)
    return chosen, absent


def _fastest(runtime: Runtime, case: NetworkInputs, expected: Mapping[str, Array]) -> _Chosen:
    """Return the fastest configuration of a runtime whose numbers agree.

    Raises:
        Unimplemented: the runtime cannot run the network, or its numbers differ.
    """
    best: _Chosen | None = None
    reason = "runs it in no way"
    for one in runtime(case):
        error = difference(one.results(), expected)
        if error > CLOSE:
            reason = f"its numbers differ from Inlay's, by {error:.1e} of the largest"
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
