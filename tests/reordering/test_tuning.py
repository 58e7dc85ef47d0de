"""Tuning: the choice by a simulated clock, and the storage of decisions."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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
from inlay.memory import pack_reorder
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

SRC, DST = (MemoryDesc((96, 160), "f32", tag) for tag in ("ab", "ba"))
PROBLEM = build_reorder_problem(SRC, DST)
WON = Decision(Choice(traversal="dst"), 1.5, 1.0)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide an empty cache directory, and drop compiled code from memory."""
    monkeypatch.setenv("INLAY_CACHE_DIR", str(tmp_path / "cache"))
    find_reorder.cache_clear()
    yield tmp_path / "cache"
    find_reorder.cache_clear()


def decisions(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.tuned"))


# Who wins


class Clock:
    """A clock that advances only during calls."""

    def __init__(self, seconds: list[Callable[[int], float]]) -> None:
        self.now = 0.0
        self.turns = [0] * len(seconds)
        self.calls = [self._call(i, each) for i, each in enumerate(seconds)]

    def _call(self, i: int, each: Callable[[int], float]) -> Callable[[], None]:
        def run() -> None:
            self.now += each(self.turns[i])
            self.turns[i] += 1

        return run

    def __call__(self) -> float:
        return self.now

    def verdict(self, budget: float = 1.0, reader_costs: list[float] | None = None) -> TuningResult:
        return select_fastest(self.calls, reader_costs or [0.0] * len(self.calls), budget, self)


def steady(seconds: float) -> Callable[[int], float]:
    return lambda turn: seconds


def noisy(seconds: float, spread: float, seed: int) -> Callable[[int], float]:
    """Return durations that are up to `spread` longer, with noise that is correlated in time."""
    factors = 1 + spread * np.random.default_rng(seed).random(1 << 12)
    return lambda turn: seconds * float(factors[turn % factors.size])


def test_who_is_clearly_faster_wins() -> None:
    verdict = Clock([steady(5e-3), steady(6e-3), steady(4e-3), steady(4.5e-3)]).verdict()
    assert verdict.index == 2
    assert verdict.gain == pytest.approx(1.25)


@pytest.mark.parametrize(("better", "wins"), [(1.0, 0), (1.029, 0), (1.031, 1), (0.5, 0)])
def test_three_percent_are_wanted(better: float, wins: int) -> None:
    assert Clock([steady(5e-3), steady(5e-3 / better)]).verdict().index == wins


@given(st.integers(0, 1000))
def test_luck_does_not_win(seed: int) -> None:
    clock = Clock([noisy(2e-3, 0.4, 20 * seed + i) for i in range(12)])
    assert clock.verdict() == TuningResult(0, 1.0)


@given(st.integers(0, 1000))
def test_noise_does_not_hide_who_is_much_faster(seed: int) -> None:
    assert Clock([noisy(2e-3, 0.2, seed), noisy(1.2e-3, 0.2, seed + 1)]).verdict().index == 1


def test_a_debt_counts_as_time() -> None:
    calls = [steady(5e-3), steady(4e-3)]
    assert Clock(calls).verdict(reader_costs=[0.0, 0.5e-3]).index == 1
    assert Clock(calls).verdict(reader_costs=[0.0, 0.95e-3]).index == 0


@given(
    st.lists(st.floats(1e-6, 0.2), min_size=2, max_size=12),
    st.floats(0.01, 3),
)
def test_the_budget_is_kept_but_for_what_has_begun(seconds: list[float], budget: float) -> None:
    clock = Clock([steady(each) for each in seconds])
    clock.verdict(budget)
    # The last that begins in time: two turns of the longest calls, each of a millisecond at least.
    assert clock.now <= budget + 4 * max(*seconds, 1.1e-3)


def test_without_time_nothing_is_called() -> None:
    clock = Clock([steady(1.0), steady(0.5)])
    assert clock.verdict(0.0) == TuningResult(0, 1.0)
    assert clock.turns == [0, 0]


def test_too_few_rounds_decide_nothing() -> None:
    assert Clock([steady(1.0), steady(0.5)]).verdict(5.0).index == 0
    assert Clock([steady(1.0), steady(0.5)]).verdict(60.0).index == 1


def test_who_falls_behind_gets_no_more_turns() -> None:
    clock = Clock([steady(5e-3), steady(4e-3), steady(50e-3)])
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
    assert schedule_line(inlay.Reorder(SRC, DST)) == "  decided by the model"
    tuned = inlay.Reorder(SRC, DST, tune=True)
    line = "  tuned: traverse dst; 1.50 times as fast as what the model decides"
    assert schedule_line(tuned) == schedule_line(inlay.Reorder(SRC, DST)) == line
    assert "  traverses dst in memory order\n" in tuned.explain()
    assert "  decided by the model\n" in tuned.explain("x86-64-v2"), "nothing was measured there"
    assert len(decisions(directory)) == 1
    assert measured == [1.0]


def test_remembered_is_not_measured_again_unless_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = counting(monkeypatch)
    for seconds in (1.0, True, 0.5, 3.0, 2.0):
        inlay.Reorder(SRC, DST, tune=seconds)
    assert measured == [1.0, 3.0]
    pack_reorder.tune_reorder(SRC, DST, PROBLEM, 2.0, again=True)
    assert measured == [1.0, 3.0, 2.0]


def test_moves_that_memory_has_remembered_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    counting(monkeypatch)
    memory = inlay.pack(np.zeros(SRC.dims, np.float32), "ab")
    inlay.reorder(memory, "ba")
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
    assert schedule_line(inlay.Reorder(SRC, DST)) == "  decided by the model"


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
        {"dst_type": inlay.MemoryDesc((1,), "s32", "a").data_type},
        {"factor": 0.5},
        {"attributes": Attributes(sum=1.0)},
        {"axes": PROBLEM.axes[::-1]},
    ],
)
def test_another_problem_is_not_this_one(other: dict[str, Any]) -> None:
    store_decision(PROBLEM, host_target(), WON)
    assert load_decision(PROBLEM, host_target()) == WON
    assert load_decision(replace(PROBLEM, **other), host_target()) is None


