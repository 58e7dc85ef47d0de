"""Patterns: offsets are those of NumPy's transpose and reshape, every dense layout can be written.

Their errors are in golden/mistakes/notation.txt.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inlay.errors import PatternError
from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.notation.format_tag import FormatTag
from inlay.notation.pattern import parse_pattern, pattern_of
from tests.support.view_coordinates import offsets

NVFP4_SCALES = "(m m4 m32) (k k4) -> m k m32 m4 k4"


class Case(NamedTuple):
    """A pattern and dims that its digits fill exactly, or not quite where padded."""

    text: str
    dims: tuple[int, ...]
    extents: tuple[tuple[tuple[str, int], ...], ...]
    """Per axis, the name and extent of each digit."""
    order: tuple[str, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Axes of one to three digits; the one that takes the rest may stand anywhere in its group, or be missing."""
    letters = draw(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=4, unique=True))
    groups, extents, dims = [], [], []
    for letter in letters:
        sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
        free = draw(st.integers(0, len(sizes) - 1) | st.none())
        names = [letter if i == free else f"{letter}{'xyz'[i]}{size}" for i, size in enumerate(sizes)]
        full = math.prod(sizes)
        step = full if free is None else full // sizes[free]
        dims.append(full - draw(st.integers(0, min(step, full) - 1)))
        extents.append(tuple(zip(names, sizes, strict=True)))
        groups.append(names[0] if len(names) == 1 else f"({' '.join(names)})")
    order = draw(st.permutations([name for axis in extents for name, _ in axis]))
    return Case(f"{' '.join(groups)} -> {' '.join(order)}", tuple(dims), tuple(extents), tuple(order))


def offsets_by_numpy(case: Case) -> npt.NDArray[np.int64]:
    """The offset of every coordinate of the padded dims: memory in its own shape, its axes brought to logical order."""
    size = dict(digit for axis in case.extents for digit in axis)
    memory = np.arange(math.prod(size.values())).reshape([size[name] for name in case.order])
    logical = memory.transpose([case.order.index(name) for axis in case.extents for name, _ in axis])
    return logical.reshape([math.prod(extent for _, extent in axis) for axis in case.extents])


# Reading


@given(cases())
def test_offsets_are_those_of_numpy_and_digits_are_stored_as_spelled(case: Case) -> None:
    layout = parse_pattern(case.text, case.dims)
    assert np.array_equal(offsets(layout), offsets_by_numpy(case))
    extents = [[digit.extent for digit in axis] for axis in layout.digits]
    assert extents == [[extent for _, extent in axis] for axis in case.extents]


@pytest.mark.parametrize(
    ("pattern", "tag", "dims"),
    [
        ("n c h w -> n c h w", "nchw", (2, 16, 5, 4)),
        ("n c h w -> n h w c", "nhwc", (2, 16, 5, 4)),
        ("n (c c16) h w -> n c h w c16", "nChw16c", (2, 17, 5, 4)),
        ("(o o16) (i ix4 iy4) h w -> o i h w ix4 o16 iy4", "OIhw4i16o4i", (40, 33, 3, 3)),
        ("(o o16) (i i16) h w -> o i h w i16 o16", "OIhw16i16o", (40, 33, 3, 3)),
        ("(n n16) (c c8 c2) -> n c c8 n16 c2", "AB8b16a2b", (40, 33)),
        ("n (c c16) h w -> n c h w c16", "nChw16c", (2, 0, 5, 4)),
        ("n (c c16) h w -> n c h w c16", "nChw16c", (2, 17, 0, 4)),
        ("n (c c16) h w -> n c h w c16", "nChw16c", (RUNTIME, 17, 5, 4)),
        ("n (c c16) h w -> n c h w c16", "nChw16c", (2, RUNTIME, 5, RUNTIME)),
        (" n(c  c16) h w->n c h w c16 ", "nChw16c", (2, 17, 5, 4)),
    ],
)
def test_patterns_say_what_tags_say(pattern: str, tag: str, dims: Dims) -> None:
    assert parse_pattern(pattern, dims) == FormatTag.parse(tag).layout(dims)


