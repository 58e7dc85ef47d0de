/**
 * The colors of drawings, as style.css defines them for the light and the dark theme.
 */

import { COLORS } from "./blocks.js";

const NAMES = ["page", "ink", "muted", "gap", "hatch", "ring", "accent", "wall", "line", "leaf", "simd", "vnni"];

let known = null;

/** Return the colors of the current theme as CSS colors: one for each of `NAMES`, and `blocks`. */
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
  probe.remove();
  return colors;
}

/** Let the theme follow the choice of the reader, `light` or `dark`, or the system's if the choice is `auto`. */
export function setTheme(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  forgetColors();
}
