"""Padding: nonzero lanes are found, zeros are written into padding only, and `map_padded` leaves it zero.

The oracle iterates over every coordinate of a tensor with `Layout.offset`, and reads and masks single elements.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Axis, Digit, Layout
from inlay.layout.axis import split_range
from inlay.memory import Memory, check_padding, map_padded, pack, reorder, zero_padding
from inlay.memory.padding import DirtyLane, PaddingReport, find_dirty, preserves_padding, zero_lanes
from inlay.testing import descriptors, layouts

SOME = settings(max_examples=150)
BLOCKED = MemoryDesc((1, 17, 2, 2), "f32", "nChw8c")
NIBBLES = MemoryDesc((5,), "s4", "A8a")
FREE = MemoryDesc((5, 3), "u8", pattern="(m m2 m4) (k k4) -> m k m4 k4 m2")
BACKWARD = MemoryDesc.from_layout(Layout((8, 2), (Axis(-8, (Digit(4, 2),)), Axis(1))), "s8", dims=(7, 2), offset0=8)
INSIDE_A_BLOCK = MemoryDesc((2, 16), "f32", "aB16b").submemory((2, 5), (0, 0))
LAST_PART = MemoryDesc((4, 20), "bf16", "aB16b").submemory((2, 4), (1, 16))


def lanes_of(desc: MemoryDesc) -> tuple[list[tuple[int, ...]], list[int]]:
    """The coordinates of padding in row-major order, and their offsets."""
    inside = np.ones(desc.padded_dims, bool)
    inside[tuple(slice(0, dim) for dim in desc.dims)] = False
    points = np.argwhere(inside)
    return [tuple(map(int, point)) for point in points], desc.offset(points).tolist()


def code_at(buffer: npt.NDArray[np.uint8], offset: int, kind: DataType) -> int:
    if kind.bits == 4:
        return int(buffer[offset // 2]) >> 4 * (offset % 2) & 15
    return int.from_bytes(buffer[offset * kind.itemsize : (offset + 1) * kind.itemsize].tobytes(), "little")


def is_zero(code: int, kind: DataType) -> bool:
    return code == 0 or (kind.kind == "float" and kind.name != "e8m0" and code == 1 << kind.bits - 1)


def typed(desc: MemoryDesc) -> DataType:
    assert desc.data_type is not None
    return desc.data_type


def noise(desc: MemoryDesc, seed: int, share: float = 0.5) -> Memory:
    """Memory of random bytes, some of them zero and some -0.0 of 8 bits."""
    memory = Memory(desc)
    random = np.random.default_rng(seed)
    memory.buffer[:] = random.choice([0, 0x80, 1, 0xFF], memory.buffer.size, p=[1 - share, share / 2, *[share / 4] * 2])
    return memory


class TestRuns:
    @SOME
    @given(layouts(), st.data())
    def test_every_coordinate_of_the_range_is_in_one_run_at_its_offset(self, layout: Layout, data: Any) -> None:
        for axis, dim in zip(layout.axes, layout.dims, strict=True):
            begin = data.draw(st.integers(0, dim))
            end = data.draw(st.integers(begin, dim))
            found = []
            for run in split_range(axis, begin, end):
                for values in product(*(range(step.extent) for step in run.digits)):
                    pairs = list(zip(values, run.digits, strict=True))
                    coordinate = run.start + sum(value * step.weight for value, step in pairs)
                    found.append((coordinate, run.offset + sum(value * step.stride for value, step in pairs)))
            assert sorted(found) == [(x, axis.offset(x)) for x in range(begin, end)]


class TestCheck:
    @SOME
    @given(descriptors(broadcast=True), st.integers(0, 99), st.sampled_from([0.0, 0.01, 0.5]))
    def test_the_dirty_lanes_are_those_that_are_not_zero(self, desc: MemoryDesc, seed: int, share: float) -> None:
        memory, kind = noise(desc, seed, share), typed(desc)
        coordinates, offsets = lanes_of(desc)
        expected = []
        for coordinate, offset in zip(coordinates, offsets, strict=True):
            code = code_at(memory.buffer, offset, kind)
            if not is_zero(code, kind):
                held = code.to_bytes(kind.itemsize, "little")
                expected.append(DirtyLane(coordinate, offset, offset * kind.bits // 8, held))
        report = check_padding(memory)
        assert report == PaddingReport(desc, len(coordinates), len(expected), tuple(expected[:8]))
        assert report.is_clean == (not expected)

    @pytest.mark.parametrize("desc", [FREE, BACKWARD, INSIDE_A_BLOCK, LAST_PART, NIBBLES], ids=str)
    def test_each_single_lane_is_found_and_no_other_element(self, desc: MemoryDesc) -> None:
        kind = typed(desc)
        coordinates, offsets = lanes_of(desc)
        padding = dict(zip(offsets, coordinates, strict=True))
        memory = Memory(desc)
        for offset in range(memory.buffer.size * 8 // kind.bits):
            memory.buffer[:] = 0
            start = offset * kind.bits // 8
            memory.buffer[start] = 0x10 if kind.bits == 4 and offset % 2 else 1
            found = [lane.coordinate for lane in check_padding(memory).first]
            assert found == ([padding[offset]] if offset in padding else [])

    def test_there_is_padding_in_the_examples(self) -> None:
        counts = [len(lanes_of(desc)[0]) for desc in (FREE, BACKWARD, INSIDE_A_BLOCK, LAST_PART, NIBBLES)]
        assert counts == [17, 2, 0, 24, 3]

    @pytest.mark.parametrize(
        ("data_type", "lane", "is_clean"),
        [
            *(
                ("f32", np.float32(value), is_clean)
                for value, is_clean in ((-0.0, True), (1e-45, False), (np.nan, False))
            ),
            *((name, np.uint8(0x80), False) for name in ("u8", "s8", "e8m0")),
        ],
    )
    def test_of_lanes_that_are_not_0_only_negative_zero_is_clean(
        self, data_type: str, lane: Any, is_clean: bool
    ) -> None:
        buffer = np.array([1, lane], lane.dtype)
        assert check_padding(Memory(MemoryDesc((1,), data_type, "A2a"), buffer.view(np.uint8))).is_clean is is_clean

    def test_only_so_many_lanes_are_named_but_all_are_counted(self) -> None:
        buffer = np.full(BLOCKED.size, 0xFF, np.uint8)
        report = find_dirty(BLOCKED, buffer, most=2)
        assert (report.lanes, report.dirty) == (28, 28)
        assert [lane.coordinate for lane in report.first] == [(0, 17, 0, 0), (0, 17, 0, 1)]

    def test_read_only_memory_is_checked(self) -> None:
        assert check_padding(Memory(MemoryDesc((3,), "u8", "A4a"), b"\1\2\3\4")).dirty == 1


class TestReport:
    @pytest.mark.parametrize(
        ("memory", "text"),
        [
            (Memory(MemoryDesc((2, 3), "f32", "ba")), "clean: MemoryDesc((2, 3), 'f32', 'ba') has no padding"),
            (
                Memory(MemoryDesc((2, 3), "f32", "aB4b"), np.zeros(8, np.float32)),
                "clean: all 2 padding lanes of MemoryDesc((2, 3), 'f32', 'aB4b') are zero",
            ),
            (
                Memory(MemoryDesc((2, 3), "f32", "AB4a4b"), np.repeat([0, 2.5], [14, 2]).astype(np.float32)),
                "2 of 10 padding lanes of MemoryDesc((2, 3), 'f32', 'AB4a4b') are not zero:\n"
                "    (3, 2)  beyond a >= 2          element 14  byte 56  holds 2.5 (00 00 20 40)\n"
                "    (3, 3)  beyond a >= 2, b >= 3  element 15  byte 60  holds 2.5 (00 00 20 40)",
            ),
            (
                Memory(MemoryDesc((3,), "s4", "A16a"), np.full(8, 0x1F, np.uint8)),
                "13 of 13 padding lanes of MemoryDesc((3,), 's4', 'A16a') are not zero:\n"
                "    (3,)   beyond a >= 3  element 3   byte 1  holds 1 (01)\n"
                "    (4,)   beyond a >= 3  element 4   byte 2  holds -1 (0f)\n"
                "    (5,)   beyond a >= 3  element 5   byte 2  holds 1 (01)\n"
                "    (6,)   beyond a >= 3  element 6   byte 3  holds -1 (0f)\n"
                "    (7,)   beyond a >= 3  element 7   byte 3  holds 1 (01)\n"
                "    (8,)   beyond a >= 3  element 8   byte 4  holds -1 (0f)\n"
                "    (9,)   beyond a >= 3  element 9   byte 4  holds 1 (01)\n"
                "    (10,)  beyond a >= 3  element 10  byte 5  holds -1 (0f)\n"
                "    ... and 5 more",
            ),
            (
                Memory(MemoryDesc((1,), "f4_e2m1", "A2a"), np.full(1, 0x7F, np.uint8)),
                "1 of 1 padding lanes of MemoryDesc((1,), 'f4_e2m1', 'A2a') are not zero:\n"
                "    (1,)  beyond a >= 1  element 1  byte 0  holds 6 (07)",
            ),
            (
                Memory(MemoryDesc((1,), "bf16", "A2a"), np.array([0, 0xFFFF], np.uint16).view(np.uint8)),
                "1 of 1 padding lanes of MemoryDesc((1,), 'bf16', 'A2a') are not zero:\n"
                "    (1,)  beyond a >= 1  element 1  byte 2  holds nan (ff ff)",
            ),
        ],
        ids=["none", "clean", "two axes", "nibbles", "f4", "nan"],
    )
    def test_a_report_reads(self, memory: Memory, text: str) -> None:
        assert str(check_padding(memory)) == text


class TestZero:
    @SOME
    @given(descriptors(), st.integers(0, 99))
    def test_padding_becomes_zero_and_every_other_bit_stays(self, desc: MemoryDesc, seed: int) -> None:
        memory, kind = noise(desc, seed, 1.0), typed(desc)
        expected = memory.buffer.copy()
        for offset in lanes_of(desc)[1]:
            if kind.bits == 4:
                expected[offset // 2] &= 0xF0 >> 4 * (offset % 2)
            else:
                expected[offset * kind.itemsize : (offset + 1) * kind.itemsize] = 0
        zero_padding(memory)
        assert memory.buffer.tobytes() == expected.tobytes()
        assert check_padding(memory).is_clean

    def test_negative_zero_becomes_zero(self) -> None:
        memory = Memory(MemoryDesc((1,), "f32", "A2a"), np.array([1, -0.0], np.float32))
        zero_padding(memory)
        assert memory.buffer.view(np.uint32).tolist() == [0x3F800000, 0]

    def test_a_repeated_axis_without_padding_is_left_alone(self) -> None:
        memory = Memory(MemoryDesc((2, 3), "u8", strides=(0, 1)), np.ones(3, np.uint8))
        zero_padding(memory)
        assert memory.buffer.tolist() == [1, 1, 1]


class TestPreserves:
    @pytest.mark.parametrize("name", ["f32", "f16", "bf16", "f64"])
    @pytest.mark.parametrize(
        ("f", "keeps"),
        [
            (np.tanh, True),
            (np.negative, True),
            (np.sqrt, True),
            (lambda x: np.maximum(x, 0), True),
            (lambda x: x, True),
            (np.exp, False),
            (np.cos, False),
            (np.log, False),
            (np.reciprocal, False),
            (lambda x: x / x, False),
            (lambda x: x + np.ones((), x.dtype), False),
        ],
        ids=["tanh", "neg", "sqrt", "relu", "same", "exp", "cos", "log", "reciprocal", "nan", "bias"],
    )
    def test_a_function_keeps_padding_if_it_makes_zero_of_zero(
        self, f: Callable[[Any], Any], keeps: bool, name: str
    ) -> None:
        assert preserves_padding(f, name) is keeps

    @pytest.mark.parametrize("data_type", DATA_TYPES.values(), ids=str)
    def test_every_type_can_be_asked(self, data_type: DataType) -> None:
        assert preserves_padding(lambda x: x.copy(), data_type)
        assert not preserves_padding(np.ones_like, data_type)

    @pytest.mark.parametrize(("value", "keeps"), [(0, True), (1, False)])
    def test_a_function_may_write_its_argument(self, value: int, keeps: bool) -> None:
        def fill(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
            x[...] = value
            return x

        assert preserves_padding(fill) is keeps


def plus_one(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return (x.astype(np.float64) + 1).astype(x.dtype)


def negated(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return (-x.astype(np.float64)).astype(x.dtype)


class TestMap:
    @SOME
    @given(
        descriptors(data_type="f32")
        | descriptors(data_type="s8")
        | descriptors(data_type="bf16")
        | descriptors(data_type="s4"),
        st.sampled_from([plus_one, negated]),
        st.integers(0, 99),
    )
    def test_elements_are_mapped_padding_is_zero_and_gaps_keep_every_bit(
        self, desc: MemoryDesc, f: Callable[[Any], Any], seed: int
    ) -> None:
        kind = typed(desc)
        values = np.random.default_rng(seed).integers(-4, 4, desc.dims).astype(np.int8).astype(kind.dtype)
        out = Memory(desc, np.full(Memory(desc).buffer.size, 0x5A, np.uint8))
        reorder(pack(values, desc), desc, out=out)
        before = out.buffer.copy()
        map_padded(f, out)
        assert out.unpack().tobytes() == f(values).tobytes()
        assert check_padding(out).is_clean
        stored = set(desc.offset(np.indices(desc.padded_dims).reshape(desc.ndims, -1).T).tolist())
        for offset in range(out.buffer.size * 8 // kind.bits):
            if offset not in stored:
                assert code_at(out.buffer, offset, kind) == code_at(before, offset, kind)

    def test_large_memory_is_mapped_in_parts(self) -> None:
        sizes = []

        def doubled(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
            sizes.append(x.size)
            return x * np.float32(2)

        values = np.arange(3 * 17 * 200 * 100, dtype=np.float32).reshape(3, 17, 200, 100)
        memory = pack(values, "nChw8c")
        map_padded(doubled, memory)
        assert np.array_equal(memory.unpack(), values * 2)
        assert (sum(sizes[2:]), max(sizes) <= 1 << 18) == (3 * 24 * 200 * 100, True)

    def test_zeros_of_padding_raise_no_warning_that_the_data_would_not(self) -> None:
        memory = pack(np.full((1, 17, 2, 2), np.e, np.float32), "nChw8c")
        map_padded(np.log, memory)
        assert np.allclose(memory.unpack(), 1)

    def test_a_warning_about_the_data_is_not_hidden(self) -> None:
        memory = pack(np.zeros(17, np.float32), "A8a")
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
            map_padded(np.log, memory)

    def test_dirty_padding_becomes_zero_where_the_function_does_not_run_over_it(self) -> None:
        memory = Memory(MemoryDesc((3,), "f32", "A4a"), np.array([0, 0, 0, 5], np.float32))
        map_padded(np.cos, memory)
        assert memory.buffer.view(np.float32).tolist() == [1, 1, 1, 0]

    def test_the_same_function_over_all_bytes_is_caught(self) -> None:
        memory = pack(np.ones((1, 17, 2, 2), np.float32), "nChw8c")
        elements = memory.buffer.view(np.float32)
        elements[:] = np.exp(elements)
        assert check_padding(memory).dirty == 28


@pytest.mark.parametrize("f", [lambda x: x[1:], lambda x: x.astype(np.float64), np.sum, lambda x: x - x.mean()])
def test_a_refused_function_changes_nothing(f: Callable[[Any], Any]) -> None:
    memory = pack(np.ones(3, np.float32), "A4a")
    with pytest.raises(InvalidArguments):
        map_padded(f, memory)
    assert memory.unpack().tolist() == [1, 1, 1]


def test_a_smaller_buffer_is_refused_before_anything_is_written() -> None:
    buffer = np.ones(383, np.uint8)
    with pytest.raises(InvalidArguments):
        zero_lanes(BLOCKED, buffer)
    assert buffer.all()
