"""The common refinement of two layouts of one axis: digits that both layouts share.

With common digits, a reorder becomes a loop nest with one loop per digit and a stride on either side. An axis in blocks
of 8 on one side and of 16 on the other has the common digits 8 and 2. Where blocks do not divide one another (8 and
12), one digit covers their least common multiple (24), and a side that has no single stride for it gets a table of
offsets.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import gcd, lcm
from typing import TypeAlias

from inlay.layout.axis import Axis

DigitMap: TypeAlias = int | tuple[int, ...]
"""Offsets of the values of a digit, in elements: a stride, or a tuple with the offset of each value."""


@dataclass(frozen=True, slots=True)
class CommonDigit:
    """A digit that two layouts of one axis share."""

    extent: int
    """Number of values of the digit."""
    weight: int
    """Place value of the digit: coordinates from one value to the next."""
    first: DigitMap
    """Offsets of the values in the first layout, in elements."""
    second: DigitMap
    """Offsets of the values in the second layout, in elements."""


def refine(first: Axis, second: Axis, n: int) -> tuple[CommonDigit, ...]:
    """Return the common digits of two axes for `n` coordinates, most significant first.

    If the blocks of the two axes divide one another, every digit has a stride on both sides. If they do not, as for
    blocks of 8 and of 12, one digit covers their common multiple and has a table of offsets instead.

    Post-condition: the value of a digit for coordinate x < n is `x // weight % extent`, without the `%` for the leading
    digit. The offset of x in either layout is the sum, over all digits, of the offsets that the digit's map gives.

    >>> from inlay.layout import Digit
    >>> refine(Axis(160, (Digit(8, 1),)), Axis(160), 24)[-1]
    CommonDigit(extent=8, weight=1, first=1, second=160)
    """
    weights = _common_weights(_digit_weights(first) | _digit_weights(second), n)
    largest = weights[-1]
    bounds = [*weights, max(largest, largest * -(-n // largest))]
    digits = []
    for low, high in pairwise(bounds):
        maps = [_digit_map(axis, low, high) for axis in (first, second)]
        digits.append(CommonDigit(high // low, low, maps[0], maps[1]))
    return tuple(reversed(digits))


def _digit_weights(axis: Axis) -> set[int]:
    """Return the weights of the digits of an axis."""
    weights = {1}
    for digit in reversed(axis.inner):
        weights.add(max(weights) * digit.extent)
    return weights


def _common_weights(weights: set[int], n: int) -> list[int]:
    """Return the weights of the common digits, ascending, so that each divides the next.

    `weights` are those of the digits of both axes, `n` is the number of coordinates. A common weight divides, or is a
    multiple of, each of them.
    """
    candidates = {f(a, b) for a in weights for b in weights for f in (gcd, lcm)} | {lcm(*weights)}
    chain: list[int] = []
    for candidate in sorted(candidates):
        is_common = all(candidate % weight == 0 or weight % candidate == 0 for weight in weights)
        # A weight of neither axis that is `n` or more splits no digit; it only lengthens offset tables.
        is_useful = candidate in weights or candidate < n
        if is_common and is_useful and (not chain or (candidate % chain[-1] == 0 and chain[-1] < n)):
            chain.append(candidate)
    return chain


def _digit_map(axis: Axis, low: int, high: int) -> DigitMap:
    """Return the offsets in `axis` of the digit of weight `low` and extent `high // low`, as a stride if possible."""
    extent = high // low
    if extent == 1:
        return 0
    if _is_affine(axis, low, high):
        return axis.offset(low)
    offsets = tuple(axis.offset(value * low) for value in range(extent))
    return offsets[1] if all(b - a == offsets[1] for a, b in pairwise(offsets)) else offsets


def _is_affine(axis: Axis, low: int, high: int) -> bool:
    """Return True if no digit of `axis` has a weight strictly between `low` and `high`: then one stride suffices."""
    return not any(low < weight < high for weight in _digit_weights(axis))
