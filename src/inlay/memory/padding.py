"""Padding: the lanes between the dims and the padded dims, which blocked formats keep zero.

17 channels in blocks of 8 take the space of 24. Kernels rely on zeros in the other 7 lanes: a convolution sums over all
24. So code that writes whole blocks must write zeros there. `exp` over all bytes of such a memory violates this, since
exp(0) is 1. `find_dirty` reports the lanes that are not zero:

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

The functions here take a descriptor and bytes; `check_padding`, `zero_padding` and `map_padded` of `inlay.memory` take
a `Memory`.

**Zero** means equal to zero: -0.0 counts as zero, because adding it changes no sum. The type e8m0 has no zero; there
the code 0 counts as zero, which is the code that a reorder writes into padding.

An elementwise function may run over a whole buffer, padding included, exactly if f(0) == 0: relu, tanh, negation and
multiplication keep padding zero; exp, cos, sigmoid and addition of a bias do not.

    >>> preserves_padding(np.tanh), preserves_padding(np.exp)
    (True, False)

A coordinate has digits, such as the number of a block and the position in it, each with a stride of its own. A range
of coordinates along one axis is a few runs, in each of which every digit takes its values independently of the others
(`layout.axis.split_range`). One run of each axis makes a **box**. In every layout, a box is a strided array of NumPy: a
view.
The padding of a tensor is at most one range of coordinates per axis. So a few views hold all padding and nothing else,
and the time of a check grows with the padding and not with the tensor. One reduction tests whether a box is all zero;
only a box with nonzero lanes is searched lane by lane.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
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
from inlay.memory.buffers import Bytes, decode_elements, encode_elements
from inlay.memory.padding_contents import ZERO, Filled, cached_bytes, element_bytes, require_contents
from inlay.memory.padding_runs import ByteRuns, fill_runs, has_only, runs_of

# Boxes of coordinates as views of a buffer


Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class DigitBox:
    """A set of coordinates that is a strided array: one run of each axis."""

    start: Dims
    """Smallest coordinate of the box."""
    offset: int
    """Offset of `start` in the buffer, in elements, including `offset0`."""
    steps: tuple[tuple[RangeDigit, ...], ...]
    """Digits of each axis, most significant first."""

    @property
    def shape(self) -> Dims:
        """Extents of all digits, axis by axis: the shape of the view."""
        return tuple(step.extent for steps in self.steps for step in steps)

    @property
    def strides(self) -> Dims:
        """Strides of all digits, axis by axis, in elements."""
        return tuple(step.stride for steps in self.steps for step in steps)

    def locate(self, index: int) -> tuple[Dims, int]:
        """Return the coordinate and the offset, in elements, of the lane with this row-major index in the box."""
        values = iter(np.unravel_index(index, self.shape))
        coordinate, offset = [], self.offset
        for start, steps in zip(self.start, self.steps, strict=True):
            for step in steps:
                value = int(next(values))
                start += value * step.weight
                offset += value * step.stride
            coordinate.append(start)
        return tuple(coordinate), offset


def boxes(desc: MemoryDesc, begin: Dims, end: Dims) -> Iterator[DigitBox]:
    """Yield disjoint boxes that together hold the coordinates x with begin[i] <= x[i] < end[i] for every axis i.

    Raises:
        InvalidArguments: `desc` has no layout.
    """
    layout, _ = desc.require_layout("boxes")
    runs_of_axes = [
        tuple(split_range(axis, low, high)) for axis, low, high in zip(layout.axes, begin, end, strict=True)
    ]
    for one_each in product(*runs_of_axes):
        offset = desc.offset0 + sum(run.offset for run in one_each)
        yield DigitBox(tuple(run.start for run in one_each), offset, tuple(run.digits for run in one_each))


def padding_boxes(desc: MemoryDesc) -> Iterator[DigitBox]:
    """Yield disjoint boxes that together hold the coordinates of padding.

    These are the coordinates below the padded dims with at least one entry that is not below its dim.

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


