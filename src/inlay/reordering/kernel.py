"""The split of a schedule into a kernel, which becomes machine code, and a table of numbers, which stays data.

The kernel is what the code depends on: element types, lanes, the shuffle network, the number of guards, and, for
attributes, which values the lanes of a register use. The table holds all numbers: extents, strides, bounds, and the
offset of each register. Reorders of different shapes share a kernel, so a network with a hundred weights compiles only
a handful of kernels.

The table is an array of 64-bit words whose layout `TableShape` describes. Offsets and strides in it are in bytes.
"""

from dataclasses import dataclass
from math import gcd
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.errors import Unimplemented
from inlay.reordering.conversion import address_bits
from inlay.reordering.loop_order import OuterLoop
from inlay.reordering.nest import Loop
from inlay.reordering.network import SIDES, Deinterleave, ShuffleNetwork, Side
from inlay.reordering.problem import (
    Computation,
    FormulaStep,
    ReorderProblem,
    scale_swizzle,
    step_value_layouts,
    working_type,
)
from inlay.reordering.schedule import Bit, Schedule

Words = npt.NDArray[np.int64]
Stores = Literal["cached", "streamed", "staged"]
"""The kind of stores to the destination. `cached`: ordinary stores. `streamed`: streaming stores of registers that are
whole cache lines. `staged`: registers are parts of lines; they are stored to a buffer, the stage, which holds what one
execution of the innermost loop writes and is then streamed to the destination."""
STAGE_BYTES = 1 << 14
"""Size of the stage in bytes: half of a first-level cache."""


