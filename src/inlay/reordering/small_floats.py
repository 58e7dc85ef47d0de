"""f16, the two f8 and f4_e2m1 to and from f32, as LLVM IR.

One arithmetic serves all of them: a type is a number of mantissa bits and a bias. With the exponent moved to its place
in an f32, normal numbers are a shift and an addition; subnormals are their mantissa times a power of two. The other
way, a normal number is rounded by an integer addition that carries into the exponent, and a subnormal by adding a power
of two whose last place is that of the type. Where the processor converts f16, the narrower types are read through it.

    f8_e4m3 0x3B = 0 0111 011  ->  f32 0 01111111 0110000...  = 1.375
"""

from inlay.data_type import FLOAT_FORMATS, FloatFormat
from inlay.reordering.lanes import Lanes

SMALL_FLOATS = {name: form for name, form in FLOAT_FORMATS.items() if form.exponent_bits < 8}
"""Those whose exponents are narrower than that of f32."""

_QUIET_NAN = 0x7FC00000
_QUIET = 1 << 22


def _element(kind: FloatFormat) -> str:
    """The LLVM type that holds a code."""
    return f"i{max(8, kind.bits)}"


def decode(lanes: Lanes, codes: str, name: str) -> str:
    """The f32 values of codes; exact."""
    kind = SMALL_FLOATS[name]
    return _through_f16(lanes, codes, kind) if lanes.arithmetic.f16 else _by_integers(lanes, codes, kind)


def _by_integers(lanes: Lanes, codes: str, kind: FloatFormat) -> str:
    wide = lanes.cast("zext", codes, _element(kind), "i32")
    size = lanes.apply("and", "i32", wide, (1 << kind.bits - 1) - 1)
    bits = lanes.apply("shl", "i32", size, 23 - kind.mantissa_bits)
    bits = lanes.apply("add", "i32", bits, 127 - kind.bias << 23)
    product = lanes.apply("fmul", "float", lanes.cast("sitofp", size, "i32", "float"), kind.quantum)
    is_subnormal = lanes.test("icmp ult", "i32", size, 1 << kind.mantissa_bits)
    bits = lanes.choose(is_subnormal, "i32", lanes.cast("bitcast", product, "float", "i32"), bits)
    if kind.beyond == "infinity":
        # The exponent became 31 - 15 + 127: what is missing to 255 is the same again.
        beyond = lanes.apply("add", "i32", bits, 127 - kind.bias << 23)
        bits = lanes.choose(lanes.test("icmp uge", "i32", size, kind.last), "i32", beyond, bits)
        quiet = lanes.apply("or", "i32", bits, _QUIET)
        bits = lanes.choose(lanes.test("icmp ugt", "i32", size, kind.last), "i32", quiet, bits)
    elif kind.beyond == "nan":
        bits = lanes.choose(lanes.test("icmp eq", "i32", size, kind.last), "i32", _QUIET_NAN, bits)
    sign = lanes.apply("and", "i32", lanes.apply("shl", "i32", wide, 32 - kind.bits), -(1 << 31))
    return lanes.cast("bitcast", lanes.apply("or", "i32", bits, sign), "i32", "float")


def _through_f16(lanes: Lanes, codes: str, kind: FloatFormat) -> str:
    """Codes as f16 with the same exponent field, times what the bias differs by."""
    if kind.bits == 16:
        return _f32_of_f16(lanes, codes)
    codes = lanes.cast("zext", codes, "i8", "i16")
    if kind.beyond == "infinity":
        return _f32_of_f16(lanes, lanes.apply("shl", "i16", codes, 8))
    sign = lanes.apply("and", "i16", lanes.apply("shl", "i16", codes, 16 - kind.bits), -(1 << 15))
    size = lanes.apply("and", "i16", codes, (1 << kind.bits - 1) - 1)
    value = _f32_of_f16(lanes, lanes.apply("or", "i16", lanes.apply("shl", "i16", size, 10 - kind.mantissa_bits), sign))
    value = lanes.apply("fmul", "float", value, 2.0 ** (15 - kind.bias))
    if kind.beyond != "nan":
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
    if kind.beyond == "infinity":
        is_nan = lanes.test("icmp ugt", "i32", size, 255 << 23)
        code = lanes.choose(is_nan, "i32", _nan_code(lanes, bits, sign, kind), code)
    return lanes.narrow(code, "i32", _element(kind))


def _nan_code(lanes: Lanes, bits: str, sign: str, kind: FloatFormat) -> str:
    """What a NaN becomes: a quiet one with its sign and the top of its payload."""
    top = lanes.apply("lshr", "i32", bits, 23 - kind.mantissa_bits)
    payload = lanes.apply("and", "i32", top, (1 << kind.mantissa_bits - 1) - 1)
    quiet = lanes.apply("or", "i32", payload, kind.last | 1 << kind.mantissa_bits - 1)
    return lanes.apply("or", "i32", quiet, sign)


def _rounded_normal(lanes: Lanes, size: str, kind: FloatFormat) -> str:
    dropped = 23 - kind.mantissa_bits
    odd = lanes.apply("and", "i32", lanes.apply("lshr", "i32", size, dropped), 1)
    bias = (1 << dropped - 1) - 1 - (127 - kind.bias << 23)
    return lanes.apply("lshr", "i32", lanes.apply("add", "i32", lanes.apply("add", "i32", size, bias), odd), dropped)


def _rounded_subnormal(lanes: Lanes, size: str, kind: FloatFormat) -> str:
    """A sum with the power of two whose last place is the quantum: what is left of it is the code."""
    power = kind.quantum * 2.0**23
    total = lanes.apply("fadd", "float", lanes.cast("bitcast", size, "i32", "float"), power)
    exponent = 127 + 23 + 1 - kind.bias - kind.mantissa_bits << 23
    return lanes.apply("sub", "i32", lanes.cast("bitcast", total, "float", "i32"), exponent)
