/**
 * The picture of what the page shows, as a file: SVG or PNG, with title and formula above the views.
 */

import { formulaAt, symbolicFormula } from "./formula.js";
import { currentColors } from "./colors.js";
import { CanvasSurface, SvgSurface } from "./surface.js";

const EDGE = 24;
const HEAD = 74;
const CAPTION = 26;
/** Content of up to so many pixels in height is drawn whole; larger content as far as it is visible. */
const TALLEST = 3000;
const PNG_SCALE = 2;

/** Return the parts of the picture with their places, and the size of all. */
function arrange(panes, lines) {
  let x = EDGE;
  const parts = panes.map((pane) => {
    const { content, view } = pane.viewport;
    const isWhole = content.height <= TALLEST && content.width <= TALLEST && lines === null;
    const size = isWhole ? content : { width: view.width, height: view.height };
    const part = { pane, x, view: isWhole ? { left: 0, top: 0, ...content } : view, ...size };
    x += size.width + (lines !== null && pane.side === "source" ? lines.width : EDGE);
    return part;
  });
  const height = Math.max(...parts.map((part) => part.height));
  return { parts, width: Math.max(x, 640), height: HEAD + CAPTION + height + EDGE };
}

function paintPicture(surface, { parts, width, height }, panels, selection, lines) {
  const colors = currentColors();
  surface.fill(0, 0, width, height, colors.page);
  const title = panels.map(({ layout }) => `${layout.title}, ${layout.dims.join(" x ")} of ${layout.data_type}`);
  surface.text(EDGE, 30, title.join("  to  "), colors.ink, 16, "left", true);
  const { layout } = panels[0];
  surface.text(EDGE, 54, `offset = ${symbolicFormula(layout)}`, colors.muted, 12);
  if (selection?.coordinate) {
    const words = `(${selection.coordinate.join(", ")}): ${formulaAt(layout, selection.coordinate)}`;
    surface.text(EDGE, 72, words, colors.ink, 12);
  }
  for (const { pane, x, view, width: w, height: h } of parts) {
    surface.text(x + 12, HEAD + CAPTION / 2 + 4, pane.caption(), colors.ink, 13, "left", true);
    surface.inside(x, HEAD + CAPTION, w, h, () => {
      pane.paint(surface, view);
      pane.paintOverlay(surface, view);
    });
    if (lines !== null && pane.side === "source") {
      surface.inside(x + w, HEAD + CAPTION, lines.width, lines.height, () => lines.paint(surface));
    }
  }
}

/** Return the picture as SVG. */
export function pictureSvg(panes, panels, selection, lines) {
  const picture = arrange(panes, lines);
  const surface = new SvgSurface();
  paintPicture(surface, picture, panels, selection, lines);
  const description = panels.map(({ layout }) => `${layout.text}: offset = ${layout.formula}`).join("\n");
  return surface.finish(
    picture.width,
    picture.height,
    panels.map(({ layout }) => layout.title).join(" to "),
    description,
  );
}

/** Return a promise of the picture as a PNG blob. */
export function picturePng(panes, panels, selection, lines) {
  const picture = arrange(panes, lines);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(picture.width * PNG_SCALE);
  canvas.height = Math.ceil(picture.height * PNG_SCALE);
  paintPicture(new CanvasSurface(canvas.getContext("2d"), PNG_SCALE), picture, panels, selection, lines);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Offer a blob as a file to save. */
export function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Return the name of a file for layouts: their titles, without characters that file systems refuse. */
export function fileName(panels, ending) {
  const words = panels.map(({ layout }) => `${layout.title} ${layout.dims.join("x")}`).join(" to ");
  return `${words
    .replace(/[^\w.-]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 80)}.${ending}`;
}