def test_the_scales_of_nvfp4() -> None:
    """The formula of NVIDIA's documents for the 128x4 scale tiles, written out."""
    m, k = np.indices((256, 8))
    formula = (m // 128) * 1024 + (k // 4) * 512 + (m % 32) * 16 + (m // 32 % 4) * 4 + k % 4
    assert np.array_equal(offsets(parse_pattern(NVFP4_SCALES, (256, 8))), formula)


def test_an_axis_is_padded_to_what_its_digits_hold() -> None:
    assert parse_pattern(NVFP4_SCALES, (130, 5)).dims == (256, 8)
    assert parse_pattern("a (b4 b b2) -> b4 a b b2", (3, 9)).dims == (3, 16)
    assert parse_pattern("a b32 -> b32 a", (3, 17)).dims == (3, 32)


@given(st.text(alphabet="abc124 ()->_.", max_size=16))
def test_every_text_is_a_pattern_or_a_pattern_error(text: str) -> None:
    try:
        read = parse_pattern(text, (2, 3)).ndims
    except PatternError as error:
        read = 2 if error.text == text else 0
    assert read == 2


# Writing


@given(cases())
@example(Case("a b -> b a", (1, 1), ((("a", 1),), (("b", 1),)), ("b", "a")))
def test_writing_and_reading_give_an_equivalent_layout(case: Case) -> None:
    layout = parse_pattern(case.text, case.dims)
    again = parse_pattern(pattern_of(layout), layout.dims)
    assert again.dims == layout.dims
    assert again.equivalent(layout)


@given(st.permutations(range(4)), st.tuples(st.integers(-50, 50), st.integers(-50, 50)))
def test_strides_of_axes_of_one_do_not_count(order: list[int], strides: tuple[int, int]) -> None:
    first, _, third, _ = FormatTag(tuple(order)).layout((2, 1, 3, 1)).axes
    layout = Layout((2, 1, 3, 1), (first, Axis(strides[0]), third, Axis(strides[1])))
    assert parse_pattern(pattern_of(layout), layout.dims).equivalent(layout)


@pytest.mark.parametrize(
    ("tag", "dims", "names", "pattern"),
    [
        ("nchw", (2, 16, 5, 4), "nchw", "n c h w -> n c h w"),
        ("nhwc", (1, 16, 5, 4), "nchw", "n c h w -> n h w c"),
        ("nChw16c", (2, 32, 5, 4), "nchw", "n (c c16) h w -> n c h w c16"),
        ("OIhw4i16o4i", (32, 32, 3, 3), "oihw", "(o o16) (i ix4 iy4) h w -> o i h w ix4 o16 iy4"),
        ("aB2b2b2b2b", (3, 32), None, "a (b bx2 by2 bz2 bxx2) -> a b bx2 by2 bz2 bxx2"),
        ("aB2b2b", (3, 32), ["b", "bx"], "b (bx bxx2 bxy2) -> b bx bxx2 bxy2"),
        ("AB2a2a2b2b", (4, 4), ["bx", "b"], "(bx bxx2 bxy2) (b by2 bz2) -> bx b bxx2 bxy2 by2 bz2"),
        ("nChw16c", (2, RUNTIME, 5, 4), "nchw", "n (c c16) h w -> n c h w c16"),
        ("nChw16c", (2, 32, 0, 4), "nchw", "n (c c16) h w -> n c h w c16"),
    ],
)
def test_the_written_form(tag: str, dims: Dims, names: list[str] | None, pattern: str) -> None:
    layout = FormatTag.parse(tag).layout(dims)
    assert pattern_of(layout, names) == pattern
    assert parse_pattern(pattern, dims) == layout
