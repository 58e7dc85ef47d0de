"""The order of the loops around a tile, and how far ahead of the loads the source is fetched.

Whole lines are read and written, but not the next line each time, and memory likes what comes in a row. Where source
and destination cannot both be walked in the order in which they lie, the source is, and lines of the destination are
scattered: stores wait for nobody. The destination is walked where that is one long loop of short steps in the source,
and the other way would scatter over very many places; and where the pieces that a tile writes are parts of lines, which
must meet in a cache. Beyond the caches, two tiles whose lines follow one another in the destination run back to back,
where single lines would be scattered widely. Processors guess none of these patterns, so each load asks for a line of a
later tile.
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
"""Where source and destination live together: in one core's cache, in the shared one, beyond."""


def level_of(moved_bytes: int, memory: MemoryModel, streams: bool | None = None) -> Level:
    """Where so many bytes live; beyond the caches or not as `streams` says, if it does."""
    if moved_bytes > memory.last_level if streams is None else streams:
        return "memory"
    return "L3" if moved_bytes > memory.l2 else "L2"


_KEPT = 1 << 20  # bytes that a second-level cache keeps until they are needed again
# Measured: steps in the source that still are as good as no step, in bytes; from how many on they make a long loop;
# at how many places, written in turns, the destination is walked: fewer do no harm, and beyond the caches more of them
# mean long rows of the source, of which to read one line at a time costs more; from how many places on two tiles are
# paired, and bytes from one line of a tile to the next: nearer ones share pages of memory, and nothing is gained.
_SHORT_STEP = 32 << 10
_LONG_LOOP = 16
_PLACES: Mapping[Level, range] = MappingProxyType(
    {"L2": range(65, 1 << 62), "L3": range(1, 1 << 62), "memory": range(33, 65)}
)
_MANY_PLACES = 512
_FAR_APART = 512
# How far ahead to ask for lines. Along the source, so many bytes and tiles at least; beyond the caches, where a round
# of the innermost loop is no longer than the second number of bytes, whole rounds until the first number is reached,
# but not many of them. Tiles along the destination, when stores are cached (False) or pass the caches (True).
_BYTES_AHEAD = 256
_ROW_TILES_AHEAD = 2
_ROUND_AHEAD = (32 << 10, 128 << 10)
_MOST_ROUNDS = 4
_TILES_AHEAD = {False: 2, True: 4}
_PAGE = 4096  # bytes of memory that a processor opens at once
_SOON = 16  # tiles after which it still is open
_MOST_STREAMS = 32  # as many a processor follows by itself


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the order of the loops depends on, beside the loops."""

    src_bits: int
    """Bits of an element of the source."""
    dst_bits: int
    """Bits of an element of the destination."""
    level: Level = "L2"
    """Where the bytes come from and go to."""

    @property
    def streams(self) -> bool:
        """Whether source and destination together exceed the caches."""
        return self.level == "memory"


@dataclass(frozen=True, slots=True)
class OuterLoop:
    """What is left of a loop around the tile."""

    loop: int
    """The loop of the nest."""
    extent: int
    """How often it runs."""
    step: int
    """Values of the nest's loop from one run to the next: what the tile covers."""
    back: int = 0
    """Values by which the last run begins earlier, so that it ends where the loop does; it overlaps the one before."""


def distance(loop: Loop, side: Side) -> int:
    """How far one step of `loop` goes on `side`, in elements, or on the other where it stands still there."""
    sides = (loop.src, loop.dst) if side == "src" else (loop.dst, loop.src)
    steps = [abs(where) for where in sides if isinstance(where, int) and where]
    return steps[0] if steps else 0


def order_loops(
    loops: list[Loop], outer: list[OuterLoop], traffic: Traffic, side: Side | None = None
) -> tuple[list[OuterLoop], Side]:
    """The loops around the tile, outermost first, and the side whose order it is: `side`, or the better one.

    Loops with a table of offsets are outermost, so that the innermost has a stride.
    """
    orders: dict[Side, list[OuterLoop]] = {s: _sorted_by(loops, outer, s) for s in SIDES}
    if side is None:
        is_one = orders["src"] == orders["dst"]
        side = "src" if is_one or not _suits_dst(loops, orders, traffic) else "dst"
    return _paired(loops, orders["src"], traffic) if side == "src" else orders[side], side


