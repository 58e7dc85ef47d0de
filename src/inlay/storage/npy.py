"""The .npy format: one array, row-major or column-major, without a name and without a descriptor.

NumPy's functions read and write the header. Python objects are never unpickled. The format cannot express the types of
ml_dtypes (it stores a bfloat16 array as two-byte records without a type name) or blocked layouts. So only row-major
tensors of NumPy's own types are written.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO, cast

import numpy as np
from numpy.lib import format as npy_format

from inlay.data_type import ALL_TYPES, as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments, printable
from inlay.layout import Dims
from inlay.notation.format_tag import FormatTag
from inlay.storage.file_store import FileStore, version_of
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.locations import SourcePath, read_errors, require_source
from inlay.storage.store import StoredTensor, is_row_major, require_dims_for_layout
from inlay.storage.target import NewTensor, TargetTensor

NAMED_TYPES = frozenset(t.dtype for t in ALL_TYPES.values() if t.dtype.isbuiltin == 1)
"""NumPy's own types, which a .npy header can name."""

_HEADER_ERRORS = (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError, TokenError)
"""Exceptions that NumPy raises for damaged headers, which it evaluates as Python literals."""


def read_npy(path: SourcePath) -> FileStore:
    """Open the .npy file `path` as a store; only its header is read.

    Raises:
        FileError: the file is missing, is no .npy file, or is shorter than its header states.
    """
    size, version = require_source(path), version_of(path)
    with read_errors(path), path.open("rb") as file:
        array = read_array_header(path, file)
    if size < array.begin + array.nbytes:
        raise FileError(
            f"cannot read {path}: it is truncated, its header needs {array.begin + array.nbytes} bytes and it has "
            f"{size}; copy it again from its source"
        )
    tensor = replace(array.tensor(path.stem), is_unnamed=True)
    return FileStore(path, (tensor,), {}, (version,))


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The header of an array in the .npy format."""

    shape: Dims
    """Shape."""
    is_column_major: bool
    """True if the first axis varies fastest."""
    dtype: np.dtype[np.generic]
    """Type of the elements."""
    begin: int
    """Size of the header, in bytes."""

    @property
    def nbytes(self) -> int:
        """Size of the elements, in bytes."""
        return self.dtype.itemsize * prod(self.shape)

    def tensor(self, name: str, begin: int = 0) -> StoredTensor:
        """Return the tensor of this name whose header begins at byte `begin` of a file."""
        fields = (name, self.dtype.str, self.shape, begin + self.begin, self.nbytes)
        try:
            return StoredTensor(*fields, _descriptor(self.shape, self.is_column_major, self.dtype))
        except InvalidArguments as error:
            is_order_plain = not (self.is_column_major and len(self.shape) > 1)
            known = as_data_type(self.dtype).name if self.dtype in NAMED_TYPES and is_order_plain else None
            return StoredTensor(*fields, None, str(error), data_type=known)


def read_array_header(path: object, file: BinaryIO) -> ArrayHeader:
    """Read the header of an array from `file` on; `path` names it in messages.

    Raises:
        FileError: it is no .npy header, or the array holds Python objects.
    """
    start = file.tell()
    try:
        shape, column_major, dtype = _read_header(file)
    except FileError:
        raise
    except _HEADER_ERRORS as error:
        raise FileError(f"cannot read {path}: it is no .npy file or its header is damaged; save it again") from error
    if dtype.hasobject:
        raise FileError(f"cannot read {path}: it holds Python objects, which are never unpickled; save numbers instead")
    return ArrayHeader(shape, column_major, dtype, file.tell() - start)


def _read_header(file: BinaryIO) -> tuple[Dims, bool, np.dtype[np.generic]]:
    """Read the header: return the shape, True if the array is column-major, and the type.

    A damaged header raises one of `_HEADER_ERRORS`.
    """
    version = npy_format.read_magic(file)
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version}")
    with warnings.catch_warnings():
        # NumPy reads headers that Python 2 wrote, but warns about them.
        warnings.simplefilter("ignore")
        header = readers[version](file)
    shape, column_major, dtype = header
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape}")
    return tuple(int(n) for n in shape), bool(column_major), cast("np.dtype[np.generic]", dtype)


def _descriptor(shape: Dims, column_major: bool, dtype: np.dtype[np.generic]) -> MemoryDesc:
    """Return the descriptor of the array.

    Raises:
        InvalidArguments: no descriptor has this number of dims or this type.
    """
    require_dims_for_layout(shape)
    if dtype.kind == "V":
        raise InvalidArguments(
            f"its header calls the type {dtype.str}, as for bfloat16 and others that a .npy file cannot name; "
            "save it as .safetensors"
        )
    order = reversed(range(len(shape))) if column_major else range(len(shape))
    return MemoryDesc(shape, as_data_type(dtype), FormatTag(tuple(order)))


def npy_header(desc: MemoryDesc) -> tuple[np.dtype[np.generic], Dims]:
    """Return the type and shape in the .npy header of the row-major tensor `desc`.

    Raises:
        FileError: a .npy file has no name for the data type.
    """
    data_type = desc.data_type
    if data_type is None or data_type.dtype not in NAMED_TYPES:
        raise FileError(f"a .npy file has no name for data type {data_type}: write a .safetensors file instead")
    return data_type.dtype, desc.dims


def npy_target(path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> FileTarget:
    """Return the target of a .npy file: one row-major tensor, without name and metadata.

    Raises:
        FileError: there are several tensors, the tensor is not row-major, or the format has no name for its type.
        InvalidArguments: the tensor has no descriptor.
    """
    if len(tensors) != 1:
        raise FileError(
            f"cannot write {path}: a .npy file holds one array, and there are {len(tensors)} tensors; "
            "write a .safetensors file instead"
        )
    tensor = tensors[0]
    header = encode_array_header(*array_type(path, tensor))
    begin = len(header)
    file = TargetFile(path, begin + tensor.nbytes, header)
    return FileTarget(path, {tensor.name: TargetTensor(tensor.name, tensor.bytes_desc, tensor.nbytes, begin)}, (file,))


def array_type(path: Path, tensor: NewTensor) -> tuple[np.dtype[np.generic], Dims]:
    """Return the type and the shape of the row-major array of a tensor in the .npy or .npz file `path`.

    Raises:
        FileError: the tensor is not row-major, or the format has no name for its type.
        InvalidArguments: the tensor has no descriptor, and is not a scalar of a known type.
    """
    if tensor.desc is not None and not is_row_major(tensor.desc):
        raise FileError(
            f"cannot write {path}: a {path.suffix} file stores only row-major tensors, not {tensor.desc}; "
            "write a .safetensors file instead"
        )
    if tensor.desc is not None:
        return npy_header(tensor.desc)
    known = ALL_TYPES.get(tensor.data_type or "")
    if known is None or known.dtype not in NAMED_TYPES:
        reason = tensor.refusal or f"the format has no name for its type {tensor.stored_type}"
        raise InvalidArguments(f"{path} cannot hold tensor {printable(tensor.name)}: {reason}")
    return known.dtype, tensor.shape


def encode_array_header(dtype: np.dtype[np.generic], shape: Dims) -> bytes:
    """Return the header of a row-major array, as NumPy writes it; its size is a multiple of 64."""
    header = BytesIO()
    description = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(header, description)
    return header.getvalue()
