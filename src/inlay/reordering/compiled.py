"""A compiled reorder: the plan and the machine code of a problem, its calls, and what only calls show or bring.

    problem -> loop nest -> candidate schedules -> cost -> schedule -> kernel and table -> LLVM IR -> machine code

**Trials.** Two questions have no answer before the first call, because nobody knows who touches the data between two
calls:

    one thread or several        a tensor that fits the cache of one core (see `threads.choose_small_thread_count`)
    ordinary or streaming stores a tensor near the size of the last-level cache (see `needs_store_trial`)

A series of calls on data that nobody else touches is up to 1.6 times as fast on two threads: each finds its part in its
own cache. But where the calling thread wrote the source just before, or reads the result, the other thread's part
crosses from cache to cache, and the same move takes twice as long. Likewise streaming stores leave the caches to
others, and ordinary stores leave the result in a cache for whoever reads it next. So the time of the calls is compared,
and the time from call to call, which must show at least half of what the calls gain.

A trial counts the calls of one reorder. The first calls run the first variant: a program with a few moves wakes no
thread and compiles nothing for the trial. Then some calls run the first variant and some the second, all timed. The
faster one is kept for many calls, until the next trial.

    >>> trial = PairedTrial(None, lambda: None)
    >>> trial.calls_until_trial = 0
    >>> for i in range(2 * CALLS_PER_VARIANT):  # a call every ten microseconds, then every eight
    ...     trial.note(10_000 * i, 6_000) if i < CALLS_PER_VARIANT else trial.note(20_000 + 8_000 * i, 4_000)
    >>> trial.uses_second, trial.calls_until_trial == CALLS_AFTER_WIN
    (True, True)

**Values.** Compiled code finds the values of attributes through words that lie before its table. A call makes one block
of memory of its own,

    addresses of values | table | values of one step | values of the next ...

so calls from several threads do not meet. Values are in the working type, and as many as the tiles reach: what a tile
computes beyond the tensor is thrown away, but it must be readable.
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
from inlay.reordering.compensation import Compensation, build_compensation, require_extras, without_extras
from inlay.reordering.conversion import LINE, address_bits
from inlay.reordering.kernel import Words, greatest_value_indices
from inlay.reordering.machine_code import ir_of, machine_code
from inlay.reordering.memory_levels import measure_slice, memory_model
from inlay.reordering.panels import PanelKernel, buffer_pool, build_panel_table
from inlay.reordering.planning import ReorderPlan, estimate_roofline, plan_reorder
from inlay.reordering.problem import ReorderProblem, build_reorder_problem
from inlay.reordering.target import Target, assembly_of, host_target, named_target
from inlay.reordering.threads import Task, cap_thread_count, choose_small_thread_count, choose_thread_count, run_parts

CALLS_PER_VARIANT = 10
"""Calls of each variant in a trial."""
CALLS_BEFORE_TRIAL, CALLS_AFTER_WIN = 24, 1000
"""Calls before the first trial, and after one that the second variant won."""
CALLS_AFTER_LOSS, MOST_CALLS_AFTER_LOSS = 250, 4000
"""Calls after a trial that the second variant lost, for the first time in a row; after each further one twice as many,
up to so many: a single trial may have been disturbed, and each costs as much as some ten calls."""
_SETTLING = 4  # calls in which lines come to the caches that they are in for the rest of them
_GAIN = 0.95  # what is gained by less is not worth a second processor
_SHOWN = 0.5  # of what the calls gain, the share that is gained from call to call at least
_FAR = 4  # times the last level, from which on streaming stores win whatever follows


def needs_store_trial(moved_bytes: int, memory: MemoryModel) -> bool:
    """Return whether a footprint lies where a trial decides between ordinary and streaming stores.

    >>> memory = MemoryModel(l2=1 << 20, last_level=32 << 20, streaming_from=8 << 20)
    >>> [needs_store_trial(size << 20, memory) for size in (4, 16, 100, 200)]
    [False, True, True, False]
    """
    return memory.streaming_from <= moved_bytes < _FAR * memory.last_level


class ReorderVariant(Protocol):
    """A reorder that is done in one of two ways."""

    def move(self, src_address: int, dst_address: int, table: int | None) -> bool:
        """Move the elements; return whether a thread had to be woken."""


class PairedTrial:
    """Two variants of a reorder, and which of them the next calls run.

    Several threads may use it: a count that is off by one does no harm.
    """

    __slots__ = ("_first", "_shares", "_times", "_wait", "calls_until_trial", "second", "uses_second")

    def __init__(
        self, first: ReorderVariant, make_second: Callable[[], ReorderVariant], *, shares: bool = False
    ) -> None:
        """Run the first variant until the first trial.

        Args:
            first: the variant that is right where nothing is known.
            make_second: returns the second variant; called when that is first run.
            shares: whether the second variant shares its calls among threads, and the first does not.
        """
        self._first, self._shares = first, shares
        self.second = cache(make_second)
        """Returns the second variant."""
        self.uses_second = False
        """Whether the next call runs the second variant."""
        self.calls_until_trial = CALLS_BEFORE_TRIAL
        """Calls until the next trial; 0 in a trial, whose calls are timed."""
        self._times: list[tuple[int, int]] = []
        self._wait = CALLS_AFTER_LOSS

    def run(self, src_address: int, dst_address: int, table: int | None) -> None:
        """Run one call with the variant whose turn it is, or that won the last trial."""
        variant = self.second() if self.uses_second else self._first
        if self.calls_until_trial > 0:
            self.calls_until_trial -= 1
            if variant.move(src_address, dst_address, table) and self._shares:
                self.restart()
            return
        began = time.perf_counter_ns()
        variant.move(src_address, dst_address, table)
        self.note(began, time.perf_counter_ns() - began)

    def note(self, began: int, nanoseconds: int) -> None:
        """Note when a call of a trial began and how long it took; the last one decides."""
        times = self._times
        times.append((began, nanoseconds))
        self.uses_second = len(times) >= CALLS_PER_VARIANT
        if len(times) >= 2 * CALLS_PER_VARIANT:
            self.uses_second = is_faster(times[_SETTLING:CALLS_PER_VARIANT], times[CALLS_PER_VARIANT + _SETTLING :])
            self.calls_until_trial, self._times = CALLS_AFTER_WIN if self.uses_second else self._wait, []
            self._wait = CALLS_AFTER_LOSS if self.uses_second else min(2 * self._wait, MOST_CALLS_AFTER_LOSS)

    def restart(self) -> None:
        """Begin a trial: a shared call met a thread that sleeps, so calls no longer come in a row."""
        if self.calls_until_trial:
            self.uses_second, self.calls_until_trial, self._times = False, 0, []


def is_faster(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> bool:
    """Whether the second variant pays: from when calls in a row began, in nanoseconds, and how long each of them took.

    >>> first = [(0, 6), (10, 6), (20, 6)]
    >>> is_faster(first, [(0, 4), (8, 4), (16, 4)])
    True
    >>> is_faster(first, [(0, 4), (12, 4), (24, 4)])  # what was gained was lost in between
    False
    """
    alone = median(took for _, took in first)
    gain = alone - median(took for _, took in second)
    lost = median(_between(second)) - median(_between(first))
    return gain > (1 - _GAIN) * alone and lost < (1 - _SHOWN) * gain


def _between(times: list[tuple[int, int]]) -> list[int]:
    """From the end of one call to the beginning of the next: calls that somebody disturbed do not count here too."""
    return [following - began - took for (began, took), (following, _) in pairwise(times)]


_SPARE = 64
"""Values after the last: a register of them is loaded whole."""


@dataclass(frozen=True, slots=True)
class ValueSlot:
    """Where the values of one step lie in the block."""

    step: str
    """The name of the step."""
    at: int
    """The word at which they begin."""
    size: int
    """How many there is room for."""
    preset: float
    """What each of them is that no call sets."""


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentBlock:
    """What calls make: a block of memory that the code finds its values and its table in."""

    size: int
    """Its words."""
    table: int
    """The word at which the table begins: so many addresses lie before it."""
    head: Words
    """The table."""
    slots: tuple[ValueSlot, ...]
    """For each step with values, where they are."""
    number: np.dtype[Any]
    """The working type."""
    is_seeded: bool
    """Whether the first word is the seed."""
    after: Words
    """For each address, bytes from the start of the block to what is there."""

    def fill(self, values: Operands, seed: int) -> Words:
        """A new block with what a call brings, for code that reads it where it lies."""
        words = np.empty(self.size, np.int64)
        return self.fill_at(words, words.__array_interface__["data"][0], values, seed)

    def fill_at(self, words: Words, base: int, values: Operands, seed: int) -> Words:
        """The same in `words`, of the block's size, which lie, for the code that reads them, at address `base`."""
        words[: self.table] = self.after + base
        words[self.table : self.table + self.head.size] = self.head
        if self.is_seeded:
            words[0] = seed
        numbers = words.view(self.number)
        per_word = 8 // numbers.itemsize
        for slot in self.slots:
            room = numbers[slot.at * per_word : slot.at * per_word + slot.size]
            given = values.get(slot.step)
            count = 0 if given is None else given.size
            if given is not None:
                room[:count] = given.ravel()
            room[count:] = slot.preset
        return words


