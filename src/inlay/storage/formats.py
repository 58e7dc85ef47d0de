"""The file formats of stores and targets, found by the name of the file.

>>> from pathlib import Path
>>> find_format("w/model.safetensors").name
'safetensors'
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inlay.errors import FileError
from inlay.storage.npy import npy_target, read_npy
from inlay.storage.packed import open_safetensors, safetensors_target
from inlay.storage.store import Store
from inlay.storage.target import NewTensor, Target
from inlay.storage.zarr_store import is_url, is_zarr, read_zarr
from inlay.storage.zarr_target import zarr_target


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files of tensors."""

    name: str
    """Name, for messages."""
    suffixes: tuple[str, ...]
    """Suffixes of file names."""
    open: Callable[[Path], Store] | None
    """Opens a store; None if the format is only written. Raises FileError."""
    make_target: Callable[[Path, Sequence[NewTensor], Mapping[str, str]], Target] | None
    """Makes a target of tensors and metadata; None if the format is only read. Raises InvalidArguments, FileError."""
    is_chunked: bool = False
    """True if tensors are stored in chunks, and boxes consist of whole chunks."""


ZARR = FileFormat("Zarr", (".zarr",), read_zarr, zarr_target, is_chunked=True)
"""Arrays and groups of Zarr: directories, and URLs of fsspec."""


FORMATS: tuple[FileFormat, ...] = (
    FileFormat("npy", (".npy",), read_npy, npy_target),
    FileFormat("safetensors", (".safetensors",), open_safetensors, safetensors_target),
    ZARR,
)
"""All formats; the first that matches a name is taken."""


def find_format(location: str | Path) -> FileFormat:
    """Return the format of a file by its name.

    Raises:
        FileError: no format has this suffix.
    """
    for each in FORMATS:
        if str(location).rstrip("/").endswith(each.suffixes):
            return each
    if is_zarr(location):
        return ZARR
    suffixes = ", ".join(suffix for each in FORMATS for suffix in each.suffixes)
    raise FileError(f"cannot tell the file format of {location} by its suffix: use one of {suffixes}")


def open_store(location: str | Path) -> Store:
    """Open a file of tensors; only its header is read.

    Raises:
        FileError: no format has this suffix, or the file is missing, truncated, or not in the format of its suffix.
    """
    found = find_format(location)
    if found.open is None:
        raise FileError(f"cannot read {location}: Inlay only writes files of the format {found.name}")
    return found.open(_as_path(location))


def make_target(location: str | Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> Target:
    """Return the target for these tensors and texts.

    Raises:
        FileError: no format has this suffix, or the format cannot store the tensors.
        InvalidArguments: a name or a text is not allowed, or a tensor has no descriptor that the format needs.
    """
    found = find_format(location)
    if found.make_target is None:
        raise FileError(f"cannot write {location}: Inlay only reads files of the format {found.name}")
    return found.make_target(_as_path(location), tensors, metadata)


def _as_path(location: str | Path) -> Any:
    """Return a path; a URL unchanged."""
    return location if is_url(location) else Path(location)
