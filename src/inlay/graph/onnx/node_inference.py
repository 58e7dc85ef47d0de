"""Shape inference of one node, by ONNX's own, and the limits of what it infers.

ONNX's inference is called for one node at a time. By then every dim of the node's inputs is a number, and the elements
of folded inputs are known. So one pass over the nodes is enough, and a dim that remains unknown depends on the data of
a run.

Source: ONNX, "Shape Inference".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Node, Tensor
from inlay.graph.numpy_operators.normalization import SCALES_BY_CHANNEL
from inlay.graph.onnx.constraints import NodeInputs, find_axis_fault, find_fault
from inlay.graph.onnx.initializers import Proto, dims_of, element_type
from inlay.graph.onnx_package import checker, defs, helper, numpy_helper, shape_inference
from inlay.graph.op_graph import Array
from inlay.graph.passes.precision import F32, NARROW
from inlay.layout import Dims

MOST_SHOWN = 1024
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
    short = [tensor for tensor in wide if tensor.name in values and values[tensor.name].size <= MOST_SHOWN]
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
        if t.name in values and values[t.name].size <= MOST_SHOWN
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
    caches = _cache_dims(node, reads) if node.operator == "Attention" else {}
    return [_output_tensor(node, reads, name, inferred.get(name), caches.get(name)) for name in node.outputs if name]


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


def _cache_dims(node: Node, reads: Sequence[Tensor]) -> dict[str, Dims]:
    """Return the dims of keys and values with those of the cache, which onnx infers only where both have a cache.

    Inputs whose dims do not fit have none.
    """
    given = {tensor.name: tensor.dims for tensor in reads}
    found: dict[str, Dims] = {}
    for new, past, result in zip(node.inputs[1:3], (*node.inputs[4:6], "", "")[:2], node.outputs[1:3], strict=False):
        dims, before, heads = given[new], given.get(past, ()), node.attributes.get("kv_num_heads", 0)
        if len(dims) == 3 and heads > 0:
            dims = (dims[0], heads, dims[1], dims[2] // heads)
        if len(dims) == 4 and len(before) in (0, 4):
            found[result] = (*dims[:2], dims[2] + (before[2] if before else 0), dims[3])
    return found


def _output_tensor(
    node: Node, reads: Sequence[Tensor], name: str, proto: Proto | None, known: Dims | None
) -> Tensor | None:
    """Return a result of a node from its inferred type, or of `known` dims; None if its dims are unknown."""
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
        return None if known is None else Tensor(name, known, dtype)
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
