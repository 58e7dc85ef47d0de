"""The pool of buffers of freed results: a new large result reuses the pages of one that nobody refers to any more.

Fresh pages cost more than a reorder: the operating system fills each with zeros at its first use. So `pack`, `reorder`,
`unpack` and `rearrange` take buffers of `SMALLEST` bytes and more from a pool. A buffer returns to it when the last
array, memory or tensor over it has been freed. The pool holds at most 64 MiB of free buffers; beyond that, those unused
for the longest time go back to the operating system. INLAY_POOL in the environment sets another limit in bytes, 0 for
no pool; it is read when the first result is allocated.

**Ownership.** A result is an array over a `BufferLease`, which is an array over an anonymous mapping:

    array, Memory, tensor of torch or JAX  ->  BufferLease  ->  mapping

NumPy makes the lease the base of each view, whatever other views it was made from, so the lease lives as long as any of
them; its finalizer returns the mapping. Arrays take no part in garbage collection of cycles, so the finalizer runs when
the last reference is gone and not before. If something refers to the mapping itself, it is not reused.

**Contents.** A reused buffer has old bytes. A caller that will write each byte gets it as it is; otherwise it is filled
with zeros, or with poison when INLAY_POISON is 1, as a new buffer is.

**Locks.** A finalizer may run at any point of any thread, even of one that is in the pool. So nothing waits for the
lock: without it, a buffer is allocated or released as if there were no pool. A forked child starts with an empty pool.

>>> pool = ResultPool(limit=1 << 20)
>>> first = pool.allocate(100_000)
>>> address = first.ctypes.data
>>> del first
>>> pool.free_bytes >= 100_000, pool.allocate(100_000).ctypes.data == address
(True, True)
"""

import mmap
import os
import sys
import threading
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, OutOfMemory
from inlay.forks import at_fork
from inlay.layout import Layout
from inlay.memory.buffers import (
    HUGE_PAGE,
    POISON,
    Bytes,
    address_of,
    allocate,
    allocate_overwritten,
    is_poison_requested,
    map_pages,
)

SMALLEST = 1 << 16
"""Least size of a pooled buffer, in bytes: the C library reuses smaller ones as fast."""

DEFAULT_LIMIT = 64 << 20
"""Limit of the free buffers in the pool, in bytes, without INLAY_POOL."""

_PAGE = mmap.PAGESIZE
_STEPS = 8  # sizes of buffers between two powers of two: at most an eighth of a buffer is unused
_BYTES_TYPE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class PooledBlock:
    """A mapping and the aligned buffer in it."""

    pages: mmap.mmap
    """The mapping."""
    start: int
    """Offset of the buffer in the mapping, in bytes."""
    nbytes: int
    """Size of the buffer, in bytes: a size that `block_size` returns."""


class BufferLease(np.ndarray[Any, np.dtype[np.uint8]]):
    """The array of bytes that owns a block while it is alive, and returns it to the pool when it is freed."""

    __slots__ = ("block", "pool", "references")

    block: PooledBlock
    """The block; missing in a view of a lease, which has the lease as its base."""
    pool: "ResultPool"
    """The pool to which the block returns."""
    references: int
    """Number of references to the mapping when only the block and this lease refer to it."""

    def __del__(self) -> None:
        """Return the block, unless something else refers to its mapping."""
        block = getattr(self, "block", None)
        if block is not None and _count_references(block) == self.references:
            self.pool.release(block)


def _count_references(block: PooledBlock) -> int:
    """Return the number of references to the mapping of a block, as seen from this function."""
    return sys.getrefcount(block.pages)


