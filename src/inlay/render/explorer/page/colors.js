/**
 * The colors of drawings, as style.css defines them for the light and the dark theme.
 */

import { COLORS } from "./blocks.js";

const NAMES = ["page", "ink", "muted", "gap", "hatch", "ring", "accent", "wall", "line", "leaf", "simd", "vnni"];

let known = null;

/** Part of the ink in the color of a line, which has to stand out from the page as a fill need not. */
const INK_OF_LINES = 0.3;

/** Return the colors of the current theme as CSS colors: one for each of `NAMES`, the fills `blocks`, their `lines`. */
export function currentColors() {
  known ??= readColors();
  return known;
}

/** Read the colors again at their next use, since the theme has changed. */
export function forgetColors() {
  known = null;
}

function readColors() {
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const read = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const colors = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
  colors.blocks = Array.from({ length: COLORS }, (_, i) => read(`block-${i}`));
  colors.lines = colors.blocks.map((fill) => mixColors(fill, colors.ink, INK_OF_LINES));
  probe.remove();
  return colors;
}

/** Return the color that is `share` of the way from one color to another; both as `rgb(r, g, b)`. */
function mixColors(from, to, share) {
  const [start, end] = [from, to].map((color) => color.match(/\d+/g).map(Number));
  return `rgb(${start.map((value, i) => Math.round(value + share * (end[i] - value))).join(", ")})`;
}

/** Let the theme follow the choice of the reader, `light` or `dark`, or the system's if the choice is `auto`. */
export function setTheme(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  forgetColors();
}
