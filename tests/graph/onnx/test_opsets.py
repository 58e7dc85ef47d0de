"""Opsets: older models are converted without a change of results, and newer ones accepted operator by operator."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from inlay.errors import Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import FUNCTIONS, OPSETS, require_computable
from inlay.graph.onnx.reading import load
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan
from tests.support.lowered_models import normal
from tests.support.network_runs import run_by_onnxruntime
from tests.support.networks import Model
from tests.support.refusals import raises_exactly
from tests.support.written_models import written_model

X = normal(3, (2, 3, 4, 5))
CONSTANTS = {"s": np.array([1.0, 2, 3], np.float32), "m": normal(4, (5, 2))}


def run(model: Model, x: Array = X) -> Array:
    return plan(load(model.SerializeToString()), costs="probed").compile().run({"x": x})["y"]


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("Relu(x)", 7),
        ("Softmax <axis = 2> (x)", 8),
        ("Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (x)", 8),
        ("BatchNormalization(x, s, s, s, s)", 8),
        ("MaxPool <kernel_shape = [2, 2]> (x)", 8),
        ("Flatten <axis = 2> (x)", 8),
        ("Cast <to = 1> (x)", 8),
        ("Max(x, x)", 7),
        ("PRelu(x, x)", 7),
        ("MatMul(x, m)", 7),
        ("BatchNormalization <spatial = 1> (x, s, s, s, s)", 7),
    ],
)
def test_older_models_are_read_and_compute_what_onnx_runtime_computes(text: str, opset: int) -> None:
    constants: dict[str, Any] = {name: array for name, array in CONSTANTS.items() if f" {name}" in text}
    model = written_model(f"y = {text}", X.shape, opset=opset, **constants)
    np.testing.assert_allclose(run(model), run_by_onnxruntime(model, {"x": X})["y"], rtol=1e-5, atol=1e-6)


def test_an_addition_of_opset_6_is_broadcast_along_the_axis_that_it_names() -> None:
    added = np.arange(5, dtype=np.float32)
    model = written_model("y = Add <broadcast = 1, axis = 3> (x, c)", X.shape, opset=6, c=added)
    np.testing.assert_array_equal(run(model), X + added)


@pytest.mark.parametrize("opset", range(7, OPSETS[1] + 1))
def test_models_of_each_opset_compute_the_same(opset: int) -> None:
    text = "a = Conv(x, w) b = Relu(a) c = Reshape(b, dims) y = Cast <to = 11> (c)"
    constants: Any = {"w": X[:, :, :2, :2].copy(), "dims": np.array([2, -1])}
    first, last = (run(written_model(text, X.shape, opset=version, **constants)) for version in (17, opset))
    np.testing.assert_array_equal(first, last)
    assert last.dtype == np.float64


def test_rms_normalization_becomes_primitives() -> None:
    scale = np.arange(5, dtype=np.float32)
    model = written_model("y = RMSNormalization(x, s)", X.shape, opset=23, s=scale)
    chosen = plan(load(model.SerializeToString()), costs="probed")
    assert [step.kind for step in chosen.program.steps] == ["eltwise", "reduction", "layer_normalization"]
    expected = X / np.sqrt(np.square(X).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(chosen.compile().run({"x": X})["y"], expected, rtol=1e-5, atol=1e-6)


def test_the_newest_opset_that_is_read_is_known_to_the_package_onnx() -> None:
    assert OPSETS == (9, 28)
    assert onnx.defs.onnx_opset_version() >= OPSETS[1]


@pytest.mark.parametrize("operator", ["FlexAttention", "ImageDecoder"])
def test_an_operator_that_nothing_computes_is_refused(operator: str) -> None:
    assert operator not in FUNCTIONS
    with raises_exactly(
        Unimplemented,
        f"node 'n': {operator}, opset 28, is computed by no primitive and by no function of Inlay: replace it by "
        "operators of ONNX, or leave it out of the file",
    ):
        require_computable(Node("n", operator, ("x",), ("y",)), 28)


@pytest.mark.parametrize(("code", "count"), [(TensorProto.INT4, 5), (TensorProto.UINT4, 7), (TensorProto.UINT4, 1)])
def test_a_tensor_of_4_bit_elements_has_any_number_of_them(code: int, count: int) -> None:
    text = f"a = Cast <to = {code}> (x) b = Reshape(a, dims) y = DequantizeLinear(b, s, z)"
    constants: Any = {"dims": np.array([count, 1]), "s": np.array(0.5, np.float32)}
    model = written_model(text, (count,), opset=21, **constants)
    model.graph.initializer.append(onnx.helper.make_tensor("z", code, [], [1]))
    x = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(run(model, x), (x[:, None] - 1) / 2)
