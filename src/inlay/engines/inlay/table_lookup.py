"""Table lookup: functions of 8-bit integers by a table of 256 entries, on the threads of another engine.

    implementation = create_table_lookup(operation, team, threads=2)
    implementation.bind(memories)()

Source and destination have the same dense layout, so that elements are consecutive bytes in the same order. The machine
code is one function for all sizes:

    inlay_table_lookup(table, threads)      a team replaces all elements; the words of the table are `Word`

Each thread replaces a range of lines of 64 bytes; the first one also replaces the bytes after the last line. With
AVX512_VBMI the table is in four registers: two permutations choose among 128 entries each, and the highest bit of an
element between them. Otherwise each byte is loaded from the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import cache, partial
from math import prod
from pathlib import Path

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.team_code import TEAM_WORK, emit_openmp_call, emit_part, emit_pointer, emit_team_entry
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.primitives.engine import MachineCall, Operation, PlainImplementation, ThreadTeam
from inlay.reordering.ir import Code, module_text
from inlay.reordering.target import TargetMachine, digest_of, host_target, load_permanently

_LINE = 64
_LEAST_NBYTES = 1 << 14  # per thread; waking a thread takes as long as the lookups of so many bytes
_UNROLLED = 8
_VECTOR = f"<{_LINE} x i8>"
_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"
ENTRY = "inlay_table_lookup"
"""Name of the exported function."""


class Word(IntEnum):
    """The words of the argument of the machine code."""

    SRC = 0
    """Address of the first element."""
    DST = 1
    """Address of the first result."""
    TABLE = 2
    """Address of the table."""
    LINES = 3
    """Number of whole lines."""
    REST = 4
    """Number of bytes after the last whole line."""
    PARALLEL = 5
    """Address of GOMP_parallel."""
    THREAD_NUM = 6
    """Address of omp_get_thread_num."""
    NUM_THREADS = 7
    """Address of omp_get_num_threads."""


def build_module(has_byte_permutation: bool, attributes: str) -> str:
    """Return the LLVM IR of the module; `attributes` are the function attributes of the target."""
    entry = Code()
    entry.label("entry")
    head = emit_team_entry(entry, ENTRY, Word.PARALLEL)
    entry.do("ret i32 0")
    return module_text([_emit_work(has_byte_permutation), (head, entry)], attributes)


def _emit_work(has_byte_permutation: bool) -> tuple[str, Code]:
    """Return the function that replaces the part of one thread."""
    code = Code()
    code.label("entry")
    src, dst, table = (emit_pointer(code, word) for word in (Word.SRC, Word.DST, Word.TABLE))
    thread, threads = (emit_openmp_call(code, word) for word in (Word.THREAD_NUM, Word.NUM_THREADS))
    lines = code.load_word("%table", Word.LINES)
    begin, end = emit_part(code, lines, threads, thread)
    entries = _emit_registers(code, table) if has_byte_permutation else ()
    with _loop(code, "line", begin, end) as line:
        offset = code.let(f"mul i64 {line}, {_LINE}")
        one, other = code.byte(src, offset), code.byte(dst, offset)
        if has_byte_permutation:
            _emit_permuted_line(code, one, other, entries)
        else:
            with code.loop("part", _LINE // _UNROLLED) as part:
                at = code.let(f"mul i64 {part}, {_UNROLLED}")
                for i in range(_UNROLLED):
                    place = code.let(f"add i64 {at}, {i}")
                    _emit_byte(code, code.byte(one, place), code.byte(other, place), table)
    rest, after = code.load_word("%table", Word.REST), code.let(f"mul i64 {lines}, {_LINE}")
    is_first = code.let(f"icmp eq i64 {thread}, 0")
    count = code.let(f"select i1 {is_first}, i64 {rest}, i64 0")
    with _loop(code, "byte", "0", count) as byte:
        place = code.let(f"add i64 {after}, {byte}")
        _emit_byte(code, code.byte(src, place), code.byte(dst, place), table)
    code.do("ret void")
    return f"define internal void @{TEAM_WORK}(ptr %table)", code


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


def _emit_permuted_line(code: Code, src: str, dst: str, entries: Sequence[str]) -> None:
    """Emit the lookup of a line by permutations of the registers of the table."""
    bits = code.let(f"load {_VECTOR}, ptr {src}, align 1")
    low, high = (
        code.call(_PERMUTE, _VECTOR, (_VECTOR, one), (_VECTOR, bits), (_VECTOR, other))
        for one, other in (entries[:2], entries[2:])
    )
    is_high = code.let(f"icmp slt {_VECTOR} {bits}, zeroinitializer")
    found = code.let(f"select <{_LINE} x i1> {is_high}, {_VECTOR} {high}, {_VECTOR} {low}")
    code.do(f"store {_VECTOR} {found}, ptr {dst}, align 1")


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
    key = (_EMITTER, has_byte_permutation) if _EMITTER else text()
    (address,) = load_permanently(key, text, target, ENTRY)
    return address


def _bind(nbytes: int, team: ThreadTeam, threads: int, memories: Mapping[str, Memory]) -> MachineCall:
    """Return the call that replaces all elements of these memories, and keeps them alive."""
    words = np.zeros(len(Word), np.int64)
    for word, name in ((Word.SRC, "src"), (Word.DST, "dst"), (Word.TABLE, "table")):
        words[word] = memories[name].address + memories[name].desc.offset0
    words[[Word.LINES, Word.REST]] = divmod(nbytes, _LINE)
    words[[Word.PARALLEL, Word.THREAD_NUM, Word.NUM_THREADS]] = team.parallel, team.thread_num, team.num_threads
    useful = max(1, min(threads, nbytes // _LEAST_NBYTES))
    return MachineCall(_compile_entry(host_target()), address_of(words), useful, (words, dict(memories)))


def supports_table_lookup(operation: Operation) -> bool:
    """Return whether an operation is a table lookup that the machine code supports."""
    return operation.kind == "table_lookup" and _settle_result(operation) is not None


def _settle_result(operation: Operation) -> MemoryDesc | None:
    """Return the destination, for `any` with the layout of src; None if it has another one, or there is padding."""
    src, table, dst = (operation.descs[name] for name in ("src", "table", "dst"))
    if not isinstance(src.layout, Layout) or table.data_type is None or src.size != prod(src.dims):
        return None
    like_src = MemoryDesc.from_layout(src.layout, table.data_type, dims=src.dims)
    return like_src if dst.kind == "any" or dst == like_src else None


def create_table_lookup(operation: Operation, team: ThreadTeam, threads: int) -> PlainImplementation:
    """Create a table lookup that runs on `threads` threads of `team`; a destination of `any` has the layout of src.

    Raises:
        Unimplemented: source and destination have different layouts, or there are bytes between their elements.
    """
    src, dst, nbytes = operation.descs["src"], _settle_result(operation), prod(operation.descs["src"].dims)
    if dst is None:
        wanted = operation.descs["dst"]
        raise Unimplemented(f"table lookup has no {src!r} to {wanted!r}: give both the same layout, without padding")
    descs = {"src": src, "table": operation.descs["table"], "dst": dst}
    return PlainImplementation(operation, descs, "table_lookup", partial(_bind, nbytes, team, threads), is_batched=True)
