"""Padding: the lanes between the dims and the padded dims, which blocked formats keep zero.

17 channels in blocks of 8 take the room of 24, and everybody who reads blocks counts on zeros in the other 7: a
convolution sums over all 24. Whoever writes whole blocks has to leave them zero. `exp` over all bytes of such a memory
does not, since exp(0) is 1; then the damage is found here, by coordinate:

    >>> import numpy as np
    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((1, 17, 1, 1), "f32", "nChw8c")
    >>> buffer = np.zeros(24, np.float32)
    >>> buffer[:] = np.exp(buffer)
    >>> report = find_dirty(desc, buffer.view(np.uint8))
    >>> report.dirty, report.first[0].coordinate
    (7, (0, 17, 0, 0))
    >>> zero_lanes(desc, buffer.view(np.uint8))
    >>> buffer.sum()
    np.float32(17.0)

This module works on descriptors and bytes; `check_padding`, `zero_padding` and `map_padded` of `inlay.memory` do the
same for a `Memory`.

**Zero** means equal to zero: -0.0 is clean too, because adding it changes no sum. Of e8m0, which has no zero, it is the
code 0, and that is what a reorder writes.

An elementwise function may run over a whole buffer, padding included, exactly if f(0) == 0: relu, tanh, negation and
multiplication keep padding zero; exp, cos, sigmoid and addition of a bias do not.

    >>> preserves_padding(np.tanh), preserves_padding(np.exp)
    (True, False)

A range of coordinates along one axis is a few runs, in each of which the digits vary independently
(`axis.split_range`). One run of each axis makes a **box**, and a box is what NumPy calls a strided array: a view,
whatever the layout. The padding of a tensor is at most one range of coordinates per axis, so a few views hold all of it
and nothing else, and the time of a check grows with the padding and not with the tensor. Whether all of a box is zero
is one reduction; only a box that is not clean is looked at lane by lane.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType, DataTypeLike, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.layout.axis import LETTERS, RangeDigit, split_range
from inlay.memory.buffers import Bytes, decoded

# Boxes of coordinates, as views of a buffer


Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Box:
    """One run of each axis."""

    start: Dims
    """The first coordinate."""
    offset: int
    """Elements from the start of the buffer to it, `offset0` included."""
    steps: tuple[tuple[RangeDigit, ...], ...]
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
    ranges = [tuple(split_range(axis, low, high)) for axis, low, high in zip(layout.axes, begin, end, strict=True)]
    for chosen in product(*ranges):
        offset = desc.offset0 + sum(run.offset for run in chosen)
        yield Box(tuple(run.start for run in chosen), offset, tuple(run.digits for run in chosen))


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
    thinned = RangeDigit((step.extent + 1 - half) // 2, 2 * step.weight, 2 * step.stride)
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


# What a check of padding answers


@dataclass(frozen=True, slots=True)
class DirtyLane:
    """A lane of padding that is not zero."""

    coordinate: Dims
    """Its coordinate, of which at least one entry is beyond the dims."""
    offset: int
    """Elements from the start of the buffer, `offset0` included."""
    byte_offset: int
    """Bytes from the start of the buffer; of two elements of 4 bits in a byte, that with the odd `offset` is high."""
    held: bytes
    """What it holds, in address order; an element of 4 bits as one byte."""


@dataclass(frozen=True, slots=True)
class PaddingReport:
    """What the padding of a memory holds."""

    desc: MemoryDesc
    """What was checked."""
    lanes: int
    """How many lanes of padding there are, in elements."""
    dirty: int
    """How many of them are not zero."""
    first: tuple[DirtyLane, ...]
    """The first dirty lanes, in row-major order of their coordinates."""

    @property
    def is_clean(self) -> bool:
        """Whether every lane of padding is zero."""
        return not self.dirty

    def __str__(self) -> str:
        """What was found, for a reader: one line if clean, otherwise one more for each of the first dirty lanes."""
        if not self.lanes:
            return f"clean: {self.desc!r} has no padding"
        if self.is_clean:
            return f"clean: all {self.lanes} padding lanes of {self.desc!r} are zero"
        _, data_type = self.desc.require_layout("the report")
        rows = [_row(self.desc, data_type, lane) for lane in self.first]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        more = [f"... and {self.dirty - len(rows)} more"] if self.dirty > len(rows) else []
        title = f"{self.dirty} of {self.lanes} padding lanes of {self.desc!r} are not zero:"
        return "\n    ".join([title, *table, *more])


def _row(desc: MemoryDesc, data_type: DataType, lane: DirtyLane) -> tuple[str, ...]:
    beyond = [f"{LETTERS[i]} >= {dim}" for i, dim in enumerate(desc.dims) if lane.coordinate[i] >= dim]
    return (
        f"({', '.join(map(str, lane.coordinate))}{',' * (desc.ndims == 1)})",
        f"beyond {', '.join(beyond)}",
        f"element {lane.offset}",
        f"byte {lane.byte_offset}",
        f"holds {decoded(np.frombuffer(lane.held, np.uint8), data_type)[0]!s} ({lane.held.hex(' ')})",
    )


# Padding found and made zero


MOST_NAMED = 8
"""How many dirty lanes a report names, unless told otherwise."""


def find_dirty(desc: MemoryDesc, buffer: Bytes, most: int = MOST_NAMED) -> PaddingReport:
    """What the padding of the tensor that `desc` describes in `buffer` holds; at most `most` dirty lanes are named.

    `buffer` holds bytes, in one dimension. Data and gaps are not read.

    Raises:
        InvalidArguments: `desc` has no layout, or `buffer` is smaller than what it reaches.
        Unimplemented: a dim or stride is RUNTIME.
    """
    layout, data_type = desc.require_layout("check_padding")
    count = 0
    first: list[DirtyLane] = []
    padded = layout.size - prod(desc.dims)
    for box in _boxes(desc, data_type) if padded else ():
        view, shift = lanes(box, buffer, data_type)
        mask = view.dtype.type(value_bits(data_type) << shift)
        if not np.bitwise_or.reduce(view, axis=None) & mask:
            continue
        dirty = ((view & mask) != 0).reshape(*box.shape, -1).any(axis=-1)
        count += int(np.count_nonzero(dirty))
        first += [_lane(box, index, view, shift, data_type) for index in _first_true(dirty, most)]
        first = sorted(first, key=lambda lane: lane.coordinate)[:most]
    return PaddingReport(desc, padded, count, tuple(first))


def _boxes(desc: MemoryDesc, data_type: DataType) -> list[Box]:
    """The padding, as `lanes` can view it."""
    found = padding_boxes(desc)
    return [half for box in found for half in even_boxes(box)] if data_type.is_sub_byte else list(found)


def _first_true(flags: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int) -> list[int]:
    """The row-major indices of the first `most` True entries."""
    flat = flags.reshape(-1)
    found: list[int] = []
    begin = 0
    while len(found) < most and begin < flat.size:
        # argmax stops at the first True, where flatnonzero would list all of them.
        begin += int(flat[begin:].argmax())
        if not flat[begin]:
            break
        found.append(begin)
        begin += 1
    return found


def _lane(box: Box, index: int, view: Codes, shift: int, data_type: DataType) -> DirtyLane:
    coordinate, offset = box.place(index)
    code = view[np.unravel_index(index, box.shape)]
    held = bytes([int(code) >> shift & 15]) if data_type.is_sub_byte else code.tobytes()
    return DirtyLane(coordinate, offset, offset * data_type.bits // 8, held)


def zero_lanes(desc: MemoryDesc, buffer: Bytes) -> None:
    """Write zeros into the padding of the tensor that `desc` describes in `buffer`, and into nothing else.

    Post-conditions:
        find_dirty(desc, buffer).is_clean, and every lane of padding has the code 0.
        Every other bit of `buffer` is unchanged.

    Raises:
        InvalidArguments: `desc` has no layout or its elements overlap, so that padding may lie on data; `buffer` is
            read-only, or smaller than what `desc` reaches.
        Unimplemented: a dim or stride is RUNTIME.
    """
    layout, data_type = desc.require_layout("zero_padding")
    if not buffer.flags.writeable:
        raise InvalidArguments("zero_padding writes to a memory that is read-only: give it a writable buffer")
    if layout.size == prod(desc.dims):
        return
    if layout.overlaps:
        raise InvalidArguments(
            f"elements of {desc!r} overlap, so its padding may lie on its data: give every element an offset of its own"
        )
    for box in _boxes(desc, data_type):
        view, shift = lanes(box, buffer, data_type)
        if data_type.is_sub_byte:
            view &= np.uint8(0xF0 >> shift)
        else:
            view[...] = 0


def value_bits(data_type: DataType) -> int:
    """The bits of a code, or of each half of 64 bits, that must be 0 for the value to be zero: all but a float's sign.

    >>> from inlay.data_type import DATA_TYPES
    >>> [hex(value_bits(DATA_TYPES[name])) for name in ("s8", "bf16", "e8m0")]
    ['0xff', '0x7fff', '0xff']
    """
    has_sign = data_type.kind == "float" and data_type.is_signed
    return (1 << min(data_type.bits, 64) - has_sign) - 1


# Functions that keep padding zero


Elementwise: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""Takes an array of any shape, and gives one of the same shape and type, each entry from the entry at its place."""


