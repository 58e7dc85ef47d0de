"""Boxes: each element is in one box, and the runs of a box hold its elements."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory, pack
from inlay.storage import convert, cutting, open_memories, plan, save_memories
from inlay.storage.box import Box, box_at, count_boxes, iterate_boxes, whole_box
from inlay.storage.box_bytes import locate_box, require_place
from inlay.storage.cutting import cut_extents
from tests.support.refusals import raises_exactly

CASES = [
    ((999, 7), "ab", "ba", "bf16"),
    ((999, 7), "ba", "ab", "f32"),
    ((2, 999, 5), "bca", "aBc16b", "f16"),
    ((77, 33, 4), "ABc16b4a", "bAc8a", "f32"),
    ((50, 33), "aB16b", "aB8b", "f64"),
    ((50, 33), "aB12b", "aB8b", "f32"),
    ((1, 300, 3), "abc", "abc", "bf16"),
    ((4099,), "a", "A64a", "f16"),
    ((30, 64), "ab", "ba", "s4"),
]


def numbers(dims: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    return np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims).astype(dtype)


def elements(desc: MemoryDesc, data: npt.NDArray[np.uint8], box: Box) -> npt.NDArray[Any]:
    """The elements of a box, collected run by run."""
    place = locate_box(desc, box)
    assert place is not None
    runs = [data[offset : offset + place.run_nbytes] for offset in place.offsets()]
    return Memory(place.desc, np.concatenate(runs).copy()).unpack()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4))
def test_boxes_cover_each_element_once(axes: list[tuple[int, int]]) -> None:
    dims, extents = (tuple(values) for values in zip(*axes, strict=True))
    covered = np.zeros(dims, int)
    boxes = list(iterate_boxes(dims, extents))
    for box in boxes:
        covered[box.slices] += 1
    assert (covered == 1).all()
    assert len(boxes) == count_boxes(dims, extents)
    assert [box_at(dims, extents, i) for i in range(len(boxes))] == boxes


@pytest.mark.parametrize("limit", [1 << 9, 1 << 12, 1 << 30])
@pytest.mark.parametrize(("dims", "src", "dst", "data_type"), CASES)
def test_cut_boxes_exist_in_both_layouts_and_keep_the_limit(
    dims: tuple[int, ...], src: str, dst: str, data_type: str, limit: int
) -> None:
    source = MemoryDesc(dims, "s4" if data_type == "s4" else "f32", src)
    result = MemoryDesc(dims, data_type, dst)
    try:
        extents = cut_extents(source, result, limit)
    except InvalidArguments:
        assert limit < 1 << 12
        return
    for box in iterate_boxes(dims, extents):
        places = [locate_box(desc, box) for desc in (source, result)]
        assert sum(place.nbytes for place in places if place is not None) <= limit
        assert None not in places


@pytest.mark.parametrize(("dims", "src", "dst", "data_type"), CASES[:-1])
def test_the_runs_of_a_box_hold_its_elements(dims: tuple[int, ...], src: str, dst: str, data_type: str) -> None:
    values = numbers(dims)
    for tag in (src, dst):
        memory = pack(values, tag)
        data = memory.buffer.reshape(-1).view(np.uint8)
        for box in iterate_boxes(dims, cut_extents(memory.desc, memory.desc, 2048)):
            assert np.array_equal(elements(memory.desc, data, box), values[box.slices])


def test_runs_of_two_boxes_do_not_meet_and_cover_all_padding() -> None:
    desc = MemoryDesc((50, 100), "f32", "AB16b4a2b")
    covered = np.zeros(desc.size, int)
    for box in iterate_boxes(desc.dims, (16, 64)):
        place = locate_box(desc, box)
        assert place is not None
        for offset in place.offsets():
            covered[offset : offset + place.run_nbytes] += 1
    assert (covered == 1).all()


def test_a_box_across_blocks_does_not_exist() -> None:
    desc = MemoryDesc((2, 24), "f32", "aB8b")
    assert locate_box(desc, Box((0, 4), (2, 12))) is None
    assert locate_box(desc, Box((0, 4), (2, 8))) is not None


def test_overlapping_elements_are_one_box() -> None:
    desc = MemoryDesc((4, 8), "f32", strides=(0, 1))
    place = locate_box(desc, whole_box((4, 8)))
    assert place is not None
    assert (place.desc, place.count, place.run_nbytes) == (desc, 1, 32)
    assert cut_extents(desc, MemoryDesc((4, 8), "f32", "ab"), 1 << 20) == (4, 8)


def test_a_box_larger_than_memory_is_refused() -> None:
    src, dst = MemoryDesc((4, 1000), "f32", strides=(0, 1)), MemoryDesc((4, 1000), "f32", "ab")
    with raises_exactly(
        InvalidArguments,
        f"a box (4, 1000) of a tensor (4, 1000) takes 32000 bytes in {src} and {dst}, and 1000 are allowed: allow more "
        "(--memory)",
    ):
        cut_extents(src, dst, 1000)


@pytest.mark.parametrize(("dims", "src", "dst", "data_type"), CASES[:-1])
def test_boxes_are_the_whole(
    dims: tuple[int, ...], src: str, dst: str, data_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
    save_memories("a.safetensors", {"t": pack(values, src)})
    monkeypatch.setattr(cutting, "BOX_NBYTES", 1000)
    monkeypatch.setattr(cutting, "RUN_NBYTES", 16)
    cutting.cut_extents.cache_clear()
    planned = plan("a.safetensors", "b.safetensors", [dst], data_type=data_type)
    assert planned.count > 2
    convert(planned)
    cutting.cut_extents.cache_clear()
    expected = pack(values.astype(planned.tensors[0].new.desc.data_type.dtype), dst)  # type: ignore[union-attr]
    result = open_memories("b.safetensors")["t"]
    assert result.desc == planned.tensors[0].new.desc
    assert result.buffer[: expected.desc.size].tobytes() == expected.buffer[: expected.desc.size].tobytes()


BLOCKED = ["ab", "ba", "aB16b", "AB4b2a", "(a a4 a3) (b b4) -> a b a3 b4 a4", "(a a2 a3 a5) b -> a a5 b a2 a3"]


@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.sampled_from(BLOCKED),
    st.sampled_from(BLOCKED),
    st.sampled_from([600, 3000, 1 << 20]),
)
def test_cut_boxes_exist_with_the_padding_at_their_end(dims: tuple[int, int], src: str, dst: str, limit: int) -> None:
    sides = MemoryDesc(dims, "f32", src), MemoryDesc(dims, "f32", dst)
    try:
        extents = cut_extents(*sides, limit)
    except InvalidArguments:
        return
    for box in iterate_boxes(dims, extents):
        assert [locate_box(desc, box) is None for desc in sides] == [False, False]


def test_runs_are_long_where_blocks_of_the_outer_axis_are_innermost() -> None:
    """Growing the inner axes first would leave runs of two elements in blocks of 16."""
    src, dst = (MemoryDesc((100, 1000, 1000), "f32", tag) for tag in ("abc", "Abc16a"))
    extents = cut_extents(src, dst, 64_000_000)
    assert all(require_place(desc, Box((0, 0, 0), extents)).run_nbytes >= 1 << 16 for desc in (src, dst))
