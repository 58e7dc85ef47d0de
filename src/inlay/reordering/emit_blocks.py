"""Code generation for the values of quantized blocks, as LLVM IR.

    inlay_blocks(unused, values, table, first block, last block)

Blocks are numbered in rows. For each block, the code loads the bytes of the streams, assembles the numbers from their
bit fields, and stores f32 values: registers of 16 elements, each along the last axis.

    value = scale * ... * (quant - zero)  -/+  minimum * ...

All bit offsets are constants of the kernel. Sixteen elements need few different bytes: these are loaded once, permuted
to lanes, shifted and masked. Scales and minima are one number for all 16 lanes, computed as scalars. Every operation
rounds to f32; nothing is fused, so the values are those of any program with the same formula.

The words of the table:

    0        number of blocks in a row
    1        bytes from a row of elements of a block to the next, in the values
    2        bytes from the first element of a row of blocks to that of the next, in the values
    3 + 3 s  address of section s; then bytes from one of its blocks to the next, and from one row of them to the next
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeAlias

from inlay.reordering.conversion import LINE
from inlay.reordering.ir import Code, Lanes, module_text, shuffle_mask
from inlay.reordering.target import TargetMachine

ENTRY = "inlay_blocks"
"""Name of the function."""
LANES = 16
"""Number of elements of a register."""
ROW_BLOCKS, ELEMENT_ROW, ROW_STRIDE, SECTIONS = range(4)
"""Positions of the words in the table; three words for each section follow."""
SECTION_WORDS = 3
"""Number of words of a section: address, bytes between blocks, bytes between rows of blocks."""


@dataclass(frozen=True, slots=True)
class FieldBits:
    """A bit field of the numbers of a stream in one block."""

    width: int
    """Number of bits."""
    shift: int
    """Position in the number of the lowest bit."""
    offsets: tuple[int, ...]
    """Bit offset of each entry."""


@dataclass(frozen=True, slots=True)
class StreamBits:
    """The numbers of a stream in one block."""

    section: int
    """Index of the section."""
    number: str
    """Kind of number: `unsigned`, `signed`, `f16`, `bf16` or `f32`."""
    bits: int
    """Number of bits of a number."""
    zero: int
    """The number that stands for 0.0."""
    codebook: tuple[float, ...]
    """The value of each code; empty if the number minus `zero` is the value."""
    fields: tuple[FieldBits, ...]
    """The fields of a number."""
    entries: tuple[int, ...]
    """For each register of the block, the entry of its first element; those of the first stream are consecutive."""


@dataclass(frozen=True, slots=True)
class BlockKernel:
    """The inputs of code generation, without the target."""

    rows: int
    """Number of rows of elements in a block."""
    columns: int
    """Number of elements in a row; a multiple of 16."""
    quants: StreamBits
    """The stream with a number for each element."""
    scales: tuple[StreamBits, ...]
    """The streams that multiply."""
    minima: tuple[StreamBits, ...]
    """The streams whose product is subtracted or added."""
    adds_minimum: bool
    """True if the minimum is added."""
    is_one_row: bool
    """True if all blocks follow each other, and their elements too: word 0 of the table is not read."""
    streams: bool
    """True for streaming stores, which need values at a multiple of 64 bytes."""

    @property
    def registers(self) -> int:
        """Number of registers of a block."""
        return self.rows * self.columns // LANES

    @property
    def sections(self) -> int:
        """Number of sections that are read."""
        return 1 + max(stream.section for stream in (self.quants, *self.scales, *self.minima))


def blocks_ir(kernel: BlockKernel, target: TargetMachine) -> str:
    """Return the module of `kernel` for `target`."""
    code = Code()
    code.label("entry")
    row_blocks = code.load_word("%table", ROW_BLOCKS)
    code.do("%any = icmp slt i64 %begin, %end")
    code.do("br i1 %any, label %work, label %exit")
    code.label("work")
    row_stride = code.load_word("%table", ROW_STRIDE)
    element_row = code.load_word("%table", ELEMENT_ROW)
    words = [SECTIONS + SECTION_WORDS * section for section in range(kernel.sections)]
    sections = [tuple(code.load_word("%table", word + i) for i in range(SECTION_WORDS)) for word in words]
    count = code.let("sub i64 %end, %begin")
    with code.loop("block", count) as index:
        number = code.let(f"add i64 {index}, %begin")
        row, column = "", number
        if not kernel.is_one_row:
            row = code.let(f"udiv i64 {number}, {row_blocks}")
            column = code.let(f"sub i64 {number}, {code.let(f'mul i64 {row}, {row_blocks}')}")
        starts = []
        for address, pitch, row_pitch in sections:
            offset = _block_offset(code, (column, pitch), (row, row_pitch))
            starts.append(code.let(f"inttoptr i64 {code.let(f'add i64 {address}, {offset}')} to ptr"))
        first = code.byte("%values", _block_offset(code, (column, 4 * kernel.columns), (row, row_stride)))
        _BlockWriter(code, kernel, target, starts).write(first, element_row)
    if kernel.streams:
        code.do_declared(target.fence)
    code.do("br label %exit")
    code.label("exit")
    code.do("ret void")
    head = f"define void @{ENTRY}(ptr %unused, ptr %values, ptr %table, i64 %begin, i64 %end)"
    return module_text([(head, code)], target.attributes)


def _block_offset(code: Code, column: tuple[str, str | int], row: tuple[str, str]) -> str:
    """Append the offset of a block from its column and row, each with the bytes to the next; "" for the only row."""
    offset = code.let(f"mul i64 {column[0]}, {column[1]}")
    return code.let(f"add i64 {offset}, {code.let(f'mul i64 {row[0]}, {row[1]}')}") if row[0] else offset


_Loads: TypeAlias = dict[tuple[int, int, int], str]


@dataclass(slots=True)
class _BlockWriter:
    """The writer of the code of one block."""

    code: Code
    kernel: BlockKernel
    target: TargetMachine
    starts: list[str]
    """Address of the block in each section."""
    loads: _Loads = field(default_factory=dict)
    """Loaded bytes by section, first byte and number of bytes."""
    scalars: dict[tuple[StreamBits, int], str] = field(default_factory=dict)
    """Values of scales and minima by stream and entry."""

    def write(self, first: str, element_row: str) -> None:
        """Write the values of a block, whose first element is at the address `first`."""
        code, kernel, lanes = self.code, self.kernel, Lanes(self.code, LANES, self.target.arithmetic)
        per_row = kernel.columns // LANES
        hint, alignment = (", !nontemporal !0", LINE) if kernel.streams else ("", 4)
        # All bytes are loaded before the first store: LLVM does not know that the values share no memory with them.
        values = [self._value(lanes, register) for register in range(kernel.registers)]
        for register, value in enumerate(values):
            row, column = divmod(register, per_row)
            start = first if not row else code.byte(first, code.let(f"mul i64 {element_row}, {row}"))
            place = code.byte(start, 4 * LANES * column)
            code.do(f"store {lanes.of('float')} {value}, ptr {place}, align {alignment}{hint}")

    def _value(self, lanes: Lanes, register: int) -> str:
        """Append the values of the elements of one register."""
        value = self._quants(lanes, register)
        if scale := self._product(self.kernel.scales, register):
            value = lanes.apply("fmul", "float", value, lanes.splat(scale, "float"))
        if minimum := self._product(self.kernel.minima, register):
            operation = "fadd" if self.kernel.adds_minimum else "fsub"
            value = lanes.apply(operation, "float", value, lanes.splat(minimum, "float"))
        return value

    def _quants(self, lanes: Lanes, register: int) -> str:
        """Append the quants of one register as floats."""
        stream, code = self.kernel.quants, self.code
        first = stream.entries[register]
        number = ""
        for bits in stream.fields:
            part = self._lanes_of_field(lanes, bits, bits.offsets[first : first + LANES])
            part = lanes.apply("shl", "i32", part, bits.shift) if bits.shift else part
            number = lanes.apply("or", "i32", number, part) if number else part
        if stream.codebook:
            return self._look_up(lanes, number)
        if stream.number == "signed":
            number = lanes.apply("shl", "i32", number, 32 - stream.bits)
            number = lanes.apply("ashr", "i32", number, 32 - stream.bits)
        if stream.zero:
            number = lanes.apply("sub", "i32", number, stream.zero)
        return code.let(f"sitofp {lanes.of('i32')} {number} to {lanes.of('float')}")

    def _lanes_of_field(self, lanes: Lanes, bits: FieldBits, offsets: tuple[int, ...]) -> str:
        """Append the field of 16 elements as 32-bit numbers; the field of no element crosses a byte."""
        code, section = self.code, self.kernel.quants.section
        places = [divmod(offset, 8) for offset in offsets]
        low = min(byte for byte, _ in places)
        count = max(byte for byte, _ in places) - low + 1
        loaded = self._load(section, low, count)
        order = [byte - low for byte, _ in places]
        if order != list(range(LANES)) or count != LANES:
            vector = f"<{count} x i8>"
            loaded = code.let(f"shufflevector {vector} {loaded}, {vector} poison, {shuffle_mask(order)}")
        wide = lanes.cast("zext", loaded, "i8", "i32")
        shifts = [shift for _, shift in places]
        if any(shifts):
            constant = ", ".join(f"i32 {shift}" for shift in shifts)
            wide = code.let(f"lshr {lanes.of('i32')} {wide}, <{constant}>")
        return lanes.apply("and", "i32", wide, (1 << bits.width) - 1) if bits.width < 8 else wide

    def _load(self, section: int, byte: int, count: int) -> str:
        """Append a load of bytes of the block, unless they were loaded already."""
        key = section, byte, count
        if key not in self.loads:
            place = self.code.byte(self.starts[section], byte)
            self.loads[key] = self.code.let(f"load <{count} x i8>, ptr {place}, align 1")
        return self.loads[key]

    def _look_up(self, lanes: Lanes, number: str) -> str:
        """Append the values of codes."""
        code, codebook = self.code, self.kernel.quants.codebook
        table, vector = self._table(codebook), lanes.of("float")
        if self.target.arithmetic.permute_bits and len(codebook) == LANES:
            values = code.let(f"load {vector}, ptr {table}, align 64")
            operands = (vector, values), (lanes.of("i32"), number)
            return code.call("llvm.x86.avx512.permvar.sf.512", vector, *operands)
        result = "poison"
        for lane in range(LANES):
            index = code.let(f"extractelement {lanes.of('i32')} {number}, i32 {lane}")
            value = code.let(f"load float, ptr {code.let(f'getelementptr float, ptr {table}, i32 {index}')}")
            result = code.let(f"insertelement {vector} {result}, float {value}, i32 {lane}")
        return result

    def _table(self, codebook: tuple[float, ...]) -> str:
        """Declare the constant with the values of a codebook; return its name."""
        texts = []
        for value in codebook:
            (rounded,) = struct.unpack("<f", struct.pack("<f", value))
            (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
            texts.append(f"float 0x{bits:016X}")
        values = ", ".join(texts)
        name = f"@codebook.{sha256(values.encode()).hexdigest()[:24]}"
        constant = f"{name} = private constant [{len(codebook)} x float] [{values}], align 64"
        self.code.declarations.add(constant)
        return name

    # Scales and minima

    def _product(self, streams: tuple[StreamBits, ...], register: int) -> str:
        """Append the product of the numbers of streams for one register; an empty text for no streams."""
        total = ""
        for stream in streams:
            key = stream, stream.entries[register]
            if key not in self.scalars:
                self.scalars[key] = self._scalar(*key)
            value = self.scalars[key]
            total = self.code.let(f"fmul float {total}, {value}") if total else value
        return total

    def _scalar(self, stream: StreamBits, entry: int) -> str:
        """Append one number of a stream as a float."""
        code, number = self.code, ""
        for bits in stream.fields:
            part = self._scalar_field(stream.section, bits, bits.offsets[entry])
            part = code.let(f"shl i32 {part}, {bits.shift}") if bits.shift else part
            number = code.let(f"or i32 {number}, {part}") if number else part
        if stream.codebook:
            place = code.let(f"getelementptr float, ptr {self._table(stream.codebook)}, i32 {number}")
            return code.let(f"load float, ptr {place}")
        if stream.number in _FLOATS:
            return _FLOATS[stream.number](code, number, self.target)
        if stream.number == "signed":
            number = code.let(f"shl i32 {number}, {32 - stream.bits}")
            number = code.let(f"ashr i32 {number}, {32 - stream.bits}")
        if stream.zero:
            number = code.let(f"sub i32 {number}, {stream.zero}")
        return code.let(f"sitofp i32 {number} to float")

    def _scalar_field(self, section: int, bits: FieldBits, offset: int) -> str:
        """Append the bits of a field at a bit offset as a 32-bit number."""
        code = self.code
        byte, start = divmod(offset, 8)
        nbytes = (start + bits.width + 7) // 8
        place = code.byte(self.starts[section], byte)
        loaded = code.let(f"load i{8 * nbytes}, ptr {place}, align 1")
        wide = loaded if nbytes == 4 else code.let(f"zext i{8 * nbytes} {loaded} to i32")
        wide = code.let(f"lshr i32 {wide}, {start}") if start else wide
        is_whole = start == 0 and bits.width == 8 * nbytes
        return wide if is_whole else code.let(f"and i32 {wide}, {(1 << bits.width) - 1}")


def _half_to_float(code: Code, number: str, target: TargetMachine) -> str:
    """Append the conversion of f16 bits to f32."""
    if target.arithmetic.f16:
        half = code.let(f"bitcast i16 {code.let(f'trunc i32 {number} to i16')} to half")
        return code.let(f"fpext half {half} to float")
    # Shifted into the place of the f32 fields, the number is too small by 2**112; exponents of all ones stay such.
    raised = code.let(f"shl i32 {code.let(f'and i32 {number}, 32767')}, 13")
    small = code.let(f"bitcast i32 {raised} to float")
    scaled = code.let(f"bitcast float {code.let(f'fmul float {small}, 0x46F0000000000000')} to i32")
    special = code.let(f"or i32 {raised}, 2139095040")
    is_special = code.let(f"icmp uge i32 {raised}, 260046848")
    magnitude = code.let(f"select i1 {is_special}, i32 {special}, i32 {scaled}")
    sign = code.let(f"shl i32 {code.let(f'and i32 {number}, 32768')}, 16")
    return code.let(f"bitcast i32 {code.let(f'or i32 {magnitude}, {sign}')} to float")


def _bfloat_to_float(code: Code, number: str, _target: TargetMachine) -> str:
    """Append the conversion of bf16 bits to f32."""
    return code.let(f"bitcast i32 {code.let(f'shl i32 {number}, 16')} to float")


def _bits_to_float(code: Code, number: str, _target: TargetMachine) -> str:
    """Append the float with these bits."""
    return code.let(f"bitcast i32 {number} to float")


_FLOATS: dict[str, Callable[[Code, str, TargetMachine], str]] = {
    "f16": _half_to_float,
    "bf16": _bfloat_to_float,
    "f32": _bits_to_float,
}
