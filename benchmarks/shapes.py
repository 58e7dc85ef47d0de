"""Sessions of several shapes: runs of a known shape beside the planning of new ones, a new batch, and resident memory.

Each part runs in a process of its own. Networks are those of `examples.random_networks` with open dims; costs are
measured, and stored before anything is timed.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
from rich.table import Table

import inlay
from examples.random_networks import Model, open_bert, open_light
from inlay.graph.open_network import OpenNetwork
from inlay.measure.interleaved import clock, time_call
from inlay.measure.statistics import Spread, spread

NETWORKS: Mapping[str, Callable[[], Model]] = {
    "resnet50": partial(open_light, "resnet50"),
    "squeezenet": partial(open_light, "squeezenet"),
    "bert": open_bert,
}
"""The networks, by name."""
MOST_SLOWDOWN = 1.5
"""Aim: a run of a known shape beside the planning of a new one takes at most so many times as long as alone."""
MOST_GROWTH = 0.05
"""Aim: most growth of resident memory after each shape was run once."""
SEQUENCE = 128
"""Extent of the sequence, where a network has one."""
_NEW_BATCHES = (2, 3, 4, 5, 6)
_REST = 1.0  # seconds
_SHAPES, _CALLS, _FIRST = 20, 1000, 100
_Result = TypeVar("_Result")


def dims_for(network: OpenNetwork, batch: int) -> dict[str, tuple[int, ...]]:
    """Return the dims of the inputs for a batch."""
    numbers = {"batch": batch, "sequence": SEQUENCE}
    return {t.name: tuple(numbers[n] if isinstance(n, str) else n for n in t.dims) for t in network.inputs}


def inputs_for(network: OpenNetwork, batch: int) -> dict[str, Any]:
    """Return random inputs for a batch."""
    rng = np.random.default_rng(batch)
    return {name: rng.standard_normal(dims, np.float32) for name, dims in dims_for(network, batch).items()}


def in_process(function: Callable[..., _Result], *arguments: object) -> _Result:
    """Return the result of a function that a new process computes."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _open(name: str) -> OpenNetwork:
    network = inlay.load(NETWORKS[name]().SerializeToString())
    assert isinstance(network, OpenNetwork)
    return network


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Runs of a known shape alone, and beside the planning of new ones, in milliseconds."""

    alone: Spread
    """Runs before, between and after planning."""
    beside: Spread
    """Runs during planning."""
    planning: tuple[float, ...]
    """Planning and compiling of each new shape, beside the runs."""

    @property
    def ratio(self) -> float:
        """The median beside planning, divided by that alone."""
        return self.beside.median / self.alone.median


def measure_slowdown(name: str) -> Slowdown:
    """Run batch 1 in a loop; on another thread, plan batches of `_NEW_BATCHES`, each after a second of rest."""
    network = _open(name)
    inputs = inputs_for(network, 1)
    planned: list[tuple[float, float]] = []
    with inlay.compile(network) as session:
        session.prepare(dims_for(network, 1))

        def plan() -> None:
            for batch in _NEW_BATCHES:
                time.sleep(_REST)
                began = clock()
                session.prepare(dims_for(network, batch), measure=False)
                planned.append((began, clock()))
            time.sleep(_REST)

        for _ in _runs_while(session, inputs, partial(_is_before, clock() + _REST)):
            pass  # the first runs start threads
        thread = threading.Thread(target=plan)
        thread.start()
        runs = list(_runs_while(session, inputs, thread.is_alive))
        thread.join()
    beside = [end - begin for begin, end in runs if any(start <= begin and end <= stop for start, stop in planned)]
    alone = [end - begin for begin, end in runs if all(end < start or stop < begin for start, stop in planned)]
    times = tuple(1e3 * (stop - start) for start, stop in planned)
    return Slowdown(spread(alone).times(1e3), spread(beside).times(1e3), times)


def _is_before(end: float) -> bool:
    return clock() < end


def _runs_while(
    session: inlay.Session, inputs: Mapping[str, Any], condition: Callable[[], bool]
) -> Iterator[tuple[float, float]]:
    """Yield begin and end of runs, one after the other, while a condition holds."""
    while condition():
        began = clock()
        session.run(inputs)
        yield began, clock()


@dataclass(frozen=True, slots=True)
class NewShape:
    """Planning and compiling for a shape, in milliseconds."""

    first: float
    """The first shape, with stored costs."""
    ahead: Spread
    """A new batch that is planned for itself, with stored costs."""
    on_request: Spread
    """A new batch that takes the formats of the first shape."""
    shared: float
    """Bytes of packed constants after all, divided by those of the first shape; adapted plans only."""


def measure_new_shape(name: str) -> NewShape:
    """Time planning and compiling of new batches, each in one session for all, after costs were stored."""
    network = _open(name)
    with inlay.compile(network) as session:
        for batch in (1, *_NEW_BATCHES):
            session.prepare(dims_for(network, batch))  # stores costs
    with inlay.compile(network) as session:
        ahead = [time_call(partial(session.prepare, dims_for(network, n)))[0] for n in (1, *_NEW_BATCHES)]
    with inlay.compile(network) as session:
        session.prepare(dims_for(network, 1))
        held = session.weights.nbytes
        request = partial(session.prepare, measure=False)
        adapted = [time_call(partial(request, dims_for(network, n)))[0] for n in _NEW_BATCHES]
        shared = session.weights.nbytes / held
    return NewShape(1e3 * ahead[0], spread(ahead[1:]).times(1e3), spread(adapted).times(1e3), shared)


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process that runs many shapes, in bytes."""

    most_shapes: int
    """Number of shapes that the session keeps."""
    first: int
    """After the first calls, which run each shape at least once."""
    last: int
    """After all calls."""
    weights: int
    """Packed constants after all calls."""

    @property
    def growth(self) -> float:
        """Growth from the first calls to the last, as a share."""
        return self.last / self.first - 1


