"""`winograd`: a convolution of 3x3 by F(4x4, 3x3), where sizes and formats allow it.

    implementation = winograd(operation, team, threads=2)
    implementation.descs["weights"]         an opaque format: see `transforming`
    implementation.bind(memories)()

It runs in the OpenMP threads of somebody else, whose next call finds them awake.
"""

import ctypes
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.engine.inlay.emit import ENTRY, module
from inlay.engine.inlay.images import Image, Sizes, images
from inlay.engine.inlay.product_code import ROWS
from inlay.engine.inlay.table import Word
from inlay.engine.inlay.tiles import POINTS
from inlay.engine.inlay.vectors import Registers
from inlay.engine.inlay.weights import weights_desc
from inlay.memory import Memory
from inlay.memory.buffers import Bytes, address_of, allocate
from inlay.primitives.operation import Operation, PlainImplementation, ThreadTeam
from inlay.reordering.linking import linked
from inlay.reordering.target import Target, host_target

Words: TypeAlias = npt.NDArray[np.int64]

_LINE = 64
_NEAR = 1 << 20  # bytes of transformed tiles that a thread may have, to find them in its caches again
_FAR = 4 << 20  # bytes of weights from which on they are better read by one thread than by each
_FEW = 4 * ROWS  # tiles of a block: with fewer, weights are read more often than they pay
_MOST = 16 * ROWS
_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the work is divided."""

    blocks: int
    """Blocks of tiles."""
    groups: int
    """Groups of destination channels: each thread that has one transforms the tiles for itself."""

    def most_tiles(self, sizes: Sizes) -> int:
        """Of one block."""
        return -(-sizes.tiles // self.blocks)


def registers_of(target: Target) -> Registers:
    """Tiles of registers of a target: 6 rows by 4 vectors where there are 32 registers, by 2 where there are 16."""
    many = target.vector_bytes == 64 or not target.triple.startswith("x86_64")
    return Registers(target.vector_bytes // 4, 4 if many else 2)


def scheduled(sizes: Sizes, registers: Registers, threads: int) -> Schedule:
    """How to divide the work among so many threads.

    Tiles are divided so that the transformed ones stay in the caches; where weights are many and tiles few, destination
    channels are divided too: of one block of tiles, every thread has its own, so that each weight is read once.
    """
    is_heavy = 4 * POINTS * sizes.ic * sizes.oc > _FAR
    if is_heavy and sizes.tiles < threads * _MOST and registers.panels(sizes.oc) >= threads:
        return Schedule(-(-sizes.tiles // _MOST), threads)
    fitting = _NEAR // (4 * POINTS * (sizes.ic + sizes.oc))
    most = min(_MOST, max(_FEW, fitting))
    blocks = -(-sizes.tiles // most)
    blocks = min(sizes.tiles, -(-blocks // threads) * threads)
    return Schedule(blocks, 1)


@cache
def _entry(target: Target) -> int:
    """The address of the function, made at the first call."""
    text = module(registers_of(target), target.attributes)
    (address,) = linked(text, lambda: text, target, ENTRY)
    return address


class WinogradConvolution:
    """A convolution with all but its memories."""

    __slots__ = (
        "__weakref__",
        "_bias",
        "_local",
        "_room",
        "_table",
        "_target",
        "_team",
        "_threads",
        "descs",
        "operation",
    )

    operation: Operation
    """What was asked."""
    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument, none `any`."""

    def __init__(
        self,
        operation: Operation,
        team: ThreadTeam,
        threads: int,
        schedule: Schedule | None = None,
        target: Target | None = None,
    ) -> None:
        """Settle everything but addresses; see `winograd`. The schedule and the target may be others than the best."""
        self._target = target or host_target()
        registers = registers_of(self._target)
        src, dst = images(operation, registers)
        sizes = Sizes.of(src.desc, dst.desc)
        self.operation, self._team, self._threads = operation, team, threads
        self._room = Room.of(sizes, registers, schedule or scheduled(sizes, registers, threads))
        self._table = _table(operation, (src, dst), sizes, registers, self._room)
        self._table[[Word.THREAD_NUM, Word.NUM_THREADS]] = team.thread_num, team.num_threads
        self._bias = np.zeros(sizes.oc, np.float32)
        self._local = threading.local()
        descs = {"src": src.desc, "weights": weights_desc(sizes.oc, sizes.ic, registers), "dst": dst.desc}
        if "bias" in operation.descs:
            descs["bias"] = MemoryDesc((sizes.oc,), "f32", "a")
        if self._is_given:
            descs["scratchpad"] = MemoryDesc((self._room.nbytes * threads,), "u8", "a")
        self.descs = MappingProxyType(descs)

    @property
    def _is_given(self) -> bool:
        return self.operation.attributes.scratchpad_mode == "user"

    def bind(self, memories: Mapping[str, Memory]) -> "BoundConvolution":
        """What computes once with these memories, each time it is called; it keeps them alive."""
        table = self._table.copy()
        for word, name in ((Word.SRC, "src"), (Word.WEIGHTS, "weights"), (Word.DST, "dst")):
            table[word] += memories[name].address
        bias = memories.get("bias")
        table[Word.BIAS] = address_of(self._bias) if bias is None else bias.address
        if self._is_given:
            table[Word.SCRATCH] = memories["scratchpad"].address
        call = _FUNCTION(self._team.parallel)
        scratch = None if self._is_given else self._scratch
        return BoundConvolution(call, _entry(self._target), self._threads, table, scratch, (self, dict(memories)))

    def _scratch(self) -> Bytes:
        """Room of the calling thread."""
        found: Bytes | None = getattr(self._local, "room", None)
        if found is None:
            found = self._local.room = allocate(self._room.nbytes * self._threads)
        return found


