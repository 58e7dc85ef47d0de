"""Mutated models: `load` raises an error of Inlay or the network runs; none crashes, hangs, or allocates gigabytes."""

import os
import sys
from collections import Counter

import pytest

from tests.support.fuzz_models import outcomes
from tests.support.mutated_models import mutant, seeds

pytest.importorskip("onnx")

MUTANTS = 2000


def test_mutants_follow_from_their_seeds() -> None:
    assert len(seeds()) >= 60
    assert [mutant(seed) for seed in range(20)] == [mutant(seed) for seed in range(20)]
    assert len({mutant(seed) for seed in range(50)}) > 45


@pytest.mark.heavy
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_no_mutant_of_a_model_fails_otherwise_than_by_an_error_of_inlay() -> None:
    first = int(os.environ.get("INLAY_FUZZ_SEED") or int.from_bytes(os.urandom(4)) * MUTANTS)
    sys.stdout.write(f"INLAY_FUZZ_SEED={first}\n")
    counts, faults = Counter[str](), list[str]()
    for seed, text in outcomes(first, MUTANTS):
        word = text.partition(":")[0]
        counts[word] += 1
        faults += [f"mutant({seed}): {text}"] if word in ("fault", "hang", "crash") else []
    assert faults == [], f"INLAY_FUZZ_SEED={first}"
    assert counts.total() == MUTANTS
    assert counts["ran"] > MUTANTS // 20
