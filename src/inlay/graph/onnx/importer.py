"""`GraphImporter`: import of a model's nodes, one by one, with shape inference, constant folding and If on constants.

**Shape inference.** ONNX's inference is called for one node at a time. By then every dim of the node's inputs is a
number, and the elements of folded inputs are known. So one pass is enough, and a dim that remains unknown depends on
the data of a run.

**Constant folding.** Exporters compute shapes with nodes: Shape, Gather, Concat, Cast, Expand. Once dims are numbers,
all of these are constants. The size of a result is bounded before it is computed, since a few bytes of a file can
describe a tensor that exceeds any memory. ConstantOfShape and Expand allocate nothing: their results are views with
stride 0.

**If.** The branch of an If with a constant condition is imported in place of the If. ONNX's names are unique within a
graph or branch only, so names of a branch get the name of the If as a prefix.

Source: ONNX, "Operators", "Shape Inference".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import FileError, InvalidArguments, OutOfMemory, Unimplemented
from inlay.graph.fallback.library import INSTALL, find_onnxruntime
from inlay.graph.fallback.models import type_of
from inlay.graph.fallback.support import find_exclusion
from inlay.graph.network import Node, Subgraph, Tensor, read_only, unused_name
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS, compute_node, require_computable
from inlay.graph.numpy_operators.normalization import SCALES_BY_CHANNEL
from inlay.graph.numpy_operators.random_numbers import RANDOM_OPERATORS
from inlay.graph.onnx.constraints import NodeInputs, find_axis_fault, find_fault
from inlay.graph.onnx.initializers import Proto, dims_of, element_type, read_tensor, tensor_of
from inlay.graph.onnx.parsing import ParsedModel, name_of
from inlay.graph.onnx.regions import (
    captured_names,
    dynamic_tensor,
    find_reason,
    infer_types,
    known_tensor,
    rename_captured,
)
from inlay.graph.onnx_package import checker, defs, helper, numpy_helper, onnx, shape_inference
from inlay.graph.op_graph import Array
from inlay.graph.passes.precision import F32, NARROW

# Inference

_SHOWN = 1024
"""Limit on the elements of a constant that is passed to shape inference; shapes, axes and scales have fewer."""

MOST_AXES = 64
"""Limit on the axes of a tensor: that of NumPy's arrays."""

MOST_BYTES = 1 << 47
"""Limit on the bytes of a tensor: the address space of a process."""

_DIMS_OF_FIRST = frozenset({"Dropout", "GroupNormalization", "MeanVarianceNormalization"})
"""Operators whose results all have the dims of the first input, and for which onnx does not infer all of them."""


def infer_outputs(
    node: Node, proto: Proto, opset: int, reads: Sequence[Tensor], values: Mapping[str, Array]
) -> list[Tensor | None]:
    """Return the results of a node as tensors, in order; None for one whose dims depend on the data of a run.

    `proto` is ONNX's form of `node`, with the same names. `reads` has an entry for each input that is not left out.

    Raises:
        InvalidArguments: the dims or types of the inputs do not fit the operator.
        Unimplemented: a result is no tensor of numbers.
    """
    narrow = next((tensor.dtype for tensor in reads if tensor.dtype in NARROW), None)
    try:
        return _infer(node, proto, opset, reads, values)
    except InvalidArguments:
        if narrow is None:
            raise
    # Exporters use bfloat16 with operators that allow it in a later opset only; the inferred dims are those of float32.
    wide = [replace(tensor, dtype=F32) if tensor.dtype in NARROW else tensor for tensor in reads]
    short = [tensor for tensor in wide if tensor.name in values and values[tensor.name].size <= _SHOWN]
    constants = {tensor.name: values[tensor.name].astype(tensor.dtype) for tensor in short}
    outputs = _infer(node, proto, opset, wide, constants)
    return [replace(tensor, dtype=narrow) if tensor and tensor.dtype == F32 else tensor for tensor in outputs]


def _infer(
    node: Node, proto: Proto, opset: int, reads: Sequence[Tensor], values: Mapping[str, Array]
) -> list[Tensor | None]:
    """Call ONNX's shape inference for one node; parameters, result and exceptions are those of `infer_outputs`."""
    types = {t.name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(t.dtype), t.dims) for t in reads}
    data = {
        t.name: numpy_helper.from_array(np.asarray(values[t.name]), t.name)
        for t in reads
        if t.name in values and values[t.name].size <= _SHOWN
    }
    if node.operator == "GroupNormalization":
        opset = max(opset, SCALES_BY_CHANNEL)  # ONNX does not infer deprecated versions; the dims are the same
    fault = find_axis_fault(node, reads[0] if reads else None)
    if fault:
        raise _misfit(node, reads, fault)
    try:
        inferred = shape_inference.infer_node_outputs(
            defs.get_schema(node.operator, opset, ""),
            proto,
            types,
            data,
            opset_imports=[helper.make_opsetid("", opset)],
        )
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        raise _misfit(node, reads, _message(error)) from error
    return [_output_tensor(node, reads, name, inferred.get(name)) for name in node.outputs if name]


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


