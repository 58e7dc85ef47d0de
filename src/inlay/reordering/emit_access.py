"""Code that loads and stores the registers of one side of a tile, in ordinary or in swizzled memory.

In ordinary memory, a register is one contiguous vector at the address of the tile plus the offset of the register. A
swizzle XORs bits of the sum of the two, counted from the coordinate of all zeros, into other bits. Each pair of a bit
that is read, its source, and a bit that changes, its target, is handled by whether they are among the bits of an offset
within a register:

    source, target      code for the register at an offset
    neither             the address: an XOR
    the target          groups of 2^target bytes swap with their neighbors if the source is set: XOR and AND with a mask
    both                a constant permutation of the lanes
    the source          the register is accessed in parts of 2^source bytes

    Swizzle<3,3,3> of bf16      sources 7, 8, 9; targets 4, 5, 6: two swaps in a register of 64 bytes, and an XOR

A register that does not begin at a multiple of its size is accessed in parts that do. Under a mask, parts are so small
that the swizzle moves them whole.
"""

from dataclasses import dataclass, replace

from inlay.reordering.conversion import Elements, address_bits, bits_of, elements_of
from inlay.reordering.ir import Code, shuffle_mask
from inlay.reordering.kernel import AddressSwizzle

_WIDEST = 3  # lanes of swaps have at most 2^3 bytes


@dataclass(frozen=True, slots=True)
class RegisterMask:
    """The elements of a register that may be accessed."""

    lanes: str
    """Name of the vector of bools, one for each lane."""
    is_none: str
    """Name of the bool that is true if no lane is selected."""
    elsewhere: str
    """Mapped memory of one register, to be accessed in place of the register if no lane is selected.

    A masked access touches only selected lanes. But an address beyond a tensor may be unmapped, and then processors
    need a thousand cycles to find that an access without selected lanes is none."""


