"""Dynamic quantization in machine code: a pass over the elements for their range, and a pass that quantizes them.

    implementation = create_dynamic_quantization(operation, team, threads=2)
    implementation.bind(memories)()

Both passes read elements in the order of memory, so any dense layout will do if source and destination share it. Each
thread of the team reads a contiguous part. A call has a table of `_Word`, followed by a lowest and a highest element
for each thread; both are 0 at first, since the range of ONNX includes 0:

    inlay_range                     each thread writes the lowest and the highest element of its part
    inlay_quantize                  each thread computes scale and zero point from these, and quantizes its part
    inlay_dynamic_quantization      both on a team, with a copy of the table; few elements on the calling thread alone

All is computed in f32, with a division by the scale and rounding to even: results are those of ONNX's formulas in f32,
bit for bit. NaN does not count in the range, and becomes 0.
"""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.team_code import emit_openmp_call, emit_part, emit_pointer, load_entry
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engine import MachineCall, Operation, PlainImplementation, ThreadTeam
from inlay.reordering.ir import Code, Lanes, module_text
from inlay.reordering.target import TargetMachine, digest_of, host_target

_RANGE, _QUANTIZE, _ENTRY = "inlay_range", "inlay_quantize", "inlay_dynamic_quantization"
_UNROLLED = 4  # vectors of an iteration; that many minima are independent of each other
_MOST_ALONE = 1 << 15  # elements for each thread: fewer take less time than a second thread takes to start
_SLOT = 8  # words of a thread's lowest and highest element: a line of the caches


class _Word(IntEnum):
    """Words of the table of a call."""

    SRC = 0
    DST = 1
    SCALE = 2
    ZERO_POINT = 3
    ELEMENTS = 4
    SLOTS = 5
    PARALLEL = 6
    THREAD_NUM = 7
    NUM_THREADS = 8
    FIRST_SLOT = 16  # begins a line of the caches


class _QuantizationCode:
    """An emitter of the body of one function, with the part of the elements that its thread reads."""

    def __init__(self, target: TargetMachine) -> None:
        self.code = Code()
        self.code.label("entry")
        self.count = target.vector_bytes // 4
        self.lanes = Lanes(self.code, self.count, target.arithmetic)
        self.vector, self.chunk = self.lanes.of("float"), _UNROLLED * self.count
        self.thread, threads = (emit_openmp_call(self.code, word) for word in (_Word.THREAD_NUM, _Word.NUM_THREADS))
        elements = self.code.load_word("%table", _Word.ELEMENTS)
        chunks = self.code.let(f"udiv i64 {elements}, {self.chunk}")
        self.begin, self.end = emit_part(self.code, chunks, threads, self.thread)
        is_last = self.code.let(f"icmp eq i64 {self.code.let(f'add i64 {self.thread}, 1')}, {threads}")
        self.rest = self.code.let(
            f"select i1 {is_last}, i64 {self.code.let(f'urem i64 {elements}, {self.chunk}')}, i64 0"
        )

    def slot(self, thread: str) -> str:
        """Emit the address of the lowest and highest element of a thread."""
        words = self.code.let(f"add i64 {self.code.let(f'mul i64 {thread}, {_SLOT}')}, {int(_Word.FIRST_SLOT)}")
        return self.code.word("%table", words)

    def at(self, base: str, chunk: str, vector: int, element_bytes: int) -> str:
        """Emit the address of a vector of a chunk."""
        offset = self.code.let(f"mul i64 {chunk}, {self.chunk * element_bytes}")
        start = self.code.byte(base, offset)
        return self.code.byte(start, vector * self.count * element_bytes)

    def masks(self) -> list[str]:
        """Emit a mask for each vector after the last whole chunk: the elements that exist, on the last thread."""
        indices = [", ".join(f"i64 {k * self.count + i}" for i in range(self.count)) for k in range(_UNROLLED)]
        rest = self.lanes.splat(self.rest, "i64")
        return [self.code.let(f"icmp ult {self.lanes.of('i64')} <{each}>, {rest}") for each in indices]

    def bound(self, predicate: str, one: str, other: str) -> str:
        """Emit `one` where `one predicate other` holds, and `other` elsewhere, also for a NaN as `one`."""
        return self.lanes.choose(self.lanes.apply(f"fcmp {predicate}", "float", one, other), "float", one, other)

    def scalar_bound(self, predicate: str, one: str, other: str) -> str:
        """Emit the same for scalars."""
        chosen = self.code.let(f"fcmp {predicate} float {one}, {other}")
        return self.code.let(f"select i1 {chosen}, float {one}, float {other}")


