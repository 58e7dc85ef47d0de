"""The laws of pictures: what is shown is true, nothing is shown twice, and it fits."""

from itertools import pairwise, product
from math import prod

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from inlay import FormatTag, MemoryDesc
from inlay.layout import Layout
from inlay.render import show
from inlay.render.address_search import elements_between
from inlay.render.blocks import BLOCK_WALL, blocks_of, places
from inlay.render.colors import BLOCK_LETTERS, COLORS
from inlay.render.compose import compose
from inlay.render.legend import alias_of, axis_names, offset_formula
from inlay.render.scene import Cell, Elision, Plane, Scene, Shelf, SpaceLimits, StripRow, pick
from inlay.testing import layouts
from tests.support.drawn_descriptors import EVERYTHING, NCHW8C, SPECIMENS, names_of, small


def grid_cells(scene: Scene) -> list[Cell]:
    shelves = [shelf for shelf in scene.grid.shelves if isinstance(shelf, Shelf)]
    planes = [plane for shelf in shelves for plane in shelf.planes if isinstance(plane, Plane)]
    return [cell for plane in planes for row in plane.cells for cell in row if cell is not None]


def strip_cells(scene: Scene) -> list[Cell]:
    return [cell for row in scene.strip.rows if isinstance(row, StripRow) for cell in row.cells]


def every_coordinate(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, dims)))


@settings(max_examples=60, deadline=None)
@given(small())
@example(NCHW8C)
@example(SPECIMENS["broadcast"])
@example(SPECIMENS["partial-block"])
def test_every_coordinate_is_one_cell_of_the_grid_and_lies_in_the_strip_at_its_offset(desc: MemoryDesc) -> None:
    scene = compose(desc, names_of(desc), EVERYTHING)
    everywhere = every_coordinate(desc.padded_dims)
    assert sorted(cell.coordinate or () for cell in grid_cells(scene)) == everywhere
    strip = {cell.offset: cell for cell in strip_cells(scene)}
    assert len(strip) == len(strip_cells(scene))
    assert list(strip) == list(range(scene.strip.start, scene.strip.stop))
    for cell in grid_cells(scene):
        there = strip[cell.offset]
        assert cell.offset == desc.offset(cell.coordinate or ())
        assert there.color == cell.color
        assert there.letter == cell.letter
        if not there.is_shared:
            assert (there.coordinate, there.label, there.kind) == (cell.coordinate, cell.label, cell.kind)
    taken = {desc.offset(point) for point in everywhere}
    assert {cell.offset for cell in strip.values() if cell.kind != "gap"} == taken


@settings(max_examples=60, deadline=None)
@given(small())
@example(NCHW8C)
def test_padding_is_padded_minus_data_and_labels_are_row_major_indices(desc: MemoryDesc) -> None:
    cells = grid_cells(compose(desc, names_of(desc), EVERYTHING))
    padding = {cell.coordinate for cell in cells if cell.kind == "padding"}
    assert padding == set(every_coordinate(desc.padded_dims)) - set(every_coordinate(desc.dims))
    labels = {cell.coordinate: cell.label for cell in cells if cell.kind == "data"}
    assert [labels[point] for point in every_coordinate(desc.dims)] == [str(i) for i in range(prod(desc.dims))]


@settings(max_examples=60, deadline=None)
@given(small())
def test_a_block_starts_where_the_color_changes(desc: MemoryDesc) -> None:
    assume(not any(place.stride == 0 for place in places(desc.require_layout("this law")[0])))
    cells = strip_cells(compose(desc, names_of(desc), EVERYTHING))
    for before, cell in pairwise(cells):
        if before.kind != "gap" and cell.kind != "gap" and before.color != cell.color:
            assert cell.wall == BLOCK_WALL
        assert cell.wall == BLOCK_WALL or (before.kind == "gap") == (cell.kind == "gap")


@settings(max_examples=100, deadline=None)
@given(small())
@example(NCHW8C)
@example(SPECIMENS["partial-block"])
@example(SPECIMENS["broadcast"])
def test_the_offset_formula_is_the_offset(desc: MemoryDesc) -> None:
    names = names_of(desc)
    code = compile(offset_formula(desc, names), "formula", "eval")
    for point in every_coordinate(desc.padded_dims):
        assert eval(code, {}, dict(zip(names, point, strict=True))) == desc.offset(point)


