"""CuTe's shape:stride: offsets by colexicographic loops, and every layout of whole blocks survives the text.

Its errors are in golden/mistakes/notation.txt.
"""

import itertools
import json
import math
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import inlay
from inlay import MemoryDesc, Swizzle
from inlay.errors import InlayError, InvalidArguments
from inlay.layout import Layout
from inlay.notation import parse_notation
from inlay.notation.shape_stride import ShapeStride, shape_stride_of
from inlay.render.legend import layout_name
from inlay.testing import descriptors, layouts, swizzles

Tree: TypeAlias = "int | list[Tree]"
TREES = st.recursive(st.integers(1, 4), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6)


def written(tree: Tree, strides: dict[int, int] | None, count: list[int], prefix: str = "") -> str:
    """The text of a tree, of its extents or, with `strides`, of the stride of each leaf by number."""
    if isinstance(tree, list):
        return f"({','.join(written(child, strides, count, prefix) for child in tree)})"
    count[0] += 1
    return f"{prefix}{tree if strides is None else strides[count[0] - 1]}"


def leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for child in tree for leaf in leaves(child)]


def offset_in_cute(tree: Tree, strides: list[int], x: int) -> int:
    """CuTe's `crd2idx` of one mode: the coordinate is split colexicographically, the first extent fastest."""
    total = 0
    for extent, stride in zip(leaves(tree), strides, strict=True):
        x, digit = divmod(x, extent)
        total += digit * stride
    assert x == 0
    return total


@given(st.lists(TREES, min_size=1, max_size=3), st.data(), st.sampled_from(["", "_"]))
def test_offsets_are_those_of_cute(axes: list[Tree], data: st.DataObject, prefix: str) -> None:
    sizes = [math.prod(leaves(axis)) for axis in axes]
    assume(math.prod(sizes) <= 600)
    numbers = data.draw(st.lists(st.integers(-9, 99), min_size=(n := sum(len(leaves(a)) for a in axes)), max_size=n))
    strides = dict(enumerate(numbers))
    text = f"{written(list(axes), None, [0], prefix)}:{written(list(axes), strides, [0], prefix)}"
    layout = ShapeStride.parse(text).layout(sizes)
    for x in itertools.product(*map(range, sizes)):
        expected, first = 0, 0
        for axis, coordinate in zip(axes, x, strict=True):
            count = len(leaves(axis))
            expected += offset_in_cute(axis, numbers[first : first + count], coordinate)
            first += count
        assert layout.offset(x) == expected
    again = parse_notation(shape_stride_of(layout))
    assert again.layout(sizes).equivalent(layout)


@given(layouts())
def test_a_layout_of_whole_blocks_survives_its_text(layout: Layout) -> None:
    is_whole = all(dim % axis.block == 0 for dim, axis in zip(layout.dims, layout.axes, strict=True))
    if not is_whole or 0 in layout.dims or not layout.dims:
        with pytest.raises(InvalidArguments):
            shape_stride_of(layout)
        return
    parsed = parse_notation(shape_stride_of(layout))
    assert parsed.layout(layout.dims).equivalent(layout)
    assert str(parsed) == parsed.spelling == shape_stride_of(layout)


@given(descriptors(), swizzles(whole_bytes=True))
def test_a_descriptor_survives_its_text(desc: MemoryDesc, swizzle: Swizzle) -> None:
    try:
        text = desc.shape_stride
    except InvalidArguments:
        assume(False)
    layout, data_type = desc.require_layout("a test")
    made = MemoryDesc.from_layout(layout, data_type, dims=desc.dims)
    assert MemoryDesc(desc.dims, data_type, text).equivalent(made)
    swizzled = MemoryDesc(desc.dims, desc.data_type, f"{swizzle} o {text}")
    assert swizzled.shape_stride == f"{swizzle} o {text}"
    assert swizzled.swizzle == swizzle


@pytest.mark.parametrize(
    "text",
    [
        "Swizzle<2,1,3> o (4,8):(8,1)",
        "Sw<2,1,3> o 0 o (_4,_8):(_8,_1)",
        "S<2,1,3> o 0 o (4,8):(8,1)",
        "Swizzle< 2, 1, 3 > o ( 4 , 8 ) : ( 8 , 1 )",
        "Sw<2,1,3>o(4,8):(8,1)",
        "Swizzle<2,1,3> o r c -> r c",
        "Swizzle<2,1,3> o ab",
    ],
)
def test_spellings_of_a_swizzled_layout_mean_the_same(text: str) -> None:
    desc = MemoryDesc((4, 8), "u8", text)
    assert desc.equivalent(MemoryDesc((4, 8), "u8", "ab", swizzle=Swizzle(2, 1, 3)))
    assert MemoryDesc.from_json(desc.to_json()) == desc
    assert eval(repr(desc)) == desc


@given(st.text(alphabet="()0123456789,:_- o<>SwxX\n", max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        notation = parse_notation(text)
    except InlayError:
        return
    assert parse_notation(notation.spelling) == notation


def test_documented_form_of_cute_is_printed() -> None:
    """The example of CuTe's documentation, `02_layout_algebra.md`: ((4,8),(2,4)):((1,16),(4,64))."""
    text = "((4,8),(2,4)):((1,16),(4,64))"
    desc = MemoryDesc((32, 8), "u8", text)
    expected = [(i % 4) + (i // 4) * 16 + (j % 2) * 4 + (j // 2) * 64 for i in range(32) for j in range(8)]
    assert desc.offset(np.indices((32, 8)).reshape(2, -1).T).tolist() == expected
    assert desc.shape_stride == text


def test_a_picture_names_the_swizzle_beside_a_pattern_that_begins_with_s() -> None:
    desc = MemoryDesc((4, 8), "u8", "S D -> S D", swizzle=Swizzle(2, 1, 3))
    assert layout_name(desc) == "Swizzle<2,1,3> o S D -> S D"
    assert layout_name(MemoryDesc((4, 8), "u8", "Swizzle<2,1,3> o S D -> S D")) == "Swizzle<2,1,3> o S D -> S D"


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        (" ab\n", "ab"),
        ("r c\n  -> c\tr", "r c -> c r"),
        ("(4,8)\n:(8,1)", "(4,8) :(8,1)"),
        (" Swizzle<2,1,3> o\n(4,8):(8,1)", "Swizzle<2,1,3> o (4,8):(8,1)"),
        (" cublaslt:COL ", "r c -> c r"),
    ],
)
def test_the_spelling_is_one_line_of_which_repr_is_an_expression(text: str, spelling: str) -> None:
    desc = MemoryDesc((4, 8), "u8", text)
    assert desc.spelling == spelling
    assert eval(repr(desc)) == desc
    assert str(inlay.show(desc, width=80, color=False)).startswith(spelling)
    if "->" in text:
        assert MemoryDesc((4, 8), "u8", pattern=text).spelling == spelling
    values = json.loads(desc.to_json()) | {"format": text, "version": 2}
    assert MemoryDesc.from_json(json.dumps(values)).spelling == spelling
