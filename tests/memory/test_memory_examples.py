"""The example scripts on memory run, and all their comparisons hold."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize("name", ["memory_as_array", "padding_contract"])
def test_an_example_runs_and_its_results_are_equal(name: str) -> None:
    call = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("All results are equal.\n")