def _emit_range(target: TargetMachine) -> tuple[str, Code]:
    """Return the function that writes the lowest and highest element of a thread's part, or 0."""
    emitter = _QuantizationCode(target)
    code, vector = emitter.code, emitter.vector
    src = emit_pointer(code, _Word.SRC)
    ends = [(f"%{name}{k}", predicate, k) for k in range(_UNROLLED) for name, predicate in _ENDS]
    code.do("br label %chunk")
    code.label("chunk")
    code.do(f"%index = phi i64 [{emitter.begin}, %entry], [%next, %work]")
    for name, _, _ in ends:
        code.do(f"{name} = phi {vector} [zeroinitializer, %entry], [{name}.new, %work]")
    code.do(f"%more = icmp ult i64 %index, {emitter.end}")
    code.do("br i1 %more, label %work, label %rest")
    code.label("work")
    values = [code.let(f"load {vector}, ptr {emitter.at(src, '%index', k, 4)}, align 4") for k in range(_UNROLLED)]
    for name, predicate, k in ends:
        mask = emitter.lanes.apply(f"fcmp {predicate}", "float", values[k], name)
        code.do(f"{name}.new = select {emitter.lanes.of('i1')} {mask}, {vector} {values[k]}, {vector} {name}")
    code.do("%next = add i64 %index, 1")
    code.do("br label %chunk")
    code.label("rest")
    values = [
        code.masked_load(vector, emitter.at(src, emitter.end, k, 4), mask) for k, mask in enumerate(emitter.masks())
    ]
    slot = emitter.slot(emitter.thread)
    for place, (name, predicate) in enumerate(_ENDS):
        found = [emitter.bound(predicate, value, f"%{name}{k}") for k, value in enumerate(values)]
        while len(found) > 1:
            found = [emitter.bound(predicate, *found[k : k + 2]) for k in range(0, len(found), 2)]
        code.do(f"store float {_emit_scalar_bound(emitter, predicate, found[0])}, ptr {code.byte(slot, 4 * place)}")
    code.do("ret void")
    return f"define internal void @{_RANGE}(ptr %table)", code


_ENDS = (("low", "olt"), ("high", "ogt"))
"""Name of each end of a range, and the comparison that holds for elements beyond it."""


