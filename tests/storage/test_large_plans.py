"""The plan of a checkpoint of 10 TB: its cost depends on the number of tensors, and little of it on each."""

import json
import sys

import pytest

from tests.support.large_checkpoint import COUNT, SHAPES
from tests.support.processes import run_python


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")
def test_a_plan_of_10_terabytes_fits_in_one_gigabyte() -> None:
    figures = json.loads(run_python("-m", "tests.support.large_checkpoint").stdout)
    assert figures["tensors"] == COUNT
    assert figures["nbytes"] > 10e12
    assert figures["boxes"] > 100_000
    assert figures["finished"] == 1000
    # Boxes are computed once for each shape, not for each tensor.
    assert figures["computed"] == len(set(SHAPES))
    assert figures["memory"] < 1e9
