"""The three ways of moving swizzled memory write the same bytes as a loop over elements, and touch no others."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inlay
from inlay import Memory, MemoryDesc, Reorder, Swizzle
from inlay.layout import Axis, Digit, Layout
from inlay.memory import swizzled_pieces
from inlay.memory.reorder_cache import find_reorder
from inlay.memory.swizzled_bytes import SwizzleCopy
from inlay.memory.swizzled_pieces import PiecewiseReorder
from inlay.memory.swizzled_reorder import SwizzledCopy, SwizzledReorder
from inlay.reordering.emit_swizzles import SwizzleKernel
from inlay.reordering.machine_code import ir_of
from inlay.reordering.target import assembly_of, named_target
from inlay.testing import swizzles
from tests.layout.test_swizzle import by_bits
from tests.support.guarded_buffers import GuardedBuffer

Bytes = npt.NDArray[np.uint8]


def permuted(source: Bytes, swizzle: Swizzle, itemsize: int, before: Bytes) -> Bytes:
    """What a loop over elements writes: element x of `source` at the swizzled place, into a copy of `before`."""
    result = before.copy()
    for x in range(source.size // itemsize):
        place = by_bits(swizzle.bits, swizzle.base, swizzle.shift, x)
        result[place * itemsize : (place + 1) * itemsize] = source[x * itemsize : (x + 1) * itemsize]
    return result


@given(
    swizzle=swizzles(),
    itemsize=st.sampled_from((1, 2, 4, 8, 16)),
    count=st.integers(0, 3000),
    flush=st.sampled_from(("upper", "lower")),
    streams=st.booleans(),
)
def test_a_copy_is_a_loop_over_elements_and_stays_between_guard_pages(
    swizzle: Swizzle, itemsize: int, count: int, flush: str, streams: bool
) -> None:
    end = swizzle.round_up(count)
    if end > 1 << 14:
        count, end = 0, 0
    linear = np.random.default_rng(count).integers(0, 256, count * itemsize, np.uint8)
    source, target = (GuardedBuffer(n * itemsize, flush) for n in (count, end))  # type: ignore[arg-type]
    source.bytes[:] = linear
    expected = permuted(linear, swizzle, itemsize, target.bytes)
    SwizzleCopy(swizzle, itemsize, linear.size, packs=True, streams=streams).run(source.address, target.address)
    assert np.array_equal(target.bytes, expected)
    back = GuardedBuffer(linear.size, flush)  # type: ignore[arg-type]
    SwizzleCopy(swizzle, itemsize, linear.size, packs=False, streams=streams).run(target.address, back.address)
    assert np.array_equal(back.bytes, linear)
    assert target.gap_is_untouched
    assert back.gap_is_untouched


@pytest.mark.parametrize("shift", [3, 4, 9, -3, -4, -9])
@pytest.mark.parametrize("base", range(9))
def test_bits_within_and_beyond_a_line(base: int, shift: int) -> None:
    """Source and target bits on both sides of the six bits of an offset in a line, in every combination."""
    swizzle = Swizzle(3, base, shift)
    linear = np.random.default_rng(base).integers(0, 256, max(2 * swizzle.chunk, 4096), np.uint8)
    result = np.zeros_like(linear)
    SwizzleCopy(swizzle, 1, linear.size).run(linear.ctypes.data, result.ctypes.data)
    places = np.arange(linear.size)
    read = places & swizzle.source_mask
    moved = read >> shift if shift > 0 else read << -shift
    assert np.array_equal(result[places ^ moved], linear)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "aarch64-sve256"])
def test_every_target_compiles_a_swizzle(target: str) -> None:
    machine = named_target(target)
    text = assembly_of(ir_of(SwizzleKernel(3, 4, 3, streams=True), machine), machine)
    assert "inlay_swizzle" in text


# Which way


def the_way(src: MemoryDesc, dst: MemoryDesc) -> type:
    return type(find_reorder(src, dst))


def test_rows_in_order_are_one_pass() -> None:
    form = "Swizzle<3,3,3> o (40,64):(64,1)"
    plain, tile = MemoryDesc((40, 64), "bf16", offset0=3), MemoryDesc((40, 64), "bf16", form, offset0=64)
    assert (the_way(plain, tile), the_way(tile, plain)) == (SwizzledCopy, SwizzledCopy)
    ragged = MemoryDesc((5, 41), "bf16", "Swizzle<3,3,3> o ab")
    assert the_way(ragged, MemoryDesc((5, 41), "bf16")) is SwizzledCopy
    for other in (
        MemoryDesc((40, 64), "bf16", "ba"),
        MemoryDesc((40, 64), "f32"),
        MemoryDesc((40, 64), "bf16", strides=(65, 1)),
        MemoryDesc((40, 64), "bf16", "Swizzle<2,4,3> o (40,64):(64,1)"),
    ):
        assert the_way(other, tile) is SwizzledReorder
    padded = MemoryDesc((40, 60), "bf16", "aB64b", swizzle=Swizzle(3, 3, 3))
    assert the_way(MemoryDesc((40, 60), "bf16", "aB64b"), padded) is SwizzledReorder
    wide = MemoryDesc((40, 64), "bf16", "ab", swizzle=Swizzle(1, 10, -8))  # most elements are in an unfinished chunk
    assert the_way(MemoryDesc((40, 64), "bf16"), wide) is SwizzledReorder


def test_a_header_is_kept_and_an_end_within_a_chunk_too() -> None:
    array = np.arange(5 * 41, dtype=np.uint16).reshape(5, 41)
    desc = MemoryDesc((5, 41), "u16", "Swizzle<3,3,3> o ab", offset0=7)
    before = np.full(desc.size + 14, 0xEE, np.uint8)
    memory = Memory(desc, before.copy())
    inlay.reorder(inlay.pack(array, "ab"), desc, out=memory)
    expected = permuted(array.reshape(-1).view(np.uint8), Swizzle(3, 3, 3), 2, before[14:])
    assert np.array_equal(memory.buffer[14:], expected)
    assert (memory.buffer[:14] == 0xEE).all()
    assert np.array_equal(memory.unpack(), array)


def test_four_bit_elements_in_one_pass() -> None:
    codes = np.random.default_rng(0).integers(0, 256, 600, np.uint8)
    plain, swizzled = MemoryDesc((1200,), "u4"), MemoryDesc((1200,), "u4", "a", swizzle=Swizzle(3, 1, 3))
    assert the_way(plain, swizzled) is SwizzledCopy
    memory = inlay.reorder(Memory(plain, codes), swizzled)
    pairs = np.arange(0, 1200, 2)
    assert np.array_equal(memory.buffer[Swizzle(3, 1, 3).apply(pairs) // 2], codes)
    assert np.array_equal(inlay.reorder(memory, plain).buffer, codes)


def test_one_pass_explains_itself() -> None:
    reorder = Reorder(MemoryDesc((8, 64), "u8", "ab"), MemoryDesc((8, 64), "u8", "Swizzle<2,4,3> o (8,64):(64,1)"))
    assert reorder.explain() == "written through Swizzle<2,4,3>: one pass, 512 bytes in lines of 64"
    assert "inlay_swizzle" in reorder.assembly("x86-64-v3")


# Pieces


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(swizzled_pieces, "PIECE", 4096)
    find_reorder.cache_clear()
    yield
    find_reorder.cache_clear()


TILES = Layout((96, 256), (Axis(64), Axis(96 * 64, (Digit(64, 1),))))


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("layout", "swizzle", "other"),
    [
        (TILES, Swizzle(3, 3, 3), "ab"),
        (TILES, Swizzle(3, 3, 3), "ba"),
        (TILES, Swizzle(2, 4, -3), "ba"),
        (Layout.row_major((96, 256)), Swizzle(3, 4, 3), "ba"),
        (Layout.column_major((96, 256)), Swizzle(3, 4, 3), "ab"),
        (Layout.row_major((97, 256)), Swizzle(3, 3, 3), "ba"),
        (Layout.row_major((97, 256)), Swizzle(3, 3, 3), "Ba16b"),
    ],
)
@pytest.mark.parametrize("data_type", ["u8", "bf16", "f32"])
def test_pieces_are_the_same_as_whole_buffers(layout: Layout, swizzle: Swizzle, other: str, data_type: str) -> None:
    swizzled = MemoryDesc.from_layout(layout, data_type, offset0=32, swizzle=swizzle)
    plain = MemoryDesc(layout.dims, data_type, other, offset0=5)
    assert the_way(plain, swizzled) is PiecewiseReorder
    assert the_way(swizzled, plain) is PiecewiseReorder
    itemsize = plain.data_type.itemsize  # type: ignore[union-attr]
    source = Memory(plain, np.random.default_rng(0).integers(0, 256, plain.size + 5 * itemsize, np.uint8))
    target = Memory(swizzled, np.full(swizzled.size + 32 * itemsize, 0xEE, np.uint8))
    inlay.reorder(source, swizzled, out=target)
    places = np.stack(np.meshgrid(*map(np.arange, layout.dims), indexing="ij"), -1).reshape(-1, 2)
    given, written = (memory.buffer.reshape(-1, itemsize) for memory in (source, target))
    assert np.array_equal(written[swizzled.offset(places)], given[plain.offset(places)])
    assert (written[:32] == 0xEE).all()
    again = Memory(plain, np.full(source.buffer.size, 0xEE, np.uint8))
    inlay.reorder(target, plain, out=again)
    back = again.buffer.reshape(-1, itemsize)
    assert np.array_equal(back[plain.offset(places)], given[plain.offset(places)])
    assert (back[:5] == 0xEE).all()


@pytest.mark.usefixtures("small_pieces")
def test_pieces_convert() -> None:
    array = np.random.default_rng(0).standard_normal((128, 256)).astype(np.float32)
    desc = MemoryDesc(array.shape, "f16", "Swizzle<3,3,3> o (128,(64,4)):(64,(1,8192))")
    source = inlay.pack(array, "ab")
    assert the_way(source.desc, desc) is PiecewiseReorder
    assert np.array_equal(inlay.reorder(source, desc).unpack(), array.astype(np.float16))
    reorder = Reorder(source.desc, desc)
    assert reorder.explain().startswith("written through Swizzle<3,3,3>: ")
    assert "pieces of" in reorder.explain().splitlines()[0]
    assert reorder.assembly()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("layout", "swizzle", "other"),
    [
        (Layout((96, 256), (Axis(260), Axis(1))), Swizzle(3, 3, 3), "ba"),  # gaps
        (Layout.row_major((96, 256)), Swizzle(1, 3, 12), "ba"),  # one period
        (Layout.row_major((97, 251)), Swizzle(3, 3, 3), "ba"),  # ends within a chunk
        (Layout.row_major((96, 256)), Swizzle(3, 3, 3), "BA"),  # padding
    ],
)
def test_what_has_no_pieces_is_moved_whole(layout: Layout, swizzle: Swizzle, other: str) -> None:
    desc = MemoryDesc.from_layout(layout, "f32", swizzle=swizzle)
    plain = MemoryDesc(layout.dims, "f32", "BA48a48b" if other == "BA" else other)
    assert the_way(plain, desc) is SwizzledReorder
    array = np.random.default_rng(0).standard_normal(layout.dims, np.float32)
    memory = inlay.reorder(inlay.pack(array, plain), desc)
    assert np.array_equal(memory.unpack(), array)
    assert np.array_equal(inlay.reorder(memory, plain).unpack(), array)