def preserves_padding(f: Elementwise, data_type: DataTypeLike = "f32") -> bool:
    """Whether f(0) == 0 in this type, so that `f` may run over padding. -0.0 equals 0.

    `f` is a ufunc or any function of arrays. It is called twice: with zeros, and with a zero beside a one, where a
    function that is not elementwise (softmax, subtraction of the mean) shows itself.

    Raises:
        InvalidArguments: `data_type` is none, or `f` gives an array of another shape or type, or is not elementwise.

    >>> preserves_padding(lambda x: x + 1)
    False
    >>> preserves_padding(np.negative, "bf16")
    True
    """
    kind = as_data_type(data_type)
    # The code 0, which is what padding holds: of e8m0, which has no zero, that is 2**-127.
    zeros = np.zeros(2 * kind.itemsize, np.uint8).view(kind.dtype)
    beside = np.concatenate([zeros[:1], np.ones(1, kind.dtype)])
    with np.errstate(all="ignore"):
        alone, together = applied(f, zeros.copy()), applied(f, beside)
    if alone[0] != together[0] and not (_is_nan(alone[0]) and _is_nan(together[0])):
        raise InvalidArguments(
            f"f is not elementwise: it gives {alone[0]} for 0 beside another 0, and {together[0]} beside 1; "
            "unpack the memory, apply f, and pack the result"
        )
    return bool((alone == zeros).all())


def _is_nan(value: Any) -> bool:
    return bool(value != value)


def applied(f: Elementwise, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """f(values), an array of the shape and type of `values`.

    Raises:
        InvalidArguments: it is not.
    """
    if not callable(f):
        raise InvalidArguments(f"f is {shown(f)}: give a function of arrays, such as np.tanh")
    try:
        result = f(values)
    except TypeError as error:
        raise InvalidArguments(f"f takes no array of {values.dtype}: {error}") from error
    if not isinstance(result, np.ndarray):
        raise InvalidArguments(f"f must return an array: it returned a {type(result).__name__}")
    if (result.shape, result.dtype) != (values.shape, values.dtype):
        raise InvalidArguments(
            f"f must return an array like its argument, {values.dtype} of shape {values.shape}: "
            f"it returned {result.dtype} of shape {result.shape}"
        )
    return result
