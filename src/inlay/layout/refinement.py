"""Two layouts of one axis, read in digits that both share.

`refine` reads one axis of two layouts in digits that both share, which turns a reorder into a permutation of digits. An
axis that one side blocks by 8 and the other by 16 is read in digits of 8 and 2 on both sides; where blocks do not
divide one another (8 and 12), one digit runs over their common multiple (24) and each side keeps a table of offsets.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import gcd, lcm
from typing import TypeAlias

from inlay.layout.axis import Axis

Map: TypeAlias = int | tuple[int, ...]
"""Where the values of a digit go: a stride, or one offset for each value. In elements."""


@dataclass(frozen=True, slots=True)
class CommonDigit:
    """A digit that two layouts of one axis share."""

    extent: int
    """How many values it takes."""
    weight: int
    """Coordinates from one value to the next."""
    first: Map
    """Where the first layout puts each value."""
    second: Map
    """Where the second layout puts each value."""


def refine(first: Axis, second: Axis, n: int) -> tuple[CommonDigit, ...]:
    """The digits that both axes share for `n` coordinates, most significant first.

    Where the blocks of the two divide one another every digit has a stride on both sides. Where they do not, as for
    blocks of 8 and of 12, one digit runs over their common multiple and has a table of offsets instead.

    Post-condition: for every x < n, with digit values x // weight % extent (the leading one not reduced), the maps
    of `first` sum to its offset of x, and those of `second` to its own.

    >>> from inlay.layout import Digit
    >>> refine(Axis(160, (Digit(8, 1),)), Axis(160), 24)[-1]
    CommonDigit(extent=8, weight=1, first=1, second=160)
    """
    cuts = _common_cuts(_cuts(first) | _cuts(second), n)
    bounds = [*cuts, max(cuts[-1], cuts[-1] * -(-n // cuts[-1]))]
    digits = []
    for low, high in pairwise(bounds):
        maps = [_map_between(axis, low, high) for axis in (first, second)]
        digits.append(CommonDigit(high // low, low, maps[0], maps[1]))
    return tuple(reversed(digits))


def _cuts(axis: Axis) -> set[int]:
    """The weights of the digits of an axis."""
    cuts = {1}
    for digit in reversed(axis.inner):
        cuts.add(max(cuts) * digit.extent)
    return cuts


def _common_cuts(cuts: set[int], n: int) -> list[int]:
    """The weights at which every digit of both axes can be split, ascending; each divides the next."""
    pairs = {f(a, b) for a in cuts for b in cuts for f in (gcd, lcm)} | {lcm(*cuts)}
    chain: list[int] = []
    for cut in sorted(pairs):
        splits_all = all(cut % c == 0 or c % cut == 0 for c in cuts)
        # A multiple that no axis has and no coordinate reaches would only make a longer table.
        wanted = cut in cuts or cut < n
        if splits_all and wanted and (not chain or (cut % chain[-1] == 0 and chain[-1] < n)):
            chain.append(cut)
    return chain


def _map_between(axis: Axis, low: int, high: int) -> Map:
    """Where `axis` puts the digit of weight `low` and extent `high // low`: a stride if one serves."""
    extent = high // low
    if extent == 1:
        return 0
    if _is_affine(axis, low, high):
        return axis.offset(low)
    offsets = tuple(axis.offset(value * low) for value in range(extent))
    return offsets[1] if all(b - a == offsets[1] for a, b in pairwise(offsets)) else offsets


def _is_affine(axis: Axis, low: int, high: int) -> bool:
    """Whether no digit boundary of `axis` lies strictly between the weights `low` and `high`."""
    return not any(low < cut < high for cut in _cuts(axis))
