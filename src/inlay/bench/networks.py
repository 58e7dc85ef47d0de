"""A network run by Inlay and by whoever else is installed: compared, then timed in turns.

    bench_network("model.onnx", batch=8)

Everybody gets the same arrays, seeded normal numbers, and the same number of threads. Who answers other numbers than
Inlay is left out; where an output is a softmax, what it is computed of is compared too. Of the configurations of a peer
the fastest takes part.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from inlay.bench.runtimes import Given, Model, Peer, Variant, chosen_peers, hidden, prepared
from inlay.bench.tables import table_text
from inlay.errors import InvalidArguments, MissingExtra, Unimplemented
from inlay.graph.algorithms import Convolutions
from inlay.graph.costs import CostSources
from inlay.graph.costs.estimates import Costs, Progress
from inlay.graph.network import Network, Tensor
from inlay.graph.onnx.reading import Source, load
from inlay.graph.onnx_package import onnx
from inlay.graph.op_graph import Array
from inlay.graph.plan import Plan, Tier, plan
from inlay.graph.program import NumpyShare
from inlay.graph.runtime.session import Session
from inlay.layout import Dims
from inlay.measure.interleaved import Turn, measure_interleaved, time_call
from inlay.measure.statistics import Spread, paired_ratio
from inlay.primitives.engine import EngineLike, explain_fallback
from inlay.reordering.threads import available_threads, get_num_threads, set_num_threads

_FIGURES = ("predicted_ms", "bound_ms", "arena_bytes", "steps", "reorders", "planning", "compiling", "note")


@dataclass(frozen=True, slots=True)
class NetworkLine:
    """One who took part."""

    name: str
    """Who."""
    how: str
    """In which configuration, in words."""
    seconds: tuple[float, ...]
    """Seconds of a run in each round in which it took a turn."""
    difference: float
    """How far its numbers are from Inlay's, as a part of the largest one."""

    @property
    def time(self) -> float:
        """Their median."""
        return median(self.seconds)


@dataclass(frozen=True, slots=True)
class NetworkReport:
    """What was measured of one network."""

    network: str
    """Its name."""
    inputs: Mapping[str, Dims]
    """The dims of each input."""
    threads: int
    """How many threads everybody may use."""
    lines: tuple[NetworkLine, ...]
    """Inlay, then the others."""
    absent: Mapping[str, str]
    """Who did not take part, and why."""
    predicted_ms: float
    """What the plan takes a run to last."""
    bound_ms: float
    """What no plan among the same candidates can be below."""
    arena_bytes: int
    """Memory for tensors."""
    steps: int
    """Steps of a run."""
    reorders: int
    """Those of them that change a format."""
    planning: float
    """Seconds from the network to the plan."""
    compiling: float
    """Seconds from the plan to the session."""
    note: str = ""
    """What `Session.note` says of steps that the engine declined; empty if there are none."""
    numpy: NumpyShare | None = None
    """How many steps NumPy computes, and their share of the measured time; None if it computes none."""
    sources: CostSources | None = None
    """How many costs of kernels were measured, now or earlier, and how many estimated; None where a model has all."""

    def ratio(self, line: NetworkLine) -> Spread:
        """How many times as fast as `line` Inlay is."""
        return paired_ratio(line.seconds, self.lines[0].seconds)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON holds it: seconds, ratios with their quartiles."""
        lines = {
            line.name: {
                "how": line.how,
                "seconds": list(line.seconds),
                "difference": line.difference,
                "inlay_is_times_as_fast": asdict(self.ratio(line)),
            }
            for line in self.lines
        }
        return {
            "network": self.network,
            "inputs": {name: list(dims) for name, dims in self.inputs.items()},
            "threads": self.threads,
            "measured": lines,
            "absent": dict(self.absent),
            **{name: getattr(self, name) for name in _FIGURES},
            "numpy": None if self.numpy is None else {"steps": self.numpy.count, "share": self.numpy.share},
            "sources": None if self.sources is None else self.sources.as_json(),
        }

    def __str__(self) -> str:
        """A table: time, how many times as fast Inlay is with the spread, and in which configuration."""
        dims = ", ".join(f"{name} {'x'.join(map(str, its))}" for name, its in self.inputs.items())
        own = self.lines[0]
        many = "s" * (self.reorders != 1)
        rows = [
            f"{self.network}, {dims}, {self.threads} thread{'s' * (self.threads != 1)}",
            f"planned in {self.planning:.2f} s, compiled in {self.compiling:.2f} s: {self.steps} steps, "
            f"{self.reorders} reorder{many}, arena {self.arena_bytes / 1e6:.2f} MB",
            f"predicted {self.predicted_ms:.3g} ms, measured {1e3 * own.time:.3g} ms",
        ]
        rows += [f"costs of {self.sources}"] if self.sources is not None else []
        rows += [str(self.numpy)] if self.numpy is not None else []
        rows += [self.note] if self.note else []
        table = []
        for line in self.lines:
            ratio = self.ratio(line)
            faster = f"{ratio.median:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
            table.append((line.name, f"{1e3 * line.time:.3f}", "" if line is own else faster, line.how))
        rows.append(table_text({"": "left", "ms": "right", "Inlay is": "left", "how": "left"}, table))
        return "\n".join([*rows, *(f"{name}: {reason}" for name, reason in self.absent.items())])


INLAY = "Inlay"
"""How Inlay's line is called."""
ROUNDS = 15
"""How many rounds are measured unless told otherwise; a run of over 50 ms takes part in a third of them."""
CLOSE = 1e-4
"""How far the numbers of a peer may be from Inlay's, as a part of the largest one."""
_TURN = Turn(warm=50e-3, block=25e-3)  # a run wakes every thread for each of some hundred kernels
_TRIAL = 3  # rounds in which the configurations of a peer compete


