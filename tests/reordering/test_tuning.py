"""Tuning: the choice by a simulated clock, and the storage of decisions."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import cache
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, OutOfMemory, Unimplemented
from inlay.machine import MemoryModel
from inlay.memory import reorder_tuning
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compiled, tuning
from inlay.reordering.attributes import Attributes, Scales
from inlay.reordering.choice import (
    BY_MODEL,
    UNMEASURED,
    Choice,
    Decision,
    load_decision,
    parse_decision,
    store_decision,
)
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from inlay.reordering.target import host_target
from inlay.reordering.tuning import TuningResult, select_fastest
from tests.support.refusals import raises_exactly
from tests.support.reorders import pair

SRC, DST = pair((96, 160))
PROBLEM = build_reorder_problem(SRC, DST)
WON = Decision(Choice(traversal="dst"), 1.5, 1.0)
BY_THE_MODEL = "  decided by the model"

pytestmark = pytest.mark.usefixtures("directory")


def decisions(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.tuned"))


def stored() -> Decision | None:
    return load_decision(PROBLEM, host_target())


# Who wins


class Clock:
    """A clock that advances only during calls: each call takes the next of its durations, which repeat."""

    def __init__(self, *seconds: Any) -> None:
        self.now = 0.0
        self.turns = [0] * len(seconds)
        self.calls = [self._call(i, np.atleast_1d(each)) for i, each in enumerate(seconds)]

    def _call(self, i: int, seconds: Any) -> Callable[[], None]:
        def run() -> None:
            self.now += float(seconds[self.turns[i] % seconds.size])
            self.turns[i] += 1

        return run

    def __call__(self) -> float:
        return self.now

    def verdict(self, budget: float = 1.0, debt: float = 0.0) -> TuningResult:
        """Tune for so long; readers of what the second one writes lose `debt` seconds."""
        return select_fastest(self.calls, [debt * (i == 1) for i in range(len(self.calls))], budget, self)


def noisy(seconds: float, spread: float, seed: int) -> Any:
    """Return durations that are up to `spread` longer."""
    return seconds * (1 + spread * np.random.default_rng(seed).random(1 << 12))


def test_who_is_clearly_faster_wins() -> None:
    verdict = Clock(5e-3, 6e-3, 4e-3, 4.5e-3).verdict()
    assert verdict.index == 2
    assert verdict.gain == pytest.approx(1.25)


@pytest.mark.parametrize(("better", "wins"), [(1.0, 0), (1.029, 0), (1.031, 1), (0.5, 0)])
def test_three_percent_are_wanted(better: float, wins: int) -> None:
    assert Clock(5e-3, 5e-3 / better).verdict().index == wins


@given(st.integers(0, 1000))
def test_luck_does_not_win(seed: int) -> None:
    assert Clock(*(noisy(2e-3, 0.4, 20 * seed + i) for i in range(12))).verdict() == TuningResult(0, 1.0)


@given(st.integers(0, 1000))
def test_noise_does_not_hide_who_is_much_faster(seed: int) -> None:
    assert Clock(noisy(2e-3, 0.2, seed), noisy(1.2e-3, 0.2, seed + 1)).verdict().index == 1


@pytest.mark.parametrize(("debt", "wins"), [(0.5e-3, 1), (0.95e-3, 0)])
def test_a_debt_counts_as_time(debt: float, wins: int) -> None:
    assert Clock(5e-3, 4e-3).verdict(debt=debt).index == wins


@given(st.lists(st.floats(1e-6, 0.2), min_size=2, max_size=12), st.floats(0.01, 3))
def test_the_budget_is_kept_but_for_what_has_begun(seconds: list[float], budget: float) -> None:
    clock = Clock(*seconds)
    clock.verdict(budget)
    # The last that begins in time: two turns of the longest calls, each of a millisecond at least.
    assert clock.now <= budget + 4 * max(*seconds, 1.1e-3)


def test_without_time_nothing_is_called() -> None:
    clock = Clock(1.0, 0.5)
    assert clock.verdict(0.0) == TuningResult(0, 1.0)
    assert clock.turns == [0, 0]


@pytest.mark.parametrize(("budget", "wins"), [(5.0, 0), (60.0, 1)])
def test_too_few_rounds_decide_nothing(budget: float, wins: int) -> None:
    assert Clock(1.0, 0.5).verdict(budget).index == wins


def test_who_falls_behind_gets_no_more_turns() -> None:
    clock = Clock(5e-3, 4e-3, 50e-3)
    clock.verdict()
    assert clock.turns[2] == 4, "brought in, timed once, two rounds"


# What is remembered


def counting(monkeypatch: pytest.MonkeyPatch, decision: Decision = WON) -> list[float]:
    """Record the time budget of each measurement; `decision` is its result."""
    measured: list[float] = []

    def fake(problem: ReorderProblem, src: int, dst: int, seconds: float) -> Decision:
        measured.append(seconds)
        return replace(decision, seconds=seconds)

    monkeypatch.setattr(tuning, "_measure_candidates", fake)
    return measured


def schedule_line(reorder: inlay.Reorder) -> str:
    return next(line for line in reorder.explain().splitlines() if line.startswith(("  tuned", "  decided")))


def test_a_later_reorder_uses_what_was_found(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = counting(monkeypatch)
    assert schedule_line(inlay.Reorder(SRC, DST)) == BY_THE_MODEL
    tuned = inlay.Reorder(SRC, DST, tune=True)
    line = "  tuned: traverse dst; 1.50 times as fast as what the model decides"
    assert schedule_line(tuned) == schedule_line(inlay.Reorder(SRC, DST)) == line
    assert "  traverses dst in memory order\n" in tuned.explain()
    assert f"{BY_THE_MODEL}\n" in tuned.explain("x86-64-v2"), "nothing was measured there"
    assert len(decisions(directory)) == 1
    assert measured == [1.0]


def test_remembered_is_not_measured_again_unless_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = counting(monkeypatch)
    for seconds in (1.0, True, 0.5, 3.0, 2.0):
        inlay.Reorder(SRC, DST, tune=seconds)
    assert measured == [1.0, 3.0]
    reorder_tuning.tune_reorder(SRC, DST, PROBLEM, 2.0, again=True)
    assert measured == [1.0, 3.0, 2.0]


def test_moves_that_memory_has_remembered_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    counting(monkeypatch)
    inlay.reorder(inlay.pack(np.zeros(SRC.dims, np.float32), "ab"), "ba")
    inlay.Reorder(SRC, DST, tune=True)
    move = find_reorder(SRC, DST)
    assert isinstance(move, compiled.CompiledReorder)
    assert move.decision == WON


def test_all_that_moves_takes_its_reorders_from_one_cache() -> None:
    memory = inlay.pack(np.zeros(SRC.dims, np.float32), "ab")
    inlay.reorder(memory, "ba").unpack()
    before = find_reorder.cache_info().misses
    inlay.Reorder(SRC, DST)
    inlay.Reorder(SRC, DST)(memory, inlay.Memory(DST))
    inlay.reorder(memory, "ba").unpack()
    assert find_reorder.cache_info().misses == before


def test_nothing_is_remembered_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    counting(monkeypatch)
    inlay.Reorder(SRC, DST, tune=True)
    find_reorder.cache_clear()
    monkeypatch.setenv("INLAY_TUNED", "0")
    assert schedule_line(inlay.Reorder(SRC, DST)) == BY_THE_MODEL


def test_no_winner_is_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = counting(monkeypatch, Decision())
    lines = [schedule_line(inlay.Reorder(SRC, DST, tune=True)) for _ in range(2)]
    text = "  tuned: nothing that was tried is clearly faster than what the model decides"
    assert lines == [text, text]
    assert measured == [1.0]


@pytest.mark.parametrize(
    "other",
    [
        {"src_offset": 1},
        {"dst_type": MemoryDesc((1,), "s32", "a").data_type},
        {"factor": 0.5},
        {"attributes": Attributes(sum=1.0)},
        {"axes": PROBLEM.axes[::-1]},
    ],
)
def test_another_problem_is_not_this_one(other: dict[str, Any]) -> None:
    store_decision(PROBLEM, host_target(), WON)
    assert stored() == WON
    assert load_decision(replace(PROBLEM, **other), host_target()) is None


def test_what_changes_no_byte_is_the_same_problem() -> None:
    store_decision(PROBLEM, host_target(), WON)
    src, dst = (MemoryDesc((96, 160), "f32", strides=strides) for strides in ((160, 1), (1, 96)))
    assert load_decision(build_reorder_problem(src, dst), host_target()) == WON


def test_another_machine_has_decisions_of_its_own() -> None:
    store_decision(PROBLEM, host_target(), WON)
    assert load_decision(PROBLEM, replace(host_target(), cpu="another")) is None
    for name, value in (
        ("inlay.reordering.choice.memory_model", lambda: MemoryModel(1, 2, 2)),
        ("inlay.reordering.choice.get_num_threads", lambda: 77),
        ("inlay.reordering.target.SOURCES", "another compiler"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(name, value)
            assert stored() is None
    assert stored() == WON


def test_a_damaged_file_is_ignored_and_replaced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = counting(monkeypatch)
    store_decision(PROBLEM, host_target(), WON)
    (path,) = decisions(directory)
    path.write_bytes(path.read_bytes()[:-1])
    assert schedule_line(inlay.Reorder(SRC, DST)) == BY_THE_MODEL
    inlay.Reorder(SRC, DST, tune=True)
    assert measured == [1.0]
    assert decisions(directory) == [path]
    assert stored() == WON


@pytest.mark.parametrize("value", [[], {}, None, 1, "text", [["choice"]]], ids=repr)
def test_what_is_no_decision_is_none(value: Any) -> None:
    assert parse_decision(value) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"more": 1},
        {"gain": "1.5"},
        {"gain": float("nan")},
        {"seconds": -1.0},
        {"choice": {"traversal": "up"}},
        {"choice": {"traversal": ["dst"]}},
        {"choice": {"registers": 3}},
        {"choice": {"registers": 1 << 20}},
        {"choice": {"width": 8}},
        {"choice": {"width": 48}},
        {"choice": {"prefetch_distance": 0.5}},
        {"choice": {"prefetch_distance": 1 << 80}},
        {"choice": {"streams": "no"}},
        {"choice": {"threads": 0}},
        {"choice": {"threads": True}},
        {"choice": {"other": 1}},
    ],
    ids=repr,
)
def test_what_no_choice_can_be_is_none(wrong: dict[str, Any]) -> None:
    assert parse_decision(asdict(WON)) == WON
    assert parse_decision(asdict(WON) | wrong) is None


@given(
    st.builds(
        Decision,
        st.builds(
            Choice,
            traversal=st.sampled_from([None, "src", "dst"]),
            registers=st.sampled_from([None, 1, 4, 32]),
            width=st.sampled_from([None, 16, 64]),
            prefetch_distance=st.none() | st.integers(-(1 << 30), 1 << 30),
            streams=st.sampled_from([None, False, True]),
            threads=st.none() | st.integers(1, 500),
        ),
        st.floats(0.1, 100),
        st.floats(1e-3, 1e4),
    )
)
def test_what_is_written_is_read(decision: Decision) -> None:
    assert parse_decision(json.loads(json.dumps(asdict(decision)))) == decision


def test_where_nothing_can_be_kept_tuning_goes_through(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting(monkeypatch)
    directory.write_text("in the way")
    assert schedule_line(inlay.Reorder(SRC, DST, tune=True)) == BY_THE_MODEL


TUNE = """
import numpy as np
import inlay
from tests.support.reorders import pair
src, dst = pair((96, 160))
x = np.arange(96 * 160, dtype=np.float32).reshape(96, 160)
one, two = inlay.Memory(src, x), inlay.Memory(dst)
for _ in range(3):
    inlay.Reorder(src, dst, tune=0.05)(one, two)
    assert np.array_equal(two.unpack(), x)
