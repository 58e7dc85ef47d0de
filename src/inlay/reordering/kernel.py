"""Kernel and table: what is machine code, and what is data.

A scheduled reorder splits in two. The kernel is what the code depends on: element types, lanes, shuffle network, the
number of guards. The table holds all numbers: extents, strides, bounds, the offset of every register. Reorders of
different shapes share one kernel, so a network of a hundred weights compiles a handful of kernels.

The table is an array of 64-bit words; `TableShape` says where everything is. Offsets and strides in it are bytes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.layout import Map
from inlay.reordering.network import Network
from inlay.reordering.nest import Loop
from inlay.reordering.problem import ReorderProblem
from inlay.reordering.schedule import Bit, Schedule

Words = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Everything that the machine code of a reorder depends on, beside the target."""

    src_type: str
    """Name of the type of the source elements."""
    dst_type: str
    """Name of the type of the destination elements."""
    network: Network
    """The exchanges; its lane and register bits give the size of the tile."""
    guards: int
    """How many coordinates have bounds."""
    streams: bool
    """Whether whole lines of the destination bypass the caches."""

    @property
    def lanes(self) -> int:
        """Elements in one register."""
        return 1 << len(self.network.lanes)

    @property
    def registers(self) -> int:
        """Registers of the tile."""
        return 1 << len(self.network.registers)


@dataclass(frozen=True, slots=True)
class TableShape:
    """Where the parts of a table begin, in words."""

    lanes: int
    """Elements in one register."""
    registers: int
    """Registers of the tile."""
    guards: int
    """How many coordinates have bounds."""

    LOOPS = 0
    """One word: the number of loops around the innermost."""
    INNERMOST = 1
    """The innermost loop: extent, source step, destination step, then what it counts for each guard."""

    @property
    def bounds(self) -> int:
        """For each guard: read below, write below, whole tiles up to."""
        return 4 + self.guards

    @property
    def src_offsets(self) -> int:
        """For each register, where the source has it."""
        return self.bounds + 3 * self.guards

    @property
    def dst_offsets(self) -> int:
        """For each register, where the destination has it."""
        return self.src_offsets + self.registers

    def coordinates(self, side: int, guard: int) -> int:
        """What each register (one word each), then each lane (32 bits each), adds to a guard's coordinate."""
        one = self.registers + (self.lanes + 1) // 2
        return self.dst_offsets + self.registers + (side * self.guards + guard) * one

    @property
    def loops(self) -> int:
        """For each loop around the innermost, innermost last: see `loop_words`."""
        return self.coordinates(2, 0)

    @property
    def loop_words(self) -> int:
        """Words of one loop: extent; for each side stride, table address, table step; what it counts for each guard."""
        return 7 + self.guards


