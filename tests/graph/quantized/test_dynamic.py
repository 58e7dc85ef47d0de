"""Networks of ONNX Runtime's dynamic quantizer beside ONNX Runtime: each operation, kernels, results, files."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import inlay
from inlay.graph.lowering.translation import lower_network
from inlay.graph.onnx.reading import load_bound
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

CASES = [
    (network, form) for network in NETWORKS for form in DYNAMIC_FORMS if network == "transformer block" or form == "u8"
]
"""Networks and forms; ONNX Runtime's ConvInteger has no weights of s8."""
PRODUCTS = {"residual network": 4, "transformer block": 5, "dense network": 4}
"""Number of products of integers in each network."""


@pytest.mark.parametrize("engine", [None, "reference"])
@pytest.mark.parametrize(("network", "form"), CASES)
def test_each_operation_is_that_of_onnxruntime(network: str, form: str, engine: str | None) -> None:
    """ONNX Runtime's own results are the inputs of each operation: a quantum too much is no error of the next one."""
    model = dynamically_quantized(network, form)
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
    source, model = NETWORKS[network](), dynamically_quantized(network, form)
    theirs, ours = 0.0, 0.0
    with inlay.compile(inlay.load(model), costs="analytic") as session:
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
