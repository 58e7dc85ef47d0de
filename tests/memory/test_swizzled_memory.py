"""Swizzled memory: every element is where CuTe's formula puts it; other bytes keep their values."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import Attributes, Memory, MemoryDesc, Reorder, Scales, Swizzle
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.memory.buffers import encode_elements
from inlay.render.legend import explain_offset, swizzle_formula
from inlay.testing import descriptors, swizzles
from tests.layout.test_swizzle import by_bits


def expected_offset(layout: Layout, swizzle: Swizzle, offset0: int, x: tuple[int, ...]) -> int:
    """The formula: header, then the swizzled sum of digits."""
    total = 0
    for digits, coordinate in zip(layout.digits, x, strict=True):
        for digit in reversed(digits):
            coordinate, value = divmod(coordinate, digit.extent)
            total += value * digit.stride
    return offset0 + by_bits(swizzle.bits, swizzle.base, swizzle.shift, total)


def swizzled(desc: MemoryDesc, swizzle: Swizzle, offset0: int) -> MemoryDesc:
    return MemoryDesc.from_layout(desc.layout, desc.data_type, dims=desc.dims, offset0=offset0, swizzle=swizzle)


@given(descriptors(), swizzles(least_base=1), st.integers(0, 3), st.data())
def test_elements_are_where_the_formula_says_and_other_bytes_stay(
    desc: MemoryDesc, swizzle: Swizzle, header: int, data: st.DataObject
) -> None:
    target = swizzled(desc, swizzle, 2 * header)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    bits = desc.data_type.bits
    codes = random.integers(0, 256, (Memory(desc.__class__(desc.dims, desc.data_type)).buffer.size,), np.uint8)
    source = Memory(MemoryDesc(desc.dims, desc.data_type), codes)
    length = max(Memory(target).buffer.size, 1)
    before = random.integers(0, 256, length, np.uint8)
    memory = Memory(target, before.copy())
    inlay.reorder(source, target, out=memory)
    values = encode_elements(source.unpack(), desc.data_type)
    expected = np.unpackbits(before, bitorder="little").reshape(-1, bits if bits < 8 else 8)
    if bits >= 8:
        expected = before.reshape(-1).copy()
    written = values.reshape(desc.dims)
    for x in np.ndindex(*desc.padded_dims):
        at = expected_offset(target.layout.layout, swizzle, 2 * header, x)
        assert target.offset(x) == at
        is_data = all(i < n for i, n in zip(x, desc.dims, strict=True))
        code = int(written[x]) if is_data and written.ndim == desc.ndims and bits <= 64 else None
        if bits < 8:
            expected[at] = [(code or 0) >> i & 1 for i in range(bits)]
        else:
            number = np.ascontiguousarray(written[x]).view(np.uint8) if is_data else np.zeros(bits // 8, np.uint8)
            expected[at * bits // 8 : (at + 1) * bits // 8] = number
    if bits < 8:
        expected = np.packbits(expected.reshape(-1), bitorder="little")
    if 0 not in desc.dims:
        assert np.array_equal(memory.buffer, expected)
    assert inlay.reorder(memory, source.desc).buffer.tobytes() == inlay.reorder(source, source.desc).buffer.tobytes()


@given(descriptors(data_type="f32"), swizzles())
def test_a_swizzled_descriptor_is_a_value(desc: MemoryDesc, swizzle: Swizzle) -> None:
    target = swizzled(desc, swizzle, 5)
    for again in (pickle.loads(pickle.dumps(target)), MemoryDesc.from_json(target.to_json())):
        assert again == target
        assert hash(again) == hash(target)
    assert (target.kind, target.swizzle, target.padded_dims) == ("swizzled", swizzle, desc.padded_dims)
    assert target != desc
    assert target != swizzled(desc, swizzle, 6)
    names = {"MemoryDesc": MemoryDesc, "Swizzle": Swizzle, "Layout": Layout, "Axis": inlay.Axis, "Digit": inlay.Digit}
    assert eval(repr(target), names) == target


def test_a_tile_of_128_bytes_as_hardware_swizzles_it() -> None:
    """The 128-byte swizzle of NVIDIA's TMA: 16-byte chunk j of row r is stored as chunk j ^ (r % 8)."""
    array = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    memory = inlay.pack(array, "Swizzle<3,3,3> o (64,64):(64,1)")
    chunks = array.reshape(64, 8, 8)
    expected = np.stack([[chunks[r, j ^ (r % 8)] for j in range(8)] for r in range(64)])
    assert np.array_equal(memory.buffer.view(np.uint16), expected.reshape(-1))
    assert np.array_equal(memory.unpack(), array)
    assert np.array_equal(np.asarray(memory), array)


