"""The instruction set that oneDNN may use on processors with other features than this one."""

from types import SimpleNamespace

import pytest

from inlay.graph.costs import instruction_sets
from inlay.graph.costs.instruction_sets import allowed_isa, host_isa

ZEN_4 = "+avx,+avx2,+avx512bw,+avx512vnni,+avx512bf16"
"""A processor with AVX-512 and without the AVX2 form of VNNI."""
ALDER_LAKE = "+avx,+avx2,+avxvnni,-avx512bw"


@pytest.mark.parametrize(
    ("features", "named", "expected"),
    [
        (ZEN_4, "", "AVX512_CORE_BF16"),
        (ZEN_4, "AVX512_CORE_AMX", "AVX512_CORE_BF16"),
        (ZEN_4, "avx512_core", "AVX512_CORE"),
        (ZEN_4, "AVX2_VNNI_2", "AVX2"),
        (ZEN_4, "AVX2_VNNI", "AVX2"),
        (ZEN_4, "SSE41", "SSE41"),
        (ZEN_4, "another", "AVX512_CORE_BF16"),
        (ALDER_LAKE, "", "AVX2_VNNI"),
        (ALDER_LAKE, "AVX2_VNNI_2", "AVX2_VNNI"),
        (ALDER_LAKE, "AVX512_CORE", "AVX2_VNNI"),
        ("", "AVX2", "SSE41"),
    ],
)
def test_the_allowed_instruction_set_is_one_that_the_processor_has(
    features: str, named: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instruction_sets, "host_target", lambda: SimpleNamespace(features=features))
    monkeypatch.setattr(instruction_sets, "_supported_isas", instruction_sets._supported_isas.__wrapped__)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", named)
    assert allowed_isa() == expected
    assert host_isa() == instruction_sets._supported_isas()[0]
