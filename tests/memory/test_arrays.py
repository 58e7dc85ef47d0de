"""Conversion from and to arrays: views if both sides support the strides, else copies with equal elements."""

import gc
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InlayError, InvalidArguments, MissingExtra
from inlay.memory import Memory, pack
from inlay.memory.frameworks import from_array, from_jax, from_torch, to_jax, to_numpy, to_torch
from inlay.testing import descriptors

IMAGE = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
BLOCKED = pack(IMAGE, "nChw8c")


class OnlyDLPack:
    """An array that gives nothing but DLPack."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


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
        assert np.shares_memory(from_array(OnlyDLPack(array)).buffer, array)

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

    def test_dlpack_goes_out(self) -> None:
        memory = pack(IMAGE, "nhwc")
        assert np.array_equal(np.from_dlpack(to_numpy(memory)), IMAGE)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "jax"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: from_torch(IMAGE), "from_torch needs torch, which is not installed: pip install torch"),
        (lambda: to_torch(BLOCKED), "to_torch needs torch, which is not installed: pip install torch"),
        (lambda: from_jax(IMAGE), "from_jax needs jax, which is not installed: pip install jax"),
        (lambda: to_jax(BLOCKED), "to_jax needs jax, which is not installed: pip install jax"),
    ],
    ids=["from_torch", "to_torch", "from_jax", "to_jax"],
)
def test_a_framework_that_is_not_installed_is_named_with_the_command(call: Callable[[], object], text: str) -> None:
    with pytest.raises(MissingExtra) as caught:
        call()
    assert str(caught.value) == text


MISTAKES: list[tuple[str, Callable[[], object], type[InlayError], str]] = [
    (
        "sub_byte",
        lambda: from_array(np.zeros(4, ml_dtypes.int4)),
        InvalidArguments,
        "array holds int4, one element in a byte, and s4 memory two: use inlay.pack",
    ),
    (
        "scalar",
        lambda: from_array(np.zeros((), np.float32)),
        InvalidArguments,
        "array is a scalar, which has no axes to place: give it one with reshape(1)",
    ),
    (
        "view_of_blocks",
        lambda: to_numpy(BLOCKED, copy=False),
        InvalidArguments,
        "MemoryDesc((2, 17, 5, 4), 'f32', 'nChw8c') has no plain strides, so no array can be a view of it: "
        "allow a copy, or reorder it to a plain format first",
    ),
    (
        "no_memory",
        lambda: to_numpy(IMAGE),  # type: ignore[arg-type]
        InvalidArguments,
        "memory is a ndarray: wrap it as Memory(desc, buffer), or use inlay.pack",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_says_rule_value_and_remedy(call: Callable[[], object], kind: type[InlayError], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == text


def test_strides_that_onednn_refuses_are_wrapped_all_the_same() -> None:
    with pytest.raises(InvalidArguments):
        MemoryDesc((2, 3), "f32", strides=(-3, 1))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = from_array(array[::-1])
    assert (memory.desc.strides, memory.desc.kind) == ((-3, 1), "digits")
    array[1, 0] = 7
    assert memory.unpack()[0, 0] == 7
