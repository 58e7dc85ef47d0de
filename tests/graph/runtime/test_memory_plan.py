"""Memory planning: allocations that are live at once share no byte; byte runs are those of the layout."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.graph.runtime.arena import (
    Arena,
    LiveInterval,
    allocation_sizes,
    assign_offsets,
    byte_runs,
    find_live_intervals,
    locate_buffers,
)
from tests.support.graph_programs import zero_copy_concat


@st.composite
def intervals(draw: st.DrawFn) -> dict[str, LiveInterval]:
    count = draw(st.integers(0, 12))
    found = {}
    for i in range(count):
        first = draw(st.integers(-1, 8))
        found[str(i)] = LiveInterval(first, draw(st.integers(first, 9)), draw(st.integers(0, 300)))
    return found


@given(intervals())
def test_allocations_that_are_live_at_once_share_no_byte(intervals: dict[str, LiveInterval]) -> None:
    arena = assign_offsets(intervals)
    assert arena.offsets.keys() == intervals.keys()
    for step in range(-1, 10):
        taken: set[int] = set()
        for name, interval in intervals.items():
            if interval.first <= step <= interval.last:
                its = set(range(arena.offsets[name], arena.offsets[name] + interval.nbytes))
                assert not taken & its
                taken |= its
        assert len(taken) <= arena.needed
    assert all(offset % 64 == 0 for offset in arena.offsets.values())
    assert arena.needed <= arena.nbytes
    assert arena.nbytes == max((arena.offsets[h] + interval.nbytes for h, interval in intervals.items()), default=0)
    assert arena.unshared == sum(interval.nbytes for interval in intervals.values())
    assert arena.nbytes <= sum(-(-interval.nbytes // 64) * 64 for interval in intervals.values())


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_a_chain_takes_no_more_than_its_two_largest_neighbors(widths: list[int]) -> None:
    chain = {str(i): LiveInterval(i, i + 1, 64 * width) for i, width in enumerate(widths)}
    pairs = [a + b for a, b in zip(widths, [*widths[1:], 0], strict=True)]
    arena = assign_offsets(chain)
    assert arena.needed == 64 * max(pairs)
    assert arena.nbytes <= 64 * 3 * max(widths)
    if len(set(widths)) == 1:
        assert arena.nbytes == 64 * sum(widths[:2])


def test_an_arena_is_told_in_one_line() -> None:
    assert str(Arena({}, 5_200_000, 24_600_000, 4_800_000)) == (
        "arena 5.20 MB, 24.60 MB without reuse, at least 4.80 MB at one step"
    )


def test_slices_of_a_concatenation_live_as_long_as_the_whole() -> None:
    case = zero_copy_concat()
    locations = locate_buffers(case.program, case.graph.tensors)
    assert (locations["b"].allocation, locations["b"].offset, locations["b"].end) == ("c", 16 * 36, 48 * 36)
    found = find_live_intervals(case.program, locations, allocation_sizes(case.program, locations))
    assert found == {
        "x": LiveInterval(-1, 1, 4 * 36),
        "c": LiveInterval(0, 4, 48 * 36),
        "z16": LiveInterval(2, 3, 32 * 36),
        "z": LiveInterval(3, 5, 32 * 36),
        "y": LiveInterval(4, 5, 3 * 36),
    }


def offsets_by_brute_force(desc: MemoryDesc) -> set[int]:
    """Every byte of every coordinate of the padded tensor."""
    assert desc.data_type is not None
    width = desc.data_type.itemsize
    return {int(desc.offset(x)) * width + k for x in np.ndindex(*desc.padded_dims) for k in range(width)}


@pytest.mark.parametrize(
    "desc",
    [
        MemoryDesc((2, 17, 3, 2), "f32", "nChw16c"),
        MemoryDesc((2, 17, 3, 2), "bf16", "nhwc"),
        MemoryDesc((2, 17, 3, 2), "f32").submemory((1, 5, 2, 1), (1, 3, 1, 1)),
        MemoryDesc((2, 32, 3, 2), "f32", "nChw16c").submemory((2, 16, 3, 2), (0, 16, 0, 0)),
        MemoryDesc((2, 3, 4), "s8").rename_axes((2, 0, 1)),
        MemoryDesc((3, 1, 4), "f32", strides=(9, 7, 2)),
        MemoryDesc((3, 4), "f32", strides=(0, 1)),
        MemoryDesc((0, 4), "f32"),
        MemoryDesc((1,), "f64"),
    ],
    ids=repr,
)
def test_runs_are_the_bytes_of_all_coordinates(desc: MemoryDesc) -> None:
    starts, length = byte_runs(desc)
    assert {int(start) + k for start in starts for k in range(length)} == offsets_by_brute_force(desc)
    assert starts.tolist() == sorted(set(starts.tolist()))
