"""The values that describe compound formats: bit fields, streams, sections, formats.

A quantized tensor has several streams of numbers in one buffer: quants, scales, minima. A block of ggml's Q4_0 has 32
elements along the last axis in 18 bytes:

    byte   0 1        2        3             17
           scale f16  e0 e16   e1 e17   ...  e15 e31      two quants of 4 bits in a byte, the lower bits first

A *bit field* maps the coordinates of a stream inside its block to bit offsets, by a layout of digits as everywhere in
Inlay. The quants of Q4_0 are 4 bits wide, start at bit 16, and have the digits (2, 4) (16, 8): element 17 = 1 * 16 + 1
lies 1 * 4 + 1 * 8 bits behind element 0. The number of a stream may be split over several fields; the fifth bit of a
Q5_0 quant is apart from its lower four.

A *section* is a part of the buffer that repeats one block, in row-major order of the blocks. Most formats have one;
separate planes of quants and scales are two sections. A section may have a *footer* behind each row of blocks.

The value of an element is computed in f32:

    value = scale * ... * (quant - zero)  -/+  minimum * ...

>>> q4_0 = CompoundFormat(
...     "mine:Q4_0",
...     (Section((32,), 18),),
...     (
...         Stream("quants", "u8", (BitField.of(4, 16, ((2, 4), (16, 8))),), zero=8),
...         Stream("scale", "f16", (BitField.of(16, 0, ()),)),
...     ),
...     scales=("scale",),
... )
>>> q4_0.streams[0].fields[0].layout.offset((17,))
12
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import DATA_TYPES
from inlay.errors import InvalidArguments, shown
from inlay.layout import Axis, Digit, Dims, Layout

STREAM_TYPES = ("u8", "s8", "s32", "f16", "bf16", "f32", "f8_e4m3")
"""Data types of the numbers of a stream."""
AxisDigits = Sequence[tuple[int, int]]
"""Digits of one axis inside a block: (extent, stride in bits), most significant first."""


@dataclass(frozen=True, slots=True)
class BitField:
    """A part of each number of a stream: some of its bits, and their place in the block or in the buffer."""

    width: int
    """Number of bits."""
    offset: int
    """Bit offset of the element at coordinate zero; byte b holds the bits 8 b to 8 b + 7, the lowest first."""
    layout: Layout
    """Map from the coordinates of the stream to bit offsets behind `offset`."""
    shift: int = 0
    """Position in the number of the lowest bit of the field."""

    @classmethod
    def of(cls, width: int, offset: int, *axes: AxisDigits, shift: int = 0) -> "BitField":
        """Create a field from the digits of each axis; an axis without digits has one entry.

        Post-condition: the dim of an axis is the product of the extents of its digits.

        Raises:
            InvalidArguments: a digit is no pair of integers, or its extent is less than 1.

        >>> BitField.of(4, 16, ((2, 4), (16, 8))).layout.dims
        (32,)
        """
        dims = tuple(prod(extent for extent, _ in digits) for digits in axes)
        return cls(width, offset, Layout(dims, tuple(_block_axis(digits) for digits in axes)), shift)

    def bit_offsets(self) -> npt.NDArray[np.int64]:
        """Return the bit offset of each entry, in row-major order of the coordinates."""
        dims = self.layout.dims
        points = np.stack(np.unravel_index(np.arange(prod(dims)), dims), axis=-1)
        return np.asarray(self.layout.offset(points), np.int64) + self.offset


def _block_axis(digits: AxisDigits) -> Axis:
    """Return the axis with these digits, of which the first is the leading one."""
    if not digits:
        return Axis(0)
    return Axis(digits[0][1], tuple(Digit(extent, stride) for extent, stride in digits[1:]))


@dataclass(frozen=True, slots=True)
class Stream:
    """One array of numbers in the buffer: quants, scales, minima, sums."""

    name: str
    """Name of the stream, an identifier."""
    data_type: str
    """Data type of the numbers, of `STREAM_TYPES`; numbers of fewer bits are extended to it."""
    fields: tuple[BitField, ...]
    """The fields that a number consists of; all have the same dims."""
    zero: int = 0
    """The number that stands for 0.0: it is subtracted before the number is scaled."""
    codebook: tuple[float, ...] = ()
    """The value of each number, which is then a code; empty if the number minus `zero` is the value."""
    section: int = 0
    """Index of the section."""
    in_footer: bool = False
    """True if the stream is in the footer of the rows of blocks; its last axis has one entry then."""
    is_optional: bool = False
    """True if the stream is zero unless a caller passes it."""

    @property
    def dims(self) -> Dims:
        """Dims of the stream inside one block."""
        return self.fields[0].layout.dims

    @property
    def bits(self) -> int:
        """Number of bits of a number in the buffer."""
        return sum(field.width for field in self.fields)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the numbers."""
        return DATA_TYPES[self.data_type].dtype

    @property
    def limits(self) -> tuple[int, int] | None:
        """The lowest and the highest integer that the bits can hold; None if the numbers are floats."""
        if DATA_TYPES[self.data_type].kind == "float":
            return None
        is_signed = self.data_type[0] == "s"
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if is_signed else (0, (1 << self.bits) - 1)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the buffer that repeats one block."""

    block: Dims
    """Dims of the elements of one block, along the last axes of the tensor."""
    nbytes: int
    """Size of a block in bytes, padding included."""
    footer_nbytes: int = 0
    """Size in bytes of what follows each row of blocks, that is the blocks along the last axis."""
    alignment: int = 1
    """The section starts at a multiple of this number of bytes."""


@dataclass(frozen=True, slots=True)
class CompoundFormat:
    """A memory format of several streams in one buffer; a value, without dims of a tensor."""

    name: str
    """Name of the format, such as `ggml:Q4_0`."""
    sections: tuple[Section, ...]
    """The parts of the buffer, in order."""
    streams: tuple[Stream, ...]
    """The streams; the first one holds a number for each element of the tensor."""
    scales: tuple[str, ...] = ()
    """Names of the streams that multiply the quants."""
    minima: tuple[str, ...] = ()
    """Names of the streams whose product is added to the scaled quants or subtracted from them."""
    adds_minimum: bool = False
    """True if the minimum is added, false if it is subtracted."""
    multiple: Dims = ()
    """Numbers that the last dims of a tensor must be multiples of; empty for the block of the first section."""
    repeats_edge: bool = False
    """True if blocks beyond the tensor repeat its last row, false if they hold zeros."""
    source: str = ""
    """The document or program that defines the format."""

    def __post_init__(self) -> None:
        """Check that the streams fit into their blocks and do not overlap.

        Raises:
            InvalidArguments: a name is unknown or occurs twice, dims of a stream do not divide the block, or two
                fields overlap or lie outside of the block.
        """
        _require_names(self)
        for stream in self.streams:
            _require_stream(self, stream)
        for index in range(len(self.sections)):
            _require_disjoint(self, index, in_footer=False)
            _require_disjoint(self, index, in_footer=True)

    @property
    def ndims(self) -> int:
        """Number of axes of the blocks; a tensor has at least as many."""
        return len(self.sections[0].block)

    @property
    def values(self) -> Stream:
        """The stream with a number for each element."""
        return self.streams[0]

    @property
    def required_multiple(self) -> Dims:
        """Numbers that the last dims of a tensor must be multiples of."""
        return self.multiple or self.sections[0].block

    def stream(self, name: str) -> Stream:
        """Return the stream called `name`.

        Raises:
            InvalidArguments: there is none.
        """
        for stream in self.streams:
            if stream.name == name:
                return stream
        known = ", ".join(stream.name for stream in self.streams)
        raise InvalidArguments(f"{self.name} has no stream {shown(name)}: name one of {known}")


def _require_names(fmt: CompoundFormat) -> None:
    """Check that there are sections and streams, and that each name denotes one stream."""
    names = [stream.name for stream in fmt.streams]
    if not names or not fmt.sections:
        raise InvalidArguments(
            f"{fmt.name} has {len(fmt.sections)} sections and {len(names)} streams: give one or more"
        )
    for name in names:
        if names.count(name) > 1:
            raise InvalidArguments(f"{fmt.name} has two streams called {shown(name)}: give each its own name")
    for name in (*fmt.scales, *fmt.minima):
        if name not in names:
            raise InvalidArguments(f"{fmt.name} multiplies by {shown(name)}, and its streams are {', '.join(names)}")


def _require_stream(fmt: CompoundFormat, stream: Stream) -> None:
    """Check the type, the fields and the dims of one stream."""
    text = f"stream {stream.name!r} of {fmt.name}"
    if stream.data_type not in STREAM_TYPES:
        raise InvalidArguments(f"{text} is of {shown(stream.data_type)}: give one of {', '.join(STREAM_TYPES)}")
    if not stream.fields:
        raise InvalidArguments(f"{text} has no fields: give the place of its bits")
    if not 0 <= stream.section < len(fmt.sections):
        raise InvalidArguments(f"{text} is in section {stream.section}: {fmt.name} has {len(fmt.sections)}")
    block = fmt.sections[stream.section].block
    if any(field.layout.dims != stream.dims for field in stream.fields):
        raise InvalidArguments(f"{text} has fields of different dims: give each the dims {stream.dims}")
    if len(stream.dims) != len(block) or any(b % d for b, d in zip(block, stream.dims, strict=True)):
        raise InvalidArguments(f"{text} has dims {stream.dims}: give divisors of the block {block}")
    if stream is fmt.streams[0] and (stream.dims != block or stream.in_footer):
        raise InvalidArguments(f"{text} is the first and has dims {stream.dims}: give it those of the block {block}")
    if stream.codebook and len(stream.codebook) != 1 << stream.bits:
        raise InvalidArguments(f"{text} has {len(stream.codebook)} values: {stream.bits} bits take {1 << stream.bits}")
    width = DATA_TYPES[stream.data_type].bits
    if stream.bits > width or (stream.limits is None and stream.bits != width):
        raise InvalidArguments(f"{text} has {stream.bits} bits: {stream.data_type} has {width}")


def _require_disjoint(fmt: CompoundFormat, index: int, *, in_footer: bool) -> None:
    """Check that the fields of the blocks or the footers of a section fit and do not overlap."""
    section = fmt.sections[index]
    nbytes = section.footer_nbytes if in_footer else section.nbytes
    owner = np.full(8 * nbytes, -1)
    for number, stream in enumerate(fmt.streams):
        if stream.section != index or stream.in_footer != in_footer:
            continue
        for field in stream.fields:
            bits = (field.bit_offsets()[:, None] + np.arange(field.width)).ravel()
            if bits.min() < 0 or bits.max() >= owner.size:
                part = "footer" if in_footer else "block"
                raise InvalidArguments(
                    f"stream {stream.name!r} of {fmt.name} reaches bits {bits.min()} to {bits.max()}: "
                    f"the {part} has {owner.size} bits"
                )
            if (owner[bits] >= 0).any() or np.unique(bits).size != bits.size:
                at = next(int(bit) for bit in bits if owner[bit] >= 0 or (bits == bit).sum() > 1)
                raise InvalidArguments(
                    f"stream {stream.name!r} of {fmt.name} uses bit {at} of the block, which another element uses: "
                    "give each element bits of its own"
                )
            owner[bits] = number