def require_fit(inputs: NodeInputs) -> None:
    """Check the rules of ONNX that its shape inference leaves unchecked; `constraints` has them.

    Raises:
        InvalidArguments: dims, elements or attributes contradict each other.
    """
    reason = find_fault(inputs)
    if reason:
        raise _misfit(inputs.node, [tensor for tensor in inputs.tensors if tensor is not None], reason)


def require_size(tensor: Tensor, what: str) -> None:
    """Require that a tensor fits NumPy's limit on axes and the address space; `what` names it in errors.

    Raises:
        InvalidArguments: the tensor has more axes or bytes.
    """
    if len(tensor.dims) > MOST_AXES:
        raise InvalidArguments(
            f"{what} has {len(tensor.dims)} axes: {MOST_AXES} at most are supported; leave out those of extent 1"
        )
    if tensor.nbytes > MOST_BYTES:
        raise InvalidArguments(
            f"{what} has dims {tensor.dims} of {tensor.dtype}, {tensor.nbytes} bytes: no machine holds more than "
            f"{MOST_BYTES}; correct the model, or give its inputs other dims"
        )


def _output_tensor(node: Node, reads: Sequence[Tensor], name: str, proto: Proto | None) -> Tensor | None:
    """Return a result of a node from its inferred type; None if a dim is unknown."""
    if proto is None or not proto.HasField("tensor_type"):
        raise Unimplemented(
            f"node {node.name!r}: {node.operator} has the result {name!r}, which is no tensor: only tensors of "
            "numbers and booleans are supported; export the model without it"
        )
    kind = proto.tensor_type
    dtype = element_type(kind.elem_type, f"node {node.name!r}: {node.operator}: the result {name!r}")
    if node.operator in _DIMS_OF_FIRST and reads:
        return Tensor(name, reads[0].dims, dtype)
    if not kind.HasField("shape"):
        return None
    if any(dim.HasField("dim_value") and dim.dim_value < 0 for dim in kind.shape.dim):
        raise _misfit(node, reads, "its result has a negative extent")
    dims = dims_of(kind.shape)
    if dims is None:
        return None
    tensor = Tensor(name, dims, dtype)
    require_size(tensor, f"node {node.name!r}: {node.operator}: the result {name!r}")
    return tensor


def _misfit(node: Node, reads: Sequence[Tensor], reason: str) -> InvalidArguments:
    """Return the error for inputs that do not fit an operator."""
    inputs = " and ".join(f"{tensor.dtype} {tensor.dims}" for tensor in reads)
    return InvalidArguments(
        f"node {node.name!r}: {node.operator} does not accept {inputs}: {reason}; correct the model, or give its "
        "inputs other dims"
    )


def _message(error: Exception) -> str:
    """Return the first line of an exception of onnx, without its tags."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text.replace("[ShapeInferenceError] ", "").replace("[TypeInferenceError] ", "").rstrip(".")


# Folding

MOST_FOLDED = 1 << 30
"""Limit on the bytes of all constants that are computed at import."""

MOST_OPERATIONS = 1 << 34
"""Limit on the multiplications and additions that are computed at import; they take a few seconds."""

SHORTENING = frozenset({"NonZero", "Unique", "Compress"})
"""Operators whose result dims depend on elements; their results are at most a small multiple of their inputs' size."""


def fold_constants(
    node: Node, opset: int, tensors: Sequence[Tensor | None], values: Mapping[str, Array]
) -> dict[str, Array] | None:
    """Return the results of a node with constant inputs, by name, read-only; None if NumPy cannot compute the node.

    `tensors` are the node's results, None where unknown. The caller has checked that their bytes are within
    `MOST_FOLDED`.

    Raises:
        InvalidArguments: the operator does not allow these constants.
        MissingExtra: the package onnx is not installed.
    """
    result = next((tensor for tensor in tensors if tensor is not None), None)
    if node.operator == "ConstantOfShape" and result is not None:
        fill = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)[:1]
        return {result.name: np.broadcast_to(fill.reshape(()), result.dims)}
    if node.operator == "Expand" and result is not None:
        return {result.name: np.broadcast_to(values[node.inputs[0]], result.dims)}
    try:
        results = compute_node(node, opset, {name: values[name] for name in node.inputs if name})
    except (OutOfMemory, Unimplemented):
        return None
    return {name: read_only(array) for name, array in results.items()}


