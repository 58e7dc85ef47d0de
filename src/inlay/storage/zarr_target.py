"""Targets of Zarr 3 arrays: a group or one array, in a local directory or under a URL of fsspec.

Everything is written under a hidden name beside the target, which contains the token of the conversion. A box is a
range of whole chunks, so that each chunk is written once, by one task. A permutation of axes is stored by Zarr's codec
`transpose`, which every reader knows; another format by the codec `inlay` (`zarr_codec`).
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InlayError, InvalidArguments, printable
from inlay.files import file_error
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import Bytes
from inlay.storage.array_properties import ArrayProperties
from inlay.storage.box import Box
from inlay.storage.chunk_files import covered_chunks, grid_desc, write_chunk
from inlay.storage.chunk_format import ChunkFormat
from inlay.storage.file_target import PARTIAL_SUFFIX
from inlay.storage.positioned_io import sync_directory
from inlay.storage.store import plain_order, row_major
from inlay.storage.target import NewTensor, TargetTensor
from inlay.storage.zarr_codec import CODEC_NAME, encode_chunk
from inlay.storage.zarr_package import ZarrArray, require_zarr
from inlay.storage.zarr_store import (
    ZARR_ERRORS,
    file_system,
    in_flight,
    is_url,
    local_path,
    open_zarr_store,
    zarr_error,
)

CHUNK_NBYTES = 8 << 20
"""Wanted size of the chunks of a new array, in bytes."""
_MOST_SYNCED = 4096
"""Number of files that are written to disk one by one; `os.sync` waits for the files of other programs too."""
_NAME_CHARACTERS = 60
"""Number of characters of the final name in the hidden one; names are limited to 255 bytes."""


@dataclass(frozen=True, slots=True)
class NewArray:
    """An array of a Zarr target."""

    path: str
    """Path in the store; empty for the root."""
    shape: Dims
    """Dims of the array."""
    chunk: MemoryDesc | None
    """Descriptor of the bytes of a chunk before compression; None for a scalar."""
    dtype: str
    """Name of NumPy's or ml_dtypes' type of the elements."""
    properties: ArrayProperties
    """Compression, fill value, attributes and names of axes."""

    @property
    def chunks(self) -> Dims:
        """Shape of a chunk."""
        return () if self.chunk is None else self.chunk.dims


@dataclass(frozen=True, slots=True)
class ZarrTarget:
    """A `Target` of arrays of a Zarr group, or of one array."""

    location: str
    """Path of the directory, or URL."""
    tensors: Mapping[str, TargetTensor]
    """The tensors by name; `TargetTensor.file` is an index of `arrays`."""
    arrays: tuple[NewArray, ...]
    """The arrays, one for each tensor."""
    attributes: Mapping[str, str]
    """Attributes of the group."""

    @property
    def last_name(self) -> str:
        """Path or URL of the store."""
        return self.location.rstrip("/")

    def partial(self, token: str) -> str:
        """Return the path or URL of the store until the conversion is complete.

        >>> ZarrTarget("w/a.zarr", {}, (), {}).partial("5f3a")
        'w/.a.zarr.5f3a.inlay.partial'
        """
        parent, slash, name = self.last_name.rpartition("/")
        return f"{parent}{slash}.{name[:_NAME_CHARACTERS]}.{token}{PARTIAL_SUFFIX}"

    def find_existing(self) -> str | None:
        """Return the path or URL of what `commit` would replace; None if there is nothing."""
        if not is_url(self.location):
            return self.location if os.path.lexists(self.location) else None
        fs, root = file_system(self.location)
        return self.location if fs.exists(root) else None

    def create(self, token: str) -> None:
        """Write the metadata of the group and of all arrays.

        Raises:
            FileError: it cannot be written.
            MissingExtra: zarr is not installed.
        """
        location = self.partial(token)
        if not is_url(location):
            try:
                Path(location).mkdir()
            except OSError as error:
                raise file_error("write", Path(self.location), error) from error
        store = open_zarr_store(location, read_only=False)
        try:
            if not any(array.path == "" for array in self.arrays):
                require_zarr().create_group(store=store, attributes=decode_attributes(self.attributes))
            for array in self.arrays:
                _create_array(store, array)
        except InlayError:
            raise
        except ZARR_ERRORS as error:
            raise zarr_error("write", self.location, error) from error

    def is_whole(self, token: str) -> bool:
        """Return True if the metadata of all arrays exists."""
        location = self.partial(token)
        names = {"zarr.json", *(f"{array.path}/zarr.json".lstrip("/") for array in self.arrays)}
        if is_url(location):
            fs, root = file_system(location)
            return all(fs.exists(f"{root}/{name}") for name in names)
        return all((Path(location) / name).is_file() for name in names)

    def open(self, token: str) -> "ZarrWriter":
        """Open what `create` made.

        Raises:
            FileError: it does not exist.
        """
        return ZarrWriter(self, token)

    def sync(self, token: str) -> None:
        """Wait until all files of a local store are on disk, with their names.

        Raises:
            FileError: a file cannot be written.
        """
        location = self.partial(token)
        if not is_url(location):
            hidden = Path(location)
            _sync_files([hidden, *hidden.rglob("*")])
            try:
                sync_directory(hidden.parent)
            except OSError as error:
                raise file_error("write", Path(self.location), error) from error

    def commit(self, token: str, *, again: bool = False) -> None:
        """Give the store its final name.

        A local store that is replaced is renamed, and then removed: between two renames, nothing has the final name. Of
        a link to a store, only the link is replaced.
        Under a URL, all files are copied, those of the root's metadata last.

        Raises:
            FileError: a name cannot be given.
        """
        location = self.partial(token)
        if is_url(location):
            self._commit_url(location, again=again)
            return
        hidden, final = Path(location), Path(self.location)
        old = _old_path(hidden)
        try:
            if hidden.exists() or not (again and final.exists()):
                if os.path.lexists(final):
                    final.replace(old)
                hidden.replace(final)
                sync_directory(final.parent)
            if os.path.lexists(old):  # also if a commit was interrupted before
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
        except OSError as error:
            raise file_error("write", final, error) from error

    def _commit_url(self, location: str, *, again: bool) -> None:
        """Give the files of a store under a URL their final names."""
        fs, root = file_system(location)
        _, final = file_system(self.location)
        document = f"{root}/zarr.json"
        try:
            if fs.exists(document) or not (again and fs.exists(f"{final}/zarr.json")):
                with suppress(FileNotFoundError):
                    # First: without them, what an interruption leaves is no array with missing chunks.
                    for name in [name for name in fs.find(final) if name.endswith("/zarr.json")]:
                        fs.rm_file(name)
                    fs.rm(final, recursive=True)
                for name in sorted(fs.find(root), key=lambda name: name == document):
                    fs.cp_file(name, f"{final}{name[len(root) :]}")
                fs.rm_file(document)  # first: without it, what is left is no store that could be copied again
            with suppress(FileNotFoundError):
                fs.rm(root, recursive=True)
        except OSError as error:
            raise zarr_error("write", self.location, error) from error

    def discard(self, token: str) -> None:
        """Remove what `create` made; a target that an interrupted commit had put aside gets its name back."""
        location = self.partial(token)
        if not is_url(location):
            shutil.rmtree(location, ignore_errors=True)
            old, final = _old_path(Path(location)), Path(self.location)
            with suppress(OSError):
                if os.path.lexists(old) and not os.path.lexists(final):  # a commit was interrupted between its renames
                    old.replace(final)
            shutil.rmtree(old, ignore_errors=True)
            return
        fs, root = file_system(location)
        with suppress(OSError):
            fs.rm(root, recursive=True)


def _old_path(hidden: Path) -> Path:
    """Return the path that a local store which is replaced has between two renames."""
    return hidden.with_name(f"{hidden.name}.old")


def _sync_files(paths: Sequence[Path]) -> None:
    """Wait until files and the names in directories are on disk; if they are very many, until everything is.

    Raises:
        FileError: one cannot be written.
    """
    if len(paths) > _MOST_SYNCED and hasattr(os, "sync"):
        os.sync()
        return
    for path in paths:
        if os.name != "posix" and path.is_dir():
            continue
        try:
            file = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise file_error("write", path, error) from error


def decode_attributes(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the attributes of a group whose texts are these: the inverse of `ZarrStore.metadata`.

    >>> decode_attributes({"author": "x", "year": "7", "version": "1e3"})
    {'author': 'x', 'year': 7, 'version': '1e3'}
    """
    return {name: _decode(text) for name, text in texts.items()}


