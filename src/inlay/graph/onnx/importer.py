"""`GraphImporter`: import of a model's nodes, one by one, with shape inference, constant folding and If on constants.

The branch of an If with a constant condition is imported in place of the If. ONNX's names are unique within a graph or
branch only, so names of a branch get the name of the If as a prefix.

Source: ONNX, "Operators".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import FileError, Unimplemented
from inlay.graph.background import yield_to_runs
from inlay.graph.fallback.library import INSTALL, find_onnxruntime
from inlay.graph.fallback.models import type_of
from inlay.graph.fallback.support import find_exclusion
from inlay.graph.network import Node, Subgraph, Tensor, read_only, unused_name
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS, require_computable
from inlay.graph.onnx.constant_folding import (
    MOST_FOLDED,
    MOST_OPERATIONS,
    SHORTENING,
    constant_value,
    count_fold_bytes,
    count_fold_operations,
    fold_constants,
    fold_shape,
    is_foldable,
    keeps_integers,
)
from inlay.graph.onnx.constraints import NodeInputs
from inlay.graph.onnx.contrib_inference import infer_contrib, is_known
from inlay.graph.onnx.initializers import Proto, read_tensor, tensor_of
from inlay.graph.onnx.node_inference import MOST_SHOWN, infer_outputs, require_fit, require_size
from inlay.graph.onnx.parsing import ParsedModel, name_of
from inlay.graph.onnx.regions import (
    captured_names,
    dynamic_tensor,
    find_reason,
    infer_types,
    known_tensor,
    rename_captured,
)
from inlay.graph.onnx_package import helper, onnx
from inlay.graph.op_graph import Array
from inlay.layout import Dims

Scope: TypeAlias = Mapping[str, str]
"""Names in a graph of the model to names in the network, for names that differ."""


def require_fallback_engine(node: Node, reason: str) -> None:
    """Require that ONNX Runtime is installed for a node that only it computes, for this reason.

    Raises:
        Unimplemented: it is not installed.
    """
    if find_onnxruntime() is None:
        raise Unimplemented(f"node {node.name!r}: {reason}: only ONNX Runtime computes it: {INSTALL}")


def require_supported(node: Node, opset: int, reads: Sequence[Tensor]) -> None:
    """Require that NumPy can compute a node, or that ONNX Runtime may for inputs of these types: plans ask it.

    Raises:
        Unimplemented: NumPy cannot, and ONNX Runtime is not installed or computes such nodes otherwise.
    """
    try:
        require_computable(node, opset)
    except Unimplemented as error:
        if find_exclusion(node, opset, (tensor.dtype for tensor in reads)):
            raise
        if find_onnxruntime() is None:
            raise Unimplemented(f"{error}; ONNX Runtime may compute it: {INSTALL}") from error


class GraphImporter:
    """State of an import: the nodes, tensors and constants of the network so far."""

    def __init__(self, model: ParsedModel, inputs: list[Tensor]) -> None:
        self.opset = model.opset
        self.folder = model.folder
        self.values: dict[str, Array] = dict(model.values)
        self.tensors = {tensor.name: tensor for tensor in inputs}
        self.tensors.update({name: tensor_of(name, array) for name, array in model.values.items()})
        self.open_types: dict[str, Proto] = {}
        """Type of each open value: its dims are unknown, or it is no tensor of numbers."""
        self.nodes: list[Node] = []
        self._literals = set(model.values)
        self.scope: Scope = {}
        self._names: set[str] = set()
        self._folded = 0
        self._operations = 0

    def import_graph(self, graph: Proto, scope: Scope, prefix: str) -> None:
        """Import the nodes of a graph.

        `scope` maps names of the enclosing graphs to names of the network. `prefix` is put before the graph's own names
        to make them unique; it is empty for the main graph.

        Raises:
            FileError, InvalidArguments, MissingExtra, Unimplemented: reasons of `load`.
        """
        own = dict(scope)
        self.scope = own
        if prefix:
            for tensor in graph.initializer:
                own[tensor.name] = prefix + tensor.name
                self._add_constant(own[tensor.name], read_tensor(tensor, self.folder))
        for proto in graph.node:
            condition = self.values.get(own.get(proto.input[0], proto.input[0])) if proto.op_type == "If" else None
            if condition is not None:
                self._import_branch(proto, condition, own, prefix)
            else:
                self._import_node(*_rename(proto, own, prefix, self._names))
        self.scope = own

    def add_output(self, name: str, inputs: set[str]) -> None:
        """Ensure that a node writes this output of the network, also if it is a constant or another name of a tensor.

        Raises:
            FileError: nothing computes the output.
            Unimplemented: the output is an input of the network.
        """
        source = self.scope.get(name, name)
        if source in self.open_types:
            self._add_open_output(name, source)
            return
        if source not in self.tensors:
            raise FileError(f"output {name!r} is written by no node: export the model again")
        if name in inputs:
            raise Unimplemented(
                f"output {name!r} is an input of the network, which no node computes: remove it from the outputs"
            )
        if source == name and name in self.values:
            source = unused_name(f"{name}:value", self.tensors, self._names)
            self._add_constant(source, self.values.pop(name))
            self.nodes = [_replace_input(node, name, source) for node in self.nodes]
        if source != name:
            identity = unused_name(f"{name}:answer", self.tensors, self._names)
            self.nodes.append(Node(identity, "Identity", (source,), (name,)))
            self.tensors[name] = Tensor(name, self.tensors[source].dims, self.tensors[source].dtype)

    def _add_open_output(self, name: str, source: str) -> None:
        """Ensure that a node writes this output, whose dims depend on the data of a run."""
        tensor = dynamic_tensor(name, self.open_types[source])
        if tensor is None:
            raise Unimplemented(
                f"output {name!r} is a sequence, an optional value or a text: only tensors of numbers and booleans are "
                "supported; export the model with tensors in its place"
            )
        if source != name:
            identity = Node(unused_name(f"{name}:answer", self.tensors, self._names), "Identity", (source,), (name,))
            self._append_open(identity, (source,), "")
            self.open_types[name] = self.open_types[source]
        self.tensors[name] = tensor

    def _import_node(self, node: Node, proto: Proto) -> None:
        """Infer the results of a node, then fold it if possible, else append it to the network."""
        yield_to_runs()
        captured = captured_names(proto)
        known = self.tensors.keys() | self.open_types.keys()
        unknown = next((name for name in (*node.inputs, *captured) if name and name not in known), None)
        if unknown is not None:
            raise FileError(f"node {node.name!r} reads {unknown!r}, which no node writes: export the model again")
        has_open_inputs = any(name in self.open_types for name in node.inputs)
        if is_known(node, self.values) and not has_open_inputs:
            self._append_contrib(node)
            return
        if (reason := find_reason(proto)) or has_open_inputs:
            self._import_open(node, captured, reason)
            return
        node, proto = as_cast(node, proto, self.tensors)
        node, proto = self._resolve_reshape(node, proto)
        reads = [self.tensors[name] for name in node.inputs if name]
        value = constant_value(node) if not reads else fold_shape(node, reads[0])
        if value is not None:
            if not reads:
                self._literals.add(node.outputs[0])
            self._add_constant(node.outputs[0], value)
            return
        outputs = infer_outputs(node, proto, self.opset, reads, self.values)
        tensors = [self.tensors[name] if name else None for name in node.inputs]
        require_fit(NodeInputs(node, self.opset, tensors, outputs, self.values))
        can_fold = is_foldable(node, self.values) and not keeps_integers(node, self.values)
        if can_fold and (None not in outputs or node.operator in SHORTENING):
            self._count_folding(node, outputs)
            results = fold_constants(node, self.opset, outputs, self.values)
            if results is not None:
                for name, array in results.items():
                    self._add_constant(name, array)
                return
        if None in outputs:
            self._import_open(node, (), f"the dims of {node.operator}'s results depend on the data of a run")
            return
        require_supported(node, self.opset, reads)
        self.nodes.append(node)
        self.tensors.update({tensor.name: tensor for tensor in outputs if tensor is not None})

    def _append_contrib(self, node: Node) -> None:
        """Append a node of com.microsoft that other operators replace."""
        for tensor in infer_contrib(node, self.tensors):
            require_size(tensor, f"node {node.name!r}: {node.operator}: the result {tensor.name!r}")
            self.tensors[tensor.name] = tensor
        self.nodes.append(node)

    def _resolve_reshape(self, node: Node, proto: Proto) -> tuple[Node, Proto]:
        """Return a Reshape of an empty tensor with the extent that -1 stands for; any other node as it is.

        ONNX's inference refuses -1 beside a copied extent of 0. Only dims in the file are resolved: in computed ones, 0
        may be a number that means no copy.
        """
        if node.operator != "Reshape" or node.inputs[1] not in self._literals:
            return node, proto
        dims = resolve_copied_extents(self.tensors[node.inputs[0]].dims, self.values[node.inputs[1]], node)
        if dims is None:
            return node, proto
        name = unused_name(f"{node.outputs[0]}:dims", self.tensors, self._names)
        self._add_constant(name, read_only(np.array(dims, np.int64)))
        resolved = onnx.NodeProto()
        resolved.CopyFrom(proto)
        resolved.input[1] = name
        return replace(node, inputs=(node.inputs[0], name)), resolved

    def _import_open(self, node: Node, captured: Sequence[str], reason: str) -> None:
        """Append a node that only ONNX Runtime computes, which infers the types of its results.

        `captured` are the tensors that graphs of the node read. `reason` is empty if it is that of another node.
        """
        require_fallback_engine(node, reason)
        reads = tuple(dict.fromkeys(name for name in (*node.inputs, *captured) if name))
        types = {name: self.open_types.get(name) or type_of(self.tensors[name]) for name in reads}
        small = {
            name: self.values[name] for name in reads if name in self.values and self.values[name].size <= MOST_SHOWN
        }
        for name, kind in infer_types(node, self.opset, types, small).items():
            tensor = known_tensor(name, kind)
            if tensor is None:
                self.open_types[name] = kind
            else:
                require_size(tensor, f"node {node.name!r}: {node.operator}: the result {name!r}")
                self.tensors[name] = tensor
        self._append_open(node, reads, reason)

    def _append_open(self, node: Node, reads: tuple[str, ...], reason: str) -> None:
        """Append a node as a subgraph that reads these tensors."""
        self.nodes.append(
            Subgraph(node.name, "Subgraph", reads, node.outputs, nodes=(node,), parameters=reads, why=reason)
        )

    def _count_folding(self, node: Node, outputs: list[Tensor | None]) -> None:
        """Add a folded node to the totals of bytes and operations.

        Raises:
            Unimplemented: a total exceeds its limit.
        """
        self._folded += count_fold_bytes(node, outputs, self.values)
        self._operations += count_fold_operations(node, outputs, self.values)
        if self._folded > MOST_FOLDED:
            raise Unimplemented(
                f"node {node.name!r}: with the result of {node.operator}, the constants computed at import would "
                f"need {self._folded} bytes, and {MOST_FOLDED} are allowed: store its result in the model"
            )
        if self._operations > MOST_OPERATIONS:
            raise Unimplemented(
                f"node {node.name!r}: with {node.operator}, the constants computed at import would need "
                f"{self._operations} operations, and {MOST_OPERATIONS} are allowed: store its result in the model"
            )

    def _add_constant(self, name: str, array: Array) -> None:
        """Add a constant and its tensor to the network."""
        self.values[name] = array
        self.tensors[name] = tensor_of(name, array)

    def _import_branch(self, proto: Proto, condition: Array, scope: dict[str, str], prefix: str) -> None:
        """Import the branch of an If that its constant condition selects."""
        name = name_of(proto)
        if condition.dtype != np.bool_ or condition.size != 1:
            raise FileError(
                f"node {name!r}: the condition of If is {condition.dtype} of dims {condition.shape}, not one bool: "
                "export the model again"
            )
        branch_name = "then_branch" if bool(condition.reshape(())) else "else_branch"
        branch = next(attribute.g for attribute in proto.attribute if attribute.name == branch_name)
        if branch.input:
            raise FileError(f"node {name!r}: a branch of If has inputs: export the model again")
        inner = f"{prefix}{name}/"
        self.import_graph(branch, scope, inner)
        results = [self.scope.get(value.name, value.name) for value in branch.output]
        known = self.tensors.keys() | self.open_types.keys()
        if len(results) != len(proto.output) or not all(result in known for result in results):
            raise FileError(
                f"node {name!r}: If has {len(proto.output)} results, and its branch has another number: export the "
                "model again"
            )
        scope.update(zip(proto.output, results, strict=True))
        self.scope = scope


def resolve_copied_extents(src: Dims, named: Array, node: Node) -> Dims | None:
    """Return the dims of a Reshape with a number in place of -1, if it copies an extent of 0; None otherwise.

    The extents that are copied count on neither side.

    >>> reshape = Node("r", "Reshape", ("x", "dims"), ("y",))
    >>> resolve_copied_extents((0, 5, 4), np.array([0, -1]), reshape)
    (0, 20)
    """
    dims = [int(n) for n in named.reshape(-1)]
    copied = [axis for axis, n in enumerate(dims) if n == 0]
    if node.attributes.get("allowzero") or dims.count(-1) != 1 or min(dims) < -1:
        return None
    if not copied or copied[-1] >= len(src) or all(src[axis] for axis in copied):
        return None
    rest = math.prod(n for axis, n in enumerate(src) if axis not in copied)
    known = math.prod(n for n in dims if n > 0)
    unknown = dims.index(-1)
    if rest % known or (rest == 0 and src[unknown : unknown + 1] != (0,)):  # a 0 there would copy another extent
        return None
    dims[unknown] = rest // known
    return tuple(dims)


def as_cast(node: Node, proto: Proto, tensors: Mapping[str, Tensor]) -> tuple[Node, Proto]:
    """Return a CastLike as the Cast to the type of its second input, whose elements it does not read; else the node.

    So a CastLike of a constant is folded.
    """
    if node.operator != "CastLike" or len(node.inputs) != 2:
        return node, proto
    to = int(helper.np_dtype_to_tensor_dtype(tensors[node.inputs[1]].dtype))
    cast = onnx.NodeProto()
    cast.CopyFrom(proto)
    cast.op_type = "Cast"
    del cast.input[1:]
    cast.attribute.append(helper.make_attribute("to", to))
    return replace(node, operator="Cast", inputs=node.inputs[:1], attributes={**node.attributes, "to": to}), cast


def _replace_input(node: Node, name: str, source: str) -> Node:
    """Return a node that reads `source` wherever it read `name`."""
    if name not in node.inputs:
        return node
    return replace(node, inputs=tuple(source if old == name else old for old in node.inputs))


def _rename(proto: Proto, scope: dict[str, str], prefix: str, names: set[str]) -> tuple[Node, Proto]:
    """Return a node with the network's names, as a `Node` and as ONNX's NodeProto.

    The names of its results are added to `scope`, its own name to `names`.
    """
    inputs = tuple(scope.get(name, name) for name in proto.input)
    if prefix:
        scope.update({name: prefix + name for name in proto.output if name})
    outputs = tuple(scope.get(name, name) for name in proto.output)
    name = unused_name(prefix + name_of(proto), names)
    names.add(name)
    renamed = onnx.NodeProto()
    renamed.CopyFrom(proto)
    if proto.domain in ONNX_DOMAINS:
        renamed.domain = ""
    rename_captured(renamed, scope)
    for old_names, new_names in ((renamed.input, inputs), (renamed.output, outputs)):
        del old_names[:]
        old_names.extend(new_names)
    return Node(name, proto.op_type, inputs, outputs, _decode_attributes(renamed, name), renamed.domain), renamed


_STORED = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.TYPE_PROTO)
"""Types of attributes that a node holds as bytes."""


def _decode_attributes(proto: Proto, name: str) -> dict[str, Any]:
    """Return the attributes of a node by name, as `Node.attributes` has them."""
    attributes = {}
    for attribute in proto.attribute:
        if attribute.type in _STORED:
            attributes[attribute.name] = attribute.SerializeToString()
            continue
        try:
            attributes[attribute.name] = _decode_value(helper.get_attribute_value(attribute), name)
        except (ValueError, TypeError) as error:
            raise FileError(
                f"node {name!r}: the attribute {attribute.name} of {proto.op_type} cannot be read: "
                "export the model again"
            ) from error
    return attributes


def _decode_value(value: Any, name: str) -> Any:
    """Return an attribute's value as a number, text, array or tuple; raise Unimplemented for any other kind."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return read_tensor(value, None)
    if isinstance(value, (int, float, str, np.generic)):
        return value
    if isinstance(value, (onnx.SparseTensorProto, onnx.TypeProto, onnx.GraphProto)):
        raise Unimplemented(
            f"node {name!r} holds a {type(value).__name__.removesuffix('Proto')}: only numbers, texts and dense "
            "tensors are supported; export the model without it"
        )
    return tuple(_decode_value(item, name) for item in value)
