"""Size limits: dims of 2^30 and more do not end the process, because oneDNN is not called beyond its 32-bit limits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.limits import find_exceeded_limit
from tests.oracles import onednn as oracle
from tests.support.network_runs import model_of
from tests.support.processes import run_python

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

INT = 2**31 - 1


@needs_onednn
@pytest.mark.skipif(not hasattr(os, "fork"), reason="creations are made in forks")
def test_no_creation_with_dims_up_to_2_to_the_40_ends_the_process() -> None:
    done = run_python("-m", "tests.support.large_dims")
    assert (done.stdout, done.stderr) == ("", "")


def any_of(*dims: int) -> MemoryDesc:
    return MemoryDesc(dims, "f32", "any")


def convolution(height: int, width: int, channels: int = 8) -> p.Primitive:
    return p.Convolution(any_of(1, channels, height, width), any_of(8, channels, 3, 3), padding_l=1, engine="reference")


def lstm(channels: int, times: int = 5) -> p.Primitive:
    weights = any_of(1, 1, channels, 4, channels)
    return p.LSTM(any_of(times, 2, channels), weights, weights, engine="reference")


def dense(inputs: int, outputs: int = 8) -> p.Primitive:
    return p.InnerProduct(any_of(2, inputs), any_of(outputs, inputs), engine="reference")


def resampled(extent: int, algorithm: str = "linear") -> p.Primitive:
    src = MemoryDesc((1, 1, extent // 2), "f32")
    return p.Resampling(src, factors=2.0, algorithm=algorithm, engine="reference")


def normalized(channels: int) -> p.Primitive:
    return p.LayerNormalization(MemoryDesc((1, channels), "f32"), epsilon=1e-3, engine="reference")


def multiplied(rows: int) -> p.Primitive:
    return p.MatMul(any_of(rows, 8), any_of(8, 8), engine="reference")


COUNTS = f"its kernels count to {INT}"
OLD_LIMITS = [
    (convolution(2**31, 8), f"convolution with a dim of {2**31} in src: {COUNTS}"),
    (convolution(2**24, 8), f"convolution with {2**31} elements in an image of src: {COUNTS}"),
    (
        p.Convolution(any_of(1, 8, 2**26), any_of(8, 8, 1), engine="reference"),
        f"convolution with {2**26} columns of dst, for which it would fill 4 GiB with tables",
    ),
    (
        p.Deconvolution(any_of(1, 2**16, 3, 3), any_of(2**15, 2**16, 1, 1), engine="reference"),
        f"deconvolution by {2**31} weights of a group: {COUNTS}",
    ),
    (lstm(2**29), f"lstm with {2**31} channels of gates: {COUNTS}"),
    (lstm(8, 2**31), f"lstm with a dim of {2**31} in src_layer: {COUNTS}"),
    (multiplied(2**32), f"matmul with a dim of {2**32} in src: {COUNTS}"),
]
LIMITS = [
    (dense(2**31), f"inner_product with dims (2, {2**31}) in src: {COUNTS}"),
    (resampled(2**28), f"linear resampling to {2**28} pixels, for which it would fill 8 GiB with tables"),
    (normalized(2**29), f"layer_normalization over {2**29} elements, for which it would unroll its code"),
]
BELOW = [
    convolution(2**23, 8),
    p.Convolution(any_of(1, 8, 2**26 - 1), any_of(8, 8, 1), engine="reference"),
    p.Convolution(any_of(1, 2**20, 3), any_of(2**20, 1, 1, 3), engine="reference"),
    lstm(2**28),
    dense(2**30),
    resampled(2**27),
    resampled(2**30, "nearest"),
    normalized(2**28),
    p.Eltwise(MemoryDesc((2**40,), "u8"), algorithm="relu", engine="reference"),
]


@pytest.mark.parametrize(
    ("primitive", "old", "later"),
    [
        *((primitive, text, None) for primitive, text in OLD_LIMITS),
        *((primitive, text, text) for primitive, text in LIMITS),
        *((primitive, None, None) for primitive in BELOW),
    ],
)
def test_an_operation_that_is_too_large_is_declined_in_these_words(
    primitive: p.Primitive, old: str | None, later: str | None
) -> None:
    assert find_exceeded_limit((3, 2, 0), primitive.operation) == old
    assert find_exceeded_limit((3, 13, 2), primitive.operation) == later


@needs_onednn
def test_a_file_with_a_large_dim_is_planned_or_refused(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    model = model_of([node], {"x": ("n", 8, 2**31, 8)}, ["y"], {"w": np.ones((8, 8, 3, 3), np.float32)})
    file = tmp_path / "large.onnx"
    file.write_bytes(model.SerializeToString())
    command = [sys.executable, "-m", "inlay", "plan", str(file), "--batch", "1", "--costs", "probed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
