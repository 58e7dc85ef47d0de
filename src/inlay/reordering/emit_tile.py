"""Code generation for a tile: load, shuffle, store; and for the masks of tiles at an edge of the tensor.

A tile is a function of two addresses and the register offsets of both sides, so the same code works on the tensors and
on the scratch copies of a tile at an edge. Registers that exchange elements with each other form a group, and groups
are processed one after another. Between two passes of the network, the tile is stored in a buffer on the stack. A few
groups are unrolled, more than that become a loop: it compiles in a tenth of the time and fits the first-level
instruction cache.

A mask is a word of bits for each register. Masks are cached from tile to tile: which lanes of a register are below a
bound depends only on the coordinate of the tile, and tiles at the same edge are cut off alike. For each guard, the
cache holds the coordinate and the words for each kind of mask. The words are computed again only if the guard cuts off
a tile at another coordinate:

    for each guard    the coordinate; for each kind of mask, a word for each register

The mask of a tile that several guards cut off is the conjunction of theirs. The caller provides the memory, a few words
for each thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.reordering.conversion import LINE, REGISTER_TYPES, Elements, bits_of, convert, elements_of
from inlay.reordering.emit_access import RegisterMask, SideAccess
from inlay.reordering.emit_values import emit_formula, lane_coordinates, value_parameters
from inlay.reordering.instructions import Arithmetic
from inlay.reordering.ir import Code, Lanes, shuffle_mask
from inlay.reordering.kernel import Kernel, TableShape
from inlay.reordering.network import BitPermutation, Deinterleave, Exchange, ShuffleStep

_SIDES = ("%src", "%dst")


def tile_parameters(kernel: Kernel) -> str:
    """Return the parameters of the function of a tile.

    For each side, the address of the tile and the address of its register offsets in bytes; then the address of the
    source tile to prefetch. In swizzled memory, the address is that of the coordinate of all zeros, and the offset of
    the tile before the swizzle is a further parameter; for the source, also that of the tile to prefetch.
    """
    parameters = "ptr %src, ptr %src_offsets, ptr %dst, ptr %dst_offsets, ptr %ahead"
    if kernel.src_swizzle is not None:
        parameters += ", i64 %src_at, i64 %ahead_at"
    return parameters + (", i64 %dst_at" if kernel.dst_swizzle is not None else "")


@dataclass(frozen=True, slots=True)
class Emitter:
    """The context that the functions of this package share while they write one kernel."""

    kernel: Kernel
    """The kernel that is written."""
    shape: TableShape
    """The layout of its table."""
    arithmetic: Arithmetic
    """The conversion and permutation instructions of the processor."""

    def lanes_in(self, code: Code) -> Lanes:
        """Return a writer of register operations that appends to `code`."""
        return Lanes(code, self.kernel.lanes, self.arithmetic)

    def elements(self, code: Code, side: int) -> Elements:
        """Return the element registers of a side: source (0) or destination (1)."""
        return elements_of(self.lanes_in(code), (self.kernel.src_type, self.kernel.dst_type)[side])

    def access(self, code: Code, side: int) -> SideAccess:
        """Return a writer of loads and stores of the registers of a side."""
        return SideAccess(self.elements(code, side), _SIDES[side], self.kernel.swizzles[side])

    @property
    def vector(self) -> str:
        """The LLVM vector type in which elements are shuffled."""
        return f"<{self.kernel.lanes} x {REGISTER_TYPES[self.shuffled]}>"

    @property
    def shuffled(self) -> str:
        """The element type in which elements are shuffled: the narrower type, if elements are only converted.

        With a formula: the destination type if the formula is computed after the load, the source type if before the
        store.
        """
        kernel = self.kernel
        if kernel.computation is not None:
            return kernel.dst_type if kernel.computation.side == "src" else kernel.src_type
        return min(kernel.src_type, kernel.dst_type, key=bits_of)

    @property
    def preserves_zeros(self) -> bool:
        """Return whether zeros that replace padding of the source are still zeros after conversion."""
        if self.kernel.computation is not None:
            return False
        src, dst = self.kernel.src_type, self.kernel.dst_type
        return src == dst or not DATA_TYPES[src].is_exponent

    @property
    def alignment(self) -> int:
        """Alignment in bytes of a shuffled register in memory on the stack."""
        return min(LINE, self.kernel.lanes * max(8, bits_of(self.shuffled)) // 8)


def tile_function(emitter: Emitter, name: str, streams: bool) -> tuple[str, Code]:
    """Write the function of a whole tile."""
    code = Code()
    head = f"define internal void @{name}({tile_parameters(emitter.kernel)}{value_parameters(emitter.kernel)})"
    code.label("entry")
    passes = _passes(emitter.kernel)
    vector = emitter.vector
    buffer = ""
    if len(passes) > 1:
        buffer = code.let(f"alloca [{emitter.kernel.registers} x {vector}], align {LINE}")
    for i, (steps, members, bases) in enumerate(passes):
        for base in _iterate_bases(code, f"pass{i}", bases, len(members)):
            numbers = {r: _register_number(code, base, r) for r in members}
            values = {r: _load_register(emitter, code, numbers[r], buffer if i else None) for r in members}
            for step in steps:
                _emit_step(code, step, values, emitter)
            for r, value in values.items():
                _store_register(emitter, code, numbers[r], value, buffer if i < len(passes) - 1 else None, streams)
    code.do("ret void")
    return head, code


_MANY_GROUPS = 4  # number of groups from which a loop is written


def _iterate_bases(code: Code, name: str, bases: list[int], members: int) -> Iterator[int | str]:
    """Yield the first register of each group; of many groups, one symbolic register inside a written loop."""
    if len(bases) < _MANY_GROUPS or members == 1:
        yield from bases
        return
    table = f"@bases.{'.'.join(map(str, bases))}"
    numbers = ", ".join(f"i64 {base}" for base in bases)
    code.declarations.add(f"{table} = private constant [{len(bases)} x i64] [{numbers}], align 8")
    with code.loop(name, len(bases)) as number:
        yield code.load_word(table, number)


def _register_number(code: Code, base: int | str, r: int) -> int | str:
    """Return the number, within the tile, of register `r` of the group that begins at `base`."""
    return base + r if isinstance(base, int) else code.let(f"add i64 {base}, {r}")


_Pass = tuple[tuple[ShuffleStep | Deinterleave, ...], list[int], list[int]]
"""A pass: its steps; the register numbers of one group, relative to its base; and the base of each group."""


def _passes(kernel: Kernel) -> list[_Pass]:
    """Return the passes of a kernel; between two passes the whole tile is in memory."""
    count = 1 << len(kernel.network.registers)
    # The network is repeated for each value of the odd digit, on registers `count` apart.
    repetitions = [*range(0, kernel.registers, count)]
    passes: list[_Pass] = []
    for steps in kernel.network.passes:
        exchanged_bits = sum({1 << step.register for step in steps if isinstance(step, Exchange)})
        members = [r for r in range(count) if r & ~exchanged_bits == 0]
        bases = [r for r in range(count) if r & exchanged_bits == 0]
        passes.append((steps, members, [first + base for first in repetitions for base in bases]))
    if kernel.deinterleave is None:
        return passes
    if not kernel.network.steps:
        passes = []
    deinterleave: _Pass = ((kernel.deinterleave,), repetitions, [*range(count)])
    return [deinterleave, *passes] if kernel.deinterleave.side == "src" else [*passes, deinterleave]


def _load_register(emitter: Emitter, code: Code, r: int | str, buffer: str | None) -> str:
    """Append the load of register `r`: from the buffer of an earlier pass, or from the source with conversion."""
    if buffer is not None:
        vector = emitter.vector
        address = code.let(f"getelementptr {vector}, ptr {buffer}, i64 {r}")
        return code.let(f"load {vector}, ptr {address}, align {emitter.alignment}")
    offset = code.load_word("%src_offsets", r)
    elements, access = emitter.elements(code, 0), emitter.access(code, 0)
    value = access.load(offset)
    if emitter.kernel.prefetches:
        place = access.prefetch_address("%ahead" if access.swizzle is None else "%ahead_at", offset)
        for line in range(0, elements.nbytes, LINE):
            code.prefetch(code.byte(place, line))
    if emitter.kernel.computation is not None and emitter.kernel.computation.side == "src":
        return emit_formula(elements.lanes, emitter.kernel, emitter.shape, elements.unpack(value), r)
    return convert(elements.lanes, elements.unpack(value), elements.name, emitter.shuffled)


def _store_register(emitter: Emitter, code: Code, r: int | str, value: str, buffer: str | None, streams: bool) -> None:
    """Append the store of register `r`: to the buffer for a later pass, or to the destination with conversion."""
    if buffer is not None:
        vector = emitter.vector
        address = code.let(f"getelementptr {vector}, ptr {buffer}, i64 {r}")
        code.do(f"store {vector} {value}, ptr {address}, align {emitter.alignment}")
        return
    elements, computation = emitter.elements(code, 1), emitter.kernel.computation
    access, offset = emitter.access(code, 1), code.load_word("%dst_offsets", r)
    if computation is not None and computation.side == "dst":
        old = elements.unpack(access.load(offset)) if computation.sums else ""
        value = emit_formula(elements.lanes, emitter.kernel, emitter.shape, value, r, old)
    else:
        value = convert(elements.lanes, value, emitter.shuffled, elements.name)
    access.store(elements.pack(value), offset, streams=streams)


def _emit_step(code: Code, step: ShuffleStep | Deinterleave, values: dict[int, str], emitter: Emitter) -> None:
    """Append one step of the network on the registers of a group, and replace their names in `values`."""
    vector = emitter.vector
    match step:
        case BitPermutation():
            mask = shuffle_mask(step.mask(emitter.kernel.lanes))
            for r, value in values.items():
                values[r] = code.let(f"shufflevector {vector} {value}, {vector} poison, {mask}")
        case Exchange(register):
            masks = [shuffle_mask(mask) for mask in step.masks(emitter.kernel.lanes)]
            for r in [r for r in values if not r >> register & 1]:
                other = r | 1 << register
                pair = f"{vector} {values[r]}, {vector} {values[other]}"
                low, high = (code.let(f"shufflevector {pair}, {mask}") for mask in masks)
                values[r], values[other] = low, high
        case Deinterleave():
            old = list(values.values())
            lanes = emitter.lanes_in(code)
            for i, r in enumerate(list(values)):
                sources = step.sources(i, len(emitter.kernel.network.lanes))
                values[r] = _gather_lanes(lanes, REGISTER_TYPES[emitter.shuffled], sources, old)


def _gather_lanes(lanes: Lanes, element: str, sources: tuple[tuple[int, int], ...], old: list[str]) -> str:
    """Append permutations that build a register with lanes from any old ones; each adds the lanes of one more."""
    first, *others = sorted({register for register, _ in sources})
    # gathered[i] is the lane of `value` that holds the element for lane i of the result, or -1 if none does yet.
    value, gathered = old[first], [lane if register == first else -1 for register, lane in sources]
    for i in others:
        order = [
            lanes.count + lane if register == i else current
            for (register, lane), current in zip(sources, gathered, strict=True)
        ]
        value = lanes.pick(element, value, old[i], order)
        gathered = [lane if taken >= 0 else -1 for lane, taken in enumerate(order)]
    return value if gathered == [*range(lanes.count)] else lanes.pick(element, value, value, gathered)


# Masks


READ, WRITTEN, FILLED = (0, 0), (1, 1), (1, 0)
"""The kinds of masks, as (side, number of a bound): elements read from the source, elements written to the destination,
and destination elements that hold data, not padding."""
_Kind = tuple[int, int]
_FAR = 1 << 30  # more lanes than any register has, and a 32-bit number
_NOWHERE = -1  # a coordinate that no tile has: marks masks that were not computed yet
_WORD = 64  # bits of a mask word


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks of one tile."""

    emitter: Emitter
    """The context of the kernel."""
    places: dict[_Kind, list[str]]
    """For each kind of mask, the addresses of the words of each guard."""

    def of(self, code: Code, kind: _Kind, r: str) -> str:
        """Append the computation of the mask of register `r`."""
        return self._mask(code, self._bits(code, kind, r))

    def of_access(self, code: Code, kind: _Kind, r: str) -> RegisterMask:
        """Append the mask of register `r` for an access.

        Memory that is stored to instead of a register without selected lanes is never loaded, so no load waits for such
        a store.
        """
        elsewhere = "%masks" if kind == WRITTEN else _constant(code, self.emitter, 0)
        bits = self._bits(code, kind, r)
        is_none = code.let(f"icmp eq i64 {bits}, 0")
        return RegisterMask(self._mask(code, bits), is_none, elsewhere)

    def _bits(self, code: Code, kind: _Kind, r: str) -> str:
        """Append the conjunction of all guards' words for register `r`."""
        first, *others = (code.load_word(place, r) for place in self.places[kind])
        for other in others:
            first = code.let(f"and i64 {first}, {other}")
        return first

    def _mask(self, code: Code, bits: str) -> str:
        """Append the conversion of a word to a vector mask."""
        lanes = self.emitter.kernel.lanes
        narrow = bits if lanes == _WORD else code.let(f"trunc i64 {bits} to i{lanes}")
        return code.let(f"bitcast i{lanes} {narrow} to <{lanes} x i1>")


