/**
 * Menus of the layouts that a page was saved with, in the place of the fields, which need a server.
 */

import { element } from "./readout.js";
import { parseState } from "./state.js";

/** Return the state of a saved page: that of the link if the page has its layout, else the first layouts. */
export function savedState(panels, fragment) {
  const state = parseState(fragment);
  const isKnown = panels.some(({ request }) => request.layout === state.layout && request.dims === state.dims);
  if (fragment !== "" && isKnown) return state;
  return { ...state, ...stateOf(panels[0]), ...secondOf(panels[0], panels[1] ?? null) };
}

function stateOf({ request }) {
  return { layout: request.layout, dims: request.dims, dataType: request.data_type ?? "f32" };
}

/** Return the part of the state for a second layout, which must have the dims of the first. */
function secondOf(first, second) {
  const isComparable = second !== null && String(first.layout.dims) === String(second.layout.dims);
  if (!isComparable) return { layout2: null, dataType2: "" };
  const isSameType = first.request.data_type === second.request.data_type;
  return { layout2: second.request.layout, dataType2: isSameType ? "" : second.request.data_type };
}

/** Put menus of the saved layouts into `parent`; `choose` is called with changes of the state. */
export function showSavedMenus(parent, panels, state, choose) {
  const first = menuOf("Layout", panels, (panel) => panel.request.layout === state.layout);
  const options = [{ layout: null }, ...panels];
  const second = menuOf("Second layout", options, (panel) => (panel.request?.layout ?? null) === state.layout2);
  const change = () => {
    const panel = panels[first.select.selectedIndex];
    const other = options[second.select.selectedIndex];
    choose({ ...stateOf(panel), ...secondOf(panel, other.layout === null ? null : other) });
  };
  for (const { root, select } of [first, second]) {
    select.addEventListener("change", change);
    parent.append(root);
  }
}

function menuOf(label, panels, isChosen) {
  const select = element("select");
  panels.forEach((panel, i) => {
    const name = panel.layout === null ? "none" : `${panel.layout.title}, ${panel.layout.dims.join(" x ")}`;
    select.append(new Option(name, String(i), false, isChosen(panel)));
  });
  const root = element("label", "tool", label);
  root.append(select);
  return { root, select };
}
