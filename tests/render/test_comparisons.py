"""Pictures of a source beside its destination."""

import re
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay import InvalidArguments, Layout, MemoryDesc, Unimplemented
from inlay.render.comparison import ComparisonPicture
from inlay.testing import descriptors
from tests.support.drawn_descriptors import NCHW8C
from tests.support.refusals import raises_exactly

SVG = "{http://www.w3.org/2000/svg}"
NCHW = MemoryDesc((2, 17, 5, 4), "f32", "nchw")


def text_of(*sources: object, width: int = 80, **options: object) -> str:
    return str(inlay.show(*sources, width=width, color=False, **options))  # type: ignore[call-overload]


def memories(text: str) -> list[list[str]]:
    """The words of the cells of both memories, one side under the other, with the letters of their blocks."""
    parts = re.split(r"^(?:Source|Destination) memory:.*\n", text, flags=re.MULTILINE)[1:]
    rows = [[line for line in part.splitlines() if re.match(r" *\d+: ", line)] for part in parts]
    return [[word for row in part for word in re.findall(r"[A-Z]+\d+", row)] for part in rows]


def test_an_element_has_one_number_and_one_letter_in_both_memories() -> None:
    source, destination = memories(text_of("nchw", "nChw8c", width=100))
    assert len(source) == len(set(source)) == 72
    assert set(destination) <= set(source)
    assert destination[:8] == ["A0", "B4", "C8", "D12", "E16", "F20", "G24", "H28"]


def test_both_sides_are_beside_one_another_where_there_is_room() -> None:
    wide = text_of(NCHW, NCHW8C, width=120).splitlines()
    assert any("Source: nchw" in line and "Destination: nChw8c" in line for line in wide)
    assert any("Source memory" in line and "Destination memory" in line for line in wide)
    narrow = text_of(NCHW, NCHW8C, width=80).splitlines()
    assert "Source: nchw (abcd)" in narrow
    assert "Destination: nChw8c (aBcd8b)" in narrow


SHAPES = st.sampled_from([(2, 9, 3), (4, 5), (7,), (1, 1), (2, 3, 2, 2)])


@settings(max_examples=30, deadline=None)
@given(SHAPES.flatmap(lambda dims: st.tuples(descriptors(dims), descriptors(dims))), st.integers(20, 160))
def test_lines_fit_any_width(pair: tuple[MemoryDesc, MemoryDesc], width: int) -> None:
    text = text_of(*pair, width=width)
    assert all(len(line) <= width for line in text.splitlines())


def test_a_reorder_draws_itself() -> None:
    reorder = inlay.Reorder(NCHW, NCHW8C)
    assert reorder._repr_html_() == inlay.show(NCHW, NCHW8C).html() == inlay.show(reorder).html()
    assert repr(reorder).startswith("<Reorder of ")


def test_text_takes_the_dims_and_the_type_of_the_other_side() -> None:
    desc = MemoryDesc((3, 20), "bf16", "ab")
    assert text_of(desc, "BA16b2a").startswith("ab to BA16b2a, 3 x 20 of bf16\n")
    assert text_of("ba", desc).startswith("ba to ab, 3 x 20 of bf16\n")
    assert text_of("nchw", "nChw16c").startswith("nchw (abcd) to nChw16c (aBcd16b), 2 x 17 x 2 x 2 of f32\n")
    assert text_of(Layout.from_strides((2, 3), (1, 2)), "ab").startswith("ba to ab, 2 x 3\n")
    other_type = MemoryDesc((3, 20), "s8", "ba")
    assert text_of(desc, other_type).startswith("ab to ba, 3 x 20 of bf16 to s8\n")


def test_values_are_those_of_the_side_that_has_them() -> None:
    values = np.array([[1.5, 2, 3], [4, 5, 6.25]], np.float32)
    for text in (
        text_of(values, "ba"),
        text_of("ab", inlay.pack(values, "ba")),
        text_of(inlay.pack(values, "ab"), "Ba2b"),
    ):
        assert "A 1.5" in text
        assert "B 6.25" in text
        assert "its value" in text
    both = text_of(values, inlay.pack(values * 2, "ba"))
    assert "A 1.5" in both
    assert "B 12.5" in both


def test_with_offsets_an_element_has_its_offset_in_the_source() -> None:
    text = text_of(MemoryDesc((2, 3), "f32", "ba"), "ab", offsets=True)
    assert "its offset in the source" in text
    rows = [line for line in text.splitlines() if re.match(r" *\d+: ", line)]
    numbers = [[int(word) for word in re.findall(r"\d+", row.split("┃", 1)[1])] for row in rows]
    assert numbers == [[0, 1, 2, 3, 4, 5], [0, 2, 4, 1, 3, 5]]


