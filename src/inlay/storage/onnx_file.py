"""Initializers of ONNX models: the weights in the model's file, and those in files beside it (external data).

The package onnx parses the model. It does not state where a tensor begins in the file, so the bytes of each tensor are
looked up there, one after the other; equal bytes are the same tensor. Tensors in files beside the model are ranges of
bytes already. The few tensors that the model stores as numbers of variable length are kept in the store.

The names of files beside the model are untrusted: they must be relative paths that stay in its folder.

Source: ONNX, onnx.proto, TensorProto; "External Data".
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from inlay.data_type import ALL_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, MissingExtra, printable
from inlay.layout import Dims
from inlay.memory.buffers import Bytes
from inlay.storage.file_store import FileStore, WholeTensor, version_of
from inlay.storage.locations import SourcePath, UrlPath, read_errors, require_source
from inlay.storage.packed import STORED_TYPES
from inlay.storage.source_files import FileVersion
from inlay.storage.store import StoredTensor, row_major

Proto = Any
"""Any message of ONNX's protobuf schema; its classes have no static types."""

_DATA_TYPES: Mapping[str, str] = {
    "FLOAT": "f32",
    "DOUBLE": "f64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "f8_e4m3",
    "FLOAT8E5M2": "f8_e5m2",
    "FLOAT8E8M0": "e8m0",
    "FLOAT4E2M1": "f4_e2m1",
    "INT64": "s64",
    "INT32": "s32",
    "INT16": "s16",
    "INT8": "s8",
    "INT4": "s4",
    "UINT64": "u64",
    "UINT32": "u32",
    "UINT16": "u16",
    "UINT8": "u8",
    "UINT4": "u4",
    "BOOL": "bool",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
}
"""Name of each data type, by its name in ONNX."""


@dataclass(frozen=True, slots=True)
class InlineTensor:
    """The bytes of a tensor that are in no file as they are."""

    content: bytes
    """The bytes."""

    def read(self) -> Bytes:
        """Return the bytes."""
        return np.frombuffer(self.content, np.uint8)


@dataclass(slots=True)
class _ModelFiles:
    """The files that hold the initializers of a model, as they are found."""

    path: SourcePath
    """The model."""
    content: bytes
    """Its bytes."""
    versions: list[FileVersion]
    """The files; that of the model is the first."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Number of each file beside the model, by its name there."""
    position: int = 0
    """Offset in the model behind the last tensor that was found."""


def open_onnx(path: SourcePath) -> FileStore:
    """Open the initializers of an ONNX model as a store.

    The model is read and parsed; files beside it are not.

    Raises:
        FileError: the model or a file beside it is missing or damaged, such a file is outside its folder, two
            initializers have the same name, or one has texts as elements.
        MissingExtra: onnx is not installed.
    """
    require_source(path)
    version = version_of(path)
    with read_errors(path), path.open("rb") as file:
        content = file.read()
    files = _ModelFiles(path, content, [version])
    tensors, whole = dict[str, StoredTensor](), dict[str, WholeTensor]()
    for proto in _parse(path, content).graph.initializer:
        tensor, inline = _place(files, proto)
        if tensor.name in tensors:
            raise FileError(f"cannot read {path}: two initializers are named {tensor.label}; export the model again")
        tensors[tensor.name] = tensor
        if inline is not None:
            whole[tensor.name] = inline
    return FileStore(path, tuple(tensors.values()), {}, tuple(files.versions), whole)


