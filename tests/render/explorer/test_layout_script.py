"""The script of the page computes offsets, digits, coordinates and formulas as Python does, from digits alone."""

import shutil
from math import prod
from pathlib import Path

import pytest

from inlay.descriptor import MemoryDesc
from inlay.testing import Seeded, draw_shape, draw_tag
from tests.support.explorer_script import PAGE, LayoutCase, answer_in_node, check_answers, random_cases, run_in_node

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def test_equals_python_on_random_layouts(tmp_path: Path) -> None:
    """Offsets, digits, inverse and formulas of 400 random layouts are those of `MemoryDesc`."""
    cases = random_cases(21, 400)
    assert {case.desc.kind for case in cases} >= {"blocked", "digits", "swizzled"}
    check_answers(cases, answer_in_node(tmp_path, cases))


@pytest.mark.heavy
def test_equals_python_on_ten_thousand_layouts(tmp_path: Path) -> None:
    """The same for 10,000 layouts."""
    cases = random_cases(22, 10_000)
    check_answers(cases, answer_in_node(tmp_path, cases))


def test_wrong_answer_is_noticed(tmp_path: Path) -> None:
    """A script that is wrong for one kind of digit fails the comparison."""
    cases = random_cases(23, 50)
    answers = answer_in_node(tmp_path, cases)
    changed = next(answer for answer in answers if answer["offsets"])
    changed["offsets"][0] += "1"
    with pytest.raises(AssertionError):
        check_answers(cases, answers)


def test_files_are_small() -> None:
    """Each file of the page has at most 600 lines, of at most 120 characters in scripts."""
    for path in PAGE.iterdir():
        lines = path.read_text().splitlines()
        assert len(lines) <= 600, path.name
        if path.suffix == ".js":
            assert max(map(len, lines)) <= 120, path.name


_COLORS = """
import { readFileSync } from "node:fs";
import { blockColor, blockNumber, blocksOf } from "./blocks.js";
import { coordinateAt } from "./layout.js";
const clashes = [];
let pairs = 0;
for (const { layout } of JSON.parse(readFileSync("values.json", "utf8"))) {
  const compare = (a, b) => {
    const [first, second] = [a, b].map((c) => [blockNumber(layout, c), blockColor(layout, c)]);
    pairs += first[0] !== second[0];
    if (first[0] !== second[0] && first[1] === second[1]) clashes.push([layout, a, b]);
  };
  for (let offset = 0; coordinateAt(layout, offset) !== null; offset += 1) {
    const { coordinate } = coordinateAt(layout, offset);
    const next = coordinateAt(layout, offset + 1);
    if (next !== null) compare(coordinate, next.coordinate);
    coordinate.forEach((x, axis) => {
      if (x + 1 < layout.padded_dims[axis]) compare(coordinate, coordinate.with(axis, x + 1));
    });
  }
}
console.log(JSON.stringify([pairs, clashes.slice(0, 3)]));
"""


def test_neighboring_blocks_have_different_colors(tmp_path: Path) -> None:
    """Blocks that are adjacent in memory or along an axis have different colors, in 60 layouts of random tags."""
    choose = Seeded(25)
    descs: list[MemoryDesc] = []
    while len(descs) < 60:
        dims = draw_shape(choose, max_size=400, zero=False)
        desc = MemoryDesc(dims, "u8", draw_tag(choose, len(dims)))
        if prod(desc.padded_dims) <= 4000:
            descs.append(desc)
    pairs, clashes = run_in_node(tmp_path, _COLORS, [LayoutCase(desc, (), ()).json for desc in descs])
    assert pairs > 10_000
    assert clashes == []


_POSITIONS = """
import { readFileSync } from "node:fs";
import { GridGeometry } from "./grid_geometry.js";
import { StripGeometry } from "./strip_geometry.js";
const wrong = [];
for (const { dims, block, width, height, pane, points, start, offsets } of JSON.parse(readFileSync("values.json"))) {
  const cell = { width, height };
  const grid = new GridGeometry(dims, () => block, cell, pane);
  for (const point of points) {
    const { x, y } = grid.positionOf(point);
    const view = { left: x - 5, top: y - 5, width: width + 10, height: height + 10 };
    const isDrawn = [...grid.planesIn(view)].some((plane) => plane.rows[0] < plane.rows[1]);
    const isInside = x >= 0 && y >= 0 && x + width <= grid.width && y + height <= grid.height;
    const found = grid.coordinateAt(x + width / 2, y + height / 2);
    if (String(found) !== String(point) || !isDrawn || !isInside) wrong.push([dims, point, found, isDrawn, isInside]);
  }
  const space = { above: block % 9, below: block % 7, notes: block };
  const strip = new StripGeometry(start, start + 5000, [{ stride: block, extent: 3 }], cell, pane, space);
  for (const number of offsets) {
    const { x, y } = strip.positionOf(start + number);
    const found = strip.offsetAt(x + width / 2, y + height / 2);
    const [first, last] = strip.rowsIn({ top: y, height });
    const row = Math.floor(number / strip.rowLength);
    if (found !== start + number || row < first || row >= last) wrong.push([start, number, found, first, last]);
  }
}
console.log(JSON.stringify(wrong.slice(0, 5)));
"""


def test_positions_of_cells(tmp_path: Path) -> None:
    """The middle of a cell belongs to its element, is inside the content, and is drawn where a view shows it."""
    choose = Seeded(26)
    values = []
    for _ in range(400):
        dims = draw_shape(choose, zero=False)
        cell = choose.integer(4, 60)
        points = [[choose.integer(0, n - 1) for n in dims] for _ in range(4)] + [[n - 1 for n in dims]]
        value = {"dims": dims, "block": choose.integer(1, 16), "width": cell, "height": choose.integer(4, 40)}
        where = {"pane": choose.integer(60, 1500), "points": points, "start": choose.integer(-50, 50)}
        values.append({**value, **where, "offsets": [choose.integer(0, 4999) for _ in range(4)]})
    assert run_in_node(tmp_path, _POSITIONS, values) == []
