"""Tensors of a model as arrays: those within the file, and those beside it, trusted no further than its folder.

A model names the files that hold its large tensors. Such a name is a text that anybody may have written, so it has to
be relative, has to stay in the folder of the model even after links are followed, and the file has to hold the bytes
that the tensor's dims and type ask for.

Source: ONNX, "External Data"; onnx.proto, TensorProto.
"""

import math
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
"""A message of ONNX's protobuf schema, whose classes have no types."""

PROTO = onnx.TensorProto
_PACKED = {
    getattr(PROTO, name): count
    for name, count in {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}.items()
    if hasattr(PROTO, name)
}
"""By type of less than a byte that this version of onnx knows, its elements in a byte."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Where the files beside a model may lie."""

    path: Path
    """The folder of the model."""
    target: Path | None
    """The folder of the file that the model is a link to, as in the cache of Hugging Face; None where it is no link."""


def folder_of(path: Path) -> ModelFolder:
    """The folder of a model, and that of the file that it is a link to."""
    return ModelFolder(path.parent, path.resolve().parent if path.is_symlink() else None)


def stored_array(tensor: Proto, folder: ModelFolder | None) -> Array:
    """The elements of a stored tensor, read-only; `folder` is where the model lies, None for one from memory.

    Raises:
        FileError: bytes are missing or too many, or the file that holds them is not in the folder.
        Unimplemented: the elements are texts or of a type unknown here.
    """
    dtype = element_type(tensor.data_type, f"tensor {tensor.name!r}")
    if any(n < 0 for n in tensor.dims):
        raise FileError(f"tensor {tensor.name!r} has a negative extent, {tuple(tensor.dims)}: export the model again")
    if tensor.data_location == PROTO.EXTERNAL:
        _take_in(tensor, _outside_bytes(tensor, folder))
    if tensor.HasField("raw_data") and len(tensor.raw_data) != _nbytes(tensor):
        raise FileError(_wrong_size(tensor, len(tensor.raw_data), "are stored"))
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise FileError(
            f"tensor {tensor.name!r}: its stored elements do not fill dims {tuple(tensor.dims)} of {dtype}: "
            "export the model again"
        ) from error
    return read_only(array)


def element_type(code: int, what: str) -> np.dtype[Any]:
    """The type of elements as NumPy or ml_dtypes have it; `what` names the tensor in errors.

    Raises:
        Unimplemented: texts, or a type that this version of onnx does not know.
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
    """What a constant is in the table of tensors."""
    return Tensor(name, array.shape, array.dtype)


def _nbytes(tensor: Proto) -> int:
    count = int(math.prod(tensor.dims))
    if tensor.data_type in _PACKED:
        return -(-count // _PACKED[tensor.data_type])
    return count * onnx_dtype(tensor.data_type).itemsize


def _wrong_size(tensor: Proto, nbytes: int, verb: str) -> str:
    return (
        f"tensor {tensor.name!r}: {nbytes} bytes {verb}, and dims {tuple(tensor.dims)} of "
        f"{onnx_dtype(tensor.data_type)} take {_nbytes(tensor)}: export the model again"
    )


# Files beside the model


def take_in(graph: Proto, folder: ModelFolder | None) -> None:
    """Tensors in attributes, subgraphs included, that lie in files beside the model are moved into it.

    Raises:
        FileError: as `stored_array`.
        Unimplemented: as `stored_array`.
    """
    for tensor in attribute_tensors(graph):
        if tensor.data_location == PROTO.EXTERNAL:
            element_type(tensor.data_type, f"tensor {tensor.name!r}")
            _take_in(tensor, _outside_bytes(tensor, folder))


def attribute_tensors(graph: Proto) -> Iterator[Proto]:
    """Every tensor that an attribute of a node holds, those of subgraphs included."""
    for node in nodes_of(graph):
        for attribute in node.attribute:
            yield from (*([attribute.t] if attribute.HasField("t") else ()), *attribute.tensors)
        for subgraph in subgraphs(node):
            yield from subgraph.initializer


def subgraphs(node: Proto) -> Iterator[Proto]:
    """The graphs that the attributes of a node hold."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs)


def nodes_of(graph: Proto) -> Iterator[Proto]:
    """The nodes of a graph, each before those of its subgraphs."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from nodes_of(subgraph)


def _take_in(tensor: Proto, content: bytes) -> None:
    tensor.raw_data = content
    tensor.ClearField("data_location")
    tensor.ClearField("external_data")


def _outside_bytes(tensor: Proto, folder: ModelFolder | None) -> bytes:
    """The bytes of a tensor that lies in a file beside the model."""
    if folder is None:
        raise FileError(
            f"tensor {tensor.name!r} lies in a file beside the model, and the model was given as bytes: "
            "give load its path"
        )
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(tensor.name, entries.get("location", ""), folder)
    size = require_file(path)
    offset = _number(tensor.name, "offset", entries.get("offset", "0"))
    length = _number(tensor.name, "length", entries.get("length", str(_nbytes(tensor))))
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


def _inside(name: str, location: str, folder: ModelFolder) -> Path:
    """The file of that location, which has to lie in the folder or beside the model's link target, links followed."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    leaves = posix.is_absolute() or windows.anchor or ".." in (*posix.parts, *windows.parts)
    if not location or leaves or "\0" in location:
        raise FileError(
            f"tensor {name!r} lies in {location!r}: a file beside the model is named by a relative path without '..'; "
            "put it into the model's folder and name it so"
        )
    path = folder.path / location
    try:
        real, home = path.resolve(strict=True), folder.path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        wrong = error if isinstance(error, OSError) else OSError(str(error))
        raise file_error("read", path, wrong) from error
    homes = (home,) if folder.target is None else (home, folder.target)
    if not any(real.is_relative_to(one) for one in homes):
        raise FileError(
            f"tensor {name!r} lies in {location!r}, a link that leads out of the model's folder: "
            "put the file itself into the folder"
        )
    return real


def _number(name: str, key: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FileError(
            f"tensor {name!r}: the {key} of its bytes is {text!r}, which is no number of bytes: export the model again"
        )
    return int(text)


def dims_of(shape: Proto) -> Dims | None:
    """The extents of a shape, None where one is unknown."""
    dims = tuple(int(dim.dim_value) if dim.HasField("dim_value") else -1 for dim in shape.dim)
    return dims if all(n >= 0 for n in dims) else None
