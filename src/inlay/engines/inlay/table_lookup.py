"""Table lookup: functions of 8-bit integers by a table of 256 entries, on the threads of another engine.

    implementation = create_table_lookup(operation, team, threads=2)
    implementation.bind(memories)()

The source is dense. The destination has the same layout, or its elements are in rows: a slice of channels of an image
in channels last has a row for each pixel, with the channels of other slices between rows. The machine code is one
function for all sizes:

    inlay_table_lookup(table, threads)    starts a team; the words of the table are `Word`
    work(table)                           the work of one thread

Each thread replaces a range of rows; the first one also replaces the bytes after the last row. A destination without
bytes between elements has rows of `_PAGE` bytes. With AVX512_VBMI the table is in four registers: two permutations
choose among 128 entries each, and the highest bit of an element between them. Otherwise each byte is loaded from the
table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cache, partial
from math import prod
from pathlib import Path

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.team_code import (
    TEAM_WORK,
    build_team_module,
    emit_openmp_call,
    emit_part,
    emit_pointer,
    load_entry,
)
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.primitives.engine import MachineCall, Operation, PlainImplementation, ThreadTeam
from inlay.reordering.ir import Code
from inlay.reordering.target import TargetMachine, digest_of, host_target

_LINE = 64
_PAGE = 1 << 12
_LEAST_NBYTES = 1 << 14  # per thread; waking a thread takes as long as the lookups of so many bytes
_UNROLLED = 8
_VECTOR = f"<{_LINE} x i8>"
_MASK = f"<{_LINE} x i1>"
_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"
ENTRY = "inlay_table_lookup"
"""Name of the exported function."""


class Word(IntEnum):
    """The words of the argument of the machine code."""

    SRC = 0
    """Address of the first element."""
    DST = auto()
    """Address of the first result."""
    TABLE = auto()
    """Address of the table."""
    ROWS = auto()
    """Number of whole rows."""
    LENGTH = auto()
    """Bytes of a row; rows of the source follow one another."""
    PITCH = auto()
    """Bytes from a row of the destination to the next one."""
    REST = auto()
    """Bytes after the last whole row, of source and destination."""
    PARALLEL = auto()
    """Address of GOMP_parallel."""
    THREAD_NUM = auto()
    """Address of omp_get_thread_num."""
    NUM_THREADS = auto()
    """Address of omp_get_num_threads."""


def build_module(has_byte_permutation: bool, attributes: str) -> str:
    """Return the LLVM IR of the module; `attributes` are the function attributes of the target."""
    emitters = (partial(_emit_work, has_byte_permutation=has_byte_permutation),)
    return build_team_module(emitters, ENTRY, Word.PARALLEL, attributes)


def _emit_work(code: Code, has_byte_permutation: bool) -> str:
    """Emit the function that does the lookups of one thread."""
    src, dst, table = (emit_pointer(code, word) for word in (Word.SRC, Word.DST, Word.TABLE))
    thread, threads = (emit_openmp_call(code, word) for word in (Word.THREAD_NUM, Word.NUM_THREADS))
    words = (Word.ROWS, Word.LENGTH, Word.PITCH, Word.REST)
    rows, length, pitch, rest = (code.load_word("%table", word) for word in words)
    begin, end = emit_part(code, rows, threads, thread)
    entries = _emit_registers(code, table) if has_byte_permutation else ()
    with _loop(code, "row", begin, end) as row:
        places = [code.byte(side, code.let(f"mul i64 {row}, {size}")) for side, size in ((src, length), (dst, pitch))]
        _emit_row(code, "row", (places[0], places[1]), length, table, entries)
    is_first = code.let(f"icmp eq i64 {thread}, 0")
    after = [code.byte(side, code.let(f"mul i64 {rows}, {size}")) for side, size in ((src, length), (dst, pitch))]
    _emit_row(code, "last", (after[0], after[1]), code.let(f"select i1 {is_first}, i64 {rest}, i64 0"), table, entries)
    return f"define internal void @{TEAM_WORK}(ptr %table)"


def _emit_row(code: Code, name: str, sides: tuple[str, str], length: str, table: str, entries: Sequence[str]) -> None:
    """Emit the lookups of `length` consecutive bytes; `entries` are the registers of the table, if it is in some."""
    src, dst = sides
    lines, rest = code.let(f"udiv i64 {length}, {_LINE}"), code.let(f"urem i64 {length}, {_LINE}")
    with _loop(code, f"{name}.line", "0", lines) as line:
        offset = code.let(f"mul i64 {line}, {_LINE}")
        one, other = code.byte(src, offset), code.byte(dst, offset)
        if entries:
            bits = code.let(f"load {_VECTOR}, ptr {one}, align 1")
            code.do(f"store {_VECTOR} {_emit_permutation(code, bits, entries)}, ptr {other}, align 1")
        else:
            with code.loop(f"{name}.part", _LINE // _UNROLLED) as part:
                at = code.let(f"mul i64 {part}, {_UNROLLED}")
                for i in range(_UNROLLED):
                    place = code.let(f"add i64 {at}, {i}")
                    _emit_byte(code, code.byte(one, place), code.byte(other, place), table)
    offset = code.let(f"mul i64 {lines}, {_LINE}")
    one, other = code.byte(src, offset), code.byte(dst, offset)
    if entries:
        ones = code.let(f"sub i64 {code.let(f'shl i64 1, {rest}')}, 1")
        mask = code.let(f"bitcast i64 {ones} to {_MASK}")
        bits = code.masked_load(_VECTOR, one, mask)
        code.masked_store(_VECTOR, _emit_permutation(code, bits, entries), other, mask)
        return
    with _loop(code, f"{name}.byte", "0", rest) as byte:
        _emit_byte(code, code.byte(one, byte), code.byte(other, byte), table)


@contextmanager
def _loop(code: Code, name: str, begin: str, end: str) -> Iterator[str]:
    """Write a loop over the numbers from `begin` to before `end`, of which there may be none; yield the number."""
    count = code.let(f"sub i64 {end}, {begin}")
    code.do(f"br i1 {code.let(f'icmp sgt i64 {count}, 0')}, label %{name}.some, label %{name}.none")
    code.label(f"{name}.some")
    with code.loop(name, count) as index:
        yield code.let(f"add i64 {index}, {begin}")
    code.do(f"br label %{name}.none")
    code.label(f"{name}.none")


def _emit_registers(code: Code, table: str) -> list[str]:
    """Emit loads of the table, and return its four registers."""
    return [code.let(f"load {_VECTOR}, ptr {code.byte(table, i * _LINE)}, align 1") for i in range(4)]


def _emit_permutation(code: Code, bits: str, entries: Sequence[str]) -> str:
    """Emit the lookup of a line by permutations of the registers of the table, and return the results."""
    low, high = (
        code.call(_PERMUTE, _VECTOR, (_VECTOR, one), (_VECTOR, bits), (_VECTOR, other))
        for one, other in (entries[:2], entries[2:])
    )
    is_high = code.let(f"icmp slt {_VECTOR} {bits}, zeroinitializer")
    return code.let(f"select {_MASK} {is_high}, {_VECTOR} {high}, {_VECTOR} {low}")


def _emit_byte(code: Code, src: str, dst: str, table: str) -> None:
    """Emit the lookup of one byte."""
    bits = code.let(f"zext i8 {code.let(f'load i8, ptr {src}')} to i64")
    code.do(f"store i8 {code.let(f'load i8, ptr {code.byte(table, bits)}')}, ptr {dst}")


_EMITTER = digest_of([Path(__file__).with_name(name) for name in ("table_lookup.py", "team_code.py")])
"""Digest of the source files that write the module; empty if they cannot be read, as in a zip archive."""


@cache
def _compile_entry(target: TargetMachine) -> int:
    """Return the address of the compiled function; the first call compiles or loads it."""
    has_byte_permutation = target.arithmetic.permute_bits == 8
    text = partial(build_module, has_byte_permutation, target.attributes)
    return load_entry(_EMITTER, has_byte_permutation, text, target, ENTRY)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The bytes of a lookup in rows; those of the source follow one another."""

    count: int
    """Number of whole rows."""
    length: int
    """Bytes of a row."""
    pitch: int
    """Bytes from a row of the destination to the next one."""
    rest: int = 0
    """Bytes after the last whole row."""


