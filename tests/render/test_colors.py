"""The laws of colors: blocks are told apart by people with deuteranopia and in grey, and numbers stand out."""

import re
from importlib.resources import files
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings

from inlay import MemoryDesc
from inlay.render import colors
from inlay.render.blocks import blocks_of
from inlay.render.compose import compose
from inlay.render.scene import Cell, Plane, Scene, Shelf, StripRow
from tests.oracles.color_vision import (
    XTERM_16,
    contrast,
    difference,
    lab,
    lightness,
    linear,
    machado,
    vienot,
    xterm_256,
)
from tests.support.drawn_descriptors import EVERYTHING, SPECIMENS, names_of, small

TERMINAL_256 = tuple(map(xterm_256, colors.TERMINAL_256))
TERMINAL_16 = tuple(XTERM_16[code] for code in colors.TERMINAL_16)
PALETTES = {"light": colors.LIGHT, "dark": colors.DARK, "256 colors": TERMINAL_256, "16 colors": TERMINAL_16}
LEAST = 15.0


def test_the_oracle_knows_published_values() -> None:
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert lab(linear("#0000ff")) == pytest.approx([32.30, 79.19, -107.86], abs=0.02)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    for simulate in (machado, vienot):
        grey = linear("#808080")
        assert simulate(grey) == pytest.approx(grey, abs=0.01)
        assert difference(simulate(linear("#2e8b00")), simulate(linear("#a06000"))) < 25
        assert difference(linear("#2e8b00"), linear("#a06000")) > 60


def test_the_explorer_has_the_fills_of_pictures() -> None:
    style = (files("inlay.render.explorer") / "page" / "style.css").read_text()
    pairs = re.findall(r"--block-(\d): light-dark\((#\w{6}), (#\w{6})\)", style)
    assert pairs == [(str(i), *pair) for i, pair in enumerate(zip(colors.LIGHT, colors.DARK, strict=True))]


@pytest.mark.parametrize("name", PALETTES)
def test_any_two_fills_are_apart_under_deuteranopia(name: str) -> None:
    fills = PALETTES[name]
    assert len(set(fills)) == colors.COLORS == 7
    for one, other in combinations(map(linear, fills), 2):
        assert difference(one, other) >= LEAST
        assert difference(machado(one), machado(other)) >= LEAST
        assert difference(vienot(one), vienot(other)) >= LEAST


@pytest.mark.parametrize(
    ("fills", "ink"),
    [
        (colors.LIGHT, colors.INK),
        (colors.DARK, colors.CHALK),
        (TERMINAL_256, "#000000"),
        (TERMINAL_16, "#000000"),
        ([xterm_256(shade) for shade in colors.HEAT_256[:5]], "#ffffff"),
        ([xterm_256(shade) for shade in colors.HEAT_256[5:]], "#000000"),
    ],
)
def test_numbers_stand_out_from_every_fill(fills: tuple[str, ...], ink: str) -> None:
    assert min(contrast(fill, ink) for fill in fills) >= 4.5  # WCAG 2, level AA


@pytest.mark.parametrize(("fills", "least"), [(colors.LIGHT, 5.0), (colors.DARK, 3.0)])
def test_any_two_fills_differ_in_grey(fills: tuple[str, ...], least: float) -> None:
    ordered = sorted(map(lightness, fills))
    assert min(high - low for low, high in pairwise(ordered)) >= least


def test_a_heat_map_rises_in_grey_and_under_deuteranopia() -> None:
    shades = [colors.heat_color(i / 20) for i in range(21)]
    steps = [high - low for low, high in pairwise(map(lightness, shades))]
    assert min(steps) > 2.5
    assert max(steps) < 5
    seen = [lab(machado(linear(shade)))[0] for shade in shades]
    assert all(low < high for low, high in pairwise(seen))
    greys = [lightness(xterm_256(shade)) for shade in colors.HEAT_256]
    assert greys == sorted(greys)


def neighbors(scene: Scene) -> list[tuple[Cell, Cell]]:
    """Cells that touch in the strip, and in a plane of the grid."""
    rows = [row.cells for row in scene.strip.rows if isinstance(row, StripRow)]
    pairs: list[tuple[Cell | None, Cell | None]] = [pair for row in rows for pair in pairwise(row)]
    planes = [p for s in scene.grid.shelves if isinstance(s, Shelf) for p in s.planes if isinstance(p, Plane)]
    for plane in planes:
        pairs += [pair for row in plane.cells for pair in pairwise(row)]
        pairs += [pair for rows in pairwise(plane.cells) for pair in zip(*rows, strict=True)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def check_neighbors(desc: MemoryDesc) -> int:
    """Neighbors of two blocks differ in color and letter; return how many there are."""
    layout, _ = desc.require_layout("this law")
    blocks = blocks_of(layout)
    checked = 0
    for one, other in neighbors(compose(desc, names_of(desc), EVERYTHING)):
        if one.coordinate is None or other.coordinate is None or one.is_shared or other.is_shared:
            continue
        numbers = [[p.value(cell.coordinate or ()) for p in blocks.outer] for cell in (one, other)]
        steps = [abs(a - b) for a, b in zip(*numbers, strict=True) if a != b]
        if len(steps) == 1 and steps[0] == 1:
            assert one.color != other.color
            assert one.letter != other.letter
            checked += 1
        elif not steps:
            assert (one.color, one.letter) == (other.color, other.letter)
    return checked


@pytest.mark.parametrize("name", ["nchw", "nhwc", "chwn", "zero-padding", "strided", "matrix", "submemory", "vnni"])
def test_no_two_neighboring_blocks_of_usual_layouts_are_alike(name: str) -> None:
    assert check_neighbors(SPECIMENS[name])


@settings(max_examples=60, deadline=None)
@given(small())
def test_no_two_neighboring_blocks_are_alike(desc: MemoryDesc) -> None:
    check_neighbors(desc)


def test_the_pair_of_color_and_letter_names_161_blocks() -> None:
    blocks = blocks_of(MemoryDesc((500, 2, 2), "f32", "abc").require_layout("this test")[0])
    marks = [(blocks.color((a, 0, 0)), blocks.letter((a, 0, 0))) for a in range(161)]
    assert len(set(marks)) == 161
    assert blocks.repeats_colors
    assert not blocks_of(MemoryDesc((7, 2, 2), "f32", "abc").require_layout("this test")[0]).repeats_colors
