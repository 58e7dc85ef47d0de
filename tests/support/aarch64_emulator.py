"""Machine code of AArch64 run on any machine: an object file is linked into a memory image, and an emulator runs it.

Unicorn (a wheel) is a processor with NEON inside this process; QEMU's user mode, where it is installed, has SVE too and
takes the image as a program of its own. Guard pages are pages that the image does not have: to touch one is a fault.

    | code, constants |    | table, offsets |    | guard | source | guard |    | guard | destination | guard |
"""

import importlib.util
import shutil
import struct
import subprocess
import tempfile
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from inlay.reordering.attributes import Operands
from inlay.reordering.choice import Choice
from inlay.reordering.compiled import build_argument_block
from inlay.reordering.conversion import address_bits
from inlay.reordering.emit import ENTRY
from inlay.reordering.machine_code import ir_of
from inlay.reordering.planning import ReorderPlan, plan_reorder
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.target import TargetMachine, compile_ir
from tests.support.guarded_buffers import PAGE, GuardedBuffer

CODE, TABLE, SRC, DST, STACK, START, VALUES = (i << 28 for i in range(1, 8))
"""Where the parts of an image begin."""
STACK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Image:
    """What lies in the memory of an emulated process, and the call to be made in it."""

    segments: tuple[tuple[int, bytes], ...]
    """Address and bytes of each part; it is rounded up to whole pages."""
    entry: int
    """Address of the function."""
    arguments: tuple[int, ...]
    """What it is called with."""
    result: tuple[int, int]
    """Address and size of the bytes that are wanted afterwards."""


Emulator = Callable[[Image, TargetMachine], bytes]
"""Runs an image's call; the bytes at its result."""


# Linking

_RELOCATION, _SYMBOLS, _ALLOCATED = 4, 2, 2
# By kind of relocation of AArch64: how many low bits of the address the instruction leaves out.
_LOW_12 = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_PAGE_21, _CALL_26, _JUMP_26, _WORD_64 = 275, 283, 282, 257

_Section = namedtuple("_Section", "name kind flags address offset size link info alignment entry_size")
_Symbol = namedtuple("_Symbol", "name info other home value size")


def link(data: bytes, entry: str, base: int = CODE) -> tuple[bytes, int]:
    """The bytes of a 64-bit ELF object that is loaded at `base`, and the address of its function `entry`."""
    assert data[:6] == b"\x7fELF\x02\x01", "no 64-bit little-endian ELF file"
    (at,) = struct.unpack_from("<Q", data, 40)
    _, count, names = struct.unpack_from("<3H", data, 58)
    sections = [_Section(*fields) for fields in struct.iter_unpack("<IIQQQQIIQQ", data[at : at + 64 * count])]
    contents = [data[section.offset : section.offset + section.size] for section in sections]

    def name_at(table: int, offset: int) -> str:
        return contents[table][offset:].split(b"\0")[0].decode()

    image, starts = bytearray(), {}
    for i, section in enumerate(sections):
        if section.flags & _ALLOCATED and name_at(names, section.name) != ".eh_frame":
            image += bytes(-len(image) % 64)
            starts[i] = base + len(image)
            image += contents[i]
    (table,) = (i for i, section in enumerate(sections) if section.kind == _SYMBOLS)
    symbols = [_Symbol(*fields) for fields in struct.iter_unpack("<IBBHQQ", contents[table])]
    for section, content in zip(sections, contents, strict=True):
        if section.kind == _RELOCATION and section.info in starts:
            for place, kind, number, addend in struct.iter_unpack("<QIIq", content):
                symbol = symbols[number]
                name = name_at(sections[table].link, symbol.name) or symbol.home
                assert symbol.home in starts, f"the code needs {name} from elsewhere"
                address = starts[symbol.home] + symbol.value + addend
                _relocate(image, base, starts[section.info] + place, kind, address)
    (found,) = (starts[s.home] + s.value for s in symbols if name_at(sections[table].link, s.name) == entry)
    return bytes(image), found


def _relocate(image: bytearray, base: int, place: int, kind: int, value: int) -> None:
    """Write the address `value` into the instruction or the 64-bit word at `place`."""
    if kind == _WORD_64:
        struct.pack_into("<Q", image, place - base, value)
        return
    (word,) = struct.unpack_from("<I", image, place - base)
    if kind in (_CALL_26, _JUMP_26):
        word |= (value - place >> 2) & 0x3FFFFFF
    elif kind == _PAGE_21:
        pages = (value >> 12) - (place >> 12)
        word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
    else:
        word |= (value & 0xFFF) >> _LOW_12[kind] << 10
    struct.pack_into("<I", image, place - base, word)


