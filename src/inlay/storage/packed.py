"""Packed tensors in safetensors files: the bytes of a tensor, with its descriptor as JSON in the metadata.

A tensor is stored in the first of these forms that fits its descriptor:

    row-major            its own type and dims, without a descriptor
    permuted axes        its own type, the shape in memory order, and the descriptor in the metadata
    all other layouts    U8, one axis, a multiple of 64 bytes, and the descriptor in the metadata

The metadata has one text of Inlay, under the key `inlay`; other safetensors readers ignore it:

    {"version": 2, "tensors": {"conv1.weight": {"inlay": "memory_desc", "version": 1, "kind": "blocked", ...}}}

Each tensor has the object that `MemoryDesc.to_json` returns. Version 1 of the text can still be read: its tensors have
`dims`, `data_type` and `tag`, or, instead of `tag`, `padded_dims`, `digits` (for each axis, extent and stride of each
digit) and `offset0`. Files may be untrusted. So the text must have exactly this form, each descriptor passes the checks
of `MemoryDesc`, and its type and shape in the file must be exactly those that Inlay would write.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.descriptor.serialization import MAX_CHARACTERS
from inlay.errors import FileError, InlayError, InvalidArguments, Unimplemented, printable
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.notation.format_tag import FormatTag
from inlay.safetensors_header import ALIGNMENT, TensorEntry, in_file_order
from inlay.storage.file_store import FileStore, version_of
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.locations import SourcePath
from inlay.storage.safetensors_file import encode_header, read_header
from inlay.storage.store import StoredTensor, is_row_major, plain_order, row_major
from inlay.storage.target import NewTensor, TargetTensor

METADATA_KEY = "inlay"
"""Key of Inlay's text in the metadata of a safetensors file."""

VERSION = 2
"""Version of the text that this module writes; versions 1 and 2 can be read."""

STORED_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "f16": "F16",
        "bf16": "BF16",
        "f32": "F32",
        "f64": "F64",
        "s8": "I8",
        "u8": "U8",
        "s32": "I32",
        "s64": "I64",
        "f8_e5m2": "F8_E5M2",
        "f8_e4m3": "F8_E4M3",
        "e8m0": "F8_E8M0",
        "bool": "BOOL",
        "s16": "I16",
        "u16": "U16",
        "u32": "U32",
        "u64": "U64",
        "complex64": "C64",
    }
)
"""Name of each data type in safetensors. The 4-bit types and complex128 have none and are stored as U8."""

