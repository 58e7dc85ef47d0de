"""Costs by the clock: a clock and an engine of the test's own, whose kernels take what the test says."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from inlay import MemoryDesc
from inlay.errors import Unimplemented
from inlay.graph.costs import Machine, MeasuredCosts
from inlay.graph.costs.timing import SLOW, VERY_SLOW, YARDSTICK, Bench
from inlay.graph.costs.timing_records import TimingRecords, operation_key
from inlay.measure.disturbance import thread_wait_seconds
from inlay.measure.processors import Processors
from inlay.memory import Memory
from inlay.primitives import engine as engine_module
from inlay.primitives.engine import KernelKind, Operation, PlainImplementation, companion_engines
from tests.support import cost_cases as cases

pytestmark = pytest.mark.usefixtures("directory")

MACHINE = Machine("AVX2", threads=2, peak=100.0, cache_bandwidth=100.0, memory_bandwidth=20.0, cache_bytes=1 << 22)
POOL = 1 << 20
BEST = 1e-5
"""Seconds of the yardstick."""


@dataclass
class Clock:
    """A clock that only what is run moves."""

    now: float = 0.0
    phase: Callable[[float], float] = lambda now: 1.0
    stolen: Callable[[int], float] = lambda run: 0.0
    waited: Callable[[float], float] = lambda now: 0.0
    runs: int = 0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds * self.phase(self.now) + self.stolen(self.runs)
        self.runs += 1


@dataclass
class Engine(engine_module.Engine):
    """Takes as long as `costs` says for an operation, by its key."""

    clock: Clock
    costs: dict[str, float] = field(default_factory=dict)
    impls: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unbound: set[str] = field(default_factory=set)
    scratches: dict[str, int] = field(default_factory=dict)
    runs: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    name: str = "engine 1.0"

    def seconds(self, operation: Operation) -> float:
        return BEST if operation_key(operation) == operation_key(YARDSTICK) else self.costs[operation_key(operation)]

    def create(self, operation: Operation) -> PlainImplementation:
        name = operation_key(operation)
        if name in self.refused:
            raise Unimplemented("no such kernel")
        descs = {
            argument: MemoryDesc(desc.dims, "f32", "nhwc" if desc.ndims == 4 else None) if desc.kind == "any" else desc
            for argument, desc in operation.descs.items()
        }
        if name in self.scratches:
            descs["scratchpad"] = MemoryDesc((self.scratches[name],), "u8")
        impl = self.impls.get(name, "jit:test")
        kind: KernelKind = "reference" if impl == "ref:any" else "jit"
        return PlainImplementation(operation, descs, impl, partial(self.bind, operation, descs), kind)

    def bind(
        self, operation: Operation, descs: Mapping[str, MemoryDesc], memories: Mapping[str, Memory]
    ) -> Callable[[], None]:
        assert memories.keys() == descs.keys()
        if operation.kind in self.unbound:
            raise Unimplemented("described, not made")

        def run() -> None:
            self.runs.append((operation_key(operation), {name: one.address for name, one in memories.items()}))
            self.clock.spend(self.seconds(operation))

        return run

    def addresses(self, operation: Operation) -> list[dict[str, int]]:
        """Where the arguments were, in each execution of an operation."""
        return [addresses for name, addresses in self.runs if name == operation_key(operation)]

    def counted(self, operation: Operation) -> int:
        return len(self.addresses(operation))


def costs_of(
    engine: Engine,
    seconds: float = 1e9,
    progress: Callable[[int, int], None] | None = None,
    version: str = "1",
    load: Callable[[], Processors | None] = lambda: None,
) -> MeasuredCosts:
    clock, records = engine.clock, TimingRecords("test", version)
    bench = Bench(engine, POOL, clock, lambda: clock.waited(clock.now))
    return MeasuredCosts(companion_engines(engine), MACHINE, bench, records, seconds, progress, clock, load)


CASES = [cases.convolution(tag, channels=(8, c), size=7) for tag in ("nhwc", "nchw") for c in (8, 16, 24)]
TIMES = (1e-5, 3e-4, 2e-3, 1e-2, 2e-4, 5e-3)


def engine_of(clock: Clock | None = None) -> Engine:
    return Engine(clock or Clock(), {operation_key(case): seconds for case, seconds in zip(CASES, TIMES, strict=True)})


def prepared(engine: Engine, seconds: float = 1e9, operations: Sequence[Operation] = CASES) -> MeasuredCosts:
    costs = costs_of(engine, seconds)
    costs.prepare(operations)
    return costs


def require_remembered(remembered: bool = True) -> None:
    """A process that begins now measures nothing, or everything."""
    engine = engine_of()
    prepared(engine)
    assert engine.runs == [] if remembered else engine.counted(CASES[0]) > 3


def ms_and_source(costs: MeasuredCosts, operation: Operation) -> tuple[Any, str]:
    kernel = costs.kernel(operation)
    assert kernel is not None
    return kernel.ms, kernel.source


def sources(costs: MeasuredCosts, operations: Sequence[Operation] = CASES) -> list[str]:
    return [ms_and_source(costs, operation)[1] for operation in operations]


def require_times(costs: MeasuredCosts) -> None:
    found = [ms_and_source(costs, case) for case in CASES]
    assert found == [(pytest.approx(seconds * 1e3), "measured") for seconds in TIMES]


def ratios(costs: MeasuredCosts) -> list[float]:
    """The costs of all cases relative to what their kernels take, sorted."""
    return sorted(ms_and_source(costs, case)[0] / seconds / 1e3 for case, seconds in zip(CASES, TIMES, strict=True))


def test_a_kernel_costs_what_it_takes() -> None:
    costs = prepared(engine_of())
    require_times(costs)
    assert (costs.engine, costs.name, costs.isa, costs.threads) == ("engine 1.0", "measured", "AVX2", 2)


@pytest.mark.parametrize("period", [0.03, 0.4])
def test_a_clock_that_goes_up_and_down_changes_nothing(period: float) -> None:
    found = ratios(prepared(engine_of(Clock(phase=lambda now: 1.5 if int(now / period) % 2 else 1.0))))
    # A phase may begin between the yardstick and the kernel: of three rounds the median counts.
    assert found == pytest.approx([1.0] * len(found), rel=0.51)
    assert found[len(found) // 2] == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(("often", "undisturbed"), [(2, 2), (3, 3), (7, 5)])
def test_another_process_that_takes_a_processor_now_and_then_changes_little(often: int, undisturbed: int) -> None:
    rng = random.Random(5)
    found = ratios(prepared(engine_of(Clock(stolen=lambda run: 8e-3 if rng.randrange(often) == 0 else 0.0))))
    assert found[0] > 0.99
    assert sum(one < 1.01 for one in found) >= undisturbed


def test_rounds_in_which_threads_waited_for_a_processor_do_not_count() -> None:
    """The yardstick may be spared where a long kernel is not: what the system says of threads is believed."""
    busy = 0.05  # another process has a processor until then
    engine = engine_of(Clock(waited=lambda now: min(now, busy)))

    def stolen(run: int) -> float:
        is_kernel = engine.runs and engine.runs[-1][0] != operation_key(YARDSTICK)
        return 4e-3 if engine.clock.now < busy and is_kernel else 0.0

    engine.clock.stolen = stolen
    require_times(prepared(engine))


def test_what_was_disturbed_in_all_rounds_is_estimated_and_measured_by_another_process() -> None:
    disturbed = engine_of(Clock(waited=lambda now: 2 * now))
    costs, plain = prepared(disturbed), prepared(engine_of(), seconds=0)
    assert [ms_and_source(costs, case) for case in CASES] == [ms_and_source(plain, case) for case in CASES]
    runs = disturbed.counted(CASES[0])
    assert runs > 3
    costs.kernel(CASES[0])
    assert disturbed.counted(CASES[0]) == runs
    require_remembered(False)
    require_remembered()


SPINNING = "import time\nend = time.time() + 0.3\nwhile time.time() < end: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count it")
def test_who_shares_a_processor_waits_and_who_sleeps_does_not() -> None:
    before, began = thread_wait_seconds(), time.perf_counter()
    time.sleep(0.2)
    asleep = thread_wait_seconds() - before
    assert asleep < 0.1
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        other = subprocess.Popen([sys.executable, "-c", SPINNING])
        while other.poll() is None:
            pass
    finally:
        os.sched_setaffinity(0, allowed)
    assert asleep + 0.05 < thread_wait_seconds() - before < time.perf_counter() - began


def test_slowdown_is_that_of_the_yardstick() -> None:
    engine = engine_of()
    costs = costs_of(engine)
    assert costs.slowdown() == pytest.approx(1.0)
    engine.clock.phase = lambda now: 1.25
    assert costs.slowdown() == pytest.approx(1.25)


def test_weights_are_cold_and_activations_are_warm() -> None:
    engine = engine_of()
    prepared(engine)
    for case in CASES:
        places = engine.addresses(case)
        assert len(places) > 3
        assert len({place["weights"] for place in places}) == len(places)
        assert 2 <= len({(place["src"], place["dst"]) for place in places}) < len(places)
    everywhere = [addresses["weights"] for name, addresses in engine.runs if name != operation_key(YARDSTICK)]
    assert all(after > before for before, after in pairwise(everywhere) if after != min(everywhere))


def test_an_element_wise_function_is_timed_in_place_as_plans_compute_it() -> None:
    engine, relu = engine_of(), cases.eltwise("nhwc")
    engine.costs[operation_key(relu)] = 1e-4
    prepared(engine, operations=[relu])
    assert engine.addresses(relu)
    assert all(place["src"] == place["dst"] for place in engine.addresses(relu))


def test_the_scratchpad_is_one_for_all_as_in_a_session() -> None:
    engine = engine_of()
    engine.scratches = {operation_key(CASES[0]): 1 << 12, operation_key(CASES[1]): 1 << 20}
    prepared(engine, operations=CASES[:2])
    places = [addresses["scratchpad"] for name, addresses in engine.runs if name in engine.scratches]
    assert len(places) > 8
    assert len(set(places[2:])) == 1  # once it is as large as the largest


@pytest.mark.parametrize(("seconds", "times"), [(SLOW * 1.01, 2), (VERY_SLOW * 1.01, 1)])
def test_who_is_slow_runs_once_or_twice_and_others_take_turns(seconds: float, times: int) -> None:
    engine = engine_of()
    engine.costs[operation_key(CASES[1])] = seconds
    assert ms_and_source(prepared(engine), CASES[1]) == (pytest.approx(seconds * 1e3), "measured")
    assert engine.counted(CASES[1]) == times
    order = [name for name, _ in engine.runs if name in (operation_key(CASES[0]), operation_key(CASES[2]))]
    assert sum(a != b for a, b in pairwise(order)) >= 5


def test_generic_code_that_would_take_long_is_not_run() -> None:
    engine, huge = engine_of(), cases.convolution("nhwc", channels=(256, 256), size=112)
    engine.impls[operation_key(huge)] = "ref:any"
    ms, source = ms_and_source(costs_of(engine), huge)
    assert (engine.counted(huge), source) == (0, "probed")
    assert ms > 100


@pytest.mark.parametrize("is_dominated", [True, False])
def test_generic_code_is_not_run_where_another_kernel_takes_a_tenth_of_its_estimate(is_dominated: bool) -> None:
    engine = engine_of()
    generic, other = (cases.convolution(tag, channels=(32, 32), size=28) for tag in ("nchw", "nhwc"))
    engine.costs |= {operation_key(generic): 0.2, operation_key(other): 1e-4}
    engine.impls[operation_key(generic)] = "ref:any"
    costs = prepared(engine, operations=[generic, other] if is_dominated else [generic])
    ms, source = ms_and_source(costs, generic)
    assert (engine.counted(generic), source) == ((0, "probed") if is_dominated else (2, "measured"))
    assert 1 < ms < 100 or not is_dominated
    if is_dominated:
        assert ms_and_source(costs, other) == (pytest.approx(0.1), "measured")
        again = engine_of()
        again.impls = engine.impls
        assert ms_and_source(prepared(again, operations=[generic, other]), generic) == (ms, "probed")
        assert again.runs == []


@pytest.mark.parametrize(("seconds", "times"), [(1e-4, 0), (0.6, 1)])
def test_the_machine_is_measured_beside_much_else(seconds: float, times: int) -> None:
    engine, calls = engine_of(), [0]
    engine.costs[operation_key(CASES[1])] = engine.costs[operation_key(CASES[2])] = seconds

    def measure_machine() -> None:
        calls[0] += 1

    bench = Bench(engine, POOL, engine.clock, lambda: 0.0)
    costs = MeasuredCosts(
        [engine], MACHINE, bench, TimingRecords("test", "1"), clock=engine.clock, measure_machine=measure_machine
    )
    costs.prepare(CASES)
    costs.prepare(CASES)
    assert calls == [times]


def test_the_budget_is_kept_and_the_rest_is_estimated() -> None:
    engine = engine_of()
    more = [cases.convolution("nhwc", channels=(16, 8 * n), size=9) for n in range(1, 40)]
    engine.costs |= {operation_key(case): 8e-3 for case in more}
    costs = prepared(engine, 0.5, more)
    a_group = 6 * 8e-3 * 13
    assert engine.clock.now < 0.5 + a_group
    found = sources(costs, more)
    assert set(found) == {"measured", "scaled"}
    assert found == sorted(found)
    spent = engine.clock.now
    assert sources(costs, CASES[:1]) == ["scaled"]
    assert engine.clock.now == spent


def test_estimates_are_scaled_by_what_the_measured_ones_were_wrong_by() -> None:
    engine = engine_of()
    plain = costs_of(engine, seconds=0)
    assert set(sources(plain)) == {"probed"}
    estimates = {operation_key(case): ms_and_source(plain, case)[0] for case in CASES}
    engine.costs = {name: ms * 3e-3 for name, ms in estimates.items()}
    costs = prepared(engine, operations=CASES[:2])
    assert sources(costs, CASES[:1]) == ["measured"]
    costs._seconds_left = 0.0
    assert ms_and_source(costs, CASES[4]) == (pytest.approx(3 * estimates[operation_key(CASES[4])]), "scaled")
    assert engine.counted(CASES[4]) == 0


def test_progress_says_how_much_is_done_of_what_is_planned() -> None:
    heard: list[tuple[int, int]] = []
    costs = costs_of(engine_of(), progress=lambda done, total: heard.append((done, total)))
    moves = [(cases.image("nchw"), cases.image("nchw"))]
    costs.prepare([*CASES, *CASES], moves)
    assert heard == [(6, 7), (7, 7)]
    costs.prepare(CASES, moves)
    assert len(heard) == 2


def test_what_the_engine_lacks_has_no_kernel_and_what_it_describes_and_cannot_make_is_estimated() -> None:
    engine, relu = engine_of(), cases.eltwise("nhwc")
    engine.refused.add(operation_key(CASES[2]))
    engine.unbound.add("eltwise")
    costs = prepared(engine, operations=[*CASES, relu])
    assert costs.kernel(CASES[2]) is None
    assert sources(costs, [CASES[0], relu, CASES[1]]) == ["measured", "probed", "measured"]


# What is remembered


def test_nothing_is_measured_twice_not_even_by_another_process() -> None:
    engine, other = engine_of(), engine_of()
    free = replace(CASES[0], descs={**CASES[0].descs, "dst": MemoryDesc((1, 8, 7, 7), "f32", "any")})
    engine.costs[operation_key(free)] = 7e-4
    first, second = prepared(engine, operations=[*CASES, free]), prepared(other, operations=[*CASES, free])
    assert [second.kernel(case) for case in (*CASES, free)] == [first.kernel(case) for case in (*CASES, free)]
    assert other.runs == []
    kernel = second.kernel(free)
    assert kernel is not None
    assert kernel.operation.descs["dst"].tag == "acdb"


def test_a_lone_question_is_remembered_when_the_costs_are_gone() -> None:
    assert sources(costs_of(engine_of()), CASES[:1]) == ["measured"]
    other = engine_of()
    assert sources(costs_of(other), CASES[:1]) == ["measured"]
    assert other.runs == []


def test_another_version_of_the_library_is_not_mixed_in() -> None:
    prepared(engine_of())
    other = engine_of()
    other.costs = {name: 2 * seconds for name, seconds in other.costs.items()}
    costs = costs_of(other, version="2")
    costs.prepare(CASES)
    assert ratios(costs) == pytest.approx([2.0] * len(CASES))


@pytest.mark.parametrize("spoil", [lambda data: b"", lambda data: data[:-9], lambda data: data[:50] + b"x" + data[51:]])
def test_a_damaged_file_is_ignored_and_written_anew(directory: Path, spoil: Callable[[bytes], bytes]) -> None:
    prepared(engine_of())
    (path,) = directory.glob("*.costs")
    path.write_bytes(spoil(path.read_bytes()))
    require_remembered(False)
    require_remembered()


_WEIGHTS = {"weights": MemoryDesc(CASES[0].descs["weights"].dims, "f32", "abcd").to_json()}


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "jit",
        ["jit", 1.0, 0],
        ["jit", 1.0, 0, {}],
        ["jit", [1.0], 0, {}],
        ["jit", 1.0, 0.5, _WEIGHTS],
        ["jit", 1.0, 0, [_WEIGHTS]],
        ["jit", -1.0, 0, _WEIGHTS],
        ["jit", float("nan"), 0, _WEIGHTS],
        ["jit", 1, 0, _WEIGHTS],
        [3, 1.0, 0, _WEIGHTS],
        ["jit", 1.0, 0, {"weights": 3}],
        ["jit", 1.0, 0, {"weights": "{}"}],
        ["jit", 1.0, 0, {**_WEIGHTS, "dts": MemoryDesc((1,), "f32", "a").to_json()}],
    ],
)
def test_an_entry_that_makes_no_sense_is_measured_again(entry: object) -> None:
    engine, seconds = cost_by_entry(entry)
    assert engine.counted(CASES[0]) > 3
    assert seconds == pytest.approx(TIMES[0])


def test_an_entry_that_makes_sense_is_not_measured_again() -> None:
    engine, seconds = cost_by_entry(["jit", 2.0, 0, _WEIGHTS])
    assert engine.runs == []
    assert seconds == pytest.approx(2 * BEST)


def cost_by_entry(entry: object) -> tuple[Engine, float]:
    """The seconds of a kernel with this entry in the records, and the engine that may have measured it."""
    records, engine = TimingRecords("test", "1"), engine_of()
    records.put(f"kernel {operation_key(CASES[0])}", entry)
    records.write_yardstick(BEST)
    records.save()
    ms, source = ms_and_source(costs_of(engine), CASES[0])
    assert source == "measured"
    return engine, ms / 1e3


def test_without_a_directory_everything_is_measured_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAY_CACHE_DIR", os.devnull + "/nowhere")
    costs = prepared(engine_of())
    assert set(sources(costs)) == {"measured"}
    costs.save()
