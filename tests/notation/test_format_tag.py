"""Format tags: parsing, printing, layouts, and error texts."""

import json
import math
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inlay.errors import FormatTagError, InvalidArguments
from inlay.layout import RUNTIME, Layout
from inlay.layout.axis import LETTERS
from inlay.notation.format_tag import ALIASES, ENUMERATED, FormatTag, tag_of
from tests.support.paths import DATA

ORACLE: dict[str, Any] = json.loads((DATA / "onednn_tags.json").read_text())


@st.composite
def format_tags(draw: st.DrawFn, max_ndims: int = 12, max_blocks: int = 5, max_size: int = 64) -> FormatTag:
    """Any tag: any order of axes, any chain of blocks."""
    n = draw(st.integers(1, max_ndims))
    order = draw(st.permutations(range(n)))
    block = st.tuples(st.integers(0, n - 1), st.integers(2, max_size))
    return FormatTag(tuple(order), tuple(draw(st.lists(block, max_size=max_blocks))))


def offsets_by_numpy(tag: FormatTag, dims: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The offset of every coordinate: the memory in its own shape, its axes sorted by the axis they belong to."""
    blocks = [math.prod(size for a, size in tag.inner_blocks if a == axis) for axis in range(len(dims))]
    counts = [-(-dim // block) for dim, block in zip(dims, blocks, strict=True)]
    places = [(axis, counts[axis]) for axis in tag.order] + list(tag.inner_blocks)
    memory = np.arange(math.prod(size for _, size in places)).reshape([size for _, size in places])
    by_axis = sorted(range(len(places)), key=lambda i: places[i][0])
    padded = [count * block for count, block in zip(counts, blocks, strict=True)]
    return memory.transpose(by_axis).reshape(padded)


def all_offsets(layout: Layout) -> npt.NDArray[np.int64]:
    points = np.moveaxis(np.indices(layout.dims), 0, -1)
    return np.asarray(layout.offset(points))


# Reading and printing


def test_tables_are_onednn_s() -> None:
    assert dict(ENUMERATED) == {tag: code for tag, (code, *_) in ORACLE["tags"].items()}
    assert dict(ALIASES) == ORACLE["aliases"]
    assert (len(ENUMERATED), len(ALIASES)) == (873, 798)


@pytest.mark.parametrize("text", ORACLE["tags"])
def test_enumerated_tags_are_what_their_name_says(text: str) -> None:
    _, order, sizes, axes = ORACLE["tags"][text]
    tag = FormatTag.parse(text)
    assert tag.order == tuple(order)
    assert tag.inner_blocks == tuple(zip(axes, sizes, strict=True))
    assert str(tag) == text


def test_aliases_are_the_tags_they_stand_for() -> None:
    for alias, text in ORACLE["aliases"].items():
        assert FormatTag.parse(alias) == FormatTag.parse(text)
        assert str(FormatTag.parse(alias)) == text


@given(format_tags())
@example(FormatTag(tuple(range(12))))
@example(FormatTag((1, 0), ((0, 16), (1, 16), (0, 2), (0, 2))))
@example(FormatTag((0,), ((0, 2),) * 40))
def test_printing_and_parsing_give_the_tag_back(tag: FormatTag) -> None:
    assert FormatTag.parse(str(tag)) == tag


@given(format_tags(max_blocks=3), st.data())
def test_unit_blocks_are_dropped(tag: FormatTag, data: st.DataObject) -> None:
    pieces = [f"{size}{LETTERS[axis]}" for axis, size in tag.inner_blocks]
    at = data.draw(st.integers(0, len(pieces)))
    pieces.insert(at, f"1{data.draw(st.sampled_from(LETTERS[: tag.ndims]))}")
    outer = str(tag)[: tag.ndims]
    assert FormatTag.parse(outer + "".join(pieces)) == tag


def test_an_axis_of_unit_blocks_only_may_be_upper_case() -> None:
    assert str(FormatTag.parse("aB1b")) == str(FormatTag.parse("ab1b")) == "ab"


@given(st.text(alphabet=LETTERS + LETTERS.upper() + "01248mnz -", max_size=12) | st.text(max_size=5))
def test_every_text_is_a_tag_or_a_format_tag_error(text: str) -> None:
    try:
        printed = str(FormatTag.parse(text))
    except FormatTagError as error:
        printed, shown = "", error.text
    else:
        shown = text
    assert shown == text
    assert not printed or str(FormatTag.parse(printed)) == printed


ERRORS = {
    "": """\
a format tag starts with an axis letter a..l
    \n\
    ^""",
    "16a": """\
a format tag starts with an axis letter a..l
    16a
    ^""",
    "any": """\
'any' lets a primitive choose the layout: it is no tag and gives no layout
    any
    ^^^""",
    "undef": """\
'undef' is the absence of a format: it is no tag and gives no layout
    undef
    ^^^^^""",
    "abXd": """\
'X' is no axis letter a..l, and 'abXd' resembles no alias
    abXd
    ~~^""",
    "nchx": """\
unknown alias 'nchx': did you mean nchw?
    nchx
    ^^^^""",
    "nchw16c": """\
outer axis 'c' has inner blocks: write 'C'
    nchw16c
    ~^""",
    "nChw7q": """\
inner block axis 'q' is not among the outer axes n, c, h, w
    nChw7q
    ~~~~~^""",
    "nchwq": """\
unknown alias 'nchwq': did you mean nchw or ncdhw or ncw?
    nchwq
    ^^^^^""",
    "nnchw": """\
axis 'n' appears twice among the outer axes
    nnchw
    ~^""",
    "igo": """\
'igo' can be read in two ways, as 'cab' by the axes g, o, i of goidhw and as 'abc' by the axes i, g, o of ldigo: \
give the one that is meant
    igo
    ^^^""",
    "DnC8c4d": """\
'DnC8c4d' can be read in two ways, as 'AbC8c4a' by the axes d, n, c of ldnc and as 'CaB8b4c' by the axes n, c, d of \
ncdhw: give the one that is meant
    DnC8c4d
    ^^^^^^^""",
    "abbc": """\
axis 'b' appears twice among the outer axes
    abbc
    ~~^""",
    "aBb16b": """\
axis 'b' appears twice among the outer axes
    aBb16b
    ~~^""",
    "abd": """\
axis 'c' is missing: a tag with axis 'd' names each of a..d once
    abd
    ^^^""",
    "bD4d": """\
axis 'a' is missing: a tag with axis 'd' names each of a..d once
    bD4d
    ^^""",
    "abcdefghijklm": """\
a format tag has at most 12 axes, a..l: 'm' would be the 13th
    abcdefghijklm
    ~~~~~~~~~~~~^""",
    "aBcd": """\
outer axis 'B' is upper case but has no inner blocks: write 'b'
    aBcd
    ~^""",
    "aBCd8b": """\
outer axis 'C' is upper case but has no inner blocks: write 'c'
    aBCd8b
    ~~^""",
    "abcd16b": """\
outer axis 'b' has inner blocks: write 'B'
    abcd16b
    ~^""",
    "abcd16e": """\
inner block axis 'e' is not among the outer axes a..d
    abcd16e
    ~~~~~~^""",
    "aBcd16B": """\
inner block axis 'B' is written in lower case: 'b'
    aBcd16B
    ~~~~~~^""",
    "aBcd8bc": """\
inner block axis 'c' needs a size before it, as in 16c
    aBcd8bc
    ~~~~~~^""",
    "aBcd8": """\
block size 8 needs an axis letter after it
    aBcd8
    ~~~~~^""",
    "aBcd0b": """\
a block has 1 element or more, not 0
    aBcd0b
    ~~~~^""",
    "aBcd008b": """\
block size '008' has leading zeros: write '8'
    aBcd008b
    ~~~~^^^""",
    "aBcd9223372036854775808b": """\
block size exceeds 2**63 - 1
    aBcd9223372036854775808b
    ~~~~^^^^^^^^^^^^^^^^^^^""",
    "aBcd 8b": """\
' ' has no place in a format tag, which has letters and block sizes
    aBcd 8b
    ~~~~^""",
    "ab\u0661c": """\
'\u0661' has no place in a format tag, which has letters and block sizes
    ab\u0661c
    ~~^""",
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_show_the_fault_and_the_remedy(text: str) -> None:
    with pytest.raises(FormatTagError) as caught:
        FormatTag.parse(text)
    assert str(caught.value) == ERRORS[text]


def test_a_size_of_many_thousand_digits_is_refused_not_converted() -> None:
    with pytest.raises(FormatTagError, match=r"^block size exceeds 2\*\*63 - 1"):
        FormatTag.parse("aB" + "9" * 5000 + "b")


@pytest.mark.parametrize(
    ("order", "blocks", "text"),
    [
        ((), (), "the order of a format tag uses each of 0..n-1 once, n from 1 to 12: ()"),
        ((0, 2), (), "the order of a format tag uses each of 0..n-1 once, n from 1 to 12: (0, 2)"),
        ((0, 0), (), "the order of a format tag uses each of 0..n-1 once, n from 1 to 12: (0, 0)"),
        ((0, 1), ((2, 8),), "inner block (2, 8) needs an axis of 0..1 and a size of 2 or more"),
        (
            (0, 1),
            ((1,),),
            "inner_blocks are pairs of axis and size such as ((1, 8),), not ((1,),)",
        ),
        ((0, 1), "a", "inner_blocks are pairs of axis and size such as ((1, 8),), not 'a'"),
        ((None,), (), "the order of a format tag is a tuple of axes such as (0, 2, 1), not (None,)"),
        (
            (10**5000,),
            (),
            "the order of a format tag uses each of 0..n-1 once, n from 1 to 12: a tuple that cannot be printed",
        ),
        ((0, 1), ((1, 1),), "inner block (1, 1) needs an axis of 0..1 and a size of 2 or more"),
    ],
)
def test_tags_that_cannot_be_spelled_are_refused(
    order: tuple[int, ...], blocks: tuple[tuple[int, int], ...], text: str
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        FormatTag(order, blocks)
    assert str(caught.value) == text


# Layouts


@given(format_tags(max_ndims=5, max_blocks=3, max_size=5), st.data())
def test_layout_places_every_coordinate_where_numpy_does(tag: FormatTag, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.integers(1, 2 * tag.blocks(axis) + 1)) for axis in range(tag.ndims))
    if math.prod(-(-dim // tag.blocks(axis)) * tag.blocks(axis) for axis, dim in enumerate(dims)) > 100_000:
        return
    layout = tag.layout(dims)
    expected = offsets_by_numpy(tag, dims)
    assert layout.dims == expected.shape
    np.testing.assert_array_equal(all_offsets(layout), expected)


@pytest.mark.parametrize("text", ["aBcd8b", "ABcd4b16a4b", "acdb", "aBCd2b4c2b"])
@pytest.mark.parametrize("dims", [(2, 17, 5, 4), (1, 1, 1, 1), (33, 8, 3, 2)])
def test_layout_of_familiar_tags(text: str, dims: tuple[int, ...]) -> None:
    tag = FormatTag.parse(text)
    np.testing.assert_array_equal(all_offsets(tag.layout(dims)), offsets_by_numpy(tag, dims))


def test_a_dim_of_zero_counts_as_one_in_the_strides() -> None:
    layout = FormatTag.parse("aBcd8b").layout((2, 17, 0, 4))
    assert layout.dims == (2, 24, 0, 4)
    assert [axis.stride for axis in layout.axes] == [96, 32, 32, 8]
    empty_block = FormatTag.parse("aBcd8b").layout((2, 0, 5, 4))
    assert empty_block.dims == (2, 0, 5, 4)
    assert [axis.stride for axis in empty_block.axes] == [160, 160, 32, 8]


def test_strides_outside_a_runtime_dim_are_runtime() -> None:
    layout = FormatTag.parse("aBcd8b").layout((2, 17, RUNTIME, 4))
    assert layout.dims == (2, 24, RUNTIME, 4)
    assert [axis.stride for axis in layout.axes] == [RUNTIME, RUNTIME, 32, 8]
    blocked = FormatTag.parse("aBcd8b").layout((2, RUNTIME, 5, 4))
    assert blocked.dims == (2, RUNTIME, 5, 4)
    assert [axis.stride for axis in blocked.axes] == [RUNTIME, 160, 32, 8]


HUGE = "needs more than 2**63 - 1 elements once axis"


@pytest.mark.parametrize(
    ("text", "dims", "problem"),
    [
        ("nchw", (2, 3), "format tag nchw places 4 axes, dims (2, 3) have 2"),
        ("aB8b", (2, -3), "dim 1 is -3: dims are 0 or more"),
        (
            "AB16b16a2b",
            (1, 2**62),
            f"format tag AB16b16a2b of dims (1, {2**62}) {HUGE} 1 (b) is counted: use smaller dims or blocks",
        ),
        (
            "ab",
            (2**32, 2**31),
            f"format tag ab of dims ({2**32}, {2**31}) {HUGE} 0 (a) is counted: use smaller dims or blocks",
        ),
        (
            "aB8b",
            (RUNTIME, 2**63 - 1),
            f"format tag aB8b of dims ({RUNTIME}, {2**63 - 1}) {HUGE} 1 (b) is counted: use smaller dims or blocks",
        ),
        (
            "aB9223372036854775807b2b",
            (1, 1),
            f"format tag aB9223372036854775807b2b of dims (1, 1) {HUGE} 1 (b) is counted: use smaller dims or blocks",
        ),
    ],
)
def test_layouts_that_cannot_be_are_refused(text: str, dims: tuple[int, ...], problem: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        FormatTag.parse(text).layout(dims)
    assert str(caught.value) == problem


def test_the_largest_tensor_that_fits_is_allowed() -> None:
    assert FormatTag.parse("ab").layout((2**63 - 1, 1)).dims == (2**63 - 1, 1)


# Layouts back to tags


@given(format_tags(max_ndims=6, max_blocks=4, max_size=5), st.data())
def test_tag_of_names_the_tag_when_every_axis_repeats(tag: FormatTag, data: st.DataObject) -> None:
    dims = tuple(tag.blocks(axis) * data.draw(st.integers(2, 4)) for axis in range(tag.ndims))
    assert tag_of(tag.layout(dims)) == tag


@given(format_tags(max_ndims=6, max_blocks=4, max_size=5), st.data())
def test_tag_of_rebuilds_the_layout(tag: FormatTag, data: st.DataObject) -> None:
    dim = st.integers(0, 9) | st.just(1) | st.just(RUNTIME)
    layout = tag.layout(data.draw(st.tuples(*[dim] * tag.ndims)))
    found = tag_of(layout)
    assert found is not None
    rebuilt = found.layout(layout.dims)
    assert rebuilt.dims == layout.dims
    assert [axis.inner for axis in rebuilt.axes] == [axis.inner for axis in layout.axes]
    for mine, theirs, dim_ in zip(rebuilt.axes, layout.axes, layout.dims, strict=True):
        assert dim_ == 1 or mine.stride == theirs.stride


@given(st.permutations(range(4)), st.lists(st.integers(-50, 50), min_size=4, max_size=4))
def test_strides_of_axes_of_one_do_not_count(order: list[int], strides: list[int]) -> None:
    dims = (2, 1, 3, 1)
    dense = FormatTag(tuple(order)).layout(dims)
    strange = [axis.stride if dim > 1 else s for axis, dim, s in zip(dense.axes, dims, strides, strict=True)]
    found = tag_of(Layout.from_strides(dims, strange))
    assert found is not None
    rebuilt = found.layout(dims)
    assert [rebuilt.axes[i].stride for i in (0, 2)] == [dense.axes[i].stride for i in (0, 2)]


@pytest.mark.parametrize(
    ("dims", "strides", "tag"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1), "abcd"),
        ((1, 16, 5, 4), (0, 20, 4, 1), "abcd"),
        ((1, 16, 5, 4), (7, 1, 64, 16), "acdb"),
        ((2, 1, 5, 4), (20, 3, 4, 1), "abcd"),
        ((2, 3), (3, 1), "ab"),
        ((2, 3), (1, 2), "ba"),
        ((4, 6), (8, 1), None),
        ((4, 6), (-6, 1), None),
        ((4, 6), (0, 1), None),
        ((4, 6), (6, 2), None),
        ((4, 4), (1, 1), None),
        ((), (), None),
    ],
)
def test_tag_of_plain_strides(dims: tuple[int, ...], strides: tuple[int, ...], tag: str | None) -> None:
    found = tag_of(Layout.from_strides(dims, strides))
    assert (found and str(found)) == tag


def test_tag_of_keeps_the_strides_of_axes_of_one_where_a_tag_gives_them() -> None:
    for i, text in enumerate(ENUMERATED):
        tag = FormatTag.parse(text)
        dims = tuple((1, 17, 1, 3, 1)[(i + axis) % 5] for axis in range(tag.ndims))
        found = tag_of(tag.layout(dims))
        assert found is not None
        assert found.layout(dims) == tag.layout(dims)


def test_tag_of_is_none_for_layouts_no_tag_says() -> None:
    swizzled = FormatTag.parse("aB4b4b").layout((2, 32))
    coarse, fine = swizzled.axes[1].inner
    free = Layout(swizzled.dims, (swizzled.axes[0], type(swizzled.axes[1])(16, (fine, coarse))))
    assert free.offset((0, 1)) == 4
    assert tag_of(free) is None
    partial = Layout((2, 17), FormatTag.parse("aB8b").layout((2, 24)).axes)
    assert tag_of(partial) is None


# Values


def test_tags_are_values() -> None:
    tag = FormatTag.parse("nChw16c")
    assert hash(tag) == hash(FormatTag((0, 1, 2, 3), ((1, 16),)))
    assert pickle.loads(pickle.dumps(tag)) == tag
    assert pickle.loads(pickle.dumps(tag)).layout((2, 17, 5, 4)) == tag.layout((2, 17, 5, 4))
    assert repr(tag) == "FormatTag(order=(0, 1, 2, 3), inner_blocks=((1, 16),))"


def test_parsing_again_is_a_look_up() -> None:
    assert FormatTag.parse("nChw16c") is FormatTag.parse("nChw16c")


def test_what_is_no_text_is_no_tag() -> None:
    with pytest.raises(InvalidArguments) as caught:
        FormatTag.parse(["ab"])  # type: ignore[arg-type]
    assert str(caught.value) == "a format tag is text such as 'nChw16c', not ['ab']"