def image_of(
    problem: ReorderProblem,
    target: TargetMachine,
    source: GuardedBuffer,
    destination: GuardedBuffer,
    values: Operands | None = None,
) -> Image:
    """The call that solves `problem` on the contents of two buffers, with the values of its attributes."""
    plan = plan_reorder(problem, target, Choice(panels=False))
    code, entry = link(compile_ir(ir_of(plan.kernel, target), target), ENTRY)
    words = plan.table.words.copy()
    parts, address = [], TABLE + words.nbytes
    for offsets in plan.table.offsets:
        words[plan.table.words == offsets.ctypes.data] = address
        parts.append(offsets.tobytes())
        address += offsets.nbytes
    before, brought = _values_before(problem, plan, values or {})
    sides = []
    for at, buffer, offset, data_type in (
        (SRC, source, problem.src_offset, problem.src_type),
        (DST, destination, problem.dst_offset, problem.dst_type),
    ):
        unit = address_bits(data_type.name, plan.kernel.lanes)
        begin = at + buffer.address - buffer.pages.ctypes.data
        sides.append(begin * (8 // unit) + offset * data_type.bits // unit)
    segments = (
        (CODE, code),
        (TABLE - PAGE, bytes(PAGE - len(before)) + before + words.tobytes() + b"".join(parts)),
        *([(VALUES, brought)] if brought else []),
        (SRC, source.pages.tobytes()),
        (DST, destination.pages.tobytes()),
    )
    result = (DST, destination.pages.size)
    return Image(segments, entry, (*sides, TABLE, 0, plan.table.tiles), result)


def _values_before(problem: ReorderProblem, plan: ReorderPlan, values: Operands) -> tuple[bytes, bytes]:
    """The words before the table, which are addresses of arrays, and the arrays."""
    block = build_argument_block(problem, plan)
    if block is None:
        return b"", b""
    first = block.table + plan.table.words.size
    words = block.fill_at(np.empty(block.size, np.int64), VALUES - 8 * first, values, 0)
    return words[: block.table].tobytes(), words[first:].tobytes()


def _whole_pages(data: bytes) -> bytes:
    return data + bytes(-len(data) % PAGE)


# Unicorn


def has_unicorn() -> bool:
    """Whether Unicorn is installed."""
    return importlib.util.find_spec("unicorn") is not None


def faults() -> type[Exception]:
    """What Unicorn raises where memory is touched that the image does not have."""
    if not has_unicorn():
        return AssertionError
    import unicorn

    fault: type[Exception] = unicorn.UcError
    return fault


def run_in_unicorn(image: Image, target: TargetMachine) -> bytes:
    """Run the call on an emulated processor with NEON."""
    import unicorn
    from unicorn import arm64_const as registers

    processor = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    for address, data in (*image.segments, (STACK, bytes(STACK_BYTES)), (START, bytes(PAGE))):
        whole = _whole_pages(data)
        processor.mem_map(address, len(whole))
        processor.mem_write(address, whole)
    for i, value in enumerate(image.arguments):
        processor.reg_write(getattr(registers, f"UC_ARM64_REG_X{i}"), value)
    processor.reg_write(registers.UC_ARM64_REG_SP, STACK + STACK_BYTES)
    processor.reg_write(registers.UC_ARM64_REG_LR, START)
    processor.reg_write(registers.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vector registers may be used
    processor.emu_start(image.entry, START)
    return bytes(processor.mem_read(*image.result))


# QEMU

QEMU = shutil.which("qemu-aarch64")
_BLR, _SVC = 0xD63F0000, 0xD4000001
_WRITE, _EXIT = 64, 93


def program_of(image: Image) -> bytes:
    """An executable of Linux that makes the call and writes its result to standard output."""
    begin = _start_code(image)
    segments = [(address, _whole_pages(data)) for address, data in (*image.segments, (START, begin))]
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 183, 1, START, 64, 0, 0, 64, 56, len(segments), 0, 0, 0
    )
    at, blobs = PAGE, b""
    for address, data in segments:
        flags = 5 if address in (CODE, START) else 4 if address == SRC else 6
        header += struct.pack("<IIQQQQQQ", 1, flags, at, address, address, len(data), len(data), PAGE)
        at += len(data)
        blobs += data
    return _whole_pages(header) + blobs


def _start_code(image: Image) -> bytes:
    """Call the function, write the result, leave."""
    constants = [*image.arguments, image.entry, *image.result]
    loads = [(i, i) for i in range(len(image.arguments))] + [(9, len(image.arguments))]
    saves = [(1, len(constants) - 2), (2, len(constants) - 1)]
    program: list[int | tuple[int, int]] = [*loads, _BLR | 9 << 5, *saves, _move(0, 1), _move(8, _WRITE), _SVC]
    program += [_move(0, 0), _move(8, _EXIT), _SVC]
    pool = len(program) + len(program) % 2
    words = [
        word if isinstance(word, int) else 0x58000000 | pool + 2 * word[1] - i << 5 | word[0]
        for i, word in enumerate(program)
    ]
    words += [0] * (pool - len(words))
    return struct.pack(f"<{pool}I{len(constants)}Q", *words, *constants)


def _move(register: int, value: int) -> int:
    return 0xD2800000 | value << 5 | register


def run_in_qemu(image: Image, target: TargetMachine) -> bytes:
    """Run the call as a program, on a processor whose SVE registers have the width that `target` says."""
    assert QEMU is not None
    wide = f",sve-default-vector-length={target.vector_bytes}" if target.vector_bytes > 16 else ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        path.write_bytes(program_of(image))
        path.chmod(0o700)
        done = subprocess.run([QEMU, "-cpu", f"max{wide}", str(path)], capture_output=True, check=False)
    assert not done.returncode, f"the program ended with {done.returncode}: {done.stderr.decode()[:500]}"
    return done.stdout
