"""The .npz format: named arrays, each in the .npy format as a member of a zip archive.

    weights.npz
        conv1.weight.npy    local header, header of the array, elements
        conv1.bias.npy      ...
        central directory

Members that are stored are ranges of bytes of the archive. Deflated members (`np.savez_compressed`) are decompressed as
a whole, so each of them has to fit into the memory of a task. Members are written stored, with Zip64.

A zip archive holds the CRC-32 of each member, which is known when all boxes are written. So `NpzTarget.commit` reads
each member once, while the library writes the headers around it.

Source: NEP 1; APPNOTE.TXT of PKWARE, 4.3.7.
"""

import io
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Any

import numpy as np

from inlay.errors import FileError, InvalidArguments, printable
from inlay.files import file_error
from inlay.memory.buffers import Bytes, allocate
from inlay.storage.file_store import FileStore, WholeTensor, version_of
from inlay.storage.file_target import FileTarget, TargetFile
from inlay.storage.locations import LONG_RANGE, SourcePath, read_errors, require_source
from inlay.storage.npy import ArrayHeader, array_type, encode_array_header, read_array_header
from inlay.storage.store import StoredTensor
from inlay.storage.target import NewTensor, TargetTensor

_LOCAL_HEADER = Struct("<4s22xHH")
"""Local header of a member: signature, ..., size of the name, size of the extra field."""

_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)
"""Exceptions of damaged, encrypted and unsupported archives."""

_PIECE = LONG_RANGE
"""Bytes of a member that are read at once."""

_MAX_HEADER_NBYTES = 1 << 17
"""Most bytes of the header of an array; a compressed member may state any size."""

_MEMBER_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of all members, so that the same tensors always result in the same file."""


@dataclass(frozen=True, slots=True)
class DeflatedMember:
    """A compressed member of an archive, whose elements are read as a whole."""

    path: SourcePath
    """The archive."""
    member: str
    """Name of the member."""
    begin: int
    """Size of the header of the array, in bytes."""
    nbytes: int
    """Size of the elements, in bytes."""

    def read(self) -> Bytes:
        """Decompress the elements.

        Raises:
            FileError: the archive cannot be read, or the checksum of the member is wrong.
        """
        try:
            with read_errors(self.path), self.path.open("rb", _PIECE) as file, zipfile.ZipFile(file) as archive:
                data, is_whole = self._read_elements(archive)
        except (*_ARCHIVE_ERRORS, KeyError) as error:
            raise _damaged(self.path, str(error)) from error
        if not is_whole:
            raise _damaged(self.path, f"member {printable(self.member)} has another size than its header states")
        return data

    def _read_elements(self, archive: zipfile.ZipFile) -> tuple[Bytes, bool]:
        """Return the elements, and True if the member has exactly as many."""
        data, done = allocate(self.nbytes), 0
        with archive.open(self.member) as stream:
            stream.read(self.begin)
            while done < self.nbytes and (piece := stream.read(min(_PIECE, self.nbytes - done))):
                data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
            return data, done == self.nbytes and not stream.read(1)  # at the end the checksum is compared


def _damaged(path: SourcePath, reason: str) -> FileError:
    return FileError(f"cannot read {path}: the archive is damaged ({printable(reason)}); copy it again from its source")


def open_npz(path: SourcePath) -> FileStore:
    """Open the .npz file `path` as a store; the directory of the archive and the headers of the arrays are read.

    Raises:
        FileError: the file is missing, truncated or no .npz file, two members have the same name, or an array holds
            Python objects.
    """
    size, version = require_source(path), version_of(path)
    tensors, whole = list[StoredTensor](), dict[str, WholeTensor]()
    try:
        with read_errors(path), path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            for info, begin in zip(members, member_begins(file, members), strict=True):
                header = _read_member_header(path, archive, info)
                if begin + info.compress_size > size:
                    raise zipfile.BadZipFile(f"member {info.filename} reaches beyond the end")
                name = info.filename.removesuffix(".npy")
                if info.compress_type == zipfile.ZIP_STORED:
                    tensors.append(header.tensor(name, begin))
                else:
                    whole[name] = DeflatedMember(path, info.filename, header.begin, header.nbytes)
                    tensors.append(_compressed(header, name, begin))
    except _ARCHIVE_ERRORS as error:
        raise _damaged(path, str(error)) from error
    names = [tensor.name for tensor in tensors]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileError(f"cannot read {path}: two members are named {printable(twice)}; save the arrays again")
    return FileStore(path, tuple(tensors), {}, (version,), whole)


def _read_member_header(path: SourcePath, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> ArrayHeader:
    """Return the header of the array in a member."""
    label = f"{path}, member {printable(info.filename)}"
    if info.flag_bits & 1:
        raise FileError(f"cannot read {label}: it is encrypted; save the arrays without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileError(f"cannot read {label}: it is compressed by another method than NumPy's; save the arrays again")
    with archive.open(info) as stream:
        header = read_array_header(label, io.BytesIO(stream.read(_MAX_HEADER_NBYTES)))
    if header.begin + header.nbytes != info.file_size:
        raise FileError(
            f"cannot read {label}: its header needs {header.begin + header.nbytes} bytes and it has {info.file_size}; "
            "save the arrays again"
        )
    return header


def member_begins(file: IO[bytes], members: Sequence[zipfile.ZipInfo]) -> list[int]:
    """Return the offset of the bytes of each member; a local header may have another size than the directory states.

    Raises:
        BadZipFile: a member has no local header.
    """
    begins = []
    for info in members:
        file.seek(info.header_offset)
        local = file.read(_LOCAL_HEADER.size)
        if len(local) < _LOCAL_HEADER.size or not local.startswith(b"PK\3\4"):
            raise zipfile.BadZipFile(f"no local header of member {info.filename}")
        _, name_nbytes, extra_nbytes = _LOCAL_HEADER.unpack(local)
        begins.append(int(info.header_offset + _LOCAL_HEADER.size + name_nbytes + extra_nbytes))
    return begins


def _compressed(header: ArrayHeader, name: str, begin: int) -> StoredTensor:
    """Return the tensor of a compressed member, which is one chunk."""
    stored = header.tensor(name)
    fields = (name, stored.stored_type, stored.shape, begin, stored.nbytes, stored.desc, stored.refusal)
    return StoredTensor(*fields, chunks=stored.shape, data_type=stored.data_type)


# Targets


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A member of an archive to write."""

    name: str
    """Name of the member."""
    header: bytes
    """Header of the array."""
    nbytes: int
    """Size of the elements, in bytes."""

    @property
    def info(self) -> zipfile.ZipInfo:
        """Entry of the archive, with Zip64 sizes."""
        info = zipfile.ZipInfo(self.name, _MEMBER_DATE)
        info.external_attr = 0o600 << 16
        info.CRC, info.file_size = 0, len(self.header) + self.nbytes
        return info


