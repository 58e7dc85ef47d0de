"""The file formats of stores and targets, found by the name of the file.

>>> find_format("w/model.safetensors").name
'safetensors'
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from inlay.errors import FileError, InvalidArguments
from inlay.storage.file_store import FileStore
from inlay.storage.gguf_file import gguf_target, open_gguf
from inlay.storage.locations import SourcePath, UrlPath, parse_location
from inlay.storage.npy import npy_target, read_npy
from inlay.storage.npz import npz_target, open_npz
from inlay.storage.onnx_file import open_onnx
from inlay.storage.options import OPEN_DEFAULTS, WRITE_DEFAULTS, OpenOptions, WriteOptions
from inlay.storage.packed import open_safetensors, safetensors_target
from inlay.storage.raw_file import open_raw, raw_target
from inlay.storage.sharded import (
    INDEX_SUFFIXES,
    folder_target,
    index_target,
    is_folder,
    open_folder,
    open_index,
    require_no_whole_file,
)
from inlay.storage.source_files import version_of
from inlay.storage.store import Store, StoredTensor
from inlay.storage.target import NewTensor, Target
from inlay.storage.torch_file import is_torch_file, open_torch
from inlay.storage.upload import UploadTarget, upload_target
from inlay.storage.zarr_store import is_zarr, read_zarr
from inlay.storage.zarr_target import zarr_target

OpenFile = Callable[[Path], Store] | Callable[[SourcePath], Store]
"""Opens a store by its path, and by its URL where the format reads URLs. Raises FileError."""

MakeTarget = (
    Callable[[Path, Sequence[NewTensor], Mapping[str, str]], Target]
    | Callable[[SourcePath, Sequence[NewTensor], Mapping[str, str]], Target]
)
"""Makes a target of tensors and metadata. Raises InvalidArguments, FileError."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files of tensors."""

    name: str
    """Name, for messages."""
    suffixes: tuple[str, ...]
    """Suffixes of file names; empty for a folder."""
    open: OpenFile | None
    """Opens a store; None if the format is only written, or if `open_with` does."""
    make_target: MakeTarget | None
    """Makes a target of tensors and metadata; None if the format is only read, or if `make_with` does."""
    open_with: Callable[[SourcePath, OpenOptions], Store] | None = None
    """Opens a store with options, for formats that have some."""
    make_with: Callable[[Path, Sequence[NewTensor], Mapping[str, str], WriteOptions], Target] | None = None
    """Makes a target with options, for formats that have some."""
    is_remote: bool = False
    """True if files of this format are read by ranges from URLs, and uploaded to them."""
    is_chunked: bool = False
    """True if tensors are stored in chunks, which are written at a URL directly; boxes consist of whole chunks."""


def _open_binary(path: SourcePath, options: OpenOptions) -> Store:
    """Open a `.bin` file: of PyTorch if it begins as one, else raw bytes."""
    if not options.describes_bytes:
        if is_torch_file(path):
            return open_torch(path)
        raise FileError(
            f"cannot read {path}: it is no file of PyTorch; if it holds raw bytes, state their dims and type "
            "(--dims, --dtype)"
        )
    return open_raw(path, options)


def _open_zarr(path: SourcePath) -> Store:
    """Open a Zarr array or group at a path or URL."""
    return read_zarr(_zarr_location(path))


