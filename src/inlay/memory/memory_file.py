"""Files of one memory: a .npz archive with the bytes of its buffers and its descriptor, which `np.load` opens too.

    memory.npy     JSON: {"inlay": "memory", "version": 1, "desc": the object of `MemoryDesc.to_json`}
    buffer0.npy    the bytes of the buffer, uint8; sparse memory has one such entry for each of its buffers

Entries are not compressed. A file is written under a temporary name and renamed, so a reader never sees a part of it.
Files may be untrusted: nothing is unpickled, the descriptor passes the checks of `MemoryDesc.from_json`, no entry may
be longer than the file, and `Memory` checks that the bytes are those that the descriptor addresses.

Source of the format: NumPy, `numpy.savez` and `numpy.lib.format`; PKWARE, "APPNOTE.TXT".
"""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import FileError, InlayError, InvalidArguments, shown
from inlay.files import atomic_write, file_error, require_file
from inlay.memory.buffers import Bytes, allocate

SUFFIX = ".npz"
"""Suffix of the files."""

VERSION = 1
"""Version of the JSON text."""

_JSON_ENTRY = "memory.npy"

_MOST_BUFFERS = 16
"""Maximum number of buffers in a file: sparse memory has at most one for each of its 12 axes, and its values."""

_MAX_JSON_CHARACTERS = 1 << 20


def write_memory(path: str | Path, desc: MemoryDesc, buffers: Sequence[Bytes], fields: dict[str, Any]) -> None:
    """Write the bytes of the buffers, the descriptor and further fields of the JSON object into a file.

    Raises:
        InvalidArguments: `path` is neither text nor a Path.
        FileError: the suffix of `path` is not .npz, or the file cannot be written.
    """
    target = _require_suffix(path, "write")
    text = {"inlay": "memory", "version": VERSION, "desc": json.loads(desc.to_json()), **fields}
    with atomic_write(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _write_entry(archive, _JSON_ENTRY, np.array(json.dumps(text)))
        for i, buffer in enumerate(buffers):
            _write_entry(archive, f"buffer{i}.npy", buffer)


def _write_entry(archive: zipfile.ZipFile, name: str, array: Any) -> None:
    """Append an array to the archive under a fixed date, so that equal memories give equal files."""
    with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as entry:
        np.lib.format.write_array(entry, array, allow_pickle=False)


def read_memory(path: str | Path) -> tuple[MemoryDesc, list[Bytes], dict[str, Any]]:
    """Return the descriptor, the bytes of each buffer in new memory, and the JSON object of a file.

    Raises:
        InvalidArguments: `path` is neither text nor a Path.
        FileError: the suffix is not .npz, the file is missing, or it is not one that `write_memory` wrote.
        OutOfMemory: the operating system cannot provide the bytes.
    """
    source = _require_suffix(path, "read")
    nbytes = require_file(source)
    try:
        with zipfile.ZipFile(source) as archive:
            fields = _read_json(archive, nbytes)
            count = sum(name.startswith("buffer") for name in archive.namelist())
            buffers = [_read_buffer(archive, f"buffer{i}.npy", nbytes) for i in range(min(count, _MOST_BUFFERS))]
        return MemoryDesc.from_json(json.dumps(fields["desc"])), buffers, fields
    except OSError as error:
        raise file_error("read", source, error) from error
    except (InlayError, zipfile.BadZipFile, ValueError, KeyError, EOFError, NotImplementedError) as error:
        raise FileError(f"cannot read {source}: it is no file of Memory.save, or damaged: {error}") from error


def _require_suffix(name: object, action: str) -> Path:
    """Return the path of a file after checking its suffix."""
    if not isinstance(name, (str, Path)):
        raise InvalidArguments(f"path is {shown(name)}: give the name of a file as text or a Path")
    path = Path(name)
    if path.suffix != SUFFIX:
        raise FileError(f"cannot {action} memory in {shown(str(path))}: use the suffix {SUFFIX}")
    return path


def _open_entry(archive: zipfile.ZipFile, name: str, nbytes: int) -> IO[bytes]:
    """Open an entry of a file of `nbytes` bytes, after checking that it is not compressed and not longer."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > nbytes or info.flag_bits & 1:
        raise ValueError(f"entry {name} is compressed, encrypted or too long")
    return archive.open(info)


def _read_header(entry: IO[bytes]) -> tuple[tuple[int, ...], "np.dtype[Any]"]:
    """Read the header of an array in NumPy's format, and return shape and type."""
    version = np.lib.format.read_magic(entry)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"it has an array of version {version}")
    shape, _, dtype = read[version](entry)
    return shape, dtype


def _read_json(archive: zipfile.ZipFile, nbytes: int) -> dict[str, Any]:
    """Return the JSON object of a file."""
    with _open_entry(archive, _JSON_ENTRY, nbytes) as entry:
        shape, dtype = _read_header(entry)
        if shape or dtype.kind != "U" or not 0 < dtype.itemsize <= 4 * _MAX_JSON_CHARACTERS:
            raise ValueError("its descriptor is no text")
        text = str(np.frombuffer(entry.read(dtype.itemsize), dtype)[0])
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("inlay") != "memory" or fields.get("version") != VERSION:
        raise ValueError(f"its text is not that of a memory of version {VERSION}")
    return fields


def _read_buffer(archive: zipfile.ZipFile, name: str, nbytes: int) -> Bytes:
    """Return the bytes of one buffer in new memory."""
    with _open_entry(archive, name, nbytes) as entry:
        shape, dtype = _read_header(entry)
        if len(shape) != 1 or dtype != np.uint8 or not 0 <= shape[0] <= nbytes:
            raise ValueError(f"entry {name} is no array of bytes")
        buffer = allocate(shape[0])
        begin = 0
        while begin < buffer.size:
            count = entry.readinto(buffer[begin:].data)  # type: ignore[attr-defined]
            if not count:
                raise EOFError(f"entry {name} ends early")
            begin += count
        if entry.read(1):
            raise ValueError(f"entry {name} is too long")
    return buffer
