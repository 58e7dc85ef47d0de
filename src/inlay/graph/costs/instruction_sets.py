"""Instruction sets by the names of oneDNN: their order, and those that this processor has and oneDNN may use."""

import os
from functools import lru_cache

from inlay.errors import InvalidArguments
from inlay.reordering.target import host_target

ISAS = (
    "SSE41",
    "AVX",
    "AVX2",
    "AVX2_VNNI",
    "AVX2_VNNI_2",
    "AVX512_CORE",
    "AVX512_CORE_VNNI",
    "AVX512_CORE_BF16",
    "AVX512_CORE_FP16",
    "AVX512_CORE_AMX",
    "AVX512_CORE_AMX_FP16",
)
"""Instruction sets in ascending order, by the names that ONEDNN_MAX_CPU_ISA accepts."""

_ISA_FEATURES = (
    ("AVX512_CORE_AMX_FP16", "+amx-fp16"),
    ("AVX512_CORE_AMX", "+amx-int8"),
    ("AVX512_CORE_FP16", "+avx512fp16"),
    ("AVX512_CORE_BF16", "+avx512bf16"),
    ("AVX512_CORE_VNNI", "+avx512vnni"),
    ("AVX512_CORE", "+avx512bw"),
    ("AVX2_VNNI_2", "+avxneconvert"),
    ("AVX2_VNNI", "+avxvnni"),
    ("AVX2", "+avx2"),
    ("AVX", "+avx"),
)


def isa_level(isa: str) -> int:
    """Return the index of an instruction set in `ISAS`.

    Raises:
        InvalidArguments: there is no instruction set of this name.
    """
    try:
        return ISAS.index(isa.upper())
    except ValueError:
        raise InvalidArguments(f"there is no instruction set {isa!r}: give one of {', '.join(ISAS)}") from None


@lru_cache(maxsize=1)
def _supported_isas() -> tuple[str, ...]:
    """Return the instruction sets in `ISAS` that this processor supports, the largest first."""
    features = host_target().features.split(",")
    return (*(isa for isa, feature in _ISA_FEATURES if feature in features), "SSE41")


def host_isa() -> str:
    """Return the largest instruction set in `ISAS` that this processor supports."""
    return _supported_isas()[0]


def allowed_isa() -> str:
    """Return the instruction set that oneDNN may use: the processor's, or a smaller one if ONEDNN_MAX_CPU_ISA says so.

    A processor may lack the one that the variable names, as AVX2_VNNI is absent from many with AVX-512; then it is the
    largest of those below that the processor supports.
    """
    named = (os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "").upper()
    if named not in ISAS:
        return host_isa()
    return next(isa for isa in _supported_isas() if ISAS.index(isa) <= ISAS.index(named))
