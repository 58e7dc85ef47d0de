/**
 * The readout: coordinate, offset, formula and facts of the selected element, in one or two layouts.
 */

import { blockLetters, blockNumber, blocksOf } from "./blocks.js";
import { formulaAt, swizzleFormula, termsAt } from "./formula.js";
import { addressingOf, coordinateAt, indexOf, isPaddingAt, offsetOf } from "./layout.js";

/** Milliseconds after which a selection is announced, so that fast moves are announced once. */
const ANNOUNCE_AFTER = 250;

export class Readout {
  /** `choose` is called with the coordinate or the offset that the reader types. */
  constructor(choose) {
    this.coordinate = document.getElementById("coordinate");
    this.offset = document.getElementById("offset");
    this.formulas = document.getElementById("formulas");
    this.hint = document.getElementById("readout-hint");
    this.live = document.getElementById("announcement");
    this.coordinate.addEventListener("input", () => this._typed(this.coordinate, (text) => choose.coordinate(text)));
    this.offset.addEventListener("input", () => this._typed(this.offset, (text) => choose.offset(text)));
  }

  _typed(input, choose) {
    this.typing = input;
    const problem = input.value.trim() === "" ? null : choose(input.value);
    input.setAttribute("aria-invalid", String(problem !== null));
    this.hint.textContent = problem ?? "";
    this.typing = null;
  }

  /** Show a selection, or the formulas alone for null, in `panels` of `{layout, side}`. */
  show(panels, selection) {
    const coordinate = selection?.coordinate ?? null;
    const main = selection === null ? null : offsetIn(panels[0], selection);
    if (this.typing !== this.coordinate) this.coordinate.value = coordinate === null ? "" : coordinate.join(",");
    if (this.typing !== this.offset) this.offset.value = main === null ? "" : String(main);
    if (this.typing === null || this.typing === undefined) {
      this.hint.textContent = "";
      for (const input of [this.coordinate, this.offset]) input.setAttribute("aria-invalid", "false");
    }
    this.formulas.replaceChildren(...panels.map((panel) => formulaBlock(panel, panels, selection)));
    this._announce(panels, selection);
  }

  _announce(panels, selection) {
    clearTimeout(this.timer);
    if (selection === null) return;
    this.timer = setTimeout(() => {
      this.live.textContent = panels.map((panel) => sentence(panel, selection, panels[0].layout)).join(" ");
    }, ANNOUNCE_AFTER);
  }
}

function offsetIn({ layout, side }, selection) {
  if (selection.coordinate !== null)
    return hasCoordinate(layout, selection) ? offsetOf(layout, selection.coordinate) : null;
  return selection.side === side ? selection.offset : null;
}

function hasCoordinate(layout, { coordinate }) {
  return coordinate.length === layout.dims.length && coordinate.every((x, axis) => x < layout.padded_dims[axis]);
}

function formulaBlock(panel, panels, selection) {
  const block = element("div", "formula");
  const side = panel.side === "source" ? "Source" : "Destination";
  if (panels.length > 1) block.append(element("h3", "", `${side}: ${panel.layout.title}`));
  block.append(symbolLine(panel.layout, selection));
  block.append(element("p", "filled", filledText(panel, selection)));
  const facts = element("ul", "facts");
  for (const [text, kind] of factsOf(panel, selection, panels[0].layout)) facts.append(element("li", kind, text));
  block.append(facts);
  return block;
}

/** Return the line with the names of the axes; terms that are 0 at the selected element are dim. */
function symbolLine(layout, selection) {
  const line = element("p", "symbols");
  const coordinate = selection?.coordinate && hasCoordinate(layout, selection) ? selection.coordinate : null;
  line.append(layout.swizzle ? "s = " : "offset = ");
  termsAt(layout, coordinate ?? layout.dims.map(() => 0)).forEach((term, i) => {
    const isNegative = term.symbol.startsWith("-");
    if (i > 0) line.append(isNegative ? " - " : " + ");
    const text = i > 0 && isNegative ? term.symbol.slice(1) : term.symbol;
    line.append(element("span", coordinate !== null && term.value == 0 ? "zero" : "", text));
  });
  if (line.childNodes.length === 1) line.append("0");
  if (layout.swizzle) line.append(`,  offset = ${swizzleFormula(layout)}`);
  return line;
}

