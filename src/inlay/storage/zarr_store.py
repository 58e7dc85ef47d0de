"""Stores of Zarr arrays: an array or a group, in a local directory or under a URL of fsspec.

    weights.zarr/zarr.json                  the group: attributes
    weights.zarr/conv1/zarr.json            an array: shape, chunks, type, codecs
    weights.zarr/conv1/c/0/3                one chunk

A name is the path of the array in the group. zarr-python opens the arrays, of format 2 too. Chunks in local files
without compression are read directly, in parts (`chunk_files`); zarr-python reads all others as a whole.

Source: Zarr core specification 3.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InlayError, InvalidArguments, MissingExtra, shown
from inlay.files import file_error, reason_of, require_path
from inlay.layout import Dims
from inlay.memory import Memory
from inlay.memory.buffers import allocate
from inlay.storage.array_properties import ArrayProperties
from inlay.storage.box import Box
from inlay.storage.box_bytes import require_place
from inlay.storage.chunk_files import chunk_part, covered_chunks, read_part
from inlay.storage.chunk_format import ChunkFormat
from inlay.storage.source_files import FileVersion, version_of
from inlay.storage.store import StoredTensor, require_dims_for_layout, row_major
from inlay.storage.zarr_package import ZarrArray, require_zarr

ZARR_ERRORS = (OSError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError)
"""Errors of zarr-python and its codecs for a store that is missing or damaged."""

_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup")
"""Names of the documents of metadata, in Zarr 3 and 2."""


def is_url(location: object) -> bool:
    """Return True if `location` is a URL, which fsspec opens."""
    return isinstance(location, str) and "://" in location


def local_path(location: str | Path) -> str:
    """Return the path of a local directory, given as a path or as a URL with `file://`; another URL unchanged.

    >>> local_path("file:///data/w.zarr"), local_path("s3://bucket/w.zarr")
    ('/data/w.zarr', 's3://bucket/w.zarr')
    """
    if is_url(location):
        return str(location).removeprefix("file://")
    return str(Path(location))


def is_zarr(location: str | Path) -> bool:
    """Return True if the directory `location` contains the metadata of a Zarr array or group."""
    return not is_url(location) and any((Path(location) / name).is_file() for name in _DOCUMENTS)


def open_zarr_store(location: str, *, read_only: bool) -> Any:
    """Return the store of zarr-python of a path or URL.

    Raises:
        MissingExtra: zarr or fsspec is not installed.
        FileError: fsspec knows no such URL.
    """
    storage = require_zarr().storage
    if not is_url(location):
        return storage.LocalStore(location, read_only=read_only)
    try:
        return storage.FsspecStore.from_url(location, read_only=read_only)
    except ImportError as error:
        raise MissingExtra(f"{location} needs a package that is not installed: {error}") from error
    except ZARR_ERRORS as error:
        raise FileError(f"cannot open {location}: {error}") from error


def in_flight(chunk_nbytes: int, box_nbytes: int) -> int:
    """Return the number of chunks, 1 to 8, that zarr-python may handle at the same time.

    If there are several, they take at most as many bytes as the box; a chunk counts twice, compressed and not.
    """
    return max(1, min(8, box_nbytes // max(2 * chunk_nbytes, 1)))


def scratch_nbytes(chunk_nbytes: int, box_nbytes: int) -> int:
    """Return the bytes of chunks, compressed and not, that zarr-python handles at the same time beside a box."""
    return in_flight(chunk_nbytes, box_nbytes) * 2 * chunk_nbytes


@dataclass(frozen=True, slots=True)
class ZarrStore:
    """A `Store` of the arrays of a Zarr group, or of one array."""

    location: str
    """Path of the directory, or URL."""
    tensors: tuple[StoredTensor, ...]
    """All arrays, in the order of their names."""
    metadata: Mapping[str, str]
    """Attributes of the group; those that are no texts as JSON."""
    documents: Mapping[str, FileVersion]
    """The document with the metadata of each array of a local store, by the path of the array."""

    @property
    def version(self) -> str:
        """Digest of names, sizes and times of modification of all files of the store, chunks too."""
        digest = sha256()
        try:
            entries = sorted(_list_files(self.location))
        except OSError as error:
            raise zarr_error("read", self.location, error) from error
        for entry in entries:
            digest.update(repr(entry).encode())
        return digest.hexdigest()

    def open(self) -> "ZarrReader":
        """Open the store in this process.

        Raises:
            FileError: it does not exist, or this user may not read it.
            MissingExtra: zarr is not installed.
        """
        return ZarrReader(self)


class ZarrReader:
    """The arrays of a `ZarrStore`, open for reading; a context manager."""

    def __init__(self, store: ZarrStore) -> None:
        """Open the store; arrays are opened at first use.

        Raises:
            FileError: it does not exist.
            MissingExtra: zarr is not installed.
        """
        self._store = store
        self._zarr_store = open_zarr_store(store.location, read_only=True)
        self._arrays = dict[str, ChunkReader]()
        self._read = set[str]()

    def read_box(self, tensor: StoredTensor, desc: MemoryDesc, box: Box) -> Memory:
        """Return the elements of a box, row-major if `desc` is that of the tensor.

        Raises:
            InvalidArguments: the elements of the box are no range of coordinates of the array.
            FileError: a chunk cannot be read.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """
        path = "" if tensor.is_unnamed else tensor.name
        if path not in self._arrays:
            self._arrays[path] = ChunkReader(self._store.location, self._zarr_store, path)
        reader = self._arrays[path]
        self._read.add(path)
        if desc == tensor.desc:
            return Memory(row_major(box.dims, desc.require_layout(tensor.label)[1]), reader.read(box))
        place = require_place(desc, box)
        itemsize = prod(tensor.shape) and tensor.nbytes // prod(tensor.shape)
        stored = stored_box(tensor.shape, place.begin, place.loops, place.run_nbytes, itemsize)
        if stored is None:
            raise InvalidArguments(
                f"the box {box} of tensor {tensor.label} is no range of coordinates of its shape {tensor.shape}: store "
                "it with one axis for each digit of its format"
            )
        return Memory(place.desc, reader.read(stored).reshape(-1).view(np.uint8))

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the metadata of the arrays of a local store that were read since the last check.

        Raises:
            FileError: the size or the time of modification of a document changed.
        """
        while self._read:
            path = self._read.pop()
            document = self._store.documents.get(path)
            if document is not None and version_of(document.path) != document:
                self._read.add(path)  # the next check finds it too
                raise FileError(f"cannot read {document.path}: it changed while it was being read; try again")

    def __enter__(self) -> "ZarrReader":
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget the arrays."""
        self._arrays.clear()


class ChunkReader:
    """One array, open for reading."""

    def __init__(self, location: str, store: Any, path: str) -> None:
        """Open the array at `path` of a store of zarr-python.

        Raises:
            FileError: there is no such array, or its metadata is damaged.
        """
        self._label = f"{location}/{path}" if path else location
        try:
            self._array = require_zarr().open_array(store=store, path=path, mode="r")
        except ZARR_ERRORS as error:
            raise zarr_error("read", self._label, error) from error
        self._chunk = None if is_url(location) else direct_chunk(self._array)
        self._folder = Path(location) / path

    @cached_property
    def dtype(self) -> "np.dtype[Any]":
        """Type of the elements, in the byte order of this machine."""
        dtype: np.dtype[Any] = np.dtype(self._array.dtype)
        return dtype.newbyteorder("=")

    def read(self, box: Box) -> npt.NDArray[Any]:
        """Return the elements of a box as a row-major array.

        Raises:
            FileError: a chunk cannot be read.
            OutOfMemory: the operating system cannot provide the bytes of the box.
        """
        if self._chunk is None:
            return self._read_whole_chunks(box)
        out = allocate(box.size * self.dtype.itemsize).view(self.dtype).reshape(box.dims)
        chunks = self._chunk.dims
        for index in product(*covered_chunks(chunks, box)):
            part, place = chunk_part(chunks, index, box)
            file = self._folder / self._array.metadata.encode_chunk_key(index)
            if not read_part(file, self._chunk, part, out[place]):
                out[place] = self._array.fill_value
        return out

    def _read_whole_chunks(self, box: Box) -> npt.NDArray[Any]:
        """Return the elements of a box through zarr-python."""
        nbytes = prod(self._array.chunks) * self.dtype.itemsize
        try:
            with require_zarr().config.set({"async.concurrency": in_flight(nbytes, box.size * self.dtype.itemsize)}):
                elements = self._array[box.slices]
        except InlayError:
            raise
        except ZARR_ERRORS as error:
            raise zarr_error("read", self._label, error) from error
        return np.ascontiguousarray(elements, self.dtype).reshape(box.dims)


def zarr_error(action: str, label: str, error: Exception) -> FileError:
    """Return the error for what zarr-python cannot read or write."""
    if isinstance(error, OSError):
        return FileError(f"cannot {action} {label}: {reason_of(error) or type(error).__name__}")
    reason = " ".join(str(error).split()) or type(error).__name__
    return FileError(f"cannot {action} {label}: it is damaged, or no Zarr store ({shown(reason)})")


def direct_chunk(array: ZarrArray) -> MemoryDesc | None:
    """Return the descriptor of the chunks of an array; None if they are compressed, sharded or big-endian.

    The codecs are `transpose` or none, and then `bytes` or `inlay`.
    """
    if array.metadata.zarr_format != 3 or not array.shape:
        return None
    codecs = [codec.to_dict() for codec in array.metadata.codecs]
    order: Dims = tuple(range(len(array.shape)))
    if codecs and codecs[0]["name"] == "transpose":
        order = tuple(codecs.pop(0)["configuration"]["order"])
    if len(codecs) != 1 or codecs[0].get("configuration", {}).get("endian") == "big":
        return None
    shape = tuple(array.chunks)
    try:
        data_type = as_data_type(np.dtype(array.dtype).newbyteorder("="))
        if codecs[0]["name"] == "inlay" and order == tuple(range(len(shape))):
            return ChunkFormat.from_configuration(codecs[0]["configuration"]).chunk_desc(shape, data_type)
        return MemoryDesc(shape, data_type, _tag_of(order)) if codecs[0]["name"] == "bytes" else None
    except InlayError:
        return None


def _tag_of(order: Dims) -> str:
    """Return the tag of axes in this order, outermost first."""
    return "".join("abcdefghijkl"[axis] for axis in order)


def stored_box(
    shape: Dims, begin: int, loops: tuple[tuple[int, int], ...], run_nbytes: int, itemsize: int
) -> Box | None:
    """Return the box of a row-major array whose elements are these runs of bytes, in order; None if they are no box.

    >>> str(stored_box((4, 6), 32, ((2, 24),), 8, 4))
    '[1:3, 2:4]'
    """
    last = begin + sum((count - 1) * step for count, step in loops) + run_nbytes - itemsize
    size = prod(count for count, _ in loops) * run_nbytes
    first_index, last_index = (np.unravel_index(offset // itemsize, shape) for offset in (begin, last))
    found = Box(tuple(int(i) for i in first_index), tuple(int(i) + 1 for i in last_index))
    if min(found.dims, default=1) < 1 or found.size * itemsize != size:
        return None
    return found


def read_zarr(location: str | Path) -> ZarrStore:
    """Open a Zarr array or group.

    Raises:
        FileError: there is none, or its metadata is damaged.
        MissingExtra: zarr is not installed.
    """
    text = local_path(location)
    if not is_url(text):
        _require_store(Path(text))
    zarr = require_zarr()
    try:
        root = zarr.open(store=open_zarr_store(text, read_only=True), mode="r")
        found = _arrays_of(zarr, root)
        stem = text.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr")
        tensors = tuple(
            _stored_tensor(path or stem, array, is_unnamed=not path, is_local=not is_url(text)) for path, array in found
        )
        attributes = {} if isinstance(root, zarr.Array) else dict(root.attrs)
    except InlayError:
        raise
    except ZARR_ERRORS as error:
        raise zarr_error("read", text, error) from error
    documents = {} if is_url(text) else _documents(Path(text), [path for path, _ in found])
    metadata = {name: value if isinstance(value, str) else json.dumps(value) for name, value in attributes.items()}
    return ZarrStore(text, tensors, metadata, documents)


def _require_store(path: Path) -> None:
    """Check that a directory has the metadata of a Zarr array or group.

    Raises:
        FileError: it has none, or there is no such directory.
    """
    require_path(path)
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise file_error("read", path, error) from error
    if names.isdisjoint(_DOCUMENTS):
        raise FileError(
            f"cannot read {path}: it has no zarr.json, so it is no Zarr store; name a directory that has one"
        )


def _arrays_of(zarr: Any, root: Any) -> list[tuple[str, ZarrArray]]:
    """Return path and array of all arrays of a group, by path; an array itself has an empty path."""
    if isinstance(root, zarr.Array):
        return [("", root)]
    members = root.members(max_depth=None)
    return sorted((path, member) for path, member in members if isinstance(member, zarr.Array))


def _stored_tensor(name: str, array: ZarrArray, *, is_unnamed: bool, is_local: bool) -> StoredTensor:
    """Return the entry of an array."""
    shape, dtype = tuple(int(n) for n in array.shape), np.dtype(array.dtype)
    metadata = array.metadata.to_dict()
    stored_type = str(metadata.get("data_type", metadata.get("dtype")))
    desc, data_type, refusal = None, None, ""
    try:
        data_type = as_data_type(dtype.newbyteorder("="))
        require_dims_for_layout(shape)
        desc = _format_of(array, row_major(shape, data_type))
    except InvalidArguments as error:
        refusal = str(error)
    return StoredTensor(
        name,
        stored_type,
        shape,
        0,
        prod(shape) * dtype.itemsize,
        desc,
        refusal,
        is_packed=desc is not None and desc.tag != row_major(shape, "u8").tag,
        chunks=tuple(int(n) for n in array.chunks),
        data_type=None if data_type is None or desc is not None else data_type.name,
        properties=_properties(array, metadata, direct_chunk(array) if is_local else None),
        is_unnamed=is_unnamed,
    )


def _format_of(array: ZarrArray, plain: MemoryDesc) -> MemoryDesc:
    """Return the descriptor of an array in the format of its chunks; row-major if no tag or pattern names it."""
    codecs = array.metadata.to_dict().get("codecs", ())
    tag: Any = None
    if codecs and codecs[0]["name"] == "transpose" and codecs[1]["name"] == "bytes":
        tag = _tag_of(tuple(codecs[0]["configuration"]["order"]))
    elif codecs and codecs[0]["name"] == "inlay":
        form = ChunkFormat.from_configuration(codecs[0]["configuration"])
        tag = form.value if isinstance(form.value, str) else None
    if tag is None:
        return plain
    return MemoryDesc(plain.dims, plain.data_type, tag)


def _properties(array: ZarrArray, metadata: Mapping[str, Any], chunk: MemoryDesc | None) -> ArrayProperties:
    """Return what an array has besides its elements."""
    codecs = list(metadata.get("codecs", ()))
    names = metadata.get("dimension_names")
    serializers = [i for i, codec in enumerate(codecs) if codec["name"] in ("bytes", "inlay")]
    compressors = codecs[serializers[0] + 1 :] if serializers else []
    if codecs and codecs[0]["name"] == "sharding_indexed":
        inner = codecs[0]["configuration"]["codecs"]
        compressors = [codec for codec in inner if codec["name"] not in ("bytes", "inlay", "transpose")]
    fill_value = metadata.get("fill_value") if array.metadata.zarr_format == 3 else None
    return ArrayProperties(
        json.dumps(compressors),
        None if fill_value is None else json.dumps(fill_value),
        json.dumps(dict(array.attrs)),
        None if names is None else tuple(names),
        chunk,
    )


def _documents(root: Path, paths: Sequence[str]) -> dict[str, FileVersion]:
    """Return the documents of these arrays."""
    files = {path: [root / path / name for name in _DOCUMENTS] for path in paths}
    return {path: version_of(file) for path, each in files.items() for file in each if file.is_file()}


def _list_files(location: str) -> Iterator[tuple[str, int, str]]:
    """Yield name, size and time or tag of the version of each file of a store."""
    if not is_url(location):
        for path in Path(location).rglob("*"):
            status = path.stat()
            if path.is_file():
                yield str(path.relative_to(location)), status.st_size, str(status.st_mtime_ns)
        return
    fs, root = file_system(location)
    for name, info in fs.find(root, detail=True).items():
        tags = [info.get(key) for key in ("ETag", "LastModified", "mtime", "created")]
        yield name, int(info.get("size") or 0), shown(tags)


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of fsspec of a URL, and the path in it.

    Raises:
        MissingExtra: fsspec is not installed.
        FileError: fsspec knows no such URL.
    """
    require_zarr()
    from fsspec.core import url_to_fs

    try:
        fs, path = url_to_fs(url)
    except ImportError as error:
        raise MissingExtra(f"{url} needs a package that is not installed: {error}") from error
    except ZARR_ERRORS as error:
        raise FileError(f"cannot open {url}: {error}") from error
    return fs, str(path)