def _decode(text: str) -> Any:
    """Return the value that has this text as JSON; the text itself if none is written exactly like that."""
    try:
        value = json.loads(text)
        is_exact = not isinstance(value, str) and json.dumps(value, allow_nan=False) == text
    except (ValueError, RecursionError):
        return text
    return value if is_exact else text


def _create_array(store: Any, array: NewArray) -> ZarrArray:
    """Write the metadata of one array."""
    zarr, properties = require_zarr(), array.properties
    dtype = zarr.dtype.parse_dtype(np.dtype(array.dtype), zarr_format=3)
    fill_value = 0 if properties.fill_value is None else json.loads(properties.fill_value)
    codecs = {} if array.chunk is None else _codecs(array.chunk)
    return zarr.create_array(
        store=store,
        name=array.path or None,
        shape=array.shape,
        chunks=array.chunks,
        dtype=dtype,
        compressors=json.loads(properties.compressors) or None,
        fill_value=dtype.from_json_scalar(fill_value, zarr_format=3),
        attributes=json.loads(properties.attributes),
        dimension_names=properties.dimension_names,
        zarr_format=3,
        **codecs,
    )


def _codecs(chunk: MemoryDesc) -> dict[str, Any]:
    """Return the arguments of `zarr.create_array` for the layout of a chunk."""
    order = plain_order(chunk)
    if order is None:
        form = ChunkFormat.from_descriptor(chunk)
        return {"serializer": {"name": CODEC_NAME, "configuration": form.configuration}}
    if order == tuple(range(len(order))):
        return {"filters": None}
    return {"filters": [{"name": "transpose", "configuration": {"order": list(order)}}]}


