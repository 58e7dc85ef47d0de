"""Compound formats from packers that share no code with Inlay, and the first wrong bit of spoiled ones."""

import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay import CompoundDesc, Diagnosis, InferredCompound, assemble, compound, infer, verify
from inlay.data_type import DATA_TYPES
from inlay.descriptor.compound_table import compound_formats
from inlay.inference.stream_bits import ProbedStream
from tests.support.paths import ROOT
from tests.support.stream_packers import PACKERS, Arrays, Specs, nvfp4, q4_0, repeated_blocks

TYPES = {"f16": np.float16, "f8_e4m3": np.uint8}


def random_arrays(streams: Specs, seed: int) -> dict[str, npt.NDArray[Any]]:
    random = np.random.default_rng(seed)
    result: dict[str, npt.NDArray[Any]] = {}
    for name, (kind, dims) in streams.items():
        if kind in TYPES:
            nbytes = np.dtype(TYPES[kind]).itemsize
            raw = random.integers(0, 256, (*dims[:-1], dims[-1] * nbytes), np.uint8)
            result[name] = raw.view(DATA_TYPES[kind].dtype)
        else:
            bits, is_signed = int(kind[1:]), kind[0] == "s"
            low = -(1 << bits - 1) if is_signed else 0
            result[name] = random.integers(low, low + (1 << bits), dims).astype(np.int8 if is_signed else np.uint8)
    return result


