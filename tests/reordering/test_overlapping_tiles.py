"""Last tiles that begin earlier and overlap the tile before them.

Every element is moved, no tile passes the end of a loop, elements that are written twice get the same value, and the
result equals that of a schedule with guards. Elements that must not be written twice are not.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.layout import Layout
from inlay.memory import Memory, Reorder
from inlay.memory.reorder_cache import find_reorder
from inlay.reordering import planning, threads
from inlay.reordering.attributes import PLAIN, Attributes, Scales, ZeroPoints, view_codes
from inlay.reordering.kernel import TableShape, build_table, table_shape
from inlay.reordering.loop_order import OuterLoop
from inlay.reordering.nest import build_loop_nest
from inlay.reordering.planning import ReorderPlan, may_overlap, plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.reference import reference_reorder
from inlay.reordering.schedule import find_schedule
from inlay.reordering.target import TARGETS
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import SOME, Flush, check, span_bytes
from tests.reordering.test_stages import first_value, is_small, moves_of, moves_of_nest, tile_indices
from tests.reordering.test_targets import (
    always_streaming,  # noqa: F401  fixtures
    narrow,  # noqa: F401  fixtures
)
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.guarded_buffers import GuardedBuffer

WIDE = TARGETS["x86-64-v4"]
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
BOTH = pytest.mark.parametrize(("dims", "src", "dst"), CASES, ids=lambda value: str(value).replace(" ", ""))


def plan_of(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> ReorderPlan:
    """Return the plan for registers of 64 bytes."""
    return plan_reorder(build_reorder_problem(src, dst, attributes), WIDE)


def pair_of(dims: tuple[int, ...], src: str, dst: str, types: tuple[str, str]) -> tuple[MemoryDesc, MemoryDesc]:
    """Return descriptors of two tags and two types."""
    return MemoryDesc(dims, types[0], src), MemoryDesc(dims, types[1], dst)


@SOME
@given(reorder_problems(large=True), st.sampled_from([16, 32, 64]))
def test_every_element_is_moved_and_no_tile_reaches_past_a_loop(
    pair: tuple[MemoryDesc, MemoryDesc], vector_bytes: int
) -> None:
    problem = build_reorder_problem(*pair)
    if is_small(problem):
        item = min(problem.src_type.itemsize, problem.dst_type.itemsize)
        plan = find_schedule(build_loop_nest(problem), item, vector_bytes, overlaps=True)
        indices = tile_indices(plan)
        for o in plan.outer:
            if o.back:
                assert {i[o.loop] for i in indices} == {*range(plan.nest.loops[o.loop].extent)}
        inside = [i for i in indices if all(i.get(k, 0) < lp.extent for k, lp in enumerate(plan.nest.loops))]
        assert sorted(set(moves_of_nest(plan.nest, inside)), key=lambda move: move[1]) == moves_of(*pair)
        guarded = plan.with_guards()
        inside = [
            i for i in tile_indices(guarded) if all(i.get(k, 0) < lp.extent for k, lp in enumerate(plan.nest.loops))
        ]
        assert moves_of_nest(guarded.nest, inside) == moves_of(*pair)


@BOTH
@pytest.mark.parametrize("types", TYPES, ids="-".join)
class TestBytes:
    @pytest.mark.parametrize("flush", ["upper", "lower"])
    def test_on_this_processor(
        self, dims: tuple[int, ...], src: str, dst: str, types: tuple[str, str], flush: Flush
    ) -> None:
        check(*pair_of(dims, src, dst, types), flush)

    @pytest.mark.usefixtures("always_streaming")
    def test_streaming_on_threads(self, dims: tuple[int, ...], src: str, dst: str, types: tuple[str, str]) -> None:
        check(*pair_of(dims, src, dst, types))

    @pytest.mark.usefixtures("narrow")
    def test_on_narrow_registers(self, dims: tuple[int, ...], src: str, dst: str, types: tuple[str, str]) -> None:
        check(*pair_of(dims, src, dst, types))

    def test_under_masks(
        self, dims: tuple[int, ...], src: str, dst: str, types: tuple[str, str], cutting: None
    ) -> None:
        check(*pair_of(dims, src, dst, types))


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable overlapping tiles."""
    monkeypatch.setattr(planning, "may_overlap", lambda problem: False)
    find_reorder.cache_clear()
    yield
    find_reorder.cache_clear()


