"""Texts of a request: what each field accepts, and every mistake with its column and what may be meant."""

import pickle
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inlay import MemoryDesc
from inlay.notation import parse_notation
from inlay.render.explorer.model import explore_layout
from inlay.render.explorer.request import (
    example_dims,
    fragment_of,
    make_request,
    parse_request,
    parse_view,
    split_names,
)
from inlay.render.explorer.suggestions import suggest_layouts
from inlay.render.explorer.typed_text import InvalidField
from tests.support.refusals import raises_exactly


def fault_of(**request: Any) -> dict[str, Any]:
    """The error of a request, as the server sends it, without keys that say nothing."""
    with pytest.raises(InvalidField) as caught:
        explore_layout({"layout": "nchw", "dims": "2x17x5x4", **request})
    fault = caught.value.fault.to_json()
    assert pickle.loads(pickle.dumps(caught.value)).fault == caught.value.fault
    return {key: value for key, value in fault.items() if value not in (None, [], 0) or key in ("field", "column")}


@pytest.mark.parametrize(
    ("layout", "format"),
    [
        ("nChw8c", "nChw8c"),
        ("  nChw8c ", "nChw8c"),
        ("aBcd8b", "aBcd8b"),
        ("NHWC", "nhwc"),
        ("n (c c8) h w -> n c h w c8", "nChw8c"),
        ("tensorrt:CHW32", "nChw32c"),
        ("onednn:nChw16c", "nChw16c"),
        ("(2,(8,3),5,4):(480,(1,160),32,8)", "nChw8c"),
        ("Swizzle<1,1,3> o nchw", "Swizzle<1,1,3> o nchw"),
    ],
)
def test_a_layout_is_any_notation(layout: str, format: str) -> None:
    assert parse_request({"layout": layout, "dims": "2x17x5x4"}).desc == MemoryDesc((2, 17, 5, 4), "f32", format)


@pytest.mark.parametrize("text", ["8,1", "(8, 1)", "[8,1]", "8 1", " 8 , 1 ", "(8,1,)", "8x1"])
def test_strides_are_numbers_alone_or_in_brackets(text: str) -> None:
    assert parse_request({"layout": text, "dims": "4x6"}).desc == MemoryDesc((4, 6), "f32", strides=(8, 1))


@pytest.mark.parametrize(
    "text", ["2x17x5x4", "2,17,5,4", "2 17 5 4", "(2, 17, 5, 4)", "[2, 17, 5, 4]", "2×17×5×4", "2*17*5*4"]
)
def test_dims_are_numbers_joined_in_the_usual_ways(text: str) -> None:
    assert parse_request({"layout": "nchw", "dims": text}).desc.dims == (2, 17, 5, 4)


def test_offset0_is_the_offset_of_the_origin() -> None:
    values: tuple[object, ...] = ("64", 64)
    for value in values:
        assert parse_request({"layout": "nchw", "dims": "2x3x4x5", "offset0": value}).desc.offset0 == 64
    values = (None, "", 0)
    for value in values:
        assert parse_request({"layout": "nchw", "dims": "2x3x4x5", "offset0": value}).desc.offset0 == 0


def test_names_are_those_typed_or_those_of_the_layout() -> None:
    def names(**more: Any) -> tuple[str, ...]:
        return parse_request({"layout": "acdb", "dims": "2x3x4x5", **more}).names

    assert names() == ("n", "c", "h", "w")
    assert names(names=["b", "t", "y", "x"]) == names(names="b,t,y,x") == names(names="btyx") == ("b", "t", "y", "x")
    assert split_names("row, col") == ["row", "col"]


