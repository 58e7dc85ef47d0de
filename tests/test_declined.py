"""Steps that an engine declines: the reference engine computes them, and the session says so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from graph_programs import drawn, graph_of, relu
from network_runs import model_of
from onnx import helper

from inlay import cli
from inlay.errors import Unimplemented
from inlay.graph.op import Op
from inlay.graph.plain import plain_program
from inlay.graph.session import Session
from inlay.primitives import get_engine
from inlay.primitives.operation import Implementation, Operation


@dataclass(frozen=True)
class Lacking:
    """An engine that has all but some kinds of primitives."""

    kinds: tuple[str, ...]
    name: str = "lacking 1.0"

    def create(self, operation: Operation) -> Implementation:
        if operation.kind in self.kinds:
            raise Unimplemented(f"no {operation.kind}")
        return get_engine("reference").create(operation)


def session_of(kinds: Sequence[str], count: int = 2) -> Session:
    """A softmax and `count` ReLUs after it."""
    softmax = Op("softmax", "softmax", {"src": "x"}, {"dst": "t0"}, parameters={"algorithm": "accurate", "axis": 1})
    relus = [relu(f"relu{i}", f"t{i}", f"t{i + 1}") for i in range(count)]
    names = ["x", *(f"t{i}" for i in range(count + 1))]
    graph = graph_of([softmax, *relus], dict.fromkeys(names, (2, 3)), "x", names[-1])
    return Session(plain_program(graph), graph, engine=Lacking(tuple(kinds)))


def test_a_session_names_the_steps_that_its_engine_declined() -> None:
    session = session_of(["eltwise"])
    assert session.declined == ("relu0", "relu1")
    assert session.note == "2 steps are computed by the reference engine: relu0, relu1"
    assert repr(session).endswith(f"; {session.note}>")
    image = drawn(2, 3)
    powers = np.exp(image.astype(np.float64))
    (found,) = session.run({"x": image}).values()
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_one_step_and_many_have_their_words() -> None:
    assert session_of(["softmax"]).note == "1 step is computed by the reference engine: softmax"
    names = ", ".join(f"relu{i}" for i in range(8))
    assert session_of(["eltwise"], 11).note == f"11 steps are computed by the reference engine: {names} and 3 more"


@pytest.mark.parametrize("engine", [Lacking(()), "reference"])
def test_nothing_is_said_where_nothing_was_declined(engine: Lacking | str) -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3)), "x", "y")
    session = Session(plain_program(graph), graph, engine=engine)
    assert session.declined == ()
    assert session.note == ""
    assert "reference engine" not in repr(session)


@pytest.mark.parametrize("kinds", [("softmax",), ()])
def test_inlay_run_ends_with_the_note(
    kinds: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("inlay.primitives.engines._default", [Lacking(kinds)])
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], "scores", axis=1),
        helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    Path("net.onnx").write_bytes(model_of(nodes, {"x": (2, 3)}, ["y"]).SerializeToString())
    np.save("x.npy", drawn(2, 3))
    assert cli.main(["run", "net.onnx", "-i", "x.npy", "--costs", "analytic"]) == 0
    *_, timed, last = capsys.readouterr().out.splitlines()
    if kinds:
        assert timed.startswith("ran in ")
        assert last == "1 step is computed by the reference engine: scores"
    else:
        assert last.startswith("ran in ")
