"""From two descriptors to a call: the stages run in a row, and the code they end in.

problem -> loop nest -> schedule -> kernel and table -> LLVM IR -> machine code
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from inlay.descriptor import MemoryDesc
from inlay.layout import Map
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.bound import bound_of
from inlay.reordering.caches import cache_sizes
from inlay.reordering.choice import BY_MODEL, UNMEASURED, Choice, Decision
from inlay.reordering.elements import LINE, address_bits, bits_of
from inlay.reordering.emit import ENTRY, kernel_ir
from inlay.reordering.habit import Habit
from inlay.reordering.kernel import STAGE_BYTES, Kernel, Stores, Table, begins_at_bytes, kernel_of, table_of
from inlay.reordering.linking import linked
from inlay.reordering.nest import loop_nest
from inlay.reordering.problem import ReorderProblem, reorder_problem
from inlay.reordering.schedule import Schedule, schedule
from inlay.reordering.target import Target, assembly_of, host_target, named_target
from inlay.reordering.threads import Task, allowed, parts_for, run_parts, small_parts_for
from inlay.reordering.tuned import remembered
from inlay.reordering.walk import Traffic, bytes_ahead, goes_in_streams, level_of

_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
# Past the caches, where elements of 2 bytes and more wait for memory and not for masks, bytes that are written again
# cost what they cost the first time. Measured: 11 % are worth it, 16 and 23 are not.
_MOST_REWRITTEN = 1 / 8
_MANY_RUNS = 64  # as many can be dealt out to threads evenly enough without being cut


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The machine code of a kernel."""

    entry: Callable[[int, int, int, int, int], None]
    """Source, destination, table, first tile, last tile (exclusive)."""
    address: int
    """Where it lies."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a problem is solved on a target: everything but the machine code."""

    schedule: Schedule
    """The tile and the loops around it."""
    kernel: Kernel
    """The code that it needs."""
    table: Table
    """Its numbers."""

    @property
    def grain(self) -> int:
        """How many tiles stay together on one thread: a whole run where runs are many, or where one fills a buffer."""
        shares_bytes = bits_of(self.kernel.dst_type) < 8
        is_whole = shares_bytes or self.kernel.stores == "staged" or self.table.tiles >= _MANY_RUNS * self.table.run
        return self.table.run if is_whole else 1


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
        (src_unit, dst_unit), (src_start, dst_start), habit = self.units, self.starts, self.habit
        src, dst = src_address * src_unit + src_start, dst_address * dst_unit + dst_start
        words = self.words if table_address is None else table_address
        if self.wants_lines and dst % LINE:
            task = self._unaligned()
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

    def _unaligned(self) -> Task:
        """The work for a destination that does not begin at a cache line."""
        plan = self.plan
        assert plan is not None, "there is a task"
        code = machine_code(replace(plan.kernel, stores="cached"), host_target())
        return Task(code.entry, code.address, plan.table.tiles, plan.grain)

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
        plan = planned(self.problem, machine, decision.choice)
        threads = min(parts_for(self.moved_bytes), decision.choice.threads or self.parts, plan.schedule.tiles)
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
        return assembly_of(ir_of(planned(self.problem, machine, choice).kernel, machine), machine)


def compile_reorder(
    src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN, factor: float = 1.0
) -> CompiledReorder:
    """The reorder from memory described by `src` to memory described by `dst`, with what is computed on the way.

    Raises:
        InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
        Unimplemented: dims are RUNTIME, or LLVM knows no such processor.
    """
    return _compiled(reorder_problem(src, dst, attributes, factor))


@lru_cache(maxsize=4096)
def _compiled(problem: ReorderProblem) -> CompiledReorder:
    return compiled_as(problem, remembered(problem, host_target()) or UNMEASURED)


def forget() -> None:
    """Plan reorders anew when they are asked for next: what is remembered of them has changed."""
    _compiled.cache_clear()


def compiled_as(problem: ReorderProblem, decision: Decision) -> CompiledReorder:
    """The reorder that solves `problem` as was decided.

    Raises:
        Unimplemented: LLVM knows no such processor.
    """
    types = (problem.src_type, problem.dst_type)
    if problem.is_empty:
        return CompiledReorder(problem, None, None, 0, (0, 0))
    target = host_target()
    plan = planned(problem, target, decision.choice)
    code = machine_code(plan.kernel, target)
    offsets = (problem.src_offset, problem.dst_offset)
    units = [address_bits(t.name, plan.kernel.lanes) for t in types]
    starts = [offset * t.bits // unit for offset, t, unit in zip(offsets, types, units, strict=True)]
    task = Task(code.entry, code.address, plan.table.tiles, plan.grain)
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
        words=plan.table.address,
        wants_lines=plan.kernel.stores != "cached",
        decision=decision,
        habit=Habit() if learns else None,
    )


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
    bound = bound_of(problem, plan.schedule, plan.kernel, target.vector_bytes, cache_sizes(), threads)
    sections = {
        "problem": problem,
        "loops": plan.schedule.nest,
        "schedule": f"{plan.schedule}\n  stores {plan.kernel.stores}\n  {decision}",
        "network": plan.kernel.network,
        "bound": bound,
    }
    return "\n".join(f"{name}\n{text}" for name, text in sections.items())


