"""The walk over the nodes of a model: each is asked what it gives, folded where it can be, and otherwise kept.

A branch of an If whose condition turned out to be constant is walked in the place of the If. Names are unique within
a graph, and within a branch only there, so those of branches are made unique by the name of the If.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import FileError, Unimplemented
from inlay.graph.constraints import NodeInputs
from inlay.graph.folding import (
    MOST_FOLDED,
    MOST_OPERATIONS,
    SHORTENING,
    bytes_to_fold,
    foldable,
    folded,
    operations_to_fold,
    size_or_dims,
    stored_constant,
)
from inlay.graph.network import Node, Tensor
from inlay.graph.nodes import require_computable
from inlay.graph.onnx_package import helper, onnx
from inlay.graph.op import Array
from inlay.graph.opening import Opened, called
from inlay.graph.shapes import given, require_fit, require_known
from inlay.graph.stored import Proto, stored_array, tensor_of

Scope: TypeAlias = Mapping[str, str]
"""Names as a graph has them to names of the network, where these differ."""


class Walk:
    """What has been read so far."""

    def __init__(self, model: Opened, inputs: list[Tensor]) -> None:
        self.opset = model.opset
        self.folder = model.folder
        self.values: dict[str, Array] = dict(model.values)
        self.tensors = {tensor.name: tensor for tensor in inputs}
        self.tensors.update({name: tensor_of(name, array) for name, array in model.values.items()})
        self.nodes: list[Node] = []
        self.scope: Scope = {}
        self._names: set[str] = set()
        self._folded = 0
        self._operations = 0

    def read(self, graph: Proto, scope: Scope, prefix: str) -> None:
        """Read the nodes of a graph; `scope` maps names of what lies around it, `prefix` makes its own unique.

        Raises:
            FileError, InvalidArguments, MissingExtra, Unimplemented: as `load`.
        """
        own = dict(scope)
        self.scope = own
        if prefix:
            for tensor in graph.initializer:
                own[tensor.name] = prefix + tensor.name
                self._keep_value(own[tensor.name], stored_array(tensor, self.folder))
        for proto in graph.node:
            if proto.op_type == "If":
                self._read_branch(proto, own, prefix)
            else:
                self._read_node(*_renamed(proto, own, prefix, self._names))
        self.scope = own

    def answer(self, name: str, inputs: set[str]) -> None:
        """Have an output of the network written by a node, also where it is a constant or another name's tensor.

        Raises:
            FileError: nothing gives it.
            Unimplemented: it is an input.
        """
        source = self.scope.get(name, name)
        if source not in self.tensors:
            raise FileError(f"output {name!r} is written by no node: export the model again")
        if name in inputs:
            raise Unimplemented(f"output {name!r} is an input of the network: nothing computes it; leave it out")
        if source == name and name in self.values:
            source = self._unused(f"{name}:value")
            self._keep_value(source, self.values.pop(name))
            self.nodes = [_reading(node, name, source) for node in self.nodes]
        if source != name:
            self.nodes.append(Node(self._unused(f"{name}:answer"), "Identity", (source,), (name,)))
            self.tensors[name] = Tensor(name, self.tensors[source].dims, self.tensors[source].dtype)

    def _read_node(self, node: Node, proto: Proto) -> None:
        unknown = next((name for name in node.inputs if name and name not in self.tensors), None)
        if unknown is not None:
            raise FileError(f"node {node.name!r} reads {unknown!r}, which nothing gives: export the model again")
        reads = [self.tensors[name] for name in node.inputs if name]
        value = stored_constant(node) if not reads else size_or_dims(node, reads[0])
        if value is not None:
            self._keep_value(node.outputs[0], value)
            return
        gives = given(node, proto, self.opset, reads, self.values)
        tensors = [self.tensors[name] if name else None for name in node.inputs]
        require_fit(NodeInputs(node, self.opset, tensors, gives, self.values))
        if foldable(node, self.values) and (None not in gives or node.operator in SHORTENING):
            self._count(node, gives)
            results = folded(node, self.opset, gives, self.values)
            if results is not None:
                for name, array in results.items():
                    self._keep_value(name, array)
                return
        require_known(node, gives)
        require_computable(node, self.opset, {tensor.name: tensor.dtype for tensor in reads})
        self.nodes.append(node)
        self.tensors.update({tensor.name: tensor for tensor in gives if tensor is not None})

    def _count(self, node: Node, gives: list[Tensor | None]) -> None:
        """Keep the bytes and operations of what is folded within bounds."""
        self._folded += bytes_to_fold(node, gives, self.values)
        self._operations += operations_to_fold(node, gives, self.values)
        if self._folded > MOST_FOLDED:
            raise Unimplemented(
                f"node {node.name!r}: with what {node.operator} gives, the constants that are computed when the model "
                f"is read would take {self._folded} bytes: {MOST_FOLDED} at most are; store its result in the model"
            )
        if self._operations > MOST_OPERATIONS:
            raise Unimplemented(
                f"node {node.name!r}: with {node.operator}, the constants that are computed when the model is read "
                f"would take {self._operations} operations: {MOST_OPERATIONS} at most do; store its result in it"
            )

    def _keep_value(self, name: str, array: Array) -> None:
        self.values[name] = array
        self.tensors[name] = tensor_of(name, array)

    def _unused(self, name: str) -> str:
        while name in self.tensors or name in self._names:
            name += "'"
        return name

    def _read_branch(self, proto: Proto, scope: dict[str, str], prefix: str) -> None:
        """Read the branch that an If takes."""
        name = called(proto)
        condition = self.values.get(scope.get(proto.input[0], proto.input[0]))
        if condition is not None and condition.dtype != np.bool_:
            raise FileError(
                f"node {name!r}: the condition of If is {condition.dtype}, not bool: export the model again"
            )
        if condition is None or condition.size != 1:
            raise Unimplemented(
                f"node {name!r}: If, whose condition is known only when it runs: only an If of a constant is "
                "supported; export the model with the branch that is taken"
            )
        wanted = "then_branch" if bool(condition.reshape(())) else "else_branch"
        branch = next(g for a in proto.attribute if a.name == wanted for g in [a.g])
        if branch.input:
            raise FileError(f"node {name!r}: a branch of If takes inputs of its own: export the model again")
        inner = f"{prefix}{name}/"
        self.read(branch, scope, inner)
        results = [self.scope.get(value.name, value.name) for value in branch.output]
        if len(results) != len(proto.output) or not all(result in self.tensors for result in results):
            raise FileError(
                f"node {name!r}: If gives {len(proto.output)} tensors, and its branch does not: export the model again"
            )
        scope.update(zip(proto.output, results, strict=True))
        self.scope = scope


def _reading(node: Node, name: str, source: str) -> Node:
    """A node that reads `source` where it read `name`."""
    if name not in node.inputs:
        return node
    return replace(node, inputs=tuple(source if given == name else given for given in node.inputs))


def _renamed(proto: Proto, scope: dict[str, str], prefix: str, names: set[str]) -> tuple[Node, Proto]:
    """A node with the names of the network, as a value and as ONNX has it."""
    inputs = tuple(scope.get(name, name) for name in proto.input)
    if prefix:
        scope.update({name: prefix + name for name in proto.output if name})
    outputs = tuple(scope.get(name, name) for name in proto.output)
    name = prefix + called(proto)
    while name in names:
        name += "'"
    names.add(name)
    shown = onnx.NodeProto()
    shown.CopyFrom(proto)
    shown.domain = ""
    for names_of, new in ((shown.input, inputs), (shown.output, outputs)):
        del names_of[:]
        names_of.extend(new)
    return Node(name, proto.op_type, inputs, outputs, _attributes(proto, name)), shown


def _attributes(proto: Proto, name: str) -> dict[str, Any]:
    """By name: numbers, texts, arrays, tuples of them."""
    attributes = {}
    for attribute in proto.attribute:
        try:
            attributes[attribute.name] = _plain(helper.get_attribute_value(attribute), name)
        except (ValueError, TypeError) as error:
            raise FileError(
                f"node {name!r}: the attribute {attribute.name} of {proto.op_type} cannot be read: "
                "export the model again"
            ) from error
    return attributes


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return stored_array(value, None)
    if isinstance(value, (int, float, str, np.generic)):
        return value
    if isinstance(value, (onnx.SparseTensorProto, onnx.TypeProto, onnx.GraphProto)):
        raise Unimplemented(
            f"node {name!r} holds a {type(value).__name__.removesuffix('Proto')}: only numbers, texts and dense "
            "tensors are supported; export the model without it"
        )
    return tuple(_plain(item, name) for item in value)
