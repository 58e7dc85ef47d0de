"""Numbers of a stream from and to the bytes of its blocks, with NumPy.

Blocks are the rows of a matrix of bytes. The bit offsets of the entries of one block are the same in every block, so an
entry is a column: bytes of the block, shifted and masked. Blocks are processed in portions that fit the L2 cache.

>>> from inlay.descriptor.compound_table import compound
>>> quants = compound("ggml:Q4_0").values
>>> block = np.zeros((1, 18), np.uint8)
>>> write_numbers(block, quants, np.arange(32, dtype=np.uint8)[None] % 16)
>>> read_numbers(block, quants)[0, :3].tolist(), block[0, 2:5].tolist()
([0, 1, 2], [0, 17, 34])
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.descriptor.compound_desc import BlockGrid, CompoundDesc
from inlay.descriptor.compound_format import Stream

Bytes = npt.NDArray[np.uint8]
_PORTION = 1 << 17  # bytes of blocks that are processed at a time


def portions(count: int, nbytes: int) -> Iterator[slice]:
    """Iterate over ranges of `count` blocks of `nbytes` bytes each that are processed at a time."""
    step = max(1, _PORTION // max(1, nbytes))
    for begin in range(0, count, step):
        yield slice(begin, min(begin + step, count))


def _work_type(bits: int) -> type[np.unsignedinteger[Any]]:
    """Return an unsigned type for a field of that many bits that starts inside a byte."""
    return np.uint16 if bits <= 8 else np.uint32 if bits <= 24 else np.uint64


def read_numbers(blocks: Bytes, stream: Stream) -> npt.NDArray[Any]:
    """Return the numbers of a stream in blocks, an array of shape (blocks, entries of a block).

    Post-condition: the type of the result is that of the stream.
    """
    last = blocks.shape[1] - 1
    work = _work_type(stream.bits)
    total = np.zeros((blocks.shape[0], prod(stream.dims)), work)
    for field in stream.fields:
        first, bit = np.divmod(field.bit_offsets(), 8)
        value = np.zeros_like(total)
        for step in range((int(bit.max()) + field.width + 7) // 8):
            value |= blocks[:, np.minimum(first + step, last)].astype(work) << work(8 * step)
        total |= (value >> bit.astype(work) & work((1 << field.width) - 1)) << work(field.shift)
    return _from_bits(total, stream)


def _from_bits(numbers: npt.NDArray[Any], stream: Stream) -> npt.NDArray[Any]:
    """Return the bits of numbers as numbers of the type of the stream."""
    dtype = stream.dtype
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if stream.data_type[0] == "s":
        missing = 8 * dtype.itemsize - stream.bits
        raised = (numbers.astype(unsigned) << unsigned.type(missing)).view(dtype)
        extended: npt.NDArray[Any] = np.right_shift(raised, dtype.type(missing))
        return extended
    return numbers.astype(unsigned).view(dtype)


def write_numbers(blocks: Bytes, stream: Stream, numbers: npt.NDArray[Any]) -> None:
    """Set the bits of a stream in blocks to numbers, an array of shape (blocks, entries of a block).

    The bits must be zero before. The other bits are unchanged.
    """
    work = _work_type(stream.bits)
    unsigned = np.dtype(f"u{stream.dtype.itemsize}")
    codes = np.ascontiguousarray(numbers, stream.dtype).view(unsigned).astype(work)
    for field in stream.fields:
        first, bit = np.divmod(field.bit_offsets(), 8)
        value = codes >> work(field.shift) & work((1 << field.width) - 1)
        # Entries that start at one bit of different bytes share no byte, so an indexed update counts each of them.
        for start in np.unique(bit):
            chosen = np.flatnonzero(bit == start)
            moved = value[:, chosen] << work(start)
            for step in range((int(start) + field.width + 7) // 8):
                blocks[:, first[chosen] + step] |= (moved >> work(8 * step)).astype(np.uint8)


def section_blocks(buffer: Bytes, grid: BlockGrid, *, in_footer: bool = False) -> Bytes:
    """Return the blocks of a section, or its footers, as a view of shape (rows, blocks of a row, bytes of a block)."""
    section = grid.section
    rows = buffer[grid.offset : grid.offset + grid.nbytes].reshape(grid.rows, grid.row_nbytes)
    whole = grid.counts[-1] * section.nbytes
    if in_footer:
        return rows[:, None, whole:]
    if not section.footer_nbytes:
        return rows.reshape(grid.rows, grid.counts[-1], section.nbytes)
    width, pitch = section.nbytes, rows.strides[0]
    return np.lib.stride_tricks.as_strided(rows, (grid.rows, grid.counts[-1], width), (pitch, width, 1))


def _stream_counts(desc: CompoundDesc, stream: Stream) -> tuple[int, ...]:
    """Return the number of blocks of a stream along each axis; there is one footer for a row of blocks."""
    counts = desc.grids[stream.section].counts
    return (*counts[:-1], 1) if stream.in_footer else counts


def gather_stream(buffer: Bytes, desc: CompoundDesc, stream: Stream, out: npt.NDArray[Any]) -> None:
    """Copy the numbers of a stream to a logical array, without padding."""
    grid = desc.grids[stream.section]
    view = section_blocks(buffer, grid, in_footer=stream.in_footer)
    entries = prod(stream.dims)
    counts = _stream_counts(desc, stream)
    blocks = view.reshape(-1, view.shape[-1])
    numbers = np.empty((len(blocks), entries), stream.dtype)
    for part in portions(len(blocks), blocks.shape[1]):
        numbers[part] = read_numbers(blocks[part], stream)
    before = len(counts) - len(stream.dims)
    split = numbers.reshape(*counts, *stream.dims)
    order = [*range(before)]
    for axis in range(len(stream.dims)):
        order += [before + axis, len(counts) + axis]
    dims = [*counts[:before], *(c * d for c, d in zip(counts[before:], stream.dims, strict=True))]
    logical = split.transpose(order).reshape(dims)
    out[...] = logical[tuple(map(slice, out.shape))]


def scatter_stream(buffer: Bytes, desc: CompoundDesc, stream: Stream, numbers: npt.NDArray[Any]) -> None:
    """Set the bits of a stream to the numbers of a logical array; padding is zero, or repeats the edge of each axis.

    The bits must be zero before.
    """
    grid, counts = desc.grids[stream.section], _stream_counts(desc, stream)
    before = len(counts) - len(stream.dims)
    dims = [*counts[:before], *(c * d for c, d in zip(counts[before:], stream.dims, strict=True))]
    margins = [(0, whole - dim) for whole, dim in zip(dims, numbers.shape, strict=True)]
    padded = np.pad(numbers, margins, mode="edge" if desc.format.repeats_edge else "constant")
    shape = [*counts[:before]]
    for count, dim in zip(counts[before:], stream.dims, strict=True):
        shape += [count, dim]
    inner = [before + 2 * axis + 1 for axis in range(len(stream.dims))]
    outer = [axis for axis in range(len(shape)) if axis not in inner]
    split = padded.reshape(shape).transpose(outer + inner).reshape(grid.rows, -1, prod(stream.dims))
    view = section_blocks(buffer, grid, in_footer=stream.in_footer)
    for row in range(grid.rows) if grid.section.footer_nbytes else (slice(None),):
        flat = view[row].reshape(-1, view.shape[-1])
        values = split[row].reshape(-1, split.shape[-1])
        for part in portions(len(flat), flat.shape[1]):
            write_numbers(flat[part], stream, values[part])
