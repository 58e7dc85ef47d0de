"""Plans that are refined by what a run shows: an engine and a clock of the test's own, and one real run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

import inlay
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph import refinement as refinement_module
from inlay.graph import replanning
from inlay.graph.costs import MeasuredCosts
from inlay.graph.costs.timing import YARDSTICK, Bench
from inlay.graph.costs.timing_records import TimingRecords, operation_key
from inlay.graph.network import Node
from inlay.graph.op_graph import Op, OpGraph
from inlay.graph.plan import Plan
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.planning import Planner, PlanOptions
from inlay.graph.profiling import Profile
from inlay.graph.program import Step
from inlay.graph.refinement import RefinedStep, Refinement, is_off
from inlay.graph.replanning import find_off, price_step, refine_program
from inlay.measure.processors import Processors
from inlay.measure.statistics import Spread
from inlay.primitives.engine import Operation, explain_fallback
from tests.graph.costs.test_measured import BEST, MACHINE, POOL, Clock
from tests.graph.costs.test_measured import Engine as TimedEngine
from tests.support.graph_programs import conv, drawn, graph_of, relu
from tests.support.profiles import profile_of, require_narrow
from tests.support.refusals import raises_exactly

BUSY, FREE = Processors((0.6, 0.4)), Processors((1.0, 0.9))


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of its own."""
    folder = tmp_path / "cache"
    folder.mkdir(0o700)
    monkeypatch.setenv("INLAY_CACHE_DIR", str(folder))
    return folder


@dataclass
class PricedEngine(TimedEngine):
    """Takes a time between 1 and 2 ms for any operation, by its key; `factors` change those of single operations."""

    factors: dict[str, float] = field(default_factory=dict)

    def seconds(self, operation: Operation) -> float:
        key = operation_key(operation)
        if key == operation_key(YARDSTICK):
            return BEST
        return 1e-3 * (1 + crc32(key.encode()) / 2**32) * self.factors.get(key, 1.0)


def network() -> OpGraph:
    """Two convolutions of the same kind and other dims, a function that NumPy computes, and a ReLU."""
    ops = [
        conv("first", "x", "a", drawn(16, 8, 1, 1)),
        conv("second", "a", "b", drawn(24, 16, 1, 1)),
        Op("numpy", "reference", {"src_0": "b"}, {"dst_0": "c"}, node=Node("numpy", "Sin", ("b",), ("c",))),
        relu("last", "c", "y"),
    ]
    channels = {"x": 8, "a": 16, "b": 24, "c": 24, "y": 24}
    return graph_of(ops, {name: (1, count, 6, 6) for name, count in channels.items()}, "x", "y")


@dataclass
class Case:
    """A plan of the network by measured costs, and a machine whose times change afterwards."""

    engine: PricedEngine = field(default_factory=lambda: PricedEngine(Clock()))
    loads: list[Processors] = field(default_factory=lambda: [FREE] * 9)
    progress: list[tuple[int, int]] = field(default_factory=list)
    profiles: int = 0

    def __post_init__(self) -> None:
        self.planner = Planner(network(), PlanOptions(costs=self.costs(), fallback=False))
        self.planned = self.planner.plan()

    def costs(self) -> MeasuredCosts:
        """Costs of a process that begins now."""
        bench = Bench(self.engine, POOL, self.engine.clock, lambda: self.engine.clock.waited(self.engine.clock.now))
        records = TimingRecords("test", "1")
        load = partial(self.loads.pop, 0)
        return MeasuredCosts([self.engine], MACHINE, bench, records, 1e9, None, self.engine.clock, load)

    def real_ms(self, step: Step) -> float:
        """The time that a step takes alone at present."""
        return step.ms if step.operation is None else 1e3 * self.engine.seconds(step.operation)

    def refine(
        self, factors: Mapping[str, float], seconds: float | None = None, run_seconds: float = 0.0
    ) -> tuple[PlannedProgram, Refinement]:
        """Refine by a run in which steps take their real times, multiplied by `factors` for those named."""

        def run_profile() -> Profile:
            self.profiles += 1
            self.engine.clock.now += run_seconds
            steps, slow = self.planned.program.steps, self.engine.clock.phase(self.engine.clock.now)
            times = [self.real_ms(step) * factors.get(step.name, 1.0) * slow for step in steps]
            return profile_of(self.planned.program, self.planned.graph, times)

        report = lambda done, total: self.progress.append((done, total))  # noqa: E731
        return refine_program(self.planned, self.planner, run_profile, seconds=seconds, progress=report)

    def step(self, name: str) -> Step:
        return next(step for step in self.planned.program.steps if step.name == name)

    def change(self, name: str, factor: float) -> str:
        """Let the kernel of a step take another time from now on; return its key."""
        operation = self.step(name).operation
        assert operation is not None
        key = operation_key(operation)
        self.engine.factors[key] = factor
        return key


