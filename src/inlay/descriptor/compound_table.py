"""The table of compound formats: a row for each, with the place of every bit.

Digits are (extent, stride in bits), most significant first. The formats of ggml are blocks of 32 or 256 elements along
the last axis (ggml, `ggml-common.h`, structures `block_q4_0` and following). Elements that share a byte are far apart:
the low four bits hold the first half of the block, the high four bits the second half.

    q4(at)        32 elements, 4 bits: (2, 4) (16, 8) from byte `at`
    k4(at)        256 elements, 4 bits, in four runs of 32 bytes: (4, 256) (2, 4) (32, 8)
    k2(at)        256 elements, 2 bits, in two runs of 32 bytes: (2, 256) (4, 2) (32, 8)
    k1(at)        256 elements, 1 bit, in one run of 32 bytes: (8, 1) (32, 8)
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from inlay.descriptor.compound_format import BitField, CompoundFormat, Section, Stream
from inlay.errors import InvalidArguments, shown

_GGML = "ggml, src/ggml-common.h and ggml-quants.c"
_KLEIDI = "KleidiAI, kai/ukernels/matmul/pack/kai_rhs_pack_nxk_qsi4c32p"
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_E2M1, *(-value for value in _E2M1))
"""The values of FP4 E2M1 (OCP Microscaling Formats 1.0, section 5.3.3)."""
DOUBLED_E2M1 = tuple(2.0 * value if value else 0.0 for value in E2M1)
"""Twice the values of E2M1, both zeros positive: ggml's `kvalues_mxfp4`, whose scales are halved instead."""
HALVED_E8M0 = (2.0**-128, *(2.0 ** (code - 128) for code in range(1, 256)))
"""Half the power of two of each E8M0 code: ggml's `ggml_e8m0_to_fp32_half`, where 255 is no NaN."""
IQ4_VALUES = (-127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0)
"""The values of ggml's IQ4_NL and IQ4_XS quants: `kvalues_iq4nl`."""


