/**
 * Jump marks, as in "Understanding Memory Formats": arrows from the last element before a jump to the first after it.
 */

/** Places of a label along an arrow, as shares of its length; the first one that is visible is taken. */
const LABEL_PLACES = [0.5, 0.8, 0.9, 0.95, 0.98, 0.1, 0.03];

/** Draw the arrow of one mark between two cells, given by their top left corners, with the label of the mark. */
export function drawArrow(surface, view, from, to, { geometry: { cell }, colors }, label) {
  const isInRow = Math.abs(from.y - to.y) < cell.height / 2;
  const at = ({ x, y }, across, down) => [x + cell.width * across, y + cell.height * down];
  const [start, end] = isInRow ? [at(from, 0.5, 0.15), at(to, 0.5, 0.1)] : [at(from, 0.85, 0.85), at(to, 0.15, 0.15)];
  const bend = controlPoints(start, end, isInRow);
  surface.curve(start, end, bend, colors.page, 4.5, 0.8);
  surface.curve(start, end, bend, colors.accent, 1.8);
  drawHead(surface, bend[1], end, colors.accent);
  const points = LABEL_PLACES.map((share) => pointOn(start, bend, end, share));
  const isVisible = ([left, top]) => left > 16 && left < view.width - 16 && top > 10 && top < view.height - 10;
  const [x, y] = points.find(isVisible) ?? points[0];
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

/** Return the point of a cubic Bezier curve at a share of its parameter. */
function pointOn(start, [first, second], end, share) {
  const rest = 1 - share;
  const weights = [rest ** 3, 3 * rest ** 2 * share, 3 * rest * share ** 2, share ** 3];
  const points = [start, first, second, end];
  return [0, 1].map((axis) => points.reduce((sum, point, i) => sum + weights[i] * point[axis], 0));
}

function drawHead(surface, [x1, y1], [x2, y2], color) {
  const angle = Math.atan2(y2 - y1, x2 - x1);
  for (const turn of [2.6, -2.6]) {
    const wing = [x2 + 8 * Math.cos(angle + turn), y2 + 8 * Math.sin(angle + turn)];
    surface.line([[x2, y2], wing], color, 1.8);
  }
}
