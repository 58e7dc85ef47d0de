"""A writer of LLVM IR as text, with arithmetic on whole registers.

IR is written as text because LLVM parses text fastest and because a reader can compare it with the LLVM language
reference line by line. `Code` holds the lines of one function. `Lanes` writes operations on vector registers of a fixed
number of lanes; a Python number as an operand stands for a register with that number in each lane:

    lanes = Lanes(code, 16, arithmetic)
    lanes.apply("add", "i32", value, 7)  ->  %v1 = add <16 x i32> %value, splat (i32 7)
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType

from inlay.reordering.instructions import Arithmetic


@dataclass(slots=True)
class Code:
    """A builder of one function: its lines, and the declarations that it needs."""

    lines: list[str] = field(default_factory=list)
    """The lines written so far."""
    declarations: set[str] = field(default_factory=set)
    """`declare` lines of the intrinsics that are called, and the text of constants and helper functions."""
    count: int = 0
    """Number of value names that were generated."""

    def fresh(self) -> str:
        """Return a new value name."""
        self.count += 1
        return f"%v{self.count}"

    def let(self, operation: str) -> str:
        """Append `operation`, an instruction with a result, and return the name of the result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {operation}")
        return name

    def do(self, statement: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {statement}")

    def label(self, name: str) -> None:
        """Begin the basic block `name`."""
        self.lines.append(f"{name}:")

    def do_declared(self, statement: str) -> None:
        """Append a call of an intrinsic, such as the fence of a target, and declare the intrinsic."""
        self.do(statement)
        if "@" in statement:
            self.declarations.add(declaration_of(statement))

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Append a call of an intrinsic with arguments (type, value), declare it, and return the name of the result."""
        self.declarations.add(f"declare {result} @{name}({', '.join(kind for kind, _ in arguments)})")
        return self.let(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})")

    def load_word(self, base: str, index: str | int) -> str:
        """Append a load of the 64-bit word `index` words after `base`; return its name."""
        return self.let(f"load i64, ptr {self.word(base, index)}")

    def word(self, base: str, index: str | int) -> str:
        """Append the computation of the address `index` 64-bit words after `base`; return its name."""
        return self.let(f"getelementptr i64, ptr {base}, i64 {index}")

    def byte(self, base: str, offset: str | int) -> str:
        """Append the computation of the address `offset` bytes after `base`; return its name."""
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    @contextmanager
    def loop(self, name: str, count: int | str) -> Iterator[str]:
        """Write a loop of `count` iterations, at least one, around the code that is written inside the `with` block.

        The block may contain labels. `count` is a number or the name of a value.

        Yields:
            The name of the loop index, which starts at 0.
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
        """Append a prefetch into the second-level cache; the address need not be valid."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

    def minmax(self, name: str, value: str, limit: int) -> str:
        """Append the smaller (`smin`) or greater (`smax`) of a 64-bit value and a constant; return its name."""
        self.declarations.add(f"declare i64 @llvm.{name}.i64(i64, i64)")
        return self.let(f"call i64 @llvm.{name}.i64(i64 {value}, i64 {limit})")

    def masked_load(self, vector: str, address: str, mask: str) -> str:
        """Append a load of the lanes that `mask` selects; the others are zero, and their memory is not accessed."""
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
        """Append a store of the lanes that `mask` selects; the memory of the others is not accessed."""
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
        """Return a mask of two lanes from a mask of one; the second lane is never selected."""
        return self.let(f"shufflevector <1 x i1> {mask}, <1 x i1> zeroinitializer, <2 x i32> <i32 0, i32 1>")


def module_text(functions: Sequence[tuple[str, Code]], attributes: str) -> str:
    """Return the text of a module with these functions; `attributes` are the LLVM attributes of all of them."""
    declarations = sorted(set().union(*(code.declarations for _, code in functions)))
    texts = [f"{head} #0 {{\n" + "\n".join(code.lines) + "\n}" for head, code in functions]
    tail = f"attributes #0 = {{ nounwind {attributes} }}\n!0 = !{{i32 1}}\n"
    return "\n".join([*declarations, *texts, tail])


def declaration_of(call: str) -> str:
    """Return the `declare` line for the function that a call statement calls.

    >>> declaration_of("call void @llvm.aarch64.hint(i32 1)")
    'declare void @llvm.aarch64.hint(i32)'
    """
    head, arguments = call.removeprefix("call ").rstrip(")").split("(")
    return f"declare {head}({', '.join(argument.split()[0] for argument in arguments.split(', ') if argument)})"


def _of_two_lanes(vector: str) -> str:
    """Return a vector type of at least two lanes.

    LLVM cannot select SVE instructions for a masked access of one lane.
    """
    return vector.replace("<1 x ", "<2 x ")


def _bools(vector: str) -> str:
    """Return the mask type of a vector type: <16 x float> -> <16 x i1>."""
    return vector.split(" x ")[0] + " x i1>"


_SPELLING = {"float": "f32", "half": "f16", "double": "f64"}


def suffix(vector: str) -> str:
    """Return the suffix that names a vector type in the name of an intrinsic.

    >>> suffix("<16 x float>")
    'v16f32'
    """
    count, element = vector.strip("<>").split(" x ")
    return f"v{count}{_SPELLING.get(element, element)}"


_BITS: Mapping[str, int] = MappingProxyType(
    {"i8": 8, "i16": 16, "half": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}
)
"""The width of each LLVM element type in bits."""
_REGISTER_BITS = 512
"""The width in bits of the registers for which `Lanes.pick` has an instruction."""
_PICKS = {8: "qi", 16: "hi", 32: "d", 64: "q"}
Operand = str | int | float
"""An operand: the name of a register, or a number that stands for a register with the number in each lane."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """A writer of operations on vector registers with a fixed number of lanes."""

    code: Code
    """The function that operations are appended to."""
    count: int
    """Number of lanes."""
    arithmetic: Arithmetic
    """The instructions of the processor."""

    def of(self, element: str) -> str:
        """Return the vector type of elements of an LLVM type."""
        return f"<{self.count} x {element}>"

    def apply(self, operation: str, element: str, one: Operand, other: Operand) -> str:
        """Append a binary operation, such as `add` or `fmul`; or a comparison, such as `icmp ult`, giving a mask."""
        return self.code.let(f"{operation} {self.of(element)} {_operand(element, one)}, {_operand(element, other)}")

    def cast(self, operation: str, value: str, source: str, target: str) -> str:
        """Append a cast from one element type to another: `zext`, `bitcast`, `sitofp`, ..."""
        return self.code.let(f"{operation} {self.of(source)} {value} to {self.of(target)}")

    def call(self, name: str, element: str, *values: str) -> str:
        """Append a call of an intrinsic whose operands and result have one vector type: `floor`, `copysign`, ..."""
        vector = self.of(element)
        return self.code.call(f"llvm.{name}.{suffix(vector)}", vector, *((vector, value) for value in values))

    def choose(self, mask: str, element: str, one: Operand, other: Operand) -> str:
        """Append a select: `one` in the lanes that the mask selects, `other` in the rest."""
        pair = ", ".join(f"{self.of(element)} {_operand(element, value)}" for value in (one, other))
        return self.code.let(f"select {self.of('i1')} {mask}, {pair}")

    def clamp(self, element: str, value: str, limit: Operand, *, predicate: str = "icmp slt") -> str:
        """Append a register where `value predicate limit` holds, and `limit` elsewhere.

        A NaN becomes the limit.
        """
        return self.choose(self.apply(predicate, element, value, limit), element, value, limit)

    def narrow(self, value: str, source: str, target: str) -> str:
        """Append the truncation of integers to a narrower type."""
        wide, bits = int(source[1:]), int(target[1:])
        if wide == bits:
            return value
        if not self.arithmetic.permute_bits or self.count * bits < 256 or wide > 32:
            return self.cast("trunc", value, source, target)
        while wide > bits:
            wide //= 2
            value = self._every_second(value, wide)
        return value

    def _every_second(self, value: str, bits: int) -> str:
        """Append the truncation of integers of twice as many `bits`, by a permutation instruction if there is one."""
        element, register_lanes = f"i{bits}", _REGISTER_BITS // bits
        if bits < self.arithmetic.permute_bits or self.count * bits * 2 < _REGISTER_BITS:
            return self.cast("trunc", value, f"i{2 * bits}", element)
        halves = self.code.let(f"bitcast {self.of(f'i{2 * bits}')} {value} to <{2 * self.count} x {element}>")
        starts = range(0, 2 * self.count, register_lanes)
        parts = [self._part(halves, element, 2 * self.count, start, register_lanes) for start in starts]
        register = Lanes(self.code, register_lanes, self.arithmetic)
        even = tuple(range(0, 2 * register_lanes, 2))
        pairs = [(parts[i], parts[min(i + 1, len(parts) - 1)]) for i in range(0, len(parts), 2)]
        picked = [register.pick(element, one, other, even) for one, other in pairs]
        if len(parts) == 1:
            return self._part(picked[0], element, register_lanes, 0, self.count)
        return picked[0] if len(picked) == 1 else self._joined(picked, element, register_lanes)

    def _part(self, value: str, element: str, lanes: int, start: int, count: int) -> str:
        """Append the extraction of `count` of the `lanes` of a value, from lane `start` on."""
        vector, order = f"<{lanes} x {element}>", range(start, start + count)
        return self.code.let(f"shufflevector {vector} {value}, {vector} poison, {shuffle_mask(order)}")

    def _joined(self, values: list[str], element: str, lanes: int) -> str:
        """Append the concatenation of two registers to one value of twice as many lanes."""
        one, other = (f"<{lanes} x {element}> {value}" for value in values)
        return self.code.let(f"shufflevector {one}, {other}, {shuffle_mask(range(2 * lanes))}")

    def pick(self, element: str, one: str, other: str, order: Sequence[int]) -> str:
        """Append a permutation: lane i of the result is number `order[i]` of the lanes of `one`, then `other`.

        -1 leaves a lane undefined. If the processor has an instruction for it, the code calls its intrinsic and loads
        the index vector from memory. LLVM would try every other instruction sequence for a constant index vector first,
        and that takes ten times as long as the rest of the compilation.
        """
        bits = _BITS[element]
        if not 0 < self.arithmetic.permute_bits <= bits or self.count * bits != _REGISTER_BITS:
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
        """Append the bitcast of a register to integers of the same width."""
        integer = f"i{_BITS[element]}"
        return value if element == integer else self.cast("bitcast", value, element, integer)

    def splat(self, one: str, element: str) -> str:
        """Append a register that holds the value `one` in every lane."""
        vector = self.of(element)
        first = self.code.let(f"insertelement {vector} poison, {element} {one}, i64 0")
        return self.code.let(f"shufflevector {vector} {first}, {vector} poison, {self.of('i32')} zeroinitializer")

    def nearest(self, value: str, source: str, target: str) -> str:
        """Append the rounding of floats to the nearest number of the integer type `target`, ties to even.

        The values must be in the range of that type.
        """
        if not self.arithmetic.has_lrint:
            return self.cast("fptosi", self.call("roundeven", source, value), source, target)
        floats, integers = self.of(source), self.of(target)
        return self.code.call(f"llvm.lrint.{suffix(integers)}.{suffix(floats)}", integers, (floats, value))


def shuffle_mask(order: Sequence[int]) -> str:
    """Return the mask operand of a `shufflevector`; -1 leaves a lane undefined."""
    return f"<{len(order)} x i32> <" + ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in order) + ">"


def _operand(element: str, value: Operand) -> str:
    """Return the text of an operand: the name of a register, or a constant in each lane."""
    if isinstance(value, str):
        return value
    if element not in ("float", "double"):
        return f"splat ({element} {value})"
    # LLVM writes a float constant as the bits of the double with the same value.
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"splat ({element} 0x{bits:016X})"
