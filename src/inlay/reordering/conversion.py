"""Conversions of whole registers, as LLVM IR: every pair of data types.

Numbers are held in a working type, f64 if a side is f64 or s64, else f32, and rounded once to the destination: to
nearest, ties to even (decision 0007). Between integers nothing is rounded: they are clamped.

    s8, u8, s4, u4, f16, bf16, f8, f4, e8m0  ->  f32, exactly
    s32  ->  f32, rounded                    f32, s32, ...  ->  f64, exactly          s64  ->  f64, rounded
    f64  ->  f32, rounded to odd  ->  any narrower float

Rounding to odd keeps in the last bit whether anything was cut off, so that the second rounding is the only one.

The greatest integer that a float becomes is the greatest number of the working type that the integer type holds:
2147483520 from f32 to s32, 2147483647 from f64. A NaN becomes the integer 0. Between floats it keeps its sign and the
top of its payload and is made quiet; bf16 -> f32 alone changes no bit. e8m0 keeps the exponent alone.

Source: oneDNN, reorder primitive; the OCP specifications of f8 and of microscaling formats.
"""

from collections.abc import Mapping
from types import MappingProxyType

from inlay.data_type import DATA_TYPES
from inlay.reordering.bf16 import bf16_of, upper_half
from inlay.reordering.lanes import Lanes
from inlay.reordering.small_floats import SMALL_FLOATS, decode, e5m2_as_f16, encode

REGISTER_TYPES: Mapping[str, str] = MappingProxyType(
    {**{f"i{bits}": f"i{max(bits, 8)}" for bits in (4, 8, 16, 32, 64)}, **{t.name: t.llvm for t in DATA_TYPES.values()}}
)
"""The LLVM type of one element in a register, of a data type or of `i4`, `i8`, ..., which are moved without a meaning;
elements of 4 bits have a byte each."""
_INTEGERS = frozenset(t.name for t in DATA_TYPES.values() if t.kind != "float")


def convert(lanes: Lanes, value: str, src: str, dst: str) -> str:
    """Write the conversion of the register `value`; the name of the result."""
    if src == dst:
        return value
    if src in _INTEGERS:
        value = _signed(lanes, value, src)
        if dst in _INTEGERS:
            return _clamped(lanes, value, src, dst)
    if DATA_TYPES[src].bits == 64:
        wide = value if src == "f64" else lanes.cast("sitofp", value, "i64", "double")
        return _from_f64(lanes, wide, dst)
    if (src, dst) == ("f8_e5m2", "f16"):
        return e5m2_as_f16(lanes, value)
    if (src, dst) == ("s32", "f64"):
        return lanes.cast("sitofp", value, "i32", "double")
    value = _f32_of(lanes, value, src)
    if dst == "bf16" and DATA_TYPES[src].bits <= 8:
        return upper_half(lanes, value)
    if DATA_TYPES[dst].bits == 64:
        value = lanes.cast("fpext", value, "float", "double")
        return value if dst == "f64" else _integer(lanes, value, "double", dst)
    return _from_f32(lanes, value, dst)


# Integers


def _signed(lanes: Lanes, value: str, name: str) -> str:
    """The codes of an integer type as numbers of the width of their register."""
    if name != "s4":
        return value
    return lanes.apply("sub", "i8", lanes.apply("xor", "i8", value, 8), 8)


def _clamped(lanes: Lanes, value: str, src: str, dst: str) -> str:
    """Integers of another type, clamped to its range."""
    one, two = DATA_TYPES[src], DATA_TYPES[dst]
    source, target = REGISTER_TYPES[src], REGISTER_TYPES[dst]
    letter = "u" if one.kind == "unsigned" else "s"
    if one.highest > two.highest:
        value = lanes.least(source, value, int(two.highest), of=f"icmp {letter}lt")
    if one.lowest < two.lowest:
        value = lanes.least(source, value, int(two.lowest), of="icmp sgt")
    if int(source[1:]) < int(target[1:]):
        return lanes.cast("zext" if letter == "u" else "sext", value, source, target)
    return _coded(lanes, lanes.narrow(value, source, target), dst)


def _coded(lanes: Lanes, value: str, name: str) -> str:
    """The codes of numbers of an integer type: of s4, the low four bits."""
    return lanes.apply("and", "i8", value, 15) if name == "s4" else value


