"""From two descriptors to a call: the stages run in a row, and the code they end in.

problem -> loop nest -> schedule -> kernel and table -> LLVM IR -> machine code
"""

import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from weakref import WeakValueDictionary

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.forks import RenewedLock
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.bound import bound_of
from inlay.reordering.buffer_pool import buffer_pool
from inlay.reordering.choice import BY_MODEL, UNMEASURED, Choice, Decision
from inlay.reordering.elements import LINE, address_bits
from inlay.reordering.emit import ENTRY, kernel_ir
from inlay.reordering.emit_panels import ENTRY as PANELS
from inlay.reordering.emit_panels import panels_ir
from inlay.reordering.habit import Habit
from inlay.reordering.kernel import Kernel
from inlay.reordering.linking import load_or_compile
from inlay.reordering.loaded_code import LoadedCode
from inlay.reordering.memory_levels import measure_slice, memory_model
from inlay.reordering.panels import panel_table
from inlay.reordering.planning import Plan, plan_reorder
from inlay.reordering.problem import ReorderProblem, reorder_problem
from inlay.reordering.store_trial import StoreTrial, is_contested
from inlay.reordering.target import Target, assembly_of, host_target, named_target
from inlay.reordering.threads import Task, allowed, parts_for, run_parts, small_parts_for
from inlay.reordering.tuned import remembered

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class MachineCode:
    """The machine code of a kernel, which stays loaded as long as this object is referred to."""

    entry: Callable[[int, int, int, int, int], None]
    """Source, destination, table, first tile, last tile (exclusive)."""
    address: int
    """Where it lies."""
    loaded: LoadedCode
    """What keeps it loaded."""


