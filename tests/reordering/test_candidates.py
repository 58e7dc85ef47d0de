"""All tuning candidates of random problems: each must equal the reference.

Candidates differ in traversal, tile, registers, prefetching, stores and threads. Each runs between guard pages, on one
thread and on five, as if tensors fitted a cache and as if they exceeded all caches.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.machine import MemoryModel
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import compiled, planning, threads, tuning
from inlay.reordering.attributes import Attributes, Scales
from inlay.reordering.choice import BY_MODEL, Choice, Decision
from inlay.reordering.compiled import compile_problem
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from inlay.reordering.target import TARGETS, host_target
from inlay.reordering.tuning import ScheduleCandidate, enumerate_candidates, plan_prefetch_distance
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import Flush, check, judge, noise, span_bytes
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.reorders import Pair, pair, problem_of
from tests.support.soak_case import Case, drawn_case, run_case

SOME = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SIZES = {
    "L2": MemoryModel(1 << 40, 1 << 40, 1 << 40),
    "L3": MemoryModel(0, 1 << 40, 1 << 40),
    "memory": MemoryModel(0, 0, 0),
}
"""Caches with which every tensor lives in that level."""


@pytest.fixture(params=SIZES)
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, five_threads: None) -> MemoryModel:
    """Provide cache sizes that classify every tensor alike, and five threads for every move."""
    found = SIZES[request.param]
    monkeypatch.setattr(planning, "memory_model", lambda: found)
    return found


def all_of(problem: ReorderProblem, sizes: MemoryModel) -> tuple[ScheduleCandidate, ...]:
    return enumerate_candidates(problem, host_target(), sizes)


@contextmanager
def decided(choice: Choice) -> Iterator[None]:
    """Every reorder that is compiled in the `with` statement follows this choice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "load_decision", lambda problem, target: Decision(choice))
        find_reorder.cache_clear()
        yield


@SOME
@given(reorder_problems(sub_byte=True, convert=True, large=True), st.sampled_from(["upper", "lower"]))
def test_every_candidate_equals_the_reference(sizes: MemoryModel, pair: Pair, flush: Flush) -> None:
    problem = build_reorder_problem(*pair)
    if problem.is_empty:
        return
    source = GuardedBuffer(span_bytes(pair[0]), flush, problem.src_type.itemsize)
    source.bytes[:] = noise(source.bytes.size)
    source.seal()
    for candidate in all_of(problem, sizes):
        # Streaming stores need lines: the buffer begins at one where it can.
        target = GuardedBuffer(span_bytes(pair[1]), flush, 64 if flush == "lower" else problem.dst_type.itemsize)
        judge(compile_problem(problem, Decision(candidate.choice)).run, pair[0], source, pair[1], target)


@pytest.mark.parametrize("seed", range(40))
def test_chosen_at_random_with_attributes_types_targets_and_threads(seed: int) -> None:
    pick: Any = np.random.default_rng(seed).choice
    choice = Choice(
        traversal=pick([None, "src", "dst"]),
        registers=pick([None, 1, 2, 4, 16, 32, 64]),
        width=pick([None, 16, 32]),
        prefetch_distance=pick([None, 0, 64, 1 << 20, -4096]),
        streams=pick([None, False, True]),
        threads=pick([None, 1, 2]),
    )
    with decided(choice):
        run_case(drawn_case(1_000_000 + seed))


def test_the_first_candidate_is_the_models_and_no_two_are_one_plan(sizes: MemoryModel) -> None:
    problem = problem_of((2, 64, 28, 28), "nchw", "nhwc", "u8")
    found = all_of(problem, sizes)
    assert found[0].choice == BY_MODEL
    assert found[0].plan.schedule == planning.plan_reorder(problem, host_target()).schedule
    others = [candidate.estimate + candidate.reader_cost for candidate in found[1:]]
    assert others == sorted(others)
    plans = [(c.plan.schedule, c.plan.kernel, plan_prefetch_distance(c.plan), c.choice.threads) for c in found]
    assert all(plans.count(plan) == 1 for plan in plans)
    assert len(plans) >= 4


def test_what_is_chosen_is_done() -> None:
    def planned(**choice: Any) -> planning.ReorderPlan:
        return planning.plan_reorder(problem_of((4096, 4096)), TARGETS["x86-64-v4"], Choice(**choice))

    assert [planned(traversal=side).schedule.traversal for side in ("src", "dst")] == ["src", "dst"]
    assert [planned(registers=n).schedule.tile.registers for n in (16, 32, 64)] == [16, 32, 64]
    assert [planned(width=n).schedule.tile.lane_bits for n in (16, 32, 64, 128)] == [2, 3, 4, 4]
    assert [plan_prefetch_distance(planned(prefetch_distance=n)) for n in (0, 64, 4096)] == [0, 64, 4096]
    assert not planned(prefetch_distance=0).kernel.prefetches
    assert [planned(streams=yes).kernel.stores for yes in (False, True)] == ["cached", "streamed"]


def test_past_the_caches_costs_who_reads_next_only_where_the_caches_would_have_kept_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader_costs = {}
    for name, sizes in SIZES.items():
        monkeypatch.setattr(planning, "memory_model", lambda sizes=sizes: sizes)
        found = all_of(problem_of((1024, 1024)), sizes)
        reader_costs[name] = {c.plan.kernel.stores: c.reader_cost for c in found}
    assert reader_costs["memory"] == {"streamed": 0, "cached": 0}
    assert reader_costs["L3"]["cached"] == 0 < reader_costs["L3"]["streamed"]
    assert reader_costs["L2"] == {"cached": 0}, "nothing is stored past a cache of one's own"


def test_a_tile_that_no_table_describes_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    every = all_of(problem_of((64, 64)), SIZES["L2"])

    def planned(problem: Any, target: Any, choice: Choice) -> planning.ReorderPlan:
        if choice.traversal is not None:
            raise Unimplemented("the lanes of one register are too far apart")
        return planning.plan_reorder(problem, target, choice)

    monkeypatch.setattr(tuning, "plan_reorder", planned)
    rest = all_of(problem_of((64, 64)), SIZES["L2"])
    assert {c.choice for c in rest} == {c.choice for c in every if c.choice.traversal is None}


def test_fewer_threads_are_used_if_fewer_were_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available_threads", lambda: 4)
    used: list[int] = []
    monkeypatch.setattr(compiled, "run_parts", lambda task, src, dst, table, parts: used.append(parts))
    x, y = np.zeros((2, 2048, 2048), np.float32)
    for most in (2, 3, 4, 9, None):
        compile_problem(problem_of((2048, 2048)), Decision(Choice(threads=most))).run(x.ctypes.data, y.ctypes.data)
    assert used == [2, 3, 4, 4, 4]


def test_attributes_are_computed_the_same_by_every_candidate() -> None:
    sides = MemoryDesc((3, 40, 9), "s8", "abc"), MemoryDesc((3, 40, 9), "f32", "acb")
    case = Case(*sides, Attributes(src_scales=Scales(mask=2), sum=0.5), threads=3, streaming=True)
    for candidate in all_of(build_reorder_problem(*sides, case.attributes), MemoryModel(0, 0, 0)):
        with decided(candidate.choice):
            run_case(replace(case, seed=7))


def test_a_choice_holds_where_tensors_are_converted(sizes: MemoryModel) -> None:
    sides = pair((2, 48, 17, 9), "nchw", "nChw16c", "f32", "bf16")
    expected = check(*sides)
    for candidate in all_of(build_reorder_problem(*sides), sizes):
        with decided(candidate.choice):
            assert (check(*sides) == expected).all()
