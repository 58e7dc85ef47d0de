"""Packed tensors in safetensors files: bytes, and the descriptor as JSON beside them.

Three ways to keep a tensor, chosen by its descriptor, the first that fits:

    row-major            its own type and dims; nothing else is needed
    axes in an order     its own type, the shape as it lies in memory, and the descriptor in the metadata
    everything else      U8, one axis, a multiple of 64 bytes long, and the descriptor in the metadata

The metadata has one text of ours, under the key `inlay`, so every safetensors reader opens the file:

    {"version": 2, "tensors": {"conv1.weight": {"inlay": "memory_desc", "version": 1, "kind": "blocked", ...}}}

Each tensor has the object that `MemoryDesc.to_json` writes. Version 1 of the text is still read: its tensors have
`dims`, `data_type` and `tag`, or, in place of `tag`, `padded_dims`, `digits` (per axis, extent and stride of each) and
`offset0`. A file comes from anywhere, so nothing in the text is believed: it must have exactly this form, the
descriptor passes the checks of every `MemoryDesc`, and it must need exactly the bytes that the file has.
"""

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.descriptor.serialization import MAX_CHARACTERS
from inlay.errors import FileError, InlayError, InvalidArguments, Unimplemented, printable
from inlay.layout import Axis, Digit, Dims, Layout
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.notation.format_tag import FormatTag
from inlay.storage.npy import read_npy
from inlay.storage.safetensors_file import (
    ALIGNMENT,
    Entry,
    read_header,
    require_names,
    require_texts,
    write_safetensors,
)
from inlay.storage.store import Store, StoredTensor, row_major

METADATA_KEY = "inlay"
"""Where the text of this module lies among the texts of a safetensors file."""

VERSION = 2
"""The version of the text's form that this module writes; it reads 1 too."""

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
"""safetensors' name of each data type; the 4-bit types and complex128 have none and are kept as bytes."""

_DATA_TYPES = {stored: name for name, stored in STORED_TYPES.items()}


def open_store(path: Path) -> Store:
    """The store of the .npy or .safetensors file `path`, by its suffix; only headers are read.

    Raises:
        FileError: the suffix is another one, or the file is missing, truncated, or not what its suffix says.
    """
    if path.suffix == ".npy":
        return read_npy(path)
    require_suffix(path)
    entries, metadata = read_header(path)
    described = _descriptions(path, metadata.pop(METADATA_KEY, None), entries)
    return Store(path, tuple(_stored_tensor(path, e, described.get(e.name)) for e in entries), metadata)


def require_suffix(path: Path) -> None:
    """Refuse a file whose suffix names none of the formats.

    Raises:
        FileError: the suffix is neither .npy nor .safetensors.
    """
    if path.suffix not in (".npy", ".safetensors"):
        raise FileError(f"cannot tell the file format of {path} by its suffix: use .npy or .safetensors")


def open_memories(path: str | Path) -> dict[str, Memory]:
    """Every tensor of a .npy or .safetensors file as read-only `Memory`, by name; the data is mapped, not copied.

    Tensors of which no descriptor can be made (scalars, types such as BOOL) are left out.

    The file must not become shorter while the memories are used: the operating system ends a process that touches
    mapped bytes which are gone (SIGBUS). Renaming another file over it is safe.

    Raises:
        FileError: the file is missing, truncated, not what its suffix says, or its descriptors do not fit its bytes.
    """
    store = open_store(Path(path))
    return {t.name: memory_of(store, t, t.desc) for t in store.tensors if t.desc is not None}


def memory_of(store: Store, tensor: StoredTensor, desc: MemoryDesc) -> Memory:
    """The bytes of `tensor` as read-only memory of `desc`: mapped, or a copy where another writer misaligned them.

    Raises:
        InvalidArguments: `desc` reaches beyond the bytes of the tensor.
    """
    data = store.data(tensor)
    if tensor.begin % desc.require_layout("memory")[1].itemsize:
        data = data.copy()
        data.flags.writeable = False
    return Memory(desc, data)


def save_memories(path: str | Path, memories: Mapping[str, Memory], metadata: Mapping[str, str] | None = None) -> None:
    """Write `memories` as a safetensors file that keeps their descriptors, with the texts `metadata` beside them.

    Post-condition: `open_memories` of the file gives memories of equal descriptors and bytes.

    Raises:
        InvalidArguments: `memories` is no mapping of texts to memories, or `metadata` no mapping of texts to texts; a
            text cannot be kept, such as the tensor name `__metadata__` or the key `inlay` of the metadata; a descriptor
            has no layout, or one that reaches before the first byte. Nothing is written then.
        Unimplemented: a dim or stride is RUNTIME.
        FileError: the file cannot be written.
    """
    target = Path(path)
    if target.suffix != ".safetensors":
        raise FileError(f"cannot keep descriptors in {target}: use the suffix .safetensors")
    _require_memories(memories)
    _require_metadata(metadata)
    descs = {name: memory.desc for name, memory in memories.items()}
    entries = [entry_of(name, desc) for name, desc in descs.items()]
    texts = {**(metadata or {}), **metadata_of(descs)}
    write_safetensors(target, entries, texts, lambda entry: [_file_bytes(memories[entry.name], entry.nbytes)])


