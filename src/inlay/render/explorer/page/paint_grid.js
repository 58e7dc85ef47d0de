/**
 * The tensor view: draws the cells that are visible, and marks on them.
 */

import { axisBlock, blockLetters, COLORS, elementsOfBlock, hasLetters } from "./blocks.js";
import { drawMember, drawRing, drawRow } from "./cells.js";
import { drawArrow } from "./jump_marks.js";
import { addressingOf, axisOffset, indexOf, placeSum } from "./layout.js";

/** Height of cells, in pixels, from which on there are walls between digits. */
const SMALLEST_WITH_WALLS = 10;

/**
 * Draw the visible cells of the tensor.
 *
 * `scene` has `layout`; `geometry`; `labels`, which says if cells show index, offset or coordinate; and `colors`.
 */
export function paintGrid(surface, view, scene) {
  for (const group of scene.geometry.groupsIn(view)) paintGroupTitle(surface, view, scene, group);
  for (const plane of scene.geometry.planesIn(view)) {
    paintPlane(surface, view, scene, plane);
    paintDigitWalls(surface, view, scene, plane);
    paintPlaneLabels(surface, view, scene, plane);
  }
}

function paintGroupTitle(surface, view, scene, { y, base }) {
  const { geometry, layout, colors } = scene;
  const words = geometry.groupAxes.map((axis) => `${layout.names[axis]}=${base[axis]}`).join("  ");
  surface.text(geometry.gutter - view.left, y + 12 - view.top, words, colors.ink, 12, "left", true);
}

function paintPlane(surface, view, scene, plane) {
  const { geometry } = scene;
  const [x0, y0] = [plane.x - view.left, plane.y - view.top];
  const columns = contributions(scene, geometry.columnAxis, plane.columns);
  const rows =
    geometry.isFolded || geometry.rowAxis === null ? null : contributions(scene, geometry.rowAxis, plane.rows);
  const base = baseContribution(scene, plane.base);
  for (let row = plane.rows[0]; row < plane.rows[1]; row += 1) {
    const inRow = geometry.isFolded
      ? contributions(scene, geometry.columnAxis, plane.columns, row * geometry.columns)
      : columns;
    const outer = rows === null ? base : add(base, rows[row - plane.rows[0]]);
    const cells = inRow.map((inner) => cellOf(scene, plane, outer, inner, row));
    const x = x0 + plane.columns[0] * geometry.cell.width;
    drawRow(surface, x, y0 + row * geometry.cell.height, geometry.cell, cells, scene.colors);
  }
}

/** Draw thin walls where a digit of the rows or of the columns moves on, such as around pairs of `2a`. */
function paintDigitWalls(surface, view, scene, plane) {
  const { geometry, colors } = scene;
  if (geometry.isFolded || geometry.cell.height < SMALLEST_WITH_WALLS) return;
  const [left, top] = [plane.x - view.left - 0.5, plane.y - view.top - 0.5];
  for (const column of digitStarts(scene.layout, geometry.columnAxis, plane.columns)) {
    const x = left + column * geometry.cell.width;
    const ends = plane.rows.map((row) => [x, top + row * geometry.cell.height]);
    surface.line(ends, colors.wall, 1);
  }
  for (const row of geometry.rowAxis === null ? [] : digitStarts(scene.layout, geometry.rowAxis, plane.rows)) {
    const y = top + row * geometry.cell.height;
    const ends = plane.columns.map((column) => [left + column * geometry.cell.width, y]);
    surface.line(ends, colors.wall, 1);
  }
}

/** Return the coordinates of an axis in a range, except 0, at which a digit other than the lowest one moves on. */
function digitStarts(layout, axis, [first, last]) {
  const weights = addressingOf(layout).terms.filter((digit) => digit.axis === axis && digit.weight > 1);
  const starts = [];
  for (let x = Math.max(1, first); x < last; x += 1) {
    if (weights.some(({ weight }) => x % Number(weight) === 0)) starts.push(x);
  }
  return starts;
}

/** Return what the coordinates of an axis in a range add to offset, block and color, and if they are padding. */
function contributions(scene, axis, [first, last], shift = 0) {
  const stop = Math.min(last + shift, scene.geometry.dims[axis]);
  return Array.from({ length: Math.max(0, stop - first - shift) }, (_, i) =>
    contribution(scene, axis, first + shift + i),
  );
}

function contribution(scene, axis, x) {
  const isPadding = x >= Number(scene.layout.dims[axis]);
  return { x, offset: axisOffset(scene.layout, axis, x), ...axisBlock(scene.layout, axis, x), isPadding };
}

