"""Offsets in other units and from another origin, without wrapping around.

A layout counts elements from its own origin; a descriptor adds `offset0`, and bytes are elements times their width.
Where many coordinates are asked at once the answers are 64-bit integers, which wrap silently in NumPy and do not here.
"""

from typing import Any

import numpy as np

from inlay.descriptor.validation import LARGEST
from inlay.errors import Unimplemented


def scaled(offsets: Any, start: int, step: int) -> Any:
    """`start + offsets` times `step`: of an int exactly, of an int64 array where the results fit.

    Raises:
        Unimplemented: `offsets` is an array and a result exceeds 64 bits.

    >>> scaled(2, 1, 4), scaled(np.array([0, 2]), 1, 4)
    (12, array([ 4, 12]))
    """
    if isinstance(offsets, np.ndarray) and offsets.size:
        low, high = ((start + int(end)) * step for end in (offsets.min(), offsets.max()))
        if low < -LARGEST or high > LARGEST:
            raise Unimplemented(f"offsets {low}..{high} exceed 64 bits: ask one coordinate at a time")
    moved = offsets + start if start else offsets
    return moved if step == 1 else moved * step
