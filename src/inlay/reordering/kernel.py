"""Kernel and table: what is machine code, and what is data.

A scheduled reorder splits in two. The kernel is what the code depends on: element types, lanes, shuffle network, the
number of guards, and of attributes which values the lanes of the tile take. The table holds all numbers: extents,
strides, bounds, the offset of every register. Reorders of different shapes share one kernel, so a network of a hundred
weights compiles a handful of kernels.

The table is an array of 64-bit words; `TableShape` says where everything is. Offsets and strides in it are bytes.
"""

from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.errors import Unimplemented
from inlay.reordering.conversion import address_bits
from inlay.reordering.loop_order import OuterLoop
from inlay.reordering.nest import Loop
from inlay.reordering.network import SIDES, Deinterleave, ShuffleNetwork, Side
from inlay.reordering.problem import Computation, FormulaStep, ReorderProblem, step_value_layouts, working_type
from inlay.reordering.schedule import Bit, Schedule

Words = npt.NDArray[np.int64]
Stores = Literal["cached", "streamed", "staged"]
"""How registers reach the destination: as ordinary stores; past the caches, each a whole number of cache lines; or,
where they are parts of lines, through a buffer that holds what one run of the innermost loop fills."""
STAGE_BYTES = 1 << 14
"""The size of that buffer: half of a first-level cache."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Everything that the machine code of a reorder depends on, beside the target."""

    src_type: str
    """Name of the type of the source elements."""
    dst_type: str
    """Name of the type of the destination elements."""
    network: ShuffleNetwork
    """The exchanges; its lane and register bits give the size of the tile."""
    guards: int
    """How many coordinates have bounds."""
    stores: Stores
    """How registers reach the destination."""
    deinterleave: Deinterleave | None = None
    """The odd digit among the lanes of one side."""
    prefetches: bool = False
    """Whether each load asks for the line of a later one."""
    computation: Computation | None = None
    """What is computed between load and store, beside conversions."""
    overlaps: bool = False
    """Whether the last run of a loop may begin earlier than a step after the one before."""

    @property
    def bounds(self) -> range:
        """The guards that keep anything out."""
        return range(0 if self.computation is None else self.computation.counts, self.guards)

    @property
    def shuffles(self) -> bool:
        """Whether elements change their lanes or registers on the way."""
        return bool(self.network.steps) or self.deinterleave is not None

    @property
    def lanes(self) -> int:
        """Elements in one register."""
        return 1 << len(self.network.lanes)

    @property
    def registers(self) -> int:
        """Registers of the tile: for each value of the odd digit, one for each value of the register bits."""
        return (1 if self.deinterleave is None else self.deinterleave.extent) << len(self.network.registers)


def build_kernel(problem: ReorderProblem, schedule: Schedule, stores: Stores, *, prefetches: bool = False) -> Kernel:
    """The kernel that runs `schedule`. Moves without conversion depend on the width of the type only."""
    names = [problem.src_type.name, problem.dst_type.name]
    computation = _build_computation(problem, schedule)
    if problem.src_type == problem.dst_type and computation is None:
        names = [f"i{problem.src_type.bits}"] * 2
    deinterleave = None if schedule.tile.odd is None else schedule.tile.odd.deinterleave
    guards = len(schedule.nest.guards)
    network = schedule.tile.network
    return Kernel(names[0], names[1], network, guards, stores, deinterleave, prefetches, computation, schedule.overlaps)


def _build_computation(problem: ReorderProblem, schedule: Schedule) -> Computation | None:
    """What a kernel that runs `schedule` computes; None where it only converts."""
    if not problem.computes:
        return None
    attributes, types = problem.attributes, (problem.src_type, problem.dst_type)
    working = working_type(*types, attributes, problem.factor)
    choices = [
        Computation(working, side, _formula_steps(problem, schedule, side), len(problem.value_layouts))
        for side in SIDES
    ]
    narrower = types[1].bits - types[0].bits
    if attributes.sum is not None or narrower > 0:
        return choices[1]
    if narrower < 0:
        return choices[0]
    return min(reversed(choices), key=lambda choice: sum(value.lanes is None for value in choice.values))


