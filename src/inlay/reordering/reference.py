"""A reorder, coordinate by coordinate: what the compiled one must equal, bit for bit.

Every coordinate is taken by itself. Its digits give the offset in the source and in the destination, its element is
read, converted, and written; coordinates of padding are written as zeros; no other bit of the destination changes.
The arithmetic is this file's own: it reads `desc.digits` and nothing of `Layout`, and shares no code with the
compiler, so a mistake in either shows as a difference.

An element is a code, the unsigned integer of its bits. A move to the same type copies codes, so every NaN keeps its
payload and -0.0 its sign. A conversion goes through f32: integers are clamped to the range of the destination, then
rounded half to even; NaN becomes the integer 0, and stays NaN between floats: sign and the top of the payload are kept,
and it is made quiet (bf16 -> f32 alone changes no bit).

    code of src -> f32 -> clamp, round -> code of dst

Source: oneDNN, reorder primitive; s32 clamps to 2147483520, the greatest f32 below 2**31.
"""

from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented

Bytes: TypeAlias = npt.NDArray[np.uint8]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Offsets: TypeAlias = npt.NDArray[np.int64]

CONVERTED = frozenset({"f32", "bf16", "f16", "s8", "u8", "s32"})
"""The types that are converted; any type moves unchanged to itself."""

_GREATEST_S32 = 2147483520.0


def reference_reorder(src: MemoryDesc, src_buffer: Bytes, dst: MemoryDesc, dst_buffer: Bytes) -> None:
    """Write the tensor that `src` describes in `src_buffer` into `dst_buffer`, as `dst` describes.

    Both buffers are arrays of bytes that hold the whole span of their layout from element 0 on.

    Post-conditions:
        For every coordinate x < dims, the element of dst at x is the element of src at x, converted.
        For every other coordinate x < dst.padded_dims, the element of dst at x is zero.
        Every other bit of `dst_buffer`, and all of `src_buffer`, is unchanged.

    Raises:
        InvalidArguments: the dims differ, or a descriptor has no layout.
        Unimplemented: no conversion exists between the types.

    >>> src, dst = MemoryDesc((3,), "u8", "a"), MemoryDesc((3,), "u8", "A4a")
    >>> packed = np.full(6, 99, np.uint8)
    >>> reference_reorder(src, np.array([1, 2, 3], np.uint8), dst, packed)
    >>> packed.tolist()
    [1, 2, 3, 0, 99, 99]
    """
    if src.dims != dst.dims:
        raise InvalidArguments(f"a reorder keeps the dims: source {src.dims}, destination {dst.dims}")
    src_type, dst_type = src.require_layout("reorder")[1], dst.require_layout("reorder")[1]
    write_codes(dst, dst_buffer, convert(read_codes(src, src_buffer), src_type, dst_type))


def read_codes(desc: MemoryDesc, buffer: Bytes) -> Codes:
    """The code of every element, in an array of shape `desc.dims`.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> read_codes(MemoryDesc((2, 2), "s4", "ba"), np.array([0x21, 0x43], np.uint8)).tolist()
    [[1, 3], [2, 4]]
    """
    _, data_type = desc.require_layout("read_codes")
    return _read(buffer, _offsets(desc, desc.dims), data_type.bits).reshape(desc.dims)


def write_codes(desc: MemoryDesc, buffer: Bytes, codes: Codes) -> None:
    """Set every element to its code, from an array of shape `desc.dims`, and every element of padding to zero.

    Raises:
        InvalidArguments: `desc` has no layout.

    >>> buffer = np.full(2, 0xFF, np.uint8)
    >>> write_codes(MemoryDesc((3,), "u4", "a"), buffer, np.array([1, 2, 3], np.uint8))
    >>> [hex(byte) for byte in buffer]
    ['0x21', '0xf3']
    """
    _, data_type = desc.require_layout("write_codes")
    stored = _offsets(desc, desc.padded_dims)
    _write(buffer, stored, np.zeros(stored.size, np.uint64), data_type.bits)
    _write(buffer, _offsets(desc, desc.dims), codes.ravel(), data_type.bits)


def _offsets(desc: MemoryDesc, dims: tuple[int, ...]) -> Offsets:
    """The offset of every coordinate below `dims`, in elements from the start of the buffer, in row-major order."""
    total = np.full(dims, desc.offset0, np.int64)
    for i, (n, (lead, *inner)) in enumerate(zip(dims, desc.digits, strict=True)):
        rest = np.arange(n)
        along = np.zeros(n, np.int64)
        for digit in reversed(inner):
            along += rest % digit.extent * digit.stride
            rest //= digit.extent
        along += rest * lead.stride
        total += along.reshape([-1 if j == i else 1 for j in range(len(dims))])
    return total.ravel()


