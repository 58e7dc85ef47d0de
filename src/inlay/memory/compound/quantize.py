"""Quantizers: the numbers of the streams from floats, block by block.

The rules are those of ggml's reference quantizers (`quantize_row_q4_0_ref` and following), in f32, operation by
operation, so that the bytes are equal:

    symmetric   scale = the element of largest magnitude / -zero; quant = floor(x / scale + zero + 0.5)
    affine      scale = (max - min) / levels, minimum = min;      quant = floor((x - min) / scale + 0.5)
    signed      scale = largest magnitude / 127;                  quant = x / scale, rounded half away from zero
    shared exponent   scale = 2 to the exponent of the largest magnitude, minus 2; quant = the nearest code

The quants are computed with the scale in f32; the scale is rounded to f16 afterwards.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.descriptor.compound_table import DOUBLED_E2M1, HALVED_E8M0

Floats: TypeAlias = npt.NDArray[np.float32]
Quantizer: TypeAlias = Callable[[Floats], Mapping[str, npt.NDArray[Any]]]
"""A function from blocks, an array of shape (blocks, elements), to the numbers of each stream in these blocks."""


def _reciprocal(scale: Floats) -> Floats:
    """Return 1 / scale, and 0 where the scale is 0."""
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _quantize_symmetric(zero: int, blocks: Floats) -> Mapping[str, npt.NDArray[Any]]:
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    scale = largest / np.float32(-zero)
    quants = np.trunc(blocks * _reciprocal(scale) + np.float32(zero + 0.5))
    return {"quants": _to_codes(quants, 2 * zero - 1), "scale": scale.astype(np.float16)}


def _quantize_affine(levels: int, blocks: Floats) -> Mapping[str, npt.NDArray[Any]]:
    low, high = blocks.min(axis=-1, keepdims=True), blocks.max(axis=-1, keepdims=True)
    scale = (high - low) / np.float32(levels)
    quants = np.trunc((blocks - low) * _reciprocal(scale) + np.float32(0.5))
    minimum = low.astype(np.float16)
    return {"quants": _to_codes(quants, levels), "scale": scale.astype(np.float16), "minimum": minimum}


def _to_codes(quants: Floats, most: int) -> npt.NDArray[np.uint8]:
    """Return whole numbers from 0 on as bytes, at most `most`."""
    return quants.astype(np.uint8).clip(0, most)


def _quantize_signed(blocks: Floats) -> Mapping[str, npt.NDArray[Any]]:
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    scaled = blocks * _reciprocal(scale)
    magnitude = np.abs(scaled)
    whole = np.floor(magnitude)
    rounded = whole + np.floor(2 * (magnitude - whole))
    quants = (np.sign(scaled) * rounded).astype(np.int8)
    return {"quants": quants, "scale": scale.astype(np.float16)}


def _quantize_shared_exponent(blocks: Floats) -> Mapping[str, npt.NDArray[Any]]:
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    exponent = np.where(largest > 0, np.floor(np.log2(largest)) - 2 + 127, 0).astype(np.uint8)
    scale = np.array(HALVED_E8M0, np.float32)[exponent]
    # A quotient halfway between two values becomes the one of the lower code, which is the smaller one. Scales are
    # powers of two, so the quotients are exact.
    magnitude, codes = np.abs(blocks) / scale, np.zeros(blocks.shape, np.uint8)
    for low, high in pairwise(DOUBLED_E2M1[: len(DOUBLED_E2M1) // 2]):
        codes += magnitude > np.float32((low + high) / 2)
    codes += np.uint8(len(DOUBLED_E2M1) // 2) * ((blocks < 0) & (codes > 0))
    return {"quants": codes, "scale": exponent}


QUANTIZERS: Mapping[str, Quantizer] = MappingProxyType(
    {
        "ggml:Q4_0": partial(_quantize_symmetric, 8),
        "ggml:Q4_1": partial(_quantize_affine, 15),
        "ggml:Q5_0": partial(_quantize_symmetric, 16),
        "ggml:Q5_1": partial(_quantize_affine, 31),
        "ggml:Q8_0": _quantize_signed,
        "ggml:MXFP4": _quantize_shared_exponent,
    }
)
"""The formats that floats are quantized to."""