def _formula_steps(problem: ReorderProblem, schedule: Schedule, side: Side) -> tuple[FormulaStep, ...]:
    tile = schedule.tile
    lanes = (tile.src_bits if side == "src" else tile.dst_bits)[: tile.lane_bits]
    odd = tile.odd.loop if tile.odd is not None and tile.odd.deinterleave.side == side else None
    values = []
    for step, place in step_value_layouts(problem.attributes, problem.factor, problem.dims).items():
        if place is None:
            values.append(FormulaStep(step, None, (0,) * (1 << len(lanes))))
            continue
        count = problem.value_layouts.index(place)
        # Lanes that an odd digit lies among differ from register to register.
        is_odd = odd is not None and any(schedule.nest.loops[i].weight(count) for i in (odd, *dict(lanes)))
        taken = [0]
        for loop, bit in lanes:
            weight = schedule.nest.loops[loop].weight(count) << bit
            taken += [other + weight for other in taken]
        is_near = max(taken) < 2 * len(taken) and not is_odd
        values.append(FormulaStep(step, count, tuple(taken) if is_near else None))
    return tuple(values)


def greatest_value_indices(problem: ReorderProblem, schedule: Schedule) -> dict[int, int]:
    """For each count of values, the greatest that any element of any tile takes, beyond the tensor too."""
    loops = [(loop, schedule.tile.covers(i)) for i, loop in enumerate(schedule.nest.loops)]
    return {
        count: sum((-(-loop.extent // step) * step - 1) * loop.weight(count) for loop, step in loops)
        for count in range(len(problem.value_layouts))
    }


# The table


_MOST_IN_LANES = 1 << 30  # masks compare 32-bit numbers


@dataclass(frozen=True, slots=True)
class TableShape:
    """Where the parts of a table begin, in words."""

    lanes: int
    """Elements in one register."""
    registers: int
    """Registers of the tile."""
    guards: int
    """How many coordinates have bounds."""
    kinds: tuple[int, int] = (1, 1)
    """How many kinds of registers each side has, whose lanes hold different coordinates: with an odd digit among the
    lanes, one for each of its values."""
    overlaps: bool = False
    """Whether each loop says how much earlier its last run begins."""

    LOOPS = 0
    """One word: the number of loops around the innermost."""
    OFFSETS = 1
    """Two words: the addresses of the register offsets of source and destination."""
    STAGE = 3
    """One word: bytes of the destination that one run of the innermost loop fills, where stores are staged."""
    PREFETCH = 4
    """One word: bytes from a load to the line that it asks for, where it does."""
    INNERMOST = 5
    """The innermost loop: its extent, then its `sums`, then, where runs overlap, what the last one adds to them."""

    @property
    def sums(self) -> int:
        """What one step of a loop adds to: the offsets of both sides, the addresses of their rows, the coordinates."""
        return 4 + self.guards

    @property
    def steps(self) -> int:
        """Words of the extent of a loop and of what it adds to the sums."""
        return 1 + self.sums * (1 + self.overlaps)

    def bound(self, guard: int, which: int) -> int:
        """For each guard: read below, write below, tiles are read whole up to, tiles are written whole up to."""
        return self.INNERMOST + self.steps + 4 * guard + which

    def coordinates(self, side: int, guard: int) -> int:
        """What each register adds to a guard's coordinate (a word each), then each lane of each kind (32 bits each)."""
        sizes = [self.registers + kinds * self.lane_words for kinds in self.kinds]
        before = self.guards * sum(sizes[:side])
        return self.bound(self.guards, 0) + before + guard * sum(sizes[side : side + 1])

    @property
    def lane_words(self) -> int:
        """Words of what the lanes of one kind of register add."""
        return (self.lanes + 1) // 2

    @property
    def loops(self) -> int:
        """For each loop around the innermost, innermost last: see `loop_words`."""
        return self.coordinates(2, 0)

    @property
    def loop_words(self) -> int:
        """Words of one loop: as the innermost, then for each side the address and step of a table of offsets."""
        return self.steps + 4


def table_shape(
    lanes: int, registers: int, guards: int, deinterleave: Deinterleave | None, overlaps: bool
) -> TableShape:
    """The shape of the table of a kernel with such a tile."""
    kinds = (1, 1)
    if deinterleave is not None:
        kinds = (deinterleave.extent, 1) if deinterleave.side == "src" else (1, deinterleave.extent)
    return TableShape(lanes, registers, guards, kinds, overlaps)


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of one reorder."""

    words: Words
    """The table itself."""
    offsets: tuple[Words, ...]
    """What `words` holds the addresses of: the register offsets of both sides, then tables of loops."""
    tiles: int
    """How many tiles there are."""
    tiles_per_run: int
    """How many of them make one run of the innermost loop."""
    address: int
    """Where the words lie."""

    @property
    def dst_offsets(self) -> Words:
        """Bytes to each register of the destination; nibbles where it is written one 4-bit element at a time."""
        return self.offsets[1]


def build_table(problem: ReorderProblem, schedule: Schedule, ahead: int = 0) -> Table:
    """The table of `schedule`, with `ahead` bytes from a load to the line that it asks for."""
    tile, nest = schedule.tile, schedule.nest
    odd = None if tile.odd is None else tile.odd.deinterleave
    shape = table_shape(1 << tile.lane_bits, tile.registers, len(nest.guards), odd, schedule.overlaps)
    runs = [(o, nest.loops[o.loop]) for o in schedule.outer]
    if not runs or not schedule.steps_evenly(schedule.outer[-1]):
        runs.append((OuterLoop(0, 1, 1), Loop(1, 0, 0)))
    words = np.zeros(shape.loops + (len(runs) - 1) * shape.loop_words + 1, np.int64)
    builder = _TableBuilder(words, shape, (problem.src_type, problem.dst_type), schedule, [])
    words[shape.LOOPS] = len(runs) - 1
    words[shape.STAGE] = (problem.dst_type.bits << tile.lane_bits) * tile.registers * runs[-1][0].extent // 8
    words[shape.PREFETCH] = ahead
    builder.registers()
    builder.bounds()
    builder.loop(shape.INNERMOST, *runs[-1])
    for i, run in enumerate(reversed(runs[:-1])):
        builder.loop(shape.loops + i * shape.loop_words, *run)
        builder.tables(shape.loops + i * shape.loop_words + shape.steps, *run)
    return Table(
        words, tuple(builder.offsets), schedule.tiles, runs[-1][0].extent, int(words.__array_interface__["data"][0])
    )


_Number = TypeVar("_Number", int, Words)


@dataclass(frozen=True, slots=True)
class _TableBuilder:
    words: Words
    shape: TableShape
    types: tuple[DataType, DataType]
    schedule: Schedule
    offsets: list[Words]

    def places(self, side: int, elements: _Number) -> _Number:
        """Elements of a side in what its addresses count: bytes, or nibbles."""
        kind = self.types[side]
        return elements * kind.bits // address_bits(kind.name, self.shape.lanes)

    def loop(self, at: int, run: OuterLoop, loop: Loop) -> None:
        """Extent and sums of one loop: a table inside the tile moves the register offsets, not the address."""
        is_looked_up = run.step == 1
        rows = [0 if isinstance(where, int) or is_looked_up else 8 * self.shape.registers for where in loop.maps]
        words = [run.extent, *self.added(loop, run.step, rows)]
        if self.shape.overlaps:
            words += self.added(loop, -run.back, [0, 0])
        self.words[at : at + self.shape.steps] = words

    def added(self, loop: Loop, values: int, rows: list[int]) -> list[int]:
        """What so many values of a loop, and such steps of the rows of tables, add to the sums."""
        steps = [where * values if isinstance(where, int) else 0 for where in loop.maps]
        moves = [self.places(side, step) for side, step in enumerate(steps)]
        return [*moves, *rows, *(loop.weight(g) * values for g in range(self.shape.guards))]

    def tables(self, at: int, run: OuterLoop, loop: Loop) -> None:
        """Offsets of a loop without a stride; a loop with one looks up the same zero again and again."""
        for side, where in enumerate(loop.maps):
            looked_up = isinstance(where, tuple) and run.step == 1
            offsets = self.places(side, np.array(where if looked_up else [0], np.int64))
            self.offsets.append(offsets)
            self.words[at + 2 * side : at + 2 * side + 2] = [offsets.__array_interface__["data"][0], int(looked_up)]

    def bounds(self) -> None:
        """The bounds of each guard."""
        for g, guard in enumerate(self.schedule.nest.guards):
            reach = sum(_weight(self.schedule, bit, g) for bit in self.schedule.tile.src_bits)
            at = self.shape.bound(g, 0)
            self.words[at : at + 4] = [guard.data, guard.stored, guard.data - 1 - reach, guard.stored - 1 - reach]

    def registers(self) -> None:
        """Offsets of the registers, and what registers and lanes add to the coordinates."""
        tile, loops = self.schedule.tile, self.schedule.nest.loops
        lanes, registers = tile.lane_bits, self.shape.registers
        for side, bits in enumerate((tile.src_bits, tile.dst_bits)):
            offsets = self.places(side, _register_offsets(self.schedule, side))
            self.offsets.append(offsets)
            self.words[self.shape.OFFSETS + side] = offsets.__array_interface__["data"][0]
            for g in range(self.shape.guards):
                weights = [_weight(self.schedule, bit, g) for bit in bits]
                odd = 0 if tile.odd is None else loops[tile.odd.loop].weight(g)
                start = self.shape.coordinates(side, g)
                among = np.arange(registers >> tile.register_bits) * (odd if self.shape.kinds[side] == 1 else 0)
                self.words[start : start + registers] = np.add.outer(among, _subset_sums(weights[lanes:])).ravel()
                self.lanes(start + registers, side, _subset_sums(weights[:lanes]), odd)

    def lanes(self, at: int, side: int, coordinates: Words, odd_weight: int) -> None:
        """What the lanes of each kind of register add to a coordinate."""
        if coordinates[-1] > _MOST_IN_LANES:
            raise Unimplemented(f"the lanes of one register are {coordinates[-1]} coordinates of one axis apart")
        odd, count = self.schedule.tile.odd, self.shape.lanes
        kinds = [coordinates]
        if odd is not None and self.shape.kinds[side] > 1:
            gathered = Deinterleave("dst", odd.deinterleave.extent, odd.deinterleave.below)
            sources = [gathered.sources(k, self.schedule.tile.lane_bits) for k in range(odd.deinterleave.extent)]
            kinds = [
                coordinates[[lane for _, lane in one]] + odd_weight * np.array([of for of, _ in one]) for one in sources
            ]
        for i, kind in enumerate(kinds):
            self.words[at + i * self.shape.lane_words :].view(np.int32)[:count] = kind


def _register_offsets(schedule: Schedule, side: int) -> Words:
    """Elements to each register of a side: one row, or, with a table among the loops, one for each step over its loop.

    An odd digit repeats them for each of its values: registers in a row where it is among the lanes of the side.
    """
    tile, maps = schedule.tile, [loop.maps[side] for loop in schedule.nest.loops]
    bits = (tile.src_bits, tile.dst_bits)[side][tile.lane_bits :]
    strides = [where << bit if isinstance(where := maps[loop], int) else 0 for loop, bit in bits]
    total = _subset_sums(strides)[np.newaxis]
    for loop in {loop for loop, _ in bits}:
        where = maps[loop]
        if isinstance(where, tuple):
            values = [1 << bit if owner == loop else 0 for owner, bit in bits]
            rows = np.array(where, np.int64).reshape(-1, 1 << sum(owner == loop for owner, _ in bits))
            total = total + rows[:, _subset_sums(values)]
    if tile.odd is not None:
        where = 1 << tile.lane_bits if tile.odd.deinterleave.side == SIDES[side] else maps[tile.odd.loop]
        steps = np.arange(tile.odd.deinterleave.extent) * where if isinstance(where, int) else np.array(where, np.int64)
        total = (total[:, np.newaxis, :] + steps[:, np.newaxis]).reshape(len(total), -1)
    return np.ascontiguousarray(total)


def _weight(schedule: Schedule, bit: Bit, guard: int) -> int:
    loop, position = bit
    return schedule.nest.loops[loop].weight(guard) << position


def _subset_sums(parts: list[int]) -> Words:
    """For every number of len(parts) bits, the sum of the parts whose bit is set."""
    total = np.zeros(1, np.int64)
    for part in parts:
        total = np.concatenate([total, total + part])
    return total


def is_byte_aligned(problem: ReorderProblem, schedule: Schedule) -> bool:
    """Whether every register of `schedule` begins at a whole byte of either side; one element at a time need not."""
    tile, loops = schedule.tile, schedule.nest.loops
    if not tile.lane_bits:
        return True
    sides = ((problem.src_type, problem.src_offset), (problem.dst_type, problem.dst_offset))
    for side, (kind, start) in enumerate(sides):
        if kind.is_sub_byte:
            runs = [(o.step, loops[o.loop].maps[side]) for o in schedule.outer]
            # A table inside the tile moves the register offsets alone.
            steps = [np.multiply(where, step) for step, where in runs if isinstance(where, int) or step == 1]
            if any(np.any(np.bitwise_and(n, 1)) for n in (start, _register_offsets(schedule, side), *steps)):
                return False
    return True
