/**
 * The memory view: draws the rows of offsets that are visible, groups of memory, and marks.
 */

import { blockColor, blockLetters, blockNumber, elementsOfBlock, hasLetters, isDigitStart } from "./blocks.js";
import { drawMember, drawRing, drawRow } from "./cells.js";
import { drawArrow } from "./jump_marks.js";
import { coordinateAt, indexOf, isPaddingAt, offsetOf } from "./layout.js";

/**
 * Draw the visible rows of memory.
 *
 * `scene` has `layout`; `colorLayout`, the layout whose blocks have the colors; `geometry`; `labels`; `groups`, the
 * groups of memory to mark; and `colors`.
 */
export function paintStrip(surface, view, scene) {
  const { geometry } = scene;
  const [first, last] = geometry.rowsIn(view);
  const [x, top] = [geometry.gutter - view.left, -view.top];
  for (let row = first; row < last; row += 1) {
    const start = geometry.start + row * geometry.rowLength;
    const count = Math.min(geometry.rowLength, geometry.stop - start);
    const y = top + geometry.rowTop(row);
    const cells = Array.from({ length: count }, (_, i) => memoryCell(scene, start + i));
    markStarts(scene, cells, start);
    drawRow(surface, x, y, geometry.cell, cells, scene.colors);
    paintWalls(surface, scene, cells, x, y);
    paintGroups(surface, scene, start, count, x, y);
    if (geometry.hasLabels) {
      const middle = y + geometry.cell.height / 2;
      surface.text(x - 8, middle, String(start), scene.colors.muted, 10, "right");
    }
  }
}

/** Return the cell of an offset. */
function memoryCell(scene, offset) {
  const element = coordinateAt(scene.layout, offset);
  if (element === null) return { kind: "gap", color: null, label: "", letters: "", block: null };
  const { coordinate, isPadding } = element;
  const source = scene.colorLayout;
  const isOutside = source !== scene.layout && coordinate.some((x, axis) => x >= Number(source.padded_dims[axis]));
  const color = isOutside ? null : blockColor(source, coordinate);
  const cell = { kind: isPadding ? "padding" : "data", color, coordinate };
  cell.block = isOutside ? null : blockNumber(source, coordinate);
  cell.label = labelOf(scene, offset, coordinate) + (element.isShared ? "+" : "");
  cell.letters = scene.geometry.hasLabels && cell.block !== null && hasLetters(source) ? blockLetters(cell.block) : "";
  return cell;
}

function labelOf(scene, offset, coordinate) {
  if (!scene.geometry.hasLabels) return "";
  if (scene.labels === "offset") return String(offset);
  if (isPaddingAt(scene.layout, coordinate)) return "";
  return scene.labels === "coordinate" ? coordinate.join(",") : String(indexOf(scene.layout, coordinate));
}

/** Set `start` of each cell: block if it begins one, digit if an inner digit but the innermost changes there. */
function markStarts(scene, cells, first) {
  if (scene.geometry.cell.height < 10 || cells.length === 0) return;
  let before = first > scene.geometry.start ? memoryCell(scene, first - 1) : { block: undefined };
  for (const cell of cells) {
    if (cell.block !== before.block) cell.start = "block";
    else if (cell.block !== null && isDigitStart(scene.colorLayout, before.coordinate, cell.coordinate))
      cell.start = "digit";
    // In a row of cells of one block, the first has the letters.
    if (cell.start !== "block" && cell !== cells[0]) cell.letters = "";
    before = cell;
  }
}

/** Draw walls between blocks, low ones inside a block where an inner digit changes, and the letters of blocks. */
function paintWalls(surface, scene, cells, x, y) {
  const { cell } = scene.geometry;
  cells.forEach(({ start, letters }, i) => {
    const left = x + i * cell.width - 0.75;
    if (scene.geometry.above > 0 && letters) surface.text(left + 3, y - 5, letters, scene.colors.muted, 8);
    if (start === "block")
      surface.line(
        [
          [left, y - 1],
          [left, y + cell.height],
        ],
        scene.colors.wall,
        1.5,
      );
    else if (start === "digit")
      surface.line(
        [
          [left, y + cell.height * 0.6],
          [left, y + cell.height],
        ],
        scene.colors.wall,
        1,
      );
  });
}

