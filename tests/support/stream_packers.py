"""Packers of quantized blocks, written byte by byte as ggml and cuBLAS describe them; they share no code with Inlay."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracles.quantized_blocks import kleidi_packed

Arrays = Mapping[str, npt.NDArray[Any]]
Specs = dict[str, tuple[str, tuple[int, ...]]]


def q4_0(arrays: Arrays) -> bytes:
    out = bytearray()
    for row, scales in zip(arrays["qs"], arrays["d"], strict=True):
        for block in range(len(scales)):
            q = row[32 * block : 32 * block + 32].tolist()
            out += scales[block].tobytes() + bytes(q[i] | q[i + 16] << 4 for i in range(16))
    return bytes(out)


def q5_0(arrays: Arrays) -> bytes:
    out = bytearray()
    for row, scales in zip(arrays["qs"], arrays["d"], strict=True):
        for block in range(len(scales)):
            q = row[32 * block : 32 * block + 32].tolist()
            high = sum((q[i] >> 4) << i for i in range(32))
            low = bytes(q[i] & 15 | (q[i + 16] & 15) << 4 for i in range(16))
            out += scales[block].tobytes() + high.to_bytes(4, "little") + low
    return bytes(out)


def q4_k(arrays: Arrays) -> bytes:
    out = bytearray()
    for row in range(len(arrays["qs"])):
        for block in range(arrays["d"].shape[1]):
            q = arrays["qs"][row, 256 * block : 256 * block + 256].tolist()
            s = arrays["sc"][row, 8 * block : 8 * block + 8].tolist()
            m = arrays["mn"][row, 8 * block : 8 * block + 8].tolist()
            packed = [s[j] | (s[j + 4] >> 4) << 6 for j in range(4)]
            packed += [m[j] | (m[j + 4] >> 4) << 6 for j in range(4)]
            packed += [s[j + 4] & 15 | (m[j + 4] & 15) << 4 for j in range(4)]
            out += arrays["d"][row, block].tobytes() + arrays["dmin"][row, block].tobytes() + bytes(packed)
            for run in range(0, 256, 64):
                out += bytes(q[run + i] | q[run + 32 + i] << 4 for i in range(32))
    return bytes(out)


def q6_k(arrays: Arrays) -> bytes:
    out = bytearray()
    for row in range(len(arrays["qs"])):
        for block in range(arrays["d"].shape[1]):
            q = arrays["qs"][row, 256 * block : 256 * block + 256].tolist()
            low, high = bytearray(), bytearray()
            for half in (0, 128):
                for i in range(64):
                    low.append(q[half + i] & 15 | (q[half + 64 + i] & 15) << 4)
                for i in range(32):
                    high.append(sum((q[half + 32 * k + i] >> 4) << 2 * k for k in range(4)))
            scales = arrays["sc"][row, 16 * block : 16 * block + 16].tobytes()
            out += low + high + scales + arrays["d"][row, block].tobytes()
    return bytes(out)


def nvfp4(arrays: Arrays) -> bytes:
    q, scales = arrays["w"], arrays["sf"]
    out = bytearray((q[:, 0::2] | q[:, 1::2] << 4).tobytes())
    rows, columns = scales.shape
    tiles = bytearray(rows * columns)
    for m in range(rows):
        for k in range(columns):
            at = (m // 128 * (columns // 4) + k // 4) * 512 + m % 32 * 16 + m % 128 // 32 * 4 + k % 4
            tiles[at] = scales[m, k].tobytes()[0]
    return bytes(out + tiles)


def kleidi(arrays: Arrays) -> bytes:
    with np.errstate(all="ignore"):  # scales of any bits are NaN too
        return kleidi_packed(arrays["w"], arrays["s"], 4, np.zeros(len(arrays["w"]), np.float32))


PACKERS: dict[str, tuple[Callable[[Arrays], bytes], tuple[int, ...], Specs]] = {
    "ggml:Q4_0": (q4_0, (2, 96), {"qs": ("u4", (2, 96)), "d": ("f16", (2, 3))}),
    "ggml:Q5_0": (q5_0, (3, 64), {"d": ("f16", (3, 2)), "qs": ("u5", (3, 64))}),
    "ggml:Q4_K": (
        q4_k,
        (2, 512),
        {
            "qs": ("u4", (2, 512)),
            "sc": ("u6", (2, 16)),
            "mn": ("u6", (2, 16)),
            "d": ("f16", (2, 2)),
            "dmin": ("f16", (2, 2)),
        },
    ),
    "ggml:Q6_K": (q6_k, (1, 512), {"qs": ("u6", (1, 512)), "sc": ("s8", (1, 32)), "d": ("f16", (1, 2))}),
    "nvidia:NVFP4_128x4": (nvfp4, (128, 128), {"w": ("u4", (128, 128)), "sf": ("f8_e4m3", (128, 8))}),
    "kleidiai:qsi4c32p4x8_f16": (kleidi, (8, 64), {"w": ("s4", (8, 64)), "s": ("f16", (8, 2))}),
}
"""Packer, dims and streams of formats in the table."""


def repeated_blocks(
    arrays: Arrays, order: tuple[int, ...], split: int, block_bits: int, header: int, numbers: int
) -> bytes:
    """Pack `q` of 4 bits and `s` of 8 bits: block k holds its numbers of `q`, in an order of their own, then its `s`.

    Number i of `q` is at bit `header + order[i] * split`, the bits of `s` are the last ones of the block.
    """
    q, s = arrays["q"].reshape(-1, numbers), arrays["s"].reshape(-1)
    total = 0
    for k, (row, scale) in enumerate(zip(q.tolist(), s.tolist(), strict=True)):
        start = k * block_bits
        for i, number in enumerate(row):
            total |= number << start + header + order[i] * split
        total |= scale << start + block_bits - 8
    return total.to_bytes(len(q) * block_bits // 8, "little")