function baseContribution(scene, coordinate) {
  const { rowAxis, columnAxis } = scene.geometry;
  const { zero } = addressingOf(scene.layout);
  return coordinate
    .map((x, axis) => (axis === rowAxis || axis === columnAxis ? null : contribution(scene, axis, x)))
    .filter((part) => part !== null)
    .reduce(add, { offset: zero, number: 0, color: 0, isPadding: false });
}

function add(a, b) {
  return {
    x: b.x,
    offset: a.offset + b.offset,
    number: a.number + b.number,
    color: (a.color + b.color) % COLORS,
    isPadding: a.isPadding || b.isPadding,
  };
}

function cellOf(scene, plane, outer, inner, row) {
  const all = add(outer, inner);
  const cell = { kind: all.isPadding ? "padding" : "data", color: all.color, label: "", letters: "" };
  const { geometry } = scene;
  if (!geometry.hasLabels) return cell;
  if (hasLetters(scene.layout)) cell.letters = blockLetters(all.number);
  if (scene.labels === "offset") cell.label = String(placeSum(scene.layout, all.offset));
  else if (!all.isPadding) {
    const coordinate = [...plane.base];
    if (!geometry.isFolded && geometry.rowAxis !== null) coordinate[geometry.rowAxis] = row;
    coordinate[geometry.columnAxis] = inner.x;
    cell.label = scene.labels === "coordinate" ? coordinate.join(",") : String(indexOf(scene.layout, coordinate));
  }
  return cell;
}

function paintPlaneLabels(surface, view, scene, plane) {
  const { geometry, layout, colors } = scene;
  if (!geometry.hasLabels) return;
  const [x0, y0] = [plane.x - view.left, plane.y - view.top];
  if (geometry.acrossAxis !== null) {
    const title = `${layout.names[geometry.acrossAxis]}=${plane.plane}`;
    surface.text(x0, y0 - geometry.header - 7, title, colors.ink, 12, "left", true);
  }
  paintColumnLabels(surface, scene, plane, x0, y0);
  if (plane.index === 0) paintRowLabels(surface, scene, plane, x0, y0);
}

function paintColumnLabels(surface, scene, plane, x0, y0) {
  const { geometry, layout, colors } = scene;
  const { width } = geometry.cell;
  const y = Math.max(y0 - 7, 8);
  if (y > y0 - 7) surface.fill(x0, 0, geometry.planeWidth, 16, colors.page, 0.9);
  for (let column = plane.columns[0]; column < plane.columns[1]; column += 1) {
    const name = layout.names[geometry.columnAxis];
    const isNamed = column === plane.columns[0] && (name.length + 1 + String(column).length) * 6.4 < width;
    const words = `${isNamed ? `${name}=` : ""}${geometry.isFolded ? `+${column}` : column}`;
    if (words.length * 6.4 > width + 4 && column % 5 !== 0) continue;
    surface.text(x0 + (column + 0.5) * width - 0.5, y, words, colors.muted, 10, "center");
  }
}

function paintRowLabels(surface, scene, plane, x0, y0) {
  const { geometry, colors } = scene;
  if (geometry.rows === 1 && !geometry.isFolded) return;
  const x = Math.max(x0 - 7, geometry.gutter - 12);
  if (x > x0 - 7) surface.fill(0, y0, x + 4, geometry.planeHeight, colors.page, 0.9);
  for (let row = plane.rows[0]; row < plane.rows[1]; row += 1) {
    const words = String(geometry.isFolded ? row * geometry.columns : row);
    surface.text(x, y0 + (row + 0.5) * geometry.cell.height, words, colors.muted, 10, "right");
  }
}

/** Draw the ring of the selected element, and the arrows of jump marks. */
export function paintGridOverlay(surface, view, scene, marks, selection) {
  const { geometry, colors } = scene;
  const corner = (coordinate) => {
    const { x, y } = geometry.positionOf(coordinate);
    return { x: x - view.left, y: y - view.top };
  };
  for (const mark of marks) {
    drawArrow(surface, view, corner(mark.from_coordinate), corner(mark.coordinate), scene, mark.label);
  }
  if (selection?.coordinate) {
    for (const member of elementsOfBlock(scene.layout, selection.coordinate)) {
      const { x, y } = corner(member);
      if (y > -geometry.cell.height && y < view.height) drawMember(surface, x, y, geometry.cell, colors);
    }
    const { x, y } = corner(selection.coordinate);
    drawRing(surface, x, y, geometry.cell, colors, true);
  }
}
