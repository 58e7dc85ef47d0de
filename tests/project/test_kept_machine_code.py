"""The first run of the tests compiles every kernel; the next run of the same sources loads them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def run_tests(code: Path, *tests: str) -> None:
    """Run `tests`, always with the same random examples, with the folder `code` for kept machine code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests]
    environment = {**os.environ, "INLAY_TEST_CODE": str(code)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.heavy
def test_reorders_are_right_with_compiled_and_with_kept_machine_code(tmp_path: Path) -> None:
    code, tests = tmp_path / "code", ("tests/reordering/test_reorder.py", "tests/reordering/test_panels.py")
    run_tests(code, *tests)
    kept = {path.name: path.stat().st_mtime for path in code.iterdir()}
    assert len(kept) > 50
    assert all(name.endswith(".o") for name in kept)
    run_tests(code, *tests)
    assert {path.name: path.stat().st_mtime for path in code.iterdir()} == kept