MISTAKES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"layout": "nchw8c"},
        {
            "field": "layout",
            "message": "outer axis 'c' has inner blocks: write 'C'",
            "column": 1,
            "length": 1,
            "suggestions": ["nChw8c"],
        },
    ),
    (
        {"layout": " nhwx"},
        {
            "field": "layout",
            "message": "unknown alias 'nhwx': did you mean nhwc or nchw?",
            "column": 1,
            "length": 4,
            "suggestions": ["nhwc", "nchw", "tensorflow:NHWC"],
        },
    ),
    (
        {"layout": "CHW32"},
        {
            "field": "layout",
            "message": "block size 32 needs an axis letter after it",
            "column": 5,
            "length": 1,
            "suggestions": ["tensorrt:CHW32", "megengine:NCHW32"],
        },
    ),
    (
        {"layout": "channels_last"},
        {
            "field": "layout",
            "message": "'_' has no place in a format tag, which has letters and block sizes",
            "column": 8,
            "length": 1,
            "suggestions": ["torch:channels_last"],
        },
    ),
    (
        {"layout": "tensort:CHW32"},
        {
            "field": "layout",
            "message": "there is no vendor 'tensort': did you mean tensorrt or tenstorrent or tensorflow? "
            "`inlay names '*:*'` lists all names",
            "column": 0,
            "length": 7,
            "suggestions": ["tensorrt:CHW32", "tensorrt:CHW2", "cutlass:TensorNCHW"],
        },
    ),
    (
        {"layout": "n (c c8)   h w -> n c h w c9"},
        {
            "field": "layout",
            "message": "'c9' is no digit of an axis: it does not appear left of the arrow",
            "column": 26,
            "length": 2,
        },
    ),
    (
        {"layout": "n c h w"},
        {
            "field": "layout",
            "message": "a pattern needs an arrow: axes -> order in memory",
            "column": 7,
            "length": 1,
            "suggestions": ["n c h w -> n c h w"],
        },
    ),
    (
        {"layout": "Swizzle<3,4,3> nchw"},
        {
            "field": "layout",
            "message": "write a swizzle as in 'Swizzle<3,4,3> o (8,64):(64,1)'",
            "column": 0,
            "length": 14,
            "suggestions": ["Swizzle<3,4,3> o nchw"],
        },
    ),
    (
        {"layout": "Swizzle<3,4,3> o  nchq"},
        {
            "field": "layout",
            "message": "unknown alias 'nchq': did you mean nchw?",
            "column": 18,
            "length": 4,
        },
    ),
    (
        {"layout": "(2,17,5,4):(340,20,4)"},
        {
            "field": "layout",
            "message": "the strides are not nested as the shape is: each extent has one stride",
            "column": 11,
            "length": 10,
        },
    ),
    (
        {"layout": "340,20,,1"},
        {
            "field": "layout",
            "message": "strides are whole numbers joined by commas, such as 320,20,4,1: a number is missing",
            "column": 7,
            "length": 1,
            "suggestions": ["340,20,1"],
        },
    ),
    (
        {"layout": "340,20,4q,1"},
        {
            "field": "layout",
            "message": "strides are whole numbers joined by commas, such as 320,20,4,1: 'q' is no number",
            "column": 8,
            "length": 1,
            "suggestions": ["340,20,4,1"],
        },
    ),
    (
        {"layout": "20,4,1"},
        {"field": "layout", "message": "4 dims need as many strides, not 3: (20, 4, 1)", "column": None},
    ),
    (
        {"layout": "ncw"},
        {
            "field": "layout",
            "message": "format ncw (abc) places 3 axes, but dims (2, 17, 5, 4) are 4: give 3 dims, or a format of 4 "
            "letters such as abcd",
            "column": None,
            "suggestions": ["nchw"],
        },
    ),
    (
        {"layout": "any"},
        {
            "field": "layout",
            "message": "any is no layout: give a tag such as nchw, a pattern, a vendor's name, or strides",
            "column": None,
        },
    ),
    (
        {"layout": "ggml:Q4_0"},
        {
            "field": "layout",
            "message": "ggml:Q4_0 is a compound format, which is drawn bit by bit: `inlay show ggml:Q4_0 DIMS`",
            "column": None,
            "suggestions": ["ggml:Q4_0.qs"],
        },
    ),
    (
        {"layout": "ab", "dims": f"{10**18}x3"},
        {
            "field": "layout",
            "message": "format ab of dims (1000000000000000000, 3) exceeds oneDNN's bound on tags: "
            "1000000000000000000 * 3000000000000000000 elements of 4 bytes are more than 2**64 - 1; "
            "give strides=(3, 1) instead of the tag",
            "column": None,
            "suggestions": ["3,1"],
        },
    ),
    (
        {"layout": "nchw", "dims": "2x17x5x5", "data_type": "s4"},
        {
            "field": "layout",
            "message": "stride 5 of axis 2 (c) is odd: s4 has two elements in a byte, so strides other than 1 are "
            "even; 6 works",
            "column": None,
        },
    ),
    (
        {"dims": "2x17xx4"},
        {
            "field": "dims",
            "message": "dims are whole numbers joined by x, such as 2x17x5x4: a number is missing",
            "column": 5,
            "length": 1,
            "suggestions": ["2x17x4"],
        },
    ),
    (
        {"dims": ""},
        {
            "field": "dims",
            "message": "dims are whole numbers joined by x, such as 2x17x5x4: a number is missing",
            "column": 0,
            "length": 1,
        },
    ),
    (
        {"dims": "2x-17x5x4"},
        {
            "field": "dims",
            "message": "dims are whole numbers joined by x, such as 2x17x5x4: -17 is negative",
            "column": 2,
            "length": 3,
            "suggestions": ["2x17x5x4"],
        },
    ),
    (
        {"dims": "2x1.5"},
        {
            "field": "dims",
            "message": "dims are whole numbers joined by x, such as 2x17x5x4: '.5' is no number",
            "column": 3,
            "length": 2,
            "suggestions": ["2x1x5"],
        },
    ),
    (
        {"dims": "x".join("2" * 13)},
        {
            "field": "dims",
            "message": "dims are whole numbers joined by x, such as 2x17x5x4: give at most 12",
            "column": 24,
            "length": 1,
        },
    ),
    (
        {"dims": str(2**63)},
        {
            "field": "dims",
            "message": "dims are whole numbers joined by x, such as 2x17x5x4: 9223372036854775808 is more than "
            "2**63 - 1",
            "column": 0,
            "length": 19,
        },
    ),
    (
        {"dims": f"{10**18}x{10**18}"},
        {
            "field": "dims",
            "message": "dims (1000000000000000000, 1000000000000000000) have 1000000000000000000000000000000000000 "
            "elements, more than the 2**63 - 1 that an offset can count",
            "column": None,
        },
    ),
    (
        {"data_type": "F32"},
        {
            "field": "data_type",
            "message": "unknown data type 'F32': use one of f16, bf16, f32, s32, s8, u8, f64, f8_e5m2, f8_e4m3, s4, "
            "u4, e8m0, f4_e2m1, s64, bool, s16, u16, u32, u64, complex64, complex128, or the NumPy or ml_dtypes type "
            "of the same meaning",
            "column": 0,
            "length": 3,
            "suggestions": ["f32"],
        },
    ),
    (
        {"names": ["n", "c"]},
        {"field": "names", "message": "4 axes need 4 names, not 2: n, c", "column": None},
    ),
    (
        {"names": "n,c,h,h"},
        {"field": "names", "message": "axes need different names: n, c, h, h", "column": None},
    ),
    (
        {"offset0": "-1"},
        {
            "field": "offset0",
            "message": "offset0 is one whole number of elements, such as 64: -1 is negative",
            "column": 0,
            "length": 2,
            "suggestions": ["1"],
        },
    ),
    (
        {"offset0": "1,2"},
        {
            "field": "offset0",
            "message": "offset0 is one whole number of elements, such as 64: give at most 1",
            "column": 2,
            "length": 1,
        },
    ),
    (
        {"layout": "Swizzle<1,1,3> o ab", "dims": "8x8", "data_type": "s4", "offset0": "3"},
        {
            "field": "offset0",
            "message": "offset0 3 is odd, but two elements of s4 share a byte: give an even offset0, base >= 1",
            "column": None,
        },
    ),
    (
        {"layout": "nchw\x1b[2J"},
        {"field": "layout", "message": "'\\\\x1b' has no place in layout", "column": 4, "length": 1},
    ),
    (
        {"layout": "n" * 2001},
        {"field": "layout", "message": "layout has 2001 characters: give at most 2,000", "column": None},
    ),
]


