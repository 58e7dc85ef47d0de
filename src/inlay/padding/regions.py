"""Boxes: ranges of coordinates as strided views of a buffer.

A range of coordinates along one axis is a few runs, in each of which the digits vary independently (`layout.runs`). One
run of each axis makes a box, and a box is what NumPy calls a strided array: a view, whatever the layout. The
padding of a tensor is at most one range of coordinates per axis, so a few views hold all of it and nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.layout.runs import Step, runs

Bytes: TypeAlias = npt.NDArray[np.uint8]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Box:
    """One run of each axis."""

    start: Dims
    """The first coordinate."""
    offset: int
    """Elements from the start of the buffer to it, `offset0` included."""
    steps: tuple[tuple[Step, ...], ...]
    """Per axis, the digits, most significant first."""

    @property
    def shape(self) -> Dims:
        """The extents of all digits, axis by axis: the shape of the view."""
        return tuple(step.extent for steps in self.steps for step in steps)

    @property
    def strides(self) -> Dims:
        """The strides of all digits, in elements."""
        return tuple(step.stride for steps in self.steps for step in steps)

    def place(self, index: int) -> tuple[Dims, int]:
        """The coordinate and the offset of the lane with this row-major index."""
        values = iter(np.unravel_index(index, self.shape))
        coordinate, offset = [], self.offset
        for start, steps in zip(self.start, self.steps, strict=True):
            for step in steps:
                value = int(next(values))
                start += value * step.weight
                offset += value * step.stride
            coordinate.append(start)
        return tuple(coordinate), offset


def boxes(desc: MemoryDesc, begin: Dims, end: Dims) -> Iterator[Box]:
    """The coordinates from `begin` to before `end`, an entry per axis, as boxes that share no coordinate.

    Raises:
        InvalidArguments: `desc` has no layout.
    """
    layout, _ = desc.require_layout("boxes")
    ranges = [tuple(runs(axis, low, high)) for axis, low, high in zip(layout.axes, begin, end, strict=True)]
    for chosen in product(*ranges):
        offset = desc.offset0 + sum(run.offset for run in chosen)
        yield Box(tuple(run.start for run in chosen), offset, tuple(run.steps for run in chosen))


def padding_boxes(desc: MemoryDesc) -> Iterator[Box]:
    """The coordinates of padding: those below the padded dims with an entry that is not below its dim.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> [(box.start, box.shape) for box in padding_boxes(MemoryDesc((2, 17), "f32", "aB8b"))]
    [((0, 17), (2, 7))]
    """
    dims, padded = desc.dims, desc.padded_dims
    for i in range(desc.ndims):
        # Beyond the dim of axis i, within the dims of the axes before it: no lane belongs to two axes.
        begin = tuple(dims[i] if j == i else 0 for j in range(desc.ndims))
        yield from boxes(desc, begin, (*dims[:i], *padded[i:]))


def even_boxes(box: Box) -> Iterator[Box]:
    """The same lanes in boxes of even strides, so that nibbles of one box lie in the same half of their bytes."""
    for i, steps in enumerate(box.steps):
        for j, step in enumerate(steps):
            if step.stride % 2 and step.extent > 1:
                for half in (0, 1):
                    yield from even_boxes(_every_second(box, i, j, half))
                return
    yield box


def _every_second(box: Box, i: int, j: int, half: int) -> Box:
    """The lanes in which digit j of axis i is even, or odd if `half` is 1."""
    step = box.steps[i][j]
    thinned = Step((step.extent + 1 - half) // 2, 2 * step.weight, 2 * step.stride)
    steps = (*box.steps[i][:j], thinned, *box.steps[i][j + 1 :])
    start = (*box.start[:i], box.start[i] + half * step.weight, *box.start[i + 1 :])
    return Box(start, box.offset + half * step.stride, (*box.steps[:i], steps, *box.steps[i + 1 :]))


def lanes(box: Box, buffer: Bytes, data_type: DataType) -> tuple[Codes, int]:
    """The elements of a box as a view of `buffer`, one unsigned integer each, and how far their codes are shifted.

    Elements of 128 bits are two integers along one more axis. Types of 4 bits need a box of even strides: the view is
    of whole bytes, and the shift is 0 or 4.

    Raises:
        InvalidArguments: the box does not lie within `buffer`.

    >>> box = next(padding_boxes(MemoryDesc((3,), "u8", "A4a")))
    >>> lanes(box, np.arange(4, dtype=np.uint8), MemoryDesc((3,), "u8").data_type)
    (array([3], dtype=uint8), 0)
    """
    first, shift = divmod(box.offset * data_type.bits, 8)
    # A digit of one value has no stride, and may be an odd one.
    strides = [stride * data_type.bits // 8 if n > 1 else 0 for n, stride in zip(box.shape, box.strides, strict=True)]
    halves = data_type.itemsize // 16 * 2
    shape, strides = (box.shape, strides) if not halves else ((*box.shape, halves), [*strides, 8])
    try:
        view: Codes = np.ndarray(shape, f"u{min(data_type.itemsize, 8)}", buffer.data, first, strides)
    except ValueError:
        raise InvalidArguments(
            f"buffer of {buffer.size} bytes is too small for {prod(box.shape)} lanes from byte {first} on"
        ) from None
    return view, shift
