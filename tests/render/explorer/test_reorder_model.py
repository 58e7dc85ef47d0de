"""The JSON of a reorder: both layouts, what becomes of neighbors, and the compiled kernel in words."""

from typing import Any

import pytest

from inlay.render.explorer.model import explore_layout
from inlay.render.explorer.reorder_model import explore_reorder
from inlay.render.explorer.typed_text import InvalidField


def explored(src: str, dst: str, dims: str, src_type: str = "f32", dst_type: str = "f32") -> dict[str, Any]:
    """The JSON of a reorder."""
    sides = ((src, src_type), (dst, dst_type))
    requests = [{"layout": layout, "dims": dims, "data_type": data_type} for layout, data_type in sides]
    answer = explore_reorder(dict(zip(("src", "dst"), requests, strict=True)))
    assert [answer["src"], answer["dst"]] == [explore_layout(request) for request in requests]
    return answer


@pytest.mark.parametrize(
    ("src", "dst", "dims", "runs"),
    [
        (
            "ab",
            "ba",
            "64x32",
            "up to 32 neighbors in the source go 64 elements apart; up to 64 neighbors in the destination come from 32 "
            "elements apart",
        ),
        ("ab", "ab", "64x32", "up to 2048 neighbors in the source stay neighbors"),
        ("ab", "64,1", "64x32", "up to 32 neighbors in the source stay neighbors"),
        ("ab", "64,2", "64x32", "up to 2048 neighbors in the source go 2 elements apart"),
        ("4,2", "8,2", "3x2", "no two elements are neighbors in memory"),
        ("a", "a", "1", "no two elements are neighbors in memory"),
        ("ab", "Swizzle<1,4,3> o ab", "8x64", "up to 512 neighbors in the source stay neighbors, before the swizzle"),
    ],
)
def test_neighbors_stay_or_go_apart(src: str, dst: str, dims: str, runs: str) -> None:
    assert explored(src, dst, dims)["runs"] == runs


def test_bytes_are_those_of_elements_read_and_of_the_padded_tensor_written() -> None:
    moved = 2 * 17 * 5 * 4 * 4 + 2 * 24 * 5 * 4 * 2
    assert (
        explored("nchw", "nChw8c", "2x17x5x4", "f32", "bf16")["bytes"] == f"{moved / 1000:.1f} kB are read and written"
    )


def test_the_kernel_is_a_tile_of_registers_or_nothing() -> None:
    answer = explored("ab", "ba", "64x64", "u8", "u8")
    assert answer["kernel"].startswith("tile of ")
    assert " shuffles, " in answer["kernel"]
    assert " a tile; stores " in answer["kernel"]
    assert "; expected " in answer["kernel"]
    assert answer["lines"][0] == "problem"
    assert explored("ab", "ba", "0x64")["kernel"] == "nothing to move"


@pytest.mark.parametrize(
    ("src", "dst", "field", "text"),
    [
        (
            {},
            {"layout": "abc", "dims": "4x6x2"},
            "dims",
            "a reorder keeps the dims, but the source has 4x6 and the destination 4x6x2\n    did you mean 4x6?",
        ),
        (
            {},
            {"layout": "0,1"},
            "layout",
            "elements of the destination overlap: give every element an offset of its own",
        ),
        (
            {"data_type": "u16"},
            {"data_type": "f32"},
            "data_type",
            "no conversion from u16 to f32 exists: u16 can only be copied; convert the array with astype first",
        ),
    ],
)
def test_a_reorder_that_does_not_exist_is_an_error_of_the_destination(
    src: dict[str, str], dst: dict[str, str], field: str, text: str
) -> None:
    plain = {"layout": "ab", "dims": "4x6"}
    with pytest.raises(InvalidField) as caught:
        explore_reorder({"src": {**plain, **src}, "dst": {**plain, **dst}})
    assert (caught.value.fault.field, caught.value.fault.side, str(caught.value)) == (field, "dst", text)


@pytest.mark.parametrize("value", [[], {}, {"src": {}}, {"src": {}, "dst": {}, "more": 1}])
def test_other_requests_are_refused(value: object) -> None:
    with pytest.raises(InvalidField, match=r"^a reorder is an object with src and dst, not "):
        explore_reorder(value)