@pytest.mark.parametrize(("request_texts", "fault"), MISTAKES, ids=[str(i) for i in range(len(MISTAKES))])
def test_a_mistake_has_its_field_its_column_and_what_may_be_meant(
    request_texts: dict[str, Any], fault: dict[str, Any]
) -> None:
    assert fault_of(**request_texts) == fault


@pytest.mark.parametrize(
    ("request_value", "message"),
    [
        ([], "a request is an object of JSON, not []"),
        ({"layout": "ab"}, "the request has no key 'dims': it needs layout and dims"),
        (
            {"layout": "ab", "dims": "2x3", "dtype": "f32"},
            "a request has no key 'dtype': its keys are layout, dims, data_type, names, views, offset0",
        ),
        ({"layout": 3, "dims": "2x3"}, "layout is 3: give text"),
        ({"layout": "ab", "dims": [2, 3]}, "dims is [2, 3]: give text"),
        ({"layout": "ab", "dims": "2x3", "views": {}}, "views is {}: give a list of objects, each with its op"),
        (
            {"layout": "ab", "dims": "2x3", "views": [{"op": "flip"}]},
            "the op of view 0 is 'flip': give one of reshape, permute, submemory",
        ),
        ({"layout": "ab", "dims": "2x3", "views": [{}] * 33}, "there are 33 views: give at most 32"),
        ({"layout": "ab", "dims": "2x3", "names": 3}, "names is 3: give a list of texts, or null"),
    ],
)
def test_a_malformed_request_is_an_error_of_the_request(request_value: object, message: str) -> None:
    with raises_exactly(InvalidField, message):
        explore_layout(request_value)


