"""The reorder problem: the data to move and the formula to compute. First stage of the compiler.

A problem consists of two layouts of the same logical tensor and two element types. It is normalized: everything that
does not change a byte of the result is removed, such as digits of extent 1, the spelling of a format tag, and source
data beyond the logical dims. A type without arithmetic (complex numbers, for example) is replaced by integers of the
same width. Two pairs of descriptors that need the same moves give equal problems, so problems serve as cache keys.

Elements at an offset of a layout may be stored at the swizzled offset instead (`inlay.layout.Swizzle`).

Along each logical axis, coordinates below `data` are copied. Coordinates from `data` to `stored` are padding of the
destination and are set to zero. No other byte is touched.

The scales or zero points of an attribute are an array. The index of the value that belongs to an element is a linear
function of the loop indices, like the element's offset in the source. So the loop nest computes each distinct index
function as one more sum (a "value index"), at the cost of one more stride. A group of coordinates that shares a value
is one more digit: an axis of 96 rows in groups of 32 becomes a loop of 3 around a loop of 32, and only the outer loop
advances the value index.

>>> value_layout(Scales(mask=0b11, groups=(32, 1)), (96, 16))
ValueLayout(strides=(16, 1), groups=(32, 1))

A register needs one value per lane. Either all lanes use the same value, or the lanes use neighboring values in a
pattern that is known when the code is compiled, or each lane gathers its own value. The formula is computed next to the
wider element type, where elements are in the working type anyway: after the load if the destination is narrower, else
before the store. A sum, which needs the old elements of the destination, is always computed before the store.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Axis, Digit, Dims, Layout, Swizzle
from inlay.layout.swizzle import MOST_BITS
from inlay.reordering.attributes import PLAIN, Attributes, QuantizationAttribute, Scales
from inlay.reordering.requirements import require_distinct, require_factor, require_same_dims


@dataclass(frozen=True, slots=True)
class ProblemAxis:
    """One logical axis of the tensor, with its layout on both sides."""

    data: int
    """Number of coordinates that hold data; these are copied."""
    stored: int
    """Number of coordinates that the destination stores: `data`, then padding, which is set to zero."""
    src: Axis
    """Layout of coordinates below `data` in the source; strides in elements."""
    dst: Axis
    """Layout of coordinates below `stored` in the destination; strides in elements."""


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """A mapping from coordinates to the values of one attribute: index = sum(coordinate // group * stride)."""

    strides: tuple[int, ...]
    """For each axis, the stride from one group of coordinates to the next, in values; 0 where all coordinates share a
    value."""
    groups: tuple[int, ...]
    """For each axis, the number of consecutive coordinates that share a value."""


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
    """Offset of the coordinate of all zeros from the start of the source buffer, in elements."""
    dst_offset: int
    """Offset of the coordinate of all zeros from the start of the destination buffer, in elements."""
    attributes: Attributes = PLAIN
    """Scales, zero points, sum and rounding mode to apply to each element."""
    factor: float = 1.0
    """A further factor for each element: `Extras.scale_adjust` of int8 weights; 1 for none."""
    src_swizzle: Swizzle | None = None
    """Permutation of the offsets in the source, counted from the coordinate of all zeros in elements; None for none."""
    dst_swizzle: Swizzle | None = None
    """Permutation of the offsets in the destination, likewise."""

    @property
    def swizzles(self) -> tuple[Swizzle | None, Swizzle | None]:
        """The swizzles of both sides: (src, dst)."""
        return self.src_swizzle, self.dst_swizzle

    @property
    def dims(self) -> Dims:
        """The logical dims."""
        return tuple(axis.data for axis in self.axes)

    @property
    def computes(self) -> bool:
        """Return whether the code evaluates the formula, and does not only copy or convert elements."""
        rounds_stochastically = self.attributes.rounding_mode == "stochastic" and self.src_type != self.dst_type
        return self.attributes.computes or self.factor != 1 or rounds_stochastically

    @property
    def value_layouts(self) -> tuple[ValueLayout, ...]:
        """The distinct value layouts of all attributes; value index i of the loop nest belongs to number i of these."""
        if not self.computes:
            return ()
        layouts = step_value_layouts(self.attributes, self.factor, self.dims).values()
        return tuple(dict.fromkeys(layout for layout in layouts if layout is not None))

    @property
    def is_empty(self) -> bool:
        """Return whether the destination has no element to write."""
        return any(axis.stored == 0 for axis in self.axes)

    @property
    def written_bits(self) -> int:
        """Size of the destination's elements in bits, padding included."""
        return prod(axis.stored for axis in self.axes) * self.dst_type.bits

    @property
    def moved_bytes(self) -> int:
        """Compulsory memory traffic in bytes: source elements read plus destination elements written, with padding."""
        return -(-(prod(self.dims) * self.src_type.bits + self.written_bits) // 8)

    def __str__(self) -> str:
        """Return the types, one line for each axis (data, padding, digits of both sides), swizzles and attributes."""
        lines = [f"{self.src_type} -> {self.dst_type}"]
        for i, axis in enumerate(self.axes):
            sides = [
                " ".join(f"({d.extent},{d.stride})" for d in side.digits(axis.stored)) for side in (axis.src, axis.dst)
            ]
            padding = f" + {axis.stored - axis.data} zeros" if axis.stored > axis.data else ""
            lines.append(f"  axis {i}: {axis.data}{padding}   {sides[0]}  ->  {sides[1]}")
        names = zip(("source", "destination"), self.swizzles, strict=True)
        lines += [f"  offsets in the {side} through {swizzle}" for side, swizzle in names if swizzle is not None]
        if self.computes:
            lines.append(f"  {self.attributes}{f', times {self.factor}' if self.factor != 1 else ''}")
        return "\n".join(lines)


def build_reorder_problem(
    src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN, factor: float = 1.0
) -> ReorderProblem:
    """Build the problem of moving the tensor that `src` describes into memory that `dst` describes.

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
    starts, swizzles = (src.offset0, dst.offset0), (src.swizzle, dst.swizzle)
    if src.data_type.is_number and dst.data_type.is_number:
        return ReorderProblem(tuple(axes), src.data_type, dst.data_type, *starts, attributes, factor, *swizzles)
    carrier = _moved_type(src.data_type, dst.data_type)
    count = src.data_type.bits // carrier.bits
    if count > 1:
        axes = [replace(axis, src=_scale_axis(axis.src, count), dst=_scale_axis(axis.dst, count)) for axis in axes]
        axes.append(ProblemAxis(count, count, Axis(1), Axis(1)))
    return ReorderProblem(
        tuple(axes),
        carrier,
        carrier,
        count * starts[0],
        count * starts[1],
        src_swizzle=scale_swizzle(src.swizzle, count.bit_length() - 1),
        dst_swizzle=scale_swizzle(dst.swizzle, count.bit_length() - 1),
    )


def _layout_of(desc: MemoryDesc, side: str) -> Layout:
    """Return the layout of a descriptor, without its swizzle; refuse other kinds of descriptors."""
    if isinstance(desc.layout, Layout):
        return desc.layout
    if isinstance(desc.layout, kinds.SwizzledLayout):
        return desc.layout.layout
    raise InvalidArguments(f"the {side} of a reorder is of kind {desc.kind}: give it a layout with addresses")


def _moved_type(src: DataType, dst: DataType) -> DataType:
    """Return the integer type that replaces a type without arithmetic, such as complex numbers.

    Raises:
        Unimplemented: the types differ.
    """
    if src != dst:
        moved = dst if src.is_number else src
        raise Unimplemented(
            f"no conversion from {src} to {dst} exists: {moved} can only be copied; convert the array with astype first"
        )
    return src.moved_as


def _scale_axis(axis: Axis, count: int) -> Axis:
    """Return the axis with each element replaced by `count` narrower ones: strides are `count` times as long."""
    return Axis(axis.stride * count, tuple(Digit(digit.extent, digit.stride * count) for digit in axis.inner))


def scale_swizzle(swizzle: Swizzle | None, bits: int) -> Swizzle | None:
    """Return the swizzle of offsets that count units of which 2**`bits` make one unit of `swizzle`; None for none.

    Bits beyond those that a `Swizzle` reaches are left out: no offset in memory has them.

    >>> scale_swizzle(Swizzle(3, 3, 3), 1), scale_swizzle(Swizzle(3, 3, 3), -1)
    (Swizzle(bits=3, base=4, shift=3), Swizzle(bits=3, base=2, shift=3))
    """
    if swizzle is None:
        return None
    base = swizzle.base + bits
    count = min(swizzle.bits, MOST_BITS - base - abs(swizzle.shift))
    return Swizzle(count, base, swizzle.shift) if count > 0 else None


def _require_no_extras(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Check that no extras need computation: the destination has none, and the source has no factor.

    Raises:
        Unimplemented: the destination has extras, or the weights of the source were multiplied by a factor.
    """
    if dst.extras:
        raise Unimplemented(
            f"the destination stores compensation or a factor ({dst.extras!r}), which a reorder does "
            "not compute: describe it without extras"
        )
    require_factor(src, 1.0)


# What is computed


def value_layout(entry: QuantizationAttribute, dims: Dims) -> ValueLayout | None:
    """Return the value layout of an attribute on a tensor of these dims; None if all elements share one value."""
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
"""The steps of the formula in execution order. `factor` is `Extras.scale_adjust`. `stochastic` is stochastic rounding;
its value is the row-major index of the element."""


def step_value_layouts(attributes: Attributes, factor: float, dims: Dims) -> dict[str, ValueLayout | None]:
    """Return the value layout of each step of the formula, in execution order; None for a single value."""
    layouts: dict[str, ValueLayout | None] = {
        name: value_layout(attributes.entry(name), dims) for name in attributes.names
    }
    if attributes.sum is not None:
        layouts["sum"] = None
    if factor != 1:
        layouts["factor"] = None
    if attributes.rounding_mode == "stochastic":
        layouts["stochastic"] = value_layout(Scales((1 << len(dims)) - 1), dims)
    return {step: layouts[step] for step in STEPS if step in layouts}


def working_type(src: DataType, dst: DataType, attributes: Attributes, factor: float) -> str:
    """Return the name of the type in which the formula is computed: "f32" or "f64" (decision 0007)."""
    names = {src.name, dst.name}
    is_exact = "s32" in names and src.kind != "float" and dst.kind != "float"
    is_scaled = attributes.scales or factor != 1
    return "f64" if 64 in (src.bits, dst.bits) or (is_exact and not is_scaled) else "f32"


@dataclass(frozen=True, slots=True)
class FormulaStep:
    """One step of the formula, with the location of its values."""

    step: str
    """Name of the step, one of `STEPS`."""
    count: int | None
    """Number of the value index (a guard of the loop nest) that selects the element's value; None for one value for
    all."""
    lanes: tuple[int, ...] | None
    """For each lane, the value's index relative to that of the register's first lane, if known at compile time; None if
    the lanes gather values by indices in the table."""


@dataclass(frozen=True, slots=True)
class Computation:
    """The formula that a kernel computes between load and store."""

    working: str
    """Name of the working type, f32 or f64."""
    side: Literal["src", "dst"]
    """`src`: computed on registers in load order, after the load. `dst`: on registers in store order, before the
    store."""
    values: tuple[FormulaStep, ...]
    """The steps in execution order. The word k + 1 words before the table holds the address of the values of step k."""
    counts: int
    """Number of value indices: guards 0 to `counts` - 1 of the loop nest are value indices, the others are bounds."""

    @property
    def sums(self) -> bool:
        """Return whether the formula reads the old elements of the destination."""
        return any(value.step == "sum" for value in self.values)