def build_argument_block(problem: ReorderProblem, plan: ReorderPlan) -> ArgumentBlock | None:
    """What calls make, with the factors that are the same for all in their places; None where nothing is computed."""
    computation = plan.kernel.computation
    if computation is None:
        return None
    number = DATA_TYPES[computation.working].dtype
    furthest = greatest_value_indices(problem, plan.schedule)
    presets = {"sum": problem.attributes.sum or 0.0, "factor": problem.factor}
    count = len(computation.values)
    at, slots = count + plan.table.words.size, []
    for value in computation.values:
        if value.step != "stochastic":
            size = _SPARE + (0 if value.count is None else furthest[value.count]) + 1
            slots.append(ValueSlot(value.step, at, size + size % 2, presets.get(value.step, 1.0)))
            at += slots[-1].size * number.itemsize // 8
    is_seeded = len(slots) < count
    # Value number k is k + 1 words before the table; chance is the last and has the seed for an address.
    after = np.array([0] * is_seeded + [8 * slot.at for slot in reversed(slots)], np.int64)
    return ArgumentBlock(at, count, plan.table.words, tuple(slots), number, is_seeded, after)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledReorder:
    """A reorder that is ready to run, as often as wanted and from several threads at once."""

    problem: ReorderProblem
    """What is moved and computed."""
    plan: ReorderPlan | None
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
    block: ArgumentBlock | None = None
    """What values of attributes are given in with each call; None where nothing is computed."""
    unaligned: "Callable[[], CompiledReorder] | None" = None
    """Returns the reorder for destinations that do not begin at a cache line; None where this one is for them too."""
    trial: PairedTrial | None = None
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
            words = block.fill(values or {}, seed)
            self.move(src_address, dst_address, words.__array_interface__["data"][0] + 8 * block.table)
        if self.compensation is not None:
            self.compensation.write(dst_address)

    def move(self, src_address: int, dst_address: int, table: int | None = None) -> bool:
        """Move the elements alone; return whether a thread had to be woken.

        `table` is the address of a copy of the table, behind the addresses of values (see `ArgumentBlock`).
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
            parts = cap_thread_count(parts)
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
        threads = min(choose_thread_count(self.problem.moved_bytes), decision.choice.threads or self.parts, plan.pieces)
        behind = "" if self.compensation is None else f"\nbehind the elements\n  {self.compensation}"
        return explain_plan(self.problem, plan, machine, threads, decision) + behind

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
        return compile_problem(build_reorder_problem(src, dst, attributes))
    require_extras(src, dst)
    factor = 1.0 if src.extras.scale_adjust == dst.extras.scale_adjust else dst.extras.scale_adjust
    problem = build_reorder_problem(without_extras(src), without_extras(dst), attributes, factor)
    return replace(compile_problem(problem), compensation=build_compensation(dst))


def compile_problem(problem: ReorderProblem, decision: Decision | None = None) -> CompiledReorder:
    """The reorder that solves `problem` as was decided: by `decision`, else by tuning, else by the model.

    Where none says what only calls can show, the reorder has a trial.

    Raises:
        Unimplemented: LLVM knows no such processor.
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
    """The reorder with its code, for destinations that begin at a cache line, or for all if not `aligned`."""
    target, types = host_target(), (problem.src_type, problem.dst_type)
    plan = plan_reorder(problem, target, decision.choice, aligned=aligned)
    units = [address_bits(t.name, plan.kernel.lanes) for t in types]
    offsets = zip((problem.src_offset, problem.dst_offset), types, units, strict=True)
    src_start, dst_start = (offset * t.bits // unit for offset, t, unit in offsets)
    task, table = _build_task(problem, plan, target)
    # Two threads cannot both write to one byte.
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
        unaligned=cache(partial(_compile, problem, decision, aligned=False)) if plan.streams else None,
    )
    if not is_tried or parts < 2:
        return reorder
    return replace(reorder, trial=PairedTrial(replace(reorder, parts=1), lambda: reorder, shares=True))


