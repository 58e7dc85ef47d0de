"""The walk over the nodes of a model: each is asked what it gives, folded where it can be, and otherwise kept.

**Inference.** ONNX's shape inference is asked one node at a time. All that comes before a node is known then: every dim
is a number, and the elements of what was folded are at hand. So one pass is enough, and what stays unknown is known to
depend on the data of a run.

**Folding.** Exports compute shapes with nodes: Shape, Gather, Concat, Cast, Expand. Once dims are numbers, all of these
are constants. What a fold may take is bounded before it is computed, since a few bytes of a file can ask for a tensor
that no machine holds; a fill or a broadcast takes no memory at all, as its elements all lie in one place.

**The walk.** A branch of an If whose condition turned out to be constant is walked in the place of the If. Names are
unique within a graph, and within a branch only there, so those of branches are made unique by the name of the If.

Source: ONNX, "Operators", "Shape Inference"; the package onnx, `onnx.reference`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from inlay.errors import FileError, InvalidArguments, OutOfMemory, Unimplemented
from inlay.graph.network import Node, Tensor, read_only, unused_name
from inlay.graph.numpy_operators.evaluation import computed, require_computable
from inlay.graph.numpy_operators.normalization import SCALES_BY_CHANNEL
from inlay.graph.onnx.constraints import NodeInputs, axis_fault, fault_of
from inlay.graph.onnx.initializers import Proto, dims_of, element_type, stored_array, tensor_of
from inlay.graph.onnx.parsing import Opened, called
from inlay.graph.onnx_package import checker, defs, helper, numpy_helper, onnx, shape_inference
from inlay.graph.op_graph import Array
from inlay.graph.passes.precision import F32, NARROW

# Inference

_SHOWN = 1024
"""Elements of a constant that shape inference is shown: shapes, axes and scales have fewer."""

MOST_AXES = 64
"""Axes of an array of NumPy."""

MOST_BYTES = 1 << 47
"""Bytes that a process can address."""

_AS_FIRST = frozenset({"Dropout", "GroupNormalization", "MeanVarianceNormalization"})
"""Operators whose results all have the dims that they take, and for which onnx infers not all of them."""


def infer_outputs(
    node: Node, proto: Proto, opset: int, reads: Sequence[Tensor], values: Mapping[str, Array]
) -> list[Tensor | None]:
    """The tensors that a node gives, in order; None for one whose dims depend on what a run brings.

    `proto` is the node as ONNX has it, with the names of `node`; `reads` has an entry for each input that is there.

    Raises:
        InvalidArguments: the dims or types of the inputs do not fit the operator.
        Unimplemented: it gives what is no tensor of numbers.
    """
    narrow = next((tensor.dtype for tensor in reads if tensor.dtype in NARROW), None)
    try:
        return _inferred(node, proto, opset, reads, values)
    except InvalidArguments:
        if narrow is None:
            raise
    # Exporters write bfloat16 for operators that take it in a later opset only; dims are those of float32.
    wide = [replace(tensor, dtype=F32) if tensor.dtype in NARROW else tensor for tensor in reads]
    short = [tensor for tensor in wide if tensor.name in values and values[tensor.name].size <= _SHOWN]
    known = {tensor.name: values[tensor.name].astype(tensor.dtype) for tensor in short}
    found = _inferred(node, proto, opset, wide, known)
    return [replace(tensor, dtype=narrow) if tensor and tensor.dtype == F32 else tensor for tensor in found]


def _inferred(
    node: Node, proto: Proto, opset: int, reads: Sequence[Tensor], values: Mapping[str, Array]
) -> list[Tensor | None]:
    types = {t.name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(t.dtype), t.dims) for t in reads}
    data = {
        t.name: numpy_helper.from_array(np.asarray(values[t.name]), t.name)
        for t in reads
        if t.name in values and values[t.name].size <= _SHOWN
    }
    if node.operator == "GroupNormalization":
        opset = max(opset, SCALES_BY_CHANNEL)  # ONNX infers nothing of what it deprecates, and the dims are the same
    fault = axis_fault(node, reads[0] if reads else None)
    if fault:
        raise _misfit(node, reads, fault)
    try:
        found = shape_inference.infer_node_outputs(
            defs.get_schema(node.operator, opset, ""),
            proto,
            types,
            data,
            opset_imports=[helper.make_opsetid("", opset)],
        )
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, TypeError) as error:
        raise _misfit(node, reads, _reason(error)) from error
    return [_tensor(node, reads, name, found.get(name)) for name in node.outputs if name]


def require_known(node: Node, tensors: Sequence[Tensor | None]) -> None:
    """Every dim that a node gives is a number.

    Raises:
        Unimplemented: one depends on what a run brings.
    """
    if any(tensor is None for tensor in tensors):
        raise Unimplemented(
            f"node {node.name!r}: the dims that {node.operator} gives are known only when it runs: only fixed dims are "
            "supported; export the model without it, or with constants in its place"
        )


def require_fit(given: NodeInputs) -> None:
    """What ONNX's shape inference leaves unchecked, as `constraints` has it.

    Raises:
        InvalidArguments: dims, elements or attributes do not agree.
    """
    reason = fault_of(given)
    if reason:
        raise _misfit(given.node, [tensor for tensor in given.tensors if tensor is not None], reason)


def require_size(tensor: Tensor, what: str) -> None:
    """A tensor that some machine could hold, with as many axes as NumPy has; `what` names it in errors.

    Raises:
        InvalidArguments: it has more axes or bytes.
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


