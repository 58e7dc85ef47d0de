"""Files of raw bytes: one tensor, without a header. The caller states dims, data type and offset.

    inlay convert weights.bin -o weights.npy --dims 64x3x7x7 --dtype f32 --offset 128

A tensor in any layout is written as its bytes alone, with the padding that its layout has.
"""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InvalidArguments
from inlay.storage.file_store import FileStore, version_of
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.locations import SourcePath, require_source
from inlay.storage.options import OpenOptions
from inlay.storage.store import StoredTensor, row_major
from inlay.storage.target import NewTensor, TargetTensor


def open_raw(path: SourcePath, options: OpenOptions) -> FileStore:
    """Open a file of raw bytes as a store of one row-major tensor, which has the stem of the file as its name.

    Without an offset, the file must end with the tensor. With one, what follows the tensor is ignored.

    Raises:
        InvalidArguments: there is no data type, the offset is negative, or no tensor has these dims.
        FileError: the file is missing, or has fewer bytes than dims and type need, or others.
    """
    if options.data_type is None:
        raise InvalidArguments(f"{path} holds raw bytes: state the type of its elements and its dims (--dtype, --dims)")
    data_type, size, offset = as_data_type(options.data_type), require_source(path), options.offset or 0
    if offset < 0:
        raise InvalidArguments(f"offset {offset} is before the first byte of {path}: give 0 or more")
    if options.dims is None and (size - offset) * 8 % data_type.bits:
        raise FileError(
            f"cannot read {path}: {size - offset} bytes from byte {offset} are no whole number of elements of "
            f"{data_type}; give the right type (--dtype) or offset (--offset)"
        )
    dims = (max(size - offset, 0) * 8 // data_type.bits,) if options.dims is None else options.dims
    desc = row_major(dims, data_type)
    nbytes = -(-prod(dims) * data_type.bits // 8)
    if offset + nbytes > size or (options.offset is None and nbytes != size):
        raise FileError(
            f"cannot read {path}: dims {dims} of {data_type} need {nbytes} bytes from byte {offset}, and the file has "
            f"{size} bytes; give the right dims (--dims), type (--dtype) or offset (--offset)"
        )
    tensor = StoredTensor(path.stem, data_type.name, dims, offset, nbytes, desc, is_unnamed=True)
    return FileStore(path, (tensor,), {}, (version_of(path),))


def raw_target(path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> FileTarget:
    """Return the target of a file of raw bytes: one tensor in any layout.

    Raises:
        FileError: there are several tensors.
        InvalidArguments: the layout of the tensor reaches before its first byte.
    """
    if len(tensors) != 1:
        raise FileError(
            f"cannot write {path}: raw bytes hold one tensor, and there are {len(tensors)} tensors; "
            "write a .safetensors file instead"
        )
    tensor = tensors[0]
    nbytes = _required_nbytes(tensor.bytes_desc)
    file = TargetFile(path, nbytes, b"")
    return FileTarget(path, {tensor.name: TargetTensor(tensor.name, tensor.bytes_desc, nbytes)}, (file,))


def _required_nbytes(desc: MemoryDesc) -> int:
    """Return the number of bytes up to the last that the layout addresses, padding included."""
    layout, data_type = desc.require_layout("raw bytes")
    if desc.offset0 + layout.span[0] < 0:
        raise InvalidArguments("the layout reaches before the first byte: choose one without negative strides")
    return max(desc.size, -(-(desc.offset0 + layout.span[1]) * data_type.bits // 8))
