"""Reorders of swizzled memory: a permutation of elements to or from a buffer in linear order, and a compiled reorder.

A swizzle permutes the elements of each period of 2^n elements alike, and keeps the lowest `base` bits of an offset. So
a swizzled buffer is moved in units of 2^base elements, by one index of the units of a period:

    Swizzle<3,3,3> of bf16      period 512 elements, units of 8 elements, 16 bytes
    linear[:, units] = swizzled[:, swizzle.apply(units)]

The linear buffer then has an ordinary `Layout`, which the reorder compiler reads or writes. Bytes in gaps of a swizzled
destination are read first and written back unchanged.
"""

from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import Unimplemented
from inlay.layout import Swizzle
from inlay.memory.buffers import Bytes, address_of, allocate, bytes_at
from inlay.reordering.attributes import Attributes, Operands

_UNITS = (32, 16, 8, 4, 2, 1)
"""Sizes in bytes of the units for which NumPy's `take` has loops of its own, largest first."""

_LARGEST_INDEX = 1 << 16
"""Greatest number of units of a period whose index is stored; longer periods are moved in parts of this length."""


def linear_desc(desc: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of the elements of `desc` in a buffer without swizzle and offset0; `desc` if not swizzled.

    Post-condition: swizzle.apply(linear_desc(desc).offset(x)) + desc.offset0 == desc.offset(x) of a swizzled `desc`.

    >>> linear_desc(MemoryDesc((8, 64), "bf16", "Swizzle<3,3,3> o (8,64):(64,1)", offset0=64))
    MemoryDesc((8, 64), 'bf16', 'ab')
    """
    if not isinstance(desc.layout, kinds.SwizzledLayout) or desc.data_type is None:
        return desc
    return MemoryDesc.from_layout(desc.layout.layout, desc.data_type, dims=desc.dims)


def swizzle_bytes(source: Bytes, target: Bytes, swizzle: Swizzle, bits: int) -> None:
    """Copy elements of `bits` bits from `source` to `target`, so that the element at x gets to swizzle.apply(x).

    Both have the same length, a whole number of `swizzle.chunk` elements. A swizzle is its own inverse, so the same
    call copies swizzled memory to linear memory.

    >>> result = np.empty(8, np.uint8)
    >>> swizzle_bytes(np.arange(8, dtype=np.uint8), result, Swizzle(1, 0, 2), 8)
    >>> result.tolist()
    [0, 1, 2, 3, 5, 4, 7, 6]
    """
    run = max(bits * (1 << swizzle.base) // 8, 1)
    unit = next(size for size in _UNITS if run % size == 0)
    elements = max(8 * unit // bits, 1)
    read, written = (_as_units(buffer, unit) for buffer in (source, target))
    period = swizzle.period // elements
    length = min(period, _LARGEST_INDEX, len(read))
    whole = len(read) // period * period if length == period else 0
    if whole:
        index = _unit_index(swizzle, elements, 0, period)
        np.take(read[:whole].reshape(-1, period), index, axis=1, out=written[:whole].reshape(-1, period), mode="clip")
    for start in range(whole, len(read), _LARGEST_INDEX):
        stop = min(start + _LARGEST_INDEX, len(read))
        np.take(read, _unit_index(swizzle, elements, start, stop), out=written[start:stop], mode="clip")


def _as_units(buffer: Bytes, unit: int) -> npt.NDArray[np.generic]:
    """Return bytes as an array of units of this many bytes, of a type that NumPy copies without a conversion."""
    return buffer.view({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16", 32: "V32"}[unit])


@lru_cache(maxsize=16)
def _unit_index(swizzle: Swizzle, elements: int, start: int, stop: int) -> npt.NDArray[np.int64]:
    """Return the swizzled numbers of the units from `start` to `stop`, each of this many elements."""
    index: npt.NDArray[np.int64] = swizzle.apply(np.arange(start, stop) * elements) // elements
    return index


class LinearReorder(Protocol):
    """A reorder between two addresses of memory without a swizzle."""

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Reorder the elements of the buffer at `src_address` into the buffer at `dst_address`."""

    def explain(self, target: str | None = None) -> str:
        """Return a report on the reorder."""

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code as text."""


class SwizzledReorder:
    """A reorder between two addresses of which at least one has swizzled memory."""

    def __init__(self, src: MemoryDesc, dst: MemoryDesc, linear: LinearReorder, attributes: Attributes) -> None:
        """Join the permutations of both sides and `linear`, the reorder between `linear_desc` of both."""
        self._src = _SwizzledSide(src)
        self._dst = _SwizzledSide(dst)
        self._linear = linear
        self._keeps_bytes = attributes.sum is not None or not _is_full(dst)

    @property
    def problem(self) -> None:
        """None: the permutation is not a problem of the reorder compiler, so nothing is tuned."""
        return None

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Reorder the elements of the buffer at `src_address` into the buffer at `dst_address`.

        `values` are the scales and zero points of the attributes; `seed` is that of stochastic rounding.
        """
        src = self._src.linear_copy(src_address) if self._src.swizzle else None
        dst = None
        if self._dst.swizzle:
            dst = self._dst.linear_copy(dst_address) if self._keeps_bytes else allocate(self._dst.nbytes)
        addresses = (src_address if src is None else address_of(src), dst_address if dst is None else address_of(dst))
        if values is None:
            self._linear.run(*addresses)
        else:
            self._linear.run(*addresses, values, seed)
        if dst is not None:
            self._dst.write(dst, dst_address)

    def explain(self, target: str | None = None) -> str:
        """Return the permutations, and the report on the compiled schedule for this machine or for `target`."""
        sides = [(f"read through {self._src.swizzle}", self._src), (f"write through {self._dst.swizzle}", self._dst)]
        lines = [f"{text}: {side.nbytes} bytes are permuted" for text, side in sides if side.swizzle]
        return "\n".join([*lines, self._linear.explain(target)])

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code of the reorder in linear order; NumPy permutes the elements."""
        return self._linear.assembly(target)


class _SwizzledSide:
    """The buffer of one side of a reorder: its swizzle, None if it has none, and its place."""

    def __init__(self, desc: MemoryDesc) -> None:
        self.swizzle = desc.swizzle
        self.nbytes = desc.size
        assert desc.data_type is not None
        self._bits = desc.data_type.bits
        self._start = desc.offset0 * self._bits // 8

    def linear_copy(self, address: int) -> Bytes:
        """Return the elements of the buffer at `address` in linear order, in new memory."""
        assert self.swizzle is not None
        linear = allocate(self.nbytes)
        swizzle_bytes(bytes_at(address + self._start, self.nbytes), linear, self.swizzle, self._bits)
        return linear

    def write(self, linear: Bytes, address: int) -> None:
        """Write elements in linear order to the buffer at `address`."""
        assert self.swizzle is not None
        swizzle_bytes(linear, bytes_at(address + self._start, self.nbytes), self.swizzle, self._bits)


def _is_full(desc: MemoryDesc) -> bool:
    """Return True if elements and padding of swizzled memory fill all bytes between its first and last chunk."""
    if not isinstance(desc.layout, kinds.SwizzledLayout):
        return True
    layout, swizzle = desc.layout.layout, desc.layout.swizzle
    try:
        return layout.span == (0, swizzle.round_up(layout.size)) and layout.is_dense
    except Unimplemented:
        return False
