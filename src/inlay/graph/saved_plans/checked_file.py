"""Sections of bytes in one safetensors file with a checksum: written atomically, read by a memory map.

Each section is a tensor of type `U8`, filled up to a multiple of 64 bytes. So all sections lie side by side, as the
format requires, and each begins at a multiple of 64 bytes of the file, as kernels require of their weights. The
metadata are texts:

    inlay       "plan"
    version     version of what the sections hold
    checksum    64 hexadecimal digits

The checksum is SHA-256 of the header with zeros in place of the checksum, followed by the CRC-32 of each piece of 32
MiB of the data, as 4 bytes, little-endian. Pieces are checked on other threads. It detects damage, not malice:
whoever writes a file can compute it. So all that the sections hold is checked as well (`validation`).

A header is accepted only if it is the one that this module writes for its entries; then no byte of the file is without
meaning, and the safetensors library opens the file too.

Source: https://huggingface.co/docs/safetensors, "Format"; FIPS 180-4; ISO 3309.
"""

import json
import mmap
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn
from zlib import crc32

import numpy as np

from inlay.errors import FileError, printable, shown
from inlay.files import atomic_write, file_error, require_file, write_bytes
from inlay.memory.buffers import Bytes
from inlay.safetensors_header import ALIGNMENT, TensorEntry, build_header, in_file_order

VERSION = "3"
"""Version of saved plans that is written, and the only one that is read."""

MAX_HEADER_BYTES = 1 << 24
"""Limit of the size of the header, in bytes."""

_MAGIC = b'{"__metadata__":{"inlay":"plan",'
_METADATA = ("inlay", "version", "checksum")
_NO_CHECKSUM = "0" * 64
_PIECE = 1 << 25  # after each piece, a thread that checks waits for the lock of Python
_MOST_THREADS = 4


