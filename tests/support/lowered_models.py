"""Models of ONNX made into networks by what `onnx.reference` computes, so that lowering is tested without the reader.

Dims and types are those of a run: the reference evaluator answers every tensor, also for graphs without shapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from inlay.graph.lowering.translation import lower_network
from inlay.graph.network import Network, Node, Tensor
from inlay.graph.op_graph import OpGraph
from tests.support.interpreter import interpret

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]


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
    """A model of one node that reads `arrays` in their order, and what it is to be given: those not constant."""
    names = list(arrays) if inputs is None else list(inputs)
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(operator, names, results, "node", **attributes)
    graph = helper.make_graph(
        [node],
        "tested",
        [_info(name, array) for name, array in arrays.items() if name not in constants],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(arrays[name], name) for name in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return model, {name: array for name, array in arrays.items() if name not in constants}


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def expected(model: onnx.ModelProto, given: Mapping[str, Array]) -> Arrays:
    """Every tensor that a run of the reference evaluator computes, arrays only."""
    names = [name for node in model.graph.node for name in node.output if name]
    evaluator = ReferenceEvaluator(model)
    with np.errstate(all="ignore"):
        found = evaluator.run(None, dict(given), intermediate=True)
    values = found if isinstance(found, dict) else dict(zip(evaluator.output_names, found, strict=True))
    return {name: np.asarray(values[name]) for name in names}


def by_runtime(model: onnx.ModelProto, given: Mapping[str, Array]) -> Arrays:
    """Every tensor that ONNX Runtime computes, without optimizations that drop or round; skips if it is missing."""
    runtime: Any = pytest.importorskip("onnxruntime")
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.ir_version = min(model.ir_version, 10)
    names = [name for node in model.graph.node for name in node.output if name]
    del changed.graph.output[:]
    changed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = runtime.InferenceSession(changed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, dict(given)), strict=True))


def network_of(model: onnx.ModelProto, given: Mapping[str, Array], values: Mapping[str, Array]) -> Network:
    """The model's network, with the dims of `values`; what constants alone compute is constant."""
    constants = {init.name: numpy_helper.to_array(init) for init in model.graph.initializer}
    nodes = []
    for index, proto in enumerate(model.graph.node):
        if all(name in constants for name in proto.input if name):
            constants |= {name: values[name] for name in proto.output if name}
            continue
        nodes.append(
            Node(
                proto.name or f"n{index}",
                proto.op_type,
                tuple(proto.input),
                tuple(proto.output),
                {one.name: _attribute(one) for one in proto.attribute},
                proto.domain,
            )
        )
    known = {**constants, **given, **values}
    tensors = {name: Tensor(name, array.shape, array.dtype) for name, array in known.items()}
    (opset,) = (one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    outputs = tuple(value.name for value in model.graph.output)
    return Network(model.graph.name, opset, tuple(given), outputs, tuple(nodes), tensors, constants)


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(one.decode() if isinstance(one, bytes) else one for one in value)
    return value


def compared(
    model: onnx.ModelProto, given: Mapping[str, Array], tolerance: float = 1e-5, *, values: Arrays | None = None
) -> OpGraph:
    """The model lowered, after the answers of `interpret` were found equal to those of the reference evaluator."""
    reference = expected(model, given) if values is None else values
    graph = lowered_as(model, given, reference)
    same(graph, given, reference, tolerance)
    return graph


def lowered_as(model: onnx.ModelProto, given: Mapping[str, Array], values: Mapping[str, Array]) -> OpGraph:
    """The model lowered, with the dims of `values`."""
    return lower_network(network_of(model, given, values))


def same(graph: OpGraph, given: Mapping[str, Array], values: Mapping[str, Array], tolerance: float = 1e-5) -> None:
    """What the graph answers is what `values` says."""
    found = interpret(graph, given)
    for name in graph.outputs:
        assert found[name].dtype == values[name].dtype
        assert found[name].shape == values[name].shape
        np.testing.assert_allclose(found[name], values[name], rtol=tolerance, atol=tolerance, err_msg=name)


def kinds(graph: OpGraph) -> list[str]:
    """What the operations are, views left out."""
    return [op.kind for op in graph.ops if op.kind != "view"]
