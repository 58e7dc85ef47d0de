/**
 * The reorder between two layouts: lines from offsets of the source to offsets of the destination.
 *
 * Elements that are adjacent on both sides are one run, and one line. Lines are drawn for the rows of the source and of
 * the destination that are visible, in the color of the block, darkened or lightened.
 */

import { blockColor } from "./blocks.js";
import { coordinateAt, offsetOf } from "./layout.js";

/** Most runs that are drawn at once. */
const MOST_RUNS = 1500;

/**
 * Return the runs that start in offsets `first` to `last` of `from`, as `{from, to, length, color}`.
 *
 * `to` is the layout at the other end; `colorLayout` is the layout whose blocks have the colors.
 */
function findRuns(from, to, colorLayout, first, last) {
  const runs = [];
  let run = null;
  for (let offset = first; offset < last && runs.length < MOST_RUNS; offset += 1) {
    const element = coordinateAt(from, offset);
    const isMoved = element !== null && !element.isPadding;
    const target = isMoved ? offsetOf(to, element.coordinate) : null;
    const color = isMoved ? blockColor(colorLayout, element.coordinate) : null;
    if (run !== null && isMoved && target === run.to + run.length && color === run.color) run.length += 1;
    else {
      run = isMoved ? { from: offset, to: target, length: 1, color } : null;
      if (run !== null) runs.push(run);
    }
  }
  return runs;
}

/**
 * Draw the lines between two memory views on a surface of the given size.
 *
 * `ends` are the two sides, source and destination: `{scene, view}`; `selected` is the coordinate to stress, or null.
 */
export function paintReorder(surface, width, height, ends, selected) {
  const [source, destination] = ends;
  const { colors } = source.scene;
  const [first, last] = visibleOffsets(source);
  const runs = findRuns(source.scene.layout, destination.scene.layout, source.scene.colorLayout, first, last);
  const alpha = Math.max(0.55, Math.min(0.95, 90 / Math.max(1, runs.length)));
  for (const run of runs) {
    const middle = (run.length - 1) / 2;
    const start = [0, heightOf(source, run.from + middle)];
    const end = [width, heightOf(destination, run.to + middle)];
    const thickness = Math.min(8, 1.6 + run.length * 0.35);
    drawLine(surface, start, end, width, height, colors.lines[run.color], thickness, alpha);
  }
  if (selected !== null) {
    const offsets = ends.map(({ scene }) => offsetOf(scene.layout, selected));
    const [start, end] = [
      [0, heightOf(source, offsets[0])],
      [width, heightOf(destination, offsets[1])],
    ];
    drawLine(surface, start, end, width, height, colors.page, 6, 1);
    drawLine(surface, start, end, width, height, colors.ring, 2.5, 1);
  }
}

function drawLine(surface, [x1, y1], [x2, y2], width, height, color, thickness, alpha) {
  if (Math.max(y1, y2) < -20 || Math.min(y1, y2) > height + 20) return;
  const limit = (y) => Math.min(height + 40, Math.max(-40, y));
  const bend = [
    [x1 + width * 0.5, limit(y1)],
    [x2 - width * 0.5, limit(y2)],
  ];
  surface.curve([x1, limit(y1)], [x2, limit(y2)], bend, color, thickness, alpha);
}

/** Return where a line meets the edge of a memory view: within the row, spread by the column. */
function heightOf({ scene, view }, offset) {
  const { geometry } = scene;
  const row = Math.floor((offset - geometry.start) / geometry.rowLength);
  const column = (offset - geometry.start) % geometry.rowLength;
  const share = (column + 0.5) / geometry.rowLength;
  return geometry.rowTop(row) + share * geometry.cell.height - view.top;
}

function visibleOffsets({ scene, view }) {
  const { geometry } = scene;
  const [first, last] = geometry.rowsIn(view);
  const at = (row) => Math.min(geometry.stop, geometry.start + row * geometry.rowLength);
  return [at(first), at(last)];
}
