"""The code of stochastic rounding: a number becomes one of its two neighbors in the destination type.

A register of the working type is rounded to numbers that the destination holds, in the working type still; converting
these is exact. With t the magnitude in steps of the destination and u a hash of the element's index and the seed, it
takes floor(t + u) steps, as `floor(t)`, and one more where `t - floor(t) >= 1 - u`: neither difference is rounded.

    hash = mix(mix(index) ^ seed)        u = (hash >> 8) / 2**24

Source: A. Appleby, MurmurHash3, `fmix32`.
"""

from inlay.data_type import DATA_TYPES, FLOAT_FORMATS
from inlay.reordering.conversion import integer_bounds
from inlay.reordering.lanes import Lanes

_WORDS = {"float": ("i32", 23, 127), "double": ("i64", 52, 1023)}
"""For the LLVM type of working numbers, that of their bits, the bits of the mantissa, and the bias."""


def is_rounded(working: str, dst: str) -> bool:
    """Whether numbers of the working type are rounded on their way to `dst`."""
    return dst not in (working, "f64") and not DATA_TYPES[dst].is_exponent


def by_chance(lanes: Lanes, value: str, element: str, dst: str, indices: str, seed: str) -> str:
    """Write the rounding of a register of floats of LLVM type `element` to numbers that `dst` holds; its name.

    `indices` and `seed` are registers of 32-bit integers.
    """
    mixed = _mixed(lanes, lanes.apply("xor", "i32", _mixed(lanes, indices), seed))
    bits = lanes.apply("lshr", "i32", mixed, 8)
    if DATA_TYPES[dst].kind != "float":
        return _to_integer(lanes, value, element, dst, _chance(lanes, bits, element))
    if (element, dst) == ("float", "bf16"):
        return _to_bf16(lanes, value, bits)
    return _to_float(lanes, value, element, dst, _chance(lanes, bits, element))


def _mixed(lanes: Lanes, value: str) -> str:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = lanes.apply("xor", "i32", value, lanes.apply("lshr", "i32", value, shift))
        value = lanes.apply("mul", "i32", value, factor)
    return lanes.apply("xor", "i32", value, lanes.apply("lshr", "i32", value, 16))


def _chance(lanes: Lanes, bits: str, element: str) -> str:
    """1 - u."""
    u = lanes.apply("fmul", element, lanes.cast("uitofp", bits, "i32", element), 2.0**-24)
    return lanes.apply("fsub", element, 1.0, u)


def _to_integer(lanes: Lanes, value: str, element: str, dst: str, rest: str) -> str:
    low, high = integer_bounds(element, dst)
    # A comparison with NaN is false: NaN is kept, and becomes 0 when it is converted.
    for limit, test in ((low, "fcmp olt"), (high, "fcmp ogt")):
        value = lanes.choose(lanes.test(test, element, value, limit), element, limit, value)
    return lanes.call("copysign", element, _steps(lanes, lanes.call("fabs", element, value), element, rest), value)


def _to_bf16(lanes: Lanes, value: str, bits: str) -> str:
    """Steps of bf16 are 2^16 codes of f32, subnormals and the step to infinity included."""
    code = lanes.cast("bitcast", value, "float", "i32")
    above = lanes.apply("add", "i32", code, lanes.apply("lshr", "i32", bits, 8))
    rounded = lanes.cast("bitcast", lanes.apply("and", "i32", above, 0xFFFF0000), "i32", "float")
    return lanes.choose(lanes.test("fcmp uno", "float", value, value), "float", value, rounded)


def _to_float(lanes: Lanes, value: str, element: str, dst: str, rest: str) -> str:
    word, mantissa, bias = _WORDS[element]
    form = FLOAT_FORMATS[dst]
    digits, lowest = form.mantissa_bits, form.lowest
    magnitude = lanes.call("fabs", element, value)
    code = lanes.cast("bitcast", magnitude, element, word)
    exponent = lanes.apply("lshr", word, code, mantissa)
    exponent = lanes.least(word, exponent, lowest + bias, of="icmp sgt")
    shifts = (lanes.apply("sub", word, 2 * bias + digits, exponent), lanes.apply("sub", word, exponent, digits))
    scale, step = (lanes.cast("bitcast", lanes.apply("shl", word, shift, mantissa), word, element) for shift in shifts)
    steps = _steps(lanes, lanes.apply("fmul", element, magnitude, scale), element, rest)
    rounded = lanes.call("copysign", element, lanes.apply("fmul", element, steps, step), value)
    is_finite = lanes.test("fcmp olt", element, magnitude, float("inf"))
    return lanes.choose(is_finite, element, rounded, value)


def _steps(lanes: Lanes, exact: str, element: str, rest: str) -> str:
    """floor(exact + u), with `rest` for 1 - u."""
    below = lanes.call("floor", element, exact)
    goes_up = lanes.test("fcmp oge", element, lanes.apply("fsub", element, exact, below), rest)
    return lanes.choose(goes_up, element, lanes.apply("fadd", element, below, 1.0), below)
