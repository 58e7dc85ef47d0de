"""`winograd`: a convolution of 3x3 by F(4x4, 3x3), where sizes and formats allow it.

    implementation = winograd(operation, team, threads=2)
    implementation.descs["weights"]         an opaque format: see `transforming`
    implementation.bind(memories)()

It runs in the OpenMP threads of another engine, whose next call finds them awake. Its images have strides that one
table of words can say (`images`); the work is divided into blocks of tiles and groups of channels (`scheduled`).
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
from inlay.engines.inlay.winograd_code import ENTRY, ROWS, Registers, module, weights_desc
from inlay.engines.inlay.winograd_tables import KERNEL, OUT, POINTS, Word
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import Bytes, address_of, allocate
from inlay.primitives.attributes import Eltwise, PrimitiveAttributes
from inlay.primitives.engine import Operation, PlainImplementation, ThreadTeam
from inlay.reordering.target import Target, host_target, load_permanently

_FLOAT = 4  # bytes
_DENSE = {"strides": (1, 1), "dilations": (0, 0)}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a convolution."""

    ic: int
    """Source channels."""
    oc: int
    """Destination channels."""
    images: int
    """How many."""
    tiles_down: int
    """Of an image."""
    tiles_across: int
    """Of an image."""

    @property
    def tiles(self) -> int:
        """Of all images."""
        return self.images * self.tiles_down * self.tiles_across

    @classmethod
    def of(cls, src: MemoryDesc, dst: MemoryDesc) -> "Sizes":
        """Those of a convolution from `src` to `dst`."""
        down, across = (-(-size // OUT) for size in dst.dims[2:])
        return cls(src.dims[1], dst.dims[1], dst.dims[0], down, across)


@dataclass(frozen=True, slots=True)
class Image:
    """A side of a convolution."""

    desc: MemoryDesc
    """Its descriptor."""
    words: tuple[int, ...]
    """Height and width in pixels; bytes from one image to the next, one row, one pixel, one vector of channels."""
    offset: int
    """Bytes from the start of the memory."""


def images(operation: Operation, registers: Registers) -> tuple[Image, Image]:
    """Source and destination; `any` becomes nhwc.

    Raises:
        Unimplemented: the machine code cannot do it: see `winograd`.
    """
    why = _flaw(operation, registers)
    if why is not None:
        raise Unimplemented(f"Winograd convolution has no {why}")
    return _image(operation, "src", registers.lanes), _image(operation, "dst", registers.lanes)


def _image(operation: Operation, name: str, lanes: int) -> Image:
    desc = operation.descs[name]
    if desc.kind == "any":
        desc = MemoryDesc(desc.dims, "f32", "nhwc")
    step = _vector_step(desc, lanes)
    if step is None:
        raise Unimplemented(
            f"Winograd convolution has no {name} {desc}: give nhwc, or blocks of {lanes} channels, without padding"
        )
    assert isinstance(desc.layout, Layout)
    n, _, h, w = (axis.stride * _FLOAT for axis in desc.layout.axes)
    return Image(desc, (*desc.dims[2:], n, h, w, step * _FLOAT), desc.offset0 * _FLOAT)


def _vector_step(desc: MemoryDesc, lanes: int) -> int | None:
    """Elements from one vector of channels to the next; None where such vectors are not contiguous, or are padding."""
    layout = desc.layout
    if not isinstance(layout, Layout) or desc.padded_dims != desc.dims:
        return None
    if any(axis.inner for i, axis in enumerate(layout.axes) if i != 1):
        return None
    channels = layout.axes[1]
    if not channels.inner:
        return lanes if channels.stride == 1 else None
    is_a_register = len(channels.inner) == 1 and (channels.inner[0].extent, channels.inner[0].stride) == (lanes, 1)
    return channels.stride if is_a_register else None


def _flaw(operation: Operation, registers: Registers) -> str | None:
    """What is missing for an operation; None where nothing is."""
    if operation.kind != "convolution" or operation.prop_kind != "forward_inference":
        return f"{operation.kind} {operation.prop_kind}: it is for forward inference"
    descs, told, lanes = operation.descs, operation.parameters, registers.lanes
    src, weights, dst = (descs[name] for name in ("src", "weights", "dst"))
    if any(str(desc.data_type) != "f32" for desc in descs.values()):
        return "types but f32"
    if weights.dims[2:] != (KERNEL, KERNEL) or weights.ndims != 4:
        return f"weights of dims {weights.dims}: give one group of {KERNEL}x{KERNEL}"
    for name, value in _DENSE.items():
        if told[name] != value:
            return f"{name} {told[name]}: they are {value}"
    if src.dims[1] % lanes or dst.dims[1] % lanes or 0 in (*src.dims, *dst.dims):
        return f"{src.dims[1]} and {dst.dims[1]} channels: both are multiples of {lanes}, and no dim is 0"
    if weights.kind != "any" and weights != weights_desc(dst.dims[1], src.dims[1], registers):
        return f"weights {weights}: leave them any"
    if "bias" in descs and descs["bias"] not in (MemoryDesc(dst.dims[1:2], "f32", tag) for tag in ("any", "a")):
        return f"bias {descs['bias']}: leave it any"
    return _excess(operation.attributes)


def _excess(attributes: PrimitiveAttributes) -> str | None:
    """Attributes that are more than one ReLU."""
    plain = PrimitiveAttributes(post_ops=attributes.post_ops, scratchpad_mode=attributes.scratchpad_mode)
    if attributes != plain:
        return "attributes but a scratchpad mode and a ReLU"
    if attributes.post_ops not in ((), (Eltwise("relu", 0.0, 0.0),)):
        return f"post-operations {attributes.post_ops}: it ends with a ReLU or with nothing"
    return None


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
    (address,) = load_permanently(text, lambda: text, target, ENTRY)
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
        self._room = ThreadScratch.of(sizes, registers, schedule or scheduled(sizes, registers, threads))
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
        """Memory for the threads, of the calling Python thread."""
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
class ThreadScratch:
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
    def of(cls, sizes: Sizes, registers: Registers, schedule: Schedule) -> "ThreadScratch":
        """The room for a schedule; matrices begin in different sets of a cache."""
        rows, panels = schedule.most_tiles(sizes), -(-registers.panels(sizes.oc) // schedule.groups)
        columns = min(sizes.oc, panels * registers.columns)
        v_matrix, m_row = 4 * sizes.ic * rows + _LINE, 4 * columns
        m_matrix = m_row * rows + _LINE
        m_at = POINTS * v_matrix
        spare_at = m_at + POINTS * m_matrix
        return cls(schedule, v_matrix, m_row, m_matrix, m_at, spare_at, spare_at + 2 * _LINE)


def _table(
    operation: Operation, sides: tuple[Image, Image], sizes: Sizes, registers: Registers, room: ThreadScratch
) -> Words:
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
