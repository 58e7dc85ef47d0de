"""The heat map of a tensor that is too large to be drawn element by element: its addresses as shades.

The tensor is unfolded into rows and columns at the axis where the two are most alike: n and c run down, h and w across.
Every axis is sampled, so that each of them shows: a plain layout is a ramp, a transposed one runs across it, and blocks
are steps.

>>> from inlay import MemoryDesc
>>> heat = heat_map_of(MemoryDesc((64, 64), "f32", "ba"), "ab", 4, 4)
>>> heat.down, [[round(3 * share) for share in row] for row in heat.shares[:2]]
((SampledAxis(name='a', shown=4, extent=64),), [[0, 1, 2, 3], [0, 1, 2, 3]])
"""

import math
from collections.abc import Sequence
from math import prod

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.render.scene import HeatMap, SampledAxis
from inlay.render.selection import Selection

FEWEST_ELEMENTS = 4096
"""Elements beyond which a picture that shows a tensor in part has a heat map."""


def heat_map_of(
    desc: MemoryDesc, names: Sequence[str], most_rows: int, most_columns: int, selection: Selection | None = None
) -> HeatMap:
    """Return the heat map of a descriptor that has a bound layout and at least one element.

    Raises:
        InvalidArguments: the kind of `desc` has no layout.
        Unimplemented: a dim or stride is RUNTIME, or offsets exceed 64 bits.
    """
    choices = [range(n) for n in desc.dims] if selection is None else selection.coordinates(desc.dims)
    extents = [len(choice) for choice in choices]
    down, across = _unfold(extents)
    counts = _sample(extents, down, most_rows) | _sample(extents, across, most_columns)
    sampled = [
        [choice[i * len(choice) // counts.get(axis, 1)] for i in range(counts.get(axis, 1))]
        for axis, choice in enumerate(choices)
    ]
    shape = [prod(counts[axis] for axis in axes) for axes in (down, across)]
    grids = np.meshgrid(*map(np.array, sampled), indexing="ij")
    points = np.stack([grid.transpose([*_others(desc.ndims, [*down, *across]), *down, *across]) for grid in grids], -1)
    offsets = np.asarray(desc.offset(points.reshape(*shape, desc.ndims)))
    lowest, highest = int(offsets.min()), int(offsets.max())
    shares = (offsets - lowest) / max(1, highest - lowest)
    axes = [tuple(SampledAxis(names[axis], counts[axis], extents[axis]) for axis in part) for part in (down, across)]
    return HeatMap(axes[0], axes[1], lowest, highest, tuple(map(tuple, shares.tolist())))


def _others(ndims: int, axes: Sequence[int]) -> list[int]:
    """Return the axes that are none of `axes`."""
    return [axis for axis in range(ndims) if axis not in axes]


def _unfold(extents: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the axes that run down and those that run across, so that both have about as many elements."""
    long = [axis for axis, extent in enumerate(extents) if extent > 1]
    if len(long) < 2:
        return [], long or [len(extents) - 1]

    def imbalance(cut: int) -> float:
        """Return how far rows and columns are from a square if the axes are cut there."""
        rows, columns = (prod(extents[axis] for axis in axes) for axes in (long[:cut], long[cut:]))
        return abs(math.log(rows) - math.log(columns))

    cut = min(range(1, len(long)), key=imbalance)
    return long[:cut], long[cut:]


def _sample(extents: Sequence[int], axes: Sequence[int], most: int) -> dict[int, int]:
    """Return how many coordinates of each axis are sampled, `most` together: the longest gives way."""
    counts = {axis: extents[axis] for axis in axes}
    while prod(counts.values()) > most:
        longest = max(counts, key=counts.__getitem__)
        others = prod(counts.values()) // counts[longest]
        # Down to what fits, but not below half: then it is the turn of another axis.
        counts[longest] = max(most // others, -(-counts[longest] // 2), 1)
    return counts
