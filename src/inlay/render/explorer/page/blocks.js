/**
 * The partition of the elements of a layout into blocks, and the color and the letters of each block.
 *
 * Elements that agree in the outer digits are one block. The outer digits are the leading digits of the axes; a plain
 * layout has no inner digits, so there the two innermost digits are inside a block.
 */

import { addressingOf, digitValue } from "./layout.js";

/** Number of colors that blocks take in turn; style.css defines as many. */
export const COLORS = 7;

const partitions = new WeakMap();

/** Return the blocks of `layout`: outer and inner digits, outermost first, and steps of colors and numbers. */
export function blocksOf(layout) {
  let result = partitions.get(layout);
  if (result === undefined) {
    result = partition(layout);
    partitions.set(layout, result);
  }
  return result;
}

function partition(layout) {
  const { moving } = addressingOf(layout);
  let outer = moving.filter((digit) => !digit.isInner);
  if (outer.length === 0 || outer.length === moving.length) outer = moving.slice(0, Math.max(1, moving.length - 2));
  const inner = moving.filter((digit) => !outer.includes(digit));
  const numberSteps = [];
  let count = 1;
  for (const digit of [...outer].reverse()) {
    numberSteps.unshift(count);
    count *= Number(digit.extent);
  }
  const size = inner.reduce((product, digit) => product * Number(digit.extent), 1);
  return { outer, inner, numberSteps, count, size, colorSteps: colorSteps(outer), isContiguous: isContiguous(inner) };
}

function isContiguous(inner) {
  let run = 1;
  for (const digit of [...inner].reverse()) {
    if (Number(digit.stride) !== run) return false;
    run *= Number(digit.extent);
  }
  return true;
}

/**
 * Return by how many colors one step of each outer digit moves on.
 *
 * Blocks that follow one another in memory differ, and so do blocks that are adjacent along an axis: no step is 0, and
 * no step cancels the change of the digits inside it, which go back to 0 when it moves on. The preferred step is the
 * number of the block modulo the number of colors, so that the first blocks have all colors.
 */
function colorSteps(outer) {
  const steps = new Array(outer.length);
  let preferred = 1;
  for (let i = outer.length - 1; i >= 0; i -= 1) {
    const inside = outer.slice(i + 1).map((digit, k) => ({ digit, step: steps[i + 1 + k] }));
    const rewound = (terms) => terms.reduce((sum, { digit, step }) => sum + (Number(digit.extent) - 1) * step, 0);
    const sameAxis = inside.filter(({ digit }) => digit.axis === outer[i].axis);
    const refused = new Set([0, modulo(rewound(inside)), modulo(rewound(sameAxis))]);
    let step = modulo(preferred);
    while (refused.has(step)) step = modulo(step + 1);
    steps[i] = step;
    preferred = modulo(preferred * Number(outer[i].extent)) || 1;
  }
  return steps;
}

function modulo(value) {
  return ((value % COLORS) + COLORS) % COLORS;
}

/** Return the number of the block of a coordinate; blocks are numbered in the order of memory. */
export function blockNumber(layout, coordinate) {
  const { outer, numberSteps } = blocksOf(layout);
  return outer.reduce((sum, digit, i) => sum + valueAt(layout, digit, coordinate[digit.axis]) * numberSteps[i], 0);
}

/** Most elements of a block that are marked when one of them is selected. */
const MOST_MEMBERS = 256;

/** Return the elements of the block of a coordinate, with padding; none if the block has one element or too many. */
export function elementsOfBlock(layout, coordinate) {
  const { inner, size } = blocksOf(layout);
  if (size <= 1 || size > MOST_MEMBERS) return [];
  let members = [[...coordinate]];
  for (const digit of inner) {
    const value = valueAt(layout, digit, coordinate[digit.axis]);
    members = members.flatMap((member) =>
      Array.from({ length: Number(digit.extent) }, (_, i) => {
        const moved = [...member];
        moved[digit.axis] += (i - value) * Number(digit.weight);
        return moved;
      }),
    );
  }
  return members.filter((member) => member.every((x, axis) => x < Number(layout.padded_dims[axis])));
}

/** Return true if two elements of one block differ in an inner digit other than the innermost. */
export function isDigitStart(layout, before, after) {
  const { inner } = blocksOf(layout);
  return inner.slice(0, -1).some((digit) => {
    const [a, b] = [before, after].map((coordinate) => valueAt(layout, digit, coordinate[digit.axis]));
    return a !== b;
  });
}

/** Return what coordinate `x` of an axis adds to the number and to the color of its block. */
export function axisBlock(layout, axis, x) {
  const { outer, numberSteps, colorSteps: steps } = blocksOf(layout);
  const result = { number: 0, color: 0 };
  for (const [i, digit] of outer.entries()) {
    if (digit.axis !== axis) continue;
    const value = valueAt(layout, digit, x);
    result.number += value * numberSteps[i];
    result.color = modulo(result.color + (value % COLORS) * steps[i]);
  }
  return result;
}

function valueAt(layout, digit, x) {
  const { convert, starts } = addressingOf(layout);
  return Number(digitValue(digit, convert(x) + starts[digit.axis]));
}

/** Return the color of the block of a coordinate, 0 to COLORS - 1. */
export function blockColor(layout, coordinate) {
  return coordinate.reduce((sum, x, axis) => (sum + axisBlock(layout, axis, x).color) % COLORS, 0);
}

/** Return true if blocks need letters: they have several elements, and there are more of them than colors. */
export function hasLetters(layout) {
  const { count, size } = blocksOf(layout);
  return count > COLORS && size > 1;
}

/** Return the letters of block `number`: A to Z, then AA, AB and so on. */
export function blockLetters(number) {
  let [rest, letters] = [number, ""];
  do {
    letters = String.fromCharCode(65 + (rest % 26)) + letters;
    rest = Math.floor(rest / 26) - 1;
  } while (rest >= 0);
  return letters;
}

/** Return what the elements of one block have in common, such as `one color for each (n, c//8, h, w): 8 elements`. */
export function blocksInWords(layout) {
  const { outer, size, isContiguous: isDense } = blocksOf(layout);
  if (outer.length === 0) return "one color for all elements";
  const words = outer.map((digit) => {
    const name = layout.names[digit.axis] + (digit.weight > 1 ? `//${digit.weight}` : "");
    return digit.isTop ? name : `${name}%${digit.radix}`;
  });
  const common = words.length > 1 ? `(${words.join(", ")})` : words[0];
  const apart = size === 1 ? "" : isDense ? ", side by side in memory" : ", apart in memory";
  return `one color for each ${common}: ${size === 1 ? "1 element" : `${size} elements`}${apart}`;
}
