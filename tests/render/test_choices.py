"""Parts of tensors that the caller chose, and heat maps of whole ones."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay import InvalidArguments, MemoryDesc
from inlay.layout import Swizzle
from inlay.render.compose import SceneOptions, compose
from inlay.render.heat_map import heat_map_of
from inlay.render.scene import Cell, Elision, Plane, Scene, Shelf, SpaceLimits, StripRow
from inlay.render.selection import select_part
from tests.support.drawn_descriptors import EVERYTHING, NCHW8C, names_of, small
from tests.support.refusals import raises_exactly


def cells_of(scene: Scene) -> tuple[list[Cell], list[Cell]]:
    """The cells of the grid and of the strip."""
    shelves = [shelf for shelf in scene.grid.shelves if isinstance(shelf, Shelf)]
    planes = [plane for shelf in shelves for plane in shelf.planes if isinstance(plane, Plane)]
    grid = [cell for plane in planes for row in plane.cells for cell in row if cell is not None]
    return grid, [cell for row in scene.strip.rows if isinstance(row, StripRow) for cell in row.cells]


@settings(max_examples=40, deadline=None)
@given(small(), st.data())
def test_the_grid_has_the_chosen_coordinates_and_the_strip_marks_the_others(
    desc: MemoryDesc, data: st.DataObject
) -> None:
    names = names_of(desc)
    axes = data.draw(st.sets(st.sampled_from(range(desc.ndims)), min_size=1))
    at = {
        names[axis]: data.draw(st.lists(st.integers(0, desc.padded_dims[axis] - 1), min_size=1, max_size=3))
        for axis in axes
    }
    scene = compose(desc, names, EVERYTHING, SceneOptions(selection=select_part(desc, names, at)))
    grid, strip = cells_of(scene)
    chosen = set(product(*(at.get(name, range(n)) for name, n in zip(names, desc.padded_dims, strict=True))))
    assert {cell.coordinate for cell in grid} == chosen
    for cell in strip:
        if cell.coordinate is not None and not cell.is_shared:
            assert (cell.kind == "other") == (cell.coordinate not in chosen)
            assert (cell.color is None) == (cell.kind == "other")


def test_a_chosen_part_of_a_large_tensor_is_in_the_strip() -> None:
    desc = MemoryDesc((64, 256, 56, 56), "f32", "nChw16c")
    selection = select_part(desc, "nchw", {"n": 33, "c": slice(14, 18), "h": 20})
    scene = compose(desc, "nchw", SpaceLimits(100), SceneOptions(selection=selection))
    grid, strip = cells_of(scene)
    assert {cell.coordinate[:3] for cell in grid if cell.coordinate} == {(33, c, 20) for c in range(14, 18)}
    chosen = [cell for cell in strip if cell.kind == "data"]
    assert {cell.coordinate[1] for cell in chosen if cell.coordinate} == {14, 15, 16, 17}
    assert all(cell.offset == desc.offset(cell.coordinate or ()) for cell in strip)


def test_coordinates_are_chosen_as_numpy_indexes() -> None:
    at: dict[str, Any] = {"n": -1, "c": slice(None, None, 6), "h": [4, 1, 1], "w": np.int64(2)}
    assert select_part(NCHW8C, "nchw", at).choices == ((1,), (0, 6, 12), (1, 4), (2,))
    text = str(inlay.show(NCHW8C, at={"n": 1, "c": 20}, width=80, color=False))
    assert "Tensor: at n=1, c=20; h runs down, w across" in text
    text = str(inlay.show(NCHW8C, at={"image": 0, "h": 2}, names=("image", "c", "h", "w"), width=80, color=False))
    assert "Tensor: at image=0, h=2; c runs down, w across" in text


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({"x": 0}, "at names axis 'x', but the axes are n, c, h, w"),
        ({"c": 24}, "at['c'] has 24: axis c has coordinates 0 to 23, of which 17 to 23 are padding"),
        ({"h": 5}, "at['h'] has 5: axis h has coordinates 0 to 4"),
        ({"h": -6}, "at['h'] has -6: axis h has coordinates 0 to 4"),
        ({"h": slice(9, 12)}, "at['h'] is slice(9, 12, None), which takes no coordinate of 0 to 4"),
        ({"h": slice(0, 3, 0)}, "at['h'] is slice(0, 3, 0), which is no slice: slice step cannot be zero"),
        ({"h": []}, "at['h'] is [], which takes no coordinate of 0 to 4"),
        ({"h": 1.5}, "at['h'] has 1.5: give a coordinate, a slice, or a list of coordinates"),
        ({"h": "1"}, "at['h'] has '1': give a coordinate, a slice, or a list of coordinates"),
        ({"h": True}, "at['h'] has True: give a coordinate, a slice, or a list of coordinates"),
        ([("h", 1)], "at is [('h', 1)]: give coordinates by axis, such as {'n': 0}"),
    ],
)
def test_a_wrong_choice_is_refused(at: object, message: str) -> None:
    with raises_exactly(InvalidArguments, message):
        inlay.show(NCHW8C, at=at)  # type: ignore[call-overload]


def test_choices_need_dims_and_a_layout() -> None:
    free = MemoryDesc((inlay.RUNTIME, 3), "f32", "ab")
    with raises_exactly(InvalidArguments, "at chooses from axis a, whose dim is known only when data arrives"):
        inlay.show(free, at={"a": 0})
    assert "not chosen yet" in str(inlay.show(MemoryDesc((2, 3), "f32", "any"), at={"a": 0}, color=False))


@settings(max_examples=60, deadline=None)
@given(small(), st.integers(1, 12), st.integers(1, 12))
def test_a_heat_map_has_offsets_of_elements(desc: MemoryDesc, rows: int, columns: int) -> None:
    names = names_of(desc)
    heat = heat_map_of(desc, names, rows, columns)
    assert 1 <= len(heat.shares) <= rows
    assert 1 <= len(heat.shares[0]) <= columns
    assert [axis.name for axis in (*heat.down, *heat.across)] == [
        name for name, n in zip(names, desc.dims, strict=True) if n > 1
    ] or max(desc.dims) == 1
    shown = [range(1)] * desc.ndims
    for axis in (*heat.down, *heat.across):
        shown[names.index(axis.name)] = range(axis.shown)
    points = product(*(
        [k * n // len(part) for k in part] for part, n in zip(shown, desc.dims, strict=True)
    ))  # fmt: skip
    expected = [desc.offset(point) for point in points]
    span = max(1, heat.highest - heat.lowest)
    assert (heat.lowest, heat.highest) == (min(expected), max(expected))
    assert sorted(heat.lowest + share * span for row in heat.shares for share in row) == pytest.approx(sorted(expected))


def test_a_heat_map_reads_row_by_row() -> None:
    heat = heat_map_of(MemoryDesc((2, 16, 4, 4), "f32", "nhwc"), "nchw", 100, 100)
    assert ([axis.name for axis in heat.down], [axis.name for axis in heat.across]) == (["n", "c"], ["h", "w"])
    offsets = [[round(share * 511) for share in row] for row in heat.shares]
    assert offsets == [[n * 256 + p * 16 + c for p in range(16)] for n in range(2) for c in range(16)]


def test_large_tensors_have_a_heat_map_and_others_on_request() -> None:
    def has_map(desc: object, **options: object) -> bool:
        return "Addresses: " in str(inlay.show(desc, width=80, color=False, **options))  # type: ignore[call-overload]

    assert has_map(MemoryDesc((64, 65), "f32", "ba"))
    assert not has_map(MemoryDesc((64, 64), "f32", "ba"))
    assert not has_map(MemoryDesc((64, 65), "f32", "ba"), heat_map=False)
    assert has_map(MemoryDesc((2, 3), "f32", "ba"), heat_map=True)
    assert not has_map(MemoryDesc((640, 65), "f32", "ba"), at={"a": [0, 1], "b": [2, 3]})
    assert has_map(MemoryDesc((64, 128), "u8", "ab", swizzle=Swizzle(3, 4, 3)))


def test_a_heat_map_in_text_has_a_digit_for_each_tenth() -> None:
    lines = str(inlay.show(MemoryDesc((100, 1000), "f32", "ab"), width=40, color=False)).splitlines()
    start = lines.index("Addresses: a (16 of 100) runs down; b")
    assert lines[start + 1] == "(40 of 1000) across"
    rows = lines[start + 2 : start + 18]
    assert rows[0] == "0" * 40
    assert rows[-1] == "9" * 40
    assert lines[start + 18] == "0 is offset 0, 9 is up to offset 93975"


def test_elisions_of_a_choice_are_of_the_choice() -> None:
    desc = MemoryDesc((2, 64, 5, 4), "f32", "nchw")
    scene = compose(desc, "nchw", SpaceLimits(80), SceneOptions(selection=select_part(desc, "nchw", {"c": range(40)})))
    assert scene.grid.planes == 80
    shelf = next(shelf for shelf in scene.grid.shelves if isinstance(shelf, Shelf))
    drawn = sum(1 if isinstance(plane, Plane) else plane.count for plane in shelf.planes)
    assert drawn == 40
    assert any(isinstance(plane, Elision) for plane in shelf.planes)
