"""Code generation for conversions between all pairs of data types, on whole registers, and for elements in memory.

Numbers are converted through a working type and rounded once to the destination, to nearest, ties to even (decision
0007). The working type is f64 if a side is f64 or s64, else f32. Conversions between integers clamp and do not round.

    s8, u8, s4, u4, f16, bf16, f8, f4, e8m0  ->  f32, exactly
    s32  ->  f32, rounded                    f32, s32, ...  ->  f64, exactly          s64  ->  f64, rounded
    f64  ->  f32, rounded to odd  ->  any narrower float

Rounding to odd records in the last bit whether the discarded bits were zero, so that the second rounding is correct (S.
Boldo, G. Melquiond, "When double rounding is odd", 2005).

A float that exceeds the range of an integer type becomes the greatest number of the working type that the integer type
holds: 2147483520 from f32 to s32, 2147483647 from f64. A NaN becomes the integer 0. Between floats, a NaN keeps its
sign and the high bits of its payload and is made quiet; only bf16 -> f32 changes no bit. e8m0 keeps only the exponent.

**f16, f8 and f4** share one algorithm with two parameters, the number of mantissa bits and the exponent bias. To
decode: move the exponent to its position in an f32; then a normal number needs a shift and an addition, a subnormal is
its mantissa times a power of two. To encode: a normal number is rounded by an integer addition that carries into the
exponent, a subnormal by adding a power of two whose last place equals that of the type. If the processor converts f16,
the narrower types are decoded through f16.

    f8_e4m3 0x3B = 0 0111 011  ->  f32 0 01111111 0110000...  = 1.375

**bf16** is the upper half of an f32. Integer arithmetic rounds to it in nine operations. AVX512_BF16 has one
instruction for two registers, but that instruction flushes subnormals to zero. So the code tests for subnormals first;
registers with a subnormal are rounded by integer arithmetic, in a function that preserves all registers of its caller.

**Elements of whole bytes** have the same form in memory and in a register. Two **elements of 4 bits** share a byte in
memory, the one with the even offset in the low half. In a register, each has its own byte, so they are shuffled and
converted like bytes:

    memory    0x21 0x43          <2 x i8>
    register  01 02 03 04        <4 x i8>

A register of 4-bit elements begins at a whole byte and holds both elements of each byte. A store under a mask preserves
the other halves of partly written bytes. Only a register of a single element may begin in the middle of a byte: its
address is in nibbles, twice the address of its byte plus the half.

Source: oneDNN, reorder primitive; the OCP specifications of f8 and of microscaling formats.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inlay.data_type import DATA_TYPES, FLOAT_FORMATS, FloatFormat
from inlay.reordering.ir import Code, Lanes, shuffle_mask

LINE = 64
"""Bytes of a cache line."""


def bits_of(name: str) -> int:
    """Return the bits of an element of a data type, or of `i4`, `i8`, ..., which are used to copy elements."""
    return DATA_TYPES[name].bits if name in DATA_TYPES else int(name[1:])


def address_bits(name: str, lanes: int) -> int:
    """Return the unit of element addresses in bits: 8, or 4 for 4-bit elements in registers of one element."""
    return 4 if bits_of(name) == 4 and lanes == 1 else 8


REGISTER_TYPES: Mapping[str, str] = MappingProxyType(
    {**{f"i{bits}": f"i{max(bits, 8)}" for bits in (4, 8, 16, 32, 64)}, **{t.name: t.llvm for t in DATA_TYPES.values()}}
)
"""The LLVM type of one element in a register, for each data type and for `i4`, `i8`, ..., the types of elements that
are only copied; elements of 4 bits have a byte each."""
_INTEGERS = frozenset(t.name for t in DATA_TYPES.values() if t.kind != "float")


def convert(lanes: Lanes, value: str, src: str, dst: str) -> str:
    """Append the conversion of the register `value` from `src` to `dst`; return the name of the result."""
    if src == dst:
        return value
    if src in _INTEGERS:
        value = _decode_integer(lanes, value, src)
        if dst in _INTEGERS:
            return _clamp_integer(lanes, value, src, dst)
    if DATA_TYPES[src].bits == 64:
        wide = value if src == "f64" else lanes.cast("sitofp", value, "i64", "double")
        return _from_f64(lanes, wide, dst)
    if (src, dst) == ("f8_e5m2", "f16"):
        return _f16_of_e5m2(lanes, value)
    if (src, dst) == ("s32", "f64"):
        return lanes.cast("sitofp", value, "i32", "double")
    value = _f32_of(lanes, value, src)
    if dst == "bf16" and DATA_TYPES[src].bits <= 8:
        return _upper_half(lanes, value)
    if DATA_TYPES[dst].bits == 64:
        value = lanes.cast("fpext", value, "float", "double")
        return value if dst == "f64" else _float_to_integer(lanes, value, "double", dst)
    return _from_f32(lanes, value, dst)


# Integers


def _decode_integer(lanes: Lanes, value: str, name: str) -> str:
    """Append the decoding of an integer type to two's complement numbers of the width of its register."""
    if name != "s4":
        return value
    return lanes.apply("sub", "i8", lanes.apply("xor", "i8", value, 8), 8)