def test_the_text_of_an_error_marks_the_column_and_says_what_may_be_meant() -> None:
    text = "outer axis 'c' has inner blocks: write 'C'\n    nchw8c\n    ~^\n    did you mean nChw8c?"
    with raises_exactly(InvalidField, text):
        explore_layout({"layout": "nchw8c", "dims": "2x17x5x4"})


TYPED = st.text("nchwabcdoiNCHW0123456789 ()->:,xSwizzle<>o_|", max_size=30)


@settings(max_examples=300, deadline=None)
@given(TYPED, TYPED)
@example("Swizzle<3,4,3> o ", "2x3")
@example("(", "2x3")
@example("->", "2x3")
def test_whatever_is_typed_is_a_layout_or_an_error_of_a_field(layout: str, dims: str) -> None:
    for request in ({"layout": layout, "dims": "2x17x5x4"}, {"layout": "ab", "dims": dims}):
        try:
            explore_layout(request)
        except InvalidField as error:
            fault = error.fault
            assert fault.field in ("layout", "dims")
            if fault.column is not None:
                typed = request[fault.field]
                assert 0 <= fault.column <= len(typed)
                assert fault.column + fault.length <= len(typed) + 1
            for suggestion in fault.suggestions:
                assert suggestion != request[fault.field]


@pytest.mark.parametrize(
    "text",
    ["OIhw4i16o4i", "n (c c8) h w -> n c h w c8", "Swizzle<3,4,3> o (8,128):(128,1)", "tensorrt:CHW32", "320,20,4,1"],
)
def test_each_beginning_of_a_text_is_a_layout_or_an_error_of_the_layout(text: str) -> None:
    fields = set()
    for end in range(len(text)):
        try:
            explore_layout({"layout": text[:end], "dims": "2x16x5x4"})
        except InvalidField as error:
            fields.add(error.fault.field)
    assert fields == {"layout"}


@settings(max_examples=100, deadline=None)
@given(TYPED)
def test_suggested_layouts_are_layouts(text: str) -> None:
    for suggestion in suggest_layouts(text, 4):
        assert parse_notation(suggestion).ndims >= 1


def test_example_dims_are_small_and_pad_blocks() -> None:
    assert example_dims("nChw8c") == "2x9x2x2"
    with raises_exactly(InvalidField, "the strides 8,1 do not say the dims: give them too"):
        example_dims("8,1")
    with raises_exactly(
        InvalidField,
        "ggml:Q4_0 is a compound format, which is drawn bit by bit: `inlay show ggml:Q4_0 DIMS`\n"
        "    did you mean ggml:Q4_0.qs?",
    ):
        example_dims("ggml:Q4_0")
    with pytest.raises(InvalidField, match="did you mean nchw"):
        example_dims("nchx")


@pytest.mark.parametrize("text", ["", "reshape", "reshape:", "2x17", "submemory:1x8", "permute:0,1@2", "flip:1"])
def test_a_view_in_an_address_has_a_name_and_its_texts(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^a view is reshape:2x17x20, .* not "):
        parse_view(text)


def test_a_fragment_has_the_texts_of_up_to_two_layouts() -> None:
    first = make_request("n (c c8) h w -> n c h w c8", "2x17x5x4", "bf16", "b,c,y,x")
    second = make_request("nhwc", "2x17x5x4", "u8")
    assert fragment_of([]) == ""
    for text in ("reshape:2x17x20", "digits:-1x17", "permute:n,h,w,c", "submemory:1x8x5x4@0,8,0,0"):
        assert fragment_of([{**second, "views": [parse_view(text)]}]).endswith(f"&v={text}")
    assert fragment_of([second]) == "#l=nhwc&d=2x17x5x4&t=u8"
    assert fragment_of([first, second]) == (
        "#l=n%20(c%20c8)%20h%20w%20-%3E%20n%20c%20h%20w%20c8&d=2x17x5x4&t=bf16&n=b,c,y,x&l2=nhwc&t2=u8"
    )
