"""One axis of a layout: the digits that a coordinate along it is read in.

An axis needs its dim to say how many coordinates it has, so it never stores one; every function here takes the
number `n` of coordinates beside the axis. The last of them may end inside a block, `n` no multiple of the block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from inlay.arguments import as_integer
from inlay.errors import InvalidArguments, shown

RUNTIME = -(2**63)
"""The placeholder for a dim or stride that is known only when data arrives (oneDNN's `DNNL_RUNTIME_DIM_VAL`)."""

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
