"""Emitted C99, compiled by gcc without a warning, and run between guard pages against the reference."""

import ctypes
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay import MemoryDesc
from inlay.data_type import ALL_TYPES, DATA_TYPES, MOVED_TYPES
from inlay.emission.functions import row_major_desc
from inlay.testing import Seeded, draw_descriptor, draw_reorder_problem
from tests.support.edge_codes import edge_codes
from tests.support.emitted_programs import (
    GCC,
    STRICT,
    Bytes,
    Pair,
    buffer_size,
    caller,
    compile_library,
    judge_function,
)

needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
CROSS = shutil.which("aarch64-linux-gnu-gcc")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


def noise(desc: MemoryDesc, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, buffer_size(desc), np.uint8)


def source_of(pairs: list[Pair]) -> bytes:
    """One file with the functions f0, f1, ..., one for each pair."""
    return "".join(str(inlay.emit(*pair, name=f"f{i}")) for i, pair in enumerate(pairs)).encode()


def judge_all(folder: Path, pairs: list[Pair]) -> None:
    library = compile_library(folder, {"emitted.c": source_of(pairs)}, *STRICT)
    for i, (src, dst) in enumerate(pairs):
        judge_function(caller(library, f"f{i}"), src, dst, noise(src, i))


@needs_gcc
def test_random_reorders(tmp_path: Path) -> None:
    choose = Seeded(18)
    judge_all(tmp_path, [draw_reorder_problem(choose, sub_byte=bool(i % 2)) for i in range(150)])


@needs_gcc
def test_random_layouts(tmp_path: Path) -> None:
    choose = Seeded(3)
    descs = [draw_descriptor(choose) for _ in range(150)]
    source = "".join(str(inlay.emit(desc, name=f"f{i}")) for i, desc in enumerate(descs)).encode()
    library = compile_library(tmp_path, {"emitted.c": source}, *STRICT)
    rng = np.random.default_rng(0)
    for i, desc in enumerate(descs):
        array = row_major_desc(desc)
        function = library[f"f{i}_offset"]
        function.restype = ctypes.c_int64
        for _ in range(20 if 0 not in desc.dims else 0):
            x = [int(rng.integers(n)) for n in desc.dims]
            assert function(*map(ctypes.c_int64, x)) == desc.offset(x)
        if desc.data_type == "f4_e2m1":
            continue  # a byte holds a code, and the reference converts numbers: `test_codes_of_f4`
        valid = np.random.default_rng(i).integers(0, 256, buffer_size(array), np.uint8)
        judge_function(caller(library, f"f{i}_pack"), array, desc, valid)
        judge_function(caller(library, f"f{i}_unpack"), desc, array, noise(desc, i))


@needs_gcc
def test_codes_of_f4(tmp_path: Path) -> None:
    desc = MemoryDesc((3, 21), "f4_e2m1", "aB8b")
    library = compile_library(tmp_path, {"emitted.c": str(inlay.emit(desc, name="f")).encode()}, *STRICT)
    codes = np.random.default_rng(0).integers(0, 16, desc.dims, np.uint8)
    packed, back = np.empty(desc.size, np.uint8), np.empty_like(codes)
    caller(library, "f_pack")(codes.ctypes.data, packed.ctypes.data)
    expected = inlay.pack(codes.view(DATA_TYPES["f4_e2m1"].dtype), "aB8b")
    assert (packed == expected.buffer.view(np.uint8)).all()
    caller(library, "f_unpack")(packed.ctypes.data, back.ctypes.data)
    assert (back == codes).all()


@needs_gcc
def test_every_type_moves(tmp_path: Path) -> None:
    pairs = [(MemoryDesc((3, 18), name, "ab"), MemoryDesc((3, 18), name, "aB4b")) for name in ALL_TYPES]
    judge_all(tmp_path, [pair for pair in pairs if str(pair[0].data_type) in DATA_TYPES])
    moved = [pair for pair in pairs if str(pair[0].data_type) in MOVED_TYPES]
    assert len(moved) == 7
    folder = tmp_path / "moved"
    folder.mkdir()
    library = compile_library(folder, {"emitted.c": source_of(moved)}, *STRICT)
    for i, (src, dst) in enumerate(moved):
        bits = noise(src, i) & 1 if src.data_type == "bool" else noise(src, i)
        out = np.zeros(dst.size, np.uint8)
        caller(library, f"f{i}")(bits.ctypes.data, out.ctypes.data)
        array = bits.reshape(3, 18, -1)
        assert (out.reshape(3, 20, -1)[:, :18] == array).all()
        assert not out.reshape(3, 20, -1)[:, 18:].any()


