"""Winograd convolutions: 3x3 kernels by F(4x4, 3x3), for the sizes and formats that the machine code supports.

    implementation = create_winograd_convolution(operation, team, threads=2)
    implementation.descs["weights"]         an opaque format: see `create_weights_transform`
    implementation.bind(memories)()

A convolution runs on the OpenMP threads of another engine. `check_images` checks that the formats of the images can be
described by the strides in the call table. `select_schedule` divides the work into blocks of tiles and groups of
destination channels.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor import MemoryDesc
from inlay.engines.inlay.team_code import PARALLEL, load_entry
from inlay.engines.inlay.winograd_code import ENTRY, ROWS, Registers, build_module, weights_desc
from inlay.engines.inlay.winograd_tables import KERNEL, OUT, POINTS, TableWord
from inlay.errors import Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.buffers import Bytes, address_of, allocate
from inlay.primitives.attributes import EltwisePostOp, PrimitiveAttributes
from inlay.primitives.engine import Operation, PlainImplementation, ThreadTeam
from inlay.reordering.target import TargetMachine, digest_of, host_target

_FLOAT = 4  # bytes
_DENSE = {"strides": (1, 1), "dilations": (0, 0)}


@dataclass(frozen=True, slots=True)
class WinogradSizes:
    """The sizes of a convolution, in channels and tiles."""

    ic: int
    """Number of source channels."""
    oc: int
    """Number of destination channels."""
    images: int
    """Number of images."""
    tiles_down: int
    """Number of rows of tiles of an image."""
    tiles_across: int
    """Number of columns of tiles of an image."""

    @property
    def tiles(self) -> int:
        """The number of tiles of all images."""
        return self.images * self.tiles_down * self.tiles_across

    @classmethod
    def of(cls, src: MemoryDesc, dst: MemoryDesc) -> "WinogradSizes":
        """Return the sizes of a convolution from `src` to `dst`."""
        down, across = (-(-size // OUT) for size in dst.dims[2:])
        return cls(src.dims[1], dst.dims[1], dst.dims[0], down, across)


@dataclass(frozen=True, slots=True)
class ConvolutionSide:
    """The source or the destination of a convolution, as the machine code accesses it."""

    desc: MemoryDesc
    """Descriptor of the images."""
    words: tuple[int, ...]
    """Height and width in pixels, then the strides of images, rows, pixels and vectors of channels, in bytes."""
    offset: int
    """Offset of the first element in the memory, in bytes."""


def check_images(operation: Operation, registers: Registers) -> tuple[ConvolutionSide, ConvolutionSide]:
    """Check that the machine code supports an operation, and return its source and destination; `any` becomes nhwc.

    Raises:
        Unimplemented: it does not: see `create_winograd_convolution`.
    """
    obstacle = _find_obstacle(operation, registers)
    if obstacle is not None:
        raise Unimplemented(f"Winograd convolution has no {obstacle}")
    return _convolution_side(operation, "src", registers.lanes), _convolution_side(operation, "dst", registers.lanes)


def _convolution_side(operation: Operation, name: str, lanes: int) -> ConvolutionSide:
    """Return the strides of argument `name`, whose channels are accessed in vectors of `lanes`."""
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
    return ConvolutionSide(desc, (*desc.dims[2:], n, h, w, step * _FLOAT), desc.offset0 * _FLOAT)


def _vector_step(desc: MemoryDesc, lanes: int) -> int | None:
    """Return the stride of vectors of channels, in elements; None if they are not contiguous, or there is padding."""
    layout = desc.layout
    if not isinstance(layout, Layout) or desc.padded_dims != desc.dims:
        return None
    if any(axis.inner for i, axis in enumerate(layout.axes) if i != 1):
        return None
    channels = layout.axes[1]
    if not channels.inner:
        return lanes if channels.stride == 1 else None
    is_register = len(channels.inner) == 1 and (channels.inner[0].extent, channels.inner[0].stride) == (lanes, 1)
    return channels.stride if is_register else None


def _find_obstacle(operation: Operation, registers: Registers) -> str | None:
    """Return the property of an operation that the machine code does not support, with the remedy; None if all are."""
    if operation.kind != "convolution" or operation.prop_kind != "forward_inference":
        return f"{operation.kind} {operation.prop_kind}: it is for forward inference"
    descs, parameters, lanes = operation.descs, operation.parameters, registers.lanes
    src, weights, dst = (descs[name] for name in ("src", "weights", "dst"))
    if any(str(desc.data_type) != "f32" for desc in descs.values()):
        return "types but f32"
    if weights.dims[2:] != (KERNEL, KERNEL) or weights.ndims != 4:
        return f"weights of dims {weights.dims}: give one group of {KERNEL}x{KERNEL}"
    for name, value in _DENSE.items():
        if parameters[name] != value:
            return f"{name} {parameters[name]}: they are {value}"
    if src.dims[1] % lanes or dst.dims[1] % lanes or 0 in (*src.dims, *dst.dims):
        return f"{src.dims[1]} and {dst.dims[1]} channels: both are multiples of {lanes}, and no dim is 0"
    if weights.kind != "any" and weights != weights_desc(dst.dims[1], src.dims[1], registers):
        return f"weights {weights}: leave them any"
    if "bias" in descs and descs["bias"] not in (MemoryDesc(dst.dims[1:2], "f32", tag) for tag in ("any", "a")):
        return f"bias {descs['bias']}: leave it any"
    return _find_extra_attributes(operation.attributes)


def _find_extra_attributes(attributes: PrimitiveAttributes) -> str | None:
    """Return the attribute that the machine code does not support; None if there is at most one ReLU."""
    plain = PrimitiveAttributes(post_ops=attributes.post_ops, scratchpad_mode=attributes.scratchpad_mode)
    if attributes != plain:
        return "attributes but a scratchpad mode and a ReLU"
    if attributes.post_ops not in ((), (EltwisePostOp("relu", 0.0, 0.0),)):
        return f"post-operations {attributes.post_ops}: it ends with a ReLU or with nothing"
    return None


Words: TypeAlias = npt.NDArray[np.int64]

_LINE = 64
_CACHE_NBYTES = 1 << 20  # most bytes of V and M of a thread, so that they stay in its caches
_HEAVY_NBYTES = 4 << 20  # bytes of weights above which each thread should read only a part of them
_MIN_TILES = 4 * ROWS  # least tiles of a block; smaller blocks read the weights too often
_MAX_TILES = 16 * ROWS  # most tiles of a block


@dataclass(frozen=True, slots=True)
class WinogradSchedule:
    """The division of a convolution into work items: blocks of tiles times groups of destination channels."""

    blocks: int
    """Number of blocks of tiles."""
    groups: int
    """Number of groups of destination channels; work items of different groups transform the same tiles separately."""

    def most_tiles(self, sizes: WinogradSizes) -> int:
        """Return the number of tiles of the largest block."""
        return -(-sizes.tiles // self.blocks)


def registers_of(target: TargetMachine) -> Registers:
    """Return the micro-kernel size of a target: 6 rows by 4 vectors with 32 vector registers, by 2 with 16."""
    has_32_registers = target.vector_bytes == 64 or not target.triple.startswith("x86_64")
    return Registers(target.vector_bytes // 4, 4 if has_32_registers else 2)


def select_schedule(sizes: WinogradSizes, registers: Registers, threads: int) -> WinogradSchedule:
    """Select the schedule of a convolution for a number of threads.

    Blocks are small enough for the transformed tiles to stay in the caches. If the weights are large and there are few
    tiles, the destination channels are divided among the threads instead, so that each thread reads its part of the
    weights only.
    """
    is_heavy = 4 * POINTS * sizes.ic * sizes.oc > _HEAVY_NBYTES
    if is_heavy and sizes.tiles < threads * _MAX_TILES and registers.panels(sizes.oc) >= threads:
        return WinogradSchedule(-(-sizes.tiles // _MAX_TILES), threads)
    tiles_in_cache = _CACHE_NBYTES // (4 * POINTS * (sizes.ic + sizes.oc))
    most = min(_MAX_TILES, max(_MIN_TILES, tiles_in_cache))
    blocks = -(-sizes.tiles // most)
    blocks = min(sizes.tiles, -(-blocks // threads) * threads)
    return WinogradSchedule(blocks, 1)


_EMITTER = digest_of(
    [Path(__file__).with_name(name) for name in ("winograd_code.py", "winograd_tables.py", "team_code.py")]
)
"""Digest of the source files that write the module; empty if they cannot be read, as in a zip archive."""


@cache
def _compile_entry(target: TargetMachine) -> int:
    """Return the address of the compiled function; the first call compiles or loads it."""
    registers = registers_of(target)
    module_text = partial(build_module, registers, target.attributes)
    return load_entry(_EMITTER, registers, module_text, target, ENTRY)


class WinogradConvolution:
    """A Winograd convolution, before memories are bound."""

    __slots__ = (
        "__weakref__",
        "_bias",
        "_local",
        "_table",
        "_target",
        "_team",
        "_thread_scratch",
        "_threads",
        "descs",
        "operation",
    )

    operation: Operation
    """Operation that it computes."""
    descs: Mapping[str, MemoryDesc]
    """Descriptor of each argument, none `any`."""

    def __init__(
        self,
        operation: Operation,
        team: ThreadTeam,
        threads: int,
        schedule: WinogradSchedule | None = None,
        target: TargetMachine | None = None,
    ) -> None:
        """Check the operation, choose a schedule, and fill the call table except for addresses.

        Tests pass a `schedule` and a `target`; by default they are the best for the sizes and the host.

        Raises:
            Unimplemented: as `create_winograd_convolution`.
        """
        self._target = target or host_target()
        registers = registers_of(self._target)
        src, dst = check_images(operation, registers)
        sizes = WinogradSizes.of(src.desc, dst.desc)
        self.operation, self._team, self._threads = operation, team, threads
        self._thread_scratch = ThreadScratch.of(
            sizes, registers, schedule or select_schedule(sizes, registers, threads)
        )
        self._table = _table(operation, (src, dst), sizes, registers, self._thread_scratch)
        self._table[[TableWord.THREAD_NUM, TableWord.NUM_THREADS]] = team.thread_num, team.num_threads
        self._bias = np.zeros(sizes.oc, np.float32)
        self._local = threading.local()
        descs = {"src": src.desc, "weights": weights_desc(sizes.oc, sizes.ic, registers), "dst": dst.desc}
        if "bias" in operation.descs:
            descs["bias"] = MemoryDesc((sizes.oc,), "f32", "a")
        if self._has_user_scratchpad:
            descs["scratchpad"] = MemoryDesc((self._thread_scratch.nbytes * threads,), "u8", "a")
        self.descs = MappingProxyType(descs)

    @property
    def _has_user_scratchpad(self) -> bool:
        """True if the caller passes the scratchpad."""
        return self.operation.attributes.scratchpad_mode == "user"

    def bind(self, memories: Mapping[str, Memory]) -> "BoundConvolution":
        """Return a function that computes once with these memories at each call, and keeps them alive."""
        table = self._table.copy()
        for word, name in ((TableWord.SRC, "src"), (TableWord.WEIGHTS, "weights"), (TableWord.DST, "dst")):
            table[word] += memories[name].address
        bias = memories.get("bias")
        table[TableWord.BIAS] = address_of(self._bias) if bias is None else bias.address
        if self._has_user_scratchpad:
            table[TableWord.SCRATCH] = memories["scratchpad"].address
        call = PARALLEL(self._team.parallel)
        scratch = None if self._has_user_scratchpad else self._thread_local_scratch
        return BoundConvolution(
            call, _compile_entry(self._target), self._threads, table, scratch, (self, dict(memories))
        )

    def _thread_local_scratch(self) -> Bytes:
        """Return the scratch memory for all threads of a call, one for each Python thread that calls."""
        scratch: Bytes | None = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = allocate(self._thread_scratch.nbytes * self._threads)
        return scratch


class BoundConvolution:
    """A convolution that is bound to memories; each call computes once.

    Several Python threads may call it at once, unless the caller owns the scratchpad: then one at a time.
    """

    __slots__ = ("_address", "_call", "_entry", "_owner", "_scratch", "_table", "_threads")

    def __init__(
        self,
        call: Callable[[int, int, int, int], None],
        entry: int,
        threads: int,
        table: Words,
        scratch: Callable[[], Bytes] | None,
        owner: object,
    ) -> None:
        """Store the arguments of the machine code.

        Args:
            call: GOMP_parallel, which runs a function on all threads.
            entry: address of the machine code.
            threads: number of threads.
            table: the call table.
            scratch: returns the scratch memory of the calling Python thread; None if the table has its address.
            owner: keeps the memories alive.
        """
        self._call, self._entry, self._threads = call, entry, threads
        self._table, self._scratch, self._owner = table, scratch, owner
        self._address = address_of(table)

    def __call__(self) -> None:
        """Compute on all threads.

        Raises:
            OutOfMemory: the scratch memory of the calling Python thread cannot be allocated.
        """
        if self._scratch is None:
            self._call(self._entry, self._address, self._threads, 0)
            return
        table = self._table.copy()
        table[TableWord.SCRATCH] = address_of(self._scratch())
        self._call(self._entry, address_of(table), self._threads, 0)


@dataclass(frozen=True, slots=True)
class ThreadScratch:
    """The layout of the scratch memory of one thread: 36 matrices V, 36 matrices M, and two spare vectors."""

    schedule: WinogradSchedule
    """Schedule, which determines the sizes of the matrices."""
    v_stride: int
    """Bytes from one matrix V to the next."""
    m_row_stride: int
    """Bytes from one row of a matrix M to the next."""
    m_stride: int
    """Bytes from one matrix M to the next."""
    m_offset: int
    """Offset of the matrices M, in bytes."""
    spare_offset: int
    """Offset of the two spare vectors, in bytes."""
    nbytes: int
    """Size of the scratch memory of one thread, in bytes."""

    @classmethod
    def of(cls, sizes: WinogradSizes, registers: Registers, schedule: WinogradSchedule) -> "ThreadScratch":
        """Return the layout for a schedule; a line of padding places matrices in different cache sets."""
        rows, panels = schedule.most_tiles(sizes), -(-registers.panels(sizes.oc) // schedule.groups)
        columns = min(sizes.oc, panels * registers.columns)
        v_stride, m_row_stride = 4 * sizes.ic * rows + _LINE, 4 * columns
        m_stride = m_row_stride * rows + _LINE
        m_offset = POINTS * v_stride
        spare_offset = m_offset + POINTS * m_stride
        return cls(schedule, v_stride, m_row_stride, m_stride, m_offset, spare_offset, spare_offset + 2 * _LINE)


def _table(
    operation: Operation,
    sides: tuple[ConvolutionSide, ConvolutionSide],
    sizes: WinogradSizes,
    registers: Registers,
    scratch: ThreadScratch,
) -> Words:
    """Return the call table without addresses: the words of addresses contain offsets, to which `bind` adds them."""
    table = np.zeros(len(TableWord), np.int64)
    src, dst = sides
    padding = operation.parameters["padding_l"]
    assert isinstance(padding, tuple)
    schedule = scratch.schedule
    words = {
        TableWord.SRC: src.offset,
        TableWord.DST: dst.offset,
        TableWord.SCRATCH_NBYTES: scratch.nbytes,
        TableWord.ITEMS: schedule.blocks * schedule.groups,
        TableWord.GROUPS: schedule.groups,
        TableWord.BLOCKS: schedule.blocks,
        TableWord.TILES: sizes.tiles,
        TableWord.TILES_DOWN: sizes.tiles_down,
        TableWord.TILES_ACROSS: sizes.tiles_across,
        TableWord.IC_VECTORS: sizes.ic // registers.lanes,
        TableWord.OC_VECTORS: sizes.oc // registers.lanes,
        TableWord.PANELS: registers.panels(sizes.oc),
        TableWord.TOP: int(padding[0]),
        TableWord.LEFT: int(padding[1]),
        TableWord.V_STRIDE: scratch.v_stride,
        TableWord.M_STRIDE: scratch.m_stride,
        TableWord.M_ROW_STRIDE: scratch.m_row_stride,
        TableWord.M_OFFSET: scratch.m_offset,
        TableWord.SPARE_OFFSET: scratch.spare_offset,
        TableWord.LOWER_BOUND: int(np.float32(0.0 if operation.attributes.post_ops else -inf).view(np.uint32)),
    }
    strides = (TableWord.SRC_H, src.words), (TableWord.DST_H, dst.words)
    words |= {TableWord(first + i): value for first, values in strides for i, value in enumerate(values)}
    table[list(words)] = list(words.values())
    return table


def requests_winograd(operation: Operation) -> bool:
    """Return whether an operation is a forward convolution by the algorithm of Winograd."""
    request = operation.kind, operation.prop_kind, operation.parameters.get("algorithm")
    return request == ("convolution", "forward_inference", "winograd")


def create_winograd_convolution(operation: Operation, team: ThreadTeam, threads: int) -> PlainImplementation:
    """Create a convolution with `algorithm` winograd that runs on `threads` threads of `team`.

    Images are nhwc, or blocked by the number of channels in a vector register, or sub-boxes of such memory; `any`
    becomes nhwc. Results differ from those of a direct convolution by about 1e-6 of the largest result.

    Raises:
        Unimplemented: the operation is not a forward convolution of f32 with a dense 3x3 kernel, stride 1, one group,
            and numbers of channels that are multiples of a vector register; or it has attributes other than a ReLU.
    """
    convolution = WinogradConvolution(operation, team, threads)
    return PlainImplementation(operation, convolution.descs, "winograd:4x4_3x3", convolution.bind)