@dataclass(frozen=True, slots=True)
class AddressSwizzle:
    """The XOR of bits of an address into others; addresses count from that of the coordinate of all zeros."""

    source_mask: int
    """The bits of an address that are read, as an integer; not 0."""
    shift: int
    """Distance in bits from the changed bits up to those that are read, or down to them if negative."""
    alignment: int
    """The greatest power of two, at most the size of a register, that divides the addresses of all registers before the
    swizzle."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The numbers of each bit that is read, and of the bit that it changes, lowest first."""
        sources = (bit for bit in range(self.source_mask.bit_length()) if self.source_mask >> bit & 1)
        return [(source, source - self.shift) for source in sources]

    @property
    def piece(self) -> int:
        """The size of the aligned runs of addresses that are contiguous after the swizzle, at most `alignment`."""
        return min(self.alignment, 1 << min(min(pair) for pair in self.pairs))

    def part(self, size: int) -> int:
        """Return the size of the longest runs that begin at multiples of it and are permuted within such a run.

        It is at most `alignment` and `size`, a power of two. A bit within such a run changes none outside it.

        >>> AddressSwizzle(0b111 << 7, 3, 64).part(64), AddressSwizzle(0b111 << 4, -3, 64).part(64)
        (64, 16)
        """
        part = min(self.alignment, size)
        while any(1 << source < part <= 1 << target for source, target in self.pairs):
            part //= 2
        return part

    def count_swaps(self, size: int) -> int:
        """Return the number of bits that a swizzle changes within a part of a register of `size` address units."""
        part = self.part(max(size, 1))
        return sum(1 << target < part for _, target in self.pairs)

    def apply(self, address: int) -> int:
        """Return a swizzled address.

        >>> AddressSwizzle(0b1100, 2, 4).apply(0b0111)
        6
        """
        read = address & self.source_mask
        return address ^ (read >> self.shift if self.shift >= 0 else read << -self.shift)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The inputs of code generation, without the target: equal kernels have equal machine code."""

    src_type: str
    """Name of the type of the source elements."""
    dst_type: str
    """Name of the type of the destination elements."""
    network: ShuffleNetwork
    """The shuffle network; its lane and register bits determine the size of the tile."""
    guards: int
    """Number of guards, value indices included."""
    stores: Stores
    """The kind of stores to the destination."""
    deinterleave: Deinterleave | None = None
    """The odd digit among the lanes of one side, if any."""
    prefetches: bool = False
    """True if each load prefetches a line of a later tile."""
    computation: Computation | None = None
    """The formula to compute between load and store; None if elements are only moved or converted."""
    overlaps: bool = False
    """True if the last tile of a loop may begin earlier and overlap the one before."""
    src_swizzle: AddressSwizzle | None = None
    """The swizzle of addresses in the source; None if they are offsets of its layout."""
    dst_swizzle: AddressSwizzle | None = None
    """The swizzle of addresses in the destination, likewise."""

    @property
    def swizzles(self) -> tuple[AddressSwizzle | None, AddressSwizzle | None]:
        """The swizzles of both sides: (src, dst)."""
        return self.src_swizzle, self.dst_swizzle

    @property
    def bounds(self) -> range:
        """The numbers of the guards with bounds; guards before them are value indices."""
        return range(0 if self.computation is None else self.computation.counts, self.guards)

    @property
    def shuffles(self) -> bool:
        """Return whether elements change their lane or register between load and store."""
        return bool(self.network.steps) or self.deinterleave is not None

    @property
    def lanes(self) -> int:
        """Number of elements in one register."""
        return 1 << len(self.network.lanes)

    @property
    def registers(self) -> int:
        """Number of registers of the tile: 2^(register bits), times the extent of the odd digit if there is one."""
        return (1 if self.deinterleave is None else self.deinterleave.extent) << len(self.network.registers)


def build_kernel(problem: ReorderProblem, schedule: Schedule, stores: Stores, *, prefetches: bool = False) -> Kernel:
    """Build the kernel that executes `schedule`. Moves without conversion depend only on the width of the type."""
    names = [problem.src_type.name, problem.dst_type.name]
    computation = _build_computation(problem, schedule)
    if problem.src_type == problem.dst_type and computation is None:
        names = [f"i{problem.src_type.bits}"] * 2
    deinterleave = None if schedule.tile.odd is None else schedule.tile.odd.deinterleave
    guards = len(schedule.nest.guards)
    network = schedule.tile.network
    src_swizzle, dst_swizzle = (build_address_swizzle(problem, schedule, side) for side in (0, 1))
    return Kernel(
        names[0],
        names[1],
        network,
        guards,
        stores,
        deinterleave,
        prefetches,
        computation,
        schedule.overlaps,
        src_swizzle,
        dst_swizzle,
    )


def build_address_swizzle(problem: ReorderProblem, schedule: Schedule, side: int) -> AddressSwizzle | None:
    """Return the swizzle of addresses of a side, source (0) or destination (1); None if that side has none."""
    kind, lanes = (problem.src_type, problem.dst_type)[side], 1 << schedule.tile.lane_bits
    unit = address_bits(kind.name, lanes)
    swizzle = scale_swizzle(problem.swizzles[side], (kind.bits // unit).bit_length() - 1)
    if swizzle is None:
        return None
    return AddressSwizzle(
        swizzle.source_mask, swizzle.shift, gcd(lanes, *_side_offsets(schedule, side)) * kind.bits // unit
    )


def _build_computation(problem: ReorderProblem, schedule: Schedule) -> Computation | None:
    """Return the formula that a kernel for `schedule` computes; None if it only moves or converts."""
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
    """Return the steps of the formula on registers of `side`, with the values of lanes where code can know them."""
    tile = schedule.tile
    lanes = (tile.src_bits if side == "src" else tile.dst_bits)[: tile.lane_bits]
    odd = tile.odd.loop if tile.odd is not None and tile.odd.deinterleave.side == side else None
    steps = []
    for name, layout in step_value_layouts(problem.attributes, problem.factor, problem.dims).items():
        if layout is None:
            steps.append(FormulaStep(name, None, (0,) * (1 << len(lanes))))
            continue
        count = problem.value_layouts.index(layout)
        # With an odd digit among the lanes, the values of the lanes differ from register to register.
        is_odd = odd is not None and any(schedule.nest.loops[i].weight(count) for i in (odd, *dict(lanes)))
        lane_values = [0]
        for loop, bit in lanes:
            weight = schedule.nest.loops[loop].weight(count) << bit
            lane_values += [value + weight for value in lane_values]
        is_near = max(lane_values) < 2 * len(lane_values) and not is_odd
        steps.append(FormulaStep(name, count, tuple(lane_values) if is_near else None))
    return tuple(steps)


def greatest_value_indices(problem: ReorderProblem, schedule: Schedule) -> dict[int, int]:
    """Return, for each value index, its greatest value in any tile, including elements beyond the tensor."""
    loops = [(loop, schedule.tile.covers(i)) for i, loop in enumerate(schedule.nest.loops)]
    return {
        count: sum((-(-loop.extent // step) * step - 1) * loop.weight(count) for loop, step in loops)
        for count in range(len(problem.value_layouts))
    }


# The table


_MOST_IN_LANES = 1 << 30  # largest coordinate of a lane within its register: masks compare 32-bit numbers


@dataclass(frozen=True, slots=True)
class TableShape:
    """The layout of a table: the position of each of its parts, in 64-bit words."""

    lanes: int
    """Number of elements in one register."""
    registers: int
    """Number of registers of the tile."""
    guards: int
    """Number of guards, value indices included."""
    kinds: tuple[int, int] = (1, 1)
    """For each side, the number of register kinds. Registers of one kind have the same coordinates in their lanes,
    relative to the first lane. With an odd digit among the lanes, each of its values is a kind."""
    overlaps: bool = False
    """True if each loop has words for how much earlier its last iteration begins."""

    LOOPS = 0
    """One word: the number of loops around the innermost."""
    OFFSETS = 1
    """Two words: the addresses of the register offsets of source and destination."""
    STAGE = 3
    """One word: bytes of the destination that one execution of the innermost loop fills, for staged stores."""
    PREFETCH = 4
    """One word: the prefetch distance in bytes, for kernels that prefetch."""
    INNERMOST = 5
    """The innermost loop: its extent, then the increments of its `sums`, then, for overlapping tiles, the corrections
    of the sums for the last iteration."""

    @property
    def sums(self) -> int:
        """Number of running sums of the loops: an offset and a row address for each side, and one for each guard."""
        return 4 + self.guards

    @property
    def steps(self) -> int:
        """Number of words for the extent of a loop, its increments and, for overlapping tiles, its corrections."""
        return 1 + self.sums * (1 + self.overlaps)

    def bound(self, guard: int, which: int) -> int:
        """Return the position of a bound of a guard; `which` selects one of four.

        0: elements are read below it. 1: elements are written below it. 2: the last coordinate at which a tile is read
        whole. 3: the last coordinate at which a tile is written whole.
        """
        return self.INNERMOST + self.steps + 4 * guard + which

    def coordinates(self, side: int, guard: int) -> int:
        """Return the position of the coordinates that registers and lanes add to a guard's sum.

        First a word for each register, then 32 bits for each lane of each kind of register.
        """
        sizes = [self.registers + kinds * self.lane_words for kinds in self.kinds]
        before = self.guards * sum(sizes[:side])
        return self.bound(self.guards, 0) + before + guard * sum(sizes[side : side + 1])

    @property
    def lane_words(self) -> int:
        """Number of words for the lanes of one kind of register."""
        return (self.lanes + 1) // 2

    @property
    def loops(self) -> int:
        """Position of the loops around the innermost, innermost of them first; each has `loop_words` words."""
        return self.coordinates(2, 0)

    @property
    def loop_words(self) -> int:
        """Words of one loop: as the innermost, then the address and stride of a table of offsets for each side."""
        return self.steps + 4


def table_shape(
    lanes: int, registers: int, guards: int, deinterleave: Deinterleave | None, overlaps: bool
) -> TableShape:
    """Return the layout of the table of a kernel with such a tile."""
    kinds = (1, 1)
    if deinterleave is not None:
        kinds = (deinterleave.extent, 1) if deinterleave.side == "src" else (1, deinterleave.extent)
    return TableShape(lanes, registers, guards, kinds, overlaps)


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of one reorder, as its kernel reads them."""

    words: Words
    """The words that `TableShape` describes."""
    offsets: tuple[Words, ...]
    """Arrays whose addresses are in `words`: the register offsets of both sides, then tables of loops. Kept alive
    here."""
    tiles: int
    """Number of tiles."""
    tiles_per_run: int
    """Number of tiles in one execution of the innermost loop."""
    address: int
    """Address of the first word."""

    @property
    def dst_offsets(self) -> Words:
        """Offset of each destination register in bytes; in nibbles if 4-bit elements are stored one at a time."""
        return self.offsets[1]


