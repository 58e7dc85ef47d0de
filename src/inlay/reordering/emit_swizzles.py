"""Code generation for swizzles of bytes, as LLVM IR: an XOR term on the offset from which a line is read.

    inlay_swizzle(src, dst, unused, first line, last line)

Lines of 64 bytes are written in order. Each bit that the swizzle reads, its source, flips one bit of the offset, its
target. How the code does that depends on which of the two are among the 6 bits of an offset within a line:

    source, target      code for the line at an offset
    neither             another line is read: its offset is an XOR
    the target          groups of 2^target bytes swap with their neighbors if the source is set: XOR and AND with a mask
    both                a constant permutation of the line
    the source          two lines are read, and each group of 2^source bytes comes from one of them

    Swizzle<3,3,3> of bf16      sources 7, 8, 9; targets 4, 5, 6: two swaps in a line, and an XOR

So there is no table, and no element is moved alone. All lines that are read are below the end of the last chunk that
the swizzle maps onto itself.
"""

from dataclasses import dataclass

from inlay.reordering.conversion import LINE
from inlay.reordering.ir import Code, module_text, shuffle_mask
from inlay.reordering.target import Target

ENTRY = "inlay_swizzle"
"""Name of the function."""
LINE_BITS = LINE.bit_length() - 1
"""Number of bits of an offset within a line."""
_OFFSET_BITS = 63
_WIDEST = 3  # elements of the registers have at most 2^3 bytes


@dataclass(frozen=True, slots=True)
class SwizzleKernel:
    """The inputs of code generation for a swizzle of bytes, without the target."""

    bits: int
    """Number of bits that are read, and of bits that change; at least 1."""
    base: int
    """Number of lowest bits of the offset in bytes that are neither read nor changed."""
    shift: int
    """Distance in bits from the changed bits up to those that are read, or down to them if negative."""
    streams: bool
    """True for streaming stores, which need a destination at a multiple of 64 bytes."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The numbers of each source bit and of its target bit, in offsets in bytes that fit 63 bits."""
        source, target = self.base + max(0, self.shift), self.base + max(0, -self.shift)
        pairs = ((source + i, target + i) for i in range(self.bits))
        return tuple(pair for pair in pairs if max(pair) < _OFFSET_BITS)


def swizzle_ir(kernel: SwizzleKernel, target: Target) -> str:
    """Return the module of `kernel` for `target`."""
    code = Code()
    code.label("entry")
    code.do("%any = icmp slt i64 %begin, %end")
    code.do("br i1 %any, label %work, label %exit")
    code.label("work")
    count = code.let("sub i64 %end, %begin")
    with code.loop("line", count) as index:
        line = code.let(f"add i64 {index}, %begin")
        offset = code.let(f"shl i64 {line}, {LINE_BITS}")
        _LineWriter(code, kernel).write(offset)
    if kernel.streams:
        code.do_declared(target.fence)
    code.do("br label %exit")
    code.label("exit")
    code.do("ret void")
    head = f"define void @{ENTRY}(ptr noalias %src, ptr noalias %dst, ptr %unused, i64 %begin, i64 %end)"
    return module_text([(head, code)], target.attributes)


class _LineWriter:
    """The writer of the code of one line; registers hold elements that the swizzle moves whole."""

    def __init__(self, code: Code, kernel: SwizzleKernel) -> None:
        self._code, self._kernel = code, kernel
        self._shift = min(kernel.base, _WIDEST)
        self._count = LINE >> self._shift
        self._vector = f"<{self._count} x i{8 << self._shift}>"

    def write(self, offset: str) -> None:
        """Write the line at `offset` of the destination."""
        code, streams = self._code, self._kernel.streams
        value = self._swapped(self._permuted(self._read(self._other_line(offset))), offset)
        hint, alignment = (", !nontemporal !0", LINE) if streams else ("", 1)
        code.do(f"store {self._vector} {value}, ptr {code.byte('%dst', offset)}, align {alignment}{hint}")

    def _pairs(self, *, source_inside: bool, target_inside: bool) -> list[tuple[int, int]]:
        """Return the pairs of bits whose source and target are inside a line, or not."""
        wanted = source_inside, target_inside
        return [(s, t) for s, t in self._kernel.pairs if (s < LINE_BITS, t < LINE_BITS) == wanted]

    def _other_line(self, offset: str) -> str:
        """Append the offset of the line that is read."""
        pairs = self._pairs(source_inside=False, target_inside=False)
        if not pairs:
            return offset
        shift = self._kernel.shift
        read = self._code.let(f"and i64 {offset}, {sum(1 << source for source, _ in pairs)}")
        moved = self._code.let(f"{'lshr' if shift > 0 else 'shl'} i64 {read}, {abs(shift)}")
        return self._code.let(f"xor i64 {offset}, {moved}")

    def _read(self, offset: str) -> str:
        """Append loads of the line at `offset`, and of the lines that sources inside the line select."""
        code = self._code
        pairs = self._pairs(source_inside=True, target_inside=False)
        values = []
        for choice in range(1 << len(pairs)):
            flips = sum(1 << target for i, (_, target) in enumerate(pairs) if choice >> i & 1)
            other = code.let(f"xor i64 {offset}, {flips}") if flips else offset
            values.append(code.let(f"load {self._vector}, ptr {code.byte('%src', other)}, align 1"))
        for source, _ in pairs:
            bit = 1 << (source - self._shift)
            order = [i + self._count * bool(i & bit) for i in range(self._count)]
            values = [self._shuffle(*two, order) for two in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    def _permuted(self, value: str) -> str:
        """Append the constant permutation of a line."""
        pairs = self._pairs(source_inside=True, target_inside=True)
        if not pairs:
            return value
        order = []
        for i in range(self._count):
            place = i << self._shift
            order.append((place ^ sum((place >> source & 1) << target for source, target in pairs)) >> self._shift)
        return self._shuffle(value, value, order)

    def _swapped(self, value: str, offset: str) -> str:
        """Append the swaps of groups of bytes that bits of the offset of the line ask for."""
        code, vector = self._code, self._vector
        element = f"i{8 << self._shift}"
        for source, target in self._pairs(source_inside=False, target_inside=True):
            swapped = self._shuffle(value, value, [i ^ 1 << (target - self._shift) for i in range(self._count)])
            is_set = code.let(f"trunc i64 {code.let(f'lshr i64 {offset}, {source}')} to i1")
            lane = code.let(
                f"insertelement {vector} poison, {element} {code.let(f'sext i1 {is_set} to {element}')}, i64 0"
            )
            mask = self._shuffle(lane, lane, [0] * self._count)
            flipped = code.let(f"and {vector} {code.let(f'xor {vector} {value}, {swapped}')}, {mask}")
            value = code.let(f"xor {vector} {value}, {flipped}")
        return value

    def _shuffle(self, one: str, other: str, order: list[int]) -> str:
        """Append a constant choice of elements of two registers."""
        return self._code.let(f"shufflevector {self._vector} {one}, {self._vector} {other}, {shuffle_mask(order)}")
