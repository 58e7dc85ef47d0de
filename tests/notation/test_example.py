"""The example script about notations runs, and prints one line for each part."""

import runpy

import pytest

from tests.support.paths import ROOT


def test_the_example_of_patterns_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "patterns.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["equal"] * 3
    assert lines[2] == ("equal  nChw8c, n (c c8) row col -> n c row col c8, (2,(8,3),5,4):(480,(1,160),32,8)")
