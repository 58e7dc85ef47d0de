"""Measured costs while nothing may be measured: stored times, else estimates, which a later request replaces."""

import pytest

from tests.graph.costs.test_measured import CASES, costs_of, engine_of, prepared, require_times, sources
from tests.support import cost_cases as cases

pytestmark = pytest.mark.usefixtures("directory")


def test_nothing_is_executed() -> None:
    engine = engine_of()
    costs = costs_of(engine)
    with costs.without_measuring():
        costs.prepare(CASES)
        assert {*sources(costs)} <= {"probed", "scaled"}
        image = cases.image("nchw")
        assert costs.reorder(image, cases.image("nhwc")) > 0
    assert engine.runs == []


def test_stored_times_are_used() -> None:
    prepared(engine_of()).save()
    engine = engine_of()
    costs = costs_of(engine)
    with costs.without_measuring():
        costs.prepare(CASES)
    require_times(costs)
    assert engine.runs == []


def test_estimates_are_measured_by_the_next_plan_that_may() -> None:
    engine = engine_of()
    costs = costs_of(engine)
    with costs.without_measuring():
        costs.prepare(CASES)
    assert engine.runs == []
    costs.prepare(CASES)
    require_times(costs)


def test_estimates_follow_the_errors_of_what_was_measured() -> None:
    engine = engine_of()
    costs = costs_of(engine)
    costs.prepare(CASES[:3])
    with costs.without_measuring():
        assert sources(costs) == ["measured"] * 3 + ["scaled"] * 3
    runs = len(engine.runs)
    with costs.without_measuring():
        assert sources(costs) == ["measured"] * 3 + ["scaled"] * 3
    assert len(engine.runs) == runs
