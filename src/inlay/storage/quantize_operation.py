"""Operations that quantize the elements of a box: to quants with scales beside them, and to compound blocks.

The elements of a box are arranged as a matrix with one row for each scale:

    absmax              one row            the elements in row-major order
    absmax:AXIS         a row for each coordinate of the axis
    absmax:group=N      rows of N consecutive elements

A reorder divides each row by its scale, rounds and converts. A second one places the quants where they belong.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from inlay.data_type import DATA_TYPES, DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.errors import InvalidArguments, printable
from inlay.layout import Dims
from inlay.memory import Memory, reorder
from inlay.memory.compound import pack_compound
from inlay.notation.format_tag import FormatTag
from inlay.storage.box import Box
from inlay.storage.operation import BoxCounts, OnePassOperation, ScanResult
from inlay.storage.quantization import ElementFormat, Floats, QuantizationScheme
from inlay.storage.quantization_error import measure_error
from inlay.storage.store import row_major
from inlay.storage.target import TargetTensor, TargetWriter

_LONG_ROW = 1024
"""Elements from which NumPy finds the greatest of a row fast; shorter rows are transposed first."""

F32 = DATA_TYPES["f32"]


@dataclass(frozen=True, slots=True)
class QuantizeOperation:
    """A quantization to quants and scales in tensors of their own."""

    quants: TargetTensor
    """The tensor of the quants."""
    scales: tuple[TargetTensor, ...]
    """The tensor of the scales of the groups; behind it that of the whole tensor, if the element format has one."""
    element: ElementFormat
    """Format of the quants."""
    scheme: QuantizationScheme
    """The elements that share a scale."""
    scale_type: DataType
    """Data type of the scales of the groups."""
    groups: Dims
    """Number of elements along each axis that share a scale."""
    units: Dims | None
    """Multiples of which boxes consist."""
    needs_scan: bool
    """True if a box may contain a part of a group, or there is a scale of the whole tensor."""
    greatest: tuple[float, ...] | None = None
    """Greatest magnitude of the tensor, or of each coordinate of the axis, after the scan."""

    @property
    def targets(self) -> tuple[TargetTensor, ...]:
        """The quants and their scales."""
        return (self.quants, *self.scales)

    def scan(self, memory: Memory) -> ScanResult:
        """Return the greatest magnitude of a box, or of each coordinate of the axis.

        Raises:
            InvalidArguments: an element is NaN or infinite.
            OutOfMemory: the operating system cannot provide the bytes of the rows.
        """
        greatest = self._magnitudes(self._arrange(memory), None).astype(np.float64)
        return float(greatest.max()) if self._axis is None else greatest

    def with_scan(self, greatest: ScanResult) -> "QuantizeOperation":
        """Return the operation that knows the greatest magnitudes."""
        return replace(self, greatest=tuple(np.atleast_1d(greatest).tolist()))

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        """Quantize the elements of a box, write quants and scales, and return the error.

        Raises:
            InvalidArguments: an element is NaN or infinite, or a scale is beyond the range of its type.
            FileError: the target cannot be written.
            OutOfMemory: the operating system cannot provide the bytes of the result.
        """
        rows = self._arrange(memory)
        scales, second = self._find_scales(rows, box)
        factors = (scales * second).reshape(-1, 1)
        quants = self._round(rows, factors)
        desc = writer.box_desc(self.quants, box)
        placed = Memory(MemoryDesc(box.dims, quants.desc.data_type or F32, self._order(box.dims)), quants.buffer)
        writer.write_box(self.quants, box, placed if placed.desc == desc else reorder(placed, desc))
        self._write_scales(scales, second, box, writer)
        return measure_error(_as_floats(rows), _multiply(quants, factors))

    @property
    def _axis(self) -> int | None:
        """The axis with one scale for each coordinate, None if there is none."""
        return None if self.scheme.axis is None else self.scheme.axis % len(self.groups)

    def _order(self, dims: Dims) -> FormatTag:
        """Return the order of the axes in the matrix of rows."""
        axes = list(range(len(dims)))
        if self._axis is not None:
            axes.insert(0, axes.pop(self._axis))
        return FormatTag(tuple(axes))

    def _arrange(self, memory: Memory) -> Memory:
        """Return the elements of a box as a matrix with one row for each scale, in the type of the source or in f32."""
        dims, data_type = memory.desc.dims, memory.desc.require_layout("a box")[1]
        desc = MemoryDesc(dims, F32 if data_type.bits > F32.bits else data_type, self._order(dims))
        arranged = memory if memory.desc == desc else reorder(memory, desc)
        count = 1 if self._axis is None else dims[self._axis]
        size = prod(dims)
        if self.scheme.group is not None:
            count = size // self.scheme.group
        return Memory(MemoryDesc((count, size // count), desc.data_type or F32, "ab"), arranged.buffer)

    def _round(self, rows: Memory, factors: Floats) -> Memory:
        """Return rows divided by their scales, as numbers of the type of the quants; those of s4 as s8.

        Rows of an odd number of 4-bit integers are no memory.
        """
        data_type = self.element.data_type
        if data_type.name != "s4":
            return reorder(rows, MemoryDesc(rows.desc.dims, data_type, "ab"), dst_scales=factors)
        quants = reorder(rows, MemoryDesc(rows.desc.dims, "s8", "ab"), dst_scales=factors)
        numbers = quants.unpack()
        return Memory(quants.desc, np.clip(numbers, data_type.lowest, data_type.highest, out=numbers))

    def _magnitudes(self, rows: Memory, box: Box | None) -> Floats:
        """Return the greatest magnitude of each row, after checking that all are finite."""
        with np.errstate(invalid="ignore"):
            if rows.desc.dims[1] < _LONG_ROW:
                transposed = reorder(rows, MemoryDesc(rows.desc.dims, F32, "ba")).buffer.view(np.float32)
                columns = transposed[: prod(rows.desc.dims)].reshape(rows.desc.dims[::-1])
                greatest = np.maximum(columns.max(0), -columns.min(0))
            else:
                values = _as_floats(rows)
                greatest = np.maximum(values.max(-1), -values.min(-1))
        if not np.isfinite(greatest).all():
            where = "" if box is None else f" in {box}"
            kind = "NaN" if np.isnan(greatest).any() else "infinities"
            raise InvalidArguments(
                f"tensor {printable(self.quants.name)} holds {kind}{where}: quantize numbers that are finite in f32, "
                "or name other tensors (--to)"
            )
        return np.asarray(greatest, np.float32)

    def _find_scales(self, rows: Memory, box: Box) -> tuple[Floats, np.float32]:
        """Return the scales of the rows, and the scale that multiplies all of them."""
        second = np.float32(1)
        if self.element.has_second:
            assert self.greatest is not None, "with_scan comes first"
            second = self.element.second_scale(self.greatest[0])
            return self.element.scales(self._magnitudes(rows, box) / second, self.scale_type), second
        if self.greatest is None:
            return self.element.scales(self._magnitudes(rows, box), self.scale_type), second
        part = slice(None) if self._axis is None else box.slices[self._axis]
        return self.element.scales(np.array(self.greatest[part], np.float32), self.scale_type), second

    def _write_scales(self, scales: Floats, second: np.float32, box: Box, writer: TargetWriter) -> None:
        """Write the scales of the groups that begin in a box."""
        if not any(begin % size for begin, size in zip(box.begin, self.groups, strict=True)):
            _write_floats(scales, self.scales[0], scale_box(box, self.groups, self.scales[0].desc), writer)
        if len(self.scales) > 1 and not any(box.begin):
            _write_floats(np.array([second]), self.scales[1], Box((0,), (1,)), writer)


def scale_box(box: Box, groups: Dims, desc: MemoryDesc) -> Box:
    """Return the scales, with descriptor `desc`, of the groups that have elements in a box.

    >>> str(scale_box(Box((2, 128), (4, 256)), (1, 32), MemoryDesc((8, 16), "f32", "ab")))
    '[2:4, 4:8]'
    """
    if desc.dims == (1,):
        return Box((0,), (1,))
    begin = tuple(first // size for first, size in zip(box.begin, groups, strict=True))
    return Box(begin, tuple(-(-end // size) for end, size in zip(box.end, groups, strict=True)))


def _write_floats(values: Floats, target: TargetTensor, box: Box, writer: TargetWriter) -> None:
    """Write the numbers of a box, given in row-major order, in the type and layout of a tensor."""
    writer.write_box(target, box, reorder(Memory(row_major(box.dims, F32), values), writer.box_desc(target, box)))


def _as_floats(rows: Memory) -> Floats:
    """Return the elements of a matrix as f32; a view if they are."""
    desc = MemoryDesc(rows.desc.dims, F32, "ab")
    return np.asarray((rows if rows.desc == desc else reorder(rows, desc)).unpack(), np.float32)


def _multiply(quants: Memory, factors: Floats) -> Floats:
    """Return the values of quants in f32, whose rows are multiplied by `factors`."""
    desc = MemoryDesc(quants.desc.dims, F32, "ab")
    return np.asarray(reorder(quants, desc, src_scales=factors).unpack(), np.float32)


@dataclass(frozen=True, slots=True)
class PackOperation(OnePassOperation):
    """A quantization to the blocks of a compound format."""

    target: TargetTensor
    """The tensor of the blocks: bytes, in rows along the last axis."""
    desc: CompoundDesc
    """Format, and dims of the tensor."""
    units: Dims
    """Multiples of which boxes consist."""

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        """Quantize the elements of a box, write the blocks, and return the error.

        Raises:
            InvalidArguments: an element is NaN or infinite.
            FileError: the target cannot be written.
            OutOfMemory: the operating system cannot provide the bytes of the result.
        """
        desc = row_major(box.dims, F32)
        values = np.asarray((memory if memory.desc == desc else reorder(memory, desc)).unpack(), np.float32)
        if not np.isfinite(values).all():
            raise InvalidArguments(
                f"tensor {printable(self.target.name)} holds NaN or infinities in {box}: quantize numbers that are "
                "finite in f32, or name other tensors (--to)"
            )
        packed = pack_compound(values, self.desc.format)
        place = byte_box(self.desc, box)
        blocks = Memory(row_major(place.dims, "u8"), packed.buffer)
        placed = writer.box_desc(self.target, place)
        writer.write_box(self.target, place, blocks if blocks.desc == placed else reorder(blocks, placed))
        return measure_error(values, packed.unpack())


def byte_dims(desc: CompoundDesc) -> Dims:
    """Return the dims of the bytes of a tensor in rows of blocks.

    >>> from inlay.descriptor.compound_table import compound
    >>> byte_dims(CompoundDesc(compound("ggml:Q4_0"), (3, 64)))
    (3, 36)
    """
    return (*desc.dims[:-1], desc.grids[0].row_nbytes)


def byte_box(desc: CompoundDesc, box: Box) -> Box:
    """Return the bytes of the blocks of a box of elements, which consists of whole blocks.

    >>> from inlay.descriptor.compound_table import compound
    >>> str(byte_box(CompoundDesc(compound("ggml:Q4_0"), (3, 64)), Box((1, 32), (3, 64))))
    '[1:3, 18:36]'
    """
    section = desc.format.sections[0]
    ends = [end // section.block[-1] * section.nbytes for end in (box.begin[-1], box.end[-1])]
    return Box((*box.begin[:-1], ends[0]), (*box.end[:-1], ends[1]))


def element_box(desc: CompoundDesc, box: Box) -> Box:
    """Return the elements of a box of bytes: the inverse of `byte_box`."""
    section = desc.format.sections[0]
    ends = [end // section.nbytes * section.block[-1] for end in (box.begin[-1], box.end[-1])]
    return Box((*box.begin[:-1], ends[0]), (*box.end[:-1], ends[1]))