def build_table(problem: ReorderProblem, schedule: Schedule, prefetch_distance: int = 0) -> Table:
    """Build the table of `schedule`, with a prefetch distance of `ahead` bytes."""
    tile, nest = schedule.tile, schedule.nest
    odd = None if tile.odd is None else tile.odd.deinterleave
    shape = table_shape(1 << tile.lane_bits, tile.registers, len(nest.guards), odd, schedule.overlaps)
    loops = [(o, nest.loops[o.loop]) for o in schedule.outer]
    if not loops or not schedule.steps_evenly(schedule.outer[-1]):
        loops.append((OuterLoop(0, 1, 1), Loop(1, 0, 0)))  # the innermost loop of the code needs strides
    words = np.zeros(shape.loops + (len(loops) - 1) * shape.loop_words + 1, np.int64)
    builder = _TableBuilder(words, shape, (problem.src_type, problem.dst_type), schedule, [])
    words[shape.LOOPS] = len(loops) - 1
    words[shape.STAGE] = (problem.dst_type.bits << tile.lane_bits) * tile.registers * loops[-1][0].extent // 8
    words[shape.PREFETCH] = prefetch_distance
    builder.write_registers()
    builder.write_bounds()
    builder.write_loop(shape.INNERMOST, *loops[-1])
    for i, loop in enumerate(reversed(loops[:-1])):
        builder.write_loop(shape.loops + i * shape.loop_words, *loop)
        builder.write_offset_tables(shape.loops + i * shape.loop_words + shape.steps, *loop)
    return Table(
        words, tuple(builder.offsets), schedule.tiles, loops[-1][0].extent, int(words.__array_interface__["data"][0])
    )


