"""A model of ONNX from its bytes: parsed, brought to an opset that is read, screened and checked, weights taken out.

Nothing in the file is believed before it was looked at: its size before it is parsed, its operators before they are
asked for shapes, its structure by ONNX's own checker, which sees the model without its large weights and so takes
milliseconds.

An operator means the same in all opsets between two of its versions. So a model of an older opset is one of opset 9
where none of its operators changed in between; else `onnx.version_converter` is asked, which knows the changes. Newer
opsets are accepted operator by operator: `numpy_operators.evaluation` says which versions were compared.

Source: ONNX, "Open Neural Network Exchange Intermediate Representation Specification"; "Operators", versions; the
package onnx, `onnx.version_converter`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inlay.errors import FileError, Unimplemented
from inlay.files import file_error, require_file
from inlay.graph.numpy_operators.evaluation import ONNX_DOMAINS, OPSETS
from inlay.graph.onnx.initializers import ModelFolder, Proto, folder_of, nodes_of, stored_array, subgraphs, take_in
from inlay.graph.onnx_package import DecodeError, checker, defs, helper, onnx, shape_inference, version_converter
from inlay.graph.op_graph import Array

MOST_BYTES = (1 << 31) - 1
"""What protobuf can hold."""

MOST_NODES = 100_000
"""More than any network has, and few enough to be read in seconds."""

_SEQUENCES = ("Sequence", "Optional", "SplitToSequence", "ConcatFromSequence", "String")
_LOOPS = ("Loop", "Scan", "SequenceMap")


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that has passed the checks."""

    model: Proto
    """The ModelProto; its weights are left out."""
    values: dict[str, Array]
    """Its weights, read-only."""
    opset: int
    """Version of ONNX's operators."""
    folder: ModelFolder | None
    """Where it lies; None for a model from memory."""


def opened(source: Path | bytes) -> Opened:
    """The model of that path, or of these bytes of a file.

    Raises:
        FileError: it cannot be read, is no model, is cut short, or breaks a rule of ONNX.
        Unimplemented: it holds what Inlay does not read: another opset, another domain, loops, sequences.
    """
    name = "the model" if isinstance(source, bytes) else str(source)
    model = _parsed(source, name)
    folder = None if isinstance(source, bytes) else folder_of(source)
    model, opset = _with_supported_opset(model, name)
    if len(model.graph.node) > MOST_NODES:
        raise Unimplemented(f"{name} has {len(model.graph.node)} nodes: {MOST_NODES} at most are read; cut it in parts")
    _screen_graph(model.graph, model, opset)
    take_in(model.graph, folder)
    values = _taken_out(model.graph, folder)
    _check(model, values, name)
    return Opened(model, values, opset, folder)


def _parsed(source: Path | bytes, name: str) -> Proto:
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
    """Every text of a message; protobuf answers bytes for one that is no UTF-8. Elements are not looked at."""
    if isinstance(message, onnx.TensorProto):
        yield message.name
        yield from (text for entry in message.external_data for text in (entry.key, entry.value))
        return
    for field, value in message.ListFields():
        if field.type in (field.TYPE_STRING, field.TYPE_MESSAGE):
            is_one = isinstance(value, (str, bytes)) or hasattr(value, "ListFields")
            for item in (value,) if is_one else value:
                yield from _texts(item) if field.type == field.TYPE_MESSAGE else (item,)


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
    """The model, converted where its opset is older than those that are read, and its opset; `name` is for errors.

    Raises:
        FileError: it names no version of ONNX's operators, or several.
        Unimplemented: its opset is newer than those that are read, or older and cannot be converted.
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
    return (model, versions[0]) if versions[0] >= first else (_converted(model, versions[0], name), first)


def _converted(model: Proto, version: int, name: str) -> Proto:
    """The model in the first opset that is read."""
    first = OPSETS[0]
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


def _is_unchanged(node: Proto, version: int, first: int) -> bool:
    """Whether an operator has the same version in both opsets."""
    if node.domain not in ONNX_DOMAINS:
        return True  # it is refused by its domain
    kinds = [defs.has(node.op_type, opset, "") for opset in (version, first)]
    if not all(kinds):
        return False
    one, other = (defs.get_schema(node.op_type, opset, "").since_version for opset in (version, first))
    return one == other


# What is read at all


def _screen_graph(graph: Proto, model: Proto, opset: int) -> None:
    """Every operator is one of ONNX's that can be read; subgraphs belong to If alone."""
    if graph.sparse_initializer:
        raise Unimplemented(
            f"tensor {graph.sparse_initializer[0].values.name!r} is sparse: only dense weights are supported; "
            "store it dense"
        )
    for node in graph.node:
        _screen(node, model, opset)
        for subgraph in subgraphs(node):
            _screen_graph(subgraph, model, opset)


