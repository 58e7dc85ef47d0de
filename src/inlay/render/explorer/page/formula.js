/**
 * The offset formula of a layout as text: with the names of the axes, and with the numbers of one element.
 *
 *     480*n + 160*(c//8) + 32*h + 8*w + c%8
 *     480*1 + 160*(16//8) + 32*4 + 8*3 = 952
 */

import { addressingOf, digitValue, offsetOf } from "./layout.js";

/**
 * Return the terms of the offset at `coordinate`, outermost first, as `{symbol, filled, value}`.
 *
 * `symbol` is the term with the name of its axis, `filled` with the coordinate, `value` its value in elements.
 * `offset0` is the first term unless it is 0, or unless a swizzle comes between.
 */
export function termsAt(layout, coordinate) {
  const { terms, offset0, zero, starts, convert, swizzle } = addressingOf(layout);
  const result = [];
  if (offset0 !== zero && swizzle === null) {
    result.push({ symbol: String(offset0), filled: String(offset0), value: offset0 });
  }
  for (const digit of terms) {
    if (digit.stride === zero) continue;
    const x = convert(coordinate[digit.axis]) + starts[digit.axis];
    result.push({
      symbol: termText(digit, layout.names[digit.axis]),
      filled: termText(digit, String(x)),
      value: digitValue(digit, x) * digit.stride,
    });
  }
  return result;
}

/** Return one term, such as `160*(c//8)`, with `word` for the coordinate. */
function termText(digit, word) {
  const divided = digit.weight > 1 ? `${word}//${digit.weight}` : word;
  const text = digit.isTop ? divided : `${divided}%${digit.radix}`;
  const isBare = digit.weight <= 1 && (digit.isTop || digit.stride == 1);
  const factor = isBare ? text : `(${text})`;
  return digit.stride == 1 ? factor : `${digit.stride}*${factor}`;
}

/** Return terms as a sum, with a minus sign between where a term is negative. */
function joinTerms(texts) {
  return texts.join(" + ").replaceAll("+ -", "- ") || "0";
}

/** Return the offset formula with the names of the axes; the one before the swizzle if there is a swizzle. */
export function symbolicFormula(layout) {
  const origin = layout.dims.map(() => 0);
  return joinTerms(termsAt(layout, origin).map((term) => term.symbol));
}

/**
 * Return the computation of the offset of `coordinate`, such as `480*1 + 160*(16//8) + 32*4 + 8*3 = 952`.
 *
 * Terms whose value is 0 are left out. If the layout has a swizzle, `s` is the sum before the swizzle.
 */
export function formulaAt(layout, coordinate) {
  const terms = termsAt(layout, coordinate).filter((term) => term.value != 0);
  const sum = joinTerms(terms.map((term) => term.filled));
  const offset = String(offsetOf(layout, coordinate));
  if (layout.swizzle == null) return sum === offset ? sum : `${sum} = ${offset}`;
  const total = String(terms.reduce((value, term) => value + term.value, addressingOf(layout).zero));
  return `s = ${sum === total ? sum : `${sum} = ${total}`}; ${swizzleFormula(layout)} = ${offset}`;
}

/** Return the offset as an expression of `s`, the sum before the swizzle. */
export function swizzleFormula(layout) {
  const { bits, base, shift } = layout.swizzle;
  const mask = ((1n << BigInt(bits)) - 1n) << BigInt(base + Math.max(0, shift));
  const formula = `s ^ (s & ${mask}) ${shift >= 0 ? ">>" : "<<"} ${Math.abs(shift)}`;
  return layout.offset0 ? `${layout.offset0} + (${formula})` : formula;
}