def mask_words(emitter: Emitter) -> int:
    """Return the number of words for the cached masks of a thread."""
    return _spare_words(emitter) + len(emitter.kernel.bounds) * _guard_words(emitter)


def clear_masks(code: Code, emitter: Emitter) -> None:
    """Append code that marks all masks in `%masks` as not computed."""
    for i, _ in enumerate(emitter.kernel.bounds):
        code.do(f"store i64 {_NOWHERE}, ptr {_cached_mask_address(code, emitter, i)}, align 8")


def masks_of_tile(code: Code, emitter: Emitter, coordinates: list[str]) -> Masks:
    """Append code that provides the masks of the tile at `coordinates`, cached in `%masks` or computed.

    If the tile is wholly inside or wholly outside the bounds of a guard, constants are used and the cache is unchanged.
    """
    places: dict[_Kind, list[str]] = {kind: [] for kind in _mask_kinds(emitter)}
    for i, g in enumerate(emitter.kernel.bounds):
        cached = _cached_mask_address(code, emitter, i)
        inside = [compare_bound(code, emitter, "sle", coordinates[g], g, 2 + bounds) for bounds in (0, 1)]
        outside = [compare_bound(code, emitter, "sge", coordinates[g], g, bounds) for bounds in (0, 1)]
        is_constant = [code.let(f"or i1 {a}, {b}") for a, b in zip(inside, outside, strict=True)]
        is_cached = code.let(f"icmp eq i64 {code.load_word(cached, 0)}, {coordinates[g]}")
        is_known = code.let(f"or i1 {code.let(f'and i1 {is_constant[0]}, {is_constant[1]}')}, {is_cached}")
        code.do(f"br i1 {is_known}, label %known{i}, label %make{i}")
        code.label(f"make{i}")
        code.do(f"store i64 {coordinates[g]}, ptr {cached}, align 8")
        for k, kind in enumerate(places):
            _emit_mask_bits(code, emitter, g, kind, coordinates[g], _mask_bits_address(code, emitter, cached, k))
        code.do(f"br label %known{i}")
        code.label(f"known{i}")
        for k, kind in enumerate(places):
            bits, bounds = _mask_bits_address(code, emitter, cached, k), kind[1]
            zeros, ones = _constant(code, emitter, 0), _constant(code, emitter, -1)
            zeros_or_bits = code.let(f"select i1 {outside[bounds]}, ptr {zeros}, ptr {bits}")
            places[kind].append(code.let(f"select i1 {inside[bounds]}, ptr {ones}, ptr {zeros_or_bits}"))
    return Masks(emitter, places)


