"""From a problem to its plan: candidate plans, the best of them, and what bounds its time.

    problem -> loop nest -> candidate schedules -> kernel and table of each -> penalty -> the plan

For one nest and one number of registers, `schedule` finds the tile of the least cost. What is left to compare here are
the few plans that treat memory differently: tiles that overlap, that are cut off, that are larger, or that fill panels.
The plan says everything but the machine code. Stores go past the caches (`streamed`, `staged`) only where the tensors
exceed the last level of the machine model and the tile writes whole cache lines.

The bound of a plan is a model of a few numbers that says where its time should go. Three things take time. The call
itself. The bytes, which come and go through the level of memory that the tensors live in. And the instructions on
vectors, which overlap with the bytes. So the estimate is the call and the longer of the other two, and that one is the
bound:

    call + max(bytes / bandwidth of the level, instructions / instructions per ns)

Bandwidths are those of the machine model. The other numbers are those of good reorders on a server of 2023 (Zen 4,
AVX-512), where seven of eight cases of the benchmark take between half and twice the estimate. A reorder that
takes much longer has a problem that is worth a look: strides that fall into one set of a cache, page faults of fresh
memory, another process.
"""

from dataclasses import dataclass, replace

from inlay.data_type import DATA_TYPES
from inlay.layout import DigitMap
from inlay.machine import MemoryModel
from inlay.reordering.choice import BY_MODEL, Choice
from inlay.reordering.conversion import LINE, bits_of
from inlay.reordering.kernel import STAGE_BYTES, Kernel, Stores, Table, begins_at_bytes, kernel_of, table_of
from inlay.reordering.memory_levels import memory_model
from inlay.reordering.nest import LoopNest, loop_nest
from inlay.reordering.panels import Panels, cut_into_panels
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.schedule import Schedule, schedule
from inlay.reordering.target import Target
from inlay.reordering.walk import Level, Traffic, bytes_ahead, goes_in_streams, leaves_pages, level_of

_MANY_RUNS = 64  # as many can be dealt out to threads evenly enough without being cut


@dataclass(frozen=True, slots=True)
class Plan:
    """How a problem is solved on a target: everything but the machine code."""

    schedule: Schedule
    """The tile and the loops around it."""
    kernel: Kernel
    """The code that it needs."""
    table: Table
    """Its numbers."""
    panels: Panels | None = None
    """Where schedule, kernel and table are those of one panel: how the reorder is cut into panels."""

    @property
    def streams(self) -> bool:
        """Whether the kernel's stores go past the caches."""
        return self.kernel.stores != "cached"

    @property
    def pieces(self) -> int:
        """What is dealt out to threads: panels, or tiles where the kernel writes straight to the destination."""
        return self.schedule.tiles if self.panels is None else len(self.panels.offsets)

    @property
    def grain(self) -> int:
        """How many tiles stay together on one thread: a whole run where runs are many, or where one fills a buffer."""
        shares_bytes = bits_of(self.kernel.dst_type) < 8
        is_whole = shares_bytes or self.kernel.stores == "staged" or self.table.tiles >= _MANY_RUNS * self.table.run
        return self.table.run if is_whole else 1


