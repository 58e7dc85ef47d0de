"""Memory of unusual kinds and sources: lists of every type, tensors of narrow types, swizzles, padding of bools."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay.descriptor import MemoryDesc
from inlay.memory import UNDEFINED, ZERO, Filled, Memory, check_padding, fill_padding, pack
from inlay.memory.padding_contents import count_lanes

SWIZZLED = "Swizzle<3,3,3> o (8,64):(64,1)"


@pytest.mark.parametrize("data_type", ["s8", "u8", "s4", "u4", "bf16", "f8_e4m3", "f16", "s32"])
@pytest.mark.parametrize("values", [[300, -300, 7], [1.5, -2.5, 1e9, float("nan")], [0.5, 1.5]])
def test_lists_are_converted_like_arrays(values: list[Any], data_type: str) -> None:
    """Numbers of lists are rounded to even and saturate, as those of arrays."""
    packed, expected = pack(values, "a", data_type), pack(np.array(values), "a", data_type)
    assert packed.buffer.tobytes() == expected.buffer.tobytes()


def test_lists_of_types_that_no_reorder_converts_are_exact() -> None:
    """Integers must be exact; floats are rounded, and numbers are real where the type is."""
    assert pack([1, 65535], "a", "u16").unpack().tolist() == [1, 65535]
    assert pack([True, False], "a", "f32").unpack().tolist() == [1, 0]
    assert pack([0.1, 2], "a", "complex64").unpack().tolist() == [complex(np.float32(0.1)), 2]
    assert pack([2**63], "a", "f32").unpack().tolist() == [2.0**63]
    for values, data_type, text in (
        ([1, 65536], "u16", "array holds 65536, which u16 cannot hold: give other numbers"),
        ([1, 2], "bool", "array holds 2, which bool cannot hold: give other numbers"),
        ([1.5], "u32", "array holds 1.5, which u32 cannot hold: give other numbers"),
        ([1j], "f32", "array holds 1j, which f32 cannot hold: give other numbers"),
    ):
        with pytest.raises(inlay.InvalidArguments) as error:
            pack(values, "a", data_type)
        assert str(error.value) == text


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_narrow_types_are_packed(dtype: str) -> None:
    """Types that NumPy does not import by DLPack are read as bits; a tensor with gradients names the remedy."""
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24.0).reshape(4, 6).to(getattr(torch, dtype))
    expected = np.arange(24.0).reshape(4, 6).astype(getattr(ml_dtypes, dtype))
    assert np.array_equal(pack(tensor.T[::2], "aB8b").unpack(), expected.T[::2])
    assert np.array_equal(inlay.reorder(tensor, "ba").unpack(), expected)
    assert Memory(MemoryDesc((4, 6), expected.dtype), tensor).is_writable
    with pytest.raises(inlay.InvalidArguments, match=r"use tensor\.detach\(\)"):
        pack(torch.ones(2, dtype=torch.bfloat16, requires_grad=True), "a")


@pytest.mark.parametrize("data_type", ["f32", "bf16", "s4"])
def test_elements_of_swizzled_memory_have_indices(data_type: str) -> None:
    """An index of integers gives the element in a swizzled layout too; a slice names the remedy."""
    values = np.arange(512).reshape(8, 64) % 7
    memory = pack(values.astype(np.float32), SWIZZLED, data_type)
    for at in ((0, 0), (3, 17), (7, 63), (-1, 5)):
        assert float(memory[at]) == values[at]
    with pytest.raises(inlay.InvalidArguments, match="reorder to its format without the swizzle first"):
        memory[0]


def test_swizzled_memory_is_stored_as_one_axis() -> None:
    """`physical` has the elements in the order of the bytes, without the header; 4-bit elements as bytes."""
    desc = MemoryDesc((8, 64), "f32", SWIZZLED, offset0=64)
    memory = pack(np.arange(512, dtype=np.float32).reshape(8, 64), desc)
    stored = memory.physical()
    assert np.shares_memory(stored, memory.buffer)
    offsets = [desc.offset((i, j)) - 64 for i in range(8) for j in range(64)]
    assert np.array_equal(stored[offsets], np.arange(512))
    assert pack(np.ones((8, 64), np.int8), SWIZZLED, "s4").physical().size == 256


def test_padding_of_swizzled_memory_is_counted() -> None:
    """A wrapped buffer with padding states nothing about it, in swizzled memory as in others."""
    desc = MemoryDesc((5, 60), "f32", SWIZZLED)
    assert count_lanes(desc) == 8 * 64 - 5 * 60
    assert Memory(desc, np.ones(512, np.float32)).padding == UNDEFINED
    assert pack(np.ones((5, 60), np.float32), desc).padding == ZERO


def test_padding_of_bools_is_filled() -> None:
    """True is a number for padding."""
    memory = Memory(MemoryDesc((3,), "bool", "A4a"))
    fill_padding(memory, True)
    assert memory.padding == Filled(True)
    assert memory.buffer.tolist() == [0, 0, 0, 1]
    assert check_padding(memory, memory.padding).is_clean


def test_a_search_is_refused() -> None:
    """`in` would compare views, of which none is equal to a number."""
    with pytest.raises(TypeError):
        3.0 in pack(np.full((2, 2), 3.0), "ab")  # noqa: B015


def test_copy_is_a_flag_in_both_libraries() -> None:
    """`to_torch` refuses a `copy` that is no bool, as `to_numpy` does, and read-only memory where it may not copy."""
    pytest.importorskip("torch")
    from inlay.memory.frameworks import to_torch

    memory = pack(np.zeros((2, 3), np.float32), "ab")
    with pytest.raises(inlay.InvalidArguments, match="copy is 'no': give True or False"):
        to_torch(memory, copy="no")  # type: ignore[arg-type]
    read_only = Memory(memory.desc, bytes(24))
    assert to_torch(read_only).tolist() == memory.unpack().tolist()
    with pytest.raises(inlay.InvalidArguments, match="is read-only, which PyTorch does not support"):
        to_torch(read_only, copy=False)
