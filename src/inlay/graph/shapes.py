"""What a node gives, asked of ONNX's shape inference one node at a time.

All that comes before a node is known when it is asked: every dim is a number, and the elements of what was folded are
at hand. So one pass is enough, and what stays unknown is known to depend on the data of a run.

Source: ONNX, "Shape Inference".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.constraints import NodeInputs, axis_fault, fault_of
from inlay.graph.network import Node, Tensor
from inlay.graph.onnx_package import checker, defs, helper, numpy_helper, shape_inference
from inlay.graph.op import Array
from inlay.graph.patterns.precision import F32, NARROW
from inlay.graph.stored import Proto, dims_of, element_type

_SHOWN = 1024
"""Elements of a constant that shape inference is shown: shapes, axes and scales have fewer."""

_SCALES_BY_CHANNEL = 21
"""The opset since which ONNX infers dims of a GroupNormalization."""

MOST_AXES = 64
"""Axes of an array of NumPy."""

MOST_BYTES = 1 << 47
"""Bytes that a process can address."""

_AS_FIRST = frozenset({"Dropout", "GroupNormalization", "MeanVarianceNormalization"})
"""Operators whose results all have the dims that they take, and for which onnx infers not all of them."""


def given(
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
        opset = max(opset, _SCALES_BY_CHANNEL)  # ONNX infers nothing of what it deprecates, and the dims are the same
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
