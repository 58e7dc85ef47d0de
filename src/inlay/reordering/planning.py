"""Planning of a reorder: candidate plans, the choice of the best, and a roofline estimate of its run time.

    problem -> loop nest -> candidate schedules -> kernel and table of each -> penalty -> the plan

For one nest and one number of registers, `schedule` finds the tile of least cost. This module compares the few plans
that differ in their use of memory: with tiles that overlap or that guards cut off, with larger tiles, or with panels. A
plan contains everything but the machine code. Stores bypass the caches (`streamed`, `staged`) only if the tensors
exceed the last-level cache of the machine model and the tile writes whole cache lines.

The roofline estimate predicts the run time of a plan and its bottleneck. Three things take time: the call; the bytes,
which are transferred from and to the memory level that holds the tensors; and the vector instructions, which overlap
with the transfers. So the longer one of the last two is added to the call:

    call + max(bytes / bandwidth of the level, instructions / instructions per ns)

Bandwidths are those of the machine model. The other constants fit good reorders on a server of 2023 (Zen 4, AVX-512):
seven of the eight benchmark cases take between half and twice the estimate. A reorder that takes much longer than its
estimate has a specific cause: strides that map to one cache set, page faults of fresh memory, or another process.
"""

from dataclasses import dataclass, replace

from inlay.data_type import DATA_TYPES
from inlay.layout import DigitMap
from inlay.machine import MemoryModel
from inlay.reordering.choice import BY_MODEL, Choice
from inlay.reordering.conversion import LINE, bits_of
from inlay.reordering.kernel import (
    STAGE_BYTES,
    Kernel,
    Stores,
    Table,
    build_address_swizzle,
    build_kernel,
    build_table,
    is_byte_aligned,
)
from inlay.reordering.loop_order import Level, Traffic, has_few_streams, level_of, prefetch_distance, revisits_pages
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.nest import LoopNest, build_loop_nest
from inlay.reordering.panels import Panels, cut_into_panels
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.schedule import Schedule, find_schedule
from inlay.reordering.target import TargetMachine

_MANY_RUNS = 64  # runs of the innermost loop from which whole runs can be distributed evenly to threads


@dataclass(frozen=True, slots=True)
class ReorderPlan:
    """The solution of a problem on a target: everything but the machine code."""

    schedule: Schedule
    """The tile and the loops around it."""
    kernel: Kernel
    """The inputs of code generation."""
    table: Table
    """The numbers that the kernel reads."""
    panels: Panels | None = None
    """The panels, if the reorder has two passes; schedule, kernel and table are then those of one panel. None for one
    pass."""

    @property
    def streams(self) -> bool:
        """Return whether the kernel's stores bypass the caches."""
        return self.kernel.stores != "cached"

    @property
    def pieces(self) -> int:
        """Number of pieces that can be distributed to threads: panels, or tiles if there are no panels."""
        return self.schedule.tiles if self.panels is None else len(self.panels.offsets)

    @property
    def grain(self) -> int:
        """Number of consecutive tiles for one thread.

        A whole run of the innermost loop if runs are many, if the kernel writes through a staging buffer, or if
        elements share bytes; else 1.
        """
        shares_bytes = bits_of(self.kernel.dst_type) < 8
        is_whole = (
            shares_bytes or self.kernel.stores == "staged" or self.table.tiles >= _MANY_RUNS * self.table.tiles_per_run
        )
        return self.table.tiles_per_run if is_whole else 1


def plan_reorder(
    problem: ReorderProblem, target: TargetMachine, choice: Choice = BY_MODEL, *, aligned: bool = True
) -> ReorderPlan:
    """Return the best plan of `problem`, which is not empty, on `target` by the machine model of this process.

    The models of the stages decide what `choice` leaves open. If the destination need not begin at a cache line (not
    `aligned`), no kernel streams to it directly; panels are used if the nest can be cut into panels.
    """
    memory = memory_model()
    level = level_of(problem.moved_bytes, memory, choice.streams)
    traffic = Traffic(problem.src_type.bits, problem.dst_type.bits, level)
    choice = choice if aligned else replace(choice, panels=True)
    planner = _Planner(problem, build_loop_nest(problem), target, choice, traffic, memory)
    best = min(planner.candidates(), key=planner.penalty)
    return best if aligned else replace(best, kernel=replace(best.kernel, stores="cached"))