def is_saved_plan(path: Path) -> bool:
    """Return whether a file begins as a saved plan does; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(8 + len(_MAGIC))[8:] == _MAGIC
    except (OSError, ValueError):
        return False


def write_sections(target: Path, sections: Mapping[str, Bytes]) -> None:
    """Write a file with these sections.

    Raises:
        FileError: the file cannot be written.
    """
    entries = [TensorEntry(name, "U8", (size,), size) for name, size in _padded_sizes(sections)]
    ordered = in_file_order(entries)
    pieces = [piece for entry in ordered for piece in _padded_pieces(sections[entry.name])]
    blank = build_header(ordered, _metadata(_NO_CHECKSUM))
    checksum = _combine(blank, _sum_stream(pieces))
    with atomic_write(target) as file:
        file.write(build_header(ordered, _metadata(checksum)))
        for piece in pieces:
            write_bytes(file, piece)


def _padded_sizes(sections: Mapping[str, Bytes]) -> Iterable[tuple[str, int]]:
    """Return the names of sections with their sizes in the file."""
    return ((name, -(-data.size // ALIGNMENT) * ALIGNMENT) for name, data in sections.items())


def _padded_pieces(data: Bytes) -> list[Bytes]:
    """Return the bytes of a section in the file: the data, then zeros."""
    return [data, np.zeros(-data.size % ALIGNMENT, np.uint8)]


def _metadata(checksum: str) -> dict[str, str]:
    return {"inlay": "plan", "version": VERSION, "checksum": checksum}


def _sum_stream(parts: Iterable[Bytes]) -> list[int]:
    """Return the CRC of each piece of `_PIECE` bytes of data that is given in parts of any size."""
    sums, current, room = [], 0, _PIECE
    for data in parts:
        at = 0
        while at < data.size:
            part = data[at : at + room]
            current = crc32(part.data, current)
            at, room = at + part.size, room - part.size
            if not room:
                sums.append(current)
                current, room = 0, _PIECE
    return sums if room == _PIECE else [*sums, current]


def _begin_sums(data: memoryview) -> Callable[[], list[int]]:
    """Begin to compute the CRC of each piece of `_PIECE` bytes on other threads; return a function that waits."""
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    threads = max(1, min(_MOST_THREADS, len(pieces), (os.cpu_count() or 1) - 1))  # one processor is the caller's
    sums = [0] * len(pieces)

    def compute(first: int) -> None:
        sums[first::threads] = map(crc32, pieces[first::threads])

    workers = [Thread(target=compute, args=(first,), name=f"inlay-crc-{first}") for first in range(threads)]
    for worker in workers:
        worker.start()

    def wait() -> list[int]:
        for worker in workers:
            worker.join()
        return sums

    return wait


def _combine(blank: bytes, sums: Iterable[int]) -> str:
    """Return the checksum of a file from its header without checksum, and the CRCs of its data."""
    return sha256(blank + b"".join(one.to_bytes(4, "little") for one in sums)).hexdigest()


@dataclass(frozen=True, slots=True)
class MappedSections:
    """The sections of a file whose bytes are being checked."""

    sections: dict[str, Bytes]
    """Read-only arrays that share the pages of the file with other processes, by name."""
    require_intact: Callable[[], None]
    """Waits for the check, and raises FileError if the checksum is wrong."""


def map_sections(path: Path) -> dict[str, Bytes]:
    """Return the sections of a file, as `begin_sections`, once all of its bytes are checked.

    Raises:
        FileError: as `begin_sections`, or the file was changed.
    """
    mapped = begin_sections(path)
    mapped.require_intact()
    return mapped.sections


def begin_sections(path: Path) -> MappedSections:
    """Map the sections of a file, and begin to check its bytes on other threads.

    Raises:
        FileError: the file cannot be read, is no saved plan, is of another version, or its header was changed.
    """
    data = _map_file(path)
    if data[8 : 8 + len(_MAGIC)] != _MAGIC:
        raise FileError(
            f"{printable(str(path))} is no saved plan: give a file that Plan.save or `inlay plan -o` wrote; "
            "inlay.load reads ONNX models"
        )
    length = 8 + int.from_bytes(data[:8], "little")
    if length > min(len(data), 8 + MAX_HEADER_BYTES):
        _refuse(path, "its header is cut short or too long")
    entries, checksum = _parse_header(path, bytes(data[8:length]))
    if not _is_canonical(bytes(data[:length]), entries, checksum):
        _refuse(path, "its header is not one that Inlay writes")
    if length + sum(entry.nbytes for entry in entries) != len(data):
        _refuse(path, "its length is not that of its sections")
    sums, blank = _begin_sums(data[length:]), build_header(entries, _metadata(_NO_CHECKSUM))

    def require_intact() -> None:
        if checksum != _combine(blank, sums()):
            _refuse(path, "its checksum is wrong")

    array, sections, begin = np.frombuffer(data, np.uint8), {}, length
    for entry in entries:
        sections[entry.name] = array[begin : begin + entry.nbytes]
        begin += entry.nbytes
    return MappedSections(sections, require_intact)


def _map_file(path: Path) -> memoryview:
    """Return the bytes of a file as a read-only map."""
    size = require_file(path)
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
    except OSError as error:
        raise file_error("read", path, error) from error
    except ValueError:  # the file became empty
        return memoryview(b"")


def _is_canonical(header: bytes, entries: list[TensorEntry], checksum: str) -> bool:
    """Return whether a header is the one that is written for its entries."""
    try:
        return header == build_header(entries, _metadata(checksum))
    except UnicodeEncodeError:  # half of a surrogate pair in a name
        return False


def _parse_header(path: Path, text: bytes) -> tuple[list[TensorEntry], str]:
    """Return the entries of a header in their order, and the checksum; what they lack the caller notices."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        _refuse(path, "its header is no JSON")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or tuple(metadata) != _METADATA:
        _refuse(path, "its metadata are not those of a saved plan")
    if metadata["version"] != VERSION:
        raise FileError(
            f"{printable(str(path))} has version {shown(metadata['version'], most=20)} of saved plans, and this Inlay "
            f"reads {VERSION}: save the plan with this Inlay, or use the one that wrote it"
        )
    checksum = metadata["checksum"]
    if not isinstance(checksum, str) or len(checksum) != len(_NO_CHECKSUM):
        _refuse(path, "its checksum is no SHA-256")
    return [_parse_entry(path, name, item) for name, item in header.items()], checksum


def _parse_entry(path: Path, name: str, item: Any) -> TensorEntry:
    """Return the entry of a section."""
    shape = item.get("shape") if isinstance(item, dict) else None
    size = shape[0] if isinstance(shape, list) and len(shape) == 1 else None
    if type(size) is not int or not 0 <= size < 1 << 62 or size % ALIGNMENT:
        _refuse(path, f"its section {shown(name, most=40)} is no range of bytes")
    return TensorEntry(name, "U8", (size,), size)


def _refuse(path: Path, problem: str) -> NoReturn:
    """Raise the error for a damaged file."""
    raise FileError(f"{printable(str(path))} is damaged, {problem}: copy it again, or save the plan again")
