"""The example of a profile runs, and writes a trace of the steps that it prints."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.mark.usefixtures("quiet_machine")
def test_the_example_of_a_profile_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["profile_network.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / "profile_network.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.startswith("encoder: a run takes ")
    assert " equal steps take " in out, "the blocks are recognized"
    content = json.loads((tmp_path / "steps.json").read_text())
    steps = [event["name"] for event in content["traceEvents"] if event["ph"] == "X" and event["tid"] == 2]
    assert len(steps) == len({*steps}) >= 8
    assert any(line.startswith("the slowest step is layer") for line in out.splitlines())
