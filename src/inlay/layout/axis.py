"""One axis of a layout: the mixed-radix digits of a coordinate along it, and the stride of each digit.

An `Axis` does not store how many coordinates it has. Functions that need the number take it as the argument `n` (or
`dim`). `n` need not be a multiple of the block: then the last block is partial.

`split_range` splits the coordinates `begin` to `end` of an axis into a few `CoordinateRange`s, in each of which the
digits vary independently of one another. For an axis with digits (3,160) (8,1), the coordinates 17 to 23 are one such
range, and the coordinates 3 to 23 are two:

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
"""The placeholder for a dim or stride that is known only at execution (oneDNN's `DNNL_RUNTIME_DIM_VAL`)."""

LETTERS = "abcdefghijkl"
"""The letters of the axes in abstract format tags, in the order of the axes."""

Dims: TypeAlias = tuple[int, ...]
"""One integer for each axis: the number of coordinates along it, or its stride in elements."""


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a coordinate in mixed-radix notation."""

    extent: int
    """Number of values of the digit: 0 to extent - 1."""
    stride: int
    """Distance in memory from one value of the digit to the next, in elements."""


@dataclass(frozen=True, slots=True, init=False)
class Axis:
    """The layout of one logical axis: the stride of its leading digit, and its inner digits."""

    stride: int
    """Stride of the leading digit, in elements; RUNTIME where it is not known yet."""
    inner: tuple[Digit, ...] = ()
    """All digits but the leading one, most significant first."""

    def __init__(self, stride: int, inner: tuple[Digit, ...] = ()) -> None:
        """Create the axis from the stride of its leading digit and its inner digits.

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
        """The number of consecutive coordinates that share one leading digit: the product of the inner extents."""
        return prod([d.extent for d in self.inner]) if self.inner else 1

    def digits(self, dim: int) -> tuple[Digit, ...]:
        """Return all digits, most significant first; the leading extent is the one that `dim` coordinates need.

        Raises:
            InvalidArguments: `dim` is no integer.
        """
        if type(dim) is not int:
            dim = as_integer("dim", dim)
        extent = RUNTIME if dim == RUNTIME else -(-dim // self.block)
        return (Digit(extent, self.stride), *self.inner)

    def offset(self, x: int) -> int:
        """Return the number of elements in memory from coordinate 0 to coordinate `x` >= 0.

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
        """Return the least and the greatest offset of the first `n` coordinates, in elements.

        Raises:
            InvalidArguments: `n` is no integer of 1 or more.

        >>> Axis(-160, (Digit(8, 1),)).bounds(19)
        (-320, 7)
        """
        if type(n) is not int or n < 1:
            n = as_integer("the number of coordinates", n, 1)
        return _bounds(self.digits(n), n)


def _as_digits(inner: object) -> tuple[Digit, ...]:
    """Return `inner` as a tuple of digits whose numbers are Python's own integers.

    Raises:
        InvalidArguments: `inner` is not a sequence of digits.
    """
    if not isinstance(inner, (tuple, list)) or not all(isinstance(digit, Digit) for digit in inner):
        raise InvalidArguments(f"inner digits are {shown(inner)}: give a tuple of Digit, such as (Digit(8, 1),)")
    return tuple(Digit(as_integer("extent", d.extent), as_integer("stride", d.stride)) for d in inner)


# A frozen dataclass is written through its slots here: two thirds of the time of `object.__setattr__`.
_set_stride = vars(Axis)["stride"].__set__
_set_inner = vars(Axis)["inner"].__set__


def _bounds(digits: Sequence[Digit], n: int) -> tuple[int, int]:
    """Return the least and the greatest offset of the first `n` >= 1 values of a mixed-radix number.

    The loop starts at the last digit. It keeps the bounds of all values of the digits seen so far, and the bounds of
    the first `n % block` values, where `block` is the product of their extents.
    """
    low, high, block = 0, 0, 1
    part: tuple[int, int] | None = None  # no values
    for digit in reversed(digits[1:]):
        part = _leading_bounds(digit, n % (block * digit.extent) // block, (low, high), part)
        step = (digit.extent - 1) * digit.stride
        low, high = low + min(0, step), high + max(0, step)
        block *= digit.extent
    whole = _leading_bounds(digits[0], n // block, (low, high), part) if digits else (0, 0)
    assert whole is not None
    return whole


def _leading_bounds(
    digit: Digit, full: int, whole: tuple[int, int], part: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Return the bounds of the first `full` values of a digit with all lower digits, and of one more in part.

    `whole` are the bounds of all values of the lower digits. `part` are the bounds of those that occur together with
    the value `full` of this digit, or None where that value does not occur. The result is None where nothing occurs.
    """
    step = full * digit.stride
    last = None if part is None else (part[0] + step, part[1] + step)
    if not full:
        return last
    step -= digit.stride
    low, high = whole[0] + min(0, step), whole[1] + max(0, step)
    return (low, high) if last is None else (min(low, last[0]), max(high, last[1]))


def normal_axis(axis: Axis, n: int) -> Axis:
    """Return the normal form of `axis` for `n` >= 1 coordinates: unit digits dropped, contiguous digits merged."""
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
class RangeDigit:
    """One digit of a `CoordinateRange`."""

    extent: int
    """Number of values that the digit takes in this range."""
    weight: int
    """Place value of the digit: coordinates along the axis from one value to the next."""
    stride: int
    """Distance in memory from one value to the next, in elements."""


@dataclass(frozen=True, slots=True)
class CoordinateRange:
    """Consecutive coordinates of one axis whose digits vary independently of one another."""

    start: int
    """First coordinate of the range."""
    offset: int
    """Distance in memory from coordinate 0 of the axis to `start`, in elements."""
    digits: tuple[RangeDigit, ...]
    """Digits that vary within the range, most significant first."""

    @property
    def count(self) -> int:
        """The number of coordinates in the range."""
        return prod(digit.extent for digit in self.digits)


WeightedStrides: TypeAlias = tuple[tuple[int, int], ...]
"""Stride (in elements) and weight (place value) of each digit of an axis, most significant first."""


def split_range(axis: Axis, begin: int, end: int) -> Iterator[CoordinateRange]:
    """Split the coordinates from `begin` up to, not including, `end` into ranges with independent digits, ascending.

    Post-condition: every coordinate belongs to exactly one range. It is `start` plus the sum of digit values times
    weights, and its offset is `offset` plus the sum of digit values times strides.

    >>> from inlay.layout import Digit
    >>> ranges = list(split_range(Axis(160, (Digit(8, 1),)), 3, 24))
    >>> [(part.start, [digit.extent for digit in part.digits]) for part in ranges]
    [(3, [5]), (8, [2, 8])]
    """
    weight, digits = 1, []
    for digit in reversed(axis.inner):
        digits.append((digit.stride, weight))
        weight *= digit.extent
    digits.append((axis.stride, weight))
    if begin < end:
        yield from _split_digits(tuple(reversed(digits)), begin, end)


def _split_digits(digits: WeightedStrides, begin: int, end: int) -> Iterator[CoordinateRange]:
    """Split `begin` to `end`, not empty, for an axis whose digits have these strides and weights."""
    (stride, weight), *lower = digits
    below = tuple(lower)
    first, head = divmod(begin, weight)
    last, tail = divmod(end, weight)
    if first == last:
        yield from _split_digit_value(stride, weight, below, first, head, tail)
        return
    if head:
        yield from _split_digit_value(stride, weight, below, first, head, weight)
        first += 1
    if first < last:
        yield CoordinateRange(
            first * weight, first * stride, (RangeDigit(last - first, weight, stride), *_full_digits(below, weight))
        )
    if tail:
        yield from _split_digit_value(stride, weight, below, last, 0, tail)


def _split_digit_value(
    stride: int, weight: int, below: WeightedStrides, value: int, begin: int, end: int
) -> Iterator[CoordinateRange]:
    """Split `begin` to `end` of the lower digits, where the leading digit has this one value."""
    for part in _split_digits(below, begin, end):
        yield CoordinateRange(value * weight + part.start, value * stride + part.offset, part.digits)


def _full_digits(digits: WeightedStrides, weight_above: int) -> Iterator[RangeDigit]:
    """Return digits that take all their values, below a digit of weight `weight_above`."""
    for stride, weight in digits:
        yield RangeDigit(weight_above // weight, weight, stride)
        weight_above = weight
