"""Plans follow the processors that are really free, and say so."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import inlay
from inlay.errors import InvalidArguments
from inlay.graph import planning
from inlay.graph.costs import AnalyticCosts, Machine
from inlay.graph.plan import Plan, plan_graph
from inlay.graph.report import figures
from inlay.measure.processors import Processors
from inlay.reordering.threads import get_num_threads
from tests.support.graph_programs import conv, drawn, graph_of
from tests.support.refusals import raises_exactly

GRAPH = graph_of([conv("conv", "x", "y", drawn(3, 2, 1, 1))], {"x": (1, 2, 4, 4), "y": (1, 3, 4, 4)}, "x", "y")
MACHINE = Machine("AVX2", threads=1, peak=100.0, cache_bandwidth=100.0, memory_bandwidth=20.0, cache_bytes=1 << 22)


def plan_on(processors: Processors | None, threads: int = 1) -> Plan:
    return replace(plan_graph(GRAPH, AnalyticCosts(replace(MACHINE, threads=threads))), processors=processors)


@pytest.mark.parametrize(
    ("processors", "threads", "load"),
    [
        (None, 2, ""),
        (Processors((0.98, 0.95)), 2, ""),
        (
            Processors((0.6, 0.5)),
            1,
            "the machine is busy, 1.1 of 2 processors are free: planned for 1 thread, and costs that are not "
            "stored are estimated",
        ),
        (
            Processors((1.0, 1.0, 1.0, 0.4)),
            3,
            "the machine is busy, 3.4 of 4 processors are free: planned for 3 threads, and costs that are not "
            "stored are estimated",
        ),
        (Processors((1.0, 1.0), 1.0), 1, "2.0 of 2 processors are free, and the quota is 1: planned for 1 thread"),
        (Processors((1.0, 1.0), 8.0), 2, ""),
    ],
)
def test_a_plan_says_what_was_left_of_the_processors(processors: Processors | None, threads: int, load: str) -> None:
    plan = plan_on(processors, threads)
    assert plan.load == load
    assert figures(plan)["load"] == load


@pytest.mark.parametrize("costs", ["probed", "measured"])
def test_a_plan_is_for_the_threads_that_run_and_its_session_finds_out_for_itself(
    costs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("inlay.engines.onednn")
    monkeypatch.setattr(planning, "get_num_threads", lambda: 2)
    monkeypatch.setattr(planning, "recent_processors", lambda *_: Processors((1.0, 0.3)))
    monkeypatch.setattr("inlay.graph.costs.measuring.recent_processors", lambda *_: Processors((1.0, 0.3)))
    monkeypatch.setattr("inlay.graph.runtime.adaptive_team.cpu_quota", lambda: None)
    outside = get_num_threads()
    plan = inlay.plan(GRAPH, costs=costs)  # type: ignore[arg-type]
    assert (plan.threads, plan.is_limited, get_num_threads()) == (1, True, outside)
    session = plan.compile().prepare()
    assert session.threads == max(1, getattr(session.engine, "num_threads", 1))
    x = drawn(1, 2, 4, 4)
    assert np.isfinite(session.run({"x": x})["y"]).all()


@pytest.mark.parametrize("costs", ["analytic", "probed", "measured"])
def test_a_plan_for_fewer_threads_is_run_on_no_more(costs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("inlay.engines.onednn")
    monkeypatch.setattr("inlay.graph.runtime.adaptive_team.cpu_quota", lambda: None)
    outside = get_num_threads()
    plan = inlay.plan(GRAPH, costs=costs, threads=1)
    assert (plan.threads, plan.most_threads, get_num_threads()) == (1, 1, outside)
    for found in (plan, pickle.loads(pickle.dumps(plan))):
        program = found.compile().prepare()
        assert program.threads == 1
        assert program._thread_limit(program.threads) == 1
        assert np.isfinite(program.run({"x": drawn(1, 2, 4, 4)})["y"]).all()
    assert inlay.plan(GRAPH, costs=costs).most_threads is None


def test_more_threads_than_the_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "get_num_threads", lambda: 4)
    calls: tuple[Any, ...] = (inlay.plan, inlay.compile)
    for call in calls:
        with raises_exactly(
            InvalidArguments,
            "threads is 5, and Inlay may use 4 threads on this machine: give at most 4, or the isa of another machine",
        ):
            call(GRAPH, threads=5)
    assert inlay.plan(GRAPH, costs="analytic", isa="AVX2", threads=5).most_threads is None


def test_costs_of_another_machine_do_not_look_at_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "recent_processors", lambda: pytest.fail("looked"))
    assert inlay.plan(GRAPH, costs="analytic", isa="AVX2", threads=2).threads == 2
    assert plan_on(None).load == ""
