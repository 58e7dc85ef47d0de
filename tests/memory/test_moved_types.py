"""Types without conversions (bool, other integers, complex numbers) are copied bit for bit, in formats and files."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import InlayError, InvalidArguments, Memory, MemoryDesc, Unimplemented
from inlay.cli import main
from inlay.memory.frameworks import from_array, to_numpy
from inlay.storage import open_memories, save_memories
from tests.support.bit_patterns import random_bits, same_bits
from tests.support.refusals import raises_exactly

DTYPES = ("bool", "int16", "uint16", "uint32", "uint64", "complex64", "complex128")
TAGS = ("abcd", "nhwc", "nChw8c", "ABcd4b16a4b", "dcba", "aBcd3b")


each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@given(st.sampled_from(DTYPES), st.sampled_from(TAGS), st.sampled_from(TAGS), st.integers(0, 99))
def test_elements_move_bit_for_bit(dtype: str, first: str, second: str, seed: int) -> None:
    dims = tuple(int(n) for n in np.random.default_rng(seed).integers(1, 20, 4))
    array = random_bits(dims, dtype, seed)
    packed = inlay.pack(array, first)
    offsets = packed.desc.offset(np.moveaxis(np.indices(dims), 0, -1))
    assert same_bits(packed.buffer.view(dtype)[offsets], array)
    assert same_bits(packed.unpack(), array)
    moved = inlay.reorder(packed, second)
    assert same_bits(moved.unpack(), array)
    assert inlay.check_padding(moved).is_clean
    view = array.transpose(3, 1, 0, 2)
    assert same_bits(inlay.pack(view, second).unpack(), np.ascontiguousarray(view))


@each_dtype
def test_padding_is_found_and_zeroed(dtype: str) -> None:
    memory = inlay.pack(random_bits((2, 17), dtype), "aB8b")
    data = memory.unpack()
    memory.buffer.view(dtype)[17] = 1
    report = inlay.check_padding(memory)
    assert (report.dirty, report.first[0].coordinate) == (1, (0, 17))
    inlay.zero_padding(memory)
    assert inlay.check_padding(memory).is_clean
    inlay.map_padded(np.copy, memory)
    assert same_bits(memory.unpack(), data)


@each_dtype
def test_arrays_are_wrapped_without_a_copy(dtype: str) -> None:
    array = random_bits((4, 6), dtype)
    memory = from_array(array.T)
    assert same_bits(to_numpy(memory, copy=False), array.T)
    array[0, 0] = 0
    assert not to_numpy(memory)[0, 0]
    assert same_bits(np.asarray(Memory(memory.desc, array)), np.ascontiguousarray(array.T))


@each_dtype
def test_files_keep_every_type(dtype: str, tmp_path: Path) -> None:
    array = random_bits((5, 7), dtype)
    memory = inlay.pack(array, "aB4b")
    save_memories(tmp_path / "m.safetensors", {"m": memory})
    opened = open_memories(tmp_path / "m.safetensors")["m"]
    assert opened.desc == memory.desc
    assert same_bits(opened.unpack(), array)
    np.save(tmp_path / "a.npy", array)
    packed, plain = str(tmp_path / "p.safetensors"), str(tmp_path / "b.npy")
    assert main(["convert", str(tmp_path / "a.npy"), "-o", packed, "--to", "aB4b"]) == 0
    assert main(["convert", packed, "-o", plain, "--to", "plain"]) == 0
    assert same_bits(np.load(plain), array)


@each_dtype
def test_nothing_is_computed(dtype: str) -> None:
    name = inlay.DataType(dtype).name
    memory = inlay.pack(random_bits((4, 6), dtype), "ab")
    text = f"no conversion from {name} to f32 exists: {name} can only be copied; convert the array with astype first"
    with raises_exactly(Unimplemented, text):
        inlay.reorder(memory, MemoryDesc((4, 6), "f32", "ab"))
    text = f"attributes compute with numbers: the elements of src are {name}, which only move"
    with raises_exactly(InvalidArguments, text):
        inlay.reorder(memory, "ba", src_scales=2.0)
    text = f"Eltwise: src is {name}, a type without arithmetic: only reorders support it, use inlay.reorder"
    with raises_exactly(InvalidArguments, text):
        inlay.primitives.Eltwise(memory.desc, algorithm="relu")


@each_dtype
def test_sparse_tensors_and_host_scalars_are_numbers(dtype: str) -> None:
    for make in (
        lambda: MemoryDesc.csr((3, 4), dtype, 2),
        lambda: MemoryDesc.coo((3, 4), dtype, 2),
        lambda: MemoryDesc.packed((3, 4), dtype, 2),
        lambda: MemoryDesc.host_scalar(dtype),
        lambda: inlay.to_csr(random_bits((3, 4), dtype)),
    ):
        with pytest.raises(InlayError, match=f"{inlay.DataType(dtype).name} can only be copied"):
            make()


@each_dtype
def test_descriptors_come_back_from_every_form(dtype: str) -> None:
    desc = MemoryDesc((2, 17), dtype, "nC8c")
    assert MemoryDesc.from_json(desc.to_json()) == MemoryDesc.from_blob(desc.to_blob()) == desc
    assert desc != MemoryDesc((2, 17), {"bool": "u8"}.get(dtype, "bool"), "nC8c")
    assert repr(desc) == f"MemoryDesc((2, 17), '{inlay.DataType(dtype).name}', 'nC8c')"
