"""Lanes of padding as runs of bytes, to read and write them at the speed of a copy.

The padding of a blocked format is many short runs: 7 lanes of f32 after the 17th channel in blocks of 8 are 28 bytes,
once for each pixel. NumPy iterates over the innermost axis with a loop of its own for each run. A type of 28 bytes
makes a run one element, so that a whole box is one loop of small copies. To compare lanes, runs are gathered into a
buffer that stays in the cache, and the buffer is reduced as 64-bit integers. Where runs take a large share of evenly
spaced blocks, whole blocks are reduced by OR instead, data included, and only the lanes of the result are tested.

The functions take views of elements of whole bytes.
"""

from collections.abc import Iterator
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.memory.buffers import Bytes, address_of

_LONGEST_RUN = 1 << 14
"""Maximum size of a run, in bytes: longer runs are several."""

_GATHERED = 1 << 18
"""Size of the buffer for gathered runs, in bytes, so that it stays in the second-level cache."""

_ROW = 1 << 12
"""Size of a row of blocks that are united by OR, in bytes, so that the result stays in the first-level cache."""

Runs: TypeAlias = npt.NDArray[Any]
"""An array whose elements are runs: of type V28, or of an unsigned integer where it has the size."""


def runs_of(view: npt.NDArray[Any], buffer: Bytes) -> Runs:
    """Return the elements of a strided view of `buffer` as an array of runs of adjacent bytes: a view too.

    Post-condition: the bytes of all entries are those of the elements of `view`, each once.
    """
    axes = sorted((i for i, n in enumerate(view.shape) if n > 1), key=lambda i: -abs(view.strides[i]))
    nbytes = view.itemsize
    while axes and view.strides[axes[-1]] == nbytes and nbytes * view.shape[axes[-1]] <= _LONGEST_RUN:
        nbytes *= view.shape[axes.pop()]
    kind = f"u{nbytes}" if nbytes in (1, 2, 4, 8) else f"V{nbytes}"
    shape, strides = _merge_axes([(view.shape[i], view.strides[i]) for i in axes])
    start = view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
    runs: Runs = np.ndarray(shape, kind, buffer.data, start, strides)
    return runs


def _merge_axes(axes: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return extents and strides of an array, with neighboring axes joined where one stride describes both."""
    merged: list[tuple[int, int]] = []
    for extent, stride in axes:
        if merged and merged[-1][1] == extent * stride:
            extent *= merged.pop()[0]
        merged.append((extent, stride))
    return [extent for extent, _ in merged], [stride for _, stride in merged]


def fill_runs(runs: Runs, element: Bytes) -> None:
    """Write the bytes of one element into every element of all runs."""
    value = np.tile(element, runs.itemsize // element.size).view(runs.dtype)
    np.copyto(runs, value[0])


def has_only(runs: Runs, element: Bytes, buffer: Bytes) -> bool:
    """Return True if every element of all runs, which are a view of `buffer`, has exactly these bytes."""
    if element.any():
        return _is_gathered_equal(runs, np.tile(element, _GATHERED // element.size))
    if not _fills_even_blocks(runs, buffer):
        return _is_gathered_equal(runs, None)
    return all(_is_blockwise_zero(runs[index], buffer) for index in np.ndindex(*runs.shape[:-1]))


def _is_gathered_equal(runs: Runs, expected: Bytes | None) -> bool:
    """Return True if the bytes of all runs repeat `expected`, which has `_GATHERED` bytes; None stands for zeros."""
    scratch = np.zeros(_GATHERED, np.uint8)
    for part in _split_runs(runs):
        nbytes = part.size * part.itemsize
        whole = -(-nbytes // 8) * 8
        np.copyto(np.ndarray(part.shape, part.dtype, scratch.data), part)
        scratch[nbytes:whole] = 0 if expected is None else expected[nbytes:whole]
        words = scratch[:whole].view(np.uint64)
        if expected is None:
            if np.bitwise_or.reduce(words):
                return False
        elif not np.array_equal(words, expected[:whole].view(np.uint64)):
            return False
    return True


def _fills_even_blocks(runs: Runs, buffer: Bytes) -> bool:
    """Return True if runs take at least a third of many blocks of whole words along the last axis.

    All words that a run touches must belong to its block.
    """
    if not runs.ndim or address_of(buffer) % 8 or any(stride % 8 for stride in runs.strides):
        return False
    count, stride, lead = runs.shape[-1], runs.strides[-1], address_of(runs) % 8
    return lead + runs.itemsize <= stride <= 3 * runs.itemsize and count * stride >= 4 * _ROW


def _is_blockwise_zero(runs: Runs, buffer: Bytes) -> bool:
    """Return True if runs along one axis are zero, by an OR over rows of several blocks."""
    stride = runs.strides[0]
    start = address_of(runs) - address_of(buffer)
    blocks = max(1, _ROW // stride)
    rows = (len(runs) - 1) // blocks  # the last block may end after the buffer
    words: npt.NDArray[np.uint64] = np.ndarray((rows, blocks * stride // 8), np.uint64, buffer.data, start - start % 8)
    united = np.bitwise_or.reduce(words, axis=0).view(np.uint8).reshape(blocks, stride)
    lanes = united[:, start % 8 : start % 8 + runs.itemsize]
    return not lanes.any() and _is_gathered_equal(runs[rows * blocks :], None)


def _split_runs(runs: Runs) -> Iterator[Runs]:
    """Split runs into parts of at most `_GATHERED` bytes, by halving the outermost axis."""
    if runs.size * runs.itemsize <= _GATHERED:
        yield runs
        return
    axis = next(i for i, n in enumerate(runs.shape) if n > 1)
    rest = prod(runs.shape[axis + 1 :]) * runs.itemsize
    step = max(1, _GATHERED // rest)
    for begin in range(0, runs.shape[axis], step):
        part = runs[(slice(None),) * axis + (slice(begin, begin + step),)]
        if part.size * part.itemsize <= _GATHERED:
            yield part
        else:
            yield from _split_runs(part)
