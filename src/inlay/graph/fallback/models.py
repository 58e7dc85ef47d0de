"""Models of ONNX for the nodes of a subgraph, in the opset in which ONNX Runtime supports them best."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlay.graph.network import Node, Tensor
from inlay.graph.onnx_package import defs, helper, numpy_helper
from inlay.graph.op_graph import Array

_IR_VERSION = 10
"""Version of the file format: the newest one that ONNX Runtime 1.23 reads."""


def build_model(
    nodes: Sequence[Node],
    opset: int,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: Mapping[str, Array],
) -> bytes:
    """Return a serialized model that computes `outputs` from `inputs` by these nodes; `constants` are stored in it."""
    version = choose_opset(nodes, opset)
    graph = helper.make_graph(
        [_node_proto(node, version) for node in nodes],
        "fallback",
        [_value_info(tensor) for tensor in inputs],
        [_value_info(tensor) for tensor in outputs],
        [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), n)
            for n, array in constants.items()
        ],
    )
    opsets = [helper.make_opsetid("", version)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString())


def choose_opset(nodes: Sequence[Node], opset: int) -> int:
    """Return the oldest opset that has the same versions of these operators as `opset`.

    A runtime knows a new operator set only years after ONNX does, and most of its operators are old.

    >>> choose_opset([Node("n", "Erf", ("x",), ("y",)), Node("m", "Where", ("c", "y", "x"), ("z",))], 24)
    16
    """
    return max(int(defs.get_schema(node.operator, opset, "").since_version) for node in nodes)


def element_type(dtype: np.dtype[Any]) -> int:
    """Return ONNX's TensorProto.DataType of a type of NumPy or ml_dtypes."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _value_info(tensor: Tensor) -> Any:
    """Return name, type and dims of a tensor as ONNX stores them."""
    return helper.make_tensor_value_info(tensor.name, element_type(tensor.dtype), tensor.dims)


def _node_proto(node: Node, opset: int) -> Any:
    """Return a node as ONNX stores it.

    The type of an attribute is that of the operator's schema, since it cannot be inferred from an empty tuple.
    """
    declared = defs.get_schema(node.operator, opset, "").attributes
    proto = helper.make_node(node.operator, list(node.inputs), list(node.outputs), node.name)
    for name, value in node.attributes.items():
        stored = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        kind = int(declared[name].type) if name in declared else None  # type: ignore[call-overload]
        plain = list(stored) if isinstance(stored, tuple) else stored
        proto.attribute.append(helper.make_attribute(name, plain, attr_type=kind))
    return proto
