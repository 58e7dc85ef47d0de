"""LLVM IR as text: functions that are written line by line, and arithmetic on whole registers.

The text form is what LLVM reads fastest, and what a reader can compare with the language reference line by line. `Code`
holds the lines of one function. `Lanes` writes operations on registers of so many lanes, in which a Python number
stands for a register of which each lane holds it:

    lanes = Lanes(code, 16, arithmetic)
    lanes.apply("add", "i32", value, 7)  ->  %v1 = add <16 x i32> %value, splat (i32 7)
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType


@dataclass(slots=True)
class Code:
    """The lines of one function, and the intrinsics it needs declared."""

    lines: list[str] = field(default_factory=list)
    """Finished lines."""
    declarations: set[str] = field(default_factory=set)
    """`declare` lines of the intrinsics that were called, and whole functions that stand beside this one."""
    count: int = 0
    """How many names were made."""

    def fresh(self) -> str:
        """A name that no value has yet."""
        self.count += 1
        return f"%v{self.count}"

    def let(self, operation: str) -> str:
        """Append `operation` and name its result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {operation}")
        return name

    def do(self, statement: str) -> None:
        """Append a statement without a result."""
        self.lines.append(f"  {statement}")

    def label(self, name: str) -> None:
        """Begin the block `name`."""
        self.lines.append(f"{name}:")

    def do_declared(self, statement: str) -> None:
        """Append a statement of a target, such as its fence, and declare what it calls."""
        self.do(statement)
        if "@" in statement:
            self.declarations.add(declaration_of(statement))

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an intrinsic of arguments (type, value) and name its result."""
        self.declarations.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        return self.let(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def load_word(self, base: str, index: str | int) -> str:
        """The 64-bit word number `index` after `base`."""
        return self.let(f"load i64, ptr {self.word(base, index)}")

    def word(self, base: str, index: str | int) -> str:
        """The address of that word."""
        return self.let(f"getelementptr i64, ptr {base}, i64 {index}")

    def byte(self, base: str, offset: str | int) -> str:
        """The address `offset` bytes after `base`."""
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    @contextmanager
    def loop(self, name: str, count: int | str) -> Iterator[str]:
        """Run what is written meanwhile `count` times, at least once; its index, from 0 on.

        What is written may have labels of its own; `count` may be the name of a value.
        """
        self.do(f"br label %{name}.before")
        self.label(f"{name}.before")
        self.do(f"br label %{name}")
        self.label(name)
        self.do(f"%{name}.index = phi i64 [0, %{name}.before], [%{name}.next, %{name}.last]")
        yield f"%{name}.index"
        self.do(f"br label %{name}.last")
        self.label(f"{name}.last")
        self.do(f"%{name}.next = add i64 %{name}.index, 1")
        more = self.let(f"icmp ult i64 %{name}.next, {count}")
        self.do(f"br i1 {more}, label %{name}, label %{name}.done")
        self.label(f"{name}.done")

    def prefetch(self, address: str) -> None:
        """Ask for the line at `address`, which need not be valid, to come into the second-level cache."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

    def minmax(self, name: str, value: str, limit: int) -> str:
        """The smaller (`smin`) or greater (`smax`) of a 64-bit value and a constant."""
        self.declarations.add(f"declare i64 @llvm.{name}.i64(i64, i64)")
        return self.let(f"call i64 @llvm.{name}.i64(i64 {value}, i64 {limit})")

    def masked_load(self, vector: str, address: str, mask: str) -> str:
        """Load the lanes of `vector` that `mask` selects, zero in the others; unselected memory is not touched."""
        wide = _of_two_lanes(vector)
        if wide != vector:
            both = self.masked_load(wide, address, self._and_none(mask))
            return self.let(f"shufflevector {wide} {both}, {wide} poison, <1 x i32> zeroinitializer")
        name = f"llvm.masked.load.{suffix(vector)}.p0"
        bools = _bools(vector)
        self.declarations.add(f"declare {vector} @{name}(ptr, i32, {bools}, {vector})")
        arguments = f"ptr {address}, i32 1, {bools} {mask}, {vector} zeroinitializer"
        return self.let(f"call {vector} @{name}({arguments})")

    def masked_store(self, vector: str, value: str, address: str, mask: str) -> None:
        """Store the lanes of `value` that `mask` selects; unselected memory is not touched."""
        wide = _of_two_lanes(vector)
        if wide != vector:
            both = self.let(f"shufflevector {vector} {value}, {vector} poison, <2 x i32> zeroinitializer")
            self.masked_store(wide, both, address, self._and_none(mask))
            return
        name = f"llvm.masked.store.{suffix(vector)}.p0"
        bools = _bools(vector)
        self.declarations.add(f"declare void @{name}({vector}, ptr, i32, {bools})")
        self.do(f"call void @{name}({vector} {value}, ptr {address}, i32 1, {bools} {mask})")

    def _and_none(self, mask: str) -> str:
        """The mask of one lane, with a second lane that is never selected."""
        return self.let(f"shufflevector <1 x i1> {mask}, <1 x i1> zeroinitializer, <2 x i32> <i32 0, i32 1>")


