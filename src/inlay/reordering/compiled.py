"""A compiled reorder: the plan and the machine code of a problem, and its calls.

problem -> loop nest -> candidate schedules -> cost -> schedule -> kernel and table -> LLVM IR -> machine code
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from inlay.descriptor import MemoryDesc
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.bound import bound_of
from inlay.reordering.buffer_pool import buffer_pool
from inlay.reordering.choice import UNMEASURED, Choice, Decision
from inlay.reordering.compensated import Compensation, compensation_of, require_extras, without_extras
from inlay.reordering.computed import Block, block_of
from inlay.reordering.elements import LINE, address_bits
from inlay.reordering.emit_panels import PanelKernel
from inlay.reordering.machine_code import ir_of, machine_code
from inlay.reordering.memory_levels import measure_slice, memory_model
from inlay.reordering.operands import Operands
from inlay.reordering.panels import panel_table
from inlay.reordering.planning import Plan, plan_reorder
from inlay.reordering.problem import ReorderProblem, reorder_problem
from inlay.reordering.target import Target, assembly_of, host_target, named_target
from inlay.reordering.threads import Task, allowed, parts_for, run_parts, small_parts_for
from inlay.reordering.trial import Trial, is_contested
from inlay.reordering.tuned import remembered


@dataclass(frozen=True, slots=True, eq=False)
class CompiledReorder:
    """A reorder that is ready to run, as often as wanted and from several threads at once."""

    problem: ReorderProblem
    """What is moved and computed."""
    plan: Plan | None
    """How; None where there is nothing to move."""
    decision: Decision
    """Who decided how it is done."""
    task: Task | None = None
    """What is called, with how many tiles; None where there is nothing to move."""
    table: int = 0
    """The address of the kernel's table."""
    starts: tuple[int, int] = (0, 0)
    """From the start of each buffer to the coordinate of all zeros, in what the side's addresses count."""
    units: tuple[int, int] = (1, 1)
    """How many of these there are in a byte: 2 where 4-bit elements are taken one by one, else 1."""
    parts: int = 1
    """On how many threads at most."""
    block: Block | None = None
    """What values of attributes are given in with each call; None where nothing is computed."""
    unaligned: "Callable[[], CompiledReorder] | None" = None
    """Returns the reorder for destinations that do not begin at a cache line; None where this one is for them too."""
    trial: Trial | None = None
    """Runs the calls, in one of two variants, where calls have to show which is faster; None where that is known."""
    compensation: Compensation | None = None
    """What is written behind the elements of int8 weights; None for nothing."""

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Move the tensor from the buffer at `src_address` to the one at `dst_address`.

        Both are addresses of the first byte of the buffer: the offsets of the descriptors are added here. They must
        be valid for the spans of the two layouts, and the spans must not overlap; nothing is checked. `values` are
        those of each attribute, as `operands` gives them; `seed` is that of stochastic rounding.

        Post-condition: the destination holds the data, zeros in its padding, and is unchanged elsewhere.
        """
        block = self.block
        if block is None:
            self.move(src_address, dst_address)
        else:
            words = block.filled(values or {}, seed)
            self.move(src_address, dst_address, words.__array_interface__["data"][0] + 8 * block.table)
        if self.compensation is not None:
            self.compensation.write(dst_address)

    def move(self, src_address: int, dst_address: int, table: int | None = None) -> bool:
        """Move the elements alone; return whether a thread had to be woken.

        `table` is the address of a copy of the table, behind the addresses of values (see `computed`).
        """
        task = self.task
        if task is None:
            return False
        if self.trial is not None:
            self.trial.run(src_address, dst_address, table)
            return False
        (src_unit, dst_unit), (src_start, dst_start) = self.units, self.starts
        src, dst = src_address * src_unit + src_start, dst_address * dst_unit + dst_start
        if self.unaligned is not None and dst % LINE:
            return self.unaligned().move(src_address, dst_address, table)
        words, parts = self.table if table is None else table, self.parts
        if parts > 1:
            parts = allowed(parts)
        if parts > 1:
            return run_parts(task, src, dst, words, parts)
        task.entry(src, dst, words, 0, task.tiles)
        return False

    def explain(self, target: str | None = None) -> str:
        """Every stage in words, on this machine or on the one that is called `target`.

        The problem, its loops, the tile and the loops around it, what happens in the registers, and what bounds the
        reorder: how long the call, the bytes and the instructions should take.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        machine, decision = self._for_target(target)
        if self.problem.is_empty:
            return f"problem\n{self.problem}\nnothing to move"
        plan = plan_reorder(self.problem, machine, decision.choice)
        threads = min(parts_for(self.problem.moved_bytes), decision.choice.threads or self.parts, plan.pieces)
        behind = "" if self.compensation is None else f"\nbehind the elements\n  {self.compensation}"
        return explained(self.problem, plan, machine, threads, decision) + behind

    def assembly(self, target: str | None = None) -> str:
        """The assembly of the kernel on this machine, or on the one that is called `target`.

        Any target's can be read on any machine: schedule and shuffles are chosen for the target.

        Raises:
            InvalidArguments: there is no target of that name.

        >>> r = compile_reorder(MemoryDesc((64, 64), "u8", "ab"), MemoryDesc((64, 64), "u8", "ba"))
        >>> "zip1" in r.assembly("aarch64-sve256"), "punpcklbw" in r.assembly("x86-64-v2")
        (True, True)
        """
        machine, decision = self._for_target(target)
        if self.problem.is_empty:
            return ""
        return assembly_of(ir_of(plan_reorder(self.problem, machine, decision.choice).kernel, machine), machine)

    def _for_target(self, name: str | None) -> tuple[Target, Decision]:
        """Return the target, and what was decided for it: nothing was measured on another machine."""
        return named_target(name), self.decision if name is None else UNMEASURED


