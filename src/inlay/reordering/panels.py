"""Panels: a reorder in two passes through the second-level cache, for destinations that no register row aligns with.

Streaming stores need whole cache lines. Where the rows of a destination begin anywhere (a transpose of 5000 x 3001
floats), no tile of registers writes whole lines. So a panel, which is long pieces of some rows, is first reordered into
a dense buffer that stays in the second-level cache; then each row is streamed from there to its place, whole lines past
the caches and the two ends with ordinary stores.

    pass 1  source -> buffer    the kernel of any reorder, on a nest that covers one panel
    pass 2  buffer -> rows      a copy of rows, whatever their alignment

A panel takes loops that follow one another in the destination until its rows are long enough, then loops that follow
one another in the source until the buffer is full. A loop of which it takes a part is cut into equal parts, of which
the last may overlap the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from inlay.reordering.elements import LINE
from inlay.reordering.kernel import Table, Words
from inlay.reordering.nest import Loop, LoopNest

PANEL_BYTES = 1 << 17
"""Most bytes of a panel's rows: with what else passes, a panel stays in a second-level cache."""
_ROW_BYTES = 1024  # a row is at least so long, where loops allow it: its two ends cost as much as some lines
_SHORTEST_ROW = 512  # at least two lines: the code of pass 2 streams one line or more of each row
_SHORTEST_RUN = LINE  # bytes of the source in a row: less would read the same lines again for each panel
_PITCH = LINE  # rows of the buffer are so much further apart than they are long: powers of two would share cache sets


@dataclass(frozen=True, slots=True)
class Part:
    """What a panel takes of one loop."""

    loop: int
    """Number of the loop in the nest."""
    extent: int
    """How many of its values one panel covers."""
    count: int
    """In how many parts the loop is cut."""

    def starts(self, whole: int) -> Words:
        """Return the first value that each part covers of a loop of extent `whole`; the last part ends where it does.

        >>> Part(0, 4, 3).starts(10).tolist()
        [0, 4, 6]
        """
        return np.minimum(np.arange(self.count, dtype=np.int64) * self.extent, whole - self.extent)


@dataclass(frozen=True, slots=True)
class Panels:
    """How a nest is cut into panels."""

    nest: LoopNest
    """The loops of one panel: its destination is the buffer."""
    row_elements: int
    """Elements of one row."""
    rows: Words
    """Where each row begins in the destination, in elements from the panel."""
    offsets: Words
    """For each panel, where it begins in the source and in the destination, in elements; one row each."""
    pitch: int
    """Elements from one row of the buffer to the next."""

    @property
    def src_step(self) -> int:
        """Elements of the source from one panel to the next, as between the first two; 0 where there is one panel.

        Each load asks for the line of the next panel: its own panel was asked for while the one before was filled.
        """
        return int(self.offsets[1, 0] - self.offsets[0, 0]) if len(self.offsets) > 1 else 0

    def __str__(self) -> str:
        """Count and size of the panels, in words."""
        return f"{len(self.offsets)} panels of {len(self.rows)} rows of {self.row_elements} elements"


