"""What is to be moved: the first stage of the reorder compiler.

A problem is two layouts of the same logical tensor and two element types, stripped of everything that does not
change a single byte of the result: unit digits, the way a tag was spelled, data beyond the logical dims of the
source. Types that only move are numbers of their width here. Two pairs of descriptors that ask for the same moves give
the same problem, so it is what caches are keyed by.

Per logical axis, coordinates below `data` are copied, those from `data` to `stored` are padding of the destination
and become zero, and nothing else is touched.
"""

from dataclasses import dataclass, replace
from math import prod

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.computation import Place, step_places


@dataclass(frozen=True, slots=True)
class ProblemAxis:
    """One logical axis of the move."""

    data: int
    """Coordinates that hold data."""
    stored: int
    """Coordinates that the destination stores: data, then zeros."""
    src: Axis
    """Where the source keeps coordinates below `data`, in elements."""
    dst: Axis
    """Where the destination keeps coordinates below `stored`, in elements."""


@dataclass(frozen=True, slots=True)
class ReorderProblem:
    """A move of elements from one layout to another."""

    axes: tuple[ProblemAxis, ...]
    """The logical axes."""
    src_type: DataType
    """Type of the source elements."""
    dst_type: DataType
    """Type of the destination elements."""
    src_offset: int
    """Elements from the start of the source buffer to the coordinate of all zeros."""
    dst_offset: int
    """The same of the destination."""
    attributes: Attributes = PLAIN
    """What is computed on the way."""
    factor: float = 1.0
    """What elements are multiplied by as well (`Extras.scale_adjust`)."""

    @property
    def dims(self) -> Dims:
        """The logical dims."""
        return tuple(axis.data for axis in self.axes)

    @property
    def computes(self) -> bool:
        """Whether elements are computed on, not only converted."""
        by_chance = self.attributes.rounding_mode == "stochastic" and self.src_type != self.dst_type
        return self.attributes.computes or self.factor != 1 or by_chance

    @property
    def places(self) -> tuple[Place, ...]:
        """The distinct ways in which the values of attributes spread."""
        if not self.computes:
            return ()
        found = step_places(self.attributes, self.factor, self.dims).values()
        return tuple(dict.fromkeys(place for place in found if place is not None))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be written."""
        return any(axis.stored == 0 for axis in self.axes)

    @property
    def written_bits(self) -> int:
        """The bits of the destination's elements, padding included."""
        return prod(axis.stored for axis in self.axes) * self.dst_type.bits

    @property
    def moved_bytes(self) -> int:
        """The compulsory bytes: source elements read plus destination elements written, padding included."""
        return -(-(prod(self.dims) * self.src_type.bits + self.written_bits) // 8)

    def __str__(self) -> str:
        """One line for each axis: what is copied, what is zeroed, and the digits of both sides."""
        lines = [f"{self.src_type} -> {self.dst_type}"]
        for i, axis in enumerate(self.axes):
            sides = [
                " ".join(f"({d.extent},{d.stride})" for d in side.digits(axis.stored)) for side in (axis.src, axis.dst)
            ]
            padding = f" + {axis.stored - axis.data} zeros" if axis.stored > axis.data else ""
            lines.append(f"  axis {i}: {axis.data}{padding}   {sides[0]}  ->  {sides[1]}")
        if self.computes:
            lines.append(f"  {self.attributes}{f', times {self.factor}' if self.factor != 1 else ''}")
        return "\n".join(lines)


def reorder_problem(
    src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN, factor: float = 1.0
) -> ReorderProblem:
    """The problem of moving a tensor described by `src` into memory described by `dst`, computing on the way.

    Raises:
        InvalidArguments: the dims differ, a side has no layout to address (`any`, zero, opaque, host scalar), or
            elements of the destination share an offset.
        Unimplemented: dims or strides are RUNTIME, no conversion between the types exists, or the destination has
            extras.
    """
    src_layout, dst_layout = _layout_of(src, "source"), _layout_of(dst, "destination")
    require_same_dims(src, dst)
    if src_layout.has_runtime or dst_layout.has_runtime:
        raise Unimplemented("a reorder needs every dim and stride: bind the RUNTIME ones first")
    assert src.data_type is not None
    assert dst.data_type is not None
    require_no_extras(src, dst)
    require_distinct(dst_layout)
    axes = [
        ProblemAxis(n, stored, a, b)
        for n, stored, a, b in zip(
            src.dims,
            dst_layout.dims,
            src_layout.normal_form.axes,
            dst_layout.normal_form.axes,
            strict=True,
        )
    ]
    starts = (src.offset0, dst.offset0)
    if src.data_type.is_number and dst.data_type.is_number:
        return ReorderProblem(tuple(axes), src.data_type, dst.data_type, *starts, attributes, factor)
    carrier = _carrier(src.data_type, dst.data_type)
    count = src.data_type.bits // carrier.bits
    if count > 1:
        axes = [replace(axis, src=_spread(axis.src, count), dst=_spread(axis.dst, count)) for axis in axes]
        axes.append(ProblemAxis(count, count, Axis(1), Axis(1)))
    return ReorderProblem(tuple(axes), carrier, carrier, count * starts[0], count * starts[1])


def _carrier(src: DataType, dst: DataType) -> DataType:
    """The type whose moves are those of a type that only moves.

    Raises:
        Unimplemented: the types differ.
    """
    if src != dst:
        moved = dst if src.is_number else src
        raise Unimplemented(
            f"no conversion from {src} to {dst} exists: {moved} only moves; convert the array with astype first"
        )
    return src.moved_as


def _spread(axis: Axis, count: int) -> Axis:
    """The axis where each element is `count` of another type."""
    return Axis(axis.stride * count, tuple(Digit(digit.extent, digit.stride * count) for digit in axis.inner))


def _layout_of(desc: MemoryDesc, side: str) -> Layout:
    if isinstance(desc.layout, Layout):
        return desc.layout
    raise InvalidArguments(f"the {side} of a reorder is of kind {desc.kind}: give it a layout with addresses")


def require_same_dims(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Refuse two tensors of different dims.

    Raises:
        InvalidArguments: the dims differ.
    """
    if src.dims != dst.dims:
        raise InvalidArguments(f"a reorder keeps the dims: source {src.dims}, destination {dst.dims}")


def require_distinct(dst: Layout) -> None:
    """Refuse a destination that has two elements in one place.

    Raises:
        InvalidArguments: some elements share an offset.
    """
    if dst.overlaps:
        raise InvalidArguments("elements of the destination overlap: give every element an offset of its own")


def require_no_extras(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Refuse extras that a plain move does not compute: all of a destination, and a source's factor.

    Raises:
        Unimplemented: the destination has extras, or the weights of the source were multiplied by a factor.
    """
    if dst.extras:
        raise Unimplemented(
            f"the destination keeps compensation or a factor with its elements ({dst.extras!r}), which a reorder does "
            "not compute: describe it without extras"
        )
    require_factor(src, 1.0)


def require_factor(src: MemoryDesc, wanted: float) -> None:
    """Refuse weights that were multiplied by another factor than the wanted one.

    Raises:
        Unimplemented: they were.
    """
    if src.extras.scale_adjust not in (1, wanted):
        raise Unimplemented(
            f"the weights of the source were multiplied by {src.extras.scale_adjust}, which a reorder does not undo: "
            "describe it without extras"
        )
