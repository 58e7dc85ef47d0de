"""Arithmetic on whole registers, as LLVM IR: the words in which conversions are written.

    lanes = Lanes(code, 16, arithmetic)
    lanes.apply("add", "i32", value, 7)  ->  %v1 = add <16 x i32> %value, splat (i32 7)

Every value is a register of so many lanes; a Python number stands for a register of which each lane holds it.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

from inlay.reordering.ir import Code, suffix

REGISTER_BITS = 512
"""Of the registers that `Lanes.pick` has an instruction for."""
BITS: Mapping[str, int] = MappingProxyType(
    {"i8": 8, "i16": 16, "half": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}
)
"""The width of each element type."""
_PICKS = {8: "qi", 16: "hi", 32: "d", 64: "q"}

Operand = str | int | float
"""The name of a register, or a number that every lane holds."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a processor has instructions for; what it has none for is computed with others, with the same result."""

    f16: bool
    """Between f16 and f32."""
    bf16: bool
    """From f32 to bf16 (x86: AVX512_BF16), with subnormals flushed to zero."""
    picks: int
    """Bits of the narrowest elements that one instruction takes from any places of two registers of 64 bytes (x86: 8
    with AVX512_VBMI, 16 with AVX512BW); 0 where there is none."""
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

    def call(self, name: str, element: str, *values: str) -> str:
        """An intrinsic whose operands and result are registers of one type: `floor`, `copysign`, ..."""
        vector = self.of(element)
        return self.code.call(f"llvm.{name}.{suffix(vector)}", vector, *((vector, value) for value in values))

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
            value = self._every_second(value, wide)
        return value

    def _every_second(self, value: str, bits: int) -> str:
        """The low halves of integers of twice as many `bits`."""
        element, held = f"i{bits}", REGISTER_BITS // bits
        if bits < self.arithmetic.picks or self.count * bits * 2 < REGISTER_BITS:
            return self.cast("trunc", value, f"i{2 * bits}", element)
        halves = self.code.let(f"bitcast {self.of(f'i{2 * bits}')} {value} to <{2 * self.count} x {element}>")
        parts = [self._part(halves, element, 2 * self.count, at, held) for at in range(0, 2 * self.count, held)]
        register = Lanes(self.code, held, self.arithmetic)
        even = tuple(range(0, 2 * held, 2))
        pairs = [(parts[i], parts[min(i + 1, len(parts) - 1)]) for i in range(0, len(parts), 2)]
        picked = [register.pick(element, one, other, even) for one, other in pairs]
        if len(parts) == 1:
            return self._part(picked[0], element, held, 0, self.count)
        return picked[0] if len(picked) == 1 else self._joined(picked, element, held)

    def _part(self, value: str, element: str, lanes: int, start: int, count: int) -> str:
        """`count` of the `lanes` of a value, from `start` on."""
        vector, order = f"<{lanes} x {element}>", range(start, start + count)
        return self.code.let(f"shufflevector {vector} {value}, {vector} poison, {shuffle_mask(order)}")

    def _joined(self, values: list[str], element: str, lanes: int) -> str:
        """Two registers as one value of twice as many lanes."""
        one, other = (f"<{lanes} x {element}> {value}" for value in values)
        return self.code.let(f"shufflevector {one}, {other}, {shuffle_mask(range(2 * lanes))}")

    def pick(self, element: str, one: str, other: str, order: Sequence[int]) -> str:
        """A register whose lane i is number `order[i]` of the lanes of `one` and then `other`; -1 leaves a lane open.

        The instruction for it is named where there is one, and its mask is read from memory: of a mask that LLVM can
        look into it tries every other sequence first, which takes ten times as long as all else.
        """
        bits = BITS[element]
        if not 0 < self.arithmetic.picks <= bits or self.count * bits != REGISTER_BITS:
            pair = ", ".join(f"{self.of(element)} {value}" for value in (one, other))
            return self.code.let(f"shufflevector {pair}, {shuffle_mask(order)}")
        integer = self.of(f"i{bits}")
        one, other = (self._bits(value, element) for value in (one, other))
        places = ", ".join(f"i{bits} {max(lane, 0)}" for lane in order)
        place = f"@pick{bits}.{sha256(places.encode()).hexdigest()[:24]}"
        self.code.declarations.add(f"{place} = private constant {integer} <{places}>, align {REGISTER_BITS // 8}")
        mask = self.code.let(f"load {integer}, ptr {place}, align {REGISTER_BITS // 8}")
        name = f"llvm.x86.avx512.vpermi2var.{_PICKS[bits]}.512"
        picked = self.code.call(name, integer, (integer, one), (integer, mask), (integer, other))
        return picked if element == f"i{bits}" else self.cast("bitcast", picked, f"i{bits}", element)

    def _bits(self, value: str, element: str) -> str:
        integer = f"i{BITS[element]}"
        return value if element == integer else self.cast("bitcast", value, element, integer)

    def spread(self, one: str, element: str) -> str:
        """A register that holds the value `one` in every lane."""
        vector = self.of(element)
        first = self.code.let(f"insertelement {vector} poison, {element} {one}, i64 0")
        return self.code.let(f"shufflevector {vector} {first}, {vector} poison, {self.of('i32')} zeroinitializer")

    def nearest(self, value: str, source: str, target: str) -> str:
        """Floats within the range of the integer type `target`, rounded to nearest, ties to even."""
        if not self.arithmetic.rounds:
            return self.cast("fptosi", self.call("roundeven", source, value), source, target)
        floats, integers = self.of(source), self.of(target)
        return self.code.call(f"llvm.lrint.{suffix(integers)}.{suffix(floats)}", integers, (floats, value))


def shuffle_mask(order: Sequence[int]) -> str:
    """The mask of a `shufflevector`; -1 leaves a lane open."""
    return f"<{len(order)} x i32> <" + ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in order) + ">"


def _operand(element: str, value: Operand) -> str:
    if isinstance(value, str):
        return value
    if element not in ("float", "double"):
        return f"splat ({element} {value})"
    # The text form of a float is the bits of the double of the same value.
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"splat ({element} 0x{bits:016X})"
