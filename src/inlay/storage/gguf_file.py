"""GGUF files: named tensors, of which those of quantized networks are blocks of ggml's formats, and typed metadata.

    header    "GGUF", version, number of tensors, number of metadata
    metadata  key, type, value
    tensors   name, dims (the innermost first), type, offset
    data      each tensor from a multiple of 32 bytes on, or of `general.alignment`

Blocks of formats that Inlay has are tensors with `StoredTensor.compound`. Others, such as IQ2_XXS, are copied from one
GGUF file to another. Files may be untrusted: each number is checked before anything is read by it.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from struct import pack

from inlay.descriptor.compound_desc import CompoundDesc
from inlay.descriptor.compound_table import find_compound
from inlay.errors import FileError, InvalidArguments, printable
from inlay.files import file_error, require_file
from inlay.layout import Dims
from inlay.storage.file_store import FileStore, version_of
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.gguf_metadata import TYPES_KEY, GgufCursor, Value, as_texts, encode_entry, encode_text, from_texts
from inlay.storage.packed import METADATA_KEY
from inlay.storage.quantization_text import QUANTIZATION_KEY, ScaledTensor, read_quantization, write_quantization
from inlay.storage.store import StoredTensor, is_row_major, row_major
from inlay.storage.target import NewTensor, TargetTensor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_ALIGNMENT_KEY = "general.alignment"
_BLOCKS_KEY = "general.quantization_version"
_BLOCKS_VERSION = 2
"""Version of the formats of blocks (ggml, `GGML_QNT_VERSION`)."""

_ALIGNMENT = 32
_MAX_DIMS = 4
_MAX_NAME = 63
"""Maximum length of the name of a tensor in bytes (ggml, `GGML_MAX_NAME`, with the NUL behind it)."""

GGML = "ggml:"
"""Prefix of the types of blocks, as in the names of compound formats."""


@dataclass(frozen=True, slots=True)
class GgmlType:
    """A type of tensors in GGUF files."""

    name: str
    """Name of ggml, without `GGML_TYPE_`."""
    code: int
    """Code in files."""
    block: int
    """Number of elements of a block."""
    nbytes: int
    """Size of a block, in bytes."""
    data_type: str | None = None
    """Data type of elements that are no blocks; None for blocks."""


GGML_TYPES: tuple[GgmlType, ...] = (
    GgmlType("F32", 0, 1, 4, "f32"),
    GgmlType("F16", 1, 1, 2, "f16"),
    GgmlType("Q4_0", 2, 32, 18),
    GgmlType("Q4_1", 3, 32, 20),
    GgmlType("Q5_0", 6, 32, 22),
    GgmlType("Q5_1", 7, 32, 24),
    GgmlType("Q8_0", 8, 32, 34),
    GgmlType("Q8_1", 9, 32, 40),
    GgmlType("Q2_K", 10, 256, 84),
    GgmlType("Q3_K", 11, 256, 110),
    GgmlType("Q4_K", 12, 256, 144),
    GgmlType("Q5_K", 13, 256, 176),
    GgmlType("Q6_K", 14, 256, 210),
    GgmlType("Q8_K", 15, 256, 292),
    GgmlType("IQ2_XXS", 16, 256, 66),
    GgmlType("IQ2_XS", 17, 256, 74),
    GgmlType("IQ3_XXS", 18, 256, 98),
    GgmlType("IQ1_S", 19, 256, 50),
    GgmlType("IQ4_NL", 20, 32, 18),
    GgmlType("IQ3_S", 21, 256, 110),
    GgmlType("IQ2_S", 22, 256, 82),
    GgmlType("IQ4_XS", 23, 256, 136),
    GgmlType("I8", 24, 1, 1, "s8"),
    GgmlType("I16", 25, 1, 2, "s16"),
    GgmlType("I32", 26, 1, 4, "s32"),
    GgmlType("I64", 27, 1, 8, "s64"),
    GgmlType("F64", 28, 1, 8, "f64"),
    GgmlType("IQ1_M", 29, 256, 56),
    GgmlType("BF16", 30, 1, 2, "bf16"),
    GgmlType("TQ1_0", 34, 256, 54),
    GgmlType("TQ2_0", 35, 256, 66),
    GgmlType("MXFP4", 39, 32, 17),
    GgmlType("NVFP4", 40, 64, 36),
    GgmlType("Q1_0", 41, 128, 18),
)
"""The types of tensors (ggml, `enum ggml_type`; sizes of blocks by `ggml-common.h`)."""

_BY_CODE = {each.code: each for each in GGML_TYPES}
_BY_NAME = {each.name: each for each in GGML_TYPES}
_BY_DATA_TYPE = {each.data_type: each for each in GGML_TYPES if each.data_type is not None}


# Reading


def open_gguf(path: Path) -> FileStore:
    """Open a .gguf file as a store; only its header is read. Dims are those of the elements, the outermost first.

    Raises:
        FileError: the file is missing, truncated, damaged, big-endian, of another version, or no GGUF file.
    """
    version, nbytes = version_of(path), require_file(path)
    try:
        with path.open("rb") as file:
            cursor = GgufCursor(file, nbytes)
            tensors, values = _read_header(cursor, nbytes)
    except OSError as error:
        raise file_error("read", path, error) from error
    except (ValueError, InvalidArguments) as error:
        raise FileError(
            f"cannot read {path}: it is truncated or not a GGUF file, {error}; copy it again from its source"
        ) from error
    texts = as_texts({key: value for key, value in values.items() if key not in (TYPES_KEY, METADATA_KEY)})
    return FileStore(path, tuple(sorted(tensors, key=lambda tensor: tensor.begin)), texts, (version,))


def _read_header(cursor: GgufCursor, nbytes: int) -> tuple[list[StoredTensor], dict[str, tuple[str, Value]]]:
    """Return the tensors and the metadata; a damaged header raises ValueError."""
    if cursor.read(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    version = cursor.number(4)
    if version not in _VERSIONS:
        raise ValueError("it is big-endian" if version and version % 65536 == 0 else f"it has version {version}")
    tensor_count, value_count = cursor.count(0), cursor.count(0)
    values = dict[str, tuple[str, Value]]()
    for _ in range(value_count):
        key = cursor.text()
        if key in values:
            raise ValueError(f"it has two values of {printable(key)}")
        values[key] = cursor.typed_value()
    infos = [_read_info(cursor) for _ in range(tensor_count)]
    alignment = _read_alignment(values)
    begin = -(-cursor.position // alignment) * alignment
    tensors = [_describe_tensor(*info, begin, nbytes, alignment) for info in infos]
    names = {tensor.name for tensor in tensors}
    if len(names) < len(tensors):
        raise ValueError("it has two tensors of one name")
    return tensors, values


def _read_alignment(values: Mapping[str, tuple[str, Value]]) -> int:
    """Return the number of bytes of which the offset of a tensor is a multiple."""
    kind, alignment = values.get(_ALIGNMENT_KEY, ("u32", _ALIGNMENT))
    if kind != "u32" or not _is_power(alignment):
        raise ValueError(f"its alignment is {alignment}, no power of two")
    return int(alignment)


def _is_power(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0 and number & (number - 1) == 0


def _read_info(cursor: GgufCursor) -> tuple[str, Dims, int, int]:
    """Return name, dims, code of the type and offset of the next tensor."""
    name = cursor.text()
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError("the name of a tensor is no UTF-8")
    count = cursor.number(4)
    if count > _MAX_DIMS:
        raise ValueError(f"tensor {printable(name)} has {count} dims, over {_MAX_DIMS}")
    dims = tuple(cursor.number(8) for _ in range(count))
    return name, dims[::-1], cursor.number(4), cursor.number(8)


def _describe_tensor(
    name: str, dims: Dims, code: int, offset: int, begin: int, file_nbytes: int, alignment: int
) -> StoredTensor:
    """Return a tensor of the file, after checking that its bytes are in it."""
    kind, label = _BY_CODE.get(code), printable(name)
    if kind is None:
        raise ValueError(f"tensor {label} has the type {code}, which Inlay does not know")
    if dims and dims[-1] % kind.block:
        raise ValueError(f"tensor {label} has rows of {dims[-1]} elements, no whole blocks of {kind.name}")
    nbytes = prod(dims) // kind.block * kind.nbytes
    if offset % alignment or begin + offset + nbytes > file_nbytes:
        raise ValueError(f"tensor {label} has {nbytes} bytes from offset {offset}, where the file has none of it")
    place = (begin + offset, nbytes)
    if kind.data_type is not None:
        if not dims:
            refusal = "it is a scalar, and a layout places 1 to 12 dims"
            return StoredTensor(name, kind.name, dims, *place, None, refusal, data_type=kind.data_type)
        return StoredTensor(name, kind.name, dims, *place, row_major(dims, kind.data_type))
    found = find_compound(f"{GGML}{kind.name}")
    if found is None or not dims or 0 in dims:
        refusal = f"Inlay does not read blocks of {kind.name}; convert the file with llama.cpp first"
        return StoredTensor(name, f"{GGML}{kind.name}", dims, *place, None, refusal)
    refusal = f"it is in blocks of {found.name}; convert it to floats (--dequantize)"
    return StoredTensor(name, f"{GGML}{kind.name}", dims, *place, None, refusal, compound=CompoundDesc(found, dims))


# Writing


def gguf_target(path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> FileTarget:
    """Return the target of a GGUF file: row-major tensors, or blocks of ggml, and metadata.

    Raises:
        FileError: the format has no type for a tensor, or stores no tensor of its layout or number of dims.
        InvalidArguments: a name is too long, or a text is no value of its type.
    """
    values = from_texts(_without_blocks(path, metadata))
    if any(tensor.compound is not None for tensor in tensors):
        values.setdefault(_BLOCKS_KEY, ("u32", _BLOCKS_VERSION))
    try:
        alignment = _read_alignment(values)
    except ValueError as error:
        raise InvalidArguments(f"cannot write {path}: {error}; leave out {_ALIGNMENT_KEY}") from error
    kinds = [_find_type(path, tensor) for tensor in tensors]
    infos, offset, offsets = list[bytes](), 0, list[int]()
    for tensor, kind in zip(tensors, kinds, strict=True):
        infos.append(_encode_info(path, tensor, kind, offset))
        offsets.append(offset)
        offset += -(-tensor.nbytes // alignment) * alignment
    entries = (encode_entry(key, *value) for key, value in values.items())
    header = b"".join((_MAGIC, pack("<IQQ", 3, len(tensors), len(values)), *entries, *infos))
    begin = -(-len(header) // alignment) * alignment
    placed = {
        tensor.name: TargetTensor(tensor.name, tensor.bytes_desc, tensor.nbytes, begin + at)
        for tensor, at in zip(tensors, offsets, strict=True)
    }
    return FileTarget(path, placed, (TargetFile(path, begin + offset, header.ljust(begin, b"\0")),))


def _without_blocks(path: Path, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata without what it says on blocks, which are types of GGUF."""
    known = read_quantization(str(path), metadata)
    scaled = {name: each for name, each in known.items() if isinstance(each, ScaledTensor)}
    texts = {key: text for key, text in metadata.items() if key != QUANTIZATION_KEY}
    return {**texts, **write_quantization(scaled)}


