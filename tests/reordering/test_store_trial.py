"""Trials of ordinary and streaming stores: the trial chooses what is faster including the time between calls."""

from types import SimpleNamespace

import pytest

from inlay.machine import MemoryModel
from inlay.reordering import compile_reorder, compiled, planning
from inlay.reordering.compiled import CALLS_BEFORE_TRIAL, CALLS_PER_VARIANT, PairedTrial, needs_store_trial
from tests.support.reorders import pair, transposes

ALL = CALLS_BEFORE_TRIAL + 2 * CALLS_PER_VARIANT + 100


class Variant:
    """A variant whose calls move the clock on, and which slows down what the program does after them."""

    def __init__(self, takes: int, after: int) -> None:
        self.takes, self.after, self.calls, self.now = takes, after, 0, [0]

    def move(self, src_address: int, dst_address: int, table: int | None) -> bool:
        self.now[0] += self.takes
        self.calls += 1
        return True


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
    one, two = Variant(*first), Variant(*other)
    now = two.now = one.now
    monkeypatch.setattr(compiled, "time", SimpleNamespace(perf_counter_ns=lambda: now[0]))
    trial = PairedTrial(one, lambda: two)
    for _ in range(ALL):
        before = one.calls
        trial.run(0, 0, None)
        now[0] += one.after if one.calls > before else two.after
    least = CALLS_PER_VARIANT + CALLS_BEFORE_TRIAL * wins
    assert [one.calls, two.calls] == ([least, ALL - least] if wins else [ALL - least, least])


def test_the_second_way_is_compiled_when_it_is_tried() -> None:
    made = list[Variant]()

    def make() -> Variant:
        made.append(Variant(1, 0))
        return made[-1]

    trial = PairedTrial(Variant(1, 0), make)
    for _ in range(CALLS_BEFORE_TRIAL + CALLS_PER_VARIANT):
        trial.run(0, 0, None)
    assert not made
    trial.run(0, 0, None)
    trial.run(0, 0, None)
    assert len(made) == 1


def test_only_what_the_model_cannot_decide_is_tried() -> None:
    memory = MemoryModel(1 << 20, 32 << 20, 8 << 20)
    sizes = [1, 8 << 20, 32 << 20, (128 << 20) - 1, 128 << 20]
    assert [needs_store_trial(size, memory) for size in sizes] == [False, True, True, True, False]


@pytest.mark.parametrize("last", [1 << 14, 1 << 18])
def test_both_ways_move_the_same_bytes(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    memory = MemoryModel(1 << 12, last, 1 << 12)
    monkeypatch.setattr(compiled, "memory_model", lambda: memory)
    monkeypatch.setattr(planning, "memory_model", lambda: memory)
    reorder = compile_reorder(*pair((64, 96)))
    assert reorder.trial is not None
    other = reorder.trial.second()
    assert isinstance(other, compiled.CompiledReorder)
    plans = [plan for plan in (reorder.plan, other.plan) if plan is not None]
    stores = [plan.kernel.stores for plan in plans]
    assert sorted(stores) == ["cached", "streamed"] or plans[0].kernel.lanes * 4 < 64
    assert transposes(reorder, (64, 96), CALLS_BEFORE_TRIAL + 2 * CALLS_PER_VARIANT + 5)


def test_a_small_tensor_has_no_trial() -> None:
    assert compile_reorder(*pair((64, 96))).trial is None
