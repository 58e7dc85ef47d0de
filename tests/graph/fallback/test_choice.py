"""What computes nodes without a primitive: `fallback` of `inlay.plan` and of the command line, reasons, errors."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import inlay
from inlay.cli import main
from inlay.errors import InlayError, InvalidArguments
from inlay.graph.plan import Plan
from inlay.graph.report import explain_plan, figures
from tests.support.written_models import written_model

pytest.importorskip("onnxruntime")

CHAIN = "a = Sin(x) b = Relu(a) m = ArgMax(b) y = Cos(b)"
COUNTED = (
    'y = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0, '
    "ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [3, 5, 7]> (x)"
)
"""A node that only ONNX Runtime computes."""


def planned(text: str, *, fallback: Any = "auto", outputs: str = "y", dims: Any = (2, 3), **options: Any) -> Plan:
    model = written_model(text, dims, outputs, **options)
    return inlay.plan(inlay.load(model.SerializeToString()), costs="analytic", fallback=fallback)


def impls_of(plan: Plan) -> dict[str, str]:
    return {step.name: step.impl for step in plan.program.steps if step.kind == "reference"}


def text_of(call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(InlayError) as caught:
        call(*arguments, **options)
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.fixture
def without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("fallback.assignment", "fallback.sessions", "onnx.importer"):
        monkeypatch.setattr(f"inlay.graph.{module}.find_onnxruntime", lambda: None)


def test_the_plan_tells_what_computes_and_why() -> None:
    plan = planned(CHAIN, outputs="y m")
    assert impls_of(plan) == {"a": "onnxruntime", "m": "numpy", "y": "onnxruntime"}
    assert (plan.fallback.count, plan.numpy.count) == (2, 1)
    assert {*map(str, (plan.fallback, plan.numpy))} <= {*explain_plan(plan).splitlines()}
    assert figures(plan)["fallback"] == {"steps": 2, "share": plan.fallback.share}
    why = "there is no primitive for ArgMax; ONNX Runtime does not compute it: its ArgMax loses NaN or infinities"
    assert {step.name: step.why for step in plan.program.steps}["m"] == why
    text = " ".join(explain_plan(plan).split())
    assert "y is computed by ONNX Runtime: there is no primitive for Cos" in text
    assert f"m is computed by NumPy: {why}" in text
    session = plan.compile(engine="reference").prepare()
    assert f"; {session.fallback}; " in repr(session)
    measured = session.measure_fallback({"x": np.ones((2, 3), np.float32)}, runs=1)
    assert (measured.count, measured.how) == (2, "measured")


def test_a_kernel_that_onnx_runtime_lacks_is_left_to_numpy() -> None:
    plan = planned("a = Cos(x) b = Asinh(a) y = Sin(b)", kind=TensorProto.DOUBLE)
    assert impls_of(plan) == {"a": "onnxruntime", "b": "numpy", "y": "onnxruntime"}
    why = {step.name: step.why for step in plan.program.steps}["b"]
    assert why.startswith("there is no primitive for Asinh; ONNX Runtime does not compute it: ")
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    got = plan.compile(engine="reference").run({"x": x})["y"]
    np.testing.assert_allclose(got, np.sin(np.arcsinh(np.cos(x))))


def test_false_and_none_forbid() -> None:
    assert {*impls_of(planned(CHAIN, outputs="y m", fallback=False)).values()} == {"numpy"}
    assert planned("y = Relu(x)", fallback=None).numpy.count == 0
    assert text_of(planned, CHAIN, fallback=None) == (
        "Unimplemented: fallback=None (--fallback none) allows primitives alone, and 2 of 3 operations have none: 'a' "
        "(there is no primitive for Sin), 'y' (there is no primitive for Cos): give fallback=False (--fallback numpy) "
        "for NumPy, or 'auto' for ONNX Runtime too"
    )
    stored = planned("y = Relu(x) c = CastLike(half, x)", outputs="y c", fallback=None, half=np.full(1, 0.5))
    assert stored.compile(engine="reference").run({"x": np.ones((2, 3), np.float32)})["c"].tolist() == [0.5]
    for wrong in ("numpy", True, 0):
        assert text_of(planned, CHAIN, fallback=wrong) == (
            f"InvalidArguments: fallback is {wrong!r}: give 'auto', False for NumPy without ONNX Runtime, or None for "
            "neither"
        )


def test_a_node_that_only_onnx_runtime_computes_runs() -> None:
    found = planned(COUNTED, dims=(2, 4), kind=TensorProto.INT64).compile(engine="reference")
    words = np.array([[3, 7, 3, 1], [5, 5, 5, 0]])
    np.testing.assert_array_equal(found.run({"x": words})["y"], [[2, 0, 1], [0, 3, 0]])


@pytest.mark.usefixtures("without_onnxruntime")
def test_without_the_extra_numpy_computes_and_errors_name_the_command() -> None:
    assert {*impls_of(planned(CHAIN)).values()} == {"numpy"}
    assert text_of(planned, "y = Sin(x)", fallback=None) == (
        "Unimplemented: fallback=None (--fallback none) allows primitives alone, and 1 of 1 operations have none: 'y' "
        "(there is no primitive for Sin): give fallback=False (--fallback numpy) for NumPy, or 'auto' for ONNX Runtime "
        "too, which pip install 'inlay[fallback]' installs"
    )
    assert text_of(planned, COUNTED, dims=(2, 4), kind=TensorProto.INT64) == (
        "Unimplemented: node 'y': TfIdfVectorizer, opset 17, is computed by no primitive and by no function of Inlay: "
        "replace it by operators of ONNX, or leave it out of the file; ONNX Runtime may compute it: "
        "pip install 'inlay[fallback]'"
    )


def test_a_plan_for_onnx_runtime_is_refused_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = pickle.loads(pickle.dumps(planned("y = Sin(x)")))
    monkeypatch.setattr("inlay.graph.fallback.sessions.find_onnxruntime", lambda: None)
    assert text_of(plan.compile, engine="reference") == (
        "MissingExtra: y is for ONNX Runtime, which is not installed: pip install 'inlay[fallback]'"
    )


def test_elements_that_a_node_does_not_allow_are_an_error_that_names_it(capfd: pytest.CaptureFixture[str]) -> None:
    session = planned("y = GatherElements(t, x)", kind=TensorProto.INT64, t=np.zeros((2, 3), np.float32)).compile(
        engine="reference"
    )
    with pytest.raises(InvalidArguments, match="y"):
        session.run({"x": np.full((2, 3), 7)})
    assert capfd.readouterr() == ("", "")  # ONNX Runtime's own log is silent


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(written_model(CHAIN, (2, 3)).SerializeToString())
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    run = ["run", str(tmp_path / "net.onnx"), "-i", str(tmp_path / "x.npy"), "--costs", "probed", "--fallback"]
    assert main([*run, "auto"]) == 0
    assert "ONNX Runtime computes 2 of 3 steps, " in capsys.readouterr().out
    assert main([*run, "numpy"]) == 0
    assert "NumPy computes 2 of 3 steps, " in capsys.readouterr().out
    assert main([*run, "none"]) != 0
    text = capsys.readouterr().err
    assert "(--fallback none) allows primitives alone, and 2 of 3 operations have none: " in text
    assert " (--fallback numpy) for NumPy, or 'auto' for ONNX Runtime too\n" in text
    assert main([*run, "some"]) != 0
    assert "--fallback is 'some': give auto, numpy without ONNX Runtime, or none of both" in capsys.readouterr().err
