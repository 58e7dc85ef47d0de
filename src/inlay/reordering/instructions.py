"""The instructions of a processor on which generated code depends: conversions, permutations and shuffles."""

from dataclasses import dataclass
from typing import Literal

LANE_BYTES = 16
"""Width of a 128-bit lane in bytes: interleaves within it are one instruction on every target."""
Family = Literal["punpck", "zip"]
"""The exchanges that are one instruction. `punpck` (x86): interleaves inside 16-byte lanes, and moves of whole such
lanes. `zip` (AArch64): over the whole register of any width, two registers interleave (zip), swap every other unit
(trn) or join every other unit (uzp); a unit is at most 8 bytes."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The conversion and permutation instructions of a processor.

    For a missing instruction, the emitter writes a sequence of others with the same result.
    """

    f16: bool
    """True if it converts between f16 and f32."""
    bf16: bool
    """True if it converts f32 to bf16, with subnormals flushed to zero (x86: AVX512_BF16)."""
    permute_bits: int
    """Width in bits of the narrowest elements that one instruction permutes arbitrarily across two 64-byte registers
    (x86: 8 with AVX512_VBMI, 16 with AVX512BW); 0 if there is none."""
    max_drops_nan: bool = True
    """True if the maximum of a NaN and a number is the number also for signaling NaNs; false on AArch64, which only
    makes the NaN quiet."""
    has_lrint: bool = True
    """True if a float is rounded to the nearest integer with LLVM's `lrint`. False on AArch64: LLVM expands `lrint`
    element by element for SVE, and merges the alternative, rounding and then converting, into one instruction."""


@dataclass(frozen=True, slots=True)
class Shuffles:
    """The shuffle instructions of a processor."""

    family: Family = "punpck"
    """The family of exchanges that are one instruction."""
    any_lane: tuple[int, int, int, int] = (64, 64, 64, 64)
    """For elements of 1, 2, 4 and 8 bytes, the widest register in bytes for which one or two instructions can permute
    the lanes of two registers arbitrarily."""

    def deals(self, lanes: int, element_bytes: int) -> bool:
        """Return whether registers of `lanes` lanes can be deinterleaved by an odd extent."""
        return lanes * element_bytes <= self.any_lane[element_bytes.bit_length() - 1]
