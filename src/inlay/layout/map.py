"""`Layout`, the map from coordinates to offsets: its constructors, comparisons and views.

A view is another layout of the same elements; no data moves. So the offsets of each view follow from the old ones:

    (3, 4) by rows, strides (4, 1)
    dimshuffle((1, 0))      (4, 3)     strides (1, 4)      (y, x) has the offset that (x, y) had
    broadcast((2, 3, 4))    (2, 3, 4)  strides (0, 4, 1)   all values of the first coordinate have the same offset
    try_reshape((2, 6))     (2, 6)     strides (6, 1)      equal row-major indices have equal offsets
    collapse_contiguous()   (12,)      strides (1,)        the same, with the fewest axes

These are the views of MegEngine's `TensorLayout` and of NumPy's arrays, for layouts of any digits. Those of oneDNN's
descriptors, which know padding and do not cut blocks, are in `inlay.layout.views`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.arguments import as_flag
from inlay.errors import InvalidArguments, shown
from inlay.layout.address import AddressMap, as_numbers, require_itemsize
from inlay.layout.axis import RUNTIME, Axis, Dims
from inlay.layout.permutation import require_permutation
from inlay.layout.regroup import (
    Refusal,
    ViewFault,
    collapse_axes,
    nearest_dims,
    nearest_volumes,
    remedy_text,
    reshape_axes,
    reshape_match,
    reshape_text,
)


@dataclass(frozen=True, slots=True, init=False)
class Layout(AddressMap):
    """A map from coordinates to element offsets.

    >>> from inlay.layout import Axis, Digit
    >>> nChw8c = Layout((2, 24, 5, 4), (Axis(480), Axis(160, (Digit(8, 1),)), Axis(32), Axis(8)))
    >>> nChw8c.offset((1, 19, 0, 2))
    819
    """

    @classmethod
    def from_strides(cls, dims: Sequence[int], strides: Sequence[int], itemsize: int | None = None) -> "Layout":
        """Create the plain layout with these strides, which count elements, or bytes if `itemsize` (bytes) is given.

        Raises:
            InvalidArguments: `strides` and `dims` differ in length, one is not a sequence of integers, `itemsize` is
                not a positive integer, or a byte stride is not a multiple of it.

        >>> import numpy as np
        >>> a = np.zeros((3, 4), np.float32).T
        >>> [axis.stride for axis in Layout.from_strides(a.shape, a.strides, a.itemsize).axes]
        [1, 4]
        """
        sizes, steps = as_numbers("dim", dims), as_numbers("stride", strides)
        if len(steps) != len(sizes):
            raise InvalidArguments(f"{len(sizes)} dims need as many strides, not {len(steps)}: {steps}")
        unit = 1 if itemsize is None else itemsize
        require_itemsize(unit)
        uneven = [i for i, step in enumerate(steps) if step % unit]
        if uneven:
            i = uneven[0]
            raise InvalidArguments(f"stride {i} is {steps[i]} bytes, no multiple of the {unit}-byte element")
        return cls(sizes, tuple(Axis(step // unit) for step in steps))

    @classmethod
    def from_array(cls, array: npt.NDArray[Any]) -> "Layout":
        """Create the layout of a NumPy array; offset 0 is its first element. `inlay.as_strided` is the inverse.

        Post-condition: result.byte_strides(array.itemsize) == array.strides.

        Raises:
            InvalidArguments: `array` is not a NumPy array, or a stride is not a multiple of the element size, as in a
                field of a structured array.

        >>> import numpy as np
        >>> Layout.from_array(np.zeros((3, 4), np.float32)[::-1, ::2]).strides
        (-4, 2)
        """
        if not isinstance(array, np.ndarray):
            raise InvalidArguments(f"array is a {type(array).__name__}: give a NumPy array, as np.asarray(values) is")
        return cls.from_strides(array.shape, array.strides, array.itemsize)

    @classmethod
    def row_major(cls, dims: Sequence[int]) -> "Layout":
        """Create the dense layout whose last axis has stride 1 (C order).

        A dim of 0 counts as 1 in the strides. The strides of the axes left of a RUNTIME dim are RUNTIME.

        Post-condition: result.is_contiguous.

        Raises:
            InvalidArguments: a dim is negative or not an integer.

        >>> Layout.row_major((2, 3, 4)).strides
        (12, 4, 1)
        """
        wanted = as_numbers("dim", dims)
        return cls(wanted, tuple(_nest_axes(wanted[::-1])[::-1]))

    @classmethod
    def column_major(cls, dims: Sequence[int]) -> "Layout":
        """Create the dense layout whose first axis has stride 1 (Fortran order); otherwise as `row_major`.

        Post-condition: result.dimshuffle(reversed axes).is_contiguous.

        Raises:
            InvalidArguments: a dim is negative or not an integer.

        >>> Layout.column_major((2, 3, 4)).strides
        (1, 2, 6)
        """
        wanted = as_numbers("dim", dims)
        return cls(wanted, tuple(_nest_axes(wanted)))

    @property
    def normal_form(self) -> "Layout":
        """The canonical layout of this map: unit digits dropped, contiguous neighboring digits of an axis merged.

        Post-condition: two layouts with the same dims have the same normal form exactly when every coordinate has
        the same offset in both.

        >>> from inlay.layout import Digit
        >>> Layout((16,), (Axis(16, (Digit(4, 4), Digit(4, 1))),)).normal_form
        Layout(dims=(16,), axes=(Axis(stride=1, inner=()),))
        """
        self._require_bound("normal_form")
        return Layout(self.dims, self._normal_axes())

    def equivalent(self, other: "Layout") -> bool:
        """Return True if both layouts have the same dims and the same offset for every coordinate.

        Raises:
            InvalidArguments: `other` is not a Layout.
            Unimplemented: one has RUNTIME dims or strides.

        >>> from inlay.layout import Digit
        >>> twice, once = Axis(16, (Digit(4, 4), Digit(4, 1))), Axis(16, (Digit(16, 1),))
        >>> Layout((32,), (twice,)).equivalent(Layout((32,), (once,)))
        True
        """
        if not isinstance(other, Layout):
            raise InvalidArguments(f"other is {shown(other)}: give the Layout to compare with")
        return self.dims == other.dims and self.normal_form == other.normal_form

    def dimshuffle(self, order: Sequence[int]) -> "Layout":
        """Reorder the axes as NumPy's `transpose` and MegEngine's `dimshuffle`: axis i of the result is `order[i]`.

        Post-condition: result.offset([x[j] for j in order]) == self.offset(x) for every coordinate x.

        Raises:
            InvalidArguments: `order` does not contain each axis once.

        >>> Layout.row_major((2, 3, 4)).dimshuffle((2, 0, 1)).dims
        (4, 2, 3)
        """
        places = as_numbers("place", order)
        require_permutation("order", places, self.ndims)
        return Layout(tuple([self.dims[i] for i in places]), tuple([self.axes[i] for i in places]))

    def add_axis(self, i: int, dim: int = 1, stride: int | None = None) -> "Layout":
        """Insert an axis before axis `i`, or after the last one for `i` == ndims.

        The default stride is that of a dense tensor: the extent of axis `i` in memory, or 1 after the last axis. A
        `dim` of more than 1 reaches elements outside this layout, so `stride` is then required.

        Post-condition: result.offset(x with y inserted at i) == self.offset(x) + y * stride.

        Raises:
            InvalidArguments: `i` is not in 0..ndims, `dim` is negative, or `dim` is more than 1 without `stride`.

        Source: MegEngine, `TensorLayout::add_axis_inplace` and `add_axis_cont_inplace`.

        >>> Layout.row_major((3, 4)).add_axis(1).strides, Layout.row_major((3, 4)).add_axis(0, 2, 0).strides
        ((4, 4, 1), (0, 4, 1))
        """
        (i,), (dim,) = as_numbers("place", (i,)), as_numbers("dim", (dim,))
        if not 0 <= i <= self.ndims:
            raise InvalidArguments(f"an axis can be added at 0..{self.ndims}, not at {i}")
        if stride is None:
            if dim > 1:
                raise InvalidArguments(f"an axis of {dim} needs a stride: 0 repeats the elements, others name new ones")
            stride = _axis_extent(self.dims[i], self.axes[i]) if i < self.ndims else 1
        return Layout((*self.dims[:i], dim, *self.dims[i:]), (*self.axes[:i], Axis(stride), *self.axes[i:]))

    def remove_axis(self, i: int) -> "Layout":
        """Remove axis `i`, keeping the elements at its coordinate 0.

        Post-condition: result.offset(x) == self.offset(x with 0 inserted at i) for every coordinate x.

        Raises:
            InvalidArguments: there is no axis `i`, or its dim is 0.

        Source: MegEngine, `TensorLayout::remove_axis`, which leaves the checks to its caller.

        >>> Layout.row_major((3, 1, 4)).remove_axis(1) == Layout.row_major((3, 4))
        True
        """
        (i,) = as_numbers("place", (i,))
        if not 0 <= i < self.ndims:
            raise InvalidArguments(f"axis {i} cannot be removed: the layout has {self.ndims} axes, counted from 0")
        if self.dims[i] == 0:
            raise InvalidArguments(f"axis {i} cannot be removed: it has 0 elements, so none at coordinate 0")
        return Layout(self.dims[:i] + self.dims[i + 1 :], self.axes[:i] + self.axes[i + 1 :])

    def broadcast(self, dims: Sequence[int]) -> "Layout":
        """Repeat the elements to `dims`, as NumPy's `broadcast_to`: new axes on the left and unit axes get stride 0.

        Post-condition: result.offset(y) == self.offset(x), where x is the last ndims entries of y, with 0 for each axis
        that is repeated.

        Raises:
            InvalidArguments: `dims` are fewer than the axes, or an axis is neither of size 1 nor of its size in `dims`.

        >>> Layout.row_major((3, 1)).broadcast((2, 3, 4)).strides
        (0, 1, 0)
        """
        wanted = as_numbers("dim", dims)
        extra = len(wanted) - self.ndims
        if extra < 0:
            raise InvalidArguments(f"dims {self.dims} cannot be broadcast to {wanted}: those are {-extra} dims fewer")
        axes = [Axis(0)] * extra
        for i, (have, axis, want) in enumerate(zip(self.dims, self.axes, wanted[extra:], strict=True)):
            if have not in (1, want):
                raise InvalidArguments(
                    f"dims {self.dims} cannot be broadcast to {wanted}: axis {i} has {have} elements, not 1 or {want}"
                )
            axes.append(axis if have == want else Axis(0))
        return Layout(wanted, tuple(axes))

    def collapse_contiguous(self) -> "Layout":
        """Join neighboring axes as far as strides allow, keeping the elements and their row-major order.

        Unit axes are dropped. Two neighbors are joined if the stride of the left one is the extent of the right one in
        memory. A single element gives dims (1,) with stride 1, no elements give dims (0,) with stride 1.

        Post-condition: the offsets in row-major order are those of self; no neighbors in the result can be joined.

        Raises:
            Unimplemented: the layout has RUNTIME dims or strides.

        Source: MegEngine, `TensorLayout::collapse_contiguous`.

        >>> Layout.from_strides((2, 3, 1, 4), (100, 8, 7, 2)).collapse_contiguous()
        Layout(dims=(2, 12), axes=(Axis(stride=100, inner=()), Axis(stride=2, inner=())))
        """
        self._require_bound("collapse_contiguous")
        if 0 in self.dims:
            return Layout((0,), (Axis(1),))
        left = collapse_axes(self.dims, self.axes) or [(1, Axis(1))]
        return Layout(tuple([n for n, _ in left]), tuple([axis for _, axis in left]))

    def reshape(self, dims: Sequence[int], *, digits: bool = False) -> "Layout":
        """Return the view that `try_reshape` returns, and raise an error where it returns a refusal.

        Raises:
            InvalidArguments: there is no such view, and the text is that of the `Refusal`; or as `try_reshape`.
            Unimplemented: as `try_reshape`.

        >>> Layout.from_strides((4, 6), (12, 2)).reshape((2, 2, 6)).strides
        (24, 12, 2)
        """
        result = self.try_reshape(dims, digits=digits)
        if isinstance(result, Refusal):
            raise InvalidArguments(str(result))
        return result

    def try_reshape(self, dims: Sequence[int], *, digits: bool = False) -> "Layout | Refusal[Layout]":
        """Return the view of the same elements under other `dims` of equal volume, or a refusal if there is none.

        An axis that is split or joined gets one stride, as in NumPy and MegEngine. An axis that stays as it is keeps
        its digits. With `digits`, new axes may have several digits: then (4, 6) in column-major order can be joined to
        24 coordinates, with the digits (4, 1) (6, 4).

        Post-condition: result.offset(y) == self.offset(x) wherever x and y have the same row-major index.
        Post-condition: in a refusal, `nearest` are dims for which this view exists. `target` is a layout with the dims
            of self whose reshape to `dims` exists.

        Raises:
            InvalidArguments: a dim is negative or not an integer.
            Unimplemented: the layout has RUNTIME dims or strides.

        Source: MegEngine, `TensorLayout::try_reshape`.

        >>> print(Layout.column_major((4, 6)).try_reshape((24,)))
        axis 0 to axis 1 cannot become 24: axis 0 has stride 1, but 24 would follow axis 1 of 6 elements with stride 4
            digits=True gives the view in free digits; to join axis 0 to axis 1, reorder to row-major order first
            (48 elements moved)
        >>> Layout.column_major((4, 6)).try_reshape((24,), digits=True)
        Layout(dims=(24,), axes=(Axis(stride=1, inner=(Digit(extent=6, stride=4),)),))
        """
        self._require_bound("reshape")
        digits = as_flag("digits", digits)
        wanted = Layout.row_major(dims).dims
        result = reshape_axes(self.dims, self.axes, wanted, digits)
        if isinstance(result, ViewFault):
            return self._make_refusal(wanted, result, digits)
        return Layout(wanted, tuple(result))

    def _make_refusal(self, wanted: Dims, fault: ViewFault, digits: bool) -> "Refusal[Layout]":
        """Create the refusal of a reshape to `wanted`, with its repairs."""
        refusal: Refusal[Layout] = Refusal(fault.rule, tuple(range(*fault.match[:2])), fault.problem)
        if fault.rule == "volume":
            shapes = nearest_volumes(prod(self.dims), wanted)
            nearest = next((s for s in shapes if isinstance(reshape_axes(self.dims, self.axes, s, digits), list)), None)
            return replace(refusal, nearest=nearest, remedy=f"{nearest} works" if nearest else "")
        nearest = nearest_dims(
            self.dims,
            self.dims,
            wanted,
            lambda match: isinstance(reshape_match(self.dims, self.axes, wanted, match, digits), list),
        )
        free = None if digits else self.try_reshape(wanted, digits=True)
        view = free if isinstance(free, Layout) else None
        moved = 2 * prod(self.dims)
        remedy = remedy_text(
            f"{self.dims} -> {nearest} works" if nearest else "",
            view is not None,
            f"to {reshape_text(fault.match, 'axis {}'.format)}, reorder to row-major order first "
            f"({moved} elements moved)",
        )
        return replace(
            refusal, nearest=nearest, free=view, target=Layout.row_major(self.dims), moved=moved, remedy=remedy
        )


def _nest_axes(dims: Sequence[int]) -> list[Axis]:
    """Return plain axes of a dense layout for `dims`, of which the first is innermost."""
    axes, stride = [], 1
    for dim in dims:
        axes.append(Axis(stride))
        stride = RUNTIME if RUNTIME in (stride, dim) else stride * (dim or 1)
    return axes


def _axis_extent(dim: int, axis: Axis) -> int:
    """Return the extent of an axis in memory, in elements: stride times extent of its leading digit."""
    return RUNTIME if RUNTIME in (dim, axis.stride) else axis.stride * axis.digits(dim)[0].extent