@needs_gcc
def test_every_conversion(tmp_path: Path) -> None:
    """Each pair of types, on all codes of at most 16 bits and those that conversions get wrong, as the reference."""
    pairs: list[Pair] = []
    contents = []
    for src, dst in product(DATA_TYPES, DATA_TYPES):
        codes = np.arange(256, dtype=np.uint8) if DATA_TYPES[src].is_sub_byte else edge_codes(src)
        count = codes.size * 2 if DATA_TYPES[src].is_sub_byte else codes.size
        if src != dst:
            pairs.append((MemoryDesc((count,), src, "a"), MemoryDesc((count,), dst, "a")))
            contents.append(codes.view(np.uint8))
    assert len(pairs) == len(DATA_TYPES) * (len(DATA_TYPES) - 1)
    library = compile_library(tmp_path, {"emitted.c": source_of(pairs)}, *STRICT, "-Wconversion")
    for i, (pair, content) in enumerate(zip(pairs, contents, strict=True)):
        judge_function(caller(library, f"f{i}"), *pair, content)


@needs_gcc
@pytest.mark.parametrize("narrow", [name for name, t in DATA_TYPES.items() if t.kind == "float" and t.bits <= 16])
def test_narrow_floats_convert_as_reorder(narrow: str, tmp_path: Path) -> None:
    """All codes to f32, and random numbers of f32 and f64 to codes, bit for bit as `inlay.reorder`."""
    rng = np.random.default_rng(16)
    codes = np.arange(1 << max(DATA_TYPES[narrow].bits, 8)).astype(f"u{DATA_TYPES[narrow].itemsize}")
    near = np.ldexp(rng.standard_normal(300_000), rng.integers(-160, 140, 300_000))
    random = rng.integers(0, 2**32, 200_000, np.uint32)
    with np.errstate(over="ignore"):
        numbers = np.concatenate([near.astype(np.float32).view(np.uint32), random])
    pairs: list[Pair] = []
    contents = []
    for one, other, array in ((narrow, "f32", codes), ("f32", narrow, numbers), ("f64", narrow, near)):
        count = array.nbytes * 8 // DATA_TYPES[one].bits
        pairs.append((MemoryDesc((count,), one, "a"), MemoryDesc((count,), other, "a")))
        contents.append(array.view(np.uint8))
    library = compile_library(tmp_path, {"emitted.c": source_of(pairs)}, *STRICT)
    for i, ((src, dst), content) in enumerate(zip(pairs, contents, strict=True)):
        found = np.empty(dst.size, np.uint8)
        caller(library, f"f{i}")(content.ctypes.data, found.ctypes.data)
        expected = inlay.reorder(inlay.Memory(src, content), dst).buffer.view(np.uint8)
        assert (found == expected).all(), f"{src} -> {dst}"


@needs_gcc
@pytest.mark.parametrize(("one", "other"), [("u4", "f32"), ("f16", "s4"), ("s4", "s4"), ("s64", "u8")])
def test_no_function_is_unused_without_data(one: str, other: str, tmp_path: Path) -> None:
    """A destination that consists of padding alone needs neither loads nor conversions."""
    pair = tuple(MemoryDesc((0, 6), name, strides=(8, 1), padded_dims=(4, 8)) for name in (one, other))
    library = compile_library(tmp_path, {"emitted.c": source_of([(pair[0], pair[1])])}, *STRICT)
    out = np.full(buffer_size(pair[1]), 0xFF, np.uint8)
    caller(library, "f0")(out.ctypes.data, out.ctypes.data)
    assert not out.any()


