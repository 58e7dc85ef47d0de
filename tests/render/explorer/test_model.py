"""The JSON of a layout: its digits give the offsets of the descriptor, and its words and numbers are true."""

import json
from itertools import product
from random import Random

import numpy as np
import pytest

from inlay import InvalidArguments, Layout, MemoryDesc, Swizzle
from inlay.layout import Axis, Digit
from inlay.render.explorer.model import describe_layout, explore_layout, list_choices, read_layout
from inlay.testing import Seeded, draw_descriptor
from tests.oracles.explorer_offsets import offset_of
from tests.support.explorer_requests import random_requests
from tests.support.paths import ROOT
from tests.support.refusals import raises_exactly

GOLDEN = ROOT / "tests" / "golden" / "explorer.json"
LETTERS = "abcdefghijkl"


def test_offsets_from_the_json_of_a_request_are_those_of_the_descriptor() -> None:
    random = Random(3)
    for request in random_requests(1, 250):
        desc, layout = read_layout(request).desc, json.loads(json.dumps(explore_layout(request)))
        for _ in range(5):
            coordinate = [random.randrange(dim) for dim in desc.padded_dims]
            assert offset_of(layout, coordinate) == desc.offset(coordinate), (request, coordinate)


def test_offsets_from_the_json_of_any_descriptor_are_its_own() -> None:
    choose, random = Seeded(5), Random(5)
    for _ in range(250):
        desc = draw_descriptor(choose, broadcast=True)
        layout = describe_layout(desc, LETTERS[: desc.ndims])
        for _ in range(3 if 0 not in desc.padded_dims else 0):
            coordinate = [random.randrange(dim) for dim in desc.padded_dims]
            assert offset_of(layout, coordinate) == desc.offset(coordinate), (desc, coordinate)


def test_memory_padding_and_gaps_are_counted_element_by_element() -> None:
    choose = Seeded(7)
    for _ in range(100):
        desc = draw_descriptor(choose, broadcast=True)
        layout = describe_layout(desc, LETTERS[: desc.ndims])
        points = np.indices(desc.padded_dims).reshape(desc.ndims, -1).T
        taken, start = np.unique(desc.offset(points)), layout["memory_start"]
        assert layout["padding_elements"] == (points >= np.array(desc.dims)).any(axis=1).sum()
        assert layout["overlaps"] == (len(taken) < len(points))
        assert layout["size"] == desc.size
        if len(taken):
            assert layout["lowest_offset"] == taken[0]
            assert start <= taken[0] <= taken[-1] < start + layout["memory_elements"]
        if layout["gap_elements"] is not None:
            assert layout["gap_elements"] == layout["memory_elements"] - len(taken), desc


def test_the_formula_has_the_value_of_the_offset() -> None:
    random = Random(11)
    for request in random_requests(13, 100):
        desc, layout = read_layout(request).desc, explore_layout(request)
        coordinate = [random.randrange(dim) for dim in desc.padded_dims]
        value = eval(layout["formula"], {}, dict(zip(layout["names"], coordinate, strict=True)))
        if layout["swizzle"]:
            value = eval(layout["swizzle"]["formula"], {}, {"s": value})
        assert value == desc.offset(coordinate), request


def test_the_strip_of_a_view_is_the_memory_that_it_views() -> None:
    box = {"op": "submemory", "dims": "1x8x5x4", "offsets": "0,8,0,0"}
    whole, part = (explore_layout({"layout": "nChw8c", "dims": "2x17x5x4", "views": views}) for views in ([], [box]))
    assert (part["offset0"], part["lowest_offset"]) == (160, 160)
    assert part["memory_elements"] == whole["memory_elements"] == 960
    assert part["gap_elements"] == 960 - 160
    assert part["views"] == [
        {
            "op": "submemory",
            "call": "submemory((1, 8, 5, 4), (0, 8, 0, 0))",
            "text": "f32:0:blocked:aBcd8b::f0 1x8x5x4",
            "dims": [1, 8, 5, 4],
            "names": ["n", "c", "h", "w"],
        }
    ]


def test_the_origin_of_negative_strides_is_moved_so_that_the_lowest_element_is_first() -> None:
    layout = explore_layout({"layout": "-6,-1", "dims": "4x6"})
    assert (layout["offset0"], layout["memory_start"], layout["memory_elements"]) == (23, 0, 24)
    shifted = explore_layout({"layout": "-6,-1", "dims": "4x6", "offset0": "10"})
    assert (shifted["offset0"], shifted["lowest_offset"], shifted["memory_elements"]) == (33, 10, 34)


def test_memory_begins_below_the_buffer_if_a_layout_is_so_written() -> None:
    layout = explore_layout({"layout": "(4):(-1)", "dims": "4"})
    assert (layout["memory_start"], layout["memory_elements"], layout["lowest_offset"]) == (-3, 4, -3)


def test_a_swizzle_is_its_three_numbers_and_its_formula() -> None:
    layout = explore_layout({"layout": "Swizzle<3,4,3> o (8,128):(128,1)", "dims": "8x128", "data_type": "u8"})
    assert layout["swizzle"] == {
        "bits": 3,
        "base": 4,
        "shift": 3,
        "text": "Swizzle<3,4,3>",
        "formula": "s ^ (s & 896) >> 3",
    }
    assert layout["formula"] == "128*a + b"


