"""Panels: reorders in two passes through the second-level cache, for destinations whose rows begin at any alignment.

Streaming stores write whole cache lines. If the rows of a destination are not aligned to lines, as in a transpose of
5000 x 3001 floats, no tile of registers writes whole lines. So the tensor is cut into panels, which are long pieces of
several rows. A panel is first reordered into a dense buffer that stays in the second-level cache. Then each row is
copied to the destination: whole lines with streaming stores, the two ends with ordinary stores.

    pass 1  source -> buffer    the kernel of any reorder, on a nest that covers one panel
    pass 2  buffer -> rows      a copy of rows of any alignment

A panel takes loops that are contiguous in the destination until its rows are long enough, then loops that are
contiguous in the source until the buffer is full. A loop that is taken in part is cut into equal slices; the last slice
may overlap the one before.

A thread's stack may have only 128 KB, so the buffers are allocated separately, one for each processor, at the first
use. Machine code acquires and releases them.

    inlay_panels(source, destination, table, first panel, last panel)

The words of the table: address of the kernel, address of its table, number of its tiles; address of the panels' offsets
(source and destination of each, in bytes), address of the rows' offsets, number of rows; bytes of a row, bytes from row
to row of the buffer; then the buffer pool: address of its flags (a word for each buffer), address of the buffers, and
number of buffers.

A call acquires the first buffer whose flag is 0 by setting the flag to 1, and sets it to 0 at the end. A thread that
finds no free buffer polls. This cannot deadlock: the owner of a buffer executes this code and waits for no other
thread.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from inlay.errors import OutOfMemory
from inlay.forks import ForkResetLock, at_fork
from inlay.measure.calibration import Buffer
from inlay.reordering.conversion import LINE
from inlay.reordering.ir import Code, module_text
from inlay.reordering.kernel import Table, Words
from inlay.reordering.memory_levels import allocate_lines
from inlay.reordering.nest import Loop, LoopNest

PANEL_BYTES = 1 << 17
"""Maximum size of a panel in bytes: with the source lines that are loaded meanwhile, it fits a second-level cache."""
_ROW_BYTES = 1024  # wanted length of a row: its two ends cost as much as several lines
_SHORTEST_ROW = 512  # least length of a row; pass 2 needs two lines, so that it streams at least one
_SHORTEST_RUN = LINE  # least contiguous source bytes of a panel: with less, several panels would load the same lines
_PITCH = LINE  # bytes between rows of the buffer: rows at multiples of powers of two would share cache sets


@dataclass(frozen=True, slots=True)
class LoopSlice:
    """The part of one loop that a panel takes."""

    loop: int
    """Number of the loop in the nest."""
    extent: int
    """Number of iterations that one panel takes."""
    count: int
    """Number of slices that the loop is cut into."""

    def starts(self, whole: int) -> Words:
        """Return the first iteration of each slice of a loop of `whole` iterations; the last slice ends with the loop.

        >>> LoopSlice(0, 4, 3).starts(10).tolist()
        [0, 4, 6]
        """
        return np.minimum(np.arange(self.count, dtype=np.int64) * self.extent, whole - self.extent)


@dataclass(frozen=True, slots=True)
class Panels:
    """The panels of a loop nest."""

    nest: LoopNest
    """The loop nest of one panel; its destination is the buffer."""
    row_elements: int
    """Number of elements of one row."""
    rows: Words
    """Offset of each row in the destination, relative to the panel, in elements."""
    offsets: Words
    """Offsets of each panel in source and destination, in elements; one line for each panel."""
    pitch: int
    """Number of elements from one row of the buffer to the next."""

    @property
    def src_step(self) -> int:
        """Number of source elements from the first panel to the second; 0 if there is only one.

        It is the prefetch distance: while a panel is read, the next one is prefetched.
        """
        return int(self.offsets[1, 0] - self.offsets[0, 0]) if len(self.offsets) > 1 else 0

    def __str__(self) -> str:
        """Return number and size of the panels in words."""
        return f"{len(self.offsets)} panels of {len(self.rows)} rows of {self.row_elements} elements"


def cut_into_panels(nest: LoopNest, src_bytes: int, dst_bytes: int) -> Panels | None:
    """Return the panels of a nest; None if its rows are too short on one side, or if it has guards or tables.

    Args:
        src_bytes: bytes of an element of the source.
        dst_bytes: bytes of an element of the destination.

    Post-condition: the rows of all panels cover each element of the destination; some may be covered twice.
    """
    if nest.guards or not all(loop.is_affine for loop in nest.loops):
        return None
    rows = _contiguous_slices(nest.loops, "dst", [], _ROW_BYTES // dst_bytes, LINE // dst_bytes)
    if any(nest.loops[part.loop].src == 1 for part in rows):
        # Rows are contiguous in the source too: a panel is one long row.
        rows, runs = _contiguous_slices(nest.loops, "dst", [], PANEL_BYTES // dst_bytes, LINE // dst_bytes), []
    else:
        most_rows = PANEL_BYTES // (prod(part.extent for part in rows) * dst_bytes)
        runs = _contiguous_slices(nest.loops, "src", [part.loop for part in rows], most_rows, 1)
    row_elements = prod(part.extent for part in rows)
    if row_elements * dst_bytes < _SHORTEST_ROW or _run_elements(nest, [*rows, *runs]) * src_bytes < _SHORTEST_RUN:
        return None
    return _build_panels(nest, rows, runs, row_elements, row_elements + _PITCH // dst_bytes)


def _run_elements(nest: LoopNest, parts: list[LoopSlice]) -> int:
    """Return the number of contiguous source elements that a panel reads."""
    extents = {part.loop: part.extent for part in parts}
    covered = 1
    while True:
        following = (i for i in extents if nest.loops[i].src == covered and extents[i] > 1)
        i = next(following, None)
        if i is None:
            return covered
        covered *= extents[i]
        if extents.pop(i) < nest.loops[i].extent:
            return covered


def _contiguous_slices(
    loops: Sequence[Loop], side: str, taken: Sequence[int], wanted: int, multiple: int
) -> list[LoopSlice]:
    """Return slices of loops that are contiguous on a side and cover `wanted` elements; the last may be partial."""
    parts: list[LoopSlice] = []
    covered = 1
    while covered < wanted:
        following = (i for i, loop in enumerate(loops) if getattr(loop, side) == covered and i not in taken)
        i = next(following, None)
        if i is None:
            break
        parts.append(_cut_evenly(i, loops[i].extent, max(1, wanted // covered), multiple if not parts else 1))
        covered *= loops[i].extent
        if parts[-1].count > 1:
            break
    return parts


def _cut_evenly(loop: int, extent: int, most: int, multiple: int) -> LoopSlice:
    """Return equal slices of about `most` iterations, a multiple of `multiple` if the loop is cut at all.

    >>> _cut_evenly(0, 5000, 512, 16), _cut_evenly(0, 700, 512, 16)
    (LoopSlice(loop=0, extent=512, count=10), LoopSlice(loop=0, extent=352, count=2))
    >>> _cut_evenly(0, 500, 512, 16)
    LoopSlice(loop=0, extent=500, count=1)
    """
    if extent <= most:
        return LoopSlice(loop, extent, 1)
    count = -(-extent // most)
    size = min(extent, -(-extent // (count * multiple)) * multiple)
    return LoopSlice(loop, size, -(-extent // size))


def _build_panels(
    nest: LoopNest, rows: list[LoopSlice], runs: list[LoopSlice], row_elements: int, pitch: int
) -> Panels:
    """Build the panels from the slices that make a row, and from those that number the rows of a panel."""
    loops: list[Loop] = []
    for parts, step in ((rows, 1), (runs, pitch)):
        for part in parts:
            loops.append(replace(nest.loops[part.loop], extent=part.extent, dst=step))
            step *= part.extent
    row_offsets = np.zeros(1, np.int64)
    for part in runs:
        row_offsets = np.add.outer(np.arange(part.extent) * _stride(nest, part, "dst"), row_offsets).ravel()
    inside = LoopNest(tuple(loop for loop in loops if loop.extent > 1), ())
    return Panels(inside, row_elements, row_offsets, _panel_offsets(nest, rows, runs), pitch)


def _panel_offsets(nest: LoopNest, rows: list[LoopSlice], runs: list[LoopSlice]) -> Words:
    """Return the offsets of each panel on both sides; consecutive panels are contiguous in the source."""
    others = [i for i in range(len(nest.loops)) if i not in {part.loop for part in (*rows, *runs)}]
    others.sort(key=lambda i: -abs(_require_stride(nest.loops[i].src)))
    order = [*(LoopSlice(i, 1, nest.loops[i].extent) for i in others), *reversed(rows), *reversed(runs)]
    offsets = np.zeros((1, 2), np.int64)
    for part in order:
        starts = part.starts(nest.loops[part.loop].extent)
        moved = np.stack([starts * _stride(nest, part, side) for side in ("src", "dst")], axis=1)
        offsets = (offsets[:, np.newaxis, :] + moved).reshape(-1, 2)
    return np.ascontiguousarray(offsets)


def _stride(nest: LoopNest, part: LoopSlice, side: str) -> int:
    """Return the stride of the sliced loop on a side, in elements."""
    return _require_stride(getattr(nest.loops[part.loop], side))


def _require_stride(where: object) -> int:
    """Return the stride of a loop that has no table."""
    assert isinstance(where, int), "loops of panels have strides"
    return where


# Buffers


BUFFER_BYTES = 1 << 19
"""Distance in bytes from one buffer of the pool to the next."""
_FEWEST_BUFFERS = 4
_making_pool = ForkResetLock()
_pool: "BufferPool | None" = None


@dataclass(frozen=True, slots=True, eq=False)
class BufferPool:
    """Buffers for panels, and a flag for each: 0 if the buffer is free."""

    flags: Words
    """One word for each buffer."""
    buffers: Buffer
    """Memory of all buffers, `BUFFER_BYTES` for each."""

    @property
    def words(self) -> tuple[int, int, int]:
        """The pool's words in the table of panels: address of the flags, address of the buffers, their number."""
        return int(self.flags.ctypes.data), int(self.buffers.ctypes.data), self.flags.size