function filledText({ layout, side }, selection) {
  if (selection === null) {
    return addressingOf(layout).isEmpty ? "There are no elements." : "Point at an element, or use the arrow keys.";
  }
  if (selection.coordinate === null) {
    return selection.side === side ? `offset ${selection.offset} belongs to no element` : "a gap of the other memory";
  }
  return hasCoordinate(layout, selection) ? formulaAt(layout, selection.coordinate) : "no such element in this layout";
}

/** Return the facts on the selected element in one layout, as pairs of text and class; blocks are those of a color. */
function factsOf(panel, selection, colorLayout) {
  const { layout } = panel;
  const offset = selection === null ? null : offsetIn(panel, selection);
  if (offset === null) return [];
  const facts = [[byteText(layout, offset), ""]];
  const { coordinate } = selection;
  if (coordinate === null) return [...facts, ["gap", "gap"]];
  if (isPaddingAt(layout, coordinate)) facts.push(["padding: no element, kept zero", "padding"]);
  else facts.push([`element ${indexOf(layout, coordinate)} in row-major order`, ""]);
  if (panel.layout === colorLayout && blocksOf(layout).outer.length > 0) {
    facts.push([`block ${blockLetters(blockNumber(layout, coordinate))}`, ""]);
  }
  for (const group of layout.groups ?? []) {
    const number = Math.floor((Number(offset) - (group.start ?? 0)) / group.elements);
    if (number >= 0 && group.kind !== "vnni" && group.kind !== "simd") facts.push([`${group.kind} ${number}`, ""]);
  }
  if (coordinateAt(layout, offset)?.isShared) facts.push(["shared with other coordinates", "shared"]);
  return facts;
}

function byteText(layout, offset) {
  const bits = layout.element_bits;
  if (bits >= 8) return `byte ${BigInt(offset) * BigInt(bits / 8)}`;
  const position = BigInt(offset) * BigInt(bits);
  return `byte ${position / 8n}, bit ${position % 8n}`;
}

function sentence(panel, selection, colorLayout) {
  const { layout } = panel;
  if (selection.coordinate === null) return filledText(panel, selection);
  const names = selection.coordinate.map((x, axis) => `${layout.names[axis]} ${x}`).join(", ");
  const facts = factsOf(panel, selection, colorLayout)
    .map(([text]) => text)
    .join(", ");
  return `${names}: offset ${formulaAt(layout, selection.coordinate)}, ${facts}.`;
}

/** Return a new element with a class and a text. */
export function element(tag, name = "", text = "") {
  const result = document.createElement(tag);
  if (name !== "") result.className = name;
  if (text !== "") result.textContent = text;
  return result;
}

/** Return the coordinate that a text such as `1, 16, 4, 3` names in a layout, or a sentence on what is wrong. */
export function parseCoordinate(layout, text) {
  const parts = text
    .trim()
    .replace(/^[([]|[)\]]$/g, "")
    .split(/[\s,]+/)
    .filter((part) => part !== "");
  if (parts.length !== layout.dims.length) return `a coordinate has ${layout.dims.length} numbers, one for each axis`;
  const wrong = parts.find((part) => !/^\d+$/.test(part));
  if (wrong !== undefined) return `${wrong} is no whole number`;
  const axis = parts.findIndex((part, i) => BigInt(part) >= BigInt(layout.padded_dims[i]));
  if (axis >= 0) return `${layout.names[axis]}=${parts[axis]} is outside 0 to ${layout.padded_dims[axis] - 1}`;
  return parts.map(Number);
}

/** Return the offset that a text names in a layout, or a sentence on what is wrong. */
export function parseOffset(layout, text) {
  if (!/^\s*-?\d+\s*$/.test(text)) return `${text.trim()} is no whole number`;
  const offset = Number(text);
  const start = Number(layout.memory_start);
  const stop = start + Number(layout.memory_elements);
  return offset >= start && offset < stop ? offset : `offset ${offset} is outside ${start} to ${stop - 1}`;
}
