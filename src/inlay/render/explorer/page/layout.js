/**
 * The map between coordinates and offsets of a layout, computed from its digits alone.
 *
 * A coordinate along an axis is a number with mixed radices. A layout lists the digits of each axis, the most
 * significant digit first, as pairs of an extent and a stride in elements:
 *
 *     offset = offset0 + swizzle(sum over axes, over digits, of digit * stride)
 *
 * `layout` is an object of the format that docs/explorer.md describes, as parsed from JSON. A number beyond 2**53 is a
 * string there. Results are numbers, and of type bigint only beyond 2**53.
 */

const addressings = new WeakMap();

/** Most digit combinations that one inversion of an overlapping layout looks at. */
const MOST_HITS = 4096;

/**
 * Return the digits of `layout` as this module computes with them. They are derived once for each object.
 *
 * `terms` are the digits with several values, outermost first; `low` and `high` are the least offset and the one
 * after the greatest.
 */
export function addressingOf(layout) {
  let result = addressings.get(layout);
  if (result === undefined) {
    result = buildAddressing(layout);
    addressings.set(layout, result);
  }
  return result;
}

function buildAddressing(layout) {
  const convert = isBeyondNumbers(layout) ? BigInt : Number;
  const [zero, one] = [convert(0), convert(1)];
  const dims = layout.dims.map(convert);
  const paddedDims = layout.padded_dims.map(convert);
  const axes = layout.digits.map((digits, axis) => buildAxis(digits, axis, paddedDims[axis], convert));
  const inward = axes.flatMap((digits) => digits.toReversed());
  const terms = inward.filter((digit) => digit.extent > one).sort(compareDigits);
  const starts = (layout.padded_offsets ?? dims.map(() => 0)).map(convert);
  const result = { convert, zero, one, dims, paddedDims, axes, terms, starts, offset0: convert(layout.offset0 ?? 0) };
  result.swizzle = layout.swizzle ?? null;
  result.isEmpty = paddedDims.some((dim) => dim === zero);
  Object.assign(result, sortForDivision(terms, zero, one));
  result.low = result.offset0 + result.origin;
  result.high = result.isEmpty ? result.low : result.low + result.reach + one;
  return result;
}

/** Return true if the products or sums of some entries may exceed the integers that a number holds exactly. */
function isBeyondNumbers(layout) {
  const { swizzle } = layout;
  if (swizzle && swizzle.base + Math.abs(swizzle.shift) + swizzle.bits > 52) return true;
  let reach = BigInt(layout.offset0 ?? 0);
  for (const [axis, digits] of layout.digits.entries()) {
    let leading = BigInt(layout.padded_dims[axis]);
    for (const { extent, stride } of digits) {
      const size = BigInt(stride) < 0n ? -BigInt(stride) : BigInt(stride);
      reach += size * BigInt(extent) + size;
      leading += BigInt(extent);
    }
    if (leading > BigInt(Number.MAX_SAFE_INTEGER)) return true;
  }
  return reach > BigInt(Number.MAX_SAFE_INTEGER);
}

/** Return the digits of one axis, most significant first, with the distance along the axis from value to value. */
function buildAxis(digits, axis, paddedDim, convert) {
  const one = convert(1);
  const result = [];
  let weight = one;
  for (let level = digits.length - 1; level >= 0; level -= 1) {
    const radix = convert(digits[level].extent);
    const left = quotient(paddedDim + weight - one, weight);
    const isTop = level === 0 || left <= radix;
    const extent = left < radix || level === 0 ? left : radix;
    result.unshift({ axis, extent, radix, weight, stride: convert(digits[level].stride), isTop, isInner: level > 0 });
    weight *= radix > 0 ? radix : one;
  }
  return result;
}

function compareDigits(a, b) {
  const [sizeA, sizeB] = [magnitude(a.stride), magnitude(b.stride)];
  if ((sizeA === a.stride - a.stride) !== (sizeB === b.stride - b.stride)) return sizeA < sizeB ? -1 : 1;
  if (sizeA !== sizeB) return sizeA > sizeB ? -1 : 1;
  return Number(a.isInner) - Number(b.isInner) || a.axis - b.axis;
}

/** Return the digits of stride other than 0 by falling stride, the sum that they start from, and if they nest. */
function sortForDivision(terms, zero, one) {
  const moving = terms.filter((digit) => digit.stride !== zero);
  let [reach, origin, isNested] = [zero, zero, true];
  for (const digit of [...moving].reverse()) {
    const size = magnitude(digit.stride);
    isNested &&= reach < size;
    digit.reachInside = reach;
    reach += size * (digit.extent - one);
    if (digit.stride < zero) origin += digit.stride * (digit.extent - one);
  }
  return { moving, origin, reach, isNested };
}

/** Return `a / b`, rounded down, of two numbers or two bigints that are not negative. */
export function quotient(a, b) {
  return typeof a === "bigint" ? a / b : (a - (a % b)) / b;
}

function magnitude(value) {
  return value < 0 ? -value : value;
}

/** Return a bigint as a number if a number holds it exactly. */
function simplify(value) {
  return typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : value;
}

/** Return the value that a digit has at coordinate `x` of its axis. */
export function digitValue(digit, x) {
  const value = quotient(x, digit.weight);
  return digit.isTop ? value : value % digit.radix;
}

/** Return what coordinate `x` along `axis` adds to the sum of digits, in elements. */
export function axisOffset(layout, axis, x) {
  const addressing = addressingOf(layout);
  const at = addressing.convert(x) + addressing.starts[axis];
  return addressing.axes[axis].reduce((sum, digit) => sum + digitValue(digit, at) * digit.stride, addressing.zero);
}