def buffer_pool() -> BufferPool:
    """Return the buffer pool of this process, with a buffer for each processor; it is never freed.

    Raises:
        OutOfMemory: the pool cannot be allocated.
    """
    global _pool
    with _making_pool:
        if _pool is None:
            count = max(_FEWEST_BUFFERS, os.cpu_count() or 1)
            try:
                _pool = BufferPool(np.zeros(count, np.int64), allocate_lines(count * BUFFER_BYTES))
            except MemoryError:
                problem = f"{count * BUFFER_BYTES} bytes for the buffers of panels cannot be allocated"
                raise OutOfMemory(problem) from None
        return _pool


def _free_buffers() -> None:
    """Free all buffers in a forked child: threads of the parent that acquired some do not exist there."""
    if _pool is not None:
        _pool.flags[:] = 0


at_fork(after_in_child=_free_buffers)


# Code and table


ENTRY = "inlay_panels"
"""Name of the function."""
KERNEL, TABLE, TILES, OFFSETS, ROWS, COUNT, ROW_BYTES, PITCH, FLAGS, BUFFERS, POOL = range(11)
"""Positions of the words in the table."""


@dataclass(frozen=True, slots=True)
class PanelTable:
    """The words that the code of both passes reads, with the arrays that they refer to."""

    words: Words
    """The words that the module's docstring lists."""
    keeps_alive: tuple[object, ...]
    """The objects whose addresses are in `words`."""

    @property
    def address(self) -> int:
        """Address of the words."""
        return int(self.words.ctypes.data)


