/**
 * Drawing of cells, the same in the tensor view and in the memory view.
 *
 * A cell is `{kind, color, label, letters, isShared}`: `kind` is data, padding or gap; `color` is the color of its
 * block, null for none; `letters` name its block. Small cells are drawn as runs of one color.
 */

/** Cells of at least this height, in pixels, have a margin between them. */
const MARGIN_FROM = 8;
/** Cells of at least this height have labels. */
const LABEL_FROM = 14;
/** Cells of at least this height have the letters of their block. */
const LETTERS_FROM = 20;
const LETTER_SIZE = 8;
const LETTER_WIDTH = 4.9;

/** Draw one row of cells from (x, y) on. */
export function drawRow(surface, x, y, size, cells, colors) {
  if (size.height < MARGIN_FROM) {
    drawRuns(surface, x, y, size, cells, colors);
    return;
  }
  cells.forEach((cell, i) => drawCell(surface, x + i * size.width, y, size, cell, colors));
}

function drawRuns(surface, x, y, size, cells, colors) {
  for (let first = 0; first < cells.length;) {
    let last = first + 1;
    while (last < cells.length && isAlike(cells[first], cells[last])) last += 1;
    fillCell(surface, x + first * size.width, y, (last - first) * size.width, size.height, cells[first], colors);
    first = last;
  }
}

function isAlike(a, b) {
  return a.kind === b.kind && a.color === b.color;
}

function drawCell(surface, x, y, size, cell, colors) {
  const [width, height] = [size.width - 1, size.height - 1];
  if (cell.kind === "gap") {
    surface.frame(x + 1, y + 1, width - 2, height - 2, colors.gap, 1, [2, 3]);
    return;
  }
  fillCell(surface, x, y, width, height, cell, colors);
  if (size.height >= LABEL_FROM && cell.label !== "") {
    const font = labelFont(size, cell.label);
    const color = cell.kind === "padding" ? colors.muted : colors.ink;
    if (font >= 7 && size.letters > 0) surface.text(x + width - 4, y + height / 2, cell.label, color, font, "right");
    else if (font >= 7) surface.text(x + width / 2, y + height / 2, cell.label, color, font, "center");
  }
  if (size.letters > 0 && cell.letters) surface.text(x + 3, y + 7, cell.letters, colors.ink, LETTER_SIZE);
}

function fillCell(surface, x, y, width, height, cell, colors) {
  if (cell.kind === "gap") {
    surface.fill(x, y, width, height, colors.gap, 0.18);
    return;
  }
  const color = cell.color === null ? colors.leaf : colors.blocks[cell.color];
  surface.fill(x, y, width, height, color, cell.kind === "padding" ? 0.45 : 1);
  if (cell.kind === "padding") surface.hatch(x, y, width, height, colors.hatch);
}

/** Return the size of the font of a label in a cell, in pixels. */
function labelFont(size, label) {
  const room = size.width - 3 - size.letters * LETTER_WIDTH;
  return Math.min(12, size.height * 0.52, room / (label.length * 0.61));
}

/**
 * Return the size of a cell of `height` pixels, with room for labels of up to `characters` characters, and the number
 * of `letters` of a block that it has room for beside them.
 */
export function cellSize(height, characters, letters) {
  if (height < LABEL_FROM) return { width: height, height, letters: 0 };
  const font = Math.min(12, height * 0.52);
  const shown = height >= LETTERS_FROM ? letters : 0;
  const width = characters * font * 0.62 + 7 + shown * LETTER_WIDTH;
  return { width: Math.ceil(Math.max(height * 1.1, width)), height, letters: shown };
}

/** Draw a thin ring inside a cell of the block that the selected element is in. */
export function drawMember(surface, x, y, size, colors) {
  surface.frame(x + 0.5, y + 0.5, size.width - 2, size.height - 2, colors.ring, 1);
}

/** Draw a ring around a cell, in a color that stands out from all blocks. */
export function drawRing(surface, x, y, size, colors, isStrong) {
  const grow = size.height < MARGIN_FROM ? 3 : 1;
  const [width, height] = [size.width - 1 + 2 * grow, size.height - 1 + 2 * grow];
  surface.frame(x - grow, y - grow, width, height, colors.page, isStrong ? 5 : 4);
  surface.frame(x - grow, y - grow, width, height, colors.ring, isStrong ? 2.5 : 1.5);
}