def kernel_of(problem: ReorderProblem, schedule: Schedule, streams: bool) -> Kernel:
    """The kernel that runs `schedule`. Moves without conversion depend on the width of the type only."""
    names = [problem.src_type.name, problem.dst_type.name]
    if problem.src_type == problem.dst_type:
        names = [f"i{problem.src_type.bits}"] * 2
    return Kernel(names[0], names[1], schedule.tile.network, len(schedule.nest.guards), streams)


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of one reorder."""

    words: Words
    """The table itself."""
    offsets: tuple[Words, ...]
    """Offsets of loops that have no stride; `words` holds their addresses."""
    tiles: int
    """How many tiles there are."""

    @property
    def address(self) -> int:
        """Where the words lie."""
        return int(self.words.ctypes.data)


def table_of(problem: ReorderProblem, schedule: Schedule) -> Table:
    """The table of `schedule`."""
    tile, nest = schedule.tile, schedule.nest
    shape = TableShape(1 << tile.lane_bits, 1 << tile.register_bits, len(nest.guards))
    loops = [_Outer(o.extent, o.step, nest.loops[o.loop]) for o in schedule.outer]
    if not loops or not loops[-1].loop.is_affine:
        loops.append(_Outer(1, 1, Loop(1, 0, 0)))
    words = np.zeros(shape.loops + (len(loops) - 1) * shape.loop_words + 1, np.int64)
    builder = _Builder(words, shape, (problem.src_type, problem.dst_type), [])
    words[shape.LOOPS] = len(loops) - 1
    builder.innermost(loops[-1])
    builder.bounds(schedule)
    builder.registers(schedule)
    for i, loop in enumerate(reversed(loops[:-1])):
        builder.outer(shape.loops + i * shape.loop_words, loop)
    return Table(words, tuple(builder.offsets), schedule.tiles)


@dataclass(frozen=True, slots=True)
class _Outer:
    extent: int
    step: int
    loop: Loop


@dataclass(frozen=True, slots=True)
class _Builder:
    words: Words
    shape: TableShape
    types: tuple[DataType, DataType]
    offsets: list[Words]

    def innermost(self, outer: _Outer) -> None:
        steps = [self._bytes(side, outer) for side in (0, 1)]
        counts = self._counts(outer)
        self.words[self.shape.INNERMOST : self.shape.bounds] = [outer.extent, *steps, *counts]

    def _bytes(self, side: int, outer: _Outer) -> int:
        where = (outer.loop.src, outer.loop.dst)[side]
        assert isinstance(where, int)
        return where * outer.step * self.types[side].itemsize

    def _counts(self, outer: _Outer) -> list[int]:
        counts = dict(outer.loop.counts)
        return [counts.get(g, 0) * outer.step for g in range(self.shape.guards)]

    def bounds(self, schedule: Schedule) -> None:
        bits = schedule.tile.src_bits
        for g, guard in enumerate(schedule.nest.guards):
            reach = sum(_weight(schedule, bit, g) for bit in bits)
            at = self.shape.bounds + 3 * g
            self.words[at : at + 3] = [guard.data, guard.stored, guard.data - 1 - reach]

    def registers(self, schedule: Schedule) -> None:
        lanes, registers = schedule.tile.lane_bits, self.shape.registers
        loops = schedule.nest.loops
        sides = [(schedule.tile.src_bits, [loop.src for loop in loops], self.shape.src_offsets)]
        sides += [(schedule.tile.dst_bits, [loop.dst for loop in loops], self.shape.dst_offsets)]
        for side, (bits, maps, at) in enumerate(sides):
            item = self.types[side].itemsize
            self.words[at : at + registers] = _sums([_stride(maps, bit) * item for bit in bits[lanes:]])
            for g in range(self.shape.guards):
                weights = [_weight(schedule, bit, g) for bit in bits]
                start = self.shape.coordinates(side, g)
                self.words[start : start + registers] = _sums(weights[lanes:])
                narrow = self.words[start + registers :].view(np.int32)
                narrow[: self.shape.lanes] = _sums(weights[:lanes])

    def outer(self, at: int, outer: _Outer) -> None:
        words = [outer.extent]
        for side, where in enumerate((outer.loop.src, outer.loop.dst)):
            words += self._where(side, where, outer.step)
        self.words[at : at + self.shape.loop_words] = [*words, *self._counts(outer)]

    def _where(self, side: int, where: Map, step: int) -> list[int]:
        """Stride, table and table step: a loop with a stride looks up one zero, again and again."""
        item = self.types[side].itemsize
        stride = where * step * item if isinstance(where, int) else 0
        offsets = np.array([0] if isinstance(where, int) else where, np.int64) * item
        self.offsets.append(offsets)
        return [stride, int(offsets.ctypes.data), 0 if isinstance(where, int) else 1]


def _weight(schedule: Schedule, bit: Bit, guard: int) -> int:
    loop, position = bit
    return dict(schedule.nest.loops[loop].counts).get(guard, 0) << position


def _stride(maps: list[Map], bit: Bit) -> int:
    where = maps[bit[0]]
    assert isinstance(where, int), "a tile takes bits of affine loops only"
    return where << bit[1]


def _sums(parts: list[int]) -> Words:
    """For every number of len(parts) bits, the sum of the parts whose bit is set."""
    total = np.zeros(1, np.int64)
    for part in parts:
        total = np.concatenate([total, total + part])
    return total
