"""The address formula: offsets of coordinates, the span of a layout, density, and overlap.

`AddressMap` is the base class of `Layout`. It holds dims and axes, and has the queries that create no other layout:
`offset` is the formula, and the others follow from it. Strides, offsets and spans count elements. Methods that count
bytes have `byte` in their name and take `itemsize`, the bytes of one element. Offset 0 belongs to coordinate 0; with
negative strides, other elements have offsets below 0.

    a = np.zeros((3, 4), np.float32)[::-1]      strides (-4, 1), in bytes (-16, 4)
    span (-8, 4)                                the last row starts 8 elements before the first
    byte_span (-32, 16)

The offsets of many coordinates are computed axis by axis. Coordinates are the rows of an array. Chunks of 16384 rows
are transposed into a contiguous copy that stays in the cache, and the digits of each column are computed in place:

    rows (1000000, 4)   ->   62 times   columns (4, 16384)   ->   16384 offsets

Two coordinates share an offset exactly when there are differences of their digits, not all zero and each smaller than
the extent in magnitude, whose sum of products with the strides is zero. `box_overlaps` searches for such differences.
Nested strides leave one candidate per digit, so the search ends at once. Interleaved strides may leave many, so the
search gives up after `SEARCH_LIMIT` steps.
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
    """The dims and axes of a `Layout`, with its address formula and the queries that follow from it."""

    dims: Dims
    """Number of coordinates along each axis, data and padding together; an entry may be RUNTIME."""
    axes: tuple[Axis, ...]
    """Digits and strides of each axis, one `Axis` per dim."""

    def __init__(self, dims: Dims, axes: tuple[Axis, ...]) -> None:
        """Create the map from its dims and axes.

        Raises:
            InvalidArguments: `axes` and `dims` differ in number, a dim is negative or not an integer, an axis is not an
                `Axis`, or an inner extent is not positive.
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
        """Raise the error for an inner extent below 1."""
        least = [min([d.extent for d in axis.inner], default=1) for axis in self.axes]
        i = next(i for i, extent in enumerate(least) if extent < 1)
        raise InvalidArguments(f"axis {i} has an inner digit of extent {least[i]}: extents are 1 or more")

    def _require_dims(self) -> None:
        """Raise an error if a dim is negative and not RUNTIME."""
        for i, dim in enumerate(self.dims):
            if dim < 0 and dim != RUNTIME:
                raise InvalidArguments(f"dim {i} is {dim}: dims are 0 or more")

    @property
    def ndims(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def digits(self) -> tuple[tuple[Digit, ...], ...]:
        """All digits of each axis, most significant first."""
        return tuple(axis.digits(dim) for axis, dim in zip(self.axes, self.dims, strict=True))

    @property
    def size(self) -> int:
        """The number of coordinates: the product of the dims.

        Raises:
            Unimplemented: the layout has RUNTIME dims or strides, as in every query below.
        """
        self._require_bound("size")
        return prod(self.dims)

    @property
    def has_runtime(self) -> bool:
        """True if a dim or stride is RUNTIME."""
        return RUNTIME in self.dims or RUNTIME in [axis.stride for axis in self.axes]

    def _require_bound(self, what: str) -> None:
        """Raise an error if a dim or stride is RUNTIME; `what` names the query."""
        if self.has_runtime:
            raise Unimplemented(f"{what} needs every dim and stride: this layout has RUNTIME ones, bind them first")

    @property
    def strides(self) -> Dims:
        """The stride of each axis of a plain layout, in elements; an entry may be RUNTIME.

        Post-condition: Layout.from_strides(self.dims, self.strides) is equivalent to self.

        Raises:
            InvalidArguments: an axis has more than one digit, so it has no single stride.

        >>> from inlay.layout import Layout
        >>> Layout.column_major((3, 4)).strides
        (1, 3)
        """
        return tuple([self._stride_of(i) for i in range(self.ndims)])

    def _stride_of(self, i: int) -> int:
        """Return the stride of axis `i`, which must have a single digit."""
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
        """Return the stride of each axis in bytes, as NumPy's `ndarray.strides` and MegEngine's strides.

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
        """Return the offset of each coordinate from the origin, in elements.

        `coordinates` has shape (..., ndims). One coordinate gives an int; an array of coordinates gives an int64 array
        of the shape before the last axis.

        Post-condition: the result is the sum, over all axes and digits, of digit value times stride.

        Raises:
            InvalidArguments: the last axis is not ndims long, an entry is not an integer, or a coordinate is outside
                the dims.
            Unimplemented: the layout has RUNTIME dims or strides, or offsets of an array exceed 64 bits.

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
                f"offsets {low}..{high - 1} of this layout exceed 64 bits: pass one coordinate at a time"
            )
        return compute_offsets(self.dims, self.axes, points)

    def byte_offset(self, coordinates: npt.ArrayLike, itemsize: int) -> Any:
        """Return the offset of each coordinate from the origin in bytes: `offset` times `itemsize`.

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
        """The half-open range of the offsets of all elements; (0, 0) if there are no elements.

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
        """Return the half-open range of the bytes of all elements, counted from the origin; (0, 0) if there are none.

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
        """True if the offsets fill their span without gap or overlap.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 4), (1, 3)).is_dense, Layout.from_strides((3, 4), (5, 1)).is_dense
        (True, False)
        """
        low, high = self.span
        return high - low == self.size and not self.overlaps

    @property
    def is_contiguous(self) -> bool:
        """True if the offset of every coordinate is its row-major index.

        The strides of axes of size 1 are ignored. A layout without elements is contiguous, as in NumPy; MegEngine's
        `TensorLayout::is_contiguous` returns false there.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 1, 4), (4, 9, 1)).is_contiguous, Layout.column_major((3, 4)).is_contiguous
        (True, False)
        """
        return self._is_packed(allow_broadcast=False)

    @property
    def is_contiguous_allow_broadcast(self) -> bool:
        """True if the layout is contiguous once the extent of every digit of stride 0 is reduced to 1.

        Post-condition: the distinct offsets, in the row-major order of their first occurrence, are 0, 1, 2, ...

        Source: MegEngine, `TensorLayout::is_contiguous_allow_brdcst`.

        >>> from inlay.layout import Layout
        >>> Layout.from_strides((3, 5, 4), (4, 0, 1)).is_contiguous_allow_broadcast
        True
        """
        return self._is_packed(allow_broadcast=True)

    def _is_packed(self, allow_broadcast: bool) -> bool:
        """Return True if each digit's stride, from the last digit outward, is the number of coordinates inside it."""
        self._require_bound("is_contiguous")
        if 0 in self.dims:
            return True
        inside = 1
        for n, axis in zip(reversed(self.dims), reversed(self._normal_axes()), strict=True):
            step = inside
            for digit in reversed(axis.digits(n)):
                if digit.extent == 1 or (digit.stride == 0 and allow_broadcast):
                    continue
                if digit.stride != step:
                    return False
                step *= digit.extent
            inside += axis.bounds(n)[1]
        return True

    @property
    def is_non_overlapping(self) -> bool:
        """True if the digits nest: each |stride| exceeds the reach of all digits of smaller |stride|.

        The test is sufficient, not necessary, as MegEngine's `TensorLayout::is_non_overlapping_strong`. True proves
        that no two coordinates share an offset. False proves nothing, because strides may interleave. It is one pass
        over the digits, while `overlaps` is exact and may search long. Unlike MegEngine, it treats positive and
        negative strides together: MegEngine accepts 4 x 3 with strides (1, -2), where (2, 1) and (0, 0) share an
        offset.

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
        """True if two different coordinates share one offset.

        Raises:
            Unimplemented: the strides interleave, and a search of `SEARCH_LIMIT` steps does not decide.

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
        # A partial block leaves a part of the box of digits unused, so an overlap of the box may be outside the dims.
        return self._fills_its_box or self._overlaps_by_enumeration()

    def _normal_axes(self) -> tuple[Axis, ...]:
        """The axes of the normal form."""
        if 0 in self.dims:
            return (Axis(0),) * self.ndims
        return tuple([normal_axis(axis, n) for axis, n in zip(self.axes, self.dims, strict=True)])

    @property
    def _fills_its_box(self) -> bool:
        """True if no block is partial: every combination of digit values is a coordinate within the dims."""
        return all(n == prod(d.extent for d in digits) for n, digits in zip(self.dims, self.digits, strict=True))

    def _overlaps_by_enumeration(self) -> bool:
        """Return True if two coordinates share an offset, by computing all offsets."""
        if self.size > SEARCH_LIMIT:
            raise Unimplemented(SEARCH_LIMIT_TEXT)
        points = np.indices(self.dims).reshape(self.ndims, -1).T
        return len(np.unique(self.offset(points))) < len(points)


