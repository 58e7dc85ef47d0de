"""Emitted code of compound formats: compiled by gcc, against `CompoundMemory`, whose values are ggml's."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import inlay
from inlay import CompoundDesc, CompoundMemory, MemoryDesc, Unimplemented
from inlay.descriptor import Extras
from inlay.descriptor.compound_format import BitField, CompoundFormat, Section, Stream
from inlay.descriptor.compound_table import compound_formats
from inlay.reordering.block_kernel import select_block_kernel
from tests.support.aarch64_emulator import has_unicorn
from tests.support.emitted_programs import GCC, STRICT, Bytes, caller, compile_library, run_emulated
from tests.support.guarded_buffers import GuardedBuffer

needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")


def ragged_desc(fmt: CompoundFormat) -> CompoundDesc:
    """A tensor of several blocks along each axis; the last ones reach beyond it where the format allows that."""
    multiples = fmt.required_multiple
    sizes = [3 * n if n > 1 else 5 for n in multiples]
    return CompoundDesc(fmt, (2, *sizes) if len(sizes) == 1 else tuple(sizes))


def whole_desc(fmt: CompoundFormat) -> CompoundDesc:
    block = fmt.sections[0].block
    return CompoundDesc(fmt, (2, 3 * block[0]) if len(block) == 1 else tuple(2 * n for n in block))


def compensated() -> CompoundDesc:
    """Weights of oneDNN, whose s32 compensation follows them."""
    extras = Extras(1, compensation_mask=1)
    return inlay.describe_compensated(MemoryDesc((20, 6, 3, 3), "s8", "OIhw4i16o4i", extras=extras))


def odd_format() -> CompoundFormat:
    """A format whose fields cross bytes, and whose streams have names that C and the loops use."""
    return CompoundFormat(
        "odd:case",
        (Section((8,), 13, footer_nbytes=4),),
        (
            Stream("a", "u8", (BitField.of(5, 3, ((8, 5),)),), zero=3),
            Stream("long", "s8", (BitField.of(7, 44, ((2, 7),)),)),
            Stream("src", "u8", (BitField.of(7, 60, ((2, 7),)),), codebook=tuple(i / 3 for i in range(128))),
            Stream("two words", "bf16", (BitField.of(16, 75, ()),)),
            Stream("dst2", "f32", (BitField.of(32, 0, ()),), in_footer=True),
        ),
        scales=("long", "src"),
        minima=("two words", "dst2"),
    )


def hostile_format(name: str) -> CompoundFormat:
    """A format whose texts end comments, whose codebook is not finite, and whose s32 exceed f32."""
    return CompoundFormat(
        "odd: */ int /*",
        (Section((4,), 20),),
        (
            Stream("n", "s32", (BitField.of(32, 0, ((4, 32),)),), zero=5),
            Stream(f"{name}_store_bits", "u8", (BitField.of(2, 128, ()),), codebook=(0.1, np.nan, np.inf, -np.inf)),
            Stream("*/ 2", "u8", (BitField.of(8, 136, ()),)),
        ),
        scales=(f"{name}_store_bits",),
    )


DESCS = [*map(ragged_desc, compound_formats().values()), compensated(), ragged_desc(odd_format())]


def noise(desc: CompoundDesc, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, desc.size, np.uint8)


def require_same_values(found: npt.NDArray[np.float32], wanted: npt.NDArray[np.float32], text: str) -> None:
    """Bit for bit; of a NaN, which operations on two NaNs may take from either, only that it is one."""
    is_nan = np.isnan(wanted)
    assert (np.isnan(found) == is_nan).all(), text
    assert (found[~is_nan].view(np.uint32) == wanted[~is_nan].view(np.uint32)).all(), text


def judge_unpack(library: ctypes.CDLL, name: str, desc: CompoundDesc, content: Bytes) -> None:
    source, target = GuardedBuffer(desc.size), GuardedBuffer(4 * int(np.prod(desc.dims)), "upper", 4)
    source.bytes[:] = content
    expected = CompoundMemory(desc, content).unpack()
    source.seal()
    caller(library, name)(source.address, target.address)
    require_same_values(target.bytes.view(np.float32).reshape(desc.dims), expected, str(desc))
    assert target.gap_is_untouched


@needs_gcc
def test_every_format_in_c(tmp_path: Path) -> None:
    """Random bytes: values as `unpack`, with infinities and NaNs among the scales; the streams make the same bytes."""
    sources = {f"f{i}.c": inlay.emit(desc, name=f"f{i}").content for i, desc in enumerate(DESCS)}
    library = compile_library(tmp_path, sources, *STRICT)
    assert len(DESCS) >= 20
    for i, desc in enumerate(DESCS):
        for seed in range(2):
            judge_unpack(library, f"f{i}_unpack", desc, noise(desc, seed))
        streams = CompoundMemory(desc, noise(desc, 3)).streams()
        expected = inlay.assemble(desc, streams).buffer
        target = GuardedBuffer(desc.size)
        arrays = [np.ascontiguousarray(array) for array in streams.values()]
        library[f"f{i}_assemble"](*(ctypes.c_void_p(a.ctypes.data) for a in arrays), ctypes.c_void_p(target.address))
        assert (target.bytes == expected).all(), str(desc)
        assert target.gap_is_untouched


@needs_gcc
def test_a_hostile_format_compiles(tmp_path: Path) -> None:
    desc = CompoundDesc(hostile_format("f"), (64, 8))
    sanitizer = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    library = compile_library(tmp_path, {"f.c": inlay.emit(desc, name="f").content}, *STRICT, *sanitizer)
    content = noise(desc, 5)
    content.reshape(-1, 20)[:, 3] |= 0x80  # numbers below -2**31 + 5 among them
    content[:4] = (0, 0, 0, 0x80)
    judge_unpack(library, "f_unpack", desc, content)


@needs_gcc
def test_every_code_of_a_scale(tmp_path: Path) -> None:
    """All 65536 numbers of f16 and all 256 codes of E8M0 and E4M3 as scales of one element each."""
    library_files, cases = {}, []
    for name, scale, codes in (
        ("ggml:Q8_0", "scale", np.arange(65536, dtype=np.uint16).view(np.float16).reshape(1, -1)),
        ("kleidiai:qsi4c32p4x8", "scale", None),
        ("ggml:MXFP4", "scale", np.arange(256, dtype=np.uint8).reshape(1, -1)),
        ("ggml:NVFP4", "scale", np.arange(256, dtype=np.uint8).reshape(1, -1)),
        ("nvidia:NVFP4_128x4", "scales", None),
    ):
        fmt = inlay.compound(name)
        rows, columns = (fmt.sections[0].block[0] if len(fmt.sections[0].block) > 1 else 1), 0
        dtype = fmt.stream(scale).dtype
        count = 256 if dtype.itemsize == 1 else 65536
        group = CompoundDesc(fmt, (rows, 64)).group(scale)[-1]
        columns = count // rows * group
        desc = CompoundDesc(fmt, (rows, columns))
        if codes is None:
            codes = np.arange(count, dtype=f"u{dtype.itemsize}").view(dtype).reshape(desc.stream_dims(scale))
        streams = CompoundMemory(desc, noise(desc, 1)).streams() | {scale: codes}
        cases.append((desc, inlay.assemble(desc, streams).buffer))
        library_files[f"f{len(cases)}.c"] = inlay.emit(desc, name=f"f{len(cases)}").content
    library = compile_library(tmp_path, library_files, *STRICT)
    for i, (desc, buffer) in enumerate(cases, 1):
        judge_unpack(library, f"f{i}_unpack", desc, buffer)


@needs_gcc
def test_a_null_pointer_is_an_optional_stream_of_zeros(tmp_path: Path) -> None:
    desc = CompoundDesc(inlay.compound("kleidiai:qsi4c32p4x8"), (5, 64))
    library = compile_library(tmp_path, {"f.c": inlay.emit(desc, name="f").content}, *STRICT)
    streams = CompoundMemory(desc, noise(desc, 0)).streams()
    del streams["bias"]
    buffer = np.full(desc.size, 0xA5, np.uint8)
    arrays = [ctypes.c_void_p(streams[name].ctypes.data) for name in ("quants", "scale", "sums")]
    library.f_assemble(*arrays, None, ctypes.c_void_p(buffer.ctypes.data))
    assert (buffer == inlay.assemble(desc, streams).buffer).all()


@needs_gcc
def test_a_wrong_bit_is_found(tmp_path: Path) -> None:
    desc = CompoundDesc(inlay.compound("ggml:Q4_0"), (2, 64))
    spoiled = str(inlay.emit(desc, name="f")).replace("b / 16 % 2 * 4", "b / 16 % 2 * 3").encode()
    library = compile_library(tmp_path, {"f.c": spoiled}, *STRICT)
    with pytest.raises(AssertionError, match="ggml:Q4_0 2x64"):
        judge_unpack(library, "f_unpack", desc, noise(desc, 0))


@needs_gcc
def test_every_kernel_in_an_object_file(tmp_path: Path) -> None:
    descs = [whole_desc(fmt) for fmt in compound_formats().values() if select_block_kernel(fmt, streams=False)]
    assert len(descs) >= 17
    objects = {f"f{i}.o": inlay.emit(d, form="object", name=f"f{i}").content for i, d in enumerate(descs)}
    library = compile_library(tmp_path, objects, "-Wl,--fatal-warnings", "-Wl,-z,defs", "-nostdlib")
    for i, desc in enumerate(descs):
        judge_unpack(library, f"f{i}_unpack", desc, noise(desc, i))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_object_files_of_other_targets(target: str) -> None:
    code = inlay.emit(CompoundDesc(inlay.compound("ggml:Q4_K"), (2, 256)), form="object", name="k", target=target)
    assert code.content[:4] == b"\x7fELF"
    assert b"k_unpack" in code.content
    assert "k_unpack(const uint8_t *src, float *dst);" in str(code)
    assert "k_assemble" not in str(code)


@pytest.mark.skipif(not has_unicorn(), reason="Unicorn is not installed")
@pytest.mark.parametrize("name", ["ggml:Q4_0", "ggml:MXFP4", "ggml:Q6_K", "kleidiai:qsi4c32p4x8"])
def test_an_object_file_of_aarch64_in_an_emulator(name: str) -> None:
    desc = whole_desc(inlay.compound(name))
    content = noise(desc, 1)
    expected = CompoundMemory(desc, content).unpack()
    target = GuardedBuffer(expected.nbytes, "upper", 16)
    code = inlay.emit(desc, form="object", name="f", target="aarch64").content
    run_emulated(code, "f_unpack", content, target)
    require_same_values(target.bytes.view(np.float32).reshape(desc.dims), expected, name)
    assert target.gap_is_untouched


@needs_gcc
def test_the_header_suits_a_program(tmp_path: Path) -> None:
    desc = CompoundDesc(inlay.compound("ggml:Q8_0"), (1, 32))
    inlay.emit(desc, name="w").save(tmp_path / "w.c")
    main = (
        '#include "w.h"\n#include "w.h"\nint main(void)\n{\n    static int8_t quants[32] = {3};\n'
        "    static uint16_t scale[1] = {0x3800};\n    static uint8_t packed[W_BYTES];\n"
        "    static float values[W_VALUES_BYTES / 4];\n    w_assemble(quants, scale, packed);\n"
        "    w_unpack(packed, values);\n    return values[0] == 1.5f ? 0 : 1;\n}\n"
    )
    (tmp_path / "main.c").write_text(main)
    subprocess.run(["gcc", *STRICT, "main.c", "w.c", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_words() -> None:
    text = str(inlay.emit(CompoundDesc(inlay.compound("ggml:Q4_K"), (2, 512)), form="words"))
    assert text == (
        "ggml:Q4_K tensor of 2 x 512; blocks of 256 elements in 144 bytes; quants: 4 bits as u8; scales: 6 bits as u8, "
        "one for 32 elements; minima: 6 bits as u8, one for 32 elements; scale: f16, one for 256 elements; minimum: "
        "f16, one for 256 elements; value = quants * scale * scales - minimum * minima; 576 bytes.\n"
    )


def test_refusals() -> None:
    desc = CompoundDesc(inlay.compound("ggml:Q4_0"), (2, 64))
    for form in ("numpy", "onednn"):
        with pytest.raises(Unimplemented, match=f"form '{form}' does not describe ggml:Q4_0 2x64"):
            inlay.emit(desc, form=form)
    for refused, reason in (
        (CompoundDesc(inlay.compound("nvidia:NVFP4_128x4"), (128, 64)), "its blocks have no compiled kernel"),
        (CompoundDesc(inlay.compound("kleidiai:qsi4c32p4x8"), (5, 64)), "blocks reach beyond the tensor"),
    ):
        with pytest.raises(Unimplemented, match=f"no object file unpacks {refused}: {reason}. Use form='c'"):
            inlay.emit(refused, form="object")
