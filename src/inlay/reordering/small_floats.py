"""f16, the two f8 and f4_e2m1 to and from f32, as LLVM IR.

One arithmetic serves all of them: a type is a number of mantissa bits and a bias. With the exponent moved to its place
in an f32, normal numbers are a shift and an addition; subnormals are their mantissa times a power of two. The other
way, a normal number is rounded by an integer addition that carries into the exponent, and a subnormal by adding a power
of two whose last place is that of the type. Where the processor converts f16, the narrower types are read through it.

    f8_e4m3 0x3B = 0 0111 011  ->  f32 0 01111111 0110000...  = 1.375
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inlay.reordering.lanes import Lanes


@dataclass(frozen=True, slots=True)
class SmallFloat:
    """How the bits of a type are read."""

    bits: int
    """Width."""
    mantissa: int
    """Bits of the mantissa."""
    bias: int
    """What is subtracted from the exponent's field."""
    last: int
    """The code, without its sign, of what lies beyond the range: infinity, NaN or the greatest number."""

    @property
    def element(self) -> str:
        """The LLVM type that holds a code."""
        return f"i{max(8, self.bits)}"

    @property
    def has_infinity(self) -> bool:
        """Whether the highest exponent is that of infinity and NaNs."""
        return self.bias == 15

    @property
    def quantum(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (1 - self.bias - self.mantissa)


_E4M3_NAN = 0x7F
SMALL_FLOATS: Mapping[str, SmallFloat] = MappingProxyType(
    {
        "f16": SmallFloat(16, 10, 15, 31 << 10),
        "f8_e5m2": SmallFloat(8, 2, 15, 31 << 2),
        "f8_e4m3": SmallFloat(8, 3, 7, _E4M3_NAN),
        "f4_e2m1": SmallFloat(4, 1, 1, 7),
    }
)
"""The types by name."""

_QUIET_NAN = 0x7FC00000
_QUIET = 1 << 22


def decode(lanes: Lanes, codes: str, name: str) -> str:
    """The f32 values of codes; exact."""
    kind = SMALL_FLOATS[name]
    return _through_f16(lanes, codes, kind) if lanes.arithmetic.f16 else _by_integers(lanes, codes, kind)


def _by_integers(lanes: Lanes, codes: str, kind: SmallFloat) -> str:
    wide = lanes.cast("zext", codes, kind.element, "i32")
    size = lanes.apply("and", "i32", wide, (1 << kind.bits - 1) - 1)
    bits = lanes.apply("shl", "i32", size, 23 - kind.mantissa)
    bits = lanes.apply("add", "i32", bits, 127 - kind.bias << 23)
    product = lanes.apply("fmul", "float", lanes.cast("sitofp", size, "i32", "float"), kind.quantum)
    is_subnormal = lanes.test("icmp ult", "i32", size, 1 << kind.mantissa)
    bits = lanes.choose(is_subnormal, "i32", lanes.cast("bitcast", product, "float", "i32"), bits)
    if kind.has_infinity:
        # The exponent became 31 - 15 + 127: what is missing to 255 is the same again.
        beyond = lanes.apply("add", "i32", bits, 127 - kind.bias << 23)
        bits = lanes.choose(lanes.test("icmp uge", "i32", size, kind.last), "i32", beyond, bits)
        quiet = lanes.apply("or", "i32", bits, _QUIET)
        bits = lanes.choose(lanes.test("icmp ugt", "i32", size, kind.last), "i32", quiet, bits)
    elif kind.last == _E4M3_NAN:
        bits = lanes.choose(lanes.test("icmp eq", "i32", size, kind.last), "i32", _QUIET_NAN, bits)
    sign = lanes.apply("and", "i32", lanes.apply("shl", "i32", wide, 32 - kind.bits), -(1 << 31))
    return lanes.cast("bitcast", lanes.apply("or", "i32", bits, sign), "i32", "float")


def _through_f16(lanes: Lanes, codes: str, kind: SmallFloat) -> str:
    """Codes as f16 with the same exponent field, times what the bias differs by."""
    if kind.bits == 16:
        return _f32_of_f16(lanes, codes)
    codes = lanes.cast("zext", codes, "i8", "i16")
    if kind.has_infinity:
        return _f32_of_f16(lanes, lanes.apply("shl", "i16", codes, 8))
    sign = lanes.apply("and", "i16", lanes.apply("shl", "i16", codes, 16 - kind.bits), -(1 << 15))
    size = lanes.apply("and", "i16", codes, (1 << kind.bits - 1) - 1)
    value = _f32_of_f16(lanes, lanes.apply("or", "i16", lanes.apply("shl", "i16", size, 10 - kind.mantissa), sign))
    value = lanes.apply("fmul", "float", value, 2.0 ** (15 - kind.bias))
    if kind.last != _E4M3_NAN:
        return value
    raw = lanes.cast("bitcast", value, "float", "i32")
    nan = lanes.apply("or", "i32", lanes.apply("and", "i32", raw, -(1 << 31)), _QUIET_NAN)
    is_nan = lanes.test("icmp eq", "i16", size, kind.last)
    return lanes.cast("bitcast", lanes.choose(is_nan, "i32", nan, raw), "i32", "float")


def _f32_of_f16(lanes: Lanes, codes: str) -> str:
    return lanes.cast("fpext", lanes.cast("bitcast", codes, "i16", "half"), "half", "float")


def e5m2_as_f16(lanes: Lanes, codes: str) -> str:
    """The f16 codes of f8_e5m2, which is the upper half of them; NaNs are made quiet."""
    bits = lanes.apply("shl", "i16", lanes.cast("zext", codes, "i8", "i16"), 8)
    is_nan = lanes.test("icmp ugt", "i16", lanes.apply("and", "i16", bits, (1 << 15) - 1), 31 << 10)
    return lanes.choose(is_nan, "i16", lanes.apply("or", "i16", bits, 1 << 9), bits)


def encode(lanes: Lanes, value: str, name: str) -> str:
    """The codes of f32 values, rounded once to nearest, ties to even."""
    kind = SMALL_FLOATS[name]
    if kind.bits == 16 and lanes.arithmetic.f16:
        return lanes.cast("bitcast", lanes.cast("fptrunc", value, "float", "half"), "half", "i16")
    bits = lanes.cast("bitcast", value, "float", "i32")
    size = lanes.apply("and", "i32", bits, (1 << 31) - 1)
    code = lanes.choose(
        lanes.test("icmp ult", "i32", size, 128 - kind.bias << 23),
        "i32",
        _rounded_subnormal(lanes, size, kind),
        _rounded_normal(lanes, size, kind),
    )
    code = lanes.least("i32", code, kind.last)
    sign = lanes.apply("and", "i32", lanes.apply("lshr", "i32", bits, 32 - kind.bits), 1 << kind.bits - 1)
    code = lanes.apply("or", "i32", code, sign)
    if kind.has_infinity:
        is_nan = lanes.test("icmp ugt", "i32", size, 255 << 23)
        code = lanes.choose(is_nan, "i32", _nan_code(lanes, bits, sign, kind), code)
    return lanes.narrow(code, "i32", kind.element)


def _nan_code(lanes: Lanes, bits: str, sign: str, kind: SmallFloat) -> str:
    """What a NaN becomes: a quiet one with its sign and the top of its payload."""
    top = lanes.apply("lshr", "i32", bits, 23 - kind.mantissa)
    payload = lanes.apply("and", "i32", top, (1 << kind.mantissa - 1) - 1)
    quiet = lanes.apply("or", "i32", payload, kind.last | 1 << kind.mantissa - 1)
    return lanes.apply("or", "i32", quiet, sign)


def _rounded_normal(lanes: Lanes, size: str, kind: SmallFloat) -> str:
    dropped = 23 - kind.mantissa
    odd = lanes.apply("and", "i32", lanes.apply("lshr", "i32", size, dropped), 1)
    bias = (1 << dropped - 1) - 1 - (127 - kind.bias << 23)
    return lanes.apply("lshr", "i32", lanes.apply("add", "i32", lanes.apply("add", "i32", size, bias), odd), dropped)


def _rounded_subnormal(lanes: Lanes, size: str, kind: SmallFloat) -> str:
    """A sum with the power of two whose last place is the quantum: what is left of it is the code."""
    power = kind.quantum * 2.0**23
    total = lanes.apply("fadd", "float", lanes.cast("bitcast", size, "i32", "float"), power)
    exponent = 127 + 23 + 1 - kind.bias - kind.mantissa << 23
    return lanes.apply("sub", "i32", lanes.cast("bitcast", total, "float", "i32"), exponent)