def compare_bound(code: Code, emitter: Emitter, predicate: str, coordinate: str, guard: int, which: int) -> str:
    """Append a comparison of a tile's coordinate with one of the four bounds of a guard (`TableShape.bound`)."""
    bound = code.load_word("%table", emitter.shape.bound(guard, which))
    return code.let(f"icmp {predicate} i64 {coordinate}, {bound}")


def mask_function(emitter: Emitter, side: int) -> tuple[str, Code]:
    """Write the function that computes the mask words of one guard on a side.

    Its argument is the number of coordinates from the tile to the bound.
    """
    code, shape, lanes = Code(), emitter.shape, emitter.kernel.lanes
    at = shape.coordinates(side, 0)
    code.label("entry")
    with code.loop("each", emitter.kernel.registers) as r:
        left = code.let(f"sub i64 %room, {code.load_word(code.word('%table', at), r)}")
        for limit, name in ((_FAR, "smin"), (0, "smax")):
            left = code.minmax(name, left, limit)
        left_in_lanes = emitter.lanes_in(code).splat(code.let(f"trunc i64 {left} to i32"), "i32")
        address = lane_coordinates(code, shape, side, at + shape.registers, r)
        coordinates = code.let(f"load <{lanes} x i32>, ptr {address}, align 4")
        below = code.let(f"icmp slt <{lanes} x i32> {coordinates}, {left_in_lanes}")
        bits = code.let(f"bitcast <{lanes} x i1> {below} to i{lanes}")
        wide = bits if lanes == _WORD else code.let(f"zext i{lanes} {bits} to i64")
        code.do(f"store i64 {wide}, ptr {code.word('%bits', r)}, align 8")
    code.do("ret void")
    return f"define internal void @mask{side}(ptr %table, ptr %bits, i64 %room)", code


