"""`Layout`, the map from coordinates to offsets, and the questions it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout.axis import RUNTIME, Axis, Digit, Dims, add_offsets, normal_axis
from inlay.layout.overlap import SEARCH_LIMIT, SEARCH_TEXT, box_overlaps


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
            if axis.inner and (least := min(d.extent for d in axis.inner)) < 1:
                raise InvalidArguments(f"axis {i} has an inner digit of extent {least}: extents are 1 or more")

    @classmethod
    def from_strides(cls, dims: Sequence[int], strides: Sequence[int], itemsize: int | None = None) -> "Layout":
        """The plain layout with these strides, in elements, or in bytes when `itemsize` (bytes) is given.

        Raises:
            InvalidArguments: `strides` and `dims` differ in length, an entry is no integer, `itemsize` is not positive,
                or a byte stride is no multiple of it.

        >>> a = np.zeros((3, 4), np.float32).T
        >>> [axis.stride for axis in Layout.from_strides(a.shape, a.strides, a.itemsize).axes]
        [1, 4]
        """
        if len(strides) != len(dims):
            raise InvalidArguments(f"{len(dims)} dims need as many strides, not {len(strides)}: {tuple(strides)}")
        unit = 1 if itemsize is None else itemsize
        if unit < 1:
            raise InvalidArguments(f"itemsize is {unit}: an element has 1 byte or more")
        steps = _integers("stride", strides)
        uneven = [i for i, step in enumerate(steps) if step % unit]
        if uneven:
            i = uneven[0]
            raise InvalidArguments(f"stride {i} is {steps[i]} bytes, no multiple of the {unit}-byte element")
        return cls(_integers("dim", dims), tuple(Axis(step // unit) for step in steps))

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
        """How many coordinates there are, in elements.

        Raises:
            Unimplemented: the layout has RUNTIME dims or strides, as in every query below.
        """
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

        Post-condition: the result is the sum, over all axes and digits, of digit value times stride.

        Raises:
            InvalidArguments: the last axis is not ndims long, an entry is no integer, or a coordinate lies outside the
                dims.
            Unimplemented: the layout has RUNTIME dims or strides, or an array was given and offsets exceed 64 bits.

        >>> rows = Layout.from_strides((3, 4), (4, 1))
        >>> rows.offset((2, 1)), rows.offset([[0, 3], [2, 1]])
        (9, array([3, 9]))
        """
        self._require_bound("offset")
        points = _as_points(coordinates, self.ndims)
        for i, dim in enumerate(self.dims):
            self._require_inside(i, dim, points[..., i])
        if points.ndim == 1:
            return sum(axis.offset(x) for axis, x in zip(self.axes, points.tolist(), strict=True))
        low, high = self.span
        if low < -(2**63) or high > 2**63:
            raise Unimplemented(
                f"offsets {low}..{high - 1} of this layout exceed 64 bits: ask one coordinate at a time"
            )
        total = np.zeros(points.shape[:-1], np.int64)
        for i, axis in enumerate(self.axes):
            add_offsets(total, axis, np.ascontiguousarray(points[..., i], np.int64))
        return total

    def _require_inside(self, i: int, dim: int, x: npt.NDArray[np.integer[Any]]) -> None:
        if x.size == 0 or (x.min() >= 0 and x.max() < dim):
            return
        first = int(x[(x < 0) | (x >= dim)].flat[0])
        bounds = f"outside 0..{dim - 1}" if dim else "outside this axis, which has none"
        raise InvalidArguments(f"coordinate {first} of axis {i} is {bounds}")

    @property
    def span(self) -> tuple[int, int]:
        """The half-open range of offsets that coordinates reach, in elements; (0, 0) when there are none.

        Post-condition: with at least one coordinate, the least offset is span[0] and the greatest is span[1] - 1.

        >>> Layout.from_strides((3, 4), (-4, 1)).span
        (-8, 4)
        """
        if self.size == 0:
            return (0, 0)
        bounds = [axis.bounds(n) for axis, n in zip(self.axes, self.dims, strict=True)]
        return (sum(low for low, _ in bounds), sum(high for _, high in bounds) + 1)

    @property
    def is_dense(self) -> bool:
        """Whether the offsets fill their span without gap or overlap.

        >>> Layout.from_strides((3, 4), (1, 3)).is_dense, Layout.from_strides((3, 4), (5, 1)).is_dense
        (True, False)
        """
        low, high = self.span
        return high - low == self.size and not self.overlaps

    @property
    def overlaps(self) -> bool:
        """Whether two different coordinates share one offset.

        Raises:
            Unimplemented: the strides interleave so that only a long search could tell.

        >>> Layout.from_strides((3, 4), (3, 1)).overlaps
        True
        """
        if self.size < 2:
            return False
        low, high = self.span
        if self.size > high - low:
            return True
        digits = [d for axis in self.normal_form.digits for d in axis]
        if not box_overlaps(sorted(digits, key=lambda d: -abs(d.stride))):
            return False
        # The digits span a box that a partial leading block does not fill: only then can the box overlap alone.
        return self._fills_its_box or self._overlaps_by_enumeration()

    @property
    def normal_form(self) -> "Layout":
        """The one spelling of this map: neighbouring digits that are one digit merged, unit digits dropped.

        Post-condition: two layouts with the same dims have the same normal form exactly when every coordinate has
        the same offset in both.

        >>> Layout((16,), (Axis(16, (Digit(4, 4), Digit(4, 1))),)).normal_form
        Layout(dims=(16,), axes=(Axis(stride=1, inner=()),))
        """
        self._require_bound("normal_form")
        empty = 0 in self.dims
        axes = [Axis(0) if empty else normal_axis(a, n) for a, n in zip(self.axes, self.dims, strict=True)]
        return Layout(self.dims, tuple(axes))

    def equivalent(self, other: "Layout") -> bool:
        """Whether both have the same dims and place every coordinate at the same offset.

        >>> twice, once = Axis(16, (Digit(4, 4), Digit(4, 1))), Axis(16, (Digit(16, 1),))
        >>> Layout((32,), (twice,)).equivalent(Layout((32,), (once,)))
        True
        """
        return self.dims == other.dims and self.normal_form == other.normal_form

    @property
    def _fills_its_box(self) -> bool:
        return all(n == prod(d.extent for d in digits) for n, digits in zip(self.dims, self.digits, strict=True))

    def _overlaps_by_enumeration(self) -> bool:
        if self.size > SEARCH_LIMIT:
            raise Unimplemented(SEARCH_TEXT)
        points = np.indices(self.dims).reshape(self.ndims, -1).T
        return len(np.unique(self.offset(points))) < len(points)


def _integers(what: str, values: Sequence[int]) -> tuple[int, ...]:
    """`values` as Python's own integers, whose arithmetic never wraps."""
    result = []
    for i, value in enumerate(values):
        try:
            result.append(index(value))
        except TypeError:
            raise InvalidArguments(f"{what} {i} is {value!r}: {what}s are integers") from None
    return tuple(result)


def _as_points(coordinates: npt.ArrayLike, ndims: int) -> npt.NDArray[np.integer[Any]]:
    """`coordinates` as an array of integers of shape (..., ndims)."""
    try:
        points = np.asarray(coordinates)
    except ValueError:
        raise InvalidArguments("coordinates have rows of different lengths: each needs one entry per axis") from None
    if points.shape[-1:] != (ndims,):
        raise InvalidArguments(f"a coordinate of this layout has {ndims} entries, got shape {points.shape}")
    if points.size and not np.issubdtype(points.dtype, np.integer):
        raise InvalidArguments(f"coordinates are integers of at most 64 bits, got {points.dtype}")
    return points.astype(np.int64) if points.size == 0 else points
