"""Moves between two strided arrays that are described axis by axis: views where strides suffice, else reorders.

A rearrangement splits the axes of an array into elementary axes, permutes them, adds new ones of stride 0, and joins
groups of them to the axes of the result. In elementary axes both sides are strided, so that the move is a reorder of
plain layouts; neighbors that are neighbors on both sides are one axis to it:

    >>> axes = [MovedAxis(4, 12, 12), MovedAxis(3, 4, 4), MovedAxis(4, 1, 1)]
    >>> merge_axes(axes)
    (MovedAxis(extent=48, src_stride=1, dst_stride=1, scale_count=1),)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

from inlay.data_type import DataType
from inlay.descriptor.arrays import place_lowest_first
from inlay.layout import Dims, Layout
from inlay.memory.reorder_cache import AnyReorder, find_reorder
from inlay.rearranging.einops_notation import ResolvedAxes
from inlay.reordering.attributes import PLAIN, Attributes, Scales

MOST_AXES = 12
"""Number of axes of a descriptor, and thus of a move."""


@dataclass(frozen=True, slots=True)
class MovedAxis:
    """One axis of a move."""

    extent: int
    """Number of entries."""
    src_stride: int
    """Stride in the source, in elements; 0 for an axis that repeats the source."""
    dst_stride: int
    """Stride in the destination, in elements."""
    scale_count: int = 1
    """Number of different scales along the axis: 1, or the extent."""


@dataclass(frozen=True, slots=True, eq=False)
class AxisMove:
    """A reorder between two strided arrays, with the ranges of bytes that it reads and writes."""

    reorder: AnyReorder
    """The compiled reorder, between the lowest addresses of both sides."""
    src_range: tuple[int, int]
    """Bytes that are read: begin and end, from the address of the first element of the source."""
    dst_range: tuple[int, int]
    """Bytes that are written: begin and end, from the address of the first element of the destination."""
    dims: Dims
    """The merged axes."""
    scale_shape: Dims
    """Shape of the scales over `dims`."""
    attributes: Attributes
    """Attributes of the reorder."""
    src_itemsize: int
    """Size of an element of the source, in bytes."""
    dst_itemsize: int
    """Size of an element of the destination, in bytes."""


def merge_axes(axes: Sequence[MovedAxis]) -> tuple[MovedAxis, ...]:
    """Return the axes without those of extent 1, and with neighbors joined that are one axis on both sides.

    Post-condition: the pairs of source and destination offsets are the same, in the same order.
    """
    merged: list[MovedAxis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if merged and _can_join(merged[-1], axis):
            outer = merged.pop()
            scales = outer.scale_count * axis.scale_count
            axis = MovedAxis(outer.extent * axis.extent, axis.src_stride, axis.dst_stride, scales)
        merged.append(axis)
    return tuple(merged) or (MovedAxis(1, 1, 1),)


def _can_join(outer: MovedAxis, inner: MovedAxis) -> bool:
    """Return True if two axes are one on both sides, and both or none have a scale for each entry."""
    return (
        outer.src_stride == inner.src_stride * inner.extent
        and outer.dst_stride == inner.dst_stride * inner.extent
        and (outer.scale_count == 1) == (inner.scale_count == 1)
    )


@lru_cache(maxsize=1024)
def find_move(axes: tuple[MovedAxis, ...], src_type: DataType, dst_type: DataType, is_scaled: bool) -> AxisMove | None:
    """Return the move over merged axes, or None if there are more than a descriptor has.

    Raises:
        InvalidArguments: elements of the destination overlap, or one of the types is never converted.
        Unimplemented, OutOfMemory: as `find_reorder`.
    """
    if len(axes) > MOST_AXES:
        return None
    dims = tuple(axis.extent for axis in axes)
    sides = (tuple(axis.src_stride for axis in axes), tuple(axis.dst_stride for axis in axes))
    layouts = [Layout.from_strides(dims, strides) for strides in sides]
    src, dst = (place_lowest_first(layout, t) for layout, t in zip(layouts, (src_type, dst_type), strict=True))
    scale_shape = tuple(axis.scale_count for axis in axes)
    attributes = Attributes(src_scales=Scales(_scale_mask(axes))) if is_scaled else PLAIN
    reorder = find_reorder(src, dst, attributes) if is_scaled else find_reorder(src, dst)
    src_range, dst_range = (
        layout.byte_span(t.itemsize) for layout, t in zip(layouts, (src_type, dst_type), strict=True)
    )
    sizes = (src_type.itemsize, dst_type.itemsize)
    return AxisMove(reorder, src_range, dst_range, dims, scale_shape, attributes, *sizes)


def _scale_mask(axes: tuple[MovedAxis, ...]) -> int:
    """Return the mask of the axes that have a scale for each entry."""
    return sum((axis.scale_count > 1) << i for i, axis in enumerate(axes))


# Strides of both sides


def source_strides(resolved: ResolvedAxes, strides: Dims) -> list[int]:
    """Return the stride of each elementary axis of the result in a source with these strides; 0 for new axes."""
    split = destination_strides(resolved.left, strides)
    return [split[i] if i >= 0 else 0 for i in resolved.order]


def destination_strides(groups: Sequence[Dims], strides: Dims) -> list[int]:
    """Return the stride of each elementary axis of an array that has an axis for each group."""
    return [s for lengths, stride in zip(groups, strides, strict=True) for s in _split_stride(lengths, stride)]


def _split_stride(lengths: Dims, stride: int) -> list[int]:
    """Return the strides of the parts of an axis.

    >>> _split_stride((2, 3, 4), 10)
    [120, 40, 10]
    """
    return [stride * prod(lengths[i + 1 :]) for i in range(len(lengths))]


def row_major_strides(shape: Dims) -> Dims:
    """Return the strides of a row-major array, in elements; a length of 0 counts as 1.

    >>> row_major_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(max(1, n) for n in shape[i + 1 :]) for i in range(len(shape)))


def ordered_strides(shape: Dims, order: Sequence[int] | None) -> Dims:
    """Return the strides of a dense array whose axes are stored in this order, outermost first, in elements.

    None stands for row-major.

    >>> ordered_strides((2, 3, 4), (0, 2, 1)), ordered_strides((2, 3, 4), None)
    ((12, 1, 3), (12, 4, 1))
    """
    if order is None:
        return row_major_strides(shape)
    stored = row_major_strides(tuple(shape[axis] for axis in order))
    return tuple(stored[order.index(axis)] for axis in range(len(shape)))


def joined_strides(groups: Sequence[Dims], strides: Sequence[int]) -> Dims | None:
    """Return one stride for each group of elementary axes with these strides, or None if a group has none.

    >>> joined_strides([(2, 3), (4,)], [12, 4, 1]), joined_strides([(3, 2), (4,)], [4, 12, 1])
    ((4, 1), None)
    """
    result, at = [], 0
    for lengths in groups:
        members = [(n, s) for n, s in zip(lengths, strides[at : at + len(lengths)], strict=True) if n != 1]
        at += len(lengths)
        if any(outer[1] != inner[1] * inner[0] for outer, inner in pairwise(members)):
            return None
        result.append(members[-1][1] if members else 1)
    return tuple(result)
