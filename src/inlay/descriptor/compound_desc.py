"""`CompoundDesc`: a compound format with the dims of a tensor; the place of every bit of every stream.

The blocks of a section are in row-major order: first the axes of the tensor before those of the block, then the blocks
along each axis of the block. So the layout of a field in the whole buffer is that of the block, with one more leading
digit for each axis:

    Q4_0, tensor (3, 64)   quants: axis 0 (3, 288); axis 1 (2, 144) (2, 4) (16, 8), in bits, from bit 16

>>> from inlay.descriptor.compound_table import compound
>>> desc = CompoundDesc(compound("ggml:Q4_0"), (3, 64))
>>> desc.size, desc.stream_dims("scale")
(108, (3, 2))
>>> [(piece.offset, piece.width) for piece in desc.locate("quants", (1, 33))]
[(456, 4)]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from inlay.data_type import DataTypeLike, as_data_type
from inlay.descriptor.compound_format import BitField, CompoundFormat, Section, Stream
from inlay.descriptor.compound_table import find_compound
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8
from inlay.descriptor.memory_desc import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.layout.address import as_numbers


@dataclass(frozen=True, slots=True)
class BitRange:
    """Consecutive bits of the buffer that hold a part of one number."""

    offset: int
    """Offset of the lowest bit."""
    width: int
    """Number of bits."""
    shift: int
    """Position of the lowest bit in the number."""


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """The blocks of one section of a tensor."""

    section: Section
    """The block."""
    counts: Dims
    """Number of entries of each axis before those of the block, then number of blocks along the others."""
    offset: int
    """Offset of the first block in bytes."""

    @property
    def row_nbytes(self) -> int:
        """Size of a row of blocks with its footer, in bytes."""
        return self.counts[-1] * self.section.nbytes + self.section.footer_nbytes

    @property
    def rows(self) -> int:
        """Number of rows of blocks."""
        return prod(self.counts[:-1])

    @property
    def nbytes(self) -> int:
        """Size of the section in bytes."""
        return self.rows * self.row_nbytes


@dataclass(frozen=True, slots=True, repr=False)
class CompoundDesc:
    """The memory layout of a tensor in a compound format; a value."""

    format: CompoundFormat
    """The format."""
    dims: Dims
    """Dims of the tensor, in elements."""

    def __post_init__(self) -> None:
        """Check the dims.

        Raises:
            InvalidArguments: `format` is no CompoundFormat; or `dims` are no positive integers, have fewer axes than
                the block, or one is not a multiple of what the format requires.
        """
        given: object = self.format
        if not isinstance(given, CompoundFormat):
            raise InvalidArguments(f"format is {shown(given)}: give one, as inlay.compound('ggml:Q4_0') is")
        dims = as_numbers("dim", self.dims)
        object.__setattr__(self, "dims", dims)
        fmt, least = self.format, self.format.ndims
        if len(dims) < least:
            raise InvalidArguments(
                f"dims {dims} have {len(dims)} axes: a block of {fmt.name} has {least}, give as many"
            )
        if any(dim < 1 for dim in dims):
            raise InvalidArguments(
                f"dims {dims} have an entry below 1: {fmt.name} has whole blocks, give positive dims"
            )
        for axis, multiple in enumerate(fmt.required_multiple, len(dims) - least):
            if dims[axis] % multiple:
                wanted = -(-dims[axis] // multiple) * multiple
                raise InvalidArguments(
                    f"dim {axis} of {dims} is {dims[axis]}, no multiple of the {multiple} elements of {fmt.name}: "
                    f"pad the axis to {wanted}"
                )

    def __repr__(self) -> str:
        """Return the call that creates the descriptor; formats of the table are named.

        >>> from inlay.descriptor.compound_table import compound
        >>> CompoundDesc(compound("ggml:Q4_0"), (3, 64))
        CompoundDesc(compound('ggml:Q4_0'), (3, 64))
        """
        is_known = find_compound(self.format.name) == self.format
        return f"CompoundDesc({f'compound({self.format.name!r})' if is_known else repr(self.format)}, {self.dims})"

    @property
    def grids(self) -> tuple[BlockGrid, ...]:
        """The blocks of each section."""
        grids, end = [], 0
        for section in self.format.sections:
            start = -(-end // section.alignment) * section.alignment
            before = len(self.dims) - len(section.block)
            counts = (-(-dim // size) for dim, size in zip(self.dims[before:], section.block, strict=True))
            grids.append(BlockGrid(section, (*self.dims[:before], *counts), start))
            end = start + grids[-1].nbytes
        return tuple(grids)

    @property
    def size(self) -> int:
        """Size of the buffer in bytes."""
        last = self.grids[-1]
        return last.offset + last.nbytes

    def group(self, name: str) -> Dims:
        """Return the number of elements along each axis that share one number of the stream.

        Raises:
            InvalidArguments: there is no such stream.

        >>> from inlay.descriptor.compound_table import compound
        >>> CompoundDesc(compound("ggml:Q4_K"), (2, 256)).group("scales")
        (1, 32)
        """
        stream = self.format.stream(name)
        block = self.format.sections[stream.section].block
        sizes = [b // d for b, d in zip(block, stream.dims, strict=True)]
        if stream.in_footer:
            sizes[-1] = self.dims[-1]
        return (1,) * (len(self.dims) - len(block)) + tuple(sizes)

    def stream_dims(self, name: str) -> Dims:
        """Return the dims of the logical array of a stream, without padding.

        Raises:
            InvalidArguments: there is no such stream.
        """
        return tuple(-(-dim // size) for dim, size in zip(self.dims, self.group(name), strict=True))

    def fields(self, name: str) -> tuple[BitField, ...]:
        """Return the bit fields of a stream in the whole buffer; dims of their layouts include padding.

        Post-condition: the number of a coordinate consists of the bits that `offset + layout.offset(coordinate)` of
        each field locates.

        Raises:
            InvalidArguments: there is no such stream.
        """
        stream = self.format.stream(name)
        grid = self.grids[stream.section]
        return tuple(self._whole_field(field, grid, stream) for field in stream.fields)

    def _whole_field(self, field: BitField, grid: BlockGrid, stream: Stream) -> BitField:
        """Return a field of a block as a field of the buffer."""
        last = grid.section.footer_nbytes if stream.in_footer else grid.section.nbytes
        pitches = [0] * len(grid.counts)
        pitches[-1], pitch = 8 * last, 8 * grid.row_nbytes
        for axis in reversed(range(len(pitches) - 1)):
            pitches[axis] = pitch
            pitch *= grid.counts[axis]
        before = len(grid.counts) - len(stream.dims)
        axes, dims = [Axis(stride) for stride in pitches[:before]], list(grid.counts[:before])
        counts = list(grid.counts[before:])
        counts[-1] = 1 if stream.in_footer else counts[-1]
        for inner, dim, count, stride in zip(field.layout.axes, stream.dims, counts, pitches[before:], strict=True):
            digits = inner.digits(dim) if dim > 1 else ()
            axes.append(Axis(stride, tuple(Digit(digit.extent, digit.stride) for digit in digits)))
            dims.append(dim * count)
        start = grid.offset + (grid.counts[-1] * grid.section.nbytes if stream.in_footer else 0)
        return BitField(field.width, 8 * start + field.offset, Layout(tuple(dims), tuple(axes)), field.shift)

    def locate(self, name: str, coordinate: Sequence[int]) -> tuple[BitRange, ...]:
        """Return the bits of the buffer that hold the number of a stream at a coordinate.

        Raises:
            InvalidArguments: there is no such stream, or the coordinate is outside of its padded dims.
        """
        fields = self.fields(name)
        return tuple(BitRange(f.offset + int(f.layout.offset(coordinate)), f.width, f.shift) for f in fields)

    def __str__(self) -> str:
        """Return name and dims as text: `ggml:Q4_0 3x64`."""
        return f"{self.format.name} {'x'.join(map(str, self.dims))}"


def parse_desc(text: str, dims: Sequence[int], data_type: DataTypeLike = "f32") -> MemoryDesc | CompoundDesc:
    """Return the descriptor of a text: the name of a compound format, or a layout in any notation.

    A compound format has its own data types, and its values are f32.

    Raises:
        InvalidArguments: `dims` do not suit the format, or `data_type` is not f32 for a compound format.
        FormatTagError, PatternError, NotationError: `text` names neither.

    >>> parse_desc("ggml:Q4_0", (2, 64)).size, parse_desc("ggml:Q4_0.qs", (2, 64), "u4").size
    (72, 64)
    """
    fmt = find_compound(text)
    if fmt is None:
        return MemoryDesc(dims, data_type, text)
    if as_data_type(data_type).name != "f32":
        raise InvalidArguments(
            f"data type {data_type} is passed for {fmt.name}: a compound format has its own types and unpacks to f32; "
            "leave it out"
        )
    return CompoundDesc(fmt, tuple(dims))


_COMPENSATIONS = {S8S8: "s8s8_compensation", ASYMMETRIC_SRC: "zero_point_compensation"}


def describe_compensated(desc: MemoryDesc) -> CompoundDesc:
    """Return the weights and the compensation of an int8 descriptor with extras as streams of one buffer.

    The format has one block, the whole tensor with its padding: the weights at their offsets, and behind them an s32
    number for each entry of the axes in the mask (oneDNN, `memory_extra_desc_t`).

    Post-condition: result.size == desc.size.

    Raises:
        InvalidArguments: `desc` is no memory descriptor.
        Unimplemented: its weights are not s8 with compensation of flag 1 or 8, or it has an offset.

    >>> from inlay.descriptor import Extras
    >>> weights = MemoryDesc((32, 16, 3, 3), "s8", "OIhw4i16o4i", extras=Extras(1, compensation_mask=1))
    >>> [stream.name for stream in describe_compensated(weights).format.streams]
    ['weights', 's8s8_compensation']
    """
    if not isinstance(desc, MemoryDesc):
        raise InvalidArguments(f"desc is {shown(desc)}: give a MemoryDesc with extras")
    extras = desc.extras
    if desc.data_type is None or desc.data_type.name != "s8" or not extras.flags & (S8S8 | ASYMMETRIC_SRC):
        raise Unimplemented(f"{desc!r} has no compensation: give s8 weights with extras of flag 1 or 8")
    layout, _ = desc.require_layout("compound")
    if desc.offset0:
        raise Unimplemented(f"{desc!r} starts at element {desc.offset0}: describe the whole tensor")
    fields = BitField(8, 0, _scaled(layout, 8))
    sizes = extras.buffer_sizes(desc.padded_dims)
    at = desc.size - sum(sizes.values())
    streams = [Stream("weights", "s8", (fields,))]
    for flag, nbytes in sizes.items():
        if flag not in _COMPENSATIONS:
            raise Unimplemented(f"{desc!r} has extras of flag {flag}: describe weights with flags 1, 2 and 8 only")
        mask = extras.compensation_mask if flag == S8S8 else extras.asymmetric_mask
        dims = tuple(dim if mask >> axis & 1 else 1 for axis, dim in enumerate(desc.padded_dims))
        field = BitField(32, 8 * at, _scaled(Layout.row_major(dims), 32))
        streams.append(Stream(_COMPENSATIONS[flag], "s32", (field,)))
        at += nbytes
    fmt = CompoundFormat(
        f"onednn:{desc.tag or 'strided'}",
        (Section(desc.padded_dims, desc.size),),
        tuple(streams),
        multiple=(1,) * desc.ndims,
        source="oneDNN, extra flags",
    )
    return CompoundDesc(fmt, desc.dims)


def _scaled(layout: Layout, factor: int) -> Layout:
    """Return the layout with every stride multiplied by `factor`."""
    axes = (
        Axis(axis.stride * factor, tuple(Digit(digit.extent, digit.stride * factor) for digit in axis.inner))
        for axis in layout.axes
    )
    return Layout(layout.dims, tuple(axes))
