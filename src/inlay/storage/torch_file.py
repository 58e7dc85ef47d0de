"""Files of PyTorch (`torch.save`): zip archives of a pickle, which names tensors, and of their storages.

    pytorch_model.bin
        data.pkl        {"model": {"fc.weight": storage 0, offset 0, shape (10, 17), strides (17, 1)}, "epoch": 3}
        data/0          bytes of storage 0

`torch.load` reads the pickle with `weights_only=True`, so nothing in it is executed, and with the device `meta`, so no
storage is read. It states where each storage begins in the archive. There the tensors are ranges of bytes, in strides
of their own. Inlay has no unpickler. Storages are checked against the directory of the archive.

Names of nested dictionaries and lists are joined by dots: `model.fc.weight`. What is no tensor is left out.

Source: PyTorch, "Serialization semantics"; torch/serialization.py.
"""

import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, MissingExtra, printable
from inlay.layout import Layout
from inlay.storage.file_store import FileStore, version_of
from inlay.storage.locations import SourcePath, read_errors, require_source
from inlay.storage.npz import member_begins
from inlay.storage.packed import STORED_TYPES
from inlay.storage.store import StoredTensor, require_dims_for_layout, row_major

TorchTensor = Any
"""A tensor of PyTorch, which has no static types here."""

_DATA_TYPES: Mapping[str, str] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
    "float8_e8m0fnu": "e8m0",
    "int64": "s64",
    "int32": "s32",
    "int16": "s16",
    "int8": "s8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "complex64": "complex64",
    "complex128": "complex128",
}
"""Name of each data type, by its name in PyTorch."""

