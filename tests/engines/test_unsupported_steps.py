"""Steps that the engine of a session does not support: the reference engine computes them, and the session says so."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from inlay import cli
from inlay.descriptor import MemoryDesc
from inlay.errors import Unimplemented
from inlay.graph.op_graph import Op
from inlay.graph.runtime.plain import plain_program
from inlay.graph.runtime.program_session import ProgramSession
from inlay.memory import Memory, pack
from inlay.primitives import Eltwise, get_engine
from inlay.primitives.engine import Engine, Implementation, Operation, PlainImplementation
from tests.support.graph_programs import blocked, drawn, graph_of, relu
from tests.support.network_runs import model_of


@dataclass(frozen=True)
class Lacking(Engine):
    """An engine that has all but some kinds of primitives."""

    kinds: tuple[str, ...]
    name: str = "lacking 1.0"

    def create(self, operation: Operation) -> Implementation:
        if operation.kind in self.kinds:
            raise Unimplemented(f"no {operation.kind}")
        return get_engine("reference").create(operation)


class Late(PlainImplementation):
    """An implementation of an engine that finds out late that it cannot generate the code."""

    def create_primitive(self) -> None:
        raise Unimplemented(f"no code for {self.operation.kind}")

    def bind(self, memories: Mapping[str, Memory]) -> Callable[[], None]:
        raise Unimplemented(f"no code for {self.operation.kind}")


@dataclass(frozen=True)
class FindingOutLate(Engine):
    """An engine that accepts everything, and generates no code for some kinds of primitives."""

    kinds: tuple[str, ...]
    more: Mapping[str, MemoryDesc] = field(default_factory=dict)
    name: str = "late 1.0"

    def create(self, operation: Operation) -> Implementation:
        accepted = get_engine("reference").create(operation)
        descs = {**accepted.descs, **self.more}
        return Late(operation, descs, "jit:late", accepted.bind) if operation.kind in self.kinds else accepted


def session_of(kinds: Sequence[str], count: int = 2) -> ProgramSession:
    """A softmax and `count` ReLUs after it."""
    softmax = Op("softmax", "softmax", {"src": "x"}, {"dst": "t0"}, parameters={"algorithm": "accurate", "axis": 1})
    relus = [relu(f"relu{i}", f"t{i}", f"t{i + 1}") for i in range(count)]
    names = ["x", *(f"t{i}" for i in range(count + 1))]
    graph = graph_of([softmax, *relus], dict.fromkeys(names, (2, 3)), "x", names[-1])
    return ProgramSession(plain_program(graph), graph, engine=Lacking(tuple(kinds)))


def test_a_session_names_the_steps_that_its_engine_declined() -> None:
    session = session_of(["eltwise"])
    assert session.declined == ("relu0", "relu1")
    assert session.note == "2 steps are computed by the reference engine: relu0, relu1"
    assert repr(session).endswith(f"; {session.note}>")
    image = drawn(2, 3)
    powers = np.exp(image.astype(np.float64))
    (found,) = session.run({"x": image}).values()
    np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_a_step_is_declined_that_no_code_is_generated_for() -> None:
    case = blocked()
    session = ProgramSession(case.program, case.graph, engine=FindingOutLate(("convolution", "reorder")))
    assert session.declined == ("conv",)
    assert session.note == "1 step is computed by the reference engine: conv"
    # Inlay moves what the engine cannot.
    assert {impl for name, impl in session.impls.items() if name != "conv"} == {"compiled"}
    given = {"x": drawn(2, 17, 3, 3), "r": drawn(1, 17, 1, 1, seed=1)}
    np.testing.assert_allclose(session.run(given)["y"], case.expected(given)["y"], rtol=1e-5, atol=1e-6)


def test_a_primitive_moves_to_the_reference_at_its_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    late = FindingOutLate(("eltwise",))
    monkeypatch.setattr("inlay.primitives.engine._default", [late])
    src = pack(drawn(2, 3), "ab")
    relu = Eltwise(src.desc, algorithm="relu")
    assert relu.engine is late
    np.testing.assert_array_equal(relu(src=src).unpack(), np.maximum(src.unpack(), 0))
    assert relu.engine is get_engine("reference")
    named = Eltwise(src.desc, algorithm="relu", engine=late)
    with pytest.raises(Unimplemented, match=r"^no code for eltwise$"):
        named(src=src)
    assert named.engine is late


def test_a_primitive_stays_where_its_arguments_would_change(monkeypatch: pytest.MonkeyPatch) -> None:
    late = FindingOutLate(("eltwise",), {"workspace": MemoryDesc((8,), "u8")})
    monkeypatch.setattr("inlay.primitives.engine._default", [late])
    src = pack(drawn(2, 3), "ab")
    with pytest.raises(Unimplemented, match=r"^no code for eltwise$"):
        Eltwise(src.desc, algorithm="relu")(src=src)


def test_one_step_and_many_have_their_words() -> None:
    assert session_of(["softmax"]).note == "1 step is computed by the reference engine: softmax"
    names = ", ".join(f"relu{i}" for i in range(8))
    assert session_of(["eltwise"], 11).note == f"11 steps are computed by the reference engine: {names} and 3 more"


@pytest.mark.parametrize("engine", [Lacking(()), "reference"])
def test_nothing_is_said_where_nothing_was_declined(engine: Lacking | str) -> None:
    graph = graph_of([relu("relu", "x", "y")], dict.fromkeys("xy", (2, 3)), "x", "y")
    session = ProgramSession(plain_program(graph), graph, engine=engine)
    assert session.declined == ()
    assert session.note == ""
    assert "reference engine" not in repr(session)


@pytest.mark.parametrize("kinds", [("softmax",), ()])
def test_inlay_run_ends_with_the_note(
    kinds: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("inlay.primitives.engine._default", [Lacking(kinds)])
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
