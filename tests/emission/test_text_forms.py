"""The NumPy lines are evaluated, oneDNN's calls are compiled with its own header, sentences and errors are pinned."""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import inlay
from inlay import MemoryDesc, Unimplemented
from inlay.cli import main
from inlay.descriptor import Extras
from inlay.testing import Seeded, descriptors, draw_descriptor
from tests.oracles import onednn
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.paths import ROOT
from tests.support.refusals import raises_exactly

NAMES = {
    "M": MemoryDesc,
    "emit": inlay.emit,
    "E": Extras,
    "L": inlay.RUNTIME,
    "R": inlay.Reorder,
    "A": inlay.Attributes,
    "S": inlay.Scales,
    "Q": lambda name, dims: inlay.CompoundDesc(inlay.compound(name), dims),
}


@pytest.mark.parametrize(("call", "error"), read_mistakes("emission"))
def test_a_mistake_gives_this_text(call: str, error: str) -> None:
    assert_mistake(call, error, NAMES)


def evaluated(text: str, **values: Any) -> dict[str, Any]:
    names = {"np": np, **values}
    exec(text, names)
    return names


@given(descriptors(), st.integers(0, 99))
def test_numpy_lines_pack_and_unpack(desc: MemoryDesc, seed: int) -> None:
    try:
        text = str(inlay.emit(desc, form="numpy"))
    except Unimplemented:
        assume(False)
    packed_line, unpacked_line = text.splitlines()
    data_type = desc.require_layout("test")[1]
    codes = np.random.default_rng(seed).integers(0, 256, (*desc.dims, data_type.dtype.itemsize), dtype=np.uint8)
    codes &= 15 if data_type.is_sub_byte else 255
    x = np.ascontiguousarray(codes).view(data_type.dtype).reshape(desc.dims)
    memory = inlay.pack(x, desc)
    stored = memory.buffer.view(np.uint8)
    packed = evaluated(packed_line, x=x)["packed"]
    assert packed.view(np.uint8).tobytes() == stored.tobytes()
    back = evaluated(unpacked_line, packed=packed)["x"]
    assert back.shape == desc.dims
    mask = 15 if data_type.is_sub_byte else 255
    flat = np.ascontiguousarray(back).view(np.uint8).ravel() & mask
    assert (flat == codes.ravel()).all()


def test_most_layouts_have_a_numpy_line() -> None:
    choose, count = Seeded(1), 0
    for _ in range(200):
        try:
            inlay.emit(draw_descriptor(choose), form="numpy")
            count += 1
        except Unimplemented:
            pass
    assert count > 60


def test_numpy_line_of_a_reorder() -> None:
    dims = (2, 17, 5, 4)
    src, dst = MemoryDesc(dims, "s16", "nhwc"), MemoryDesc(dims, "s16", "nChw8c")
    x = np.random.default_rng(0).integers(-999, 999, dims).astype(np.int16)
    stored = inlay.pack(x, src).buffer.view(np.int16)
    moved = evaluated(str(inlay.emit(src, dst, form="numpy", name="out")), src=stored)["out"]
    assert (moved == inlay.pack(x, dst).buffer.view(np.int16)).all()


