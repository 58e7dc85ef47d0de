"""Descriptors as bytes: the canonical JSON behind a header, so equal descriptors have equal bytes.

    bytes    what
    0..7     89 49 4e 4c 41 59 0d 0a: 0x89, INLAY, and a line end that transfers as text would damage
    8..9     version, 1
    10..13   length of what follows the header
    14..29   BLAKE2b, 16 bytes, of all bytes but these
    30..     JSON, ASCII

Numbers are little-endian. Equality leaves strides of unpadded unit axes and blocks of one element out of account, so
here the former are 1 and the latter dropped; everything else is as `json_form` writes it.

A blob may come from anywhere: it is bounded in length, its checksum must hold, it must say a descriptor, and the blob
of that descriptor must be the very bytes that were read. The checksum finds accidents; malice is found by the checks
behind it.
"""

import hashlib
import struct
from typing import NoReturn

from inlay.data_type import DataType
from inlay.descriptor.creation import digits_of
from inlay.descriptor.described import Described
from inlay.descriptor.json_form import MAX_CHARACTERS, json_of, parts_of_json
from inlay.descriptor.parts import Parts
from inlay.descriptor.validation import require_nested
from inlay.errors import InvalidArguments
from inlay.layout import RUNTIME, Axis, Layout

MAGIC = b"\x89INLAY\r\n"
"""What a blob starts with."""

VERSION = 1
"""The version that is written, and the only one that is read."""

_HEADER = struct.Struct("<8sHI16s")
_PREFIX = struct.Struct("<8sHI")


def blob_of(desc: Described) -> bytes:
    """The bytes of a descriptor.

    Post-condition: equal descriptors have the same bytes.

    Raises:
        InvalidArguments: as `json_of`.
    """
    body = json_of(canonical(desc)).encode("ascii")
    prefix = _PREFIX.pack(MAGIC, VERSION, len(body))
    return prefix + _checksum(prefix, body) + body


def _checksum(prefix: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(prefix + body, digest_size=16).digest()


def canonical(desc: Described) -> Described:
    """The one spelling of all descriptors that are equal to `desc`.

    >>> from inlay.data_type import DATA_TYPES
    >>> layout = Layout.from_strides((4, 1), (1, 9))
    >>> canonical(Parts((4, 1), DATA_TYPES["f32"], layout)).layout == Layout.from_strides((4, 1), (1, 1))
    True
    """
    layout, data_type = desc.layout, desc.data_type
    if not isinstance(layout, Layout) or data_type is None:
        return desc
    blocks = desc._blocks
    inner = digits_of(blocks, layout.ndims) if blocks is not None else [axis.inner for axis in layout.axes]
    unit = [dim == padded == 1 for dim, padded in zip(desc.dims, layout.dims, strict=True)]

    def spelled(stride: int) -> Layout:
        steps = [stride if is_unit else axis.stride for is_unit, axis in zip(unit, layout.axes, strict=True)]
        return Layout(layout.dims, tuple(map(Axis, steps, inner)))

    one = spelled(1)
    # A RUNTIME stride of a unit axis exempts all others from the rules, so it may be needed.
    chosen = one if blocks is None or _nests(one, data_type) else spelled(RUNTIME)
    return Parts(desc.dims, data_type, chosen, desc.offset0, desc.extras)


def _nests(layout: Layout, data_type: DataType) -> bool:
    try:
        require_nested(layout, data_type, whole_bytes=False)
    except InvalidArguments:
        return False
    return True


def parts_of_blob(data: bytes) -> Parts:
    """The parts that the bytes say, not yet checked against one another.

    Raises:
        InvalidArguments: `data` is no blob of this form, or not the canonical one.
    """
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        _refuse("they do not start as one; a blob of oneDNN is read by MemoryDesc.from_onednn and the library it is of")
    if len(data) < _HEADER.size:
        _refuse(f"they end after {len(data)} bytes, inside the header of {_HEADER.size}")
    _, version, length, checksum = _HEADER.unpack_from(data)
    if version != VERSION:
        _refuse(f"their version is {version}: this Inlay reads {VERSION}; use the Inlay that wrote them")
    body = data[_HEADER.size :]
    if length != len(body):
        _refuse(f"{len(body)} bytes follow the header, which says {length}")
    if checksum != _checksum(data[: _PREFIX.size], body):
        _refuse("their checksum does not hold: some were changed")
    # ASCII is a subset of Latin-1, which reads any byte; what is no ASCII is no canonical text.
    return parts_of_json(body.decode("latin-1"))


def require_canonical(desc: Described, data: bytes) -> None:
    """Refuse bytes that are not those of the descriptor that they say.

    Raises:
        InvalidArguments: `blob_of` gives other bytes.
    """
    if blob_of(desc) != data:
        _refuse("their spelling is not the canonical one: to_blob did not write them")


def bytes_of_blob(blob: object) -> bytes:
    """The bytes of a blob, whatever holds them.

    Raises:
        InvalidArguments: `blob` holds no bytes, or more than any blob has.

    >>> bytes_of_blob([97, 98]), bytes_of_blob(memoryview(b"abcd")[::2])
    (b'ab', b'ac')
    """
    if isinstance(blob, (list, tuple)):
        _require_length(len(blob))
        if not all(type(byte) is int and 0 <= byte < 256 for byte in blob):
            _refuse("it is a sequence with entries other than the integers 0 to 255")
        return bytes(blob)
    try:
        view = memoryview(blob)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        _refuse(f"it is a {type(blob).__name__}: give the bytes that to_blob wrote")
    if view.itemsize != 1 or view.format not in ("B", "b", "c"):
        _refuse(f"it is a {type(blob).__name__} of elements of format {view.format}: give its bytes")
    _require_length(view.nbytes)
    return view.tobytes()


def _require_length(count: int) -> None:
    if count > _HEADER.size + MAX_CHARACTERS:
        _refuse(f"they are {count}: at most {_HEADER.size + MAX_CHARACTERS} are read")


def _refuse(problem: str) -> NoReturn:
    raise InvalidArguments(f"these bytes are no descriptor: {problem}")
