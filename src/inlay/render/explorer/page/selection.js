/**
 * The selected element: the one under the pointer, or else the one that was chosen by a click or a key.
 *
 * A selection is `{coordinate}` for an element or padding, or `{coordinate: null, offset, side}` for an offset in a gap
 * of the memory `side`, which is "source" or "destination".
 */

export class Selection {
  constructor() {
    this.chosen = null;
    this.hovered = null;
    this.listeners = [];
  }

  /** The element to show, or null. */
  get current() {
    return this.hovered ?? this.chosen;
  }

  /** Call `listener` after each change, with the element to show, and true if views are to scroll to it. */
  listen(listener) {
    this.listeners.push(listener);
  }

  /** Choose an element; it stays selected when the pointer leaves. With `isRevealed`, views scroll to it. */
  choose(selection, isRevealed = true) {
    this.chosen = selection;
    this.hovered = null;
    this._notify(isRevealed);
  }

  /** Select the element under the pointer; null when the pointer leaves. */
  hover(selection) {
    if (isSame(selection, this.hovered)) return;
    this.hovered = selection;
    this._notify(false);
  }

  _notify(isRevealed) {
    for (const listener of this.listeners) listener(this.current, isRevealed);
  }
}

function isSame(a, b) {
  if (a === null || b === null) return a === b;
  return a.offset === b.offset && a.side === b.side && String(a.coordinate) === String(b.coordinate);
}
