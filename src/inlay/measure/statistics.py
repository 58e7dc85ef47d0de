"""Figures from repeated measurements: the median, the range of the middle half, ratios of neighbors in time.

What slows the machine down for a second slows both sides of a ratio that is formed within one round. The figure is the
median of these ratios, and the spread is the range of the middle half of the rounds.

    >>> paired_ratio([2.0, 2.0, 6.0], [1.0, 2.0, 2.0])
    Spread(median=2.0, low=1.5, high=2.5)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure that was measured several times."""

    median: float
    """The figure."""
    low: float
    """A quarter of the rounds gave less."""
    high: float
    """A quarter of the rounds gave more."""

    def times(self, factor: float) -> "Spread":
        """Return the same figure in another unit, in which it is `factor` times as large.

        >>> Spread(2.0, 1.0, 3.0).times(100)
        Spread(median=200.0, low=100.0, high=300.0)
        """
        return Spread(factor * self.median, factor * self.low, factor * self.high)


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of some measurements, at least one."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Return the ratio of two calls: formed in each round in which both took a turn, then taken together.

    Both took a turn in the first round; a call that is slow has fewer.
    """
    return spread([a / b for a, b in zip(numerators, denominators, strict=False)])
