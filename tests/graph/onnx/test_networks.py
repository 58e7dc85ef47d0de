"""Whole networks through `load`: the light models of the package onnx, and exports of PyTorch.

Results are compared with ONNX Runtime without optimizations, and with onnx's own shape inference and operators.
"""

import onnx
import pytest

from inlay.graph.network import Network
from inlay.graph.onnx.reading import load_bound
from tests.support.network_runs import relative_error, run_by_onnxruntime, run_model, run_network
from tests.support.networks import EXPORTS, LIGHT, bert, inputs_of, light

TOLERANCE = 1e-4  # relative to the greatest element of a tensor
OPSETS = (9, 11, 13, 14, 15, 16, 17, 18, 20)
FIRST = {"encoder": 14}  # the first opset in which torch exports its attention
HUGE = ("alexnet", "vgg19", "zfnet512")


def operators(network: Network) -> set[str]:
    return {node.operator for node in network.nodes}


@pytest.mark.heavy
@pytest.mark.parametrize(("name", "opset"), [(name, n) for name in EXPORTS for n in OPSETS if n >= FIRST.get(name, 9)])
@pytest.mark.parametrize("raw", [False, True], ids=["folded", "raw"])
def test_an_export_is_read_as_it_runs(name: str, opset: int, raw: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    options = {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE} if raw else {}
    model = EXPORTS[name](2, opset, **options)
    inputs = inputs_of(model)
    network = load_bound(model.SerializeToString())
    got, wanted = run_network(network, inputs), run_by_onnxruntime(model, inputs)
    assert set(network.outputs) == set(wanted)
    for output, array in wanted.items():
        assert relative_error(got[output], array) < TOLERANCE
    assert operators(network).isdisjoint({"BatchNormalization", "Identity", "Constant", "Shape", "Cast", "Erf", "Pow"})


@pytest.mark.heavy
@pytest.mark.parametrize("name", LIGHT)
def test_dims_and_types_of_a_light_model_are_those_of_onnxruntime(name: str) -> None:
    batch = 1 if name in HUGE else 2
    model = light(name, batch)
    network = load_bound(model.SerializeToString())
    shared = [
        n for node in model.graph.node for n in node.output if n in network.tensors and n not in network.constants
    ]
    assert len(shared) > 10
    wanted = run_by_onnxruntime(model, inputs_of(model), shared)
    for tensor, array in wanted.items():
        assert (network.tensors[tensor].dims, network.tensors[tensor].dtype) == (array.shape, array.dtype), tensor


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v2", "densenet121"])
def test_dims_and_types_of_a_light_model_are_those_of_onnx(name: str) -> None:
    model = light(name, batch=3)
    network = load_bound(model.SerializeToString())
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    inferred = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.output)}
    shared = [n for node in network.nodes for n in node.outputs if n in inferred]
    assert len(shared) > 60
    for tensor in shared:
        assert network.tensors[tensor].dims == tuple(d.dim_value for d in inferred[tensor].shape.dim), tensor
        assert onnx.helper.np_dtype_to_tensor_dtype(network.tensors[tensor].dtype) == inferred[tensor].elem_type
    if name != "densenet121":  # normalizes before it convolves
        assert "BatchNormalization" not in operators(network)
    assert operators(network).isdisjoint({"Dropout", "ConstantOfShape", "Unsqueeze", "Mul", "Add"})


def test_an_encoder_is_read_as_it_runs() -> None:
    model = bert(2, sequence=8, layers=2, hidden=32, heads=4)
    inputs = inputs_of(model)
    network = load_bound(model.SerializeToString())
    wanted = run_model(model, inputs)
    got = run_network(network, inputs)
    assert relative_error(got[network.outputs[0]], wanted[network.outputs[0]]) < TOLERANCE
    assert sum(node.operator == "Gelu" for node in network.nodes) == 2
    assert "Erf" not in operators(network)
    assert not any(array.flags.writeable for array in network.constants.values())
