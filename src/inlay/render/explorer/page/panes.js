/**
 * The panes of the page: tensor, memory of the source, memory of the destination, and the lines between these two.
 */

import { blockLetters, blocksOf, hasLetters } from "./blocks.js";
import { cellSize } from "./cells.js";
import { currentColors } from "./colors.js";
import { GridGeometry } from "./grid_geometry.js";
import { isMoveKey, moveInGrid, moveInStrip } from "./keyboard.js";
import { addressingOf, coordinateAt, offsetOf } from "./layout.js";
import { paintGrid, paintGridOverlay } from "./paint_grid.js";
import { bracketCount, notesWidth, paintStrip, paintStripOverlay } from "./paint_strip.js";
import { paintReorder } from "./reorder_lines.js";
import { StripGeometry } from "./strip_geometry.js";
import { CanvasSurface } from "./surface.js";
import { Viewport } from "./viewport.js";

/** Heights of cells that the zoom buttons choose from, in pixels. */
const HEIGHTS = [4, 6, 8, 10, 13, 16, 20, 24, 28, 34, 42];
const USUAL_HEIGHT = 24;
const TALLEST_TO_FIT = 34;
const LEAST_READABLE = 16;
/** Space above a row of memory for the letters of blocks. */
const LETTERS_HEIGHT = 8;
/** Space below a row of memory for one kind of brackets. */
const BRACKET_HEIGHT = 5;

/** Properties that the panes of the tensor and of memory have in common. */
class Pane {
  constructor(root, side, selection) {
    this.root = root;
    this.side = side;
    this.selection = selection;
    this.zoom = null;
    this.scene = null;
    this.marks = [];
    this.scroller = root.querySelector(".scroller");
    this.viewport = new Viewport(this.scroller, this);
    this.viewport.onResize = () => this.scene && this._place();
    for (const button of root.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => this._changeZoom(button.dataset.zoom));
    }
    this.scroller.addEventListener("pointermove", (event) => this._point(event, (at) => selection.hover(at)));
    this.scroller.addEventListener("pointerleave", () => selection.hover(null));
    this.scroller.addEventListener("click", (event) => this._point(event, (at) => at && selection.choose(at)));
    this.scroller.addEventListener("keydown", (event) => this._pressed(event));
    this.scroller.addEventListener("wheel", (event) => this._wheelZoom(event), { passive: false });
  }

  /** Show a scene: layout, colors and what the cells show. The view returns to the start for another layout. */
  show(scene) {
    const isNew = this.scene === null || this.scene.layout !== scene.layout;
    this.scene = { ...scene, colors: currentColors() };
    if (isNew) this.viewport.scrollToStart();
    this._place();
    this.viewport.refresh();
  }

  /** Show nothing. */
  hide() {
    this.scene = null;
    this.viewport.refresh();
  }

  size() {
    return this.scene?.geometry ?? { width: 0, height: 0 };
  }

  /** The height of cells: the zoom of the reader, or one that shows all if labels stay readable. */
  _place() {
    if (this.viewport.width === 0) return;
    if (this.zoom !== null) {
      this.scene.geometry = this._geometryFor(this.zoom);
      return;
    }
    const heights = HEIGHTS.filter((height) => height <= TALLEST_TO_FIT && height >= LEAST_READABLE).reverse();
    for (const height of heights) {
      this.scene.geometry = this._geometryFor(height);
      const { width, height: total } = this.scene.geometry;
      if (width <= this.viewport.width && total <= this.viewport.height) return;
    }
    this.scene.geometry = this._geometryFor(USUAL_HEIGHT);
  }

  _changeZoom(change) {
    const now = this.scene.geometry.cell.height;
    const i = HEIGHTS.findIndex((height) => height >= now);
    if (change === "fit") this.zoom = null;
    else this.zoom = HEIGHTS[Math.min(HEIGHTS.length - 1, Math.max(0, i + (change === "in" ? 1 : -1)))];
    const { view } = this.viewport;
    const center = this._selectionAt(view.left + view.width / 2, view.top + view.height / 2);
    this._place();
    this.viewport.refresh();
    if (center !== null) this._center(center);
  }

  /** Scroll so that an element is in the middle of the pane. */
  _center(selection) {
    const at = this._positionOf(selection);
    if (at !== null) this.viewport.centerOn(at.x, at.y);
  }

  /** Scroll so that the selected element is visible. */
  reveal(selection) {
    const at = this.scene?.geometry && selection !== null ? this._positionOf(selection) : null;
    if (at === null) return;
    const { width, height } = this.scene.geometry.cell;
    this.viewport.reveal(at.x, at.y, width, height);
  }

  _wheelZoom(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this._changeZoom(event.deltaY < 0 ? "in" : "out");
  }

  _point(event, use) {
    if (this.scene === null || this.scene.geometry === undefined) return;
    const { x, y } = this.viewport.pointOf(event);
    use(this._selectionAt(x, y));
  }

  _pressed(event) {
    if (event.key === "Escape") {
      this.selection.choose(null);
      return;
    }
    if (!isMoveKey(event) || this.scene === null) return;
    const next = this._moved(event);
    event.preventDefault();
    if (next === null) return;
    this.selection.choose(next);
    this.reveal(next);
  }

  paint(surface, view) {
    if (this.scene?.geometry) this._paint(surface, view);
  }

  paintOverlay(surface, view) {
    if (this.scene?.geometry) this._paintOverlay(surface, view);
  }

  _labelWidth() {
    const { layout, labels } = this.scene;
    if (labels === "coordinate") return layout.padded_dims.reduce((sum, dim) => sum + String(dim - 1).length + 1, -1);
    const count =
      labels === "offset" ? addressingOf(layout).high : layout.dims.reduce((product, dim) => product * dim, 1);
    return String(Math.max(1, Number(count) - 1)).length;
  }
}

