"""Memory that is the same for everybody.

All peers of a case read the same source buffer and write the same destination buffer, so nobody is luckier with pages
or cache sets than the others. A buffer begins at a huge page (2 MiB), asks the system for huge pages, and every page of
it has been written before anything is timed.
"""

import mmap
from contextlib import suppress
from functools import cache

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType

Bytes = npt.NDArray[np.uint8]

HUGE_PAGE = 2 << 20
_PERIOD = 1_000_003  # a prime: no layout repeats with it, so that no wrong permutation can go unseen


def huge_buffer(nbytes: int) -> Bytes:
    """`nbytes` zero bytes at a multiple of 2 MiB, on huge pages where the system gives them."""
    length = -(-nbytes // HUGE_PAGE) * HUGE_PAGE
    pages = mmap.mmap(-1, length + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError, AttributeError):  # a system without huge pages: everybody has small ones
        pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, np.uint8)
    skip = -whole.ctypes.data % HUGE_PAGE
    buffer = whole[skip : skip + nbytes]
    buffer.fill(0)
    return buffer


def fill_with_values(buffer: Bytes, data_type: DataType) -> None:
    """Fill `buffer` with ordinary values: integers up to 300 either way, or floats without subnormals and infinities.

    Of 4 bits all integers are ordinary.

    A peer that computes `1.0 * x` on the way is neither slowed down nor made to change bits by them. Conversions to
    integers round most floats and saturate some.
    """
    period = _values(data_type)
    whole = buffer.size // period.size * period.size
    buffer[:whole].reshape(-1, period.size)[:] = period
    buffer[whole:] = period[: buffer.size - whole]


@cache
def _values(data_type: DataType) -> Bytes:
    random = np.random.default_rng(0)
    if data_type.is_sub_byte:
        return random.integers(0, 255, _PERIOD, np.uint8, endpoint=True)  # two of them; every code is an integer
    if data_type.kind == "float":
        spread = min(64.0, data_type.highest / 8)
        values = (spread * random.standard_normal(_PERIOD, np.float32)).astype(data_type.dtype)
    else:
        low, high = max(-300, int(data_type.lowest)), min(300, int(data_type.highest))
        values = random.integers(low, high, _PERIOD, endpoint=True).astype(data_type.dtype)
    return values.view(np.uint8)