/** Return the values of the digits of each axis at `coordinate`, most significant first. */
export function digitsOf(layout, coordinate) {
  const addressing = addressingOf(layout);
  return addressing.axes.map((digits, axis) => {
    const x = addressing.convert(coordinate[axis]) + addressing.starts[axis];
    return digits.map((digit) => simplify(digitValue(digit, x)));
  });
}

/** Return the offset of `coordinate`, in elements. Coordinates of padding have offsets, too. */
export function offsetOf(layout, coordinate) {
  return simplify(placeSum(layout, sumOf(layout, coordinate)));
}

/** Return the sum of digits times strides at `coordinate`, before the swizzle. */
function sumOf(layout, coordinate) {
  const { zero } = addressingOf(layout);
  return coordinate.reduce((sum, x, axis) => sum + axisOffset(layout, axis, x), zero);
}

/** Return the offset of a sum of digits times strides: swizzled, and moved by `offset0`. */
export function placeSum(layout, sum) {
  const { swizzle, offset0 } = addressingOf(layout);
  return offset0 + (swizzle === null ? sum : applySwizzle(swizzle, sum));
}

/** Return `sum` with some of its bits XORed into others (CuTe's `Swizzle<bits, base, shift>`). Its own inverse. */
function applySwizzle(swizzle, sum) {
  const { bits, base, shift } = swizzle;
  const mask = ((1n << BigInt(bits)) - 1n) << BigInt(base + Math.max(0, shift));
  const read = BigInt(sum) & mask;
  const result = BigInt(sum) ^ (shift >= 0 ? read >> BigInt(shift) : read << BigInt(-shift));
  return typeof sum === "bigint" ? result : Number(result);
}

/**
 * Return the element at `offset` as `{coordinate, isPadding, isShared}`; null in a gap and outside the tensor.
 *
 * If several coordinates share the offset, `coordinate` is the first in row-major order and `isShared` is true.
 */
export function coordinateAt(layout, offset) {
  const addressing = addressingOf(layout);
  if (addressing.isEmpty) return null;
  let sum = addressing.convert(offset) - addressing.offset0;
  if (addressing.swizzle !== null) {
    if (sum < addressing.zero) return null;
    sum = applySwizzle(addressing.swizzle, sum);
  }
  const rest = sum - addressing.origin;
  if (rest < addressing.zero || rest > addressing.reach) return null;
  const hits = addressing.isNested ? divide(addressing, rest) : search(addressing, rest);
  if (hits.length === 0) return null;
  const coordinate = hits.length === 1 ? hits[0] : hits.sort(compareCoordinates)[0];
  const isPadding = coordinate.some((x, axis) => x >= addressing.dims[axis]);
  const isShared = hits.length > 1 || hasRepeat(addressing, coordinate);
  return { coordinate: coordinate.map(simplify), isPadding, isShared };
}

/** Return true if a digit of stride 0 gives another coordinate with the offset of `coordinate`, in which it is 0. */
function hasRepeat({ terms, zero, paddedDims }, coordinate) {
  return terms.some(({ stride, axis, weight }) => stride === zero && coordinate[axis] + weight < paddedDims[axis]);
}

/** Return the coordinate of a layout whose digits nest, by one division for each digit. */
function divide(addressing, rest) {
  const point = addressing.starts.map((start) => -start);
  for (const digit of addressing.moving) {
    const size = magnitude(digit.stride);
    const value = quotient(rest, size);
    if (value >= digit.extent) return [];
    rest -= value * size;
    point[digit.axis] += digit.weight * (digit.stride < 0 ? digit.extent - addressing.one - value : value);
  }
  return rest === addressing.zero && isInside(addressing, point) ? [point] : [];
}

/** Return coordinates at the sum `rest`, by a search that skips values whose rest the inner digits cannot reach. */
function search(addressing, rest) {
  const { moving, zero, one } = addressing;
  const point = addressing.starts.map((start) => -start);
  const hits = [];
  const visit = (level, left) => {
    if (hits.length >= MOST_HITS) return;
    if (level === moving.length) {
      if (left === zero && isInside(addressing, point)) hits.push([...point]);
      return;
    }
    const digit = moving[level];
    const size = magnitude(digit.stride);
    const highest = minimum(digit.extent - one, quotient(left, size));
    const missing = left - digit.reachInside;
    for (let value = missing > zero ? quotient(missing + size - one, size) : zero; value <= highest; value += one) {
      const step = digit.weight * (digit.stride < 0 ? digit.extent - one - value : value);
      point[digit.axis] += step;
      visit(level + 1, left - value * size);
      point[digit.axis] -= step;
    }
  };
  visit(0, rest);
  return hits;
}

function minimum(a, b) {
  return a < b ? a : b;
}

function isInside(addressing, point) {
  return point.every((x, axis) => x >= addressing.zero && x < addressing.paddedDims[axis]);
}

function compareCoordinates(a, b) {
  const axis = a.findIndex((x, i) => x !== b[i]);
  return axis < 0 ? 0 : a[axis] < b[axis] ? -1 : 1;
}

/** Return the row-major index of a coordinate of data, in a tensor without padding. */
export function indexOf(layout, coordinate) {
  const { dims, convert, zero } = addressingOf(layout);
  return simplify(coordinate.reduce((index, x, axis) => index * dims[axis] + convert(x), zero));
}

/** Return true if a coordinate is padding: not below its dim along some axis. */
export function isPaddingAt(layout, coordinate) {
  return coordinate.some((x, axis) => x >= addressingOf(layout).dims[axis]);
}
