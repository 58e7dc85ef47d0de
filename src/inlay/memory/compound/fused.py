"""Values of quantized blocks by compiled code: calls of the kernel of a format on several threads.

`inlay.reordering.block_kernel` selects the kernel. Tensors whose last blocks reach beyond them are computed as whole
blocks, and the elements are copied.
"""

from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.memory.buffers import address_of, allocate
from inlay.reordering.block_kernel import select_block_kernel
from inlay.reordering.conversion import LINE
from inlay.reordering.emit_blocks import BlockKernel
from inlay.reordering.machine_code import machine_code
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.target import host_target
from inlay.reordering.threads import Task, choose_thread_count, run_parts


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
    kernel = select_block_kernel(desc.format, streams=streams)
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
