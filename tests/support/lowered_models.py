"""Networks for tests of lowering, built from ONNX models without the importer.

Dims and types of all tensors are those of a run by `onnx.reference`, which also computes graphs without shapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.op_graph import OpGraph
from tests.support.interpreter import interpret
from tests.support.network_runs import run_by_onnxruntime
from tests.support.operator_cases import Array as Array
from tests.support.operator_cases import Arrays as Arrays
from tests.support.operator_cases import attributes_of, value_info
from tests.support.written_models import written_model

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)


def normal(seed: int, shape: tuple[int, ...]) -> Array:
    """Return normally distributed float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(
    operator: str,
    arrays: Mapping[str, Array],
    outputs: int = 1,
    *,
    opset: int,
    constants: Sequence[str] = (),
    inputs: Sequence[str] | None = None,
    **attributes: Any,
) -> tuple[onnx.ModelProto, Arrays]:
    """Return a model of one node that reads `arrays` in their order, and the arrays that are not constant."""
    given = {name: array for name, array in arrays.items() if name not in constants}
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(operator, list(arrays if inputs is None else inputs), results, "node", **attributes)
    reads = [value_info(name, array) for name, array in given.items()]
    stored = [numpy_helper.from_array(arrays[name], name) for name in constants]
    writes = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "tested", reads, writes, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), given


def run_reference(model: onnx.ModelProto, given: Mapping[str, Array]) -> Arrays:
    """Return every tensor that the reference evaluator computes."""
    names = [name for node in model.graph.node for name in node.output if name]
    evaluator = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        found = evaluator.run(None, dict(given), intermediate=True)
    values = found if isinstance(found, dict) else dict(zip(evaluator.output_names, found, strict=True))
    return {name: np.asarray(values[name]) for name in names}


def run_onnxruntime(model: onnx.ModelProto, given: Mapping[str, Array]) -> Arrays:
    """Return every tensor that ONNX Runtime computes without optimizations; skip the test if it is not installed."""
    older = onnx.ModelProto.FromString(model.SerializeToString())
    older.ir_version = min(model.ir_version, 10)
    return run_by_onnxruntime(older, dict(given), [name for node in model.graph.node for name in node.output if name])


def network_of(model: onnx.ModelProto, given: Mapping[str, Array], values: Mapping[str, Array]) -> Network:
    """Return the model's network, with the dims of `values`; nodes with constant inputs are folded."""
    constants = {init.name: numpy_helper.to_array(init) for init in model.graph.initializer}
    nodes = []
    for index, proto in enumerate(model.graph.node):
        if all(name in constants for name in proto.input if name):
            constants |= {name: values[name] for name in proto.output if name}
        else:
            inputs, outputs, name = tuple(proto.input), tuple(proto.output), proto.name or f"n{index}"
            nodes.append(Node(name, proto.op_type, inputs, outputs, attributes_of(proto), proto.domain))
    known = {**constants, **given, **values}
    tensors = {name: Tensor(name, array.shape, array.dtype) for name, array in known.items()}
    (opset,) = (one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    outputs = tuple(value.name for value in model.graph.output)
    return Network(model.graph.name, opset, tuple(given), outputs, tuple(nodes), tensors, constants)


def lower_text(text: str, x: Array, outputs: str = "y", **rest: Any) -> OpGraph:
    """Lower the nodes of a text, and compare the results for x; `rest` are arguments of `written_model`."""
    return lower_and_compare(written_model(text, x.shape, outputs, **rest), {"x": x})


def lower_operator(
    operator: str, arrays: Mapping[str, Array], outputs: int = 1, *, tolerance: float = 1e-5, **rest: Any
) -> OpGraph:
    """Lower a node on `arrays`, and compare its results; `rest` are arguments of `model_of`."""
    return lower_and_compare(*model_of(operator, arrays, outputs, **rest), tolerance)


def lower_and_compare(
    model: onnx.ModelProto, given: Mapping[str, Array], tolerance: float = 1e-5, *, values: Arrays | None = None
) -> OpGraph:
    """Lower a model, and require that its results equal `values`, or those of the reference evaluator."""
    reference = run_reference(model, given) if values is None else values
    graph = lower_model(model, given, reference)
    assert_same_results(graph, given, reference, tolerance)
    return graph


def lower_model(model: onnx.ModelProto, given: Mapping[str, Array], values: Mapping[str, Array]) -> OpGraph:
    """Lower a model, with the dims of `values`."""
    return lower_network(network_of(model, given, values))


def assert_same_results(
    graph: OpGraph, given: Mapping[str, Array], values: Mapping[str, Array], tolerance: float = 1e-5
) -> None:
    """Require that the interpreted graph's outputs equal `values`."""
    results = interpret(graph, given)
    for name in graph.outputs:
        assert results[name].dtype == values[name].dtype
        assert results[name].shape == values[name].shape
        np.testing.assert_allclose(results[name], values[name], rtol=tolerance, atol=tolerance, err_msg=name)


def kinds_of(graph: OpGraph) -> list[str]:
    """Return the kinds of the operations, without views."""
    return [op.kind for op in graph.ops if op.kind != "view"]
