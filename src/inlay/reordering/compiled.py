"""A compiled reorder: the plan and machine code of a problem, its calls, and trials that choose between two variants.

    problem -> loop nest -> candidate schedules -> cost -> schedule -> kernel and table -> LLVM IR -> machine code

**Trials.** Two decisions depend on which processor uses the data between two calls, so only calls can show what is
faster:

    one thread or several        for a tensor that fits one core's cache (see `threads.choose_small_thread_count`)
    ordinary or streaming stores for a tensor near the size of the last-level cache (see `needs_store_trial`)

If no other code uses the data, a series of calls is up to 1.6 times as fast on two threads: each thread finds its part
in its own cache. But if the calling thread writes the source before each call or reads the result after it, the other
thread's part moves between caches, and the same reorder takes twice as long. Likewise, streaming stores keep other data
in the caches, and ordinary stores keep the result there for its next reader. So a trial compares the durations of the
calls, and also the times between calls; at least half of the gain of the calls must remain in the sum.

A trial belongs to one reorder. Its first calls run the first variant, so a program with few calls wakes no thread and
compiles nothing for the trial. Then some calls run the first variant and some the second, all timed. The faster one
runs for many calls, until the next trial.

    >>> trial = PairedTrial(None, lambda: None)
    >>> trial.calls_until_trial = 0
    >>> for i in range(2 * CALLS_PER_VARIANT):  # a call every ten microseconds, then every eight
    ...     trial.note(10_000 * i, 6_000) if i < CALLS_PER_VARIANT else trial.note(20_000 + 8_000 * i, 4_000)
    >>> trial.uses_second, trial.calls_until_trial == CALLS_AFTER_WIN
    (True, True)

**Values.** Compiled code finds the values of attributes through addresses in the words before its table. Each call
builds its own argument block,

    addresses of values | table | values of one step | values of the next ...

so that concurrent calls are independent. Values are in the working type. There are as many as the tiles access: results
for elements beyond the tensor are discarded, but their values must be readable.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from statistics import median
from typing import Any, Protocol

import numpy as np

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.machine import MemoryModel
from inlay.reordering.attributes import PLAIN, Attributes, Operands
from inlay.reordering.choice import UNMEASURED, Choice, Decision, load_decision
from inlay.reordering.compensation import Compensation, build_compensation, without_extras
from inlay.reordering.conversion import LINE, address_bits
from inlay.reordering.kernel import Words, greatest_value_indices
from inlay.reordering.line_split import split_at_lines
from inlay.reordering.machine_code import ir_of, machine_code
from inlay.reordering.memory_levels import measure_slice, memory_model
from inlay.reordering.panels import PanelKernel, buffer_pool, build_panel_table
from inlay.reordering.planning import ReorderPlan, estimate_roofline, plan_reorder
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from inlay.reordering.requirements import require_extras
from inlay.reordering.target import TargetMachine, assembly_of, host_target, named_target
from inlay.reordering.threads import Task, cap_thread_count, choose_small_thread_count, choose_thread_count, run_parts

CALLS_PER_VARIANT = 10
"""Number of calls of each variant in a trial."""
CALLS_BEFORE_TRIAL, CALLS_AFTER_WIN = 24, 1000
"""Number of calls before the first trial, and after a trial that the second variant won."""
CALLS_AFTER_LOSS, MOST_CALLS_AFTER_LOSS = 250, 4000
"""Number of calls after a trial that the second variant lost, and the limit of its doubling with each further loss in a
row. A trial may be disturbed, so it is repeated; it costs as much as some ten calls."""
_SETTLING = 4  # first calls of a variant, whose times are ignored: their cache lines move between caches
_GAIN = 0.95  # the second variant wins if it takes at most this share of the time of the first
_SHOWN = 0.5  # least share of the calls' gain that must also be gained in the time from call to call
_FAR = 4  # multiples of the last-level cache from which streaming stores are always faster


def needs_store_trial(moved_bytes: int, memory: MemoryModel) -> bool:
    """Return whether a tensor is so near the size of the last-level cache that a trial decides the kind of stores.

    >>> memory = MemoryModel(l2=1 << 20, last_level=32 << 20, streaming_from=8 << 20)
    >>> [needs_store_trial(size << 20, memory) for size in (4, 16, 100, 200)]
    [False, True, True, False]
    """
    return memory.streaming_from <= moved_bytes < _FAR * memory.last_level


class ReorderVariant(Protocol):
    """The interface of a variant that a trial runs."""

    def move(self, src_address: int, dst_address: int, table: int | None) -> bool:
        """Move the elements; return whether a worker thread had to be woken."""


class PairedTrial:
    """Two variants of a reorder, and the state of their comparison.

    Threads may use it concurrently without a lock: an inexact count does no harm.
    """

    __slots__ = ("_calls_after_loss", "_first", "_shares", "_times", "calls_until_trial", "second", "uses_second")

    def __init__(
        self, first: ReorderVariant, make_second: Callable[[], ReorderVariant], *, shares: bool = False
    ) -> None:
        """Start with calls of the first variant, until the first trial.

        Args:
            first: the variant that is better without further knowledge.
            make_second: returns the second variant; called at its first use.
            shares: True if the second variant uses several threads and the first does not.
        """
        self._first, self._shares = first, shares
        self.second = cache(make_second)
        """Returns the second variant."""
        self.uses_second = False
        """True if the next call runs the second variant."""
        self.calls_until_trial = CALLS_BEFORE_TRIAL
        """Number of calls until the next trial; 0 during a trial, whose calls are timed."""
        self._times: list[tuple[int, int]] = []
        self._calls_after_loss = CALLS_AFTER_LOSS

    def run(self, src_address: int, dst_address: int, table: int | None) -> None:
        """Run one call of the current variant, timed during a trial."""
        variant = self.second() if self.uses_second else self._first
        if self.calls_until_trial > 0:
            self.calls_until_trial -= 1
            if variant.move(src_address, dst_address, table) and self._shares:
                self.restart()
            return
        begin = time.perf_counter_ns()
        variant.move(src_address, dst_address, table)
        self.note(begin, time.perf_counter_ns() - begin)

    def note(self, begin: int, nanoseconds: int) -> None:
        """Record start and duration of a call of a trial; after the last one, choose the variant."""
        times = self._times
        times.append((begin, nanoseconds))
        self.uses_second = len(times) >= CALLS_PER_VARIANT
        if len(times) >= 2 * CALLS_PER_VARIANT:
            self.uses_second = is_faster(times[_SETTLING:CALLS_PER_VARIANT], times[CALLS_PER_VARIANT + _SETTLING :])
            self.calls_until_trial, self._times = CALLS_AFTER_WIN if self.uses_second else self._calls_after_loss, []
            self._calls_after_loss = (
                CALLS_AFTER_LOSS if self.uses_second else min(2 * self._calls_after_loss, MOST_CALLS_AFTER_LOSS)
            )

    def restart(self) -> None:
        """Begin a trial at once: a worker was asleep, so calls no longer follow each other closely."""
        if self.calls_until_trial:
            self.uses_second, self.calls_until_trial, self._times = False, 0, []


def is_faster(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> bool:
    """Return whether the second variant is faster.

    Each argument has (start, duration) in nanoseconds of successive calls of a variant.

    >>> first = [(0, 6), (10, 6), (20, 6)]
    >>> is_faster(first, [(0, 4), (8, 4), (16, 4)])
    True
    >>> is_faster(first, [(0, 4), (12, 4), (24, 4)])  # the gain was lost between the calls
    False
    """
    duration = median(nanoseconds for _, nanoseconds in first)
    gain = duration - median(nanoseconds for _, nanoseconds in second)
    loss_between_calls = median(_between(second)) - median(_between(first))
    return gain > (1 - _GAIN) * duration and loss_between_calls < (1 - _SHOWN) * gain


def _between(times: list[tuple[int, int]]) -> list[int]:
    """Return the times from the end of each call to the start of the next, in nanoseconds."""
    return [following - begin - nanoseconds for (begin, nanoseconds), (following, _) in pairwise(times)]


_SPARE = 64
"""Number of values after the last: the load of a whole register may read them."""


@dataclass(frozen=True, slots=True)
class ValueSlot:
    """The position of the values of one step in an argument block."""

    step: str
    """Name of the step."""
    at: int
    """Position of the first value, in 64-bit words."""
    size: int
    """Number of values that fit."""
    preset: float
    """The value of entries that a call does not set."""


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentBlock:
    """The layout of the memory block in which the code of a call finds the values of attributes and its table."""

    size: int
    """Size of the block in 64-bit words."""
    table: int
    """Position of the table in words; as many addresses precede it."""
    head: Words
    """The words of the table."""
    slots: tuple[ValueSlot, ...]
    """The positions of the values of each step that has some."""
    number: np.dtype[Any]
    """The working type."""
    is_seeded: bool
    """True if the first word is the seed of stochastic rounding."""
    after: Words
    """For each address before the table, the offset of its target from the start of the block in bytes."""

    def fill(self, values: Operands, seed: int) -> Words:
        """Return a new block with the values of a call."""
        words = np.empty(self.size, np.int64)
        return self.fill_at(words, words.__array_interface__["data"][0], values, seed)

    def fill_at(self, words: Words, base: int, values: Operands, seed: int) -> Words:
        """Write the block to `words` for code that reads it at address `base`; return `words`."""
        words[: self.table] = self.after + base
        words[self.table : self.table + self.head.size] = self.head
        if self.is_seeded:
            words[0] = seed
        numbers = words.view(self.number)
        per_word = 8 // numbers.itemsize
        for slot in self.slots:
            slot_values = numbers[slot.at * per_word : slot.at * per_word + slot.size]
            operand = values.get(slot.step)
            count = 0 if operand is None else operand.size
            if operand is not None:
                slot_values[:count] = operand.ravel()
            slot_values[count:] = slot.preset
        return words


def build_argument_block(problem: ReorderProblem, plan: ReorderPlan) -> ArgumentBlock | None:
    """Build the layout of the argument block, with constant factors as presets; None if no formula is computed."""
    computation = plan.kernel.computation
    if computation is None:
        return None
    number = DATA_TYPES[computation.working].dtype
    greatest_index = greatest_value_indices(problem, plan.schedule)
    presets = {"sum": problem.attributes.sum or 0.0, "factor": problem.factor}
    count = len(computation.values)
    at, slots = count + plan.table.words.size, []
    for value in computation.values:
        if value.step != "stochastic":
            size = _SPARE + (0 if value.count is None else greatest_index[value.count]) + 1
            slots.append(ValueSlot(value.step, at, size + size % 2, presets.get(value.step, 1.0)))
            at += slots[-1].size * number.itemsize // 8
    is_seeded = len(slots) < count
    # The address of step k is k + 1 words before the table. Stochastic rounding is the last step; its word is the seed.
    after = np.array([0] * is_seeded + [8 * slot.at for slot in reversed(slots)], np.int64)
    return ArgumentBlock(at, count, plan.table.words, tuple(slots), number, is_seeded, after)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledReorder:
    """A reorder with its machine code, which can be called repeatedly and from several threads at once."""

    problem: ReorderProblem
    """The data to move and the formula to compute."""
    plan: ReorderPlan | None
    """The plan; None if there is nothing to move."""
    decision: Decision
    """The decision that tuning or the caller made about the plan."""
    task: Task | None = None
    """The kernel and its tiles; None if there is nothing to move."""
    table: int = 0
    """Address of the kernel's table."""
    starts: tuple[int, int] = (0, 0)
    """For each side, the offset of the coordinate of all zeros in the buffer, in the unit of the side's addresses."""
    units: tuple[int, int] = (1, 1)
    """For each side, address units per byte: 2 (nibbles) if 4-bit elements are accessed one at a time, else 1."""
    parts: int = 1
    """Maximum number of threads."""
    block: ArgumentBlock | None = None
    """Layout of the argument block of each call; None if no formula is computed."""
    unaligned: "Callable[[int], CompiledReorder | SplitReorder] | None" = None
    """Returns the reorder for destinations that begin so many bytes behind a cache line; None if this one supports
    them."""
    trial: PairedTrial | None = None
    """Runs the calls in one of two variants, if only calls can show which one is faster; None otherwise."""
    compensation: Compensation | None = None
    """Channel sums to write behind the elements of int8 weights; None for none."""

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Move the tensor from the buffer at `src_address` to the one at `dst_address`.

        Both are addresses of the first byte of the buffer: the offsets of the descriptors are added here. They must be
        valid for the spans of the two layouts, and the spans must not overlap; nothing is checked. `values` holds an
        array for each attribute, as `operands` returns them; `seed` is that of stochastic rounding.

        Post-condition: the destination holds the data, zeros in its padding, and is unchanged elsewhere.
        """
        block = self.block
        if block is None:
            self.move(src_address, dst_address)
        else:
            words = block.fill(values or {}, seed)
            self.move(src_address, dst_address, words.__array_interface__["data"][0] + 8 * block.table)
        if self.compensation is not None:
            self.compensation.write(dst_address)

    def move(self, src_address: int, dst_address: int, table: int | None = None) -> bool:
        """Move the elements alone; return whether a worker thread had to be woken.

        `table` is the address of the table in an argument block (see `ArgumentBlock`); None for the table without one.
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
            return self.unaligned(dst % LINE).move(src_address, dst_address, table)
        words, parts = self.table if table is None else table, self.parts
        if parts > 1:
            parts = cap_thread_count(parts)
        if parts > 1:
            return run_parts(task, src, dst, words, parts)
        task.entry(src, dst, words, 0, task.tiles)
        return False

    def direct_move(self) -> Callable[[int, int], object]:
        """Return `move` without a table; it looks nothing up in each call if no call can differ from another."""
        task, (src_start, dst_start) = self.task, self.starts
        varies = self.trial is not None or self.unaligned is not None or self.parts > 1 or self.units != (1, 1)
        if task is None or varies:
            return self.move
        entry, tiles = task.entry, task.tiles
        # The table is read from `self`, so that the function keeps the code and the table alive.
        return lambda src, dst: entry(src + src_start, dst + dst_start, self.table, 0, tiles)

    def explain(self, target: str | None = None) -> str:
        """Return every stage in words, on this machine or on the target of that name.

        The stages: the problem, its loops, the tile and the loops around it, the shuffles, and the roofline estimate:
        how long the call, the bytes and the instructions should take.

        Raises:
            InvalidArguments: there is no target of that name.
        """
        machine, decision = self._for_target(target)
        if self.problem.is_empty:
            return f"problem\n{self.problem}\nnothing to move"
        plan = plan_reorder(self.problem, machine, decision.choice)
        threads = min(choose_thread_count(self.problem.moved_bytes), decision.choice.threads or self.parts, plan.pieces)
        behind = "" if self.compensation is None else f"\nbehind the elements\n  {self.compensation}"
        return explain_plan(self.problem, plan, machine, threads, decision) + behind

    def assembly(self, target: str | None = None) -> str:
        """Return the assembly of the kernel on this machine, or on the target of that name.

        The assembly of any target can be generated on any machine: schedule and shuffles are chosen for the target.

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

    def _for_target(self, name: str | None) -> tuple[TargetMachine, Decision]:
        """Return the target and the decision for it; nothing was measured on another machine."""
        return named_target(name), self.decision if name is None else UNMEASURED


@dataclass(frozen=True, slots=True, eq=False)
class SplitReorder:
    """A reorder in parts, each of which writes other elements of the destination."""

    parts: tuple[CompiledReorder, ...]
    """The parts, which take the same addresses."""

    def move(self, src_address: int, dst_address: int, table: int | None = None) -> bool:
        """Move the elements of all parts; return whether a worker thread had to be woken."""
        woken = False
        for part in self.parts:
            woken |= part.move(src_address, dst_address, table)
        return woken


def compile_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> CompiledReorder:
    """Compile the reorder from memory described by `src` to memory described by `dst`, with attributes.

    Raises:
        InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
        Unimplemented: dims are RUNTIME, groups cut through blocks, extras are refused by `require_extras`, or LLVM
            does not support the processor.
        OutOfMemory: no more code can be loaded; see `make_room`.
    """
    if not dst.extras and src.extras.scale_adjust == 1:
        return compile_problem(build_reorder_problem(src, dst, attributes))
    require_extras(src, dst)
    factor = 1.0 if src.extras.scale_adjust == dst.extras.scale_adjust else dst.extras.scale_adjust
    problem = build_reorder_problem(without_extras(src), without_extras(dst), attributes, factor)
    return replace(compile_problem(problem), compensation=build_compensation(dst))


def compile_problem(problem: ReorderProblem, decision: Decision | None = None) -> CompiledReorder:
    """Compile the reorder that solves `problem`, by `decision`, else by the decision of tuning, else by the models.

    If neither decides what only calls can show, the reorder has a trial.

    Raises:
        Unimplemented: LLVM does not support the processor.
        OutOfMemory: as `compile_reorder`.
    """
    if problem.is_empty:
        return CompiledReorder(problem, None, decision or UNMEASURED)
    known = load_decision(problem, host_target()) if decision is None else decision
    measure_slice(problem.moved_bytes, CompiledCopies())
    reorder = _compile(problem, known or UNMEASURED)
    memory = memory_model()
    if known is not None or problem.computes or not needs_store_trial(problem.moved_bytes, memory):
        return reorder
    other = Decision(Choice(streams=problem.moved_bytes <= memory.last_level))
    return replace(reorder, trial=PairedTrial(reorder, lambda: compile_problem(problem, other)))


def _compile(problem: ReorderProblem, decision: Decision, *, aligned: bool = True) -> CompiledReorder:
    """Return the reorder with its code, for destinations that begin at a cache line; for all if not `aligned`."""
    target, types = host_target(), (problem.src_type, problem.dst_type)
    plan = plan_reorder(problem, target, decision.choice, aligned=aligned)
    units = [address_bits(t.name, plan.kernel.lanes) for t in types]
    offsets = zip((problem.src_offset, problem.dst_offset), types, units, strict=True)
    src_start, dst_start = (offset * t.bits // unit for offset, t, unit in offsets)
    task, table = _build_task(problem, plan, target)
    # 4-bit elements stored one at a time: two threads must not write to the same byte.
    parts, is_tried = (1, False) if units[1] < 8 else _thread_count(problem.moved_bytes, decision.choice.threads)
    parts = min(parts, task.tiles // task.grain)
    reorder = CompiledReorder(
        problem=problem,
        plan=plan,
        decision=decision,
        task=task,
        table=table,
        starts=(src_start, dst_start),
        units=(8 // units[0], 8 // units[1]),
        parts=parts,
        block=build_argument_block(problem, plan),
        unaligned=cache(partial(_compile_unaligned, problem, decision)) if plan.streams else None,
    )
    if not is_tried or parts < 2:
        return reorder
    return replace(reorder, trial=PairedTrial(replace(reorder, parts=1), lambda: reorder, shares=True))


def _compile_unaligned(problem: ReorderProblem, decision: Decision, distance: int) -> "CompiledReorder | SplitReorder":
    """Return the reorder for destinations that begin `distance` bytes behind a cache line."""
    split = split_at_lines(problem, distance)
    if split is None:
        return _compile(problem, decision, aligned=False)
    ends = (_compile(end, decision, aligned=False) for end in split.ends)
    return SplitReorder((_compile(split.lines, decision), *ends))


def _build_task(problem: ReorderProblem, plan: ReorderPlan, target: TargetMachine) -> tuple[Task, int]:
    """Return the task and the address of its table: a kernel, or the driver that fills panels with it."""
    code = machine_code(plan.kernel, target)
    if plan.panels is None:
        return Task(code.entry, code.address, plan.table.tiles, plan.grain, keeps_alive=code), plan.table.address
    sizes = (problem.src_type.bits // 8, problem.dst_type.bits // 8)
    table = build_panel_table(plan.panels, code.address, plan.table, sizes, buffer_pool().words)
    driver = machine_code(PanelKernel(), target)
    return Task(driver.entry, driver.address, plan.pieces, keeps_alive=(driver, code, table)), table.address


def _thread_count(moved_bytes: int, most: int | None) -> tuple[int, bool]:
    """Return the maximum number of threads for a move, and whether a trial must compare it with one thread."""
    small = choose_small_thread_count(moved_bytes)
    if small > 1 and most is None:
        return small, True
    return choose_thread_count(moved_bytes, sys.maxsize if most is None else most), False


class CompiledCopies:
    """Copies between two addresses, with ordinary or streaming stores, by which the machine model is measured."""

    def __init__(self) -> None:
        """Start without compiled copies."""
        self._compiled: dict[tuple[int, bool, int], CompiledReorder] = {}

    def __call__(self, src: int, dst: int, nbytes: int, *, streams: bool, threads: int) -> None:
        """Copy `nbytes` from the address `src` to `dst`."""
        copy = self._compiled.get((nbytes, streams, threads))
        if copy is None:
            desc, choice = MemoryDesc((nbytes,), "u8", "a"), Choice(streams=streams, threads=threads)
            copy = compile_problem(build_reorder_problem(desc, desc), Decision(choice))
            self._compiled[nbytes, streams, threads] = copy
        copy.move(src, dst)


def explain_plan(
    problem: ReorderProblem, plan: ReorderPlan, target: TargetMachine, threads: int, decision: Decision = UNMEASURED
) -> str:
    """Return every stage of `plan` in words, with its roofline estimate on `threads` threads of this machine."""
    stores = plan.kernel.stores if plan.panels is None else f"into a buffer, then streamed: {plan.panels}"
    sections = {
        "problem": problem,
        "loops": plan.schedule.nest,
        "schedule": f"{plan.schedule}\n  stores {stores}\n  {decision}",
        "network": plan.kernel.network,
        "bound": estimate_roofline(problem, plan, target.vector_bytes, memory_model(), threads),
    }
    return "\n".join(f"{name}\n{text}" for name, text in sections.items())
