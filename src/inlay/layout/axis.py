"""One axis of a layout: the digits that a coordinate along it is read in.

An axis needs its dim to say how many coordinates it has, so it never stores one; every function here takes the
number `n` of coordinates beside the axis. The last of them may end inside a block, `n` no multiple of the block.

A range of coordinates splits into **runs**, in each of which the digits vary independently. Of an axis with digits
(3,160) (8,1), the coordinates 17 to 23 are one run, those from 3 to 23 two:

    3..7     leading digit 0, the other from 3 to 7          5 values, 1 element apart
    8..23    leading digit 1 or 2, the other from 0 to 7     2 values, 160 apart, by 8 values, 1 apart
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from inlay.arguments import as_integer
from inlay.errors import InvalidArguments, shown

RUNTIME = -(2**63)
"""The placeholder for a dim or stride that is known only when data arrives (oneDNN's `DNNL_RUNTIME_DIM_VAL`)."""

LETTERS = "abcdefghijkl"
"""The names of axes in abstract format tags, the first axis first."""

Dims: TypeAlias = tuple[int, ...]
"""How many coordinates each axis has."""


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a coordinate."""

    extent: int
    """How many values the digit takes."""
    stride: int
    """Elements from one value to the next."""


@dataclass(frozen=True, slots=True, init=False)
class Axis:
    """How one logical axis is placed."""

    stride: int
    """Stride of the leading digit, in elements; RUNTIME where unknown."""
    inner: tuple[Digit, ...] = ()
    """The other digits, most significant first."""

    def __init__(self, stride: int, inner: tuple[Digit, ...] = ()) -> None:
        """The axis of these parts.

        Raises:
            InvalidArguments: `stride` is no integer, or `inner` no tuple of digits of integers.
        """
        if type(stride) is not int or type(inner) is not tuple:
            stride, inner = as_integer("stride of an axis", stride), _as_digits(inner)
        for digit in inner:
            if type(digit) is not Digit or type(digit.extent) is not int or type(digit.stride) is not int:
                inner = _as_digits(inner)
        _set_stride(self, stride)
        _set_inner(self, inner)

    @property
    def block(self) -> int:
        """Consecutive coordinates that share one value of the leading digit: the product of the inner extents."""
        return prod([d.extent for d in self.inner]) if self.inner else 1

    def digits(self, dim: int) -> tuple[Digit, ...]:
        """All digits, the leading one with the extent that `dim` coordinates need.

        Raises:
            InvalidArguments: `dim` is no integer.
        """
        if type(dim) is not int:
            dim = as_integer("dim", dim)
        extent = RUNTIME if dim == RUNTIME else -(-dim // self.block)
        return (Digit(extent, self.stride), *self.inner)

    def offset(self, x: int) -> int:
        """Elements from coordinate 0 to coordinate `x` >= 0.

        Raises:
            InvalidArguments: `x` is no integer.

        >>> Axis(160, (Digit(8, 1),)).offset(19)
        323
        """
        if type(x) is not int:
            x = as_integer("coordinate", x)
        total = 0
        for digit in reversed(self.inner):
            x, value = divmod(x, digit.extent)
            total += value * digit.stride
        return total + x * self.stride

    def bounds(self, n: int) -> tuple[int, int]:
        """The least and the greatest offset of the first `n` coordinates.

        Raises:
            InvalidArguments: `n` is no integer of 1 or more.

        >>> Axis(-160, (Digit(8, 1),)).bounds(19)
        (-320, 7)
        """
        if type(n) is not int or n < 1:
            n = as_integer("the number of coordinates", n, 1)
        return _bounds(self.digits(n), n)


def _as_digits(inner: object) -> tuple[Digit, ...]:
    """Digits of Python's own integers.

    Raises:
        InvalidArguments: `inner` are none.
    """
    if not isinstance(inner, (tuple, list)) or not all(isinstance(digit, Digit) for digit in inner):
        raise InvalidArguments(f"inner digits are {shown(inner)}: give a tuple of Digit, such as (Digit(8, 1),)")
    return tuple(Digit(as_integer("extent", d.extent), as_integer("stride", d.stride)) for d in inner)


# A layout is made of many axes; writing through the slots takes two thirds of the time of `object.__setattr__`.
_set_stride = vars(Axis)["stride"].__set__
_set_inner = vars(Axis)["inner"].__set__


def _bounds(digits: Sequence[Digit], n: int) -> tuple[int, int]:
    """The least and greatest offset of the first `n` >= 1 values of a mixed-radix number.

    From the last digit on: the bounds of all values of the digits so far, and of the first `n` modulo their product.
    """
    low, high, block = 0, 0, 1
    part: tuple[int, int] | None = None  # no values
    for digit in reversed(digits[1:]):
        part = _first(digit, n % (block * digit.extent) // block, (low, high), part)
        step = (digit.extent - 1) * digit.stride
        low, high = low + min(0, step), high + max(0, step)
        block *= digit.extent
    whole = _first(digits[0], n // block, (low, high), part) if digits else (0, 0)
    assert whole is not None
    return whole


def _first(digit: Digit, full: int, whole: tuple[int, int], part: tuple[int, int] | None) -> tuple[int, int] | None:
    """The bounds where a digit takes its first `full` values with all lower ones, and the next with a part of them."""
    step = full * digit.stride
    last = None if part is None else (part[0] + step, part[1] + step)
    if not full:
        return last
    step -= digit.stride
    low, high = whole[0] + min(0, step), whole[1] + max(0, step)
    return (low, high) if last is None else (min(low, last[0]), max(high, last[1]))


def normal_axis(axis: Axis, n: int) -> Axis:
    """The digits of `axis` for `n` >= 1 coordinates, each as long as its stride allows."""
    merged: list[Digit] = []
    block = 1
    for digit in reversed(axis.digits(n)):
        extent = min(digit.extent, -(-n // block))
        block *= digit.extent
        if extent == 1:
            continue
        if merged and digit.stride == merged[-1].extent * merged[-1].stride:
            merged[-1] = Digit(merged[-1].extent * extent, merged[-1].stride)
        else:
            merged.append(Digit(extent, digit.stride))
    if not merged:
        return Axis(0)
    return Axis(merged[-1].stride, tuple(reversed(merged[:-1])))


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
