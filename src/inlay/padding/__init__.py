"""Padding: the lanes between the dims and the padded dims, which blocked formats keep zero.

17 channels in blocks of 8 take the room of 24, and everybody who reads blocks counts on zeros in the other 7: a
convolution sums over all 24. Whoever writes whole blocks has to leave them zero. `exp` over all bytes of such a memory
does not, since exp(0) is 1; then the damage is found here, by coordinate:

    >>> import numpy as np
    >>> from inlay.descriptor import MemoryDesc
    >>> desc = MemoryDesc((1, 17, 1, 1), "f32", "nChw8c")
    >>> buffer = np.zeros(24, np.float32)
    >>> buffer[:] = np.exp(buffer)
    >>> report = find_dirty(desc, buffer.view(np.uint8))
    >>> report.dirty, report.first[0].coordinate
    (7, (0, 17, 0, 0))
    >>> zero_lanes(desc, buffer.view(np.uint8))
    >>> buffer.sum()
    np.float32(17.0)

This room works on descriptors and bytes; `check_padding`, `zero_padding` and `map_padded` of `inlay.memory` do the same
for a `Memory`. Only padded lanes are visited, as a few strided views of the buffer (`regions`), so the time of a check
grows with the padding and not with the tensor.

**Zero** means equal to zero: -0.0 is clean too, because adding it changes no sum. Of e8m0, which has no zero, it is the
code 0, and that is what a reorder writes.
"""

from inlay.padding.dirty import find_dirty, zero_lanes
from inlay.padding.preserving import Elementwise, applied, preserves_padding
from inlay.padding.regions import Box, boxes, even_boxes, lanes, padding_boxes
from inlay.padding.report import DirtyLane, PaddingReport

__all__ = [
    "Box",
    "DirtyLane",
    "Elementwise",
    "PaddingReport",
    "applied",
    "boxes",
    "even_boxes",
    "find_dirty",
    "lanes",
    "padding_boxes",
    "preserves_padding",
    "zero_lanes",
]
