"""Pairs of tiles that run one after the other because they write consecutive lines of the destination.

Only beyond the caches, if single lines would be scattered over many places. Every element is moved once, and the result
equals the reference, on several threads too.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.reordering import compile_reorder, loop_order
from inlay.reordering.loop_order import Level, OuterLoop
from inlay.reordering.nest import build_loop_nest
from inlay.reordering.problem import build_reorder_problem
from inlay.reordering.schedule import Schedule, find_schedule
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import SOME, check
from tests.reordering.test_stages import is_small, moves_of, moves_of_nest, tile_indices, traffic_of
from tests.reordering.test_targets import always_streaming  # noqa: F401  a fixture

PAIRED = [
    ((128, 1024), "f32", "f32", "ab", "ba"),
    ((256, 1024), "bf16", "bf16", "ab", "ba"),
    ((512, 1024), "u8", "u8", "ab", "ba"),
    ((64, 1040), "f64", "f64", "ab", "ba"),
    ((160, 1032), "f32", "f32", "ab", "ba"),
    ((2, 256, 28, 28), "bf16", "bf16", "nchw", "nhwc"),
    ((2, 128, 30, 30), "f32", "f32", "nchw", "nhwc"),
    ((1, 512, 32, 32), "f32", "s8", "nchw", "nhwc"),
    ((64, 8, 4, 128), "f32", "f32", "abcd", "cdba"),
]
CASES = pytest.mark.parametrize(
    ("dims", "src_type", "dst_type", "src", "dst"), PAIRED, ids=lambda value: str(value).replace(" ", "")
)


def plan_of(src: MemoryDesc, dst: MemoryDesc, level: Level = "memory") -> Schedule:
    """Return the schedule for registers of 64 bytes."""
    problem = build_reorder_problem(src, dst)
    item = min(problem.src_type.itemsize, problem.dst_type.itemsize)
    converts = problem.src_type != problem.dst_type
    traffic = traffic_of(src, dst, level)
    return find_schedule(build_loop_nest(problem), item, 64, converts=converts, traffic=traffic, overlaps=True)


def is_paired(plan: Schedule) -> bool:
    """Return whether the innermost loop runs over two tiles with consecutive lines."""
    return (
        plan.traversal == "src" and plan.outer[-1].extent == 2 and len({o.loop for o in plan.outer}) < len(plan.outer)
    )


@CASES
@pytest.mark.usefixtures("always_streaming")
def test_bytes_are_those_of_the_reference(
    dims: tuple[int, ...], src_type: str, dst_type: str, src: str, dst: str
) -> None:
    pair = MemoryDesc(dims, src_type, src), MemoryDesc(dims, dst_type, dst)
    assert is_paired(plan_of(*pair))
    check(*pair, "lower")
    check(*pair, "upper")


@SOME
@given(reorder_problems(large=True), st.sampled_from([16, 32, 64]))
def test_every_element_is_moved_once(pair: tuple[MemoryDesc, MemoryDesc], vector_bytes: int) -> None:
    problem = build_reorder_problem(*pair)
    if not is_small(problem):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_order, "_MANY_PLACES", 0)
        patch.setattr(loop_order, "_FAR_APART", 0)
        item = min(problem.src_type.itemsize, problem.dst_type.itemsize)
        plan = find_schedule(build_loop_nest(problem), item, vector_bytes, traffic=traffic_of(*pair, "memory"))
    inside = [i for i in tile_indices(plan) if all(i.get(k, 0) < lp.extent for k, lp in enumerate(plan.nest.loops))]
    assert moves_of_nest(plan.nest, inside) == moves_of(*pair)


@pytest.mark.parametrize(("rows", "columns"), [(64, 32), (32, 48), (16, 128)])
def test_every_element_of_a_small_transpose_is_moved_once(
    rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_order, "_MANY_PLACES", 0)
    monkeypatch.setattr(loop_order, "_FAR_APART", 0)
    pair = MemoryDesc((rows, columns), "f32", "ab"), MemoryDesc((rows, columns), "f32", "ba")
    plan = plan_of(*pair)
    assert is_paired(plan) == (rows > 32), "two tiles of 16 rows that are all there are need no loop outside"
    assert moves_of_nest(plan.nest, tile_indices(plan)) == moves_of(*pair)


def test_only_single_lines_that_are_scattered_widely_are_paired() -> None:
    def paired(dims: tuple[int, ...], src: str, dst: str, data_type: str = "f32", level: Level = "memory") -> bool:
        return is_paired(plan_of(MemoryDesc(dims, data_type, src), MemoryDesc(dims, data_type, dst), level))

    assert paired((4096, 4096), "ab", "ba")
    assert not paired((4096, 4096), "ab", "ba", level="L3")
    assert not paired((4096, 4096), "ab", "ba", level="L2")
    assert paired((4, 512, 56, 56), "nchw", "nhwc", "u8")
    assert not paired((4, 256, 56, 56), "nchw", "nhwc", "u8"), "256 bytes from one pixel to the next"
    assert not paired((4, 256, 56, 56), "nhwc", "nchw", "u8"), "256 planes"
    assert not paired((4, 256, 56, 56), "nchw", "nChw16c"), "a tile writes 1024 bytes in a row"
    assert not paired((64, 512, 16, 64), "abcd", "acbd", "bf16"), "rows of 128 bytes"
    assert not paired((4080, 4096), "ab", "ba"), "255 tiles in a row"


def test_the_pair_is_innermost_and_half_as_many_steps_are_left() -> None:
    pair = MemoryDesc((4096, 2048), "f32", "ab"), MemoryDesc((4096, 2048), "f32", "ba")
    plan = plan_of(*pair)
    rows, columns = (next(i for i, loop in enumerate(plan.nest.loops) if loop.dst == at) for at in (1, 4096))
    assert plan.outer == (OuterLoop(rows, 128, 32), OuterLoop(columns, 128, 16), OuterLoop(rows, 2, 16))
    assert plan.tiles == 4096 * 2048 // 256


@pytest.mark.usefixtures("always_streaming")
def test_explained() -> None:
    text = compile_reorder(MemoryDesc((64, 1024), "f64", "ab"), MemoryDesc((64, 1024), "f64", "ba")).explain(
        "x86-64-v4"
    )
    assert "\n  traverses src in memory order\n  around it: loop 0, 4 times, 16 values each\n" in text
    assert "times, 8 values each\n  around it: loop 0, 2 times, 8 values each\n  stores streamed\n" in text
