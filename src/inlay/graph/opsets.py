"""Versions of ONNX's operators: which are read, and how older ones become the first that is.

An operator means the same in all opsets between two of its versions. So a model of an older opset is one of opset 9
where none of its operators changed in between; else `onnx.version_converter` is asked, which knows the changes. Newer
opsets are accepted operator by operator: `reference_operators` and `numpy_operators` say which versions were compared.

Source: ONNX, "Operators", versions; the package onnx, `onnx.version_converter`.
"""

from inlay.errors import FileError, Unimplemented
from inlay.graph.nodes import ONNX_DOMAINS
from inlay.graph.onnx_package import DecodeError, checker, defs, onnx, shape_inference, version_converter
from inlay.graph.reference_operators import OPSETS
from inlay.graph.stored import Proto, nodes_of

_CONVERSION_ERRORS = (
    DecodeError,
    RuntimeError,
    TypeError,
    ValueError,
    checker.ValidationError,
    shape_inference.InferenceError,
    version_converter.ConvertError,
)


def with_supported_opset(model: Proto, name: str) -> tuple[Proto, int]:
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
