"""Format tags: parsing, printing, layouts and the tags of layouts; golden/mistakes/notation.txt has their errors."""

import json
import math
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from inlay.errors import FormatTagError
from inlay.layout import RUNTIME, Axis, Dims, Layout
from inlay.layout.axis import LETTERS
from inlay.notation.format_tag import ALIASES, ENUMERATED, FormatTag, tag_of
from tests.support.paths import DATA
from tests.support.view_coordinates import offsets

ORACLE: dict[str, Any] = json.loads((DATA / "onednn_tags.json").read_text())


@st.composite
def format_tags(draw: st.DrawFn, max_ndims: int = 12, max_blocks: int = 5, max_size: int = 64) -> FormatTag:
    """Any tag: any order of axes, any chain of blocks."""
    n = draw(st.integers(1, max_ndims))
    order = draw(st.permutations(range(n)))
    block = st.tuples(st.integers(0, n - 1), st.integers(2, max_size))
    return FormatTag(tuple(order), tuple(draw(st.lists(block, max_size=max_blocks))))


def offsets_by_numpy(tag: FormatTag, dims: Dims) -> npt.NDArray[np.int64]:
    """The offset of every coordinate: the memory in its own shape, its axes sorted by the axis they belong to."""
    counts = [-(-dim // tag.blocks(axis)) for axis, dim in enumerate(dims)]
    places = [(axis, counts[axis]) for axis in tag.order] + list(tag.inner_blocks)
    memory = np.arange(math.prod(size for _, size in places)).reshape([size for _, size in places])
    by_axis = sorted(range(len(places)), key=lambda i: places[i][0])
    padded = [math.prod(size for place, size in places if place == axis) for axis in range(len(dims))]
    return memory.transpose(by_axis).reshape(padded)


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
        printed, shown = str(FormatTag.parse(text)), text
    except FormatTagError as error:
        printed, shown = "", error.text
    assert shown == text
    assert not printed or str(FormatTag.parse(printed)) == printed


def test_a_size_of_many_thousand_digits_is_refused_not_converted() -> None:
    with pytest.raises(FormatTagError, match=r"^block size exceeds 2\*\*63 - 1"):
        FormatTag.parse("aB" + "9" * 5000 + "b")


# Layouts


@given(format_tags(max_ndims=5, max_blocks=3, max_size=5), st.data())
def test_layout_places_every_coordinate_where_numpy_does(tag: FormatTag, data: st.DataObject) -> None:
    dims = tuple(data.draw(st.integers(1, 2 * tag.blocks(axis) + 1)) for axis in range(tag.ndims))
    layout = tag.layout(dims)
    assume(layout.size <= 100_000)
    assert np.array_equal(offsets(layout), offsets_by_numpy(tag, dims))


@pytest.mark.parametrize(
    ("dims", "padded", "strides"),
    [
        ((2, 17, 0, 4), (2, 24, 0, 4), [96, 32, 32, 8]),
        ((2, 0, 5, 4), (2, 0, 5, 4), [160, 160, 32, 8]),
        ((2, 17, RUNTIME, 4), (2, 24, RUNTIME, 4), [RUNTIME, RUNTIME, 32, 8]),
        ((2, RUNTIME, 5, 4), (2, RUNTIME, 5, 4), [RUNTIME, 160, 32, 8]),
    ],
)
def test_a_dim_of_0_counts_as_1_in_the_strides_and_those_outside_a_runtime_dim_are_runtime(
    dims: Dims, padded: Dims, strides: list[int]
) -> None:
    layout = FormatTag.parse("aBcd8b").layout(dims)
    assert (layout.dims, [axis.stride for axis in layout.axes]) == (padded, strides)


def test_the_largest_tensor_that_fits_is_allowed() -> None:
    assert FormatTag.parse("ab").layout((2**63 - 1, 1)).dims == (2**63 - 1, 1)


# Layouts back to tags


@given(format_tags(max_ndims=6, max_blocks=4, max_size=5), st.data())
def test_tag_of_names_the_tag_when_every_axis_repeats(tag: FormatTag, data: st.DataObject) -> None:
    dims = tuple(tag.blocks(axis) * data.draw(st.integers(2, 4)) for axis in range(tag.ndims))
    assert tag_of(tag.layout(dims)) == tag


@given(format_tags(max_ndims=6, max_blocks=4, max_size=5), st.data())
def test_tag_of_rebuilds_the_layout_whatever_the_strides_of_axes_of_one(tag: FormatTag, data: st.DataObject) -> None:
    dim = st.integers(0, 9) | st.just(1) | st.just(RUNTIME)
    layout = tag.layout(data.draw(st.tuples(*[dim] * tag.ndims)))
    strange = [Axis(data.draw(st.integers(-50, 50))) if layout.dims[i] == 1 else a for i, a in enumerate(layout.axes)]
    for asked in (layout, Layout(layout.dims, tuple(strange))):
        found = tag_of(asked)
        assert found is not None
        rebuilt = found.layout(layout.dims)
        assert rebuilt.dims == layout.dims
        for mine, its, n in zip(rebuilt.axes, layout.axes, layout.dims, strict=True):
            assert mine == its or (n == 1 and mine.inner == its.inner)


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
def test_tag_of_plain_strides(dims: Dims, strides: Dims, tag: str | None) -> None:
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
    outer, swizzled = FormatTag.parse("aB4b4b").layout((2, 32)).axes
    assert tag_of(Layout((2, 32), (outer, Axis(16, swizzled.inner[::-1])))) is None
    partial = Layout((2, 17), FormatTag.parse("aB8b").layout((2, 24)).axes)
    assert tag_of(partial) is None


def test_tags_are_values_and_parsing_again_is_a_look_up() -> None:
    tag = FormatTag.parse("nChw16c")
    assert hash(tag) == hash(FormatTag((0, 1, 2, 3), ((1, 16),)))
    assert pickle.loads(pickle.dumps(tag)) == tag
    assert pickle.loads(pickle.dumps(tag)).layout((2, 17, 5, 4)) == tag.layout((2, 17, 5, 4))
    assert repr(tag) == "FormatTag(order=(0, 1, 2, 3), inner_blocks=((1, 16),))"
    assert FormatTag.parse("nChw16c") is tag
