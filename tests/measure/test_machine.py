"""The machine model: reading of reported caches, calibration from copies, and the saved model."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay import cache
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, OutOfMemory
from inlay.machine import (
    MemoryModel,
    ReportedCache,
    assume_model,
    estimate_model,
    model_to_json,
    parse_model,
    reported_caches,
)
from inlay.measure.calibration import Calibration, CopySample
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compiled, memory_levels
from inlay.reordering.planning import ReorderPlan, plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.target import TARGETS
from tests.support.refusals import raises_exactly

FIRST = {"level": "1", "type": "Data", "size": "48K", "shared_cpu_list": "0,4"}
CODE = {"level": "1", "type": "Instruction", "size": "64M", "shared_cpu_list": "0,4"}
SECOND = {"level": "2", "type": "Unified", "size": "2048K", "shared_cpu_list": "0,4"}
THIRD = {"level": "3", "type": "Unified", "size": "36M", "shared_cpu_list": "0-7"}
ASSUMED = MemoryModel(1 << 20, 32 << 20, 32 << 20)


def system(folder: Path, *caches: dict[str, str]) -> Path:
    """The system's files for these caches, in no order."""
    for i, files in enumerate(reversed(caches)):
        (folder / f"index{i}").mkdir(parents=True)
        for name, text in files.items():
            (folder / f"index{i}" / name).write_text(f"{text}\n")
    return folder


def third_caches(size: str | None) -> list[dict[str, str]]:
    return [THIRD | {"size": size}] if size else []


def test_each_reported_cache_is_read_nearest_first(tmp_path: Path) -> None:
    assert reported_caches(system(tmp_path, THIRD, CODE, SECOND, FIRST)) == (
        ReportedCache(1, "Data", 48 << 10, (0, 4)),
        ReportedCache(1, "Instruction", 64 << 20, (0, 4)),
        ReportedCache(2, "Unified", 2 << 20, (0, 4)),
        ReportedCache(3, "Unified", 36 << 20, tuple(range(8))),
    )


@pytest.mark.parametrize(("third", "last"), [("8M", 8 << 20), ("32M", 32 << 20), ("480M", 32 << 20), (None, 2 << 20)])
def test_no_large_reported_cache_is_believed(tmp_path: Path, third: str | None, last: int) -> None:
    caches = reported_caches(system(tmp_path, FIRST, CODE, SECOND, *third_caches(third)))
    assert assume_model(caches) == MemoryModel(2 << 20, last, last)


@pytest.mark.parametrize(
    "spoiled",
    [{"size": "a lot"}, {"size": "32"}, {"size": ""}, {"level": "two"}, {"shared_cpu_list": "0-x"}],
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, spoiled: dict[str, str]) -> None:
    assert assume_model(reported_caches(system(tmp_path, SECOND | spoiled))) == ASSUMED


def test_a_system_that_reports_nothing_has_common_caches(tmp_path: Path) -> None:
    (tmp_path / "index0").mkdir()
    assert reported_caches(tmp_path) == ()
    assert assume_model(()) == ASSUMED


# What samples show


def curve(l2: int, last: int) -> list[CopySample]:
    """Samples of a machine with these capacities: ordinary stores are twice as fast as streaming ones inside."""
    one = [CopySample(1 << k, 1, 50 if 1 << k <= l2 else 20, 30, 50, 10) for k in range(18, 24)]
    both = [CopySample(1 << k, 2, rate, 30, rate, 20) for k in range(22, 27) for rate in [40 if 1 << k <= last else 15]]
    return one + both


@pytest.mark.parametrize("l2", [1 << 19, 1 << 20, 2 << 20])
@pytest.mark.parametrize("last", [4 << 20, 8 << 20, 32 << 20, 64 << 20])
def test_capacities_are_found(l2: int, last: int) -> None:
    model = estimate_model(curve(l2, last), 2)
    assert (model.l2, model.last_level, model.streaming_from) == (l2, max(last, 2 * l2), 2 * last)
    assert (model.l2_bandwidth, model.l3_bandwidth, model.memory_bandwidth) == (50, 20, 10 if last < 64 << 20 else 20)


@given(st.permutations(curve(1 << 20, 16 << 20)))
def test_the_order_of_samples_does_not_matter(samples: list[CopySample]) -> None:
    assert estimate_model(samples, 2) == estimate_model(curve(1 << 20, 16 << 20), 2)


