"""The order of the loops around a tile, and how far ahead of the loads the source is fetched.

Whole lines are read and written, but not the next line each time, and memory likes what comes in a row. Where source
and destination cannot both be walked in the order in which they lie, the source is, and lines of the destination are
scattered: stores wait for nobody. The destination is walked where that is one long loop of short steps in the source,
and the other way would scatter over very many places; and where the pieces that a tile writes are parts of lines, which
must meet in a cache. Processors guess neither pattern, so each load asks for a line of a later tile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from inlay.reordering.caches import CacheSizes
from inlay.reordering.elements import LINE
from inlay.reordering.nest import Loop
from inlay.reordering.network import Side

_SIDES: tuple[Side, Side] = ("src", "dst")
Level = Literal["L2", "L3", "memory"]
"""Where source and destination live together: in one core's cache, in the shared one, beyond."""


def level_of(moved_bytes: int, caches: CacheSizes, streams: bool | None = None) -> Level:
    """Where so many bytes live; beyond the caches or not as `streams` says, if it does."""
    if moved_bytes > caches.last if streams is None else streams:
        return "memory"
    return "L3" if moved_bytes > caches.second else "L2"


_KEPT = 1 << 20  # bytes that a second-level cache keeps until they are needed again
# Measured: steps in the source that still are as good as no step, in bytes; from how many on they make a long loop;
# places that may be written in turns; how far ahead to ask for lines, in bytes along the source, and in tiles along the
# destination when stores are cached (False) or pass the caches (True).
_SHORT_STEP = 32 << 10
_LONG_LOOP = 16
_FEW_PLACES: Mapping[Level, int] = MappingProxyType({"L2": 64, "L3": 0, "memory": 32})
_BYTES_AHEAD = 256
_TILES_AHEAD = {False: 2, True: 4}


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

    def start(self, run: int) -> int:
        """The first value of the nest's loop that a run covers."""
        return run * self.step - (self.back if run == self.extent - 1 else 0)


def distance(loop: Loop, side: Side) -> int:
    """How far one step of `loop` goes on `side`, in elements, or on the other where it stands still there."""
    sides = (loop.src, loop.dst) if side == "src" else (loop.dst, loop.src)
    steps = [abs(where) for where in sides if isinstance(where, int) and where]
    return steps[0] if steps else 0


def walked(
    loops: list[Loop], outer: list[OuterLoop], traffic: Traffic, side: Side | None = None
) -> tuple[list[OuterLoop], Side]:
    """The loops around the tile, outermost first, and the side whose order it is: `side`, or the better one.

    Loops with a table of offsets are outermost, so that the innermost has a stride.
    """
    orders: dict[Side, list[OuterLoop]] = {s: _sorted_by(loops, outer, s) for s in _SIDES}
    if side is None:
        is_one = orders["src"] == orders["dst"]
        side = "src" if is_one or not _suits_dst(loops, orders["dst"][-1], orders["src"], traffic) else "dst"
    return orders[side], side


def _suits_dst(loops: list[Loop], inner: OuterLoop, along_src: list[OuterLoop], traffic: Traffic) -> bool:
    """Whether the destination is to be walked, with `inner` as the innermost loop, and not the source."""
    src, dst = loops[inner.loop].src, loops[inner.loop].dst
    if not isinstance(src, int) or not isinstance(dst, int):
        return False
    if traffic.streams and abs(dst) * inner.step * traffic.dst_bits < 8 * LINE:
        return True
    step = abs(src) * inner.step * traffic.src_bits // 8
    if abs(src) * traffic.src_bits % (8 * LINE) and step * inner.extent > _KEPT:
        return False  # lines of the source that two tiles share would be read twice
    is_short = step <= _SHORT_STEP
    return is_short and inner.extent >= _LONG_LOOP and _places(along_src, inner) > _FEW_PLACES[traffic.level]


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
    """Bytes from a load to the line that is worth asking for at the same time."""
    step = loops[outer[-1].loop].src if walk == "dst" and outer and outer[-1].extent >= _LONG_LOOP else None
    if not isinstance(step, int):
        return _BYTES_AHEAD
    return step * outer[-1].step * traffic.src_bits // 8 * _TILES_AHEAD[traffic.streams]
