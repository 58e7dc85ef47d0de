"""`parse_model`: a checked model from the bytes of an ONNX file, in a supported opset, with its weights as arrays.

The file is untrusted, so each check precedes the work that depends on it: the size is checked before parsing, the
operators before their schemas are used, and the structure by ONNX's own checker. The checker sees the model without its
large weights and so takes milliseconds.

An operator has the same meaning in all opsets between two of its versions. A model of an opset before 9 is therefore
renumbered to opset 9 if none of its operators means something else there. Otherwise `onnx.version_converter` converts
it. Newer opsets are accepted operator by operator: `numpy_operators.evaluation` lists the versions that were compared.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification"; "Operators", versions; the
package onnx, `onnx.version_converter`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from inlay.errors import FileError, Unimplemented
from inlay.files import file_error, require_file
from inlay.graph.fallback.models import MICROSOFT
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS, OPSETS
from inlay.graph.onnx.functions import inline_functions
from inlay.graph.onnx.initializers import (
    ModelFolder,
    Proto,
    folder_of,
    inline_external_tensors,
    nodes_of,
    read_tensor,
    subgraphs,
)
from inlay.graph.onnx_package import DecodeError, checker, defs, helper, onnx, shape_inference, version_converter
from inlay.graph.op_graph import Array

MOST_BYTES = (1 << 31) - 1
"""Size limit of a model file in bytes: protobuf's limit for one message."""

MOST_NODES = 100_000
"""Limit on the nodes of a model: more than networks have, and few enough to be read in seconds."""

_WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators that have graphs in their attributes."""


@dataclass(frozen=True, slots=True)
class ParsedModel:
    """A model that has passed the checks, and its weights."""

    model: Proto = field(repr=False)
    """ONNX's ModelProto, without its weights."""
    values: dict[str, Array] = field(repr=False)
    """Weights by name; read-only arrays."""
    opset: int
    """Version of ONNX's operators."""
    folder: ModelFolder | None
    """Folder of the model; None for a model from memory."""


def parse_model(source: Path | bytes, weights: Mapping[str, Array] | None = None) -> ParsedModel:
    """Parse and check the model at a path, or in the bytes of a file.

    `weights` are read-only arrays of initializers that the model itself does not hold, by name.

    Raises:
        FileError: the file cannot be read, is no model, is cut short, or breaks a rule of ONNX.
        Unimplemented: the model has something that Inlay does not support: another opset, another domain, loops,
            sequences.
    """
    name = "the model" if isinstance(source, bytes) else str(source)
    model = _parse(source, name)
    folder = None if isinstance(source, bytes) else folder_of(source)
    model, opset = _with_supported_opset(inline_functions(model, name, MOST_NODES, MOST_BYTES), name)
    if len(model.graph.node) > MOST_NODES:
        raise Unimplemented(f"{name} has {len(model.graph.node)} nodes: {MOST_NODES} at most are read; cut it in parts")
    _screen_graph(model.graph, opset)
    inline_external_tensors(model.graph, folder)
    values = _extract_initializers(model.graph, folder) | dict(weights or {})
    _check(model, values, name)
    return ParsedModel(model, values, opset, folder)