/** The look of each kind of group. */
const LOOKS = {
  "cache line": { color: "line", isBoundary: true, width: 2.5, word: "line" },
  page: { color: "accent", isBoundary: true, width: 4, word: "page" },
  simd: { color: "simd", isBoundary: false },
  vnni: { color: "vnni", isBoundary: false },
};

/** Return the number of brackets that groups draw below each row. */
export function bracketCount(groups) {
  return groups.filter((group) => !LOOKS[group.kind]?.isBoundary).length;
}

/** Return the width of the notes that groups write right of the rows, in pixels. */
export function notesWidth(groups, stop) {
  const noted = groups.filter((group) => LOOKS[group.kind]?.isBoundary);
  const lengths = noted.map((group) => `${LOOKS[group.kind].word} ${Math.floor(stop / group.elements)}`.length + 2);
  return lengths.length > 0 ? lengths.reduce((sum, length) => sum + length, 0) * 6.2 + 8 : 0;
}

function paintGroups(surface, scene, start, count, x, y) {
  let [bracket, noteX] = [0, x + scene.geometry.rowLength * scene.geometry.cell.width + 10];
  for (const group of scene.groups) {
    const look = LOOKS[group.kind] ?? LOOKS.simd;
    if (look.isBoundary) noteX = paintBoundaries(surface, scene, group, look, start, count, x, y, noteX);
    else {
      paintBrackets(surface, scene, group, look, start, count, x, y + scene.geometry.cell.height + 1 + 5 * bracket);
      bracket += 1;
    }
  }
}

/** Draw lines where groups begin, and name the groups that begin in the row. Return where the next note begins. */
function paintBoundaries(surface, scene, group, look, start, count, x, y, noteX) {
  const { cell, hasLabels } = scene.geometry;
  const color = scene.colors[look.color];
  const first = group.start + Math.ceil((start - group.start) / group.elements) * group.elements;
  const numbers = [];
  for (let offset = first; offset < start + count; offset += group.elements) {
    const left = x + (offset - start) * cell.width - 0.75;
    surface.line(
      [
        [left, y - 2],
        [left, y + cell.height + 1],
      ],
      color,
      look.width,
    );
    surface.line(
      [
        [left - 1, y - 2],
        [left + 7, y - 2],
      ],
      color,
      1.5,
    );
    numbers.push((offset - group.start) / group.elements);
  }
  if (!hasLabels) return noteX;
  const last = numbers[numbers.length - 1];
  if (numbers.length > 0) {
    const words = `${look.word} ${numbers.length > 1 ? `${numbers[0]}–${last}` : last}`;
    surface.text(noteX, y + cell.height / 2, words, color, 10);
  }
  return noteX + `${look.word} ${Math.floor(scene.geometry.stop / group.elements)}  `.length * 6.2;
}

/** Draw a bracket below the cells of each group. */
function paintBrackets(surface, scene, group, look, start, count, x, y) {
  const { cell } = scene.geometry;
  const color = scene.colors[look.color];
  const first = Math.floor((start - group.start) / group.elements);
  for (let i = first; group.start + i * group.elements < start + count; i += 1) {
    const from = group.start + i * group.elements;
    if (from < group.start) continue;
    const left = x + Math.max(0, from - start) * cell.width + 1;
    const right = x + Math.min(count, from + group.elements - start) * cell.width - 2;
    const points = [
      [left, y + 2.5],
      [right, y + 2.5],
    ];
    if (from >= start) points.unshift([left, y]);
    if (from + group.elements <= start + count) points.push([right, y]);
    surface.line(points, color, 1.5);
  }
}

/** Draw the ring of the selected offset, and the arrows of jump marks. */
export function paintStripOverlay(surface, view, scene, marks, selection, offset) {
  const { geometry, colors } = scene;
  const corner = (at) => {
    const { x, y } = geometry.positionOf(at);
    return { x: x - view.left, y: y - view.top };
  };
  for (const mark of marks) drawArrow(surface, view, corner(mark.from), corner(mark.offset), scene, mark.label);
  if (selection?.coordinate) {
    for (const member of elementsOfBlock(scene.colorLayout, selection.coordinate)) {
      const { x, y } = corner(Number(offsetOf(scene.layout, member)));
      if (y > -geometry.cell.height && y < view.height) drawMember(surface, x, y, geometry.cell, colors);
    }
  }
  if (offset !== null && offset >= geometry.start && offset < geometry.stop) {
    const { x, y } = corner(offset);
    drawRing(surface, x, y, geometry.cell, colors, true);
  }
}