@pytest.mark.parametrize("swizzle", [Swizzle(3, 3, 3), Swizzle(2, 20, -3), Swizzle(2, 16, 3), Swizzle(1, 0, 17)])
def test_buffers_shorter_and_longer_than_a_period(swizzle: Swizzle) -> None:
    array = np.arange(3 * 70001, dtype=np.uint32).reshape(3, 70001)
    desc = MemoryDesc(array.shape, "u32" if "u32" in inlay.DATA_TYPES else "s32", "ab", swizzle=swizzle)
    memory = inlay.pack(array.astype(np.int32) if desc.data_type.name == "s32" else array, desc)
    places = swizzle.apply(np.arange(array.size))
    assert np.array_equal(memory.buffer.view(np.uint32)[places], array.reshape(-1))
    assert np.array_equal(memory.unpack(), array)


def test_attributes_and_another_type_are_applied() -> None:
    src = inlay.pack(np.arange(64, dtype=np.float32).reshape(8, 8), "Swizzle<2,0,3> o ab")
    dst = MemoryDesc((8, 8), "s8", "Swizzle<1,1,2> o ba")
    assert np.array_equal(inlay.reorder(src, dst, src_scales=2).unpack(), np.minimum(src.unpack() * 2, 127))
    compiled = Reorder(src.desc, dst, Attributes(src_scales=Scales()))
    out = Memory(dst)
    compiled(src, out, src_scales=np.float32(0.5))
    assert np.array_equal(out.unpack(), np.rint(src.unpack() / 2))
    assert compiled.explain().startswith("read through Swizzle<2,0,3>: 256 bytes are permuted\nwrite through")
    total = inlay.reorder(src, dst, attributes=Attributes(sum=inlay.reordering_sum(1.0)) if False else None)
    assert np.array_equal(total.unpack(), src.unpack())
    assert inlay.reorder(src, "any").desc == src.desc
    assert inlay.reorder(src, "ba").buffer.view(np.float32)[:3].tolist() == [0, 8, 16]


def test_the_identity_is_no_swizzle() -> None:
    desc = MemoryDesc((8, 8), "u8", "Swizzle<0,4,3> o (8,8):(8,1)")
    assert (desc.kind, desc.swizzle, desc == MemoryDesc((8, 8), "u8", "ab")) == ("blocked", None, True)
    assert desc.reshape((64,)).dims == (64,)
    assert MemoryDesc.from_json(desc.to_json()) == desc


def test_operations_that_need_digits_refuse_with_a_reason() -> None:
    desc = MemoryDesc((8, 8), "f32", "Swizzle<2,0,3> o ab")
    memory = Memory(desc)
    for refused in (
        lambda: desc.reshape((64,)),
        lambda: desc.permute_axes((1, 0)),
        lambda: desc.strides,
        lambda: inlay.check_padding(memory),
        lambda: inlay.zero_padding(memory),
    ):
        with pytest.raises(InvalidArguments, match="is of kind swizzled; reorder to its format without the swizzle"):
            refused()
    with pytest.raises(Unimplemented, match="a blob holds digits, and a swizzle is none"):
        desc.to_blob()
    with pytest.raises(InvalidArguments, match="buffer of 100 bytes is too small"):
        Memory(desc, np.zeros(100, np.uint8))


def test_pictures_and_texts_show_swizzled_offsets() -> None:
    desc = MemoryDesc((4, 4), "u8", "Swizzle<2,0,2> o row col -> row col")
    assert str(inlay.show(desc, width=80, color=False)) == ("Swizzle<2,0,2> o row col -> row col, 4 x 4 of u8\n?")
    assert explain_offset(desc, (1, 2)) == "?"


@given(swizzles(), st.integers(0, 2**20), st.integers(0, 9))
def test_the_formula_of_the_legend_can_be_evaluated(swizzle: Swizzle, s: int, offset0: int) -> None:
    value = eval(swizzle_formula(swizzle, offset0), {"s": s})
    assert value == offset0 + by_bits(swizzle.bits, swizzle.base, swizzle.shift, s)
