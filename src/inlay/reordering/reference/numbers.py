"""Codes and the numbers they mean: every data type decoded exactly, and rounded to once.

A code is the unsigned integer of an element's bits. Numbers are held in a working type, f32, or f64 where either side
is f64 or s64, or where integers of 32 bits have zero points and nothing else. Every code decodes exactly, but s32 in
f32 and s64 in f64 are rounded.

A float type with E bits of exponent and M of mantissa has the codes 0, 1, 2, ... in the order of magnitude, spaced
evenly between powers of two. So a number x is encoded in one line: with e its exponent, or the lowest there is,

    code = (e - lowest) * 2**M + round(x / 2**(e - M))

which carries from subnormals to normals and from one power of two to the next. Beyond the greatest finite code lies
infinity, for f8_e4m3 NaN, and nothing for f4_e2m1, which saturates.

**Stochastic rounding** takes floor(t + u) in place of the nearest integer, for the magnitude t = |x| / spacing and a
u of 24 random bits, 0 <= u < 1. They are a hash of the element's row-major index among all coordinates and of the
seed, so a result depends on neither layouts nor threads: u = mix(mix(index mod 2**32) ^ seed) // 2**8 / 2**24, where
mix is the finalizer of MurmurHash3.

Source: oneDNN, data types of the reorder primitive; OCP 8-bit floating point specification 1.0 and microscaling
formats 1.0; A. Appleby, MurmurHash3, `fmix32`.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import FLOAT_FORMATS, DataType

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Numbers: TypeAlias = npt.NDArray[np.floating[Any]]
Chance: TypeAlias = npt.NDArray[np.float64] | None
"""u for each element, or None to round to nearest."""


_E8M0_BIAS, _E8M0_NAN = 127, 255


def working_type(src: DataType, dst: DataType, *, is_scaled: bool = True) -> str:
    """The name of the type in which elements are computed on between these two.

    Integers that are not scaled, by scales or by a sum, are exact: those of 32 bits are computed on in f64.
    """
    names = {src.name, dst.name}
    is_exact = not is_scaled and src.kind != "float" and dst.kind != "float"
    return "f64" if names & {"f64", "s64"} or (is_exact and "s32" in names) else "f32"


def decode(codes: Codes, data_type: DataType, working: str) -> Numbers:
    """The numbers that codes mean, in the working type.

    A NaN keeps its sign and payload and is made quiet, but bf16 -> f32 changes no bit.
    """
    number = np.dtype(np.float64 if working == "f64" else np.float32)
    if data_type.kind != "float":
        return _integers(codes, data_type).astype(number)
    if data_type.name == working:
        return np.ascontiguousarray(codes, f"u{number.itemsize}").view(number)
    if data_type.is_exponent:
        exponents = np.where(codes == _E8M0_NAN, 0, codes.astype(np.int64) - _E8M0_BIAS)
        return np.where(codes == _E8M0_NAN, np.nan, np.ldexp(1.0, exponents)).astype(number)
    form = FLOAT_FORMATS[data_type.name]
    magnitudes = codes.astype(np.int64) & (1 << form.bits - 1) - 1
    is_negative = codes.astype(np.uint64) >> np.uint64(form.bits - 1) == 1
    fields = magnitudes >> form.mantissa_bits
    mantissas = magnitudes - (np.maximum(fields, 1) - 1 << form.mantissa_bits)
    values = np.ldexp(mantissas.astype(np.float64), np.maximum(fields, 1) - 1 + form.lowest - form.mantissa_bits)
    if form.beyond == "infinity":
        values[magnitudes > form.greatest] = np.inf
    signed = np.where(is_negative, -values, values).astype(number)
    is_nan = magnitudes > form.greatest + (form.beyond == "infinity")
    return np.where(is_nan, _nans(is_negative, magnitudes, data_type, working), signed)


def _integers(codes: Codes, data_type: DataType) -> npt.NDArray[np.integer[Any]]:
    if data_type.bits == 4:
        nibbles = codes.astype(np.int64) & 15
        return (nibbles ^ 8) - 8 if data_type.kind == "signed" else nibbles
    return np.ascontiguousarray(codes, f"u{data_type.itemsize}").view(data_type.dtype)


def _nans(is_negative: Any, magnitudes: Any, data_type: DataType, working: str) -> Numbers:
    """NaNs of the working type with the payload of those of a narrower one."""
    narrow, wide = FLOAT_FORMATS[data_type.name], FLOAT_FORMATS[working]
    payload = (magnitudes & (1 << narrow.mantissa_bits) - 1) << wide.mantissa_bits - narrow.mantissa_bits
    if narrow.beyond == "nan":
        payload = np.zeros_like(magnitudes)
    if (data_type.name, working) != ("bf16", "f32"):
        payload = payload | wide.quiet
    bits = (payload | wide.exponent).astype(f"u{wide.bits // 8}")
    bits |= is_negative.astype(bits.dtype) << bits.dtype.type(wide.bits - 1)
    nans: Numbers = bits.view(f"f{wide.bits // 8}")
    return nans


def encode(values: Numbers, data_type: DataType, chance: Chance = None) -> Codes:
    """The codes of numbers, rounded once: to nearest, ties to even, or by chance.

    Integers clamp to their range first, to the greatest number of the working type in it (2147483520 for s32 from f32);
    NaN becomes the integer 0. A NaN of a float type keeps its sign and the top of its payload; f4_e2m1, which has none,
    has 6 with the sign instead. e8m0 keeps the exponent alone: it never rounds, drops the sign, and has NaN for
    infinities.
    """
    if data_type.kind != "float":
        return _integer_codes(values, data_type, chance)
    if values.dtype == data_type.dtype:
        return values.view(f"u{data_type.itemsize}")
    is_finite = np.isfinite(values)
    exact = np.abs(np.where(is_finite, values, 0)).astype(np.float64)
    mantissas, exponents = np.frexp(exact)
    if data_type.is_exponent:
        codes = np.where(mantissas == 0, 0, np.clip(exponents.astype(np.int64) - 1 + _E8M0_BIAS, 0, _E8M0_NAN))
        return np.where(is_finite, codes, _E8M0_NAN).astype(np.uint8)
    form = FLOAT_FORMATS[data_type.name]
    lead = np.maximum(np.where(mantissas == 0, form.lowest, exponents.astype(np.int64) - 1), form.lowest)
    steps = np.ldexp(exact, form.mantissa_bits - lead)
    magnitudes = (lead - form.lowest << form.mantissa_bits) + _rounded(steps, chance).astype(np.int64)
    magnitudes = np.where(is_finite, np.minimum(magnitudes, form.last), form.last)
    signs = np.signbit(values).astype(np.int64) << form.bits - 1
    codes = np.where(np.isnan(values), _nan_codes(values, data_type), magnitudes | signs)
    return codes.astype(f"u{data_type.itemsize}")


def _integer_codes(values: Numbers, data_type: DataType, chance: Chance) -> Codes:
    digits = FLOAT_FORMATS[f"f{values.itemsize * 8}"].mantissa_bits + 1
    exact = np.where(np.isnan(values), 0, values).astype(np.float64)
    bits = int(data_type.highest + 1).bit_length() - 1
    highest = 2**bits - (2 ** (bits - digits) if bits > digits else 1)
    clamped = np.clip(exact, data_type.lowest, highest)
    whole = np.copysign(_rounded(np.abs(clamped), chance), clamped)
    codes = whole.astype(np.int64)
    return (codes & 15).astype(np.uint8) if data_type.bits == 4 else codes.astype(f"u{data_type.itemsize}")


def _rounded(steps: npt.NDArray[np.float64], chance: Chance) -> npt.NDArray[np.float64]:
    if chance is None:
        return np.rint(steps)
    below = np.floor(steps)
    return below + (steps - below >= 1 - chance)


def _nan_codes(values: Numbers, data_type: DataType) -> npt.NDArray[np.int64]:
    """NaNs of a narrower type: the sign, the quiet bit, and as much of the payload as fits, from the top."""
    form, wide = FLOAT_FORMATS[data_type.name], FLOAT_FORMATS[f"f{values.itemsize * 8}"]
    bits = values.view(f"u{values.itemsize}").astype(np.uint64)
    signs = (bits >> np.uint64(wide.bits - 1)).astype(np.int64) << form.bits - 1
    if form.beyond != "infinity":
        return signs | form.greatest + (form.beyond == "nan")
    payload = (bits & np.uint64((1 << wide.mantissa_bits) - 1)) >> np.uint64(wide.mantissa_bits - form.mantissa_bits)
    return signs | form.exponent | form.quiet | payload.astype(np.int64)


def chances(count: int, seed: int) -> npt.NDArray[np.float64]:
    """u of the first `count` elements, in row-major order.

    >>> [int(u * 2**24) for u in chances(3, 1)]
    [5328424, 4034256, 3612612]
    """
    indices = np.arange(count, dtype=np.uint64).astype(np.uint32)
    return (_mix(_mix(indices) ^ np.uint32(seed)) >> np.uint32(8)) / 2.0**24


def _mix(hashed: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """MurmurHash3's finalizer: a permutation of the 32-bit numbers in which every bit depends on every bit."""
    hashed = (hashed ^ hashed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ hashed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return hashed ^ hashed >> np.uint32(16)
