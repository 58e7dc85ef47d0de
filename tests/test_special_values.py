"""NaN, infinities and the largest numbers come through networks as ONNX defines, in every place where they could vanish."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from special_values import COMBINING, ELEMENTWISE, Array, Case, model_of, node_of, special_values

import inlay
from inlay.graph.range_guards import THRESHOLD

ENGINES = ("onednn", "reference")


def session_of(model: bytes, engine: str) -> inlay.graph.session.Session:
    plan = inlay.plan(inlay.load(model), costs=inlay.graph.costs.probed(engine), engine=engine)
    return plan.compile(engine=engine)


def require_equal(found: Array, wanted: Array) -> None:
    """Within what float32 rounds; NaN and infinities in the same places."""
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=3e-5, atol=1e-6)
