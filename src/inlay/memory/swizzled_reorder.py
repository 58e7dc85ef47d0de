"""Reorders of swizzled memory: one copy through the swizzle, or two passes, a copy and a compiled reorder.

A swizzle is a permutation of offsets beside a layout. Without it, memory is in linear order: an ordinary `Layout`,
which the reorder compiler reads or writes. There are three ways:

    SwizzledCopy      both sides have the same elements at the same linear offsets: one pass
    PiecewiseReorder  large tensors without padding: both passes for each piece of a second-level cache
    SwizzledReorder   everything else: a copy to or from a whole buffer in linear order

Bytes in gaps of a swizzled destination keep their values: the last one reads them first, the others do not write them.

    >>> src, dst = MemoryDesc((8, 64), "bf16"), MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)")
    >>> print(one_pass(src, dst).explain())
    written through Swizzle<3,3,3>: one pass, 1024 bytes in lines of 64
"""

from typing import Protocol, TypeAlias

from inlay.descriptor import MemoryDesc, kinds
from inlay.layout import Layout
from inlay.memory.buffers import Bytes, address_of
from inlay.memory.result_pool import result_pool_of_process
from inlay.memory.swizzled_bytes import SwizzleCopy, is_dense, swizzle_of_bytes
from inlay.memory.swizzled_pieces import PiecewiseReorder, plan_pieces
from inlay.reordering.attributes import PLAIN, Attributes, Operands

_MOST_RESTS = 1 << 16
"""Length in elements of the longest chunk whose beginning `SwizzleCopy` moves with NumPy."""