def _read(buffer: Bytes, offsets: Offsets, bits: int) -> Codes:
    """The codes of the elements at `offsets`."""
    if bits == 4:
        low = buffer[offsets // 2]
        return np.where(offsets % 2 == 1, low >> 4, low & 15)
    width = bits // 8
    gathered = buffer[offsets[:, None] * width + np.arange(width)]
    return np.ascontiguousarray(gathered).view(f"u{width}").ravel()


def _write(buffer: Bytes, offsets: Offsets, codes: Codes, bits: int) -> None:
    """Set the elements at `offsets` to `codes` and leave every other bit."""
    if bits == 4:
        # The two elements of a byte take turns: one assignment would keep only the later of them.
        for half in (0, 1):
            chosen = offsets % 2 == half
            where, kept = offsets[chosen] // 2, 15 << 4 * (1 - half)
            buffer[where] = buffer[where] & kept | codes[chosen].astype(np.uint8) << 4 * half
        return
    width = bits // 8
    buffer[offsets[:, None] * width + np.arange(width)] = codes.astype(f"u{width}")[:, None].view(np.uint8)


def convert(codes: Codes, src: DataType, dst: DataType) -> Codes:
    """The codes of the values of `codes` in another type.

    Raises:
        Unimplemented: no conversion exists between the types.

    >>> from inlay.data_type import DATA_TYPES
    >>> values = np.array([2.5, -1, 300], np.float32)
    >>> convert(values.view(np.uint32), DATA_TYPES["f32"], DATA_TYPES["u8"]).tolist()
    [2, 0, 255]
    """
    if src == dst:
        return codes
    if not {src.name, dst.name} <= CONVERTED:
        raise Unimplemented(f"no conversion {src} -> {dst}: conversions exist among {', '.join(sorted(CONVERTED))}")
    values = _as_f32(codes, src)
    converted = _to_float(values, dst) if dst.kind == "float" else _to_integer(values, dst)
    return converted.view(f"u{dst.itemsize}")


def _as_f32(codes: Codes, src: DataType) -> npt.NDArray[np.float32]:
    if src.name == "bf16":
        # The upper half of an f32, NaNs included.
        return (codes.astype(np.uint32) << 16).view(np.float32)
    values = codes.astype(f"u{src.itemsize}").view(src.numpy).astype(np.float32)
    # The quiet bit of an f32: widening an f16 sets it, as every processor does.
    return np.where(np.isnan(values), (values.view(np.uint32) | 1 << 22).view(np.float32), values)


def _to_integer(values: npt.NDArray[np.float32], dst: DataType) -> npt.NDArray[Any]:
    highest = _GREATEST_S32 if dst.name == "s32" else dst.highest
    clamped = np.clip(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), dst.lowest, highest)
    return np.rint(clamped).astype(dst.numpy)


def _to_float(values: npt.NDArray[np.float32], dst: DataType) -> npt.NDArray[Any]:
    if dst.name == "f32":
        return values
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = values.astype(dst.numpy).view(np.uint16)
    return np.where(np.isnan(values), _quiet_nan(values.view(np.uint32), dst), rounded)


def _quiet_nan(bits: npt.NDArray[np.uint32], dst: DataType) -> npt.NDArray[np.uint16]:
    """NaNs in 16 bits: the sign, the quiet bit, and as much of the payload as fits, from the top."""
    sign, exponent, quiet, drop = (0x8000, 0x7F80, 0x40, 16) if dst.name == "bf16" else (0x8000, 0x7C00, 0x200, 13)
    payload = (bits & 0x7FFFFF) >> drop
    return (bits >> 16 & sign | exponent | quiet | payload).astype(np.uint16)


def stored_bytes(desc: MemoryDesc, nbytes: int) -> npt.NDArray[np.uint8]:
    """A mask of `nbytes` bytes: the bits that belong to elements or padding of `desc`; the others are never touched.

    >>> stored_bytes(MemoryDesc((3,), "u8", strides=(2,)), 6).tolist()
    [255, 0, 255, 0, 255, 0]
    """
    mask = np.zeros(nbytes, np.uint8)
    _, data_type = desc.require_layout("stored_bytes")
    offsets = _offsets(desc, desc.padded_dims)
    _write(mask, offsets, np.full(prod(desc.padded_dims), 2**data_type.bits - 1, np.uint64), data_type.bits)
    return mask
