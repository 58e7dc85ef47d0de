/**
 * Drawing surfaces with the same methods: a canvas on the screen or for PNG, and a text of SVG.
 *
 * Positions are in CSS pixels. Colors are CSS colors.
 */

const MONOSPACE = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const HATCH = 6;

export class CanvasSurface {
  /** Draw on `context`, whose canvas has `ratio` pixels for each CSS pixel. */
  constructor(context, ratio) {
    this.context = context;
    this.ratio = ratio;
    this.hatches = new Map();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.textBaseline = "middle";
  }

  clear(width, height) {
    this.context.clearRect(0, 0, width, height);
  }

  fill(x, y, width, height, color, alpha = 1) {
    this.context.globalAlpha = alpha;
    this.context.fillStyle = color;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  hatch(x, y, width, height, color) {
    this.context.save();
    this.context.fillStyle = this._hatchOf(color);
    this.context.fillRect(x, y, width, height);
    this.context.restore();
  }

  _hatchOf(color) {
    let pattern = this.hatches.get(color);
    if (pattern === undefined) {
      const size = HATCH * this.ratio;
      const tile = document.createElement("canvas");
      tile.width = tile.height = Math.max(1, Math.round(size));
      const context = tile.getContext("2d");
      context.strokeStyle = color;
      context.lineWidth = 1.3 * this.ratio;
      context.beginPath();
      for (const shift of [-size, 0, size]) {
        context.moveTo(shift - 1, size + 1);
        context.lineTo(shift + size + 1, -1);
      }
      context.stroke();
      pattern = this.context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / this.ratio));
      this.hatches.set(color, pattern);
    }
    return pattern;
  }

  frame(x, y, width, height, color, lineWidth = 1, dash = []) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.setLineDash(dash);
    context.strokeRect(x, y, width, height);
    context.setLineDash([]);
  }

  /** Draw a line through points `[x, y]`. */
  line(points, color, lineWidth = 1, alpha = 1) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.globalAlpha = alpha;
    context.beginPath();
    points.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    context.stroke();
    context.globalAlpha = 1;
  }

  /** Draw a curve from point to point; `bend` is the pair of its control points. */
  curve(from, to, bend, color, lineWidth = 1, alpha = 1) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = lineWidth;
    context.globalAlpha = alpha;
    context.beginPath();
    context.moveTo(...from);
    context.bezierCurveTo(...bend[0], ...bend[1], ...to);
    context.stroke();
    context.globalAlpha = 1;
  }

  /** Write `words` with their middle line at `y`; `align` is left, center or right. */
  text(x, y, words, color, size = 12, align = "left", isBold = false) {
    const { context } = this;
    const font = `${isBold ? "600 " : ""}${size}px ${MONOSPACE}`;
    if (this.font !== font) {
      context.font = this.font = font;
    }
    context.fillStyle = color;
    context.textAlign = align;
    context.fillText(words, x, y + 0.5);
  }

  /** Run `draw` with the origin at (x, y), inside a box of the given size. */
  inside(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    this.context.translate(x, y);
    draw();
    this.context.restore();
    this.font = undefined;
  }
}

export class SvgSurface {
  constructor() {
    this.parts = [];
    this.definitions = [];
    this.hatches = new Map();
    this.clips = 0;
  }

  fill(x, y, width, height, color, alpha = 1) {
    const opacity = alpha === 1 ? "" : ` fill-opacity="${alpha}"`;
    this.parts.push(`<rect${box(x, y, width, height)} fill="${color}"${opacity}/>`);
  }

  hatch(x, y, width, height, color) {
    if (!this.hatches.has(color)) {
      const name = `hatch-${this.hatches.size}`;
      this.hatches.set(color, name);
      this.definitions.push(
        `<pattern id="${name}" width="4.24" height="4.24" patternUnits="userSpaceOnUse" ` +
          `patternTransform="rotate(45)"><rect width="1.3" height="4.24" fill="${color}"/></pattern>`,
      );
    }
    this.parts.push(`<rect${box(x, y, width, height)} fill="url(#${this.hatches.get(color)})"/>`);
  }

  frame(x, y, width, height, color, lineWidth = 1, dash = []) {
    const dashes = dash.length > 0 ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<rect${box(x, y, width, height)} fill="none"${stroke(color, lineWidth, 1)}${dashes}/>`);
  }

  line(points, color, lineWidth = 1, alpha = 1) {
    const path = points.map(([x, y], i) => `${i === 0 ? "M" : "L"}${round(x)} ${round(y)}`).join("");
    this.parts.push(`<path d="${path}" fill="none"${stroke(color, lineWidth, alpha)}/>`);
  }

  curve(from, to, bend, color, lineWidth = 1, alpha = 1) {
    const [start, first, second, end] = [from, ...bend, to].map((point) => point.map(round).join(" "));
    this.parts.push(`<path d="M${start}C${first} ${second} ${end}" fill="none"${stroke(color, lineWidth, alpha)}/>`);
  }

  text(x, y, words, color, size = 12, align = "left", isBold = false) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const weight = isBold ? ' font-weight="600"' : "";
    this.parts.push(
      `<text x="${round(x)}" y="${round(y + size * 0.36)}" fill="${color}" font-size="${size}" ` +
        `text-anchor="${anchor}"${weight}>${escapeMarkup(words)}</text>`,
    );
  }

  inside(x, y, width, height, draw) {
    const name = `clip-${this.clips}`;
    this.clips += 1;
    this.definitions.push(
      `<clipPath id="${name}"><rect width="${round(width)}" height="${round(height)}"/></clipPath>`,
    );
    this.parts.push(`<g transform="translate(${round(x)} ${round(y)})" clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  /** Return the whole document, with a title and a description for readers that do not see it. */
  finish(width, height, title, description) {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 ${round(width)} ${round(height)}" ` +
      `width="${round(width)}" height="${round(height)}" font-family='${MONOSPACE}'>\n` +
      `<title>${escapeMarkup(title)}</title>\n<desc>${escapeMarkup(description)}</desc>\n` +
      `<defs>${this.definitions.join("")}</defs>\n${this.parts.join("\n")}\n</svg>\n`
    );
  }
}

function box(x, y, width, height) {
  return ` x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}"`;
}

function stroke(color, width, alpha) {
  return ` stroke="${color}" stroke-width="${width}"${alpha === 1 ? "" : ` stroke-opacity="${alpha}"`}`;
}

function round(value) {
  return Math.round(value * 10) / 10;
}

/** Return `text` with the characters that markup reserves replaced. */
function escapeMarkup(text) {
  const names = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return String(text).replace(/[&<>"']/g, (character) => names[character]);
}
