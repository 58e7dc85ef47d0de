"""A layout is digits: the one idea of Inlay.

A coordinate along a logical axis is read as a mixed-radix number. A layout gives each axis a list of digits
`(extent, stride)`, most significant first, and an element lies at the sum, over all axes and digits, of digit times
stride, counted in elements. Plain strides are one digit per axis; every block is one more. For 17 channels padded
to 24 in blocks of 8, as in oneDNN's nChw8c with 2 x 24 x 5 x 4:

    axis   digits               coordinate 19 of c
    n      (2, 480)
    c      (3, 160) (8, 1)      19 = 2 * 8 + 3   ->   2 * 160 + 3 * 1
    h      (5, 32)
    w      (4, 8)

A layout is stored as it was spelled. The extent of the leading digit is not stored: it is what the dim needs,
`ceil(dim / product of the inner extents)`, so zero dims and partial blocks are no special case. Two spellings of
one map (`aB4b4b` and `aB16b`) differ under `==` and agree in `normal_form`, the form that decides equivalence.

Strides may be any integers: negative (NumPy's `a[::-1]`), zero (broadcast) and overlapping ones are layouts too.
This module knows no tags and no data types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, lcm, prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.errors import InvalidArguments, Unimplemented

RUNTIME = -(2**63)
"""The placeholder for a dim or stride that is known only when data arrives (oneDNN's `DNNL_RUNTIME_DIM_VAL`)."""

Dims: TypeAlias = tuple[int, ...]
Map: TypeAlias = int | tuple[int, ...]
"""Where the values of a digit go: a stride, or one offset for each value. In elements."""


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of a coordinate."""

    extent: int
    """How many values the digit takes."""
    stride: int
    """Elements from one value to the next."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How one logical axis is placed."""

    stride: int
    """Stride of the leading digit, in elements; RUNTIME where unknown."""
    inner: tuple[Digit, ...] = ()
    """The other digits, most significant first."""

    @property
    def block(self) -> int:
        """Consecutive coordinates that share one value of the leading digit: the product of the inner extents."""
        return prod(d.extent for d in self.inner)

    def digits(self, dim: int) -> tuple[Digit, ...]:
        """All digits, the leading one with the extent that `dim` coordinates need."""
        extent = RUNTIME if dim == RUNTIME else -(-dim // self.block)
        return (Digit(extent, self.stride), *self.inner)


@dataclass(frozen=True, slots=True)
class Layout:
    """A map from coordinates to element offsets.

    >>> nChw8c = Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8)))
    >>> nChw8c.offset((1, 19, 0, 2))
    819
    """

    dims: Dims
    """How many coordinates are placed along each axis: data and padding together."""
    axes: tuple[Axis, ...]
    """One per dim."""

    def __post_init__(self) -> None:
        """Refuse what no coordinate system has.

        Raises:
            InvalidArguments: `axes` and `dims` differ in number, a dim is negative, or an inner extent is not positive.
        """
        if len(self.axes) != len(self.dims):
            raise InvalidArguments(f"a layout of {len(self.dims)} dims needs as many axes, not {len(self.axes)}")
        for i, (dim, axis) in enumerate(zip(self.dims, self.axes, strict=True)):
            if dim < 0 and dim != RUNTIME:
                raise InvalidArguments(f"dim {i} is {dim}: dims are 0 or more")
            if any(d.extent < 1 for d in axis.inner):
                raise InvalidArguments(f"axis {i} has an inner digit of extent {min(d.extent for d in axis.inner)}")

    @classmethod
    def from_strides(cls, dims: Sequence[int], strides: Sequence[int], itemsize: int | None = None) -> "Layout":
        """The plain layout with these strides, in elements, or in bytes when `itemsize` (bytes) is given.

        Raises:
            InvalidArguments: `strides` and `dims` differ in length, or a byte stride is no multiple of `itemsize`.

        >>> a = np.zeros((3, 4), np.float32).T
        >>> [axis.stride for axis in Layout.from_strides(a.shape, a.strides, a.itemsize).axes]
        [1, 4]
        """
        if len(strides) != len(dims):
            raise InvalidArguments(f"{len(dims)} dims need as many strides, not {len(strides)}: {tuple(strides)}")
        unit = itemsize or 1
        uneven = [i for i, stride in enumerate(strides) if stride % unit]
        if uneven:
            i = uneven[0]
            raise InvalidArguments(f"stride {i} is {strides[i]} bytes, no multiple of the {unit}-byte element")
        return cls(tuple(dims), tuple(Axis(stride // unit) for stride in strides))

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def digits(self) -> tuple[tuple[Digit, ...], ...]:
        """Per axis, every digit, most significant first."""
        return tuple(axis.digits(dim) for axis, dim in zip(self.axes, self.dims, strict=True))

    @property
    def size(self) -> int:
        """How many coordinates there are, in elements."""
        self._require_bound("size")
        return prod(self.dims)

    @property
    def has_runtime(self) -> bool:
        """Whether a dim or stride is known only when data arrives."""
        return RUNTIME in self.dims or any(axis.stride == RUNTIME for axis in self.axes)

    def _require_bound(self, what: str) -> None:
        if self.has_runtime:
            raise Unimplemented(f"{what} needs every dim and stride: this layout has RUNTIME ones, bind them first")

    def offset(self, coordinates: npt.ArrayLike) -> Any:
        """Elements from the origin to each coordinate: an int for one coordinate, an int64 array for an array of them.

        `coordinates` has shape (..., ndims); the result has the shape before the last axis.

        Raises:
            InvalidArguments: the last axis is not ndims long, or a coordinate lies outside the dims.
            Unimplemented: the layout has RUNTIME dims or strides.
        """
        self._require_bound("offset")
        points = np.asarray(coordinates)
        if points.shape[-1:] != (self.ndims,):
            raise InvalidArguments(f"a coordinate of this layout has {self.ndims} entries, got shape {points.shape}")
        if points.size and not np.issubdtype(points.dtype, np.integer):
            raise InvalidArguments(f"coordinates are integers, got {points.dtype}")
        points = points.astype(np.int64, copy=False)
        total = np.zeros(points.shape[:-1], np.int64)
        for i, axis in enumerate(self.axes):
            total += self._axis_offset(i, axis, points[..., i])
        return int(total) if total.ndim == 0 else total

    def _axis_offset(self, i: int, axis: Axis, x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        outside = (x < 0) | (x >= self.dims[i])
        if outside.any():
            first = int(np.asarray(x)[outside].flat[0])
            raise InvalidArguments(f"coordinate {first} of axis {i} is outside 0..{self.dims[i] - 1}")
        total = np.zeros_like(x)
        for digit in reversed(axis.inner):
            x, low = np.divmod(x, digit.extent)
            total = total + low * digit.stride
        return total + x * axis.stride

    @property
    def span(self) -> tuple[int, int]:
        """The half-open range of offsets that coordinates reach, in elements; (0, 0) when there are none.

        Post-condition: with at least one coordinate, the least offset is span[0] and the greatest is span[1] - 1.

        >>> Layout.from_strides((3, 4), (-4, 1)).span
        (-8, 4)
        """
        if self.size == 0:
            return (0, 0)
        bounds = [_axis_bounds(axis.digits(n), n) for axis, n in zip(self.axes, self.dims, strict=True)]
        return (sum(low for low, _ in bounds), sum(high for _, high in bounds) + 1)

    @property
    def is_dense(self) -> bool:
        """Whether the offsets fill their span without gap or overlap."""
        low, high = self.span
        return high - low == self.size and not self.overlaps

    @property
    def overlaps(self) -> bool:
        """Whether two different coordinates share one offset."""
        if self.size < 2:
            return False
        low, high = self.span
        if self.size > high - low:
            return True
        digits = [d for axis in self.normal_form.digits for d in axis]
        if not _box_overlaps(sorted(digits, key=lambda d: -abs(d.stride))):
            return False
        # The digits span a box that a partial leading block does not fill: only then can the box overlap alone.
        return self._fills_its_box or self._overlaps_by_enumeration()

    @property
    def normal_form(self) -> "Layout":
        """The one spelling of this map: neighbouring digits that are one digit merged, unit digits dropped.

        Post-condition: two layouts with the same dims have the same normal form exactly when every coordinate has
        the same offset in both.
        """
        self._require_bound("normal_form")
        empty = 0 in self.dims
        axes = [Axis(0) if empty else _normal_axis(a, n) for a, n in zip(self.axes, self.dims, strict=True)]
        return Layout(self.dims, tuple(axes))

    def equivalent(self, other: "Layout") -> bool:
        """Whether both place every coordinate at the same offset."""
        return self.dims == other.dims and self.normal_form == other.normal_form

    @property
    def _fills_its_box(self) -> bool:
        return all(n == prod(d.extent for d in digits) for n, digits in zip(self.dims, self.digits, strict=True))

    def _overlaps_by_enumeration(self) -> bool:
        points = np.indices(self.dims).reshape(self.ndims, -1).T
        return len(np.unique(self.offset(points))) < len(points)


def _axis_bounds(digits: Sequence[Digit], n: int) -> tuple[int, int]:
    """The least and greatest offset of the first `n` >= 1 values of a mixed-radix number."""
    if not digits:
        return (0, 0)
    lead, *lower = digits
    block = prod(d.extent for d in lower)
    full, rest = divmod(n, block)
    reached = []
    if full:
        low, high = _axis_bounds(lower, block)
        step = (full - 1) * lead.stride
        reached.append((low + min(0, step), high + max(0, step)))
    if rest:
        low, high = _axis_bounds(lower, rest)
        reached.append((low + full * lead.stride, high + full * lead.stride))
    return (min(low for low, _ in reached), max(high for _, high in reached))


def _box_overlaps(digits: Sequence[Digit]) -> bool:
    """Whether two points of the box of `digits`, sorted by falling |stride|, share an offset.

    They do exactly when some differences, not all zero and each below its extent, times the strides sum to zero.
    """
    reach = [0]
    for digit in reversed(digits):
        reach.append(reach[-1] + (digit.extent - 1) * abs(digit.stride))
    reach.reverse()

    def vanishes(i: int, total: int, moved: bool) -> bool:
        if i == len(digits):
            return moved and total == 0
        extent, stride = digits[i].extent, abs(digits[i].stride)
        if stride == 0:
            return extent > 1 or vanishes(i + 1, total, moved)
        # Only differences that the finer digits can still cancel are worth a look; by symmetry the first is positive.
        lowest = max(-(extent - 1), -((total + reach[i + 1]) // stride)) if moved else 0
        highest = min(extent - 1, (reach[i + 1] - total) // stride)
        return any(vanishes(i + 1, total + k * stride, moved or k != 0) for k in range(lowest, highest + 1))

    return vanishes(0, 0, False)


def _normal_axis(axis: Axis, n: int) -> Axis:
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
        if splits_all and (not chain or (cut % chain[-1] == 0 and chain[-1] < n)):
            chain.append(cut)
    return chain


def _map_between(axis: Axis, low: int, high: int) -> Map:
    """Where `axis` puts the digit of weight `low` and extent `high // low`: a stride if one serves."""
    extent = high // low
    offsets = []
    for value in range(min(extent, 2)) if _is_affine(axis, low, high) else range(extent):
        offsets.append(_offset_of(axis, value * low))
    affine = len(offsets) < extent or all(b - a == offsets[1] for a, b in pairwise(offsets))
    if affine:
        return offsets[1] if extent > 1 else 0
    return tuple(offsets)


def _is_affine(axis: Axis, low: int, high: int) -> bool:
    """Whether no digit boundary of `axis` lies strictly between the weights `low` and `high`."""
    return not any(low < cut < high for cut in _cuts(axis))


def _offset_of(axis: Axis, x: int) -> int:
    total = 0
    for digit in reversed(axis.inner):
        x, value = divmod(x, digit.extent)
        total += value * digit.stride
    return total + x * axis.stride