# Past the caches, where elements of 2 bytes and more wait for memory and not for masks, bytes that are written again
# cost what they cost the first time. Measured: 11 % are worth it, 16 and 23 are not.
_MOST_REWRITTEN = 1 / 8


# Registers of a tile that would otherwise leave pages of the source early. Measured: 5-D f32 reversed 49 -> 70 % of a
# copy, f32 to bf16 in blocks of 16a64b2a 66 -> 97.
_LARGE_TILE = 64


@dataclass(frozen=True, slots=True)
class _Planner:
    """Builds the candidate plans of a problem, and compares them."""

    problem: ReorderProblem
    nest: LoopNest
    target: TargetMachine
    choice: Choice
    traffic: Traffic
    memory: MemoryModel

    def candidates(self) -> list[ReorderPlan]:
        """Return the plans that may be the best: direct ones, then with larger tiles, then through panels."""
        choice, plans = self.choice, self._direct_plans()
        if not self.traffic.exceeds_caches:
            return plans
        best = min(plans, key=self.penalty)
        loops, outer = best.schedule.nest.loops, best.schedule.outer
        if choice.registers is None and best.streams and revisits_pages(loops, outer, self.traffic):
            plans += self._direct_plans(_LARGE_TILE)
        wants_panels = choice.panels
        if wants_panels is None:
            wants_panels = self.target.prefers_panels and not best.streams
        if wants_panels and (panels := self._panels()) is not None:
            plans.append(self._plan_panels(panels))
        return plans

    def penalty(self, plan: ReorderPlan) -> tuple[bool, float, float]:
        """Return the sort key of a plan, most important first: rewriting much, the kind of stores, pages revisited."""
        if not self.traffic.exceeds_caches:
            return False, 0, 0
        stores = 0 if plan.streams else 2
        if plan.panels is not None:
            stores = 1 if self.choice.panels is None else -1
        pages = -plan.kernel.registers if plan.streams and self.choice.registers is None else 0
        return self._rewrites_much(plan), stores, pages

    def _direct_plans(self, registers: int | None = None) -> list[ReorderPlan]:
        """Return plans without panels, with tiles of at least `registers` registers."""
        first = self._plan_direct(self._schedule(self.nest, overlaps=may_overlap(self.problem), registers=registers))
        plans = [first]
        if self._rewrites_much(first):
            plans.append(self._plan_direct(self._schedule(self.nest, overlaps=False, registers=registers)))
        if first.schedule.overlaps and self.traffic.exceeds_caches and not first.streams:
            # Streaming stores gain more than unmasked tiles. They need a last tile that begins at a cache line.
            plans.append(self._plan_direct(first.schedule.with_guards()))
        return plans

    def _schedule(self, nest: LoopNest, *, overlaps: bool, registers: int | None = None) -> Schedule:
        """Return the cheapest schedule of a nest under the choice; `registers` overrides the least size of a tile."""
        types = (self.problem.src_type, self.problem.dst_type)
        # With a sum, the formula is computed before the store, so elements are shuffled in the source's type.
        sums = self.problem.attributes.sum is not None
        return find_schedule(
            nest,
            element_bytes=types[0].itemsize if sums else min(t.itemsize for t in types),
            vector_bytes=min(self.target.vector_bytes, self.choice.width or self.target.vector_bytes),
            converts=types[0] != types[1] or self.problem.computes,
            shuffles=self.target.shuffles,
            traffic=self.traffic,
            suits=lambda schedule: is_byte_aligned(self.problem, schedule),
            traversal=self.choice.traversal,
            registers=registers or self.choice.registers,
            overlaps=overlaps,
        )

    def _plan_direct(self, schedule: Schedule) -> ReorderPlan:
        """Return the plan of a schedule that writes to the destination directly."""
        problem, chosen = self.problem, self.choice.prefetch_distance
        prefetches = problem.moved_bytes > self.memory.l2 if chosen is None else chosen != 0
        modelled = prefetch_distance(schedule.nest.loops, schedule.outer, schedule.traversal, self.traffic)
        table = build_table(problem, schedule, modelled if chosen is None else chosen)
        if chosen is None and self.traffic.level == "L3" and _sides_have_few_streams(problem, schedule, table):
            prefetches = False
        may_stream = self.traffic.exceeds_caches and problem.attributes.sum is None
        stores = _choose_stores(problem, schedule, table) if may_stream else "cached"
        return ReorderPlan(schedule, build_kernel(problem, schedule, stores, prefetches=prefetches), table)

    def _plan_panels(self, panels: Panels) -> ReorderPlan:
        """Return the plan whose schedule, kernel and table fill the buffer of one panel."""
        schedule = self._schedule(panels.nest, overlaps=True)
        next_panel = panels.src_step * self.problem.src_type.bits // 8
        distance = next_panel if self.choice.prefetch_distance is None else self.choice.prefetch_distance
        kernel = build_kernel(self.problem, schedule, "cached", prefetches=distance != 0)
        return ReorderPlan(schedule, kernel, build_table(self.problem, schedule, distance), panels)

    def _panels(self) -> Panels | None:
        """Return the panels of a problem that only moves or converts elements; None if it has none."""
        sizes = [kind.bits // 8 for kind in (self.problem.src_type, self.problem.dst_type)]
        if not all(sizes) or self.problem.computes or not may_overlap(self.problem):
            return None
        return cut_into_panels(self.nest, *sizes)

    def _rewrites_much(self, plan: ReorderPlan) -> bool:
        """Return whether overlapping tiles would stream more bytes twice than masks would cost."""
        is_wide = min(self.problem.src_type.itemsize, self.problem.dst_type.itemsize) > 1
        return is_wide and plan.kernel.stores == "streamed" and plan.schedule.rewritten > _MOST_REWRITTEN


def may_overlap(problem: ReorderProblem) -> bool:
    """Return whether tiles may write some elements twice, possibly on two threads at once, with the same bytes.

    They may not if old elements are read, if elements share bytes, or if rounding is stochastic. With swizzles they do
    not either: a tile that begins earlier would be aligned worse.
    """
    attributes, types = problem.attributes, (problem.src_type, problem.dst_type)
    is_plain = attributes.sum is None and attributes.rounding_mode != "stochastic" and not any(problem.swizzles)
    return is_plain and not any(t.is_sub_byte for t in types)


def _sides_have_few_streams(problem: ReorderProblem, schedule: Schedule, table: Table) -> bool:
    """Return whether both sides are accessed in a few sequential streams, which hardware prefetchers follow."""
    if not schedule.outer:
        return True
    inner, lanes = schedule.outer[-1], 1 << schedule.tile.lane_bits
    loop = schedule.nest.loops[inner.loop]
    sides = zip((problem.src_type, problem.dst_type), (loop.src, loop.dst), table.offsets[:2], strict=True)
    return all(
        has_few_streams(offsets.ravel().tolist(), lanes * kind.bits // 8, _in_bytes(where, inner.step * kind.bits))
        for kind, where, offsets in sides
    )


def _in_bytes(where: DigitMap, bits: int) -> DigitMap:
    """Return the offsets `where`, a stride or a table, in units of `bits`, converted to bytes."""
    return where * bits // 8 if isinstance(where, int) else tuple(place * bits // 8 for place in where)


def _steps_by_lines(where: DigitMap, bits: int) -> bool:
    """Return whether the offsets `where`, a stride or a table, in units of `bits`, are multiples of a cache line."""
    steps = _in_bytes(where, bits)
    return not any(step % LINE for step in ((steps,) if isinstance(steps, int) else steps))


def _choose_stores(problem: ReorderProblem, schedule: Schedule, table: Table) -> Stores:
    """Return the kind of stores for a tensor larger than the caches whose memory begins at a cache line."""
    if schedule.tile.lane_bits == 0:
        return "cached"
    bits, loops, offsets = problem.dst_type.bits, schedule.nest.loops, table.dst_offsets
    register = (bits << schedule.tile.lane_bits) // 8
    steps = [_steps_by_lines(loops[o.loop].dst, o.step * bits) for o in schedule.outer]
    steps += [_steps_by_lines(loops[o.loop].dst, o.back * bits) for o in schedule.outer if o.back]
    swizzle = build_address_swizzle(problem, schedule, 1)
    if swizzle is not None and swizzle.part(LINE) < LINE:
        return "cached"  # parts of a line would be streamed, or spread over several lines
    if register % LINE == 0 and all(steps) and not (offsets % LINE).any():
        return "streamed"
    if swizzle is not None:
        return "cached"
    stage = register * offsets.size
    is_cut = schedule.overlaps or any(guard.is_bound for guard in schedule.nest.guards)
    fills_it = schedule.outer and offsets.shape[0] == table.tiles_per_run and not is_cut
    if not fills_it or stage % LINE or stage > STAGE_BYTES or not all(steps[:-1]):
        return "cached"
    is_dense = sorted(offsets.ravel().tolist()) == list(range(0, stage, register))
    return "staged" if is_dense else "cached"


# Roofline estimate


INSTRUCTIONS = 4.5
"""Vector instructions per ns and thread."""
CALLS = {False: 1.0, True: 1.6}
"""Duration of a call in microseconds, on one thread (False) and on several (True)."""
_TILE = 10  # instructions at the start of a tile
_SWAP = 4  # instructions to swap parts of one vector under a mask
_MASK = 6  # instructions to load or store one register under masks
_CONVERSION = {False: 3, True: 20}  # instructions for one vector of f32; True if a side is a float of at most 8 bits


@dataclass(frozen=True, slots=True)
class TileWork:
    """The number of vector instructions of one tile, by purpose."""

    loads: int
    """Vectors loaded from the source, and from the destination for a sum."""
    shuffles: int
    """Exchanges, permutations, deinterleaving, and swaps of swizzles."""
    between: int
    """Vectors stored to and loaded from the stack between two passes of the network."""
    arithmetic: int
    """Instructions of the formula and of conversions."""
    stores: int
    """Vectors stored to the destination."""

    @property
    def total(self) -> int:
        """Number of all instructions, including the start of the tile."""
        return self.loads + self.shuffles + self.between + self.arithmetic + self.stores + _TILE


@dataclass(frozen=True, slots=True)
class Roofline:
    """An estimate of the run time of a reorder and of its parts."""

    level: Level
    """The memory level that holds source and destination."""
    traffic: int
    """Transferred bytes: the compulsory ones, and destination lines that are loaded before they are written."""
    threads: int
    """Number of threads."""
    tiles: int
    """Number of executions of the tile's code."""
    edges: int
    """Number of tiles that guards cut off; these use masks."""
    work: TileWork
    """Instructions of one tile."""
    registers: int
    """Number of registers of a tile."""
    bandwidth: float
    """Bandwidth of the level in bytes per ns and thread, reads plus writes."""

    @property
    def call_us(self) -> float:
        """Duration of the call in microseconds."""
        return CALLS[self.threads > 1]

    @property
    def bytes_us(self) -> float:
        """Time to transfer the bytes in microseconds."""
        return self.traffic / self.bandwidth / self.threads / 1000

    @property
    def instructions(self) -> int:
        """Number of vector instructions of all tiles."""
        return self.tiles * self.work.total + self.edges * 2 * _MASK * self.registers

    @property
    def instructions_us(self) -> float:
        """Time to execute the instructions in microseconds."""
        return self.instructions / INSTRUCTIONS / self.threads / 1000

    @property
    def total_us(self) -> float:
        """Estimated run time in microseconds."""
        return self.call_us + max(self.bytes_us, self.instructions_us)

    @property
    def name(self) -> str:
        """Name of the bottleneck: the part that takes most of the time."""
        parts = {
            "the call": self.call_us,
            "memory bandwidth" if self.level == "memory" else f"bandwidth of {self.level}": self.bytes_us,
            self._instruction_name: self.instructions_us,
        }
        return max(parts, key=lambda part: parts[part])

    @property
    def _instruction_name(self) -> str:
        """Name of the purpose of most instructions."""
        work = self.work
        parts = {
            "loads and stores": self.tiles * (work.loads + work.stores + work.between + _TILE),
            "shuffles": self.tiles * work.shuffles,
            "arithmetic": self.tiles * work.arithmetic,
            "masks": self.instructions - self.tiles * work.total,
        }
        return max(parts, key=lambda part: parts[part])

    def __str__(self) -> str:
        """Return one line for each part, then the estimate and the bottleneck."""
        work, threads = self.work, f"{self.threads} thread{'s' * (self.threads > 1)}"
        counts = [
            f"{count} {name}"
            for count, name in (
                (work.loads, "loads"),
                (work.arithmetic, "to compute and convert"),
                (work.shuffles, "shuffles"),
                (work.between, "through a buffer"),
                (work.stores, "stores"),
                (_TILE, "to begin"),
            )
            if count
        ]
        rate = f"{self.bandwidth:g} GB/s a thread"
        edges = f", {self.edges} under masks" if self.edges else ""
        return "\n".join(
            [
                f"  call on {threads}: {_us(self.call_us)}",
                f"  {_bytes(self.traffic)} through {self.level}: {_us(self.bytes_us)} at {rate}",
                f"  {self.tiles} tile{'s' * (self.tiles != 1)} of {work.total} instructions{edges}: "
                f"{_us(self.instructions_us)} at {INSTRUCTIONS:g} a ns and thread",
                f"    each {', '.join(counts)}",
                f"  expected {_us(self.total_us)}, bound by {self.name}",
            ]
        )


def _us(value: float) -> str:
    """Return a number of microseconds as text."""
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"


def _bytes(count: int) -> str:
    """Return a number of bytes as text."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def estimate_roofline(
    problem: ReorderProblem, plan: ReorderPlan, vector_bytes: int, memory: MemoryModel, threads: int
) -> Roofline:
    """Estimate the run time of `plan` on `threads` threads of a machine with these caches and vector registers."""
    moved, kernel, tiles = problem.moved_bytes, plan.kernel, plan.schedule.tiles
    panels = 1 if plan.panels is None else plan.pieces
    level: Level = "memory" if moved > memory.last_level else "L3" if moved > memory.l2 * threads else "L2"
    is_cached = kernel.stores == "cached" and plan.panels is None
    reads_lines = problem.attributes.sum is not None or (level == "memory" and is_cached)
    traffic = moved + (problem.written_bits // 8 if reads_lines else 0)
    return Roofline(
        level,
        traffic,
        threads,
        tiles * panels,
        round(tiles * (1 - plan.schedule.whole_share)) * panels,
        count_tile_work(problem, kernel, vector_bytes),
        kernel.registers,
        bandwidth_of(memory, level),
    )


def bandwidth_of(memory: MemoryModel, level: Level) -> float:
    """Return the bandwidth of a memory level in the machine model: bytes per ns and thread, reads plus writes."""
    return {"L2": memory.l2_bandwidth, "L3": memory.l3_bandwidth, "memory": memory.memory_bandwidth}[level]


def count_tile_work(problem: ReorderProblem, kernel: Kernel, vector_bytes: int) -> TileWork:
    """Count the instructions of one tile of `kernel` on registers of `vector_bytes`."""

    def vectors(bits: int) -> int:
        """Return the number of vectors that a tile of elements of `bits` bits fills."""
        return kernel.registers * -(-kernel.lanes * bits // (8 * vector_bytes))

    src, dst = problem.src_type, problem.dst_type
    narrow = vectors(min(src.bits, dst.bits))
    deinterleaving = 0 if kernel.deinterleave is None else narrow * (kernel.deinterleave.extent - 1)
    converts = src != dst or problem.computes
    is_small = any(side.kind == "float" and side.bits <= 8 for side in (src, dst))
    steps = _CONVERSION[is_small] + 2 * len(problem.attributes.names)
    swaps = sum(
        vectors(side.bits) * swizzle.count_swaps(kernel.lanes * side.bits // 8)
        for side, swizzle in zip((src, dst), kernel.swizzles, strict=True)
        if swizzle is not None
    )
    return TileWork(
        loads=vectors(src.bits) + (vectors(dst.bits) if problem.attributes.sum is not None else 0),
        shuffles=narrow * len(kernel.network.steps) + deinterleaving + _SWAP * swaps,
        between=2 * narrow * (len(kernel.network.passes) - 1),
        arithmetic=vectors(DATA_TYPES["f32"].bits) * steps if converts else 0,
        stores=vectors(dst.bits),
    )
