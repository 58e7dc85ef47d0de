"""Emitted C, cross-compiled for AArch64 by clang of the package ziglang, and run in Unicorn against the reference.

The source is compiled into a freestanding object, which `tests.support.aarch64_emulator` loads. Undefined behavior that
clang's sanitizer knows is an instruction that the emulator faults on.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay import CompoundDesc, CompoundMemory, MemoryDesc
from inlay.emission.functions import buffer_bytes
from inlay.testing import Seeded, draw_reorder_problem
from tests.support.aarch64_emulator import faults, has_unicorn
from tests.support.emitted_programs import Bytes, Pair, judge_function, run_emulated
from tests.support.guarded_buffers import GuardedBuffer

HAS_ZIG = importlib.util.find_spec("ziglang") is not None
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not HAS_ZIG, reason="ziglang, a cross compiler, is not installed"),
    pytest.mark.skipif(not has_unicorn(), reason="Unicorn is not installed"),
]
LIBRARY = """
void *memcpy(void *dst, const void *src, __SIZE_TYPE__ count)
{
    for (__SIZE_TYPE__ i = 0; i < count; i++) {
        ((volatile unsigned char *)dst)[i] = ((const unsigned char *)src)[i];
    }
    return dst;
}
void *memset(void *dst, int value, __SIZE_TYPE__ count)
{
    for (__SIZE_TYPE__ i = 0; i < count; i++) {
        ((volatile unsigned char *)dst)[i] = (unsigned char)value;
    }
    return dst;
}
"""
"""What emitted code calls of the C library, without calls of itself."""
OPTIONS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-stack-protector", "-fno-unwind-tables")
CONVERSIONS = (
    *(("f32", "s8"), ("s32", "bf16"), ("bf16", "s4"), ("f64", "s64"), ("u8", "f32"), ("s64", "f32")),
    *(("f16", "f32"), ("f32", "f16"), ("f64", "f8_e4m3"), ("f8_e4m3", "f8_e5m2"), ("e8m0", "bf16")),
)
SANITIZED = ("-fsanitize=undefined", "-fsanitize-trap=undefined")


def cross_compiled(folder: Path, source: str, *options: str) -> bytes:
    """Return an object file of AArch64."""
    path, out = folder / "emitted.c", folder / "emitted.o"
    path.write_text(source + LIBRARY)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-c", str(path), "-o", str(out)]
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(folder / "zig"))
    done = subprocess.run(
        [*zig, *OPTIONS, *options], capture_output=True, text=True, check=False, env=os.environ | caches
    )
    assert not done.returncode, done.stderr[:4000]
    return out.read_bytes()


def judge_emulated(code: bytes, name: str, pair: Pair, content: Bytes) -> None:
    """Run a function in Unicorn, and compare with the reference byte by byte."""

    def copy_result(_: int, address: int) -> None:
        size = buffer_bytes(pair[1])
        target = GuardedBuffer(size, "upper", 16)
        run_emulated(code, name, content, target)
        ctypes.memmove(address, target.bytes.ctypes.data, size)
        assert target.gap_is_untouched

    judge_function(copy_result, *pair, content)


@pytest.mark.parametrize("options", [("-O2",), ("-O0", *SANITIZED)], ids=["optimized", "sanitized"])
def test_twenty_reorders(options: tuple[str, ...], tmp_path: Path) -> None:
    choose = Seeded(20)
    pairs: list[Pair] = [draw_reorder_problem(choose, sub_byte=bool(i % 2)) for i in range(20)]
    for one, other in CONVERSIONS:
        pairs.append((MemoryDesc((3, 17, 4), one, "acb"), MemoryDesc((3, 17, 4), other, "aBc8b")))
    texts = [str(inlay.emit(*pair, name=f"f{i}")) for i, pair in enumerate(pairs)]
    code = cross_compiled(tmp_path, "".join(texts), *options)
    for i, (src, dst) in enumerate(pairs):
        content = np.random.default_rng(i).integers(0, 256, buffer_bytes(src), np.uint8)
        judge_emulated(code, f"f{i}", (src, dst), content)


@pytest.mark.parametrize("options", [("-O2",), ("-O0", *SANITIZED)], ids=["optimized", "sanitized"])
def test_compound_formats(options: tuple[str, ...], tmp_path: Path) -> None:
    names = ("ggml:Q4_0", "ggml:Q5_1", "ggml:Q8_0", "ggml:MXFP4", "ggml:Q4_K", "ggml:Q6_K", "kleidiai:qsi4c32p4x8")
    descs = []
    for name in names:
        fmt = inlay.compound(name)
        block = fmt.sections[0].block
        descs.append(CompoundDesc(fmt, (5, 2 * block[-1])))
    code = cross_compiled(tmp_path, "".join(str(inlay.emit(d, name=f"f{i}")) for i, d in enumerate(descs)), *options)
    for i, desc in enumerate(descs):
        content = np.random.default_rng(i).integers(0, 256, desc.size, np.uint8)
        expected = CompoundMemory(desc, content).unpack()
        target = GuardedBuffer(expected.nbytes, "upper", 16)
        run_emulated(code, f"f{i}_unpack", content, target)
        found = target.bytes.view(np.float32).reshape(desc.dims)
        assert (np.isnan(found) == np.isnan(expected)).all()
        assert (found[~np.isnan(found)].view(np.uint32) == expected[~np.isnan(found)].view(np.uint32)).all(), str(desc)


def test_undefined_behavior_is_found(tmp_path: Path) -> None:
    src, dst = MemoryDesc((4, 6), "s32", "ab"), MemoryDesc((4, 6), "s32", "ba")
    spoiled = str(inlay.emit(src, dst, name="f")).replace("a * 6", "(a + 1) * 0x7FFFFFFFFFFFFFF6")
    code = cross_compiled(tmp_path, spoiled, "-O0", *SANITIZED)
    with pytest.raises(faults()):
        judge_emulated(code, "f", (src, dst), np.zeros(96, np.uint8))
