"""Drafts of quantizations and of conversions back to floats: operations, and sizes of boxes.

    QuantizeDraft      fc.weight f32 (64, 256)                     fc.weight s8 (64, 256), fc.weight_scale f32 (64, 2)
    DequantizeDraft    fc.weight s8, fc.weight_scale               fc.weight f32 (64, 256)
    PackDraft          up.weight f32 (64, 256)                     up.weight, blocks of ggml:Q4_0
    UnpackDraft        up.weight, blocks of ggml:Q4_0              up.weight f32 (64, 256)

The limit of a box is less than the memory of a task, because floats of its elements are in memory beside it.
"""

from dataclasses import dataclass
from math import lcm, prod

from inlay.descriptor import MemoryDesc
from inlay.descriptor.compound_desc import CompoundDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.storage.box import Box
from inlay.storage.box_bytes import can_cut, locate_box
from inlay.storage.cutting import cut_extents
from inlay.storage.dequantize_operation import DequantizeOperation, ScaleTensor, UnpackOperation
from inlay.storage.operation import BoxOperation, join_units
from inlay.storage.quantization import Quantization, QuantizationScheme
from inlay.storage.quantize_operation import F32, PackOperation, QuantizeOperation
from inlay.storage.store import StoredTensor, row_major, source_units
from inlay.storage.target import NewTensor, TargetTensor
from inlay.storage.tensor_draft import Targets

_SHORT_RUN = 4096
"""Size in bytes below which runs are slow to read; two passes over boxes of longer runs are faster."""


@dataclass(frozen=True, slots=True)
class QuantizeDraft:
    """A tensor to quantize, with scales beside it."""

    tensor: StoredTensor
    """The tensor of the source."""
    src: MemoryDesc
    """Its descriptor."""
    news: tuple[NewTensor, ...]
    """Quants, scales of the groups, and the scale of the tensor if the element format has one."""
    quantization: Quantization
    """Scheme and element format."""
    groups: Dims
    """Number of elements along each axis that share a scale."""

    def place(self, targets: Targets, limit: int) -> tuple[BoxOperation, Dims]:
        """Return the operation, and the extents of boxes: whole groups, if they fit and their runs are long.

        Raises:
            InvalidArguments: a box does not fit.
        """
        quants, *scales = (targets[new.name] for new in self.news)
        dst, element, scheme = self.news[0].bytes_desc, self.quantization.element, self.quantization.scheme
        assert element is not None
        # Beside the box and its quants there are the rows of both, their values twice, and those of the quants.
        extra = _bits(self.src) + _bits(dst) + 3 * F32.bits
        needs_scan, units = element.has_second, _align_units(self.groups, scales[0], self.src.dims)
        units = join_units(units, quants.chunks, self.src.dims)
        in_parts = self._cut_groups(quants)
        if scheme == QuantizationScheme() or (
            scheme.axis is not None
            and not self._has_long_runs(limit, extra, units)
            and self._fits(limit, extra, in_parts)
        ):
            needs_scan, units = True, in_parts
        operation = QuantizeOperation(
            quants, tuple(scales), element, scheme, self.quantization.scale_type, self.groups, units, needs_scan
        )
        return operation, _cut(self.tensor, self.src, dst, limit, extra, units)

    def _cut_groups(self, quants: TargetTensor) -> Dims:
        """Return the extents of boxes that may contain parts of groups: all coordinates of an axis with scales."""
        axis = self.quantization.scheme.axis
        whole = None if axis is None else axis % self.src.ndims
        units = tuple(max(n, 1) if i == whole else 1 for i, n in enumerate(self.src.dims))
        return join_units(units, quants.chunks, self.src.dims)

    def _fits(self, limit: int, extra: int, units: Dims) -> bool:
        """Return True if boxes of multiples of `units` fit."""
        try:
            _cut(self.tensor, self.src, self.news[0].bytes_desc, limit, extra, units)
        except InvalidArguments:
            return False
        return True

    def _has_long_runs(self, limit: int, extra: int, units: Dims) -> bool:
        """Return True if boxes of whole groups fit and are read in long runs."""
        if not self._fits(limit, extra, units):
            return False
        extents = _cut(self.tensor, self.src, self.news[0].bytes_desc, limit, extra, units)
        place = locate_box(self.src, Box((0,) * len(extents), extents))
        return place is not None and (place.count == 1 or place.run_nbytes >= _SHORT_RUN)


def _bits(desc: MemoryDesc) -> int:
    """Return the number of bits of an element."""
    return desc.require_layout("a box")[1].bits