def test_the_memory_of_a_swizzled_layout_has_whole_chunks() -> None:
    desc = MemoryDesc((5, 7), "f32", strides=(7, 1), swizzle=Swizzle(2, 1, 3))
    layout = describe_layout(desc, "ab")
    offsets = {desc.offset(point) for point in product(range(5), range(7))}
    assert layout["memory_elements"] >= max(offsets) + 1
    assert layout["gap_elements"] == layout["memory_elements"] - 35


def test_numbers_that_are_not_exact_in_javascript_are_texts() -> None:
    layout = explore_layout({"layout": "3,1", "dims": f"{10**18}x3"})
    assert layout["dims"] == [str(10**18), 3]
    assert layout["digits"] == [[{"extent": str(10**18), "stride": 3}], [{"extent": 3, "stride": 1}]]
    assert (layout["memory_elements"], layout["size"]) == (str(3 * 10**18), str(12 * 10**18))
    exact = explore_layout({"layout": "a", "dims": str(2**53 - 1), "data_type": "u8"})
    assert exact["dims"] == [2**53 - 1]
    assert explore_layout({"layout": "a", "dims": str(2**53), "data_type": "u8"})["dims"] == [str(2**53)]


def test_a_layout_without_elements_has_no_memory_and_nothing_to_mark() -> None:
    layout = explore_layout({"layout": "nChw8c", "dims": "2x0x5x4"})
    assert (layout["memory_elements"], layout["padding_elements"], layout["gap_elements"]) == (0, 0, 0)
    assert (layout["marks"], layout["groups"], layout["padded_computation"]) == ([], [], None)


def test_broadcast_elements_are_no_gaps_and_overlapping_ones_are_not_counted() -> None:
    assert explore_layout({"layout": "0,1", "dims": "4x6"})["gap_elements"] == 0
    sliding = explore_layout({"layout": "1,1", "dims": "4x6"})
    assert (sliding["overlaps"], sliding["gap_elements"], sliding["memory_elements"]) == (True, None, 9)


@pytest.mark.parametrize(
    ("layout", "dims", "title"),
    [
        ("nChw8c", "2x17x5x4", "nChw8c"),
        ("aBcd8b", "2x17x5x4", "nChw8c"),
        ("tensorrt:CHW32", "2x17x5x4", "tensorrt:CHW32"),
        ("320,20,4,1", "2x16x5x4", "nchw"),
        ("8,1", "4x6", "strides 8 x 1"),
        ("(2,(8,3)):(24,(1,8))", "2x17", "(2,(8,3)):(24,(1,8))"),
    ],
)
def test_the_title_is_the_common_name_of_a_layout(layout: str, dims: str, title: str) -> None:
    assert explore_layout({"layout": layout, "dims": dims})["title"] == title


@pytest.mark.parametrize(
    ("view", "title"),
    [
        ({"op": "permute", "axes": "nhwc"}, "aDbc8d"),
        ({"op": "reshape", "dims": "2x17x20"}, "nCw8c"),
        ({"op": "submemory", "dims": "1x8x5x4", "offsets": "0,8,0,0"}, "view of nChw8c"),
    ],
)
def test_the_title_of_a_view_is_its_tag_or_what_it_is_a_view_of(view: dict[str, str], title: str) -> None:
    assert explore_layout({"layout": "nChw8c", "dims": "2x17x5x4", "views": [view]})["title"] == title


def test_names_in_other_notations_include_those_of_vendors() -> None:
    notations = dict(explore_layout({"layout": "nChw32c", "dims": "2x17x5x4"})["notations"])
    assert notations["pattern"] == "n (c c32) h w -> n c h w c32"
    assert notations["shape:stride"] == "(2,(32,1),5,4):(640,(1,640),128,32)"
    assert "tensorrt:CHW32" in notations["also"]


def test_the_json_of_one_layout_is_as_it_was_published() -> None:
    layout = explore_layout({"layout": "nChw8c", "dims": "2x17x5x4", "data_type": "f32"})
    assert layout == json.loads(GOLDEN.read_text())


def test_the_page_of_the_documentation_names_every_key() -> None:
    page = (ROOT / "docs" / "explorer.md").read_text()
    layout = explore_layout({"layout": "nChw8c", "dims": "2x17x5x4"})
    swizzled = explore_layout({"layout": "Swizzle<1,0,1> o ab", "dims": "4x4"})
    nested = [layout["marks"][0], layout["groups"][0], layout["padded_computation"], swizzled["swizzle"]]
    keys = {key for values in (layout, *nested) for key in values}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_a_descriptor_without_a_layout_has_no_json() -> None:
    with raises_exactly(
        InvalidArguments, "the explorer needs a layout: MemoryDesc((2, 3), 'f32', 'any') is of kind any"
    ):
        describe_layout(MemoryDesc((2, 3), "f32", "any"), "ab")


def test_blocks_are_said_by_the_digits_that_number_them() -> None:
    desc = MemoryDesc.from_layout(Layout((6,), (Axis(4, (Digit(2, 2),)),)), "u8")
    layout = describe_layout(desc, "a")
    assert (layout["block_axes"], layout["block_text"]) == (["a//2"], "one for each a//2: 2 elements, apart in memory")


def test_choices_are_texts_that_fields_accept() -> None:
    choices = list_choices()
    assert {"f32", "bf16", "s4", "u16"} <= set(choices["data_types"])
    assert {"nchw", "nChw16c", "OIhw4i16o4i"} <= set(choices["tags"])
    for name in choices["names"][::20]:
        ndims = len(explore_layout({"layout": name, "dims": _dims_of(name)})["dims"])
        assert ndims >= 1


def _dims_of(name: str) -> str:
    from inlay.render.explorer.request import example_dims

    return example_dims(name)
