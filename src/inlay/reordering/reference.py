"""The reference reorder: one coordinate at a time. Compiled reorders must equal it bit for bit.

The arithmetic of this module shares no code with the compiler, so an error in either shows as a difference. An element
is represented by its code, the unsigned integer of its bits. A move to the same type copies codes, so NaNs keep their
payloads and -0.0 its sign. Any other pair of types, and any attribute, is computed in the working type:

    code of src -> f32 or f64 -> formula -> clamp, round -> code of dst

**Elements.** Each coordinate is processed separately. Its digits (`Layout.digits`, nothing else of `Layout`) and the
swizzle of the memory determine the offset; coordinates of padding are set to zero; no other bit of a buffer changes.

**Formula.** oneDNN's, in oneDNN's order. Each step is one operation of the working type, rounded to nearest; steps are
not fused.

    y   = (x - src_zero_point) * src_scale
    y   = y * scale_adjust                      if the extras of the destination have it and the source's have not
    y   = y + sum * old
    y   = y / dst_scale + dst_zero_point
    dst = convert(y)

**Numbers** are held in the working type: f64 if either side is f64 or s64, or if both are integers, one of them s32,
and the formula has no scale, sum or scale_adjust; else f32. Decoding is exact except for s32 in f32 and s64 in f64,
which are rounded.

A float type with E exponent bits and M mantissa bits has the codes 0, 1, 2, ... in the order of magnitude, evenly
spaced between powers of two. So one formula encodes a number x; with e its exponent, or the lowest exponent if less,

    code = (e - lowest) * 2**M + round(x / 2**(e - M))

The addition carries from subnormals to normals and from one power of two to the next. The code after the greatest
finite one is infinity, or NaN for f8_e4m3; f4_e2m1 has neither and saturates.

**Stochastic rounding** computes floor(t + u) in place of the nearest integer, for the magnitude t = |x| / spacing and a
number u of 24 random bits, 0 <= u < 1. u is a hash of the element's row-major index among all coordinates and of the
seed, so a result depends neither on layouts nor on threads: u = mix(mix(index mod 2**32) ^ seed) // 2**8 / 2**24, where
mix is the finalizer of MurmurHash3.

**Compensation** is a term that a convolution adds to correct for signed sources and their zero points. For each
channel, an index of the axes in the mask, with q the weights as they are stored:

    flag 1 (s8s8)                -128 * sum of q
    flag 8 (asymmetric source)     -1 * sum of q

as s32 with wrap-around, 0 for channels of padding, stored one after the other behind the elements.

Source: oneDNN, the reorder primitive with its data types and attributes, `memory_extra_desc_t` and the reorders of
weights that fill it; OCP 8-bit floating point specification 1.0 and microscaling formats 1.0; A. Appleby, MurmurHash3,
`fmix32`.
"""

from collections.abc import Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import FLOAT_FORMATS, DataType
from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8
from inlay.descriptor.fields import addressed_layout
from inlay.errors import InvalidArguments
from inlay.layout import Dims, Layout
from inlay.reordering.attributes import PLAIN, Attributes

Bytes: TypeAlias = npt.NDArray[np.uint8]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Numbers: TypeAlias = npt.NDArray[np.floating[Any]]
Offsets: TypeAlias = npt.NDArray[np.int64]
Fractions: TypeAlias = npt.NDArray[np.float64] | None
"""u for each element, or None to round to nearest."""
Values = Mapping[str, Codes]
"""The codes of the values of each attribute, in an array of the attribute's shape."""