_Number = TypeVar("_Number", int, Words)


@dataclass(frozen=True, slots=True)
class _TableBuilder:
    """Writes the parts of a table into `words`; appends the arrays that the words refer to to `offsets`."""

    words: Words
    shape: TableShape
    types: tuple[DataType, DataType]
    schedule: Schedule
    offsets: list[Words]

    def to_address_units(self, side: int, elements: _Number) -> _Number:
        """Convert elements of a side to the unit of its addresses: bytes, or nibbles."""
        kind = self.types[side]
        return elements * kind.bits // address_bits(kind.name, self.shape.lanes)

    def write_loop(self, at: int, outer: OuterLoop, loop: Loop) -> None:
        """Write the extent of one loop and the increments of its sums.

        If a table of offsets is inside the tile, the loop selects a row of register offsets; the address stays.
        """
        is_looked_up = outer.step == 1
        rows = [0 if isinstance(where, int) or is_looked_up else 8 * self.shape.registers for where in loop.maps]
        words = [outer.extent, *self.sum_increments(loop, outer.step, rows)]
        if self.shape.overlaps:
            words += self.sum_increments(loop, -outer.back, [0, 0])
        self.words[at : at + self.shape.steps] = words

    def sum_increments(self, loop: Loop, iterations: int, rows: list[int]) -> list[int]:
        """Return the increments of all sums for `iterations` of a loop; `rows` are those of the row addresses."""
        elements = [offsets * iterations if isinstance(offsets, int) else 0 for offsets in loop.maps]
        moves = [self.to_address_units(side, count) for side, count in enumerate(elements)]
        return [*moves, *rows, *(loop.weight(g) * iterations for g in range(self.shape.guards))]

    def write_offset_tables(self, at: int, outer: OuterLoop, loop: Loop) -> None:
        """Write address and stride of a loop's offset tables; a loop with a stride has a table of one zero."""
        for side, where in enumerate(loop.maps):
            looked_up = isinstance(where, tuple) and outer.step == 1
            offsets = self.to_address_units(side, np.array(where if looked_up else [0], np.int64))
            self.offsets.append(offsets)
            self.words[at + 2 * side : at + 2 * side + 2] = [offsets.__array_interface__["data"][0], int(looked_up)]

    def write_bounds(self) -> None:
        """Write the four bounds of each guard."""
        for g, guard in enumerate(self.schedule.nest.guards):
            reach = sum(_weight(self.schedule, bit, g) for bit in self.schedule.tile.src_bits)
            at = self.shape.bound(g, 0)
            self.words[at : at + 4] = [guard.data, guard.stored, guard.data - 1 - reach, guard.stored - 1 - reach]

    def write_registers(self) -> None:
        """Write the register offsets of both sides, and the coordinates of registers and lanes for each guard."""
        tile, loops = self.schedule.tile, self.schedule.nest.loops
        lanes, registers = tile.lane_bits, self.shape.registers
        for side, bits in enumerate((tile.src_bits, tile.dst_bits)):
            offsets = self.to_address_units(side, _register_offsets(self.schedule, side))
            self.offsets.append(offsets)
            self.words[self.shape.OFFSETS + side] = offsets.__array_interface__["data"][0]
            for g in range(self.shape.guards):
                weights = [_weight(self.schedule, bit, g) for bit in bits]
                odd = 0 if tile.odd is None else loops[tile.odd.loop].weight(g)
                start = self.shape.coordinates(side, g)
                among = np.arange(registers >> tile.register_bits) * (odd if self.shape.kinds[side] == 1 else 0)
                self.words[start : start + registers] = np.add.outer(among, _subset_sums(weights[lanes:])).ravel()
                self.write_lanes(start + registers, side, _subset_sums(weights[:lanes]), odd)

    def write_lanes(self, at: int, side: int, coordinates: Words, odd_weight: int) -> None:
        """Write the coordinates of the lanes, relative to the register, for each kind of register."""
        if coordinates[-1] > _MOST_IN_LANES:
            raise Unimplemented(f"the lanes of one register are {coordinates[-1]} coordinates of one axis apart")
        odd, count = self.schedule.tile.odd, self.shape.lanes
        kinds = [coordinates]
        if odd is not None and self.shape.kinds[side] > 1:
            # On the side of the odd digit, register k holds elements of every value of the digit in its lanes.
            interleaved = Deinterleave("dst", odd.deinterleave.extent, odd.deinterleave.below)
            sources = [interleaved.sources(k, self.schedule.tile.lane_bits) for k in range(odd.deinterleave.extent)]
            kinds = [
                coordinates[[lane for _, lane in lanes]] + odd_weight * np.array([value for value, _ in lanes])
                for lanes in sources
            ]
        for i, kind in enumerate(kinds):
            self.words[at + i * self.shape.lane_words :].view(np.int32)[:count] = kind


