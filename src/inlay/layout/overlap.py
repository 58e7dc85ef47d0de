"""Whether digits can cancel: the search behind `Layout.overlaps`.

Two points of a box of digits share an offset exactly when some differences, one per digit, not all zero and each
below the extent, times the strides sum to zero. Nested strides leave one candidate per digit, so the search ends at
once; strides that interleave may leave many, so it gives up after `SEARCH_LIMIT` steps.
"""

from collections.abc import Sequence

from inlay.errors import Unimplemented
from inlay.layout.axis import Digit

SEARCH_LIMIT = 500_000
SEARCH_TEXT = (
    "whether elements of this layout overlap cannot be told in reasonable time: its strides interleave. "
    "Strides that are multiples of the extent they step over are told at once"
)


def box_overlaps(digits: Sequence[Digit]) -> bool:
    """Whether two points of the box of `digits`, sorted by falling |stride|, share an offset.

    They do exactly when some differences, not all zero and each below its extent, times the strides sum to zero.
    """
    reach = [0]
    for digit in reversed(digits):
        reach.append(reach[-1] + (digit.extent - 1) * abs(digit.stride))
    reach.reverse()
    steps = 0

    def vanishes(i: int, total: int, moved: bool) -> bool:
        nonlocal steps
        steps += 1
        if steps > SEARCH_LIMIT:
            raise Unimplemented(SEARCH_TEXT)
        if i == len(digits):
            return moved and total == 0
        extent, stride = digits[i].extent, abs(digits[i].stride)
        if stride == 0:
            return extent > 1 or vanishes(i + 1, total, moved)
        # Only differences that the finer digits can still cancel are worth a look; by symmetry the first is positive.
        lowest = max(-(extent - 1), -((total + reach[i + 1]) // stride)) if moved else 0
        highest = min(extent - 1, (reach[i + 1] - total) // stride)
        return any(vanishes(i + 1, total + k * stride, moved or k != 0) for k in range(lowest, highest + 1))

    return vanishes(0, 0, False)
