/**
 * The list of views of the first layout: reshape, permute and submemory, each with its fields and its result.
 */

import { Field } from "./fields.js";
import { element } from "./readout.js";

const PARTS = {
  reshape: [{ key: "dims", label: "Reshape to", placeholder: "2x17x20" }],
  permute: [{ key: "axes", label: "Permute to", placeholder: "n,h,w,c" }],
  submemory: [
    { key: "dims", label: "Submemory of", placeholder: "1x8x5x4" },
    { key: "offsets", label: "from", placeholder: "0,8,0,0" },
  ],
};

export class ViewsEditor {
  /** `onChange` is called with the new list of views. */
  constructor(onChange) {
    this.list = document.getElementById("views");
    this.onChange = onChange;
    this.views = [];
    this.rows = [];
    for (const button of document.querySelectorAll("[data-view]")) {
      button.addEventListener("click", () => this._add(button.dataset.view));
    }
  }

  /** Show these views. Rows that have the right fields stay, so that a field keeps its focus. */
  show(views) {
    this.views = views.map((view) => ({ ...view }));
    const isSame = views.length === this.rows.length && views.every((view, i) => view.op === this.rows[i].op);
    if (!isSame) {
      this.list.replaceChildren();
      this.rows = this.views.map((view, i) => this._row(view, i));
    }
    this.views.forEach((view, i) => {
      for (const [key, field] of Object.entries(this.rows[i].fields)) field.value = view[key];
    });
  }

  _row(view, index) {
    const root = element("li", "view");
    const fields = {};
    for (const { key, label, placeholder } of PARTS[view.op]) {
      const onInput = (text) => {
        this.views[index][key] = text;
        if (key === "dims") delete this.views[index].digits;
        this.onChange(this.views);
      };
      fields[key] = new Field(root, { label, placeholder, value: view[key], onInput });
    }
    const result = element("output", "result");
    const remove = element("button", "remove", "Remove");
    remove.type = "button";
    remove.setAttribute("aria-label", `Remove view ${index + 1}, ${view.op}`);
    remove.addEventListener("click", () => this._remove(index));
    root.append(remove, result);
    this.list.append(root);
    return { op: view.op, root, fields, result };
  }

  _add(op) {
    const view = { op };
    for (const { key } of PARTS[op]) view[key] = this.initialText(op, key);
    const views = [...this.views, view];
    this.show(views);
    this.onChange(this.views);
    const [first] = Object.values(this.rows[this.rows.length - 1].fields);
    first.input.focus();
    first.input.select();
  }

  /** Return the text that a new view begins with; it is the view that changes nothing. */
  initialText(op, key) {
    const { dims, names } = this.layout ?? { dims: [], names: [] };
    if (op === "permute") return names.join(",");
    return key === "offsets" ? dims.map(() => 0).join(",") : dims.join("x");
  }

  _remove(index) {
    const views = this.views.filter((_, i) => i !== index);
    this.rows = [];
    this.show(views);
    this.onChange(this.views);
    document.querySelector("[data-view]").focus();
  }

  /** Show the results of the views of a layout. */
  showResults(layout) {
    this.layout = layout;
    this.rows.forEach(({ fields, result }, i) => {
      for (const field of Object.values(fields)) field.clearError();
      result.textContent = layout.views[i] ? `${layout.views[i].call}  →  ${layout.views[i].text}` : "";
    });
  }

  /** Show what is wrong in the view that an error names. */
  showError(error, repair) {
    const row = this.rows[error.view ?? 0];
    if (row === undefined) return;
    const field = row.fields[error.part] ?? Object.values(row.fields)[0];
    field.showError(error, repair);
    this.rows.slice(error.view ?? 0).forEach(({ result }) => (result.textContent = ""));
  }

  clearErrors() {
    for (const { fields } of this.rows) Object.values(fields).forEach((field) => field.clearError());
  }
}
