"""Compound formats: bytes, streams and values of every row of the table, against code that goes element by element."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay import CompoundDesc, CompoundMemory, assemble, compound, pack_compound
from inlay.descriptor import Extras, MemoryDesc
from inlay.descriptor.compound_format import BitField, CompoundFormat, Section, Stream
from inlay.descriptor.compound_table import compound_formats
from inlay.machine import MemoryModel
from inlay.memory.compound import fused
from inlay.reordering.block_kernel import select_block_kernel
from inlay.reordering.target import named_target
from tests.oracles.quantized_blocks import BLOCKS, kleidi_packed
from tests.support.paths import ROOT

ANY = np.random.default_rng(18)
PACKED = ("ggml:Q4_0", "ggml:Q4_1", "ggml:Q5_0", "ggml:Q5_1", "ggml:Q8_0", "ggml:MXFP4")
KLEIDI = [name for name in compound_formats() if name.startswith("kleidiai:")]


def random_bytes(size: int) -> npt.NDArray[np.uint8]:
    return ANY.integers(0, 256, size, dtype=np.uint8)


def same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Equal, or both NaN."""
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def expected_values(name: str, buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    nbytes, values = BLOCKS[name]
    with np.errstate(all="ignore"):
        return np.array([values(block.tolist()) for block in buffer.reshape(-1, nbytes)], np.float32)


@pytest.fixture(params=["table", "streaming", "x86-64-v2", "x86-64-v3"])
def code_variant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The kernel of this machine, its streaming stores, and kernels of lesser processors."""
    if request.param == "streaming":
        monkeypatch.setattr(fused, "memory_model", lambda: MemoryModel(1 << 20, 1 << 25, streaming_from=0))
    elif request.param != "table":
        if platform.machine() != "x86_64":
            pytest.skip("code for x86-64 does not run here")
        target = named_target(request.param)
        monkeypatch.setattr(fused, "host_target", lambda: target)
    fused._task.cache_clear()
    yield
    fused._task.cache_clear()


# ggml


def test_the_oracle_has_every_format_of_ggml() -> None:
    assert {name for name in compound_formats() if name.startswith("ggml:")} == set(BLOCKS)


@pytest.mark.usefixtures("code_variant")
@pytest.mark.parametrize("name", BLOCKS)
def test_any_bytes_have_the_values_of_the_format(name: str) -> None:
    fmt = compound(name)
    desc = CompoundDesc(fmt, (3, 2, 3 * fmt.values.dims[0]))
    buffer = random_bytes(desc.size)
    memory = CompoundMemory(desc, buffer)
    assert desc.size == 18 * BLOCKS[name][0]
    assert select_block_kernel(fmt, streams=False) is not None
    out = inlay.pack(np.zeros(desc.dims, np.float32), "abc").unpack()
    assert memory.unpack(out) is out
    assert same(out.reshape(18, -1), expected_values(name, buffer))


@pytest.mark.parametrize("name", BLOCKS)
def test_values_without_compiled_code_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = compound(name)
    memory = CompoundMemory(CompoundDesc(fmt, (2, 2 * fmt.values.dims[0])), random_bytes(4 * fmt.sections[0].nbytes))
    compiled = memory.unpack()
    monkeypatch.setattr("inlay.memory.compound.memory.unpack_compiled", lambda *_: False)
    assert same(memory.unpack(), compiled)


@pytest.mark.parametrize(("start", "data_type", "has_kernel"), [(4, "f32", False), (4, "f16", True), (8, "f32", True)])
def test_a_scale_may_begin_within_a_byte(start: int, data_type: str, has_kernel: bool) -> None:
    width = 32 if data_type == "f32" else 16
    scale = Stream("scale", data_type, (BitField.of(width, start, ()),))
    quants = Stream("quants", "u8", (BitField.of(4, 40, ((32, 4),)),))
    fmt = CompoundFormat("shifted", (Section((32,), 21),), (quants, scale), ("scale",))
    assert (select_block_kernel(fmt, streams=False) is not None) == has_kernel
    desc, dtype = CompoundDesc(fmt, (2, 64)), np.dtype(data_type.replace("f", "float"))
    bits = np.unpackbits(buffer := random_bytes(desc.size), bitorder="little").reshape(4, -1)
    scales = np.packbits(bits[:, start : start + width], axis=1, bitorder="little").view(dtype).astype(np.float32)
    numbers = np.packbits(bits[:, 40:].reshape(4, 32, 4), axis=2, bitorder="little")[:, :, 0].astype(np.float32)
    with np.errstate(all="ignore"):
        assert same(CompoundMemory(desc, buffer).unpack().reshape(4, 32), scales * numbers)


@pytest.mark.parametrize("name", BLOCKS)
def test_any_bytes_are_assembled_again_from_their_streams(name: str) -> None:
    fmt = compound(name)
    memory = CompoundMemory(CompoundDesc(fmt, (5, 2 * fmt.values.dims[0])), random_bytes(10 * fmt.sections[0].nbytes))
    assert np.array_equal(assemble(fmt, memory.streams()).buffer, memory.buffer)


@pytest.mark.parametrize("name", PACKED)
def test_packed_values_are_as_near_as_the_format_allows(name: str) -> None:
    x = ANY.standard_normal((4, 96), np.float32)
    near = np.abs(pack_compound(x, name).unpack() - x).max()
    levels = {"ggml:Q4_0": 8, "ggml:Q4_1": 7, "ggml:Q5_0": 16, "ggml:Q5_1": 15, "ggml:Q8_0": 127, "ggml:MXFP4": 4}
    assert 0 < near < 1.05 * np.abs(x).max() / levels[name]


@pytest.mark.parametrize("name", BLOCKS)
def test_gguf_reads_the_same_values(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    fmt, kind = compound(name), gguf.GGMLQuantizationType[name[5:]]
    buffer = random_bytes(6 * fmt.sections[0].nbytes).reshape(2, -1)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(buffer, kind)
    assert same(CompoundMemory(CompoundDesc(fmt, expected.shape), buffer).unpack(), expected)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("spread", [1e-5, 1.0, 1e3])
def test_gguf_writes_the_same_bytes(name: str, spread: float) -> None:
    gguf = pytest.importorskip("gguf")
    x = spread * ANY.standard_normal((9, 128), np.float32)
    x[0] = 0
    x[1] = np.round(x[1] / spread)
    x[2, ::2] = x[2, 1::2]
    expected = gguf.quantize(x, gguf.GGMLQuantizationType[name[5:]])
    assert pack_compound(x, name).buffer.tobytes() == expected.tobytes()


# NVIDIA, KleidiAI, oneDNN


@pytest.mark.parametrize("dims", [(128, 64), (130, 48), (1, 16), (257, 208)])
def test_scales_in_tiles_of_128_by_4(dims: tuple[int, int]) -> None:
    rows, columns = dims
    quants = ANY.integers(0, 16, dims, np.uint8)
    scales = ANY.integers(0, 127, (rows, columns // 16), np.uint8).view(ml_dtypes.float8_e4m3fn)
    memory = assemble("nvidia:NVFP4_128x4", {"quants": quants, "scales": scales})
    start = -(-rows * columns // 2 // 512) * 512
    tiles = -(-columns // 64)
    assert memory.desc.size == start + -(-rows // 128) * tiles * 512
    table = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
    values = memory.unpack()
    for row, column in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 3), (rows - 1, 0), (0, columns - 1)]:
        group = column // 16
        at = start + (row // 128 * tiles + group // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + group % 4
        assert memory.buffer[at] == scales[row, group].view(np.uint8)
        code = int(memory.buffer[(row * columns + column) // 2]) >> 4 * (column % 2) & 15
        assert code == quants[row, column]
        expected = np.float32(table[code & 7] * (-1 if code & 8 else 1)) * np.float32(scales[row, group])
        assert values[row, column] == expected
    used = prod(scales.shape)
    assert np.count_nonzero(memory.buffer[start:]) <= used
    assert same(memory.stream("scales").view(np.uint8), scales.view(np.uint8))


@pytest.mark.usefixtures("code_variant")
@pytest.mark.parametrize("name", KLEIDI)
@pytest.mark.parametrize("dims", [(8, 32), (16, 96), (11, 64), (1, 32)])
def test_the_right_hand_side_of_kleidiai(name: str, dims: tuple[int, int]) -> None:
    fmt = compound(name)
    rows = fmt.sections[0].block[0]
    quants = ANY.integers(-8, 8, dims, np.int8)
    scales = ANY.standard_normal((dims[0], dims[1] // 32)).astype(fmt.stream("scale").dtype)
    streams: dict[str, npt.NDArray[Any]] = {"quants": quants, "scale": scales}
    bias = ANY.standard_normal((dims[0], 1)).astype(np.float32)
    expected = kleidi_packed(quants, scales, rows, bias[:, 0])
    if fmt.sections[0].footer_nbytes:
        whole = CompoundMemory(CompoundDesc(fmt, dims), np.frombuffer(expected, np.uint8))
        streams |= {"sums": whole.stream("sums"), "bias": bias}
    memory = assemble(fmt, streams)
    assert memory.buffer.tobytes() == expected
    assert all(same(array, streams[stream]) for stream, array in memory.streams().items())
    values = quants.astype(np.float32) * np.repeat(scales.astype(np.float32), 32, axis=1)
    assert same(memory.unpack(), values)


@pytest.mark.parametrize("channels", [32, 17])
@pytest.mark.parametrize(("flags", "name"), [(1, "s8s8_compensation"), (8, "zero_point_compensation")])
def test_compensation_of_onednn(flags: int, name: str, channels: int) -> None:
    extras = Extras(1, compensation_mask=1) if flags == 1 else Extras(8, asymmetric_mask=1)
    dst = MemoryDesc((channels, 16, 3, 2), "s8", "OIhw4i16o4i", extras=extras)
    weights = ANY.integers(-128, 128, dst.dims, np.int8)
    buffer = inlay.reorder(inlay.pack(weights, "oihw"), dst).buffer
    desc = inlay.describe_compensated(dst)
    memory = CompoundMemory(desc, buffer)
    sums = weights.astype(np.int32).sum(axis=(1, 2, 3), keepdims=True)
    assert desc.size == dst.size
    assert same(memory.stream("weights"), weights)
    assert same(memory.stream(name), np.asarray(-128 * sums if flags == 1 else -sums, np.int32))
    assert same(memory.unpack(), weights.astype(np.float32))
    again = assemble(desc, memory.streams())
    assert np.array_equal(again.buffer, buffer.view(np.uint8).reshape(-1))


# Any format


@st.composite
def formats(draw: st.DrawFn) -> CompoundFormat:
    """A format of one block with quants and a scale, whose digits are in any order, with unused bits."""
    extents = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3))
    widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    order = draw(st.permutations(range(len(extents))))
    at = draw(st.integers(0, 9))
    fields, shift = [], 0
    for width in widths:
        strides, stride = [0] * len(extents), width + draw(st.integers(0, 2))
        for digit in order:
            strides[digit] = stride
            stride *= extents[digit]
        fields.append(BitField.of(width, at, tuple(zip(extents, strides, strict=True)), shift=shift))
        at, shift = at + stride, shift + width
    scale = Stream("scale", "f16", (BitField.of(16, at, ()),))
    section = Section((prod(extents),), (at + 16 + 7) // 8 + draw(st.integers(0, 2)))
    signed = draw(st.booleans())
    quants = Stream("quants", "s8" if signed else "u8", tuple(fields)) if shift <= 8 else None
    if quants is None:
        quants = Stream("quants", "s32", tuple(fields))
    return CompoundFormat("drawn", (section,), (quants, scale), ("scale",))


@settings(max_examples=60, deadline=None)
@given(fmt=formats(), blocks=st.integers(1, 3), seed=st.integers(0, 99))
def test_every_bit_is_where_the_digits_say(fmt: CompoundFormat, blocks: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    low, high = fmt.values.limits or (0, 0)
    size = fmt.values.dims[0]
    quants = random.integers(low, high + 1, (2, blocks * size)).astype(fmt.values.dtype)
    scales = random.standard_normal((2, blocks)).astype(np.float16)
    memory = assemble(fmt, {"quants": quants, "scale": scales})
    bits = 0
    for row in range(2):
        for column in range(blocks * size):
            for piece in memory.desc.locate("quants", (row, column)):
                part = int(quants[row, column]) >> piece.shift & ((1 << piece.width) - 1)
                bits |= part << piece.offset
        for block in range(blocks):
            (piece,) = memory.desc.locate("scale", (row, block))
            assert piece.offset == 8 * fmt.sections[0].nbytes * (row * blocks + block) + fmt.streams[1].fields[0].offset
            bits |= int(scales[row, block].view(np.uint16)) << piece.offset
    assert memory.buffer.tobytes() == bits.to_bytes(memory.desc.size, "little")
    assert same(memory.stream("quants"), quants)
    assert same(memory.stream("scale"), scales)
    assert same(memory.unpack(), quants.astype(np.float32) * np.repeat(scales.astype(np.float32), size, axis=1))


def test_formats_and_descriptors_are_values() -> None:
    desc = CompoundDesc(compound("GGML:q4_k"), (2, 512))
    assert desc == CompoundDesc(compound("ggml:Q4_K"), (2, 512))
    assert len({desc, CompoundDesc(compound("ggml:Q4_K"), (2, 512))}) == 1
    assert str(desc) == "ggml:Q4_K 2x512"


def test_every_row_names_its_source() -> None:
    assert all(fmt.source for fmt in compound_formats().values())


def test_the_example_runs() -> None:
    call = [sys.executable, str(ROOT / "examples" / "compound_blocks.py")]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the same weights for KleidiAI: 288 bytes, equal values" in done.stdout


def test_the_text_of_a_memory_is_one_line() -> None:
    """Format, dims and size, without the table of the format."""
    assert (
        repr(pack_compound(np.ones((2, 64), np.float32), "ggml:Q4_0")) == "<CompoundMemory of ggml:Q4_0 2x64, 72 bytes>"
    )


def test_numbers_beyond_f32_are_named_as_they_were_given() -> None:
    """1e300 is no infinity in the caller's array."""
    with pytest.raises(inlay.InvalidArguments) as error:
        pack_compound(np.full((1, 32), 1e300), "ggml:Q8_0")
    assert str(error.value) == "array holds 1e+300 at (0, 0): quantize numbers that are finite in f32"


def test_a_buffer_of_objects_is_refused() -> None:
    """Objects have no bytes."""
    with pytest.raises(inlay.InvalidArguments, match="buffer holds object"):
        CompoundMemory(CompoundDesc(compound("ggml:Q4_0"), (1, 32)), np.empty(18, object))


def test_numpy_copies_the_values() -> None:
    memory = pack_compound(np.linspace(-1, 1, 32, dtype=np.float32), "ggml:Q8_0")
    assert np.array_equal(np.array(memory), memory.unpack())
    assert np.array(memory, np.float64).dtype == np.float64