def _emit_mask_bits(code: Code, emitter: Emitter, guard: int, kind: _Kind, coordinate: str, bits: str) -> None:
    """Append the call that computes the words of a guard and a kind at address `bits`."""
    side, bounds = kind
    shape = emitter.shape
    apart = shape.coordinates(side, guard) - shape.coordinates(side, 0)
    room = code.let(f"sub i64 {code.load_word('%table', shape.bound(guard, bounds))}, {coordinate}")
    code.do(f"call void @mask{side}(ptr {code.word('%table', apart)}, ptr {bits}, i64 {room})")


def _mask_kinds(emitter: Emitter) -> tuple[_Kind, ...]:
    """Return the kinds of masks that a kernel needs."""
    return (READ, WRITTEN) if emitter.preserves_zeros else (READ, WRITTEN, FILLED)


def _spare_words(emitter: Emitter) -> int:
    """Return the number of words at the start of the masks that replace unmapped memory: one destination register."""
    lanes, bits = emitter.kernel.lanes, bits_of(emitter.kernel.dst_type)
    return -(-lanes * bits // (8 * LINE)) * LINE // 8


def _cached_mask_address(code: Code, emitter: Emitter, i: int) -> str:
    """Append the address of the cached coordinate and words of the `i`th guard with bounds."""
    return code.word("%masks", _spare_words(emitter) + i * _guard_words(emitter))


def _guard_words(emitter: Emitter) -> int:
    """Return the number of cached words for each guard: its coordinate, and a word for each kind and register."""
    return 1 + len(_mask_kinds(emitter)) * emitter.kernel.registers


def _mask_bits_address(code: Code, emitter: Emitter, cached: str, k: int) -> str:
    """Append the address of the words of mask kind number `k` of a guard."""
    return code.word(cached, 1 + k * emitter.kernel.registers)


def _constant(code: Code, emitter: Emitter, word: int) -> str:
    """Declare a constant with the same word for every register; return its name."""
    count = emitter.kernel.registers
    name = f"@bits.{count}.{'ones' if word else 'none'}"
    words = ", ".join([f"i64 {word}"] * count)
    code.declarations.add(f"{name} = private constant [{count} x i64] [{words}], align 8")
    return name
