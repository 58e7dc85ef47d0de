"""Sessions for several sizes and several threads: planned once each, while known sizes run."""

import gc
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import Computation, build_computation
from inlay.graph.op_graph import Array, Op
from inlay.graph.open_network import OpenTensor
from inlay.graph.planned_program import ADAPTED, PlannedProgram
from inlay.graph.session import Session
from inlay.layout import Dims
from tests.support.graph_programs import conv, drawn, graph_of, plain_plan, pointwise, relu, require_equal
from tests.support.refusals import raises_exactly

PATIENCE = 120.0
"""Seconds after which a thread is taken to wait for what never comes."""


class Planner:
    """Plans a ReLU for any size; it waits within the size that it is told to hold, until it is let go."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.adapted: list[tuple[int, int]] = []
        self.held: int | None = None
        self.errors: dict[int, Exception] = {}
        self.entered, self.go = threading.Event(), threading.Event()
        self.was_let_go = True

    @property
    def inputs(self) -> tuple[OpenTensor, ...]:
        return (OpenTensor("x", ("rows", 3), np.dtype(np.float32)),)

    def plan(self, dims: Mapping[str, Dims]) -> PlannedProgram:
        (rows, columns) = dims["x"]
        self.asked.append(rows)
        if rows == self.held:
            self.entered.set()
            self.was_let_go = self.go.wait(PATIENCE)
        if rows in self.errors:
            raise self.errors[rows]
        graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (rows, columns)), "x", "y")
        return plain_plan(graph)

    def adapt(self, known: PlannedProgram, dims: Mapping[str, Dims]) -> PlannedProgram:
        self.adapted.append((known.inputs[0].dims[0], dims["x"][0]))
        return replace(self.plan(dims), method=ADAPTED)


class ConvolutionPlanner:
    """Plans a convolution of a kernel of one element, with weights of its own for each size.

    The weights of different sizes are equal, unless `are_different`.
    """

    def __init__(self, weights: Array, *, are_different: bool = False) -> None:
        self.weights, self.asked, self.are_different = weights, list[dict[str, Dims]](), are_different

    @property
    def inputs(self) -> tuple[OpenTensor, ...]:
        return (OpenTensor("x", ("n", 32, "h", "w"), np.dtype(np.float32)),)

    def plan(self, dims: Mapping[str, Dims]) -> PlannedProgram:
        self.asked.append(dict(dims))
        n, _, h, w = dims["x"]
        op = conv("conv", "x", "y", self.weights * np.float32(n if self.are_different else 1))
        return plain_plan(graph_of([op], {"x": (n, 32, h, w), "y": (n, 64, h, w)}, "x", "y"))

    def adapt(self, known: PlannedProgram, dims: Mapping[str, Dims]) -> PlannedProgram:
        return self.plan(dims)


class ErfPlanner(Planner):
    """Plans a network that only NumPy computes."""

    def plan(self, dims: Mapping[str, Dims]) -> PlannedProgram:
        node = Node("erf", "Erf", ("x",), ("y",))
        op = Op("erf", "reference", {"src_0": "x"}, {"dst_0": "y"}, node=node)
        return plain_plan(graph_of([op], dict.fromkeys("xy", dims["x"]), "x", "y"))


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def session(planner: Planner) -> Session:
    first = planner.plan({"x": (1, 3)})
    planner.asked.clear()
    return Session(planner, first, engine="reference", most_shapes=17)


def require_right(session: Session, rows: int) -> None:
    x = drawn(rows, 3)
    assert np.array_equal(session.run({"x": x})["y"], np.maximum(x, 0))


@contextmanager
def beside(*works: Callable[[], None]) -> Iterator[None]:
    """Threads that work while the block runs; they have ended without an error behind it."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
        yield
        for future in futures:
            future.result()


def test_known_sizes_run_while_another_is_planned(planner: Planner, session: Session) -> None:
    require_right(session, 2)
    planner.held = 5
    with beside(lambda: require_right(session, 5)):
        assert planner.entered.wait(PATIENCE)
        require_right(session, 1)
        require_right(session, 2)
        planner.go.set()
    assert planner.was_let_go, "the known sizes waited for the plan"
    assert planner.asked == [2, 5]


def test_a_size_that_several_threads_ask_for_is_planned_once(planner: Planner, session: Session) -> None:
    planner.held = 4
    with beside(*[lambda: require_right(session, 4)] * 6):
        assert planner.entered.wait(PATIENCE)
        planner.go.set()
    assert planner.asked == [4]


def test_sizes_that_several_threads_ask_for_are_planned_once_each(planner: Planner, session: Session) -> None:

    def work(first: int) -> None:
        for i in range(24):
            require_right(session, 2 + (first + i) % 12)

    with beside(*(lambda first=first: work(first) for first in (0, 3, 7))):
        pass
    assert sorted(planner.asked) == list(range(2, 14))


def test_the_size_that_was_not_asked_for_longest_is_given_up(planner: Planner, session: Session) -> None:
    for rows in (*range(2, 19), 2, 19, 2, 3):
        require_right(session, rows)
    assert planner.asked == [*range(2, 20), 3]


