"""Patterns: offsets are those of NumPy's transpose and reshape, every dense layout can be written, faults are shown."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inlay.errors import InvalidArguments, PatternError
from inlay.layout import RUNTIME, Axis, Digit, Layout
from inlay.notation.format_tag import FormatTag
from inlay.notation.pattern import parse_pattern, pattern_of

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


def all_offsets(layout: Layout) -> npt.NDArray[np.int64]:
    return np.asarray(layout.offset(np.moveaxis(np.indices(layout.dims), 0, -1)))


# Reading


@given(cases())
def test_offsets_are_those_of_numpy(case: Case) -> None:
    layout = parse_pattern(case.text, case.dims)
    expected = offsets_by_numpy(case)
    assert layout.dims == expected.shape
    np.testing.assert_array_equal(all_offsets(layout), expected)


@given(cases())
def test_digits_are_stored_as_spelled(case: Case) -> None:
    digits = parse_pattern(case.text, case.dims).digits
    assert [[d.extent for d in axis] for axis in digits] == [[extent for _, extent in axis] for axis in case.extents]


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
    ],
)
def test_patterns_say_what_tags_say(pattern: str, tag: str, dims: tuple[int, ...]) -> None:
    assert parse_pattern(pattern, dims) == FormatTag.parse(tag).layout(dims)


def test_the_scales_of_nvfp4() -> None:
    """The formula of NVIDIA's documents for the 128x4 scale tiles, written out."""
    layout = parse_pattern(NVFP4_SCALES, (256, 8))
    m, k = np.indices((256, 8))
    formula = (m // 128) * 1024 + (k // 4) * 512 + (m % 32) * 16 + (m // 32 % 4) * 4 + k % 4
    np.testing.assert_array_equal(all_offsets(layout), formula)


def test_an_axis_is_padded_to_what_its_digits_hold() -> None:
    assert parse_pattern(NVFP4_SCALES, (130, 5)).dims == (256, 8)
    assert parse_pattern("a (b4 b b2) -> b4 a b b2", (3, 9)).dims == (3, 16)
    assert parse_pattern("a b32 -> b32 a", (3, 17)).dims == (3, 32)


def test_spaces_are_free() -> None:
    assert parse_pattern("a(b  b4)->a b b4", (2, 8)) == parse_pattern(" a ( b b4 ) -> a b b4 ", (2, 8))


# Faults

FAULTS: dict[tuple[str, tuple[int, ...]], str] = {
    ("", (2,)): """\
a pattern needs an arrow: axes -> order in memory
    \n\
    ^""",
    ("a b", (2, 3)): """\
a pattern needs an arrow: axes -> order in memory
    a b
    ~~~^""",
    ("-> a", (2,)): """\
a pattern needs at least one axis left of the arrow
    -> a
    ^^""",
    ("a (b b4 -> a b b4", (2, 8)): """\
this group is not closed: a ')' is missing
    a (b b4 -> a b b4
    ~~^""",
    ("a () -> a", (2, 1)): """\
a group needs at least one name
    a () -> a
    ~~^^""",
    ("a b) -> a b", (2, 3)): """\
')' has no place here: a name is expected, such as c or c16
    a b) -> a b
    ~~~^""",
    ("a ((b) c) -> a b c", (2, 3)): """\
'(' has no place here: a name is expected, such as c or c16
    a ((b) c) -> a b c
    ~~~^""",
    ("a b -> (a b)", (2, 3)): """\
'(' has no place here: a name is expected, such as c or c16
    a b -> (a b)
    ~~~~~~~^""",
    ("a b -> a -> b", (2, 3)): """\
'->' has no place here: a name is expected, such as c or c16
    a b -> a -> b
    ~~~~~~~~~^^""",
    ("a ... -> ... a", (2, 3)): """\
'.' has no place here: a name is expected, such as c or c16
    a ... -> ... a
    ~~^""",
    ("a 16 -> a 16", (2, 16)): """\
'1' has no place here: a name is expected, such as c or c16
    a 16 -> a 16
    ~~^""",
    ("a (b b0) -> a b b0", (2, 3)): """\
extent '0' starts with 0: an extent is 1 or more
    a (b b0) -> a b b0
    ~~~~~~^""",
    ("a (b b08) -> a b b08", (2, 3)): """\
extent '08' starts with 0: write b8
    a (b b08) -> a b b08
    ~~~~~~^^""",
    ("a b9223372036854775808 -> a", (2, 3)): """\
the extent exceeds 2**63 - 1
    a b9223372036854775808 -> a
    ~~~^^^^^^^^^^^^^^^^^^^""",
    ("a (b c) -> a b c", (2, 3)): """\
'b' and 'c' both lack a number: one name of a group can take the rest
    a (b c) -> a b c
    ~~~~~^""",
    ("a (a a4) -> a a4", (2, 3)): """\
'a' appears twice left of the arrow: each digit has a name of its own
    a (a a4) -> a a4
    ~~~^""",
    ("a (b b4 b4) -> a b b4", (2, 3)): """\
'b4' appears twice left of the arrow: each digit has a name of its own
    a (b b4 b4) -> a b b4
    ~~~~~~~~^^""",
    ("a b -> a b a", (2, 3)): """\
'a' appears twice right of the arrow: each digit has a name of its own
    a b -> a b a
    ~~~~~~~~~~~^""",
    ("a (b b4) -> a b b8", (2, 3)): """\
'b8' is no digit of an axis: it does not appear left of the arrow
    a (b b4) -> a b b8
    ~~~~~~~~~~~~~~~~^^""",
    ("a (b b4) -> a b", (2, 3)): """\
'b4' has no place in memory: it does not appear right of the arrow
    a (b b4) -> a b
    ~~~~~^^""",
    ("a (b b4) -> a b b4", (2, 3, 4)): """\
the pattern has 2 axes left of the arrow, dims (2, 3, 4) have 3
    a (b b4) -> a b b4
    ^^^^^^^""",
    ("a (bx2 by4) -> a bx2 by4", (2, 9)): """\
axis 1 has 9 coordinates, its digits hold 8: leave out a number, or enlarge it
    a (bx2 by4) -> a bx2 by4
    ~~~^^^^^^^""",
    ("a (b4 b) -> a b4 b", (2, RUNTIME)): """\
axis 1 is RUNTIME: the first digit of its group must be the one without a number
    a (b4 b) -> a b4 b
    ~~~^^""",
    ("a (b b4) -> b4 b a", (RUNTIME, 8)): """\
digit 'b4' is outside a RUNTIME axis: only the first digit of a group may
    a (b b4) -> b4 b a
    ~~~~~~~~~~~~^^""",
}


@pytest.mark.parametrize(("text", "dims"), FAULTS)
def test_faults_are_shown_in_place(text: str, dims: tuple[int, ...]) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text, dims)
    assert str(caught.value) == FAULTS[text, dims]


