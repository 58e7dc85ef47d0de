"""Every primitive, forward and backward, in random formats: results of oneDNN are close to those of the reference.

The library is that of the wheel, or the one that INLAY_ONEDNN names. Problems that a release does not support are
skipped; a minimum number of problems of each kind must run.
"""

import numpy as np
import pytest

from inlay.errors import Unimplemented
from tests.oracles import onednn as oracle
from tests.support.primitive_cases import DRAWERS, draw
from tests.support.primitive_runs import assert_close, bound_of, run

SINCE = {"group_normalization": (3, 3)}
"""Releases of oneDNN that introduced kinds after 3.2."""
SHARE = 0.3
"""Least share of problems that every release supports."""
RANGES = [range(32), pytest.param(range(32, 368), marks=pytest.mark.heavy)]


@pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))
@pytest.mark.parametrize("seeds", RANGES, ids=["few", "many"])
@pytest.mark.parametrize("kind", DRAWERS)
def test_onednn_computes_what_the_reference_computes(kind: str, seeds: range) -> None:
    if oracle.version() < SINCE.get(kind, (0, 0)):
        pytest.skip(f"this oneDNN is too old for {kind}: the reference computes it")
    compared = 0
    for seed in seeds:
        case = draw(kind, seed)
        try:
            found = run(case, "onednn")
        except Unimplemented:
            continue
        expected = run(case, "reference")
        assert_close(case, found, expected)
        compared += 1
    assert compared >= len(seeds) * SHARE


@pytest.mark.parametrize("kind", DRAWERS)
def test_problems_differ_and_are_reproducible(kind: str) -> None:
    cases = [draw(kind, seed) for seed in range(8)]
    again = [draw(kind, seed) for seed in range(8)]
    assert cases == again
    assert len({str((case.descs, case.options)) for case in cases}) >= 6
    for name, desc in cases[0].descs.items():
        assert np.array_equal(cases[0].data(name, desc), again[0].data(name, desc))


def test_problems_cover_special_cases() -> None:
    cases = [draw(kind, seed) for kind in DRAWERS for seed in range(60)]
    sources = [next(iter(case.descs.values())) for case in cases]
    assert any(0 in desc.dims for desc in sources)
    assert any(desc.ndims > 2 and set(desc.dims[2:]) == {1} for desc in sources)
    assert any(desc.padded_dims != desc.dims for desc in sources)
    assert any(desc.kind == "blocked" and desc.tag is None for desc in sources)
    assert any(desc.tag == "acdb" for desc in sources)
    convolutions = [case for case in cases if case.kind == "convolution"]
    assert any(case.descs["weights"].ndims > case.descs["src"].ndims for case in convolutions)
    assert any(max(case.options["dilations"]) > 0 for case in convolutions)
    assert any(min(case.options["padding_r"]) < 0 for case in convolutions)
    assert {str(case.descs["src"].data_type) for case in convolutions} >= {"f32", "bf16", "u8", "s8"}


@pytest.mark.parametrize("kind", ["convolution", "pooling", "batch_normalization", "eltwise"])
def test_the_comparison_detects_a_wrong_number(kind: str) -> None:
    case = next(case for seed in range(9) if 0 not in (case := draw(kind, seed)).descs["src"].dims)
    right = run(case, "reference")
    for name in right:
        wrong = {other: array.copy() for other, array in right.items()}
        largest = float(np.abs(right[name]).max())
        wrong[name].flat[0] += 3 * bound_of(case) * max(largest, 1e-3)
        with pytest.raises(AssertionError):
            assert_close(case, wrong, right)
