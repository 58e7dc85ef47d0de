/**
 * The page: connects fields, panes, readout and cards, and keeps its state in the fragment of the URL.
 */

import { connect } from "./api.js";
import { showFacts, showMarks, showPaddedComputation, showReorder, summaryOf } from "./details.js";
import { EXAMPLES } from "./examples.js";
import { Field } from "./fields.js";
import { MemoryPane, ReorderLines, TensorPane } from "./panes.js";
import { element, parseCoordinate, parseOffset, Readout } from "./readout.js";
import { savedState, showSavedMenus } from "./saved_menu.js";
import { Selection } from "./selection.js";
import { connectShareMenu } from "./share_menu.js";
import { destinationRequest, encodeState, parseState, sourceRequest } from "./state.js";
import { connectThemeMenu } from "./theme_menu.js";
import { ViewsEditor } from "./views_editor.js";

/** Milliseconds after the last key before the server is asked. */
const TYPING_PAUSE = 120;

const GROUP_NAMES = {
  "cache line": "cache lines",
  page: "pages",
  simd: "SIMD groups",
  vnni: "VNNI groups",
  jumps: "jumps",
};

const byId = (id) => document.getElementById(id);

class Explorer {
  constructor() {
    this.source = connect();
    this.state = this._stateOf(location.hash);
    this.panels = [];
    this.visiblePanes = () => this.panes.filter((pane) => !pane.root.hidden && pane.scene !== null);
    this.visibleLines = () => (this.panels.length > 1 ? this.lines : null);
    this.selection = new Selection();
    this._createPanes();
    this._createFields();
    this._createOptions();
    this._createTools();
    this.readout = new Readout({
      coordinate: (text) => this._goTo(parseCoordinate(this.panels[0].layout, text), (at) => ({ coordinate: at })),
      offset: (text) => this._goTo(parseOffset(this.panels[0].layout, text), (at) => this.sourcePane.selectionOf(at)),
    });
    this.selection.listen((current, isRevealed) => this._selected(current, isRevealed));
    window.addEventListener("hashchange", () => this._followLink());
  }

  _stateOf(fragment) {
    return this.source.canParse ? parseState(fragment) : savedState(this.source.panels, fragment);
  }

  _createPanes() {
    this.tensorPane = new TensorPane(byId("tensor-pane"), "tensor", this.selection);
    this.sourcePane = new MemoryPane(byId("source-pane"), "source", this.selection);
    this.destinationPane = new MemoryPane(byId("destination-pane"), "destination", this.selection);
    this.lines = new ReorderLines(
      byId("lines").firstElementChild,
      this.sourcePane,
      this.destinationPane,
      this.selection,
    );
    this.panes = [this.tensorPane, this.sourcePane, this.destinationPane];
  }

  // Fields

  _createFields() {
    if (!this.source.canParse) {
      this._offerSavedLayouts();
      return;
    }
    const field = (parent, key, label, more = {}) =>
      new Field(byId(parent), { label, name: key, onInput: (text) => this._typed(key, text), ...more });
    this.fields = {
      layout: field("source-fields", "layout", "Layout", { list: "known-layouts", placeholder: "nChw8c" }),
      dims: field("source-fields", "dims", "Dims", { placeholder: "2x17x5x4" }),
      dataType: field("source-fields", "dataType", "Data type", { list: "known-types" }),
      names: field("source-fields", "names", "Names of axes", { placeholder: "of the layout" }),
      layout2: field("destination-fields", "layout2", "Second layout", { list: "known-layouts", placeholder: "nhwc" }),
      dataType2: field("destination-fields", "dataType2", "Its data type", {
        list: "known-types",
        placeholder: "the same",
      }),
    };
    this.views = new ViewsEditor((views) => this._typed("views", views));
    byId("inputs").addEventListener("submit", (event) => event.preventDefault());
    byId("compare").addEventListener("click", () => this._toggleComparison());
  }

  /** Offer the layouts that the page was saved with in the place of fields. */
  _offerSavedLayouts() {
    const { panels } = this.source;
    document.body.classList.add("saved");
    this.fields = {};
    this.views = new ViewsEditor(() => {});
    byId("inputs").hidden = panels.length === 1;
    showSavedMenus(byId("source-fields"), panels, this.state, (changes) => {
      Object.assign(this.state, changes);
      this.update();
    });
  }