def supports_table_lookup(operation: Operation) -> bool:
    """Return whether an operation is a table lookup that the machine code supports."""
    return operation.kind == "table_lookup" and _resolve_result(operation) is not None


def _resolve_result(operation: Operation) -> tuple[MemoryDesc, _Rows] | None:
    """Return the destination, for `any` with the layout of src, and the rows; None if no rows describe both."""
    src, table, dst = (operation.descs[name] for name in ("src", "table", "dst"))
    nbytes = prod(src.dims)
    if not isinstance(src.layout, Layout) or table.data_type is None or src.size != nbytes:
        return None
    like_src = MemoryDesc.from_layout(src.layout, table.data_type, dims=src.dims)
    if dst.kind == "any" or dst == like_src:
        return like_src, _divide_into_pages(nbytes)
    rows = _divide_into_rows(src, dst)
    return None if rows is None else (dst, rows)


def _divide_into_pages(nbytes: int) -> _Rows:
    """Return the rows of consecutive bytes."""
    count, rest = divmod(nbytes, _PAGE)
    return _Rows(count, _PAGE, _PAGE, rest)


def _divide_into_rows(src: MemoryDesc, dst: MemoryDesc) -> _Rows | None:
    """Return the rows of a destination with bytes between them, whose elements are in the order of a dense source."""
    if any(desc.kind != "blocked" or desc.inner_blocks or desc.padded_dims != desc.dims for desc in (src, dst)):
        return None
    strides, dims = dst.strides, src.dims
    inward = sorted((axis for axis in range(len(dims)) if dims[axis] > 1), key=lambda axis: src.strides[axis])
    length = 1
    while inward and strides[inward[0]] == length:
        length *= dims[inward.pop(0)]
    if not inward:  # a slice of channels of one image in nchw has no bytes between elements
        return _divide_into_pages(length)
    pitch = expected = strides[inward[0]]
    for axis in inward:
        if strides[axis] != expected:
            return None
        expected *= dims[axis]
    return _Rows(prod(dims[axis] for axis in inward), length, pitch) if pitch >= length else None


