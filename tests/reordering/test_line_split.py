"""Reorders into memory that does not begin at a cache line: whole lines are streamed, the ends of rows are not."""

from itertools import chain, product
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.reordering import compiled
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.conversion import LINE
from inlay.reordering.line_split import split_at_lines
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from tests.reordering.test_reorder import Flush, check

SETTINGS = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
TYPES = (("f32", "f32"), ("u8", "u8"), ("f32", "bf16"), ("bf16", "f32"), ("f64", "f64"))
SHORTEST = 17 * LINE  # bytes of a row that has sixteen whole lines wherever it begins


@st.composite
def moves(draw: st.DrawFn) -> tuple[MemoryDesc, MemoryDesc]:
    """Return a plain source of any order of axes, and a row-major destination whose rows are whole lines apart."""
    types = draw(st.sampled_from(TYPES))
    dst = MemoryDesc((1,), types[1])
    assert dst.data_type is not None
    size = dst.data_type.itemsize
    others = draw(st.lists(st.integers(1, 5), max_size=2))
    row = draw(st.integers(SHORTEST // size, SHORTEST // size + 200))
    pitch = (-(-row * size // LINE) + draw(st.integers(0, 2))) * LINE // size
    strides = [pitch * prod(others[i + 1 :]) for i in range(len(others))]
    dims = (*others, row)
    order = draw(st.permutations("abc"[: len(dims)]))
    offset0 = draw(st.integers(0, 70))
    src = MemoryDesc(dims, types[0], "".join(order))
    return src, MemoryDesc(dims, types[1], strides=(*strides, 1), offset0=offset0)


def written(problem: ReorderProblem) -> list[int]:
    """Return the offset in bytes of each element that a problem writes."""
    coordinates = product(*(range(axis.stored) for axis in problem.axes))
    size = problem.dst_type.bits // 8
    return [
        size * (problem.dst_offset + sum(a.dst.offset(x) for a, x in zip(problem.axes, place, strict=True)))
        for place in coordinates
    ]


@SETTINGS
@given(moves(), st.integers(0, LINE - 1))
def test_each_element_belongs_to_one_part_and_the_middle_is_whole_lines(
    move: tuple[MemoryDesc, MemoryDesc], address: int
) -> None:
    problem = build_reorder_problem(*move)
    size = problem.dst_type.bits // 8
    address -= address % size
    split = split_at_lines(problem, (address + problem.dst_offset * size) % LINE)
    assert split is not None
    parts = [written(part) for part in (split.lines, *split.ends)]
    assert sorted(chain(*parts)) == sorted(written(problem))
    lines, begun = np.unique((np.array(parts[0]) + address) // LINE, return_counts=True)
    assert (begun == LINE // size).all()
    assert lines.size * LINE == len(parts[0]) * size


@pytest.mark.usefixtures("always_streaming")
@SETTINGS
@given(moves(), st.sampled_from(["upper", "lower"]))
def test_every_element_arrives(move: tuple[MemoryDesc, MemoryDesc], flush: Flush) -> None:
    check(*move, flush)


@pytest.mark.usefixtures("always_streaming")
def test_whole_lines_are_streamed_and_ends_are_not() -> None:
    problem = build_reorder_problem(MemoryDesc((512, 768), "f32", "ab"), MemoryDesc((512, 768), "f32", "ba"))
    reorder = compiled.compile_problem(problem, Decision(Choice(streams=True)))
    if reorder.unaligned is None:
        pytest.skip("the registers of this processor are shorter than a cache line")
    split = reorder.unaligned(16)
    assert isinstance(split, compiled.SplitReorder)
    assert [part.plan.streams for part in split.parts if part.plan] == [True, False, False]
    assert [part.problem.dims for part in split.parts] == [(496, 768), (12, 768), (4, 768)]
    assert reorder.unaligned(16) is split


@pytest.mark.parametrize(
    ("src", "dst", "reason"),
    [
        ("ab", "ba", "rows of 500 elements begin at several distances"),
        ("ab", "AB16b16a", "rows are cut into blocks"),
        ("ab", "ab", "rows of 24 elements are short"),
    ],
)
def test_other_reorders_are_not_split(src: str, dst: str, reason: str) -> None:
    dims = {"ab": (512, 24), "ba": (500, 24)}.get(dst, (512, 768))
    problem = build_reorder_problem(MemoryDesc(dims, "f32", src), MemoryDesc(dims, "f32", dst))
    assert split_at_lines(problem, 16) is None, reason


def test_a_distance_within_an_element_cannot_be_split() -> None:
    problem = build_reorder_problem(MemoryDesc((512, 768), "f32", "ab"), MemoryDesc((512, 768), "f32", "ba"))
    assert split_at_lines(problem, 18) is None
    assert split_at_lines(problem, 20) is not None