def linear_desc(desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of the elements of `desc` in a buffer without swizzle and offset0; `desc` if not swizzled.

    Post-condition: swizzle.apply(linear_desc(desc).offset(x)) + desc.offset0 == desc.offset(x) of a swizzled `desc`.

    >>> linear_desc(MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)", offset0=64))
    MemoryDesc((8, 64), 'bf16', 'ab')
    """
    if not isinstance(desc.layout, kinds.SwizzledLayout) or desc.data_type is None:
        return desc
    return MemoryDesc.from_layout(desc.layout.layout, desc.data_type, dims=desc.dims)


class LinearReorder(Protocol):
    """A reorder between two addresses of memory without a swizzle."""

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Reorder the elements of the buffer at `src_address` into the buffer at `dst_address`."""

    def explain(self, target: str | None = None) -> str:
        """Return a report on the reorder."""

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code as text."""


class SwizzledCopy:
    """A reorder that is one copy through the swizzle of one side."""

    def __init__(self, copy: SwizzleCopy, starts: tuple[int, int], text: str) -> None:
        """Join the copy, the byte offsets of both sides, and its description."""
        self._copy, self._starts, self._text = copy, starts, text

    @property
    def problem(self) -> None:
        """None: the copy is not a problem of the reorder compiler, so nothing is tuned."""
        return None

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Copy the elements of the buffer at `src_address` to the buffer at `dst_address`."""
        self._copy.run(src_address + self._starts[0], dst_address + self._starts[1])

    def explain(self, target: str | None = None) -> str:
        """Return the swizzle and the size of the copy."""
        return f"{self._text}: one pass, {self._copy.nbytes} bytes in lines of 64"

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code of the copy."""
        return self._copy.assembly(target)


def one_pass(src: MemoryDesc, dst: MemoryDesc) -> SwizzledCopy | None:
    """Return the reorder without attributes that is one copy; None if there is none.

    It needs one swizzled side, and on both sides the same dense layout of one data type, without padding.
    """
    layouts, bits = [_layout_of(linear_desc(side)) for side in (src, dst)], _bits_of(src)
    swizzle = src.swizzle or dst.swizzle
    if (src.swizzle is None) == (dst.swizzle is None) or swizzle is None or src.data_type != dst.data_type:
        return None
    size, offsets = layouts[0].size, [src.offset0 * bits, dst.offset0 * bits]
    is_copied = src.padded_dims == src.dims == dst.padded_dims and not (src.extras or dst.extras)
    if not is_copied or not layouts[0].equivalent(layouts[1]) or not is_dense(layouts[0]):
        return None
    if any(at % 8 for at in (size * bits, *offsets)) or (swizzle.chunk > _MOST_RESTS and size % swizzle.chunk):
        return None
    packs = dst.swizzle is not None
    copy = SwizzleCopy(*swizzle_of_bytes(swizzle, bits), size * bits // 8, packs=packs)
    return SwizzledCopy(copy, (offsets[0] // 8, offsets[1] // 8), f"{'written' if packs else 'read'} through {swizzle}")


def _layout_of(desc: MemoryDesc) -> Layout:
    """Return the layout of a descriptor without a swizzle."""
    return desc.require_layout("reorder")[0]


def _bits_of(desc: MemoryDesc) -> int:
    """Return the number of bits of an element."""
    assert desc.data_type is not None
    return desc.data_type.bits


class SwizzledReorder:
    """A reorder between two addresses of which at least one has swizzled memory, through whole linear buffers."""

    def __init__(self, src: MemoryDesc, dst: MemoryDesc, linear: LinearReorder, attributes: Attributes) -> None:
        """Join the copies of both sides and `linear`, the reorder between `linear_desc` of both."""
        self._src = _SwizzledSide(src)
        self._dst = _SwizzledSide(dst)
        self._linear = linear
        self._keeps_bytes = attributes.sum is not None or not _is_full(dst)

    @property
    def problem(self) -> None:
        """None: the copies are not problems of the reorder compiler, so nothing is tuned."""
        return None

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Reorder the elements of the buffer at `src_address` into the buffer at `dst_address`.

        `values` are the scales and zero points of the attributes; `seed` is that of stochastic rounding.
        """
        src, dst = self._src.linear_copy(src_address), None
        if self._dst.copy:
            dst = self._dst.linear_copy(dst_address) if self._keeps_bytes else allocate_scratch(self._dst.copy.nbytes)
        addresses = (src_address if src is None else address_of(src), dst_address if dst is None else address_of(dst))
        if values is None:
            self._linear.run(*addresses)
        else:
            self._linear.run(*addresses, values, seed)
        if dst is not None:
            self._dst.write(dst, dst_address)

    def explain(self, target: str | None = None) -> str:
        """Return the copies, and the report on the compiled schedule for this machine or for `target`."""
        sides = [(f"read through {self._src.swizzle}", self._src), (f"write through {self._dst.swizzle}", self._dst)]
        lines = [f"{text}: {side.copy.nbytes} bytes are permuted" for text, side in sides if side.copy]
        return "\n".join([*lines, self._linear.explain(target)])

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code of the reorder in linear order, without the copies through swizzles."""
        return self._linear.assembly(target)


def allocate_scratch(nbytes: int) -> Bytes:
    """Return a buffer whose bytes are all written before they are read.

    Raises:
        OutOfMemory: the operating system cannot provide the bytes.
    """
    return result_pool_of_process().allocate(nbytes, is_overwritten=True)


class _SwizzledSide:
    """One side of a reorder: its swizzle and the copy through it, None if it has none, and its place."""

    def __init__(self, desc: MemoryDesc) -> None:
        self.swizzle = desc.swizzle
        bits = _bits_of(desc)
        self.copy = None if self.swizzle is None else SwizzleCopy(*swizzle_of_bytes(self.swizzle, bits), desc.size)
        self._start = desc.offset0 * bits // 8

    def linear_copy(self, address: int) -> Bytes | None:
        """Return the elements of the buffer at `address` in linear order, in new memory; None without a swizzle."""
        if self.copy is None:
            return None
        linear = allocate_scratch(self.copy.nbytes)
        self.copy.run(address + self._start, address_of(linear))
        return linear

    def write(self, linear: Bytes, address: int) -> None:
        """Write elements in linear order to the buffer at `address`."""
        assert self.copy is not None
        self.copy.run(address_of(linear), address + self._start)


def _is_full(desc: MemoryDesc) -> bool:
    """Return True if elements and padding of swizzled memory fill all bytes between its first and last chunk."""
    if not isinstance(desc.layout, kinds.SwizzledLayout):
        return True
    layout, swizzle = desc.layout.layout, desc.layout.swizzle
    return layout.size == swizzle.round_up(layout.size) and is_dense(layout)


AnySwizzledReorder: TypeAlias = SwizzledCopy | PiecewiseReorder | SwizzledReorder
"""A reorder of swizzled memory in one of the three ways."""


def build_swizzled_reorder(
    src: MemoryDesc, dst: MemoryDesc, linear: LinearReorder, attributes: Attributes
) -> AnySwizzledReorder:
    """Return the reorder between two sides of which at least one is swizzled; `linear` is the one between both layouts.

    Raises:
        Unimplemented: LLVM does not support the processor.
        OutOfMemory: no more code can be loaded.
    """
    if attributes == PLAIN:
        found = one_pass(src, dst) or plan_pieces(src, dst, linear_desc(src), linear_desc(dst))
        if found is not None:
            return found
    return SwizzledReorder(src, dst, linear, attributes)