@pytest.mark.parametrize(
    ("text", "dims", "problem"),
    [
        ("a b -> b a", (2, -3), "dim 1 is -3: dims are 0 or more"),
        ("a b -> b a", (2**32, 2**31), "the pattern needs more than 2**63 - 1 elements once 'b' is counted"),
        (
            "a (b b4) -> b a b4",
            (RUNTIME, 2**63 - 1),
            "the pattern needs more than 2**63 - 1 elements once 'b' is counted",
        ),
    ],
)
def test_impossible_dims_are_refused(text: str, dims: tuple[int, ...], problem: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_pattern(text, dims)
    assert str(caught.value) == problem


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


@given(st.permutations(range(4)), st.lists(st.integers(-50, 50), min_size=4, max_size=4))
def test_strides_of_axes_of_one_do_not_count(order: list[int], strides: list[int]) -> None:
    dims = (2, 1, 3, 1)
    dense = FormatTag(tuple(order)).layout(dims)
    strange = [axis.stride if dim > 1 else s for axis, dim, s in zip(dense.axes, dims, strides, strict=True)]
    layout = Layout.from_strides(dims, strange)
    assert parse_pattern(pattern_of(layout), dims).equivalent(layout)


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
def test_the_written_form(tag: str, dims: tuple[int, ...], names: list[str] | None, pattern: str) -> None:
    layout = FormatTag.parse(tag).layout(dims)
    assert pattern_of(layout, names) == pattern
    assert parse_pattern(pattern, dims) == layout


UNSAYABLE = (
    "this layout has no pattern: a pattern is dense and made of whole blocks, without gaps, overlaps or negative"
    " strides; this one has dims {} and strides {}"
)


@pytest.mark.parametrize(
    "layout",
    [
        Layout.from_strides((4, 6), (8, 1)),
        Layout.from_strides((4, 6), (-6, 1)),
        Layout.from_strides((4, 6), (0, 1)),
        Layout.from_strides((4, 4), (1, 1)),
        Layout((2, 17), (Axis(24), Axis(8, (Digit(8, 1),)))),
        Layout((), ()),
    ],
)
def test_layouts_no_pattern_says_are_refused(layout: Layout) -> None:
    with pytest.raises(InvalidArguments) as caught:
        pattern_of(layout)
    assert str(caught.value) == UNSAYABLE.format(layout.dims, tuple(axis.stride for axis in layout.axes))


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", "b4"], ["a", "b c"], ["a", ""]])
def test_names_that_cannot_be_axes_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        pattern_of(Layout.from_strides((4, 6), (6, 1)), names)
    rule = "names must be 2 different words without a number at the end, which would be an extent"
    assert str(caught.value) == f"{rule}, got {tuple(names)}"


def test_what_is_no_text_is_no_pattern() -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_pattern(5, (2, 3))  # type: ignore[arg-type]
    assert str(caught.value) == "a pattern is text such as 'n (c c16) h w -> n c h w c16', not 5"
