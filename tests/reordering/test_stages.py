"""The stages of the compiler, each by its post-condition, and one complete explanation."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.machine import MemoryModel
from inlay.reordering import compile_reorder, planning
from inlay.reordering.kernel import TableShape, build_kernel, build_table
from inlay.reordering.loop_order import Level, OuterLoop, Traffic, has_few_streams, prefetch_distance
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.nest import Loop, LoopNest, build_loop_nest, join_contiguous_loops, split_odd_factor
from inlay.reordering.network import Deinterleave, Side
from inlay.reordering.planning import plan_reorder
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.target import TARGETS
from inlay.testing import reorder_problems
from tests.support.reorders import (
    Case,
    Pair,
    is_small,
    moves_of,
    moves_of_nest,
    moves_of_schedule,
    pair,
    problem_of,
    schedule_of,
)


def nest_of(dims: Dims, src: str, dst: str, data_type: str = "f32") -> LoopNest:
    return build_loop_nest(problem_of(dims, src, dst, data_type))


@given(reorder_problems())
def test_nest_moves_every_stored_coordinate_once(pair: Pair) -> None:
    if is_small(pair):
        assert moves_of_nest(build_loop_nest(build_reorder_problem(*pair))) == moves_of(*pair)


@given(reorder_problems(), st.sampled_from([16, 32, 64]))
def test_tiles_move_every_stored_coordinate_once_and_guards_stop_what_they_overrun(
    pair: Pair, vector_bytes: int
) -> None:
    if is_small(pair):
        assert moves_of_schedule(schedule_of(pair, vector_bytes)) == moves_of(*pair)


def test_a_run_joins_what_lies_in_a_row() -> None:
    joined = join_contiguous_loops(nest_of((32, 48, 3, 3), "oihw", "OIhw16i16o"), "src", 16)
    assert joined is not None
    run = joined.loops[-1]
    assert (run.extent, run.src) == (144, 1)
    assert run.dst == tuple((u // 9) * 16 + (u % 9) * 256 for u in range(144))
    assert join_contiguous_loops(nest_of((32, 48, 3, 3), "oihw", "oihw"), "src", 16) is None


def test_an_odd_digit_is_split_off_among_the_lanes() -> None:
    nest = nest_of((2, 24, 8, 8), "nhwc", "nchw", "u8")
    split = split_odd_factor(nest, "src", 64)
    assert split is not None
    changed, odd, below = split
    assert below == 8
    assert changed.loops[odd] == Loop(3, 8, 512)
    assert Loop(8, 1, 64) in changed.loops
    assert split_odd_factor(nest, "src", 8) is None
    assert split_odd_factor(nest, "dst", 64) is None


@pytest.mark.parametrize(
    ("rows", "registers"),
    [(271, 8), (17, 1)],
    ids=["33 of 34 tiles are whole", "of two rows of tiles one would be cut off"],
)
def test_tiles_grow_along_loops_that_are_cut_off_if_few_tiles_are(rows: int, registers: int) -> None:
    assert schedule_of(pair((rows, 240), "ab", "BA16a16b")).tile.registers == registers


def test_odd_digits_in_a_row_are_one() -> None:
    split = split_odd_factor(nest_of((32, 48, 3, 3), "oihw", "Owhi16o", "s8"), "src", 16)
    assert split is not None
    changed, odd, below = split
    found = changed.loops[odd]
    assert (below, found.extent, found.src) == (1, 9, 1)
    assert found.dst == tuple(w * 3 * 48 * 16 + h * 48 * 16 for h in range(3) for w in range(3))
    assert split_odd_factor(nest_of((32, 48, 3, 3), "Owhi16o", "oihw", "s8"), "src", 16) is None


def test_odd_digits_in_a_row_that_are_too_many_stay_apart() -> None:
    split = split_odd_factor(nest_of((32, 48, 7, 7), "oihw", "Owhi16o", "s8"), "src", 16)
    assert split is not None
    assert split[0].loops[split[1]] == Loop(7, 1, 7 * 48 * 16)


def test_three_channels_are_dealt_out_to_three_registers() -> None:
    tile = schedule_of(pair((1, 3, 64, 64), "nhwc", "nchw", "u8")).tile
    assert tile.odd is not None
    assert tile.odd.deinterleave == Deinterleave("src", 3, 0)
    assert tile.registers == 3 << tile.register_bits
    assert tile.network.steps == ()


def test_a_digit_that_would_make_code_of_hundreds_of_registers_stays_a_loop() -> None:
    # 3 x 3 x 3 values of 16 output channels: 27 x 16 registers.
    tile = schedule_of(pair((64, 64, 3, 3, 3), "oidhw", "OIdhw16i16o2i", "f32", "bf16")).tile
    assert tile.odd is None
    assert tile.registers <= 64


@pytest.mark.parametrize(
    "pairs",
    [
        [pair(dims, "nchw", "nChw16c") for dims in ((2, 32, 16, 16), (5, 64, 8, 32), (1, 16, 48, 1))],
        [pair((64, 64), src_type=name) for name in ("f16", "bf16")],
    ],
    ids=["shapes", "types of one width"],
)
def test_one_kernel_is_shared(pairs: list[Pair]) -> None:
    kernels = {build_kernel(build_reorder_problem(*pair), schedule_of(pair), stores="cached") for pair in pairs}
    assert len(kernels) == 1


def test_table_holds_bytes() -> None:
    table = build_table(problem_of((64, 64)), schedule_of(pair((64, 64))))
    assert table.tiles == 16
    assert sorted(table.dst_offsets.ravel()) == [256 * r for r in range(16)]
    assert table.words[TableShape.INNERMOST :][:3].tolist() == [4, 64, 4096]


def test_explanation() -> None:
    text = compile_reorder(*pair((2, 17, 5, 4), "nchw", "nChw8c")).explain()
    assert text.startswith(
        """\