def measure_memory(name: str, most_shapes: int, calls: int = _CALLS) -> Memory:
    """Run `calls` calls over `_SHAPES` batches in turn, in one random order: each turn ends in the same state."""
    network = _open(name)
    inputs = {batch: inputs_for(network, batch) for batch in range(1, _SHAPES + 1)}
    turn = [int(n) for n in 1 + np.random.default_rng(0).permutation(_SHAPES)]
    batches = turn * -(-calls // _SHAPES)
    with inlay.compile(network, most_shapes=most_shapes) as session:
        for batch in batches[:_FIRST]:
            session.run(inputs[batch])
        first = resident_bytes()
        for batch in batches[_FIRST:]:
            session.run(inputs[batch])
        return Memory(most_shapes, first, resident_bytes(), session.weights.nbytes)


def resident_bytes() -> int:
    """Return the resident memory of this process; Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(names: Sequence[str], parts: Sequence[str], calls: int) -> tuple[list[Table], bool]:
    """Measure the parts of these networks; return a table for each part, and whether all aims are met."""
    tables, is_met = [], True
    for part in parts:
        columns, rows, met = _PARTS[part](names, calls)
        table = Table(*columns, title=part)
        for row in rows:
            table.add_row(*row)
        tables.append(table)
        is_met &= met
    return tables, is_met


_Rows = tuple[Sequence[str], Sequence[Sequence[str]], bool]


def _slowdowns(names: Sequence[str], _: int) -> _Rows:
    found = [(name, in_process(measure_slowdown, name)) for name in names]
    columns = "network", "ms alone", "ms beside planning", f"ratio, aim {MOST_SLOWDOWN}", "ms to plan each"
    rows = [
        (name, _ms(it.alone), _ms(it.beside), f"{it.ratio:.2f}", f"{median(it.planning):.0f}") for name, it in found
    ]
    return columns, rows, all(it.ratio <= MOST_SLOWDOWN for _, it in found)


def _new_shapes(names: Sequence[str], _: int) -> _Rows:
    found = [(name, in_process(measure_new_shape, name)) for name in names]
    columns = "network", "first shape, ms", "new batch, planned, ms", "new batch, adapted, ms", "packed constants"
    rows = [
        (name, f"{it.first:.0f}", _ms(it.ahead), _ms(it.on_request), f"{it.shared:.2f} times") for name, it in found
    ]
    return columns, rows, True


def _memories(names: Sequence[str], calls: int) -> _Rows:
    found = [(name, in_process(measure_memory, name, most, calls)) for name in names for most in (32, 4)]
    columns = "network", "shapes kept", "MB after 100 calls", f"MB after {calls}", "growth, aim 5 %", "MB of constants"
    rows = [
        (name, f"{it.most_shapes}", _mb(it.first), _mb(it.last), f"{100 * it.growth:.1f} %", _mb(it.weights))
        for name, it in found
    ]
    return columns, rows, all(it.growth <= MOST_GROWTH for _, it in found)


_PARTS: Mapping[str, Callable[[Sequence[str], int], _Rows]] = {
    "slowdown": _slowdowns,
    "planning": _new_shapes,
    "memory": _memories,
}
PARTS = tuple(_PARTS)
"""Names of the parts."""


def _ms(ms: Spread) -> str:
    return f"{ms.median:.1f} ({ms.low:.1f} to {ms.high:.1f})"


def _mb(nbytes: int) -> str:
    return f"{nbytes / 1e6:.0f}"
