/**
 * A pane that scrolls over content of any size and draws only what is visible.
 *
 * A browser limits the size of an element to some millions of pixels. Content beyond that has a scroll bar that stands
 * for more pixels than it has; the wheel then still moves by single pixels.
 */

import { CanvasSurface } from "./surface.js";

const LARGEST_ELEMENT = 4_000_000;

export class Viewport {
  /**
   * `element` is the focusable element that scrolls; `painter` has `size()`, the size of the content, `paint(surface,
   * view)` for the cells, and `paintOverlay(surface, view)` for marks that change with the pointer. `view` is the
   * visible part of the content: `{left, top, width, height}`.
   */
  constructor(element, painter) {
    this.element = element;
    this.painter = painter;
    this.spacer = append(element, "div", "spacer");
    const layers = append(element, "div", "layers");
    this.layers = layers;
    this.cells = append(layers, "canvas", "cells");
    this.overlay = append(layers, "canvas", "overlay");
    this.content = { width: 0, height: 0 };
    this.exact = { left: 0, top: 0 };
    this.pending = { cells: false, overlay: false };
    this.onScroll = () => {};
    this.onResize = () => {};
    element.addEventListener("scroll", () => this._scrolled());
    element.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    new ResizeObserver(() => this._resized()).observe(element);
  }

  get width() {
    return this.element.clientWidth;
  }

  get height() {
    return this.element.clientHeight;
  }

  /** The visible part of the content. */
  get view() {
    return { left: this.exact.left, top: this.exact.top, width: this.width, height: this.height };
  }

  /** Read the size of the content again, and draw all. */
  refresh() {
    this.content = this.painter.size();
    this.spacer.style.width = `${Math.min(this.content.width, LARGEST_ELEMENT)}px`;
    this.spacer.style.height = `${Math.min(this.content.height, LARGEST_ELEMENT)}px`;
    this._scrolled();
    this.redraw();
  }

  /** Draw the cells and the overlay with the next frame. */
  redraw() {
    this.pending.cells = true;
    this.redrawOverlay();
  }

  /** Draw the overlay with the next frame. */
  redrawOverlay() {
    if (!this.pending.overlay) requestAnimationFrame(() => this._draw());
    this.pending.overlay = true;
  }

  _draw() {
    const { pending, view } = this;
    this.pending = { cells: false, overlay: false };
    if (view.width === 0 || view.height === 0) return;
    if (pending.cells) this._drawOn(this.cells, (surface) => this.painter.paint(surface, view));
    this._drawOn(this.overlay, (surface) => this.painter.paintOverlay(surface, view));
  }

  _drawOn(canvas, draw) {
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${this.height}px`;
    }
    const surface = new CanvasSurface(canvas.getContext("2d"), ratio);
    surface.clear(this.width, this.height);
    draw(surface);
  }

  _factor(side) {
    const [length, visible] = side === "top" ? [this.content.height, this.height] : [this.content.width, this.width];
    return length <= LARGEST_ELEMENT ? 1 : (length - visible) / (LARGEST_ELEMENT - visible);
  }

  _scrolled() {
    for (const [side, property] of [
      ["left", "scrollLeft"],
      ["top", "scrollTop"],
    ]) {
      const factor = this._factor(side);
      const position = this.element[property] * factor;
      // A scroll bar that stands for more pixels than it has rounds the position that the wheel has set.
      if (factor === 1 || Math.abs(position - this.exact[side]) > factor) this.exact[side] = position;
    }
    this.redraw();
    this.onScroll();
  }

  _wheel(event) {
    const factor = this._factor("top");
    if (factor === 1 || event.ctrlKey || event.deltaY === 0) return;
    event.preventDefault();
    const most = this.content.height - this.height;
    this.exact.top = Math.min(most, Math.max(0, this.exact.top + event.deltaY * (event.deltaMode === 1 ? 20 : 1)));
    this.element.scrollTop = this.exact.top / factor;
    this.redraw();
    this.onScroll();
  }

  _resized() {
    this.layers.style.width = `${this.width}px`;
    this.layers.style.height = `${this.height}px`;
    this.onResize();
    this.refresh();
  }

  /** Scroll as little as needed so that a box of the content is visible, with a margin. */
  reveal(x, y, width, height) {
    const move = (side, property, at, size, visible) => {
      const margin = Math.max(0, Math.min(40, (visible - size) / 2));
      const now = this.exact[side];
      let next = now;
      if (at < now) next = at - margin;
      else if (at + size > now + visible) next = at + size - visible + margin;
      if (next !== now) this._moveTo(side, property, next, Infinity);
    };
    move("left", "scrollLeft", x, width, this.width);
    move("top", "scrollTop", y, height, this.height);
    this.redraw();
    this.onScroll();
  }

  /** Scroll so that a point of the content is in the middle of the pane. */
  centerOn(x, y) {
    this._moveTo("left", "scrollLeft", x - this.width / 2, this.content.width - this.width);
    this._moveTo("top", "scrollTop", y - this.height / 2, this.content.height - this.height);
    this.redraw();
    this.onScroll();
  }

  _moveTo(side, property, position, most) {
    this.exact[side] = Math.max(0, Math.min(position, most));
    this.element[property] = this.exact[side] / this._factor(side);
  }

  /** Scroll to the start of the content. */
  scrollToStart() {
    this.exact = { left: 0, top: 0 };
    this.element.scrollLeft = this.element.scrollTop = 0;
  }

  /** Return the point of the content under a pointer event. */
  pointOf(event) {
    const bounds = this.element.getBoundingClientRect();
    return { x: event.clientX - bounds.left + this.exact.left, y: event.clientY - bounds.top + this.exact.top };
  }
}

function append(parent, tag, name) {
  const child = document.createElement(tag);
  child.className = name;
  child.setAttribute("aria-hidden", "true");
  parent.append(child);
  return child;
}