def _require_memories(memories: object) -> None:
    if not isinstance(memories, Mapping):
        raise InvalidArguments(f"memories is {memories!r}: give a mapping of names to Memory")
    require_names(memories)
    for name, memory in memories.items():
        if not isinstance(memory, Memory):
            raise InvalidArguments(f"memories[{name!r}] is {memory!r}: give a Memory, as from inlay.pack(array, tag)")


def _require_metadata(metadata: object) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, Mapping):
        raise InvalidArguments(f"metadata is {metadata!r}: give a mapping of texts to texts")
    require_texts(metadata)
    if METADATA_KEY in metadata:
        raise InvalidArguments(
            f"the key {METADATA_KEY!r} of the metadata is where descriptors are kept: use another key"
        )


def _file_bytes(memory: Memory, nbytes: int) -> Bytes:
    """The bytes of `memory` from its origin, cut or filled with zeros to `nbytes`."""
    data = memory.buffer.reshape(-1).view(np.uint8)
    if data.size >= nbytes:
        return data[:nbytes]
    return np.concatenate([data, np.zeros(nbytes - data.size, np.uint8)])


def entry_of(name: str, desc: MemoryDesc) -> Entry:
    """How the tensor `name` is kept in a safetensors file.

    Raises:
        InvalidArguments: `desc` has no layout, or one that reaches before the first byte.
        Unimplemented: a dim or stride is RUNTIME.
    """
    layout, data_type = desc.require_layout(f"tensor {name}")
    if layout.has_runtime:
        raise Unimplemented(f"tensor {name} needs known dims and strides: {desc} has RUNTIME ones, bind them first")
    if desc.offset0 + layout.span[0] < 0:
        raise InvalidArguments(f"the layout of tensor {name} reaches before the first byte: pack a copy")
    order = _plain_order(desc)
    if order is not None and data_type.name in STORED_TYPES:
        shape = tuple(desc.dims[axis] for axis in order)
        return Entry(name, STORED_TYPES[data_type.name], shape, prod(shape) * data_type.bits // 8)
    nbytes = required_bytes(desc)
    return Entry(name, "U8", (nbytes,), nbytes)


def required_bytes(desc: MemoryDesc) -> int:
    """The bytes that a packed tensor has in a file: all that its layout reaches, up to a multiple of 64."""
    layout, data_type = desc.require_layout("a file")
    reached = -(-(desc.offset0 + layout.span[1]) * data_type.bits // 8)
    return -(-max(desc.size, reached) // ALIGNMENT) * ALIGNMENT


def _plain_order(desc: MemoryDesc) -> Dims | None:
    """The axes from outermost to innermost when `desc` is a dense order of axes without padding, else None."""
    tag = None if desc.tag is None else FormatTag.parse(desc.tag)
    return tag.order if tag is not None and not tag.inner_blocks else None


def is_row_major(desc: MemoryDesc) -> bool:
    """Whether the type and shape in a file say where every element of `desc` lies."""
    data_type = desc.data_type
    return data_type is not None and not data_type.is_sub_byte and _plain_order(desc) == tuple(range(desc.ndims))


def metadata_of(descs: Mapping[str, MemoryDesc]) -> dict[str, str]:
    """The text that keeps `descs` by tensor name; nothing when type and shape say all."""
    tensors = {name: describe(desc) for name, desc in sorted(descs.items()) if not is_row_major(desc)}
    if not tensors:
        return {}
    return {METADATA_KEY: json.dumps({"version": VERSION, "tensors": tensors}, separators=(",", ":"))}


def describe(desc: MemoryDesc) -> dict[str, Any]:
    """`desc` as the values of the metadata's text.

    Raises:
        InvalidArguments: `desc` has no layout.
        Unimplemented: a dim or stride is RUNTIME.

    >>> describe(MemoryDesc((2, 17), "f32", "aB16b"))["padded_dims"]
    [2, 32]
    """
    layout, _ = desc.require_layout("a file")
    if layout.has_runtime:
        raise Unimplemented("a file needs known dims and strides: this descriptor has RUNTIME ones, bind them first")
    described: dict[str, Any] = json.loads(desc.to_json())
    return described


def from_description(described: object, version: int = VERSION) -> MemoryDesc:
    """The descriptor of which `describe` gave these values, or did when it wrote `version` of the text.

    Raises:
        InvalidArguments: `described` has another form, or breaks a rule of descriptors.

    >>> from_description({"dims": [4, 6], "data_type": "s8", "tag": "ba"}, version=1).strides
    (1, 4)
    """
    return _from_first_version(described) if version == 1 else MemoryDesc.from_json(json.dumps(described))


def _from_first_version(described: object) -> MemoryDesc:
    if not isinstance(described, dict):
        raise InvalidArguments("a descriptor is a JSON object")
    length = len(json.dumps(described))
    if length > MAX_CHARACTERS:
        raise InvalidArguments(f"its descriptor takes {length} characters of JSON: at most {MAX_CHARACTERS} are read")
    by_tag = described.keys() == {"dims", "data_type", "tag"}
    if not by_tag and described.keys() != {"dims", "data_type", "padded_dims", "digits", "offset0"}:
        raise InvalidArguments("a descriptor has dims, data_type and tag, or padded_dims, digits and offset0 for tag")
    dims, data_type = _integers(described["dims"], "dims"), _text(described["data_type"], "data_type")
    if not dims:
        raise InvalidArguments("a tensor has one dim or more")
    if by_tag:
        return MemoryDesc(dims, data_type, FormatTag.parse(_text(described["tag"], "tag")))
    layout = _layout(_integers(described["padded_dims"], "padded_dims"), described["digits"])
    (offset0,) = _integers([described["offset0"]], "offset0")
    return MemoryDesc.from_layout(layout, data_type, dims=dims, offset0=offset0)


def _layout(padded_dims: Dims, digits: object) -> Layout:
    axes = []
    for spelled in _list(digits, "digits"):
        pairs = [_integers(pair, "a digit") for pair in _list(spelled, "digits")]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise InvalidArguments("digits are pairs of extent and stride, one pair or more per axis")
        axes.append(Axis(pairs[0][1], tuple(Digit(extent, stride) for extent, stride in pairs[1:])))
    layout = Layout(padded_dims, tuple(axes))
    if [[[d.extent, d.stride] for d in axis] for axis in layout.digits] != digits:
        raise InvalidArguments(f"the leading digits do not fit the padded dims {padded_dims}")
    return layout


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise InvalidArguments(f"{what} must be a list, not {value!r}")
    return value


def _integers(value: object, what: str) -> Dims:
    values = _list(value, what)
    numbers = [v for v in values if type(v) is int and abs(v) < 2**63]
    if len(numbers) != len(values):
        raise InvalidArguments(f"{what} must be whole numbers of 64 bits, not {value!r}")
    return tuple(numbers)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} must be a text, not {value!r}")
    return value


def _descriptions(path: Path, text: str | None, entries: Sequence[Entry]) -> dict[str, tuple[int, object]]:
    """The descriptors of the metadata's text by tensor name, with the text's version, not yet looked at."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "it is not JSON") from error
    if not isinstance(value, dict) or not isinstance(value.get("tensors"), dict):
        raise _damaged(path, "it does not list tensors")
    version = value.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise FileError(
            f"cannot read {path}: its layout text has version {version!r}, this Inlay reads 1 to {VERSION}; "
            "use the Inlay that wrote it"
        )
    missing = sorted(value["tensors"].keys() - {e.name for e in entries})
    if missing:
        raise _damaged(path, f"it describes tensor {printable(missing[0])}, which the file does not have")
    return {name: (version, described) for name, described in value["tensors"].items()}


def _damaged(path: Path, reason: str) -> FileError:
    return FileError(f"cannot read {path}: its layout text is damaged, {reason}; convert the original again")


def _stored_tensor(path: Path, entry: Entry, described: tuple[int, object] | None) -> StoredTensor:
    desc, refusal = None, ""
    if described is None:
        try:
            desc = _plain_descriptor(entry)
        except InvalidArguments as error:
            refusal = str(error)
    else:
        try:
            desc = from_description(described[1], described[0])
            _require_fit(desc, entry)
        except InlayError as error:
            raise _damaged(path, f"tensor {printable(entry.name)}: {error}") from error
    place = (entry.name, entry.stored_type, entry.shape, entry.begin, entry.nbytes)
    return StoredTensor(*place, desc, refusal, is_packed=described is not None)


def _plain_descriptor(entry: Entry) -> MemoryDesc:
    if entry.stored_type not in _DATA_TYPES:
        known = ", ".join(_DATA_TYPES)
        raise InvalidArguments(f"its type is {entry.stored_type}, and a layout places {known}; convert it first")
    return row_major(entry.shape, _DATA_TYPES[entry.stored_type])


def _require_fit(desc: MemoryDesc, entry: Entry) -> None:
    """Refuse a descriptor that is not the one of these bytes."""
    needed = entry_of(entry.name, desc)
    if (needed.stored_type, needed.shape) != (entry.stored_type, entry.shape):
        raise InvalidArguments(
            f"its descriptor needs {needed.stored_type} {needed.shape}, the file has {entry.stored_type} {entry.shape}"
        )
