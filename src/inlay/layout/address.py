"""The address formula: where each coordinate lies, how far that reaches, and whether two coordinates meet.

`AddressMap` is the half of `Layout` that reads: `offset` is the formula, all else here is a question about it. Strides,
offsets and spans count elements; what counts bytes takes `itemsize`, the bytes of one element, and says so in its name.
A layout knows no data: offset 0 is the element at coordinate 0, wherever that lies, and others may lie before it.

    a = np.zeros((3, 4), np.float32)[::-1]      strides (-4, 1), in bytes (-16, 4)
    span (-8, 4)                                the last row starts 8 elements before the first
    byte_span (-32, 16)

The offsets of many coordinates are computed axis by axis. Coordinates come as rows of an array; so a part of the rows
is turned into columns of its own, small enough to stay in the cache, and every column is read into digits in place:

    rows (1000000, 4)   ->   62 times   columns (4, 16384)   ->   16384 offsets

Two coordinates meet exactly when some differences of digits, not all zero and each below the extent, times the strides
sum to zero. Nested strides leave one candidate per digit, so the search ends at once; strides that interleave may
leave many, so it gives up after `SEARCH_LIMIT` steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from inlay.arguments import MOST_BITS
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout.axis import RUNTIME, Axis, Digit, Dims, normal_axis


@dataclass(frozen=True, slots=True, init=False)
class AddressMap:
    """What a `Layout` is made of and answers."""

    dims: Dims
    """How many coordinates are placed along each axis: data and padding together."""
    axes: tuple[Axis, ...]
    """One per dim."""

    def __init__(self, dims: Dims, axes: tuple[Axis, ...]) -> None:
        """The map of these parts; what no coordinate system has is refused.

        Raises:
            InvalidArguments: `axes` and `dims` differ in number, a dim is negative or no integer, an axis is none, or
                an inner extent is not positive.
        """
        if type(dims) is not tuple or type(axes) is not tuple:
            dims, axes = as_numbers("dim", dims), _as_axes(axes)
        _set_dims(self, dims)
        _set_axes(self, axes)
        if len(axes) != len(dims):
            raise InvalidArguments(f"a layout of {len(dims)} dims needs as many axes, not {len(axes)}")
        for dim in dims:
            if type(dim) is not int or dim < 0:
                _set_dims(self, as_numbers("dim", dims))
                self._require_dims()
        for axis in axes:
            if type(axis) is not Axis:
                _as_axes(axes)
            if axis.inner:
                for digit in axis.inner:
                    if digit.extent < 1:
                        self._refuse_extent()

    def _refuse_extent(self) -> NoReturn:
        least = [min([d.extent for d in axis.inner], default=1) for axis in self.axes]
        i = next(i for i, extent in enumerate(least) if extent < 1)
        raise InvalidArguments(f"axis {i} has an inner digit of extent {least[i]}: extents are 1 or more")

    def _require_dims(self) -> None:
        for i, dim in enumerate(self.dims):
            if dim < 0 and dim != RUNTIME:
                raise InvalidArguments(f"dim {i} is {dim}: dims are 0 or more")

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
        return RUNTIME in self.dims or RUNTIME in [axis.stride for axis in self.axes]

    def _require_bound(self, what: str) -> None:
        if self.has_runtime:
            raise Unimplemented(f"{what} needs every dim and stride: this layout has RUNTIME ones, bind them first")

    @property
    def strides(self) -> Dims:
        """Elements from each coordinate to the next along each axis, for a plain layout; an entry may be RUNTIME.

        Post-condition: Layout.from_strides(self.dims, self.strides) is equivalent to self.

        Raises:
            InvalidArguments: an axis has more than one digit, so no stride leads from each coordinate to the next.

        >>> from inlay.layout import Layout
        >>> Layout.column_major((3, 4)).strides
        (1, 3)
        """
        return tuple([self._stride_of(i) for i in range(self.ndims)])

    def _stride_of(self, i: int) -> int:
        axis = self.axes[i]
        if axis.inner and self.dims[i] != RUNTIME:
            axis = normal_axis(axis, self.dims[i]) if self.dims[i] else Axis(0)
        if axis.inner:
            digits = " ".join(f"({d.extent}, {d.stride})" for d in axis.digits(self.dims[i]))
            raise InvalidArguments(
                f"axis {i} has no one stride: it has digits {digits}; read `digits`, or reorder to a plain one"
            )
        return axis.stride

    def byte_strides(self, itemsize: int) -> Dims:
        """Bytes from each coordinate to the next along each axis: NumPy's `ndarray.strides`, MegEngine's strides.

        Post-condition: Layout.from_strides(self.dims, self.byte_strides(n), n) is equivalent to self.

        Raises:
            InvalidArguments: `itemsize` is not positive, or the layout is not plain, as for `strides`.
            Unimplemented: a stride is RUNTIME.

        >>> from inlay.layout import Layout
        >>> Layout.row_major((2, 5)).byte_strides(4)
        (20, 4)
        """
        require_itemsize(itemsize)
        strides = self.strides
        if RUNTIME in strides:
            raise Unimplemented("byte_strides needs every stride: this layout has RUNTIME ones, bind them first")
        return tuple([stride * itemsize for stride in strides])

    def offset(self, coordinates: npt.ArrayLike) -> Any:
        """Elements from the origin to each coordinate: an int for one coordinate, an int64 array for an array of them.

        `coordinates` has shape (..., ndims); the result has the shape before the last axis.

        Post-condition: the result is the sum, over all axes and digits, of digit value times stride.

        Raises:
            InvalidArguments: the last axis is not ndims long, an entry is no integer, or a coordinate lies outside the
                dims.
            Unimplemented: the layout has RUNTIME dims or strides, or an array was given and offsets exceed 64 bits.

        >>> from inlay.layout import Layout
        >>> rows = Layout.from_strides((3, 4), (4, 1))
        >>> rows.offset((2, 1)), rows.offset([[0, 3], [2, 1]])
        (9, array([3, 9]))
        """
        self._require_bound("offset")
        points = as_points(coordinates, self.ndims)
        if points.ndim == 1:
            require_inside(self.dims, points)
            return sum(axis.offset(x) for axis, x in zip(self.axes, points.tolist(), strict=True))
        low, high = self.span
        if low < -(2**63) or high > 2**63:
            require_inside(self.dims, points)
            raise Unimplemented(
                f"offsets {low}..{high - 1} of this layout exceed 64 bits: ask one coordinate at a time"
            )
        return offsets_of(self.dims, self.axes, points)

    def byte_offset(self, coordinates: npt.ArrayLike, itemsize: int) -> Any:
        """Bytes from the origin to each coordinate: `offset` times `itemsize`.

        Raises:
            InvalidArguments: `itemsize` is not positive, or as `offset`.
            Unimplemented: as `offset`.

        >>> from inlay.layout import Layout
        >>> Layout.row_major((2, 5)).byte_offset((1, 2), 4)
        28
        """
        require_itemsize(itemsize)
        return self.offset(coordinates) * itemsize

    @property
    def span(self) -> tuple[int, int]:
        """The half-open range of offsets that coordinates reach, in elements; (0, 0) when there are none.

        Post-condition: with at least one coordinate, the least offset is span[0] and the greatest is span[1] - 1.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 4), (-4, 1)).span
        (-8, 4)
        """
        if self.size == 0:
            return (0, 0)
        bounds = [axis.bounds(n) for axis, n in zip(self.axes, self.dims, strict=True)]
        return (sum(low for low, _ in bounds), sum(high for _, high in bounds) + 1)

    def byte_span(self, itemsize: int) -> tuple[int, int]:
        """The half-open range of bytes that elements take, counted from the origin; (0, 0) when there are none.

        Raises:
            InvalidArguments: `itemsize` is not positive.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 4), (-4, 1)).byte_span(4)
        (-32, 16)
        """
        require_itemsize(itemsize)
        low, high = self.span
        return (low * itemsize, high * itemsize)

    @property
    def is_dense(self) -> bool:
        """Whether the offsets fill their span without gap or overlap.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 4), (1, 3)).is_dense, Layout.from_strides((3, 4), (5, 1)).is_dense
        (True, False)
        """
        low, high = self.span
        return high - low == self.size and not self.overlaps

    @property
    def is_contiguous(self) -> bool:
        """Whether every coordinate's offset is its row-major index.

        Strides of axes of one do not count. A layout of no coordinates is contiguous, as in NumPy; MegEngine's
        `TensorLayout::is_contiguous` says no there.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 1, 4), (4, 9, 1)).is_contiguous, Layout.column_major((3, 4)).is_contiguous
        (True, False)
        """
        return self._is_packed(allow_broadcast=False)

    @property
    def is_contiguous_allow_broadcast(self) -> bool:
        """Whether the layout is contiguous once every digit of stride 0 counts as one coordinate.

        Post-condition: the distinct offsets, in the row-major order in which they are first met, are 0, 1, 2, ...

        Source: MegEngine, `TensorLayout::is_contiguous_allow_brdcst`.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 5, 4), (4, 0, 1)).is_contiguous_allow_broadcast
        True
        """
        return self._is_packed(allow_broadcast=True)

    def _is_packed(self, allow_broadcast: bool) -> bool:
        """Whether the digits, from the last one outward, each start where the ones inside them end."""
        self._require_bound("is_contiguous")
        if 0 in self.dims:
            return True
        need = 1
        for n, axis in zip(reversed(self.dims), reversed(self._normal_axes()), strict=True):
            step = need
            for digit in reversed(axis.digits(n)):
                if digit.extent == 1 or (digit.stride == 0 and allow_broadcast):
                    continue
                if digit.stride != step:
                    return False
                step *= digit.extent
            need += axis.bounds(n)[1]
        return True

    @property
    def is_non_overlapping(self) -> bool:
        """Whether the digits nest: each steps over all that the finer ones, of smaller |stride|, reach.

        Strict, as MegEngine means it (`TensorLayout::is_non_overlapping_strong`): True is a proof that no two
        coordinates share an offset; False is none that two do, as strides may interleave. `overlaps` is exact and may
        search long; this is one pass. Unlike MegEngine's, which weighs positive and negative strides apart and so
        accepts 4 x 3 with strides (1, -2), where (2, 1) meets (0, 0), it weighs them together.

        Post-condition: not (self.is_non_overlapping and self.overlaps).

        >>> from inlay.layout import Layout
        >>> nested, interleaved = Layout.from_strides((3, 4), (-5, 1)), Layout.from_strides((3, 2), (2, 3))
        >>> nested.is_non_overlapping, interleaved.is_non_overlapping, interleaved.overlaps
        (True, False, False)
        """
        self._require_bound("is_non_overlapping")
        if 0 in self.dims:
            return True
        digits = [d for axis, n in zip(self._normal_axes(), self.dims, strict=True) for d in axis.digits(n)]
        reach = 0
        for step, extent in sorted((abs(d.stride), d.extent) for d in digits):
            if extent == 1:
                continue
            if step <= reach:
                return False
            reach += step * (extent - 1)
        return True

    @property
    def overlaps(self) -> bool:
        """Whether two different coordinates share one offset.

        Raises:
            Unimplemented: the strides interleave so that only a long search could tell.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 4), (3, 1)).overlaps
        True
        """
        if self.size < 2:
            return False
        low, high = self.span
        if self.size > high - low:
            return True
        digits = [d for axis, n in zip(self._normal_axes(), self.dims, strict=True) for d in axis.digits(n)]
        if not box_overlaps(sorted(digits, key=lambda d: -abs(d.stride))):
            return False
        # The digits span a box that a partial leading block does not fill: only then can the box overlap alone.
        return self._fills_its_box or self._overlaps_by_enumeration()

    def _normal_axes(self) -> tuple[Axis, ...]:
        """The axes of the normal form."""
        if 0 in self.dims:
            return (Axis(0),) * self.ndims
        return tuple([normal_axis(axis, n) for axis, n in zip(self.axes, self.dims, strict=True)])

    @property
    def _fills_its_box(self) -> bool:
        return all(n == prod(d.extent for d in digits) for n, digits in zip(self.dims, self.digits, strict=True))

    def _overlaps_by_enumeration(self) -> bool:
        if self.size > SEARCH_LIMIT:
            raise Unimplemented(SEARCH_TEXT)
        points = np.indices(self.dims).reshape(self.ndims, -1).T
        return len(np.unique(self.offset(points))) < len(points)


# As for `Axis`.
_set_dims = vars(AddressMap)["dims"].__set__
_set_axes = vars(AddressMap)["axes"].__set__


# Arguments


def as_numbers(what: str, values: Sequence[int]) -> tuple[int, ...]:
    """`values` as Python's own integers, whose arithmetic never wraps; `what` names one of them in messages.

    Raises:
        InvalidArguments: `values` is no sequence, or an entry is no integer.
    """
    if not isinstance(values, Iterable):
        raise InvalidArguments(f"{what}s are {shown(values)}: give a sequence of integers")
    try:
        entries = tuple(values)
    except TypeError:
        # NumPy's arrays without axes call themselves iterable.
        raise InvalidArguments(f"{what}s are {shown(values)}: give a sequence of integers") from None
    return tuple([_as_number(what, i, value) for i, value in enumerate(entries)])


def _as_number(what: str, i: int, value: object) -> int:
    if type(value) is int and value.bit_length() <= MOST_BITS:
        return value
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArguments(f"{what} {i} is {shown(value)}: {what}s are integers") from None
    if number.bit_length() > MOST_BITS:
        raise InvalidArguments(f"{what} {i} is {shown(number)}: {what}s have at most {MOST_BITS} bits")
    return number


def _as_axes(axes: object) -> tuple[Axis, ...]:
    """The axes of a layout as a tuple.

    Raises:
        InvalidArguments: they are none.
    """
    if not isinstance(axes, (tuple, list)) or not all(isinstance(axis, Axis) for axis in axes):
        raise InvalidArguments(f"axes are {shown(axes)}: give a tuple of Axis, such as (Axis(3), Axis(1))")
    return tuple(axes)


def require_itemsize(itemsize: int) -> None:
    """Refuse what is no number of bytes.

    Raises:
        InvalidArguments: `itemsize` is no positive integer.
    """
    if type(itemsize) is not int or not 1 <= itemsize < 2**MOST_BITS:
        raise InvalidArguments(f"itemsize is {shown(itemsize)}: an element has a whole number of bytes, 1 or more")


# Offsets of many coordinates


def as_points(coordinates: npt.ArrayLike, ndims: int) -> npt.NDArray[np.integer[Any]]:
    """`coordinates` as an array of integers of shape (..., ndims).

    Raises:
        InvalidArguments: they are no integers, or their last axis is not `ndims` long.
    """
    try:
        points = np.asarray(coordinates)
    except ValueError:
        raise InvalidArguments("coordinates have rows of different lengths: each needs one entry per axis") from None
    if points.shape[-1:] != (ndims,):
        raise InvalidArguments(f"a coordinate of this layout has {ndims} entries, got shape {points.shape}")
    if points.size and not np.issubdtype(points.dtype, np.integer):
        raise InvalidArguments(f"coordinates are integers of at most 64 bits, got {points.dtype}")
    return points


def require_inside(dims: Dims, points: npt.NDArray[np.integer[Any]]) -> None:
    """Refuse coordinates beyond `dims`.

    Raises:
        InvalidArguments: there is one; the first of the first axis concerned is named.
    """
    for i, dim in enumerate(dims):
        x = points[..., i]
        if x.size == 0 or (x.min() >= 0 and x.max() < dim):
            continue
        first = int(x[(x < 0) | (x >= dim)].flat[0])
        bounds = f"outside 0..{dim - 1}" if dim else "outside this axis, which has none"
        raise InvalidArguments(f"coordinate {first} of axis {i} is {bounds}")


_AT_ONCE = 16384
"""Coordinates whose offsets are computed together: they and all that is computed from them stay in the cache."""


def offsets_of(dims: Dims, axes: Sequence[Axis], points: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Where `axes` put `points`, of shape (..., ndims); the offsets fit 64 bits.

    Raises:
        InvalidArguments: as `require_inside`.

    >>> offsets_of((3, 4), (Axis(4), Axis(1)), np.array([[0, 3], [2, 1]]))
    array([3, 9])
    """
    rows = points.reshape(prod(points.shape[:-1]), len(dims))
    total = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        if not _add_inside(total[part], dims, axes, rows[part].T.astype(np.int64, "C")):
            require_inside(dims, points)
    return total.reshape(points.shape[:-1])


