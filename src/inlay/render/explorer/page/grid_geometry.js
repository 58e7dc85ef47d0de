/**
 * Positions of the cells of the tensor view, in pixels of its content.
 *
 * The last two axes with several coordinates span a plane. Planes of the axis before them follow one another in lines
 * as wide as the pane; each combination of the other axes is a group with a heading. A tensor with one long axis has
 * one plane, whose row is broken into several.
 */

const PLANE_GAP = 18;
const LINE_GAP = 14;
const MARGIN = 14;
const TITLE = 18;
const COLUMN_LABELS = 15;
const GROUP_TITLE = 24;
const CHARACTER = 7;

export class GridGeometry {
  /**
   * `dims` are padded dims; `blockOf` maps an axis to the size of its blocks, so that lines hold whole blocks of
   * planes; `cell` is the size of a cell; `width` is the width of the pane.
   */
  constructor(dims, blockOf, cell, width) {
    this.dims = dims;
    this.cell = cell;
    this.hasLabels = cell.height >= 13;
    [this.rowAxis, this.columnAxis] = planeAxes(dims);
    const leading = dims.map((_, axis) => axis).filter((axis) => axis !== this.rowAxis && axis !== this.columnAxis);
    const long = leading.filter((axis) => dims[axis] > 1);
    this.acrossAxis = long.length > 0 ? long[long.length - 1] : null;
    this.groupAxes = long.slice(0, -1);
    this._setPlane(blockOf, width);
    this._setLines(blockOf, width);
  }

  _setPlane(blockOf, width) {
    const { dims, cell } = this;
    const count = dims[this.columnAxis];
    const rows = this.rowAxis === null ? 1 : dims[this.rowAxis];
    const most = Math.max(1, Math.floor((width - 2 * MARGIN - 7 * CHARACTER) / cell.width));
    this.isFolded = rows === 1 && count > most;
    this.columns = this.isFolded ? wholeBlocks(most, blockOf(this.columnAxis)) : count;
    this.rows = this.isFolded ? Math.ceil(count / this.columns) : rows;
    const lastLabel = this.isFolded ? count : this.rows - 1;
    const hasRowLabels = this.hasLabels && (this.isFolded || rows > 1);
    this.gutter = MARGIN + (hasRowLabels ? (String(lastLabel).length + 1) * CHARACTER : 0);
    this.header = this.hasLabels ? COLUMN_LABELS : 0;
    this.titleHeight = this.acrossAxis === null ? 0 : TITLE;
    this.planeWidth = this.columns * cell.width;
    this.planeHeight = this.rows * cell.height;
  }

  _setLines(blockOf, width) {
    this.planes = this.acrossAxis === null ? 1 : this.dims[this.acrossAxis];
    this.planeGap = this.hasLabels ? PLANE_GAP : 8;
    this.planeStep = Math.max(this.planeWidth, this.acrossAxis === null ? 0 : 44) + this.planeGap;
    const most = Math.max(1, Math.floor((width - this.gutter - MARGIN + this.planeGap) / this.planeStep));
    this.perLine = this.planes <= most ? this.planes : wholeBlocks(most, blockOf(this.acrossAxis));
    this.lines = Math.ceil(this.planes / this.perLine);
    this.lineHeight = this.titleHeight + this.header + this.planeHeight + LINE_GAP;
    this.groupTitle = this.groupAxes.length > 0 ? GROUP_TITLE : 0;
    this.groupHeight = this.groupTitle + this.lines * this.lineHeight;
    this.groups = this.groupAxes.reduce((product, axis) => product * this.dims[axis], 1);
    this.width = this.gutter + this.perLine * this.planeStep - this.planeGap + MARGIN;
    this.height = MARGIN / 2 + this.groups * this.groupHeight;
  }

  /** Return the top left corner of the cell of `coordinate`. */
  positionOf(coordinate) {
    const plane = this.acrossAxis === null ? 0 : coordinate[this.acrossAxis];
    const group = this.groupAxes.reduce((number, axis) => number * this.dims[axis] + coordinate[axis], 0);
    const at = this.planePosition(group, plane);
    const column = coordinate[this.columnAxis];
    const row = this.isFolded
      ? Math.floor(column / this.columns)
      : this.rowAxis === null
        ? 0
        : coordinate[this.rowAxis];
    return { x: at.x + (column % this.columns) * this.cell.width, y: at.y + row * this.cell.height };
  }

  /** Return the top left corner of the cells of a plane. */
  planePosition(group, plane) {
    const line = Math.floor(plane / this.perLine);
    const top = MARGIN / 2 + group * this.groupHeight + this.groupTitle + line * this.lineHeight;
    return { x: this.gutter + (plane % this.perLine) * this.planeStep, y: top + this.titleHeight + this.header };
  }