def even_stride_boxes(box: DigitBox) -> Iterator[DigitBox]:
    """Split a box into boxes of even strides, whose 4-bit elements are all low or all high halves of their bytes."""
    for i, steps in enumerate(box.steps):
        for j, step in enumerate(steps):
            if step.stride % 2 and step.extent > 1:
                for half in (0, 1):
                    yield from even_stride_boxes(_alternate_lanes(box, i, j, half))
                return
    yield box


def _alternate_lanes(box: DigitBox, i: int, j: int, half: int) -> DigitBox:
    """Return the lanes of a box in which digit j of axis i is even, or odd if `half` is 1."""
    step = box.steps[i][j]
    doubled = RangeDigit((step.extent + 1 - half) // 2, 2 * step.weight, 2 * step.stride)
    steps = (*box.steps[i][:j], doubled, *box.steps[i][j + 1 :])
    start = (*box.start[:i], box.start[i] + half * step.weight, *box.start[i + 1 :])
    return DigitBox(start, box.offset + half * step.stride, (*box.steps[:i], steps, *box.steps[i + 1 :]))


def box_view(box: DigitBox, buffer: Bytes, data_type: DataType) -> tuple[Codes, int]:
    """Return the codes of the elements of a box as a view of `buffer`, and the bit position of a code in its integer.

    An element is one unsigned integer; an element of 128 bits is two integers along one more axis. 4-bit types need a
    box of even strides: the view has whole bytes, and the bit position is 0 or 4. It is 0 for all other types.

    Raises:
        InvalidArguments: `buffer` does not contain all elements of the box.

    >>> box = next(padding_boxes(MemoryDesc((3,), "u8", "A4a")))
    >>> box_view(box, np.arange(4, dtype=np.uint8), MemoryDesc((3,), "u8").data_type)
    (array([3], dtype=uint8), 0)
    """
    first, shift = divmod(box.offset * data_type.bits, 8)
    # A digit of extent 1 is never stepped along; its stride may be odd, so 0 is used.
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


# Reports


@dataclass(frozen=True, slots=True)
class DirtyLane:
    """A lane of padding that does not hold the value that it should hold, which is zero in most checks."""

    coordinate: Dims
    """Logical coordinate; at least one entry is not below its dim."""
    offset: int
    """Offset from the start of the buffer, in elements, including `offset0`."""
    byte_offset: int
    """Offset from the start of the buffer, in bytes. A 4-bit element with an odd `offset` is the high half of it."""
    held: bytes
    """Bytes of the element in address order; a 4-bit element is one byte."""


@dataclass(frozen=True, slots=True)
class PaddingReport:
    """The result of a check of padding."""

    desc: MemoryDesc
    """Descriptor of the memory that was checked."""
    lanes: int
    """Number of lanes of padding."""
    dirty: int
    """Number of lanes of padding that do not hold `contents`."""
    first: tuple[DirtyLane, ...]
    """The first of these lanes, in row-major order of their coordinates."""
    contents: Filled = ZERO
    """Value that every lane should hold."""

    @property
    def is_clean(self) -> bool:
        """True if every lane of padding holds `contents`."""
        return not self.dirty

    def __str__(self) -> str:
        """Return the report as text: one line, and one more for each lane of `first`."""
        if not self.lanes:
            return f"clean: {self.desc!r} has no padding"
        if self.is_clean:
            state = "are zero" if self.contents == ZERO else f"hold {self.contents}"
            return f"clean: all {self.lanes} padding lanes of {self.desc!r} {state}"
        _, data_type = self.desc.require_layout("the report")
        rows = [_row(self.desc, data_type, lane) for lane in self.first]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        more = [f"... and {self.dirty - len(rows)} more"] if self.dirty > len(rows) else []
        state = "are not zero" if self.contents == ZERO else f"do not hold {self.contents}"
        title = f"{self.dirty} of {self.lanes} padding lanes of {self.desc!r} {state}:"
        return "\n    ".join([title, *table, *more])


def _row(desc: MemoryDesc, data_type: DataType, lane: DirtyLane) -> tuple[str, ...]:
    """Return the cells of the report on one lane."""
    beyond = [f"{LETTERS[i]} >= {dim}" for i, dim in enumerate(desc.dims) if lane.coordinate[i] >= dim]
    return (
        f"({', '.join(map(str, lane.coordinate))}{',' * (desc.ndims == 1)})",
        f"beyond {', '.join(beyond)}",
        f"element {lane.offset}",
        f"byte {lane.byte_offset}",
        f"holds {decode_elements(np.frombuffer(lane.held, np.uint8), data_type)[0]!s} ({lane.held.hex(' ')})",
    )


# Finding nonzero padding, and writing zeros


MOST_NAMED = 8
"""Default for the number of nonzero lanes that a report lists."""


def find_dirty(desc: MemoryDesc, buffer: Bytes, most: int = MOST_NAMED, contents: Filled = ZERO) -> PaddingReport:
    """Report the lanes in the padding of the tensor that `desc` describes in `buffer` that do not hold `contents`.

    `buffer` is an array of bytes with one axis. Only padding is read. The report lists at most `most` lanes.

    Raises:
        InvalidArguments: `desc` has no layout, or addresses bytes beyond `buffer`; or its type cannot hold `contents`.
        Unimplemented: a dim or stride is RUNTIME.
    """
    _, data_type = desc.require_layout("check_padding")
    element, padding = element_of(contents, data_type), _padding_runs(desc)
    count = 0
    first: list[DirtyLane] = []
    dirty_boxes = []
    if padding.lanes:
        padding.require_buffer(buffer, data_type)
        clean = [has_only(runs, buffer, element) for runs in padding.runs] or [False] * len(padding.boxes)
        dirty_boxes = [box for box, is_clean in zip(padding.boxes, clean, strict=True) if not is_clean]
    for box in dirty_boxes:
        view, shift = box_view(box, buffer, data_type)
        differing = _differing(view, shift, element, data_type).reshape(*box.shape, -1)
        dirty = np.logical_or.reduce(differing, axis=-1)
        count += int(np.count_nonzero(dirty))
        first += [_dirty_lane(box, index, view, shift, data_type) for index in _first_true(dirty, most)]
        first = sorted(first, key=lambda lane: lane.coordinate)[:most]
    return PaddingReport(desc, padding.lanes, count, tuple(first), contents)


def element_of(contents: Filled, data_type: DataType) -> Bytes:
    """Return the bytes of a lane with these contents; for zero, the code 0, which e8m0 has although it has no zero.

    Raises:
        InvalidArguments: the type cannot hold the value.
    """
    if contents is ZERO or contents == ZERO:
        return np.zeros(data_type.itemsize, np.uint8)
    try:
        return cached_bytes(contents.value, data_type)
    except TypeError:  # a number without a hash, such as an array of no axes
        return element_bytes(contents.value, data_type)


def _differing(view: Codes, shift: int, element: Bytes, data_type: DataType) -> npt.NDArray[np.bool_]:
    """Return True for each code that is not that of `element`; -0.0 does not differ from the code 0."""
    bits = (1 << min(data_type.bits, 64)) - 1 if element.any() else value_bits(data_type)
    mask = view.dtype.type(bits << shift)
    wanted = element.view(view.dtype) << view.dtype.type(shift)
    differing: npt.NDArray[np.bool_] = (view & mask) != (wanted if wanted.size > 1 else wanted[0])
    return differing


@dataclass(frozen=True, slots=True)
class PaddingRuns:
    """The padding of a descriptor, as boxes and as runs of bytes."""

    lanes: int
    """Number of lanes of padding."""
    overlaps: bool
    """True if elements overlap."""
    boxes: tuple[DigitBox, ...]
    """Disjoint boxes that `box_view` accepts: with even strides for 4-bit types."""
    runs: tuple[ByteRuns, ...]
    """The bytes of each box; empty for 4-bit types."""
    begin: int
    """Offset of the lowest byte of a lane in the buffer."""
    end: int
    """Offset after the highest byte of a lane."""

    def require_buffer(self, buffer: Bytes, data_type: DataType) -> None:
        """Raise the error of `box_view` if `buffer` does not contain all lanes."""
        if self.begin < 0 or self.end > buffer.size:
            for box in self.boxes:
                box_view(box, buffer, data_type)


@lru_cache(maxsize=512)
def _padding_runs(desc: MemoryDesc) -> PaddingRuns:
    """Return the padding of a descriptor with a layout of known dims and strides."""
    layout, data_type = desc.require_layout("padding")
    lanes = layout.size - prod(desc.dims)
    if not lanes:
        return PaddingRuns(0, False, (), (), 0, 0)
    if data_type.is_sub_byte:
        parts = tuple(part for box in padding_boxes(desc) for part in even_stride_boxes(box))
        return PaddingRuns(lanes, layout.overlaps, parts, (), *_byte_range(parts, data_type))
    parts = tuple(padding_boxes(desc))
    size = data_type.itemsize
    runs = tuple(
        runs_of(box.offset * size, box.shape, tuple(stride * size for stride in box.strides), size) for box in parts
    )
    return PaddingRuns(lanes, layout.overlaps, parts, runs, *_byte_range(parts, data_type))


def _byte_range(parts: tuple[DigitBox, ...], data_type: DataType) -> tuple[int, int]:
    """Return the offset of the lowest byte of boxes, and the one after the highest byte."""
    lows, highs = [], []
    for box in parts:
        spans = [(n - 1) * stride for n, stride in zip(box.shape, box.strides, strict=True)]
        lows.append(box.offset + sum(min(0, span) for span in spans))
        highs.append(box.offset + sum(max(0, span) for span in spans) + 1)
    return min(lows) * data_type.bits // 8, -(-max(highs) * data_type.bits // 8)


def _first_true(flags: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int) -> list[int]:
    """Return the row-major indices of the first `most` True entries."""
    flat = flags.reshape(-1)
    indices: list[int] = []
    begin = 0
    while len(indices) < most and begin < flat.size:
        # argmax stops at the first True; flatnonzero would search the whole array.
        begin += int(flat[begin:].argmax())
        if not flat[begin]:
            break
        indices.append(begin)
        begin += 1
    return indices


def _dirty_lane(box: DigitBox, index: int, view: Codes, shift: int, data_type: DataType) -> DirtyLane:
    """Return the lane with this row-major index in a box, with its bytes."""
    coordinate, offset = box.locate(index)
    code = view[np.unravel_index(index, box.shape)]
    held = bytes([int(code) >> shift & 15]) if data_type.is_sub_byte else code.tobytes()
    return DirtyLane(coordinate, offset, offset * data_type.bits // 8, held)


def fill_lanes(desc: MemoryDesc, buffer: Bytes, element: Bytes, purpose: str = "zero_padding") -> None:
    """Write one element into all padding of the tensor that `desc` describes in `buffer`, and into nothing else.

    `element` has the bytes of an element; a 4-bit element is one byte. Errors name `purpose`.

    Post-conditions: every lane of padding has the code of `element`; every other bit of `buffer` is unchanged.

    Raises:
        InvalidArguments: `desc` has no layout, or its elements overlap, so that padding may share bytes with data;
            `buffer` is read-only, or `desc` addresses bytes beyond it.
        Unimplemented: a dim or stride is RUNTIME.
    """
    _, data_type = desc.require_layout(purpose)
    padding = _padding_runs(desc)
    if not buffer.flags.writeable:
        raise InvalidArguments(f"{purpose} writes to a memory that is read-only: give it a writable buffer")
    if not padding.lanes:
        return
    if padding.overlaps:
        raise InvalidArguments(
            f"elements of {desc!r} overlap, so its padding may share bytes with its data: give every element an offset "
            "of its own"
        )
    padding.require_buffer(buffer, data_type)
    for runs in padding.runs:
        fill_runs(runs, buffer, element)
    for box in padding.boxes if data_type.is_sub_byte else ():
        view, shift = box_view(box, buffer, data_type)
        view &= np.uint8(0xF0 >> shift)
        view |= np.uint8((int(element[0]) & 15) << shift)


def zero_lanes(desc: MemoryDesc, buffer: Bytes) -> None:
    """Write zeros into the padding of the tensor that `desc` describes in `buffer`, and into nothing else.

    Post-condition: find_dirty(desc, buffer).is_clean, and every lane of padding has the code 0.

    Raises:
        InvalidArguments, Unimplemented: as `fill_lanes`.
    """
    _, data_type = desc.require_layout("zero_padding")
    fill_lanes(desc, buffer, np.zeros(data_type.itemsize, np.uint8))


def value_bits(data_type: DataType) -> int:
    """Return the mask of the bits that are 0 in every code of zero: all bits except the sign of a float.

    For types of more than 64 bits, it is the mask of each half of 64 bits.

    >>> from inlay.data_type import DATA_TYPES
    >>> [hex(value_bits(DATA_TYPES[name])) for name in ("s8", "bf16", "e8m0")]
    ['0xff', '0x7fff', '0xff']
    """
    has_sign = data_type.kind == "float" and data_type.is_signed
    return (1 << min(data_type.bits, 64) - has_sign) - 1


# Functions that keep padding zero


Elementwise: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""A function from an array of any shape to an array of the same shape and type, entry by entry."""


def preserves_padding(f: Elementwise, data_type: DataTypeLike = "f32", value: object = 0) -> bool:
    """Return True if f(value) == value in this type (-0.0 counts as 0), so that `f` may be applied to padding.

    `value` is what the padding holds. `f` is a ufunc or any function of arrays, and must be elementwise (see
    `image_of`).

    Raises:
        InvalidArguments: `data_type` is no data type, or `f` returns an array of another shape or type, or is not
            elementwise.

    >>> preserves_padding(lambda x: x + 1)
    False
    >>> preserves_padding(np.negative, "bf16")
    True
    """
    kind = as_data_type(data_type)
    contents = Filled(value)
    require_contents(contents)
    before = element_of(contents, kind)
    return is_same_value(before, image_of(f, before, kind), kind)


def is_same_value(one: Bytes, other: Bytes, data_type: DataType) -> bool:
    """Return True if two elements have the same bytes, or both are zeros of any sign."""
    if not one.any():
        mask = value_bits(data_type).to_bytes(min(data_type.itemsize, 8), "little")
        return not (other & np.frombuffer(mask * max(1, data_type.itemsize // 8), np.uint8)).any()
    return bool((one == other).all())


def image_of(f: Elementwise, element: Bytes, data_type: DataType) -> Bytes:
    """Return the bytes of f(x), where x is the element with these bytes.

    `f` is called twice: with x beside another x, and with x beside a one. A function that is not elementwise (softmax,
    subtraction of the mean) returns different values for the first x.

    Raises:
        InvalidArguments: `f` returns an array of another shape or type, or is not elementwise.
    """
    both = np.concatenate([decode_elements(np.array(element), data_type)] * 2)
    beside_one = np.concatenate([both[:1], np.ones(1, data_type.dtype)])
    with np.errstate(all="ignore"):
        first, second = apply_elementwise(f, both.copy()), apply_elementwise(f, beside_one)
    if first[0] != second[0] and not (_is_nan(first[0]) and _is_nan(second[0])):
        raise InvalidArguments(
            f"f is not elementwise: it gives {first[0]} for {both[0]:g} beside another {both[0]:g}, and {second[0]} "
            "beside 1; unpack the memory, apply f, and pack the result"
        )
    codes = encode_elements(first[:1], data_type) if data_type.is_sub_byte else np.ascontiguousarray(first[:1])
    return codes.view(np.uint8).reshape(-1)


def _is_nan(value: Any) -> bool:
    """Return whether a value is NaN."""
    return bool(value != value)


def apply_elementwise(f: Elementwise, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return f(values), after checking that it is an array with the shape and type of `values`.

    Raises:
        InvalidArguments: `f` cannot be called with such an array, or the result is another one.
    """
    if not callable(f):
        raise InvalidArguments(f"f is {shown(f)}: give a function of arrays, such as np.tanh")
    try:
        result = f(values)
    except TypeError as error:
        raise InvalidArguments(f"f does not accept an array of {values.dtype}: {error}") from error
    if not isinstance(result, np.ndarray):
        raise InvalidArguments(f"f must return an array: it returned a {type(result).__name__}")
    if (result.shape, result.dtype) != (values.shape, values.dtype):
        raise InvalidArguments(
            f"f must return an array like its argument, {values.dtype} of shape {values.shape}: "
            f"it returned {result.dtype} of shape {result.shape}"
        )
    return result