def test_what_changes_no_byte_is_the_same_problem() -> None:
    store_decision(PROBLEM, host_target(), WON)
    src, dst = (MemoryDesc((96, 160), "f32", strides=strides) for strides in ((160, 1), (1, 96)))
    assert load_decision(build_reorder_problem(src, dst), host_target()) == WON


def test_another_machine_has_decisions_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store_decision(PROBLEM, host_target(), WON)
    assert load_decision(PROBLEM, replace(host_target(), cpu="another")) is None
    for module, name, value in (
        ("inlay.reordering.choice", "memory_model", lambda: MemoryModel(1, 2, 2)),
        ("inlay.reordering.choice", "get_num_threads", lambda: 77),
        ("inlay.reordering.target", "SOURCES", "another compiler"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules[module], name, value)
            assert load_decision(PROBLEM, host_target()) is None
    assert load_decision(PROBLEM, host_target()) == WON


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"x" * 99,
    ],
    ids=["empty", "cut", "one byte less", "one byte more", "other"],
)
def test_a_damaged_file_is_ignored_and_replaced(
    directory: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    measured = counting(monkeypatch)
    store_decision(PROBLEM, host_target(), WON)
    (path,) = decisions(directory)
    path.write_bytes(damage(path.read_bytes()))
    assert schedule_line(inlay.Reorder(SRC, DST)) == "  decided by the model"
    inlay.Reorder(SRC, DST, tune=True)
    assert measured == [1.0]
    assert decisions(directory) == [path]
    assert load_decision(PROBLEM, host_target()) == WON


FIELDS = asdict(WON)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "null",
        "1",
        '"text"',
        '[["choice"]]',
        json.dumps(FIELDS | {"more": 1}),
        json.dumps(FIELDS | {"gain": "1.5"}),
        json.dumps(FIELDS | {"gain": float("nan")}),
        json.dumps(FIELDS | {"seconds": -1.0}),
        json.dumps(FIELDS | {"choice": {"traversal": "up"}}),
        json.dumps(FIELDS | {"choice": {"traversal": ["dst"]}}),
        json.dumps(FIELDS | {"choice": {"registers": 3}}),
        json.dumps(FIELDS | {"choice": {"registers": 1 << 20}}),
        json.dumps(FIELDS | {"choice": {"width": 8}}),
        json.dumps(FIELDS | {"choice": {"width": 48}}),
        json.dumps(FIELDS | {"choice": {"prefetch_distance": 0.5}}),
        json.dumps(FIELDS | {"choice": {"prefetch_distance": 1 << 80}}),
        json.dumps(FIELDS | {"choice": {"streams": "no"}}),
        json.dumps(FIELDS | {"choice": {"threads": 0}}),
        json.dumps(FIELDS | {"choice": {"threads": True}}),
        json.dumps(FIELDS | {"choice": {"other": 1}}),
    ],
)
def test_what_no_choice_can_be_is_none(text: str) -> None:
    assert parse_decision(json.loads(text)) is None


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
    assert schedule_line(inlay.Reorder(SRC, DST, tune=True)) == "  decided by the model"


