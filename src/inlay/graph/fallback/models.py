"""Models of ONNX for the nodes of a subgraph, in the opset in which ONNX Runtime supports them best."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from inlay.graph.network import Node, Tensor
from inlay.graph.numpy_operators.call import onnx_code
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS
from inlay.graph.onnx.initializers import Proto, nodes_of
from inlay.graph.onnx_package import defs, helper, numpy_helper, onnx
from inlay.graph.op_graph import Array

_IR_VERSION = 10
"""Version of the file format: the newest one that ONNX Runtime 1.23 reads."""


MICROSOFT = "com.microsoft"
"""Domain of the operators that ONNX Runtime adds to ONNX's own; it has one version."""


def build_model(
    nodes: Sequence[Node],
    opset: int,
    inputs: Mapping[str, Proto],
    outputs: Mapping[str, Proto | None],
    constants: Mapping[str, Array],
) -> bytes:
    """Return a serialized model that computes `outputs` from `inputs` by these nodes; `constants` are stored in it.

    Inputs and outputs are names with their types, ONNX's TypeProto; None for a type that ONNX Runtime infers.
    """
    version = choose_opset(nodes, opset)
    graph = helper.make_graph(
        [_node_proto(node, version) for node in nodes],
        "fallback",
        [_value_info(name, kind) for name, kind in inputs.items()],
        [_value_info(name, kind) for name, kind in outputs.items()],
        [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), n)
            for n, array in constants.items()
        ],
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(MICROSOFT, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString())


def choose_opset(nodes: Sequence[Node], opset: int) -> int:
    """Return the oldest opset that has the same versions of these operators as `opset`.

    A runtime knows a new operator set only years after ONNX does, and most of its operators are old.

    >>> choose_opset([Node("n", "Erf", ("x",), ("y",)), Node("m", "Where", ("c", "y", "x"), ("z",))], 24)
    16
    """
    versions = (int(defs.get_schema(operator, opset, "").since_version) for operator in operators_of(nodes))
    return max(versions, default=opset)


def operators_of(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield ONNX's own operators of nodes, and of the nodes in their graphs."""
    for node in nodes:
        if node.domain in ONNX_DOMAINS:
            yield node.operator
        for value in node.attributes.values():
            if isinstance(value, bytes):
                inner = nodes_of(onnx.AttributeProto.FromString(value).g)
                yield from (proto.op_type for proto in inner if proto.domain in ONNX_DOMAINS)


def type_of(tensor: Tensor) -> Proto:
    """Return type and dims of a tensor as ONNX stores them, without dims if these depend on the data of a run."""
    return helper.make_tensor_type_proto(onnx_code(tensor.dtype), None if tensor.is_dynamic else tensor.dims)


def _value_info(name: str, kind: Proto | None) -> Proto:
    """Return the name and type of an input or output as ONNX stores them."""
    return onnx.ValueInfoProto(name=name) if kind is None else helper.make_value_info(name, kind)


def _node_proto(node: Node, opset: int) -> Proto:
    """Return a node as ONNX stores it.

    The type of an attribute is that of the operator's schema, since it cannot be inferred from an empty tuple.
    """
    declared = defs.get_schema(node.operator, opset, "").attributes if node.domain in ONNX_DOMAINS else {}
    proto = helper.make_node(node.operator, list(node.inputs), list(node.outputs), node.name, domain=node.domain)
    for name, value in node.attributes.items():
        if isinstance(value, bytes):
            proto.attribute.append(onnx.AttributeProto.FromString(value))
            continue
        stored = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        kind = int(declared[name].type) if name in declared else None  # type: ignore[call-overload]
        plain = list(stored) if isinstance(stored, tuple) else stored
        proto.attribute.append(helper.make_attribute(name, plain, attr_type=kind))
    return proto