def _emit_scalar_bound(emitter: _QuantizationCode, predicate: str, value: str) -> str:
    """Emit the lowest or highest lane of a register without NaN."""
    parts = [emitter.code.let(f"extractelement {emitter.vector} {value}, i32 {i}") for i in range(emitter.count)]
    while len(parts) > 1:
        parts = [emitter.scalar_bound(predicate, *parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def _emit_quantize(target: TargetMachine) -> tuple[str, Code]:
    """Return the function that computes scale and zero point, and quantizes a thread's part."""
    emitter = _QuantizationCode(target)
    code, vector = emitter.code, emitter.vector
    src, dst = emit_pointer(code, _Word.SRC), emit_pointer(code, _Word.DST)
    scale, zero = _emit_parameters(emitter)
    scales, zeros = (emitter.lanes.splat(value, "float") for value in (scale, zero))
    code.do("br label %first")
    code.label("first")
    code.do("br label %chunk")
    code.label("chunk")
    code.do(f"%index = phi i64 [{emitter.begin}, %first], [%next, %work]")
    code.do(f"%more = icmp ult i64 %index, {emitter.end}")
    code.do("br i1 %more, label %work, label %rest")
    code.label("work")
    for k in range(_UNROLLED):
        value = code.let(f"load {vector}, ptr {emitter.at(src, '%index', k, 4)}, align 4")
        integers = _emit_integers(emitter, value, scales, zeros)
        code.do(f"store {emitter.lanes.of('i8')} {integers}, ptr {emitter.at(dst, '%index', k, 1)}, align 1")
    code.do("%next = add i64 %index, 1")
    code.do("br label %chunk")
    code.label("rest")
    code.do(f"%is_rest = icmp ne i64 {emitter.rest}, 0")
    code.do("br i1 %is_rest, label %tail, label %exit")
    code.label("tail")
    for k, mask in enumerate(emitter.masks()):
        value = code.masked_load(vector, emitter.at(src, emitter.end, k, 4), mask)
        integers = _emit_integers(emitter, value, scales, zeros)
        code.masked_store(emitter.lanes.of("i8"), integers, emitter.at(dst, emitter.end, k, 1), mask)
    code.do("br label %exit")
    code.label("exit")
    code.do("ret void")
    return f"define internal void @{_QUANTIZE}(ptr %table)", code


def _emit_parameters(emitter: _QuantizationCode) -> tuple[str, str]:
    """Emit scale and zero point of the range of all threads; the first thread stores both."""
    code = emitter.code
    slots = code.load_word("%table", _Word.SLOTS)
    code.do("br label %slot")
    code.label("slot")
    code.do("%thread = phi i64 [0, %entry], [%thread.next, %slot]")
    for name, _ in _ENDS:
        code.do(f"%{name} = phi float [0.0, %entry], [%{name}.new, %slot]")
    slot = emitter.slot("%thread")
    for place, (name, predicate) in enumerate(_ENDS):
        found = code.let(f"load float, ptr {code.byte(slot, 4 * place)}")
        mask = code.let(f"fcmp {predicate} float {found}, %{name}")
        code.do(f"%{name}.new = select i1 {mask}, float {found}, float %{name}")
    code.do("%thread.next = add i64 %thread, 1")
    code.do(f"%thread.more = icmp ult i64 %thread.next, {slots}")
    code.do("br i1 %thread.more, label %slot, label %known")
    code.label("known")
    step = code.let(f"fdiv float {code.let('fsub float %high.new, %low.new')}, 255.0")
    scale = code.let(f"select i1 {code.let('fcmp oeq float %high.new, %low.new')}, float 1.0, float {step}")
    quotient = code.let(f"fdiv float {code.let('fneg float %low.new')}, {scale}")
    bounded = emitter.scalar_bound("olt", emitter.scalar_bound("ogt", quotient, "0.0"), "255.0")
    zero = code.call("llvm.roundeven.f32", "float", ("float", bounded))
    code.do(f"%is_first = icmp eq i64 {emitter.thread}, 0")
    code.do("br i1 %is_first, label %write, label %written")
    code.label("write")
    code.do(f"store float {scale}, ptr {emit_pointer(code, _Word.SCALE)}")
    code.do(f"store i32 {code.let(f'fptosi float {zero} to i32')}, ptr {emit_pointer(code, _Word.ZERO_POINT)}")
    code.do("br label %written")
    code.label("written")
    return scale, zero


def _emit_integers(emitter: _QuantizationCode, value: str, scales: str, zeros: str) -> str:
    """Emit the integers of a register of elements."""
    lanes = emitter.lanes
    rounded = lanes.call("roundeven", "float", lanes.apply("fdiv", "float", value, scales))
    shifted = lanes.apply("fadd", "float", rounded, zeros)
    positive = lanes.choose(lanes.apply("fcmp ogt", "float", shifted, 0.0), "float", shifted, 0.0)
    bounded = lanes.choose(lanes.apply("fcmp olt", "float", positive, 255.0), "float", positive, 255.0)
    return lanes.cast("trunc", lanes.cast("fptosi", bounded, "float", "i32"), "i32", "i8")


def _emit_entry(target: TargetMachine) -> tuple[str, Code]:
    """Return the function that runs both others on a team; each call has a table of its own, on its stack."""
    code = Code()
    code.label("entry")
    slots = code.let(f"mul i64 {code.load_word('%table', _Word.SLOTS)}, {_SLOT}")
    words = code.let(f"add i64 {slots}, {int(_Word.FIRST_SLOT)}")
    own = code.let(f"alloca i64, i64 {words}, align 64")
    code.do_declared(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {own}, ptr %table, i64 {code.let(f'mul i64 {words}, 8')}, i1 false)"
    )
    parallel, count = emit_pointer(code, _Word.PARALLEL), code.let("trunc i64 %threads to i32")
    code.do(f"br i1 {code.let('icmp eq i64 %threads, 1')}, label %alone, label %team")
    code.label("alone")
    for name in (_RANGE, _QUANTIZE):
        code.do(f"call void @{name}(ptr {own})")
    code.do("ret i32 0")
    code.label("team")
    for name in (_RANGE, _QUANTIZE):
        code.do(f"call void {parallel}(ptr @{name}, ptr {own}, i32 {count}, i32 0)")
    code.do("ret i32 0")
    return f"define i32 @{_ENTRY}(ptr %table, i64 %threads)", code


_EMITTERS = (_emit_range, _emit_quantize, _emit_entry)
_EMITTER = digest_of([Path(__file__).with_name(name) for name in ("dynamic_quantization.py", "team_code.py")])
"""Digest of the source files that write the module; empty if they cannot be read, as in a zip archive."""


def _build_module(target: TargetMachine) -> str:
    """Return the LLVM IR of the three functions."""
    return module_text([emit(target) for emit in _EMITTERS], target.attributes)


@cache
def _compile_entry(target: TargetMachine) -> int:
    """Return the address of the compiled function; the first call compiles or loads it."""
    return load_entry(_EMITTER, _ENTRY, partial(_build_module, target), target, _ENTRY)


def requests_dynamic_quantization(operation: Operation) -> bool:
    """Return whether an operation is a dynamic quantization of f32 that the machine code supports."""
    if operation.kind != "dynamic_quantization" or str(operation.descs["src"].data_type) != "f32":
        return False
    return _find_unsupported(operation, operation.descs["src"], _resolve_result(operation)) is None


def _resolve_result(operation: Operation) -> MemoryDesc:
    """Return the descriptor of the destination; `any` becomes the layout of the source."""
    src, dst = operation.descs["src"], operation.descs["dst"]
    if dst.kind == "any" and isinstance(src.layout, Layout):
        return MemoryDesc.from_layout(src.layout, "u8", dims=src.dims)
    return dst


def create_dynamic_quantization(
    operation: Operation, team: ThreadTeam, threads: int, target: TargetMachine | None = None
) -> PlainImplementation:
    """Create a dynamic quantization on up to `threads` threads of a team; tests pass a `target`.

    A destination `any` gets the layout of the source.

    Raises:
        Unimplemented: source and destination have other layouts, one that is not dense, or there are attributes.
    """
    src, dst = operation.descs["src"], _resolve_result(operation)
    why = _find_unsupported(operation, src, dst)
    if why is not None:
        raise Unimplemented(f"machine code does not quantize {why}")
    values = {"scale": MemoryDesc((1,), "f32"), "zero_point": MemoryDesc((1,), "s32")}
    descs = {"src": src, "dst": dst, **values}
    table = np.zeros(_Word.FIRST_SLOT + threads * _SLOT, np.int64)
    table[_Word.ELEMENTS], table[_Word.SLOTS] = prod(src.dims), threads
    table[[_Word.PARALLEL, _Word.THREAD_NUM, _Word.NUM_THREADS]] = team.parallel, team.thread_num, team.num_threads
    bind = partial(_bind, table, _compile_entry(target or host_target()))
    return PlainImplementation(operation, descs, "range:f32_u8", bind, is_batched=True)


def _find_unsupported(operation: Operation, src: MemoryDesc, dst: MemoryDesc) -> str | None:
    """Return the property of an operation that the machine code does not support; None if it supports all."""
    attributes = PrimitiveAttributes(scratchpad_mode=operation.attributes.scratchpad_mode)
    if operation.attributes != attributes:
        return "with attributes but a scratchpad mode"
    if not isinstance(src.layout, Layout) or MemoryDesc.from_layout(src.layout, "u8", dims=src.dims) != dst:
        return f"{src} to {dst}: both have one layout"
    if src.offset0 or dst.offset0 or src.padded_dims != src.dims or not src.is_dense or 0 in src.dims:
        return f"{src}: its elements follow one another, without padding"
    return None


def _bind(table: np.ndarray[Any, np.dtype[np.int64]], entry: int, memories: Mapping[str, Memory]) -> MachineCall:
    """Return the call that quantizes the elements of these memories once, and keeps them alive."""
    table = table.copy()
    for word, name in zip(_Word, ("src", "dst", "scale", "zero_point"), strict=False):
        table[word] = memories[name].address
    threads = min(int(table[_Word.SLOTS]), -(-int(table[_Word.ELEMENTS]) // _MOST_ALONE))
    return MachineCall(entry, address_of(table), threads, (table, dict(memories)))
