"""Values of quantized blocks by compiled code: the kernel of a format, and calls of it on several threads.

A kernel suits formats whose blocks have rows of a multiple of 16 elements, with one scale for at least 16 elements in a
row. Tensors whose last blocks reach beyond them are computed up to there, and the rest separately.
"""

from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_format import CompoundFormat, Stream
from inlay.memory.buffers import address_of, allocate
from inlay.reordering.conversion import LINE
from inlay.reordering.emit_blocks import LANES, BlockKernel, FieldBits, StreamBits
from inlay.reordering.machine_code import machine_code
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.target import host_target
from inlay.reordering.threads import Task, choose_thread_count, run_parts

_NUMBERS = {"u8": "unsigned", "s8": "signed", "f16": "f16", "bf16": "bf16", "f32": "f32"}
_MOST_REGISTERS = 64
_NARROWEST = {"f16", "bf16", "f32"}


def unpack_compiled(desc: CompoundDesc, buffer: npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> bool:
    """Compute the values of the elements of a tensor into `out`; return False if the format has no kernel.

    `out` is in row-major order and shares no memory with `buffer`.

    Post-condition: if the result is True, `out` holds the values.

    Raises:
        Unimplemented: LLVM does not support the processor.
        OutOfMemory: no more code can be loaded, or no memory for whole blocks.
    """
    moved = desc.size + out.nbytes
    streams = moved >= memory_model().streaming_from and address_of(out) % LINE == 0
    kernel = block_kernel(desc.format, streams=streams)
    if kernel is None:
        return False
    counts, block = desc.grids[0].counts, desc.format.sections[0].block
    sizes = (1,) * (len(counts) - len(block)) + block
    padded = tuple(count * size for count, size in zip(counts, sizes, strict=True))
    if padded == desc.dims:
        _run(kernel, desc, buffer, out)
        return True
    room = allocate(4 * prod(padded)).view(np.float32).reshape(padded)
    _run(kernel, desc, buffer, room)
    out[...] = room[tuple(map(slice, desc.dims))]
    return True


def _run(kernel: BlockKernel, desc: CompoundDesc, buffer: npt.NDArray[np.uint8], out: npt.NDArray[np.float32]) -> None:
    """Compute the values of whole blocks on several threads."""
    grid = desc.grids[0]
    row_bytes = 4 * out.shape[-1]
    blocks = grid.rows * grid.counts[-1]
    words = np.array(
        [
            grid.counts[-1],
            row_bytes,
            row_bytes * kernel.rows,
            address_of(buffer) + grid.offset,
            grid.section.nbytes,
            grid.row_nbytes,
        ],
        np.int64,
    )
    task = _task(kernel, blocks)
    parts = min(choose_thread_count(desc.size + out.nbytes), blocks)
    run_parts(task, 0, address_of(out), address_of(words), parts)


@lru_cache(maxsize=64)
def _task(kernel: BlockKernel, blocks: int) -> Task:
    """Return the task that computes so many blocks."""
    code = machine_code(kernel, host_target())
    return Task(code.entry, code.address, blocks, keeps_alive=code)


@lru_cache(maxsize=64)
def block_kernel(fmt: CompoundFormat, *, streams: bool) -> BlockKernel | None:
    """Return the kernel of a format with ordinary or streaming stores; None if there is none."""
    section, values = fmt.sections[0], fmt.values
    rows, columns = prod(section.block[:-1]), section.block[-1]
    if len(fmt.sections) > 1 or len(section.block) > 2 or columns % LANES or rows * columns > LANES * _MOST_REGISTERS:
        return None
    if values.data_type in _NARROWEST or any(
        _crosses_byte(field.bit_offsets(), field.width) for field in values.fields
    ):
        return None
    factors = [tuple(_stream_bits(fmt, fmt.stream(name)) for name in names) for names in (fmt.scales, fmt.minima)]
    quants = _stream_bits(fmt, values)
    scales, minima = ([one for one in group if one is not None] for group in factors)
    if quants is None or len(scales) < len(fmt.scales) or len(minima) < len(fmt.minima):
        return None
    is_one_row = rows == 1 and not section.footer_nbytes
    return BlockKernel(rows, columns, quants, tuple(scales), tuple(minima), fmt.adds_minimum, is_one_row, streams)


def _crosses_byte(offsets: npt.NDArray[np.int64], width: int) -> bool:
    """Return whether a field of that width crosses a byte at one of the offsets."""
    return bool((offsets % 8 + width > 8).any())


def _stream_bits(fmt: CompoundFormat, stream: Stream) -> StreamBits | None:
    """Return the bits of a stream; None if its numbers are not converted, or differ within a register."""
    block = fmt.sections[0].block
    dims = stream.dims
    if stream.in_footer or stream.data_type not in _NUMBERS or stream.bits > 32:
        return None
    grouped = [np.arange(size) // (size // dim) for size, dim in zip(block, dims, strict=True)]
    entries = np.ravel_multi_index(np.meshgrid(*grouped, indexing="ij"), dims).reshape(-1, LANES)
    if stream is not fmt.values and (entries != entries[:, :1]).any():
        return None
    fields = tuple(FieldBits(field.width, field.shift, tuple(field.bit_offsets().tolist())) for field in stream.fields)
    number = _NUMBERS[stream.data_type]
    first = tuple(entries[:, 0].tolist())
    return StreamBits(0, number, stream.bits, stream.zero, stream.codebook, fields, first)