class BoundConvolution:
    """A convolution with its memories: each call computes once.

    Several Python threads may call it at once, unless it was given its scratchpad: that is for one of them at a time.
    """

    __slots__ = ("_address", "_call", "_entry", "_kept", "_scratch", "_table", "_threads")

    def __init__(
        self,
        call: Callable[[int, int, int, int], None],
        entry: int,
        threads: int,
        table: Words,
        scratch: Callable[[], Bytes] | None,
        kept: object,
    ) -> None:
        """Run `entry` by `call` with a table, into which the caller's scratchpad is written unless it is given."""
        self._call, self._entry, self._threads = call, entry, threads
        self._table, self._scratch, self._kept = table, scratch, kept
        self._address = address_of(table)

    def __call__(self) -> None:
        """Compute.

        Raises:
            OutOfMemory: there is no room for a scratchpad of the calling thread.
        """
        if self._scratch is None:
            self._call(self._entry, self._address, self._threads, 0)
            return
        table = self._table.copy()
        table[Word.SCRATCH] = address_of(self._scratch())
        self._call(self._entry, address_of(table), self._threads, 0)


@dataclass(frozen=True, slots=True)
class Room:
    """What a thread needs besides its arguments, in bytes."""

    schedule: Schedule
    """How the work is divided."""
    v_matrix: int
    """From one of the matrices of pixels to the next."""
    m_row: int
    """Of the matrices of results."""
    m_matrix: int
    """From one of those to the next."""
    m_at: int
    """Where they begin."""
    spare_at: int
    """Where two spare registers begin."""
    nbytes: int
    """All."""

    @classmethod
    def of(cls, sizes: Sizes, registers: Registers, schedule: Schedule) -> "Room":
        """The room for a schedule; matrices begin in different sets of a cache."""
        rows, panels = schedule.most_tiles(sizes), -(-registers.panels(sizes.oc) // schedule.groups)
        columns = min(sizes.oc, panels * registers.columns)
        v_matrix, m_row = 4 * sizes.ic * rows + _LINE, 4 * columns
        m_matrix = m_row * rows + _LINE
        m_at = POINTS * v_matrix
        spare_at = m_at + POINTS * m_matrix
        return cls(schedule, v_matrix, m_row, m_matrix, m_at, spare_at, spare_at + 2 * _LINE)


def _table(operation: Operation, sides: tuple[Image, Image], sizes: Sizes, registers: Registers, room: Room) -> Words:
    """The words that do not hang on where memory lies; those of addresses are offsets."""
    table = np.zeros(len(Word), np.int64)
    src, dst = sides
    padding = operation.parameters["padding_l"]
    assert isinstance(padding, tuple)
    schedule = room.schedule
    words = {
        Word.SRC: src.offset,
        Word.DST: dst.offset,
        Word.ROOM: room.nbytes,
        Word.ITEMS: schedule.blocks * schedule.groups,
        Word.GROUPS: schedule.groups,
        Word.BLOCKS: schedule.blocks,
        Word.TILES: sizes.tiles,
        Word.TILES_DOWN: sizes.tiles_down,
        Word.TILES_ACROSS: sizes.tiles_across,
        Word.IC_VECTORS: sizes.ic // registers.lanes,
        Word.OC_VECTORS: sizes.oc // registers.lanes,
        Word.PANELS: registers.panels(sizes.oc),
        Word.TOP: int(padding[0]),
        Word.LEFT: int(padding[1]),
        Word.V_MATRIX: room.v_matrix,
        Word.M_MATRIX: room.m_matrix,
        Word.M_ROW: room.m_row,
        Word.M_AT: room.m_at,
        Word.SPARE_AT: room.spare_at,
        Word.BOUND: int(np.float32(0.0 if operation.attributes.post_ops else -inf).view(np.uint32)),
    }
    strides = (Word.SRC_H, src.words), (Word.DST_H, dst.words)
    words |= {Word(first + i): value for first, values in strides for i, value in enumerate(values)}
    table[list(words)] = list(words.values())
    return table


def winograd(operation: Operation, team: ThreadTeam, threads: int) -> PlainImplementation:
    """What computes a convolution with `algorithm` winograd on so many threads of `team`.

    Images are nhwc, or blocked by as many channels as a register holds, or boxes of such; `any` becomes nhwc. Results
    differ from those of a direct convolution by about 1e-6 of the greatest one.

    Raises:
        Unimplemented: it is not a forward convolution of f32 and 3x3, dense, of stride 1 and one group, with channels
            that fill registers; or the attributes are more than a ReLU at the end.
    """
    found = WinogradConvolution(operation, team, threads)
    return PlainImplementation(operation, found.descs, "winograd:4x4_3x3", found.bind)