problem
f32 -> f32
  axis 0: 2   (2,340)  ->  (2,480)
  axis 1: 17 + 7 zeros   (24,20)  ->  (3,160) (8,1)
  axis 2: 5   (5,4)  ->  (5,32)
  axis 3: 4   (4,1)  ->  (4,8)
loops
  loop 0: 2 times, src stride 340, dst stride 480
  loop 1: 3 times, src stride 160, dst stride 160, 8 of guard 0
  loop 2: 8 times, src stride 20, dst stride 1, 1 of guard 0
  loop 3: 4 times, src stride 1, dst stride 8
  loop 4: 5 times, src stride 4, dst stride 32
  guard 0: read below 17, write below 24
schedule
"""
    )
    assert "\n  stores cached\n  decided by the model\nnetwork\n" in text
    assert text.endswith("bound by the call")


def test_nothing_to_move_is_explained() -> None:
    desc = MemoryDesc((2, 0), "f32", "ab")
    assert compile_reorder(desc, desc).explain().endswith("nothing to move")


def walk_of(
    dims: Dims,
    data_type: str,
    src: str,
    dst: str,
    level: Level = "memory",
    to_type: str = "",
    overlaps: bool = False,
) -> tuple[Side, int]:
    """Return the traversed side and the prefetch distance."""
    sides = pair(dims, src, dst, data_type, to_type)
    problem, plan = build_reorder_problem(*sides), schedule_of(sides, level=level, overlaps=overlaps)
    traffic = Traffic(problem.src_type.bits, problem.dst_type.bits, level)
    return plan.traversal, prefetch_distance(plan.nest.loops, plan.outer, plan.traversal, traffic)


def test_the_side_that_scatters_least_is_walked() -> None:
    tiles = 64 * 64
    assert walk_of((4, 64, 56, 56), "f32", "nhwc", "nchw") == ("dst", 4 * tiles), "64 planes, four tiles of 16 pixels"
    assert walk_of((4, 64, 56, 56), "f32", "nhwc", "nchw", "L3") == ("dst", 2 * tiles)
    assert walk_of((4, 80, 56, 56), "f32", "nhwc", "nchw")[0] == "src", "80 planes: one line of five at a time"
    assert walk_of((4, 256, 56, 56), "u8", "nchw", "nhwc") == ("src", 256)
    assert walk_of((4096, 4096), "f32", "ab", "ba") == ("src", 256), "256 KiB to the next rows"


@pytest.mark.parametrize(
    ("case", "registers"),
    [
        (((37, 16, 32, 26, 32), "abcde", "cdeba"), 64),  # 37 tiles lie between the two lines of a row of the source
        (((16, 64, 32, 16, 40), "abcde", "cdeba"), 16),  # two tiles
        (((5120, 2048), "ab", "ba"), 16),  # none
    ],
)
def test_large_tiles_read_on_in_a_page_of_the_source_at_once(case: Case, registers: int) -> None:
    plan = plan_reorder(problem_of(*case), TARGETS["x86-64-v4"])
    assert plan.streams
    assert plan.schedule.tile.registers == registers


def test_lines_are_fetched_from_where_a_later_tile_reads() -> None:
    assert walk_of((4, 256, 56, 56), "u8", "nhwc", "nchw") == ("src", 32768), "a round is one tile's 64 rows: two"
    assert walk_of((4, 1024, 56, 56), "f32", "nhwc", "nchw") == ("src", 131072), "64 pairs of tiles in 32 rows"
    assert walk_of((4, 4096, 56, 56), "f32", "nhwc", "nchw") == ("src", 256), "a round of 256 KiB is too far off"
    assert walk_of((4, 64, 14, 14), "f32", "nchw", "nChw16c") == ("src", 37632), "16 planes of 784 bytes, three times"
    assert walk_of((4, 64, 14, 14), "f32", "nchw", "nChw16c", "L3") == ("src", 256)
    assert walk_of((2736, 2736, 3, 3), "s8", "oihw", "OIhw4i16o4i") == ("src", 1152), "a tile reads 576 bytes in a row"
    assert walk_of((4, 64, 56, 56), "u8", "nhwc", "nchw") == ("src", 8192), "a tile reads 4096"
    assert walk_of((64, 512, 16, 64), "bf16", "abcd", "acbd") == ("src", 1024), "rows that follow one another are one"


def test_fewer_places_are_too_many_beyond_the_caches_and_any_within_the_shared_one() -> None:
    levels: tuple[Level, ...] = get_args(Level)
    volumes = (4, 64, 31, 32, 16), "f32", "ndhwc", "ncdhw"
    assert [walk_of(*volumes, level)[0] for level in levels] == ["src", "dst", "dst"]
    heads = (64, 128, 16, 64), "bf16", "abcd", "acbd"
    assert [walk_of(*heads, level)[0] for level in levels] == ["src", "dst", "src"], "16 rows of 128 bytes"
    depthwise = (1 << 20, 1, 1, 3, 3), "s8", "hwigo", "Goihw16g"
    sides = [walk_of(*depthwise, level, overlaps=True)[0] for level in levels]
    assert sides == ["src", "dst", "dst"], "blocks of 144 bytes, of which a tile has 64"
    assert walk_of((1 << 20, 1, 1, 4, 4), *depthwise[1:], overlaps=True)[0] == "src", "blocks of four lines"


def test_steps_are_counted_in_the_bytes_of_the_source() -> None:
    dims = 6080, 2368
    assert walk_of(dims, "bf16", "ab", "BA16a32b2a", "L3")[0] == "dst", "4 rows of 4736 bytes"
    assert walk_of(dims, "f32", "ab", "BA16a32b2a", "L3", to_type="bf16")[0] == "src", "4 rows of 9472 bytes"


def test_a_tile_of_few_bits_is_not_small_if_its_digit_is_long() -> None:
    plan = schedule_of(pair((64, 64, 3, 3), "nchw", "nhwc"), level="memory")
    assert plan.tile.odd is not None
    assert plan.outer == (OuterLoop(0, 64, 1), OuterLoop(1, 4, 16)), "images one after another, channels inside"


def test_lines_that_two_tiles_share_are_read_once() -> None:
    assert walk_of((64, 36, 36, 3, 3), "s8", "hwigo", "gOIhw4o4i") == ("dst", 256), "16 bytes of each line at a time"
    assert walk_of((1 << 18, 80), "f32", "ab", "ba", "L3")[0] == "dst", "rows of five lines"
    assert walk_of((1 << 18, 65), "f32", "ab", "ba", "L3")[0] == "src", "rows that begin within a line"
    assert walk_of((300, 512, 101), "f32", "abc", "acb", "L3")[0] == "dst", "they do, but stay in the cache until then"


def test_a_short_loop_is_no_reason_to_walk_the_destination() -> None:
    assert walk_of((32 * 64, 32 * 64, 3, 3), "s8", "hwio", "OIhw4i16o4i")[0] == "src", "3 rows of a kernel"


@pytest.mark.parametrize(("n", "fetches"), [(256, False), (1024, True)])
def test_only_what_exceeds_a_cache_of_ones_own_is_fetched_ahead(n: int, fetches: bool) -> None:
    plan = compile_reorder(*pair((n, n))).plan
    assert plan is not None
    assert plan.kernel.prefetches == fetches == (8 * n * n > memory_model().l2)


IMAGES = 2, 256, 56, 56


@pytest.mark.parametrize(
    ("sides", "fetches"),
    [
        (pair(IMAGES, "nchw", "nChw16c"), False),
        (pair(IMAGES, "nChw16c", "nchw"), False),
        (pair((3, 256, 56, 56), "nchw", "nchw", "f32", "bf16"), False),
        (pair((4, 256, 56, 56), "nchw", "nhwc", "f32", "s8"), True),
        (pair(IMAGES, "nchw", "nhwc"), True),
        (pair((2048, 1024)), True),
    ],
)
def test_streams_of_a_shared_cache_are_left_to_the_processor(
    sides: Pair, fetches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second, last, expected in ((1 << 20, 1 << 25, fetches), (1 << 16, 1 << 20, True)):
        monkeypatch.setattr(planning, "memory_model", lambda sizes=(second, last, last): MemoryModel(*sizes))
        assert plan_reorder(build_reorder_problem(*sides), TARGETS["x86-64-v4"]).kernel.prefetches == expected


def test_a_side_goes_in_streams_if_each_tile_goes_on_where_the_last_one_ended() -> None:
    rows = 1 << 12
    assert has_few_streams(range(0, 32 * rows, rows), 64, 64)
    assert not has_few_streams(range(0, 33 * rows, rows), 64, 64), "more than a processor follows"
    assert not has_few_streams(range(0, 16 * rows, rows), 64, 65), "a byte is left out"
    assert has_few_streams(range(0, 16 * rows, rows), 32, -32), "backwards"
    assert has_few_streams(range(0, 512, 32), 32, 512), "all of a tile follow one another"
    assert has_few_streams((0, 0), 64, (0, 64, 128))
    assert not has_few_streams((0,), 64, (0, 64, 192))


def test_a_table_innermost_is_fetched_along_the_source() -> None:
    loops = (Loop(3, (0, 5, 7), (0, 9, 4)),)
    assert prefetch_distance(loops, (OuterLoop(0, 3, 1),), "dst", Traffic(32, 32)) == 256
