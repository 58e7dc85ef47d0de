"""The reference reorder, compared with Python's own arithmetic on single values.

Expected numbers come from `oracles.numbers`, 4-bit elements from lists, offsets from `MemoryDesc.offset`, which the
reference does not use.
"""

import functools
import itertools
import math
import operator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.reordering.reference import convert, read_codes, reference_reorder, write_codes
from inlay.testing import descriptors, reorder_problems
from tests.oracles.numbers import encoded, in_type, nearest_even, value_of
from tests.reordering.test_reorder import Bytes, noise, span_bytes
from tests.support.guarded_buffers import stored_bytes


def bit_mask(desc: MemoryDesc, x: tuple[int, ...]) -> int:
    """Return the bits of one element in the buffer, read as one long little-endian number."""
    bits = desc.require_layout("test")[1].bits
    return (1 << bits) - 1 << int(desc.offset(x)) * bits


def number(buffer: Bytes) -> int:
    return int.from_bytes(buffer.tobytes(), "little")


def is_small(desc: MemoryDesc) -> bool:
    return math.prod(desc.padded_dims) <= 300


class TestMoves:
    @given(reorder_problems(sub_byte=True).filter(lambda pair: all(map(is_small, pair))), st.integers(0, 99))
    def test_every_element_padding_and_gap(self, pair: tuple[MemoryDesc, MemoryDesc], seed: int) -> None:
        src, dst = pair
        source, target = noise(span_bytes(src), seed), noise(span_bytes(dst), seed + 100)
        expected = number(target)
        reference_reorder(src, source, dst, target)
        for x in np.ndindex(*dst.padded_dims):
            read, write = 0, bit_mask(dst, x)
            if all(i < n for i, n in zip(x, dst.dims, strict=True)):
                mask = bit_mask(src, x)
                read = (number(source) & mask) // (mask & -mask)
            expected = expected & ~write | read * (write & -write)
        assert number(target) == expected

    @given(descriptors().filter(is_small))
    def test_stored_bytes_are_those_of_elements_and_padding(self, desc: MemoryDesc) -> None:
        masks = [bit_mask(desc, x) for x in np.ndindex(*desc.padded_dims)]
        assert number(stored_bytes(desc, span_bytes(desc) + 3)) == functools.reduce(operator.or_, masks, 0)

    @given(descriptors().filter(is_small), st.integers(0, 99))
    def test_codes_written_are_codes_read(self, desc: MemoryDesc, seed: int) -> None:
        bits = desc.require_layout("test")[1].bits
        codes = np.random.default_rng(seed).integers(0, 2 ** min(bits, 63), desc.dims, np.uint64)
        buffer = np.zeros(span_bytes(desc), np.uint8)
        write_codes(desc, buffer, codes)
        assert (read_codes(desc, buffer) == codes).all()

    def test_nibbles_leave_their_neighbor(self) -> None:
        src, dst = MemoryDesc((2,), "s4"), MemoryDesc((2,), "s4", strides=(2,))
        buffer = np.array([0xAB, 0xCD], np.uint8)
        reference_reorder(src, np.array([0x21], np.uint8), dst, buffer)
        assert [hex(b) for b in buffer] == ["0xa1", "0xc2"]


def expected(code: int, src: DataType, dst: DataType) -> int | None:
    """Return the expected code in the destination; None for any NaN."""
    value = value_of(code, src)
    working = DATA_TYPES["f64" if {src.name, dst.name} & {"f64", "s64"} else "f32"]
    return encoded(in_type(value, working), dst, working.name)


def sample_codes(name: str) -> npt.NDArray[np.unsignedinteger]:
    """Return sample codes of a type: all codes of a byte; edges of every binade, specials and random ones of others."""
    bits = DATA_TYPES[name].bits
    if bits <= 8:
        return np.arange(1 << bits).astype(np.uint8)
    rng = np.random.default_rng(7)
    random = rng.integers(0, 2**bits - 1, 300, np.uint64, endpoint=True)
    powers = np.arange(512, dtype=np.uint64) << np.uint64(bits - 9)
    near = np.concatenate([powers, powers + 1, powers + 2 ** (bits - 9) - 1])
    if bits == 64:
        # The exponents of f64 that others have, integers that fit nowhere else, and both sides of their bounds.
        around = np.arange(0x360, 0x4A0, dtype=np.uint64) << np.uint64(52)
        ties = around + np.uint64(1 << 28) + np.arange(3, dtype=np.uint64)[:, None]
        bounds = np.array([s * 2**k + d for k in (3, 7, 8, 15, 24, 31, 53, 62) for d in (-1, 0, 1) for s in (1, -1)])
        near = np.concatenate(
            [near, around, ties.ravel(), bounds.view(np.uint64), bounds.astype(float).view(np.uint64)]
        )
    return np.concatenate([random, near]).astype(f"u{bits // 8}")


