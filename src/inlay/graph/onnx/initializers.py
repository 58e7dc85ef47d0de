"""Stored tensors of a model as arrays, including those in files beside the model (external data).

A model names the files that hold its large tensors. The name comes from an untrusted file, so it must be a relative
path that stays in the model's folder, also after symbolic links are resolved. The file must hold exactly as many bytes
as the tensor's dims and type require.

Source: ONNX, "External Data"; onnx.proto, TensorProto.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from inlay.errors import FileError, Unimplemented
from inlay.files import file_error, require_file
from inlay.graph.network import Tensor, read_only
from inlay.graph.numpy_operators.call import onnx_dtype
from inlay.graph.onnx_package import numpy_helper, onnx
from inlay.graph.op_graph import Array
from inlay.layout import Dims

Proto = Any
"""Any message of ONNX's protobuf schema; its classes have no static types."""

PROTO = onnx.TensorProto
_PACKED = {
    getattr(PROTO, name): count
    for name, count in {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}.items()
    if hasattr(PROTO, name)
}
"""Elements per byte of each type narrower than a byte, among the types that the installed onnx defines."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Folders that may hold the external data of a model."""

    path: Path
    """Folder of the model."""
    target: Path | None
    """Folder of the file that the model's path links to, as in the cache of Hugging Face; None if the path is no
    link."""


def folder_of(path: Path) -> ModelFolder:
    """Return the folder of a model, and the folder of the link's target if its path is a link."""
    return ModelFolder(path.parent, path.resolve().parent if path.is_symlink() else None)


def read_tensor(tensor: Proto, folder: ModelFolder | None) -> Array:
    """Return the elements of a stored tensor as a read-only array.

    `folder` is the model's folder; None for a model from memory.

    Raises:
        FileError: bytes are missing or too many, or the file that holds them is outside the folder.
        Unimplemented: the elements are texts, or of a type that Inlay does not know.
    """
    dtype = element_type(tensor.data_type, f"tensor {tensor.name!r}")
    if any(n < 0 for n in tensor.dims):
        raise FileError(f"tensor {tensor.name!r} has a negative extent, {tuple(tensor.dims)}: export the model again")
    if tensor.data_location == PROTO.EXTERNAL:
        _inline(tensor, _read_external(tensor, folder))
    raw = tensor.raw_data if tensor.HasField("raw_data") else None  # each access to the field copies the bytes
    if raw is not None and len(raw) != _nbytes(tensor):
        raise FileError(_wrong_size(tensor, len(raw), "are stored"))
    if raw is not None and tensor.data_type not in _PACKED and sys.byteorder == "little":
        return read_only(np.frombuffer(raw, dtype).reshape(tuple(tensor.dims)))
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise FileError(
            f"tensor {tensor.name!r}: its stored elements do not fill dims {tuple(tensor.dims)} of {dtype}: "
            "export the model again"
        ) from error
    return read_only(array)


def element_type(code: int, what: str) -> np.dtype[Any]:
    """Return the NumPy or ml_dtypes type for ONNX's type `code`; `what` names the tensor in errors.

    Raises:
        Unimplemented: the type is a text, or unknown to the installed onnx.
    """
    try:
        dtype = onnx_dtype(code)
    except (KeyError, TypeError, ValueError):
        dtype = np.dtype(object)
    if dtype.hasobject or code in (PROTO.UNDEFINED, PROTO.STRING):
        name = PROTO.DataType.Name(code) if code in PROTO.DataType.values() else str(code)
        raise Unimplemented(f"{what} has elements of type {name}: only numbers and booleans are supported")
    return dtype


def tensor_of(name: str, array: Array) -> Tensor:
    """Return the `Tensor` that describes a constant: name, dims and type."""
    return Tensor(name, array.shape, array.dtype)


