"""Symbolic shape inference: the dims of all tensors of a model with open dims, by their names where ONNX infers them.

It is ONNX's own inference with data propagation, on the model without its large weights, so it takes milliseconds. The
result is what a reader is shown; networks with bound dims are inferred node by node (see `node_inference`).

Source: ONNX, "ONNX Shape Inference", symbol generation and data propagation.
"""

import re
from collections.abc import Sequence

import numpy as np

from inlay.errors import Unimplemented
from inlay.graph.onnx.initializers import Proto, element_type
from inlay.graph.onnx.node_inference import MOST_SHOWN
from inlay.graph.onnx.parsing import ParsedModel
from inlay.graph.onnx_package import checker, helper, numpy_helper, onnx, shape_inference
from inlay.graph.open_network import UNKNOWN, OpenTensor

_GENERATED = re.compile(r"unk__\d+")
"""Names that ONNX gives to extents that it cannot express by the names of open dims."""


def infer_open_tensors(model: ParsedModel, inputs: Sequence[OpenTensor]) -> dict[str, OpenTensor]:
    """Return the tensors of a model, by name, for inputs with these dims.

    An extent that ONNX does not infer is `UNKNOWN`. Tensors whose type or number of axes it does not infer are left
    out, and all but the inputs if the dims contradict each other: `bind` says where.
    """
    try:
        inferred = shape_inference.infer_shapes(_describe_model(model, inputs), data_prop=True).graph
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, TypeError):
        return {tensor.name: tensor for tensor in inputs}
    tensors = {value.name: _read_tensor(value) for value in (*inferred.value_info, *inferred.output)}
    found = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return {**found, **{tensor.name: tensor for tensor in inputs}}


def _describe_model(model: ParsedModel, inputs: Sequence[OpenTensor]) -> Proto:
    """Return the model with these dims of its inputs, small weights, and the types of large ones."""
    described = onnx.ModelProto()
    described.CopyFrom(model.model)
    graph = described.graph
    for value, tensor in zip(graph.input, inputs, strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, tensor.dims))
    for value in graph.output:
        if value.type.HasField("tensor_type"):  # dims of outputs in the file are ignored
            value.type.tensor_type.ClearField("shape")
    for name, array in model.values.items():
        if array.size <= MOST_SHOWN:
            graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    return described


def _read_tensor(value: Proto) -> OpenTensor | None:
    """Return an inferred tensor; None if its type or its number of axes is unknown."""
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    try:
        dtype = element_type(kind.elem_type, value.name)
    except Unimplemented:
        return None
    return OpenTensor(value.name, tuple(_read_extent(dim) for dim in kind.shape.dim), dtype)


def _read_extent(dim: Proto) -> int | str:
    """Return a number, the name of an open dim, or `UNKNOWN`."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    name = str(dim.dim_param)
    return UNKNOWN if not name or _GENERATED.fullmatch(name) else name