def renamed(found: InferredCompound, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    return {theirs: arrays[ours] for ours, theirs in found.streams}


@pytest.mark.parametrize("name", PACKERS)
def test_packers_of_known_formats_are_named_and_verified(name: str) -> None:
    packer, dims, streams = PACKERS[name]
    found = infer(packer, dims, streams=streams)
    assert isinstance(found, InferredCompound), found
    assert found.desc.format is compound(name)
    assert found.length == found.desc.size
    for seed in range(3):
        arrays = random_arrays(streams, seed)
        assert assemble(found.desc, renamed(found, arrays)).buffer.tobytes() == packer(arrays)
    names = {theirs: ours for ours, theirs in found.streams}
    checked = verify(found.desc, lambda given: packer({names[key]: array for key, array in given.items()}))
    assert checked, checked


@pytest.mark.parametrize("name", PACKERS)
def test_a_flipped_bit_is_named_by_its_number(name: str) -> None:
    packer, dims, streams = PACKERS[name]
    found = infer(packer, dims, streams=streams)
    assert isinstance(found, InferredCompound)
    arrays, random = random_arrays(streams, 7), np.random.default_rng(3)
    logical = renamed(found, arrays)
    for _ in range(8):
        ours = str(random.choice(list(streams)))
        theirs = dict(found.streams)[ours]
        at = tuple(int(random.integers(n)) for n in streams[ours][1])
        changed = {key: array.copy() for key, array in arrays.items()}
        code = changed[ours].view(f"u{changed[ours].itemsize}")
        code[at] ^= 1 << int(random.integers(found.desc.format.stream(theirs).bits))
        buffer = np.frombuffer(packer(changed), np.uint8)
        right = np.frombuffer(packer(arrays), np.uint8)
        result = verify(found.desc, buffer, logical)
        wrong = int(np.flatnonzero(buffer != right)[0])
        assert (result.stream, result.coordinate, result.byte) == (theirs, at, wrong), (result, ours)
        mask = (1 << found.desc.format.stream(theirs).bits) - 1
        assert (result.found, result.expected) == tuple(
            int(one[ours].view(code.dtype)[at]) & mask for one in (changed, arrays)
        )


@st.composite
def block_formats(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int, int, int]:
    """Draw dims, the order of the numbers in a block, the distance of their places, bits of a block, and a header."""
    digits = draw(st.permutations([1, 2, 4][: draw(st.integers(2, 3))]))
    numbers = 1 << len(digits)
    order = tuple(sum((i >> k & 1) * weight for k, weight in enumerate(digits)) for i in range(numbers))
    split = draw(st.sampled_from((4, 5, 8)))
    header = draw(st.integers(0, 9))
    block_bits = -(-(header + split * numbers + 8) // 8) * 8
    dims = (draw(st.integers(2, 4)), numbers * draw(st.integers(2, 5)))
    return dims, order, split, block_bits, header


@settings(max_examples=60, deadline=None)
@given(block_formats())
def test_new_formats_have_the_places_of_any_packer(
    drawn: tuple[tuple[int, ...], tuple[int, ...], int, int, int],
) -> None:
    dims, order, split, block_bits, header = drawn
    numbers = len(order)
    streams: Specs = {"q": ("u4", dims), "s": ("u8", (dims[0], dims[1] // numbers))}

    def packer(arrays: Arrays) -> bytes:
        return repeated_blocks(arrays, order, split, block_bits, header, numbers)

    found = infer(packer, dims, streams=streams)
    assert isinstance(found, InferredCompound), found
    assert [section.nbytes for section in found.desc.format.sections] == [block_bits // 8]
    arrays = random_arrays(streams, 1)
    assert assemble(found.desc, arrays).buffer.tobytes() == packer(arrays)
    # The same block holds for more rows, of which the packer was not asked before.
    larger: Specs = {"q": ("u4", (5, dims[1])), "s": ("u8", (5, dims[1] // numbers))}
    arrays = random_arrays(larger, 2)
    assert assemble(found.desc.format, arrays).buffer.tobytes() == packer(arrays)


@pytest.mark.parametrize(
    ("gap", "sections"),
    [(0, [((2,), 1), ((16,), 2)]), (32, [((2,), 1), ((16,), 2)]), (16, [((4, 48), 136)])],
)
def test_planes_are_sections(gap: int, sections: list[Any]) -> None:
    """Planes may be aligned to a power of two; after another gap, the whole tensor is one block."""

    def planes(arrays: Arrays) -> bytes:
        q = arrays["q"]
        return bytes((q[:, 0::2] | q[:, 1::2] << 4).tobytes() + bytes(gap) + arrays["s"].tobytes())

    streams: Specs = {"q": ("u4", (4, 48)), "s": ("f16", (4, 3))}
    found = infer(planes, (4, 48), streams=streams)
    assert isinstance(found, InferredCompound)
    assert [(one.block, one.nbytes) for one in found.desc.format.sections] == sections
    arrays = random_arrays(streams, 5)
    assert assemble(found.desc, arrays).buffer.tobytes() == planes(arrays)


def test_signed_numbers_stored_with_an_offset_have_a_zero() -> None:
    def offset(arrays: Arrays) -> bytes:
        return q4_0({"qs": (arrays["qs"] + 8).astype(np.uint8), "d": arrays["d"]})

    found = infer(offset, (2, 64), streams={"qs": ("s4", (2, 64)), "d": ("f16", (2, 2))})
    assert isinstance(found, InferredCompound)
    assert found.desc.format.name == "ggml:Q4_0"
    assert "the highest bit of qs is inverted: it is stored as u4" in found.notes


def test_a_filled_buffer_shows_bits_that_are_not_written() -> None:
    def fill(arrays: Arrays, buffer: npt.NDArray[np.uint8]) -> None:
        rows = buffer.reshape(4, 12)
        rows[:, 1:9] = arrays["q"].view(np.uint8)
        rows[:, 9:11] = arrays["s"].view(np.uint8)

    found = infer(fill, (4, 8), streams={"q": ("s8", (4, 8)), "s": ("bf16", (4, 1))}, length=48)
    assert isinstance(found, InferredCompound)
    assert found.desc.format.sections[0].nbytes == 12
    assert found.desc.locate("s", (2, 0))[0].offset == 8 * (2 * 12 + 9)
    assert verify(found.desc, fill, length=48)


@pytest.mark.parametrize("rest", [1, 8, 100])
def test_bytes_after_the_blocks_do_not_hide_them(rest: int) -> None:
    _, dims, streams = PACKERS["ggml:Q4_0"]
    found = infer(lambda arrays: q4_0(arrays) + bytes(rest), dims, streams=streams)
    assert isinstance(found, InferredCompound)
    assert found.desc.format is compound("ggml:Q4_0")
    other = infer(lambda arrays: arrays["q"].tobytes() + bytes(rest), (4, 6), streams={"q": ("s8", (4, 6))})
    assert isinstance(other, InferredCompound)
    assert other.desc.size == 24
    for one in (found, other):
        assert one.notes[-1] == ("1 byte follows the blocks" if rest == 1 else f"{rest} bytes follow the blocks")


def test_pairs_show_the_format_of_their_buffers() -> None:
    _, dims, streams = PACKERS["ggml:Q4_0"]
    pairs = [random_arrays(streams, seed) for seed in range(40)]
    found = infer([q4_0(one) for one in pairs], dims, logical=pairs, streams=streams)
    assert isinstance(found, InferredCompound)
    assert found.desc.format.name == "ggml:Q4_0"
    with pytest.raises(inlay.InlayError, match="give more, of random numbers"):
        infer([q4_0(pairs[0])], dims, logical=pairs[:1], streams=streams)


def swap(arrays: Arrays) -> bytes:
    """Exchange the bytes of two blocks whose first quants differ: the place depends on the values."""
    data = bytearray(q4_0(arrays))
    if data[2] > data[20]:
        data[2], data[20] = data[20], data[2]
    return bytes(data)


@pytest.mark.parametrize(
    ("packer", "rule"),
    [
        (lambda a: q4_0(a) + bytes([int(a["qs"].sum()) & 255]), "foreign"),
        (lambda a: q4_0(a)[:-1], "lost"),
        (lambda a: q4_0(a) + q4_0(a)[:3], "twice"),
        (lambda a: bytes([*q4_0(a)[:5], q4_0(a)[5] ^ 16, *q4_0(a)[6:]]), "xor"),
        (lambda a: q4_0({"qs": a["qs"][:, np.random.default_rng(1).permutation(64)], "d": a["d"]}), "digits"),
        (swap, "foreign"),
    ],
)
def test_what_is_no_format_is_diagnosed(packer: Any, rule: str) -> None:
    found = infer(packer, (2, 64), streams={"qs": ("u4", (2, 64)), "d": ("f16", (2, 2))})
    assert isinstance(found, Diagnosis), found
    assert found.rule == rule, found


def test_values_are_verified() -> None:
    x = np.linspace(-3, 3, 192, dtype=np.float32).reshape(2, 96)
    memory = inlay.pack_compound(x, "ggml:Q4_0")
    values = memory.unpack()
    assert verify(memory.desc, memory.buffer, values)
    spoiled = memory.buffer.copy()
    spoiled[18 * 4 + 2 + 3] ^= 0x10
    result = verify(memory.desc, spoiled, values)
    assert (result.coordinate, result.byte) == ((1, 32 + 16 + 3), 18 * 4 + 2 + 3)
    assert verify(memory.desc, lambda given: inlay.pack_compound(given, "ggml:Q4_0").buffer, values)


@pytest.mark.parametrize("name", compound_formats())
def test_every_format_agrees_with_its_own_streams(name: str) -> None:
    """Padding of formats that repeat the edge is compared too."""
    fmt = compound(name)
    multiple = fmt.required_multiple
    desc = CompoundDesc(fmt, (3, 2 * multiple[-1]) if len(multiple) == 1 else (3, multiple[-1]))
    assert verify(desc, lambda streams: assemble(desc, streams).buffer)


def test_swizzled_scales_in_plain_order_are_named_by_coordinate() -> None:
    desc = CompoundDesc(compound("nvidia:NVFP4_128x4"), (128, 64))

    def plain(streams: Arrays) -> bytes:
        q = streams["quants"]
        return bytes((q[:, 0::2] | q[:, 1::2] << 4).tobytes() + streams["scales"].tobytes())

    result = verify(desc, plain)
    assert (result.stream, result.coordinate) == ("scales", (32, 0))
    assert verify(desc, lambda s: nvfp4({"w": s["quants"], "sf": s["scales"]}))


@given(st.sampled_from(("u4", "s6", "u8", "s32", "bf16", "f32", "f8_e4m3")), st.integers(0, 2**32))
def test_bits_of_numbers_are_their_own_inverse(kind: str, seed: int) -> None:
    stream = ProbedStream.of("q", (kind, (3, 5)), 2)
    bits = np.random.default_rng(seed).integers(0, 2, stream.nbits, np.uint8)
    assert np.array_equal(stream.bits_of(stream.numbers(bits)), bits)


def test_the_example_runs() -> None:
    call = [sys.executable, str(ROOT / "examples" / "infer_blocks.py")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ggml:Q4_0 2x64: blocks of 32 elements in 18 bytes\n"
        "    q of quants: 2x64 of 4 bits, as u8, zero 8\n"
        "    d of scale: 2x2 of 16 bits, as f16\n"
        "    also ggml:IQ4_NL: the same bits with another meaning\n"
        "neighbors in one byte: quants at (0, 16) is wrong in byte 2\n"
    )


def test_the_dims_of_a_format_by_name_are_those_of_its_streams() -> None:
    memory = inlay.pack_compound(np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64), "ggml:Q4_0")
    assert verify("ggml:Q4_0", memory.buffer, memory.streams())
    assert verify("ggml:Q4_0", memory.buffer, memory.unpack())
    with pytest.raises(inlay.InvalidArguments, match="has no dims: give dims=, or logical="):
        verify("ggml:Q4_0", memory.buffer, {"scale": memory.stream("scale")})