def _screen(node: Proto, model: Proto, opset: int) -> None:
    place = f"node {called(node)!r}: {node.op_type}"
    if node.domain not in ONNX_DOMAINS:
        local = any((f.domain, f.name) == (node.domain, node.op_type) for f in model.functions)
        remedy = (
            "inline the model's functions: onnx.inliner.inline_local_functions(model)"
            if local
            else "export the model without operators of one runtime"
        )
        raise Unimplemented(f"{place} of domain {node.domain!r} is not supported, ONNX's own operators are: {remedy}")
    if node.op_type in _LOOPS:
        raise Unimplemented(
            f"{place} is not supported, a network runs the same nodes each time: "
            "export the model with its loops unrolled"
        )
    if node.op_type.startswith(_SEQUENCES):
        raise Unimplemented(f"{place} is not supported, only tensors of numbers and booleans are: export it without")
    if not defs.has(node.op_type, opset, ""):
        raise Unimplemented(f"{place} is no operator of opset {opset}: export the model again, or correct the name")
    least = defs.get_schema(node.op_type, opset, "").min_input
    if not all(node.input[:least]) or len(node.input) < least:
        raise FileError(f"{place} needs its first {least} inputs, and one is left out: export the model again")
    if node.op_type != "If" and next(subgraphs(node), None) is not None:
        raise FileError(f"{place} has a subgraph, which its operator does not take: export the model again")


def called(node: Proto) -> str:
    """The name of a node in errors: its own, or its first result's."""
    return node.name or next((name for name in node.output if name), "")


# Weights, and ONNX's checker


def _taken_out(graph: Proto, folder: ModelFolder | None) -> dict[str, Array]:
    """The initializers by name, which are inputs no longer: files of version 3 list them as both."""
    values: dict[str, Array] = {}
    for tensor in graph.initializer:
        if tensor.name in values:
            raise FileError(f"tensor {tensor.name!r} is stored twice: export the model again")
        values[tensor.name] = stored_array(tensor, folder)
    kept = [value for value in graph.input if value.name not in values]
    graph.ClearField("input")
    graph.input.extend(kept)
    graph.ClearField("initializer")
    graph.ClearField("value_info")
    return values


def _check(model: Proto, values: dict[str, Array], name: str) -> None:
    """ONNX's checker, with inputs in place of the weights."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.ir_version = max(4, model.ir_version)
    shown.ClearField("functions")
    shown.graph.input.extend(
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for key, array in values.items()
    )
    for value in (*shown.graph.input, *shown.graph.output):
        if value.type.HasField("tensor_type"):  # dims of outputs are inferred, so what a file says of them is no matter
            value.type.tensor_type.shape.SetInParent()
    try:
        _check_deprecated(shown.graph)
        checker.check_model(shown)
    except (checker.ValidationError, ValueError, RuntimeError, TypeError) as error:
        problem = str(error).strip().splitlines()[0].strip()
        raise FileError(f"cannot read {name}: {problem}; export it again") from error


def _check_deprecated(graph: Proto) -> None:
    """Check the nodes that the checker refuses as deprecated, though runtimes compute them; then show it others.

    GroupNormalization of opset 18 takes what that of opset 21 does, but for the length of its scales.
    """
    for node in nodes_of(graph):
        if node.op_type == "GroupNormalization":
            checker.check_node(node)
            node.op_type = "InstanceNormalization"
            node.ClearField("attribute")