def _parse(source: Path | bytes, name: str) -> Proto:
    """Return the ModelProto of a file; `name` names the model in errors."""
    size = len(source) if isinstance(source, bytes) else require_file(source)
    if size > MOST_BYTES:
        raise FileError(
            f"cannot read {name}: it has {size} bytes, and a model holds {MOST_BYTES} at most; "
            "store its weights in files beside it"
        )
    try:
        content = source if isinstance(source, bytes) else source.read_bytes()
        model = onnx.load_model_from_string(content)
    except OSError as error:
        raise file_error("read", Path(name), error) from error
    except (DecodeError, ValueError, TypeError) as error:
        raise FileError(
            f"cannot read {name}: it is no ONNX model, or was cut short; export or copy it again"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise FileError(f"cannot read {name}: it is no ONNX model, it has no graph or no opset; export it again")
    if not all(isinstance(text, str) for text in _texts(model)):
        raise FileError(f"cannot read {name}: a name in it is no text in UTF-8; export or copy it again")
    return model


def _texts(message: Proto) -> Iterator[str | bytes]:
    """Yield every text of a message, except the elements of tensors.

    Protobuf returns bytes, not str, for a text that is not UTF-8.
    """
    if isinstance(message, onnx.TensorProto):
        yield message.name
        yield from (text for entry in message.external_data for text in (entry.key, entry.value))
        return
    for entry, value in message.ListFields():
        if entry.type in (entry.TYPE_STRING, entry.TYPE_MESSAGE):
            is_one = isinstance(value, (str, bytes)) or hasattr(value, "ListFields")
            for item in (value,) if is_one else value:
                yield from _texts(item) if entry.type == entry.TYPE_MESSAGE else (item,)


# Versions of operators

_CONVERSION_ERRORS = (
    DecodeError,
    RuntimeError,
    TypeError,
    ValueError,
    checker.ValidationError,
    shape_inference.InferenceError,
    version_converter.ConvertError,
)


def _with_supported_opset(model: Proto, name: str) -> tuple[Proto, int]:
    """Return the model and its opset, converted if its opset is older than the supported ones; `name` is for errors.

    Raises:
        FileError: the model names several versions of ONNX's operators.
        Unimplemented: the model names none, or one that is too new, or one that is too old and cannot be converted.
    """
    versions = [int(opset.version) for opset in model.opset_import if opset.domain in ONNX_DOMAINS]
    if not versions:
        domains = ", ".join(sorted({repr(opset.domain) for opset in model.opset_import}))
        raise Unimplemented(
            f"{name} has operators of {domains} alone: ONNX's own operators are supported; export it with these"
        )
    if len(versions) != 1:
        raise FileError(
            f"cannot read {name}: it names {len(versions)} versions of ONNX's operators, not one; export it again"
        )
    first, last = OPSETS
    if versions[0] > last:
        raise Unimplemented(
            f"{name} uses opset {versions[0]}: opsets {first} to {last} are supported; export it with one of them"
        )
    return (model, versions[0]) if versions[0] >= first else (_convert(model, versions[0], name), first)


def _convert(model: Proto, version: int, name: str) -> Proto:
    """Return the model in the oldest supported opset."""
    first = OPSETS[0]
    _require_common_slopes(model, version, name)
    changed = next((node for node in nodes_of(model.graph) if not _is_unchanged(node, version, first)), None)
    if version >= 1 and changed is None:
        renumbered = onnx.ModelProto()
        renumbered.CopyFrom(model)
        for opset in renumbered.opset_import:
            if opset.domain in ONNX_DOMAINS:
                opset.version = first
        return renumbered
    try:
        return version_converter.convert_version(model, first)
    except _CONVERSION_ERRORS as error:
        what = f", whose {changed.op_type} means something else since" if changed is not None else ""
        raise Unimplemented(
            f"{name} uses opset {version}{what}, and onnx cannot convert it to opset {first}: export it with one of "
            f"opsets {first} to {OPSETS[1]}"
        ) from error


def _require_common_slopes(model: Proto, version: int, name: str) -> None:
    """Raise Unimplemented for a PRelu with a slope for each channel, which onnx converts to one for each column."""
    sizes = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer}
    for node in nodes_of(model.graph) if version < _FIRST_EXTENDED else ():
        if node.op_type == "PRelu" and sizes.get(node.input[1] if len(node.input) > 1 else "") != 1:
            raise Unimplemented(
                f"{name} uses opset {version}, whose PRelu {name_of(node)!r} has a slope for each channel: export it "
                f"with one of opsets {OPSETS[0]} to {OPSETS[1]}"
            )


_FIRST_EXTENDED = 7
_EXTENDED = frozenset(
    {
        *("BatchNormalization", "Cast", "Constant", "Flatten", "Gemm", "Greater", "Less", "MatMul", "Max", "MaxPool"),
        *("Mean", "Min", "PRelu", "Sum"),
    }
)
"""Operators that compute in opset 9 what they compute in opset 7, and have more types, broadcasts or results.

BatchNormalization has lost the attribute `spatial`, which is 1 by default.
"""


def _is_unchanged(node: Proto, version: int, first: int) -> bool:
    """Return whether an operator computes the same in both opsets."""
    if node.domain not in ONNX_DOMAINS:
        return True  # `_screen` rejects it by its domain
    kinds = [defs.has(node.op_type, opset, "") for opset in (version, first)]
    if not all(kinds):
        return False
    one, other = (defs.get_schema(node.op_type, opset, "").since_version for opset in (version, first))
    is_extended = version >= _FIRST_EXTENDED and node.op_type in _EXTENDED
    return one == other or (is_extended and all(attribute.name != "spatial" for attribute in node.attribute))


