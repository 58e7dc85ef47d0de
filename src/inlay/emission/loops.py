"""The loops of an emitted reorder, in C: one loop for each digit that source and destination share.

For each axis, `inlay.layout.refine` gives the common digits of both layouts. Each becomes a loop; the loops are sorted
by their stride in the destination, so that it is written in order. An axis with padding, or with a partial block, gets
a variable for its coordinate, which is compared with the number of coordinates that hold data and that are stored.

Where the blocks of the two sides do not divide one another (8 and 12), one loop covers their common multiple, and the
offset is computed by division and remainder instead of a stride:

    dst[c / 12 * 240 + c % 12]
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.layout import Axis, CommonDigit, Layout, Swizzle, refine


@dataclass(frozen=True, slots=True)
class CLoop:
    """One `for` loop of an emitted function."""

    variable: str
    """Name of the loop's index."""
    extent: int
    """Number of iterations."""
    dst_step: int
    """Greatest distance in the destination between two iterations, in elements: the sort key of the loops."""


@dataclass(frozen=True, slots=True)
class CAxis:
    """One logical axis in an emitted function."""

    name: str
    """Name of the axis and of the variable of its coordinate."""
    loops: tuple[CLoop, ...]
    """The loops over its digits, most significant first."""
    coordinate: str
    """The coordinate as a sum of loop indices; empty if it is the index of the only loop, or if it is not used."""
    data: int
    """Number of coordinates that hold data."""
    stored: int
    """Number of coordinates that the destination stores."""
    covered: int
    """Number of coordinates that the loops visit: `stored` or more."""
    src_terms: tuple[str, ...]
    """Terms of the element offset in the source."""
    dst_terms: tuple[str, ...]
    """Terms of the element offset in the destination."""


def build_axes(
    src: MemoryDesc, dst: MemoryDesc, names: tuple[str, ...], used: Collection[str] = ()
) -> tuple[CAxis, ...]:
    """Return the axes of the reorder from `src` to `dst`, whose coordinates are named `names`.

    Those in `used` have a coordinate, whether the loops need it or not.

    Precondition: both have layouts with known dims and strides, equal dims, and at least one element in `dst`.

    Post-condition: for every stored coordinate there is one choice of loop indices, at which the terms of all axes add
    up to its offset from `offset0` in either layout.
    """
    assert isinstance(src.layout, Layout)
    assert isinstance(dst.layout, Layout)
    sides = zip(names, src.dims, dst.layout.dims, src.layout.normal_form.axes, dst.layout.normal_form.axes, strict=True)
    return tuple(_build_axis(*parts, is_used=parts[0] in used) for parts in sides)


def _build_axis(name: str, data: int, stored: int, src: Axis, dst: Axis, *, is_used: bool) -> CAxis:
    """Return one axis of `data` coordinates with data, `stored` by the destination, in these two layouts."""
    digits = [digit for digit in refine(src, dst, stored) if digit.extent > 1]
    numbered = [name] if len(digits) == 1 and digits[0].weight == 1 else [f"{name}{i}" for i in range(len(digits))]
    variables = list(zip(numbered, digits, strict=True))
    loops = tuple(CLoop(v, d.extent, _reach(d)) for v, d in variables)
    covered = prod(digit.extent for digit in digits)
    is_guarded = covered > data
    sides = [_side_terms(name, variables, axis, side) for side, axis in enumerate((src, dst))]
    uses_coordinate = is_used or is_guarded or any(name in terms for terms in sides)
    sum_of_indices = " + ".join(times(v, d.weight) for v, d in variables)
    coordinate = sum_of_indices if uses_coordinate and numbered != [name] else ""
    src_terms, dst_terms = (tuple(times(v, step) for v, step in terms.items()) for terms in sides)
    return CAxis(name, loops, coordinate, data, stored, covered, src_terms, dst_terms)


def _reach(digit: CommonDigit) -> int:
    """Return the greatest distance in the destination between two values of a digit."""
    return abs(digit.second) if isinstance(digit.second, int) else max(map(abs, digit.second))


def _side_terms(name: str, variables: list[tuple[str, CommonDigit]], axis: Axis, side: int) -> dict[str, int]:
    """Return the offset on one side as a sum: for each expression, its stride.

    If all digits have strides in the ratio of their weights, the offset is the coordinate times one stride.
    """
    maps = [(digit.first, digit.second)[side] for _, digit in variables]
    step = axis.stride
    if len(maps) > 1 and not axis.inner and step:
        return {name: step}
    terms: dict[str, int] = {}
    for (variable, digit), offsets in zip(variables, maps, strict=True):
        if isinstance(offsets, int):
            terms[variable] = offsets
        else:
            terms |= _looked_up(variable, digit, axis)
    return {expression: stride for expression, stride in terms.items() if stride}


