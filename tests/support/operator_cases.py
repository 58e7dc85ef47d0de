"""Models of one node to compare operators: ONNX's test cases, each at every version of its operator.

If an older version of an operator has an attribute in place of an input, the constant becomes the attribute.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from inlay.graph.network import Node
from tests.support.network_runs import run_by_onnxruntime

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

FIRST = 9


@dataclass(frozen=True)
class Case:
    """A node with arrays."""

    name: str
    """Name of ONNX's test case, with the opset."""
    node: onnx.NodeProto
    """The node."""
    opset: int
    """Version of ONNX's operators."""
    arrays: Arrays
    """Inputs by name."""
    expected: list[Array]
    """Outputs of the test case, in order; other opsets than the case's may have other results."""
    is_original: bool
    """True if the opset has the same version of the operator as the test case."""


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_ATTRIBUTES: Mapping[str, tuple[tuple[int, str, int], ...]] = {
    **{f"Reduce{way}": ((1, "axes", 18),) for way in _REDUCTIONS},
    **dict.fromkeys(("ReduceSum", "Squeeze", "Unsqueeze"), ((1, "axes", 13),)),
    "Split": ((1, "split", 13),),
    "Clip": ((1, "min", 11), (2, "max", 11)),
    "Pad": ((1, "pads", 11), (2, "value", 11)),
    "Slice": ((1, "starts", 10), (2, "ends", 10), (3, "axes", 10)),
    "TopK": ((1, "k", 10),),
    "Dropout": ((1, "ratio", 12),),
}
"""Inputs of operators that were attributes before an opset: position, attribute, opset."""


def versions(operator: str, first: int = FIRST) -> list[int]:
    """Return the opsets from `first` on in which an operator changed; older ones count as `first`."""
    found = {s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (operator, "")}
    return sorted({max(version, first) for version in found if defs.has(operator, max(version, first), "")})


def since(operator: str, opset: int) -> int:
    """Return the version of an operator in an opset."""
    return int(defs.get_schema(operator, opset, "").since_version)


def node_models() -> Iterator[tuple[Any, onnx.NodeProto, list[Array], list[Array]]]:
    """Yield ONNX's test cases of one node on tensors: the case, its node, inputs and expected outputs."""
    from onnx.backend.test.loader import load_model_tests

    for case in load_model_tests(kind="node"):
        assert case.model is not None
        graph = case.model.graph
        if len(graph.node) != 1 or not all(v.type.HasField("tensor_type") for v in (*graph.input, *graph.output)):
            continue
        for inputs, outputs in case.data_sets or ():
            yield case, graph.node[0], [_array(one) for one in inputs], [_array(one) for one in outputs]


def _array(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def backend_cases() -> Iterator[Case]:
    """Yield ONNX's test cases of one node on numeric tensors, at every version of the operator."""
    for case, node, inputs, expected in node_models():
        if node.domain or any(array.dtype.hasobject for array in (*inputs, *expected)):
            continue
        arrays = {value.name: array for value, array in zip(case.model.graph.input, inputs, strict=True)}
        (opset,) = (one.version for one in case.model.opset_import if one.domain == "")
        for version in versions(node.op_type):
            is_original = opset >= FIRST and since(node.op_type, version) == since(node.op_type, opset)
            changed = _with_attributes(node, version, arrays)
            if changed is not None:
                kept = {one: array for one, array in arrays.items() if one in changed.input}
                yield Case(f"{case.name}@{version}", changed, version, kept, expected, is_original)


def _with_attributes(node: onnx.NodeProto, version: int, arrays: Arrays) -> onnx.NodeProto | None:
    """Return the node as an older version of its operator writes it; None if that has no such attribute."""
    changed: onnx.NodeProto = onnx.NodeProto.FromString(node.SerializeToString())
    if version >= 13 and node.op_type == "Dropout":
        return changed
    for index, name, first in reversed(_ATTRIBUTES.get(node.op_type, ())):
        if version < first and index < len(changed.input):
            value = arrays.get(changed.input[index])
            if value is not None:
                is_list = name in ("axes", "split", "pads", "starts", "ends")
                plain = value.reshape(-1).tolist() if is_list else value.reshape(-1)[0].item()
                kind = None if plain != [] else onnx.AttributeProto.INTS
                changed.attribute.append(helper.make_attribute(name, plain, attr_type=kind))
            del changed.input[index]
    schema = defs.get_schema(changed.op_type, version, "")
    is_known = {attribute.name for attribute in changed.attribute} <= set(schema.attributes)
    return changed if is_known and len(changed.input) <= schema.max_input else None


def model_of(case: Case) -> onnx.ModelProto:
    """Return a case as a model."""
    reads = [value_info(name, array) for name, array in case.arrays.items()]
    writes = [helper.make_empty_tensor_value_info(name) for name in case.node.output if name]
    graph = helper.make_graph([case.node], "case", reads, writes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    """Return the type and dims of an array, as those of a tensor of a model."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def by_runtime(case: Case) -> list[Array] | None:
    """Return ONNX Runtime's results; None if it does not support the model or an array."""
    try:
        return [np.asarray(array) for array in run_by_onnxruntime(model_of(case), case.arrays).values()]
    except _errors():
        return None


def _errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of ONNX Runtime, which have no common base class."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = (value for value in vars(state).values() if isinstance(value, type))
    return (RuntimeError, TypeError, ValueError, *(one for one in found if issubclass(one, Exception)))


def node_of(case: Case) -> Node:
    """Return the node as in a network."""
    node = case.node
    return Node("node", node.op_type, tuple(node.input), tuple(node.output), attributes_of(node))


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes as in a network."""
    return {one.name: _plain(helper.get_attribute_value(one)) for one in node.attribute}


def _plain(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(_plain(one) for one in value)
    return value
