"""Serialized models of ONNX, read without the package onnx: the operators of their nodes, and references to files.

A message of Protocol Buffers is a list of fields: a key with the number and the type of the field, then its value. Here
only messages are followed that contain nodes or tensors, by the numbers of their fields in ONNX's schema. A field that
the schema does not have is skipped, as in every reader of Protocol Buffers.

Source: Protocol Buffers, "Encoding"; onnx.proto.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inlay.errors import FileError

MESSAGES: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "ModelProto": {7: "GraphProto", 20: "TrainingInfoProto", 25: "FunctionProto"},
        "TrainingInfoProto": {1: "GraphProto", 2: "GraphProto"},
        "FunctionProto": {7: "NodeProto", 11: "AttributeProto"},
        "GraphProto": {1: "NodeProto", 5: "TensorProto", 15: "SparseTensorProto"},
        "NodeProto": {4: "", 5: "AttributeProto"},
        "AttributeProto": {
            5: "TensorProto",
            6: "GraphProto",
            10: "TensorProto",
            11: "GraphProto",
            22: "SparseTensorProto",
            23: "SparseTensorProto",
        },
        "SparseTensorProto": {1: "TensorProto", 2: "TensorProto"},
        "TensorProto": {13: "", 14: ""},
    }
)
"""For each message, the fields that are followed: the message in the field, empty for a field that is reported."""

_OPERATOR = ("NodeProto", 4)
_MOST_NESTED = 100  # messages in each other, as in ONNX's own readers
_MOST_VARINT_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class ReportedField:
    """A field of a message in a serialized model."""

    message: str
    """Name of the message."""
    number: int
    """Number of the field."""
    content: bytes
    """Content of the field; empty for a number."""


def scan_operators(model: bytes) -> frozenset[str]:
    """Return the names of the operators of all nodes in a model, those in graphs of attributes and functions included.

    Raises:
        FileError: the bytes are no message of Protocol Buffers.
    """
    found = _scan(memoryview(model), "ModelProto", 0)
    return frozenset(f.content.decode("utf-8", "replace") for f in found if (f.message, f.number) == _OPERATOR)


def require_own_tensors(model: bytes) -> None:
    """Check that a model names no file as the place of a tensor.

    Raises:
        FileError: it does, or the bytes are no message of Protocol Buffers.
    """
    if any(field.message == "TensorProto" for field in _scan(memoryview(model), "ModelProto", 0)):
        raise FileError("a tensor of a model for ONNX Runtime is in another file: save the plan again")


def _scan(data: memoryview, message: str, depth: int) -> Iterator[ReportedField]:
    """Yield the reported fields of a message and of those in it."""
    if depth > _MOST_NESTED:
        raise FileError(f"a model for ONNX Runtime nests over {_MOST_NESTED} messages: save the plan again")
    followed = MESSAGES[message]
    for number, content in _split_fields(data):
        inner = followed.get(number)
        if inner == "":
            yield ReportedField(message, number, b"" if content is None else bytes(content))
        elif inner is not None and content is not None:
            yield from _scan(content, inner, depth + 1)


def _split_fields(data: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """Yield number and bytes of each field of a message; None in place of the bytes of a number."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, at = _read_varint(data, at)
            yield number, None
            continue
        size, at = _read_varint(data, at) if kind == _BYTES else ({_FIXED64: 8, _FIXED32: 4}.get(kind, -1), at)
        if size < 0 or at + size > len(data):
            raise FileError("a model for ONNX Runtime is no message of Protocol Buffers: save the plan again")
        yield number, data[at : at + size] if kind == _BYTES else None
        at += size


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset after it."""
    value = 0
    for shift, byte in enumerate(data[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    raise FileError("a model for ONNX Runtime ends within a number: save the plan again")