def module_text(functions: Sequence[tuple[str, Code]], attributes: str) -> str:
    """The module of some functions, each with its head; `attributes` are LLVM's of all of them."""
    declarations = sorted(set().union(*(code.declarations for _, code in functions)))
    texts = [f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}" for head, code in functions]
    tail = f"attributes #0 = {{ nounwind {attributes} }}\n!0 = !{{i32 1}}\n"
    return "\n".join([*declarations, *texts, tail])


def declaration_of(call: str) -> str:
    """The declaration of what a statement calls.

    >>> declaration_of("call void @llvm.aarch64.hint(i32 1)")
    'declare void @llvm.aarch64.hint(i32)'
    """
    head, arguments = call.removeprefix("call ").rstrip(")").split("(")
    return f"declare {head}({', '.join(argument.split()[0] for argument in arguments.split(', ') if argument)})"


def _of_two_lanes(vector: str) -> str:
    """A vector of at least two lanes: LLVM has no code for a masked access of one in registers of SVE."""
    return vector.replace("<1 x ", "<2 x ")


def _bools(vector: str) -> str:
    """The mask type of a vector type: <16 x float> -> <16 x i1>."""
    return vector.split(" x ")[0] + " x i1>"


_SPELLING = {"float": "f32", "half": "f16", "double": "f64"}


def suffix(vector: str) -> str:
    """How intrinsics spell a vector type.

    >>> suffix("<16 x float>")
    'v16f32'
    """
    count, element = vector.strip("<>").split(" x ")
    return f"v{count}{_SPELLING.get(element, element)}"


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


_BITS: Mapping[str, int] = MappingProxyType(
    {"i8": 8, "i16": 16, "half": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}
)
"""The width of each element type."""
_REGISTER_BITS = 512
"""Of the registers that `Lanes.pick` has an instruction for."""
_PICKS = {8: "qi", 16: "hi", 32: "d", 64: "q"}
Operand = str | int | float
"""The name of a register, or a number that every lane holds."""


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
        """A binary operation, such as `add` or `fmul`, or a comparison, such as `icmp ult`, which makes a mask."""
        return self.code.let(f"{operation} {self.of(element)} {_operand(element, one)}, {_operand(element, other)}")

    def cast(self, operation: str, value: str, source: str, target: str) -> str:
        """A cast from one element type to another: `zext`, `bitcast`, `sitofp`, ..."""
        return self.code.let(f"{operation} {self.of(source)} {value} to {self.of(target)}")

    def call(self, name: str, element: str, *values: str) -> str:
        """An intrinsic whose operands and result are registers of one type: `floor`, `copysign`, ..."""
        vector = self.of(element)
        return self.code.call(f"llvm.{name}.{suffix(vector)}", vector, *((vector, value) for value in values))

    def choose(self, mask: str, element: str, one: Operand, other: Operand) -> str:
        """`one` in the lanes of the mask, `other` in the rest."""
        pair = ", ".join(f"{self.of(element)} {_operand(element, value)}" for value in (one, other))
        return self.code.let(f"select {self.of('i1')} {mask}, {pair}")

    def least(self, element: str, value: str, limit: Operand, *, of: str = "icmp slt") -> str:
        """The smaller of a register and a limit, by the predicate `of`; with `sgt` or `ogt`, the greater.

        A NaN becomes the limit.
        """
        return self.choose(self.apply(of, element, value, limit), element, value, limit)

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
        element, held = f"i{bits}", _REGISTER_BITS // bits
        if bits < self.arithmetic.picks or self.count * bits * 2 < _REGISTER_BITS:
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
        bits = _BITS[element]
        if not 0 < self.arithmetic.picks <= bits or self.count * bits != _REGISTER_BITS:
            pair = ", ".join(f"{self.of(element)} {value}" for value in (one, other))
            return self.code.let(f"shufflevector {pair}, {shuffle_mask(order)}")
        integer = self.of(f"i{bits}")
        one, other = (self._bits(value, element) for value in (one, other))
        places = ", ".join(f"i{bits} {max(lane, 0)}" for lane in order)
        place = f"@pick{bits}.{sha256(places.encode()).hexdigest()[:24]}"
        self.code.declarations.add(f"{place} = private constant {integer} <{places}>, align {_REGISTER_BITS // 8}")
        mask = self.code.let(f"load {integer}, ptr {place}, align {_REGISTER_BITS // 8}")
        name = f"llvm.x86.avx512.vpermi2var.{_PICKS[bits]}.512"
        picked = self.code.call(name, integer, (integer, one), (integer, mask), (integer, other))
        return picked if element == f"i{bits}" else self.cast("bitcast", picked, f"i{bits}", element)

    def _bits(self, value: str, element: str) -> str:
        integer = f"i{_BITS[element]}"
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
