"""Conversion of single numbers to bits and back by `struct`, exact fractions and bisection."""

import math
import struct
from fractions import Fraction

import numpy as np

from inlay.data_type import DataType


def value_of(code: int, data_type: DataType) -> float:
    """The number that a code means, by Python, or by ml_dtypes where Python has no such type."""
    match data_type.name:
        case "f64":
            return float(struct.unpack("<d", struct.pack("<Q", code))[0])
        case "f32":
            return float(struct.unpack("<f", struct.pack("<I", code))[0])
        case "bf16":
            return float(struct.unpack("<f", struct.pack("<I", code << 16))[0])
        case "f16":
            return float(struct.unpack("<e", struct.pack("<H", code))[0])
        case "f8_e5m2" | "f8_e4m3" | "f4_e2m1" | "e8m0":
            return float(np.array([code], np.uint8).view(data_type.dtype)[0])
    signed = data_type.kind == "signed" and code >> (data_type.bits - 1)
    return code - (1 << data_type.bits) if signed else code


INFINITY = {
    "f64": 0x7FF0000000000000,
    "f32": 0x7F800000,
    "bf16": 0x7F80,
    "f16": 0x7C00,
    "f8_e5m2": 0x7C,
    "f8_e4m3": 0x7F,
    "f4_e2m1": 8,
}
"""The code after the greatest finite one; f8_e4m3 has NaN there, f4_e2m1 nothing."""


def nearest_even(value: float, data_type: DataType) -> int:
    """The code of the float nearest to a finite value, ties to the even code, found by bisection over exact values."""
    infinity = INFINITY[data_type.name]
    sign = int(math.copysign(1, value) < 0) << (data_type.bits - 1)
    exact = abs(Fraction(value))
    low, high = 0, infinity
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value_of(middle, data_type) <= abs(value) else (low, middle)
    # The infinite code stands for the next power of two, or the next step.
    step = Fraction(value_of(infinity - 1, data_type)) - Fraction(value_of(infinity - 2, data_type))
    below = Fraction(value_of(low, data_type))
    above = (
        Fraction(value_of(infinity - 1, data_type)) + step if high == infinity else Fraction(value_of(high, data_type))
    )
    up = exact - below > above - exact or (exact - below == above - exact and low % 2 == 1)
    code = high if up else low
    return sign | (7 if data_type.name == "f4_e2m1" else infinity) if code >= infinity else sign | code


def to_integer(value: float, data_type: DataType, working: str) -> int:
    """Clamped to the numbers of the working type, then rounded half to even."""
    if math.isnan(value):
        return 0
    highest = {("s32", "f32"): 2147483520, ("s64", "f64"): 2**63 - 1024}.get((data_type.name, working))
    highest = int(data_type.highest) if highest is None else highest
    clamped = min(max(value, data_type.lowest), highest)
    return round(Fraction(clamped)) % (1 << data_type.bits)


def to_e8m0(value: float) -> int:
    """The exponent of a number, if 8 bits hold it."""
    if not math.isfinite(value):
        return 255
    exponent = math.frexp(value)[1] - 1 if value else -127
    return min(max(exponent, -127), 128) + 127


def in_type(value: float, data_type: DataType) -> float:
    """The number of f32 or f64 nearest to a number."""
    return value_of(nearest_even(value, data_type), data_type) if math.isfinite(value) else value


def encoded(value: float, dst: DataType, working: str) -> int | None:
    """The code in the destination of a number of the working type; None for any NaN."""
    if dst.kind != "float":
        return to_integer(value, dst, working)
    if dst.name == "e8m0":
        return to_e8m0(value)
    if math.isnan(value):
        # Python's floats keep the sign of a NaN.
        return 7 | int(math.copysign(1, value) < 0) << 3 if dst.name == "f4_e2m1" else None
    if math.isinf(value):
        return (7 if dst.name == "f4_e2m1" else INFINITY[dst.name]) | int(value < 0) << (dst.bits - 1)
    return nearest_even(value, dst)