def cut_into_panels(nest: LoopNest, src_bytes: int, dst_bytes: int) -> Panels | None:
    """Return the panels of a nest, or None where its rows are too short on one side, or bounds cut it off.

    Args:
        src_bytes: bytes of an element of the source.
        dst_bytes: bytes of an element of the destination.

    Post-condition: the rows of all panels cover each element of the destination, and some maybe twice.
    """
    if nest.guards or not all(loop.is_affine for loop in nest.loops):
        return None
    rows = _chain(nest.loops, "dst", [], _ROW_BYTES // dst_bytes, LINE // dst_bytes)
    if any(nest.loops[part.loop].src == 1 for part in rows):
        rows, runs = _chain(nest.loops, "dst", [], PANEL_BYTES // dst_bytes, LINE // dst_bytes), []
    else:
        most_rows = PANEL_BYTES // (prod(part.extent for part in rows) * dst_bytes)
        runs = _chain(nest.loops, "src", [part.loop for part in rows], most_rows, 1)
    row_elements = prod(part.extent for part in rows)
    if row_elements * dst_bytes < _SHORTEST_ROW or _run_elements(nest, [*rows, *runs]) * src_bytes < _SHORTEST_RUN:
        return None
    return _panels(nest, rows, runs, row_elements, row_elements + _PITCH // dst_bytes)


def _run_elements(nest: LoopNest, parts: list[Part]) -> int:
    """Return how many elements of the source in a row a panel reads."""
    extents = {part.loop: part.extent for part in parts}
    covered, found = 1, True
    while found:
        following = (i for i in extents if nest.loops[i].src == covered and extents[i] > 1)
        found = (i := next(following, None)) is not None
        if i is not None:
            covered *= extents[i]
            found = extents.pop(i) == nest.loops[i].extent
    return covered


def _chain(loops: Sequence[Loop], side: str, taken: Sequence[int], wanted: int, multiple: int) -> list[Part]:
    """Return loops that follow one another on a side until `wanted` elements are covered, the last one in part."""
    parts: list[Part] = []
    covered = 1
    while covered < wanted:
        following = (i for i, loop in enumerate(loops) if getattr(loop, side) == covered and i not in taken)
        i = next(following, None)
        if i is None:
            break
        extent = loops[i].extent
        part = _cut(i, extent, max(1, wanted // covered), multiple if not parts else 1)
        parts.append(part)
        covered *= extent
        if part.count > 1:
            break
    return parts


def _cut(loop: int, extent: int, most: int, multiple: int) -> Part:
    """Return equal parts of about `most` values, a multiple of `multiple` where a loop is cut at all.

    >>> _cut(0, 5000, 512, 16), _cut(0, 700, 512, 16), _cut(0, 500, 512, 16)
    (Part(loop=0, extent=512, count=10), Part(loop=0, extent=352, count=2), Part(loop=0, extent=500, count=1))
    """
    if extent <= most:
        return Part(loop, extent, 1)
    count = -(-extent // most)
    size = min(extent, -(-extent // (count * multiple)) * multiple)
    return Part(loop, size, -(-extent // size))


def _panels(nest: LoopNest, rows: list[Part], runs: list[Part], row_elements: int, pitch: int) -> Panels:
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


def _panel_offsets(nest: LoopNest, rows: list[Part], runs: list[Part]) -> Words:
    """Return where each panel begins on both sides; the next panel is the one that follows in the source."""
    others = [i for i in range(len(nest.loops)) if i not in {part.loop for part in (*rows, *runs)}]
    others.sort(key=lambda i: -abs(_number(nest.loops[i].src)))
    order = [*(Part(i, 1, nest.loops[i].extent) for i in others), *reversed(rows), *reversed(runs)]
    offsets = np.zeros((1, 2), np.int64)
    for part in order:
        starts = part.starts(nest.loops[part.loop].extent)
        moved = np.stack([starts * _stride(nest, part, side) for side in ("src", "dst")], axis=1)
        offsets = (offsets[:, np.newaxis, :] + moved).reshape(-1, 2)
    return np.ascontiguousarray(offsets)


def _stride(nest: LoopNest, part: Part, side: str) -> int:
    return _number(getattr(nest.loops[part.loop], side))


def _number(where: object) -> int:
    assert isinstance(where, int), "loops of panels have strides"
    return where


# The table of the code


@dataclass(frozen=True, slots=True)
class PanelTable:
    """The words that the code of both passes reads, and what their addresses refer to."""

    words: Words
    """See `emit_panels`."""
    kept: tuple[object, ...]
    """Everything that `words` holds the address of."""

    @property
    def address(self) -> int:
        """Address of the words."""
        return int(self.words.ctypes.data)


def panel_table(panels: Panels, kernel: int, table: Table, sizes: tuple[int, int], pool: Sequence[int]) -> PanelTable:
    """Return the table of the code that runs both passes.

    Args:
        kernel: address of the machine code of pass 1.
        table: its table, which is kept alive.
        sizes: bytes of an element of the source and of the destination.
        pool: flags, buffers and count of the pool of buffers.
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
