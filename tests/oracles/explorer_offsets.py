"""Offsets from the JSON of a layout alone, as `docs/explorer.md` defines them: a second implementation for tests."""

from collections.abc import Sequence
from typing import Any


def offset_of(layout: dict[str, Any], coordinate: Sequence[int]) -> int:
    """The offset of a coordinate, in elements from the start of the buffer."""
    total = 0
    for x, shift, digits in zip(coordinate, layout["padded_offsets"], layout["digits"], strict=True):
        rest = x + int(shift)
        for digit in digits[:0:-1]:
            rest, value = divmod(rest, int(digit["extent"]))
            total += value * int(digit["stride"])
        total += rest * int(digits[0]["stride"])
    return int(layout["offset0"]) + swizzled(layout["swizzle"], total)


def swizzled(swizzle: dict[str, Any] | None, offset: int) -> int:
    """The offset after a swizzle, bit by bit."""
    if swizzle is None:
        return offset
    result = offset
    for i in range(swizzle["bits"]):
        low, high = swizzle["base"] + i, swizzle["base"] + abs(swizzle["shift"]) + i
        source, target = (high, low) if swizzle["shift"] >= 0 else (low, high)
        result ^= (offset >> source & 1) << target
    return result
