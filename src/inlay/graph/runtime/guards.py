"""The guards of a program: buffers that a run checks for NaN, infinities and very large numbers, and when.

Some algorithms, such as Winograd's convolution, turn NaN, infinities or very large numbers into other numbers. A run
whose guards find such an element is repeated with exact kernels, those of the direct algorithms.

    guards = build_guards(program, graph)       once, when the program is compiled
    guards.after["conv3"]                       buffers to check after this step

A check compares all elements with a bound in one pass of machine code. The bits of a float32, bfloat16 or float16
without the sign, read as an integer, are ordered as magnitudes are, and those of infinity and NaN are greater than
those of any number. So the greatest of these integers decides. Scores of attention may be minus infinity where they are
masked: of these, two maxima are compared, that of positive numbers and that of the bits of negative ones.

>>> import numpy as np
>>> exceeds(np.array([1.0, -8.0], np.float32), 8.0), exceeds(np.array([1.0, np.nan], np.float16), 8.0)
(False, True)
"""

from collections.abc import Callable, Mapping
from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from inlay.errors import Unimplemented
from inlay.graph.algorithms import algorithm_of
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array, OpGraph
from inlay.graph.passes.range_guards import MASKED, THRESHOLD, place_guards
from inlay.graph.program import Buffer, Program
from inlay.memory.buffers import address_of
from inlay.primitives.engine import Engine, MachineCall
from inlay.reordering.target import TargetMachine, host_target, load_permanently

Floats: TypeAlias = Array
"""An array of float32, bfloat16 or float16."""
_SCANNED = frozenset(("f32", "bf16", "f16"))


class GuardFailed(Exception):
    """A guarded tensor holds NaN, an infinity or a very large number: exact kernels have to repeat this run."""


@dataclass(frozen=True, slots=True)
class RunGuards:
    """The buffers that a run checks."""

    inputs: tuple[str, ...] = ()
    """Buffers of inputs, which are checked before the first step."""
    after: Mapping[str, tuple[str, ...]] | None = None
    """For each step, the buffers to check after it. None in place of the mapping: see `UNGUARDABLE`."""
    masked: frozenset[str] = frozenset()
    """Checked buffers that may hold minus infinity, as masks of attention do."""


NO_GUARDS = RunGuards(after={})
"""The guards of a program whose kernels are exact: none."""
UNGUARDABLE = RunGuards()
"""The guards of a program for which no set of guards suffices: exact kernels compute every run."""


def build_guards(program: Program, graph: OpGraph) -> RunGuards:
    """Return the guards that ensure that `program`, which computes `graph`, loses no NaN and no infinity."""
    inputs = {tensor: name for tensor, name in program.inputs.items() if can_scan(program, graph, name)}
    written: dict[str, tuple[str, str]] = {}
    for step in program.steps:
        for name in step.writes.values():
            tensor = program.buffers[name].tensor
            if tensor not in program.inputs and can_scan(program, graph, name):
                written.setdefault(tensor, (step.name, name))
    scanned = {**inputs, **{tensor: name for tensor, (_, name) in written.items()}}
    widths = {tensor: stored_dtype(program.buffers[name], graph.tensors).itemsize for tensor, name in scanned.items()}
    sizes = {tensor: width * prod(graph.tensors[tensor].dims) for tensor, width in widths.items()}
    # An operation of a named algorithm, such as Winograd's, is not exact; direct ones are.
    inexact = {name for step in program.steps if step.operation and algorithm_of(step.operation) for name in step.ops}
    chosen = place_guards(graph, sizes, frozenset(inexact), _stored_types(program, graph))
    if chosen is None:
        return UNGUARDABLE
    after: dict[str, tuple[str, ...]] = {}
    for tensor in sorted(chosen.keys() & written.keys()):
        step_name, name = written[tensor]
        after[step_name] = (*after.get(step_name, ()), name)
    first = {tensor: name for tensor, name in inputs.items() if tensor in chosen}
    buffers = first | {tensor: name for tensor, (_, name) in written.items()}
    masked = frozenset(buffers[tensor] for tensor, value_range in chosen.items() if value_range == MASKED)
    return RunGuards(tuple(first.values()), after, masked)