def _integer(lanes: Lanes, value: str, source: str, dst: str) -> str:
    """Floats of LLVM type `source` as integers: clamped, rounded to nearest, NaN to 0."""
    low, high = integer_bounds(source, dst)
    # A comparison with NaN is false, so the first of two limits is what it becomes.
    clamped = lanes.least(source, value, low, of="fcmp ogt")
    clamped = lanes.least(source, clamped, high, of="fcmp olt")
    if low < 0 or not lanes.arithmetic.nan_loses:
        clamped = lanes.choose(lanes.test("fcmp ord", source, value, value), source, clamped, 0.0)
    wide = "i64" if dst == "s64" else "i32"
    return _coded(lanes, lanes.narrow(lanes.nearest(clamped, source, wide), wide, REGISTER_TYPES[dst]), dst)


def integer_bounds(source: str, dst: str) -> tuple[float, float]:
    """The least and the greatest number of LLVM type `source` that the integer type `dst` holds."""
    low, high = int(DATA_TYPES[dst].lowest), int(DATA_TYPES[dst].highest)
    spare = max(0, high.bit_length() - (24 if source == "float" else 53))
    return float(low), float(high >> spare << spare)


# Through f64


def _from_f64(lanes: Lanes, value: str, dst: str) -> str:
    if dst == "f64":
        return value
    if dst in _INTEGERS:
        return _integer(lanes, value, "double", dst)
    if DATA_TYPES[dst].is_exponent:
        return _exponent_of_f64(lanes, value)
    narrow = lanes.cast("fptrunc", value, "double", "float")
    return narrow if dst == "f32" else _from_f32(lanes, _made_odd(lanes, narrow, value), dst)


def _exponent_of_f64(lanes: Lanes, value: str) -> str:
    """The e8m0 codes of f64."""
    bits = lanes.apply("lshr", "i64", lanes.cast("bitcast", value, "double", "i64"), 52)
    code = lanes.apply("sub", "i64", lanes.apply("and", "i64", bits, 0x7FF), 1023 - 127)
    code = lanes.least("i64", code, 0, of="icmp sgt")
    return lanes.narrow(lanes.least("i64", code, 255), "i64", "i8")


def _made_odd(lanes: Lanes, narrow: str, exact: str) -> str:
    """The f32 `narrow`, rounded from the f64 `exact` to nearest, as if it were rounded to odd."""
    back = lanes.cast("fpext", narrow, "float", "double")
    sizes = [
        lanes.apply("and", "i64", lanes.cast("bitcast", side, "double", "i64"), (1 << 63) - 1) for side in (back, exact)
    ]
    bits = lanes.cast("bitcast", narrow, "float", "i32")
    above = lanes.cast("sext", lanes.test("icmp ugt", "i64", *sizes), "i1", "i32")
    odd = lanes.apply("or", "i32", lanes.apply("add", "i32", bits, above), 1)
    is_rounded = lanes.test("fcmp one", "double", back, exact)
    return lanes.cast("bitcast", lanes.choose(is_rounded, "i32", odd, bits), "i32", "float")


# Through f32


def _f32_of(lanes: Lanes, value: str, src: str) -> str:
    """The numbers of `src` in f32: of s32, the nearest."""
    if src in _INTEGERS:
        operation = "uitofp" if DATA_TYPES[src].kind == "unsigned" else "sitofp"
        return lanes.cast(operation, value, REGISTER_TYPES[src], "float")
    if src in SMALL_FLOATS:
        return decode(lanes, value, src)
    if src == "bf16":
        bits = lanes.apply("shl", "i32", lanes.cast("zext", value, "i16", "i32"), 16)
    elif DATA_TYPES[src].is_exponent:
        bits = _exponent_as_f32(lanes, value)
    else:
        return value
    return lanes.cast("bitcast", bits, "i32", "float")


def _exponent_as_f32(lanes: Lanes, value: str) -> str:
    """The bits of 2^(code - 127): code 0 is subnormal and 255 is NaN, and both have the highest bit of the mantissa."""
    code = lanes.cast("zext", value, "i8", "i32")
    bits = lanes.apply("shl", "i32", code, 23)
    following = lanes.apply("and", "i32", lanes.apply("add", "i32", code, 1), 255)
    at_end = lanes.test("icmp ult", "i32", following, 2)
    return lanes.choose(at_end, "i32", lanes.apply("or", "i32", bits, 1 << 22), bits)


def _from_f32(lanes: Lanes, value: str, dst: str) -> str:
    if dst in _INTEGERS:
        return _integer(lanes, value, "float", dst)
    if dst in SMALL_FLOATS:
        return encode(lanes, value, dst)
    if DATA_TYPES[dst].is_exponent:
        bits = lanes.cast("bitcast", value, "float", "i32")
        return lanes.narrow(lanes.apply("lshr", "i32", bits, 23), "i32", "i8")
    return bf16_of(lanes, value) if dst == "bf16" else value
