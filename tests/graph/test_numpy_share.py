"""Plans, sessions, `inlay run` and reports name how many steps NumPy computes, and their share of the time."""

from pathlib import Path

import numpy as np
import pytest

import inlay
from inlay.cli import main
from inlay.graph.report import explain_plan, figures
from tests.support.written_models import written_model

MODEL = written_model("r = Relu(x) y = Erf(r)", (4, 8)).SerializeToString()


def test_a_plan_and_its_report_state_the_share_of_numpy() -> None:
    plan = inlay.plan(inlay.load(MODEL), costs="probed", fallback=False)
    share = plan.numpy
    assert (share.count, share.steps, share.how) == (1, 2, "predicted")
    assert 0 < share.share <= 1
    assert str(share) in explain_plan(plan).splitlines()
    assert figures(plan)["numpy"] == {"steps": 1, "share": share.share}
    assert str(share) in repr(plan)


def test_a_session_states_the_share_of_numpy() -> None:
    session = inlay.plan(inlay.load(MODEL), costs="probed", fallback=False).compile().prepare()
    assert str(session.numpy) in repr(session)
    measured = session.measure_numpy({"x": np.zeros((4, 8), np.float32)})
    assert (measured.count, measured.steps, measured.how) == (1, 2, "measured")
    assert 0 < measured.share <= 1


def test_a_plan_of_primitives_alone_does_not_mention_numpy() -> None:
    plan = inlay.plan(inlay.load(written_model("y = Relu(x)").SerializeToString()), costs="probed")
    assert plan.numpy.count == 0
    assert "NumPy" not in repr(plan) + explain_plan(plan) + repr(plan.compile(engine="onednn").prepare())


def test_run_prints_the_share_of_numpy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.onnx").write_bytes(MODEL)
    np.save(tmp_path / "x.npy", np.zeros((4, 8), np.float32))
    arguments = ["run", str(tmp_path / "net.onnx"), "-i", str(tmp_path / "x.npy"), "--costs", "probed"]
    arguments += ["--fallback", "numpy"]
    assert main(arguments) == 0
    assert "NumPy computes 1 of 2 steps, " in capsys.readouterr().out