@BOTH
def test_the_cases_overlap_and_have_no_masks_for_it(dims: tuple[int, ...], src: str, dst: str) -> None:
    plans = [plan_of(*pair_of(dims, src, dst, types)) for types in TYPES]
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
        check(MemoryDesc(dims, "f32", "ab"), MemoryDesc(dims, "f32", "ba"))
        check(MemoryDesc(dims, "u8", "ab"), MemoryDesc(dims, "f32", "ba"))


def test_the_last_run_begins_where_the_loop_ends() -> None:
    outer = OuterLoop(0, 4, 16, 11)
    assert [first_value(outer, run) for run in range(4)] == [0, 16, 32, 37]
    assert first_value(outer, 3) + outer.step == 53


def test_a_table_says_how_far_the_last_run_goes_back() -> None:
    src, dst = (MemoryDesc((53, 40), "f32", tag) for tag in ("ab", "ba"))
    problem = build_reorder_problem(src, dst)
    plan = find_schedule(build_loop_nest(problem), 4, 64, overlaps=True)
    assert [(o.extent, o.step, o.back) for o in plan.outer] == [(4, 16, 11), (3, 16, 8)]
    words = build_table(problem, plan).words
    shape = table_shape(16, 16, 0, None, overlaps=True)
    assert words[TableShape.INNERMOST :][:9].tolist() == [3, 64, 53 * 64, 0, 0, -32, -53 * 32, 0, 0]
    assert words[shape.loops :][:9].tolist() == [4, 40 * 64, 64, 0, 0, -40 * 44, -44, 0, 0]


@pytest.mark.parametrize(
    "attributes",
    [Attributes(sum=1.0), Attributes(sum=0.5, src_scales=Scales(0b10)), Attributes(rounding_mode="stochastic")],
)
def test_what_reads_the_destination_or_is_left_to_chance_is_done_once(attributes: Attributes) -> None:
    src, dst = MemoryDesc((65, 97), "f32", "ab"), MemoryDesc((65, 97), "bf16", "ba")
    assert may_overlap(build_reorder_problem(src, dst))
    assert not may_overlap(build_reorder_problem(src, dst, attributes))
    assert not plan_of(src, dst, attributes).schedule.overlaps


@pytest.mark.parametrize(("one", "other"), [("s4", "s4"), ("s4", "f32"), ("f32", "u4"), ("f4_e2m1", "bf16")])
def test_elements_that_share_bytes_are_written_once(one: str, other: str) -> None:
    src, dst = MemoryDesc((66, 98), one, "ab"), MemoryDesc((66, 98), other, "ba")
    assert not may_overlap(build_reorder_problem(src, dst))
    assert not plan_of(src, dst).schedule.overlaps


def test_a_last_tile_with_padding_behind_it_is_cut_off() -> None:
    plan = plan_of(MemoryDesc((17, 64), "f32", "ab"), MemoryDesc((17, 64), "f32", "Ab16a"))
    assert not plan.schedule.overlaps
    assert [(g.data, g.stored) for g in plan.schedule.nest.guards] == [(17, 32)]


def test_a_loop_longer_than_a_tile_is_not_cut_off() -> None:
    found = 0
    for rows in range(2, 40):
        plan = find_schedule(
            build_loop_nest(build_reorder_problem(*pair_of((rows, 64), "ab", "ba", ("f32", "f32")))),
            4,
            64,
            overlaps=True,
        )
        backs = {o.loop: o.back for o in plan.outer}
        for i, loop in enumerate(plan.nest.loops):
            step = plan.tile.covers(i)
            if loop.extent % step:
                assert backs.get(i, 0) == (-loop.extent % step if loop.extent > step else 0)
                assert bool(loop.guard_weights) == (loop.extent < step)
                found += loop.extent > step
    assert found > 20


