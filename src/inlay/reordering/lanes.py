"""Arithmetic on whole registers, as LLVM IR: the words in which conversions are written.

    lanes = Lanes(code, 16, arithmetic)
    lanes.apply("add", "i32", value, 7)  ->  %v1 = add <16 x i32> %value, splat (i32 7)

Every value is a register of so many lanes; a Python number stands for a register of which each lane holds it.
"""

import struct
from dataclasses import dataclass

from inlay.reordering.ir import Code

Operand = str | int | float
"""The name of a register, or a number that every lane holds."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a processor has instructions for; what it has none for is computed with others, with the same result."""

    f16: bool
    """Between f16 and f32."""
    bf16: bool
    """From f32 to bf16 (x86: AVX512_BF16), with subnormals flushed to zero."""
    picks: bool
    """Taking any elements of two registers, so that every second element is one instruction."""
    nan_loses: bool = True
    """Whether the greater of a NaN and a number is the number for signaling NaNs too, which AArch64 only quiets."""
    rounds: bool = True
    """From a float to the nearest integer at once, LLVM's lrint; for registers of SVE it would go through them element
    by element, and of two steps, to round and to convert, it makes one on AArch64."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Writes operations on registers of one number of lanes."""

    code: Code
    """Where they are written."""
    count: int
    """The number of lanes."""
    arithmetic: Arithmetic
    """What the processor has instructions for."""

    def of(self, element: str) -> str:
        """The register type of elements of an LLVM type."""
        return f"<{self.count} x {element}>"

    def apply(self, operation: str, element: str, one: Operand, other: Operand) -> str:
        """A binary operation: `add`, `fmul`, `shl`, `and`, ..."""
        return self.code.let(f"{operation} {self.of(element)} {_operand(element, one)}, {_operand(element, other)}")

    def cast(self, operation: str, value: str, source: str, target: str) -> str:
        """A cast from one element type to another: `zext`, `bitcast`, `sitofp`, ..."""
        return self.code.let(f"{operation} {self.of(source)} {value} to {self.of(target)}")

    def test(self, predicate: str, element: str, one: Operand, other: Operand) -> str:
        """A mask: `icmp ult`, `fcmp uno`, ..."""
        return self.apply(predicate, element, one, other)

    def choose(self, mask: str, element: str, one: Operand, other: Operand) -> str:
        """`one` in the lanes of the mask, `other` in the rest."""
        pair = ", ".join(f"{self.of(element)} {_operand(element, value)}" for value in (one, other))
        return self.code.let(f"select {self.of('i1')} {mask}, {pair}")

    def least(self, element: str, value: str, limit: Operand, *, of: str = "icmp slt") -> str:
        """The smaller of a register and a limit, by the predicate `of`; with `sgt` or `ogt`, the greater.

        A NaN becomes the limit.
        """
        return self.choose(self.test(of, element, value, limit), element, value, limit)

    def narrow(self, value: str, source: str, target: str) -> str:
        """The low bits of integers."""
        wide, bits = int(source[1:]), int(target[1:])
        if wide == bits:
            return value
        if not self.arithmetic.picks or self.count * bits < 256 or wide > 32:
            return self.cast("trunc", value, source, target)
        while wide > bits:
            wide //= 2
            pair = f"<{2 * self.count} x i{wide}>"
            halves = self.code.let(f"bitcast {self.of(f'i{2 * wide}')} {value} to {pair}")
            even = ", ".join(f"i32 {2 * lane}" for lane in range(self.count))
            value = self.code.let(f"shufflevector {pair} {halves}, {pair} poison, <{self.count} x i32> <{even}>")
        return value

    def nearest(self, value: str, source: str, target: str) -> str:
        """Floats within the range of the integer type `target`, rounded to nearest, ties to even."""
        floats = {"float": "f32", "double": "f64"}[source]
        if not self.arithmetic.rounds:
            name = f"llvm.roundeven.v{self.count}{floats}"
            return self.cast("fptosi", self.code.call(name, self.of(source), (self.of(source), value)), source, target)
        name = f"llvm.lrint.v{self.count}{target}.v{self.count}{floats}"
        return self.code.call(name, self.of(target), (self.of(source), value))


def _operand(element: str, value: Operand) -> str:
    if isinstance(value, str):
        return value
    if element not in ("float", "double"):
        return f"splat ({element} {value})"
    # The text form of a float is the bits of the double of the same value.
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"splat ({element} 0x{bits:016X})"