def _clamp_integer(lanes: Lanes, value: str, src: str, dst: str) -> str:
    """Append the conversion between integer types, clamped to the range of `dst`."""
    one, two = DATA_TYPES[src], DATA_TYPES[dst]
    source, target = REGISTER_TYPES[src], REGISTER_TYPES[dst]
    letter = "u" if one.kind == "unsigned" else "s"
    if one.highest > two.highest:
        value = lanes.clamp(source, value, int(two.highest), predicate=f"icmp {letter}lt")
    if one.lowest < two.lowest:
        value = lanes.clamp(source, value, int(two.lowest), predicate="icmp sgt")
    if int(source[1:]) < int(target[1:]):
        return lanes.cast("zext" if letter == "u" else "sext", value, source, target)
    return _encode_integer(lanes, lanes.narrow(value, source, target), dst)


def _encode_integer(lanes: Lanes, value: str, name: str) -> str:
    """Append the encoding of two's complement numbers in an integer type: for s4, the low four bits."""
    return lanes.apply("and", "i8", value, 15) if name == "s4" else value


def _float_to_integer(lanes: Lanes, value: str, source: str, dst: str) -> str:
    """Append the conversion of floats of LLVM type `source` to integers: clamped, rounded to nearest, NaN to 0."""
    low, high = integer_bounds(source, dst)
    # A comparison with NaN is false, so a NaN becomes the lower limit here.
    clamped = lanes.clamp(source, value, low, predicate="fcmp ogt")
    clamped = lanes.clamp(source, clamped, high, predicate="fcmp olt")
    if low < 0 or not lanes.arithmetic.max_drops_nan:
        clamped = lanes.choose(lanes.apply("fcmp ord", source, value, value), source, clamped, 0.0)
    wide = "i64" if dst == "s64" else "i32"
    return _encode_integer(lanes, lanes.narrow(lanes.nearest(clamped, source, wide), wide, REGISTER_TYPES[dst]), dst)


def integer_bounds(source: str, dst: str) -> tuple[float, float]:
    """Return the least and the greatest number of LLVM type `source` in the range of the integer type `dst`."""
    low, high = int(DATA_TYPES[dst].lowest), int(DATA_TYPES[dst].highest)
    spare = max(0, high.bit_length() - (24 if source == "float" else 53))
    return float(low), float(high >> spare << spare)


# Through f64


def _from_f64(lanes: Lanes, value: str, dst: str) -> str:
    """Append the conversion of f64 to `dst`."""
    if dst == "f64":
        return value
    if dst in _INTEGERS:
        return _float_to_integer(lanes, value, "double", dst)
    if DATA_TYPES[dst].is_exponent:
        return _exponent_of_f64(lanes, value)
    narrow = lanes.cast("fptrunc", value, "double", "float")
    return narrow if dst == "f32" else _from_f32(lanes, _round_to_odd(lanes, narrow, value), dst)


def _exponent_of_f64(lanes: Lanes, value: str) -> str:
    """Append the conversion of f64 to e8m0 codes."""
    bits = lanes.apply("lshr", "i64", lanes.cast("bitcast", value, "double", "i64"), 52)
    code = lanes.apply("sub", "i64", lanes.apply("and", "i64", bits, 0x7FF), 1023 - 127)
    code = lanes.clamp("i64", code, 0, predicate="icmp sgt")
    return lanes.narrow(lanes.clamp("i64", code, 255), "i64", "i8")


