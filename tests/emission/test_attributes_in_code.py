"""Scales, zero points and sums in emitted C, compiled by gcc, against the reference and Inlay's own reorder."""

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay import Attributes, MemoryDesc, Reorder, Scales, Unimplemented, ZeroPoints
from inlay.data_type import DATA_TYPES
from inlay.emission import EmittedCode
from inlay.reordering.attributes import QUANTIZATION_TYPES, Operands, view_codes
from inlay.reordering.reference import reference_reorder
from inlay.testing import Seeded, draw_attributes, draw_reorder_problem
from tests.support.attribute_arguments import assert_same, values_for
from tests.support.emitted_programs import GCC, STRICT, buffer_size, compile_library
from tests.support.guarded_buffers import GuardedBuffer

needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed")
SANITIZER = ("-Wconversion", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
Case = tuple[MemoryDesc, MemoryDesc, Attributes]


def emitted(case: Case, name: str) -> EmittedCode:
    return inlay.emit(Reorder(*case), name=name)


def judge(library: ctypes.CDLL, name: str, case: Case, seed: int) -> None:
    """Call a function between guard pages, on random bytes on both sides, and compare with the reference."""
    src, dst, attributes = case
    rng, values = np.random.default_rng(seed), values_for(attributes, src.dims, seed)
    buffers = [GuardedBuffer(buffer_size(desc), "upper", 8) for desc in (src, dst)]
    for desc, buffer in zip((src, dst), buffers, strict=True):
        buffer.bytes[:] = rng.integers(0, 256, buffer_size(desc), np.uint8)
    expected = buffers[1].bytes.copy()
    reference_reorder(src, buffers[0].bytes, dst, expected, attributes, view_codes(values))
    arrays = _in_bytes(values)  # alive during the call
    addresses = [buffer.address for buffer in buffers] + [array.ctypes.data for array in arrays.values()]
    library[name](*map(ctypes.c_void_p, addresses))
    assert_same(dst, buffers[1].bytes, expected)
    assert all(buffer.gap_is_untouched for buffer in buffers)


def _in_bytes(values: Operands) -> Operands:
    """Numbers of 4 bits as those of 8 bits."""
    return {
        name: array.astype(DATA_TYPES[array.dtype.name.replace("uint", "u").replace("int", "s")].widened.dtype)
        if array.dtype.name in ("int4", "uint4")
        else array
        for name, array in values.items()
    }


@needs_gcc
def test_random_attributes(tmp_path: Path) -> None:
    choose = Seeded(31)
    cases: list[Case] = []
    while len(cases) < 120:
        src, dst = draw_reorder_problem(choose, convert=True, sub_byte=True)
        attributes = replace(draw_attributes(choose, src, dst), rounding_mode="nearest")
        if attributes.computes:
            cases.append((src, dst, attributes))
    used = {name for *_, attributes in cases for name in attributes.names}
    assert used == set(QUANTIZATION_TYPES)
    assert sum(attributes.sum is not None for *_, attributes in cases) > 10
    source = "".join(str(emitted(case, f"f{i}")) for i, case in enumerate(cases))
    library = compile_library(tmp_path, {"emitted.c": source.encode()}, *STRICT, *SANITIZER)
    for i, case in enumerate(cases):
        judge(library, f"f{i}", case, i)


@needs_gcc
@pytest.mark.parametrize("data_type", ZeroPoints.TYPES)
def test_weights_in_groups(data_type: str, tmp_path: Path) -> None:
    """Scales of every type and zero points of every type, of groups of 4 x 8 elements."""
    src, dst = MemoryDesc((12, 32), "u4", "ab"), MemoryDesc((12, 32), "f32", "aB16b")
    cases = [
        (src, dst, Attributes(src_scales=Scales(3, (4, 8), scale), src_zero_points=ZeroPoints(3, (4, 8), data_type)))
        for scale in Scales.TYPES
    ]
    source = "".join(str(emitted(case, f"f{i}")) for i, case in enumerate(cases))
    library = compile_library(tmp_path, {"emitted.c": source.encode()}, *STRICT, *SANITIZER)
    for i, case in enumerate(cases):
        judge(library, f"f{i}", case, i)


@needs_gcc
def test_quantization_as_reorder(tmp_path: Path) -> None:
    """The function quantizes an activation by channel as `Reorder` itself does."""
    dims = (2, 17, 5, 4)
    src, dst = MemoryDesc(dims, "f32", "nhwc"), MemoryDesc(dims, "u8", "nChw8c")
    reorder = Reorder(src, dst, Attributes(dst_scales=Scales(0b10), dst_zero_points=ZeroPoints()))
    code = inlay.emit(reorder, name="quantize")
    prototype = "void quantize(const float *src, uint8_t *dst, const float *dst_scales, const int32_t *dst_zero_points)"
    assert f"{prototype};" in code.header
    assert "dst = src / dst_scales + dst_zero_points\n   dst_scales: 1 x 17 x 1 x 1, f32, row-major" in code.header
    library = compile_library(tmp_path, {"quantize.c": code.content}, *STRICT)
    scales = np.linspace(0.01, 0.05, 17).astype(np.float32)
    x = inlay.pack(np.random.default_rng(0).standard_normal(dims, np.float32), src)
    expected = inlay.Memory(dst, np.empty(dst.size, np.uint8))
    reorder(x, expected, dst_scales=scales.reshape(1, 17, 1, 1), dst_zero_points=128)
    found, zero_point = np.empty(dst.size, np.uint8), np.array([128], np.int32)
    library["quantize"](*(ctypes.c_void_p(array.ctypes.data) for array in (x.buffer, found, scales, zero_point)))
    assert (found == expected.buffer.view(np.uint8)).all()


@needs_gcc
def test_no_data(tmp_path: Path) -> None:
    """Without data, values of attributes are not read, and a destination has zeros."""
    src, dst = (MemoryDesc((0, 6), name, "AB4b2a", padded_dims=(4, 8)) for name in ("f16", "s8"))
    attributes = Attributes(dst_scales=Scales(2), sum=0.5)
    code = emitted((src, dst, attributes), "f")
    library = compile_library(tmp_path, {"f.c": code.content}, *STRICT)
    out = np.full(buffer_size(dst), 9, np.uint8)
    library["f"](ctypes.c_void_p(), ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p())
    assert not out.any()


def test_refusals() -> None:
    src, dst = MemoryDesc((2, 6), "f32", "ab"), MemoryDesc((2, 6), "bf16", "ba")
    reorder = Reorder(src, dst, Attributes(src_scales=Scales()))
    for form in ("object", "numpy", "onednn", "words"):
        with pytest.raises(Unimplemented, match=rf"form '{form}' does not compute Attributes\(.*Use form='c'"):
            inlay.emit(reorder, form=form)
    stochastic = Reorder(src, dst, Attributes(rounding_mode="stochastic"))
    with pytest.raises(Unimplemented, match="emitted C rounds to nearest"):
        inlay.emit(stochastic)
