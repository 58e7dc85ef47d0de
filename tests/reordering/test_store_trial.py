"""Trials of ordinary and streaming stores: the trial chooses what is faster including the time between calls."""

from types import SimpleNamespace

import numpy as np
import pytest

from inlay.descriptor import MemoryDesc
from inlay.machine import MemoryModel
from inlay.reordering import compile_reorder, compiled, planning
from inlay.reordering.compiled import CALLS_BEFORE_TRIAL, CALLS_PER_VARIANT, PairedTrial, needs_store_trial


class Clock:
    """A clock that advances when a variant runs."""

    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        return self.now


class FakeWay:
    """A variant of given duration that also slows down what follows."""

    def __init__(self, clock: Clock, takes: int, after: int = 0) -> None:
        self.clock, self.takes, self.after, self.calls, self.spent_after = clock, takes, after, 0, 0

    def move(self, src_address: int, dst_address: int, table: int | None) -> bool:
        self.clock.now += self.takes
        self.calls += 1
        self.spent_after = self.after
        return True


def run_calls(monkeypatch: pytest.MonkeyPatch, first: tuple[int, int], other: tuple[int, int], count: int) -> list[int]:
    """Run `count` calls, with a program in between that reads the result; return how often each variant ran."""
    clock = Clock()
    monkeypatch.setattr(compiled, "time", SimpleNamespace(perf_counter_ns=clock.perf_counter_ns))
    ways = [FakeWay(clock, *first), FakeWay(clock, *other)]
    variants = PairedTrial(ways[0], lambda: ways[1])
    for _ in range(count):
        calls = ways[0].calls
        variants.run(0, 0, None)
        clock.now += ways[0].after if ways[0].calls > calls else ways[1].after
    return [way.calls for way in ways]


ALL = CALLS_BEFORE_TRIAL + 2 * CALLS_PER_VARIANT + 100


@pytest.mark.parametrize(
    ("first", "other", "wins"),
    [
        ((10_000, 1_000), (6_000, 1_000), True),  # faster, and nothing else changes
        ((10_000, 1_000), (6_000, 6_000), False),  # what is gained is lost by whoever reads the result
        ((10_000, 1_000), (12_000, 1_000), False),
        ((10_000, 1_000), (9_900, 1_000), False),  # within the noise
    ],
)
def test_the_whole_program_decides(
    monkeypatch: pytest.MonkeyPatch, first: tuple[int, int], other: tuple[int, int], wins: bool
) -> None:
    calls = run_calls(monkeypatch, first, other, ALL)
    assert calls == (
        [CALLS_BEFORE_TRIAL + CALLS_PER_VARIANT, ALL - CALLS_BEFORE_TRIAL - CALLS_PER_VARIANT]
        if wins
        else [ALL - CALLS_PER_VARIANT, CALLS_PER_VARIANT]
    )


def test_the_second_way_is_compiled_when_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, made = Clock(), list[int]()

    def make() -> FakeWay:
        made.append(1)
        return FakeWay(clock, 1)

    variants = PairedTrial(FakeWay(clock, 1), make)
    for _ in range(CALLS_BEFORE_TRIAL + CALLS_PER_VARIANT):
        variants.run(0, 0, None)
    assert not made
    variants.run(0, 0, None)
    variants.run(0, 0, None)
    assert made == [1]


def test_only_what_the_model_cannot_decide_is_tried() -> None:
    memory = MemoryModel(1 << 20, 32 << 20, 8 << 20)
    sizes = [1, 8 << 20, 32 << 20, (128 << 20) - 1, 128 << 20]
    assert [needs_store_trial(size, memory) for size in sizes] == [False, True, True, True, False]


@pytest.mark.parametrize("last", [1 << 14, 1 << 18])
def test_both_ways_move_the_same_bytes(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    memory = MemoryModel(1 << 12, last, 1 << 12)
    monkeypatch.setattr(compiled, "memory_model", lambda: memory)
    monkeypatch.setattr(planning, "memory_model", lambda: memory)
    src, dst = (MemoryDesc((64, 96), "f32", tag) for tag in ("ab", "ba"))
    reorder = compile_reorder(src, dst)
    assert reorder.trial is not None
    other = reorder.trial.second()
    assert isinstance(other, compiled.CompiledReorder)
    assert reorder.plan is not None
    assert other.plan is not None
    stores = {reorder.plan.kernel.stores, other.plan.kernel.stores}
    assert stores == {"cached", "streamed"} or reorder.plan.kernel.lanes * 4 < 64
    x = np.arange(64 * 96, dtype=np.float32).reshape(64, 96)
    for _ in range(CALLS_BEFORE_TRIAL + 2 * CALLS_PER_VARIANT + 5):
        y = np.zeros((96 * 64 + 32,), np.float32)
        reorder.run(x.ctypes.data, y.ctypes.data)
        assert np.array_equal(y[: 96 * 64].reshape(96, 64), x.T)
        assert not y[96 * 64 :].any()


def test_a_small_tensor_has_no_trial() -> None:
    assert compile_reorder(*(MemoryDesc((64, 96), "f32", tag) for tag in ("ab", "ba"))).trial is None  # type: ignore[arg-type]