@dataclass(frozen=True, slots=True)
class CompiledReorder:
    """A reorder that is ready to run, as often as wanted and from several threads at once."""

    problem: ReorderProblem
    """What is moved."""
    plan: Plan | None
    """How; None where there is nothing to move."""
    code: MachineCode | None
    """The machine code of its kernel; None where there is nothing to move."""
    moved_bytes: int
    """The compulsory bytes: source elements read plus destination elements written, padding included."""
    starts: tuple[int, int]
    """From the start of each buffer to the coordinate of all zeros, in what the side's addresses count."""
    units: tuple[int, int] = (1, 1)
    """How many of these there are in a byte: 2 where 4-bit elements are taken one by one, else 1."""
    task: Task | None = None
    """What is called, with how many tiles; None where there is nothing to move."""
    parts: int = 1
    """On how many threads at most."""
    words: int = 0
    """The address of the kernel's table."""
    wants_lines: bool = False
    """Whether the destination has to begin at a cache line."""
    decision: Decision = UNMEASURED
    """Who decided how it is done."""
    habit: Habit | None = None
    """Whether calls are shared among threads where that is learnt; None where it is known."""
    trial: StoreTrial | None = None
    """Carries out calls, by this reorder or by one with other stores; None where the machine model decides."""

    def run(self, src_address: int, dst_address: int, table_address: int | None = None) -> None:
        """Move the tensor from the buffer at `src_address` to the one at `dst_address`.

        Both are addresses of the first byte of the buffer: the offsets of the descriptors are added here. They must
        be valid for the spans of the two layouts, and the spans must not overlap; nothing is checked. `table_address`
        is that of a copy of the table, after the addresses of values (see `computed`).

        Post-condition: the destination holds the data, zeros in its padding, and is unchanged elsewhere.
        """
        task = self.task
        if task is None:
            return
        if self.trial is not None and table_address is None:
            self.trial.run(src_address, dst_address)
            return
        (src_unit, dst_unit), (src_start, dst_start), habit = self.units, self.starts, self.habit
        src, dst = src_address * src_unit + src_start, dst_address * dst_unit + dst_start
        words = self.words if table_address is None else table_address
        if self.wants_lines and dst % LINE:
            if table_address is None:
                _unaligned(self.problem, self.decision).run(src_address, dst_address)
                return
            task = self._with_ordinary_stores()
        if habit is None:
            parts = self.parts
        elif habit.left > 0:
            habit.left -= 1
            parts = self.parts if habit.shares else 1
        else:
            self._try_out(habit, task, src, dst, words)
            return
        if parts > 1:
            parts = allowed(parts)
        if parts <= 1:
            task.entry(src, dst, words, 0, task.tiles)
        elif run_parts(task, src, dst, words, parts) and habit is not None:
            habit.doubt()

    def _try_out(self, habit: Habit, task: Task, src: int, dst: int, words: int) -> None:
        """A call of a trial."""
        began = time.perf_counter_ns()
        parts = allowed(self.parts) if habit.shares else 1
        if parts > 1:
            run_parts(task, src, dst, words, parts)
        else:
            task.entry(src, dst, words, 0, task.tiles)
        habit.took(began, time.perf_counter_ns() - began)

    def _with_ordinary_stores(self) -> Task:
        """The work for a destination that does not begin at a cache line, with the same table."""
        plan = self.plan
        assert plan is not None, "there is a task"
        code = machine_code(replace(plan.kernel, stores="cached"), host_target())
        return Task(code.entry, code.address, plan.table.tiles, plan.grain, kept=code)

    def explain(self, target: str | None = None) -> str:
        """Every stage in words, on this machine or on the one that is called `target`.

        The problem, its loops, the tile and the loops around it, what happens in the registers, and what bounds the
        reorder: how long the call, the bytes and the instructions should take.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        machine = named_target(target)
        if self.problem.is_empty:
            return f"problem\n{self.problem}\nnothing to move"
        decision = self.decision if target is None else UNMEASURED
        plan = plan_reorder(self.problem, machine, decision.choice)
        threads = min(parts_for(self.moved_bytes), decision.choice.threads or self.parts, plan.pieces)
        return explained(self.problem, plan, machine, threads, decision)

    def assembly(self, target: str | None = None) -> str:
        """The assembly of the kernel on this machine, or on the one that is called `target`.

        Any target's can be read on any machine: schedule and shuffles are chosen for the target.

        Raises:
            InvalidArguments: there is no target of that name.

        >>> r = compile_reorder(MemoryDesc((64, 64), "u8", "ab"), MemoryDesc((64, 64), "u8", "ba"))
        >>> "zip1" in r.assembly("aarch64-sve256"), "punpcklbw" in r.assembly("x86-64-v2")
        (True, True)
        """
        machine = named_target(target)
        if self.problem.is_empty:
            return ""
        choice = self.decision.choice if target is None else BY_MODEL
        return assembly_of(ir_of(plan_reorder(self.problem, machine, choice).kernel, machine), machine)


def compile_reorder(
    src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN, factor: float = 1.0
) -> CompiledReorder:
    """The reorder from memory described by `src` to memory described by `dst`, with what is computed on the way.

    Raises:
        InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
        Unimplemented: dims are RUNTIME, or LLVM knows no such processor.
        OutOfMemory: so much code is in use that no more is loaded; see `make_room`.
    """
    return _compiled(reorder_problem(src, dst, attributes, factor))


@lru_cache(maxsize=4096)
def _compiled(problem: ReorderProblem) -> CompiledReorder:
    decision = remembered(problem, host_target())
    if decision is not None:
        return compiled_as(problem, decision)
    reorder = compiled_as(problem, UNMEASURED)
    memory = memory_model()
    if problem.computes or not is_contested(problem.moved_bytes, memory):
        return reorder
    other = Decision(Choice(streams=problem.moved_bytes <= memory.last_level))
    return replace(reorder, trial=StoreTrial(reorder, lambda: compiled_as(problem, other)))


def copy_bytes(src: int, dst: int, nbytes: int, *, streams: bool, threads: int) -> None:
    """Copy between two addresses with ordinary or with streaming stores, as the machine model is measured."""
    _copy_of(nbytes, streams, threads).run(src, dst)


@lru_cache(maxsize=64)
def _copy_of(nbytes: int, streams: bool, threads: int) -> CompiledReorder:
    desc = MemoryDesc((nbytes,), "u8", "a")
    return compiled_as(reorder_problem(desc, desc), Decision(Choice(streams=streams, threads=threads)))


def forget() -> None:
    """Plan reorders anew when they are asked for next: what is remembered of them has changed."""
    _compiled.cache_clear()
    _unaligned.cache_clear()


def compiled_as(problem: ReorderProblem, decision: Decision) -> CompiledReorder:
    """The reorder that solves `problem` as was decided.

    Raises:
        Unimplemented: LLVM knows no such processor.
        OutOfMemory: as `compile_reorder`.
    """
    if problem.is_empty:
        return CompiledReorder(problem, None, None, 0, (0, 0))
    measure_slice(problem.moved_bytes, copy_bytes)
    return _ready(problem, plan_reorder(problem, host_target(), decision.choice), decision)


@lru_cache(maxsize=512)
def _unaligned(problem: ReorderProblem, decision: Decision) -> CompiledReorder:
    """The reorder for destinations that do not begin at a cache line: in panels, or with ordinary stores."""
    plan = plan_reorder(problem, host_target(), replace(decision.choice, panels=True))
    if plan.panels is None:
        plan = replace(plan, kernel=replace(plan.kernel, stores="cached"))
    return _ready(problem, plan, decision)


def _ready(problem: ReorderProblem, plan: Plan, decision: Decision) -> CompiledReorder:
    """The reorder with its machine code."""
    target, types = host_target(), (problem.src_type, problem.dst_type)
    code = machine_code(plan.kernel, target)
    offsets = (problem.src_offset, problem.dst_offset)
    units = [address_bits(t.name, plan.kernel.lanes) for t in types]
    starts = [offset * t.bits // unit for offset, t, unit in zip(offsets, types, units, strict=True)]
    task, words = _task_of(plan, code, types, target)
    # Two threads cannot both write to one byte.
    parts, learns = (1, False) if units[1] < 8 else _parts_of(problem.moved_bytes, decision.choice.threads)
    return CompiledReorder(
        problem=problem,
        plan=plan,
        code=code,
        moved_bytes=problem.moved_bytes,
        starts=(starts[0], starts[1]),
        units=(8 // units[0], 8 // units[1]),
        task=task,
        parts=min(parts, task.tiles // task.run),
        words=words,
        wants_lines=plan.kernel.stores != "cached",
        decision=decision,
        habit=Habit() if learns else None,
    )


def _stores_in_words(plan: Plan) -> str:
    return plan.kernel.stores if plan.panels is None else f"into a buffer, then streamed: {plan.panels}"


def _task_of(plan: Plan, code: MachineCode, types: tuple[DataType, DataType], target: Target) -> tuple[Task, int]:
    """Return what is called, and the address of its table: of a kernel, or of the code that fills panels with it."""
    if plan.panels is None:
        return Task(code.entry, code.address, plan.table.tiles, plan.grain, kept=code), plan.table.address
    sizes = (types[0].bits // 8, types[1].bits // 8)
    table = panel_table(plan.panels, code.address, plan.table, sizes, buffer_pool().words)
    driver = _panel_driver(target)
    return Task(driver.entry, driver.address, plan.pieces, kept=(driver, code, table)), table.address


@lru_cache(maxsize=8)
def _panel_driver(target: Target) -> MachineCode:
    """The code that runs both passes of panels, one for all kernels."""
    return code_of("panels", lambda: panels_ir(target.fence, target.pause, target.attributes), target, PANELS)


def _parts_of(moved_bytes: int, most: int | None) -> tuple[int, bool]:
    """On how many threads so many bytes are moved at most, and whether it is learnt if more than one pays."""
    small = small_parts_for(moved_bytes)
    if small > 1 and most is None:
        return small, True
    return parts_for(moved_bytes, sys.maxsize if most is None else most), False


def explained(
    problem: ReorderProblem, plan: Plan, target: Target, threads: int, decision: Decision = UNMEASURED
) -> str:
    """Every stage of `plan` in words, and what bounds it on `threads` threads of this machine."""
    bound = bound_of(problem, plan, target.vector_bytes, memory_model(), threads)
    sections = {
        "problem": problem,
        "loops": plan.schedule.nest,
        "schedule": f"{plan.schedule}\n  stores {_stores_in_words(plan)}\n  {decision}",
        "network": plan.kernel.network,
        "bound": bound,
    }
    return "\n".join(f"{name}\n{text}" for name, text in sections.items())


MOST_KERNELS = 1024
"""Kernels that stay loaded though nothing refers to them: those that were asked for last."""
_codes: WeakValueDictionary[tuple[Kernel, Target], MachineCode] = WeakValueDictionary()
_compiling = RenewedLock()


@lru_cache(maxsize=MOST_KERNELS)
def machine_code(kernel: Kernel, target: Target) -> MachineCode:
    """The code of `kernel`: from memory, from disk, or compiled now and kept in both.

    Post-condition: it stays loaded while the result is referred to; beside that, the last `MOST_KERNELS` do.
    """
    with _compiling:
        code = _codes.get((kernel, target))
        if code is None:
            code = _codes[kernel, target] = code_of(kernel, lambda: ir_of(kernel, target), target, ENTRY)
        return code


def ir_of(kernel: Kernel, target: Target) -> str:
    """The module of `kernel` for `target`."""
    return kernel_ir(kernel, target.fence, target.attributes, target.arithmetic)


def code_of(asked: object, module_text: Callable[[], str], target: Target, symbol: str) -> MachineCode:
    """The function `symbol` of a module that is called as kernels are; see `load_or_compile`."""
    loaded = load_or_compile(asked, module_text, target, symbol)
    (address,) = loaded.addresses
    return MachineCode(_FUNCTION(address), address, loaded)