def _halved_ue4m3(code: int) -> float:
    """Return half the value of an E4M3 code without its sign; 0 for the code 0x7F (ggml's `ggml_ue4m3_to_fp32`)."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code in (0, 0x7F):
        return 0.0
    return mantissa * 2.0**-10 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 8)


def _q4(at: int) -> BitField:
    return BitField.of(4, 8 * at, ((2, 4), (16, 8)))


def _q1(at: int) -> BitField:
    return BitField.of(1, 8 * at, ((32, 1),), shift=4)


def _k4(at: int) -> BitField:
    return BitField.of(4, 8 * at, ((4, 256), (2, 4), (32, 8)))


def _k2(at: int, shift: int = 0) -> BitField:
    return BitField.of(2, 8 * at, ((2, 256), (4, 2), (32, 8)), shift=shift)


def _k1(at: int, shift: int) -> BitField:
    return BitField.of(1, 8 * at, ((8, 1), (32, 8)), shift=shift)


def _f16(name: str, at: int) -> Stream:
    return Stream(name, "f16", (BitField.of(16, 8 * at, ()),))


def _scale_minimum(at: int) -> tuple[Stream, Stream]:
    return _f16("scale", at), _f16("minimum", at + 2)


def _k_scales(at: int) -> tuple[Stream, Stream]:
    """Return the 6-bit scales and minima of Q4_K and Q5_K in 12 bytes (ggml's `get_scale_min_k4`)."""
    low, high = 8 * at, 8 * (at + 4)
    scales = (
        BitField.of(4, low, ((2, 64), (4, 8))),
        BitField.of(2, low + 4, ((2, 2), (4, 8)), shift=4),
    )
    minima = (
        BitField.of(4, high, ((2, 36), (4, 8))),
        BitField.of(2, high + 4, ((2, 2), (4, 8)), shift=4),
    )
    return Stream("scales", "u8", scales), Stream("minima", "u8", minima)


def _ggml(
    name: str,
    nbytes: int,
    *streams: Stream,
    scales: tuple[str, ...] = ("scale",),
    minima: tuple[str, ...] = (),
    adds: bool = False,
) -> CompoundFormat:
    """Return a format of ggml, whose blocks have the dims of the first stream."""
    section = Section(streams[0].dims, nbytes)
    return CompoundFormat(f"ggml:{name}", (section,), streams, scales, minima, adds, source=_GGML)


def _quants(*fields: BitField, zero: int = 0, codebook: tuple[float, ...] = ()) -> Stream:
    return Stream("quants", "u8", fields, zero, codebook)


def _small_ggml_formats() -> tuple[CompoundFormat, ...]:
    """Return the formats with blocks of 32 or 64 elements."""
    nv_quants = BitField.of(4, 32, ((4, 64), (2, 4), (8, 8)))
    nv_scale = BitField.of(8, 0, ((4, 8),))
    ue4m3 = tuple(map(_halved_ue4m3, range(256)))
    return (
        _ggml("Q4_0", 18, _quants(_q4(2), zero=8), _f16("scale", 0)),
        _ggml("Q4_1", 20, _quants(_q4(4)), *_scale_minimum(0), minima=("minimum",), adds=True),
        _ggml("Q5_0", 22, _quants(_q4(6), _q1(2), zero=16), _f16("scale", 0)),
        _ggml("Q5_1", 24, _quants(_q4(8), _q1(4)), *_scale_minimum(0), minima=("minimum",), adds=True),
        _ggml("Q8_0", 34, Stream("quants", "s8", (BitField.of(8, 16, ((32, 8),)),)), _f16("scale", 0)),
        _ggml("IQ4_NL", 18, _quants(_q4(2), codebook=IQ4_VALUES), _f16("scale", 0)),
        _ggml(
            "MXFP4",
            17,
            _quants(_q4(1), codebook=DOUBLED_E2M1),
            Stream("scale", "u8", (BitField.of(8, 0, ()),), codebook=HALVED_E8M0),
        ),
        _ggml("NVFP4", 36, _quants(nv_quants, codebook=DOUBLED_E2M1), Stream("scale", "u8", (nv_scale,), 0, ue4m3)),
    )


def _k_formats() -> tuple[CompoundFormat, ...]:
    """Return ggml's formats with blocks of 256 elements."""
    q2_scales = Stream("scales", "u8", (BitField.of(4, 0, ((16, 8),)),))
    q2_minima = Stream("minima", "u8", (BitField.of(4, 4, ((16, 8),)),))
    scales, minima = ("scale", "scales"), ("minimum", "minima")
    return (
        _ggml(
            "Q2_K",
            84,
            _quants(_k2(16)),
            q2_scales,
            q2_minima,
            _f16("scale", 80),
            _f16("minimum", 82),
            scales=scales,
            minima=minima,
        ),
        _ggml(
            "Q4_K",
            144,
            _quants(_k4(16)),
            *_k_scales(4),
            *_scale_minimum(0),
            scales=scales,
            minima=minima,
        ),
        _ggml(
            "Q5_K",
            176,
            _quants(_k4(48), _k1(16, shift=4)),
            *_k_scales(4),
            *_scale_minimum(0),
            scales=scales,
            minima=minima,
        ),
    )


def _signed_k_formats() -> tuple[CompoundFormat, ...]:
    """Return ggml's formats with blocks of 256 elements and signed scales."""
    q3_scales = (
        BitField.of(4, 8 * 96, ((2, 4), (8, 8))),
        BitField.of(2, 8 * 104, ((4, 2), (4, 8)), shift=4),
    )
    q6_quants = (BitField.of(4, 0, ((2, 512), (2, 4), (64, 8))), _k2(128, shift=4))
    xs_quants = BitField.of(4, 64, ((8, 128), (2, 4), (16, 8)))
    xs_scales = (BitField.of(4, 32, ((4, 8), (2, 4))), BitField.of(2, 16, ((8, 2),), shift=4))
    scales = ("scale", "scales")
    return (
        _ggml(
            "Q3_K",
            110,
            _quants(_k2(32), _k1(0, shift=2), zero=4),
            Stream("scales", "u8", q3_scales, zero=32),
            _f16("scale", 108),
            scales=scales,
        ),
        _ggml(
            "Q6_K",
            210,
            _quants(*q6_quants, zero=32),
            Stream("scales", "s8", (BitField.of(8, 8 * 192, ((16, 8),)),)),
            _f16("scale", 208),
            scales=scales,
        ),
        _ggml(
            "IQ4_XS",
            136,
            _quants(xs_quants, codebook=IQ4_VALUES),
            Stream("scales", "u8", xs_scales, zero=32),
            _f16("scale", 0),
            scales=scales,
        ),
    )


def _nvfp4() -> CompoundFormat:
    """Return NVFP4 as cuBLASLt reads it: rows of E2M1 pairs, then E4M3 scales of 16 elements in tiles of 128 x 4."""
    scale = BitField.of(8, 0, ((4, 32), (32, 128)), ((4, 8),))
    return CompoundFormat(
        "nvidia:NVFP4_128x4",
        (Section((1, 2), 1), Section((128, 64), 512, alignment=512)),
        (
            Stream("quants", "u8", (BitField.of(4, 0, (), ((2, 4),)),), codebook=E2M1),
            Stream("scales", "f8_e4m3", (scale,), section=1),
        ),
        scales=("scales",),
        multiple=(1, 16),
        source="cuBLAS, 1D block scaling factors layout; NVFP4 in the PTX ISA, tcgen05.mma block scaling",
    )


def _kleidi(name: str, rows: int, at: int, quants_at: int, scale_type: str, suffix: str) -> CompoundFormat:
    """Return KleidiAI's packing of `rows` rows by blocks of 32 elements, in segments of 8 bytes of each row.

    Scales are at byte `at` and quants at byte `quants_at` of a block. Blocks with scales of bf16 have row sums and bias
    in a footer.
    """
    quants = BitField.of(4, 8 * quants_at, ((rows, 64),), ((2, 4), (2, 64 * rows), (8, 8)))
    streams = [
        Stream("quants", "s8", (quants,)),
        Stream("scale", scale_type, (BitField.of(16, 8 * at, ((rows, 16),), ()),)),
    ]
    has_footer = scale_type == "bf16"
    if has_footer:
        sums = BitField.of(32, 0, ((rows, 32),), ())
        bias = BitField.of(32, 32 * rows, ((rows, 32),), ())
        streams += [
            Stream("sums", "f32", (sums,), in_footer=True),
            Stream("bias", "f32", (bias,), in_footer=True, is_optional=True),
        ]
    return CompoundFormat(
        f"kleidiai:{name}",
        (Section((rows, 32), 18 * rows, footer_nbytes=8 * rows if has_footer else 0),),
        tuple(streams),
        scales=("scale",),
        multiple=(1, 32),
        repeats_edge=True,
        source=_KLEIDI + suffix,
    )


@lru_cache(maxsize=1)
def compound_formats() -> Mapping[str, CompoundFormat]:
    """Return all formats of the table by name.

    >>> len(compound_formats()) >= 18
    True
    """
    kleidi = [_kleidi(f"qsi4c32p{r}x8_f16", r, 0, 2 * r, "f16", "scalef16_qsu4c32s16s0.c") for r in (4, 8)]
    kleidi += [_kleidi(f"qsi4c32p{r}x8", r, 16 * r, 0, "bf16", "_qsu4c32s1s0.c") for r in (4, 8)]
    rows = (*_small_ggml_formats(), *_k_formats(), *_signed_k_formats(), _nvfp4(), *kleidi)
    return MappingProxyType({row.name: row for row in rows})


def compound(name: str) -> CompoundFormat:
    """Return the compound format called `name`; case does not matter.

    Sources of the formats: ggml's `ggml-common.h`, NVIDIA's cuBLAS documentation, KleidiAI's packing functions; the
    field `source` has the one of the format.

    Raises:
        InvalidArguments: there is no format of that name.

    >>> compound("ggml:Q4_0").sections[0]
    Section(block=(32,), nbytes=18, footer_nbytes=0, alignment=1)
    """
    fmt = find_compound(name)
    if fmt is not None:
        return fmt
    import difflib  # slow to import, and only this message needs it

    formats = compound_formats()
    near = difflib.get_close_matches(name, formats, 3, 0.4) if isinstance(name, str) else []  # type: ignore[redundant-expr]
    remedy = f"did you mean {' or '.join(near)}?" if near else f"name one of {', '.join(formats)}"
    raise InvalidArguments(f"no compound format is called {shown(name)}: {remedy}")


def find_compound(name: object) -> CompoundFormat | None:
    """Return the compound format called `name`, or None; case does not matter.

    No name is also one of the dictionary of layouts, whatever its case: `ggml:Q4_0` has quants and scales, and
    `ggml:Q4_0.qs` is the order of its quants alone.
    """
    if not isinstance(name, str):
        return None
    return next((fmt for known, fmt in compound_formats().items() if known.lower() == name.lower()), None)


def code_values(stream: Stream) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Return the codebook of a stream as f32."""
    return np.array(stream.codebook, np.float32)
