"""Pairs of oneDNN's own test of its reorder that compute on the way, and those of 4-bit types.

Scales, zero points, sums, and weights with sums of their own behind them (compensation), as benchdnn's files ask for
them; each group of pairs names its file. `benchmarks.values` says which values they are measured with. The last pairs
are ours: matrices that stay s4 while their blocks change, which nobody else has, and a format of 4-bit weights that
language models come in.
"""

from collections.abc import Sequence

from benchmarks.cases import Pair
from benchmarks.fitting import Tensor
from benchmarks.pairs import KERNELS, SQUARE
from inlay.descriptor import Extras
from inlay.reordering.attributes import Attributes, Scales, ZeroPoints

_IMAGES = Tensor((2, 64, 14, 14), ((0, 1),))
_ROWS = Tensor((1, 32, 128, 33), ((0, 1),), smaller=Tensor((1, 32, 64, 33), ((2, 1),)))
_GROUPED = Tensor((2, 32, 32, 3, 3), ((0, 1),))
_PER_CHANNEL = Attributes(src_scales=Scales(0b10))
_PER_OUTPUT = Attributes(src_scales=Scales(0b1))
_S8S8_OF_WEIGHTS = Extras(1, compensation_mask=0b1)

SCALED: Sequence[Pair] = (
    # test_reorder_all: a scale per channel, a sum
    Pair("nchw", "nchw", ("f32", "s8"), _IMAGES, "scales", attributes=_PER_CHANNEL),
    Pair("nhwc", "nchw", ("s8", "f32"), _IMAGES, "scales", attributes=_PER_CHANNEL),
    Pair("nchw", "nChw16c", ("f32", "s8"), _IMAGES, "scales", attributes=_PER_CHANNEL),
    Pair("nchw", "nChw16c", "f32", _IMAGES, "scales, sum 0.5", attributes=Attributes(Scales(0b10), sum=0.5)),
    # test_reorder_ci, harness_reorder_regression: zero points
    Pair(
        "nchw",
        "nhwc",
        ("f32", "u8"),
        _IMAGES,
        "scale, zero point",
        attributes=Attributes(Scales(), dst_zero_points=ZeroPoints()),
    ),
    Pair(
        "abdc",
        "abcd",
        ("u8", "f32"),
        _ROWS,
        "33 columns, zero point",
        attributes=Attributes(src_zero_points=ZeroPoints()),
    ),
    # harness_reorder_scales
    Pair("oihw", "Oihw16o", ("f32", "bf16"), KERNELS, "scales", attributes=_PER_OUTPUT),
    # harness_reorder_compensation
    Pair(
        "oihw", "OIhw4i16o4i", ("f32", "s8"), KERNELS, "scales, s8s8", attributes=_PER_OUTPUT, extras=_S8S8_OF_WEIGHTS
    ),
    Pair("oihw", "OIhw4i16o4i", "s8", KERNELS, "s8s8", extras=_S8S8_OF_WEIGHTS),
    Pair("goihw", "gOIhw4i16o4i", "s8", _GROUPED, "s8s8", extras=Extras(1, compensation_mask=0b11)),
    Pair("ba", "BA16a64b4a", "s8", SQUARE, "s8s8, zp", extras=Extras(9, compensation_mask=0b10, asymmetric_mask=0b10)),
)

_MATRIX = Tensor((1024, 1024), ((0, 64), (1, 64)))
_BY_EIGHT = Attributes(Scales(0b11, (8, 1)))
_BY_SIXTEEN = Attributes(Scales(0b11, (1, 16), "f16"))
_AFFINE = Attributes(Scales(0b11, (32, 1), "bf16"), src_zero_points=ZeroPoints(0b11, (32, 1), "u4"))

FOUR_BITS: Sequence[Pair] = (
    # test_reorder_int4
    Pair("abcd", "bacd", ("f32", "s4"), _IMAGES),
    Pair("bacd", "abcd", ("u4", "f32"), _IMAGES),
    Pair("ab", "ba", ("s4", "bf16"), _MATRIX),
    # harness_reorder_decompression
    Pair("ab", "ab", ("s4", "f32"), _MATRIX, "scales by 8x1", attributes=_BY_EIGHT),
    Pair("ab", "ba", ("u4", "f32"), _MATRIX, "scales by 1x16", attributes=_BY_SIXTEEN),
    # ours
    Pair("ab", "ab", ("u4", "bf16"), _MATRIX, "scales, zero points by 32x1", attributes=_AFFINE),
    Pair("ab", "BA16a64b", "s4", _MATRIX),
    Pair("ab", "BA8b8a", "s4", _MATRIX),
)
