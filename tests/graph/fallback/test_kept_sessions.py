"""Sessions of ONNX Runtime are created once: the plan that tries them keeps them for its compilation."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import inlay
from inlay.graph.fallback import sessions
from inlay.graph.op_graph import ProcessObjects
from inlay.graph.plan import Plan
from inlay.graph.session import Session
from inlay.reordering.threads import ThreadLimit
from tests.support.written_models import written_model

pytest.importorskip("onnxruntime")

INPUTS = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads of each session of ONNX Runtime that is created, in order."""
    threads: list[int] = []
    create = sessions.create_session

    def create_counted(model: bytes, count: int, optimizations: str) -> Any:
        threads.append(count)
        return create(model, count, optimizations)

    monkeypatch.setattr("inlay.graph.fallback.sessions.create_session", create_counted)
    return threads


def planned(text: str = "a = Sin(x) b = Relu(a) c = Cos(b) y = Neg(c)", **options: Any) -> Plan:
    model = written_model(text, (2, 3), "y", **options)
    return inlay.plan(inlay.load(model.SerializeToString()), costs="analytic")


def result_of(session: Session) -> Any:
    return session.run(INPUTS)["y"]


def test_each_group_has_one_session_from_plan_to_run(created: list[int]) -> None:
    plan = planned()
    assert (len(created), plan.fallback.count) == (2, 2)
    np.testing.assert_allclose(
        result_of(plan.compile(engine="reference")), -np.cos(np.maximum(np.sin(INPUTS["x"]), 0)), rtol=1e-6
    )
    assert len(created) == 2


def test_a_second_compilation_has_sessions_of_its_own(created: list[int]) -> None:
    plan = planned()
    first, second = (plan.compile(engine="reference") for _ in range(2))
    assert len(created) == 4
    assert plan.graph.sessions == {}
    np.testing.assert_array_equal(result_of(first), result_of(second))


def test_a_node_of_a_refused_group_is_tried_once_more_alone(created: list[int]) -> None:
    plan = planned("a = Cos(x) b = Asinh(a) y = Sin(b)", kind=TensorProto.DOUBLE)
    assert len(created) == 1 + 3  # the group of all three, then each; ONNX Runtime lacks Asinh of this type
    plan.compile(engine="reference")
    assert len(created) == 4


def copied(plan: Plan) -> Plan:
    copy: Plan = pickle.loads(pickle.dumps(plan))
    return copy


@pytest.mark.parametrize("change", [copied, lambda plan: plan], ids=["a pickled plan", "other threads"])
def test_a_session_is_created_anew_where_that_of_the_plan_does_not_fit(
    created: list[int], change: Callable[[Plan], Plan]
) -> None:
    with ThreadLimit(1):
        plan = planned()
    kept = change(plan)
    assert len(kept.graph.sessions) == (2 if kept is plan else 0)
    for session in kept.graph.sessions.values():
        session.threads = 7  # no machine of the tests needs to have a second processor
    compiled = kept.compile(engine="reference")
    assert len(created) == 4
    assert result_of(compiled).shape == (2, 3)


def test_a_session_of_another_subgraph_is_not_taken(created: list[int]) -> None:
    plan, other = planned(), planned("a = Sin(x) b = Relu(a) c = Tan(b) y = Neg(c)")
    plan.graph.sessions.update(other.graph.sessions)
    np.testing.assert_allclose(
        result_of(plan.compile(engine="reference")), -np.cos(np.maximum(np.sin(INPUTS["x"]), 0)), rtol=1e-6
    )
    assert len(created) == 5


def test_copies_hold_no_objects_of_the_process() -> None:
    assert pickle.loads(pickle.dumps(ProcessObjects(a=1))) == {}
