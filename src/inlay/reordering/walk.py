"""The order of the loops around a tile, and how far ahead of the loads the source is fetched.

Whole lines are read and written, but not the next line each time, and memory likes what comes in a row. Where source
and destination cannot both be walked in the order in which they lie, the source is, and lines of the destination are
scattered: stores wait for nobody. Where that scatters over very many places and the other way takes only short steps in
the source, it is the destination. Processors guess neither pattern, so each load asks for a line of a later tile.
"""

from dataclasses import dataclass

from inlay.reordering.nest import Loop
from inlay.reordering.network import Side

# Measured: steps in the source that still are as good as no step, in bytes; places that may be written in turns; how
# far ahead to ask for lines, in bytes along the source, and in tiles along the destination when stores are cached
# (False) or pass the caches (True).
_SIDES: tuple[Side, Side] = ("src", "dst")
_SHORT_STEP = 32 << 10
_FEW_PLACES = 64
_BYTES_AHEAD = 256
_TILES_AHEAD = {False: 2, True: 4}


@dataclass(frozen=True, slots=True)
class OuterLoop:
    """What is left of a loop around the tile."""

    loop: int
    """The loop of the nest."""
    extent: int
    """How often it runs."""
    step: int
    """Values of the nest's loop from one run to the next: what the tile covers."""


def distance(loop: Loop, side: Side) -> int:
    """How far one step of `loop` goes on `side`, in elements, or on the other where it stands still there."""
    sides = (loop.src, loop.dst) if side == "src" else (loop.dst, loop.src)
    steps = [abs(where) for where in sides if isinstance(where, int) and where]
    return steps[0] if steps else 0


def walked(
    loops: list[Loop], outer: list[OuterLoop], element_bytes: int, side: Side | None = None
) -> tuple[list[OuterLoop], Side]:
    """The loops around the tile, outermost first, and the side whose order it is: `side`, or the better one.

    Loops with a table of offsets are outermost, so that the innermost has a stride.
    """
    orders: dict[Side, list[OuterLoop]] = {s: _sorted_by(loops, outer, s) for s in _SIDES}
    if side is not None:
        return orders[side], side
    if outer:
        inner = orders["dst"][-1]
        step = loops[inner.loop].src
        is_short = isinstance(step, int) and abs(step) * inner.step * element_bytes <= _SHORT_STEP
        if is_short and _places(orders["src"], inner) > _FEW_PLACES:
            return orders["dst"], "dst"
    return orders["src"], "src"


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


def bytes_ahead(
    loops: tuple[Loop, ...], outer: tuple[OuterLoop, ...], walk: Side, element_bits: int, *, streams: bool
) -> int:
    """Bytes from a load to the line that is worth asking for at the same time."""
    step = loops[outer[-1].loop].src if walk == "dst" and outer else None
    if not isinstance(step, int):
        return _BYTES_AHEAD
    return step * outer[-1].step * element_bits // 8 * _TILES_AHEAD[streams]
