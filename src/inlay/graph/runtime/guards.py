"""The guards of a program: buffers that a run checks for NaN, infinities and very large numbers, and when.

Some algorithms, such as Winograd's convolution, turn NaN, infinities or very large numbers into other numbers. A run
whose guards find such an element is repeated with exact kernels, those of the direct algorithms.

    guards = build_guards(program, graph)       once, when the program is compiled
    guards.after["conv3"]                       buffers to check after this step

A check compares all elements with a bound in one pass of machine code. The bits of a float32 without the sign, read as
an integer, are ordered as magnitudes are, and those of infinity and NaN are greater than those of any number. So the
greatest of these integers decides:

>>> import numpy as np
>>> exceeds(np.array([1.0, -8.0], np.float32), 8.0), exceeds(np.array([1.0, np.nan], np.float32), 8.0)
(False, True)
"""

from collections.abc import Callable, Mapping
from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import numpy.typing as npt

from inlay.errors import Unimplemented
from inlay.graph.algorithms import algorithm_of
from inlay.graph.op_graph import OpGraph
from inlay.graph.passes.range_guards import MASKED, THRESHOLD, place_guards
from inlay.graph.program import Program
from inlay.memory.buffers import address_of
from inlay.primitives.engine import Engine, MemoryCheck
from inlay.reordering.target import TargetMachine, host_target, load_permanently

Floats = npt.NDArray[np.float32]


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
    sizes = {tensor: 4 * prod(graph.tensors[tensor].dims) for tensor in (*inputs, *written)}
    # An operation of a named algorithm, such as Winograd's, is not exact; direct ones are.
    inexact = {name for step in program.steps if step.operation and algorithm_of(step.operation) for name in step.ops}
    chosen = place_guards(graph, sizes, frozenset(inexact))
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
    """Return whether a run can check a buffer: all of its bytes are float32 elements, or padding, which is 0."""
    desc, tensor = program.buffers[name].desc, graph.tensors[program.buffers[name].tensor]
    if tensor.dtype != np.dtype(np.float32) or not prod(tensor.dims):
        return False
    return desc is None or (desc.offset0 == 0 and desc.size == 4 * prod(desc.padded_dims))


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


def guard(data: npt.NDArray[np.uint8], *, is_masked: bool = False) -> None:
    """Check the bytes of a buffer of float32.

    Raises:
        GuardFailed: an element is NaN, infinite, or over `THRESHOLD` in magnitude; if `is_masked`, negative elements
            may be of any magnitude.
    """
    elements = data.view(np.float32)
    fails = not elements.max() <= THRESHOLD if is_masked else exceeds(elements, THRESHOLD)
    if fails:
        raise GuardFailed


_SHARED = 1 << 14  # bytes from which on the threads of a team share a check


def batched_guard(engine: Engine, data: npt.NDArray[np.uint8]) -> MemoryCheck | None:
    """Return the check of a buffer in a form that `engine` executes between batched calls; None where it cannot."""
    found = scan_addresses(THRESHOLD) if engine.batches_checks else None
    if found is None:
        return None
    elements, team, threads = data.view(np.float32), engine.thread_team, engine.num_threads
    if team is None or threads < 2 or data.size < _SHARED:
        return MemoryCheck(found[0], address_of(elements), elements.size, GuardFailed, elements)
    words = address_of(elements), elements.size, team.parallel, team.thread_num, team.num_threads, 0
    table = np.array(words, np.int64)
    return MemoryCheck(found[1], address_of(table), threads, GuardFailed, (elements, table))


