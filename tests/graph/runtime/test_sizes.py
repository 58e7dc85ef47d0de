"""Sessions for several sizes and several threads: planned once each, while known sizes run."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.op_graph import Array
from inlay.graph.open_network import OpenTensor
from inlay.graph.planned_program import PlannedProgram
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
        self.held: int | None = None
        self.error: Exception | None = None
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
        if self.error is not None:
            raise self.error
        graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (rows, columns)), "x", "y")
        return plain_plan(graph)


class ConvolutionPlanner:
    """Plans a convolution of a kernel of one element, with weights of its own for each size."""

    def __init__(self, weights: Array) -> None:
        self.weights, self.asked = weights, list[dict[str, Dims]]()

    @property
    def inputs(self) -> tuple[OpenTensor, ...]:
        return (OpenTensor("x", ("n", 32, "h", "w"), np.dtype(np.float32)),)

    def plan(self, dims: Mapping[str, Dims]) -> PlannedProgram:
        self.asked.append(dict(dims))
        n, _, h, w = dims["x"]
        op = conv("conv", "x", "y", self.weights.copy())
        return plain_plan(graph_of([op], {"x": (n, 32, h, w), "y": (n, 64, h, w)}, "x", "y"))


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


def test_a_size_that_cannot_be_planned_is_tried_again(planner: Planner, session: Session) -> None:
    planner.error = Unimplemented("no kernel")
    with pytest.raises(Unimplemented):
        require_right(session, 2)
    planner.error = None
    require_right(session, 2)
    assert planner.asked == [2, 2]


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
