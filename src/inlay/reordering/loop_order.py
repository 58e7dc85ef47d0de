"""The order of the loops around a tile, and the prefetch distance.

Memory is accessed in whole cache lines, and sequential lines are fastest. In a transpose, either the source or the
destination can be traversed in memory order, not both. By default the source is: its lines are read sequentially, and
lines of the destination are written in scattered order, because stores do not stall the processor.

The destination is traversed in two cases. First, its innermost loop is long with short strides in the source, and the
other order would write to very many places concurrently. Second, the tile writes parts of lines, which must be
completed while the line is in a cache.

Beyond the caches, if lines would be scattered widely, two tiles that write consecutive lines of the destination run one
after the other. Hardware prefetchers recognize none of these patterns, so each load prefetches a line of a later tile.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, prod
from types import MappingProxyType
from typing import Literal

from inlay.layout import DigitMap
from inlay.machine import MemoryModel
from inlay.reordering.conversion import LINE
from inlay.reordering.nest import Loop
from inlay.reordering.network import SIDES, Side

Level = Literal["L2", "L3", "memory"]
"""The memory level that holds source and destination together: a core's own cache, the shared cache, or main memory."""


def level_of(moved_bytes: int, memory: MemoryModel, streams: bool | None = None) -> Level:
    """Return the memory level that holds `moved_bytes`; `streams`, if set, decides whether it is main memory."""
    is_in_memory = moved_bytes > memory.last_level if streams is None else streams
    if is_in_memory:
        return "memory"
    return "L3" if moved_bytes > memory.l2 else "L2"


_KEPT = 1 << 20  # bytes that stay in a second-level cache until they are read again
# Measured limits.
_SHORT_STEP = 32 << 10  # bytes: a shorter stride in the source costs no more than contiguous reads
_LONG_LOOP = 16  # iterations of a long loop
# Numbers of concurrently written places for which the destination is traversed in order. With fewer, writing scattered
# lines is cheap. With more beyond the caches, rows of the source are long, and reading them one line at a time is slow.
_PLACES: Mapping[Level, range] = MappingProxyType(
    {"L2": range(65, 1 << 62), "L3": range(1, 1 << 62), "memory": range(33, 65)}
)
_MANY_PLACES = 512  # number of concurrently written places from which tiles are paired
_FAR_APART = 512  # bytes between two lines of a tile: nearer lines share pages, and pairing gains nothing
# Prefetch distances.
_BYTES_AHEAD = 256  # least distance along the source
_ROW_TILES_AHEAD = 2  # least number of tiles along the source
# Beyond the caches, rows ahead are prefetched: as many as have the first number of bytes together, at most
# `_MOST_ROWS_AHEAD`; none if one row has more than the second number of bytes.
_ROWS_AHEAD_BYTES = (32 << 10, 128 << 10)
_MOST_ROWS_AHEAD = 4
_TILES_AHEAD = {False: 2, True: 4}  # tiles along the destination, with cached (False) and streaming (True) stores
_PAGE = 4096  # bytes of a DRAM page, which stays open for several accesses
_SOON = 16  # number of tiles after which a page is still open
_MOST_STREAMS = 32  # number of access streams that a hardware prefetcher follows


@dataclass(frozen=True, slots=True)
class Traffic:
    """The properties of the data that determine the loop order: element sizes and memory level."""

    src_bits: int
    """Size of a source element in bits."""
    dst_bits: int
    """Size of a destination element in bits."""
    level: Level = "L2"
    """The memory level that holds source and destination."""

    @property
    def exceeds_caches(self) -> bool:
        """Return whether source and destination together exceed the caches."""
        return self.level == "memory"


@dataclass(frozen=True, slots=True)
class OuterLoop:
    """The part of a loop that runs around the tile."""

    loop: int
    """Number of the loop in the nest."""
    extent: int
    """Number of iterations."""
    step: int
    """Iterations of the nest's loop between two iterations of this loop: as many as the tile covers."""
    back: int = 0
    """Number of the nest's iterations by which the last iteration begins earlier, so that it ends with the loop; it
    overlaps the one before. 0 for no overlap."""


