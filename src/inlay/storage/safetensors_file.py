"""The safetensors format: named tensors with types and shapes, and texts as metadata.

    8 bytes   length of the header, little-endian
    header    JSON: name -> type, shape, byte range; "__metadata__" -> texts
    data      the tensors, one after the other without gaps

The safetensors library checks the whole header when it opens a file: JSON syntax, types, shapes against byte counts, no
gaps, no overlap, and the length of the file. It does not return the byte offsets, so `read_header` reads the header
again for them. The library can only write tensors that are all in memory at once. So the writer here streams one tensor
at a time. The data starts at a multiple of 64 bytes. Tensors whose size is a multiple of 64 bytes come first, so each
of them also starts at a multiple of 64.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inlay.errors import FileError, InvalidArguments
from inlay.files import Progress, atomic_write, reason_of, write_pieces
from inlay.memory.buffers import Bytes
from inlay.safetensors_header import METADATA, TensorEntry, build_header, in_file_order
from inlay.storage.locations import SourcePath, UrlPath, require_source

_MAX_HEADER_BYTES = 100_000_000
"""Maximum size of a header that the safetensors library reads, in bytes (`MAX_HEADER_SIZE` in its source)."""

_FIRST_NBYTES = 1 << 18
"""Bytes of a file at a URL that are read at first: the header of most files."""


def read_header(path: SourcePath) -> tuple[tuple[TensorEntry, ...], dict[str, str]]:
    """Return the entries of the safetensors file `path`, in the order of their bytes, and its metadata.

    Raises:
        FileError: the file is missing, truncated, or no safetensors file.
    """
    from safetensors import SafetensorError

    size = require_source(path)
    try:
        if isinstance(path, UrlPath):
            prefix = _read_prefix(path, size)
        else:
            _check_header(path)
            with path.open("rb") as file:
                prefix = file.read(8)
                prefix += file.read(int.from_bytes(prefix, "little"))
        header = json.loads(prefix[8:])
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason_of(error)}") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        raise FileError(
            f"cannot read {path}: it is truncated or not a safetensors file; copy it again from its source"
        ) from error
    metadata = header.pop(METADATA, None) or {}
    entries = [_parse_entry(name, item, len(prefix)) for name, item in header.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.name))
    if any(e.nbytes < 0 or e.begin + e.nbytes > size for e in entries):
        raise FileError(f"cannot read {path}: it changed while it was being opened; try again")
    return tuple(entries), metadata


def _check_header(path: Path) -> None:
    """Let the safetensors library check the header of a file; raises its errors."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy"):
        pass


def _read_prefix(path: UrlPath, size: int) -> bytes:
    """Return the length and the header of a file at a URL, which the library checks.

    The library opens files of this machine only. It gets a sparse file with the same header and size, and no data.
    """
    prefix = path.read_range(0, min(size, _FIRST_NBYTES))
    end = 8 + int.from_bytes(prefix[:8], "little")
    if len(prefix) < 8 or end > min(size, 8 + _MAX_HEADER_BYTES):
        raise ValueError(f"a header of {end} bytes")
    if end > len(prefix):
        prefix += path.read_range(len(prefix), end)
    prefix = prefix[:end]
    with TemporaryDirectory(prefix="inlay-") as folder:
        copy = Path(folder) / "header.safetensors"
        copy.write_bytes(prefix)
        os.truncate(copy, size)
        _check_header(copy)
    return prefix


def _parse_entry(name: str, item: Mapping[str, Any], data_begin: int) -> TensorEntry:
    begin, end = item["data_offsets"]
    return TensorEntry(name, item["dtype"], tuple(item["shape"]), end - begin, data_begin + begin)


def require_names(names: Iterable[object]) -> None:
    """Check that a file with tensors of these names can be read again.

    Raises:
        InvalidArguments: a name is no text, is not valid Unicode, or is the key of the metadata.
    """
    for name in names:
        _require_text("the name of a tensor", name)
        if name == METADATA:
            raise InvalidArguments(f"a tensor cannot be named {METADATA}: the format stores metadata there; rename it")


def require_texts(metadata: Mapping[Any, object]) -> None:
    """Check that a file can store this metadata.

    Raises:
        InvalidArguments: a key or a value is no text, or not valid Unicode.
    """
    for key, value in metadata.items():
        _require_text("a key of the metadata", key)
        _require_text(f"metadata[{key!r}]", value)


def _require_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} is {value!r}: a safetensors file stores texts, give a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(f"{what} is {value!r}, which is no Unicode text: rename it") from None


def encode_header(target: Path, ordered: Sequence[TensorEntry], metadata: Mapping[str, str]) -> bytes:
    """Return the first bytes of the safetensors file `target`, up to the data of its first tensor.

    Raises:
        InvalidArguments: a name or a text is not allowed (see `require_names`, `require_texts`), or the header is
            longer than the library can read.
    """
    require_names(entry.name for entry in ordered)
    require_texts(metadata)
    header = build_header(ordered, metadata)
    if len(header) > _MAX_HEADER_BYTES:
        raise InvalidArguments(
            f"names and texts of {target} take {len(header)} bytes, and the safetensors library reads "
            f"{_MAX_HEADER_BYTES}: write several files, or leave out metadata"
        )
    return header


def write_safetensors(
    target: Path,
    entries: Iterable[TensorEntry],
    metadata: Mapping[str, str],
    data: Callable[[TensorEntry], Iterable[Bytes]],
    progress: Progress | None = None,
) -> None:
    """Write the safetensors file `target`; `data` returns the bytes of an entry as an iterable of pieces.

    Post-conditions: the safetensors library can open the file. At most one piece of one entry is in memory at a time.

    Raises:
        InvalidArguments: a name or a text is not allowed (see `require_names`, `require_texts`), or the header is
            longer than the library can read. No file is written.
        FileError: the file cannot be written.
    """
    ordered = in_file_order(entries)
    header = encode_header(target, ordered, metadata)
    with atomic_write(target) as file:
        file.write(header)
        for entry in ordered:
            write_pieces(file, data(entry), progress)