  _typed(key, value) {
    this.state[key] = value;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.update(), TYPING_PAUSE);
  }

  _toggleComparison() {
    if (this.state.layout2 !== null) this.state.layout2 = null;
    else this.state.layout2 = secondLayout(this.panels[0]?.layout);
    this._showState();
    this.update();
    if (this.state.layout2 !== null) this.fields.layout2.input.focus();
  }

  _showState() {
    for (const [key, field] of Object.entries(this.fields)) field.value = this.state[key] ?? "";
    this.views.show(this.state.views);
    byId("labels").value = this.state.labels;
    const isComparison = this.state.layout2 !== null;
    byId("destination-fields").hidden = !isComparison || !this.source.canParse;
    byId("compare").setAttribute("aria-pressed", String(isComparison));
    byId("compare").textContent = isComparison ? "Remove the second layout" : "Compare with a second layout";
  }

  // Options and tools

  _createOptions() {
    byId("labels").addEventListener("change", (event) => {
      this.state.labels = event.target.value;
      this._redraw();
    });
  }

  _createTools() {
    for (const [name, fragment] of EXAMPLES) byId("examples").append(new Option(name, fragment));
    byId("examples").addEventListener("change", (event) => {
      if (event.target.value !== "") this._open(event.target.value);
      event.target.value = "";
    });
    byId("examples-tool").hidden = !this.source.canParse;
    byId("show-keys").addEventListener("click", () => byId("keys").showModal());
    connectShareMenu(byId("share"), this);
    connectThemeMenu(byId("theme"), () => this._redraw());
  }

  // Layouts

  /** Ask for the layouts of the state, and show them, or what is wrong in a field. */
  async update() {
    clearTimeout(this.timer);
    this.pending?.abort();
    this.pending = new AbortController();
    const { signal } = this.pending;
    try {
      const panels = await this._loadPanels(signal);
      if (signal.aborted) return;
      byId("banner").hidden = true;
      if (panels === null) return;
      this._showPanels(panels);
      await this._loadReorder(signal);
    } catch (error) {
      if (error.name !== "AbortError") this._showBanner(error);
    }
  }

  /** Return the panels of the state; null if a field holds a mistake, which it then shows. */
  async _loadPanels(signal) {
    const request = sourceRequest(this.state);
    const first = await this.source.layout(request, signal);
    if (signal.aborted) return null;
    this._clearErrors();
    document.body.classList.toggle("stale", Boolean(first.error));
    document.body.classList.toggle("blank", Boolean(first.error) && this.panels.length === 0);
    if (first.error) return this._showError(first.error, "source");
    const panels = [{ side: "source", layout: first.layout, request }];
    if (this.state.layout2 === null) return panels;
    const other = destinationRequest(this.state, first.layout);
    const second = await this.source.layout(other, signal);
    if (signal.aborted) return null;
    if (second.error) this._showError(second.error, "destination");
    else panels.push({ side: "destination", layout: second.layout, request: other });
    return panels;
  }

  async _loadReorder(signal) {
    if (this.panels.length < 2) {
      showReorder(byId("reorder-card"), null);
      return;
    }
    const answer = await this.source.reorder(this.panels[0].request, this.panels[1].request, signal);
    if (signal.aborted) return;
    showReorder(byId("reorder-card"), answer.error ? { "no reorder": answer.error.message } : answer);
  }

  _clearErrors() {
    for (const field of Object.values(this.fields)) field.clearError();
    this.views.clearErrors();
  }

  /** Show a mistake below its field; return null. */
  _showError(error, side) {
    const repair = (request) => this._repair(request);
    const keys = { layout: "layout", dims: "dims", data_type: "dataType", names: "names" };
    if (side === "destination") {
      const field = error.field === "data_type" ? this.fields.dataType2 : this.fields.layout2;
      field.showError({ ...error, repairs: [] }, repair);
    } else if (error.field === "views") this.views.showError(error, repair);
    else (this.fields[keys[error.field]] ?? this.fields.layout).showError(error, repair);
    return null;
  }

  /** Use the request of a repair. */
  _repair(request) {
    const { layout, dims, data_type: dataType, views } = request;
    Object.assign(this.state, { layout, dims, dataType: dataType ?? this.state.dataType, views: [...(views ?? [])] });
    this._showState();
    this.update();
  }

  _showBanner(error) {
    const banner = byId("banner");
    banner.hidden = false;
    const advice = "it may have ended. Start it again; what is drawn stays.";
    banner.textContent = `No answer from inlay explore: ${advice} (${error.message})`;
  }

  _showPanels(panels) {
    this.panels = panels;
    this.views.showResults(panels[0].layout);
    const isComparison = panels.length > 1;
    byId("panes").classList.toggle("comparison", isComparison);
    byId("lines").hidden = byId("destination-pane").hidden = !isComparison;
    byId("source-name").textContent = isComparison ? "Source" : "Memory";
    document.title = `${panels.map(({ layout }) => layout.title).join(" to ")} – Inlay explorer`;
    showFacts(byId("facts-card").querySelector("dl"), panels[0].layout);
    showPaddedComputation(byId("padding-card"), panels[0].layout);
    byId("key-padding").hidden = !panels.some(({ layout }) => layout.padding_elements > 0);
    byId("key-gap").hidden = !panels.some(({ layout }) => layout.gap_elements !== 0);
    this._showMarkOptions();
    this._selectInitial();
    this._redraw();
  }

  /** Select the element of the link, or keep the one that is selected, or take the last one. */
  _selectInitial() {
    const { dims, padded_dims: padded } = this.panels[0].layout;
    const fits = (at) => at !== null && at.length === dims.length && at.every((x, axis) => x < padded[axis]);
    const at = this.state.at ?? this.selection.chosen?.coordinate ?? null;
    const last = dims.map((dim) => Number(dim) - 1);
    this.state.at = null;
    if (fits(at)) this.selection.choose({ coordinate: at }, false);
    else this.selection.choose(last.some((x) => x < 0) ? null : { coordinate: last }, false);
  }

  _showMarkOptions() {
    const { layout } = this.panels[0];
    const options = (layout.groups ?? []).map(({ kind, label }) => [kind, label]);
    if (layout.marks?.length > 0) options.push(["jumps", "jumps between digits"]);
    const set = byId("marks");
    const boxes = options.map(([kind, label]) => {
      const box = element("label");
      const input = Object.assign(element("input"), {
        type: "checkbox",
        value: kind,
        checked: this.state.marks.includes(kind),
      });
      input.addEventListener("change", () => this._mark(kind, input.checked));
      box.append(input, element("span", `swatch ${kind.replace(" ", "-")}`), GROUP_NAMES[kind] ?? kind);
      box.title = label;
      return box;
    });
    set.replaceChildren(set.querySelector("legend"), ...boxes);
  }

  _mark(kind, isShown) {
    this.state.marks = this.state.marks.filter((mark) => mark !== kind);
    if (isShown) this.state.marks.push(kind);
    this._redraw();
  }

  // Drawing

  /** Draw all panes again, for other colors, labels or marks. */
  _redraw() {
    if (this.panels.length === 0) return;
    const [first, second] = this.panels;
    const scene = ({ layout }) => ({
      layout,
      labels: this.state.labels,
      colorLayout: first.layout,
      groups: (layout.groups ?? []).filter((group) => this.state.marks.includes(group.kind)),
    });
    const isShown = (mark) => this.state.marks.includes("jumps") || this.state.marks.includes(mark.label);
    const marks = (first.layout.marks ?? []).filter(isShown);
    const note = undrawable(first.layout);
    for (const summary of document.querySelectorAll(".pane .summary")) summary.textContent = note ?? "";
    showMarks(
      byId("marks-card"),
      first.layout,
      isShown,
      (mark) => this._toggleMark(mark),
      (mark) => this._visit(mark),
    );
    this._showKept();
    if (note !== null) {
      for (const pane of this.panes) pane.hide();
      return;
    }
    this.tensorPane.marks = this.sourcePane.marks = marks;
    this._showPane(this.tensorPane, scene(first), `${first.layout.title}, ${summaryOf(first.layout)}`);
    this._showPane(this.sourcePane, scene(first), `${first.layout.title}, ${first.layout.size_text}`);
    if (second)
      this._showPane(this.destinationPane, scene(second), `${second.layout.title}, ${second.layout.size_text}`);
    this.lines.redraw();
  }

  _showPane(pane, scene, summary) {
    const text = pane.root.querySelector(".summary");
    text.textContent = text.title = summary;
    pane.show(scene);
  }

  _toggleMark(mark) {
    const { marks } = this.state;
    if (marks.includes("jumps")) {
      const others = this.panels[0].layout.marks.map(({ label }) => label).filter((label) => label !== mark.label);
      this.state.marks = [...marks.filter((kind) => kind !== "jumps"), ...others];
      this._showMarkOptions();
      this._redraw();
    } else this._mark(mark.label, !marks.includes(mark.label));
  }

  _visit(mark) {
    this.selection.choose({ coordinate: mark.coordinate });
    for (const pane of this.visiblePanes()) pane.reveal(this.selection.current);
    byId("mark-list").querySelectorAll("button")[this.panels[0].layout.marks.indexOf(mark)]?.focus();
  }

  // Selection

  _selected(current, isRevealed) {
    if (this.panels.length === 0) return;
    this.readout.show(this.panels, current);
    for (const pane of this.panes) pane.viewport.redrawOverlay();
    this.lines.redraw();
    if (this.selection.hovered === null) this._showKept();
    if (!isRevealed) return;
    // Other views follow keys and clicks, so that both ends of the link are visible.
    const others = this.visiblePanes().filter((pane) => pane.scroller !== document.activeElement);
    for (const pane of others) pane.reveal(current);
  }

  /** Select what was typed; return null, or the sentence on what is wrong with it. */
  _goTo(parsed, select) {
    if (typeof parsed === "string") return parsed;
    this.selection.choose(select(parsed));
    return null;
  }

  // Links

  /** Write the state into the URL. */
  _showKept() {
    const at = this.selection.chosen?.coordinate ?? null;
    const fragment = encodeState({ ...this.state, at });
    if (location.hash.slice(1) === fragment) return;
    this.ownFragment = `#${fragment}`;
    try {
      history.replaceState(null, "", this.ownFragment);
    } catch {
      // A page in a file may not change its history in some browsers. The drawings do not depend on it.
    }
  }

  _followLink() {
    if (location.hash === this.ownFragment) return;
    this.state = this._stateOf(location.hash);
    this.selection.chosen = null;
    this._showState();
    this.update();
  }

  _open(fragment) {
    this.state = parseState(fragment);
    this.selection.chosen = null;
    this._showState();
    this.update();
  }

  /** Show the state for the first time. */
  async start() {
    this._showState();
    this.source.choices().then(({ data_types: types, tags, names }) => {
      fillList("known-types", types);
      fillList("known-layouts", [...tags, ...(names ?? [])]);
    });
    const isLinked = this.state.at !== null;
    await this.update();
    performance.mark("inlay-first-drawing");
    if (isLinked) for (const pane of this.visiblePanes()) pane.reveal(this.selection.current);
  }
}

/** Return a layout to compare with: channels last or transposed, or the plain one if the first is that already. */
function secondLayout(layout) {
  const tags = { 2: ["ba", "ab"], 3: ["nwc", "ncw"], 4: ["nhwc", "nchw"], 5: ["ndhwc", "ncdhw"] };
  const [usual, plain] = tags[layout?.dims.length] ?? ["", ""];
  return layout?.title === usual ? plain : usual;
}

/** Return why a layout cannot be drawn, or null if it can. */
function undrawable(layout) {
  const empty = layout.names.filter((_, axis) => Number(layout.padded_dims[axis]) === 0);
  if (empty.length > 0) return `no elements to draw: ${empty.join(", ")} has no coordinates`;
  const isHuge =
    typeof layout.memory_elements === "string" || layout.padded_dims.some((dim) => typeof dim === "string");
  return isHuge ? "too large to draw: more than 2**53 elements of memory" : null;
}

function fillList(id, texts) {
  byId(id).replaceChildren(...texts.map((text) => new Option("", text)));
}

new Explorer().start();
