"""`Calibration`: bandwidths of copies of increasing footprint, measured in slices of bounded time.

A process should not stop for 0.2 s when it moves its first large tensor. `Calibration.advance` therefore works for a
bounded time, and the next call continues where it stopped. New memory is touched in small pieces, because a virtual
machine may need a millisecond for each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inlay.measure.interleaved import Clock, clock, interleave, mean_of_calls

Buffer = npt.NDArray[np.uint8]

PRIVATE = tuple(int(size * (1 << 20)) for size in (0.25, 0.5, 1, 1.5, 2, 3, 4, 8))
"""Footprints copied by one thread, in bytes."""
SHARED = tuple(size << 20 for size in (4, 8, 16, 32, 64))
"""Footprints copied by all threads, in bytes."""
_PIECE = 1 << 20  # bytes that are touched in one step
_ROUNDS = 3
_SHORTEST = 1e-4  # seconds of a timed block


@dataclass(frozen=True, slots=True)
class CopySample:
    """Bandwidths of copies of one footprint, in bytes read plus written per nanosecond, all threads together."""

    footprint: int
    """Bytes of source plus destination."""
    threads: int
    """Threads that shared each copy."""
    cached: float
    """Bandwidth of repeating the same copy with ordinary stores."""
    streamed: float
    """Bandwidth of repeating the same copy with streaming stores."""
    cached_reread: float
    """Bandwidth of copying back and forth with ordinary stores; each copy reads what the one before wrote."""
    streamed_reread: float
    """Bandwidth of copying back and forth with streaming stores."""


class CopyKernel(Protocol):
    """A function in machine code that copies bytes."""

    def __call__(self, src: int, dst: int, nbytes: int, *, streams: bool, threads: int) -> None:
        """Copy `nbytes` from the address `src` to `dst`, with streaming or with ordinary stores."""


class Calibration:
    """A measurement of `CopySample`s that is divided into slices."""

    def __init__(
        self,
        copy: CopyKernel,
        allocate: Callable[[int], Buffer],
        threads: int,
        clock: Clock = clock,
        private: Sequence[int] = PRIVATE,
        shared: Sequence[int] = SHARED,
    ) -> None:
        """Prepare the measurement; nothing is allocated yet.

        Args:
            copy: the function that is timed.
            allocate: returns a buffer of the given number of bytes.
            threads: the number of threads that copy the footprints of `shared`.
            clock: returns the time in seconds.
            private: footprints that one thread copies, in bytes.
            shared: footprints that all threads copy, in bytes.
        """
        self._copy, self._allocate, self._clock = copy, allocate, clock
        self._footprints = [*((size, 1) for size in private), *((size, threads) for size in shared)]
        self.samples: list[CopySample] = []
        """Complete samples, in the order of the footprints."""
        self._steps = self._measure()

    def advance(self, seconds: float) -> bool:
        """Measure for about `seconds`, or until a started copy ends; return True when all samples are complete."""
        deadline = self._clock() + seconds
        return all(self._clock() < deadline for _ in self._steps)

    def _measure(self) -> Iterator[None]:
        """Take all samples; yield after each step, so that the caller can pause."""
        largest = max(size for size, _ in self._footprints) // 2
        buffers = self._allocate(largest), self._allocate(largest)
        touched = 0
        for size, threads in self._footprints:
            while touched < size // 2:
                for buffer in buffers:
                    buffer[touched : touched + _PIECE] = 1
                    yield
                touched += _PIECE
            yield from self._take_sample(buffers, size, threads)

    def _take_sample(self, buffers: tuple[Buffer, Buffer], size: int, threads: int) -> Iterator[None]:
        """Time the four kinds of copies in alternation, and append the bandwidths of their medians."""
        one, other = (int(buffer.ctypes.data) for buffer in buffers)
        kinds = [(streams, rereads) for rereads in (False, True) for streams in (False, True)]
        times: dict[tuple[bool, bool], list[float]] = {kind: [] for kind in kinds}
        for streams, rereads in interleave(lambda _: kinds, _ROUNDS):
            ends = [(other, one) if rereads else (one, other), (one, other)]
            times[streams, rereads].append(self._time(ends, size // 2, streams, threads))
            yield
        rates = [size / 1e9 / median(times[kind]) for kind in kinds]
        self.samples.append(CopySample(size, threads, *rates))

    def _time(self, ends: list[tuple[int, int]], nbytes: int, streams: bool, threads: int) -> float:
        """Return the mean seconds of a copy in a block, after one untimed copy.

        Args:
            ends: addresses of source and destination, used in turn.
            nbytes: bytes of one copy.
            streams: whether stores are streaming stores.
            threads: the number of threads that share a copy.
        """
        addresses = cycle(ends)

        def copy() -> None:
            self._copy(*next(addresses), nbytes, streams=streams, threads=threads)

        copy()
        return mean_of_calls(copy, _SHORTEST, clock=self._clock)