export class TensorPane extends Pane {
  caption() {
    return "Tensor";
  }

  _geometryFor(height) {
    const { layout } = this.scene;
    const { inner } = blocksOf(layout);
    const blockOf = (axis) =>
      inner.reduce((size, digit) => (digit.axis === axis ? size * Number(digit.extent) : size), 1);
    const cell = cellSize(height, this._labelWidth(), lettersOf(layout));
    return new GridGeometry(layout.padded_dims.map(Number), blockOf, cell, this.viewport.width);
  }

  _paint(surface, view) {
    paintGrid(surface, view, this.scene);
  }

  _paintOverlay(surface, view) {
    const { current } = this.selection;
    paintGridOverlay(surface, view, this.scene, this.marks, isIn(this.scene.layout, current) ? current : null);
  }

  _selectionAt(x, y) {
    const coordinate = this.scene.geometry.coordinateAt(x, y);
    return coordinate === null ? null : { coordinate };
  }

  _moved(event) {
    const { current } = this.selection;
    const from = isIn(this.scene.layout, current) ? current.coordinate : null;
    const coordinate = moveInGrid(event, this.scene.geometry, from);
    return coordinate === null ? null : { coordinate };
  }

  _positionOf(selection) {
    return isIn(this.scene.layout, selection) ? this.scene.geometry.positionOf(selection.coordinate) : null;
  }
}

export class MemoryPane extends Pane {
  caption() {
    return this.side === "destination" ? "Destination memory" : "Memory";
  }

  _geometryFor(height) {
    const { layout, colorLayout, groups } = this.scene;
    const start = Number(layout.memory_start ?? 0);
    const stop = start + Number(layout.memory_elements);
    const cell = cellSize(height, this._labelWidth(), 0);
    const notes = cell.height >= LEAST_READABLE ? notesWidth(groups, stop) : 0;
    const { terms } = addressingOf(layout);
    const above = cell.height >= LEAST_READABLE && hasLetters(colorLayout) ? LETTERS_HEIGHT : 0;
    const below = BRACKET_HEIGHT * bracketCount(groups);
    return new StripGeometry(start, stop, terms, cell, this.viewport.width, { above, below, notes });
  }

  _paint(surface, view) {
    paintStrip(surface, view, this.scene);
  }

  _paintOverlay(surface, view) {
    paintStripOverlay(
      surface,
      view,
      this.scene,
      this.marks,
      this.selection.current,
      this.offsetOf(this.selection.current),
    );
  }

  /** Return the offset of a selection in this memory, or null. */
  offsetOf(selection) {
    if (selection === null) return null;
    if (selection.coordinate === null) return selection.side === this.side ? selection.offset : null;
    return isIn(this.scene.layout, selection) ? offsetOf(this.scene.layout, selection.coordinate) : null;
  }

  _selectionAt(x, y) {
    const offset = this.scene.geometry.offsetAt(x, y);
    return offset === null ? null : this.selectionOf(offset);
  }

  /** Return the selection of an offset: its element, or the gap. */
  selectionOf(offset) {
    const found = coordinateAt(this.scene.layout, offset);
    return found === null ? { coordinate: null, offset, side: this.side } : { coordinate: found.coordinate };
  }

  _moved(event) {
    const offset = moveInStrip(event, this.scene.geometry, this.offsetOf(this.selection.current));
    return offset === null ? null : this.selectionOf(offset);
  }

  _positionOf(selection) {
    const offset = this.offsetOf(selection);
    return offset === null ? null : this.scene.geometry.positionOf(offset);
  }
}

/** The lines between two memories. */
export class ReorderLines {
  constructor(canvas, source, destination, selection) {
    this.canvas = canvas;
    this.panes = [source, destination];
    this.selection = selection;
    this.isPending = false;
    for (const pane of this.panes) pane.viewport.onScroll = () => this.redraw();
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement);
  }

  get width() {
    return this.canvas.parentElement.clientWidth;
  }

  get height() {
    return this.panes[0].viewport.height;
  }

  /** Draw the lines with the next frame. */
  redraw() {
    if (this.isPending || this.canvas.parentElement.hidden) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      this._draw();
    });
  }

  _draw() {
    const ratio = window.devicePixelRatio || 1;
    const { canvas, width, height } = this;
    if (width === 0 || height === 0 || this.panes.some((pane) => !pane.scene?.geometry)) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.paint(new CanvasSurface(canvas.getContext("2d"), ratio));
  }

  /** Draw the lines on a surface. */
  paint(surface) {
    const ends = this.panes.map((pane) => ({ scene: pane.scene, view: pane.viewport.view }));
    const { current } = this.selection;
    const isBoth = current !== null && ends.every(({ scene }) => isIn(scene.layout, current));
    paintReorder(surface, this.width, this.height, ends, isBoth ? current.coordinate : null);
  }
}

/** Return the number of letters that name the last block; 0 if blocks need none. */
function lettersOf(layout) {
  return hasLetters(layout) ? blockLetters(blocksOf(layout).count - 1).length : 0;
}

function isIn(layout, selection) {
  if (selection === null || selection.coordinate === null) return false;
  const { coordinate } = selection;
  return coordinate.length === layout.dims.length && coordinate.every((x, axis) => x < layout.padded_dims[axis]);
}
