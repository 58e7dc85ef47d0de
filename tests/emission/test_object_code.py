"""Emitted object files: linked by gcc and run, or run by an emulator of AArch64, against the reference."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay import MemoryDesc
from inlay.data_type import DATA_TYPES
from inlay.machine import MemoryModel
from inlay.reordering import planning
from inlay.reordering.reference import reference_reorder
from inlay.reordering.target import host_target
from inlay.testing import Seeded, draw_reorder_problem
from tests.support import aarch64_emulator
from tests.support.emitted_programs import (
    GCC,
    Bytes,
    Pair,
    buffer_size,
    caller,
    compile_library,
    judge_function,
    run_emulated,
)
from tests.support.guarded_buffers import GuardedBuffer

needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
is_x86 = host_target().triple.startswith("x86_64")
LEVELS = {16: ("x86-64-v2",), 32: ("x86-64-v2", "x86-64-v3"), 64: ("x86-64-v2", "x86-64-v3", "x86-64-v4")}
RUNNABLE = (None, *(LEVELS[host_target().vector_bytes] if is_x86 else ("aarch64",)))
"""Targets whose code this processor runs."""
LARGE = [
    (MemoryDesc((256, 192), "u8", "ab"), MemoryDesc((256, 192), "u8", "ba")),  # streamed
    (MemoryDesc((700, 301), "f32", "ab"), MemoryDesc((700, 301), "f32", "ba")),  # panels
    (MemoryDesc((2, 40, 9, 16), "f32", "nchw"), MemoryDesc((2, 40, 9, 16), "bf16", "nChw16c")),
    (MemoryDesc((64, 3, 48), "u8", "acb"), MemoryDesc((64, 3, 48), "u8", "abc")),
    (MemoryDesc((33, 22), "s4", "ab"), MemoryDesc((33, 22), "s4", "aB8b")),
    (MemoryDesc((0, 3), "f32", "ab"), MemoryDesc((0, 3), "f32", "ba")),
]


def noise(desc: MemoryDesc, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, buffer_size(desc), np.uint8)


def judge_all(folder: Path, pairs: list[Pair], target: str | None) -> None:
    objects = {
        f"f{i}.o": inlay.emit(*pair, form="object", name=f"f{i}", target=target).content for i, pair in enumerate(pairs)
    }
    library = compile_library(folder, objects, "-Wl,--fatal-warnings", "-Wl,-z,defs", "-nostdlib")
    for i, (src, dst) in enumerate(pairs):
        judge_function(caller(library, f"f{i}"), src, dst, noise(src, i))


@pytest.fixture
def tiny_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine model without caches, for which every plan streams if it can."""
    monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))


@needs_gcc
@pytest.mark.parametrize("target", RUNNABLE)
def test_random_reorders(target: str | None, tmp_path: Path) -> None:
    choose = Seeded(5)
    pairs = [draw_reorder_problem(choose, sub_byte=i % 3 == 0, convert=i % 3 == 1, large=i % 3 == 2) for i in range(24)]
    judge_all(tmp_path, pairs, target)


@needs_gcc
@pytest.mark.usefixtures("tiny_caches")
@pytest.mark.parametrize("target", RUNNABLE)
def test_streaming_stores_and_panels(target: str | None, tmp_path: Path) -> None:
    codes = [inlay.emit(*pair, form="object", target=target).content for pair in LARGE]
    assert any(b"panel.buffer" in code for code in codes)
    judge_all(tmp_path, LARGE, target)


@needs_gcc
@pytest.mark.usefixtures("tiny_caches")
def test_destinations_at_every_alignment(tmp_path: Path) -> None:
    src, dst = LARGE[0]
    library = compile_library(tmp_path, {"f.o": inlay.emit(src, dst, form="object", name="f").content})
    content = noise(src, 0)
    expected = content.reshape(src.dims).T.ravel()
    buffer = np.empty(dst.size + 128, np.uint8)
    for shift in range(64):
        buffer[:] = 0xA5
        start = -buffer.ctypes.data % 64 + shift
        caller(library, "f")(content.ctypes.data, buffer.ctypes.data + start)
        assert (buffer[start : start + dst.size] == expected).all()
        assert (buffer[:start] == 0xA5).all()
        assert (buffer[start + dst.size :] == 0xA5).all()


@needs_gcc
def test_pack_and_unpack(tmp_path: Path) -> None:
    desc = MemoryDesc((5, 17, 3), "s4", "aBc8b")
    code = inlay.emit(desc, form="object", name="w")
    library = compile_library(tmp_path, {"w.o": code.content})
    values = np.random.default_rng(0).integers(-8, 8, desc.dims).astype(np.int8)
    packed, back = np.empty(desc.size, np.uint8), np.empty_like(values)
    caller(library, "w_pack")(values.ctypes.data, packed.ctypes.data)
    assert (packed == inlay.pack(values.astype(DATA_TYPES["s4"].dtype), "aBc8b").buffer.view(np.uint8)).all()
    caller(library, "w_unpack")(packed.ctypes.data, back.ctypes.data)
    assert (back == values).all()


@needs_gcc
def test_a_program_in_c_links_it(tmp_path: Path) -> None:
    """The header compiles, the object links into an executable, and only the function's name is visible."""
    src, dst = (MemoryDesc((6, 5), "s32", tag) for tag in ("ab", "ba"))
    paths = inlay.emit(src, dst, form="object", name="flip").save(tmp_path / "flip.o")
    assert [path.name for path in paths] == ["flip.o", "flip.h"]
    (tmp_path / "main.c").write_text(
        '#include "flip.h"\nint main(void)\n{\n    static int32_t a[30], b[30];\n'
        "    for (int i = 0; i < 30; i++) a[i] = i;\n    flip(a, b);\n"
        "    return b[7] == 6 && FLIP_DST_BYTES == 120 ? 0 : 1;\n}\n"
    )
    options = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *options, "main.c", "flip.o", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0
    if shutil.which("nm"):
        symbols = subprocess.run(["nm", "flip.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert re.findall(r" [A-Z] (\S+)", symbols.replace(" r ", " ")) == ["flip"], symbols


@pytest.mark.skipif(not aarch64_emulator.has_unicorn(), reason="Unicorn is not installed")
@pytest.mark.parametrize("is_large", [False, True])
def test_aarch64_in_an_emulator(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_large:
        monkeypatch.setattr(planning, "memory_model", lambda: MemoryModel(0, 0, 0))
    choose = Seeded(9)
    pairs = LARGE[:-1] if is_large else [draw_reorder_problem(choose, sub_byte=True) for _ in range(20)]
    for i, (src, dst) in enumerate(pairs):
        content = noise(src, i)
        target = GuardedBuffer(buffer_size(dst), "upper", 64)
        expected = target.bytes.copy()
        reference_reorder(src, content, dst, expected)
        code = inlay.emit(src, dst, form="object", name=f"f{i}", target="aarch64").content
        run_emulated(code, f"f{i}", content, target)
        assert (target.bytes == expected).all(), (src, dst)
        assert target.gap_is_untouched