@dataclass(frozen=True, slots=True)
class NpzTarget(FileTarget):
    """A `Target` whose tensors are stored members of a zip archive."""

    members: tuple[ArchiveMember, ...] = ()
    """All members, in the order of their bytes."""

    def is_whole(self, token: str) -> bool:
        """Return True if the file still exists with all members; `commit` makes it longer."""
        try:
            return all(file.partial(token).stat().st_size >= file.nbytes for file in self.files)
        except OSError:
            return False

    def commit(self, token: str, *, again: bool = False) -> None:
        """Write checksums and directory of the archive, write the file to disk, and give it its final name.

        Raises:
            FileError: the file cannot be written or renamed.
        """
        if again and self._is_renamed(self.files[0], token):
            return
        try:
            with self.files[0].partial(token).open("r+b") as file:
                file.truncate(self.files[0].nbytes)  # a commit that was interrupted may have added a directory
                _write_headers(file, self.members)
        except OSError as error:
            raise file_error("write", self.files[0].path, error) from error
        self.sync(token)
        FileTarget.commit(self, token)

    def _is_renamed(self, file: TargetFile, token: str) -> bool:
        """Return True if an interrupted commit has given a file its final name; the directory makes it longer."""
        return not file.partial(token).exists() and file.path.exists()


def _write_headers(file: IO[bytes], members: Sequence[ArchiveMember]) -> None:
    """Write everything of an archive that is not an element; the elements are in the file already."""
    sink = _HeaderSink(file)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for member in members:
            with archive.open(member.info, "w", force_zip64=True) as stream:
                stream.write(member.header)
                sink.is_writing_elements = True
                for begin in range(0, member.nbytes, _PIECE):
                    stream.write(sink.peek(min(_PIECE, member.nbytes - begin)))
                sink.is_writing_elements = False


class _HeaderSink(io.RawIOBase):
    """A file to which the zip library writes an archive; elements, which the file has already, are passed over."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.is_writing_elements = False
        """True while what is written are elements, read by `peek`."""

    def peek(self, nbytes: int) -> bytes:
        """Return the next bytes of the file."""
        position = self._file.tell()
        data = self._file.read(nbytes)
        self._file.seek(position)
        if len(data) < nbytes:
            raise OSError("the file became shorter while it was being written")
        return data

    def write(self, data: Any) -> int:
        """Write `data`, or pass over as many bytes."""
        if self.is_writing_elements:
            self._file.seek(len(data), os.SEEK_CUR)
        else:
            self._file.write(data)
        return len(data)

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position, and return it."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._file.tell()

    def flush(self) -> None:
        """Write buffered bytes."""
        self._file.flush()


def npz_target(path: Path, tensors: Sequence[NewTensor], metadata: Mapping[str, str]) -> NpzTarget:
    """Return the target of a .npz file: named row-major tensors, without metadata.

    Raises:
        FileError: a tensor is not row-major, or the format has no name for its type.
        InvalidArguments: a name is empty, ends with `.npy`, holds a character that archives change, or is too long.
    """
    placed, members, begin = dict[str, TargetTensor](), list[ArchiveMember](), 0
    for tensor in tensors:
        _require_member_name(path, tensor.name)
        dtype, shape = array_type(path, tensor)
        member = ArchiveMember(f"{tensor.name}.npy", encode_array_header(dtype, shape), tensor.nbytes)
        members.append(member)
        begin += len(member.info.FileHeader(zip64=True)) + len(member.header)
        placed[tensor.name] = TargetTensor(tensor.name, tensor.bytes_desc, tensor.nbytes, begin)
        begin += tensor.nbytes
    return NpzTarget(path, placed, (TargetFile(path, begin, b""),), tuple(members))


def _require_member_name(path: Path, name: str) -> None:
    """Check that NumPy finds the array by this name."""
    reason = ""
    if not name or name.endswith(".npy"):
        reason = "NumPy adds the suffix .npy to names, and removes it"
    elif "\0" in name or (os.sep != "/" and os.sep in name):
        reason = "an archive changes this name"
    elif len(name.encode("utf-8", "replace")) > 60_000:
        reason = "it is too long"
    if reason:
        raise InvalidArguments(f"{path} cannot hold a tensor named {printable(name[:80])!r}: {reason}; rename it")