@dataclass(frozen=True, slots=True)
class SideAccess:
    """A writer of loads and stores of the registers of one side, in the form that elements have in memory."""

    elements: Elements
    """The registers of the side."""
    base: str
    """Name of the pointer to the tile; in swizzled memory, to the coordinate of all zeros."""
    swizzle: AddressSwizzle | None
    """The swizzle of addresses; None in ordinary memory."""

    @property
    def code(self) -> Code:
        """The function that operations are appended to."""
        return self.elements.lanes.code

    def load(self, offset: str, mask: RegisterMask | None = None) -> str:
        """Append the load of the register at `offset` from the tile; elements that the mask excludes are zero."""
        if self.swizzle is None:
            address, lanes = self._masked(self.code.byte(self.base, offset), mask)
            return self.elements.load(address, lanes)
        part = self._part(self.swizzle, mask)
        values = []
        for i, place in enumerate(self._places(offset, part)):
            address, lanes = self._masked(self._address(part, place), mask, i, part.elements.lanes.count)
            values.append(part.unswapped(part.elements.load(address, lanes), place))
        return self._joined(values, part.elements)

    def store(self, value: str, offset: str, mask: RegisterMask | None = None, *, streams: bool = False) -> None:
        """Append the store of a register at `offset` from the tile; under a mask, only of selected elements."""
        if self.swizzle is None:
            address, lanes = self._masked(self.code.byte(self.base, offset), mask)
            self.elements.store(value, address, lanes, streams=streams)
            return
        part = self._part(self.swizzle, mask)
        for i, place in enumerate(self._places(offset, part)):
            address, lanes = self._masked(self._address(part, place), mask, i, part.elements.lanes.count)
            swapped = part.swapped(self._cut(value, part.elements, i), place)
            part.elements.store(swapped, address, lanes, streams=streams)

    def prefetch_address(self, ahead: str, offset: str) -> str:
        """Append the address of the register at `offset` from the tile at `ahead`, to be prefetched.

        `ahead` is the pointer to that tile; in swizzled memory, its offset from the coordinate of all zeros.
        """
        if self.swizzle is None:
            return self.code.byte(ahead, offset)
        part = self._part(self.swizzle, None)
        return self._address(part, self.code.let(f"add i64 {ahead}, {offset}"))

    def _part(self, swizzle: AddressSwizzle, mask: RegisterMask | None) -> "_RegisterPart":
        """Return the parts that registers are accessed in."""
        lanes, name = self.elements.lanes, self.elements.name
        size = lanes.count * bits_of(name) // address_bits(name, lanes.count)
        part = swizzle.part(size) if mask is None else swizzle.piece
        return _RegisterPart(elements_of(replace(lanes, count=lanes.count * part // size), name), swizzle, part)

    def _places(self, offset: str, part: "_RegisterPart") -> list[str]:
        """Append the offsets of the parts of the register at `offset` from the tile, before the swizzle."""
        at = self.code.let(f"add i64 {self.base}_at, {offset}")
        parts = range(1, self.elements.lanes.count // part.elements.lanes.count)
        return [at, *(self.code.let(f"add i64 {at}, {i * part.size}") for i in parts)]

    def _address(self, part: "_RegisterPart", place: str) -> str:
        """Append the address of the part whose offset before the swizzle is `place`."""
        mask, shift = part.outer_sources, part.swizzle.shift
        if mask:
            read = self.code.let(f"and i64 {place}, {mask}")
            moved = self.code.let(f"{'lshr' if shift >= 0 else 'shl'} i64 {read}, {abs(shift)}")
            place = self.code.let(f"xor i64 {place}, {moved}")
        return self.code.byte(self.base, place)

    def _masked(
        self, address: str, mask: RegisterMask | None, i: int = 0, count: int | None = None
    ) -> tuple[str, str | None]:
        """Append the address to access, and the mask of part `i` of `count` lanes; by default, of all lanes."""
        if mask is None:
            return address, None
        place = self.code.let(f"select i1 {mask.is_none}, ptr {mask.elsewhere}, ptr {address}")
        if count is None or count == self.elements.lanes.count:
            return place, mask.lanes
        vector, order = f"<{self.elements.lanes.count} x i1>", shuffle_mask(range(i * count, (i + 1) * count))
        return place, self.code.let(f"shufflevector {vector} {mask.lanes}, {vector} poison, {order}")

    def _cut(self, value: str, part: Elements, i: int) -> str:
        """Append part `i` of a register in memory form."""
        if part.memory == self.elements.memory:
            return value
        count, vector = _memory_lanes(part), self.elements.memory
        order = shuffle_mask(range(i * count, (i + 1) * count))
        return self.code.let(f"shufflevector {vector} {value}, {vector} poison, {order}")

    def _joined(self, values: list[str], part: Elements) -> str:
        """Append the concatenation of parts in memory form."""
        count, element = _memory_lanes(part), part.memory.split()[-1]
        while len(values) > 1:
            vector, order = f"<{count} x {element}", shuffle_mask(range(2 * count))
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [self.code.let(f"shufflevector {vector} {a}, {vector} {b}, {order}") for a, b in pairs]
            count *= 2
        return values[0]


def _memory_lanes(elements: Elements) -> int:
    """Return the number of lanes of a register in memory form."""
    return int(elements.memory[1:].split()[0])


@dataclass(frozen=True, slots=True)
class _RegisterPart:
    """A writer of swaps within one part of a register, whose offset before the swizzle is a multiple of its size."""

    elements: Elements
    """The elements of a part."""
    swizzle: AddressSwizzle
    """The swizzle of addresses."""
    size: int
    """Size of the part in units of addresses; a power of two."""

    @property
    def outer_sources(self) -> int:
        """The bits that are read, as an integer, whose targets are not among those of an offset within the part."""
        return sum(1 << source for source, target in self.swizzle.pairs if 1 << target >= self.size)

    def swapped(self, value: str, place: str) -> str:
        """Append the order in swizzled memory of a register in order; `place` is its offset before the swizzle."""
        return self._exchanged(self._permuted(value), place)

    def unswapped(self, value: str, place: str) -> str:
        """Append the inverse of `swapped`."""
        return self._permuted(self._exchanged(value, place))

    def _permuted(self, value: str) -> str:
        """Append the permutation of lanes by bits of the offset within the part; it is its own inverse."""
        swizzle = replace(self.swizzle, source_mask=self.swizzle.source_mask & (self.size - 1))
        if not swizzle.source_mask:
            return value
        lane = self._lane_bits
        return self._shuffled(value, [swizzle.apply(i << lane) >> lane for i in range(self.size >> lane)])

    def _exchanged(self, value: str, place: str) -> str:
        """Append the swaps of groups of bytes that bits of the offset of the part ask for."""
        code, lane = self.elements.lanes.code, self._lane_bits
        count, element = self.size >> lane, f"i{8 << lane}"
        vector = f"<{count} x {element}>"
        for source, target in self.swizzle.pairs:
            if 1 << source < self.size or 1 << target >= self.size:
                continue
            swapped = self._shuffled(value, [i ^ 1 << (target - lane) for i in range(count)])
            is_set = code.let(f"trunc i64 {code.let(f'lshr i64 {place}, {source}')} to i1")
            first = code.let(
                f"insertelement {vector} poison, {element} {code.let(f'sext i1 {is_set} to {element}')}, i64 0"
            )
            mask = code.let(f"shufflevector {vector} {first}, {vector} poison, <{count} x i32> zeroinitializer")
            one, other = (code.let(f"bitcast {self.elements.memory} {side} to {vector}") for side in (value, swapped))
            flipped = code.let(f"and {vector} {code.let(f'xor {vector} {one}, {other}')}, {mask}")
            result = code.let(f"xor {vector} {one}, {flipped}")
            value = code.let(f"bitcast {vector} {result} to {self.elements.memory}")
        return value

    @property
    def _lane_bits(self) -> int:
        """Logarithm of the size of the lanes that are exchanged, in bytes."""
        least = min(min(pair) for pair in self.swizzle.pairs)
        return min(least, _WIDEST)

    def _shuffled(self, value: str, order: list[int]) -> str:
        """Append a permutation of lanes of 2^`_lane_bits` bytes."""
        code, vector = self.elements.lanes.code, f"<{len(order)} x i{8 << self._lane_bits}>"
        lanes = code.let(f"bitcast {self.elements.memory} {value} to {vector}")
        moved = code.let(f"shufflevector {vector} {lanes}, {vector} poison, {shuffle_mask(order)}")
        return code.let(f"bitcast {vector} {moved} to {self.elements.memory}")