# Slots are written as in `axis`: faster than `object.__setattr__`.
_set_dims = vars(AddressMap)["dims"].__set__
_set_axes = vars(AddressMap)["axes"].__set__


# Arguments


def as_numbers(what: str, values: Sequence[int]) -> tuple[int, ...]:
    """Return `values` as Python's own integers, whose arithmetic never wraps; `what` names an entry in errors.

    Raises:
        InvalidArguments: `values` is not iterable, or an entry is not an integer.
    """
    if not isinstance(values, Iterable):
        raise InvalidArguments(f"{what}s are {shown(values)}: give a sequence of integers")
    try:
        entries = tuple(values)
    except TypeError:
        # NumPy arrays without axes are instances of Iterable.
        raise InvalidArguments(f"{what}s are {shown(values)}: give a sequence of integers") from None
    return tuple([_as_number(what, i, value) for i, value in enumerate(entries)])


def _as_number(what: str, i: int, value: object) -> int:
    """Return entry `i` of the argument `what` as a Python integer of at most `MOST_BITS` bits."""
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
    """Return the axes of a layout as a tuple.

    Raises:
        InvalidArguments: `axes` is not a sequence of `Axis`.
    """
    if not isinstance(axes, (tuple, list)) or not all(isinstance(axis, Axis) for axis in axes):
        raise InvalidArguments(f"axes are {shown(axes)}: give a tuple of Axis, such as (Axis(3), Axis(1))")
    return tuple(axes)


