"""Lanes of padding as runs of bytes, to read and write them at the speed of a copy.

The padding of a blocked format is many short runs: 7 lanes of f32 after the 17th channel in blocks of 8 are 28 bytes,
once for each pixel. Where padding is large, `padding_code` loops over the runs. Small padding, for which loading
machine code takes longer than the work, is left to NumPy, and so is all padding on processors without generated code.
NumPy iterates over the innermost axis with a loop of its own for each run. A type of 28 bytes makes a run one element,
so that a whole box is one loop of small copies. To compare lanes, runs are gathered into a buffer that stays in the
cache, and the buffer is reduced as 64-bit integers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.layout import Dims
from inlay.memory.buffers import Bytes, address_of
from inlay.memory.padding_code import AXES, MOST_BYTES, loop_words, run_functions

COMPILED_FROM = 1 << 16
"""Size of runs for which compiled code is loaded, in bytes; smaller ones use it if it is loaded already."""

_LONGEST_RUN = 1 << 14
"""Maximum size of a run, in bytes: longer runs are several."""

_GATHERED = 1 << 18
"""Size of the buffer for gathered runs, in bytes, so that it stays in the second-level cache."""

RunArray: TypeAlias = npt.NDArray[Any]
"""An array whose elements are runs: of type V28, or of an unsigned integer where it has the size."""


@dataclass(frozen=True, slots=True)
class ByteRuns:
    """Runs of adjacent bytes at even distances along several axes."""

    start: int
    """Offset of the first run in the buffer, in bytes."""
    shape: Dims
    """Number of runs along each axis."""
    strides: Dims
    """Distances of runs along each axis, in bytes."""
    nbytes: int
    """Size of a run, in bytes."""
    size: int
    """Size of all runs, in bytes."""
    loops: bytes
    """Words of `padding_code` for the innermost axes."""

    def view(self, buffer: Bytes) -> RunArray:
        """Return the runs as a view of `buffer`."""
        kind = f"u{self.nbytes}" if self.nbytes in (1, 2, 4, 8) else f"V{self.nbytes}"
        return np.ndarray(self.shape, kind, buffer.data, self.start, self.strides)


def runs_of(start: int, shape: Dims, strides: Dims, itemsize: int) -> ByteRuns:
    """Return the elements of a strided view of a buffer as runs of adjacent bytes; all sizes are in bytes.

    Post-condition: the bytes of all runs are those of the elements, each once.

    >>> runs = runs_of(68, (2, 5, 7), (480, 32, 4), 4)
    >>> runs.shape, runs.strides, runs.nbytes
    ((2, 5), (480, 32), 28)
    """
    axes = sorted((i for i, n in enumerate(shape) if n > 1), key=lambda i: -abs(strides[i]))
    nbytes = itemsize
    while axes and strides[axes[-1]] == nbytes and nbytes * shape[axes[-1]] <= _LONGEST_RUN:
        nbytes *= shape[axes.pop()]
    merged = _merge_axes([(shape[i], strides[i]) for i in axes])
    extents, distances = tuple(n for n, _ in merged), tuple(stride for _, stride in merged)
    return ByteRuns(start, extents, distances, nbytes, prod(extents) * nbytes, loop_words(merged[-AXES:], nbytes))


def _merge_axes(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return extents and strides of axes, with neighboring axes joined where one stride describes both."""
    merged: list[tuple[int, int]] = []
    for extent, stride in axes:
        if merged and merged[-1][1] == extent * stride:
            extent *= merged.pop()[0]
        merged.append((extent, stride))
    return merged


def fill_runs(runs: ByteRuns, buffer: Bytes, element: Bytes) -> None:
    """Write the bytes of one element into every element of all runs, which are in `buffer`."""
    if call_compiled("fill", runs, buffer, element) is None:
        view = runs.view(buffer)
        value = np.tile(element, runs.nbytes // element.size).view(view.dtype)
        np.copyto(view, value[0])


def has_only(runs: ByteRuns, buffer: Bytes, element: Bytes) -> bool:
    """Return True if every element of all runs, which are in `buffer`, has exactly these bytes."""
    differs = call_compiled("differs", runs, buffer, element)
    return _is_gathered_equal(runs.view(buffer), element) if differs is None else not differs


def call_compiled(purpose: str, runs: ByteRuns, buffer: Bytes, element: Bytes) -> bool | None:
    """Call the function of `padding_code` for all runs until it returns True; return None where NumPy is to be used."""
    if runs.size < COMPILED_FROM and not run_functions.cache_info().currsize:
        return None
    functions = run_functions()
    if functions is None:
        return None
    chunk = min(MOST_BYTES, 1 << runs.nbytes.bit_length() - 1)
    function, repeated = functions[purpose, chunk], element.tobytes() * max(1, chunk // element.size)
    start, outer = address_of(buffer) + runs.start, len(runs.shape) - AXES
    if outer <= 0:
        return bool(function(start, runs.loops, repeated))
    offsets = (
        sum(i * stride for i, stride in zip(index, runs.strides[:outer], strict=True))
        for index in np.ndindex(*runs.shape[:outer])
    )
    return any(function(start + offset, runs.loops, repeated) for offset in offsets)


def _is_gathered_equal(runs: RunArray, element: Bytes) -> bool:
    """Return True if the bytes of all runs repeat `element`."""
    largest = min(_GATHERED, runs.size * runs.itemsize)
    scratch = np.zeros(-(-largest // 8) * 8, np.uint8)
    expected = np.tile(element, -(-scratch.size // element.size)) if element.any() else None
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


def _split_runs(runs: RunArray) -> Iterator[RunArray]:
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