def _nbytes(tensor: Proto) -> int:
    """Return the bytes that a tensor's dims and type require."""
    count = int(math.prod(tensor.dims))
    if tensor.data_type in _PACKED:
        return -(-count // _PACKED[tensor.data_type])
    return count * onnx_dtype(tensor.data_type).itemsize


def _wrong_size(tensor: Proto, nbytes: int, verb: str) -> str:
    """Return the error text for a tensor whose data have `nbytes` bytes instead of the required number."""
    return (
        f"tensor {tensor.name!r}: {nbytes} bytes {verb}, and dims {tuple(tensor.dims)} of "
        f"{onnx_dtype(tensor.data_type)} require {_nbytes(tensor)}: export the model again"
    )


# Files beside the model


def inline_external_tensors(graph: Proto, folder: ModelFolder | None) -> None:
    """Move the external data of tensors in attributes, including those in subgraphs, into the tensors themselves.

    Raises:
        FileError: a reason of `read_tensor`.
        Unimplemented: a reason of `read_tensor`.
    """
    for tensor in attribute_tensors(graph):
        if tensor.data_location == PROTO.EXTERNAL:
            element_type(tensor.data_type, f"tensor {tensor.name!r}")
            _inline(tensor, _read_external(tensor, folder))


def attribute_tensors(graph: Proto) -> Iterator[Proto]:
    """Yield every tensor in an attribute of a node, and every initializer of a subgraph."""
    for node in nodes_of(graph):
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)
        for subgraph in subgraphs(node):
            yield from subgraph.initializer


def subgraphs(node: Proto) -> Iterator[Proto]:
    """Yield the graphs in the attributes of a node, such as the branches of If."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)


def nodes_of(graph: Proto) -> Iterator[Proto]:
    """Yield the nodes of a graph and of its subgraphs; each node precedes those of its subgraphs."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from nodes_of(subgraph)


def _inline(tensor: Proto, content: bytes) -> None:
    """Store `content` in the tensor in place of its reference to a file."""
    tensor.raw_data = content
    tensor.ClearField("data_location")
    tensor.ClearField("external_data")


def _read_external(tensor: Proto, folder: ModelFolder | None) -> bytes:
    """Return the bytes of a tensor whose data are in a file beside the model."""
    if folder is None:
        raise FileError(
            f"tensor {tensor.name!r} is stored in a file beside the model, but the model was passed as bytes: pass "
            "its path to load"
        )
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _resolve_location(tensor.name, entries.get("location", ""), folder)
    size = require_file(path)
    offset = _parse_number(tensor.name, "offset", entries.get("offset", "0"))
    length = _parse_number(tensor.name, "length", entries.get("length", str(_nbytes(tensor))))
    if length != _nbytes(tensor):
        raise FileError(_wrong_size(tensor, length, f"of {path.name} are named"))
    if offset + length > size:
        raise FileError(
            f"tensor {tensor.name!r}: bytes {offset} to {offset + length} of {path.name} are named, which has {size}: "
            "it was cut short, or belongs to another model"
        )
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise file_error("read", path, error) from error


def _resolve_location(name: str, location: str, folder: ModelFolder) -> Path:
    """Return the resolved path of a data file; raise FileError if it is outside the model's folders."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    leaves = posix.is_absolute() or windows.anchor or ".." in (*posix.parts, *windows.parts)
    if not location or leaves or "\0" in location:
        raise FileError(
            f"tensor {name!r} is stored in {location!r}: a file beside the model is named by a relative path "
            "without '..'; put it into the model's folder and name it so"
        )
    path = folder.path / location
    try:
        resolved, model_folder = path.resolve(strict=True), folder.path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        wrong = error if isinstance(error, OSError) else OSError(str(error))
        raise file_error("read", path, wrong) from error
    allowed = (model_folder,) if folder.target is None else (model_folder, folder.target)
    if not any(resolved.is_relative_to(parent) for parent in allowed):
        raise FileError(
            f"tensor {name!r} is stored in {location!r}, a link that leads out of the model's folder: put the file "
            "itself into the folder"
        )
    return resolved


def _parse_number(name: str, key: str, text: str) -> int:
    """Return the number of bytes that `text` states for `key`."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FileError(
            f"tensor {name!r}: the {key} of its bytes is {text!r}, which is not a number of bytes: export the "
            "model again"
        )
    return int(text)


def dims_of(shape: Proto) -> Dims | None:
    """Return the extents of a shape, or None if one of them is unknown."""
    dims = tuple(int(dim.dim_value) if dim.HasField("dim_value") else -1 for dim in shape.dim)
    return dims if all(n >= 0 for n in dims) else None