def _cut(tensor: StoredTensor, src: MemoryDesc, dst: MemoryDesc, limit: int, extra: int, units: Dims | None) -> Dims:
    """Return the extents of boxes that take at most `limit` bytes with `extra` bits for each element beside them.

    Raises:
        InvalidArguments: the smallest box does not fit.
    """
    bits = _bits(src) + _bits(dst)
    try:
        return cut_extents(src, dst, limit * bits // (bits + extra), source_units(tensor, src, units))
    except InvalidArguments as error:
        raise InvalidArguments(
            f"a box of tensor {tensor.label} with its numbers in f32 takes more than {limit} bytes: allow more "
            "(--memory)"
        ) from error


def _align_units(groups: Dims, scales: TargetTensor, dims: Dims) -> Dims:
    """Return the extents of boxes that contain whole groups, and whose scales are whole blocks and chunks."""
    if scales.desc.dims == (1,):
        return groups
    sizes = [size * block for size, block in zip(groups, _block_extents(scales), strict=True)]
    return tuple(min(size, max(n, 1)) for size, n in zip(sizes, dims, strict=True))


def _block_extents(tensor: TargetTensor) -> Dims:
    """Return the size of the blocks and chunks of a tensor along each axis; the axis if no part can be written."""
    layout, _ = tensor.desc.require_layout("a box")
    if not can_cut(tensor.desc):
        return tuple(max(n, 1) for n in tensor.desc.dims)
    blocks = tuple(prod(digit.extent for digit in axis.inner) for axis in layout.axes)
    return join_units(blocks, tensor.chunks, tensor.desc.dims)


@dataclass(frozen=True, slots=True)
class PackDraft:
    """A tensor to quantize to blocks of a compound format."""

    tensor: StoredTensor
    """The tensor of the source."""
    src: MemoryDesc
    """Its descriptor."""
    news: tuple[NewTensor, ...]
    """The tensor of the blocks."""
    desc: CompoundDesc
    """Format and dims of the blocks."""

    def place(self, targets: Targets, limit: int) -> tuple[BoxOperation, Dims]:
        """Return the operation, and the extents of boxes of whole blocks.

        Raises:
            InvalidArguments: a box does not fit.
        """
        placed, section = targets[self.news[0].name], self.desc.format.sections[0]
        *rows, last = placed.chunks or (1,) * self.src.ndims
        units = (*rows, lcm(last, section.nbytes) // section.nbytes * section.block[0])
        operation = PackOperation(placed, self.desc, tuple(map(min, units, self.src.dims)))
        blocks = row_major(self.src.dims, "u8")  # stands for the blocks, which are smaller
        # Beside the box and its blocks there are its values, their quants and the values of those.
        return operation, _cut(self.tensor, self.src, blocks, limit, 3 * F32.bits, operation.units)


@dataclass(frozen=True, slots=True)
class UnpackDraft:
    """A tensor in blocks of a compound format, to become floats."""

    tensor: StoredTensor
    """The tensor of the source."""
    src: MemoryDesc
    """Descriptor of its bytes, in rows of blocks."""
    news: tuple[NewTensor, ...]
    """The tensor of the floats."""
    desc: CompoundDesc
    """Format and dims of the blocks."""

    def place(self, targets: Targets, limit: int) -> tuple[BoxOperation, Dims]:
        """Return the operation, and the extents of boxes of bytes.

        Raises:
            InvalidArguments: a box does not fit.
        """
        section, placed = self.desc.format.sections[0], targets[self.news[0].name]
        *rows, last = map(min, _block_extents(placed), self.desc.dims)
        last = min(lcm(last, section.block[0]) // section.block[0] * section.nbytes, self.src.dims[-1])
        operation = UnpackOperation(placed, self.desc, (*rows, last))
        # A byte becomes a value of f32 for each element that it holds, and one of the result.
        extra = -(-section.block[0] // section.nbytes) * (F32.bits + _bits(placed.desc))
        return operation, _cut(self.tensor, self.src, self.src, limit, extra, operation.units)


@dataclass(frozen=True, slots=True)
class DequantizeDraft:
    """A tensor of quants, to become floats."""

    tensor: StoredTensor
    """The tensor of the source."""
    src: MemoryDesc
    """Its descriptor."""
    news: tuple[NewTensor, ...]
    """The tensor of the floats."""
    scales: tuple[ScaleTensor, ...]
    """The scales."""

    def place(self, targets: Targets, limit: int) -> tuple[BoxOperation, Dims]:
        """Return the operation, and the extents of boxes of whole groups.

        Raises:
            InvalidArguments: a box does not fit.
        """
        new = self.news[0]
        operation = DequantizeOperation(targets[new.name], self.scales, self.src.dims)
        # Beside the box and its floats there may be values and scales in f32.
        return operation, _cut(self.tensor, self.src, new.bytes_desc, limit, 2 * F32.bits, operation.units)
