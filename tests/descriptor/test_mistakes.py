"""Errors of layouts, tags, patterns and descriptors: the files of golden/mistakes have calls and their whole texts."""

import math

import numpy as np
import pytest

import inlay
from inlay import RUNTIME, Axis, Digit, Extras, Layout
from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc as M
from inlay.descriptor import kinds
from inlay.descriptor.serialization import DescriptorParts, validate_parts
from inlay.notation import parse_notation
from inlay.notation.pattern import parse_pattern, pattern_of
from inlay.notation.shape_stride import shape_stride_of
from tests.support.golden_mistakes import assert_mistake, read_mistakes
from tests.support.refusals import raises_exactly

INT8 = Extras(1, compensation_mask=1)
# Square roots of primes have no small relation, and finding that takes the whole search.
IRREGULAR = [math.isqrt(prime * 10**32) for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)]
NAMES = {name: getattr(inlay, name) for name in inlay.__all__} | {
    "M": M,
    "np": np,
    "kinds": kinds,
    "F32": DATA_TYPES["f32"],
    "parse_pattern": parse_pattern,
    "pattern_of": pattern_of,
    "parse_notation": parse_notation,
    "shape_stride_of": shape_stride_of,
    "validate_parts": validate_parts,
    "DescriptorParts": DescriptorParts,
    "INT8": INT8,
    "PLAIN": M((32, 16), "s8"),
    "WEIGHTS": M((32, 16, 3, 3), "s8", "ABcd4b16a4b", extras=INT8),
    "BLOCKED": M((2, 17, 5, 4), "f32", "nChw8c"),
    "NCHW8C": Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8))),
    "BLOCKS": Layout((2, 16, 5), (Axis(80), Axis(40, (Digit(8, 1),)), Axis(8))),
    "UNBOUND": Layout((RUNTIME, 3), (Axis(3), Axis(1))),
    "BEYOND": Layout.from_strides((3, 2), (2**62, 1)),
    "INTERLEAVED": Layout.from_strides((9,) * 10, IRREGULAR),
}
CASES = [case for name in ("layouts", "notation", "descriptors", "views") for case in read_mistakes(name)]


@pytest.mark.parametrize(("call", "error"), CASES)
def test_a_mistake_raises_this_error(call: str, error: str) -> None:
    assert_mistake(call, error, NAMES)


@pytest.mark.parametrize(("call", "error"), read_mistakes("views"))
def test_a_refused_view_is_a_value_of_try_reshape_and_the_zero_descriptor_where_that_is_allowed(
    call: str, error: str
) -> None:
    assert eval(f"{call[:-1]}, allow_empty=True)", dict(NAMES)) == M()
    if ".reshape(" in call:
        refusal = eval(call.replace(".reshape(", ".try_reshape("), dict(NAMES))
        assert f"InvalidArguments: {refusal}" == error


def test_an_empty_text_is_no_tag_and_no_pattern() -> None:
    with raises_exactly(inlay.FormatTagError, "a format tag starts with an axis letter a..l\n    \n    ^"):
        inlay.FormatTag.parse("")
    with raises_exactly(inlay.PatternError, "a pattern needs an arrow: axes -> order in memory\n    \n    ^"):
        parse_pattern("", (2,))
