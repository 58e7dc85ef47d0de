"""Networks of ONNX Runtime's dynamic quantizer beside ONNX Runtime: each operation, kernels, results, files."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
from inlay.graph.op_graph import Array
from inlay.graph.passes.simplification import simplify_network
from tests.graph.quantized.test_nodes import assert_is_close, cut, run
from tests.support.static_quantization import (
    DYNAMIC_FORMS,
    NETWORKS,
    dynamically_quantized,
    run_onnxruntime,
    sample,
)

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.heavy

CASES = [(network, form) for network in NETWORKS for form in DYNAMIC_FORMS]
"""Networks and forms."""
PRODUCTS = {"residual network": 4, "transformer block": 5, "dense network": 4, "upsampling network": 4}
"""Number of products of integers in each network."""


def require_kernels(model: bytes) -> bytes:
    """Return a model; skip the test if ONNX Runtime lacks a kernel of it, as releases do for ConvInteger with s8."""
    import onnxruntime

    try:
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented as error:
        pytest.skip(str(error))
    return model


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize(("network", "form"), CASES)
def test_each_operation_is_that_of_onnxruntime(network: str, form: str, engine: str | None) -> None:
    """ONNX Runtime's own results are the inputs of each operation: a quantum too much is no error of the next one."""
    model = require_kernels(dynamically_quantized(network, form))
    proto = onnx.load_from_string(model)
    inputs = {"x": sample(NETWORKS[network](), 100)}
    known = inputs | run_onnxruntime(model, inputs, [name for node in proto.graph.node for name in node.output if name])
    graph = lower_network(simplify_network(load_bound(model)))
    assert sum(op.kind == "dynamic_quantization" for op in graph.ops) > 0
    targets = [name for op in graph.ops for name in op.writes.values() if name in known]
    assert len(targets) >= PRODUCTS[network]
    for target in targets:
        assert_is_close(run(cut(graph, target, frozenset(known)), known, engine), known[target])


@pytest.mark.parametrize(("network", "form"), CASES)
def test_no_kernel_is_a_reference(network: str, form: str) -> None:
    plan = inlay.plan(inlay.load(dynamically_quantized(network, form)), costs="probed")
    impls = {step.name: step.impl for step in plan.program.steps}
    assert {name: impl for name, impl in impls.items() if impl.startswith(("ref", "numpy", "onnxruntime"))} == {}


@pytest.mark.parametrize(("network", "form"), CASES)
def test_a_network_is_as_close_to_f32_as_onnxruntime(network: str, form: str) -> None:
    source, model = NETWORKS[network](), require_kernels(dynamically_quantized(network, form))
    theirs, ours = 0.0, 0.0
    with inlay.compile(inlay.load(model), costs="analytic") as session:
        assert not session.profile({"x": sample(source, 199)}, runs=1).is_exact
        for seed in range(200, 208):
            inputs = {"x": sample(source, seed)}
            exact = run_onnxruntime(source.SerializeToString(), inputs)["y"]
            theirs += float(np.square(run_onnxruntime(model, inputs)["y"] - exact).sum())
            ours += float(np.square(session.run(inputs)["y"] - exact).sum())
    assert ours <= 1.1**2 * theirs


def test_a_saved_plan_has_the_same_results(tmp_path: Path) -> None:
    model, x = dynamically_quantized("transformer block", "s8"), sample(NETWORKS["transformer block"](), 3)
    plan = inlay.plan(inlay.load(model), costs="analytic")
    plan.save(tmp_path / "plan.inlay")
    with plan.compile() as one, inlay.Session.load(tmp_path / "plan.inlay") as other:
        assert one.run({"x": x})["y"].tobytes() == other.run({"x": x})["y"].tobytes()


def test_weights_of_a_convolution_without_zero_point_stay_integers() -> None:
    """Symmetric weights of u8 have the zero point 128, which vanishes in s8."""
    proto = onnx.load_from_string(dynamically_quantized("residual network", "u8"))
    for tensor in proto.graph.initializer:
        if tensor.name.endswith("_zero_point"):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(128, np.uint8), tensor.name))
    model, inputs = proto.SerializeToString(), {"x": sample(proto, 1)}
    graph = lower_network(simplify_network(load_bound(model)))
    products = [op for op in graph.ops if op.kind == "convolution"]
    assert [op.constants["weights"].dtype for op in products] == [np.int8] * 3
    with inlay.compile(inlay.load(model), costs="analytic") as session:
        assert_is_close(session.run(inputs)["y"], run_onnxruntime(model, inputs)["y"])


def chain(weights: Array, src: tuple[int, ...], outputs: tuple[str, ...], product: Any, bias: Array) -> bytes:
    """A model of one product of integers, as the quantizer writes it; `outputs` are some of its tensors."""
    constants = {"w": weights, "ws": np.array(0.01, np.float32), "b": bias}
    constants |= {"wz": np.array(128 if weights.dtype == np.uint8 else 0, weights.dtype)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantize"),
        helper.make_node("Mul", ["s", "ws"], ["factor"], name="scales"),
        product,
        helper.make_node("Cast", ["i"], ["c"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "factor"], ["m"], name="scale"),
        helper.make_node("Add", ["m", "b"], ["y"], name="add"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, src)]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "chain", inputs, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


@pytest.mark.parametrize("outputs", [("y",), ("y", "s"), ("y", "q", "z"), ("i", "y"), ("factor", "y"), ("c", "m", "y")])
def test_tensors_of_a_chain_that_are_results_remain(outputs: tuple[str, ...]) -> None:
    rng = np.random.default_rng(1)
    product = helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["i"], name="product")
    weights = rng.integers(-128, 128, (20, 24)).astype(np.int8)
    model = chain(weights, (7, 20), outputs, product, np.array(2, np.float32))
    inputs = {"x": (rng.standard_normal((7, 20)) * 2).astype(np.float32)}
    expected = run_onnxruntime(model, inputs)
    with inlay.compile(inlay.load(model), costs="probed") as session:
        found = session.run(inputs)
    assert found.keys() == expected.keys() == set(outputs)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6 * float(np.abs(array).max()))


@pytest.mark.parametrize("attributes", [{"pads": [1, 2, 0, 1]}, {"pads": [0, 0, 2, 1], "strides": [2, 1]}])
def test_a_padded_convolution_is_that_of_onnxruntime(attributes: dict[str, Any]) -> None:
    """The zero point of the source pads it, by other numbers of rows and columns on each side."""
    rng = np.random.default_rng(2)
    product = helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"], name="product", **attributes)
    weights = rng.integers(1, 256, (24, 8, 3, 3)).astype(np.uint8)  # differences from 128 are of s8
    bias = rng.standard_normal((1, 24, 1, 1)).astype(np.float32)
    model = chain(weights, (2, 8, 9, 11), ("y",), product, bias)
    inputs = {"x": (rng.standard_normal((2, 8, 9, 11)) * 2 + 0.5).astype(np.float32)}
    plan = inlay.plan(inlay.load(model), costs="probed")
    assert {step.kind for step in plan.program.steps} - {"reorder"} == {"dynamic_quantization", "convolution"}
    with plan.compile() as session:
        expected = run_onnxruntime(model, inputs)["y"]
        np.testing.assert_allclose(session.run(inputs)["y"], expected, rtol=1e-5, atol=1e-4)