def build_panel_table(
    panels: Panels, kernel: int, table: Table, sizes: tuple[int, int], pool: Sequence[int]
) -> PanelTable:
    """Build the table of the code that executes both passes.

    Args:
        kernel: address of the machine code of pass 1.
        table: table of that code; the result keeps it alive.
        sizes: bytes of an element of the source and of the destination.
        pool: `BufferPool.words`.
    """
    offsets = np.ascontiguousarray(panels.offsets * np.array(sizes, np.int64))
    rows = np.ascontiguousarray(panels.rows * sizes[1])
    numbers = [
        *(kernel, table.address, table.tiles),
        *(offsets.ctypes.data, rows.ctypes.data, rows.size),
        *(panels.row_elements * sizes[1], panels.pitch * sizes[1]),
        *pool,
    ]
    return PanelTable(np.array(numbers, np.int64), (table, offsets, rows))


@dataclass(frozen=True, slots=True)
class PanelKernel:
    """The inputs of code generation for the driver of both passes: none but the target."""


def panels_ir(fence: str, pause: str, attributes: str) -> str:
    """Return the module of the driver.

    Args:
        fence: the statement that makes streaming stores visible to other threads.
        pause: the statement for a polling loop.
        attributes: LLVM function attributes of the target.
    """
    return module_text([_ends_function(), _rows_function(), _entry_function(fence, pause)], attributes)


def _entry_function(fence: str, pause: str) -> tuple[str, Code]:
    """Write the function that executes both passes of panels `begin` to `end`, exclusive."""
    code = Code()
    code.label("entry")
    code.do("%any = icmp ult i64 %begin, %end")
    code.do("br i1 %any, label %claim, label %exit")
    flag, buffer = _emit_buffer_claim(code, pause)
    kernel = code.let(f"inttoptr i64 {code.load_word('%table', KERNEL)} to ptr")
    inner = code.let(f"inttoptr i64 {code.load_word('%table', TABLE)} to ptr")
    offsets = code.let(f"inttoptr i64 {code.load_word('%table', OFFSETS)} to ptr")
    tiles = code.load_word("%table", TILES)
    count = code.let("sub i64 %end, %begin")
    with code.loop("panel", count) as i:
        pair = code.let(f"shl i64 {code.let(f'add i64 %begin, {i}')}, 1")
        src = code.byte("%src", code.load_word(offsets, pair))
        dst = code.byte("%dst", code.load_word(offsets, code.let(f"add i64 {pair}, 1")))
        code.do(f"call void {kernel}(ptr {src}, ptr {buffer}, ptr {inner}, i64 0, i64 {tiles})")
        code.do(f"call void @rows(ptr {buffer}, ptr {dst}, ptr %table)")
    code.do_declared(fence)
    code.do(f"store atomic i64 0, ptr {flag} release, align 8")
    code.do("br label %exit")
    code.label("exit")
    code.do("ret void")
    return f"define void @{ENTRY}(ptr %src, ptr %dst, ptr %table, i64 %begin, i64 %end)", code


