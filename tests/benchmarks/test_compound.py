"""The benchmark of compound blocks: its calls agree with the peers that are installed, and its aims are compared."""

import pytest

from benchmarks.compound import GGML, Unpacking, compound_table, is_met, measure_compound


@pytest.mark.heavy
def test_every_format_is_measured() -> None:
    results = measure_compound(2, 1 << 20)
    assert [result.name for result in results] == [*(f"ggml:{name}" for name in GGML), "128x4 scales"]
    assert all(0 < result.share < 10 for result in results)
    assert compound_table(results).row_count == len(results)


@pytest.mark.parametrize(
    ("name", "seconds", "peer", "met"),
    [("ggml:Q4_0", 1.0, 6.0, True), ("ggml:Q4_0", 1.0, 4.0, False), ("ggml:Q4_0", 2.0, 20.0, False), ("x", 2, 1, True)],
)
def test_aims(name: str, seconds: float, peer: float, met: bool) -> None:
    assert is_met(Unpacking(name, seconds, 0.7, 0.4, {"gguf": peer})) is met