def reference_reorder(
    src: MemoryDesc,
    src_buffer: Bytes,
    dst: MemoryDesc,
    dst_buffer: Bytes,
    attributes: Attributes = PLAIN,
    values: Values | None = None,
    *,
    seed: int = 0,
) -> None:
    """Write the tensor that `src` describes in `src_buffer` into `dst_buffer`, as `dst` describes.

    Both buffers are arrays of bytes that hold the whole span of their layout from element 0 on. `values` holds the
    codes of the values of each attribute, in arrays of its shape.

    Post-conditions:
        For every coordinate x < dims, the element of dst at x is the element of src at x, computed and converted.
        For every other coordinate x < dst.padded_dims, the element of dst at x is zero.
        If the extras of dst have compensation, its numbers are stored behind the elements.
        Every other bit of `dst_buffer`, and all of `src_buffer`, is unchanged.

    Raises:
        InvalidArguments: the dims differ, or a descriptor has no layout.

    >>> import numpy as np
    >>> src, dst = MemoryDesc((3,), "u8", "a"), MemoryDesc((3,), "u8", "A4a")
    >>> packed = np.full(6, 99, np.uint8)
    >>> reference_reorder(src, np.array([1, 2, 3], np.uint8), dst, packed)
    >>> packed.tolist()
    [1, 2, 3, 0, 99, 99]
    """
    if src.dims != dst.dims:
        raise InvalidArguments(f"a reorder keeps the dims: source {src.dims}, destination {dst.dims}")
    types = (addressed_layout(src, "reorder")[1], addressed_layout(dst, "reorder")[1])
    codes = evaluate_formula(
        read_codes(src, src_buffer),
        types,
        attributes,
        values,
        old=read_codes(dst, dst_buffer) if attributes.sum is not None else None,
        factor=1.0 if src.extras.scale_adjust == dst.extras.scale_adjust else dst.extras.scale_adjust,
        seed=seed,
    )
    write_codes(dst, dst_buffer, codes)
    if dst.extras:
        write_compensation(dst, dst_buffer, codes)


# Elements in memory


def read_codes(desc: MemoryDesc, buffer: Bytes) -> Codes:
    """Return the code of every element, in an array of shape `desc.dims`.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> read_codes(MemoryDesc((2, 2), "s4", "ba"), np.array([0x21, 0x43], np.uint8)).tolist()
    [[1, 3], [2, 4]]
    """
    layout, data_type = addressed_layout(desc, "read_codes")
    return _read(buffer, _offsets(desc, layout, desc.dims), data_type.bits).reshape(desc.dims)


def write_codes(desc: MemoryDesc, buffer: Bytes, codes: Codes) -> None:
    """Set every element to its code, from an array of shape `desc.dims`, and every element of padding to zero.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> buffer = np.full(2, 0xFF, np.uint8)
    >>> write_codes(MemoryDesc((3,), "u4", "a"), buffer, np.array([1, 2, 3], np.uint8))
    >>> [hex(byte) for byte in buffer]
    ['0x21', '0xf3']
    """
    layout, data_type = addressed_layout(desc, "write_codes")
    stored = _offsets(desc, layout, desc.padded_dims)
    _write(buffer, stored, np.zeros(stored.size, np.uint64), data_type.bits)
    _write(buffer, _offsets(desc, layout, desc.dims), codes.ravel(), data_type.bits)


def _offsets(desc: MemoryDesc, layout: Layout, dims: tuple[int, ...]) -> Offsets:
    """Return the offsets of all coordinates below `dims`, in elements, in row-major order.

    `layout` is that of `desc` before its swizzle.
    """
    total = np.zeros(dims, np.int64)
    for i, (n, (lead, *inner)) in enumerate(zip(dims, layout.digits, strict=True)):
        rest = np.arange(n)
        along = np.zeros(n, np.int64)
        for digit in reversed(inner):
            along += rest % digit.extent * digit.stride
            rest //= digit.extent
        along += rest * lead.stride
        total += along.reshape([-1 if j == i else 1 for j in range(len(dims))])
    if desc.swizzle is not None:
        total = desc.swizzle.apply(total)
    return total.ravel() + desc.offset0