_LOAD_ERRORS = (
    struct.error,
    pickle.UnpicklingError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of `torch.load` for damaged files, whose unpickler does not check what it reads, and for other objects."""

_MAX_DEPTH = 64
"""Most dictionaries and lists within one another."""


def is_torch_file(path: SourcePath) -> bool:
    """Return True if a file begins as PyTorch's do: with the signature of a zip archive or of a pickle.

    Raises:
        FileError: the file cannot be read.
    """
    require_source(path)
    with read_errors(path), path.open("rb") as file:
        start = file.read(4)
    return start == b"PK\3\4" or (start[:1] == b"\x80" and 2 <= start[1] <= 5 if len(start) == 4 else False)


def open_torch(path: SourcePath) -> FileStore:
    """Open a file that `torch.save` wrote as a store; the pickle is read, and no storage.

    Raises:
        FileError: the file is missing or damaged, is of a release of PyTorch before 1.6, holds other objects than
            tensors, numbers, texts and collections of them, or tensors that are no strided bytes, such as sparse ones.
        MissingExtra: PyTorch is not installed.
    """
    size, version = require_source(path), version_of(path)
    with read_errors(path), path.open("rb") as file:
        begins = _storage_sizes(path, file)
        loaded = _load(path, file)
    tensors = [_describe(path, name, value, begins) for name, value in _named_tensors(path, loaded)]
    tensors.sort(key=lambda tensor: (tensor.begin, tensor.name))
    if any(tensor.begin + tensor.nbytes > size for tensor in tensors):
        raise FileError(f"cannot read {path}: it is truncated; copy it again from its source")
    return FileStore(path, tuple(tensors), {}, (version,))


def _storage_sizes(path: SourcePath, file: BinaryIO) -> dict[int, int]:
    """Return the size of each stored member of the archive by the offset of its bytes."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            order = [info for info in members if info.filename.endswith("/byteorder")]
            if any(archive.read(info)[:6] != b"little" for info in order):
                raise FileError(
                    f"cannot read {path}: it has the byte order of another processor; load and save it with PyTorch"
                )
            begins = member_begins(file, members)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FileError(
            f"cannot read {path}: it is truncated, or from a release of PyTorch before 1.6; load it with PyTorch and "
            "save it again"
        ) from error
    pairs = zip(begins, members, strict=True)
    return {begin: info.file_size for begin, info in pairs if info.compress_type == zipfile.ZIP_STORED}


def _load(path: SourcePath, file: BinaryIO) -> object:
    """Return the objects of a file with tensors of the device `meta`, whose storages know their offsets."""
    try:
        import torch
    except ImportError:
        raise MissingExtra(f"{path} needs torch, which is not installed: pip install 'inlay[torch]'") from None
    file.seek(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(file, map_location="meta", weights_only=True)
    except FileError:
        raise
    except _LOAD_ERRORS as error:
        first = printable(str(error).partition("\n")[0].partition(". ")[0])[:200]
        raise FileError(
            f"cannot read {path}: PyTorch does not load it as tensors alone ({first}); save a state_dict of it"
        ) from error


def _named_tensors(path: SourcePath, loaded: object) -> Iterator[tuple[str, TorchTensor]]:
    """Yield all tensors with their names, each name once."""
    seen = set[str]()
    for name, tensor in _flatten(path, loaded, "", 0):
        if name in seen:
            raise FileError(f"cannot read {path}: two tensors are named {printable(name)}; rename one in PyTorch")
        seen.add(name)
        yield name, tensor


def _flatten(path: SourcePath, value: object, name: str, depth: int) -> Iterator[tuple[str, TorchTensor]]:
    """Yield the tensors of nested dictionaries and lists; names are joined by dots."""
    import torch

    if depth > _MAX_DEPTH:
        raise FileError(f"cannot read {path}: over {_MAX_DEPTH} collections are within one another; save a state_dict")
    if isinstance(value, torch.Tensor):
        yield name or path.stem, value
        return
    items: Iterator[tuple[object, object]] = iter(())
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, (list, tuple)):
        items = iter(enumerate(value))
    for key, inner in items:
        yield from _flatten(path, inner, f"{name}.{key}" if name else str(key), depth + 1)


def _describe(path: SourcePath, name: str, tensor: TorchTensor, sizes: Mapping[int, int]) -> StoredTensor:
    """Return a tensor as a range of bytes of the file, checked against the members of the archive."""
    import torch

    label = f"tensor {printable(name)}"
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise FileError(
            f"cannot read {path}: {label} is sparse, quantized or a conjugate, and no strided bytes; "
            "convert it with PyTorch first"
        )
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    storage, itemsize = tensor.untyped_storage(), tensor.itemsize
    extent = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    nbytes = 0 if 0 in shape else extent * itemsize
    first, begin = tensor.storage_offset() * itemsize, getattr(storage, "_checkpoint_offset", None)
    if nbytes and begin is None:
        raise FileError(f"cannot read {path}: this release of PyTorch does not state where storages begin; update it")
    if begin is not None and nbytes and (sizes.get(begin, -1) < storage.nbytes() or first + nbytes > storage.nbytes()):
        raise FileError(
            f"cannot read {path}: the archive does not hold the bytes of {label}; save it again with PyTorch"
        )
    return _with_descriptor(name, tensor, begin + first if nbytes else 0, nbytes)


def _with_descriptor(name: str, tensor: TorchTensor, begin: int, nbytes: int) -> StoredTensor:
    """Return a tensor with its descriptor, or with the reason why it has none."""
    type_name, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    data_type, is_contiguous = _DATA_TYPES.get(type_name), bool(tensor.is_contiguous())
    stored_type = STORED_TYPES.get(data_type or "", type_name) if is_contiguous else f"strided {type_name}"
    fields = (name, stored_type, shape, begin, nbytes)
    try:
        if data_type is None:
            raise InvalidArguments(f"its type is {type_name} of PyTorch; convert it there first")
        plain = row_major(shape, data_type)
        if is_contiguous:
            return StoredTensor(*fields, plain)
        require_dims_for_layout(shape)
        layout = Layout.from_strides(shape, tuple(tensor.stride()))
        return StoredTensor(*fields, MemoryDesc.from_layout(layout, data_type), is_view=True)
    except InvalidArguments as error:
        return StoredTensor(*fields, None, str(error), data_type=data_type if is_contiguous else None)