def create_table_lookup(operation: Operation, team: ThreadTeam, threads: int) -> PlainImplementation:
    """Create a table lookup that runs on `threads` threads of `team`; a destination of `any` has the layout of src.

    Raises:
        Unimplemented: the source is not dense, or the elements of the destination are not in rows in the same order.
    """
    src, resolved = operation.descs["src"], _resolve_result(operation)
    if resolved is None:
        wanted = operation.descs["dst"]
        raise Unimplemented(
            f"table lookup has no {src!r} to {wanted!r}: give both the same layout, without padding; the destination "
            "may have bytes between rows of elements"
        )
    dst, rows = resolved
    descs = {"src": src, "table": operation.descs["table"], "dst": dst}
    return PlainImplementation(operation, descs, "table_lookup", partial(_bind, rows, team, threads), is_batched=True)


def _bind(rows: _Rows, team: ThreadTeam, threads: int, memories: Mapping[str, Memory]) -> MachineCall:
    """Return the call that replaces all elements of these memories, which are kept alive."""
    words = np.zeros(len(Word), np.int64)
    for word, name in ((Word.SRC, "src"), (Word.DST, "dst"), (Word.TABLE, "table")):
        words[word] = memories[name].address + memories[name].desc.offset0
    words[[Word.ROWS, Word.LENGTH, Word.PITCH, Word.REST]] = rows.count, rows.length, rows.pitch, rows.rest
    words[[Word.PARALLEL, Word.THREAD_NUM, Word.NUM_THREADS]] = team.parallel, team.thread_num, team.num_threads
    most = (rows.count * rows.length + rows.rest) // _LEAST_NBYTES
    entry = _compile_entry(host_target())
    return MachineCall(entry, address_of(words), max(1, min(threads, most)), (words, dict(memories)))
