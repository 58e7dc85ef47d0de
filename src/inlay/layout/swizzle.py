"""`Swizzle`: the XOR of some bits of an offset into lower or higher bits, which spreads rows over memory banks.

A swizzle is a value beside a layout. The layout maps a coordinate to an offset by digits, then the swizzle permutes the
offsets. `Swizzle<B, M, S>` takes `B` bits of the offset, from bit `M + S` on, and XORs them into the bits from `M` on:

    offset      0b xxxx YYY x ZZZ xxx       Swizzle<3, 3, 4>
    swizzled    0b xxxx YYY x AAA xxx       AAA = YYY ^ ZZZ

With a negative `S`, the bits from `M` on are XORed into those from `M - S` on. The bits that are read do not change, so
a swizzle is its own inverse. It maps each aligned run of `Swizzle.chunk` offsets onto itself, and `offset ^
swizzle.apply(offset)` repeats every `Swizzle.period` offsets.

    >>> [Swizzle(1, 0, 2).apply(offset) for offset in range(8)]
    [0, 1, 2, 3, 5, 4, 7, 6]

Source: NVIDIA CUTLASS, `cute/swizzle.hpp`. There and here, offsets count elements.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from inlay.arguments import as_integer
from inlay.errors import InvalidArguments, shown

MOST_BITS = 62
"""Greatest number of a bit that a swizzle reads or changes, plus one: offsets have 63 bits."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A permutation of offsets that XORs `bits` of their bits into others: CuTe's `Swizzle<bits, base, shift>`.

    Post-conditions: swizzle.apply(swizzle.apply(x)) == x, and x // chunk == swizzle.apply(x) // chunk.

    >>> str(Swizzle(3, 4, 3)), Swizzle(3, 4, 3).period, Swizzle(3, 4, 3).chunk
    ('Swizzle<3,4,3>', 1024, 128)
    """

    bits: int
    """Number of bits that are read, and of bits that change: CuTe's `BBits`; 0 is the identity."""
    base: int
    """Number of lowest bits that are neither read nor changed: CuTe's `MBase`."""
    shift: int
    """Distance in bits from the changed bits up to those that are read, or down to them if negative: `SShift`."""

    def __post_init__(self) -> None:
        """Check the three numbers.

        Raises:
            InvalidArguments: one is not an integer, `bits` or `base` is negative, |shift| is less than `bits`, or the
                bits are not among the 62 lowest.
        """
        for name in ("bits", "base", "shift"):
            if type(getattr(self, name)) is not int:
                raise InvalidArguments(f"{name} of a swizzle is {shown(getattr(self, name))}: give an integer")
        if self.bits < 0 or self.base < 0:
            values = f"{shown(self.bits)} and {shown(self.base)}"
            raise InvalidArguments(f"bits and base of a swizzle are 0 or more, not {values}")
        if max(self.bits, self.base, abs(self.shift)) > MOST_BITS:
            values = ", ".join(shown(value) for value in (self.bits, self.base, self.shift))
            raise InvalidArguments(f"bits, base and shift of a swizzle are {values}: offsets have {MOST_BITS} bits")
        if abs(self.shift) < self.bits:
            raise InvalidArguments(
                f"shift of a swizzle is {self.shift}: bits that are read must not change, so |shift| is at least the "
                f"{self.bits} bits"
            )
        if self.base + abs(self.shift) + self.bits > MOST_BITS:
            raise InvalidArguments(
                f"{self} reaches bit {self.base + abs(self.shift) + self.bits - 1}: offsets have {MOST_BITS} bits"
            )

    @property
    def source_mask(self) -> int:
        """The bits of an offset that are read, as an integer: CuTe's `yyy_msk`."""
        return ((1 << self.bits) - 1) << (self.base + max(0, self.shift))

    @property
    def target_mask(self) -> int:
        """The bits of an offset that change, as an integer: CuTe's `zzz_msk`."""
        return ((1 << self.bits) - 1) << (self.base + max(0, -self.shift))

    @property
    def chunk(self) -> int:
        """The length of the aligned runs of offsets that map onto themselves; 1 for the identity."""
        return 1 << self.target_mask.bit_length()

    @property
    def period(self) -> int:
        """The number of offsets after which the XORed bits repeat; 1 for the identity."""
        return 1 << (self.source_mask | self.target_mask).bit_length()

    def apply(self, offsets: Any) -> Any:
        """Return the swizzled offset, in elements: of an int as an int, of an array of integers as an int64 array.

        Post-condition: applied twice, it returns `offsets`; a swizzle is its own inverse.

        Raises:
            InvalidArguments: an offset is not an integer, or is negative.

        >>> Swizzle(2, 0, 2).apply(0b0111), Swizzle(2, 0, 2).apply([4, 5, 6, 7])
        (6, array([5, 4, 7, 6]))
        """
        values: Any = offsets
        least = most = offsets
        if type(offsets) is not int:
            try:
                values = np.asarray(offsets)
            except ValueError:
                raise InvalidArguments("offsets have rows of different lengths: give an array") from None
            if values.size and not np.issubdtype(values.dtype, np.integer):
                raise InvalidArguments(f"offsets are integers, got {values.dtype}")
            least, most = (int(values.min()), int(values.max())) if values.size else (0, 0)
        if least < 0:
            raise InvalidArguments(f"offset {shown(least)} cannot be swizzled: offsets are 0 or more")
        if most.bit_length() > 63:
            raise InvalidArguments(f"offset {shown(most)} cannot be swizzled: offsets have 63 bits")
        if type(offsets) is not int:
            values = values.astype(np.int64)
        read = values & self.source_mask
        return values ^ (read >> self.shift if self.shift >= 0 else read << -self.shift)

    def round_up(self, count: int) -> int:
        """Return the least multiple of `chunk` that is at least `count`, both in elements.

        Post-condition: offsets below `count` are swizzled to offsets below the result.

        Raises:
            InvalidArguments: `count` is not an integer, or is negative.

        >>> Swizzle(3, 3, 3).round_up(100)
        128
        """
        count = as_integer("count", count)
        if count < 0:
            raise InvalidArguments(f"count is {shown(count)}: give a number of elements, 0 or more")
        return -(-count // self.chunk) * self.chunk

    def __str__(self) -> str:
        """Return CuTe's text of the swizzle."""
        return f"Swizzle<{self.bits},{self.base},{self.shift}>"
