"""The first coordinate whose offsets differ in two descriptors, against a search of all coordinates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.descriptor import MemoryDesc
from inlay.descriptor.comparison import first_difference
from inlay.errors import InvalidArguments
from inlay.layout import Swizzle
from tests.support.refusals import raises_exactly

DIMS = (3, 17, 6)
TEXTS = ("abc", "cba", "aBc8b", "aBc8b", "ABc8b2a", "a (b b4 b2) c -> a b c b2 b4", "(a a2) b c -> a b c a2")
SWIZZLES = (None, None, Swizzle(1, 0, 2), Swizzle(2, 1, 3))


def searched(one: MemoryDesc, other: MemoryDesc) -> tuple[int, ...] | None:
    wrong = (tuple(map(int, x)) for x in np.ndindex(one.dims) if one.offset(x) != other.offset(x))
    return next(wrong, None)


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(TEXTS),
    st.sampled_from((0, 0, 8)),
    st.sampled_from(SWIZZLES),
    st.sampled_from(SWIZZLES),
)
def test_the_first_difference_is_that_of_a_search(
    text: str, other: str, offset0: int, swizzle: Swizzle | None, other_swizzle: Swizzle | None
) -> None:
    first = MemoryDesc(DIMS, "u8", text, offset0=offset0, swizzle=swizzle)
    second = MemoryDesc(DIMS, "u8", other, swizzle=other_swizzle)
    assert first_difference(first, second) == searched(first, second)


def test_large_tensors_are_compared_axis_by_axis() -> None:
    plain, padded = (MemoryDesc((2**20 + 1, 2**20), "u8", text) for text in ("ab", "(a a8) b -> a a8 b"))
    assert first_difference(plain, padded) is None
    moved = MemoryDesc(plain.dims, "u8", strides=(2**20 + 1, 1))
    assert first_difference(plain, moved) == (1, 0)


@pytest.mark.parametrize(("text", "other"), [("ab", "ba"), ("ab", "Swizzle<1,0,1> o ab")])
def test_without_elements_nothing_differs(text: str, other: str) -> None:
    assert first_difference(MemoryDesc((0, 3), "f32", text), MemoryDesc((0, 3), "f32", other)) is None


def test_dims_must_be_equal() -> None:
    with raises_exactly(InvalidArguments, "dims (2, 3) and (3, 2) differ: compare layouts of equal dims"):
        first_difference(MemoryDesc((2, 3), "f32", "ab"), MemoryDesc((3, 2), "f32", "ab"))