def _read(buffer: Bytes, offsets: Offsets, bits: int) -> Codes:
    """Return the codes of the elements at `offsets`."""
    if bits == 4:
        low = buffer[offsets // 2]
        return np.where(offsets % 2 == 1, low >> 4, low & 15)
    width = bits // 8
    gathered = buffer[offsets[:, None] * width + np.arange(width)]
    return np.ascontiguousarray(gathered).view(f"u{width}").ravel()


def _write(buffer: Bytes, offsets: Offsets, codes: Codes, bits: int) -> None:
    """Set the elements at `offsets` to `codes` and leave every other bit."""
    if bits == 4:
        # Low and high halves are written separately: a single assignment would lose one of two elements of a byte.
        for half in (0, 1):
            chosen = offsets % 2 == half
            where, other_half = offsets[chosen] // 2, 15 << 4 * (1 - half)
            buffer[where] = buffer[where] & other_half | codes[chosen].astype(np.uint8) << 4 * half
        return
    width = bits // 8
    buffer[offsets[:, None] * width + np.arange(width)] = codes.astype(f"u{width}")[:, None].view(np.uint8)


# The formula


def convert(codes: Codes, src: DataType, dst: DataType) -> Codes:
    """Convert codes to another type, rounded to nearest; between equal types every bit is preserved.

    >>> from inlay.data_type import DATA_TYPES
    >>> values = np.array([2.5, -1, 300], np.float32)
    >>> convert(values.view(np.uint32), DATA_TYPES["f32"], DATA_TYPES["u8"]).tolist()
    [2, 0, 255]
    """
    if src == dst:
        return codes
    return encode(decode(codes, src, working_type(src, dst)), dst)


def evaluate_formula(
    codes: Codes,
    types: tuple[DataType, DataType],
    attributes: Attributes = PLAIN,
    values: Values | None = None,
    *,
    old: Codes | None = None,
    factor: float = 1.0,
    seed: int = 0,
) -> Codes:
    """Evaluate the formula; return the codes of the result.

    Args:
        codes: codes of the source elements, in an array of the shape of the tensor.
        types: types of source and destination.
        attributes: steps of the formula.
        values: the codes of the values of each of `attributes.names`.
        old: the codes of the destination's elements, for a sum.
        factor: factor of weights before they are rounded (`Extras.scale_adjust`).
        seed: seed of stochastic rounding.
    """
    src, dst = types
    if src == dst and not attributes.computes and factor == 1:
        return codes
    working = working_type(src, dst, has_factor=attributes.scales or factor != 1)
    y = decode(codes, src, working)
    used = {
        name: _broadcast(decode(values[name], attributes.entry(name).type, working), codes.shape)
        for name in attributes.names
        if values is not None
    }
    with np.errstate(all="ignore"):
        if "src_zero_points" in used:
            y = y - used["src_zero_points"]
        if "src_scales" in used:
            y = y * used["src_scales"]
        if factor != 1:
            y = y * y.dtype.type(factor)
        if attributes.sum is not None and old is not None:
            y = y + y.dtype.type(attributes.sum) * decode(old, dst, working)
        if "dst_scales" in used:
            y = y / used["dst_scales"]
        if "dst_zero_points" in used:
            y = y + used["dst_zero_points"]
        is_stochastic = attributes.rounding_mode == "stochastic"
        return encode(
            y, dst, stochastic_fractions(prod(codes.shape), seed).reshape(codes.shape) if is_stochastic else None
        )


def _broadcast(values: Numbers, dims: Dims) -> Numbers:
    """Return the value of each coordinate."""
    for axis, (count, n) in enumerate(zip(values.shape, dims, strict=True)):
        if 1 < count < n:
            values = np.repeat(values, n // count, axis)
    return np.broadcast_to(values, dims)


def working_type(src: DataType, dst: DataType, *, has_factor: bool = True) -> str:
    """Return the name of the working type between two types.

    Args:
        src: type of the source.
        dst: type of the destination.
        has_factor: whether the formula has a scale, a sum or scale_adjust. Without one, integers are computed exactly:
            those of 32 bits in f64.
    """
    names = {src.name, dst.name}
    is_exact = not has_factor and src.kind != "float" and dst.kind != "float"
    return "f64" if names & {"f64", "s64"} or (is_exact and "s32" in names) else "f32"


# Codes and numbers


_E8M0_BIAS, _E8M0_NAN = 127, 255


def decode(codes: Codes, data_type: DataType, working: str) -> Numbers:
    """Convert codes to numbers of the working type.

    A NaN keeps its sign and payload and is made quiet; only bf16 -> f32 changes no bit.
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
    values = np.ldexp(
        mantissas.astype(np.float64), np.maximum(fields, 1) - 1 + form.lowest_exponent - form.mantissa_bits
    )
    if form.overflow == "infinity":
        values[magnitudes > form.greatest_code] = np.inf
    signed = np.where(is_negative, -values, values).astype(number)
    is_nan = magnitudes > form.greatest_code + (form.overflow == "infinity")
    return np.where(is_nan, _nans(is_negative, magnitudes, data_type, working), signed)


def _integers(codes: Codes, data_type: DataType) -> npt.NDArray[np.integer[Any]]:
    """Convert codes of an integer type to integers."""
    if data_type.bits == 4:
        nibbles = codes.astype(np.int64) & 15
        return (nibbles ^ 8) - 8 if data_type.kind == "signed" else nibbles
    return np.ascontiguousarray(codes, f"u{data_type.itemsize}").view(data_type.dtype)


def _nans(is_negative: Any, magnitudes: Any, data_type: DataType, working: str) -> Numbers:
    """Return NaNs of the working type with the payloads of NaNs of a narrower type."""
    narrow, wide = FLOAT_FORMATS[data_type.name], FLOAT_FORMATS[working]
    payload = (magnitudes & (1 << narrow.mantissa_bits) - 1) << wide.mantissa_bits - narrow.mantissa_bits
    if narrow.overflow == "nan":
        payload = np.zeros_like(magnitudes)
    if (data_type.name, working) != ("bf16", "f32"):
        payload = payload | wide.quiet_bit
    bits = (payload | wide.exponent_mask).astype(f"u{wide.bits // 8}")
    bits |= is_negative.astype(bits.dtype) << bits.dtype.type(wide.bits - 1)
    nans: Numbers = bits.view(f"f{wide.bits // 8}")
    return nans


def encode(values: Numbers, data_type: DataType, fractions: Fractions = None) -> Codes:
    """Convert numbers to codes, rounded once: to nearest, ties to even, or stochastically.

    Numbers outside the range of an integer type are clamped first; the upper limit is the greatest integer of the range
    that the working type can represent (2147483520 for s32 from f32). NaN becomes 0. A NaN keeps its sign and the high
    bits of its payload in a float type; f4_e2m1 has no NaN and gets 6 with the sign. e8m0 keeps the exponent alone: it
    never rounds, drops the sign, and represents infinities as NaN.
    """
    if data_type.kind != "float":
        return _integer_codes(values, data_type, fractions)
    if values.dtype == data_type.dtype:
        return values.view(f"u{data_type.itemsize}")
    is_finite = np.isfinite(values)
    exact = np.abs(np.where(is_finite, values, 0)).astype(np.float64)
    mantissas, exponents = np.frexp(exact)
    if data_type.is_exponent:
        codes = np.where(mantissas == 0, 0, np.clip(exponents.astype(np.int64) - 1 + _E8M0_BIAS, 0, _E8M0_NAN))
        return np.where(is_finite, codes, _E8M0_NAN).astype(np.uint8)
    form = FLOAT_FORMATS[data_type.name]
    lead = np.maximum(
        np.where(mantissas == 0, form.lowest_exponent, exponents.astype(np.int64) - 1), form.lowest_exponent
    )
    steps = np.ldexp(exact, form.mantissa_bits - lead)
    magnitudes = (lead - form.lowest_exponent << form.mantissa_bits) + _round_steps(steps, fractions).astype(np.int64)
    magnitudes = np.where(is_finite, np.minimum(magnitudes, form.overflow_code), form.overflow_code)
    signs = np.signbit(values).astype(np.int64) << form.bits - 1
    codes = np.where(np.isnan(values), _nan_codes(values, data_type), magnitudes | signs)
    return codes.astype(f"u{data_type.itemsize}")


def _integer_codes(values: Numbers, data_type: DataType, fractions: Fractions) -> Codes:
    """Convert numbers to codes of an integer type."""
    digits = FLOAT_FORMATS[f"f{values.itemsize * 8}"].mantissa_bits + 1
    exact = np.where(np.isnan(values), 0, values).astype(np.float64)
    bits = int(data_type.highest + 1).bit_length() - 1
    highest = 2**bits - (2 ** (bits - digits) if bits > digits else 1)
    clamped = np.clip(exact, data_type.lowest, highest)
    whole = np.copysign(_round_steps(np.abs(clamped), fractions), clamped)
    codes = whole.astype(np.int64)
    return (codes & 15).astype(np.uint8) if data_type.bits == 4 else codes.astype(f"u{data_type.itemsize}")


def _round_steps(steps: npt.NDArray[np.float64], fractions: Fractions) -> npt.NDArray[np.float64]:
    """Round magnitudes to whole numbers: to nearest, ties to even, or stochastically."""
    if fractions is None:
        return np.rint(steps)
    below = np.floor(steps)
    return below + (steps - below >= 1 - fractions)


def _nan_codes(values: Numbers, data_type: DataType) -> npt.NDArray[np.int64]:
    """Return the codes of NaNs in a narrower type: sign, quiet bit, and the high bits of the payload."""
    form, wide = FLOAT_FORMATS[data_type.name], FLOAT_FORMATS[f"f{values.itemsize * 8}"]
    bits = values.view(f"u{values.itemsize}").astype(np.uint64)
    signs = (bits >> np.uint64(wide.bits - 1)).astype(np.int64) << form.bits - 1
    if form.overflow != "infinity":
        return signs | form.greatest_code + (form.overflow == "nan")
    payload = (bits & np.uint64((1 << wide.mantissa_bits) - 1)) >> np.uint64(wide.mantissa_bits - form.mantissa_bits)
    return signs | form.exponent_mask | form.quiet_bit | payload.astype(np.int64)


def stochastic_fractions(count: int, seed: int) -> npt.NDArray[np.float64]:
    """Return u of the first `count` elements in row-major order.

    >>> [int(u * 2**24) for u in stochastic_fractions(3, 1)]
    [5328424, 4034256, 3612612]
    """
    indices = np.arange(count, dtype=np.uint64).astype(np.uint32)
    return (_mix(_mix(indices) ^ np.uint32(seed)) >> np.uint32(8)) / 2.0**24


def _mix(hashed: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Hash 32-bit integers by MurmurHash3's finalizer: a bijection in which each bit depends on every bit."""
    hashed = (hashed ^ hashed >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ hashed >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return hashed ^ hashed >> np.uint32(16)


# Compensation


_SUM_FACTORS = {S8S8: -128, ASYMMETRIC_SRC: -1}


def write_compensation(desc: MemoryDesc, buffer: Bytes, codes: Codes) -> None:
    """Write the sums that the extras of `desc` require behind its elements, whose codes are passed."""
    sizes = desc.extras.buffer_sizes(desc.padded_dims)
    at = desc.size - sum(sizes.values())
    masks = {S8S8: desc.extras.compensation_mask, ASYMMETRIC_SRC: desc.extras.asymmetric_mask}
    for flag, nbytes in sizes.items():
        if prod(desc.dims):
            numbers = _channel_sums(desc, codes, masks[flag]) * _SUM_FACTORS[flag]
            buffer[at : at + nbytes] = numbers.astype(np.int32).ravel().view(np.uint8)
        at += nbytes


def _channel_sums(desc: MemoryDesc, codes: Codes, mask: int) -> npt.NDArray[np.int64]:
    """Return the sum of the weights of each channel; 0 for channels of padding."""
    kept = [axis for axis in range(desc.ndims) if mask >> axis & 1]
    others = tuple(axis for axis in range(desc.ndims) if axis not in kept)
    sums = np.zeros([desc.padded_dims[axis] for axis in kept], np.int64)
    weights = codes.astype(np.uint8).view(np.int8).reshape(codes.shape)
    sums[tuple(slice(desc.dims[axis]) for axis in kept)] = weights.sum(others, np.int64)
    return sums