TUNE = """
import sys
import numpy as np
import inlay
src, dst = (inlay.MemoryDesc((96, 160), "f32", tag) for tag in ("ab", "ba"))
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
    found = load_decision(PROBLEM, host_target())
    assert found is not None
    assert found.seconds == 0.05
    assert [p.name for p in directory.iterdir() if p.suffix not in (".o", ".tuned", ".lock")] == [], (
        "nothing half-written"
    )
    (kept,) = json.loads(cache.read_object(path.stem, "tuned") or b"").values()
    assert kept == asdict(found)


# What can be tuned


def test_a_real_measurement_ends_in_the_same_bytes() -> None:
    src, dst = MemoryDesc((3, 40, 33, 17), "u8", "nchw"), MemoryDesc((3, 40, 33, 17), "u8", "nhwc")
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
    src, dst = MemoryDesc((64, 48), "s8", "ab"), MemoryDesc((64, 48), "f32", "ba")
    attributes = Attributes(src_scales=Scales(mask=2), sum=1.0)
    reorder = inlay.Reorder(src, dst, attributes, tune=0.05)
    assert schedule_line(reorder).startswith("  tuned: ")
    assert schedule_line(inlay.Reorder(src, dst)) == "  decided by the model", "another problem"
    x = np.arange(64 * 48, dtype=np.int8).reshape(64, 48)
    scales = 2.0 ** np.arange(-24, 24)
    two = inlay.Memory(dst)
    two.buffer.view(np.float32)[:] = 1
    reorder(inlay.Memory(src, x), two, src_scales=scales.astype(np.float32))
    assert np.array_equal(two.unpack(), (x * scales + 1).astype(np.float32))


def test_compensated_weights_are_tuned() -> None:
    src = MemoryDesc((32, 16, 3, 3), "s8", "oihw")
    dst = MemoryDesc((32, 16, 3, 3), "s8", "OIhw4i16o4i", extras=inlay.descriptor.Extras(flags=1, compensation_mask=1))
    assert schedule_line(inlay.Reorder(src, dst, tune=0.05)).startswith("  tuned: ")


def test_what_goes_by_coordinate_has_nothing_to_tune(directory: Path) -> None:
    # Groups of 6 and blocks of 4 share no digits.
    src, dst = MemoryDesc((12, 12), "s8", "ab"), MemoryDesc((12, 12), "f32", "Ab4a")
    reorder = inlay.Reorder(src, dst, Attributes(src_scales=Scales(mask=3, groups=(6, 1))), tune=True)
    assert "moved coordinate by coordinate: there is nothing to tune\n" in reorder.explain()
    assert decisions(directory) == []


def test_where_nothing_is_moved_nothing_is_tuned(directory: Path) -> None:
    desc = MemoryDesc((2, 0), "f32", "ab")
    assert inlay.Reorder(desc, desc, tune=True).explain().endswith("nothing to move")
    assert decisions(directory) == []
    assert tuning.tune(build_reorder_problem(desc, desc), 0, 0) == UNMEASURED


def test_sparse_memory_is_refused_as_without_tuning() -> None:
    sparse, dense = MemoryDesc.csr((4, 4), "f32", 3), MemoryDesc((4, 4), "f32", "ab")
    texts = set()
    for tune in (False, True):
        with pytest.raises(Unimplemented) as caught:
            inlay.Reorder(sparse, dense, tune=tune)
        texts.add(str(caught.value))
    assert len(texts) == 1


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), "1", None, (1,)])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArguments) as caught:
        inlay.Reorder(SRC, DST, tune=wrong)
    assert str(caught.value) == (
        f"tune is {wrong!r}: give True to tune for 1 s, or the seconds that it may take, more than 0"
    )


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