def _round_to_odd(lanes: Lanes, narrow: str, exact: str) -> str:
    """Append the rounding of the f64 `exact` to odd; `narrow` is `exact` rounded to the nearest f32."""
    back = lanes.cast("fpext", narrow, "float", "double")
    magnitudes = [
        lanes.apply("and", "i64", lanes.cast("bitcast", side, "double", "i64"), (1 << 63) - 1) for side in (back, exact)
    ]
    bits = lanes.cast("bitcast", narrow, "float", "i32")
    # -1 where `narrow` was rounded away from zero.
    step = lanes.cast("sext", lanes.apply("icmp ugt", "i64", *magnitudes), "i1", "i32")
    odd = lanes.apply("or", "i32", lanes.apply("add", "i32", bits, step), 1)
    is_rounded = lanes.apply("fcmp one", "double", back, exact)
    return lanes.cast("bitcast", lanes.choose(is_rounded, "i32", odd, bits), "i32", "float")


# Through f32


def _f32_of(lanes: Lanes, value: str, src: str) -> str:
    """Append the conversion of `src` to f32, exact for all types but s32, which is rounded to nearest."""
    if src in _INTEGERS:
        operation = "uitofp" if DATA_TYPES[src].kind == "unsigned" else "sitofp"
        return lanes.cast(operation, value, REGISTER_TYPES[src], "float")
    if src in _SMALL_FLOATS:
        return _decode(lanes, value, src)
    if src == "bf16":
        bits = lanes.apply("shl", "i32", lanes.cast("zext", value, "i16", "i32"), 16)
    elif DATA_TYPES[src].is_exponent:
        bits = _exponent_as_f32(lanes, value)
    else:
        return value
    return lanes.cast("bitcast", bits, "i32", "float")


def _exponent_as_f32(lanes: Lanes, value: str) -> str:
    """Append the bits of 2^(code - 127) as f32.

    Code 0 is a subnormal f32 and code 255 is NaN; both have the highest mantissa bit set.
    """
    code = lanes.cast("zext", value, "i8", "i32")
    bits = lanes.apply("shl", "i32", code, 23)
    following = lanes.apply("and", "i32", lanes.apply("add", "i32", code, 1), 255)
    at_end = lanes.apply("icmp ult", "i32", following, 2)
    return lanes.choose(at_end, "i32", lanes.apply("or", "i32", bits, 1 << 22), bits)


def _from_f32(lanes: Lanes, value: str, dst: str) -> str:
    """Append the conversion of f32 to `dst`, which is no wider."""
    if dst in _INTEGERS:
        return _float_to_integer(lanes, value, "float", dst)
    if dst in _SMALL_FLOATS:
        return _encode(lanes, value, dst)
    if DATA_TYPES[dst].is_exponent:
        bits = lanes.cast("bitcast", value, "float", "i32")
        return lanes.narrow(lanes.apply("lshr", "i32", bits, 23), "i32", "i8")
    return _encode_bf16(lanes, value) if dst == "bf16" else value


# f16, the two f8 and f4_e2m1


_SMALL_FLOATS = {name: form for name, form in FLOAT_FORMATS.items() if form.exponent_bits < 8}
"""The float types whose exponent is narrower than that of f32."""
_QUIET_NAN = 0x7FC00000
_QUIET = 1 << 22


def _decode(lanes: Lanes, codes: str, name: str) -> str:
    """Append the conversion of codes of a small float type to f32, exactly."""
    form = _SMALL_FLOATS[name]
    return _decode_through_f16(lanes, codes, form) if lanes.arithmetic.f16 else _decode_by_integers(lanes, codes, form)


