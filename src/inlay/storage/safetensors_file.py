"""The safetensors store: named tensors, their types and shapes, and texts beside them.

    8 bytes   length of the header, little-endian
    header    JSON: name -> type, shape, first and last byte; "__metadata__" -> texts
    data      the tensors, one after the other without holes

The library checks the whole header when it opens a file: JSON, types, shapes against bytes, no holes, no overlap, and
the length of the file. It does not say where the bytes lie, so the header is read a second time here for the offsets.
It can only write tensors that are all in memory at once, so the writer here streams instead: one tensor at a time. The
data starts on a 64-byte boundary, and the tensors whose length is a multiple of 64 bytes come first, so these keep it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inlay.errors import FileError, InvalidArguments
from inlay.files import Progress, file_error, replacing, require_file, write_pieces
from inlay.layout import Dims
from inlay.memory.buffers import Bytes

ALIGNMENT = 64
"""Bytes: the boundary on which the data of a file begins."""

TYPE_BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "C64": 64}
TYPE_BITS |= {"F32": 32, "I32": 32, "U32": 32, "F64": 64, "I64": 64, "U64": 64}
"""Bits of an element by the library's name of its type; 8 where not listed."""


_TEXTS = "__metadata__"
"""The name in the header under which the format keeps texts."""

_LONGEST_HEADER = 100_000_000
"""Bytes: what the safetensors library reads at most, its `MAX_HEADER_SIZE`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor as the header states it."""

    name: str
    """Its name."""
    stored_type: str
    """The library's name of its type, such as `BF16`."""
    shape: Dims
    """Its shape, in elements."""
    nbytes: int
    """Its length in bytes."""
    begin: int = 0
    """Where its bytes begin, counted from the start of the file; not used when writing."""


def read_header(path: Path) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """Every tensor of the safetensors file `path` in the order of the bytes, and the texts beside them.

    Raises:
        FileError: the file is missing, truncated, or no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    size = require_file(path)
    try:
        with safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except OSError as error:
        raise file_error("read", path, error) from error
    except (SafetensorError, ValueError) as error:
        raise FileError(
            f"cannot read {path}: it is truncated or not a safetensors file; copy it again from its source"
        ) from error
    metadata = header.pop(_TEXTS, None) or {}
    entries = sorted((_entry(name, item, 8 + length) for name, item in header.items()), key=lambda e: (e.begin, e.name))
    if any(e.nbytes < 0 or e.begin + e.nbytes > size for e in entries):
        raise FileError(f"cannot read {path}: it changed while it was being opened; try again")
    return tuple(entries), metadata


def _entry(name: str, item: Mapping[str, Any], data_begin: int) -> Entry:
    begin, end = item["data_offsets"]
    return Entry(name, item["dtype"], tuple(item["shape"]), end - begin, data_begin + begin)


def in_file_order(entries: Iterable[Entry]) -> list[Entry]:
    """`entries` in the order in which they are written: each begins on a boundary of its own element size.

    Multiples of 64 bytes come first and stay on 64-byte boundaries; then wide elements before narrow ones; then
    by name, so that the same tensors always give the same file.
    """
    return sorted(entries, key=lambda e: (e.nbytes % ALIGNMENT != 0, -TYPE_BITS.get(e.stored_type, 8), e.name))


def require_names(names: Iterable[object]) -> None:
    """Refuse names of tensors under which a file could not be read again.

    Raises:
        InvalidArguments: one is no text, no Unicode, or the name under which the format keeps texts.
    """
    for name in names:
        _require_text("the name of a tensor", name)
        if name == _TEXTS:
            raise InvalidArguments(f"a tensor cannot be named {_TEXTS}: the format keeps texts there; rename it")


def require_texts(metadata: Mapping[Any, object]) -> None:
    """Refuse texts beside tensors that a file could not keep.

    Raises:
        InvalidArguments: a key or a value is no text, or no Unicode.
    """
    for key, value in metadata.items():
        _require_text("a key of the metadata", key)
        _require_text(f"metadata[{key!r}]", value)


def _require_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidArguments(f"{what} is {value!r}: a safetensors file keeps texts, give a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArguments(f"{what} is {value!r}, which is no Unicode text: rename it") from None


def write_safetensors(
    target: Path,
    entries: Iterable[Entry],
    metadata: Mapping[str, str],
    data: Callable[[Entry], Iterable[Bytes]],
    progress: Progress | None = None,
) -> None:
    """Write the safetensors file `target`, asking `data` for the pieces of one entry after the other.

    Post-conditions: the safetensors library opens the file. At any time at most one piece of one entry is held here.

    Raises:
        InvalidArguments: a name or a text cannot be kept (see `require_names`, `require_texts`), or all together are
            longer than the library reads; nothing is written.
        FileError: the file cannot be written.
    """
    ordered = in_file_order(entries)
    require_names(entry.name for entry in ordered)
    require_texts(metadata)
    header = _header(ordered, metadata)
    if len(header) > _LONGEST_HEADER:
        raise InvalidArguments(
            f"names and texts of {target} take {len(header)} bytes, and the safetensors library reads "
            f"{_LONGEST_HEADER}: write several files, or leave out metadata"
        )
    with replacing(target) as file:
        file.write(header)
        for entry in ordered:
            write_pieces(file, data(entry), progress)


def _header(ordered: Iterable[Entry], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {_TEXTS: dict(metadata)} if metadata else {}
    begin = 0
    for entry in ordered:
        offsets = [begin, begin + entry.nbytes]
        header[entry.name] = {"dtype": entry.stored_type, "shape": list(entry.shape), "data_offsets": offsets}
        begin += entry.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