def plan_reorder(problem: ReorderProblem, target: Target, choice: Choice = BY_MODEL, *, aligned: bool = True) -> Plan:
    """Return the plan of `problem`, which is not empty, on `target`, for the machine model of this process.

    What `choice` leaves open is decided by the models of the stages. Where the destination need not begin at a cache
    line (not `aligned`), no kernel streams to it: panels do, where there are any.
    """
    memory = memory_model()
    level = level_of(problem.moved_bytes, memory, choice.streams)
    traffic = Traffic(problem.src_type.bits, problem.dst_type.bits, level)
    choice = choice if aligned else replace(choice, panels=True)
    planner = _Planner(problem, loop_nest(problem), target, choice, traffic, memory)
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
    """Makes the candidate plans of a problem, and compares them."""

    problem: ReorderProblem
    nest: LoopNest
    target: Target
    choice: Choice
    traffic: Traffic
    memory: MemoryModel

    def candidates(self) -> list[Plan]:
        """Return the plans that may be the best, those that differ least from the cheapest schedule first."""
        choice, plans = self.choice, self._tiled()
        if not self.traffic.streams:
            return plans
        best = min(plans, key=self.penalty)
        loops, outer = best.schedule.nest.loops, best.schedule.outer
        if choice.registers is None and best.streams and leaves_pages(loops, outer, self.traffic):
            plans += self._tiled(_LARGE_TILE)
        wants_panels = not best.streams and self.target.prefers_panels if choice.panels is None else choice.panels
        if wants_panels and (panels := self._panels()) is not None:
            plans.append(self._plan_panels(panels))
        return plans

    def penalty(self, plan: Plan) -> tuple[bool, float, float]:
        """Return what costs most where plans differ: bytes written again, the way of the stores, pages left early."""
        if not self.traffic.streams:
            return False, 0, 0
        stores = 0 if plan.streams else 2
        if plan.panels is not None:
            stores = 1 if self.choice.panels is None else -1
        pages = -plan.kernel.registers if plan.streams and self.choice.registers is None else 0
        return self._rewrites_much(plan), stores, pages

    def _tiled(self, registers: int | None = None) -> list[Plan]:
        """Return plans that write straight to the destination, with tiles of at least so many registers."""
        first = self._plan_of(self._schedule(self.nest, overlaps=may_overlap(self.problem), registers=registers))
        plans = [first]
        if self._rewrites_much(first):
            plans.append(self._plan_of(self._schedule(self.nest, overlaps=False, registers=registers)))
        if first.schedule.overlaps and self.traffic.streams and not first.streams:
            # Stores past the caches are worth more than whole tiles: they need a last tile that begins at a cache line.
            plans.append(self._plan_of(first.schedule.guarded()))
        return plans

    def _schedule(self, nest: LoopNest, *, overlaps: bool, registers: int | None = None) -> Schedule:
        types = (self.problem.src_type, self.problem.dst_type)
        # With a sum the formula runs last, on elements that were shuffled as the source has them.
        sums = self.problem.attributes.sum is not None
        return schedule(
            nest,
            element_bytes=types[0].itemsize if sums else min(t.itemsize for t in types),
            vector_bytes=min(self.target.vector_bytes, self.choice.width or self.target.vector_bytes),
            converts=types[0] != types[1] or self.problem.computes,
            shuffles=self.target.shuffles,
            traffic=self.traffic,
            suits=lambda found: begins_at_bytes(self.problem, found),
            walk=self.choice.walk,
            registers=registers or self.choice.registers,
            overlaps=overlaps,
        )

    def _plan_of(self, found: Schedule) -> Plan:
        """Return the plan that writes straight to the destination."""
        problem, ahead = self.problem, self.choice.ahead
        fetches = problem.moved_bytes > self.memory.l2 if ahead is None else ahead != 0
        modelled = bytes_ahead(found.nest.loops, found.outer, found.walk, self.traffic)
        table = table_of(problem, found, modelled if ahead is None else ahead)
        if ahead is None and self.traffic.level == "L3" and _goes_in_streams(problem, found, table):
            fetches = False
        may_stream = self.traffic.streams and problem.attributes.sum is None
        stores = _stores(problem, found, table) if may_stream else "cached"
        return Plan(found, kernel_of(problem, found, stores, fetches=fetches), table)

    def _plan_panels(self, panels: Panels) -> Plan:
        """Return the plan whose schedule, kernel and table fill the buffer of one panel."""
        found = self._schedule(panels.nest, overlaps=True)
        next_panel = panels.src_step * self.problem.src_type.bits // 8
        ahead = next_panel if self.choice.ahead is None else self.choice.ahead
        kernel = kernel_of(self.problem, found, "cached", fetches=ahead != 0)
        return Plan(found, kernel, table_of(self.problem, found, ahead), panels)

    def _panels(self) -> Panels | None:
        """Return the panels of a problem whose elements are only moved or converted, where its nest has any."""
        sizes = [kind.bits // 8 for kind in (self.problem.src_type, self.problem.dst_type)]
        if not all(sizes) or self.problem.computes or not may_overlap(self.problem):
            return None
        return cut_into_panels(self.nest, *sizes)

    def _rewrites_much(self, plan: Plan) -> bool:
        """Return whether tiles that overlap write more bytes again, past the caches, than masks would cost."""
        is_wide = min(self.problem.src_type.itemsize, self.problem.dst_type.itemsize) > 1
        return is_wide and plan.kernel.stores == "streamed" and plan.schedule.rewritten > _MOST_REWRITTEN


def may_overlap(problem: ReorderProblem) -> bool:
    """Whether tiles may write some elements twice, on two threads at once even: the same bytes both times.

    Not where old elements are read, nor where elements share bytes; and nothing is left to chance.
    """
    attributes, types = problem.attributes, (problem.src_type, problem.dst_type)
    is_plain = attributes.sum is None and attributes.rounding_mode != "stochastic"
    return is_plain and not any(t.is_sub_byte for t in types)


def _goes_in_streams(problem: ReorderProblem, found: Schedule, table: Table) -> bool:
    """Whether both sides are gone through in a few streams, which processors guess."""
    if not found.outer:
        return True
    inner, lanes = found.outer[-1], 1 << found.tile.lane_bits
    loop = found.nest.loops[inner.loop]
    sides = zip((problem.src_type, problem.dst_type), (loop.src, loop.dst), table.offsets[:2], strict=True)
    return all(
        goes_in_streams(offsets.ravel().tolist(), lanes * kind.bits // 8, _in_bytes(where, inner.step * kind.bits))
        for kind, where, offsets in sides
    )


def _in_bytes(where: DigitMap, bits: int) -> DigitMap:
    """Steps of so many bits times `where`, or the place that each value of a table is at."""
    return where * bits // 8 if isinstance(where, int) else tuple(place * bits // 8 for place in where)


def _is_lines(where: DigitMap, bits: int) -> bool:
    """Whether steps of so many bits times `where`, or times each place of a table, go from line to line."""
    steps = _in_bytes(where, bits)
    return not any(step % LINE for step in ((steps,) if isinstance(steps, int) else steps))


def _stores(problem: ReorderProblem, found: Schedule, table: Table) -> Stores:
    """How a tensor larger than the caches is written, if its memory begins at a cache line."""
    if found.tile.lane_bits == 0:
        return "cached"
    bits, loops, offsets = problem.dst_type.bits, found.nest.loops, table.dst_offsets
    register = (bits << found.tile.lane_bits) // 8
    steps = [_is_lines(loops[o.loop].dst, o.step * bits) for o in found.outer]
    steps += [_is_lines(loops[o.loop].dst, o.back * bits) for o in found.outer if o.back]
    if register % LINE == 0 and all(steps) and not (offsets % LINE).any():
        return "streamed"
    stage = register * offsets.size
    is_cut = found.overlaps or any(guard.is_bound for guard in found.nest.guards)
    fills_it = found.outer and offsets.shape[0] == table.run and not is_cut
    if not fills_it or stage % LINE or stage > STAGE_BYTES or not all(steps[:-1]):
        return "cached"
    is_dense = sorted(offsets.ravel().tolist()) == list(range(0, stage, register))
    return "staged" if is_dense else "cached"


# What bounds a reorder


INSTRUCTIONS = 4.5
"""Instructions on vectors per ns and thread."""
CALLS = {False: 1.0, True: 1.6}
"""Microseconds of a call on one thread (False) and on several (True)."""
_TILE = 10  # instructions to begin a tile
_MASK = 6  # to load or store one register under masks
_CONVERSION = {False: 3, True: 20}  # of one vector of f32; True where a side is a float of 8 bits or fewer


@dataclass(frozen=True, slots=True)
class Work:
    """What one tile does, in instructions on vectors."""

    loads: int
    """Vectors read from the source."""
    shuffles: int
    """Exchanges, permutes, and what deals an odd digit out."""
    between: int
    """Vectors stored to and loaded from the buffer between two passes."""
    arithmetic: int
    """Instructions that compute and change the type."""
    stores: int
    """Vectors written to the destination."""

    @property
    def total(self) -> int:
        """All of them, and what begins the tile."""
        return self.loads + self.shuffles + self.between + self.arithmetic + self.stores + _TILE


@dataclass(frozen=True, slots=True)
class Bound:
    """An estimate of the time of a reorder, and of what it is spent on."""

    level: Level
    """Where source and destination live."""
    traffic: int
    """Bytes that come and go: the compulsory ones, and lines of the destination that are read before."""
    threads: int
    """How many threads share the work."""
    tiles: int
    """How often the tile's code runs."""
    edges: int
    """How many of the tiles are cut off and go through masks."""
    work: Work
    """What one tile does."""
    registers: int
    """Registers of a tile."""
    bandwidth: float
    """Bytes per ns and thread, read plus written, of that level."""

    @property
    def call_us(self) -> float:
        """Microseconds of the call."""
        return CALLS[self.threads > 1]

    @property
    def bytes_us(self) -> float:
        """Microseconds for the bytes."""
        return self.traffic / self.bandwidth / self.threads / 1000

    @property
    def instructions(self) -> int:
        """Instructions on vectors in all."""
        return self.tiles * self.work.total + self.edges * 2 * _MASK * self.registers

    @property
    def instructions_us(self) -> float:
        """Microseconds for the instructions."""
        return self.instructions / INSTRUCTIONS / self.threads / 1000

    @property
    def total_us(self) -> float:
        """Microseconds that the reorder should take."""
        return self.call_us + max(self.bytes_us, self.instructions_us)

    @property
    def name(self) -> str:
        """What takes most of the time."""
        parts = {
            "the call": self.call_us,
            "memory bandwidth" if self.level == "memory" else f"bandwidth of {self.level}": self.bytes_us,
            self._instruction_name: self.instructions_us,
        }
        return max(parts, key=lambda part: parts[part])

    @property
    def _instruction_name(self) -> str:
        """What most of the instructions are for."""
        work = self.work
        parts = {
            "loads and stores": self.tiles * (work.loads + work.stores + work.between + _TILE),
            "shuffles": self.tiles * work.shuffles,
            "arithmetic": self.tiles * work.arithmetic,
            "masks": self.instructions - self.tiles * work.total,
        }
        return max(parts, key=lambda part: parts[part])

    def __str__(self) -> str:
        """One line for each part, then what is expected."""
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
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"


def _bytes(count: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def bound_of(problem: ReorderProblem, plan: Plan, vector_bytes: int, memory: MemoryModel, threads: int) -> Bound:
    """The bound of `plan` on `threads` threads of a machine with these caches and registers."""
    moved, kernel, tiles = problem.moved_bytes, plan.kernel, plan.schedule.tiles
    panels = 1 if plan.panels is None else plan.pieces
    level: Level = "memory" if moved > memory.last_level else "L3" if moved > memory.l2 * threads else "L2"
    is_cached = kernel.stores == "cached" and plan.panels is None
    reads_lines = problem.attributes.sum is not None or (level == "memory" and is_cached)
    traffic = moved + (problem.written_bits // 8 if reads_lines else 0)
    return Bound(
        level,
        traffic,
        threads,
        tiles * panels,
        round(tiles * (1 - plan.schedule.whole_share)) * panels,
        work_of(problem, kernel, vector_bytes),
        kernel.registers,
        bandwidth_of(memory, level),
    )


def bandwidth_of(memory: MemoryModel, level: Level) -> float:
    """Return bytes per ns and thread, read plus written, of a level of the machine model."""
    return {"L2": memory.l2_bandwidth, "L3": memory.l3_bandwidth, "memory": memory.memory_bandwidth}[level]


def work_of(problem: ReorderProblem, kernel: Kernel, vector_bytes: int) -> Work:
    """What one tile of `kernel` does on registers of `vector_bytes`."""

    def vectors(bits: int) -> int:
        return kernel.registers * -(-kernel.lanes * bits // (8 * vector_bytes))

    src, dst = problem.src_type, problem.dst_type
    narrow = vectors(min(src.bits, dst.bits))
    dealt = 0 if kernel.run is None else narrow * (kernel.run.extent - 1)
    converts = src != dst or problem.computes
    is_small = any(side.kind == "float" and side.bits <= 8 for side in (src, dst))
    steps = _CONVERSION[is_small] + 2 * len(problem.attributes.names)
    return Work(
        loads=vectors(src.bits) + (vectors(dst.bits) if problem.attributes.sum is not None else 0),
        shuffles=narrow * len(kernel.network.steps) + dealt,
        between=2 * narrow * (len(kernel.network.passes) - 1),
        arithmetic=vectors(DATA_TYPES["f32"].bits) * steps if converts else 0,
        stores=vectors(dst.bits),
    )
