"""Networks computed slowly: what is read, node by node, and the models themselves, by onnx and by ONNX Runtime.

Nothing of the reading is used to judge it: the models run from their own bytes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_conv_transpose

from inlay.graph.network import Network
from inlay.graph.op_graph import Array
from tests.support.networks import Model

OneGroup: Any = op_conv_transpose.ConvTranspose


class ConvTranspose(OneGroup):  # type: ignore[misc]
    """The operator in groups, each by the one of the package onnx, which is right for one group only."""

    def _run(self, X: Array, W: Array, B: Array | None = None, group: int = 1, **attributes: Any) -> tuple[Array]:
        inputs, weights = np.split(X, group, 1), np.split(W, group, 0)
        biases = [None] * group if B is None else np.split(B, group)
        each = zip(inputs, weights, biases, strict=True)
        return (np.concatenate([super(ConvTranspose, self)._run(*part, group=1, **attributes)[0] for part in each], 1),)


class BatchNormalization(OpRun):
    """The operator with given statistics: before opset 14 the package onnx takes those of the batch."""

    def _run(
        self, x: Array, scale: Array, shift: Array, mean: Array, variance: Array, epsilon: float = 1e-5, **_: Any
    ) -> tuple[Array]:
        a, b, m, v = (array.reshape(-1, *(1,) * (x.ndim - 2)) for array in (scale, shift, mean, variance))
        return ((x - m) / np.sqrt(v + np.float32(epsilon)) * a + b,)


def run_network(network: Network, inputs: dict[str, Array]) -> dict[str, Array]:
    """Every tensor of a network that was read, by the package onnx: its newest operators, where an operator is new."""
    arrays: dict[str, Array] = {**network.constants, **inputs}
    for node in network.nodes:
        model, reads = model_of_node(network, node.name), {name: arrays[name] for name in node.inputs if name}
        # The package onnx has no linear Upsample.
        arrays.update(run_by_onnxruntime(model, reads) if node.operator == "Upsample" else run_model(model, reads))
    return arrays


def model_of_node(network: Network, name: str) -> Model:
    """A node as a model of its own."""
    node = next(node for node in network.nodes if node.name == name)
    attributes = {
        key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for key, value in node.attributes.items()
    }
    proto = helper.make_node(node.operator, node.inputs, node.outputs, node.name, **attributes)
    is_new = not onnx.defs.has(node.operator, network.opset, "")
    opset = onnx.defs.onnx_opset_version() if is_new else network.opset
    return _alone(proto, {name: tensor.dtype for name, tensor in network.tensors.items()}, opset)


def _alone(node: Any, dtypes: Mapping[str, Any], opset: int) -> Model:
    """A node as a model of its own; tensors without a type are of float64."""
    reads, writes = (
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(dtypes.get(n, float))), None)
            for n in dict.fromkeys(filter(None, names))
        ]
        for names in (node.input, node.output)
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(helper.make_graph([node], "node", reads, writes), opset_imports=opsets, ir_version=8)


def run_model(model: Model, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a model, by the package onnx."""
    evaluator = ReferenceEvaluator(model, new_ops=[ConvTranspose, BatchNormalization])
    with np.errstate(over="ignore", invalid="ignore"):  # its Sigmoid computes two formulas and takes one
        results = evaluator.run(None, inputs)
    return {value.name: np.asarray(result) for value, result in zip(model.graph.output, results, strict=True)}


def run_in_float64(model: Model, inputs: dict[str, Array], seed: int | None = None) -> dict[str, Array]:
    """The outputs of a model of float32, computed in float64 by the package onnx, node by node.

    With a seed every tensor is rounded to one of the numbers that float32 has on either side of it,
    at random: how far such runs are from the one without is how far roundings alone may lead.
    """
    rng = None if seed is None else np.random.default_rng(seed)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    arrays = {name: _rounded(array, rng) for name, array in {**stored, **inputs}.items()}
    for node in model.graph.node:
        found = run_model(_model_in_float64(model, node, arrays), {name: arrays[name] for name in node.input if name})
        arrays.update((name, _rounded(array, rng)) for name, array in found.items())
    return {value.name: arrays[value.name] for value in model.graph.output}


def _model_in_float64(model: Model, node: Any, arrays: dict[str, Array]) -> Model:
    """One node of a model, as a model of its own that reads float64 in place of float32."""
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    for attribute in copy.attribute:
        if (copy.op_type, attribute.name, attribute.i) == ("Cast", "to", TensorProto.FLOAT):
            attribute.i = TensorProto.DOUBLE
    return _alone(copy, {name: arrays[name].dtype for name in node.input if name}, model.opset_import[0].version)


def _rounded(array: Array, rng: np.random.Generator | None) -> Array:
    """Floats as float64, each moved up or down by half a unit in the last place of float32 if there is a generator.

    Numbers without axes stay: an even exponent is one.
    """
    if array.dtype.kind != "f":
        return array
    exact = array.astype(np.float64)
    return exact if rng is None or not exact.ndim else exact * (1 + rng.choice([-1, 1], exact.shape) * 2.0**-24)


def rounding_errors(model: Model, inputs: dict[str, Array], samples: int = 4) -> dict[str, float]:
    """How far the rounding of each number to float32 led, at most, in some random runs; by the name of the output."""
    exact = run_in_float64(model, inputs)
    found = [run_in_float64(model, inputs, seed) for seed in range(samples)]
    return {
        name: max(float(np.abs(one[name] - array.astype(float)).max(initial=0)) for one in found)
        for name, array in exact.items()
    }


def run_by_onnxruntime(model: Model, inputs: dict[str, Array], tensors: list[str] | None = None) -> dict[str, Array]:
    """Tensors of a model, its outputs if none are named, by ONNX Runtime with its rewriting off."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    if tensors is not None:
        asked.graph.ClearField("output")
        asked.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in tensors)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def relative_error(got: Array, wanted: Array) -> float:
    """The greatest difference, relative to the greatest magnitude that is wanted."""
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    assert got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    if not wanted.size:
        return 0.0
    exact = wanted.astype(float)
    return float(np.abs(got.astype(float) - exact).max() / max(np.abs(exact).max(), 1e-30))


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """Return a node with inputs and outputs separated by blanks, named after its first output."""
    return helper.make_node(operator, inputs.split(), outputs.split(), outputs.split()[0], **attributes)


def model_of(
    nodes: list[Any],
    inputs: dict[str, tuple[Any, ...]],
    outputs: list[str],
    constants: dict[str, Array] | None = None,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> Model:
    """A model of nodes, with inputs of these dims (numbers, or names of open ones) and outputs without any."""
    values = [helper.make_tensor_value_info(name, kind, dims) for name, dims in inputs.items()]
    answers = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "tiny", values, answers, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