@needs_gcc
def test_a_wrong_stride_is_found(tmp_path: Path) -> None:
    """The judge is one: a function with another stride fails."""
    src, dst = MemoryDesc((4, 6), "u8", "ab"), MemoryDesc((4, 6), "u8", "ba")
    spoiled = str(inlay.emit(src, dst, name="f")).replace("a * 6", "a * 5").encode()
    library = compile_library(tmp_path, {"emitted.c": spoiled}, *STRICT)
    with pytest.raises(AssertionError, match="byte"):
        judge_function(caller(library, "f"), src, dst, noise(src, 0))


def test_comments_and_macros_give_the_same_bytes() -> None:
    """Both count from the start of the buffer, where oneDNN's size leaves out what precedes the first element."""
    part = MemoryDesc((8, 8), "f32", "ab").submemory((2, 3), (1, 1))
    assert part.size == 64
    header = inlay.emit(part, name="s").header
    assert "#define S_PACK_DST_BYTES INT64_C(80)" in header
    assert "-> f32:0:blocked:ab:8x1:f0, 2 x 3, 80 bytes */" in header
    assert "Buffers are aligned for their elements, and those of one call do not overlap." in header
    assert "Padding of a destination is set to zero" in header


@needs_gcc
def test_the_header_suits_c_and_cpp(tmp_path: Path) -> None:
    code = inlay.emit(MemoryDesc((2, 17, 5, 4), "s8", "nChw8c"), name="act")
    code.save(tmp_path / "act.c")
    main = '#include "act.h"\n#include "act.h"\nint main(void) { return (int)act_offset(0, 0, 0, 1) - 8; }\n'
    for name, compiler, options in (("main.c", "gcc", STRICT), ("main.cpp", "g++", ("-Wall", "-Wextra", "-Werror"))):
        (tmp_path / name).write_text(main)
        if shutil.which(compiler) is None:
            continue
        subprocess.run(["gcc", *STRICT, "-c", "act.c", "-o", "act.o"], cwd=tmp_path, check=True)
        subprocess.run([compiler, *options, name, "act.o", "-o", "main"], cwd=tmp_path, check=True)
        assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


@pytest.mark.skipif(CROSS is None or QEMU is None, reason="no cross compiler of AArch64, or no qemu-user")
def test_twenty_cross_compiled(tmp_path: Path) -> None:
    """A program for AArch64 reads the sources of 20 reorders from one file and writes their destinations."""
    assert CROSS is not None
    assert QEMU is not None
    choose = Seeded(20)
    pairs = [draw_reorder_problem(choose, sub_byte=True) for _ in range(20)]
    sizes = [(buffer_size(src), buffer_size(dst)) for src, dst in pairs]
    calls = "".join(
        f"    fread(src, 1, {a}, stdin); memset(dst, 0xA5, {b}); f{i}((void *)src, (void *)dst);"
        f" fwrite(dst, 1, {b}, stdout);\n"
        for i, (a, b) in enumerate(sizes)
    )
    most = max(map(max, sizes)) + 1
    buffers = f"static double src[{most}], dst[{most}];\n"
    main = f"#include <stdio.h>\n#include <string.h>\n{buffers}int main(void)\n{{\n{calls}    return 0;\n}}\n"
    (tmp_path / "main.c").write_text(source_of(pairs).decode() + main)
    subprocess.run([CROSS, "-std=c99", "-O1", "-static", "-o", "main", "main.c"], cwd=tmp_path, check=True)
    sources = [noise(src, i) for i, (src, _) in enumerate(pairs)]
    data = b"".join(source.tobytes() for source in sources)
    out = subprocess.run([QEMU, tmp_path / "main"], input=data, capture_output=True, check=True).stdout
    for (src, dst), source, (_, nbytes) in zip(pairs, sources, sizes, strict=True):
        result, out = np.frombuffer(out[:nbytes], np.uint8), out[nbytes:]

        def copy_result(_: int, address: int, result: Bytes = result) -> None:
            ctypes.memmove(address, result.ctypes.data, result.size)

        judge_function(copy_result, src, dst, source)
