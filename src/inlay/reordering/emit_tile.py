"""The code of a tile: load, shuffle, store, straight through.

The tile is a function of two addresses and, for each side, the offsets of its registers, so the same code runs on
the tensors themselves and on the scratch copies of a tile at an edge. Registers are worked on in groups
that exchange among themselves; between two passes the tile lies in a buffer on the stack.
"""

from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.reordering.conversion import HAVE_NO_ZERO, REGISTER_TYPES, convert
from inlay.reordering.ir import Code
from inlay.reordering.kernel import Kernel, TableShape
from inlay.reordering.lanes import Arithmetic
from inlay.reordering.network import Exchange, Permute, Run, Step

LINE = 64
"""Bytes of a cache line."""
TILE_ARGUMENTS = "ptr %src, ptr %src_offsets, ptr %dst, ptr %dst_offsets"
"""For each side the address of the tile, and for each of its registers the bytes from there."""


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

    def vector(self, name: str) -> str:
        """The register type of elements of type `name`."""
        return f"<{self.lanes} x {REGISTER_TYPES[name]}>"

    def item_bytes(self, name: str) -> int:
        """Bytes of one element of type `name`."""
        return DATA_TYPES[name].bits // 8 if name in DATA_TYPES else int(name[1:]) // 8

    @property
    def shuffled(self) -> str:
        """The type in which elements are shuffled: the narrower of the two."""
        kernel = self.kernel
        return min(kernel.src_type, kernel.dst_type, key=self.item_bytes)

    def convert(self, code: Code, value: str, src: str, dst: str) -> str:
        """A register of another type."""
        return convert(code, value, src, dst, self.lanes, self.arithmetic)

    @property
    def keeps_zeros(self) -> bool:
        """Whether the zeros that stand for padding of the source are still zeros when they have been converted."""
        return self.kernel.src_type not in HAVE_NO_ZERO or self.kernel.src_type == self.kernel.dst_type

    def alignment(self, name: str) -> int:
        """Bytes to which a register of elements of type `name` is aligned in memory of our own."""
        return min(LINE, self.lanes * self.item_bytes(name))


def tile_function(emitter: Emitter, name: str, streams: bool) -> tuple[str, Code]:
    """A whole tile."""
    code = Code()
    head = f"define internal void @{name}({TILE_ARGUMENTS})"
    code.label("entry")
    passes = _passes(emitter.kernel)
    vector = emitter.vector(emitter.shuffled)
    between = ""
    if len(passes) > 1:
        between = code.let(f"alloca [{emitter.kernel.registers} x {vector}], align {LINE}")
    for i, (steps, groups) in enumerate(passes):
        for group in groups:
            values = {r: _read(emitter, code, r, between if i else None) for r in group}
            for step in steps:
                _apply(code, step, values, emitter)
            for r, value in values.items():
                _write(emitter, code, r, value, between if i < len(passes) - 1 else None, streams)
    code.do("ret void")
    return head, code


_Pass = tuple[tuple[Step | Run, ...], list[list[int]]]
"""Steps, and the groups of registers that each of them works on by themselves."""


def _passes(kernel: Kernel) -> list[_Pass]:
    """What is done between two times that the whole tile lies in memory."""
    each = 1 << len(kernel.network.registers)
    shifts = range(0, kernel.registers, each)
    passes: list[_Pass] = []
    for steps in kernel.network.passes:
        groups = _groups(steps, each)
        passes.append((steps, [[shift + r for r in group] for shift in shifts for group in groups]))
    if kernel.run is None:
        return passes
    if not kernel.network.steps:
        passes = []
    deal: _Pass = ((kernel.run,), [[shift + r for shift in shifts] for r in range(each)])
    return [deal, *passes] if kernel.run.side == "src" else [*passes, deal]


def _groups(steps: tuple[Step, ...], registers: int) -> list[list[int]]:
    """The registers in groups that exchange among themselves only."""
    bits = sorted({step.register for step in steps if isinstance(step, Exchange)})
    inside = sum(1 << bit for bit in bits)
    return [[base | r for r in range(registers) if r & ~inside == 0] for base in range(registers) if base & inside == 0]


def _read(emitter: Emitter, code: Code, r: int, between: str | None) -> str:
    """Register `r` of the tile, from the scratch of an earlier pass or from the source."""
    if between is not None:
        vector = emitter.vector(emitter.shuffled)
        where = code.let(f"getelementptr {vector}, ptr {between}, i64 {r}")
        return code.let(f"load {vector}, ptr {where}, align {emitter.alignment(emitter.shuffled)}")
    src = emitter.kernel.src_type
    where = code.byte("%src", code.load_word("%src_offsets", r))
    value = code.let(f"load {emitter.vector(src)}, ptr {where}, align 1")
    return emitter.convert(code, value, src, emitter.shuffled)


def _write(emitter: Emitter, code: Code, r: int, value: str, between: str | None, streams: bool) -> None:
    """Put register `r` of the tile into the scratch for a later pass or into the destination."""
    if between is not None:
        vector = emitter.vector(emitter.shuffled)
        where = code.let(f"getelementptr {vector}, ptr {between}, i64 {r}")
        code.do(f"store {vector} {value}, ptr {where}, align {emitter.alignment(emitter.shuffled)}")
        return
    dst = emitter.kernel.dst_type
    value = emitter.convert(code, value, emitter.shuffled, dst)
    where = code.byte("%dst", code.load_word("%dst_offsets", r))
    align = emitter.alignment(dst) if streams else 1
    hint = ", !nontemporal !0" if streams else ""
    code.do(f"store {emitter.vector(dst)} {value}, ptr {where}, align {align}{hint}")


def _apply(code: Code, step: Step | Run, values: dict[int, str], emitter: Emitter) -> None:
    """Run one step of the network on the registers at hand."""
    vector = emitter.vector(emitter.shuffled)
    match step:
        case Permute():
            mask = _mask(step.mask(emitter.lanes))
            for r, value in values.items():
                values[r] = code.let(f"shufflevector {vector} {value}, {vector} poison, {mask}")
        case Exchange(register):
            masks = [_mask(mask) for mask in step.masks(emitter.lanes)]
            for r in [r for r in values if not r >> register & 1]:
                other = r | 1 << register
                pair = f"{vector} {values[r]}, {vector} {values[other]}"
                low, high = (code.let(f"shufflevector {pair}, {mask}") for mask in masks)
                values[r], values[other] = low, high
        case Run():
            old = list(values.values())
            for i, r in enumerate(list(values)):
                values[r] = _dealt(code, step.sources(i, len(emitter.kernel.network.lanes)), old, vector)


def _dealt(code: Code, sources: tuple[tuple[int, int], ...], old: list[str], vector: str) -> str:
    """A register whose lanes are taken from any of the old ones: one more of them with each shuffle."""
    lanes = len(sources)
    value = ""
    taken = [False] * lanes
    for i, register in enumerate(old):
        here = [of == i for of, _ in sources]
        if not any(here):
            continue
        first = not value
        mask = _mask(
            tuple(
                lane + (0 if first else lanes) if new else k if was and not first else -1
                for k, ((_, lane), new, was) in enumerate(zip(sources, here, taken, strict=True))
            )
        )
        pair = f"{vector} {register}, {vector} poison" if first else f"{vector} {value}, {vector} {register}"
        value = code.let(f"shufflevector {pair}, {mask}")
        taken = [a or b for a, b in zip(taken, here, strict=True)]
    return value


def _mask(lanes: tuple[int, ...]) -> str:
    return f"<{len(lanes)} x i32> <" + ", ".join(f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in lanes) + ">"
