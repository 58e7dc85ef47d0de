"""Opsets: older models are converted without a change of results, and newer ones accepted operator by operator."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inlay.errors import Unimplemented
from inlay.graph.network import Node
from inlay.graph.numpy_operators.evaluation import FUNCTIONS, OPSETS, require_computable
from inlay.graph.onnx.reading import load
from inlay.graph.op_graph import Array
from inlay.graph.plan import plan
from tests.support.network_runs import model_of, run_by_onnxruntime

X = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)
S = np.array([1.0, 2, 3], np.float32)


def answer(model: onnx.ModelProto) -> Array:
    network = load(model.SerializeToString())
    return plan(network, costs="probed").compile().run({"x": X})["y"]


def old(operator: str, opset: int, *constants: Array, **attributes: Any) -> onnx.ModelProto:
    names = [f"c{k}" for k in range(len(constants))]
    node = helper.make_node(operator, ["x", *names], ["y"], "n", **attributes)
    made: onnx.ModelProto = model_of([node], {"x": X.shape}, ["y"], dict(zip(names, constants, strict=True)), opset)
    return made


@pytest.mark.parametrize(
    "model",
    [
        old("Relu", 7),
        old("Softmax", 8, axis=2),
        old("Upsample", 8, scales=[1.0, 1.0, 2.0, 3.0]),
        old("BatchNormalization", 8, S, S, S, S),
        old("MaxPool", 8, kernel_shape=[2, 2]),
        old("Flatten", 8, axis=2),
        old("Cast", 8, to=TensorProto.FLOAT),
    ],
    ids=lambda model: model.graph.node[0].op_type,
)
def test_older_models_are_read_and_compute_what_onnx_runtime_computes(model: onnx.ModelProto) -> None:
    wanted = run_by_onnxruntime(model, {"x": X})["y"]
    np.testing.assert_allclose(answer(model), wanted, rtol=1e-5, atol=1e-6)


def test_an_addition_of_opset_6_spreads_along_the_axis_that_it_names() -> None:
    model = old("Add", 6, np.arange(5, dtype=np.float32), broadcast=1, axis=3)
    np.testing.assert_array_equal(answer(model), X + np.arange(5, dtype=np.float32))


@pytest.mark.parametrize("opset", range(23, 29))
def test_models_of_new_opsets_compute_the_same(opset: int) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Reshape", ["b", "dims"], ["c"], "reshape"),
        helper.make_node("Cast", ["c"], ["y"], "cast", to=TensorProto.DOUBLE),
    ]
    constants = {"w": X[:, :, :2, :2].copy(), "dims": np.array([2, -1])}
    made = [model_of(nodes, {"x": X.shape}, ["y"], constants, version) for version in (17, opset)]
    first, last = (answer(model) for model in made)
    np.testing.assert_array_equal(first, last)
    assert last.dtype == np.float64


def test_rms_normalization_is_a_primitive() -> None:
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"], "n")
    scale = np.arange(5, dtype=np.float32)
    model = model_of([node], {"x": X.shape}, ["y"], {"s": scale}, 23)
    chosen = plan(load(model.SerializeToString()), costs="probed")
    assert [step.kind for step in chosen.program.steps] == ["layer_normalization"]
    wanted = X / np.sqrt(np.square(X).mean(-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(chosen.compile().run({"x": X})["y"], wanted, rtol=1e-5, atol=1e-6)


def test_what_is_read_up_to_is_what_was_compared() -> None:
    assert OPSETS == (9, 28)
    assert onnx.defs.onnx_opset_version() >= OPSETS[1]


@pytest.mark.parametrize("operator", sorted({"FlexAttention", "ImageDecoder", "Multinomial", "MaxRoiPool"}))
def test_an_operator_that_nothing_computes_is_refused(operator: str) -> None:
    assert operator not in FUNCTIONS
    with pytest.raises(Unimplemented, match=f"node 'n': {operator}, opset 28, is computed by no primitive"):
        require_computable(Node("n", operator, ("x",), ("y",)), 28, {"x": np.dtype(np.float32)})


@pytest.mark.parametrize(("code", "count"), [(TensorProto.INT4, 5), (TensorProto.UINT4, 7), (TensorProto.UINT4, 1)])
def test_numbers_of_four_bits_come_in_any_number(code: int, count: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], "a", to=code),
        helper.make_node("Reshape", ["a", "dims"], ["b"], "b"),
        helper.make_node("DequantizeLinear", ["b", "s", "z"], ["y"], "c"),
    ]
    stored = helper.make_tensor("z", code, [], [1])
    constants = {"dims": np.array([count, 1]), "s": np.array(0.5, np.float32)}
    model = model_of(nodes, {"x": (count,)}, ["y"], constants, 21)
    model.graph.initializer.append(stored)
    found = plan(load(model.SerializeToString()), costs="probed").compile()
    x = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(found.run({"x": x})["y"], (x[:, None] - 1) / 2)