def ran(engine: PricedEngine) -> set[str]:
    """The keys of what the engine ran, without the yardstick."""
    return {name for name, _ in engine.runs} - {operation_key(YARDSTICK)}


def test_the_prices_of_steps_are_those_of_the_plan() -> None:
    case = Case()
    costs = case.costs()
    prices = {step.name: price_step(costs, step) for step in case.planned.program.steps}
    assert prices == {
        step.name: pytest.approx(step.ms) if step.operation is not None else None for step in case.planned.program.steps
    }
    assert {step.kind for step in case.planned.program.steps} >= {"convolution", "reference", "eltwise"}


def test_where_nothing_is_off_the_plan_stays_and_nothing_is_measured() -> None:
    case = Case()
    case.engine.runs.clear()
    new, found = case.refine({"first": 1.29, "second": 0.71})
    assert new is case.planned
    assert ran(case.engine) == set()
    assert str(found).splitlines() == [
        "by hand: over 30 % more or less than predicted: none of 4 steps",
        f"a run takes {found.run_ms:.3f} ms",
        "nothing is to be measured again, and the plan is as before",
    ]


def test_a_kernel_that_became_slower_is_measured_again_and_replaced() -> None:
    case = Case()
    before, key = case.step("second"), case.change("second", 5.0)
    case.engine.runs.clear()
    new, found = case.refine({})
    (row,) = found.steps
    assert (row.label, row.predicted) == ("second", before.ms)
    assert row.again == pytest.approx(5 * before.ms)
    assert row.measured == pytest.approx(5 * before.ms)
    assert not row.is_still_off
    assert key in ran(case.engine)
    assert (found.remeasured, found.candidates) == (found.candidates, len(ran(case.engine)))
    assert found.candidates > 1, "not only the chosen kernel"
    assert case.progress[-1] == (found.candidates, found.candidates)
    after = next(step for step in new.program.steps if step.name == "second")
    assert after.operation is not None
    assert operation_key(after.operation) != key
    assert not row.is_kept
    assert found.repriced_ms == pytest.approx(case.planned.ms + 4 * before.ms)
    assert new.ms == found.after_ms < found.repriced_ms
    assert any(change.startswith("second (") for change in found.changes)
    assert case.planner.plan().ms == pytest.approx(new.ms), "later plans of the network have the new times"


def test_new_times_are_those_of_later_processes_and_of_no_other_operation() -> None:
    case = Case()
    old = {step.name: step.ms for step in case.planned.program.steps}
    case.change("second", 5.0)
    case.change("first", 1.2)  # not off, so not measured again
    case.engine.runs.clear()
    case.refine({})
    case.engine.runs.clear()
    later = Case(case.engine)
    assert ran(case.engine) == set(), "nothing is measured that was"
    costs = later.costs()
    assert price_step(costs, case.step("second")) == pytest.approx(5 * old["second"])
    for step in case.planned.program.steps:
        if step.name != "second" and step.operation is not None:
            assert price_step(costs, step) == pytest.approx(old[step.name])


def test_what_takes_as_long_alone_as_before_keeps_its_time_and_is_named() -> None:
    case = Case()
    before = case.step("second")
    new, found = case.refine({"second": 2.0})
    (row,) = found.steps
    assert (row.is_still_off, row.is_kept) == (True, True)
    assert row.again == pytest.approx(before.ms)
    assert row.measured == pytest.approx(2 * before.ms)
    assert new.ms == pytest.approx(case.planned.ms)
    assert found.changes == ()
    text = " ".join(str(found).split())
    assert "the new plan has the same steps still over 30 % off: 1 step, since caches and threads are in" in text
    assert price_step(case.costs(), before) == pytest.approx(before.ms)


def test_those_that_differ_most_come_first() -> None:
    case = Case()
    _, found = case.refine({"first": 1.5, "second": 4.0, "last": 0.1})
    differences = [abs(row.measured - row.predicted) for row in found.steps]
    assert differences == sorted(differences, reverse=True)
    assert {row.label for row in found.steps} == {"first", "second", "last"}


