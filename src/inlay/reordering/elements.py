"""Elements of one type, a register of them at a time: how they lie in memory and how in a register.

Types of whole bytes lie alike in both. Elements of 4 bits share bytes in memory, the one with the even offset in the
low half; in a register each has a byte of its own, so they are shuffled and converted like bytes:

    memory    0x21 0x43          <2 x i8>
    register  01 02 03 04        <4 x i8>

Registers of 4-bit elements begin at a whole byte, and hold both elements of each of their bytes; where elements are
written under a mask, the other halves of their bytes are kept. Only a register of a single element may begin anywhere:
its addresses count in nibbles, each twice that of its byte.
"""

from dataclasses import dataclass

from inlay.data_type import DATA_TYPES
from inlay.reordering.conversion import REGISTER_TYPES
from inlay.reordering.lanes import Lanes

LINE = 64
"""Bytes of a cache line."""


def bits_of(name: str) -> int:
    """Bits of one element in memory, of a data type or of `i4`, `i8`, ..., which are moved without a meaning."""
    return DATA_TYPES[name].bits if name in DATA_TYPES else int(name[1:])


def address_bits(name: str, lanes: int) -> int:
    """What addresses and offsets of elements count: bytes; nibbles where 4-bit elements are taken one by one."""
    return 4 if bits_of(name) == 4 and lanes == 1 else 8


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of whole bytes."""

    lanes: Lanes
    """How many there are in a register."""
    name: str
    """Name of their type."""

    @property
    def register(self) -> str:
        """The LLVM type of a register."""
        return self.lanes.of(REGISTER_TYPES[self.name])

    @property
    def memory(self) -> str:
        """The LLVM type of what a register holds, as it lies in memory."""
        return self.register

    @property
    def nbytes(self) -> int:
        """Bytes of that in memory."""
        return self.lanes.count * bits_of(self.name) // 8

    def load(self, address: str, mask: str | None = None) -> str:
        """What lies at an address; under a mask, zero for the other elements, which are not touched."""
        if mask is None:
            return self.lanes.code.let(f"load {self.memory}, ptr {address}, align 1")
        return self.lanes.code.masked_load(self.memory, address, mask)

    def store(self, value: str, address: str, mask: str | None = None, *, streams: bool = False) -> None:
        """Put a register in the form of memory there, or those of its elements that a mask selects."""
        if mask is not None:
            self.lanes.code.masked_store(self.memory, value, address, mask)
            return
        align = min(LINE, self.nbytes) if streams else 1
        hint = ", !nontemporal !0" if streams else ""
        self.lanes.code.do(f"store {self.memory} {value}, ptr {address}, align {align}{hint}")

    def unpacked(self, value: str) -> str:
        """From the form of memory to that of registers."""
        return value

    def packed(self, value: str) -> str:
        """From the form of registers to that of memory."""
        return value

    def only(self, value: str, mask: str) -> str:
        """A register in the form of memory, with zero for elements that the mask does not select."""
        bools = self.lanes.of("i1")
        return self.lanes.code.let(f"select {bools} {mask}, {self.memory} {value}, {self.memory} zeroinitializer")


class _Nibbles(Elements):
    """Elements of 4 bits, two in each byte of memory."""

    __slots__ = ()

    @property
    def _pairs(self) -> Lanes:
        return Lanes(self.lanes.code, self.lanes.count // 2, self.lanes.arithmetic)

    @property
    def memory(self) -> str:
        return self._pairs.of("i8")

    def load(self, address: str, mask: str | None = None) -> str:
        if mask is None:
            return super().load(address)
        bits = self._bits(mask)
        value = self.lanes.code.masked_load(self.memory, address, self._pairs.test("icmp ne", "i8", bits, 0))
        return self._pairs.apply("and", "i8", value, bits)

    def store(self, value: str, address: str, mask: str | None = None, *, streams: bool = False) -> None:
        if mask is None:
            super().store(value, address, streams=streams)
            return
        pairs, bits = self._pairs, self._bits(mask)
        touched = pairs.test("icmp ne", "i8", bits, 0)
        old = self.lanes.code.masked_load(self.memory, address, touched)
        kept = pairs.apply("and", "i8", old, pairs.apply("xor", "i8", bits, -1))
        merged = pairs.apply("or", "i8", kept, pairs.apply("and", "i8", value, bits))
        self.lanes.code.masked_store(self.memory, merged, address, touched)

    def unpacked(self, value: str) -> str:
        pairs = self._pairs
        wide = pairs.cast("zext", value, "i8", "i16")
        spread = pairs.apply("or", "i16", wide, pairs.apply("shl", "i16", wide, 4))
        halves = pairs.apply("and", "i16", spread, 0x0F0F)
        return self.lanes.code.let(f"bitcast {pairs.of('i16')} {halves} to {self.register}")

    def packed(self, value: str) -> str:
        pairs = self._pairs
        halves = self.lanes.code.let(f"bitcast {self.register} {value} to {pairs.of('i16')}")
        joined = pairs.apply("or", "i16", halves, pairs.apply("lshr", "i16", halves, 4))
        return pairs.narrow(joined, "i16", "i8")

    def only(self, value: str, mask: str) -> str:
        return self._pairs.apply("and", "i8", value, self._bits(mask))

    def _bits(self, mask: str) -> str:
        """The bits of memory that belong to the elements of a mask."""
        return self.packed(self.lanes.choose(mask, "i8", 15, 0))


class _LoneNibble(Elements):
    """One element of 4 bits, at an address that counts nibbles."""

    __slots__ = ()

    def load(self, address: str, mask: str | None = None) -> str:
        where, shift = self._place(address)
        value = self.lanes.apply("lshr", "i8", super().load(where, mask), shift)
        return self.lanes.apply("and", "i8", value, 15)

    def store(self, value: str, address: str, mask: str | None = None, *, streams: bool = False) -> None:
        where, shift = self._place(address)
        other = self.lanes.apply("xor", "i8", self.lanes.apply("shl", "i8", 15, shift), -1)
        kept = self.lanes.apply("and", "i8", super().load(where, mask), other)
        merged = self.lanes.apply("or", "i8", kept, self.lanes.apply("shl", "i8", value, shift))
        super().store(merged, where, mask)

    def _place(self, address: str) -> tuple[str, str]:
        """The address of the byte, and by how many bits the element is shifted in it."""
        code = self.lanes.code
        number = code.let(f"ptrtoint ptr {address} to i64")
        where = code.let(f"inttoptr i64 {code.let(f'lshr i64 {number}, 1')} to ptr")
        half = code.let(f"trunc i64 {code.let(f'and i64 {number}, 1')} to i8")
        shift = code.let(f"shl i8 {half}, 2")
        return where, code.let(f"insertelement <1 x i8> poison, i8 {shift}, i64 0")


def elements_of(lanes: Lanes, name: str) -> Elements:
    """Registers of so many elements of the type `name`."""
    if bits_of(name) != 4:
        return Elements(lanes, name)
    return (_LoneNibble if lanes.count == 1 else _Nibbles)(lanes, name)
