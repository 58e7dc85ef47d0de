"""What bounds a reorder: a model of a few numbers that says where its time should go.

Three things take time. The call itself. The bytes, which come and go through the level of memory that the tensors live
in. And the instructions on vectors, which overlap with the bytes. So the estimate is the call and the longer of the
other two, and that one is the bound:

    call + max(bytes / bandwidth of the level, instructions / instructions per ns)

Bandwidths are those of the machine model. The other numbers are those of good reorders on a server of 2023 (Zen 4,
AVX-512), where seven of eight cases of the benchmark take between half and twice the estimate. A reorder that
takes much longer has a problem that is worth a look: strides that fall into one set of a cache, page faults of fresh
memory, another process.
"""

from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.machine import MemoryModel
from inlay.reordering.kernel import Kernel
from inlay.reordering.planning import Plan
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.walk import Level

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
