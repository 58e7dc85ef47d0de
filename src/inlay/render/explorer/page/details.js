/**
 * What the page says about layouts beside the drawings: facts, jump marks, the padded computation, the reorder.
 */

import { blocksInWords } from "./blocks.js";
import { element } from "./readout.js";

/** Most products of the padded computation that are drawn. */
const MOST_LANES = 512;

/** Fill a definition list with the facts on a layout. */
export function showFacts(list, layout) {
  const rows = [
    ["text", layout.text],
    ["digits", layout.digits_text],
    ["offset", layout.swizzle ? `s = ${layout.formula}; ${layout.swizzle.formula}` : layout.formula],
    ["size", layout.size_text],
    ["colors", blocksInWords(layout)],
    ...(layout.notations ?? []),
  ];
  list.replaceChildren();
  for (const [name, text] of rows) {
    if (text) list.append(element("dt", "", name), element("dd", "", text));
  }
}

/** Return the summary of a layout below the title of a pane. */
export function summaryOf(layout) {
  const padded =
    String(layout.dims) === String(layout.padded_dims) ? "" : ` padded to ${layout.padded_dims.join(" × ")}`;
  return `${layout.dims.join(" × ")}${padded} of ${layout.data_type}`;
}

/**
 * Fill the card of jump marks with buttons, and hide it if there are none; `isShown` tells which arrows are drawn,
 * `toggle` changes that, and `visit` selects the element that a jump leads to.
 */
export function showMarks(card, layout, isShown, toggle, visit) {
  const list = card.querySelector("ol");
  list.replaceChildren();
  card.hidden = !layout.marks?.length;
  for (const mark of layout.marks ?? []) {
    const item = element("li");
    const button = element("button", "mark-button");
    button.type = "button";
    button.setAttribute("aria-pressed", String(isShown(mark)));
    button.append(element("b", "", `[${mark.label}]`), ` ${mark.note}`);
    button.addEventListener("click", () => {
      toggle(mark);
      visit(mark);
    });
    item.append(button);
    list.append(item);
  }
}

/** Fill the card of the padded computation, and hide it if the layout has no padding. */
export function showPaddedComputation(card, layout) {
  const computation = layout.padded_computation;
  card.hidden = computation === null || computation === undefined;
  if (card.hidden) return;
  const { name, dim, padded, block, note, facts } = computation;
  const lanes = element("div", "lanes");
  lanes.setAttribute("role", "img");
  lanes.setAttribute("aria-label", `${padded} products over ${name}, ${padded - dim} of them with zeros`);
  for (let start = 0; start < Math.min(padded, MOST_LANES); start += block) {
    lanes.append(lanesOfBlock(name, start, Math.min(padded, start + block), dim));
  }
  const body = card.querySelector(".body");
  const sum = `sum over ${name} = 0 to ${padded - 1} of x[${name}] * w[${name}]`;
  body.replaceChildren(element("p", "computation", sum), lanes, element("p", "", note));
  if (padded > MOST_LANES) lanes.append(element("p", "", `and ${padded - MOST_LANES} more products`));
  const list = element("ul", "computation");
  for (const fact of facts ?? []) list.append(element("li", "", fact));
  body.append(list);
}

function lanesOfBlock(name, start, stop, dim) {
  const row = element("div", "lane-block");
  row.append(element("span", "lane-name", `${name} ${start} to ${stop - 1}`));
  const products = element("span", "products");
  for (let x = start; x < stop; x += 1) {
    products.append(element("span", x < dim ? "lane" : "lane zero", x < dim ? `x${x}·w${x}` : "0·0"));
  }
  row.append(products);
  return row;
}

/** Fill the card of the reorder, and hide it if there is none, or if nothing is known about it, as in saved pages. */
export function showReorder(card, answer) {
  const rows = Object.entries(answer ?? {}).filter(([, text]) => typeof text === "string" && text !== "");
  card.hidden = rows.length === 0;
  if (card.hidden) return;
  const body = card.querySelector(".body");
  const facts = element("dl", "fact-list");
  for (const [name, text] of rows) facts.append(element("dt", "", name), element("dd", "", text));
  body.replaceChildren(facts);
  if (Array.isArray(answer.lines)) {
    const all = element("details");
    all.append(element("summary", "", "Report of the compiled reorder"), element("pre", "", answer.lines.join("\n")));
    body.append(all);
  }
}
