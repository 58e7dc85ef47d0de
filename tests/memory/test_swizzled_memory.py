"""Swizzled memory: every element is where CuTe's formula puts it; other bytes keep their values."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import inlay
from inlay import Attributes, Memory, MemoryDesc, Reorder, Scales, Swizzle
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
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


def even_strides(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides with rows of whole bytes, whatever the type."""
    strides = [1]
    for dim in dims[:0:-1]:
        strides.insert(0, strides[0] * (dim + dim % 2 if strides == [1] else dim))
    return tuple(strides)


def swizzled(desc: MemoryDesc, swizzle: Swizzle, offset0: int) -> MemoryDesc:
    layout, data_type = desc.require_layout("a test")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=offset0, swizzle=swizzle)


@given(descriptors(), swizzles(whole_bytes=True), st.integers(0, 3), st.data())
def test_elements_are_where_the_formula_says_and_other_bytes_stay(
    desc: MemoryDesc, swizzle: Swizzle, header: int, data: st.DataObject
) -> None:
    layout, data_type = desc.require_layout("a test")
    try:
        target = swizzled(desc, swizzle, 2 * header)
    except InvalidArguments:
        assume(not data_type.is_sub_byte)  # some views of 4-bit elements have strides that split a byte
        raise
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    bits = data_type.bits
    plain = MemoryDesc(desc.dims, data_type, strides=even_strides(desc.dims))
    source = Memory(plain, random.integers(0, 256, max(plain.size, 1), np.uint8))
    before = random.integers(0, 256, max(Memory(target).buffer.size, 1), np.uint8)
    memory = Memory(target, before.copy())
    inlay.reorder(source, target, out=memory)
    written = source.unpack()
    expected = np.unpackbits(before, bitorder="little")
    for x in np.ndindex(*desc.padded_dims):
        at = expected_offset(layout, swizzle, 2 * header, x)
        assert target.offset(x) == at
        is_data = all(i < n for i, n in zip(x, desc.dims, strict=True))
        element = np.asarray(written[x]).reshape(1).view(np.uint8) if is_data else np.zeros(bits, np.uint8)
        expected[at * bits : (at + 1) * bits] = np.unpackbits(element, bitorder="little")[:bits]
    if 0 not in desc.dims:
        assert np.array_equal(memory.buffer, np.packbits(expected, bitorder="little"))
    assert memory.unpack().tobytes() == written.tobytes()


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


@pytest.mark.parametrize("swizzle", [Swizzle(3, 3, 3), Swizzle(2, 20, -3), Swizzle(2, 16, 3), Swizzle(1, 0, 17)])
def test_buffers_shorter_and_longer_than_a_period(swizzle: Swizzle) -> None:
    array = np.arange(3 * 70001, dtype=np.int32).reshape(3, 70001)
    memory = inlay.pack(array, MemoryDesc(array.shape, "s32", "ab", swizzle=swizzle))
    places = swizzle.apply(np.arange(array.size))
    assert np.array_equal(memory.buffer.view(np.int32)[places], array.reshape(-1))
    assert np.array_equal(memory.unpack(), array)


def test_attributes_and_another_type_are_applied() -> None:
    src = inlay.pack(np.arange(64, dtype=np.float32).reshape(8, 8), "Swizzle<2,0,3> o ab")
    dst = MemoryDesc((8, 8), "s8", "Swizzle<1,1,2> o ba")
    assert np.array_equal(inlay.reorder(src, dst, src_scales=2).unpack(), np.minimum(src.unpack() * 2, 127))
    compiled = Reorder(src.desc, dst, Attributes(src_scales=Scales()))
    out = Memory(dst)
    compiled(src, out, src_scales=np.float32(0.5))
    assert np.array_equal(out.unpack(), np.rint(src.unpack() / 2))
    assert "  offsets in the source through Swizzle<2,0,3>\n  offsets in the destination through" in compiled.explain()
    inlay.reorder(src, dst, attributes=Attributes(sum=1.0), out=out)
    assert np.array_equal(out.unpack(), np.minimum(np.rint(src.unpack() / 2) + src.unpack(), 127))
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
    picture = str(inlay.show(desc, width=80, color=False))
    assert picture + "\n" == (
        "Swizzle<2,0,2> o row col -> row col, 4 x 4 of u8\n"
        "text    u8::swizzled:(4,4)x(4,1):Swizzle<2,0,2>:f0 4x4\n"
        "digits  row (4,4); col (4,1); each (extent,stride)\n"
        "s       4*row + col\n"
        "offset  s ^ (s & 12) >> 2\n"
        "size    16 bytes\n"
        "blocks  one for each row: 4 elements side by side in memory\n"
        "\n"
        "Tensor: row runs down, col across\n"
        "         0   1   2   3\n"
        "row=0   A0  A1  A2  A3\n"
        "    1   B4  B5  B6  B7\n"
        "    2   C8  C9 C10 C11\n"
        "    3  D12 D13 D14 D15\n"
        "\n"
        "Memory: offsets 0 to 15; rows begin with offset: row,col\n"
        " 0: 0,0 ┃ A0  A1  A2  A3┃ B5  B4  B7  B6┃C10 C11  C8  C9┃D15 D14 D13 D12\n"
        "\n"
        "  A0  element, the letter of its block, its index in row-major order\n"
        "   ┃  next block: 4 elements\n"
    )
    assert explain_offset(desc, (1, 2)) + "\n" == (
        "u8::swizzled:(4,4)x(4,1):Swizzle<2,0,2>:f0, 4x4\n"
        "  row = 1    1 * 4    4\n"
        "  col = 2    2 * 1    2\n"
        "  Swizzle<2,0,2>: s = 6, s ^ (s & 12) >> 2 = 7\n"
        "element offset 7, byte offset 7\n"
    )


@given(swizzles(), st.integers(0, 2**20), st.integers(0, 9))
def test_the_formula_of_the_legend_can_be_evaluated(swizzle: Swizzle, s: int, offset0: int) -> None:
    value = eval(swizzle_formula(swizzle, offset0), {"s": s})
    assert value == offset0 + by_bits(swizzle.bits, swizzle.base, swizzle.shift, s)