def _register_offsets(schedule: Schedule, side: int) -> Words:
    """Return the offset of each register of a side in elements, one row for each row of a table inside the tile.

    Without such a table there is one row. An odd digit multiplies the registers: they are contiguous on the side that
    has the digit among its lanes.
    """
    tile, maps = schedule.tile, [loop.maps[side] for loop in schedule.nest.loops]
    bits = (tile.src_bits, tile.dst_bits)[side][tile.lane_bits :]
    strides = [stride << bit if isinstance(stride := maps[loop], int) else 0 for loop, bit in bits]
    total = _subset_sums(strides)[np.newaxis]
    for loop in {loop for loop, _ in bits}:
        table = maps[loop]
        if isinstance(table, tuple):
            iterations = [1 << bit if owner == loop else 0 for owner, bit in bits]
            rows = np.array(table, np.int64).reshape(-1, 1 << sum(owner == loop for owner, _ in bits))
            total = total + rows[:, _subset_sums(iterations)]
    if tile.odd is not None:
        extent = tile.odd.deinterleave.extent
        odd_map = 1 << tile.lane_bits if tile.odd.deinterleave.side == SIDES[side] else maps[tile.odd.loop]
        steps = np.arange(extent) * odd_map if isinstance(odd_map, int) else np.array(odd_map, np.int64)
        total = (total[:, np.newaxis, :] + steps[:, np.newaxis]).reshape(len(total), -1)
    return np.ascontiguousarray(total)


def _weight(schedule: Schedule, bit: Bit, guard: int) -> int:
    """Return what a set bit of the tile adds to the sum of a guard."""
    loop, position = bit
    return schedule.nest.loops[loop].weight(guard) << position


def _subset_sums(parts: list[int]) -> Words:
    """Return, for each number of len(parts) bits, the sum of the parts whose bit is set."""
    total = np.zeros(1, np.int64)
    for part in parts:
        total = np.concatenate([total, total + part])
    return total


def is_byte_aligned(problem: ReorderProblem, schedule: Schedule) -> bool:
    """Return whether every register of `schedule` begins at a whole byte on both sides.

    A tile of one element needs no alignment, since its kernel addresses single nibbles.
    """
    if not schedule.tile.lane_bits:
        return True
    sides = ((problem.src_type, problem.src_offset), (problem.dst_type, problem.dst_offset))
    return not any(
        data_type.is_sub_byte and any(offset % 2 for offset in (start, *_side_offsets(schedule, side)))
        for side, (data_type, start) in enumerate(sides)
    )


def _side_offsets(schedule: Schedule, side: int) -> set[int]:
    """Return numbers whose sums are the offsets of all registers of a side: those of one tile, and strides of loops."""
    offsets = set(_register_offsets(schedule, side).ravel().tolist())
    for o in schedule.outer:
        where = schedule.nest.loops[o.loop].maps[side]
        if isinstance(where, int):
            offsets |= {where * o.step, where * o.back}
        elif o.step == 1:  # _register_offsets includes the tables of loops that are partly in the tile
            offsets.update(where)
    return offsets
