"""Last tiles that begin earlier and overlap the tile before them: elements written twice get the same value.

Elements that must not be written twice are not.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.layout import Layout
from inlay.memory import Memory, Reorder
from inlay.reordering import planning, threads
from inlay.reordering.attributes import PLAIN, Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.kernel import TableShape, build_table, table_shape
from inlay.reordering.loop_order import OuterLoop
from inlay.reordering.planning import ReorderPlan, may_overlap, plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.reference import reference_reorder
from inlay.reordering.target import TARGETS
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import SOME, check, span_bytes
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.guarded_buffers import GuardedBuffer
from tests.support.reorders import (
    Case,
    Pair,
    first_value,
    is_small,
    moves_of,
    moves_of_schedule,
    pair,
    problem_of,
    schedule_of,
    tile_indices,
)

CASES = [
    ((2, 70, 7, 9), "nhwc", "nchw"),
    ((2, 70, 7, 9), "nchw", "nhwc"),
    ((3, 66, 7, 7), "nChw16c", "nchw"),
    ((3, 96, 7, 7), "nchw", "nChw16c"),
    ((5, 40, 5, 5), "nChw4c", "nChw16c"),
    ((2, 101, 67), "abc", "acb"),
    ((130, 97), "ab", "ba"),
    ((131, 33, 2), "abc", "cba"),
    ((2, 24, 9, 9), "nhwc", "nchw"),
    ((2, 36, 5, 5), "aBcd12b", "abcd"),
    ((70, 75, 3, 3), "hwio", "oihw"),
]
TYPES = [("u8", "u8"), ("bf16", "bf16"), ("f32", "f32"), ("f64", "f64"), ("s8", "f32"), ("f32", "s8"), ("bf16", "f32")]
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_type = pytest.mark.parametrize("types", TYPES, ids="-".join)


def plan_of(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> ReorderPlan:
    """Return the plan for registers of 64 bytes."""
    return plan_reorder(build_reorder_problem(src, dst, attributes), TARGETS["x86-64-v4"])


@SOME
@given(reorder_problems(large=True), st.sampled_from([16, 32, 64]))
def test_every_element_is_moved_and_no_tile_reaches_past_a_loop(pair: Pair, vector_bytes: int) -> None:
    if is_small(pair):
        plan = schedule_of(pair, vector_bytes, overlaps=True)
        indices = tile_indices(plan)
        for o in plan.outer:
            if o.back:
                assert {i[o.loop] for i in indices} == {*range(plan.nest.loops[o.loop].extent)}
        assert sorted(set(moves_of_schedule(plan)), key=lambda move: move[1]) == moves_of(*pair)
        assert moves_of_schedule(plan.with_guards()) == moves_of(*pair)


@each_case
@each_type
@pytest.mark.usefixtures("each_machine")
def test_bytes_are_those_of_the_reference(case: Case, types: tuple[str, str]) -> None:
    check(*pair(*case, *types), "upper")
    check(*pair(*case, *types), "lower")


@each_case
@each_type
@pytest.mark.usefixtures("fresh_reorders")
def test_masks_write_the_same_bytes(case: Case, types: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "may_overlap", lambda problem: False)
    check(*pair(*case, *types))


@each_case
def test_the_cases_overlap_and_have_no_masks_for_it(case: Case) -> None:
    plans = [plan_of(*pair(*case, *types)) for types in TYPES]
    assert any(plan.schedule.overlaps for plan in plans)
    for plan in plans:
        assert plan.kernel.overlaps == plan.schedule.overlaps
        cut = plan.schedule.with_guards()
        assert len(cut.nest.guards) == len(plan.schedule.nest.guards) + sum(o.back > 0 for o in plan.schedule.outer)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_two_threads_may_write_the_same_bytes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_PART_BYTES", 1)
    monkeypatch.setattr(threads, "available_threads", lambda: count)
    for dims in ((70, 33), (33, 70), (17, 200)):
        check(*pair(dims))
        check(*pair(dims, src_type="u8", dst_type="f32"))


def test_the_last_run_begins_where_the_loop_ends() -> None:
    outer = OuterLoop(0, 4, 16, 11)
    assert [first_value(outer, run) for run in range(4)] == [0, 16, 32, 37]
    assert first_value(outer, 3) + outer.step == 53


def test_a_table_says_how_far_the_last_run_goes_back() -> None:
    plan = schedule_of(pair((53, 40)), overlaps=True)
    assert [(o.extent, o.step, o.back) for o in plan.outer] == [(4, 16, 11), (3, 16, 8)]
    words = build_table(problem_of((53, 40)), plan).words
    shape = table_shape(16, 16, 0, None, overlaps=True)
    assert words[TableShape.INNERMOST :][:9].tolist() == [3, 64, 53 * 64, 0, 0, -32, -53 * 32, 0, 0]
    assert words[shape.loops :][:9].tolist() == [4, 40 * 64, 64, 0, 0, -40 * 44, -44, 0, 0]
    assert plan.rewritten == pytest.approx((64 / 53) * (48 / 40) - 1)
    assert plan.with_guards().rewritten == 0


@pytest.mark.parametrize(
    "attributes",
    [Attributes(sum=1.0), Attributes(sum=0.5, src_scales=Scales(0b10)), Attributes(rounding_mode="stochastic")],
)
def test_what_reads_the_destination_or_is_left_to_chance_is_done_once(attributes: Attributes) -> None:
    sides = pair((65, 97), src_type="f32", dst_type="bf16")
    assert may_overlap(build_reorder_problem(*sides))
    assert not may_overlap(build_reorder_problem(*sides, attributes))
    assert not plan_of(*sides, attributes).schedule.overlaps


@pytest.mark.parametrize("types", [("s4", "s4"), ("s4", "f32"), ("f32", "u4"), ("f4_e2m1", "bf16")], ids="-".join)
def test_elements_that_share_bytes_are_written_once(types: tuple[str, str]) -> None:
    sides = pair((66, 98), "ab", "ba", *types)
    assert not may_overlap(build_reorder_problem(*sides))
    assert not plan_of(*sides).schedule.overlaps


def test_a_last_tile_with_padding_behind_it_is_cut_off() -> None:
    plan = plan_of(*pair((17, 64), "ab", "Ab16a"))
    assert not plan.schedule.overlaps
    assert [(g.data, g.stored) for g in plan.schedule.nest.guards] == [(17, 32)]


def test_a_loop_longer_than_a_tile_is_not_cut_off() -> None:
    found = 0
    for rows in range(2, 40):
        plan = schedule_of(pair((rows, 64)), overlaps=True)
        backs = {o.loop: o.back for o in plan.outer}
        for i, loop in enumerate(plan.nest.loops):
            step = plan.tile.covers(i)
            if loop.extent % step:
                assert backs.get(i, 0) == (-loop.extent % step if loop.extent > step else 0)
                assert bool(loop.guard_weights) == (loop.extent < step)
                found += loop.extent > step
    assert found > 20


@pytest.mark.usefixtures("always_streaming")
@pytest.mark.parametrize(
    ("dims", "strides", "stores", "overlaps"),
    [
        ((64, 100), (112, 1), "streamed", False),  # a last tile that begins within a cache line cannot stream
        ((64, 100), (101, 1), "cached", True),
        ((100, 64), (64, 1), "streamed", True),
    ],
)
def test_stores_past_the_caches_are_worth_more_than_whole_tiles(
    dims: tuple[int, int], strides: tuple[int, int], stores: str, overlaps: bool
) -> None:
    plan = plan_of(MemoryDesc(dims, "f32", "ba"), MemoryDesc(dims, "f32", strides=strides))
    assert (plan.kernel.stores, plan.schedule.overlaps) == (stores, overlaps)


@pytest.mark.parametrize("types", [("f32", "s8"), ("u8", "f32"), ("s32", "bf16")], ids="-".join)
@pytest.mark.parametrize("mask", [0b10, 0b100, 0b111])
def test_values_of_attributes_follow(types: tuple[str, str], mask: int) -> None:
    src, dst = pair((2, 70, 53), "abc", "acb", *types)
    points = [None if DATA_TYPES[name].kind == "float" else ZeroPoints(mask) for name in types]
    attributes = Attributes(src_scales=Scales(mask), src_zero_points=points[0], dst_zero_points=points[1])
    assert plan_of(src, dst, attributes).schedule.overlaps
    values = values_for(attributes, src.dims, 3)
    source, result = (GuardedBuffer(span_bytes(desc), "upper", 4) for desc in (src, dst))
    source.bytes[:] = np.random.default_rng(1).integers(0, 256, source.bytes.size, np.uint8)
    expected = result.bytes.copy()
    reference_reorder(src, source.bytes, dst, expected, attributes, view_codes(values))
    Reorder(src, dst, attributes)(Memory(src, source.bytes), Memory(dst, result.bytes), **values)
    assert_same(dst, result.bytes, expected, any_nan=True)
    assert result.gap_is_untouched


@pytest.mark.usefixtures("always_streaming")
@pytest.mark.parametrize("start", [0, 4, 32, 60])
def test_a_destination_that_begins_within_a_line_gets_the_same_bytes(start: int) -> None:
    layout = MemoryDesc((100, 64), "f32", "ab").layout
    assert isinstance(layout, Layout)
    check(MemoryDesc((100, 64), "f32", "ba"), MemoryDesc.from_layout(layout, "f32", offset0=start // 4))


@pytest.mark.usefixtures("always_streaming")
@pytest.mark.parametrize(
    ("columns", "data_type", "overlaps"),
    [(101, "f32", True), (65, "f32", False), (65, "u8", True)],
    ids=["11 of 101 rows", "15 of 65 rows", "bytes"],
)
def test_past_the_caches_little_is_written_again_unless_masks_take_longer_than_memory(
    columns: int, data_type: str, overlaps: bool
) -> None:
    plan = plan_of(*pair((1024, columns), src_type=data_type))
    assert (plan.kernel.stores, plan.schedule.overlaps) == ("streamed", overlaps)