def _decode_by_integers(lanes: Lanes, codes: str, form: FloatFormat) -> str:
    """Append the conversion of codes to f32 by integer arithmetic."""
    wide = lanes.cast("zext", codes, f"i{max(8, form.bits)}", "i32")
    magnitude = lanes.apply("and", "i32", wide, (1 << form.bits - 1) - 1)
    bits = lanes.apply("shl", "i32", magnitude, 23 - form.mantissa_bits)
    bits = lanes.apply("add", "i32", bits, 127 - form.bias << 23)
    product = lanes.apply("fmul", "float", lanes.cast("sitofp", magnitude, "i32", "float"), form.quantum)
    is_subnormal = lanes.apply("icmp ult", "i32", magnitude, 1 << form.mantissa_bits)
    bits = lanes.choose(is_subnormal, "i32", lanes.cast("bitcast", product, "float", "i32"), bits)
    if form.overflow == "infinity":
        # The exponent is now 31 - 15 + 127; adding 127 - 15 again gives 255, that of infinity.
        beyond = lanes.apply("add", "i32", bits, 127 - form.bias << 23)
        bits = lanes.choose(lanes.apply("icmp uge", "i32", magnitude, form.overflow_code), "i32", beyond, bits)
        quiet = lanes.apply("or", "i32", bits, _QUIET)
        bits = lanes.choose(lanes.apply("icmp ugt", "i32", magnitude, form.overflow_code), "i32", quiet, bits)
    elif form.overflow == "nan":
        bits = lanes.choose(lanes.apply("icmp eq", "i32", magnitude, form.overflow_code), "i32", _QUIET_NAN, bits)
    sign = lanes.apply("and", "i32", lanes.apply("shl", "i32", wide, 32 - form.bits), -(1 << 31))
    return lanes.cast("bitcast", lanes.apply("or", "i32", bits, sign), "i32", "float")


def _decode_through_f16(lanes: Lanes, codes: str, form: FloatFormat) -> str:
    """Append the conversion of codes to f16 with the same exponent field, then to f32 with the biases' difference."""
    if form.bits == 16:
        return _f32_of_f16(lanes, codes)
    codes = lanes.cast("zext", codes, "i8", "i16")
    if form.overflow == "infinity":
        return _f32_of_f16(lanes, lanes.apply("shl", "i16", codes, 8))
    sign = lanes.apply("and", "i16", lanes.apply("shl", "i16", codes, 16 - form.bits), -(1 << 15))
    magnitude = lanes.apply("and", "i16", codes, (1 << form.bits - 1) - 1)
    value = _f32_of_f16(
        lanes, lanes.apply("or", "i16", lanes.apply("shl", "i16", magnitude, 10 - form.mantissa_bits), sign)
    )
    value = lanes.apply("fmul", "float", value, 2.0 ** (15 - form.bias))
    if form.overflow != "nan":
        return value
    raw = lanes.cast("bitcast", value, "float", "i32")
    nan = lanes.apply("or", "i32", lanes.apply("and", "i32", raw, -(1 << 31)), _QUIET_NAN)
    is_nan = lanes.apply("icmp eq", "i16", magnitude, form.overflow_code)
    return lanes.cast("bitcast", lanes.choose(is_nan, "i32", nan, raw), "i32", "float")


def _f32_of_f16(lanes: Lanes, codes: str) -> str:
    """Append the conversion of f16 codes to f32 by the processor's instruction."""
    return lanes.cast("fpext", lanes.cast("bitcast", codes, "i16", "half"), "half", "float")


def _f16_of_e5m2(lanes: Lanes, codes: str) -> str:
    """Append the conversion of f8_e5m2, the upper half of an f16, to f16 codes; NaNs are made quiet."""
    bits = lanes.apply("shl", "i16", lanes.cast("zext", codes, "i8", "i16"), 8)
    is_nan = lanes.apply("icmp ugt", "i16", lanes.apply("and", "i16", bits, (1 << 15) - 1), 31 << 10)
    return lanes.choose(is_nan, "i16", lanes.apply("or", "i16", bits, 1 << 9), bits)


