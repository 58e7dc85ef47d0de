"""Values of quantized blocks, computed element by element as the C code of ggml and KleidiAI does.

Each function returns the values of one block of bytes as float32; arithmetic is that of NumPy's float32 scalars.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import numpy.typing as npt

F32 = np.float32
Block = Sequence[int]
FP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def half(block: Block, at: int) -> np.float32:
    return F32(np.frombuffer(bytes(block[at : at + 2]), np.float16)[0])


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def e8m0_half(code: int) -> np.float32:
    return F32(math.ldexp(1.0, code - 128))


def ue4m3(code: int) -> np.float32:
    exponent, mantissa = code >> 3 & 15, code & 7
    if code in (0, 127):
        return F32(0)
    value = math.ldexp(mantissa, -9) if not exponent else math.ldexp(1 + mantissa / 8, exponent - 7)
    return F32(value * 0.5)


def low_high(block: Block, at: int) -> list[int]:
    """The 32 nibbles of 16 bytes: all low ones, then all high ones."""
    return [b & 15 for b in block[at : at + 16]] + [b >> 4 for b in block[at : at + 16]]


def fifth_bits(block: Block, at: int) -> list[int]:
    word = int.from_bytes(bytes(block[at : at + 4]), "little")
    return [(word >> i & 1) << 4 for i in range(32)]


def q4_0(b: Block) -> list[np.float32]:
    return [half(b, 0) * F32(q - 8) for q in low_high(b, 2)]


def q4_1(b: Block) -> list[np.float32]:
    return [half(b, 0) * F32(q) + half(b, 2) for q in low_high(b, 4)]


def q5_0(b: Block) -> list[np.float32]:
    return [half(b, 0) * F32((q | h) - 16) for q, h in zip(low_high(b, 6), fifth_bits(b, 2), strict=True)]


def q5_1(b: Block) -> list[np.float32]:
    return [half(b, 0) * F32(q | h) + half(b, 2) for q, h in zip(low_high(b, 8), fifth_bits(b, 4), strict=True)]


def q8_0(b: Block) -> list[np.float32]:
    return [half(b, 0) * F32(signed(q)) for q in b[2:34]]


def iq4_nl(b: Block) -> list[np.float32]:
    return [half(b, 0) * F32(IQ4[q]) for q in low_high(b, 2)]


def mxfp4(b: Block) -> list[np.float32]:
    return [e8m0_half(b[0]) * F32(FP4[q]) for q in low_high(b, 1)]


def nvfp4(b: Block) -> list[np.float32]:
    values = []
    for group in range(4):
        data = b[4 + 8 * group : 12 + 8 * group]
        values += [ue4m3(b[group]) * F32(FP4[q]) for q in [*(d & 15 for d in data), *(d >> 4 for d in data)]]
    return values


def q2_k(b: Block) -> list[np.float32]:
    d, dmin, values = half(b, 80), half(b, 82), []
    for i in range(256):
        run, shift, byte = i // 128, i % 128 // 32 * 2, i % 32
        q = b[16 + 32 * run + byte] >> shift & 3
        scale = b[i // 16]
        values.append(d * F32(scale & 15) * F32(q) - dmin * F32(scale >> 4))
    return values


def q3_k(b: Block) -> list[np.float32]:
    values = []
    for i in range(256):
        run, shift, byte, group = i // 128, i % 128 // 32 * 2, i % 32, i // 16
        low = b[32 + 32 * run + byte] >> shift & 3
        q = low - (0 if b[byte] >> (i // 32) & 1 else 4)
        scale = (b[96 + group % 8] >> (4 * (group // 8)) & 15) | (b[104 + group % 4] >> (2 * (group // 4)) & 3) << 4
        values.append(half(b, 108) * F32(scale - 32) * F32(q))
    return values


def scale_min(j: int, q: Block) -> tuple[int, int]:
    """`get_scale_min_k4` of ggml."""
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def q45_k(b: Block, quants_at: int, high_at: int | None) -> list[np.float32]:
    values = []
    for i in range(256):
        scale, minimum = scale_min(i // 32, b[4:16])
        q = b[quants_at + 32 * (i // 64) + i % 32] >> (4 * (i // 32 % 2)) & 15
        if high_at is not None:
            q += 16 * (b[high_at + i % 32] >> (i // 32) & 1)
        values.append(half(b, 0) * F32(scale) * F32(q) - half(b, 2) * F32(minimum))
    return values


def q4_k(b: Block) -> list[np.float32]:
    return q45_k(b, 16, None)


def q5_k(b: Block) -> list[np.float32]:
    return q45_k(b, 48, 16)


def q6_k(b: Block) -> list[np.float32]:
    values = []
    for i in range(256):
        run, part, byte = i // 128, i % 128 // 32, i % 32
        low = b[64 * run + 32 * (part % 2) + byte] >> (4 * (part // 2)) & 15
        high = b[128 + 32 * run + byte] >> (2 * part) & 3
        values.append(half(b, 208) * F32(signed(b[192 + i // 16])) * F32((low | high << 4) - 32))
    return values


def iq4_xs(b: Block) -> list[np.float32]:
    high, values = b[2] | b[3] << 8, []
    for i in range(256):
        group = i // 32
        scale = (b[4 + group // 2] >> (4 * (group % 2)) & 15) | (high >> (2 * group) & 3) << 4
        q = b[8 + 16 * group + i % 16] >> (4 * (i % 32 // 16)) & 15
        values.append(half(b, 0) * F32(scale - 32) * F32(IQ4[q]))
    return values


BLOCKS: Mapping[str, tuple[int, Callable[[Block], list[np.float32]]]] = {
    "ggml:Q4_0": (18, q4_0),
    "ggml:Q4_1": (20, q4_1),
    "ggml:Q5_0": (22, q5_0),
    "ggml:Q5_1": (24, q5_1),
    "ggml:Q8_0": (34, q8_0),
    "ggml:IQ4_NL": (18, iq4_nl),
    "ggml:MXFP4": (17, mxfp4),
    "ggml:NVFP4": (36, nvfp4),
    "ggml:Q2_K": (84, q2_k),
    "ggml:Q3_K": (110, q3_k),
    "ggml:Q4_K": (144, q4_k),
    "ggml:Q5_K": (176, q5_k),
    "ggml:Q6_K": (210, q6_k),
    "ggml:IQ4_XS": (136, iq4_xs),
}
"""For each format, the bytes of a block and the values of its elements."""


def kleidi_packed(
    quants: npt.NDArray[np.int8],
    scales: npt.NDArray[np.generic],
    rows: int,
    bias: npt.NDArray[np.float32],
) -> bytes:
    """The right-hand side of int4 as KleidiAI packs it in segments of 8 bytes; scales of bf16 bring sums and bias."""
    has_footer = scales.dtype == ml_dtypes.bfloat16
    n, k = quants.shape
    packed = bytearray()
    for first in range(0, n, rows):
        chosen = [min(first + i, n - 1) for i in range(rows)]
        sums = [F32(0)] * rows
        for block in range(k // 32):
            scale_bytes = b"".join(scales[row, block].tobytes() for row in chosen)
            data = bytearray()
            for segment in range(2):
                for i, row in enumerate(chosen):
                    part = quants[row, 32 * block : 32 * block + 32].tolist()
                    low, high = part[8 * segment : 8 * segment + 8], part[16 + 8 * segment : 24 + 8 * segment]
                    data += bytes(x & 15 | (y & 15) << 4 for x, y in zip(low, high, strict=True))
                    sums[i] = sums[i] + F32(sum(low) + sum(high)) * F32(scales[row, block])
            packed += data + scale_bytes if has_footer else scale_bytes + data
        if has_footer:
            packed += np.array(sums, np.float32).tobytes()
            packed += np.array([bias[row] for row in chosen], np.float32).tobytes()
    return bytes(packed)