print(inlay.Reorder(src, dst).explain().count("tuned: "))
"""


def test_processes_that_tune_at_once_leave_one_sound_decision(directory: Path) -> None:
    runs = [
        subprocess.Popen([sys.executable, "-c", TUNE], stdout=subprocess.PIPE, text=True, env=os.environ)
        for _ in range(3)
    ]
    assert [run.communicate(timeout=120)[0] for run in runs] == ["1\n"] * 3
    (path,) = decisions(directory)
    found = stored()
    assert found is not None
    assert found.seconds == 0.05
    assert {p.suffix for p in directory.iterdir()} <= {".o", ".tuned", ".lock"}, "nothing half-written"
    (kept,) = json.loads(cache.read_object(path.stem, "tuned") or b"").values()
    assert kept == asdict(found)


# What can be tuned


def test_a_real_measurement_ends_in_the_same_bytes() -> None:
    src, dst = pair((3, 40, 33, 17), "nchw", "nhwc", "u8")
    x = np.arange(src.size, dtype=np.uint64).astype(np.uint8).reshape(src.dims)
    one, two = inlay.Memory(src, x), inlay.Memory(dst)
    reorder = inlay.Reorder(src, dst, tune=0.1)
    reorder(one, two)
    assert np.array_equal(two.unpack(), x)
    assert schedule_line(reorder).startswith("  tuned: ")
    found = load_decision(build_reorder_problem(src, dst), host_target())
    assert found is not None
    assert found.seconds == 0.1


def test_attributes_are_tuned() -> None:
    src, dst = pair((64, 48), "ab", "ba", "s8", "f32")
    reorder = inlay.Reorder(src, dst, Attributes(src_scales=Scales(mask=2), sum=1.0), tune=0.05)
    assert schedule_line(reorder).startswith("  tuned: ")
    assert schedule_line(inlay.Reorder(src, dst)) == BY_THE_MODEL, "another problem"
    x = np.arange(64 * 48, dtype=np.int8).reshape(64, 48)
    scales = 2.0 ** np.arange(-24, 24)
    two = inlay.Memory(dst)
    two.buffer.view(np.float32)[:] = 1
    reorder(inlay.Memory(src, x), two, src_scales=scales.astype(np.float32))
    assert np.array_equal(two.unpack(), (x * scales + 1).astype(np.float32))


def test_compensated_weights_are_tuned() -> None:
    extras = inlay.descriptor.Extras(flags=1, compensation_mask=1)
    src, dst = MemoryDesc((32, 16, 3, 3), "s8", "oihw"), MemoryDesc((32, 16, 3, 3), "s8", "OIhw4i16o4i", extras=extras)
    assert schedule_line(inlay.Reorder(src, dst, tune=0.05)).startswith("  tuned: ")


def test_what_goes_by_coordinate_has_nothing_to_tune(directory: Path) -> None:
    # Groups of 6 and blocks of 4 share no digits.
    grouped = Attributes(src_scales=Scales(mask=3, groups=(6, 1)))
    reorder = inlay.Reorder(*pair((12, 12), "ab", "Ab4a", "s8", "f32"), grouped, tune=True)
    assert "moved coordinate by coordinate: there is nothing to tune\n" in reorder.explain()
    assert decisions(directory) == []


def test_where_nothing_is_moved_nothing_is_tuned(directory: Path) -> None:
    desc = MemoryDesc((2, 0), "f32", "ab")
    assert inlay.Reorder(desc, desc, tune=True).explain().endswith("nothing to move")
    assert decisions(directory) == []
    assert tuning.tune(build_reorder_problem(desc, desc), 0, 0) == UNMEASURED


def test_sparse_memory_is_refused_as_without_tuning() -> None:
    sides = MemoryDesc.csr((4, 4), "f32", 3), MemoryDesc((4, 4), "f32", "ab")
    with pytest.raises(Unimplemented) as caught:
        inlay.Reorder(*sides)
    with raises_exactly(Unimplemented, str(caught.value)):
        inlay.Reorder(*sides, tune=True)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), "1", None, (1,)])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    text = f"tune is {wrong!r}: give True to tune for 1 s, or the seconds that it may take, more than 0"
    with raises_exactly(InvalidArguments, text):
        inlay.Reorder(SRC, DST, tune=wrong)


def test_without_room_for_a_second_tensor_nothing_is_tuned(directory: Path) -> None:
    n = 1 << 25
    src, dst = (MemoryDesc((n, n), "f32", strides=strides) for strides in ((n, 1), (1, n)))
    with pytest.raises(OutOfMemory):
        inlay.Reorder(src, dst, tune=True)
    assert decisions(directory) == []


def test_the_first_candidates_that_can_be_compiled_in_time_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def judged(calls: Any, reader_costs: Any, seconds: float) -> TuningResult:
        tried.append(len(calls))
        assert len(reader_costs) == len(calls)
        return TuningResult(len(calls) - 1, 2.0)

    monkeypatch.setattr(tuning, "select_fastest", judged)
    x, y = np.zeros((2, 96 * 160), np.float32)
    addresses = (x.ctypes.data, y.ctypes.data)
    assert tuning.tune(PROBLEM, *addresses, seconds=1e-9) == Decision(BY_MODEL, 2.0, 1e-9)
    chosen = tuning.tune(PROBLEM, *addresses, seconds=60.0)
    assert tried[0] == 1 < tried[1] <= tuning.MOST
    assert chosen.choice != BY_MODEL
    assert chosen.gain == 2.0