OTHER_TYPES = frozenset({"F4", "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
"""Names of types in safetensors that no descriptor has; their tensors are copied unchanged."""

_DATA_TYPES = {stored: name for name, stored in STORED_TYPES.items()}


def open_safetensors(path: SourcePath) -> FileStore:
    """Open a .safetensors file as a store; only its header is read.

    Raises:
        FileError: the file is missing, truncated, or no safetensors file.
    """
    version = version_of(path)
    entries, metadata = read_header(path)
    descriptions = _parse_descriptions(path, metadata.pop(METADATA_KEY, None), entries)
    tensors = tuple(_describe_entry(path, entry, descriptions.get(entry.name)) for entry in entries)
    return FileStore(path, tensors, metadata, (version,))


def safetensors_target(path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> FileTarget:
    """Return the target of a safetensors file: tensors with their descriptors, and texts.

    Raises:
        InvalidArguments: a name or a text is not allowed, or the header is longer than the library can read.
    """
    descs = {tensor.name: tensor.desc for tensor in tensors if tensor.desc is not None}
    by_name = {tensor.name: tensor for tensor in tensors}
    entries = in_file_order(_new_entry(path, tensor) for tensor in tensors)
    header = encode_header(path, entries, {**metadata, **metadata_of(descs)})
    placed, begin = dict[str, TargetTensor](), len(header)
    for entry in entries:
        placed[entry.name] = TargetTensor(entry.name, by_name[entry.name].bytes_desc, entry.nbytes, begin)
        begin += entry.nbytes
    return FileTarget(path, placed, (TargetFile(path, begin, header),))


def _new_entry(path: Path, tensor: NewTensor) -> TensorEntry:
    """Return the header entry of a tensor of a target.

    Raises:
        InvalidArguments: the tensor has no descriptor, and its type no name in safetensors.
    """
    if tensor.desc is not None:
        return make_entry(tensor.name, tensor.desc)
    if tensor.compound is not None:
        rows = prod(tensor.shape[:-1])
        return TensorEntry(tensor.name, "U8", (*tensor.shape[:-1], tensor.nbytes // rows), tensor.nbytes)
    if tensor.stored_type is not None and tensor.stored_type.startswith("ggml:"):
        raise InvalidArguments(
            f"a safetensors file has no type for {tensor.stored_type}, which {printable(tensor.name)} has: write a "
            ".gguf file"
        )
    stored_type = STORED_TYPES.get(tensor.data_type or "", tensor.stored_type or "U8")
    if stored_type not in _DATA_TYPES and stored_type not in OTHER_TYPES:
        reason = tensor.refusal or f"the format has no type {stored_type}; convert its elements first"
        raise InvalidArguments(f"{path} cannot hold tensor {printable(tensor.name)}: {reason}")
    return TensorEntry(tensor.name, stored_type, tensor.shape, tensor.nbytes)


def make_entry(name: str, desc: MemoryDesc) -> TensorEntry:
    """Return the header entry of the tensor `name` with descriptor `desc`: its type, shape and size in the file.

    Raises:
        InvalidArguments: `desc` has no layout, or addresses bytes before the first.
        Unimplemented: a dim or stride is RUNTIME.
    """
    layout, data_type = desc.require_layout(f"tensor {name}")
    if layout.has_runtime:
        raise Unimplemented(f"tensor {name} needs known dims and strides: {desc} has RUNTIME ones, bind them first")
    if desc.offset0 + layout.span[0] < 0:
        raise InvalidArguments(f"the layout of tensor {name} reaches before the first byte: pack a copy")
    order = plain_order(desc)
    if order is not None and data_type.name in STORED_TYPES:
        shape = tuple(desc.dims[axis] for axis in order)
        return TensorEntry(name, STORED_TYPES[data_type.name], shape, prod(shape) * data_type.bits // 8)
    nbytes = required_bytes(desc)
    return TensorEntry(name, "U8", (nbytes,), nbytes)


def required_bytes(desc: MemoryDesc) -> int:
    """Return the size of a packed tensor in a file: all bytes that its layout addresses, rounded up to 64 bytes."""
    layout, data_type = desc.require_layout("a file")
    end = -(-(desc.offset0 + layout.span[1]) * data_type.bits // 8)
    return -(-max(desc.size, end) // ALIGNMENT) * ALIGNMENT


def metadata_of(descs: Mapping[str, MemoryDesc]) -> dict[str, str]:
    """Return the metadata with the descriptors that the header does not define, by tensor name; may be empty."""
    tensors = {name: describe(desc) for name, desc in sorted(descs.items()) if not _is_described_by_header(desc)}
    if not tensors:
        return {}
    return {METADATA_KEY: json.dumps({"version": VERSION, "tensors": tensors}, separators=(",", ":"))}


def _is_described_by_header(desc: MemoryDesc) -> bool:
    """Return True if the type and the shape in the header define the layout: row-major, of a type with a name there."""
    return is_row_major(desc) and desc.data_type is not None and desc.data_type.name in STORED_TYPES


def describe(desc: MemoryDesc) -> dict[str, Any]:
    """Return `desc` as a JSON object for the metadata.

    Raises:
        InvalidArguments: `desc` has no layout.
        Unimplemented: a dim or stride is RUNTIME.

    >>> describe(MemoryDesc((2, 17), "f32", "aB16b"))["padded_dims"]
    [2, 32]
    """
    layout, _ = desc.require_layout("a file")
    if layout.has_runtime:
        raise Unimplemented("a file needs known dims and strides: this descriptor has RUNTIME ones, bind them first")
    description: dict[str, Any] = json.loads(desc.to_json())
    return description


def from_description(description: object, version: int = VERSION) -> MemoryDesc:
    """Return the descriptor for a JSON object of the metadata, written by this `version` of the text.

    Raises:
        InvalidArguments: `description` has another form, or violates a rule of descriptors.

    >>> from_description({"dims": [4, 6], "data_type": "s8", "tag": "ba"}, version=1).strides
    (1, 4)
    """
    return _from_version_1(description) if version == 1 else MemoryDesc.from_json(json.dumps(description))


def _from_version_1(description: object) -> MemoryDesc:
    """Return the descriptor for an object of version 1 of the text."""
    if not isinstance(description, dict):
        raise InvalidArguments("a descriptor is a JSON object")
    length = len(json.dumps(description))
    if length > MAX_CHARACTERS:
        raise InvalidArguments(f"its descriptor has {length} characters of JSON: at most {MAX_CHARACTERS} are read")
    by_tag = description.keys() == {"dims", "data_type", "tag"}
    if not by_tag and description.keys() != {"dims", "data_type", "padded_dims", "digits", "offset0"}:
        raise InvalidArguments("a descriptor has dims, data_type and tag, or padded_dims, digits and offset0 for tag")
    dims, data_type = _integers(description["dims"], "dims"), _text(description["data_type"], "data_type")
    if not dims:
        raise InvalidArguments("a tensor has one dim or more")
    if by_tag:
        return MemoryDesc(dims, data_type, FormatTag.parse(_text(description["tag"], "tag")))
    layout = _layout(_integers(description["padded_dims"], "padded_dims"), description["digits"])
    (offset0,) = _integers([description["offset0"]], "offset0")
    return MemoryDesc.from_layout(layout, data_type, dims=dims, offset0=offset0)


def _layout(padded_dims: Dims, digits: object) -> Layout:
    """Return the layout with these digits: for each axis, a list of pairs of extent and stride."""
    axes = []
    for digits_of_axis in _list(digits, "digits"):
        pairs = [_integers(pair, "a digit") for pair in _list(digits_of_axis, "digits")]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise InvalidArguments("digits are pairs of extent and stride, one pair or more per axis")
        axes.append(Axis(pairs[0][1], tuple(Digit(extent, stride) for extent, stride in pairs[1:])))
    layout = Layout(padded_dims, tuple(axes))
    if [[[d.extent, d.stride] for d in axis] for axis in layout.digits] != digits:
        raise InvalidArguments(f"the leading digits do not fit the padded dims {padded_dims}")
    return layout


def _list(value: object, what: str) -> list[object]:
    """Return `value` if it is a list, else raise InvalidArguments."""
    if not isinstance(value, list):
        raise InvalidArguments(f"{what} must be a list, not {value!r}")
    return value


def _integers(value: object, what: str) -> Dims:
    """Return a JSON list of 64-bit integers as a tuple; error messages call it `what`."""
    values = _list(value, what)
    numbers = [v for v in values if type(v) is int and abs(v) < 2**63]
    if len(numbers) != len(values):
        raise InvalidArguments(f"{what} must be whole numbers of 64 bits, not {value!r}")
    return tuple(numbers)


def _text(value: object, what: str) -> str:
    """Return `value` if it is a text, else raise InvalidArguments."""
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} must be a text, not {value!r}")
    return value


def _parse_descriptions(
    path: SourcePath, text: str | None, entries: Sequence[TensorEntry]
) -> dict[str, tuple[int, object]]:
    """Parse Inlay's text: return, by tensor name, the version of the text and the JSON object of the descriptor."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged_text(path, "it is not JSON") from error
    if not isinstance(value, dict) or not isinstance(value.get("tensors"), dict):
        raise _damaged_text(path, "it does not list tensors")
    version = value.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise FileError(
            f"cannot read {path}: its layout text has version {version!r}, this Inlay reads 1 to {VERSION}; "
            "use the Inlay that wrote it"
        )
    missing = sorted(value["tensors"].keys() - {e.name for e in entries})
    if missing:
        raise _damaged_text(path, f"it describes tensor {printable(missing[0])}, which the file does not have")
    return {name: (version, description) for name, description in value["tensors"].items()}


def _damaged_text(path: SourcePath, reason: str) -> FileError:
    """Return the error for a damaged layout text."""
    return FileError(f"cannot read {path}: its layout text is damaged, {reason}; convert the original again")


def _describe_entry(path: SourcePath, entry: TensorEntry, description: tuple[int, object] | None) -> StoredTensor:
    """Return the tensor of a header entry, with the descriptor from the metadata if there is one."""
    desc, refusal = None, ""
    if description is None:
        try:
            desc = _plain_descriptor(entry)
        except InvalidArguments as error:
            refusal = str(error)
    else:
        try:
            desc = from_description(description[1], description[0])
            _require_fit(desc, entry)
        except InlayError as error:
            raise _damaged_text(path, f"tensor {printable(entry.name)}: {error}") from error
    fields = (entry.name, entry.stored_type, entry.shape, entry.begin, entry.nbytes)
    data_type = _DATA_TYPES.get(entry.stored_type) if desc is None else None
    return StoredTensor(*fields, desc, refusal, is_packed=description is not None, data_type=data_type)


def _plain_descriptor(entry: TensorEntry) -> MemoryDesc:
    """Return the row-major descriptor for the type and shape of a header entry."""
    if entry.stored_type not in _DATA_TYPES:
        known = ", ".join(_DATA_TYPES)
        raise InvalidArguments(f"its type is {entry.stored_type}, and a layout places {known}; convert it first")
    return row_major(entry.shape, _DATA_TYPES[entry.stored_type])


def _require_fit(desc: MemoryDesc, entry: TensorEntry) -> None:
    """Check that a tensor with this descriptor is stored with the type and shape of `entry`."""
    needed = make_entry(entry.name, desc)
    if (needed.stored_type, needed.shape) != (entry.stored_type, entry.shape):
        raise InvalidArguments(
            f"its descriptor needs {needed.stored_type} {needed.shape}, the file has {entry.stored_type} {entry.shape}"
        )