def test_padding_of_the_destination_belongs_to_no_block_of_the_source() -> None:
    root = ElementTree.fromstring(inlay.show(NCHW, NCHW8C).svg())
    padding = [
        rect.get("class")
        for rect in root.iter(f"{SVG}rect")
        for title in rect.iter(f"{SVG}title")
        if "(padding)" in (title.text or "")
    ]
    assert set(padding) == {"bare"}


def test_the_markup_is_valid_and_nothing_is_outside() -> None:
    for pair in ((NCHW, NCHW8C), (MemoryDesc((64, 100), "bf16", "ab"), MemoryDesc((64, 100), "s8", "BA16a64b4a"))):
        root = ElementTree.fromstring(inlay.show(*pair).svg())
        width, height = (float(root.get(name) or 0) for name in ("width", "height"))
        for rect in root.iter(f"{SVG}rect"):
            assert float(rect.get("x", "0")) + float(rect.get("width") or 0) <= width
            assert float(rect.get("y", "0")) + float(rect.get("height") or 0) <= height
        for text in root.iter(f"{SVG}text"):
            assert float(text.get("x", "0")) < width
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert len(set(ids)) == len(ids) == 3


def test_a_part_and_the_addresses_of_both_sides() -> None:
    text = text_of(MemoryDesc((64, 128), "f32", "ab"), "BA16b16a", at={"a": 3}, width=120)
    assert "Tensor: a runs down, b across" in text
    assert "a=3" in text
    assert "element that was not chosen" in text
    assert text_of(MemoryDesc((64, 128), "f32", "ab"), "ba").count("Addresses: ") == 2


def test_a_comparison_is_saved(tmp_path: Path) -> None:
    picture = inlay.show(NCHW, NCHW8C)
    assert isinstance(picture, ComparisonPicture)
    for suffix in ("svg", "html", "txt"):
        picture.save(tmp_path / f"a.{suffix}")
    assert (tmp_path / "a.svg").read_text() == picture.svg() == str(inlay.show(NCHW, NCHW8C, format="svg"))
    assert picture.html() in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.txt").read_text() == text_of(NCHW, NCHW8C) + "\n"


@pytest.mark.parametrize(
    ("sources", "kind", "message"),
    [
        (
            (NCHW, MemoryDesc((2, 3), "f32", "ab")),
            InvalidArguments,
            "the source has dims 2 x 17 x 5 x 4 and the destination 2 x 3: a picture of two layouts shows one tensor",
        ),
        (("ab", "nchw"), InvalidArguments, "one layout has 2 axes and the other 4: give two of one tensor"),
        (
            (MemoryDesc((inlay.RUNTIME, 3), "f32", "ab"), MemoryDesc((inlay.RUNTIME, 3), "f32", "ba")),
            Unimplemented,
            "the source MemoryDesc((RUNTIME, 3), 'f32', 'ab') has dims or strides that are known only when data "
            "arrives",
        ),
        (
            (MemoryDesc((0, 3), "f32", "ab"), "ba"),
            InvalidArguments,
            "the source MemoryDesc((0, 3), 'f32', 'ab') has no elements to draw",
        ),
        ((MemoryDesc(), "ab"), InvalidArguments, "the zero descriptor has no layout to compare with"),
        (
            ("ggml:Q4_0", "ab"),
            InvalidArguments,
            "dst is given beside a compound format, which is drawn bit by bit: leave it out",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(sources: tuple[object, object], kind: type, message: str) -> None:
    with raises_exactly(kind, message):
        inlay.show(*sources)  # type: ignore[call-overload]


def test_what_has_no_layout_is_refused_by_the_name_of_its_argument() -> None:
    rest = "give a MemoryDesc, such as MemoryDesc((2, 3), 'f32', 'ab'), a Memory, a Layout, an array, or a format tag"
    with raises_exactly(InvalidArguments, f"dst is of type int: {rest}"):
        inlay.show("ab", 5)  # type: ignore[call-overload]
    with raises_exactly(InvalidArguments, f"desc is of type list: {rest}"):
        inlay.show([1], "ab")  # type: ignore[call-overload]


def test_a_side_without_a_layout_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="a picture of the destination"):
        inlay.show(NCHW, MemoryDesc((2, 17, 5, 4), "f32", "any"))


def test_every_pair_of_tags_of_three_axes_is_drawn() -> None:
    for src, dst in product(("abc", "acb", "bac", "aBc8b", "ABc4b4a"), repeat=2):
        assert "Source memory" in text_of(src, dst)