def _encode(lanes: Lanes, value: str, name: str) -> str:
    """Append the conversion of f32 to codes of a small float type, rounded once to nearest, ties to even."""
    form = _SMALL_FLOATS[name]
    if form.bits == 16 and lanes.arithmetic.f16:
        return lanes.cast("bitcast", lanes.cast("fptrunc", value, "float", "half"), "half", "i16")
    bits = lanes.cast("bitcast", value, "float", "i32")
    magnitude = lanes.apply("and", "i32", bits, (1 << 31) - 1)
    code = lanes.choose(
        lanes.apply("icmp ult", "i32", magnitude, 128 - form.bias << 23),
        "i32",
        _encode_subnormal(lanes, magnitude, form),
        _encode_normal(lanes, magnitude, form),
    )
    code = lanes.clamp("i32", code, form.overflow_code)
    sign = lanes.apply("and", "i32", lanes.apply("lshr", "i32", bits, 32 - form.bits), 1 << form.bits - 1)
    code = lanes.apply("or", "i32", code, sign)
    if form.overflow == "infinity":
        is_nan = lanes.apply("icmp ugt", "i32", magnitude, 255 << 23)
        code = lanes.choose(is_nan, "i32", _nan_code(lanes, bits, sign, form), code)
    return lanes.narrow(code, "i32", REGISTER_TYPES[name])


def _nan_code(lanes: Lanes, bits: str, sign: str, form: FloatFormat) -> str:
    """Append the code of a NaN: quiet, with its sign and the high bits of its payload."""
    top = lanes.apply("lshr", "i32", bits, 23 - form.mantissa_bits)
    payload = lanes.apply("and", "i32", top, (1 << form.mantissa_bits - 1) - 1)
    quiet = lanes.apply("or", "i32", payload, form.overflow_code | 1 << form.mantissa_bits - 1)
    return lanes.apply("or", "i32", quiet, sign)


def _encode_normal(lanes: Lanes, magnitude: str, form: FloatFormat) -> str:
    """Append the code of a normal number: an integer addition rounds to nearest even and carries into the exponent."""
    dropped = 23 - form.mantissa_bits
    odd = lanes.apply("and", "i32", lanes.apply("lshr", "i32", magnitude, dropped), 1)
    bias = (1 << dropped - 1) - 1 - (127 - form.bias << 23)
    return lanes.apply(
        "lshr", "i32", lanes.apply("add", "i32", lanes.apply("add", "i32", magnitude, bias), odd), dropped
    )


def _encode_subnormal(lanes: Lanes, magnitude: str, form: FloatFormat) -> str:
    """Append the code of a subnormal number.

    The sum with the power of two whose last place is the quantum is rounded to a multiple of it; its low bits are the
    code.
    """
    power = form.quantum * 2.0**23
    total = lanes.apply("fadd", "float", lanes.cast("bitcast", magnitude, "i32", "float"), power)
    exponent = 127 + 23 + 1 - form.bias - form.mantissa_bits << 23
    return lanes.apply("sub", "i32", lanes.cast("bitcast", total, "float", "i32"), exponent)


# bf16


_IS_SUBNORMAL = "llvm.x86.avx512.fpclass.ps.512"
_SUBNORMAL = 32  # the class, as the instruction numbers them
_PAIR, _SINGLE = "llvm.x86.avx512bf16.cvtne2ps2bf16.512", "llvm.x86.avx512bf16.cvtneps2bf16.512"


def _encode_bf16(lanes: Lanes, value: str) -> str:
    """Append the conversion of f32 to bf16 codes."""
    if not lanes.arithmetic.bf16 or lanes.count not in (16, 32):
        return _round_to_bf16(lanes, value)
    code = lanes.code
    halves = [_take_16_lanes(lanes, value, first) for first in range(0, lanes.count, 16)]
    masks = [code.call(_IS_SUBNORMAL, "<16 x i1>", ("<16 x float>", half), ("i32", str(_SUBNORMAL))) for half in halves]
    subnormal = masks[0] if len(masks) == 1 else code.let(f"or <16 x i1> {masks[0]}, {masks[1]}")
    bits = code.let(f"bitcast <16 x i1> {subnormal} to i16")
    is_rare = code.let(f"icmp ne i16 {bits}, 0")
    here, rare, done = (f"{bits[1:]}.{name}" for name in ("here", "rare", "done"))
    code.do(f"br label %{here}")
    code.label(here)
    bf16 = f"<{lanes.count} x bfloat>"
    name = _SINGLE if len(halves) == 1 else _PAIR
    fast = code.call(name, bf16, *(("<16 x float>", half) for half in reversed(halves)))
    fast = code.let(f"bitcast {bf16} {fast} to {lanes.of('i16')}")
    code.do(f"br i1 {is_rare}, label %{rare}, label %{done}")
    code.label(rare)
    exact = code.let(f"call preserve_allcc {lanes.of('i16')} @{_slow_function(lanes)}({lanes.of('float')} {value})")
    code.do(f"br label %{done}")
    code.label(done)
    return code.let(f"phi {lanes.of('i16')} [{fast}, %{here}], [{exact}, %{rare}]")


