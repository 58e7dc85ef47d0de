"""Emitted code of swizzled memory: C compiled by gcc, NumPy lines and words, against offsets permuted bit by bit."""

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import inlay
from inlay import MemoryDesc, Swizzle, Unimplemented
from inlay.emission.functions import buffer_bytes, row_major_desc, without_swizzle
from inlay.errors import InvalidArguments
from inlay.reordering.reference import reference_reorder
from inlay.testing import Seeded, descriptors, draw_descriptor, draw_swizzle, swizzles
from tests.support.emitted_programs import GCC, STRICT, Bytes, caller, compile_library
from tests.support.guarded_buffers import POISON, GuardedBuffer

needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")


def with_swizzle(desc: MemoryDesc, swizzle: Swizzle) -> MemoryDesc:
    layout, data_type = desc.require_layout("a test")
    return MemoryDesc.from_layout(layout, data_type, dims=desc.dims, offset0=desc.offset0, swizzle=swizzle)


def swizzled_offsets(swizzle: Swizzle, count: int) -> npt.NDArray[np.int64]:
    """Where CuTe's formula puts each of `count` offsets, one bit at a time."""
    offsets = np.arange(count)
    places = offsets.copy()
    for i in range(swizzle.bits):
        read, changed = swizzle.base + max(swizzle.shift, 0) + i, swizzle.base + max(-swizzle.shift, 0) + i
        places ^= (offsets >> read & 1) << changed
    return places


def permuted(desc: MemoryDesc, content: Bytes) -> Bytes:
    """The bytes with the elements of swizzled memory in linear order, or the other way round."""
    if desc.swizzle is None or desc.data_type is None:
        return content
    is_sub_byte, swizzle = desc.data_type.is_sub_byte, desc.swizzle
    parts = np.stack([content & 15, content >> 4], -1) if is_sub_byte else content
    elements = parts.reshape(-1, 1 if is_sub_byte else desc.data_type.itemsize)
    moved = elements.copy()
    places = swizzled_offsets(swizzle, len(elements) - desc.offset0)
    assert (np.sort(places) == np.arange(len(places))).all()
    moved[places + desc.offset0] = elements[desc.offset0 :]
    flat: Bytes = moved.reshape(-1)
    return np.bitwise_or(flat[::2], flat[1::2] << 4, dtype=np.uint8) if is_sub_byte else flat


def judge_swizzled(library: ctypes.CDLL, name: str, src: MemoryDesc, dst: MemoryDesc, seed: int) -> None:
    """Call a function between guard pages; compare every byte with the reference on linear copies."""
    source, target = (GuardedBuffer(buffer_bytes(desc), "upper", 16) for desc in (src, dst))
    source.bytes[:] = np.random.default_rng(seed).integers(0, 256, source.bytes.size, np.uint8)
    linear = permuted(dst, np.full(target.bytes.size, POISON, np.uint8))
    reference_reorder(without_swizzle(src), permuted(src, source.bytes), without_swizzle(dst), linear)
    source.seal()
    caller(library, name)(source.address, target.address)
    assert (target.bytes == permuted(dst, linear)).all(), f"{src!r} -> {dst!r}"
    assert target.gap_is_untouched


def draw_swizzled(choose: Seeded, data_type: str, dims: tuple[int, ...] | None = None) -> MemoryDesc:
    while True:
        try:
            return with_swizzle(draw_descriptor(choose, dims, data_type), draw_swizzle(choose, whole_bytes=True))
        except InvalidArguments:
            continue  # negative offsets, or strides that split a byte


@needs_gcc
def test_sixty_random_swizzled_layouts(tmp_path: Path) -> None:
    """Offset, pack, unpack, and the reorder to another swizzled layout."""
    choose, texts, cases = Seeded(7), [], []
    for i in range(60):
        src = draw_swizzled(choose, choose.pick(("u8", "s16", "f32", "s4", "f64", "bf16")))
        dst = draw_swizzled(choose, str(src.data_type), src.dims)
        texts += [str(inlay.emit(src, name=f"f{i}")), str(inlay.emit(src, dst, name=f"g{i}"))]
        cases.append((src, dst))
    library = compile_library(tmp_path, {"emitted.c": "".join(texts).encode()}, *STRICT)
    rng = np.random.default_rng(0)
    for i, (src, dst) in enumerate(cases):
        array = row_major_desc(src)
        offset = library[f"f{i}_offset"]
        offset.restype = ctypes.c_int64
        for _ in range(10 if 0 not in src.dims else 0):
            x = [int(rng.integers(n)) for n in src.padded_dims]
            assert offset(*map(ctypes.c_int64, x)) == src.offset(x)
        judge_swizzled(library, f"f{i}_pack", array, src, i)
        judge_swizzled(library, f"f{i}_unpack", src, array, i)
        judge_swizzled(library, f"g{i}", src, dst, i)


