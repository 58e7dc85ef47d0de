"""Runs: ranges of coordinates along one axis in which the digits vary independently.

Of an axis with digits (3,160) (8,1), the coordinates 17 to 23 are one run, those from 3 to 23 two:

    3..7     leading digit 0, the other from 3 to 7          5 values, 1 element apart
    8..23    leading digit 1 or 2, the other from 0 to 7     2 values, 160 apart, by 8 values, 1 apart
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from inlay.layout.axis import Axis


@dataclass(frozen=True, slots=True)
class Step:
    """One digit of a run."""

    extent: int
    """How many values it takes."""
    weight: int
    """Coordinates of its axis from one value to the next."""
    stride: int
    """Elements from one value to the next."""


@dataclass(frozen=True, slots=True)
class Run:
    """Coordinates of one axis whose digits vary independently."""

    start: int
    """The first coordinate."""
    offset: int
    """Elements from coordinate 0 of the axis to the first."""
    steps: tuple[Step, ...]
    """The digits, most significant first."""

    @property
    def count(self) -> int:
        """How many coordinates there are; they are consecutive."""
        return prod(step.extent for step in self.steps)


Digits: TypeAlias = tuple[tuple[int, int], ...]
"""Stride and weight of each digit of an axis, most significant first; the last has the weight 1."""


def runs(axis: Axis, begin: int, end: int) -> Iterator[Run]:
    """The coordinates from `begin` to before `end` of an axis, in ascending order.

    Post-condition: every coordinate of the range is start plus digit values times weights of exactly one run, and lies
    at offset plus digit values times strides.

    >>> from inlay.layout import Digit
    >>> [(run.start, [step.extent for step in run.steps]) for run in runs(Axis(160, (Digit(8, 1),)), 3, 24)]
    [(3, [5]), (8, [2, 8])]
    """
    weight, digits = 1, []
    for digit in reversed(axis.inner):
        digits.append((digit.stride, weight))
        weight *= digit.extent
    digits.append((axis.stride, weight))
    if begin < end:
        yield from _runs(tuple(reversed(digits)), begin, end)


def _runs(digits: Digits, begin: int, end: int) -> Iterator[Run]:
    (stride, weight), *lower = digits
    below = tuple(lower)
    first, head = divmod(begin, weight)
    last, tail = divmod(end, weight)
    if first == last:
        yield from _within(stride, weight, below, first, head, tail)
        return
    if head:
        yield from _within(stride, weight, below, first, head, weight)
        first += 1
    if first < last:
        yield Run(first * weight, first * stride, (Step(last - first, weight, stride), *_full(below, weight)))
    if tail:
        yield from _within(stride, weight, below, last, 0, tail)


def _within(stride: int, weight: int, below: Digits, value: int, begin: int, end: int) -> Iterator[Run]:
    """The runs of one value of the leading digit."""
    for run in _runs(below, begin, end):
        yield Run(value * weight + run.start, value * stride + run.offset, run.steps)


def _full(digits: Digits, above: int) -> Iterator[Step]:
    """Every value of digits that lie below one of weight `above`."""
    for stride, weight in digits:
        yield Step(above // weight, weight, stride)
        above = weight