def _make_zarr(path: SourcePath, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> Target:
    """Return the target of a Zarr array or group at a path or URL."""
    return zarr_target(_zarr_location(path), tensors, metadata)


def _zarr_location(path: SourcePath) -> str | Path:
    """Return a path, or the text of a URL.

    Raises:
        InvalidArguments: options of the file system are given.
    """
    if not isinstance(path, UrlPath):
        return path
    if path.options:
        raise InvalidArguments(
            f"{path} is a Zarr store: options of its file system come from the environment variables and the "
            "configuration files of fsspec (leave out storage_options)"
        )
    return path.url


ZARR = FileFormat("Zarr", (".zarr",), _open_zarr, _make_zarr, is_remote=True, is_chunked=True)
"""Arrays and groups of Zarr: directories, and URLs of fsspec."""

FORMATS: tuple[FileFormat, ...] = (
    FileFormat("npy", (".npy",), read_npy, npy_target, is_remote=True),
    FileFormat("npz", (".npz",), open_npz, npz_target, is_remote=True),
    FileFormat("safetensors", (".safetensors",), open_safetensors, safetensors_target, is_remote=True),
    FileFormat("gguf", (".gguf",), open_gguf, gguf_target),
    FileFormat("checkpoint", INDEX_SUFFIXES, open_index, None, make_with=index_target, is_remote=True),
    FileFormat("PyTorch", (".pt", ".pth", ".ckpt"), open_torch, None, is_remote=True),
    FileFormat("ONNX", (".onnx",), open_onnx, None, is_remote=True),
    FileFormat("binary", (".bin",), None, raw_target, _open_binary, is_remote=True),
    FileFormat("raw", (".raw", ".dat"), None, raw_target, open_raw, is_remote=True),
    ZARR,
)
"""All formats of files; the first that matches a name is taken."""

FOLDER = FileFormat("checkpoint folder", (), open_folder, None, make_with=folder_target, is_remote=True)
"""The format of folders."""

_RAW = next(each for each in FORMATS if each.name == "raw")
"""Raw bytes, which a file of any name holds if the options say so."""


def find_format(location: str | Path | UrlPath, storage_options: Mapping[str, object] | None = None) -> FileFormat:
    """Return the format of a file by its name; a folder is a checkpoint.

    `storage_options` are those of fsspec's file system, which is asked if a URL without a known suffix is a folder.

    Raises:
        FileError: no format has this suffix.
    """
    path = parse_location(location, _storage_options(storage_options))
    for each in FORMATS:
        if path.name.endswith(each.suffixes):
            return each
    if isinstance(path, Path) and is_zarr(path):
        return ZARR
    if is_folder(location if isinstance(path, Path) else path):
        return FOLDER
    suffixes = ", ".join(suffix for each in FORMATS for suffix in each.suffixes)
    raise FileError(
        f"cannot tell the file format of {location} by its suffix: use one of {suffixes}, or the name of a folder "
        "with a slash at its end"
    )


def is_raw_source(location: str | Path | UrlPath, options: OpenOptions, *, has_type: bool) -> bool:
    """Return True if a source is opened as raw bytes, given all options of the user, who may mean them otherwise.

    That is so by its suffix, if it is a `.bin` file and not of PyTorch, if the user states an offset or (`has_type`)
    the type of the source, or if dims describe a file with an unknown suffix.

    Raises:
        FileError: a `.bin` file cannot be read.
    """
    path = parse_location(location, _storage_options(options.storage_options))
    known = next((each for each in FORMATS if path.name.endswith(each.suffixes)), None)
    if known is _RAW or has_type or options.offset is not None:
        return True
    if known is None:
        return options.dims is not None and not is_folder(location)
    return known.name == "binary" and options.describes_bytes and not is_torch_file(path)


def open_store(location: str | Path | UrlPath, options: OpenOptions = OPEN_DEFAULTS) -> Store:
    """Open a file, a folder or a URL of tensors; only headers are read.

    A file with another suffix than those of `FORMATS` is opened as raw bytes if `options` state dims and data type.

    Raises:
        FileError: no format has this suffix, or the file is missing, truncated, or not in the format of its suffix.
        InvalidArguments: the options do not describe raw bytes, or describe them in a file that has a header.
        MissingExtra: the format or the URL needs a package that is not installed.
    """
    path = parse_location(location, _storage_options(options.storage_options))
    is_known = any(path.name.endswith(each.suffixes) for each in FORMATS)
    found = _RAW if options.describes_bytes and not is_known else find_format(location, options.storage_options)
    if options.describes_bytes and found.open_with is None:
        raise InvalidArguments(
            f"dims, type and offset describe raw bytes, and {path} is read as {found.name}, whose header states them: "
            "leave them out (--from-dtype, --offset)"
        )
    if isinstance(path, UrlPath) and not found.is_remote:
        raise FileError(f"cannot read {path}: files of the format {found.name} are read from this machine; download it")
    if found.open_with is not None:
        return found.open_with(path, options)
    if found.open is None:
        raise FileError(f"cannot read {path}: Inlay only writes files of the format {found.name}")
    return found.open(path)  # type: ignore[arg-type]


def make_target(
    location: str | Path | UrlPath,
    tensors: Sequence[NewTensor],
    metadata: Mapping[str, str],
    options: WriteOptions = WRITE_DEFAULTS,
) -> Target:
    """Return the target for these tensors and texts.

    Raises:
        FileError: no format has this suffix, or the format cannot store the tensors.
        InvalidArguments: a name or a text is not allowed, a tensor has no descriptor that the format needs, or an
            option is for other targets.
        MissingExtra: the URL needs a package that is not installed.
    """
    path = parse_location(location, _storage_options(options.storage_options))
    found = find_format(location, options.storage_options)
    if found.make_with is None and found.make_target is None:
        raise FileError(f"cannot write {path}: Inlay only reads files of the format {found.name}")
    _require_used(path, found, options)
    make = partial(_make_local, found, tensors=tensors, metadata=metadata, options=options)
    if isinstance(path, Path) or found.is_chunked:
        return make(path)
    if not found.is_remote:
        raise FileError(f"cannot write {path}: files of the format {found.name} are written on this machine; upload it")
    uploaded = upload_target(path, make, is_folder=found is FOLDER, staging=options.staging)  # type: ignore[arg-type]
    if uploaded.files[-1].path.name.endswith(INDEX_SUFFIXES):
        require_no_whole_file(uploaded.folder / uploaded.files[-1].path.name)
    return uploaded


def _require_used(path: SourcePath, found: FileFormat, options: WriteOptions) -> None:
    """Check that each option has an effect on the target.

    Raises:
        InvalidArguments: shards have a size though the format has none, or what is written directly has a staging
            folder.
    """
    if options.shard_nbytes is not None and found.make_with is None:
        raise InvalidArguments(
            f"{path} is one file without shards: name a folder (with a slash at its end) or an index, such as "
            "model.safetensors.index.json, or leave out the size of shards (--shard-size)"
        )
    if options.staging is not None and (found.is_chunked or not isinstance(path, UrlPath)):
        raise InvalidArguments(
            f"{path} is written where it is named: leave out the staging folder, which is for files at URLs (--staging)"
        )


def open_written(target: Target, tensors: Sequence[NewTensor]) -> Store:
    """Open what a target wrote, by its name alone; raw bytes by the descriptor of the tensor that was written.

    Raises:
        FileError: it does not exist, or is not in the format of its name.
    """
    location = target.url if isinstance(target, UploadTarget) else target.location
    if find_format(location).make_target is not raw_target:
        return open_store(location)
    path = parse_location(location)
    tensor, nbytes = tensors[0], target.tensors[tensors[0].name].nbytes
    stored = StoredTensor(tensor.name, tensor.stored_type or "raw", tensor.shape, 0, nbytes, tensor.desc)
    return FileStore(path, (stored,), {}, (version_of(path),))


def _make_local(
    found: FileFormat,
    path: SourcePath,
    *,
    tensors: Sequence[NewTensor],
    metadata: Mapping[str, str],
    options: WriteOptions,
) -> Target:
    """Return the target of a path; of a URL if the format writes there directly."""
    if found.make_with is not None:
        return found.make_with(path, tensors, metadata, options)  # type: ignore[arg-type]
    assert found.make_target is not None
    return found.make_target(path, tensors, metadata)  # type: ignore[arg-type]


def _storage_options(options: Mapping[str, object] | None) -> tuple[tuple[str, object], ...]:
    return tuple((options or {}).items())