def distance(loop: Loop, side: Side) -> int:
    """Return the stride of `loop` on `side` in elements; on the other side if it is 0 or a table there."""
    sides = (loop.src, loop.dst) if side == "src" else (loop.dst, loop.src)
    strides = [abs(stride) for stride in sides if isinstance(stride, int) and stride]
    return strides[0] if strides else 0


def order_loops(
    loops: list[Loop], outer: list[OuterLoop], traffic: Traffic, side: Side | None = None
) -> tuple[list[OuterLoop], Side]:
    """Return the loops around the tile, outermost first, and the side whose order they follow.

    That is `side`, or if it is None the better side. Loops with a table of offsets are outermost, so that the innermost
    has a stride.
    """
    orders: dict[Side, list[OuterLoop]] = {s: _sort_loops(loops, outer, s) for s in SIDES}
    if side is None:
        is_one = orders["src"] == orders["dst"]
        side = "src" if is_one or not _prefers_dst(loops, orders, traffic) else "dst"
    return _pair_tiles(loops, orders["src"], traffic) if side == "src" else orders[side], side


def _pair_tiles(loops: list[Loop], order: list[OuterLoop], traffic: Traffic) -> list[OuterLoop]:
    """Return the source order with pairs of tiles that write two consecutive lines, if lines are scattered widely.

    The loop that advances by one line of the destination is split in two: one of half as many iterations stays in its
    place, one of 2 iterations becomes innermost.
    """
    line = next((o for o in order if _steps_by_line(loops[o.loop], o, traffic)), None)
    if not traffic.exceeds_caches or line is None or line.extent % 2 or _count_places(order, line) <= _MANY_PLACES:
        return order
    apart = loops[order[-1].loop].dst
    if not isinstance(apart, int) or abs(apart) * traffic.dst_bits < 8 * _FAR_APART:
        return order
    halved = replace(line, extent=line.extent // 2, step=2 * line.step)
    return [o for o in (halved if o is line else o for o in order) if o.extent > 1] + [replace(line, extent=2)]


def _steps_by_line(loop: Loop, outer: OuterLoop, traffic: Traffic) -> bool:
    """Return whether `outer` advances by one cache line of the destination, and no guard depends on it."""
    if not isinstance(loop.src, int) or not isinstance(loop.dst, int) or loop.guard_weights or outer.back:
        return False
    return loop.dst * outer.step * traffic.dst_bits == 8 * LINE


def _prefers_dst(loops: list[Loop], orders: Mapping[Side, list[OuterLoop]], traffic: Traffic) -> bool:
    """Return whether traversing the destination in order is better than traversing the source in order."""
    inner = orders["dst"][-1]
    src, dst = loops[inner.loop].src, loops[inner.loop].dst
    if not isinstance(src, int) or not isinstance(dst, int):
        return False
    piece_bits = abs(dst) * inner.step * traffic.dst_bits
    if traffic.exceeds_caches and piece_bits < 8 * LINE:
        return True
    if traffic.level != "L2" and piece_bits == 8 * LINE and inner.extent < _LONG_LOOP and _cuts_lines(loops, traffic):
        return True
    src_bytes = abs(src) * inner.step * traffic.src_bits // 8
    if abs(src) * traffic.src_bits % (8 * LINE) and src_bytes * inner.extent > _KEPT:
        return False  # lines of the source that two tiles share would be loaded twice
    if src_bytes > _SHORT_STEP or inner.extent < _LONG_LOOP:
        return False
    return _count_places(orders["src"], inner) in _PLACES[traffic.level]


def _cuts_lines(loops: list[Loop], traffic: Traffic) -> bool:
    """Return whether rows of the destination that are longer than a line end within a line."""
    strides = (abs(loop.dst) * traffic.dst_bits for loop in loops if isinstance(loop.dst, int))
    return any(bits > 8 * LINE and bits % (8 * LINE) for bits in strides)


def _sort_loops(loops: list[Loop], outer: list[OuterLoop], side: Side) -> list[OuterLoop]:
    """Sort the loops by their strides on `side`, longest first."""

    def key(o: OuterLoop) -> tuple[bool, int]:
        loop = loops[o.loop]
        return loop.is_affine or o.step > 1, -distance(loop, side) * o.step

    return sorted(outer, key=key)


def _count_places(order: list[OuterLoop], along: OuterLoop) -> int:
    """Return the number of places of the destination that are written before writing continues at the first one.

    Each iteration of a loop inside `along` writes as many places as the tile covers iterations of that loop.
    """
    places = 1
    for o in reversed(order):
        if o is along:
            break
        places *= o.extent * o.step
    return places


def prefetch_distance(loops: tuple[Loop, ...], outer: tuple[OuterLoop, ...], traversal: Side, traffic: Traffic) -> int:
    """Return the prefetch distance in bytes: from the address of a load to a source line that a later tile reads.

    When the source is traversed, that line is further on in the same row. If rows are short, or the tile covers that
    part of the row, the line belongs to one of the next rows.
    """
    steps = [(o.extent, _src_bytes(loops[o.loop], o, traffic)) for o in reversed(outer)]
    if traversal == "src" and len(steps) > 1 and _only_pairs_tiles(steps[0][1], steps[1][1]):
        steps.pop(0)  # it alternates between two tiles of one row
    extent, step = steps[0] if steps else (1, None)
    if step is None or (traversal == "dst" and extent < _LONG_LOOP):
        return _BYTES_AHEAD
    if traversal == "dst":
        return step * _TILES_AHEAD[traffic.exceeds_caches]
    # The row continues through loops whose stride is the length of the row so far.
    for count, stride in steps[1:]:
        if stride != step * extent:
            least, most = _ROWS_AHEAD_BYTES
            if traffic.exceeds_caches and stride is not None and 0 < stride <= most:
                return stride * min(_MOST_ROWS_AHEAD, ceil(least / stride))
            break
        extent *= count
    return max(_BYTES_AHEAD, _ROW_TILES_AHEAD * step)


def revisits_pages(loops: tuple[Loop, ...], outer: tuple[OuterLoop, ...], traffic: Traffic) -> bool:
    """Return whether the tiles leave a page of the source and come back to it much later.

    Beyond the caches, reopening a page of memory costs more than reading several of its lines. Larger tiles come back
    less often.
    """
    steps = [(abs(step), i) for i, o in enumerate(outer) if (step := _src_bytes(loops[o.loop], o, traffic))]
    if not traffic.exceeds_caches or not steps:
        return False
    nearest, i = min(steps)
    return nearest < _PAGE and prod(o.extent for o in outer[i + 1 :]) > _SOON


def _only_pairs_tiles(step: int | None, outside: int | None) -> bool:
    """Return whether the innermost loop only pairs tiles: its stride is longer than that of the loop around it."""
    return step is not None and outside is not None and abs(step) > abs(outside) > 0


def _src_bytes(loop: Loop, outer: OuterLoop, traffic: Traffic) -> int | None:
    """Return the stride of `outer` in the source, in bytes; None if `loop` has a table of offsets."""
    return loop.src * outer.step * traffic.src_bits // 8 if isinstance(loop.src, int) else None


def has_few_streams(registers: Iterable[int], register: int, step: DigitMap) -> bool:
    """Return whether the accesses of one side form a few sequential streams, each continued by the next tile.

    Hardware prefetchers follow such streams, and in a shared cache a software prefetch would cost more than it gains.

    Args:
        registers: offsets of the registers of a tile, in bytes.
        register: size of a register in bytes.
        step: stride in bytes from one tile to the next along the innermost loop, or the offset of each of its tiles.

    >>> rows = range(0, 16384, 1024)
    >>> has_few_streams(rows, 64, 64), has_few_streams(rows, 64, 4096), has_few_streams(range(0, 1024, 64), 64, 1024)
    (True, False, True)
    """
    places = sorted(set(registers))
    streams = 1 + sum(b - a > max(register, LINE) for a, b in pairwise(places))
    furthest = abs(step) if isinstance(step, int) else max(abs(b - a) for a, b in pairwise(step))
    return streams <= _MOST_STREAMS and furthest * streams <= register * len(places)
