"""Size limits: dims of 2^30 and more do not end the process, because oneDNN is not called beyond its 32-bit limits."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from inlay import primitives as p
from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.defects import find_exceeded_limit
from tests.oracles import onednn as oracle
from tests.support.processes import run_python

needs_onednn = pytest.mark.skipif(oracle.why_unavailable() is not None, reason=str(oracle.why_unavailable()))

PROGRAM = "tests.support.large_dims"
INT = 2**31 - 1
OLD, LATER = (3, 2, 0), (3, 13, 2)


@needs_onednn
@pytest.mark.skipif(not hasattr(os, "fork"), reason="creations are made in forks")
def test_no_creation_with_dims_up_to_2_to_the_40_ends_the_process() -> None:
    done = run_python("-m", PROGRAM)
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
TOO_LARGE: Mapping[str, tuple[Callable[[], p.Primitive], str | None, str | None]] = {
    "dim": (
        lambda: convolution(2**31, 8),
        f"convolution with a dim of {2**31} in src: {COUNTS}",
        None,
    ),
    "image": (
        lambda: convolution(2**24, 8),
        f"convolution with {2**31} elements in an image of src: {COUNTS}",
        None,
    ),
    "columns": (
        lambda: p.Convolution(any_of(1, 8, 2**26), any_of(8, 8, 1), engine="reference"),
        f"convolution with {2**26} columns of dst, for which it would fill 4 GiB with tables",
        None,
    ),
    "weights": (
        lambda: p.Deconvolution(any_of(1, 2**16, 3, 3), any_of(2**15, 2**16, 1, 1), engine="reference"),
        f"deconvolution by {2**31} weights of a group: {COUNTS}",
        None,
    ),
    "gates": (lambda: lstm(2**29), f"lstm with {2**31} channels of gates: {COUNTS}", None),
    "times": (lambda: lstm(8, 2**31), f"lstm with a dim of {2**31} in src_layer: {COUNTS}", None),
    "rows": (lambda: multiplied(2**32), f"matmul with a dim of {2**32} in src: {COUNTS}", None),
    "inputs": (
        lambda: dense(2**31),
        f"inner_product with dims (2, {2**31}) in src: {COUNTS}",
        f"inner_product with dims (2, {2**31}) in src: {COUNTS}",
    ),
    "pixels": (
        lambda: resampled(2**28),
        f"linear resampling to {2**28} pixels, for which it would fill 8 GiB with tables",
        f"linear resampling to {2**28} pixels, for which it would fill 8 GiB with tables",
    ),
    "normalized": (
        lambda: normalized(2**29),
        f"layer_normalization over {2**29} elements, for which it would unroll its code",
        f"layer_normalization over {2**29} elements, for which it would unroll its code",
    ),
}
BESIDE: Mapping[str, Callable[[], p.Primitive]] = {
    "image": lambda: convolution(2**23, 8),
    "columns": lambda: p.Convolution(any_of(1, 8, 2**26 - 1), any_of(8, 8, 1), engine="reference"),
    "groups": lambda: p.Convolution(any_of(1, 2**20, 3), any_of(2**20, 1, 1, 3), engine="reference"),
    "gates": lambda: lstm(2**28),
    "inputs": lambda: dense(2**30),
    "pixels": lambda: resampled(2**27),
    "nearest": lambda: resampled(2**30, "nearest"),
    "normalized": lambda: normalized(2**28),
    "elements": lambda: p.Eltwise(MemoryDesc((2**40,), "u8"), algorithm="relu", engine="reference"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_is_too_large_is_declined_in_these_words(name: str) -> None:
    make, old, later = TOO_LARGE[name]
    operation = make().operation
    assert find_exceeded_limit(OLD, operation) == old
    assert find_exceeded_limit(LATER, operation) == later


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_not_is_left_to_the_library(name: str) -> None:
    operation = BESIDE[name]().operation
    assert find_exceeded_limit(OLD, operation) is None
    assert find_exceeded_limit(LATER, operation) is None


@needs_onednn
def test_a_file_with_such_a_dim_is_planned_or_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    np = pytest.importorskip("numpy")
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 2**31, 8])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = numpy_helper.from_array(np.ones((8, 8, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "one", [image], [result], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "large.onnx"))
    command = [sys.executable, "-m", "inlay", "plan", str(tmp_path / "large.onnx"), "--batch", "1", "--costs", "probed"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode in (0, 1, 2), done.stderr
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
