/**
 * Jump marks, as in "Understanding Memory Formats": arrows from the last element before a jump to the first after it.
 */

/** Draw the arrow of one mark between two cells, given by their top left corners, with the label of the mark. */
export function drawArrow(surface, from, to, cell, label, colors) {
  const isInRow = Math.abs(from.y - to.y) < cell.height / 2;
  const at = ({ x, y }, across, down) => [x + cell.width * across, y + cell.height * down];
  const [start, end] = isInRow ? [at(from, 0.5, 0.15), at(to, 0.5, 0.1)] : [at(from, 0.85, 0.85), at(to, 0.15, 0.15)];
  const bend = controlPoints(start, end, isInRow);
  surface.curve(start, end, bend, colors.page, 4.5, 0.8);
  surface.curve(start, end, bend, colors.accent, 1.8);
  drawHead(surface, bend[1], end, colors.accent);
  const [x, y] = middleOf(start, bend, end);
  const width = label.length * 6.4 + 8;
  surface.fill(x - width / 2, y - 8, width, 16, colors.page);
  surface.frame(x - width / 2, y - 8, width, 16, colors.accent, 1.2);
  surface.text(x, y, label, colors.accent, 10, "center", true);
}

/** Return the control points of an arc above a step within a row, and of an S beside a step between rows. */
function controlPoints([x1, y1], [x2, y2], isInRow) {
  if (isInRow) {
    const height = Math.min(44, 14 + Math.abs(x2 - x1) * 0.1);
    return [
      [x1, y1 - height],
      [x2, y2 - height],
    ];
  }
  const reach = Math.min(80, 20 + Math.abs(x2 - x1) * 0.15);
  const down = (y2 - y1) * 0.3;
  return [
    [x1 + reach, y1 + down],
    [x2 - reach, y2 - down],
  ];
}

function middleOf([x1, y1], [[x2, y2], [x3, y3]], [x4, y4]) {
  return [(x1 + 3 * x2 + 3 * x3 + x4) / 8, (y1 + 3 * y2 + 3 * y3 + y4) / 8];
}

function drawHead(surface, [x1, y1], [x2, y2], color) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  for (const turn of [2.6, -2.6]) {
    const wing = [x2 + 8 * Math.cos(angle + turn), y2 + 8 * Math.sin(angle + turn)];
    surface.line([[x2, y2], wing], color, 1.8);
  }
}
