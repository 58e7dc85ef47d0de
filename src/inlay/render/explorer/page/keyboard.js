/**
 * Keys that move the selection in the tensor view and in the memory view.
 */

/** Rows of memory that PageUp and PageDown move by. */
const PAGE_ROWS = 10;

/** Return the coordinate that a key moves to from `coordinate` in the tensor view; null for other keys. */
export function moveInGrid(event, geometry, coordinate) {
  const last = geometry.dims.map((dim) => dim - 1);
  if (coordinate === null) return geometry.dims.map(() => 0);
  const step = gridStep(event, geometry);
  if (step === null) return null;
  const moved = [...coordinate];
  if (step.axis === undefined) return step.isEnd ? last : geometry.dims.map(() => 0);
  const target = step.to === "first" ? 0 : step.to === "last" ? last[step.axis] : moved[step.axis] + step.by;
  moved[step.axis] = Math.min(last[step.axis], Math.max(0, target));
  return moved;
}

function gridStep(event, { columnAxis, rowAxis, acrossAxis, groupAxes, isFolded, columns }) {
  const down = isFolded ? { axis: columnAxis, size: columns } : { axis: rowAxis ?? columnAxis, size: 1 };
  const outer = event.shiftKey && groupAxes.length > 0 ? groupAxes[groupAxes.length - 1] : acrossAxis;
  const steps = {
    ArrowLeft: { axis: columnAxis, by: -1 },
    ArrowRight: { axis: columnAxis, by: 1 },
    ArrowUp: { axis: down.axis, by: -down.size },
    ArrowDown: { axis: down.axis, by: down.size },
    PageUp: { axis: outer ?? down.axis, by: -1 },
    PageDown: { axis: outer ?? down.axis, by: 1 },
    Home: event.ctrlKey ? { isEnd: false } : { axis: columnAxis, to: "first" },
    End: event.ctrlKey ? { isEnd: true } : { axis: columnAxis, to: "last" },
  };
  return steps[event.key] ?? null;
}

/** Return the offset that a key moves to from `offset` in the memory view; null for other keys. */
export function moveInStrip(event, geometry, offset) {
  const { start, stop, rowLength } = geometry;
  if (offset === null) return start;
  const column = (offset - start) % rowLength;
  const targets = {
    ArrowLeft: offset - 1,
    ArrowRight: offset + 1,
    ArrowUp: offset - rowLength,
    ArrowDown: offset + rowLength,
    PageUp: offset - PAGE_ROWS * rowLength,
    PageDown: offset + PAGE_ROWS * rowLength,
    Home: event.ctrlKey ? start : offset - column,
    End: event.ctrlKey ? stop - 1 : offset - column + rowLength - 1,
  };
  const target = targets[event.key];
  if (target === undefined) return null;
  return Math.min(stop - 1, Math.max(start, target));
}

/** Return true if a key event is one that `moveInGrid` and `moveInStrip` know. */
export function isMoveKey(event) {
  const isMove = /^(Arrow(Left|Right|Up|Down)|Page(Up|Down)|Home|End)$/.test(event.key);
  return isMove && !event.altKey && !event.metaKey;
}