def can_scan(program: Program, graph: OpGraph, name: str) -> bool:
    """Return whether a run can check a buffer: all of its bytes are elements of a scanned type, or padding, which is 0.

    These types are float32, bfloat16 and float16.
    """
    desc, tensor = program.buffers[name].desc, graph.tensors[program.buffers[name].tensor]
    if desc is None:
        return tensor.dtype == np.dtype(np.float32) and bool(prod(tensor.dims))
    if desc.data_type is None or desc.data_type.name not in _SCANNED or not prod(tensor.dims):
        return False
    return desc.offset0 == 0 and desc.size == desc.data_type.itemsize * prod(desc.padded_dims)


def stored_dtype(buffer: Buffer, tensors: Mapping[str, Tensor]) -> np.dtype[Any]:
    """Return the type of the elements of a buffer, which may be narrower than that of its tensor."""
    data_type = None if buffer.desc is None else buffer.desc.data_type
    return tensors[buffer.tensor].dtype if data_type is None else data_type.dtype


def _stored_types(program: Program, graph: OpGraph) -> dict[str, np.dtype[Any]]:
    """Return the type of the smallest range in which a program stores each tensor that it stores in a narrow type."""
    found: dict[str, np.dtype[Any]] = {}
    for buffer in program.buffers.values():
        dtype = stored_dtype(buffer, graph.tensors)
        if dtype != graph.tensors[buffer.tensor].dtype and found.get(buffer.tensor) != np.float16:
            found[buffer.tensor] = dtype
    return found


_MOST_FAILURES = 2  # failed runs in a row after which most runs begin with exact kernels
_SKIPPED = 16  # from then on, one of so many runs checks its guards


class GuardHistory:
    """The outcome of recent runs: after repeated failures of guards, runs begin with exact kernels."""

    __slots__ = ("_failures", "_skipped")

    def __init__(self) -> None:
        """Begin without runs."""
        self._failures = 0
        self._skipped = 0

    def is_exact_next(self, guards: RunGuards) -> bool:
        """Return whether exact kernels compute the next run from its beginning, and count that run."""
        if guards.after is None:
            return True
        if self._failures < _MOST_FAILURES:
            return False
        self._skipped = (self._skipped + 1) % _SKIPPED
        return self._skipped != 0

    def note(self, *, failed: bool) -> None:
        """Record the outcome of a run whose guards were checked."""
        self._failures = self._failures + 1 if failed else 0


def guard(elements: Floats, *, is_masked: bool = False) -> None:
    """Check the elements of a buffer, padding included.

    Raises:
        GuardFailed: an element is NaN, infinite, or over `THRESHOLD` in magnitude; if `is_masked`, negative elements
            may be of any magnitude.
    """
    if exceeds(elements, _bound_of(elements.dtype), is_masked=is_masked):
        raise GuardFailed


def _bound_of(dtype: np.dtype[Any]) -> float:
    """Return the largest magnitude that a guard accepts: `THRESHOLD`, or the largest number of the type if smaller."""
    return min(THRESHOLD, float(ml_dtypes.finfo(dtype).max))  # type: ignore[no-untyped-call]


_SHARED = 1 << 14  # bytes from which on the threads of a team share a check


def batched_guard(engine: Engine, elements: Floats, *, is_masked: bool = False) -> MachineCall | None:
    """Return the check of a buffer in a form that `engine` executes between batched calls; None where it cannot."""
    limits = _limits(_bound_of(elements.dtype), elements.dtype, is_masked)
    found = scan_addresses(limits, elements.itemsize) if engine.batches_machine_calls else None
    if found is None:
        return None
    team, threads = engine.thread_team, engine.num_threads
    if team is None or threads < 2 or elements.nbytes < _SHARED:
        return MachineCall(found[0], address_of(elements), elements.size, elements, GuardFailed)
    words = address_of(elements), elements.size, team.parallel, team.thread_num, team.num_threads, 0
    table = np.array(words, np.int64)
    return MachineCall(found[1], address_of(table), threads, (elements, table), GuardFailed)