def planned(problem: ReorderProblem, target: Target, choice: Choice = BY_MODEL) -> Plan:
    """The plan of `problem`, which is not empty, on `target`, with the caches of this machine.

    What `choice` leaves open is decided by the models of the stages.
    """
    types = (problem.src_type, problem.dst_type)
    is_sum = problem.attributes.sum is not None
    # With a sum the formula runs last, on elements that were shuffled as the source has them.
    narrower = types[0].itemsize if is_sum else min(t.itemsize for t in types)
    converts = types[0] != types[1] or problem.computes
    nest, caches = loop_nest(problem), cache_sizes()
    suits = partial(begins_at_bytes, problem)
    moved = problem.moved_bytes
    level = level_of(moved, caches, choice.streams)
    traffic = Traffic(types[0].bits, types[1].bits, level)
    arranged = partial(
        schedule,
        nest,
        narrower,
        min(target.vector_bytes, choice.width or target.vector_bytes),
        converts=converts,
        shuffles=target.shuffles,
        traffic=traffic,
        suits=suits,
        choice=choice,
    )
    chosen = arranged(overlaps=may_overlap(problem))
    is_costly = traffic.streams and narrower > 1 and chosen.rewritten > _MOST_REWRITTEN
    if is_costly and _stores(problem, chosen, table_of(problem, chosen)) == "streamed":
        chosen = arranged()
    ahead = choice.ahead
    if ahead is None:
        ahead = bytes_ahead(chosen.nest.loops, chosen.outer, chosen.walk, traffic)
    table = table_of(problem, chosen, ahead)
    fetches = moved > caches.second if choice.ahead is None else choice.ahead != 0
    if choice.ahead is None and level == "L3" and _goes_in_streams(problem, chosen, table):
        fetches = False
    stores = _stores(problem, chosen, table) if traffic.streams and not is_sum else "cached"
    if chosen.overlaps and traffic.streams and stores == "cached":
        # Stores past the caches are worth more than whole tiles: they need a last tile that begins at a cache line.
        guarded = chosen.guarded()
        if (past := _stores(problem, guarded, table)) != "cached":
            chosen, table, stores = guarded, table_of(problem, guarded, ahead), past
    return Plan(chosen, kernel_of(problem, chosen, stores, fetches=fetches), table)


def _goes_in_streams(problem: ReorderProblem, chosen: Schedule, table: Table) -> bool:
    """Whether both sides are gone through in a few streams, which processors guess."""
    if not chosen.outer:
        return True
    inner, lanes = chosen.outer[-1], 1 << chosen.tile.lane_bits
    loop = chosen.nest.loops[inner.loop]
    sides = zip((problem.src_type, problem.dst_type), (loop.src, loop.dst), table.offsets[:2], strict=True)
    return all(
        goes_in_streams(offsets.ravel().tolist(), lanes * kind.bits // 8, _in_bytes(where, inner.step * kind.bits))
        for kind, where, offsets in sides
    )


def _in_bytes(where: Map, bits: int) -> Map:
    """Steps of so many bits times `where`, or the place that each value of a table is at."""
    return where * bits // 8 if isinstance(where, int) else tuple(place * bits // 8 for place in where)


def may_overlap(problem: ReorderProblem) -> bool:
    """Whether tiles may write some elements twice, on two threads at once even: the same bytes both times.

    Not where old elements are read, nor where elements share bytes; and nothing is left to chance.
    """
    attributes, types = problem.attributes, (problem.src_type, problem.dst_type)
    is_plain = attributes.sum is None and attributes.rounding_mode != "stochastic"
    return is_plain and not any(t.is_sub_byte for t in types)


def _stores(problem: ReorderProblem, chosen: Schedule, table: Table) -> Stores:
    """How a tensor larger than the caches is written, if its memory begins at a cache line.

    `table` is that of the schedule, or of one that differs in guards only.
    """
    if chosen.tile.lane_bits == 0:
        return "cached"
    bits = problem.dst_type.bits
    register = (bits << chosen.tile.lane_bits) // 8
    loops = chosen.nest.loops
    steps = [_is_lines(loops[o.loop].dst, o.step * bits) for o in chosen.outer]
    steps += [_is_lines(loops[o.loop].dst, o.back * bits) for o in chosen.outer if o.back]
    offsets = table.dst_offsets
    if register % LINE == 0 and all(steps) and not (offsets % LINE).any():
        return "streamed"
    stage = register * offsets.size
    is_cut = chosen.overlaps or any(guard.is_bound for guard in chosen.nest.guards)
    fills_it = chosen.outer and offsets.shape[0] == table.run and not is_cut
    if not fills_it or stage % LINE or stage > STAGE_BYTES or not all(steps[:-1]):
        return "cached"
    is_dense = sorted(offsets.ravel().tolist()) == list(range(0, stage, register))
    return "staged" if is_dense else "cached"


def _is_lines(where: Map, bits: int) -> bool:
    """Whether steps of so many bits times `where`, or times each place of a table, go from line to line."""
    if isinstance(where, int):
        return where * bits // 8 % LINE == 0
    return all(place * bits // 8 % LINE == 0 for place in where)


_codes: dict[tuple[Kernel, Target], MachineCode] = {}
_compiling = threading.Lock()


def _unlock() -> None:
    """In a forked child nobody is left who could end a compilation that another thread had begun."""
    global _compiling
    _compiling = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


def machine_code(kernel: Kernel, target: Target) -> MachineCode:
    """The code of `kernel`: from memory, from disk, or compiled now and kept in both."""
    asked = (kernel, target)
    code = _codes.get(asked)
    if code is None:
        with _compiling:
            code = _codes.get(asked) or _codes.setdefault(asked, _made(kernel, target))
    return code


def ir_of(kernel: Kernel, target: Target) -> str:
    """The module of `kernel` for `target`."""
    return kernel_ir(kernel, target.fence, target.attributes, target.arithmetic)


def _made(kernel: Kernel, target: Target) -> MachineCode:
    (address,) = linked(kernel, lambda: ir_of(kernel, target), target, ENTRY)
    return MachineCode(_FUNCTION(address), address)