def compile_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> CompiledReorder:
    """The reorder from memory described by `src` to memory described by `dst`, with what is computed on the way.

    Raises:
        InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
        Unimplemented: dims are RUNTIME, groups cut through blocks, extras are refused by `require_extras`, or LLVM
            knows no such processor.
        OutOfMemory: so much code is in use that no more is loaded; see `make_room`.
    """
    if not dst.extras and src.extras.scale_adjust == 1:
        return compile_problem(reorder_problem(src, dst, attributes))
    require_extras(src, dst)
    factor = 1.0 if src.extras.scale_adjust == dst.extras.scale_adjust else dst.extras.scale_adjust
    problem = reorder_problem(without_extras(src), without_extras(dst), attributes, factor)
    return replace(compile_problem(problem), compensation=compensation_of(dst))


def compile_problem(problem: ReorderProblem, decision: Decision | None = None) -> CompiledReorder:
    """The reorder that solves `problem` as was decided: by `decision`, else by tuning, else by the model.

    Where none says what only calls can show, the reorder has a trial.

    Raises:
        Unimplemented: LLVM knows no such processor.
        OutOfMemory: as `compile_reorder`.
    """
    if problem.is_empty:
        return CompiledReorder(problem, None, decision or UNMEASURED)
    known = remembered(problem, host_target()) if decision is None else decision
    measure_slice(problem.moved_bytes, Copies())
    reorder = _compiled(problem, known or UNMEASURED)
    memory = memory_model()
    if known is not None or problem.computes or not is_contested(problem.moved_bytes, memory):
        return reorder
    other = Decision(Choice(streams=problem.moved_bytes <= memory.last_level))
    return replace(reorder, trial=Trial(reorder, lambda: compile_problem(problem, other)))


def _compiled(problem: ReorderProblem, decision: Decision, *, aligned: bool = True) -> CompiledReorder:
    """The reorder with its code, for destinations that begin at a cache line, or for all if not `aligned`."""
    target, types = host_target(), (problem.src_type, problem.dst_type)
    plan = plan_reorder(problem, target, decision.choice, aligned=aligned)
    units = [address_bits(t.name, plan.kernel.lanes) for t in types]
    offsets = zip((problem.src_offset, problem.dst_offset), types, units, strict=True)
    src_start, dst_start = (offset * t.bits // unit for offset, t, unit in offsets)
    task, table = _task_of(problem, plan, target)
    # Two threads cannot both write to one byte.
    parts, is_tried = (1, False) if units[1] < 8 else _parts_of(problem.moved_bytes, decision.choice.threads)
    parts = min(parts, task.tiles // task.run)
    reorder = CompiledReorder(
        problem=problem,
        plan=plan,
        decision=decision,
        task=task,
        table=table,
        starts=(src_start, dst_start),
        units=(8 // units[0], 8 // units[1]),
        parts=parts,
        block=block_of(problem, plan),
        unaligned=cache(partial(_compiled, problem, decision, aligned=False)) if plan.streams else None,
    )
    if not is_tried or parts < 2:
        return reorder
    return replace(reorder, trial=Trial(replace(reorder, parts=1), lambda: reorder, shares=True))


def _task_of(problem: ReorderProblem, plan: Plan, target: Target) -> tuple[Task, int]:
    """Return what is called, and the address of its table: of a kernel, or of the code that fills panels with it."""
    code = machine_code(plan.kernel, target)
    if plan.panels is None:
        return Task(code.entry, code.address, plan.table.tiles, plan.grain, kept=code), plan.table.address
    sizes = (problem.src_type.bits // 8, problem.dst_type.bits // 8)
    table = panel_table(plan.panels, code.address, plan.table, sizes, buffer_pool().words)
    driver = machine_code(PanelKernel(), target)
    return Task(driver.entry, driver.address, plan.pieces, kept=(driver, code, table)), table.address


def _parts_of(moved_bytes: int, most: int | None) -> tuple[int, bool]:
    """On how many threads so many bytes are moved at most, and whether calls have to show if more than one pays."""
    small = small_parts_for(moved_bytes)
    if small > 1 and most is None:
        return small, True
    return parts_for(moved_bytes, sys.maxsize if most is None else most), False


class Copies:
    """Copies between two addresses with ordinary or with streaming stores, as the machine model is measured."""

    def __init__(self) -> None:
        """Nothing is compiled yet."""
        self._compiled: dict[tuple[int, bool, int], CompiledReorder] = {}

    def __call__(self, src: int, dst: int, nbytes: int, *, streams: bool, threads: int) -> None:
        """Copy `nbytes` from the address `src` to `dst`."""
        copy = self._compiled.get((nbytes, streams, threads))
        if copy is None:
            desc, choice = MemoryDesc((nbytes,), "u8", "a"), Choice(streams=streams, threads=threads)
            copy = compile_problem(reorder_problem(desc, desc), Decision(choice))
            self._compiled[nbytes, streams, threads] = copy
        copy.move(src, dst)


def explained(
    problem: ReorderProblem, plan: Plan, target: Target, threads: int, decision: Decision = UNMEASURED
) -> str:
    """Every stage of `plan` in words, and what bounds it on `threads` threads of this machine."""
    stores = plan.kernel.stores if plan.panels is None else f"into a buffer, then streamed: {plan.panels}"
    sections = {
        "problem": problem,
        "loops": plan.schedule.nest,
        "schedule": f"{plan.schedule}\n  stores {stores}\n  {decision}",
        "network": plan.kernel.network,
        "bound": bound_of(problem, plan, target.vector_bytes, memory_model(), threads),
    }
    return "\n".join(f"{name}\n{text}" for name, text in sections.items())