def test_streaming_may_win_within_the_caches_where_nobody_reads_the_result() -> None:
    samples = [replace(sample, streamed=60.0) for sample in curve(1 << 20, 16 << 20)]
    model = estimate_model(samples, 2)
    assert (model.last_level, model.streaming_from) == (16 << 20, 4 << 20)


def test_a_flat_curve_shows_no_private_cache() -> None:
    samples = curve(64 << 20, 16 << 20)
    assert estimate_model(samples, 2).l2 == 1 << 20


def test_a_model_needs_copies_on_all_threads() -> None:
    with raises_exactly(InvalidArguments, "no copy was measured on 3 threads: the capacity of the caches is unknown"):
        estimate_model(curve(1 << 20, 16 << 20), 3)


# Calibration


class FakeMachine:
    """A clock that copies move on: ordinary stores take half of the time up to a capacity, twice as long beyond."""

    def __init__(self, capacity: int) -> None:
        self.now, self.capacity, self.copies = 0.0, capacity, 0

    def clock(self) -> float:
        return self.now

    def copy(self, src: int, dst: int, nbytes: int, *, streams: bool, threads: int) -> None:
        assert src != dst
        rate = 30e9 if streams else 60e9 if 2 * nbytes <= self.capacity else 15e9
        self.now += 2 * nbytes / rate
        self.copies += 1


def calibrated(machine: FakeMachine, slice_seconds: float) -> tuple[MemoryModel, list[float]]:
    calibration = Calibration(machine.copy, memory_levels.allocate_lines, 2, machine.clock)
    ends = [machine.now]
    while not calibration.advance(slice_seconds):
        ends.append(machine.now)
    return estimate_model(calibration.samples, 2), [*np.diff([*ends, machine.now])]


@pytest.mark.parametrize("capacity", [4 << 20, 16 << 20, 64 << 20])
def test_slices_find_what_one_go_finds_and_none_is_long(capacity: int) -> None:
    whole, _ = calibrated(FakeMachine(capacity), 1e9)
    sliced, slices = calibrated(FakeMachine(capacity), 0.01)
    assert sliced == whole
    assert whole.last_level == max(capacity, 2 * whole.l2)
    longest_step = 2 * (64 << 20) / 15e9 + 1e-4
    assert len(slices) > 3
    assert max(slices) <= 0.01 + longest_step


# The model of this process


