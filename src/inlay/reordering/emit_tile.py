"""The code of a tile: load, shuffle, store.

The tile is a function of two addresses and, for each side, the offsets of its registers, so the same code runs on
the tensors themselves and on the scratch copies of a tile at an edge. Registers are worked on in groups
that exchange among themselves; between two passes the tile lies in a buffer on the stack. A few groups are written one
after another, many as a loop: that is compiled in a tenth of the time, and its code stays in the first-level cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.reordering.conversion import REGISTER_TYPES, convert
from inlay.reordering.elements import LINE, Elements, bits_of, elements_of
from inlay.reordering.emit_values import computed, value_parameters
from inlay.reordering.ir import Code
from inlay.reordering.kernel import Kernel, TableShape
from inlay.reordering.lanes import Arithmetic, Lanes, shuffle_mask
from inlay.reordering.network import Exchange, Permute, Run, Step

TILE_ARGUMENTS = "ptr %src, ptr %src_offsets, ptr %dst, ptr %dst_offsets, ptr %ahead"
"""For each side the address of the tile, and for each of its registers the bytes from there; last the address of the
tile of the source that is worth asking for meanwhile."""


@dataclass(frozen=True, slots=True)
class Emitter:
    """What the parts of a kernel's code have in common."""

    kernel: Kernel
    """The kernel to be written."""
    shape: TableShape
    """Where its table keeps what."""
    arithmetic: Arithmetic
    """What the processor converts by itself."""

    @property
    def lanes(self) -> int:
        """Elements in one register."""
        return self.kernel.lanes

    def lanes_in(self, code: Code) -> Lanes:
        """Registers that are written about in `code`."""
        return Lanes(code, self.lanes, self.arithmetic)

    def elements(self, code: Code, side: int) -> Elements:
        """Registers of the elements of a side: of the source (0) or of the destination (1)."""
        return elements_of(self.lanes_in(code), (self.kernel.src_type, self.kernel.dst_type)[side])

    @property
    def vector(self) -> str:
        """The register type in which elements are shuffled."""
        return f"<{self.lanes} x {REGISTER_TYPES[self.shuffled]}>"

    @property
    def shuffled(self) -> str:
        """The type in which elements are shuffled: the narrower of the two, or that which is not computed on yet."""
        kernel = self.kernel
        if kernel.computation is not None:
            return kernel.dst_type if kernel.computation.side == "src" else kernel.src_type
        return min(kernel.src_type, kernel.dst_type, key=bits_of)

    @property
    def keeps_zeros(self) -> bool:
        """Whether the zeros that stand for padding of the source are still zeros when they have been converted."""
        if self.kernel.computation is not None:
            return False
        src, dst = self.kernel.src_type, self.kernel.dst_type
        return src == dst or not DATA_TYPES[src].is_exponent

    @property
    def alignment(self) -> int:
        """Bytes to which a register that is shuffled is aligned in memory of our own."""
        return min(LINE, self.lanes * max(8, bits_of(self.shuffled)) // 8)


def tile_function(emitter: Emitter, name: str, streams: bool) -> tuple[str, Code]:
    """A whole tile."""
    code = Code()
    head = f"define internal void @{name}({TILE_ARGUMENTS}{value_parameters(emitter.kernel)})"
    code.label("entry")
    passes = _passes(emitter.kernel)
    vector = emitter.vector
    between = ""
    if len(passes) > 1:
        between = code.let(f"alloca [{emitter.kernel.registers} x {vector}], align {LINE}")
    for i, (steps, members, bases) in enumerate(passes):
        for base in _each_base(code, f"pass{i}", bases, len(members)):
            places = {r: _place(code, base, r) for r in members}
            values = {r: _read(emitter, code, places[r], between if i else None) for r in members}
            for step in steps:
                _apply(code, step, values, emitter)
            for r, value in values.items():
                _write(emitter, code, places[r], value, between if i < len(passes) - 1 else None, streams)
    code.do("ret void")
    return head, code


def _each_base(code: Code, name: str, bases: list[int], members: int) -> Iterator[int | str]:
    """The bases one after another; of many it is one that stands for all, and what is written for it becomes a loop."""
    if len(bases) < _MANY_GROUPS or members == 1:
        yield from bases
        return
    table = f"@bases.{'.'.join(map(str, bases))}"
    numbers = ", ".join(f"i64 {base}" for base in bases)
    code.declarations.add(f"{table} = private constant [{len(bases)} x i64] [{numbers}], align 8")
    with code.loop(name, len(bases)) as number:
        yield code.load_word(table, number)


def _place(code: Code, base: int | str, r: int) -> int | str:
    """Which register of the tile is number `r` of the group at `base`."""
    return base + r if isinstance(base, int) else code.let(f"add i64 {base}, {r}")


_Pass = tuple[tuple[Step | Run, ...], list[int], list[int]]
"""Steps; the registers that they work on by themselves, as a group; and where each such group begins."""
_MANY_GROUPS = 4


def _passes(kernel: Kernel) -> list[_Pass]:
    """What is done between two times that the whole tile lies in memory."""
    each = 1 << len(kernel.network.registers)
    shifts = [*range(0, kernel.registers, each)]
    passes: list[_Pass] = []
    for steps in kernel.network.passes:
        inside = sum({1 << step.register for step in steps if isinstance(step, Exchange)})
        members = [r for r in range(each) if r & ~inside == 0]
        passes.append((steps, members, [shift + r for shift in shifts for r in range(each) if r & inside == 0]))
    if kernel.run is None:
        return passes
    if not kernel.network.steps:
        passes = []
    deal: _Pass = ((kernel.run,), shifts, [*range(each)])
    return [deal, *passes] if kernel.run.side == "src" else [*passes, deal]


def _read(emitter: Emitter, code: Code, r: int | str, between: str | None) -> str:
    """Register `r` of the tile, from the scratch of an earlier pass or from the source."""
    if between is not None:
        vector = emitter.vector
        where = code.let(f"getelementptr {vector}, ptr {between}, i64 {r}")
        return code.let(f"load {vector}, ptr {where}, align {emitter.alignment}")
    offset = code.load_word("%src_offsets", r)
    elements = emitter.elements(code, 0)
    value = elements.load(code.byte("%src", offset))
    if emitter.kernel.fetches:
        for line in range(0, elements.nbytes, LINE):
            code.prefetch(code.byte(code.byte("%ahead", offset), line))
    if emitter.kernel.computation is not None and emitter.kernel.computation.side == "src":
        return computed(elements.lanes, emitter.kernel, emitter.shape, elements.unpacked(value), r)
    return convert(elements.lanes, elements.unpacked(value), elements.name, emitter.shuffled)


def _write(emitter: Emitter, code: Code, r: int | str, value: str, between: str | None, streams: bool) -> None:
    """Put register `r` of the tile into the scratch for a later pass or into the destination."""
    if between is not None:
        vector = emitter.vector
        where = code.let(f"getelementptr {vector}, ptr {between}, i64 {r}")
        code.do(f"store {vector} {value}, ptr {where}, align {emitter.alignment}")
        return
    elements, computation = emitter.elements(code, 1), emitter.kernel.computation
    where = code.byte("%dst", code.load_word("%dst_offsets", r))
    if computation is not None and computation.side == "dst":
        old = elements.unpacked(elements.load(where)) if computation.sums else ""
        value = computed(elements.lanes, emitter.kernel, emitter.shape, value, r, old)
    else:
        value = convert(elements.lanes, value, emitter.shuffled, elements.name)
    elements.store(elements.packed(value), where, streams=streams)


def _apply(code: Code, step: Step | Run, values: dict[int, str], emitter: Emitter) -> None:
    """Run one step of the network on the registers at hand."""
    vector = emitter.vector
    match step:
        case Permute():
            mask = shuffle_mask(step.mask(emitter.lanes))
            for r, value in values.items():
                values[r] = code.let(f"shufflevector {vector} {value}, {vector} poison, {mask}")
        case Exchange(register):
            masks = [shuffle_mask(mask) for mask in step.masks(emitter.lanes)]
            for r in [r for r in values if not r >> register & 1]:
                other = r | 1 << register
                pair = f"{vector} {values[r]}, {vector} {values[other]}"
                low, high = (code.let(f"shufflevector {pair}, {mask}") for mask in masks)
                values[r], values[other] = low, high
        case Run():
            old = list(values.values())
            lanes = emitter.lanes_in(code)
            for i, r in enumerate(list(values)):
                sources = step.sources(i, len(emitter.kernel.network.lanes))
                values[r] = _dealt(lanes, REGISTER_TYPES[emitter.shuffled], sources, old)


def _dealt(lanes: Lanes, element: str, sources: tuple[tuple[int, int], ...], old: list[str]) -> str:
    """A register whose lanes are taken from any of the old ones: one more of them with each pick."""
    first, *others = sorted({of for of, _ in sources})
    value, places = old[first], [lane if of == first else -1 for of, lane in sources]
    for i in others:
        order = [lanes.count + lane if of == i else at for (of, lane), at in zip(sources, places, strict=True)]
        value = lanes.pick(element, value, old[i], order)
        places = [lane if at >= 0 else -1 for lane, at in enumerate(order)]
    return value if places == [*range(lanes.count)] else lanes.pick(element, value, value, places)