@dataclass(frozen=True, slots=True)
class Right:
    """A peer whose numbers are those of Inlay."""

    variant: Variant
    """Its fastest configuration."""
    difference: float
    """How far its numbers are, as a part of the largest."""


def bench_network(
    source: Source,
    *,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    rounds: int = ROUNDS,
    costs: Tier | Costs = "measured",
    convolutions: Convolutions = "auto",
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
        rounds: how often everybody takes a turn.
        costs: as `inlay.plan` takes them, with `convolutions`, `seconds` and `progress`.
        threads: how many everybody may use: the limit of this process from now on. None leaves it as it is.
        engine: who computes for Inlay; the default engine if None, which must not be the reference engine unless
            INLAY_ENGINE or `set_engine` chose it: NumPy would be timed in place of what users run.
        peers: names of those who take part, joined by commas; all for None.
        compiles: let PyTorch compile the network too, which may take a minute.

    Raises:
        InvalidArguments: there is to be no round, more threads than processors, or an unknown peer; or as `inlay.load`
            and `inlay.plan`.
        FileError, MissingExtra, OutOfMemory, Unimplemented: as `inlay.load`, `inlay.plan` and `Session`.
    """
    _require_turns_and_engine(rounds, engine)
    _limit_threads(threads)
    others, network = chosen_peers(peers), load(source, dims=dims, batch=batch)
    choices: dict[str, Any] = {"costs": costs, "seconds": seconds, "convolutions": convolutions, "engine": engine}
    planning, planned = time_call(lambda: plan(network, progress=progress, **choices))
    compiling, session = time_call(planned.compile)
    inputs = {name: values_of(network.tensors[name]) for name in network.inputs}
    right, absent = _agreeing(source, network, planned, session, inputs, others, compiles)
    return NetworkReport(
        network=network.name,
        inputs={name: network.tensors[name].dims for name in network.inputs},
        threads=get_num_threads(),
        lines=tuple(_timed(planned, session, inputs, right, rounds)),
        absent=absent,
        predicted_ms=planned.ms,
        bound_ms=planned.bound,
        arena_bytes=session.arena.nbytes,
        steps=len(planned.program.steps),
        reorders=len(planned.reorders),
        planning=planning,
        compiling=compiling,
        note="; ".join(filter(None, (planned.load, session.note))),
        numpy=session.measure_numpy(inputs) if session.numpy.count else None,
        sources=planned.sources,
    )


def _timed(
    planned: Plan, session: Session, inputs: Mapping[str, Array], right: Mapping[str, Right], rounds: int
) -> Iterator[NetworkLine]:
    """Inlay's line, then the others'."""
    calls = {INLAY: lambda: session.run(inputs)} | {name: one.variant.call for name, one in right.items()}
    times = measure_interleaved(calls, rounds, _TURN)
    by = ", the reference engine" if session.engine.name == "reference" else ""
    yield NetworkLine(INLAY, f"{planned.costs} costs{by}", tuple(times[INLAY]), 0.0)
    for name, one in right.items():
        yield NetworkLine(name, one.variant.how, tuple(times[name]), one.difference)


def _require_turns_and_engine(rounds: int, engine: EngineLike) -> None:
    if rounds < 1:
        raise InvalidArguments(f"rounds is {rounds}: everybody takes at least 1 turn")
    reason = explain_fallback() if engine is None else None
    if reason is not None:
        raise MissingExtra(
            f"{reason}\n(in its place NumPy would be timed, far slower: choose the engine 'reference' to see that)"
        )


def _limit_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads > available_threads():
        raise InvalidArguments(
            f"threads is {threads}, and this process may run on {available_threads()} processors: threads that share "
            "one wait for each other"
        )
    set_num_threads(threads)


def values_of(tensor: Tensor) -> Array:
    """Seeded normal numbers; of integers small ones, from 0 on."""
    rng = np.random.default_rng(1)
    if np.issubdtype(tensor.dtype, np.integer) or tensor.dtype == np.bool_:
        return rng.integers(0, 2, tensor.dims).astype(tensor.dtype)
    return rng.standard_normal(tensor.dims, np.float32).astype(tensor.dtype)


def _agreeing(
    source: Source,
    network: Network,
    planned: Plan,
    session: Session,
    inputs: Mapping[str, Array],
    peers: Mapping[str, Peer],
    compiles: bool,
) -> tuple[dict[str, Right], dict[str, str]]:
    """Those with the same numbers, each in its fastest configuration, and why others are absent."""
    right: dict[str, Right] = {}
    absent: dict[str, str] = {}
    if not peers:
        return right, absent
    model: Model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
    model = prepared(model, network)
    traced = session.trace(inputs)
    shown = tuple(name for name in dict.fromkeys(hidden(model).values()) if name in traced)
    expected = {**session.run(inputs), **{name: traced[name] for name in shown}}
    given = Given(model, planned.graph, inputs, shown, get_num_threads(), compiles)
    for name, peer in peers.items():
        try:
            right[name] = _best(peer, given, expected)
        except Unimplemented as reason:
            absent[name] = str(reason)
    return right, absent


def _best(peer: Peer, given: Given, expected: Mapping[str, Array]) -> Right:
    """The fastest of the configurations of a peer whose numbers are right.

    Raises:
        Unimplemented: the peer cannot run the network, or its numbers are wrong.
    """
    best: Right | None = None
    wrong: float | None = None
    for variant in peer(given):
        found = difference(variant.results(), expected)
        if found > CLOSE:
            wrong = found
        elif best is None or _is_faster(variant, best.variant):
            best = Right(variant, found)
    if best is None:
        raise Unimplemented(
            "runs it in no way" if wrong is None else f"its numbers differ from Inlay's, by {wrong:.1e} of the largest"
        )
    return best


def _is_faster(one: Variant, other: Variant) -> bool:
    times = measure_interleaved({"one": one.call, "other": other.call}, _TRIAL, _TURN)
    return median(times["one"]) < median(times["other"])


def difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest difference of a tensor that both have from what is expected, as a part of its largest number.

    Where there is none to compare, a tensor has other dims, or a number is missing (NaN), it is infinite.

    >>> difference({"y": np.array([1.0, 2.0])}, {"y": np.array([1.0, 2.5])})
    0.2
    """
    shared = [(found[name], expected[name]) for name in expected if name in found]
    return max((_difference(one, other) for one, other in shared), default=float("inf"))


def _difference(found: Array, expected: Array) -> float:
    if found.size != expected.size:
        return float("inf")
    one, other = (np.asarray(array, np.float64).reshape(-1) for array in (found, expected))
    largest, error = (float(np.abs(numbers).max(initial=0.0)) for numbers in (other, one - other))
    if not np.isfinite(error):
        return float("inf")
    return error / largest if largest else error