@needs_gcc
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_object_code_of_swizzled_layouts(tmp_path: Path, target: str) -> None:
    choose, files = Seeded(11), {}
    tiles = MemoryDesc((96, 128), "bf16", "Swizzle<3,3,3> o (96,(64,2)):(64,(1,6144))")
    pairs = [(MemoryDesc((96, 128), "bf16", "ba"), tiles), (tiles, MemoryDesc((96, 128), "bf16", "ab"))]
    for _ in range(6):
        src = draw_swizzled(choose, choose.pick(("u8", "s16", "f32", "s4", "f64")))
        pairs.append((src, draw_swizzled(choose, str(src.data_type), src.dims)))
    for i, (src, dst) in enumerate(pairs):
        files[f"g{i}.o"] = inlay.emit(src, dst, form="object", name=f"g{i}", target=target).content
    library = compile_library(tmp_path, files)
    for i, (src, dst) in enumerate(pairs):
        judge_swizzled(library, f"g{i}", src, dst, i)


@needs_gcc
def test_a_wrong_mask_is_found(tmp_path: Path) -> None:
    desc = MemoryDesc((8, 64), "u8", "Swizzle<3,3,3> o (8,64):(64,1)")
    spoiled = str(inlay.emit(desc, name="f")).replace("& 448", "& 192").encode()
    library = compile_library(tmp_path, {"emitted.c": spoiled}, *STRICT)
    with pytest.raises(AssertionError, match="Swizzle"):
        judge_swizzled(library, "f_pack", row_major_desc(desc), desc, 0)


@given(descriptors(), swizzles(whole_bytes=True), st.integers(0, 9))
def test_numpy_lines_of_swizzled_memory(desc: MemoryDesc, swizzle: Swizzle, seed: int) -> None:
    assume(0 not in desc.dims)
    try:
        target = with_swizzle(desc, swizzle)
        lines = str(inlay.emit(target, form="numpy")).splitlines()
    except (InvalidArguments, Unimplemented):
        assume(False)
    data_type = desc.require_layout("a test")[1]
    codes = np.random.default_rng(seed).integers(0, 256, (*desc.dims, data_type.dtype.itemsize), dtype=np.uint8)
    codes &= 15 if data_type.is_sub_byte else 255
    x: npt.NDArray[np.generic] = np.ascontiguousarray(codes).view(data_type.dtype).reshape(desc.dims)
    names: dict[str, object] = {"np": np, "x": x}
    exec(lines[0], names)
    packed, memory = names["packed"], inlay.pack(x, target)
    assert isinstance(packed, np.ndarray)
    assert packed.view(np.uint8).tobytes() == memory.buffer.tobytes()
    exec(lines[1], names)
    back = np.ascontiguousarray(names["x"]).view(np.uint8).ravel() & (15 if data_type.is_sub_byte else 255)
    assert (back == codes.ravel()).all()


def test_a_reorder_between_swizzles_has_a_numpy_line() -> None:
    src, dst = (MemoryDesc((8, 64), "u16", text) for text in ("Swizzle<3,3,3> o ab", "Swizzle<1,0,4> o ba"))
    memory = inlay.pack(np.arange(512, dtype=np.uint16).reshape(8, 64), src)
    names: dict[str, object] = {"np": np, "src": memory.buffer.view(np.uint16)}
    exec(str(inlay.emit(src, dst, form="numpy", name="out")), names)
    out = names["out"]
    assert isinstance(out, np.ndarray)
    assert out.tobytes() == inlay.reorder(memory, dst).buffer.tobytes()


def test_words_name_the_bits() -> None:
    desc = MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)")
    assert str(inlay.emit(desc, form="words")) == (
        "bf16 tensor of a = 8, b = 64; slowest to fastest in memory: a, b; then Swizzle<3,3,3>: bits 6 to 8 of each "
        "element offset XORed into bits 3 to 5; 1024 bytes.\n"
    )


def test_refusals_of_swizzled_memory() -> None:
    desc = MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)")
    with pytest.raises(Unimplemented, match="oneDNN describes no XOR of offset bits"):
        inlay.emit(desc, form="onednn")
    with pytest.raises(Unimplemented, match="permutes runs of 64 elements, and 40 elements have gaps afterwards"):
        inlay.emit(MemoryDesc((5, 8), "bf16", "Swizzle<3,3,3> o ab"), form="numpy")
