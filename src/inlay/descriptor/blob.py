"""Descriptors as bytes (blobs): encoding, parsing, and the canonical form of equal descriptors.

A blob is the canonical JSON of a descriptor behind a header, so equal descriptors have equal bytes:

    bytes    content
    0..7     89 49 4e 4c 41 59 0d 0a: 0x89, INLAY, and a line end that transfers as text would damage
    8..9     version, 1
    10..13   length of what follows the header
    14..29   BLAKE2b, 16 bytes, of all bytes but these
    30..     JSON, ASCII

Numbers are little-endian. Equality ignores strides of unpadded unit axes and blocks of one element, so in a blob the
former are 1 and the latter are dropped. When a blob is parsed, its length is bounded, its checksum must be right, its
content must be a valid descriptor, and the blob of this descriptor must have the same bytes. The checksum detects
accidental changes; the other checks also detect malicious ones.
"""

import hashlib
import struct
from typing import NoReturn

from inlay.data_type import DataType
from inlay.descriptor.creation import inner_digits_of
from inlay.descriptor.fields import DescriptorFields, kind
from inlay.descriptor.serialization import MAX_CHARACTERS, DescriptorParts, encode_json, parse_json
from inlay.descriptor.validation import require_nested
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import RUNTIME, Axis, Layout

MAGIC = b"\x89INLAY\r\n"
"""First bytes of a blob."""

VERSION = 1
"""Version of blobs that is written, and the only one that is parsed."""

_HEADER = struct.Struct("<8sHI16s")
"""Header of a blob: magic number, version, length of the body, checksum."""

_PREFIX = struct.Struct("<8sHI")
"""Header without the checksum, which covers these fields and the body."""


def encode_blob(desc: DescriptorFields) -> bytes:
    """Return the blob of a descriptor.

    Post-condition: equal descriptors have the same blob.

    Raises:
        InvalidArguments: as `encode_json`.
        Unimplemented: the layout is swizzled.
    """
    if kind(desc) == "swizzled":
        raise Unimplemented(f"a blob holds digits, and a swizzle is none: {desc!r}; to_json keeps it")
    body = encode_json(canonical_parts(desc)).encode("ascii")
    prefix = _PREFIX.pack(MAGIC, VERSION, len(body))
    return prefix + _checksum(prefix, body) + body


def _checksum(prefix: bytes, body: bytes) -> bytes:
    """Return the checksum of a blob."""
    return hashlib.blake2b(prefix + body, digest_size=16).digest()


def canonical_parts(desc: DescriptorFields) -> DescriptorFields:
    """Return the canonical representative of all descriptors that are equal to `desc`.

    Strides of unpadded unit axes are 1 (RUNTIME if the other strides are valid only then), and blocks of one element
    are dropped.

    >>> from inlay.data_type import DATA_TYPES
    >>> layout = Layout.from_strides((4, 1), (1, 9))
    >>> canonical_parts(DescriptorParts((4, 1), DATA_TYPES["f32"], layout)).layout.strides
    (1, 1)
    """
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None:
        return desc
    blocks = desc._blocks
    inner = inner_digits_of(blocks, layout.ndims) if blocks is not None else [axis.inner for axis in layout.axes]
    unit = [dim == padded == 1 for dim, padded in zip(desc.dims, layout.dims, strict=True)]

    def with_unit_stride(stride: int) -> Layout:
        steps = [stride if is_unit else axis.stride for is_unit, axis in zip(unit, layout.axes, strict=True)]
        return Layout(layout.dims, tuple(map(Axis, steps, inner)))

    canonical = with_unit_stride(1)
    # A RUNTIME stride exempts all strides from the checks, so a valid descriptor may depend on that of a unit axis.
    if blocks is not None and not _is_nested(canonical, data_type):
        canonical = with_unit_stride(RUNTIME)
    return DescriptorParts(desc.dims, data_type, canonical, desc.offset0, desc.extras)


def _is_nested(layout: Layout, data_type: DataType) -> bool:
    """Return True if `require_nested` accepts the layout."""
    try:
        require_nested(layout, data_type, whole_bytes=False)
    except InvalidArguments:
        return False
    return True


def parse_blob(data: bytes) -> DescriptorParts:
    """Parse a blob into parts of the right types, which are not yet validated together.

    Raises:
        InvalidArguments: header or checksum are wrong, or as `parse_json`.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        _refuse_blob(
            "they do not start as one; a blob of oneDNN is read by MemoryDesc.from_onednn and the library it is of"
        )
    if len(data) < _HEADER.size:
        _refuse_blob(f"they end after {len(data)} bytes, inside the header of {_HEADER.size}")
    _, version, length, checksum = _HEADER.unpack_from(data)
    if version != VERSION:
        _refuse_blob(f"their version is {version}: this Inlay reads {VERSION}; use the Inlay that wrote them")
    body = data[_HEADER.size :]
    if length != len(body):
        _refuse_blob(f"{len(body)} bytes follow the header, which says {length}")
    if checksum != _checksum(data[: _PREFIX.size], body):
        _refuse_blob("their checksum does not hold: some were changed")
    # Latin-1 decodes any byte, and ASCII is a part of it. `require_canonical` rejects other texts later.
    return parse_json(body.decode("latin-1"))


def require_canonical(desc: DescriptorFields, data: bytes) -> None:
    """Check that `data` is the blob of the descriptor that was parsed from it.

    Raises:
        InvalidArguments: `encode_blob` returns other bytes.
    """
    if encode_blob(desc) != data:
        _refuse_blob("their spelling is not the canonical one: to_blob did not write them")


def as_blob_bytes(blob: object) -> bytes:
    """Return the bytes of a blob in a buffer or a sequence of integers.

    Raises:
        InvalidArguments: `blob` is neither, or is longer than any blob.

    >>> as_blob_bytes([97, 98]), as_blob_bytes(memoryview(b"abcd")[::2])
    (b'ab', b'ac')
    """
    if isinstance(blob, (list, tuple)):
        _require_length(len(blob))
        if not all(type(byte) is int and 0 <= byte < 256 for byte in blob):
            _refuse_blob("it is a sequence with entries other than the integers 0 to 255")
        return bytes(blob)
    try:
        view = memoryview(blob)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        _refuse_blob(f"it is a {type(blob).__name__}: give the bytes that to_blob wrote")
    if view.itemsize != 1 or view.format not in ("B", "b", "c"):
        _refuse_blob(f"it is a {type(blob).__name__} of elements of format {view.format}: give its bytes")
    _require_length(view.nbytes)
    return view.tobytes()


def _require_length(count: int) -> None:
    """Check that a blob of `count` bytes is not too long."""
    if count > _HEADER.size + MAX_CHARACTERS:
        _refuse_blob(f"they are {count}: at most {_HEADER.size + MAX_CHARACTERS} are read")


def _refuse_blob(problem: str) -> NoReturn:
    """Raise the error for bytes that are not a blob."""
    raise InvalidArguments(f"these bytes are no descriptor: {problem}")