def _add_inside(total: npt.NDArray[np.int64], dims: Dims, axes: Sequence[Axis], columns: npt.NDArray[np.int64]) -> bool:
    """Add to `total` the offsets of the coordinates `columns`, one row per axis; False if one lies outside."""
    for dim, axis, x in zip(dims, axes, columns, strict=True):
        if x.min() < 0 or x.max() >= dim:
            return False
        _add_offsets(total, axis, x)
    return True


def _add_offsets(total: npt.NDArray[np.int64], axis: Axis, x: npt.NDArray[np.int64]) -> None:
    """Add to `total` where `axis` puts each of the coordinates `x`, which are used up."""
    for digit in reversed(axis.inner):
        # A shift and a mask take a tenth of the time of a division.
        if digit.extent & (digit.extent - 1) == 0:
            low = x & (digit.extent - 1)
            x >>= digit.extent.bit_length() - 1
        else:
            x, low = np.divmod(x, digit.extent)
        low *= digit.stride
        total += low
    x *= axis.stride
    total += x


# Overlap


SEARCH_LIMIT = 500_000
SEARCH_TEXT = (
    "whether elements of this layout overlap cannot be told in reasonable time: its strides interleave. "
    "Strides that are multiples of the extent they step over are told at once"
)


def box_overlaps(digits: Sequence[Digit]) -> bool:
    """Whether two points of the box of `digits`, sorted by falling |stride|, share an offset."""
    reach = [0]
    for digit in reversed(digits):
        reach.append(reach[-1] + (digit.extent - 1) * abs(digit.stride))
    reach.reverse()
    steps = 0

    def vanishes(i: int, total: int, moved: bool) -> bool:
        nonlocal steps
        steps += 1
        if steps > SEARCH_LIMIT:
            raise Unimplemented(SEARCH_TEXT)
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