# Supported operators


def _screen_graph(graph: Proto, opset: int) -> None:
    """Raise an error unless every operator is supported by ONNX's schema and only control flow has subgraphs."""
    if graph.sparse_initializer:
        raise Unimplemented(
            f"tensor {graph.sparse_initializer[0].values.name!r} is sparse: only dense weights are supported; "
            "store it dense"
        )
    for node in graph.node:
        _screen(node, opset)
        for subgraph in subgraphs(node):
            _screen_graph(subgraph, opset)


def _screen(node: Proto, opset: int) -> None:
    """Raise FileError or Unimplemented if a node cannot be imported."""
    place = f"node {name_of(node)!r}: {node.op_type}"
    if any(attribute.HasField("sparse_tensor") or attribute.sparse_tensors for attribute in node.attribute):
        raise Unimplemented(f"{place} holds a SparseTensor: only dense tensors are supported; export the model without")
    if node.domain == MICROSOFT:
        return
    if node.domain not in ONNX_DOMAINS:
        raise Unimplemented(
            f"{place} of domain {node.domain!r} is not supported, ONNX's own operators are: export the model without "
            "operators of one runtime"
        )
    if node.op_type.startswith("String"):
        raise Unimplemented(f"{place} is not supported, only tensors of numbers and booleans are: export it without")
    if not defs.has(node.op_type, opset, ""):
        raise Unimplemented(f"{place} is no operator of opset {opset}: export the model again, or correct the name")
    schema = defs.get_schema(node.op_type, opset, "")
    least = schema.min_input
    is_missing = any(
        not name and formal.option != formal.option.Optional
        for name, formal in zip(node.input[:least], schema.inputs, strict=False)
    )
    if is_missing or len(node.input) < least:
        raise FileError(f"{place} needs its first {least} inputs, and one is left out: export the model again")
    if node.op_type not in _WITH_GRAPHS and next(subgraphs(node), None) is not None:
        raise FileError(f"{place} has a subgraph, which its operator does not allow: export the model again")


def name_of(node: Proto) -> str:
    """Return the name of a node for errors: its own name, or that of its first result."""
    return node.name or next((name for name in node.output if name), "")


# Weights, and ONNX's checker


def _extract_initializers(graph: Proto, folder: ModelFolder | None) -> dict[str, Array]:
    """Remove the initializers from the graph and return them by name; files of IR version 3 list them as inputs too."""
    values: dict[str, Array] = {}
    for tensor in graph.initializer:
        if tensor.name in values:
            raise FileError(f"tensor {tensor.name!r} is stored twice: export the model again")
        values[tensor.name] = read_tensor(tensor, folder)
    inputs = [value for value in graph.input if value.name not in values]
    graph.ClearField("input")
    graph.input.extend(inputs)
    graph.ClearField("initializer")
    graph.ClearField("value_info")
    return values


def _check(model: Proto, values: dict[str, Array], name: str) -> None:
    """Run ONNX's checker on the model, with graph inputs in place of the weights."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.ir_version = max(4, model.ir_version)
    shown.graph.input.extend(
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for key, array in values.items()
    )
    for value in (*shown.graph.input, *shown.graph.output):
        if value.type.HasField("tensor_type"):  # Inlay infers the dims of outputs, so those in the file are ignored
            value.type.tensor_type.shape.SetInParent()
    try:
        _check_deprecated(shown.graph)
        checker.check_model(shown)
    except (checker.ValidationError, ValueError, RuntimeError, TypeError) as error:
        problem = str(error).strip().splitlines()[0].strip()
        raise FileError(f"cannot read {name}: {problem}; export it again") from error


def _check_deprecated(graph: Proto) -> None:
    """Check the nodes that ONNX's checker rejects as deprecated, and replace them by nodes that it accepts.

    Runtimes compute these nodes. GroupNormalization of opset 18 has the same inputs as that of opset 21, except for the
    length of its scale and shift.
    """
    for node in nodes_of(graph):
        if node.op_type == "GroupNormalization":
            checker.check_node(node)
            node.op_type = "InstanceNormalization"
            node.ClearField("attribute")