def _emit_buffer_claim(code: Code, pause: str) -> tuple[str, str]:
    """Append code that acquires a buffer of the pool; return the addresses of its flag and of the buffer."""
    code.label("claim")
    flags = code.let(f"inttoptr i64 {code.load_word('%table', FLAGS)} to ptr")
    pool = code.load_word("%table", POOL)
    code.do("br label %try")
    code.label("try")
    code.do("%number = phi i64 [0, %claim], [%following, %taken]")
    flag = code.word(flags, "%number")
    old = code.let(f"atomicrmw xchg ptr {flag}, i64 1 acq_rel")
    is_free = code.let(f"icmp eq i64 {old}, 0")
    code.do(f"br i1 {is_free}, label %claimed, label %taken")
    code.label("taken")
    code.do_declared(pause)
    one_more = code.let("add i64 %number, 1")
    is_last = code.let(f"icmp eq i64 {one_more}, {pool}")
    code.do(f"%following = select i1 {is_last}, i64 0, i64 {one_more}")
    code.do("br label %try")
    code.label("claimed")
    buffers = code.let(f"inttoptr i64 {code.load_word('%table', BUFFERS)} to ptr")
    return flag, code.byte(buffers, code.let(f"mul i64 %number, {BUFFER_BYTES}"))


def _rows_function() -> tuple[str, Code]:
    """Write the function that streams the rows of a buffer to the destination."""
    code = Code()
    code.label("entry")
    rows = code.let(f"inttoptr i64 {code.load_word('%table', ROWS)} to ptr")
    count, nbytes, pitch = (code.load_word("%table", word) for word in (COUNT, ROW_BYTES, PITCH))
    with code.loop("row", count) as i:
        src = code.byte("%buffer", code.let(f"mul i64 {i}, {pitch}"))
        dst = code.byte("%dst", code.load_word(rows, i))
        address = code.let(f"ptrtoint ptr {dst} to i64")
        to_line = code.let(f"and i64 {code.let(f'sub i64 0, {address}')}, {LINE - 1}")
        code.do(f"call void @ends(ptr {src}, ptr {dst}, i64 {to_line})")
        left = code.let(f"sub i64 {nbytes}, {to_line}")
        lines = code.let(f"lshr i64 {left}, {LINE.bit_length() - 1}")
        first_src, first_dst = code.byte(src, to_line), code.byte(dst, to_line)
        with code.loop("line", lines) as line:
            at = code.let(f"shl i64 {line}, {LINE.bit_length() - 1}")
            value = code.let(f"load <{LINE} x i8>, ptr {code.byte(first_src, at)}, align 1")
            place = code.byte(first_dst, at)
            code.do(f"store <{LINE} x i8> {value}, ptr {place}, align {LINE}, !nontemporal !0")
        done = code.let(f"shl i64 {lines}, {LINE.bit_length() - 1}")
        rest = code.let(f"sub i64 {left}, {done}")
        code.do(f"call void @ends(ptr {code.byte(first_src, done)}, ptr {code.byte(first_dst, done)}, i64 {rest})")
    code.do("ret void")
    return "define internal void @rows(ptr %buffer, ptr %dst, ptr %table) noinline", code


def _ends_function() -> tuple[str, Code]:
    """Write the function that copies fewer bytes than a line, by at most six loads and stores of powers of two."""
    code = Code()
    code.label("entry")
    code.do("br label %size1")
    before, at = "entry", "0"
    for size in (1, 2, 4, 8, 16, 32):
        following = f"size{2 * size}" if size < LINE // 2 else "done"
        code.label(f"size{size}")
        if size > 1:
            at = code.let(f"phi i64 [{at}, %{before}], [%end{size // 2}, %copy{size // 2}]")
        bit = code.let(f"and i64 %n, {size}")
        has = code.let(f"icmp ne i64 {bit}, 0")
        code.do(f"br i1 {has}, label %copy{size}, label %{following}")
        code.label(f"copy{size}")
        value = code.let(f"load i{8 * size}, ptr {code.byte('%src', at)}, align 1")
        code.do(f"store i{8 * size} {value}, ptr {code.byte('%dst', at)}, align 1")
        code.do(f"%end{size} = add i64 {at}, {size}")
        code.do(f"br label %{following}")
        before = f"size{size}"
    code.label("done")
    code.do("ret void")
    return "define internal void @ends(ptr %src, ptr %dst, i64 %n) noinline", code