class ZarrWriter:
    """The arrays of a `ZarrTarget`, open for writing; a context manager."""

    syncs_while_writing = True
    """`sync` may run in another thread while boxes are written."""

    def __init__(self, target: ZarrTarget, token: str) -> None:
        """Open the store that `ZarrTarget.create` made.

        Raises:
            FileError: it does not exist.
        """
        self._target, self._location = target, target.partial(token)
        self._store = open_zarr_store(self._location, read_only=False)
        if not target.is_whole(token):
            raise FileError(f"cannot write {target.location}: {self._location} does not exist; start again")
        self._arrays = dict[int, ChunkWriter]()

    def box_desc(self, tensor: TargetTensor, box: Box) -> MemoryDesc:
        """Return the descriptor of a box: chunk after chunk as they are stored, or row-major."""
        return self._writer(tensor).box_desc(box)

    def write_box(self, tensor: TargetTensor, box: Box, memory: Memory) -> None:
        """Write the chunks of a box; `memory` has the descriptor of `box_desc`.

        Raises:
            FileError: the store cannot be written, as on a full disk.
        """
        self._writer(tensor).write(box, memory)

    def sync(self) -> None:
        """Wait until the files of all chunks that this writer wrote are on disk.

        Raises:
            FileError: a file cannot be written.
        """
        for array in list(self._arrays.values()):
            array.sync()

    def _writer(self, tensor: TargetTensor) -> "ChunkWriter":
        """Return the open array of a tensor."""
        if tensor.file not in self._arrays:
            array = self._target.arrays[tensor.file]
            self._arrays[tensor.file] = ChunkWriter(self._location, self._store, array)
        return self._arrays[tensor.file]

    def __enter__(self) -> "ZarrWriter":
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget the arrays."""
        self._arrays.clear()


class ChunkWriter:
    """One array, open for writing."""

    def __init__(self, location: str, store: Any, array: NewArray) -> None:
        """Open an array that `ZarrTarget.create` made.

        Raises:
            FileError: it does not exist.
        """
        self._array, self._store, self._label = array, store, location
        self._folder = Path(location) / array.path
        self._is_direct = not is_url(location) and not array.properties.is_compressed and array.chunk is not None
        self._written = list[Path]()

    @cached_property
    def _opened(self) -> ZarrArray:
        """The array of zarr-python."""
        try:
            return require_zarr().open_array(store=self._store, path=self._array.path, mode="r+")
        except ZARR_ERRORS as error:
            raise zarr_error("write", self._label, error) from error

    def box_desc(self, box: Box) -> MemoryDesc:
        """Return the descriptor of a box."""
        grid = grid_desc(self._array.chunk, box) if self._is_direct and self._array.chunk is not None else None
        if grid is not None:
            return grid
        if self._array.chunk is None:
            return MemoryDesc(box.dims, "u8", "a")
        return row_major(box.dims, self._array.chunk.require_layout("a chunk")[1])

    def write(self, box: Box, memory: Memory) -> None:
        """Write the chunks of a box.

        Raises:
            FileError: a chunk cannot be written, as on a full disk.
        """
        chunk = self._array.chunk
        if chunk is None:
            self._write_by_zarr((), memory.buffer.view(np.dtype(self._array.dtype)).reshape(()))
        elif not self._is_direct:
            self._write_by_zarr(box.slices, memory.numpy())
        elif grid_desc(chunk, box) is not None:
            data, nbytes = memory.buffer.reshape(-1).view(np.uint8), chunk.size
            for i, index in enumerate(product(*covered_chunks(chunk.dims, box))):
                self._write_file(index, data[i * nbytes :][:nbytes])
        else:
            for index in product(*covered_chunks(chunk.dims, box)):
                self._write_file(index, self._encode(index, box, memory))

    def sync(self) -> None:
        """Wait until the files that were written are on disk, and their names.

        Raises:
            FileError: a file cannot be written.
        """
        count = len(self._written)  # another thread appends
        written = self._written[:count]
        del self._written[:count]
        _sync_files([*written, *dict.fromkeys(path.parent for path in written)])

    def _encode(self, index: Dims, box: Box, memory: Memory) -> Bytes:
        """Return the bytes of one chunk of a box that is row-major; a chunk at the end is padded with 0."""
        chunk = self._array.chunk
        assert chunk is not None
        elements, begin = memory.numpy(), [i * n for i, n in zip(index, chunk.dims, strict=True)]
        inner = elements[tuple(slice(b - o, b - o + n) for b, o, n in zip(begin, box.begin, chunk.dims, strict=True))]
        if inner.shape != chunk.dims:
            padded = np.zeros(chunk.dims, inner.dtype)
            padded[tuple(map(slice, inner.shape))] = inner
            inner = padded
        return encode_chunk(inner, chunk)

    def _write_file(self, index: Dims, data: Bytes) -> None:
        """Write the file of a chunk; default chunk keys of Zarr 3."""
        path = self._folder / "c" / "/".join(map(str, index))
        write_chunk(path, data)
        self._written.append(path)

    def _write_by_zarr(self, slices: tuple[slice, ...], elements: Any) -> None:
        """Write elements through zarr-python."""
        nbytes = prod(self._array.chunks) * elements.dtype.itemsize
        try:
            with require_zarr().config.set({"async.concurrency": in_flight(nbytes, elements.nbytes)}):
                self._opened[slices] = elements
        except InlayError:
            raise
        except ZARR_ERRORS as error:
            raise zarr_error("write", self._label, error) from error


def zarr_target(location: str | Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> ZarrTarget:
    """Return the target of a Zarr group, or of one array if the only tensor has no name in its source.

    Raises:
        InvalidArguments: a name is no path of a Zarr array, or chunks have another number of dims than their tensor.
        FileError: Zarr has no name for a data type, or cannot store a layout.
        MissingExtra: zarr is not installed.
    """
    require_zarr()
    text = local_path(location)
    is_root = len(tensors) == 1 and tensors[0].is_unnamed
    arrays = tuple(_new_array(text, tensor, "" if is_root else _require_name(text, tensor.name)) for tensor in tensors)
    _require_separate(text, [array.path for array in arrays])
    placed = {
        tensor.name: TargetTensor(tensor.name, tensor.bytes_desc, tensor.nbytes, file=i, chunks=array.chunks or None)
        for i, (tensor, array) in enumerate(zip(tensors, arrays, strict=True))
    }
    return ZarrTarget(text, placed, arrays, dict(metadata))


def _require_name(location: str, name: str) -> str:
    """Return the path of an array in the store.

    Raises:
        InvalidArguments: the name is not a path of a Zarr array.
    """
    parts = name.split("/")
    if not all(parts) or any(part.strip(".") == "" or part.startswith("__") for part in parts) or "\0" in name:
        raise InvalidArguments(
            f"{location} cannot hold tensor {printable(name)!r}: no part of the path of a Zarr array is empty, "
            "consists of dots, or starts with __; rename it"
        )
    if "zarr.json" in parts:
        raise InvalidArguments(
            f"{location} cannot hold tensor {printable(name)!r}: zarr.json is the name of the metadata; rename it"
        )
    return name


def _require_separate(location: str, paths: list[str]) -> None:
    """Check that no array is in the directory of another.

    Raises:
        InvalidArguments: one is.
    """
    taken = set(paths)
    for path in paths:
        parts = path.split("/")
        above = next((p for i in range(1, len(parts)) if (p := "/".join(parts[:i])) in taken), None)
        if above is not None:
            raise InvalidArguments(
                f"{location} cannot hold tensors {printable(above)!r} and {printable(path)!r}: an array contains no "
                "other arrays; rename one"
            )


def _new_array(location: str, tensor: NewTensor, path: str) -> NewArray:
    """Return the array of a tensor."""
    properties = tensor.properties or ArrayProperties()
    desc = tensor.bytes_desc if tensor.compound is not None else tensor.desc
    if desc is None:
        return NewArray(path, tensor.shape, None, _scalar_type(location, tensor), properties)
    data_type = desc.require_layout(tensor.name)[1]
    if data_type.is_sub_byte or not _has_zarr_type(data_type.dtype):
        raise FileError(f"cannot write {location}: Zarr has no data type {data_type}; convert it (--dtype)")
    chunks = tensor.chunks or default_chunks(desc)
    if len(chunks) != desc.ndims:
        raise InvalidArguments(
            f"chunks {chunks} do not fit tensor {printable(tensor.name)} of dims {desc.dims}: give one number for "
            "each of its dims, and name the tensors they are for, as in 'conv*=1,256,256'"
        )
    return NewArray(path, desc.dims, chunk_of(location, tensor.name, desc, chunks), data_type.dtype.name, properties)


def chunk_of(location: str, name: str, desc: MemoryDesc, chunks: Dims) -> MemoryDesc:
    """Return the descriptor of a chunk in the format of a tensor.

    Raises:
        FileError: the layout of the tensor has gaps or overlaps, so that no format describes it.
    """
    data_type = desc.require_layout(name)[1]
    if desc.tag is not None:
        return ChunkFormat("tag", desc.tag).chunk_desc(chunks, data_type)
    pattern = desc.pattern
    if pattern is None:
        raise FileError(f"cannot write {location}: no pattern describes {desc} of {printable(name)}")
    return ChunkFormat("pattern", pattern).chunk_desc(chunks, data_type)


def default_chunks(desc: MemoryDesc) -> Dims:
    """Return the chunks of a new array: whole blocks, of about 8 MiB, long along the innermost axes.

    >>> default_chunks(MemoryDesc((4096, 4096), "f32", "ab")), default_chunks(MemoryDesc((4096, 4096), "f32", "aB16b"))
    ((512, 4096), (512, 4096))
    """
    layout, data_type = desc.require_layout("an array")
    chunks = [max(n, 1) for n in desc.dims]
    blocks = [axis.block for axis in layout.axes]
    for axis in sorted(range(desc.ndims), key=lambda i: -abs(layout.axes[i].stride)):
        beside = prod(chunks) // chunks[axis] * data_type.itemsize
        if beside * chunks[axis] > CHUNK_NBYTES:
            extent = CHUNK_NBYTES // beside // blocks[axis] * blocks[axis]
            chunks[axis] = min(chunks[axis], max(extent, blocks[axis]))
    return tuple(chunks)


def _has_zarr_type(dtype: "np.dtype[Any]") -> bool:
    """Return True if zarr-python has a data type for NumPy's."""
    try:
        require_zarr().dtype.parse_dtype(dtype, zarr_format=3)
    except (ValueError, TypeError):
        return False
    return True


_SCALAR_TYPES = {
    "F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "I64": "s64", "I32": "s32", "I16": "s16", "I8": "s8",
    "U64": "u64", "U32": "u32", "U16": "u16", "U8": "u8", "BOOL": "bool",
}  # fmt: skip
"""Data types of scalars by their names in safetensors files."""


def _scalar_type(location: str, tensor: NewTensor) -> str:
    """Return NumPy's name of the type of a tensor without descriptor.

    Raises:
        InvalidArguments: it is no scalar of a type that Zarr has.
    """
    stored = tensor.stored_type or ""
    with suppress(InvalidArguments, TypeError):
        data_type = as_data_type(tensor.data_type or _SCALAR_TYPES.get(stored) or np.dtype(stored))
        if tensor.shape == () and not data_type.is_sub_byte and _has_zarr_type(data_type.dtype):
            return data_type.dtype.name
    raise InvalidArguments(f"{location} cannot hold tensor {printable(tensor.name)}: it has no descriptor")