def _take_16_lanes(lanes: Lanes, value: str, first: int) -> str:
    """Append the extraction of 16 lanes of a register, from lane `first` on."""
    if lanes.count == 16:
        return value
    vector, chosen = lanes.of("float"), shuffle_mask(range(first, first + 16))
    return lanes.code.let(f"shufflevector {vector} {value}, {vector} poison, {chosen}")


def _slow_function(lanes: Lanes) -> str:
    """Declare the function that rounds f32 to bf16 by integer arithmetic; return its name."""
    inner = Code()
    name = f"bf16.of.{lanes.count}.subnormals"
    result = _round_to_bf16(Lanes(inner, lanes.count, lanes.arithmetic), "%value")
    inner.do(f"ret {lanes.of('i16')} {result}")
    head = f"define internal preserve_allcc {lanes.of('i16')} @{name}({lanes.of('float')} %value) noinline #0"
    lanes.code.declarations |= {*inner.declarations, head + " {\n" + "\n".join(inner.lines) + "\n}"}
    return name


def _round_to_bf16(lanes: Lanes, value: str) -> str:
    """Append the rounding of f32 to bf16 codes by integer arithmetic."""
    bits = lanes.cast("bitcast", value, "float", "i32")
    odd = lanes.apply("and", "i32", lanes.apply("lshr", "i32", bits, 16), 1)
    rounded = lanes.apply("add", "i32", lanes.apply("add", "i32", bits, 0x7FFF), odd)
    nan = lanes.apply("fcmp uno", "float", value, value)
    rounded = lanes.choose(nan, "i32", lanes.apply("or", "i32", bits, _QUIET), rounded)
    return _upper_half(lanes, lanes.cast("bitcast", rounded, "i32", "float"))


def _upper_half(lanes: Lanes, value: str) -> str:
    """Append the bf16 codes of f32 numbers that are exact in bf16, such as all numbers of 8-bit types."""
    bits = lanes.cast("bitcast", value, "float", "i32")
    return lanes.narrow(lanes.apply("lshr", "i32", bits, 16), "i32", "i16")


# Registers in memory


@dataclass(frozen=True, slots=True)
class Elements:
    """Registers of elements of whole bytes, with their form in memory."""

    lanes: Lanes
    """The writer of register operations; its lane count is the number of elements in a register."""
    name: str
    """Name of the element type."""

    @property
    def register(self) -> str:
        """The LLVM type of a register."""
        return self.lanes.of(REGISTER_TYPES[self.name])

    @property
    def memory(self) -> str:
        """The LLVM type of a register's elements in memory."""
        return self.register

    @property
    def nbytes(self) -> int:
        """Size of a register's elements in memory, in bytes."""
        return self.lanes.count * bits_of(self.name) // 8

    def load(self, address: str, mask: str | None = None) -> str:
        """Append the load of a register in memory form.

        Under a mask, elements that it does not select are zero, and their memory is not accessed.
        """
        if mask is None:
            return self.lanes.code.let(f"load {self.memory}, ptr {address}, align 1")
        return self.lanes.code.masked_load(self.memory, address, mask)

    def store(self, value: str, address: str, mask: str | None = None, *, streams: bool = False) -> None:
        """Append the store of a register in memory form; under a mask, only of the selected elements.

        `streams` makes it a streaming store.
        """
        if mask is not None:
            self.lanes.code.masked_store(self.memory, value, address, mask)
            return
        align = min(LINE, self.nbytes) if streams else 1
        hint = ", !nontemporal !0" if streams else ""
        self.lanes.code.do(f"store {self.memory} {value}, ptr {address}, align {align}{hint}")

    def unpack(self, value: str) -> str:
        """Append the conversion from memory form to register form; return the result's name."""
        return value

    def pack(self, value: str) -> str:
        """Append the conversion from register form to memory form; return the result's name."""
        return value

    def select(self, value: str, mask: str) -> str:
        """Append the replacement of elements that `mask` does not select by zero, in memory form."""
        bools = self.lanes.of("i1")
        return self.lanes.code.let(f"select {bools} {mask}, {self.memory} {value}, {self.memory} zeroinitializer")


