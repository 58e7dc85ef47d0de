/**
 * Text fields whose mistakes are marked under the exact column, with texts to click that would be right.
 */

import { element } from "./readout.js";

let fieldCount = 0;

export class Field {
  /**
   * Create a field with a label in `parent`. `options` has `value`, `label`, `placeholder`, `list` (the id of a
   * datalist), `size`, and `onInput`, which gets the new text.
   */
  constructor(parent, options) {
    fieldCount += 1;
    this.onInput = options.onInput;
    this.root = element("div", `field ${options.name ?? ""}`.trim());
    this.label = element("label", "", options.label);
    this.input = element("input");
    this.input.id = `field-${fieldCount}`;
    this.label.htmlFor = this.input.id;
    Object.assign(this.input, { type: "text", spellcheck: false, autocomplete: "off", value: options.value ?? "" });
    this.input.setAttribute("autocapitalize", "none");
    if (options.placeholder) this.input.placeholder = options.placeholder;
    if (options.list) this.input.setAttribute("list", options.list);
    const frame = element("div", "frame");
    this.mark = element("div", "mark");
    this.mark.setAttribute("aria-hidden", "true");
    this.problem = element("div", "problem");
    this.problem.id = `problem-${fieldCount}`;
    frame.append(this.input, this.mark);
    this.root.append(this.label, frame, this.problem);
    parent.append(this.root);
    this.input.addEventListener("input", () => this.onInput(this.input.value));
    this.input.addEventListener("scroll", () => this._followScroll());
  }

  get value() {
    return this.input.value;
  }

  /** Show a text that was not typed, such as that of a link. */
  set value(text) {
    if (this.input.value !== text) this.input.value = text;
  }

  /** Show what is wrong; `repair` is called with the request of a repair that is clicked. */
  showError(error, repair) {
    this.input.setAttribute("aria-invalid", "true");
    this.input.setAttribute("aria-describedby", this.problem.id);
    this._showMark(error);
    const column = error.column === null || error.column === undefined ? "" : `Column ${error.column + 1}: `;
    this.problem.replaceChildren(element("p", "message", column + error.message));
    if (error.repair) this.problem.append(element("p", "repair", error.repair));
    const repairs = error.repairs ?? [];
    const suggestions = repairs.length > 0 ? [] : (error.suggestions ?? []).filter((text) => text !== this.value);
    if (suggestions.length + repairs.length === 0) return;
    const question = error.message.includes("did you mean") ? "Use " : "Did you mean ";
    const choices = element("p", "choices", suggestions.length > 0 ? question : "This works: ");
    for (const text of suggestions) choices.append(this._choice(text, () => this._accept(text)));
    for (const { text, request } of repairs) choices.append(this._choice(text, () => repair(request)));
    this.problem.append(choices);
  }

  _choice(text, action) {
    const button = element("button", "choice", text);
    button.type = "button";
    button.addEventListener("click", action);
    return button;
  }

  _accept(text) {
    this.input.value = text;
    this.input.focus();
    this.onInput(text);
  }

  _showMark({ column, length }) {
    const hasColumn = column !== null && column !== undefined;
    const before = hasColumn ? this.value.slice(0, column) : "";
    const wrong = hasColumn ? this.value.slice(column, column + Math.max(1, length)) : this.value;
    this.mark.replaceChildren(element("span", "before", before), element("span", "wrong", wrong.padEnd(1, "\u00a0")));
    this._followScroll();
  }

  _followScroll() {
    this.mark.scrollLeft = this.input.scrollLeft;
  }

  /** Remove the marks of a mistake. */
  clearError() {
    this.input.removeAttribute("aria-invalid");
    this.input.removeAttribute("aria-describedby");
    this.mark.replaceChildren();
    this.problem.replaceChildren();
  }
}