_SYMBOL = "inlay_exceeds"
_FUNCTION = CFUNCTYPE(c_int32, c_void_p, c_int64)
_VECTOR_BYTES, _VECTORS = 64, 4
_WORDS = ("data", "count", "parallel", "thread_num", "num_threads", "found")
_LOADED = "\n".join(
    f"%{name}_at = getelementptr i64, ptr %table, i64 {i}\n%{name} = load {'i64' if name == 'count' else 'ptr'}, "
    f"ptr %{name}_at"
    for i, name in enumerate(_WORDS[:-1])
)


def _team_functions(word: str) -> str:
    """Return the second function of `scan_addresses`, and that of one thread, for elements of an integer type."""
    return f"""
define void @{_SYMBOL}_part(ptr %table) #0 {{
{_LOADED}
%thread32 = call i32 %thread_num()
%threads32 = call i32 %num_threads()
%thread = zext i32 %thread32 to i64
%threads = zext i32 %threads32 to i64
%after = add i64 %thread, 1
%first = mul i64 %count, %thread
%last = mul i64 %count, %after
%begin = udiv i64 %first, %threads
%end = udiv i64 %last, %threads
%size = sub i64 %end, %begin
%mine = getelementptr {word}, ptr %data, i64 %begin
%answer = call i32 @{_SYMBOL}(ptr %mine, i64 %size)
%is_over = icmp ne i32 %answer, 0
br i1 %is_over, label %over, label %done
over:
%found_at = getelementptr i64, ptr %table, i64 5
store i64 1, ptr %found_at
br label %done
done:
ret void
}}
define i32 @{_SYMBOL}_on_team(ptr %table, i64 %threads) #0 {{
{_LOADED}
%found_at = getelementptr i64, ptr %table, i64 5
store i64 0, ptr %found_at
%threads32 = trunc i64 %threads to i32
call void %parallel(ptr @{_SYMBOL}_part, ptr %table, i32 %threads32, i32 0)
%found = load i64, ptr %found_at
%answer = trunc i64 %found to i32
ret i32 %answer
}}
"""


def exceeds(array: Floats, bound: float, *, is_masked: bool = False) -> bool:
    """Return whether an element of a dense array is NaN, infinite, or greater in magnitude than the finite `bound`.

    If `is_masked`, negative elements may be of any magnitude, minus infinity included. The type of the array must have
    the number `bound`.
    """
    limits = _limits(bound, array.dtype, is_masked)
    function = _scan_function(limits, array.itemsize)
    if function is not None:
        return bool(function(address_of(array), array.size))
    if is_masked:
        return not array.astype(np.float32, copy=False).max(initial=-np.inf) <= bound
    words = array.reshape(-1).view(f"u{array.itemsize}")
    return int((words & _magnitude_bits(array.itemsize)).max(initial=0)) > limits.most


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """The bits of the numbers with which a scan compares elements."""

    most: int
    """Bits of the greatest accepted number."""
    least: int | None = None
    """Bits of minus infinity if negative numbers of any magnitude are accepted; None if `most` bounds magnitudes."""


def _limits(bound: float, dtype: np.dtype[Any], is_masked: bool) -> ScanLimits:
    """Return the limits of a scan of elements of a type."""
    return ScanLimits(_bits(bound, dtype), _bits(-np.inf, dtype) if is_masked else None)


def _bits(bound: float, dtype: np.dtype[Any]) -> int:
    """Return the bits of a number in a type of floating-point numbers."""
    return int(np.array(bound).astype(dtype).view(f"u{dtype.itemsize}"))


