"""Calibration in slices: copies of growing footprints are timed, a little with each call.

A process must not stop for a fifth of a second because it moves its first large tensor. So `Calibration.advance` works
for a bounded time and goes on where it stopped. Bytes of fresh memory are touched in small pieces, since a virtual
machine may need a millisecond for each of them.
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
_PIECE = 1 << 20  # bytes that are touched at once
_ROUNDS = 3
_SHORTEST = 1e-4  # seconds of a timed block


@dataclass(frozen=True, slots=True)
class CopySample:
    """Bandwidths of copies of one footprint, in bytes read plus written per nanosecond, all threads together."""

    footprint: int
    """Source plus destination, in bytes."""
    threads: int
    """Threads that shared each copy."""
    cached: float
    """The same copy again and again, with ordinary stores."""
    streamed: float
    """The same copy again and again, with streaming stores."""
    cached_reread: float
    """Back and forth, so that each copy reads what the copy before wrote; ordinary stores."""
    streamed_reread: float
    """Back and forth; streaming stores."""


class Copy(Protocol):
    """A copy of bytes in machine code."""

    def __call__(self, src: int, dst: int, nbytes: int, *, streams: bool, threads: int) -> None:
        """Copy `nbytes` from the address `src` to `dst`, with streaming or with ordinary stores."""


class Calibration:
    """Samples of copies, taken bit by bit."""

    def __init__(
        self,
        copy: Copy,
        allocate: Callable[[int], Buffer],
        threads: int,
        clock: Clock = clock,
        private: Sequence[int] = PRIVATE,
        shared: Sequence[int] = SHARED,
    ) -> None:
        """Prepare to time `copy` on one and on `threads` threads; nothing is allocated yet."""
        self._copy, self._allocate, self._clock = copy, allocate, clock
        self._wanted = [*((size, 1) for size in private), *((size, threads) for size in shared)]
        self.samples: list[CopySample] = []
        """The samples that are complete, in the order of the footprints."""
        self._work = self._measure()

    def advance(self, seconds: float) -> bool:
        """Work for about `seconds`; return whether all samples are taken. One copy is never interrupted."""
        deadline = self._clock() + seconds
        return all(self._clock() < deadline for _ in self._work)

    def _measure(self) -> Iterator[None]:
        largest = max(size for size, _ in self._wanted) // 2
        buffers = self._allocate(largest), self._allocate(largest)
        touched = 0
        for size, threads in self._wanted:
            while touched < size // 2:
                for buffer in buffers:
                    buffer[touched : touched + _PIECE] = 1
                    yield
                touched += _PIECE
            yield from self._take_sample(buffers, size, threads)

    def _take_sample(self, buffers: tuple[Buffer, Buffer], size: int, threads: int) -> Iterator[None]:
        """Time the four kinds of copies in turns and append their medians."""
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
        """Return the seconds of one copy, the mean of a block, after one that is not timed."""
        places = cycle(ends)

        def copy() -> None:
            self._copy(*next(places), nbytes, streams=streams, threads=threads)

        copy()
        return mean_of_calls(copy, _SHORTEST, clock=self._clock)