def test_a_reorder_has_a_new_time_for_its_own_dims_only() -> None:
    case = Case()
    costs = case.planner.options.costs
    assert isinstance(costs, MeasuredCosts)
    pair, other = ((MemoryDesc((1, c, 6, 6), "f32", "nchw"), MemoryDesc((1, c, 6, 6), "f32", "nhwc")) for c in (24, 25))
    before, beside = costs.reorder(*pair), costs.reorder(*other)
    operation = Operation("reorder", "forward_inference", {"src": pair[0], "dst": pair[1]})
    case.engine.factors[operation_key(operation)] = 3.0
    assert costs.remeasure([], [pair, pair]).measured == 1
    assert costs.reorder(*pair) == pytest.approx(3 * 1e3 * case.engine.seconds(operation) / 3)
    assert costs.reorder(*pair) != pytest.approx(before)
    later = case.costs()
    assert later.reorder(*pair) == pytest.approx(costs.reorder(*pair))
    assert later.reorder(*other) == pytest.approx(beside)
    assert later.sources.measured == 0


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_busy_machine_measures_nothing_and_says_so(when: str) -> None:
    case = Case()
    case.change("second", 5.0)
    case.engine.runs.clear()
    case.loads[:] = [BUSY] if when == "before" else [FREE, BUSY]
    if when == "between":
        case.engine.clock.waited = lambda now: 2 * now
    new, found = case.refine({})
    assert new is case.planned
    reason = "the machine is busy, 1.0 of 2 processors are free: nothing is measured, and the plan is as before"
    assert found.reason == reason
    assert " ".join(str(found).split()).count(reason) == 1
    assert price_step(case.costs(), case.step("second")) == pytest.approx(case.step("second").ms)
    if when == "before":
        assert (case.engine.runs, found.run_ms) == ([], None)


def test_a_processor_that_is_slower_now_is_allowed_for() -> None:
    case = Case()
    case.engine.clock.phase = lambda now: 1.5
    new, found = case.refine({})
    assert (new, found.steps) == (case.planned, ())
    assert found.slowdown == pytest.approx(1.5)
    assert "the processor takes 1.50 times its best time now; measured times are divided" in str(found)
    case.engine.clock.phase = lambda now: 2.0
    new, found = case.refine({"second": 3.0})
    assert (new, found.steps) == (case.planned, ())
    reason = "the processor takes 2.0 times its best time: nothing is measured, and the plan is as before"
    assert found.reason == reason


@pytest.mark.parametrize("load", [FREE, BUSY])
def test_a_run_that_was_disturbed_does_not_count(load: Processors) -> None:
    """Threads of the run wait for processors, which the yardstick before and after it does not show."""
    case = Case()
    case.loads[:] = [FREE, load]
    case.engine.clock.waited = lambda now: 0.5 * now
    new, found = case.refine({"second": 3.0}, run_seconds=1.0)
    assert (new, found.steps, found.run_ms) == (case.planned, (), None)
    cause = "other programs took processors from the run"
    if load is BUSY:
        cause = "the machine is busy, 1.0 of 2 processors are free"
    assert found.reason == f"{cause}: nothing is measured, and the plan is as before"
    assert case.profiles == 3


def test_nothing_is_stored_that_was_disturbed_or_for_which_no_time_was_left() -> None:
    for seconds, waited in ((None, lambda now: 2 * now), (1e-9, lambda now: 0.0)):
        case = Case()
        case.loads[:] = [FREE] * 99
        case.change("second", 5.0)
        case.engine.clock.waited = waited
        new, found = case.refine({}, seconds)
        assert new is case.planned
        assert found.reason == (
            f"all {found.candidates} candidates were disturbed, or no time was left: nothing is stored, and the plan "
            "is as before"
        )
        assert price_step(case.costs(), case.step("second")) == pytest.approx(case.step("second").ms)


def test_what_numpy_computes_is_not_measured_alone() -> None:
    case = Case()
    new, found = case.refine({"numpy": 1e4})
    assert new is case.planned
    assert [(row.label, row.again) for row in found.steps] == [("numpy", None)]
    assert found.reason == (
        "no kernel of the engine computes these steps, so nothing is measured alone; the plan is as before"
    )


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (Spread(1.4, 1.35, 1.5), True),
        (Spread(1.4, 1.2, 1.5), False),  # a quarter of the runs was not off
        (Spread(1.29, 1.29, 1.29), False),
        (Spread(0.6, 0.5, 0.65), True),
        (Spread(0.6, 0.5, 0.8), False),
        (Spread(0.71, 0.7, 0.8), False),
    ],
)
def test_a_step_is_off_if_the_middle_half_of_its_runs_is(time: Spread, expected: bool) -> None:
    case = Case()
    steps = tuple(replace(step, ms=1.0) for step in case.planned.program.steps)
    program = replace(case.planned.program, steps=steps)
    one = Spread(1.0, 1.0, 1.0)
    profile = profile_of(program, case.planned.graph, [time, *[one] * (len(steps) - 1)])
    assert [step.step.name for step in find_off(profile)] == [steps[0].name] * expected


def test_short_steps_are_off_from_a_fiftieth_of_a_millisecond_on() -> None:
    assert not is_off(0.029, 0.01)
    assert is_off(0.031, 0.01)
    assert not is_off(0.001, 0.02)