def constant_value(node: Node) -> Array | None:
    """Return the elements of a Constant node; None for any other node.

    Raises:
        Unimplemented: the constant is sparse, or holds texts.
    """
    if node.operator != "Constant":
        return None
    for name, value in node.attributes.items():
        if name == "value":
            return np.asarray(value)
        if name in ("value_float", "value_floats"):
            return read_only(np.array(value, np.float32))
        if name in ("value_int", "value_ints"):
            return read_only(np.array(value, np.int64))
    attributes = ", ".join(node.attributes) or "nothing"
    raise Unimplemented(
        f"node {node.name!r}: Constant holds {attributes}: only dense tensors of numbers and booleans are supported"
    )


def fold_shape(node: Node, src: Tensor) -> Array | None:
    """Return the result of Shape or Size of a tensor with known dims; None for any other node."""
    if node.operator == "Size":
        return read_only(np.array(math.prod(src.dims), np.int64))
    if node.operator != "Shape":
        return None
    axes = slice(node.attributes.get("start", 0), node.attributes.get("end"))
    return read_only(np.array(src.dims[axes], np.int64))


def is_foldable(node: Node, values: Mapping[str, Any]) -> bool:
    """Return whether a node can be folded: all of its inputs are constant, and its operator is not random."""
    return node.operator not in RANDOM_OPERATORS and all(name in values for name in node.inputs if name)


def count_fold_bytes(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """Return an upper bound of the bytes that NumPy writes to compute a node with constant inputs.

    Inputs with stride 0, such as results of Expand, count as if NumPy copied them, unless the operator returns views.
    """
    inputs = [values[name] for name in node.inputs if name]
    total = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    if node.operator not in VIEWING:
        total += sum(_WIDEST * array.size for array in inputs if is_broadcast(array))
    if node.operator in SHORTENING:
        total += sum(_WIDEST * array.size * max(array.ndim, 3) for array in inputs)
    return total


def is_broadcast(array: Array) -> bool:
    """Return whether an axis of an array has stride 0, so that several elements share memory."""
    return any(n > 1 and not stride for n, stride in zip(array.shape, array.strides, strict=True))


def count_fold_operations(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """Return an estimate of the multiplications and additions that compute a node with constant inputs."""
    inputs = [values[name] for name in node.inputs if name]
    result = sum(int(math.prod(tensor.dims)) for tensor in tensors if tensor is not None)
    if node.operator in _PRODUCTS and len(inputs) > 1:
        weights = inputs[1]
        inner = inputs[0].shape[-1:] if node.operator in ("Gemm", "MatMul", "MatMulInteger") else weights.shape[1:]
        return int(result * math.prod(inputs[0].shape[:1] if node.attributes.get("transA") else inner))
    if node.operator == "Einsum":
        return math.prod(int(array.size) for array in inputs)
    if node.operator in ("AveragePool", "LpPool", "MaxPool"):
        return result * math.prod(int(n) for n in node.attributes.get("kernel_shape", ()))
    if node.operator in ("GRU", "LSTM", "RNN"):
        return sum(int(array.size) for array in inputs) * max(inputs[0].shape, default=1)
    return result + sum(array.size for array in inputs)


_PRODUCTS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "Gemm", "MatMul", "MatMulInteger"})
_WIDEST = 8  # bytes of an element that NumPy computes with

VIEWING = frozenset({"Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that read no more elements of a constant than they return."""


# Import

Scope: TypeAlias = Mapping[str, str]
"""Names in a graph of the model to names in the network, for names that differ."""


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
        captured = captured_names(proto)
        known = self.tensors.keys() | self.open_types.keys()
        unknown = next((name for name in (*node.inputs, *captured) if name and name not in known), None)
        if unknown is not None:
            raise FileError(f"node {node.name!r} reads {unknown!r}, which no node writes: export the model again")
        reason = find_reason(proto)
        if reason or any(name in self.open_types for name in node.inputs):
            self._import_open(node, captured, reason)
            return
        node, proto = as_cast(node, proto, self.tensors)
        reads = [self.tensors[name] for name in node.inputs if name]
        value = constant_value(node) if not reads else fold_shape(node, reads[0])
        if value is not None:
            self._add_constant(node.outputs[0], value)
            return
        outputs = infer_outputs(node, proto, self.opset, reads, self.values)
        tensors = [self.tensors[name] if name else None for name in node.inputs]
        require_fit(NodeInputs(node, self.opset, tensors, outputs, self.values))
        if is_foldable(node, self.values) and (None not in outputs or node.operator in SHORTENING):
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

    def _import_open(self, node: Node, captured: Sequence[str], reason: str) -> None:
        """Append a node that only ONNX Runtime computes, which infers the types of its results.

        `captured` are the tensors that graphs of the node read. `reason` is empty if it is that of another node.
        """
        require_fallback_engine(node, reason)
        reads = tuple(dict.fromkeys(name for name in (*node.inputs, *captured) if name))
        types = {name: self.open_types.get(name) or type_of(self.tensors[name]) for name in reads}
        small = {name: self.values[name] for name in reads if name in self.values and self.values[name].size <= _SHOWN}
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
