"""What is to be moved, and what is computed on the way: the first stage of the reorder compiler.

A problem is two layouts of the same logical tensor and two element types, stripped of everything that does not
change a single byte of the result: unit digits, the way a tag was spelled, data beyond the logical dims of the
source. Types that only move are numbers of their width here. Two pairs of descriptors that ask for the same moves give
the same problem, so it is what caches are keyed by.

Per logical axis, coordinates below `data` are copied, those from `data` to `stored` are padding of the destination
and become zero, and nothing else is touched.

The values of one attribute are an array of their own. Which of them an element takes is a sum over the loops of the
nest, as its place in the source is; so each distinct way to spread values is a count of the nest, beside those that
have bounds, and costs what one more stride costs. Groups are one more digit: of 96 rows in groups of 32, the loop over
rows is split in 3 times 32, and only the outer one moves on.

>>> value_layout(Scales(mask=0b11, groups=(32, 1)), (96, 16))
ValueLayout(strides=(16, 1), groups=(32, 1))

In registers, a value is the same for all lanes, or lies in a pattern that is known when the code is made (one for each
lane, or each for several), or is gathered lane by lane. The formula runs where elements are in the working type
anyway: after the load if the destination is narrower, else before the store; a sum always before the store.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.reordering.attributes import PLAIN, Attributes, QuantizationAttribute, Scales


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
class ValueLayout:
    """How the values of an attribute spread over a tensor."""

    strides: tuple[int, ...]
    """For each axis, values from one group of coordinates to the next; 0 where all share one."""
    groups: tuple[int, ...]
    """For each axis, how many coordinates are a group."""


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
    def value_layouts(self) -> tuple[ValueLayout, ...]:
        """The distinct ways in which the values of attributes spread."""
        if not self.computes:
            return ()
        found = step_value_layouts(self.attributes, self.factor, self.dims).values()
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


def build_reorder_problem(
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
    _require_no_extras(src, dst)
    require_distinct(dst_layout)
    src_axes, dst_axes = src_layout.normal_form.axes, dst_layout.normal_form.axes
    axes = [ProblemAxis(*parts) for parts in zip(src.dims, dst_layout.dims, src_axes, dst_axes, strict=True)]
    starts = (src.offset0, dst.offset0)
    if src.data_type.is_number and dst.data_type.is_number:
        return ReorderProblem(tuple(axes), src.data_type, dst.data_type, *starts, attributes, factor)
    carrier = _moved_type(src.data_type, dst.data_type)
    count = src.data_type.bits // carrier.bits
    if count > 1:
        axes = [replace(axis, src=_scale_axis(axis.src, count), dst=_scale_axis(axis.dst, count)) for axis in axes]
        axes.append(ProblemAxis(count, count, Axis(1), Axis(1)))
    return ReorderProblem(tuple(axes), carrier, carrier, count * starts[0], count * starts[1])


def _layout_of(desc: MemoryDesc, side: str) -> Layout:
    if isinstance(desc.layout, Layout):
        return desc.layout
    raise InvalidArguments(f"the {side} of a reorder is of kind {desc.kind}: give it a layout with addresses")


def _moved_type(src: DataType, dst: DataType) -> DataType:
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


def _scale_axis(axis: Axis, count: int) -> Axis:
    """The axis where each element is `count` of another type."""
    return Axis(axis.stride * count, tuple(Digit(digit.extent, digit.stride * count) for digit in axis.inner))


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


def _require_no_extras(src: MemoryDesc, dst: MemoryDesc) -> None:
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


# What is computed


def value_layout(entry: QuantizationAttribute, dims: Dims) -> ValueLayout | None:
    """How the values of an attribute spread over a tensor of these dims; None where there is but one."""
    shape = entry.shape(dims)
    strides = []
    step = 1
    for count in reversed(shape):
        strides.append(step if count > 1 else 0)
        step *= count
    if not any(strides):
        return None
    groups = tuple(n // count if count > 1 else 1 for n, count in zip(dims, shape, strict=True))
    return ValueLayout(tuple(reversed(strides)), groups)


STEPS = ("src_zero_points", "src_scales", "factor", "sum", "dst_scales", "dst_zero_points", "stochastic")
"""What takes a value, in the order of the formula; `factor` is the one of `Extras.scale_adjust`, `chance` stochastic
rounding, which takes the row-major index of each element."""


def step_value_layouts(attributes: Attributes, factor: float, dims: Dims) -> dict[str, ValueLayout | None]:
    """How values spread, for each step of the formula that takes some, in their order."""
    found: dict[str, ValueLayout | None] = {
        name: value_layout(attributes.entry(name), dims) for name in attributes.names
    }
    if attributes.sum is not None:
        found["sum"] = None
    if factor != 1:
        found["factor"] = None
    if attributes.rounding_mode == "stochastic":
        found["stochastic"] = value_layout(Scales((1 << len(dims)) - 1), dims)
    return {step: found[step] for step in STEPS if step in found}


def working_type(src: DataType, dst: DataType, attributes: Attributes, factor: float) -> str:
    """The name of the type in which elements are computed on (decision 0007)."""
    names = {src.name, dst.name}
    is_exact = "s32" in names and src.kind != "float" and dst.kind != "float"
    is_scaled = attributes.scales or factor != 1
    return "f64" if 64 in (src.bits, dst.bits) or (is_exact and not is_scaled) else "f32"


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """One step of the formula."""

    step: str
    """Which."""
    count: int | None
    """The count of the nest that says which value an element takes; None where all take the same."""
    lanes: tuple[int, ...] | None
    """For each lane, which value after that of its register; None where the table says it."""


@dataclass(frozen=True, slots=True)
class Computation:
    """What the code of a kernel computes between load and store."""

    working: str
    """Name of the type in which it does."""
    side: Literal["src", "dst"]
    """Where: in the order in which elements are loaded, or in that in which they are stored."""
    values: tuple[FormulaStep, ...]
    """The steps, in their order; value number k is at the address that lies k + 1 words before the table."""
    counts: int
    """How many counts of the nest say where values lie: the first ones."""

    @property
    def sums(self) -> bool:
        """Whether the old elements of the destination are read."""
        return any(value.step == "sum" for value in self.values)
