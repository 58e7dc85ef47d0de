"""The masks of tiles at an edge: a word of bits per register, kept from tile to tile.

Which lanes of a register lie below a bound depends on one number, the coordinate of the tile; and tiles at an edge
come in rows that are cut off alike. Of the 65 columns of a matrix every last tile holds one. So each guard keeps its
bits, and the coordinate that they are of, and they are made anew only when it cuts a tile off at another coordinate:

    for each guard    the coordinate; for each kind of mask a word for each register

A tile that several guards cut off has the bits that all of them have. The memory is the caller's, a few words for each
thread.
"""

from dataclasses import dataclass

from inlay.reordering.elements import LINE, bits_of
from inlay.reordering.emit_tile import Emitter
from inlay.reordering.emit_values import lane_coordinates
from inlay.reordering.ir import Code

READ, WRITTEN, FILLED = (0, 0), (1, 1), (1, 0)
"""Kinds of masks, as a side and which of the bounds: what is read from the source, what is written to the destination,
and which of that is data, not padding."""
_Kind = tuple[int, int]
_FAR = 1 << 30  # more lanes than any register has, small enough for 32 bits
_NOWHERE = -1  # the coordinate of no tile


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks of one tile."""

    emitter: Emitter
    """Whose tile it is."""
    places: dict[_Kind, list[str]]
    """For each kind where the bits of each guard begin."""

    def of(self, code: Code, kind: _Kind, r: str) -> str:
        """The mask of register `r`."""
        return self._mask(code, self._bits(code, kind, r))

    def at(self, code: Code, kind: _Kind, r: str, address: str) -> tuple[str, str]:
        """The mask of register `r`, and where to use it: at `address`, or at one that is mapped if it selects nothing.

        Nothing is touched there either way. But what lies past the end of a tensor need not be mapped, and processors
        take a thousand cycles to find that a masked access of such a page is none. What is stored to in its stead is
        loaded by nobody, who would have to wait for it.
        """
        elsewhere = "%masks" if kind == WRITTEN else _constant(code, self.emitter, 0)
        bits = self._bits(code, kind, r)
        is_none = code.let(f"icmp eq i64 {bits}, 0")
        return self._mask(code, bits), code.let(f"select i1 {is_none}, ptr {elsewhere}, ptr {address}")

    def _bits(self, code: Code, kind: _Kind, r: str) -> str:
        first, *others = (code.load_word(place, r) for place in self.places[kind])
        for other in others:
            first = code.let(f"and i64 {first}, {other}")
        return first

    def _mask(self, code: Code, bits: str) -> str:
        lanes = self.emitter.lanes
        narrow = bits if lanes == _WORD else code.let(f"trunc i64 {bits} to i{lanes}")
        return code.let(f"bitcast i{lanes} {narrow} to <{lanes} x i1>")


_WORD = 64


def kept_words(emitter: Emitter) -> int:
    """Words that a thread keeps its masks in."""
    return _spare_words(emitter) + len(emitter.kernel.bounds) * _guard_words(emitter)


def forget(code: Code, emitter: Emitter) -> None:
    """Begin with no masks in `%masks`."""
    for i, _ in enumerate(emitter.kernel.bounds):
        code.do(f"store i64 {_NOWHERE}, ptr {_kept_at(code, emitter, i)}, align 8")


def masks_of_tile(code: Code, emitter: Emitter, coordinates: list[str]) -> Masks:
    """The masks of the tile at `coordinates`, made where `%masks` does not hold them yet.

    A guard that cuts off nothing, or everything, has constant bits and leaves those that are kept alone.
    """
    places: dict[_Kind, list[str]] = {kind: [] for kind in _kinds(emitter)}
    for i, g in enumerate(emitter.kernel.bounds):
        kept = _kept_at(code, emitter, i)
        inside = [_is_inside(code, emitter, g, bounds, coordinates[g]) for bounds in (0, 1)]
        outside = [_is_outside(code, emitter, g, bounds, coordinates[g]) for bounds in (0, 1)]
        settled = [code.let(f"or i1 {a}, {b}") for a, b in zip(inside, outside, strict=True)]
        is_kept = code.let(f"icmp eq i64 {code.load_word(kept, 0)}, {coordinates[g]}")
        is_known = code.let(f"or i1 {code.let(f'and i1 {settled[0]}, {settled[1]}')}, {is_kept}")
        code.do(f"br i1 {is_known}, label %known{i}, label %make{i}")
        code.label(f"make{i}")
        code.do(f"store i64 {coordinates[g]}, ptr {kept}, align 8")
        for k, kind in enumerate(places):
            _make(code, emitter, g, kind, coordinates[g], _bits_at(code, emitter, kept, k))
        code.do(f"br label %known{i}")
        code.label(f"known{i}")
        for k, kind in enumerate(places):
            own, bounds = _bits_at(code, emitter, kept, k), kind[1]
            some = code.let(f"select i1 {outside[bounds]}, ptr {_constant(code, emitter, 0)}, ptr {own}")
            ones = _constant(code, emitter, -1)
            places[kind].append(code.let(f"select i1 {inside[bounds]}, ptr {ones}, ptr {some}"))
    return Masks(emitter, places)


def mask_functions(emitter: Emitter) -> list[tuple[str, Code]]:
    """For each side, what makes the bits of one guard, given how many coordinates are left before its bound."""
    return [_mask_function(emitter, side) for side in (0, 1)]


def _mask_function(emitter: Emitter, side: int) -> tuple[str, Code]:
    code, shape, lanes = Code(), emitter.shape, emitter.lanes
    at = shape.coordinates(side, 0)
    code.label("entry")
    with code.loop("each", emitter.kernel.registers) as r:
        room = code.let(f"sub i64 %room, {code.load_word(code.word('%table', at), r)}")
        for limit, name in ((_FAR, "smin"), (0, "smax")):
            room = code.minmax(name, room, limit)
        every = emitter.lanes_in(code).spread(code.let(f"trunc i64 {room} to i32"), "i32")
        where = lane_coordinates(code, shape, side, at + shape.registers, r)
        lane = code.let(f"load <{lanes} x i32>, ptr {where}, align 4")
        below = code.let(f"icmp slt <{lanes} x i32> {lane}, {every}")
        bits = code.let(f"bitcast <{lanes} x i1> {below} to i{lanes}")
        wide = bits if lanes == _WORD else code.let(f"zext i{lanes} {bits} to i64")
        code.do(f"store i64 {wide}, ptr {code.word('%bits', r)}, align 8")
    code.do("ret void")
    return f"define internal void @mask{side}(ptr %table, ptr %bits, i64 %room)", code


def _make(code: Code, emitter: Emitter, guard: int, kind: _Kind, coordinate: str, bits: str) -> None:
    side, bounds = kind
    shape = emitter.shape
    apart = shape.coordinates(side, guard) - shape.coordinates(side, 0)
    room = code.let(f"sub i64 {code.load_word('%table', shape.bound(guard, bounds))}, {coordinate}")
    code.do(f"call void @mask{side}(ptr {code.word('%table', apart)}, ptr {bits}, i64 {room})")


def _kinds(emitter: Emitter) -> tuple[_Kind, ...]:
    return (READ, WRITTEN) if emitter.keeps_zeros else (READ, WRITTEN, FILLED)


def _spare_words(emitter: Emitter) -> int:
    """Words at the beginning that stand for memory of which nothing is selected: a register of the destination."""
    lanes, bits = emitter.lanes, bits_of(emitter.kernel.dst_type)
    return -(-lanes * bits // (8 * LINE)) * LINE // 8


def _kept_at(code: Code, emitter: Emitter, i: int) -> str:
    """Where the `i`th guard keeps its coordinate and bits."""
    return code.word("%masks", _spare_words(emitter) + i * _guard_words(emitter))


def _guard_words(emitter: Emitter) -> int:
    return 1 + len(_kinds(emitter)) * emitter.kernel.registers


def _bits_at(code: Code, emitter: Emitter, kept: str, k: int) -> str:
    return code.word(kept, 1 + k * emitter.kernel.registers)


def _is_inside(code: Code, emitter: Emitter, guard: int, bounds: int, coordinate: str) -> str:
    limit = code.load_word("%table", emitter.shape.bound(guard, 2 + bounds))
    return code.let(f"icmp sle i64 {coordinate}, {limit}")


def _is_outside(code: Code, emitter: Emitter, guard: int, bounds: int, coordinate: str) -> str:
    bound = code.load_word("%table", emitter.shape.bound(guard, bounds))
    return code.let(f"icmp sge i64 {coordinate}, {bound}")


def _constant(code: Code, emitter: Emitter, word: int) -> str:
    """The same word for every register."""
    count = emitter.kernel.registers
    name = f"@bits.{count}.{'ones' if word else 'none'}"
    words = ", ".join([f"i64 {word}"] * count)
    code.declarations.add(f"{name} = private constant [{count} x i64] [{words}], align 8")
    return name