def _find_type(path: Path, tensor: NewTensor) -> GgmlType:
    """Return the type of a new tensor."""
    desc, label = tensor.desc, printable(tensor.name)
    if desc is not None and not is_row_major(desc):
        raise FileError(
            f"cannot write {path}: GGUF stores row-major tensors, and {label} is to be {desc}; write a .safetensors "
            "file instead"
        )
    if desc is not None:
        name, kind = str(desc.data_type), _BY_DATA_TYPE.get(str(desc.data_type))
    else:
        name = tensor.compound or tensor.data_type or tensor.stored_type or "U8"
        kind = _BY_DATA_TYPE.get(name) or _BY_NAME.get(name.removeprefix(GGML))
    if kind is None:
        raise FileError(
            f"cannot write {path}: GGUF has no type for {name}, which {label} has; it has "
            f"{', '.join(_BY_DATA_TYPE)} and blocks of ggml"
        )
    return kind


def _encode_info(path: Path, tensor: NewTensor, kind: GgmlType, offset: int) -> bytes:
    """Return name, dims, type and offset of a tensor as bytes."""
    label, shape = printable(tensor.name), tensor.shape
    if len(tensor.name.encode()) > _MAX_NAME:
        raise InvalidArguments(
            f"the name of tensor {label} has {len(tensor.name.encode())} bytes, and readers of GGUF take {_MAX_NAME}: "
            "rename it"
        )
    if len(shape) > _MAX_DIMS:
        raise FileError(f"cannot write {path}: tensor {label} has {len(shape)} dims, and GGUF stores {_MAX_DIMS}")
    dims = pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return encode_text(tensor.name) + dims + pack("<IQ", kind.code, offset)
