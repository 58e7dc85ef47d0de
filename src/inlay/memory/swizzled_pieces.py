"""Reorders of swizzled memory in pieces: both passes for a piece while it is in the second-level cache.

A piece is a range of an axis whose elements fill a range of linear offsets, of whole periods of the swizzle. So one
copy through the swizzle and one compiled reorder do for all pieces; only addresses differ.

    swizzled -> ba    piece of the swizzled buffer -> linear order, in the cache -> some columns of the destination
"""

from dataclasses import dataclass
from math import gcd

from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.layout import Axis, Layout
from inlay.memory.buffers import address_of
from inlay.memory.result_pool import result_pool_of_process
from inlay.memory.swizzled_bytes import SwizzleCopy, is_dense, swizzle_of_bytes
from inlay.reordering import CompiledReorder
from inlay.reordering.attributes import Operands
from inlay.reordering.choice import Choice, Decision
from inlay.reordering.compiled import compile_problem
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.problem import build_reorder_problem

PIECE = 4 << 20
"""Size of a piece of the swizzled buffer in bytes, about; tensors of at least four pieces are moved in pieces."""
_MOST = 16 << 20  # size in bytes above which a piece is no longer useful


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of elements: its passes, and its place on both sides."""

    copy: SwizzleCopy
    """The copy between swizzled memory and linear order."""
    reorder: CompiledReorder
    """The reorder between linear order and the other side."""
    swizzled: int
    """Byte offset of the piece in the swizzled buffer."""
    other: int
    """Byte offset of the piece in the other buffer, from the first piece."""


class PiecewiseReorder:
    """A reorder in pieces of a tensor of which one side is swizzled."""

    def __init__(self, pieces: tuple[Piece, ...], text: str, *, packs: bool) -> None:
        """Join the pieces; the destination is swizzled if `packs`, else the source is."""
        self._pieces, self._text, self._packs = pieces, text, packs

    @property
    def problem(self) -> None:
        """None: the pieces are not tuned."""
        return None

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Reorder the elements of the buffer at `src_address` into the buffer at `dst_address`."""
        scratch = result_pool_of_process().allocate(self._pieces[0].copy.nbytes, is_overwritten=True)
        linear = address_of(scratch)
        for piece in self._pieces:
            if self._packs:
                piece.reorder.run(src_address + piece.other, linear)
                piece.copy.run(linear, dst_address + piece.swizzled)
            else:
                piece.copy.run(src_address + piece.swizzled, linear)
                piece.reorder.run(linear, dst_address + piece.other)

    def explain(self, target: str | None = None) -> str:
        """Return the number of pieces, and the report on the compiled schedule of one."""
        first = self._pieces[0]
        head = f"{self._text}: {len(self._pieces)} pieces of {first.copy.nbytes} bytes, each in two passes"
        return f"{head}\n{first.reorder.explain(target)}"

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code of the reorder of a piece in linear order."""
        return self._pieces[0].reorder.assembly(target)


def plan_pieces(
    src: MemoryDesc, dst: MemoryDesc, src_linear: MemoryDesc, dst_linear: MemoryDesc
) -> PiecewiseReorder | None:
    """Return the reorder in pieces; None if a piece is no range of both sides, or the tensor is small.

    `src_linear` and `dst_linear` are the sides without swizzle; one of them is the side itself.
    """
    packs = src.swizzle is None
    swizzled, linear, other = (dst, dst_linear, src_linear) if packs else (src, src_linear, dst_linear)
    ranges = _choose_ranges(swizzled, linear, other)
    if ranges is None or (src.swizzle is not None and dst.swizzle is not None):
        return None
    axis, length = ranges
    try:
        pieces = _build_pieces(swizzled, linear, other, axis, length, packs=packs)
    except Unimplemented:
        return None
    return PiecewiseReorder(pieces, f"{'written' if packs else 'read'} through {swizzled.swizzle}", packs=packs)


def _choose_ranges(swizzled: MemoryDesc, linear: MemoryDesc, other: MemoryDesc) -> tuple[int, int] | None:
    """Return the axis that pieces are ranges of, and their length; None if there are no suitable ones."""
    swizzle, layout, far = swizzled.swizzle, linear.layout, other.layout
    assert swizzle is not None
    if not isinstance(layout, Layout) or not isinstance(far, Layout) or linear.data_type is None:
        return None
    if other.extras or any(side.dims != side.padded_dims or 0 in side.dims for side in (linear, other)):
        return None
    size, bits = layout.size, linear.data_type.bits
    if not is_dense(layout) or size % swizzle.chunk or size * bits < 4 * PIECE * 8:
        return None
    axis = max(
        range(len(layout.dims)), key=lambda i: layout.axes[i].stride if layout.dims[i] > layout.axes[i].block else 0
    )
    outer, dim = layout.axes[axis], layout.dims[axis]
    if outer.stride * (dim // outer.block) != size:
        return None
    period = swizzle.period // gcd(swizzle.period, outer.stride)
    step = max(1, PIECE * 8 // (outer.stride * bits * period)) * period
    length = step * outer.block
    if length >= dim or step * outer.stride * bits > _MOST * 8 or not _is_uniform(far.axes[axis], length):
        return None
    return axis, length


def _is_uniform(axis: Axis, length: int) -> bool:
    """Return True if all ranges of this length, from a multiple of it on, have the same digits."""
    extent = 1
    for digit in reversed(axis.inner):
        extent *= digit.extent
        if extent % length and length % extent:
            return False
    return True


def _build_pieces(
    swizzled: MemoryDesc, linear: MemoryDesc, other: MemoryDesc, axis: int, length: int, *, packs: bool
) -> tuple[Piece, ...]:
    """Return the pieces: all of one length, and one for the rest.

    Raises:
        Unimplemented: a range of the other side has no layout, or does not begin at a byte.
    """
    assert isinstance(linear.layout, Layout)
    assert linear.data_type is not None
    assert other.data_type is not None
    dim, outer = linear.dims[axis], linear.layout.axes[axis]
    bits, other_bits = linear.data_type.bits, other.data_type.bits
    first, pieces, passes = swizzled.offset0 * bits // 8, [], {}
    for begin in range(0, dim, length):
        count = min(length, dim - begin)
        if count not in passes:
            passes[count] = _build_passes(swizzled, linear, other, axis, count, packs=packs)
        place = [begin * (i == axis) for i in range(len(linear.dims))]
        distance = (other.offset(place) - other.offset([0] * len(place))) * other_bits
        if distance % 8:
            raise Unimplemented("a piece begins within a byte")
        start = begin // outer.block * outer.stride * bits // 8
        pieces.append(Piece(*passes[count], first + start, distance // 8))
    return tuple(pieces)


def _build_passes(
    swizzled: MemoryDesc, linear: MemoryDesc, other: MemoryDesc, axis: int, count: int, *, packs: bool
) -> tuple[SwizzleCopy, CompiledReorder]:
    """Return the copy and the reorder of a piece of `count` elements along the axis."""
    assert swizzled.swizzle is not None
    assert swizzled.data_type is not None
    box, zeros = list(linear.dims), [0] * len(linear.dims)
    box[axis] = count
    near, far = (side.submemory(box, zeros) for side in (linear, other))
    streams = linear.size + other.size >= memory_model().streaming_from
    copy = SwizzleCopy(
        *swizzle_of_bytes(swizzled.swizzle, swizzled.data_type.bits), near.size, streams=streams and packs
    )
    problem = build_reorder_problem(*((far, near) if packs else (near, far)))
    return copy, compile_problem(problem, Decision(Choice(streams=streams and not packs)))
