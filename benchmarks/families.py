"""Pairs of oneDNN's own test of its reorder, family by family: nobody can say that the cases were chosen to suit us.

Formats, types and dims are those that its driver benchdnn reads from `tests/benchdnn/inputs/reorder`; each group of
pairs names its file. Since those tensors are small, axes grow until a size is reached, and those of a kernel or of a
tail (17, 56 or 65 channels) do not. Weights of RNN have the formats of oneDNN's RNN primitives and the dims of
`inputs/rnn`. What those files ask of attributes (scales, zero points, sums, compensation) is in `quantization`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from benchmarks.cases import Case, Pair, Size, cases_of
from benchmarks.fitting import Tensor
from benchmarks.pairs import IMAGES, ISSUE, KERNELS, SQUARE
from benchmarks.quantization import FOUR_BITS, SCALED


def _batches(*dims: int) -> Tensor:
    """So many of these."""
    return Tensor(dims, ((0, 1),))


def _kernels(*dims: int, step: int = 16) -> Tensor:
    """Weights `oi...` of which both channels grow."""
    return Tensor(dims, ((0, step), (1, step)))


def _groups(*dims: int) -> Tensor:
    """Weights `goi...` of which the groups grow."""
    return Tensor(dims, ((0, 1),))


_VOLUMES = Tensor((2, 64, 31, 32, 16), ((0, 1),), smaller=Tensor((1, 64, 4, 32, 16), ((2, 1),)))
_SMALL_VOLUMES = Tensor((2, 64, 15, 10, 20), ((0, 1),), smaller=Tensor((1, 64, 3, 10, 20), ((2, 1),)))
_DEEP = Tensor((1, 2048, 14, 14), ((0, 1),), smaller=Tensor((1, 512, 14, 14), ((1, 64),)))
_ROWS = Tensor((1, 32, 128, 33), ((0, 1),), smaller=Tensor((1, 32, 64, 33), ((2, 1),)))
_DEPTHWISE = Tensor((512, 1, 1, 3, 3), ((0, 16),))
_LSTM = Tensor((1, 1, 1024, 4, 1024), ((2, 32), (4, 32)))
_PROJECTION = Tensor((1, 1, 1024, 512), ((2, 32), (3, 32)))

ACTIVATIONS: Sequence[Pair] = (
    # test_reorder_all, test_reorder_bfloat16
    *(Pair(*tags, t, IMAGES) for tags in (("nchw", "nChw16c"), ("nChw16c", "nchw")) for t in ("bf16", "u8")),
    Pair("nchw", "nChw8c", "f32", _batches(2, 64, 3, 3), "3 x 3"),
    Pair("nChw8c", "nchw", "f32", _batches(2, 64, 14, 14)),
    Pair("nhwc", "nChw16c", "f32", _batches(2, 64, 14, 14)),
    Pair("nChw16c", "nhwc", "u8", _batches(2, 64, 14, 14)),
    Pair("nChw4c", "nChw16c", "f32", _batches(2, 40, 3, 3), "40 channels"),
    Pair("nChw16c", "nChw8c", "f32", _batches(2, 71, 16, 16), "71 channels"),
    Pair("nchw", "nChw16c", "bf16", _batches(2, 56, 14, 14), "56 channels"),
    Pair("nchw", "nhwc", "s32", _batches(2, 64, 3, 3), "3 x 3"),
    # test_reorder_ci, the plain transposes; test_reorder_float8; test_reorder_float16
    Pair("ncw", "nwc", "f32", _batches(1, 512, 101)),
    Pair("nchw", "nhwc", "f32", _batches(1, 4, 84, 84), "4 channels"),
    Pair("nhwc", "nchw", "f32", _batches(1, 4, 84, 84), "4 channels"),
    Pair("ncdhw", "ndhwc", "f32", _SMALL_VOLUMES),
    Pair("ndhwc", "ncdhw", "f32", _VOLUMES),
    Pair("abcd", "acdb", "f8_e5m2", _DEEP),
    Pair("nchw", "nChw16c", "f16", _batches(2, 64, 14, 14)),
)

WEIGHTS: Sequence[Pair] = (
    # test_default, test_reorder_all
    *(Pair("oihw", "OIhw16i16o", data_type, KERNELS) for data_type in ("bf16", "u8")),
    Pair("oihw", "hwio", "f32", _kernels(64, 64, 3, 3)),
    Pair("hwio", "OIhw4i16o4i", "s8", _kernels(32, 32, 3, 3)),
    # harness_reorder_amx
    Pair("oihw", "OIhw16i16o2i", ("f32", "bf16"), _kernels(64, 128, 3, 3)),
    Pair("oihw", "OIhw16i64o2i", ("f32", "bf16"), _kernels(64, 128, 3, 3, step=64)),
    Pair("OIhw16i64o2i", "oihw", ("bf16", "f32"), _kernels(64, 128, 3, 3, step=64)),
    Pair("oihw", "OIhw16i48o4i", ("f32", "s8"), _kernels(24, 256, 3, 3, step=8), "24 channels"),
    Pair("oihw", "OIhw16i64o4i", ("f32", "s8"), _kernels(64, 128, 3, 3, step=64)),
    Pair("OIhw16i16o4i", "oihw", ("s8", "f32"), _kernels(64, 128, 3, 3)),
    Pair("oihw", "OhwI16o4i", ("f32", "s8"), Tensor((64, 3, 7, 7), ((0, 16),)), "3 x 7 x 7"),
    Pair("oidhw", "OIdhw16i16o2i", ("f32", "bf16"), _kernels(64, 128, 3, 3, 3)),
    Pair("oiw", "OIw16i32o4i", ("f32", "s8"), _kernels(64, 128, 3, step=32)),
    # harness_reorder_compensation, without the compensation
    Pair("oihw", "OIhw4i64o4i", "s8", _kernels(80, 24, 3, 5, step=8), "80 x 24 x 3 x 5"),
    Pair("oihw", "OIhw4i32o4i", "s8", _kernels(32, 32, 3, 3, step=32)),
    Pair("oihw", "OIhw2i8o4i", "s8", _kernels(32, 32, 3, 3)),
    Pair("oihw", "Owhi16o", "s8", _kernels(32, 32, 3, 3)),
)

MATRICES: Sequence[Pair] = (
    # test_reorder_all: blocked B of matmul
    Pair("ab", "BA16a16b", "f32", Tensor((89, 73), ((0, 1), (1, 1))), "89 x 73"),
    Pair("ab", "BA16a48b", "f32", Tensor((96, 96), ((0, 48), (1, 48)))),
    Pair("ba", "BA16a64b", "f32", SQUARE),
    Pair("BA16a64b", "ab", "f32", SQUARE),
    Pair("abc", "aCB16b64c", "f32", _batches(57, 89, 73), "89 x 73"),
    Pair("ab", "AB16b16a2b", "bf16", Tensor((16, 63), ((0, 16),)), "63 columns"),
    # harness_reorder_amx
    Pair("ab", "BA16a32b2a", ("f32", "bf16"), SQUARE),
    Pair("ba", "BA16a64b2a", ("f32", "bf16"), SQUARE),
    Pair("BA16a64b2a", "ab", ("bf16", "f32"), SQUARE),
    Pair("ab", "BA16a48b4a", ("f32", "s8"), Tensor((192, 192), ((0, 192), (1, 192)), smaller=SQUARE)),
    # harness_reorder_compensation, without the compensation
    Pair("ba", "BA16a64b4a", "s8", SQUARE),
    Pair("acb", "aCB16b64c4b", "s8", _batches(64, 64, 64)),
    # test_reorder_ci
    Pair("ab", "ba", "f32", Tensor((7, 65), ((0, 1),)), "65 columns"),
)

QUANTIZED: Sequence[Pair] = (
    # test_reorder_all
    Pair("nchw", "nchw", ("f32", "s8"), _batches(2, 64, 3, 3), "3 x 3"),
    Pair("nhwc", "nchw", ("s8", "f32"), _batches(2, 64, 14, 14)),
    Pair("nchw", "nhwc", ("f32", "u8"), _batches(2, 64, 14, 14)),
    Pair("nchw", "nChw16c", ("f32", "s8"), _batches(2, 64, 14, 14)),
    Pair("nChw16c", "nchw", ("s8", "f32"), _batches(2, 64, 14, 14)),
    Pair("nchw", "nhwc", ("s32", "s8"), _batches(2, 64, 14, 14)),
    Pair("nhwc", "nChw16c", ("u8", "s32"), _batches(2, 64, 14, 14)),
    # harness_reorder_regression, test_reorder_ci
    Pair("abdc", "abcd", ("u8", "f32"), _ROWS, "33 columns"),
    Pair("adbc", "abcd", ("s8", "f32"), _batches(1, 12, 128, 33), "33 columns"),
    # test_reorder_bfloat16, test_reorder_float16
    Pair("nchw", "nChw16c", ("f32", "bf16"), _batches(2, 64, 14, 14)),
    Pair("nChw16c", "nchw", ("bf16", "f32"), _batches(2, 56, 14, 14), "56 channels"),
    Pair("nchw", "nChw16c", ("s8", "bf16"), _batches(2, 64, 14, 14)),
    Pair("nChw16c", "nchw", ("bf16", "u8"), _batches(2, 64, 14, 14)),
    Pair("nhwc", "nChw16c", ("f32", "f16"), _batches(2, 64, 14, 14)),
    Pair("nChw16c", "nhwc", ("f16", "f32"), _batches(2, 64, 14, 14)),
    # test_reorder_float8
    Pair("nchw", "nChw16c", ("f32", "f8_e4m3"), _batches(2, 64, 14, 14)),
    Pair("nChw16c", "nchw", ("f8_e5m2", "f32"), _batches(2, 64, 14, 14)),
)

GROUPED: Sequence[Pair] = (
    # test_reorder_all, test_default
    Pair("goihw", "gOIhw16i16o", "f32", _groups(3, 32, 32, 2, 2), "2 x 2"),
    Pair("hwigo", "gOIhw4i16o4i", "s8", _groups(2, 32, 32, 3, 3)),
    Pair("hwigo", "gOIhw4o4i", "s8", _groups(2, 36, 36, 3, 3), "36 channels"),
    Pair("goihw", "gOIhw2i8o4i", "s8", _groups(2, 40, 40, 3, 3), "40 channels"),
    Pair("goihw", "hwigo", "s8", _groups(2, 32, 32, 3, 3)),
    Pair("hwigo", "Goihw16g", "s8", _DEPTHWISE, "depthwise"),
    Pair("goihw", "Goihw8g", "f32", _DEPTHWISE, "depthwise"),
    Pair("Goihw16g", "goihw", "f32", _DEPTHWISE, "depthwise"),
    # test_reorder_bfloat16
    Pair("goihw", "gOIhw8i16o2i", "bf16", _groups(2, 64, 64, 3, 3)),
    Pair("goihw", "gOIhw8o16i2o", ("f32", "bf16"), _groups(2, 56, 56, 3, 3), "56 channels"),
    Pair("gOIhw4i8o2i", "goihw", "bf16", _groups(4, 16, 16, 3, 3)),
    # test_reorder_float8
    Pair("goihw", "gOIhw8i16o2i", ("f32", "f8_e5m2"), _groups(2, 64, 64, 3, 3)),
    # harness_reorder_amx
    Pair("goihw", "gOIhw16i16o2i", ("f32", "bf16"), _groups(2, 56, 56, 3, 3), "56 channels"),
    Pair("goihw", "gOIhw16i16o4i", ("f32", "s8"), _groups(2, 64, 64, 3, 3)),
    Pair("goihw", "gOhwI16o4i", ("f32", "s8"), _groups(2, 64, 3, 7, 7), "3 x 7 x 7"),
)

RECURRENT: Sequence[Pair] = (
    Pair("ldigo", "ldgoi", "f32", _LSTM),
    Pair("ldgoi", "ldigo", "bf16", _LSTM),
    Pair("ldigo", "ldgOi32o", "f32", _LSTM),
    Pair("ldgOi32o", "ldigo", "f32", _LSTM),
    Pair("ldigo", "ldgOI32o2i", ("f32", "bf16"), _LSTM),
    Pair("ldgoi", "ldgOI32o2i", "bf16", _LSTM),
    Pair("ldigo", "ldgOI32o4i", "s8", _LSTM),
    Pair("ldigo", "ldgOI32o4i", ("f32", "s8"), _LSTM),
    Pair("ldio", "ldOi32o", "f32", _PROJECTION),
    Pair("ldio", "ldOI32o4i", "s8", _PROJECTION),
)

TABLES: Mapping[str, Sequence[Pair]] = MappingProxyType(
    {
        "issue": ISSUE,
        "activations": ACTIVATIONS,
        "weights": WEIGHTS,
        "matrices": MATRICES,
        "quantized": QUANTIZED,
        "grouped": GROUPED,
        "recurrent": RECURRENT,
        "scaled": SCALED,
        "4 bits": FOUR_BITS,
    }
)
"""Every table by its name: the promised pairs, then the families."""


def all_cases(sizes: Sequence[Size], tables: Sequence[str] = tuple(TABLES)) -> list[Case]:
    """Every pair of the tables in every size, table by table.

    >>> sorted({case.types for case in all_cases([Size("L2", 1 << 19)], ["recurrent"])})
    ['bf16', 'f32', 'f32 -> bf16', 'f32 -> s8', 's8']
    """
    return [case for table in tables for case in cases_of(TABLES[table], sizes, table)]