def _parse(path: SourcePath, content: bytes) -> Proto:
    """Return the model with its initializers, without the data beside it."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingExtra(f"{path} needs onnx, which is not installed: pip install 'inlay[onnx]'") from None
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise FileError(f"cannot read {path}: it is truncated or no ONNX model; export it again") from error
    if not model.HasField("graph"):
        raise FileError(f"cannot read {path}: it is truncated or no ONNX model; export it again")
    return model


def _place(files: _ModelFiles, proto: Proto) -> tuple[StoredTensor, InlineTensor | None]:
    """Return one initializer, and its bytes if they are in no file."""
    from onnx import TensorProto

    label = f"initializer {printable(_text(files.path, proto.name))}"
    dims = tuple(int(n) for n in proto.dims)
    type_name = TensorProto.DataType.Name(proto.data_type) if proto.data_type in TensorProto.DataType.values() else "?"
    data_type = _DATA_TYPES.get(type_name)
    if data_type is None or any(n < 0 for n in dims):
        wrong = f"elements of type {type_name}" if data_type is None else f"dims {dims}"
        raise FileError(f"cannot read {files.path}: {label} has {wrong}; only numbers and booleans are read")
    nbytes = -(-prod(dims) * ALL_TYPES[data_type].bits // 8)
    number, begin, inline = 0, 0, None
    if proto.data_location == TensorProto.EXTERNAL:
        number, begin = _locate_external(files, proto, label, nbytes)
    else:
        content = _content(files.path, proto, label, nbytes)
        begin = files.content.find(content, files.position)
        if begin < 0:
            begin, inline = 0, InlineTensor(content)
        else:
            files.position = begin + nbytes
    return _stored(proto.name, data_type, dims, begin, nbytes, number), inline


def _text(path: SourcePath, value: str | bytes) -> str:
    """Return a text of a model; protobuf returns bytes if they are no UTF-8."""
    if isinstance(value, bytes):
        raise FileError(f"cannot read {path}: it has a name that is no text; export the model again")
    return value


def _stored(name: str, data_type: str, dims: Dims, begin: int, nbytes: int, file: int) -> StoredTensor:
    """Return a row-major tensor in a file."""
    fields = (name, STORED_TYPES.get(data_type, data_type), dims, begin, nbytes)
    desc: MemoryDesc | None
    try:
        desc, refusal = row_major(dims, data_type), ""
    except InvalidArguments as error:
        desc, refusal = None, str(error)
    return StoredTensor(*fields, desc, refusal, file=file, data_type=data_type)


def _content(path: SourcePath, proto: Proto, label: str, nbytes: int) -> bytes:
    """Return the little-endian bytes of a tensor that the model holds itself."""
    from onnx import numpy_helper

    if proto.HasField("raw_data"):
        content = bytes(proto.raw_data)
    else:
        try:
            array = np.asarray(numpy_helper.to_array(proto))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise FileError(
                f"cannot read {path}: the elements of {label} are damaged; export the model again"
            ) from error
        content = _pack_elements(array, nbytes)
    if len(content) != nbytes:
        raise FileError(
            f"cannot read {path}: {label} has {len(content)} bytes, and its dims {tuple(proto.dims)} need {nbytes}; "
            "export the model again"
        )
    return content


def _pack_elements(array: np.ndarray[Any, Any], nbytes: int) -> bytes:
    """Return the bytes of an array, two elements of 4 bits in one, the first in the low half."""
    if sys.byteorder != "little":
        array = array.byteswap()
    content = np.ascontiguousarray(array).tobytes()
    if len(content) > nbytes and (len(content) + 1) // 2 == nbytes:
        codes = np.frombuffer(content, np.uint8) & 15
        codes = np.concatenate([codes, np.zeros(len(codes) % 2, np.uint8)])
        return bytes(codes[0::2] | codes[1::2] << 4)
    return content


# Files beside the model


def _locate_external(files: _ModelFiles, proto: Proto, label: str, nbytes: int) -> tuple[int, int]:
    """Return number and offset of the bytes of a tensor in a file beside the model."""
    pairs = [(entry.key, entry.value) for entry in proto.external_data]
    entries = {_text(files.path, key): _text(files.path, value) for key, value in pairs}
    location = entries.get("location", "")
    if location not in files.numbers:
        path = _resolve_location(files.path, location, label)
        require_source(path)
        files.numbers[location] = len(files.versions)
        files.versions.append(version_of(path))
    number = files.numbers[location]
    offset = _parse_number(files.path, label, "offset", entries.get("offset", "0"))
    length = _parse_number(files.path, label, "length", entries.get("length", str(nbytes)))
    if length != nbytes:
        raise FileError(
            f"cannot read {files.path}: {label} has {length} bytes, and its dims {tuple(proto.dims)} need {nbytes}; "
            "export the model again"
        )
    if offset + nbytes > files.versions[number].nbytes:
        raise FileError(
            f"cannot read {files.path}: {label} is in bytes {offset} to {offset + nbytes} of {printable(location)}, "
            f"which has {files.versions[number].nbytes}; copy that file again from its source"
        )
    return number, offset


def _resolve_location(model: SourcePath, location: str, label: str) -> SourcePath:
    """Return the path of a file beside the model; raise FileError if it is outside the model's folder."""
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    leaves = posix.is_absolute() or windows.anchor or ".." in (*posix.parts, *windows.parts)
    if not location or leaves or "\0" in location or "://" in location:
        raise FileError(
            f"cannot read {model}: {label} is stored in {printable(location)!r}, and files beside a model are named by "
            "relative paths without '..'; put the file into the folder of the model and name it so"
        )
    if isinstance(model, UrlPath):
        return model.parent / location
    path = model.parent / location
    # In the cache of Hugging Face the model and the files beside it are links to another folder.
    folders = [model.parent, *([model.resolve().parent] if model.is_symlink() else [])]
    with read_errors(path):
        resolved = path.resolve(strict=True)
        if not any(resolved.is_relative_to(folder.resolve()) for folder in folders):
            raise FileError(
                f"cannot read {model}: {label} is stored in {printable(location)!r}, a link that leads out of the "
                "folder of the model; put the file itself into the folder"
            )
    return path


def _parse_number(path: SourcePath, label: str, key: str, text: str) -> int:
    """Return the number of bytes that `text` states for `key`."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise FileError(
            f"cannot read {path}: the {key} of {label} is {printable(text)!r}, and no number of bytes; export the "
            "model again"
        )
    return int(text)
