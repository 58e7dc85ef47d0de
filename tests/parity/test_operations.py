"""Comparison of every operation with oneDNN on random cases; each difference must be in the table of differences.

Hypothesis draws some hundreds of cases per operation and shrinks those that differ. The heavy test draws many thousands
from the seed INLAY_PARITY_SEED; INLAY_PARITY_CASES is the number per operation.
"""

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from inlay.testing import Scope, Seeded, strategy
from tests.oracles import onednn
from tests.parity.operations import OPERATIONS, Operation, scope_of_library
from tests.parity.tally import Tally, run

WHY_NOT = onednn.why_unavailable()
pytestmark = [pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)), pytest.mark.parity]

SCOPE = Scope() if WHY_NOT else scope_of_library()
FEW = 250
MANY = int(os.environ.get("INLAY_PARITY_CASES", "20000"))
SEED = int(os.environ.get("INLAY_PARITY_SEED", "0"))
LEAST = (5000, 2000)

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


@each_operation
def test_answers_are_the_librarys(operation: Operation) -> None:
    whole = Tally(operation)

    @settings(max_examples=FEW, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy(operation.draw)(SCOPE))
    def check(case: object) -> None:
        tally = Tally(operation)
        tally.compare([case])  # type: ignore[list-item]
        assert not tally.unexplained, tally.fault()
        whole.outcomes.update(tally.outcomes)
        whole.unsaid += tally.unsaid

    check()
    for outcome in operation.counted:
        assert whole.outcomes[outcome] >= FEW // 50, whole


@pytest.mark.heavy
@each_operation
def test_many_answers_are_the_librarys(operation: Operation, tallies: list[Tally]) -> None:
    tally = run(operation, Seeded(SEED), SCOPE, MANY)
    tallies.append(tally)
    assert not tally.unexplained, tally.fault()
    for outcome, least in zip(operation.counted, LEAST, strict=True):
        assert tally.outcomes[outcome] >= min(least, MANY // 10), tally.row()


@each_operation
def test_a_wrong_answer_is_found(operation: Operation) -> None:
    """A wrong result in one case of ten is reported."""

    def mostly_right(case: object) -> object:
        return "wrong" if hash(case) % 10 == 0 else operation.ours(case)

    tally = run(replace(operation, ours=mostly_right), Seeded(1), SCOPE, 100)
    assert len(tally.unexplained) > 2
    assert tally.fault().startswith(f"{len(tally.unexplained)} of 100, such as")
