"""Copies of elements through a swizzle: compiled code for whole lines of 64 bytes, on several threads.

`reordering.emit_swizzles` describes the code. NumPy moves the elements after the last chunk that the swizzle maps onto
itself, fewer than a chunk or a line.

    >>> source, result = np.arange(256, dtype=np.uint8), np.empty(256, np.uint8)
    >>> SwizzleCopy(Swizzle(2, 4, 2), 1, 256).run(source.ctypes.data, result.ctypes.data)
    >>> result[64:128:16].tolist()
    [80, 64, 112, 96]
"""

from functools import lru_cache

import numpy as np

from inlay.errors import Unimplemented
from inlay.layout import Layout, Swizzle
from inlay.memory.buffers import bytes_at
from inlay.reordering.conversion import LINE
from inlay.reordering.emit_swizzles import SwizzleKernel
from inlay.reordering.machine_code import ir_of, machine_code
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.target import assembly_of, host_target, named_target
from inlay.reordering.threads import Task, cap_thread_count, choose_thread_count, run_parts


def swizzle_of_bytes(swizzle: Swizzle, bits: int) -> tuple[Swizzle, int]:
    """Return a swizzle of whole bytes and the size of its elements, for a swizzle of elements of `bits` bits.

    >>> swizzle_of_bytes(Swizzle(2, 4, 3), 16), swizzle_of_bytes(Swizzle(2, 4, 3), 4)
    ((Swizzle(bits=2, base=4, shift=3), 2), (Swizzle(bits=2, base=3, shift=3), 1))
    """
    if bits >= 8:
        return swizzle, bits // 8
    assert swizzle.base  # descriptors keep two elements of 4 bits together
    return Swizzle(swizzle.bits, swizzle.base - 1, swizzle.shift), 1


def is_dense(layout: Layout) -> bool:
    """Return True if the elements fill the offsets from 0 to their number; False if that is not known."""
    try:
        return layout.span == (0, layout.size) and layout.is_dense
    except Unimplemented:
        return False


class SwizzleCopy:
    """A copy of elements between a buffer in linear order and one in which the element x is at swizzle.apply(x)."""

    def __init__(
        self, swizzle: Swizzle, itemsize: int, nbytes: int, *, packs: bool = True, streams: bool | None = None
    ) -> None:
        """Choose the code for `nbytes` bytes of elements of `itemsize` bytes.

        The destination has swizzled memory if `packs`, else the source has. The direction matters only where a copy
        ends within a chunk. `streams` is True for streaming stores, False for ordinary ones, None for those that suit
        the size.
        """
        self.nbytes = nbytes
        """Number of bytes that a copy moves."""
        self._swizzle, self._itemsize, self._packs = swizzle, itemsize, packs
        self._streams = 2 * nbytes >= memory_model().streaming_from if streams is None else streams
        closed = max(LINE, swizzle.chunk * itemsize)
        self._lines = nbytes // closed * closed // LINE
        self._parts = min(choose_thread_count(2 * nbytes), max(self._lines, 1))

    def run(self, src_address: int, dst_address: int) -> None:
        """Copy from `src_address` to `dst_address`, the addresses of offset 0; the two buffers share no byte.

        Post-condition: no byte of a chunk beyond the elements is written.

        Raises:
            Unimplemented: LLVM does not support the processor.
            OutOfMemory: no more code can be loaded.
        """
        if self._lines:
            task = _task(self._kernel(streams=self._streams and dst_address % LINE == 0), self._lines)
            parts = cap_thread_count(self._parts)
            if parts > 1:
                run_parts(task, src_address, dst_address, 0, parts)
            else:
                task.entry(src_address, dst_address, 0, 0, self._lines)
        if self._lines * LINE < self.nbytes:
            self._copy_rest(src_address, dst_address)

    def _copy_rest(self, src_address: int, dst_address: int) -> None:
        """Copy the elements after the last whole chunk."""
        places = np.arange(self._lines * LINE // self._itemsize, self.nbytes // self._itemsize)
        swizzled = self._swizzle.apply(places)
        read, written = (places, swizzled) if self._packs else (swizzled, places)
        end = self._swizzle.round_up(self.nbytes // self._itemsize) * self._itemsize
        sizes = (self.nbytes, end) if self._packs else (end, self.nbytes)
        source, target = (bytes_at(*side) for side in zip((src_address, dst_address), sizes, strict=True))
        target.reshape(-1, self._itemsize)[written] = source.reshape(-1, self._itemsize)[read]

    def assembly(self, target: str | None = None) -> str:
        """Return the machine code for this machine or for `target` as text.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        machine = named_target(target)
        return assembly_of(ir_of(self._kernel(streams=self._streams), machine), machine)

    def _kernel(self, *, streams: bool) -> SwizzleKernel:
        """Return the inputs of code generation: the swizzle in units of bytes."""
        swizzle = self._swizzle
        return SwizzleKernel(swizzle.bits, swizzle.base + self._itemsize.bit_length() - 1, swizzle.shift, streams)


@lru_cache(maxsize=256)
def _task(kernel: SwizzleKernel, lines: int) -> Task:
    """Return the task that copies so many lines."""
    code = machine_code(kernel, host_target())
    return Task(code.entry, code.address, lines, keeps_alive=code)