@pytest.mark.usefixtures("always_streaming")
def test_stores_past_the_caches_are_worth_more_than_whole_tiles() -> None:
    """A last tile that begins within a cache line cannot use streaming stores."""
    rows_of_lines = MemoryDesc((64, 100), "f32", strides=(112, 1))
    plan = plan_of(MemoryDesc((64, 100), "f32", "ba"), rows_of_lines)
    assert (plan.kernel.stores, plan.schedule.overlaps) == ("streamed", False)
    rows_within = MemoryDesc((64, 100), "f32", strides=(101, 1))
    plan = plan_of(MemoryDesc((64, 100), "f32", "ba"), rows_within)
    assert (plan.kernel.stores, plan.schedule.overlaps) == ("cached", True)
    plan = plan_of(MemoryDesc((100, 64), "f32", "ba"), MemoryDesc((100, 64), "f32", "ab"))
    assert (plan.kernel.stores, plan.schedule.overlaps) == ("streamed", True)


@pytest.mark.parametrize("types", [("f32", "s8"), ("u8", "f32"), ("s32", "bf16")], ids="-".join)
@pytest.mark.parametrize("mask", [0b10, 0b100, 0b111])
def test_values_of_attributes_follow(types: tuple[str, str], mask: int) -> None:
    dims = (2, 70, 53)
    src, dst = pair_of(dims, "abc", "acb", types)
    is_float = [DATA_TYPES[name].kind == "float" for name in types]
    attributes = Attributes(
        src_scales=Scales(mask),
        src_zero_points=None if is_float[0] else ZeroPoints(mask),
        dst_zero_points=None if is_float[1] else ZeroPoints(mask),
    )
    assert plan_of(src, dst, attributes).schedule.overlaps
    values = values_for(attributes, dims, 3)
    source, result = (GuardedBuffer(span_bytes(desc), "upper", 4) for desc in (src, dst))
    source.bytes[:] = np.random.default_rng(1).integers(0, 256, source.bytes.size, np.uint8)
    expected = result.bytes.copy()
    reference_reorder(src, source.bytes, dst, expected, attributes, view_codes(values))
    Reorder(src, dst, attributes)(Memory(src, source.bytes), Memory(dst, result.bytes), **values)
    assert_same(dst, result.bytes, expected, any_nan=True)
    assert result.gap_is_untouched


@pytest.mark.usefixtures("always_streaming")
def test_a_destination_that_begins_within_a_line_gets_the_same_bytes() -> None:
    for start in (0, 4, 32, 60):
        src = MemoryDesc((100, 64), "f32", "ba")
        layout = MemoryDesc((100, 64), "f32", "ab").layout
        assert isinstance(layout, Layout)
        check(src, MemoryDesc.from_layout(layout, "f32", offset0=start // 4))


@pytest.mark.usefixtures("always_streaming")
def test_past_the_caches_little_is_written_again_unless_masks_take_longer_than_memory() -> None:
    def overlaps(columns: int, types: tuple[str, str]) -> bool:
        plan = plan_of(*pair_of((1024, columns), "ab", "ba", types))
        assert plan.kernel.stores == "streamed"
        return plan.schedule.overlaps

    assert overlaps(101, ("f32", "f32")), "11 of 101 rows"
    assert not overlaps(65, ("f32", "f32")), "15 of 65 rows"
    assert overlaps(65, ("u8", "u8"))


def test_the_share_that_is_written_again() -> None:
    src, dst = (MemoryDesc((53, 40), "f32", tag) for tag in ("ab", "ba"))
    plan = find_schedule(build_loop_nest(build_reorder_problem(src, dst)), 4, 64, overlaps=True)
    assert plan.rewritten == pytest.approx((64 / 53) * (48 / 40) - 1)
    assert plan.with_guards().rewritten == 0