class ResultPool:
    """A pool of the buffers of freed results."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        """Create an empty pool of at most `limit` bytes of free buffers; 0 never keeps any."""
        self.limit = limit
        """Limit of the free buffers, in bytes."""
        self.free_bytes = 0
        """Size of the free buffers, in bytes."""
        self._free: dict[int, list[PooledBlock]] = {}
        self._lock = threading.Lock()

    def allocate(self, nbytes: int, *, is_overwritten: bool = False) -> Bytes:
        """Return a buffer of `nbytes` bytes: of zeros, or of poison if INLAY_POISON is 1.

        With `is_overwritten`, the caller writes each byte before anybody reads it, so the contents stay.
        The address is a multiple of 64, and of 2 MiB if there are at least 2 MiB.

        Raises:
            OutOfMemory: the operating system cannot provide the bytes.
            InvalidArguments: INLAY_POISON is set and is neither 1 nor 0 nor empty.
        """
        if nbytes < SMALLEST:
            return allocate(nbytes)
        buffer = self.allocate_array((nbytes,), _BYTES_TYPE, nbytes)
        if not is_overwritten:
            buffer.fill(POISON if is_poison_requested() else 0)
        return buffer

    def allocate_array(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int, strides: tuple[int, ...] | None = None
    ) -> npt.NDArray[Any]:
        """Return a dense array of `nbytes` bytes whose contents the caller overwrites.

        `strides` are in bytes; None for row-major.

        Raises:
            OutOfMemory: the operating system cannot provide the bytes.
        """
        size = block_size(nbytes)
        if size > self.limit:
            return np.ndarray(shape, dtype, allocate(nbytes), 0, strides)
        block = self._take(size) or _map_block(size)
        lease = BufferLease((nbytes,), _BYTES_TYPE, block.pages, block.start)
        lease.references = _count_references(block)
        lease.pool = self
        lease.block = block
        return np.ndarray(shape, dtype, lease, 0, strides)

    def release(self, block: PooledBlock) -> None:
        """Keep a block that nobody refers to for later results; drop the ones unused for the longest time."""
        if not self._lock.acquire(False):
            return
        dropped, size = [], block.nbytes
        try:
            # The dictionary is in the order of use: the sizes returned last are its last entries.
            blocks = self._free.pop(size, [])
            blocks.append(block)
            self._free[size] = blocks
            self.free_bytes += size
            while self.free_bytes > self.limit:
                size, oldest = next(iter(self._free.items()))
                dropped.append(oldest.pop(0))
                self.free_bytes -= size
                if not oldest:
                    del self._free[size]
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Return all free buffers to the operating system."""
        self._free, self.free_bytes, self._lock = {}, 0, threading.Lock()

    def _take(self, size: int) -> PooledBlock | None:
        """Remove a free block of this size from the pool, or return None if there is none."""
        if size not in self._free or not self._lock.acquire(False):
            return None
        try:
            blocks = self._free.get(size)
            if not blocks:
                return None
            block = blocks.pop()
            self.free_bytes -= size
            if not blocks:
                del self._free[size]
            return block
        finally:
            self._lock.release()


@lru_cache(maxsize=1024)
def block_size(nbytes: int) -> int:
    """Return the size of the block for a buffer: at most an eighth more, in whole pages.

    >>> [block_size(n) for n in (100_000, 1 << 20, (1 << 20) + 1)] == [106496, 1048576, 1179648]
    True
    """
    step = max(_PAGE, (1 << max(0, nbytes - 1).bit_length()) // (2 * _STEPS))
    return -(-nbytes // step) * step


def _map_block(size: int) -> PooledBlock:
    """Return a new block of `size` bytes."""
    try:
        pages = map_pages(size + HUGE_PAGE if size >= HUGE_PAGE else size)
    except (OSError, MemoryError, OverflowError):
        raise OutOfMemory(
            f"{size} bytes cannot be allocated: reorder in parts (`submemory`), or give a destination as out"
        ) from None
    start = -address_of(np.frombuffer(pages, np.uint8)) % HUGE_PAGE if size >= HUGE_PAGE else 0
    return PooledBlock(pages, start, size)


# The pool of this process


@lru_cache(maxsize=1)
def result_pool_of_process() -> ResultPool:
    """Return the pool of this process, with the limit that INLAY_POOL sets.

    Raises:
        InvalidArguments: INLAY_POOL is no number of bytes.
    """
    setting = os.environ.get("INLAY_POOL", "")
    try:
        limit = int(setting) if setting else DEFAULT_LIMIT
    except ValueError:
        limit = -1
    if limit < 0:
        raise InvalidArguments(
            f"INLAY_POOL is {setting!r}: set it to the bytes of free buffers to keep, such as 67108864, or 0"
        )
    return ResultPool(limit)


def _empty_pool() -> None:
    """Drop the blocks of the parent in a forked child, where another thread may have held the lock."""
    if result_pool_of_process.cache_info().currsize:
        result_pool_of_process().clear()


at_fork(after_in_child=_empty_pool)


def allocate_result(desc: MemoryDesc, nbytes: int) -> Bytes:
    """Allocate the buffer of a reorder's result from the pool; `nbytes` are those that `desc` can address.

    Post-condition: each byte that a reorder into `desc` does not write is zero, or poison if INLAY_POISON is 1.

    Raises:
        OutOfMemory: the operating system cannot provide the bytes.
        InvalidArguments: INLAY_POOL is wrong; or INLAY_POISON, if a byte is not written.
    """
    size, is_overwritten = _result_size(desc, nbytes)
    if size < SMALLEST:
        return allocate_overwritten(size) if is_overwritten else allocate(size)
    return result_pool_of_process().allocate(size, is_overwritten=is_overwritten)


@lru_cache(maxsize=512)
def _result_size(desc: MemoryDesc, nbytes: int) -> tuple[int, bool]:
    """Return the size of the buffer in bytes, and whether a reorder into `desc` writes each of them."""
    size = max(desc.size, nbytes)
    return size, _writes_every_byte(desc, size)


def _writes_every_byte(desc: MemoryDesc, nbytes: int) -> bool:
    """Return True if a reorder into `desc` writes each of the first `nbytes` bytes of its buffer."""
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None or desc.extras or not layout.is_non_overlapping:
        return False
    return prod(desc.padded_dims) * data_type.bits == nbytes * 8