@pytest.mark.parametrize("count", [1, 12])
def test_texts_fit_into_80_columns(count: int) -> None:
    steps = tuple(
        RefinedStep(f"/encoder/layers.{i}/attention/self/query/MatMul + bias", 3.0, 1.0, 1.0 if i else None, i > 1)
        for i in range(count)
    )
    changes = tuple(f"{row.label} (nChw16c, nChw16c -> nChw16c, brgconv:avx512_core)" for row in steps)
    text = str(
        Refinement(
            "n" * 90,
            count=40,
            steps=steps,
            candidates=300,
            remeasured=120,
            slowdown=1.2,
            run_ms=40.0,
            before_ms=20.0,
            repriced_ms=40.0,
            after_ms=30.0,
            changes=changes,
        )
    )
    require_narrow(text)
    assert "120 of 300 candidates measured again; the others were disturbed, or no time was left" in " ".join(
        text.split()
    )
    assert ("and 2 more" in text) == (count == 12)


# Plans


def test_errors_name_the_costs_and_the_remedy() -> None:
    plan = inlay.plan(network(), costs="analytic")
    with raises_exactly(
        InvalidArguments,
        "the costs of the plan are analytic, and only measured ones can be refined: plan with costs='measured'",
    ):
        plan.refine()
    lonely = replace(plan, planner=None)
    with raises_exactly(
        InvalidArguments,
        "the plan has no costs to refine, since it was read from a file, unpickled, or made of a graph alone: plan the "
        "network again with inlay.plan",
    ):
        lonely.refine()
    with raises_exactly(InvalidArguments, "input x is missing: the network takes x (1, 8, 6, 6) float32"):
        plan.refine({})
    with raises_exactly(InvalidArguments, "runs is 0: give 1 or more"):
        plan.refine(runs=0)
    for seconds in (0, -1.0, float("nan")):
        with raises_exactly(InvalidArguments, f"seconds is {seconds}: give a positive number"):
            plan.refine(seconds=seconds)


def test_inputs_for_which_exact_kernels_run_are_refused() -> None:
    case = Case()
    steps = case.planned.program.steps
    exact = profile_of(case.planned.program, case.planned.graph, [1.0] * len(steps), is_exact=True)
    with raises_exactly(
        InvalidArguments,
        "these inputs lead to NaN, infinities or numbers near the largest, so exact kernels ran, which are not "
        "planned: give inputs that the network is made for",
    ):
        refine_program(case.planned, case.planner, lambda: exact)


@pytest.mark.skipif(explain_fallback() is not None, reason=str(explain_fallback()))
@pytest.mark.usefixtures("quiet_machine")
@pytest.mark.parametrize("inputs", [None, {"x": drawn(1, 8, 6, 6)}])
def test_a_plan_of_this_machine_is_refined_and_computes_the_same(
    monkeypatch: pytest.MonkeyPatch, inputs: Mapping[str, np.ndarray] | None
) -> None:
    """Whatever a run shows counts as off, so that all is measured again."""
    monkeypatch.setattr(replanning, "MOST_SLOWDOWN", float("inf"))
    plan = inlay.plan(network())
    x = {"x": drawn(1, 8, 6, 6)}
    expected = plan.compile().run(x)["y"]
    same = plan.refine(inputs, runs=3)
    assert isinstance(same, Plan)
    assert same.refinement is not None
    monkeypatch.setattr(refinement_module, "OFF_SHARE", 0.0)
    monkeypatch.setattr(refinement_module, "OFF_MS", 0.0)
    told: list[tuple[int, int]] = []
    refined = plan.refine(inputs, runs=3, seconds=30.0, progress=lambda done, total: told.append((done, total)))
    found = refined.refinement
    assert found is not None
    assert found.run_ms is not None
    assert 0 < found.remeasured <= found.candidates == told[-1][1]
    assert refined.ms == found.after_ms
    assert refined.planner is plan.planner
    require_narrow(str(found))
    np.testing.assert_allclose(refined.compile().run(x)["y"], expected, rtol=1e-4, atol=1e-5)
    assert plan.refinement is None


def test_a_refined_plan_equals_the_plan_where_nothing_was_off(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    plan = Plan(**{name: getattr(case.planned, name) for name in PlannedProgram.__dataclass_fields__})
    plan = replace(plan, planner=case.planner, computed_by="reference")
    monkeypatch.setattr(replanning, "find_off", lambda *_: ())
    monkeypatch.setattr(replanning, "MOST_SLOWDOWN", float("inf"))
    refined = plan.refine(runs=1)
    assert refined == plan
    assert refined.refinement is not None
    assert "over 30 % more or less than predicted: none of 4 steps" in str(refined.refinement)
