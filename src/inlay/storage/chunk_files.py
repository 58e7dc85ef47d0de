"""Chunks in files of their own, without compression: parts of a chunk are read and whole chunks are written directly.

A chunk is a small tensor that is one range of bytes of a file: its descriptor says where each element is. So a box that
cuts a chunk reads only the bytes of its part, as long as they are not too scattered.
"""

import os
from functools import lru_cache
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError
from inlay.files import file_error
from inlay.layout import Axis, Dims, Layout
from inlay.memory import Memory
from inlay.memory.buffers import Bytes, allocate
from inlay.storage.box import Box
from inlay.storage.box_bytes import BoxBytes, locate_box
from inlay.storage.chunk_format import chunk_nbytes
from inlay.storage.store import is_row_major

PAGE_NBYTES = 4096
"""Size of a page of the operating system's cache of files, in bytes: a shorter run is read with what lies beside it."""

_locate = lru_cache(4096)(locate_box)


def part_bytes(desc: MemoryDesc, part: Box) -> BoxBytes | None:
    """Return the bytes of a part of a chunk; None if it must be read as a whole."""
    return _locate(desc, part)


def read_nbytes(desc: MemoryDesc, part: Box, page: int = 1) -> int:
    """Return the number of bytes that `read_part` reads, on average if it reads whole pages of `page` bytes."""
    place = part_bytes(desc, part)
    if place is None:
        return chunk_nbytes(desc)
    if not _reads_runs(place):
        return _covering_nbytes(place)
    return min(_covering_nbytes(place), place.count * (place.run_nbytes + page - 1))


def _reads_runs(place: BoxBytes) -> bool:
    """Return True if the runs of a part are read one by one, False if all bytes from the first to the last are read."""
    is_scattered = _covering_nbytes(place) > place.count * (place.run_nbytes + PAGE_NBYTES)
    return place.count == 1 or place.run_nbytes >= PAGE_NBYTES or is_scattered


def read_part(path: Path, desc: MemoryDesc, part: Box, out: npt.NDArray[Any]) -> bool:
    """Fill `out` with a part of the chunk in a file, and return True; False if there is no such file.

    Raises:
        FileError: the file cannot be read, or is shorter than the chunk.
    """
    try:
        with path.open("rb", buffering=0) as file:
            _fill_part(file, path, desc, part, out)
    except FileNotFoundError:
        return False
    except FileError:
        raise
    except OSError as error:
        raise file_error("read", path, error) from error
    return True


def _fill_part(file: FileIO, path: Path, desc: MemoryDesc, part: Box, out: npt.NDArray[Any]) -> None:
    """Fill `out` with a part of the chunk in an open file."""
    place = part_bytes(desc, part)
    if place is None:
        data = allocate(chunk_nbytes(desc))
        _fill(file, path, data, 0)
        out[...] = Memory(desc, data).unpack()[part.slices]
        return
    if is_row_major(place.desc) and out.flags.c_contiguous:
        _fill_runs(file, path, place, out.reshape(-1).view(np.uint8))
        return
    data = allocate(place.nbytes)
    _fill_runs(file, path, place, data)
    out[...] = Memory(place.desc, data).unpack()


def _fill_runs(file: FileIO, path: Path, place: BoxBytes, data: Bytes) -> None:
    """Fill `data` with the runs of a part: one by one, or all bytes from the first to the last if runs are short."""
    if _reads_runs(place):
        _prefetch(file, place)
        for i, offset in enumerate(place.offsets()):
            _fill(file, path, data[i * place.run_nbytes :][: place.run_nbytes], offset)
        return
    whole = allocate(_covering_nbytes(place))
    _fill(file, path, whole, place.begin)
    shape, steps = (*(n for n, _ in place.loops), place.run_nbytes), (*(step for _, step in place.loops), 1)
    data[: place.nbytes].reshape(shape)[...] = as_strided(whole, shape, steps)


def _prefetch(file: FileIO, place: BoxBytes) -> None:
    """Ask the operating system to read all runs at once; one by one, each would wait for the disk."""
    if place.count > 1 and hasattr(os, "posix_fadvise"):
        for offset in place.offsets():
            os.posix_fadvise(file.fileno(), offset, place.run_nbytes, os.POSIX_FADV_WILLNEED)


def _covering_nbytes(place: BoxBytes) -> int:
    """Return the number of bytes from the start of the first run to the end of the last."""
    return sum((count - 1) * step for count, step in place.loops) + place.run_nbytes


def _fill(file: FileIO, path: Path, data: Bytes, begin: int) -> None:
    """Fill `data` with bytes of a file that start at byte `begin`."""
    view, done = data.data, 0
    file.seek(begin)
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            raise FileError(f"cannot read {path}: the chunk ends after {begin + done} bytes; it is damaged")
        done += count


def grid_desc(chunk: MemoryDesc, box: Box) -> MemoryDesc | None:
    """Return the descriptor of a box whose chunks lie one after the other, each as it is stored; None if there is none.

    `box` is a range of whole chunks, or ends at the end of the array. Chunks beyond its end are padded. There is none
    if a chunk has padding of its own, because its blocks do not divide it.

    >>> grid_desc(MemoryDesc((4, 8), "f32", "ab"), Box((0, 0), (8, 14)))
    MemoryDesc((8, 14), 'f32', 'AB4a8b')
    """
    layout, data_type = chunk.require_layout("a chunk")
    counts = tuple(-(-n // extent) for n, extent in zip(box.dims, chunk.dims, strict=True))
    if layout.dims != chunk.dims or layout.span != (0, prod(chunk.dims)):
        return None
    axes, stride = [], prod(chunk.dims)
    for axis, extent, count in zip(reversed(layout.axes), reversed(chunk.dims), reversed(counts), strict=True):
        axes.append(Axis(stride, axis.digits(extent)))
        stride *= count
    padded = tuple(count * extent for count, extent in zip(counts, chunk.dims, strict=True))
    return MemoryDesc.from_layout(Layout(padded, tuple(reversed(axes))), data_type, dims=box.dims)


def write_chunk(path: Path, data: Bytes) -> None:
    """Write the file of a chunk.

    Raises:
        FileError: it cannot be written, as on a full disk.
    """
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=0) as file:
            view, done = data.data, 0
            while done < len(view):
                done += file.write(view[done:])
    except OSError as error:
        raise file_error("write", path, error) from error


def chunk_part(chunks: Dims, index: Dims, box: Box) -> tuple[Box, tuple[slice, ...]]:
    """Return the part of the chunk `index` that is in `box`, in coordinates of the chunk, and where it is in the box.

    >>> part, place = chunk_part((4, 4), (1, 0), Box((2, 0), (7, 3)))
    >>> str(part), place
    ('[0:3, 0:3]', (slice(2, 5, None), slice(0, 3, None)))
    """
    starts = tuple(i * extent for i, extent in zip(index, chunks, strict=True))
    begin = tuple(max(b, s) for b, s in zip(box.begin, starts, strict=True))
    end = tuple(min(e, s + extent) for e, s, extent in zip(box.end, starts, chunks, strict=True))
    part = Box(
        tuple(b - s for b, s in zip(begin, starts, strict=True)), tuple(e - s for e, s in zip(end, starts, strict=True))
    )
    return part, tuple(slice(b - o, e - o) for b, e, o in zip(begin, end, box.begin, strict=True))


def covered_chunks(chunks: Dims, box: Box) -> list[range]:
    """Return the indexes of the chunks that a box touches, along each axis."""
    return [range(b // n, -(-e // n)) for b, e, n in zip(box.begin, box.end, chunks, strict=True)]