def _looked_up(variable: str, digit: CommonDigit, axis: Axis) -> dict[str, int]:
    """Return the terms of a digit that covers several digits of `axis`, or parts of them: quotients and remainders."""
    low, high = digit.weight, digit.weight * digit.extent
    weights = [1]
    for inner in reversed(axis.inner):
        weights.append(weights[-1] * inner.extent)
    strides = [inner.stride for inner in reversed(axis.inner)] + [axis.stride]
    terms = {}
    for (weight, end), stride in zip([*pairwise(weights), (weights[-1], high)], strides, strict=True):
        if end <= low or weight >= high:
            continue
        value = variable if weight <= low else f"{variable} / {weight // low}"
        if end < high:
            extent = end // max(low, weight)
            value = f"{value} % {extent}"
        terms[value] = stride * max(1, low // weight)
    return terms


def times(expression: str, factor: int) -> str:
    """Return the product of an expression, a chain of `/` and `%`, and a number, in C.

    >>> times("c", 8), times("c / 8", 1), times("c % 8", 4)
    ('c * 8', 'c / 8', 'c % 8 * 4')
    """
    return expression if factor == 1 else f"{expression} * {factor}"


def quotient(expression: str, divisor: int) -> str:
    """Return the quotient of an expression, a chain of `/`, and a number, in C.

    >>> quotient("c", 8), quotient("c", 1)
    ('c / 8', 'c')
    """
    return expression if divisor == 1 else f"{expression} / {divisor}"


def offset_expression(offset0: int, terms: list[str]) -> str:
    """Return the sum of `offset0` and the terms, in C.

    >>> offset_expression(0, ["n * 4", "c"]), offset_expression(3, []), offset_expression(0, [])
    ('n * 4 + c', '3', '0')
    """
    return " + ".join([*([str(offset0)] if offset0 or not terms else []), *terms])


def swizzled(offset0: int, linear: str, swizzle: Swizzle) -> str:
    """Return the swizzled offset in C, where the variable `linear` is the offset before the swizzle, without `offset0`.

    >>> swizzled(16, "x", Swizzle(3, 3, 3)), swizzled(0, "x", Swizzle(2, 0, -3))
    ('16 + (x ^ ((x & 448) >> 3))', 'x ^ ((x & 3) << 3)')
    """
    shift = f">> {swizzle.shift}" if swizzle.shift > 0 else f"<< {-swizzle.shift}"
    text = f"{linear} ^ (({linear} & {swizzle.source_mask}) {shift})"
    return f"{offset0} + ({text})" if offset0 else text


def sorted_loops(axes: tuple[CAxis, ...]) -> list[CLoop]:
    """Return the loops of all axes, outermost first: those with the longest steps in the destination."""
    return sorted((loop for axis in axes for loop in axis.loops), key=lambda loop: -loop.dst_step)


def coordinate_terms(desc: MemoryDesc, names: tuple[str, ...]) -> list[str]:
    """Return the terms of the offset of the coordinate with these names, in C: `c / 8 * 160`, `c % 8`.

    >>> coordinate_terms(MemoryDesc((2, 17), "f32", "aB8b"), ("n", "c"))
    ['n * 24', 'c / 8 * 8', 'c % 8']
    """
    assert isinstance(desc.layout, Layout)
    return layout_terms(desc.layout, names)


def layout_terms(layout: Layout, coordinates: tuple[str, ...]) -> list[str]:
    """Return the terms of the offset of a coordinate in C; each coordinate is a name, divided by numbers or not.

    >>> layout_terms(Layout.row_major((2, 4)), ("a", "b / 32"))
    ['a * 4', 'b / 32']
    """
    terms = []
    for name, axis, dim in zip(coordinates, layout.axes, layout.dims, strict=True):
        block = axis.block
        digits = axis.digits(dim)
        for i, digit in enumerate(digits):
            if digit.stride and digit.extent > 1:
                value = quotient(name, block)
                terms.append(times(f"{value} % {digit.extent}" if i else value, digit.stride))
            block //= digits[i + 1].extent if i + 1 < len(digits) else 1
    return terms