class _Nibbles(Elements):
    """Registers of 4-bit elements, two in each byte of memory."""

    __slots__ = ()

    @property
    def _pairs(self) -> Lanes:
        """A writer of operations on the bytes that hold the elements, two in each."""
        return Lanes(self.lanes.code, self.lanes.count // 2, self.lanes.arithmetic)

    @property
    def memory(self) -> str:
        return self._pairs.of("i8")

    def load(self, address: str, mask: str | None = None) -> str:
        if mask is None:
            return super().load(address)
        bits = self._bits(mask)
        value = self.lanes.code.masked_load(self.memory, address, self._pairs.apply("icmp ne", "i8", bits, 0))
        return self._pairs.apply("and", "i8", value, bits)

    def store(self, value: str, address: str, mask: str | None = None, *, streams: bool = False) -> None:
        if mask is None:
            super().store(value, address, streams=streams)
            return
        pairs, bits = self._pairs, self._bits(mask)
        touched = pairs.apply("icmp ne", "i8", bits, 0)
        old = self.lanes.code.masked_load(self.memory, address, touched)
        preserved = pairs.apply("and", "i8", old, pairs.apply("xor", "i8", bits, -1))
        merged = pairs.apply("or", "i8", preserved, pairs.apply("and", "i8", value, bits))
        self.lanes.code.masked_store(self.memory, merged, address, touched)

    def unpack(self, value: str) -> str:
        pairs = self._pairs
        wide = pairs.cast("zext", value, "i8", "i16")
        spread = pairs.apply("or", "i16", wide, pairs.apply("shl", "i16", wide, 4))
        halves = pairs.apply("and", "i16", spread, 0x0F0F)
        return self.lanes.code.let(f"bitcast {pairs.of('i16')} {halves} to {self.register}")

    def pack(self, value: str) -> str:
        pairs = self._pairs
        halves = self.lanes.code.let(f"bitcast {self.register} {value} to {pairs.of('i16')}")
        joined = pairs.apply("or", "i16", halves, pairs.apply("lshr", "i16", halves, 4))
        return pairs.narrow(joined, "i16", "i8")

    def select(self, value: str, mask: str) -> str:
        return self._pairs.apply("and", "i8", value, self._bits(mask))

    def _bits(self, mask: str) -> str:
        """Append the bits in memory of the elements that a mask selects."""
        return self.pack(self.lanes.choose(mask, "i8", 15, 0))


class _LoneNibble(Elements):
    """A register of one 4-bit element; its address is in nibbles."""

    __slots__ = ()

    def load(self, address: str, mask: str | None = None) -> str:
        where, shift = self._locate(address)
        value = self.lanes.apply("lshr", "i8", super().load(where, mask), shift)
        return self.lanes.apply("and", "i8", value, 15)

    def store(self, value: str, address: str, mask: str | None = None, *, streams: bool = False) -> None:
        where, shift = self._locate(address)
        other_half = self.lanes.apply("xor", "i8", self.lanes.apply("shl", "i8", 15, shift), -1)
        preserved = self.lanes.apply("and", "i8", super().load(where, mask), other_half)
        merged = self.lanes.apply("or", "i8", preserved, self.lanes.apply("shl", "i8", value, shift))
        super().store(merged, where, mask)

    def _locate(self, address: str) -> tuple[str, str]:
        """Append the address of the byte, and the number of bits by which the element is shifted in it."""
        code = self.lanes.code
        number = code.let(f"ptrtoint ptr {address} to i64")
        where = code.let(f"inttoptr i64 {code.let(f'lshr i64 {number}, 1')} to ptr")
        half = code.let(f"trunc i64 {code.let(f'and i64 {number}, 1')} to i8")
        shift = code.let(f"shl i8 {half}, 2")
        return where, code.let(f"insertelement <1 x i8> poison, i8 {shift}, i64 0")


def elements_of(lanes: Lanes, name: str) -> Elements:
    """Return the registers of `lanes.count` elements of the type `name`."""
    if bits_of(name) != 4:
        return Elements(lanes, name)
    return (_LoneNibble if lanes.count == 1 else _Nibbles)(lanes, name)