def require_itemsize(itemsize: int) -> None:
    """Check that `itemsize` is a number of bytes.

    Raises:
        InvalidArguments: `itemsize` is not a positive integer.
    """
    if type(itemsize) is not int or not 1 <= itemsize < 2**MOST_BITS:
        raise InvalidArguments(f"itemsize is {shown(itemsize)}: an element has a whole number of bytes, 1 or more")


# Offsets of many coordinates


def as_points(coordinates: npt.ArrayLike, ndims: int) -> npt.NDArray[np.integer[Any]]:
    """Return `coordinates` as an array of integers of shape (..., ndims).

    Raises:
        InvalidArguments: the entries are not integers, or the last axis is not `ndims` long.
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
    """Check that all coordinates are within `dims`.

    Raises:
        InvalidArguments: one is not; the error names the first such entry of the first such axis.
    """
    for i, dim in enumerate(dims):
        x = points[..., i]
        if x.size == 0 or (x.min() >= 0 and x.max() < dim):
            continue
        first = int(x[(x < 0) | (x >= dim)].flat[0])
        bounds = f"outside 0..{dim - 1}" if dim else "outside this axis, which has none"
        raise InvalidArguments(f"coordinate {first} of axis {i} is {bounds}")


_CHUNK = 16384
"""Number of coordinates whose offsets are computed together, so that all intermediate arrays stay in the cache."""


def compute_offsets(dims: Dims, axes: Sequence[Axis], points: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the offsets of `points`, of shape (..., ndims), under `axes`; the caller ensures that they fit 64 bits.

    Raises:
        InvalidArguments: as `require_inside`.

    >>> compute_offsets((3, 4), (Axis(4), Axis(1)), np.array([[0, 3], [2, 1]]))
    array([3, 9])
    """
    rows = points.reshape(prod(points.shape[:-1]), len(dims))
    total = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        if not _add_offsets_if_inside(total[part], dims, axes, rows[part].T.astype(np.int64, "C")):
            require_inside(dims, points)
    return total.reshape(points.shape[:-1])


def _add_offsets_if_inside(
    total: npt.NDArray[np.int64], dims: Dims, axes: Sequence[Axis], columns: npt.NDArray[np.int64]
) -> bool:
    """Add the offsets of the coordinates `columns`, one row per axis, to `total`; False if one is outside `dims`."""
    for dim, axis, x in zip(dims, axes, columns, strict=True):
        if x.min() < 0 or x.max() >= dim:
            return False
        _add_offsets(total, axis, x)
    return True


def _add_offsets(total: npt.NDArray[np.int64], axis: Axis, x: npt.NDArray[np.int64]) -> None:
    """Add the offset of each coordinate `x` along one axis to `total`; `x` is overwritten."""
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
"""The most combinations of digit differences that the search for an overlap tries."""

SEARCH_LIMIT_TEXT = (
    "the search for overlapping elements of this layout was given up: its strides interleave. "
    "The search is short for strides that are multiples of the extent they step over"
)


def box_overlaps(digits: Sequence[Digit]) -> bool:
    """Return True if two points of the box of `digits`, sorted by falling |stride|, share an offset.

    The search chooses a difference for each digit in turn. `reach[i]` is the largest sum that the digits from `i` on
    can contribute.

    Raises:
        Unimplemented: the search takes more than `SEARCH_LIMIT` steps.
    """
    reach = [0]
    for digit in reversed(digits):
        reach.append(reach[-1] + (digit.extent - 1) * abs(digit.stride))
    reach.reverse()
    steps = 0

    def can_vanish(i: int, total: int, is_nonzero: bool) -> bool:
        """Return True if digits from `i` on can cancel `total`; `is_nonzero`: an earlier difference is not zero."""
        nonlocal steps
        steps += 1
        if steps > SEARCH_LIMIT:
            raise Unimplemented(SEARCH_LIMIT_TEXT)
        if i == len(digits):
            return is_nonzero and total == 0
        extent, stride = digits[i].extent, abs(digits[i].stride)
        if stride == 0:
            return extent > 1 or can_vanish(i + 1, total, is_nonzero)
        # Try only differences that the digits after this one can cancel. By symmetry, the first nonzero is positive.
        lowest = max(-(extent - 1), -((total + reach[i + 1]) // stride)) if is_nonzero else 0
        highest = min(extent - 1, (reach[i + 1] - total) // stride)
        return any(can_vanish(i + 1, total + k * stride, is_nonzero or k != 0) for k in range(lowest, highest + 1))

    return can_vanish(0, 0, False)
