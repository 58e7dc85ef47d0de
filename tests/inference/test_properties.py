"""Laws of infer and verify for any descriptor; gaps; texts of any notation; the guard around buffers of C functions."""

import ctypes
import shutil
import subprocess
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import inlay
from inlay import Diagnosis, InferredLayout, MemoryDesc, Swizzle, infer, verify
from inlay.layout import Axis, Layout
from inlay.testing import strategies

Array = npt.NDArray[Any]


def places_of(desc: MemoryDesc, dims: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The place of each coordinate, one call at a time."""
    return np.array([desc.offset(tuple(int(i) for i in x)) for x in np.ndindex(*dims)], np.int64)


def end_of(desc: MemoryDesc) -> int:
    return int(places_of(desc, desc.padded_dims).max()) + 1


def write(desc: MemoryDesc, array: Array, buffer: Array) -> None:
    """Zero the padding, then write elements; gaps stay."""
    buffer.view(f"u{buffer.itemsize}")[places_of(desc, desc.padded_dims)] = 0
    buffer[places_of(desc, desc.dims)] = array.reshape(-1)


@st.composite
def packable(draw: st.DrawFn) -> MemoryDesc:
    desc = draw(strategies.descriptors(draw(strategies.shapes(max_size=300, zero=False)), "u16"))
    assume(0 < prod(desc.padded_dims) <= 2000 and desc.size <= 40_000)
    if draw(st.booleans()):
        layout = desc.require_layout("a test")[0]
        assume(layout.span[0] >= 0)
        return MemoryDesc.from_layout(
            layout, "u16", dims=desc.dims, offset0=desc.offset0, swizzle=draw(strategies.swizzles())
        )
    return desc


@settings(max_examples=80, deadline=None)
@given(packable())
def test_any_descriptor_is_inferred_and_verified_from_its_packer(desc: MemoryDesc) -> None:
    length = end_of(desc) + 3

    def pack(array: Array, buffer: Array) -> None:
        write(desc, array, buffer)

    assert verify(desc, pack, length=length)
    found = infer(pack, desc.dims, "u16", length=length)
    assert isinstance(found, InferredLayout), (desc, found)
    assert np.array_equal(places_of(found.desc, desc.dims), places_of(desc, desc.dims))
    beside = any("written too" in note for note in found.notes)
    assert beside or verify(found.desc, pack, length=length)
    assert not beside or found.desc.padded_dims != desc.padded_dims


@pytest.mark.parametrize("length", range(2, 12))
def test_few_swizzled_elements_are_not_taken_for_exchanged_ones(length: int) -> None:
    """Of (0, 1, 3, 2, 4, 5) a swizzle makes a layout, and so does the exchange of two elements."""
    for bits, base, shift in product((1, 2), (0, 1), (-3, -2, -1, 1, 2, 3)):
        if bits <= abs(shift):
            layout = Layout((length,), (Axis(1),))
            desc = MemoryDesc.from_layout(layout, "u16", swizzle=Swizzle(bits, base, shift))
            found = infer(places_of(desc, desc.dims), desc.dims, "u16")
            assert isinstance(found, InferredLayout), (desc, found)
            assert np.array_equal(places_of(found.desc, desc.dims), places_of(desc, desc.dims))


@settings(max_examples=60, deadline=None)
@given(packable(), st.data())
def test_a_write_into_a_gap_is_a_fault(desc: MemoryDesc, data: st.DataObject) -> None:
    length = end_of(desc) + 3
    gaps = np.setdiff1d(np.arange(length), places_of(desc, desc.padded_dims))
    place = data.draw(st.sampled_from(gaps.tolist()))
    value = data.draw(st.sampled_from([0, 1, 0xFFFE, 0xFFFF]))

    def pack(array: Array, buffer: Array) -> None:
        write(desc, array, buffer)
        buffer[place] = value

    result = verify(desc, pack, length=length)
    assert not result
    assert result.byte is not None
    assert result.byte // 2 == place
    assert result.coordinate is None
    assert str(result).startswith(f"place {place} is of no element and no padding, and the packer writes byte ")


@settings(max_examples=60, deadline=None)
@given(packable(), st.data())
def test_a_wrong_element_of_a_swizzled_or_plain_buffer_is_named(desc: MemoryDesc, data: st.DataObject) -> None:
    array = np.arange(1, prod(desc.dims) + 1, dtype=np.uint16).reshape(desc.dims)
    buffer = np.zeros(end_of(desc), np.uint16)
    write(desc, array, buffer)
    assert verify(desc, buffer, array)
    at = tuple(data.draw(st.integers(0, n - 1)) for n in desc.dims)
    place = desc.offset(at)
    buffer[place] ^= 0x8000
    result = verify(desc, buffer, array)
    assert (result.coordinate, result.byte) == (at, 2 * place + 1)


# Texts


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("nChw8c", (2, 17, 3, 2)),
        ("n (c c8) h w -> n c h w c8", (2, 17, 3, 2)),
        ("onnxruntime:NCHW8c", (2, 17, 3, 2)),
        ("(2,(8,3),3,2):(144,(1,48),16,8)", (2, 17, 3, 2)),
        ("Swizzle<2,1,3> o (8,16):(16,1)", (8, 16)),
    ],
)
def test_a_text_of_any_notation_is_verified(text: str, dims: tuple[int, ...]) -> None:
    array = np.arange(prod(dims), dtype=np.float32).reshape(dims)
    desc = MemoryDesc(dims, "f32", text)
    buffer = np.zeros(desc.size // 4, np.float32)
    write(desc, array, buffer)
    assert verify(text, buffer, array)
    assert verify(text, lambda x, out: write(desc, x, out), dims=dims, length=len(buffer))
    assert not verify(text, np.flip(array).copy(), array)


def test_names_of_the_dictionary_are_results_where_they_fit() -> None:
    desc = MemoryDesc((2, 33, 3, 2), "s8", "tensorrt:CHW32")
    found = infer(lambda x, out: write(desc, x, out), desc.dims, "s8", length=desc.size)
    assert isinstance(found, InferredLayout)
    assert "tensorrt:CHW32" in found.names
    assert "\n    also tensorrt:CHW32, " in str(found)
    pitched = MemoryDesc((4, 8), "f32", strides=(10, 1))
    other = infer(lambda x, out: write(pitched, x, out), (4, 8), "f32", length=40)
    assert isinstance(other, InferredLayout)
    assert other.names == ()


# Rules


def test_few_moved_elements_are_named() -> None:
    table = np.arange(256).reshape(16, 16)
    table[3, 5], table[9, 2], table[12, 12] = table[9, 2], table[12, 12], table[3, 5]
    found = infer(table, (16, 16), table="logical")
    assert isinstance(found, Diagnosis)
    assert (found.rule, found.elements) == ("moved", (3 * 16 + 5, 9 * 16 + 2, 12 * 16 + 12))
    assert found.nearest is not None
    assert found.nearest.tag == "ab"
    assert str(found).splitlines()[0] == (
        "3 of 256 elements violate the layout of the others: element 53 at (3, 5) is in place 146, expected 53"
    )


def test_computed_values_are_foreign() -> None:
    def checksum(x: Array) -> Array:
        return np.append(x.reshape(-1), x.sum(dtype=x.dtype) * 3)

    found = infer(checksum, (4, 6), "s32")
    assert isinstance(found, Diagnosis)
    assert found.rule == "foreign"


def test_squares_are_foreign() -> None:
    found = infer(lambda x: np.append(x.reshape(-1), x[0, 1] ** 2 + 1000), (4, 6), "s32")
    assert isinstance(found, Diagnosis)
    assert found.rule == "foreign"
    assert str(found) == (
        "1 place holds values that are no element, first 24: the packer computes them, or leaves them unwritten"
    )


def test_a_swizzle_that_counts_from_the_start_of_the_buffer_is_diagnosed() -> None:
    swizzle = Swizzle(2, 0, 3)
    places = swizzle.apply(np.arange(64) + 8).reshape(8, 8)
    found = infer(places, (8, 8), "u8", table="logical")
    assert isinstance(found, Diagnosis)
    assert found.rule == "xor"
    assert "that counts from place 0: descriptors count from the first element" in str(found)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize(("at", "byte"), [(-1, -4), (6, 24), (-1000, -4000)])
def test_a_c_function_that_writes_outside_of_its_buffer_is_refused(at: int, byte: int, tmp_path: Path) -> None:
    (tmp_path / "p.c").write_text(
        "void pack(const int *s, int *d) { for (int i = 0; i < 6; i++) d[i] = s[i]; d[" + str(at) + "] = 7; }\n"
    )
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", tmp_path / "p.so", tmp_path / "p.c"], check=True)
    function = ctypes.CDLL(str(tmp_path / "p.so")).pack
    for call in (
        lambda: infer(function, (2, 3), "s32", length=6),
        lambda: verify(MemoryDesc((2, 3), "s32", "ab"), function, length=6),
    ):
        with pytest.raises(inlay.InlayError) as caught:
            call()
        remedy = "check its offsets and the signature" if byte < 0 else "give a larger length"
        text = f"the C function writes byte {byte} of a buffer of 24 bytes: {remedy}"
        assert str(caught.value) == text


def test_a_permutation_of_a_million_elements_is_diagnosed_soon() -> None:
    """The limit of a second is printed by benchmarks; here, the result is held for a size that is sampled."""
    table = np.random.default_rng(18).permutation(1 << 18)
    found = infer(table, (1 << 18,), table="logical")
    assert isinstance(found, Diagnosis)
    assert found.rule == "digits"
    swapped = np.arange(1 << 18)
    swapped[[70_000, 200_000]] = swapped[[200_000, 70_000]]
    exchanged = infer(swapped, (1 << 18,), table="logical")
    assert isinstance(exchanged, Diagnosis)
    assert (exchanged.rule, exchanged.elements) == ("exchanged", (70_000, 200_000))