@settings(max_examples=100, deadline=None)
@given(layouts(max_size=100), st.integers(-50, 500), st.integers(0, 60))
def test_elements_between_finds_exactly_the_coordinates_there(layout: Layout, low: int, length: int) -> None:
    assume(layout.size <= 500 and not any(place.stride == 0 for place in places(layout)))
    expected: dict[int, list[tuple[int, ...]]] = {}
    for point in every_coordinate(layout.dims):
        if low <= layout.offset(point) < low + length:
            expected.setdefault(layout.offset(point), []).append(point)
    assert elements_between(layout, low, low + length) == expected


def test_elements_between_reads_negative_and_overlapping_strides() -> None:
    backwards = Layout.from_strides((3, 2), (-4, 1))
    assert elements_between(backwards, -8, -3) == {-8: [(2, 0)], -7: [(2, 1)], -4: [(1, 0)], -3 - 1: [(1, 0)]}
    overlapping = Layout.from_strides((2, 2), (1, 1))
    assert elements_between(overlapping, 1, 2) == {1: [(0, 1), (1, 0)]}


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 60), st.lists(st.integers(-3, 63), max_size=9), st.integers(1, 40), st.integers(1, 4), st.booleans()
)
@example(count=3, wanted=[1], room=1, cost=1, fill=False)
def test_picks_tell_each_item_once_and_fit(count: int, wanted: list[int], room: int, cost: int, fill: bool) -> None:
    picks = pick(count, wanted, room, cost, 2, fill=fill)
    told: list[int] = []
    for item in picks:
        told += range(item.first, item.last + 1) if isinstance(item, Elision) else [item]
    assert told == list(range(count))
    shown = [item for item in picks if isinstance(item, int)]
    first = next((item for item in wanted if 0 <= item < count), None)
    assert first is None or first in shown
    anchor = shown[0] if first is None and shown else first
    alone = 2 if anchor is None else cost + 2 * ((anchor > 0) + (anchor < count - 1))
    assert sum(2 if isinstance(item, Elision) else cost for item in picks) <= max(room, alone)


@settings(max_examples=100, deadline=None)
@given(layouts(max_size=100))
def test_blocks_that_touch_in_memory_differ_in_color_and_letter(layout: Layout) -> None:
    assume(1 <= layout.size <= 500 and not any(place.stride == 0 for place in places(layout)))
    blocks = blocks_of(layout)
    by_offset = elements_between(layout, *layout.span)
    assume(all(len(points) == 1 for points in by_offset.values()))
    numbers = [tuple(p.value(points[0]) for p in blocks.outer) for points in by_offset.values()]
    colors = [blocks.color(points[0]) for points in by_offset.values()]
    letters = [blocks.letter(points[0]) for points in by_offset.values()]
    assert all(0 <= color < COLORS for color in colors)
    assert set(letters) <= set(BLOCK_LETTERS)
    full = all(n % axis.block == 0 for n, axis in zip(layout.dims, layout.axes, strict=True))
    for i in range(len(colors) - 1):
        if numbers[i] == numbers[i + 1]:
            assert (colors[i], letters[i]) == (colors[i + 1], letters[i + 1])
        elif full:
            steps = [abs(a - b) for a, b in zip(numbers[i], numbers[i + 1], strict=True) if a != b]
            if len(steps) == 1 and steps[0] < COLORS:
                assert colors[i] != colors[i + 1]
                assert letters[i] != letters[i + 1]


def test_elisions_are_counted() -> None:
    text = show(SPECIMENS["nchw"], width=80, color=False).text()
    assert "26 more planes (6 of 32 shown)" in text
    scene = compose(SPECIMENS["large"], "nchw", SpaceLimits(80))
    shown = sum(len(row.cells) for row in scene.strip.rows if isinstance(row, StripRow))
    assert shown + sum(e.count for e in scene.strip.rows if isinstance(e, Elision)) == prod((2**15, 2**15, 3, 7))
    assert scene.grid.planes == 2**30


def test_axes_are_named_as_the_alias_names_them() -> None:
    assert axis_names(4, FormatTag.parse("OIhw16i16o")) == ("o", "i", "h", "w")
    assert axis_names(4, FormatTag.parse("chwn")) == ("n", "c", "h", "w")
    assert axis_names(6, None) == tuple("abcdef")
    assert alias_of(FormatTag.parse("aBc48b")) is None
    assert "o=0" in show(SPECIMENS["nchw"], names="oihw", color=False).text()
    assert show(SPECIMENS["strided"], names="row, column").names == ("row", "column")
