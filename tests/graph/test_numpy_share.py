"""Plans, sessions, `inlay run` and reports say how many steps NumPy computes, and their share of the time."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import inlay
from inlay.cli import main
from inlay.graph.report import explain_plan, figures
from tests.support.special_values import model_of

NODES = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Erf", ["r"], ["y"])]


def test_a_plan_and_its_report_tell_the_share_of_numpy() -> None:
    plan = inlay.plan(inlay.load(model_of(NODES, (4, 8), {})), costs="probed")
    share = plan.numpy
    assert (share.count, share.steps, share.how) == (1, 2, "predicted")
    assert 0 < share.share <= 1
    assert str(share) in explain_plan(plan).splitlines()
    assert figures(plan)["numpy"] == {"steps": 1, "share": share.share}
    assert str(share) in repr(plan)


def test_a_session_tells_the_share_of_numpy() -> None:
    session = inlay.plan(inlay.load(model_of(NODES, (4, 8), {})), costs="probed").compile()
    assert str(session.numpy) in repr(session)
    measured = session.measure_numpy({"x": np.zeros((4, 8), np.float32)})
    assert (measured.count, measured.steps, measured.how) == (1, 2, "measured")
    assert 0 < measured.share <= 1


def test_what_primitives_compute_alone_is_not_mentioned() -> None:
    plan = inlay.plan(inlay.load(model_of([helper.make_node("Relu", ["x"], ["y"])], (4, 8), {})), costs="probed")
    assert plan.numpy.count == 0
    assert "NumPy" not in repr(plan) + explain_plan(plan) + repr(plan.compile(engine="onednn"))


def test_run_prints_the_share_of_numpy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(model_of(NODES, (4, 8), {}))
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    arguments = ["run", str(tmp_path / "net.onnx"), "-i", str(tmp_path / "x.npy"), "--costs", "probed"]
    assert main(arguments) == 0
    assert "NumPy computes 1 of 2 steps, " in capsys.readouterr().out
