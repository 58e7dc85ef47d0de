"""The pairs whose speed the project promises, each with its aim beyond the L3 in percent of the copy.

They are what networks pay for: blocking and unblocking activations, changing their axis order, packing weights for
vector and matrix instructions, transposes and conversions. Full transposes and the 5-D permutation are to reach 80 %,
everything else 85 %; none may be slower than oneDNN at any size, and beyond the L3 the geometric means of the ratios
to the peers are to be `MEANS`.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType

from benchmarks.cases import Pair
from benchmarks.fitting import PowersOfTwo, Tensor

COPY, TRANSPOSE = 85, 80

MEANS: Mapping[str, float] = MappingProxyType({"oneDNN": 2.5, "oneDNN 3.13": 2.5, "NumPy": 10, "torch": 4})
"""How many times faster than each peer the promised pairs are to be beyond the L3, in the geometric mean."""

IMAGES = Tensor((1, 256, 56, 56), ((0, 1),), smaller=Tensor((1, 80, 28, 28), ((1, 16),)))
RGB = Tensor((1, 3, 224, 224), ((0, 1),), smaller=Tensor((1, 3, 64, 64), ((3, 1),)))
KERNELS = Tensor((256, 256, 3, 3), ((0, 16), (1, 16)))
SQUARE = Tensor((1024, 1024), ((0, 64), (1, 64)))
_FIVE = Tensor((1, 16, 16, 32, 32), ((0, 1),), smaller=Tensor((4, 8, 8, 16, 16), ((4, 1),)))
_HEADS = Tensor((1, 512, 16, 64), ((0, 1),), smaller=Tensor((1, 512, 12, 64), ((1, 1),)))

ISSUE: Sequence[Pair] = (
    Pair("nchw", "nChw16c", "f32", IMAGES, aim=COPY),
    Pair("nChw16c", "nchw", "f32", IMAGES, aim=COPY),
    *(Pair("nchw", "nhwc", data_type, IMAGES, aim=COPY) for data_type in ("f32", "bf16", "u8")),
    *(Pair("nhwc", "nchw", data_type, IMAGES, aim=COPY) for data_type in ("f32", "bf16", "u8")),
    *(
        Pair(*tags, data_type, RGB, "RGB", COPY)
        for tags, data_type in product((("nchw", "nhwc"), ("nhwc", "nchw")), ("f32", "u8"))
    ),
    Pair("nchw", "nChw8c", "f32", Tensor((1, 17, 56, 56), ((0, 1),)), "17 channels", COPY),
    Pair("nChw8c", "nChw16c", "f32", IMAGES, aim=COPY),
    Pair("oihw", "OIhw16i16o", "f32", KERNELS, aim=COPY),
    Pair("oihw", "OIhw4i16o4i", "s8", KERNELS, aim=COPY),
    Pair("ab", "BA16a64b4a", "s8", SQUARE, aim=COPY),
    Pair("ab", "BA16a64b2a", "bf16", SQUARE, aim=COPY),
    Pair("ba", "BA16a64b2a", "bf16", SQUARE, aim=COPY),
    *(Pair("ab", "ba", data_type, PowersOfTwo(), aim=TRANSPOSE) for data_type in ("f32", "bf16", "u8")),
    Pair("ab", "ba", "f32", Tensor((5000, 3000), ((0, 40), (1, 24))), "5000 x 3000", TRANSPOSE),
    Pair("abcde", "cdeba", "f32", _FIVE, aim=TRANSPOSE),
    Pair("abcd", "acbd", "bf16", _HEADS, "heads", COPY),
    Pair("nchw", "nchw", ("f32", "bf16"), IMAGES, aim=COPY),
    Pair("nchw", "nhwc", ("f32", "s8"), IMAGES, aim=COPY),
    Pair("nhwc", "nchw", ("u8", "f32"), RGB, "RGB", COPY),
)
"""The table that the aims were set for."""
