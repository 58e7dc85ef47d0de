"""Digits from offsets: factors the offsets of all coordinates into one list of digits for each axis.

The offset map of a layout is the sum of one function for each axis, `f(x) = f(0) + g_0(x_0) + g_1(x_1) + ...`, and each
function is made of digits. The innermost digit of `g` has stride `g(1)`; its extent is the first coordinate that
breaks the progression. The values at multiples of this extent are the function of the digits that remain:

    g = 0 1 2 3 10 11 12 13 20 21      extent 4, stride 1, then 0 10 20: extent 3, stride 10

This is the normal form of the layout, which is unique. Padding is found by counting on along each axis, as long as the
places can be padding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.inference.observation import coordinate_of
from inlay.inference.results import Offsets
from inlay.layout import Axis, Digit, Dims, Layout, Swizzle

_MOST_PADDED = 1 << 24
"""Largest number of padded elements that a search for padding considers."""


@dataclass(frozen=True, slots=True)
class FactorFault:
    """The first coordinate that contradicts the digits before it."""

    axis: int | None
    """The axis whose function is not made of digits; None if offsets are not a sum of functions of the axes."""
    coordinate: Dims
    """The coordinate."""
    expected: int
    """Offset that the other coordinates predict, in elements."""
    found: int
    """Offset that was observed, in elements."""


@dataclass(frozen=True, slots=True)
class FactoredOffsets:
    """The normal form of an offset map."""

    offset0: int
    """Offset of the coordinate 0, in elements."""
    dims: Dims
    """Number of observed coordinates along each axis."""
    axes: tuple[Axis, ...]
    """Digits of each axis; a unit axis has the stride 0."""

    def offsets(self) -> Offsets:
        """Return the offset of each coordinate within `dims`, of shape `dims`."""
        return sum_of_axes(self.offset0, [axis_values(a, n) for a, n in zip(self.axes, self.dims, strict=True)])


def axis_values(axis: Axis, n: int) -> Offsets:
    """Return the offsets of the coordinates 0 to n - 1 of an axis.

    >>> axis_values(Axis(10, (Digit(4, 1),)), 6).tolist()
    [0, 1, 2, 3, 10, 11]
    """
    rest, total = np.arange(n), np.zeros(n, np.int64)
    for digit in reversed(axis.inner):
        total += rest % digit.extent * digit.stride
        rest = rest // digit.extent
    return total + rest * axis.stride


def sum_of_axes(offset0: int, values: list[Offsets]) -> Offsets:
    """Return the sums of one value from each array, an array with one axis for each of them."""
    total = np.full((1,) * len(values), offset0, np.int64)
    for i, one in enumerate(values):
        total = total + one.reshape([-1 if i == j else 1 for j in range(len(values))])
    return total


def factor_offsets(offsets: Offsets) -> FactoredOffsets | FactorFault:
    """Return the digits of an array of offsets of all coordinates, or the first coordinate that contradicts them.

    Post-condition: a result that is not a fault has result.offsets() == offsets.

    >>> factor_offsets(np.array([[5, 6, 15], [25, 26, 35]])).axes
    (Axis(stride=20, inner=()), Axis(stride=10, inner=(Digit(extent=2, stride=1),)))
    """
    start = int(offsets.flat[0])
    values = [line - start for line in _axis_lines(offsets)]
    expected = sum_of_axes(start, values)
    wrong = np.flatnonzero(expected != offsets)
    if wrong.size:
        at = int(wrong[0])
        place = coordinate_of(at, offsets.shape)
        return FactorFault(None, place, int(expected.flat[at]), int(offsets.flat[at]))
    axes = []
    for i, line in enumerate(values):
        axis = factor_axis(line)
        if isinstance(axis, tuple):
            x, want, have = axis
            return FactorFault(i, tuple(x * (i == j) for j in range(offsets.ndim)), start + want, start + have)
        axes.append(axis)
    return FactoredOffsets(start, offsets.shape, tuple(axes))


def _axis_lines(offsets: Offsets) -> Iterator[Offsets]:
    """Yield the offsets along each axis through the coordinate 0."""
    for i in range(offsets.ndim):
        yield offsets[tuple(slice(None) if i == j else 0 for j in range(offsets.ndim))]


def factor_axis(values: Offsets) -> Axis | tuple[int, int, int]:
    """Return the digits of a function with the value 0 at 0, or a coordinate with its expected and its found value.

    >>> factor_axis(np.array([0, 1, 10, 11, 20])), factor_axis(np.array([0, 1, 10, 12]))
    (Axis(stride=10, inner=(Digit(extent=2, stride=1),)), (3, 11, 12))
    """
    digits: list[Digit] = []
    weight, rest = 1, values
    while len(rest) > 1:
        stride, counts = int(rest[1]), np.arange(len(rest))
        wrong = np.flatnonzero(rest != stride * counts)
        if not wrong.size:
            return Axis(stride, tuple(reversed(digits)))
        extent = int(wrong[0])
        leads = rest[::extent]
        expected = leads[counts // extent] + stride * (counts % extent)
        wrong = np.flatnonzero(rest != expected)
        if wrong.size:
            at = int(wrong[0])
            return at * weight, int(expected[at]), int(rest[at])
        digits.append(Digit(extent, stride))
        weight, rest = weight * extent, leads
    return Axis(0)


# Padding


@dataclass(frozen=True, slots=True)
class PaddedDigits:
    """Digits of each axis with padded dims."""

    padded: Dims
    """Number of coordinates along each axis, padding included."""
    axes: tuple[Axis, ...]
    """Digits of each axis."""
    unexplained: int
    """Number of places that can be padding, but are not, from the first element to the last place of the layout."""


def find_padding(
    factored: FactoredOffsets,
    free: npt.NDArray[np.bool_] | None,
    is_exact: bool,
    swizzle: Swizzle | None = None,
) -> PaddedDigits:
    """Return the padded dims that explain most of the `free` places; whole blocks if these places are not known.

    A place is explained if it is the place of a coordinate within the padded dims and not within the dims. Axes are
    extended as far as their next places are free. If `is_exact`, places that remain are digits that are above all
    coordinates of the data; each gets the first axis that fits. `swizzle` permutes the offsets from `factored.offset0`.
    """
    dims = factored.dims
    blocks = tuple(-(-n // axis.block) * axis.block for n, axis in zip(dims, factored.axes, strict=True))
    if free is None:
        return PaddedDigits(blocks, factored.axes, 0)
    box = _FreeBox(factored, free, is_exact, swizzle)
    far = tuple(box.reach(i) for i in range(len(dims)))
    found = []
    for padded in dict.fromkeys((far, blocks, dims)):
        unexplained = box.unexplained(factored.axes, padded)
        if unexplained is None:
            continue
        digits = PaddedDigits(padded, factored.axes, len(unexplained))
        found.append(_add_hidden_digits(box, digits, unexplained) if is_exact and len(unexplained) else digits)
    complete = [digits for digits in found if not digits.unexplained]
    if complete:
        return complete[0]
    by_blocks = [digits for digits in found if digits.padded in (blocks, dims)]
    return (by_blocks or found or [PaddedDigits(blocks, factored.axes, 0)])[0]


@dataclass(frozen=True, slots=True, eq=False)
class _FreeBox:
    """The places of a buffer that can be padding, beside the elements that a layout places there."""

    factored: FactoredOffsets
    free: npt.NDArray[np.bool_]
    is_exact: bool
    swizzle: Swizzle | None

    def permute(self, offsets: Offsets) -> Offsets:
        """Return the place of each offset from the start of the buffer, and the offset of each place: an involution."""
        if self.swizzle is None:
            return offsets
        start = self.factored.offset0
        after = offsets >= start
        return np.where(after, self.swizzle.apply(np.where(after, offsets - start, 0)) + start, offsets)

    def reach(self, i: int) -> int:
        """Return the number of coordinates of axis `i`, with those after the data whose places are free."""
        n, axis, length = self.factored.dims[i], self.factored.axes[i], len(self.free)
        end = min(2 * n, length) if n > 1 else n
        while n < end:
            places = self.permute(self.factored.offset0 + axis_values(axis, end)[n:])
            is_free = (places >= 0) & (places < length) & self.free[places.clip(0, length - 1)]
            n = end if is_free.all() else n + int(is_free.argmin())
            end = min(2 * n, length) if n == end else n
        return -(-n // axis.block) * axis.block

    def unexplained(self, axes: tuple[Axis, ...], padded: Dims) -> Offsets | None:
        """Return the offsets of free places that padded dims leave out; None if they contain places not free."""
        if prod(padded) > min(_MOST_PADDED, len(self.free)):
            return None
        values = [axis_values(axis, n) for axis, n in zip(axes, padded, strict=True)]
        places = self.permute(sum_of_axes(self.factored.offset0, values))
        if places.min() < 0 or places.max() >= len(self.free):
            return None
        inside = np.zeros(len(self.free), bool)
        inside[places] = True
        if int(inside.sum()) != prod(padded):
            return None
        data = places[tuple(slice(n) for n in self.factored.dims)]
        inside[data] = False
        if (inside & ~self.free).any():
            return None
        rest = np.flatnonzero(self.free & ~inside)
        if not self.is_exact:
            rest = rest[(rest > data.min()) & (rest < data.max())]
        return np.sort(self.permute(rest))


def _add_hidden_digits(box: _FreeBox, digits: PaddedDigits, unexplained: Offsets) -> PaddedDigits:
    """Return digits with further leading digits, which all data coordinates leave 0; `digits` if that fails."""
    result = digits
    start = box.factored.offset0
    while len(unexplained):
        stride = int(unexplained[0]) - start
        if stride <= 0:
            return digits
        rest = set(unexplained.tolist())
        extent = 2
        while start + extent * stride in rest:
            extent += 1
        step = next(iter(_with_digit(box, result, extent, stride, len(unexplained))), None)
        if step is None:
            return digits
        result, unexplained = step
    return result


def _with_digit(
    box: _FreeBox, digits: PaddedDigits, extent: int, stride: int, most: int
) -> Iterator[tuple[PaddedDigits, Offsets]]:
    """Yield digits with one more leading digit on one axis, and what they leave unexplained: padded axes first."""
    dims = box.factored.dims
    order = sorted(range(len(dims)), key=lambda i: (digits.padded[i] == dims[i], dims[i] != 1, -i))
    for count in range(extent, 1, -1):
        for i in order:
            axis, n = digits.axes[i], digits.padded[i]
            if n == 1:
                longer = Axis(stride)
            else:
                lead = Digit(n // axis.block, axis.stride)
                longer = Axis(stride, (lead, *axis.inner))
            axes = (*digits.axes[:i], longer, *digits.axes[i + 1 :])
            padded = (*digits.padded[:i], n * count, *digits.padded[i + 1 :])
            rest = box.unexplained(axes, padded)
            if rest is not None and len(rest) < most:
                yield PaddedDigits(padded, axes, len(rest)), rest


def layout_of(digits: PaddedDigits) -> Layout:
    """Return the layout; unit axes, whose stride is free, are outermost."""
    extents = [n // axis.block * abs(axis.stride) for n, axis in zip(digits.padded, digits.axes, strict=True)]
    outermost = max([1, *extents])
    axes = [Axis(outermost) if n == 1 else axis for n, axis in zip(digits.padded, digits.axes, strict=True)]
    return Layout(digits.padded, tuple(axes))
