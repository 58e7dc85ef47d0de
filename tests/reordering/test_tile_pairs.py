"""Pairs of tiles that run one after the other because they write consecutive lines of the destination.

Only beyond the caches, if single lines would be scattered over many places.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.layout import Dims
from inlay.reordering import compile_reorder, loop_order
from inlay.reordering.loop_order import OuterLoop
from inlay.reordering.schedule import Schedule
from inlay.testing import reorder_problems
from tests.reordering.test_reorder import SOME, check
from tests.support.reorders import Pair, is_small, moves_of, moves_of_schedule, pair, schedule_of


def plan_of(pair: Pair) -> Schedule:
    """Return the schedule beyond the caches."""
    return schedule_of(pair, level="memory", overlaps=True)


def is_paired(plan: Schedule) -> bool:
    """Return whether the innermost loop runs over two tiles with consecutive lines."""
    return (
        plan.traversal == "src" and plan.outer[-1].extent == 2 and len({o.loop for o in plan.outer}) < len(plan.outer)
    )


@pytest.fixture
def few_places_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pair tiles however little is scattered."""
    monkeypatch.setattr(loop_order, "_MANY_PLACES", 0)
    monkeypatch.setattr(loop_order, "_FAR_APART", 0)


@pytest.mark.usefixtures("always_streaming")
@pytest.mark.parametrize(
    "sides",
    [
        pair((128, 1024)),
        pair((256, 1024), src_type="bf16"),
        pair((512, 1024), src_type="u8"),
        pair((64, 1040), src_type="f64"),
        pair((160, 1032)),
        pair((2, 256, 28, 28), "nchw", "nhwc", "bf16"),
        pair((2, 128, 30, 30), "nchw", "nhwc"),
        pair((1, 512, 32, 32), "nchw", "nhwc", "f32", "s8"),
        pair((64, 8, 4, 128), "abcd", "cdba"),
    ],
)
def test_bytes_are_those_of_the_reference(sides: Pair) -> None:
    assert is_paired(plan_of(sides))
    check(*sides, "lower")
    check(*sides, "upper")


@SOME
@pytest.mark.usefixtures("few_places_are_many")
@given(reorder_problems(large=True), st.sampled_from([16, 32, 64]))
def test_every_element_is_moved_once(pair: Pair, vector_bytes: int) -> None:
    if is_small(pair):
        assert moves_of_schedule(schedule_of(pair, vector_bytes, "memory")) == moves_of(*pair)


@pytest.mark.usefixtures("few_places_are_many")
@pytest.mark.parametrize("dims", [(64, 32), (32, 48), (16, 128)])
def test_every_element_of_a_small_transpose_is_moved_once(dims: Dims) -> None:
    plan = plan_of(pair(dims))
    assert is_paired(plan) == (dims[0] > 32), "two tiles of 16 rows that are all there are need no loop outside"
    assert moves_of_schedule(plan) == moves_of(*pair(dims))


def test_only_single_lines_that_are_scattered_widely_are_paired() -> None:
    def paired(dims: Dims, src: str, dst: str, data_type: str = "f32") -> bool:
        return is_paired(plan_of(pair(dims, src, dst, data_type)))

    assert paired((4096, 4096), "ab", "ba")
    assert not is_paired(schedule_of(pair((4096, 4096)), level="L3", overlaps=True))
    assert not is_paired(schedule_of(pair((4096, 4096)), level="L2", overlaps=True))
    assert paired((4, 512, 56, 56), "nchw", "nhwc", "u8")
    assert not paired((4, 256, 56, 56), "nchw", "nhwc", "u8"), "256 bytes from one pixel to the next"
    assert not paired((4, 256, 56, 56), "nhwc", "nchw", "u8"), "256 planes"
    assert not paired((4, 256, 56, 56), "nchw", "nChw16c"), "a tile writes 1024 bytes in a row"
    assert not paired((64, 512, 16, 64), "abcd", "acbd", "bf16"), "rows of 128 bytes"
    assert not paired((4080, 4096), "ab", "ba"), "255 tiles in a row"


def test_the_pair_is_innermost_and_half_as_many_steps_are_left() -> None:
    plan = plan_of(pair((4096, 2048)))
    rows, columns = (next(i for i, loop in enumerate(plan.nest.loops) if loop.dst == at) for at in (1, 4096))
    assert plan.outer == (OuterLoop(rows, 128, 32), OuterLoop(columns, 128, 16), OuterLoop(rows, 2, 16))
    assert plan.tiles == 4096 * 2048 // 256


@pytest.mark.usefixtures("always_streaming")
def test_explained() -> None:
    text = compile_reorder(*pair((64, 1024), src_type="f64")).explain("x86-64-v4")
    assert "\n  traverses src in memory order\n  around it: loop 0, 4 times, 16 values each\n" in text
    assert "times, 8 values each\n  around it: loop 0, 2 times, 8 values each\n  stores streamed\n" in text
