"""Traffic of a conversion: the bytes that it reads, reads again and writes, counted without reading anything.

A store of files reads the elements of a box and no gaps between them, so it reads no byte twice. A store of chunks,
such as a Zarr array, reads each chunk that a box touches as a whole:

    tensor (6, 8), chunks (4, 4), boxes [2, 8]      rows 0 to 1, 2 to 3 and 4 to 5: the first four rows are read twice

Padding counts, since it is read and written like elements.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from inlay.descriptor import MemoryDesc
from inlay.layout import Dims
from inlay.storage.box import count_boxes
from inlay.storage.box_bytes import can_cut
from inlay.storage.cutting import padded_nbytes
from inlay.storage.operation import BoxOperation
from inlay.storage.store import StoredTensor


@dataclass(frozen=True, slots=True)
class ConversionTraffic:
    """Numbers of bytes that a conversion moves, and of its tasks."""

    read: int = 0
    """Bytes that are read, in bytes of the source; those that are read twice count twice."""
    read_again: int = 0
    """Bytes among `read` that were read before, in bytes."""
    written: int = 0
    """Bytes that are written, in bytes."""
    tasks: int = 0
    """Number of tasks."""
    task_nbytes: int = 0
    """Greatest size of source and result of a task, in bytes."""

    def __str__(self) -> str:
        """Return one line of text.

        >>> print(ConversionTraffic(2_000_000, 0, 1_500_000, 1, 3_500_000))
        reads 2.0 MB and writes 1.5 MB in 1 task of 3.5 MB
        >>> print(ConversionTraffic(2_000_000, 500_000, 1_500_000, 4, 600_000))
        reads 2.0 MB (500.0 kB of them again) and writes 1.5 MB in 4 tasks of up to 600.0 kB
        """
        from rich.filesize import decimal

        again = f" ({decimal(self.read_again)} of them again)" if self.read_again else ""
        tasks = "1 task of" if self.tasks == 1 else f"{self.tasks} tasks of up to"
        moved = f"reads {decimal(self.read)}{again} and writes {decimal(self.written)}"
        return f"{moved} in {tasks} {decimal(self.task_nbytes)}"


def count_traffic(
    tensor: StoredTensor, src: MemoryDesc, extents: Dims, operation: BoxOperation, reads: float | None = None
) -> ConversionTraffic:
    """Return the traffic of the conversion of one tensor in boxes of these extents; `src` describes its bytes.

    `reads` is how often each byte is read, on average, if parts of chunks are read; None if whole chunks are.
    """
    passes = 2 if operation.needs_scan else 1
    once = _nbytes_read(src, tensor.nbytes, None, extents)
    chunks = tensor.chunks if src.dims == tensor.shape else None
    in_boxes = _nbytes_read(src, tensor.nbytes, chunks, extents) if reads is None else round(once * reads)
    read = passes * in_boxes
    written = sum(target.nbytes for target in operation.targets)
    count = count_boxes(src.dims, extents)
    results = sum(_box_nbytes(target.desc, src.dims, extents, target.nbytes) for target in operation.targets)
    return ConversionTraffic(
        read, read - once, written, count, _box_nbytes(src, src.dims, extents, tensor.nbytes) + results
    )


def total_traffic(parts: Iterable[ConversionTraffic]) -> ConversionTraffic:
    """Return the traffic of several tensors together; the memory of a task is the greatest of theirs.

    >>> total_traffic([ConversionTraffic(8, 0, 8, 1, 16), ConversionTraffic(4, 2, 8, 2, 6)])
    ConversionTraffic(read=12, read_again=2, written=16, tasks=3, task_nbytes=16)
    """
    read = again = written = tasks = greatest = 0
    for each in parts:
        read, again, written = read + each.read, again + each.read_again, written + each.written
        tasks, greatest = tasks + each.tasks, max(greatest, each.task_nbytes)
    return ConversionTraffic(read, again, written, tasks, greatest)


def _nbytes_read(src: MemoryDesc, nbytes: int, chunks: Dims | None, extents: Dims) -> int:
    """Return the number of bytes that reading all boxes takes; `chunks` are read as a whole.

    The boxes are a grid and so are the chunks: the elements that are read are a product of sums along the axes.
    """
    layout, data_type = src.require_layout("a store")
    if chunks is None:
        return min(nbytes, prod(layout.dims) * data_type.bits // 8) if can_cut(src) else nbytes
    axes = zip(src.dims, chunks, extents, strict=True)
    return prod(_elements_read(n, chunk, extent) for n, chunk, extent in axes) * data_type.bits // 8


def _elements_read(n: int, chunk: int, extent: int) -> int:
    """Return the sum of the lengths of the chunks that the boxes along one axis touch.

    >>> _elements_read(6, 4, 2), _elements_read(6, 4, 6)
    (10, 6)
    """
    boxes = ((begin, min(begin + extent, n)) for begin in range(0, n, extent))
    return sum(min(-(-end // chunk) * chunk, n) - begin // chunk * chunk for begin, end in boxes)


def _box_nbytes(desc: MemoryDesc, dims: Dims, extents: Dims, nbytes: int) -> int:
    """Return the size of the largest box of `dims` in the tensor that `desc` describes, in bytes.

    If the tensor has other dims, as one of scales, its boxes have the same share of it.
    """
    if desc.dims == dims:
        return padded_nbytes(desc, extents)
    return -(-nbytes * prod(extents) // max(prod(dims), 1))
