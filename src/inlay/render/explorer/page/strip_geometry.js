/**
 * Positions of the cells of the memory view, in pixels of its content: offsets in rows of equal length.
 */

import { visibleRange } from "./grid_geometry.js";

const STRIP_MARGIN = 14;
/** Space above the first row, for the arrows of jump marks. */
const STRIP_TOP = 20;
const DIGIT_WIDTH = 7;

export class StripGeometry {
  /**
   * `start` and `stop` are the first offset and the one after the last; `digits` are the digits of the layout,
   * outermost first; `cell` is the size of a cell; `width` is the width of the pane; `space` is the space `above` and
   * `below` each row, and that for `notes` right of it.
   */
  constructor(start, stop, digits, cell, width, { above, below, notes }) {
    this.start = start;
    this.stop = stop;
    this.cell = cell;
    this.hasLabels = cell.height >= 13;
    const widest = Math.max(String(start).length, String(stop - 1).length);
    this.gutter = STRIP_MARGIN + (this.hasLabels ? widest * DIGIT_WIDTH + 10 : 0);
    const room = Math.max(cell.width, width - this.gutter - STRIP_MARGIN - notes);
    this.rowLength = rowLength(digits, Math.max(1, stop - start), Math.max(1, Math.floor(room / cell.width)));
    this.rows = Math.ceil((stop - start) / this.rowLength);
    this.above = above;
    this.rowHeight = above + cell.height + below + (cell.height >= 10 ? 4 : 1);
    this.notesLeft = this.gutter + this.rowLength * cell.width + 10;
    this.width = this.notesLeft - 10 + Math.max(STRIP_MARGIN, notes);
    this.height = STRIP_TOP + this.rows * this.rowHeight + STRIP_MARGIN;
  }

  /** Return the top left corner of the cell of an offset. */
  positionOf(offset) {
    const number = offset - this.start;
    const row = Math.floor(number / this.rowLength);
    return { x: this.gutter + (number % this.rowLength) * this.cell.width, y: this.rowTop(row) };
  }

  /** Return the top of the cells of a row. */
  rowTop(row) {
    return STRIP_TOP + this.above + row * this.rowHeight;
  }

  /** Return the offset whose cell is at a point of the content, or null. */
  offsetAt(x, y) {
    const row = Math.floor((y - STRIP_TOP - this.above / 2) / this.rowHeight);
    const column = Math.floor((x - this.gutter) / this.cell.width);
    if (row < 0 || row >= this.rows || column < 0 || column >= this.rowLength) return null;
    const offset = this.start + row * this.rowLength + column;
    return offset < this.stop ? offset : null;
  }

  /** Return the half-open range of rows that a view shows a part of. */
  rowsIn(view) {
    return visibleRange(view.top - STRIP_TOP, view.height, this.rowHeight, this.rows);
  }
}

/** Return the number of cells in a row: up to `most`, and if possible whole steps of one digit. */
export function rowLength(digits, total, most) {
  if (total <= most) return total;
  const steps = digits.map((digit) => ({ stride: Math.abs(Number(digit.stride)), extent: Number(digit.extent) }));
  const fitting = steps.filter(({ stride }) => stride > 0 && stride <= most);
  for (const { stride, extent } of fitting) {
    let count = Math.floor(most / stride);
    while (count > 1 && extent % count !== 0) count -= 1;
    if (count * stride * 2 > most) return count * stride;
  }
  const largest = fitting.length > 0 ? fitting[0].stride : 1;
  return most - (most % largest);
}
