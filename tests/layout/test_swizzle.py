"""Swizzles: XOR of bits, computed here bit by bit as in the definition of CuTe."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.layout import Swizzle
from inlay.testing import swizzles


def by_bits(bits: int, base: int, shift: int, offset: int) -> int:
    """`cute::Swizzle<bits, base, shift>`, one bit at a time."""
    result = [(offset >> i) & 1 for i in range(64)]
    for i in range(bits):
        source, target = (base + shift + i, base + i) if shift >= 0 else (base + i, base - shift + i)
        result[target] ^= (offset >> source) & 1
    return sum(bit << i for i, bit in enumerate(result))


@given(swizzles(), st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_bits_are_xored_as_in_cute(swizzle: Swizzle, offsets: list[int]) -> None:
    expected = [by_bits(swizzle.bits, swizzle.base, swizzle.shift, offset) for offset in offsets]
    assert [swizzle.apply(offset) for offset in offsets] == expected
    assert swizzle.apply(np.array(offsets)).tolist() == expected


@given(swizzles(), st.integers(0, 2**40))
def test_a_swizzle_is_its_own_inverse_and_keeps_chunks(swizzle: Swizzle, offset: int) -> None:
    swizzled = swizzle.apply(offset)
    assert swizzle.apply(swizzled) == offset
    assert swizzled // swizzle.chunk == offset // swizzle.chunk
    assert swizzle.apply(offset + swizzle.period) == swizzled + swizzle.period
    assert swizzle.round_up(offset + 1) > swizzled
    assert swizzle.round_up(offset + 1) - offset <= swizzle.chunk


@given(swizzles())
def test_no_shorter_chunk_maps_onto_itself(swizzle: Swizzle) -> None:
    moved = swizzle.apply(np.arange(swizzle.period))
    assert sorted(moved.tolist()) == list(range(swizzle.period))
    half = swizzle.chunk // 2
    assert (moved // half != np.arange(swizzle.period) // half).any()


def test_no_bits_are_the_identity() -> None:
    nothing = Swizzle(0, 4, 3)
    assert (nothing.apply(1000), nothing.chunk, nothing.period, str(nothing)) == (1000, 1, 1, "Swizzle<0,4,3>")


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64])
def test_arrays_of_any_integer_type_are_swizzled(kind: type) -> None:
    assert Swizzle(1, 0, 2).apply(np.arange(8, dtype=kind)).tolist() == [0, 1, 2, 3, 5, 4, 7, 6]
