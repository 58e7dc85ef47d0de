"""Every primitive, forward and backward, in random formats: results of oneDNN are close to those of the reference.

The library is that of the wheel, or the one that INLAY_ONEDNN names. Problems that a release does not support are
skipped; a minimum number of problems of each kind must run.
"""

from dataclasses import replace

import numpy as np
import pytest

from inlay.errors import Unimplemented
from tests.oracles import onednn as oracle
from tests.support.primitive_cases import DRAWERS, assert_close, draw, run
from tests.support.primitive_runs import bound_of

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

SINCE = {"group_normalization": (3, 3)}
"""Releases of oneDNN that introduced kinds after 3.2."""


def count_equal(kind: str, seeds: range) -> int:
    """Compare the results of oneDNN and the reference, and return the number of problems that oneDNN supports."""
    ran = 0
    for seed in seeds:
        case = draw(kind, seed)
        expected = run(case, "reference")
        try:
            found = run(case, "onednn")
        except Unimplemented:
            continue
        assert_close(case, found, expected)
        ran += 1
    return ran


@needs_onednn
@pytest.mark.parametrize("kind", DRAWERS)
def test_onednn_computes_what_the_reference_computes(kind: str) -> None:
    if oracle.version() < SINCE.get(kind, (0, 0)):
        pytest.skip(f"this oneDNN is too old for {kind}: the reference computes it")
    assert count_equal(kind, range(16)) >= 3


@needs_onednn
@pytest.mark.heavy
@pytest.mark.parametrize("kind", DRAWERS)
def test_onednn_computes_what_the_reference_computes_in_many_problems(kind: str) -> None:
    if oracle.version() < SINCE.get(kind, (0, 0)):
        pytest.skip(f"this oneDNN is too old for {kind}: the reference computes it")
    assert count_equal(kind, range(16, 240)) >= 40


@pytest.mark.parametrize("kind", DRAWERS)
def test_problems_differ_and_are_reproducible(kind: str) -> None:
    cases = [draw(kind, seed) for seed in range(8)]
    assert cases == [draw(kind, seed) for seed in range(8)]
    assert len({str((case.descs, case.options)) for case in cases}) >= 6
    # Equal cases have equal data.
    one = cases[0]
    name, desc = next(iter(one.descs.items()))
    assert np.array_equal(one.data(name, desc), replace(one).data(name, desc))


def test_problems_cover_special_cases() -> None:
    cases = [draw(kind, seed) for kind in DRAWERS for seed in range(60)]
    sources = [next(iter(case.descs.values())) for case in cases]
    assert any(0 in desc.dims for desc in sources)
    assert any(desc.ndims > 2 and set(desc.dims[2:]) == {1} for desc in sources)
    assert any(desc.padded_dims != desc.dims for desc in sources)
    assert any(desc.kind == "blocked" and desc.tag is None for desc in sources)
    assert any(desc.tag == "acdb" for desc in sources)
    convolutions = [draw("convolution", seed) for seed in range(60)]
    assert any(case.descs["weights"].ndims > case.descs["src"].ndims for case in convolutions)
    assert any(max(case.options["dilations"]) > 0 for case in convolutions)
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