@pytest.fixture
def unspecified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that was told no model, and remembers none."""
    monkeypatch.delenv("INLAY_MACHINE")
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("_models", "_calibrations"):
        monkeypatch.setattr(memory_levels, name, {})


@pytest.mark.usefixtures("unspecified")
def test_nothing_is_measured_for_small_tensors() -> None:
    machine = FakeMachine(8 << 20)
    memory_levels.measure_slice(memory_levels.FIRST_MEASURED, machine.copy)
    assert (memory_levels.memory_model().source, machine.copies) == ("assumed", 0)


@pytest.mark.usefixtures("unspecified")
def test_a_large_tensor_begins_the_measurement_and_the_next_processes_remember_it() -> None:
    machine, calls = FakeMachine(8 << 20), 0
    while (measured := memory_levels.memory_model()).source == "assumed":
        memory_levels.measure_slice(memory_levels.FIRST_MEASURED + 1, machine.copy, 0.0)
        calls += 1
    assert calls > 10
    copies = machine.copies
    memory_levels.measure_slice(1 << 30, machine.copy)
    assert machine.copies == copies
    memory_levels._models.clear()  # as another process
    assert memory_levels.memory_model() == measured
    memory_levels._models.clear()
    for path in cache.require_cache_directory().glob("*.machine"):
        path.write_bytes(b"spoiled")
    assert memory_levels.memory_model().source == "assumed"


@pytest.mark.usefixtures("unspecified")
def test_a_reorder_of_a_large_tensor_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(compiled, "measure_slice", lambda moved, copy: sizes.append(moved))
    find_reorder.cache_clear()
    desc = MemoryDesc((3 << 20,), "u8", "a")
    compiled.compile_reorder(desc, desc)
    assert sizes == [6 << 20]


@pytest.mark.usefixtures("unspecified")
def test_without_memory_for_copies_the_model_stays_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(nbytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        raise MemoryError

    monkeypatch.setattr(memory_levels, "allocate_lines", allocate)
    memory_levels.measure_slice(1 << 30, FakeMachine(1 << 24).copy)
    assert memory_levels.memory_model().source == "assumed"
    with raises_exactly(OutOfMemory, "the 64 MB for the copies that measure the machine cannot be allocated"):
        memory_levels.measure_all(FakeMachine(1 << 24).copy)


@pytest.mark.usefixtures("unspecified")
def test_our_own_copies_measure_this_machine() -> None:
    model = memory_levels.measure_all(compiled.CompiledCopies())
    assert model == memory_levels.memory_model()
    assert model.source == "measured"
    assert 1 << 18 <= model.l2 <= model.last_level <= max(64 << 20, model.l2 * model.threads)
    assert 4 << 20 <= model.streaming_from <= 128 << 20


@pytest.mark.parametrize("streams", [False, True])
def test_copies_copy(streams: bool) -> None:
    src, dst = (memory_levels.allocate_lines(100_000) for _ in range(2))
    src[:] = np.arange(100_000) % 251
    dst[:] = 0
    compiled.CompiledCopies()(src.ctypes.data, dst.ctypes.data, 90_000, streams=streams, threads=1)
    assert np.array_equal(dst[:90_000], src[:90_000])
    assert not dst[90_000:].any()


@pytest.mark.usefixtures("unspecified")
def test_reported_caches_decide_nothing_once_the_model_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(16 << 20)
    monkeypatch.setattr(memory_levels, "Calibration", partial(Calibration, clock=machine.clock))
    plans = []
    for third in ("8M", "32M", "480M", None):
        reported = reported_caches(system(tmp_path / str(third), FIRST, SECOND, *third_caches(third)))
        monkeypatch.setattr(memory_levels, "reported_caches", lambda reported=reported: reported)
        memory_levels._models.clear()
        memory_levels.measure_all(machine.copy)
        plans.append([planned(n) for n in (192, 960, 1984, 3968)])
    assert all(plan == plans[0] for plan in plans)
    assert [plan[1] for plan in plans[0]] == ["cached", "cached", "streamed", "streamed"]


def planned(n: int) -> tuple[object, object, bool]:
    """What is decided of a transpose: schedule, stores, whether lines are fetched ahead."""
    problem = build_reorder_problem(MemoryDesc((n, n), "f32", "ab"), MemoryDesc((n, n), "f32", "ba"))
    plan: ReorderPlan = plan_reorder(problem, TARGETS["x86-64-v4"])
    return plan.schedule, plan.kernel.stores, plan.kernel.prefetches


# INLAY_MACHINE


@given(
    st.builds(
        MemoryModel,
        *(st.integers(low, 1 << high) for low, high in ((1, 20), (1 << 20, 40), (1, 41), (1, 10))),
        *[st.floats(0.1, 1e4)] * 3,
    )
)
def test_a_model_survives_json(model: MemoryModel) -> None:
    text = model_to_json(model, [ReportedCache(3, "Unified", 1 << 25, (0, 1))])
    assert parse_model(text, "m") == replace(model, source="m")


@pytest.fixture
def specified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path that INLAY_MACHINE names; no file has it."""
    monkeypatch.setenv("INLAY_MACHINE", str(tmp_path / "machine.json"))
    return tmp_path / "machine.json"


SAVED = model_to_json(MemoryModel(1, 2, 3))


def test_a_specified_model_holds(specified: Path) -> None:
    specified.write_text(SAVED)
    assert memory_levels.memory_model() == MemoryModel(1, 2, 3, source=str(specified))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "null", '{"version": 1, "memory": 5}', "[" * 100_000),
        *(model_to_json(MemoryModel(l2, 2, 3)) for l2 in (0, 4)),
        SAVED.replace('"version": 1', '"version": 2'),
        *(SAVED.replace('"l2": 1', f'"l2": {value}') for value in ('"1"', "true", "NaN")),
        SAVED.replace('"l2"', '"l9"'),
    ],
)
def test_a_spoiled_model_is_refused(text: str, specified: Path) -> None:
    specified.write_text(text)
    remedy = "write one with `inlay bench --machine --json`, or unset INLAY_MACHINE"
    with raises_exactly(InvalidArguments, f"{specified} contains no machine model: {remedy}"):
        memory_levels.memory_model()


def test_a_missing_model_is_named(specified: Path) -> None:
    text = f"INLAY_MACHINE names {str(specified)!r}, which cannot be read: No such file or directory"
    with raises_exactly(FileError, text):
        memory_levels.memory_model()