def _paired(loops: list[Loop], order: list[OuterLoop], traffic: Traffic) -> list[OuterLoop]:
    """The loops along the source with tiles in pairs that write two lines in a row, where lines are scattered widely.

    The loop whose steps are one line of the destination runs twice: in half as many steps, and innermost in two.
    """
    line = next((o for o in order if _is_line(loops[o.loop], o, traffic)), None)
    if not traffic.streams or line is None or line.extent % 2 or _places(order, line) <= _MANY_PLACES:
        return order
    apart = loops[order[-1].loop].dst
    if not isinstance(apart, int) or abs(apart) * traffic.dst_bits < 8 * _FAR_APART:
        return order
    halved = replace(line, extent=line.extent // 2, step=2 * line.step)
    return [o for o in (halved if o is line else o for o in order) if o.extent > 1] + [replace(line, extent=2)]


def _is_line(loop: Loop, outer: OuterLoop, traffic: Traffic) -> bool:
    """Whether each step of `outer` goes on by one cache line of the destination, and no bound cuts any off."""
    if not isinstance(loop.src, int) or not isinstance(loop.dst, int) or loop.counts or outer.back:
        return False
    return loop.dst * outer.step * traffic.dst_bits == 8 * LINE


def _suits_dst(loops: list[Loop], orders: Mapping[Side, list[OuterLoop]], traffic: Traffic) -> bool:
    """Whether the destination is to be walked, of the two `orders`, and not the source."""
    inner = orders["dst"][-1]
    src, dst = loops[inner.loop].src, loops[inner.loop].dst
    if not isinstance(src, int) or not isinstance(dst, int):
        return False
    piece = abs(dst) * inner.step * traffic.dst_bits
    if traffic.streams and piece < 8 * LINE:
        return True
    if traffic.level != "L2" and piece == 8 * LINE and inner.extent < _LONG_LOOP and _cuts_lines(loops, traffic):
        return True
    step = abs(src) * inner.step * traffic.src_bits // 8
    if abs(src) * traffic.src_bits % (8 * LINE) and step * inner.extent > _KEPT:
        return False  # lines of the source that two tiles share would be read twice
    is_short = step <= _SHORT_STEP
    return is_short and inner.extent >= _LONG_LOOP and _places(orders["src"], inner) in _PLACES[traffic.level]


def _cuts_lines(loops: list[Loop], traffic: Traffic) -> bool:
    """Whether some steps of more than a line end within a line of the destination."""
    steps = (abs(loop.dst) * traffic.dst_bits for loop in loops if isinstance(loop.dst, int))
    return any(step > 8 * LINE and step % (8 * LINE) for step in steps)


def _sorted_by(loops: list[Loop], outer: list[OuterLoop], side: Side) -> list[OuterLoop]:
    """The loops by their steps on `side`, the longest first."""

    def key(o: OuterLoop) -> tuple[bool, int]:
        loop = loops[o.loop]
        return loop.is_affine or o.step > 1, -distance(loop, side) * o.step

    return sorted(outer, key=key)


def _places(order: list[OuterLoop], along: OuterLoop) -> int:
    """How many places of the destination are written before the walk comes back to go on at the first.

    Each step of the loops inside of `along` writes as many as the tile has values of the same loop.
    """
    places = 1
    for o in reversed(order):
        if o is along:
            break
        places *= o.extent * o.step
    return places


def bytes_ahead(loops: tuple[Loop, ...], outer: tuple[OuterLoop, ...], walk: Side, traffic: Traffic) -> int:
    """Bytes from a load to the line that is worth asking for at the same time: one that a later tile reads.

    Along the source that is a line further on in the row; but where rows are short, or the tile covers what lies there,
    it is one of the next rows.
    """
    steps = [(o.extent, _src_bytes(loops[o.loop], o, traffic)) for o in reversed(outer)]
    if walk == "src" and len(steps) > 1 and _is_between(steps[0][1], steps[1][1]):
        steps.pop(0)
    extent, step = steps[0] if steps else (1, None)
    if step is None or (walk == "dst" and extent < _LONG_LOOP):
        return _BYTES_AHEAD
    if walk == "dst":
        return step * _TILES_AHEAD[traffic.streams]
    for count, further in steps[1:]:
        if further != step * extent:
            least, most = _ROUND_AHEAD
            if traffic.streams and further is not None and 0 < further <= most:
                return further * min(_MOST_ROUNDS, ceil(least / further))
            break
        extent *= count
    return max(_BYTES_AHEAD, _ROW_TILES_AHEAD * step)


def leaves_pages(loops: tuple[Loop, ...], outer: tuple[OuterLoop, ...], traffic: Traffic) -> bool:
    """Whether a tile leaves a page of the source that a tile long after it reads on in.

    Beyond the caches, to come back to a page costs more than some lines of it: larger tiles come back less often.
    """
    steps = [(abs(step), i) for i, o in enumerate(outer) if (step := _src_bytes(loops[o.loop], o, traffic))]
    if not traffic.streams or not steps:
        return False
    nearest, i = min(steps)
    return nearest < _PAGE and prod(o.extent for o in outer[i + 1 :]) > _SOON


def _is_between(step: int | None, outside: int | None) -> bool:
    """Whether the innermost loop takes longer steps than the one outside, and so only pairs tiles of its row."""
    return step is not None and outside is not None and abs(step) > abs(outside) > 0


def _src_bytes(loop: Loop, outer: OuterLoop, traffic: Traffic) -> int | None:
    """Bytes of the source from one run of `outer`, over `loop`, to the next; None where a table says."""
    return loop.src * outer.step * traffic.src_bits // 8 if isinstance(loop.src, int) else None


def goes_in_streams(registers: Iterable[int], register: int, step: DigitMap) -> bool:
    """Whether a side is gone through in a few streams, each of which goes on where the tile before left it.

    Processors guess these by themselves, and in a shared cache asking costs more than it brings.

    Args:
        registers: where the registers of a tile lie, in bytes.
        register: bytes of one register.
        step: bytes from one tile to the next of the innermost loop, or where each of them lies.

    >>> rows = range(0, 16384, 1024)
    >>> goes_in_streams(rows, 64, 64), goes_in_streams(rows, 64, 4096), goes_in_streams(range(0, 1024, 64), 64, 1024)
    (True, False, True)
    """
    places = sorted(set(registers))
    streams = 1 + sum(b - a > max(register, LINE) for a, b in pairwise(places))
    furthest = abs(step) if isinstance(step, int) else max(abs(b - a) for a, b in pairwise(step))
    return streams <= _MOST_STREAMS and furthest * streams <= register * len(places)
