"""Statistics of repeated measurements: the median, the interquartile range, and ratios of adjacent measurements.

A disturbance of about a second slows down both calls of a round. The ratio of two calls is therefore formed within each
round; the result is the median of these ratios, and the spread is their interquartile range.

    >>> paired_ratio([2.0, 2.0, 6.0], [1.0, 2.0, 2.0])
    Spread(median=2.0, low=1.5, high=2.5)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of repeated measurements."""

    median: float
    """Median of the measurements."""
    low: float
    """First quartile: a quarter of the measurements are smaller."""
    high: float
    """Third quartile: a quarter of the measurements are larger."""

    def times(self, factor: float) -> "Spread":
        """Return the spread with all values multiplied by `factor`, as for another unit.

        >>> Spread(2.0, 1.0, 3.0).times(100)
        Spread(median=200.0, low=100.0, high=300.0)
        """
        return Spread(factor * self.median, factor * self.low, factor * self.high)


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of at least one measurement."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Return the spread of the ratios of two calls, formed in each round in which both took a turn.

    The lists start with the same round; the list of a slow call may be shorter.
    """
    return spread([a / b for a, b in zip(numerators, denominators, strict=False)])
