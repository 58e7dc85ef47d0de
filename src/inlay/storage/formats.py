"""The file formats of stores and targets, found by the name of the file.

>>> from pathlib import Path
>>> find_format("w/model.safetensors").name
'safetensors'
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inlay.errors import FileError
from inlay.storage.gguf_file import gguf_target, open_gguf
from inlay.storage.npy import npy_target, read_npy
from inlay.storage.packed import open_safetensors, safetensors_target
from inlay.storage.store import Store
from inlay.storage.target import NewTensor, Target


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


FORMATS: tuple[FileFormat, ...] = (
    FileFormat("npy", (".npy",), read_npy, npy_target),
    FileFormat("safetensors", (".safetensors",), open_safetensors, safetensors_target),
    FileFormat("gguf", (".gguf",), open_gguf, gguf_target),
)
"""All formats; the first that matches a name is taken."""


def find_format(location: str | Path) -> FileFormat:
    """Return the format of a file by its name.

    Raises:
        FileError: no format has this suffix.
    """
    for each in FORMATS:
        if str(location).endswith(each.suffixes):
            return each
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
    return found.open(Path(location))


def make_target(location: str | Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> Target:
    """Return the target for these tensors and texts.

    Raises:
        FileError: no format has this suffix, or the format cannot store the tensors.
        InvalidArguments: a name or a text is not allowed, or a tensor has no descriptor that the format needs.
    """
    found = find_format(location)
    if found.make_target is None:
        raise FileError(f"cannot write {location}: Inlay only reads files of the format {found.name}")
    return found.make_target(Path(location), tensors, metadata)