class TestConvert:
    @pytest.mark.parametrize(("src", "dst"), list(itertools.permutations(DATA_TYPES, 2)))
    def test_convert_equals_exact_arithmetic(self, src: str, dst: str) -> None:
        one, two = DATA_TYPES[src], DATA_TYPES[dst]
        codes = sample_codes(src)
        for code, got in zip(codes.tolist(), convert(codes, one, two).tolist(), strict=True):
            wanted = expected(code, one, two)
            assert math.isnan(value_of(got, two)) if wanted is None else got == wanted, (hex(code), hex(got), wanted)

    @pytest.mark.parametrize("name", [t.name for t in DATA_TYPES.values() if not t.is_sub_byte])
    def test_the_same_type_keeps_every_bit(self, name: str) -> None:
        codes = np.random.default_rng(1).integers(0, 256, 800, np.uint8).view(f"u{DATA_TYPES[name].itemsize}")
        assert convert(codes, DATA_TYPES[name], DATA_TYPES[name]).tolist() == codes.tolist()

    @pytest.mark.parametrize(
        ("dst", "values", "codes"),
        [
            ("s8", [2.5, 3.5, -2.5, 127.5, 128, -128.5, -200], [2, 4, -2, 127, 127, -128, -128]),
            ("u8", [0.5, 1.5, 255.4, 256, -0.6, -3, math.inf, -math.inf, math.nan], [0, 2, 255, 255, 0, 0, 255, 0, 0]),
            ("s32", [2147483520, 2147483648, 1e20, -2147483648, math.nan], [2147483520] * 3 + [-2147483648, 0]),
        ],
    )
    def test_integers_clamp_then_round_half_to_even(self, dst: str, values: list[float], codes: list[int]) -> None:
        got = convert(np.array(values, np.float32).view(np.uint32), DATA_TYPES["f32"], DATA_TYPES[dst])
        assert got.view(DATA_TYPES[dst].dtype).tolist() == codes

    @pytest.mark.parametrize(
        ("src", "dst", "code", "wanted"),
        [
            ("f32", "bf16", 0x7F800001, 0x7FC0),
            ("f32", "bf16", 0xFFABCDEF, 0xFFEB),
            ("f32", "f16", 0x7F802000, 0x7E01),
            ("f32", "f16", 0xFFC00000, 0xFE00),
            ("bf16", "f32", 0x7F81, 0x7F810000),
            ("f16", "f32", 0x7C01, 0x7FC02000),
            ("f16", "f32", 0xFE00, 0xFFC00000),
        ],
    )
    def test_nan_keeps_sign_and_top_of_payload(self, src: str, dst: str, code: int, wanted: int) -> None:
        codes = np.array([code], f"u{DATA_TYPES[src].itemsize}")
        assert convert(codes, DATA_TYPES[src], DATA_TYPES[dst]).tolist() == [wanted]


def test_the_oracle_rounds_ties_to_the_even_code() -> None:
    bf16, f16 = DATA_TYPES["bf16"], DATA_TYPES["f16"]
    assert nearest_even(1 + 2**-8, bf16) == 0x3F80
    assert nearest_even(1 + 3 * 2**-8, bf16) == 0x3F82
    assert nearest_even(-(1 + 2**-8 + 2**-20), bf16) == 0xBF81
    assert (nearest_even(65519.99, f16), nearest_even(65520.0, f16)) == (0x7BFF, 0x7C00)
    assert (nearest_even(2.0**-25, f16), nearest_even(1.5 * 2.0**-25, f16)) == (0, 1)