  /** Return the coordinate whose cell is at a point of the content, or null. */
  coordinateAt(x, y) {
    const group = Math.floor((y - MARGIN / 2) / this.groupHeight);
    const inGroup = y - MARGIN / 2 - group * this.groupHeight - this.groupTitle;
    const line = Math.floor(inGroup / this.lineHeight);
    const index = Math.floor((x - this.gutter) / this.planeStep);
    if (group < 0 || group >= this.groups || line < 0 || line >= this.lines) return null;
    if (index < 0 || index >= this.perLine) return null;
    const plane = line * this.perLine + index;
    if (plane >= this.planes) return null;
    const corner = this.planePosition(group, plane);
    return this.cellAt(
      group,
      plane,
      Math.floor((y - corner.y) / this.cell.height),
      Math.floor((x - corner.x) / this.cell.width),
    );
  }

  /** Return the coordinate of a row and column of a plane, or null outside it. */
  cellAt(group, plane, row, column) {
    if (row < 0 || row >= this.rows || column < 0 || column >= this.columns) return null;
    const coordinate = this.baseOf(group, plane);
    coordinate[this.columnAxis] = this.isFolded ? row * this.columns + column : column;
    if (this.rowAxis !== null && !this.isFolded) coordinate[this.rowAxis] = row;
    return coordinate[this.columnAxis] < this.dims[this.columnAxis] ? coordinate : null;
  }

  /** Return the first coordinate of a plane. */
  baseOf(group, plane) {
    const coordinate = this.dims.map(() => 0);
    let rest = group;
    for (const axis of [...this.groupAxes].reverse()) {
      coordinate[axis] = rest % this.dims[axis];
      rest = Math.floor(rest / this.dims[axis]);
    }
    if (this.acrossAxis !== null) coordinate[this.acrossAxis] = plane;
    return coordinate;
  }

  /** Yield the planes that a view shows a part of, with the ranges of rows and columns in it. */
  *planesIn(view) {
    const bottom = view.top + view.height;
    const firstGroup = Math.max(0, Math.floor((view.top - MARGIN / 2) / this.groupHeight));
    for (let group = firstGroup; group < this.groups; group += 1) {
      const top = MARGIN / 2 + group * this.groupHeight;
      if (top > bottom) return;
      const firstLine = Math.max(0, Math.floor((view.top - top - this.groupTitle) / this.lineHeight));
      for (let line = firstLine; line < this.lines; line += 1) {
        if (top + this.groupTitle + line * this.lineHeight > bottom) break;
        yield* this._planesOfLine(group, line, view);
      }
    }
  }

  *_planesOfLine(group, line, view) {
    const right = view.left + view.width;
    const first = Math.max(0, Math.floor((view.left - this.gutter) / this.planeStep));
    for (let index = first; index < this.perLine; index += 1) {
      const plane = line * this.perLine + index;
      if (plane >= this.planes) return;
      const corner = this.planePosition(group, plane);
      if (corner.x > right) return;
      const rows = visibleRange(view.top - corner.y, view.height, this.cell.height, this.rows);
      const columns = visibleRange(view.left - corner.x, view.width, this.cell.width, this.columns);
      yield { group, plane, index, line, ...corner, rows, columns, base: this.baseOf(group, plane) };
    }
  }

  /** Return the groups whose heading may be in a view. */
  groupsIn(view) {
    if (this.groupTitle === 0) return [];
    const first = Math.max(0, Math.floor((view.top - MARGIN / 2) / this.groupHeight));
    const last = Math.min(this.groups - 1, Math.floor((view.top + view.height) / this.groupHeight));
    return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => {
      const group = first + i;
      return { group, y: MARGIN / 2 + group * this.groupHeight, base: this.baseOf(group, 0) };
    });
  }
}

/** Return the half-open range of items of one size that `length` pixels from `start` on show. */
export function visibleRange(start, length, size, count) {
  const first = Math.min(count, Math.max(0, Math.floor(start / size)));
  return [first, Math.max(first, Math.min(count, Math.ceil((start + length) / size)))];
}

/** Return the axes that run down and across in a plane; the first is null for a tensor of one axis. */
function planeAxes(dims) {
  const all = dims.map((_, axis) => axis);
  const long = all.filter((axis) => dims[axis] > 1).slice(-2);
  const short = all.filter((axis) => !long.includes(axis)).reverse();
  const [row, column] = [...long, ...short, -1].slice(0, 2).sort((a, b) => a - b);
  return [row < 0 ? null : row, column];
}

/** Return the largest number up to `most` that is a multiple or a divisor of `block`; `most` if it is far smaller. */
function wholeBlocks(most, block) {
  for (let count = most; count * 3 > most * 2; count -= 1) {
    if (count % block === 0 || block % count === 0) return count;
  }
  return most;
}
