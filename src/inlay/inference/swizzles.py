"""Swizzles from offsets: finds the XOR of offset bits after which the offsets are those of a layout.

Offsets are counted from the first element, as swizzled descriptors do, so that a header does not change the swizzle.
Every `Swizzle<B, M, S>` within the bits of the offsets is tried. A swizzle is its own inverse, so applied to the places
it gives the offsets of the layout. A few squares of coordinates, two axes each, exclude most candidates at once: in a
layout `f(a, b) - f(a, 0) - f(0, b) + f(0, 0)` is 0.
"""

from collections.abc import Iterator

import numpy as np

from inlay.inference.digits import FactoredOffsets, FactorFault, factor_axis, factor_offsets
from inlay.inference.results import Offsets
from inlay.layout import Swizzle

_SAMPLES = 192
"""Number of coordinates that exclude a candidate before all coordinates are compared."""
_LINE = 2048
"""Number of coordinates along an axis that exclude a candidate before all coordinates are compared."""


def find_swizzle(offsets: Offsets) -> tuple[Swizzle, FactoredOffsets] | None:
    """Return the simplest swizzle whose inverse makes `offsets` those of a layout, and the layout; None if none does.

    `offsets` are counted from the origin of the swizzle, and the layout begins there. The simplest has the fewest
    digits in the layout, then the fewest bits, then the lowest base and shift.

    >>> rows = np.arange(8)[:, None]
    >>> str(find_swizzle(rows * 8 + (np.arange(8) ^ rows))[0])
    'Swizzle<3,0,3>'
    """
    found = []
    corners = _sample_corners(offsets)
    for swizzle in _candidates(offsets):
        if not _passes_samples(swizzle, offsets, corners):
            continue
        factored = factor_offsets(swizzle.apply(offsets))
        if not isinstance(factored, FactorFault):
            count = sum(1 + len(axis.inner) for axis in factored.axes)
            found.append(
                ((count, swizzle.bits, swizzle.base, abs(swizzle.shift), swizzle.shift < 0), swizzle, factored)
            )
            if len(found) >= 32:
                break
    if not found:
        return None
    _, swizzle, factored = min(found, key=lambda one: one[0])
    return swizzle, factored


def _candidates(offsets: Offsets) -> Iterator[Swizzle]:
    """Yield every swizzle within the bits of the offsets; none if an offset is negative."""
    if int(offsets.min()) < 0:
        return
    top = max(int(offsets.max()), 1).bit_length()
    for bits in range(1, top // 2 + 1):
        for shift in range(bits, top - bits + 1):
            for base in range(top - bits - shift + 1):
                yield Swizzle(bits, base, shift)
                yield Swizzle(bits, base, -shift)


def _sample_corners(offsets: Offsets) -> tuple[Offsets, Offsets]:
    """Return row-major indices of random coordinates, and of their projections on each axis, of shape (axes, samples).

    The coordinates are the same at every call with the same dims.
    """
    random = np.random.default_rng(18)
    coordinates = [random.integers(0, n, _SAMPLES) for n in offsets.shape]
    for i, n in enumerate(offsets.shape):
        coordinates[i][: n.bit_length()] = [min(1 << b, n - 1) for b in range(n.bit_length())][:_SAMPLES]
    strides = [int(np.prod(offsets.shape[i + 1 :], dtype=np.int64)) for i in range(offsets.ndim)]
    projections = np.array([x * s for x, s in zip(coordinates, strides, strict=True)], np.int64)
    return projections.sum(axis=0), projections


def _passes_samples(swizzle: Swizzle, offsets: Offsets, corners: tuple[Offsets, Offsets]) -> bool:
    """Return True if the samples do not exclude a candidate."""
    flat = offsets.reshape(-1)
    whole, projections = corners
    start = int(swizzle.apply(flat[:1])[0])
    sums = (swizzle.apply(flat[projections]) - start).sum(axis=0) + start
    if not np.array_equal(sums, swizzle.apply(flat[whole])):
        return False
    for i in range(offsets.ndim):
        line = offsets[tuple(slice(_LINE) if i == j else 0 for j in range(offsets.ndim))]
        for part in (64, _LINE):
            if isinstance(factor_axis(swizzle.apply(line[:part]) - start), tuple):
                return False
    return True
