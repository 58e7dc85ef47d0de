"""Costs by the clock beside other programs: nothing is measured, nothing remembered, and the seconds are a bound."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pytest

from inlay.descriptor import MemoryDesc
from inlay.graph.costs import MeasuredCosts
from inlay.graph.costs.timing_records import operation_key
from inlay.measure.processors import Processors
from inlay.memory import Memory
from inlay.primitives.engine import Operation
from tests.graph.costs.test_measured import (
    BEST,
    CASES,
    TIMES,
    Clock,
    Engine,
    costs_of,
    engine_of,
    prepared,
    require_times,
    sources,
)
from tests.support import cost_cases as cases

pytestmark = pytest.mark.usefixtures("directory")
BUSY, FREE = Processors((0.6, 0.4)), Processors((1.0, 0.9))
MOVE = (cases.image("nchw"), cases.image("nhwc"))


def looking(engine: Engine, *found: Processors, seconds: float = 1e9) -> tuple[MeasuredCosts, list[Processors]]:
    """Costs that find these processors, one after the other, and those that were not looked at."""
    rest = list(found)
    return costs_of(engine, seconds, load=partial(rest.pop, 0)), rest


def test_on_a_busy_machine_nothing_is_measured_and_nothing_remembered() -> None:
    engine = engine_of()
    costs, _ = looking(engine, BUSY)
    costs.prepare(CASES, [MOVE])
    assert (engine.runs, costs.processors, set(sources(costs))) == ([], BUSY, {"probed"})
    assert not costs.sources.is_out_of_time, "time was left, and not spent"
    costs.save()
    quiet, _ = looking(engine, FREE)
    quiet.prepare(CASES)
    assert engine.counted(CASES[0]) > 3
    assert set(sources(quiet)) == {"measured"}


def test_what_is_remembered_counts_on_a_busy_machine_too() -> None:
    prepared(engine_of())
    engine = engine_of()
    costs, rest = looking(engine, BUSY)
    costs.prepare(CASES)
    require_times(costs)
    assert (engine.runs, rest) == ([], [BUSY])


def test_a_machine_that_becomes_busy_is_noticed_by_what_is_disturbed() -> None:
    many = [*CASES, *(cases.convolution("nhwc", channels=(8, c), size=7) for c in (32, 40, 48, 56, 64, 72))]
    engine = engine_of()
    engine.costs |= {operation_key(case): 1e-3 for case in many[6:]}
    costs, rest = looking(engine, FREE, BUSY, FREE)
    costs.prepare(many[:6])
    engine.clock.waited = lambda now: 2 * now
    costs.prepare(many)
    assert (costs.processors, rest) == (BUSY, [FREE])
    assert sources(costs, many) == ["measured"] * 6 + ["scaled"] * 6


def test_without_time_nobody_looks() -> None:
    costs, rest = looking(engine_of(), BUSY, seconds=0)
    costs.prepare(CASES, [MOVE])
    assert (costs.processors, rest) == (None, [BUSY])


@pytest.mark.parametrize("seconds", [1e-4, 3e-3, 0.02, 0.1])
@pytest.mark.parametrize("slowness", [1.0, 50.0])
def test_measuring_ends_with_the_execution_in_which_its_seconds_end(seconds: float, slowness: float) -> None:
    """On a busy machine each execution takes many times what it takes else; the bound is one of time all the same."""
    engine = engine_of(Clock(phase=lambda now: slowness))
    costs = prepared(engine, seconds)
    spent = engine.clock.now
    assert spent <= seconds + slowness * max(*TIMES, BEST)
    sources(costs)
    assert engine.clock.now == spent


@dataclass
class DrowsyEngine(Engine):
    """Takes 20 us longer for the first execution after memory is bound: until then its threads have fallen asleep."""

    is_asleep: bool = False

    def bind(
        self, operation: Operation, descs: Mapping[str, MemoryDesc], memories: Mapping[str, Memory]
    ) -> Callable[[], None]:
        self.is_asleep = True
        run = super().bind(operation, descs, memories)

        def wake_and_run() -> None:
            if self.is_asleep:
                self.clock.now += 2e-5
            self.is_asleep = False
            run()

        return wake_and_run


def test_times_are_of_threads_that_are_awake_as_in_a_session() -> None:
    plain = engine_of()
    engine = DrowsyEngine(plain.clock, plain.costs)
    require_times(prepared(engine))
    assert engine.counted(CASES[0]) > 3
