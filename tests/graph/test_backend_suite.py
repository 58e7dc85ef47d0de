"""ONNX's own backend tests as a whole: what is not refused is right, and what is refused is refused by an InlayError.

Most of what a runtime computes here is a tensor of a few elements, which shows faults of operators, not of speed. With
inputs as constants the cases look as nodes of networks do: more is folded, planned and packed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

VARIANTS = {
    "ONNX Runtime": ((), 1_900),
    "ONNX Runtime, constants": (("--constant", "1"), 1_900),
    "NumPy": (("--fallback", "numpy"), 1_582),
    "NumPy, constants": (("--fallback", "numpy", "--constant", "1"), 1_822),
    "primitives": (("--fallback", "none"), 600),
    "primitives, constants, older opset": (("--fallback", "none", "--clamp", "--constant", "1"), 800),
}
"""Options, and how many of the 2,033 cases of onnx 1.23 must pass."""


def lines_of(options: tuple[str, ...], directory: Path) -> list[dict[str, Any]]:
    """A dictionary for each case, from a process of its own; a case that ends the process is named."""
    environment = {**os.environ, "ONNX_HOME": str(directory)}
    command = [sys.executable, "-m", "tests.support.backend_suite", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1:], done.stderr[-2000:])
    return [line for line in lines if "result" in line]


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name == "ONNX Runtime" else pytest.mark.long) for name in VARIANTS]
)
def test_cases_pass_or_are_refused(variant: str, tmp_path: Path) -> None:
    options, least = VARIANTS[variant]
    lines = lines_of(options, tmp_path)
    assert [line for line in lines if line["result"] in ("wrong", "exception")] == []
    assert len(lines) > 2000
    assert sum(line["result"] == "pass" for line in lines) >= least