def _magnitude_bits(itemsize: int) -> int:
    """Return a word with all bits but that of the sign."""
    return (1 << (8 * itemsize - 1)) - 1


@cache
def _scan_function(limits: ScanLimits, itemsize: int) -> Callable[[int, int], int] | None:
    """Return the first function of `scan_addresses` as a callable; None where there is no machine code."""
    found = scan_addresses(limits, itemsize)
    return None if found is None else _FUNCTION(found[0])


@cache
def scan_addresses(limits: ScanLimits, itemsize: int) -> tuple[int, int] | None:
    """Return the addresses of two functions that compare floats with limits; None where there is no machine code.

    The floats have `itemsize` bytes. Both functions return 1 if an element is outside of the limits, else 0. The first
    is `int32_t exceeds(const void *data, int64_t count)`. The second divides the elements among the threads of an
    OpenMP team, so that each reads what it mostly wrote: `int32_t exceeds_on_team(int64_t *table, int64_t threads)`.
    The table holds the address of the elements, their count, the addresses of three OpenMP functions, and a word for
    the result.
    """
    try:
        target = host_target()
    except Unimplemented:
        return None
    text = _module(target, limits, itemsize)
    one, shared = load_permanently(text, lambda: text, target, _SYMBOL, f"{_SYMBOL}_on_team")
    return one, shared


@dataclass(frozen=True, slots=True)
class _Maximum:
    """A running maximum of a scan, of integers that begin with 0."""

    name: str
    """Name of its values in the module."""
    is_signed: bool
    """True if the integers are compared as signed ones, so that those of negative numbers are below 0."""
    mask: int
    """Bits of an element that are compared."""
    limit: int
    """Greatest accepted integer."""

    @property
    def operation(self) -> str:
        """The operation of LLVM: `umax` or `smax`."""
        return "smax" if self.is_signed else "umax"


def _maxima(limits: ScanLimits, itemsize: int) -> tuple[_Maximum, ...]:
    """Return the maxima that decide: the magnitudes, or the positive numbers and the bits of the negative ones."""
    if limits.least is None:
        return (_Maximum("size", False, _magnitude_bits(itemsize), limits.most),)
    everything = (1 << (8 * itemsize)) - 1
    return _Maximum("above", True, everything, limits.most), _Maximum("below", False, everything, limits.least)


def _module(target: TargetMachine, limits: ScanLimits, itemsize: int) -> str:
    """Return the LLVM module of both functions.

    The first has a loop over blocks of four vectors, each with its running maxima, and a loop over the remaining
    elements.
    """
    word, lanes, maxima = f"i{8 * itemsize}", _VECTOR_BYTES // itemsize, _maxima(limits, itemsize)
    vector, step = f"<{lanes} x {word}>", lanes * _VECTORS
    lines = [f"define i32 @{_SYMBOL}(ptr %data, i64 %count) #0 {{", "entry:"]
    lines += [f"%blocks = and i64 %count, {-step}", "%is_any = icmp ne i64 %blocks, 0"]
    lines += ["br i1 %is_any, label %block, label %joined", "block:"]
    lines += ["%at = phi i64 [0, %entry], [%next, %block]", *_block(vector, word, lanes, itemsize, maxima)]
    lines += [f"%next = add i64 %at, {step}", "%is_more = icmp ult i64 %next, %blocks"]
    lines += ["br i1 %is_more, label %block, label %joined", "joined:"]
    lines += [
        f"%{one.name}_all{k} = phi {vector} [zeroinitializer, %entry], [%{one.name}_next{k}, %block]"
        for one in maxima
        for k in range(_VECTORS)
    ]
    for one in maxima:
        lines += _reduced(one, vector, word, lanes)
    lines += [*_rest(word, itemsize, maxima), "ret i32 %answer", "}"]
    for operation in sorted({one.operation for one in maxima}):
        lines += [f"declare {vector} @llvm.{operation}.v{lanes}{word}({vector}, {vector})"]
        lines += [f"declare {word} @llvm.{operation}.{word}({word}, {word})"]
        lines += [f"declare {word} @llvm.vector.reduce.{operation}.v{lanes}{word}({vector})"]
    return "\n".join([*lines, _team_functions(word), f"attributes #0 = {{ nounwind {target.attributes} }}\n"])


