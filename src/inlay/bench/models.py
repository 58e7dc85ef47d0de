"""A model as runtimes like it best: dims fixed, weights constant, its operators of a newer version, logits visible.

Old files list initializers as inputs too, and before version 4 of the format they had to: a runtime then cannot take
them for constants, and folds nothing. Operators of opset 13 let ONNX Runtime see patterns that it misses in older ones.
A softmax hides differences, since of saturated inputs it makes 0 and 1: for comparing, its input becomes an output.
"""

from typing import Any, TypeAlias

from inlay.errors import Unimplemented
from inlay.graph.network import Network, Tensor
from inlay.graph.onnx_package import helper, onnx

Model: TypeAlias = Any  # onnx.ModelProto, whose package ships no types

IR_VERSION = 8
"""Of the format: initializers are constants from 4 on, and every runtime of these years reads it."""
NEWER_OPSET = 13
"""The operators that ONNX Runtime optimizes best."""
_MOST_BYTES = (1 << 31) - 1
_HIDING = ("Softmax", "LogSoftmax")


def prepared(model: Model, network: Network) -> Model:
    """`model`, changed in place: of the dims of `network`, each initializer a constant.

    Raises:
        Unimplemented: it has more bytes than a message of protobuf can hold.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    _replace(graph.input, [value for value in graph.input if value.name not in constants])
    for value in (*graph.input, *graph.output):
        _fix(value, network.tensors[value.name])
    _replace(graph.value_info, [])
    model.ir_version = max(model.ir_version, IR_VERSION)
    if model.ByteSize() > _MOST_BYTES:
        raise Unimplemented(
            f"the model has {model.ByteSize() / 1e9:.1f} GB: a runtime takes at most 2 GB in one message"
        )
    return model


def newer(model: Model) -> Model | None:
    """The same with operators of opset 13; None where it has them, or cannot be converted."""
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset >= NEWER_OPSET:
        return None
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, NEWER_OPSET)
    except (RuntimeError, ValueError):
        return None


def hidden(model: Model) -> dict[str, str]:
    """By output that a softmax writes, the tensor that it reads."""
    writers = {name: node for node in model.graph.node for name in node.output}
    found = {value.name: writers.get(value.name) for value in model.graph.output}
    return {name: node.input[0] for name, node in found.items() if node is not None and node.op_type in _HIDING}


def answering(model: Model, tensors: list[str]) -> Model:
    """A copy of which these f32 tensors are outputs too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for name in tensors:
        copy.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return copy


def serialized(model: Model) -> bytes:
    """The file."""
    data: bytes = model.SerializeToString()
    return data


def _fix(value: Any, tensor: Tensor) -> None:
    kind = helper.np_dtype_to_tensor_dtype(tensor.dtype)
    value.CopyFrom(helper.make_tensor_value_info(value.name, kind, tensor.dims))


def _replace(field: Any, values: list[Any]) -> None:
    """Let a repeated field have these values."""
    kept = [type(value).FromString(value.SerializeToString()) for value in values]
    del field[:]
    field.extend(kept)
