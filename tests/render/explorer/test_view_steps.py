"""Views of the page: they are those of the descriptor, axes keep their names, and every repair works."""

from collections.abc import Sequence
from typing import Any

import pytest

from inlay import MemoryDesc
from inlay.errors import InlayError
from inlay.render.explorer.model import explore_layout, read_layout
from inlay.render.explorer.request import parse_request
from inlay.render.explorer.typed_text import InvalidField
from inlay.render.explorer.view_steps import reshaped_names
from inlay.testing import Scope, Seeded, draw_reshape, draw_submemory

NCHW8C = {"layout": "nChw8c", "dims": "2x18x5x4", "data_type": "f32"}


def view(*views: dict[str, Any]) -> tuple[MemoryDesc, tuple[str, ...]]:
    """Descriptor and names of axes after these views of nChw8c."""
    explored = read_layout({**NCHW8C, "views": list(views)})
    return explored.desc, explored.names


def fault_of(*views: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The error of these views, as the server sends it."""
    with pytest.raises(InvalidField) as caught:
        explore_layout({**NCHW8C, **request, "views": list(views)})
    return caught.value.fault.to_json()


def test_views_are_those_of_the_descriptor_one_after_another() -> None:
    desc = MemoryDesc((2, 18, 5, 4), "f32", "nChw8c")
    permute = {"op": "permute", "axes": "n,h,w,c"}
    reshape = {"op": "reshape", "dims": "2x20x18"}
    box = {"op": "submemory", "dims": "1x20x8", "offsets": "1,0,8"}
    assert view(permute) == (desc.rename_axes((0, 2, 3, 1)), ("n", "h", "w", "c"))
    assert view(permute, reshape) == (desc.rename_axes((0, 2, 3, 1)).reshape((2, 20, 18)), ("n", "hw", "c"))
    viewed = desc.rename_axes((0, 2, 3, 1)).reshape((2, 20, 18)).submemory((1, 20, 8), (1, 0, 8))
    assert view(permute, reshape, box) == (viewed, ("n", "hw", "c"))


@pytest.mark.parametrize("axes", ["0,2,3,1", "0 2 3 1", "nhwc", "n,h,w,c", "n h w c", "(0, 2, 3, 1)", "0,-2,-1,1"])
def test_axes_are_numbers_or_names(axes: str) -> None:
    assert view({"op": "permute", "axes": axes})[1] == ("n", "h", "w", "c")


def test_one_dim_of_a_reshape_may_follow_from_the_others() -> None:
    assert view({"op": "reshape", "dims": "2x18x-1"})[0].dims == (2, 18, 20)


def test_a_view_in_free_digits_is_one_that_no_tag_says() -> None:
    request = {"layout": "aBc8b", "dims": "2x16x20", "views": [{"op": "reshape", "dims": "32x20", "digits": True}]}
    assert read_layout(request).desc.pattern == "(a a8) b -> a b a8"


@pytest.mark.parametrize(
    ("dims", "names"),
    [
        ((2, 16, 20), ("n", "c", "hw")),
        ((640,), ("nchw",)),
        ((2, 4, 4, 5, 4), ("n", "c0", "c1", "h", "w")),
        ((1, 2, 16, 5, 4), ("u", "n", "c", "h", "w")),
        ((1, 1, 640), ("u", "u1", "nchw")),
        ((2, 16, 10, 2), ("n", "c", "hw0", "hw1")),
        ((32, 5, 4), ("nc", "h", "w")),
    ],
)
def test_axes_of_a_reshape_keep_join_or_number_their_names(dims: Sequence[int], names: Sequence[str]) -> None:
    assert reshaped_names(MemoryDesc((2, 16, 5, 4), "f32", "nchw"), "nchw", tuple(dims)) == names


def test_names_of_a_reshape_differ_even_if_an_axis_has_the_name_of_another_part() -> None:
    desc = MemoryDesc((4, 6), "f32", "ab")
    names = reshaped_names(desc, ("c", "c0"), (2, 2, 6))
    assert len(set(names)) == 3, names
    assert all(name.isidentifier() for name in names)


def test_a_joined_name_is_no_keyword_of_python() -> None:
    assert reshaped_names(MemoryDesc((2, 3, 4), "f32", "abc"), ("i", "n", "k"), (6, 4)) == ("in_", "k")


def test_a_refused_reshape_has_its_reason_its_remedy_and_requests_that_work() -> None:
    fault = fault_of({"op": "reshape", "dims": "2x2x9x5x4"})
    assert (fault["field"], fault["view"], fault["part"]) == ("views", 0, "dims")
    assert fault["message"] == "axis 1 (c) cannot be split into 2 x 9: its 18 elements are padded to 24 in blocks of 8"
    assert fault["repair"] == (
        "nChw8c (2, 18, 5, 4) -> (2, 1, 18, 5, 4) works; to split c, reorder to nchw first (5.8 kB moved)"
    )
    assert fault["suggestions"] == ["2x1x18x5x4"]
    assert fault["repairs"] == [
        {"text": "reshape to 2x1x18x5x4", "request": {**NCHW8C, "views": [{"op": "reshape", "dims": "2x1x18x5x4"}]}},
        {
            "text": "reorder to nchw first",
            "request": {**NCHW8C, "layout": "nchw", "views": [{"op": "reshape", "dims": "2x2x9x5x4"}]},
        },
    ]
    for repair in fault["repairs"]:
        explore_layout(repair["request"])


def test_a_reshape_that_free_digits_allow_offers_them() -> None:
    fault = fault_of({"op": "reshape", "dims": "40x18"}, layout="nhwc", dims="2x18x5x4")
    assert [repair["text"] for repair in fault["repairs"]] == ["reorder to nchw first"]
    request = {"layout": "aBc8b", "dims": "2x16x20", "data_type": "f32"}
    fault = fault_of({"op": "reshape", "dims": "32x20"}, **request)
    assert fault["repairs"][-2] == {
        "text": "reshape to free digits, which oneDNN cannot say",
        "request": {**request, "views": [{"op": "reshape", "dims": "32x20", "digits": True}]},
    }


def test_a_box_that_cuts_a_block_offers_the_nearest_one() -> None:
    fault = fault_of({"op": "submemory", "dims": "1x8x5x4", "offsets": "0,7,0,0"})
    assert fault["message"] == (
        "axis 1 (c) of the submemory takes 8 from 7, which cuts a block of 8: start at a multiple of 8 and take a "
        "multiple of it, less than one block, or all that follows"
    )
    assert fault["repair"] == (
        "dims (1, 16, 5, 4) at offsets (0, 0, 0, 0) work and hold that box; to cut c, reorder to nchw first "
        "(5.8 kB moved)"
    )
    (repair,) = fault["repairs"]
    assert repair["text"] == "1x16x5x4 elements at 0,0,0,0"
    explore_layout(repair["request"])


@pytest.mark.parametrize(
    ("views", "fault"),
    [
        (
            [{"op": "permute", "axes": "0,0,1,2"}],
            {
                "part": "axes",
                "message": "order (0, 0, 1, 2) must use each of 0..3 once: 3 is missing, 0 appears twice",
                "column": None,
                "suggestions": ["0,3,1,2"],
                "repair": "(0, 3, 1, 2) works",
            },
        ),
        (
            [{"op": "permute", "axes": "nhwx"}],
            {
                "part": "axes",
                "message": "axes are names or numbers joined by commas, such as w,h,c,n: 'x' is none of n, c, h, w",
                "column": 3,
                "suggestions": [],
                "repair": None,
            },
        ),
        (
            [{"op": "permute", "axes": " "}],
            {
                "part": "axes",
                "message": "axes are names or numbers joined by commas, such as w,h,c,n: a name is missing",
                "column": 0,
                "suggestions": [],
                "repair": None,
            },
        ),
        (
            [{"op": "permute", "axes": "nhwc"}, {"op": "reshape", "dims": "2x"}],
            {
                "view": 1,
                "part": "dims",
                "message": "dims are whole numbers joined by x, such as 2x17x20, one of which may be -1: a number is "
                "missing",
                "column": 2,
                "suggestions": ["2"],
                "repair": None,
            },
        ),
        (
            [{"op": "reshape", "dims": "2x17x9x5"}],
            {
                "part": "dims",
                "message": "dims (2, 18, 5, 4) hold 720 elements, (2, 17, 9, 5) 1530: a reshape keeps their number, "
                "where a dim of 0 counts as 1",
                "column": None,
                "suggestions": [],
                "repair": None,
            },
        ),
        (
            [{"op": "submemory", "dims": "1x8x5", "offsets": "0,0,0,0"}],
            {
                "part": "dims",
                "message": "dims (1, 8, 5) of the submemory has 3 entries: its parent has 4 dims",
                "column": None,
                "suggestions": [],
                "repair": None,
            },
        ),
        (
            [{"op": "submemory", "dims": "1x8x5x4", "offsets": "0,0,0"}],
            {
                "part": "offsets",
                "message": "offsets (0, 0, 0) of the submemory has 3 entries: its parent has 4 dims",
                "column": None,
                "suggestions": [],
                "repair": None,
            },
        ),
        (
            [{"op": "submemory", "dims": "1x8x5x4", "offsets": "0,a,0,0"}],
            {
                "part": "offsets",
                "message": "offsets are whole numbers joined by commas, such as 0,8,0,0: 'a' is no number",
                "column": 2,
                "suggestions": ["0x0x0"],
                "repair": None,
            },
        ),
    ],
)
def test_a_mistake_in_a_view_says_which_view_and_which_text(
    views: Sequence[dict[str, Any]], fault: dict[str, Any]
) -> None:
    found = fault_of(*views)
    assert found["field"] == "views"
    assert {key: found[key] for key in fault} == fault
    assert found["view"] == len(views) - 1


@pytest.mark.parametrize(
    ("bad_view", "message"),
    [
        ({"op": "reshape"}, "view 0 has no key 'dims': it needs one"),
        ({"op": "submemory", "dims": "1x8x5x4"}, "view 0 has no key 'offsets': it needs one"),
        ({"op": "reshape", "dims": "2x360", "digits": 1}, "digits of view 0 is 1: give true or false"),
        ({"op": "reshape", "dims": [2, 360]}, "views is [2, 360]: give text"),
        ({}, "the op of view 0 is 'None': give one of reshape, permute, submemory"),
    ],
)
def test_a_malformed_view_is_an_error_of_the_request(bad_view: dict[str, Any], message: str) -> None:
    fault = fault_of(bad_view)
    assert (fault["field"], fault["message"]) == ("request", message)


def test_views_of_a_swizzled_layout_are_refused_with_the_reason() -> None:
    request = {"layout": "Swizzle<1,1,3> o ab", "dims": "8x8"}
    for bad_view in (
        {"op": "permute", "axes": "1,0"},
        {"op": "reshape", "dims": "64"},
        {"op": "submemory", "dims": "4x8", "offsets": "0,0"},
    ):
        fault = fault_of(bad_view, **request)
        assert "swizzle" in fault["message"], fault
        assert fault["repairs"] == []


def test_every_repair_of_a_refused_reshape_is_a_request_that_works() -> None:
    choose, scope, repaired = Seeded(17), Scope(huge=False), 0
    while repaired < 40:
        case = draw_reshape(choose, scope)
        request = request_of(case.desc)
        if request is None or not case.dims:
            continue
        try:
            explore_layout({**request, "views": [{"op": "reshape", "dims": "x".join(map(str, case.dims))}]})
        except InvalidField as error:
            for repair in error.fault.repairs:
                explore_layout(repair["request"])
            repaired += bool(error.fault.repairs)
        except InlayError as error:
            pytest.fail(f"{case}: {error}")


def test_every_repair_of_a_refused_box_is_a_request_that_works() -> None:
    choose, scope, repaired = Seeded(19), Scope(huge=False), 0
    while repaired < 40:
        case = draw_submemory(choose, scope)
        request = request_of(case.desc)
        if request is None:
            continue
        box = {"dims": "x".join(map(str, case.dims)) or "1", "offsets": ",".join(map(str, case.offsets)) or "0"}
        try:
            explore_layout({**request, "views": [{"op": "submemory", **box}]})
        except InvalidField as error:
            for repair in error.fault.repairs:
                explore_layout(repair["request"])
            repaired += bool(error.fault.repairs)


def request_of(desc: MemoryDesc) -> dict[str, Any] | None:
    """A request that describes `desc`; None if it is no whole tensor in a tag."""
    if desc.tag in (None, "any") or desc.data_type is None:
        return None
    request = {"layout": desc.tag, "dims": "x".join(map(str, desc.dims)), "data_type": desc.data_type.name}
    try:
        return request if parse_request(request).desc == desc else None
    except InvalidField:
        return None
