"""The .npy format: one array, row-major or column-major, without a name and without a descriptor.

NumPy's functions read and write the header. Python objects are never unpickled. The format cannot express the types of
ml_dtypes (it stores a bfloat16 array as two-byte records without a type name) or blocked layouts. So only row-major
tensors of NumPy's own types are written.
"""

import warnings
from collections.abc import Mapping, Sequence
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
from inlay.files import file_error, require_file
from inlay.layout import Dims
from inlay.notation.format_tag import FormatTag
from inlay.storage.file_store import FileStore, version_of
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.store import StoredTensor, is_row_major, require_dims_for_layout
from inlay.storage.target import NewTensor, TargetTensor

_NAMED_TYPES = frozenset(t.dtype for t in ALL_TYPES.values() if t.dtype.isbuiltin == 1)
"""NumPy's own types, which a .npy header can name."""

_HEADER_ERRORS = (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError, TokenError)
"""Exceptions that NumPy raises for damaged headers, which it evaluates as Python literals."""


def read_npy(path: Path) -> FileStore:
    """Open the .npy file `path` as a store; only its header is read.

    Raises:
        FileError: the file is missing, is no .npy file, or is shorter than its header states.
    """
    size, version = require_file(path), version_of(path)
    try:
        with path.open("rb") as file:
            shape, column_major, dtype = _read_header(file)
            begin = file.tell()
    except OSError as error:
        raise file_error("read", path, error) from error
    except _HEADER_ERRORS as error:
        raise FileError(f"cannot read {path}: it is no .npy file or its header is damaged; save it again") from error
    if dtype.hasobject:
        raise FileError(f"cannot read {path}: it holds Python objects, which are never unpickled; save numbers instead")
    nbytes = dtype.itemsize * prod(shape)
    if size < begin + nbytes:
        raise FileError(
            f"cannot read {path}: it is truncated, its header needs {begin + nbytes} bytes and it has {size}; "
            "copy it again from its source"
        )
    try:
        desc, refusal = _descriptor(shape, column_major, dtype), ""
    except InvalidArguments as error:
        desc, refusal = None, str(error)
    tensor = StoredTensor(path.stem, dtype.str, shape, begin, nbytes, desc, refusal, is_unnamed=True)
    return FileStore(path, (tensor,), {}, (version,))


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
    if data_type is None or data_type.dtype not in _NAMED_TYPES:
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
    if tensor.desc is None:
        raise InvalidArguments(f"{path} cannot hold tensor {printable(tensor.name)}: it has no descriptor")
    if not is_row_major(tensor.desc):
        raise FileError(
            f"cannot write {path}: a .npy file stores only row-major tensors, not {tensor.desc}; "
            "write a .safetensors file instead"
        )
    header = BytesIO()
    dtype, shape = npy_header(tensor.desc)
    description = {"descr": npy_format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(header, description)
    begin = len(header.getvalue())
    file = TargetFile(path, begin + tensor.nbytes, header.getvalue())
    return FileTarget(path, {tensor.name: TargetTensor(tensor.name, tensor.bytes_desc, tensor.nbytes, begin)}, (file,))