def _block(vector: str, word: str, lanes: int, itemsize: int, maxima: tuple[_Maximum, ...]) -> list[str]:
    """Return the instructions that update the maxima of four vectors."""
    parts = range(_VECTORS)
    lines = [
        f"%{one.name}{k} = phi {vector} [zeroinitializer, %entry], [%{one.name}_next{k}, %block]"
        for one in maxima
        for k in parts
    ]
    for k in parts:
        lines += [f"%at{k} = add i64 %at, {k * lanes}", f"%place{k} = getelementptr {word}, ptr %data, i64 %at{k}"]
        lines += [f"%bits{k} = load {vector}, ptr %place{k}, align {itemsize}"]
        for one in maxima:
            name, function = one.name, f"@llvm.{one.operation}.v{lanes}{word}"
            lines += [f"%{name}_bits{k} = and {vector} %bits{k}, splat ({word} {one.mask})"]
            lines += [f"%{name}_next{k} = call {vector} {function}({vector} %{name}{k}, {vector} %{name}_bits{k})"]
    return lines


def _reduced(one: _Maximum, vector: str, word: str, lanes: int) -> list[str]:
    """Return the instructions that reduce four running maxima to the greatest element."""
    name, function = one.name, f"@llvm.{one.operation}.v{lanes}{word}"
    return [
        f"%{name}_low = call {vector} {function}({vector} %{name}_all0, {vector} %{name}_all1)",
        f"%{name}_high = call {vector} {function}({vector} %{name}_all2, {vector} %{name}_all3)",
        f"%{name}_both = call {vector} {function}({vector} %{name}_low, {vector} %{name}_high)",
        f"%{name}_reduced = call {word} @llvm.vector.reduce.{one.operation}.v{lanes}{word}({vector} %{name}_both)",
    ]


def _rest(word: str, itemsize: int, maxima: tuple[_Maximum, ...]) -> list[str]:
    """Return the loop over the elements after the last block, and the comparison with the limits."""
    lines = ["%has_rest = icmp ult i64 %blocks, %count", "br i1 %has_rest, label %single, label %exit", "single:"]
    lines += ["%i = phi i64 [%blocks, %joined], [%i_next, %single]"]
    lines += [f"%{m.name}_so_far = phi {word} [%{m.name}_reduced, %joined], [%{m.name}_more, %single]" for m in maxima]
    lines += [f"%one = getelementptr {word}, ptr %data, i64 %i", f"%element = load {word}, ptr %one, align {itemsize}"]
    for m in maxima:
        lines += [f"%{m.name}_of_one = and {word} %element, {m.mask}"]
        arguments = f"{word} %{m.name}_so_far, {word} %{m.name}_of_one"
        lines += [f"%{m.name}_more = call {word} @llvm.{m.operation}.{word}({arguments})"]
    lines += ["%i_next = add i64 %i, 1", "%is_left = icmp ult i64 %i_next, %count"]
    lines += ["br i1 %is_left, label %single, label %exit", "exit:"]
    lines += [f"%{m.name}_found = phi {word} [%{m.name}_reduced, %joined], [%{m.name}_more, %single]" for m in maxima]
    for m in maxima:
        predicate = "sgt" if m.is_signed else "ugt"
        lines += [f"%{m.name}_over = icmp {predicate} {word} %{m.name}_found, {m.limit}"]
    first, last = maxima[0].name, maxima[-1].name
    return [*lines, f"%is_over = or i1 %{first}_over, %{last}_over", "%answer = zext i1 %is_over to i32"]
