"""Operations that compute floats of the elements of a box: from quants with scales beside them, and from blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.layout import Dims
from inlay.memory import Memory, reorder
from inlay.memory.compound import CompoundMemory
from inlay.storage.box import Box, whole_box
from inlay.storage.box_bytes import locate_box
from inlay.storage.operation import BoxCounts, OnePassOperation, join_units
from inlay.storage.quantization import Floats
from inlay.storage.quantize_operation import F32, element_box
from inlay.storage.store import StoredTensor, StoreReader, row_major
from inlay.storage.target import TargetTensor, TargetWriter

F64 = DATA_TYPES["f64"]


@dataclass(frozen=True, slots=True)
class ScaleTensor:
    """A tensor of scales in the source."""

    tensor: StoredTensor
    """The tensor."""
    desc: MemoryDesc
    """Descriptor of its bytes."""
    shape: Dims
    """Dims that are broadcast over the groups of the quants: as many axes as the quants have."""
    groups: Dims
    """Number of quants along each axis that share a scale."""

    def read(self, reader: StoreReader, box: Box) -> Floats:
        """Return the scales of the quants of a box in f32, an entry for each group along every axis.

        Raises:
            FileError: the source cannot be read.
            OutOfMemory: the operating system cannot provide the bytes.
        """
        begin = tuple(b // size for b, size in zip(box.begin, self.groups, strict=True))
        end = tuple(-(-e // size) for e, size in zip(box.end, self.groups, strict=True))
        part = Box(begin, end) if self.desc.dims == self.shape else whole_box(self.desc.dims)
        place = part if locate_box(self.desc, part) is not None else whole_box(self.desc.dims)
        scales = reorder(reader.read_box(self.tensor, self.desc, place), row_major(place.dims, F32)).unpack()
        if place == part and self.desc.dims == self.shape:
            return np.asarray(scales, np.float32)
        return np.asarray(scales.reshape(self.shape)[tuple(map(slice, begin, end))], np.float32)


@dataclass(frozen=True, slots=True)
class DequantizeOperation(OnePassOperation):
    """A computation of floats from quants: value = quant * scale in f32, rounded to the type of the result.

    Results of f64 are computed in f64.
    """

    target: TargetTensor
    """The tensor of the floats."""
    scales: tuple[ScaleTensor, ...]
    """The scales; their product is the factor of a quant."""
    dims: Dims
    """Dims of the tensor."""
    factors: Floats | None = field(default=None, compare=False)
    """The products of the scales for one box."""

    @property
    def units(self) -> Dims | None:
        """The groups, where an axis has several of them, and the chunks of the target."""
        sizes = self.scales[0].groups
        units = tuple(size if size < n else 1 for size, n in zip(sizes, self.dims, strict=True))
        return join_units(units, self.target.chunks, self.dims)

    def with_inputs(self, reader: StoreReader, box: Box) -> "DequantizeOperation":
        """Return the operation that has the scales of the quants of a box.

        Raises:
            FileError: the source cannot be read.
            OutOfMemory: the operating system cannot provide the bytes.
        """
        factors, *others = (each.read(reader, box) for each in self.scales)
        for other in others:
            factors = factors * other
        return replace(self, factors=factors)

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        """Multiply the quants of a box by their scales, and write the result.

        Raises:
            FileError: the target cannot be written.
            OutOfMemory: the operating system cannot provide the bytes of the result.
        """
        assert self.factors is not None, "with_inputs comes first"
        desc = writer.box_desc(self.target, box)
        if _can_multiply(memory.desc, self.factors.shape, self.scales[0].groups):
            result = reorder(memory, desc, src_scales=self.factors)
        else:
            plain = row_major(box.dims, F64 if desc.data_type == F64 else F32)
            values = reorder(memory, plain).unpack()
            values *= spread_scales(self.factors, self.scales[0].groups, box)
            result = reorder(Memory(plain, values), desc)
        writer.write_box(self.target, box, result)
        return BoxCounts()


def _can_multiply(desc: MemoryDesc, counts: Sequence[int], groups: Dims) -> bool:
    """Return True if a reorder can multiply by so many scales: equal groups, along the last two axes only."""
    last = desc.ndims - 2 if desc.ndims > 1 else desc.ndims
    for i, (count, n, size) in enumerate(zip(counts, desc.dims, groups, strict=True)):
        if count not in (1, n) and (i < last or n != count * size):
            return False
    # No reorder multiplies 4-bit integers by a single scale.
    return any(count > 1 for count in counts) or not desc.require_layout("quants")[1].is_sub_byte


def spread_scales(scales: Floats, groups: Dims, box: Box) -> Floats:
    """Return scales repeated for each coordinate along every axis that has several, to be broadcast over a box.

    >>> spread_scales(np.array([[2, 3]], np.float32), (4, 2), Box((0, 0), (4, 3))).tolist()
    [[2.0, 2.0, 3.0]]
    """
    for axis, (size, begin, end) in enumerate(zip(groups, box.begin, box.end, strict=True)):
        if scales.shape[axis] > 1:
            scales = np.take(scales, np.arange(begin, end) // size - begin // size, axis)
    return scales


@dataclass(frozen=True, slots=True)
class UnpackOperation(OnePassOperation):
    """A computation of floats from the blocks of a compound format; boxes are of bytes, in rows along the last axis."""

    target: TargetTensor
    """The tensor of the floats."""
    desc: CompoundDesc
    """Format, and dims of the tensor."""
    units: Dims
    """Multiples of which boxes consist, in bytes along the last axis."""

    def apply(self, memory: Memory, box: Box, writer: TargetWriter) -> BoxCounts:
        """Compute the values of a box of blocks, and write them.

        Raises:
            FileError: the target cannot be written.
            OutOfMemory: the operating system cannot provide the bytes of the result.
        """
        elements = element_box(self.desc, box)
        packed = CompoundMemory(CompoundDesc(self.desc.format, elements.dims), memory.buffer)
        values = Memory(row_major(elements.dims, F32), packed.unpack())
        desc = writer.box_desc(self.target, elements)
        writer.write_box(self.target, elements, values if values.desc == desc else reorder(values, desc))
        return BoxCounts()