def _tensor(node: Node, reads: Sequence[Tensor], name: str, proto: Proto | None) -> Tensor | None:
    if proto is None or not proto.HasField("tensor_type"):
        raise Unimplemented(
            f"node {node.name!r}: {node.operator} gives {name!r}, which is no tensor: only tensors of numbers and "
            "booleans are supported; export the model without it"
        )
    kind = proto.tensor_type
    dtype = element_type(kind.elem_type, f"node {node.name!r}: {node.operator}: the result {name!r}")
    if node.operator in _AS_FIRST and reads:
        return Tensor(name, reads[0].dims, dtype)
    if not kind.HasField("shape"):
        return None
    if any(dim.HasField("dim_value") and dim.dim_value < 0 for dim in kind.shape.dim):
        raise _misfit(node, reads, "nothing is left of it along an axis")
    dims = dims_of(kind.shape)
    if dims is None:
        return None
    tensor = Tensor(name, dims, dtype)
    require_size(tensor, f"node {node.name!r}: {node.operator}: the result {name!r}")
    return tensor


def _misfit(node: Node, reads: Sequence[Tensor], reason: str) -> InvalidArguments:
    inputs = " and ".join(f"{tensor.dtype} {tensor.dims}" for tensor in reads)
    return InvalidArguments(
        f"node {node.name!r}: {node.operator} cannot take {inputs}: {reason}; correct the model, or give its inputs "
        "other dims"
    )


def _reason(error: Exception) -> str:
    """ONNX's words for it."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text.replace("[ShapeInferenceError] ", "").replace("[TypeInferenceError] ", "").rstrip(".")


# Folding

MOST_FOLDED = 1 << 30
"""Bytes of all constants that are computed when a model is read."""

MOST_OPERATIONS = 1 << 34
"""Multiplications and additions that are computed when a model is read: a few seconds."""

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)
"""Operators that give something else at each run, or may."""

SHORTENING = frozenset({"NonZero", "Unique", "Compress"})
"""Operators whose dims follow from elements, and that give no more elements than a small multiple of what they take."""


def fold_constants(
    node: Node, opset: int, tensors: Sequence[Tensor | None], values: Mapping[str, Array]
) -> dict[str, Array] | None:
    """What a node of constants gives, by name, read-only; None where nothing here computes it.

    `tensors` are what it gives where that is known; its bytes have been found to be few enough.

    Raises:
        InvalidArguments: the constants are not such as its operator allows.
        MissingExtra: the package onnx is not installed.
    """
    known = next((tensor for tensor in tensors if tensor is not None), None)
    if node.operator == "ConstantOfShape" and known is not None:
        fill = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)[:1]
        return {known.name: np.broadcast_to(fill.reshape(()), known.dims)}
    if node.operator == "Expand" and known is not None:
        return {known.name: np.broadcast_to(values[node.inputs[0]], known.dims)}
    try:
        results = computed(node, opset, {name: values[name] for name in node.inputs if name})
    except (OutOfMemory, Unimplemented):
        return None
    return {name: read_only(array) for name, array in results.items()}


def stored_constant(node: Node) -> Array | None:
    """The elements of a node Constant; None for another node.

    Raises:
        Unimplemented: it is sparse, or holds texts.
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
    held = ", ".join(node.attributes) or "nothing"
    raise Unimplemented(
        f"node {node.name!r}: Constant holds {held}: only dense tensors of numbers and booleans are supported"
    )


def size_or_dims(node: Node, src: Tensor) -> Array | None:
    """What Shape and Size give of a tensor whose dims are known; None for another node."""
    if node.operator == "Size":
        return read_only(np.array(math.prod(src.dims), np.int64))
    if node.operator != "Shape":
        return None
    part = slice(node.attributes.get("start", 0), node.attributes.get("end"))
    return read_only(np.array(src.dims[part], np.int64))


def foldable(node: Node, values: Mapping[str, Any]) -> bool:
    """Whether a node gives constants: all that it takes are."""
    return node.operator not in RANDOM and all(name in values for name in node.inputs if name)


def bytes_to_fold(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """The most bytes that are written when a node of constants is computed; fills and broadcasts are written out."""
    inputs = [values[name] for name in node.inputs if name]
    spread = sum(_WIDEST * array.size for array in inputs if is_spread(array)) if node.operator not in VIEWING else 0
    most = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    if node.operator in SHORTENING:
        most += sum(_WIDEST * array.size * max(array.ndim, 3) for array in inputs)
    return most + spread


def is_spread(array: Array) -> bool:
    """Whether elements of an array lie in the same place, so that it takes less memory than it has elements."""
    return any(n > 1 and not stride for n, stride in zip(array.shape, array.strides, strict=True))


def operations_to_fold(node: Node, tensors: Sequence[Tensor | None], values: Mapping[str, Array]) -> int:
    """About how many multiplications and additions compute a node of constants."""
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
"""Operators that read no more elements of a constant than they give."""


# The walk

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
            source = unused_name(f"{name}:value", self.tensors, self._names)
            self._keep_value(source, self.values.pop(name))
            self.nodes = [_reading(node, name, source) for node in self.nodes]
        if source != name:
            answer = unused_name(f"{name}:answer", self.tensors, self._names)
            self.nodes.append(Node(answer, "Identity", (source,), (name,)))
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
        gives = infer_outputs(node, proto, self.opset, reads, self.values)
        tensors = [self.tensors[name] if name else None for name in node.inputs]
        require_fit(NodeInputs(node, self.opset, tensors, gives, self.values))
        if foldable(node, self.values) and (None not in gives or node.operator in SHORTENING):
            self._count(node, gives)
            results = fold_constants(node, self.opset, gives, self.values)
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
    name = unused_name(prefix + called(proto), names)
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
