"""Conversion from and to arrays: views if both sides support the strides, else copies with equal elements."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.memory import Memory, pack
from inlay.memory.frameworks import from_array, to_numpy
from inlay.testing import descriptors

IMAGE = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)


class TestFromArray:
    @pytest.mark.parametrize(
        ("view", "tag"),
        [
            (lambda a: a, "abcd"),
            (lambda a: a.transpose(0, 2, 3, 1), "adbc"),
            (lambda a: a.T, "dcba"),
            (lambda a: a[:1], "abcd"),
            (lambda a: a[:, 3:, :2], None),
            (lambda a: a[..., 1], None),
        ],
        ids=["rows", "moved", "columns", "first", "part", "gaps"],
    )
    def test_a_view_is_seen_not_copied(self, view: Callable[[Any], Any], tag: str | None) -> None:
        array = view(IMAGE.copy())
        memory = from_array(array)
        assert memory.desc.tag == tag
        assert np.array_equal(memory.unpack(), array)
        array[...] = 7
        assert (memory.unpack() == 7).all()
        assert np.shares_memory(memory.buffer, array)

    def test_channels_last_is_nhwc(self) -> None:
        last = np.zeros((2, 5, 4, 17), np.float32)
        assert from_array(last.transpose(0, 3, 1, 2)).desc == MemoryDesc((2, 17, 5, 4), "f32", "nhwc")

    @pytest.mark.parametrize("data_type", [t for t in DATA_TYPES.values() if not t.is_sub_byte], ids=str)
    def test_every_type_of_whole_bytes(self, data_type: Any) -> None:
        array = np.arange(6 * data_type.itemsize, dtype=np.uint8).view(data_type.dtype).reshape(2, 3)
        assert from_array(array).desc == MemoryDesc((2, 3), data_type)
        assert from_array(array).unpack().tobytes() == array.tobytes()

    def test_dlpack_is_taken(self) -> None:
        array = IMAGE.copy()

        class OnlyDLPack:
            __dlpack__, __dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        assert np.shares_memory(from_array(OnlyDLPack()).buffer, array)

    def test_the_array_lives_as_long_as_the_memory(self) -> None:
        memory = from_array(np.full(1000, 3, np.int32)[::2])
        gc.collect()
        assert (memory.unpack() == 3).all()

    def test_a_read_only_array_is_read_only_memory(self) -> None:
        array = IMAGE.copy()
        array.flags.writeable = False
        assert not from_array(array).is_writable
        assert not to_numpy(from_array(array)).flags.writeable

    def test_an_array_without_elements(self) -> None:
        assert from_array(np.zeros((0, 3), np.int8)).unpack().shape == (0, 3)


class TestToNumpy:
    @settings(max_examples=150)
    @given(descriptors(broadcast=True), st.integers(0, 9))
    def test_the_elements_are_those_of_unpack(self, desc: MemoryDesc, seed: int) -> None:
        memory = Memory(desc)
        memory.buffer[:] = np.random.default_rng(seed).integers(0, 256, memory.buffer.size, np.uint8)
        for copy in (None, True):
            array = to_numpy(memory, copy=copy)
            assert (array.shape, array.tobytes()) == (desc.dims, memory.unpack().tobytes())

    @settings(max_examples=150)
    @given(descriptors())
    def test_a_view_is_given_where_each_axis_has_one_stride(self, desc: MemoryDesc) -> None:
        memory = Memory(desc)
        plain = desc.data_type is not None and not desc.data_type.is_sub_byte
        plain = plain and all(len(digits) == 1 for digits, dim in zip(desc.digits, desc.dims, strict=True) if dim > 1)
        shared = to_numpy(memory)
        assert 0 in desc.dims or np.shares_memory(shared, memory.buffer) == plain
        assert not np.shares_memory(to_numpy(memory, copy=True), memory.buffer)

    def test_padding_and_offset_are_left_out(self) -> None:
        part = MemoryDesc((4, 6), "f32", strides=(10, 1), padded_dims=(5, 8)).submemory((2, 3), (1, 2))
        memory = Memory(part, np.arange(50, dtype=np.float32))
        assert to_numpy(memory).tolist() == [[12, 13, 14], [22, 23, 24]]

    def test_a_part_without_elements_may_start_anywhere(self) -> None:
        part = MemoryDesc((4, 6), "f16").submemory((0, 2), (4, 3))
        assert part.offset0 == 27
        assert to_numpy(Memory(part), copy=False).shape == (0, 2)

    def test_what_is_written_into_the_view_is_in_the_memory(self) -> None:
        memory = pack(IMAGE, "nhwc")
        to_numpy(memory)[1, 16, 4, 3] = -1
        assert memory.buffer.view(np.float32)[-1] == -1


def test_strides_that_onednn_refuses_are_wrapped_all_the_same() -> None:
    with pytest.raises(InvalidArguments):
        MemoryDesc((2, 3), "f32", strides=(-3, 1))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = from_array(array[::-1])
    assert (memory.desc.strides, memory.desc.kind) == ((-3, 1), "digits")
    array[1, 0] = 7
    assert memory.unpack()[0, 0] == 7