def header_folder() -> Path | None:
    """The folder of oneDNN's C++ header, which the wheel of torch brings."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None or shutil.which("g++") is None:
        return None
    folder = Path(found.origin).parent / "include"
    return folder if (folder / "dnnl.hpp").exists() else None


@pytest.mark.heavy
def test_onednn_itself_makes_the_same_descriptors(tmp_path: Path) -> None:
    """A program of the emitted calls is compiled with dnnl.hpp; its descriptors are imported and compared."""
    folder, library = header_folder(), None if onednn.why_unavailable() else onednn.library()
    if folder is None or library is None:
        pytest.skip("needs g++, the header in torch's wheel, and oneDNN's library")
    descs: list[MemoryDesc] = []
    calls, choose = [], Seeded(4)
    while len(descs) < 40:
        desc = draw_descriptor(choose, None, choose.pick(("f32", "bf16", "s8", "s32")))  # types of every release
        try:
            calls.append(str(inlay.emit(desc, form="onednn", name=f"d{len(descs)}")))
            descs.append(desc)
        except Unimplemented:
            continue
    clones = "".join(
        f'extern "C" void *make{i}() {{ {call} dnnl_memory_desc_t c; dnnl_memory_desc_clone(&c, d{i}.get());'
        " return c; }\n"
        for i, call in enumerate(calls)
    )
    (tmp_path / "d.cpp").write_text(f'#include "dnnl.hpp"\n{clones}')
    name = str(library._name)
    command = ["g++", "-shared", "-fPIC", "-I", str(folder), "-o", "d.so", "d.cpp", name]
    subprocess.run(command, cwd=tmp_path, check=True)
    built = ctypes.CDLL(str(tmp_path / "d.so"))
    for i, desc in enumerate(descs):
        make = built[f"make{i}"]
        make.restype = ctypes.c_void_p
        handle = make()
        assert MemoryDesc.from_onednn(ctypes.c_void_p(handle), library) == desc, calls[i]


def test_onednn_calls() -> None:
    dims = (2, 17, 5, 4)
    lines = [
        str(inlay.emit(MemoryDesc(dims, "f32", "nChw8c"), form="onednn", name="d")),
        str(inlay.emit(MemoryDesc(dims, "bf16", "any"), form="onednn", name="d")),
        str(inlay.emit(MemoryDesc((4, 6), "s8", strides=(8, 1)), form="onednn", name="d")),
        str(inlay.emit(MemoryDesc((inlay.RUNTIME, 6), "s8", "ab"), form="onednn", name="d")),
    ]
    prefix, types = "dnnl::memory::desc d(", "dnnl::memory::data_type::"
    assert lines == [
        f"{prefix}{{2, 17, 5, 4}}, {types}f32, dnnl::memory::format_tag::nChw8c);\n",
        f"{prefix}{{2, 17, 5, 4}}, {types}bf16, dnnl::memory::format_tag::any);\n",
        f"{prefix}{{4, 6}}, {types}s8, dnnl::memory::dims{{8, 1}});\n",
        f"{prefix}{{DNNL_RUNTIME_DIM_VAL, 6}}, {types}s8, dnnl::memory::format_tag::ab);\n",
    ]


def test_sentences() -> None:
    desc = MemoryDesc((33, 17, 3, 3), "s8", "OIhw4i16o4i")
    assert str(inlay.emit(desc, form="words")) == (
        "s8 tensor of o = 33, i = 17, h = 3, w = 3; o is padded to 48 with zeros; i is padded to 32 with zeros; "
        "slowest to fastest in memory: o / 16, i / 16, h, w, i / 4 % 4, o % 16, i % 4; 13824 bytes.\n"
    )
    part = MemoryDesc((8, 8), "f32", "ab").submemory((2, 3), (1, 1))
    assert str(inlay.emit(part, form="words")) == (
        "f32 tensor of a = 2, b = 3; slowest to fastest in memory: a (stride 8), b; begins at element 9; has gaps; "
        "64 bytes; "
        "the buffer has 80 bytes or more.\n"
    )
    compensated = MemoryDesc((16, 4, 1, 1), "s8", "OIhw4i16o4i", extras=Extras(1, compensation_mask=1))
    assert str(inlay.emit(compensated, form="words")).endswith("o, i % 4; with oneDNN's extras f1:s8m1; 320 bytes.\n")


def test_sentences_have_strides_that_are_not_dense() -> None:
    cases = {
        MemoryDesc((4, 6), "f32", "(4,6):(-6,1)", offset0=18): "a (stride -6), b; begins at element 18; 96 bytes.\n",
        MemoryDesc((4, 6), "f32", strides=(0, 1)): "memory: b; elements are repeated along a; 24 bytes.\n",
        MemoryDesc((2, 4), "f32", "(2,4):(1,1)"): "memory: b (stride 1), a; elements overlap; 20 bytes.\n",
        MemoryDesc((8, 6), "u8", "(m m4) k -> m k m4", alignment=64): "m / 4, k (stride 64), m % 4; has ",
    }
    for desc, text in cases.items():
        assert text in str(inlay.emit(desc, form="words"))


def test_layouts_below_their_buffer_are_refused() -> None:
    below = MemoryDesc((16,), "f32", "16:-1")
    refusal = f"{below!r} reaches 15 elements below the start of its buffer: give it a larger offset0"
    for form in ("c", "object", "words"):
        with raises_exactly(inlay.InvalidArguments, refusal):
            inlay.emit(below, form=form)
    with raises_exactly(inlay.InvalidArguments, refusal):
        inlay.emit(MemoryDesc((16,), "f32"), below)
    assert "dst[15 + a * -1] = src[a]" in str(inlay.emit(MemoryDesc((16,), "f32", "16:-1", offset0=15)))


def test_the_command_writes_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "act.c"
    assert main(["emit", "nChw8c", "2x17x5x4", "--name", "act", "-o", str(path)]) == 0
    code = inlay.emit(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), name="act")
    assert path.read_bytes() == code.content
    assert path.with_suffix(".h").read_text() == code.header
    capsys.readouterr()
    assert main(["emit", "(a a8) b -> a b a8", "17x5", "--form", "words"]) == 0
    assert "a / 8, b, a % 8" in capsys.readouterr().out
    assert main(["emit", "ab", "2x3", "--form", "object"]) == 2
    assert capsys.readouterr().err == "error: an object file is not printed: name it with --output FILE\n"
    assert main(["emit", "ab", "2x3", "--to-dtype", "s8"]) == 2
    assert "give --to TAG too" in capsys.readouterr().err


def test_the_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "emit_code.py"), str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "wrote act.c, act.h, to_planes_x86-64-v3.o" in out
    assert "q4.c, q4.h" in out
    assert ("computes the same values" in out) == (shutil.which("gcc") is not None)
    assert ("packs the same bytes" in out) == (shutil.which("gcc") is not None)