def test_a_size_that_cannot_be_planned_is_tried_again_and_leaves_the_others(planner: Planner, session: Session) -> None:
    planner.errors[2] = Unimplemented("no kernel")
    with pytest.raises(Unimplemented):
        require_right(session, 2)
    require_right(session, 1)
    require_right(session, 3)
    del planner.errors[2]
    require_right(session, 2)
    assert planner.asked == [2, 3, 2]


def test_threads_that_wait_for_a_size_that_fails_try_it_one_after_the_other(planner: Planner, session: Session) -> None:
    planner.errors[4], planner.held = Unimplemented("no kernel"), 4

    def fail() -> None:
        with pytest.raises(Unimplemented):
            require_right(session, 4)

    with beside(fail, fail):
        assert planner.entered.wait(PATIENCE)
        require_right(session, 1)
        planner.go.set()
    assert planner.asked == [4, 4]


def test_a_size_that_is_forgotten_during_its_run_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go = threading.Event(), threading.Event()

    def build(node: Node, opset: int) -> Computation:
        compute = build_computation(node, opset)

        def computed(*arguments: Any) -> Any:
            if next(iter(arguments[0].values())).shape[0] == 2:
                entered.set()
                assert go.wait(PATIENCE)
            return compute(*arguments)

        return computed

    monkeypatch.setattr("inlay.graph.runtime.reference_steps.build_computation", build)
    session = Session(ErfPlanner(), engine="reference", most_shapes=1)
    x = drawn(2, 3)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(session.run, {"x": x})
        assert entered.wait(PATIENCE)
        session.run({"x": drawn(5, 3)})
        session.run({"x": drawn(6, 3)})
        go.set()
        found = future.result()["y"]
    np.testing.assert_allclose(found, [[math.erf(float(value)) for value in row] for row in x], rtol=1e-6)
    assert [plan.inputs[0].dims for plan in session.plans] == [(6, 3)]


def test_a_program_that_is_forgotten_still_runs(planner: Planner) -> None:
    session = Session(planner, engine="reference", most_shapes=1)
    program = session.prepare({"x": (4, 3)})
    session.prepare({"x": (5, 3)})
    x = drawn(4, 3)
    for _ in range(2):
        assert np.array_equal(program.run({"x": x})["y"], np.maximum(x, 0))


def test_the_nearest_size_is_adapted(planner: Planner, session: Session) -> None:
    for rows in (9, 3, 1000, 8, 700):
        require_right(session, rows)
    assert planner.adapted == [(1, 9), (1, 3), (9, 1000), (9, 8), (1000, 700)]


def test_a_size_without_elements_is_adapted_but_never_a_model_for_others(planner: Planner) -> None:
    session = Session(planner, engine="reference")
    require_right(session, 0)
    require_right(session, 2)
    require_right(session, 3)
    assert planner.adapted == [(2, 3)]


def test_prepare_replaces_an_adapted_plan_once(planner: Planner, session: Session) -> None:
    require_right(session, 7)
    assert [plan.method for plan in session.plans] == ["none", ADAPTED]
    program = session.prepare({"x": (7, 3)})
    assert session.prepare({"x": (7, 3)}) is program is session.prepare()
    assert [plan.method for plan in session.plans] == ["none", "none"]
    assert planner.asked == [7, 7]


def test_a_session_that_is_closed_while_it_plans_ends_that_run_and_keeps_nothing(
    planner: Planner, session: Session
) -> None:
    planner.held = 6
    with beside(lambda: require_right(session, 6)):
        assert planner.entered.wait(PATIENCE)
        session.close()
        planner.go.set()
    assert planner.was_let_go, "closing waited for the plan"
    assert not session.plans
    with raises_exactly(InvalidArguments, "the session is closed: compile another one"):
        require_right(session, 6)
    assert planner.asked == [6]


@pytest.mark.parametrize("most_shapes", [1, 3])
def test_what_only_forgotten_sizes_use_is_released_at_once(most_shapes: int) -> None:
    planner = ConvolutionPlanner(drawn(64, 32, 1, 1), are_different=True)
    session = Session(planner, engine="reference", most_shapes=most_shapes)
    gc.disable()
    try:
        for n in range(1, 8):
            session.run({"x": drawn(n, 32, 2, 2)})
            assert session.weights.nbytes == min(n, most_shapes) * planner.weights.nbytes
    finally:
        gc.enable()


def test_other_dims_are_planned_once_and_share_weights() -> None:
    planner = ConvolutionPlanner(drawn(64, 32, 1, 1))
    session = Session(planner, planner.plan({"x": (1, 32, 2, 2)}), engine="reference")
    held = session.weights.nbytes
    for n in (1, 3, 2, 3, 1):
        x = drawn(n, 32, 2, 2)
        require_equal(session.run({"x": x}), {"y": pointwise(x, planner.weights)})
        require_equal(session.trace({"x": x}), {"x": x, "y": pointwise(x, planner.weights)})
    assert planner.asked == [{"x": (n, 32, 2, 2)} for n in (1, 3, 2)]
    assert session.weights.nbytes == held == planner.weights.nbytes