def _build_task(problem: ReorderProblem, plan: ReorderPlan, target: Target) -> tuple[Task, int]:
    """Return what is called, and the address of its table: of a kernel, or of the code that fills panels with it."""
    code = machine_code(plan.kernel, target)
    if plan.panels is None:
        return Task(code.entry, code.address, plan.table.tiles, plan.grain, keeps_alive=code), plan.table.address
    sizes = (problem.src_type.bits // 8, problem.dst_type.bits // 8)
    table = build_panel_table(plan.panels, code.address, plan.table, sizes, buffer_pool().words)
    driver = machine_code(PanelKernel(), target)
    return Task(driver.entry, driver.address, plan.pieces, keeps_alive=(driver, code, table)), table.address


def _thread_count(moved_bytes: int, most: int | None) -> tuple[int, bool]:
    """On how many threads so many bytes are moved at most, and whether calls have to show if more than one pays."""
    small = choose_small_thread_count(moved_bytes)
    if small > 1 and most is None:
        return small, True
    return choose_thread_count(moved_bytes, sys.maxsize if most is None else most), False


class CompiledCopies:
    """Copies between two addresses with ordinary or with streaming stores, as the machine model is measured."""

    def __init__(self) -> None:
        """Nothing is compiled yet."""
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
    problem: ReorderProblem, plan: ReorderPlan, target: Target, threads: int, decision: Decision = UNMEASURED
) -> str:
    """Every stage of `plan` in words, and what bounds it on `threads` threads of this machine."""
    stores = plan.kernel.stores if plan.panels is None else f"into a buffer, then streamed: {plan.panels}"
    sections = {
        "problem": problem,
        "loops": plan.schedule.nest,
        "schedule": f"{plan.schedule}\n  stores {stores}\n  {decision}",
        "network": plan.kernel.network,
        "bound": estimate_roofline(problem, plan, target.vector_bytes, memory_model(), threads),
    }
    return "\n".join(f"{name}\n{text}" for name, text in sections.items())