_SYMBOL = "inlay_exceeds"
_FUNCTION = CFUNCTYPE(c_int32, c_void_p, c_int64)
_LANES, _VECTORS = 16, 4
_UMAX = f"@llvm.umax.v{_LANES}i32"
_SIGN = 0x7FFF_FFFF
_WORDS = ("data", "count", "parallel", "thread_num", "num_threads", "found")
_LOADED = "\n".join(
    f"%{name}_at = getelementptr i64, ptr %table, i64 {i}\n%{name} = load {'i64' if name == 'count' else 'ptr'}, "
    f"ptr %{name}_at"
    for i, name in enumerate(_WORDS[:-1])
)
_TEAM = f"""
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
%mine = getelementptr float, ptr %data, i64 %begin
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


def exceeds(array: Floats, bound: float) -> bool:
    """Return whether an element of a dense array is NaN, infinite, or greater in magnitude than the finite `bound`."""
    function = _scan_function(bound)
    if function is None:
        words = array.reshape(-1).view(np.uint32) & np.uint32(_SIGN)
        return int(words.max(initial=0)) > _bits(bound)
    return bool(function(address_of(array), array.size))


@cache
def _scan_function(bound: float) -> Callable[[int, int], int] | None:
    """Return the first function of `scan_addresses` as a callable; None where there is no machine code."""
    found = scan_addresses(bound)
    return None if found is None else _FUNCTION(found[0])


@cache
def scan_addresses(bound: float) -> tuple[int, int] | None:
    """Return the addresses of two functions that compare floats with a bound; None where there is no machine code.

    Both return 1 if an element exceeds the bound, else 0. The first is `int32_t exceeds(const float *data, int64_t
    count)`. The second divides the elements among the threads of an OpenMP team, so that each reads what it mostly
    wrote: `int32_t exceeds_on_team(int64_t *table, int64_t threads)`. The table holds the address of the elements,
    their count, the addresses of three OpenMP functions, and a word for the result.
    """
    try:
        target = host_target()
    except Unimplemented:
        return None
    text = _module(target, _bits(bound))
    one, shared = load_permanently(text, lambda: text, target, _SYMBOL, f"{_SYMBOL}_on_team")
    return one, shared


def _bits(bound: float) -> int:
    """Return the bits of a float32 as an integer."""
    return int(np.float32(bound).view(np.uint32))


def _module(target: TargetMachine, bound: int) -> str:
    """Return the LLVM module of both functions.

    The first has a loop over blocks of four vectors, each with a running maximum, and a loop over the remaining
    elements.
    """
    vector, step = f"<{_LANES} x i32>", _LANES * _VECTORS
    parts = range(_VECTORS)
    lines = [f"define i32 @{_SYMBOL}(ptr %data, i64 %count) #0 {{", "entry:"]
    lines += [f"%blocks = and i64 %count, {-step}", "%is_any = icmp ne i64 %blocks, 0"]
    lines += ["br i1 %is_any, label %block, label %joined", "block:"]
    lines += ["%at = phi i64 [0, %entry], [%next, %block]"]
    lines += [f"%most{k} = phi {vector} [zeroinitializer, %entry], [%more{k}, %block]" for k in parts]
    for k in parts:
        lines += [f"%at{k} = add i64 %at, {k * _LANES}", f"%place{k} = getelementptr i32, ptr %data, i64 %at{k}"]
        lines += [f"%bits{k} = load {vector}, ptr %place{k}, align 4"]
        lines += [f"%size{k} = and {vector} %bits{k}, splat (i32 {_SIGN})"]
        lines += [f"%more{k} = call {vector} {_UMAX}({vector} %most{k}, {vector} %size{k})"]
    lines += [f"%next = add i64 %at, {step}", "%is_more = icmp ult i64 %next, %blocks"]
    lines += ["br i1 %is_more, label %block, label %joined", "joined:"]
    lines += [f"%all{k} = phi {vector} [zeroinitializer, %entry], [%more{k}, %block]" for k in parts]
    lines += [*_reduced(vector), *_rest(), f"%is_over = icmp ugt i32 %result, {bound}"]
    lines += ["%answer = zext i1 %is_over to i32", "ret i32 %answer", "}"]
    lines += [f"declare {vector} {_UMAX}({vector}, {vector})", "declare i32 @llvm.umax.i32(i32, i32)"]
    lines += [f"declare i32 @llvm.vector.reduce.umax.v{_LANES}i32({vector})"]
    return "\n".join([*lines, _TEAM, f"attributes #0 = {{ nounwind {target.attributes} }}\n"])


def _reduced(vector: str) -> list[str]:
    """Return the instructions that reduce the four running maxima to the greatest element."""
    return [
        f"%low = call {vector} {_UMAX}({vector} %all0, {vector} %all1)",
        f"%high = call {vector} {_UMAX}({vector} %all2, {vector} %all3)",
        f"%both = call {vector} {_UMAX}({vector} %low, {vector} %high)",
        f"%reduced = call i32 @llvm.vector.reduce.umax.v{_LANES}i32({vector} %both)",
    ]


def _rest() -> list[str]:
    """Return the loop over the elements after the last block."""
    return [
        "%has_rest = icmp ult i64 %blocks, %count",
        "br i1 %has_rest, label %single, label %exit",
        "single:",
        "%i = phi i64 [%blocks, %joined], [%i_next, %single]",
        "%so_far = phi i32 [%reduced, %joined], [%greater, %single]",
        "%one = getelementptr i32, ptr %data, i64 %i",
        "%word = load i32, ptr %one, align 4",
        f"%magnitude = and i32 %word, {_SIGN}",
        "%greater = call i32 @llvm.umax.i32(i32 %so_far, i32 %magnitude)",
        "%i_next = add i64 %i, 1",
        "%is_left = icmp ult i64 %i_next, %count",
        "br i1 %is_left, label %single, label %exit",
        "exit:",
        "%result = phi i32 [%reduced, %joined], [%greater, %single]",
    ]
