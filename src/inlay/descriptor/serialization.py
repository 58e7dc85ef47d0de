"""Descriptors as JSON and as bytes, and the one check of what comes from outside.

A text, some bytes, or another library's object may say anything. What they say is read into `Parts`, and `checked`
refuses what no constructor and no view could have made, whatever its source:

    dims (2, 17)   padded_dims (2, 24)   strides (24, 8)   one block of 8          a descriptor
    dims (2, 17)   padded_dims (2, 16)   ...                                       refused: 16 < 17
    dims (4, 4)    strides (3, 1), as blocks of oneDNN                             refused: elements share offsets

**JSON** is one object, whose form has a version and is read strictly:

    {"inlay": "memory_desc", "version": 2, "kind": "blocked", "dims": [2, 17], "data_type": "f32",
     "padded_dims": [2, 24], "strides": [24, 8], "inner_digits": [[], [[8, 1]]], "offset0": 0, "format": "nC8c"}

Every object has `inlay`, `version` and `kind`; the other keys depend on the kind, and no others are read:

    kind             keys
    undef            -
    any              dims, data_type
    blocked, digits  dims, data_type, padded_dims, strides, inner_digits, offset0; extras where there are any;
                     format, in version 2, where the descriptor was made of a tag in other letters than its own
    opaque           dims, data_type, name, nbytes
    sparse           dims, data_type, encoding, nnz; index_type for csr and coo, pointer_type for csr, tag for packed
                     where one is chosen
    host_scalar      data_type

    dims, padded_dims, strides   integers of 64 bits, or "RUNTIME"; strides are those of each axis' leading digit
    inner_digits                 per axis, extent and stride of every other digit, most significant first
    extras                       flags, compensation_mask, scale_adjust, asymmetric_mask, gpu_geometry, gpu_nbytes;
                                 a key that is left out has the default of `Extras`
    format                       the text of the tag, which must give these padded dims, strides and digits

Version 1 is version 2 without `format`: both are read, and 1 is written where there is no `format`, so that older
readers go on reading what they know.

JSON keeps the spelling: strides of unit axes and blocks of one element are written and read as they are. A text is
bounded in length, no key may be missing, unknown or there twice, every value must have its type, and what it says must
be a descriptor.

A **blob** is the canonical JSON behind a header, so equal descriptors have equal bytes:

    bytes    what
    0..7     89 49 4e 4c 41 59 0d 0a: 0x89, INLAY, and a line end that transfers as text would damage
    8..9     version, 1
    10..13   length of what follows the header
    14..29   BLAKE2b, 16 bytes, of all bytes but these
    30..     JSON, ASCII

Numbers are little-endian. Equality leaves strides of unpadded unit axes and blocks of one element out of account, so
here the former are 1 and the latter dropped. A blob is bounded in length, its checksum must hold, it must say a
descriptor, and the blob of that descriptor must be the very bytes that were read. The checksum finds accidents; malice
is found by the checks behind it.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, assert_never

from inlay.data_type import ALL_TYPES, DataType
from inlay.descriptor import kinds
from inlay.descriptor.creation import blocks_of, digits_of, inner_blocks_of
from inlay.descriptor.described import Described, Fields, InnerBlocks, kind
from inlay.descriptor.extras import NO_EXTRAS, Extras
from inlay.descriptor.sparsity import checked_coo, checked_csr, checked_opaque, checked_packed
from inlay.descriptor.validation import LARGEST, MAX_NDIMS, require_dims, require_nested, require_placed
from inlay.errors import InvalidArguments, shown
from inlay.layout import RUNTIME, Axis, Digit, Dims, Layout
from inlay.notation.format_tag import FormatTag


@dataclass(frozen=True, slots=True)
class Parts:
    """What a descriptor is made of, not yet checked."""

    dims: Dims
    """The logical dims; none for the zero descriptor."""
    data_type: DataType | None
    """None for the zero descriptor only."""
    layout: kinds.Placement
    """Where the elements lie."""
    offset0: int = 0
    """Elements from the start of the buffer to the origin."""
    extras: Extras = NO_EXTRAS
    """What lies behind the elements."""
    spelling: str | None = None
    """The text of the format tag that says the layout, where it was made of one."""

    @property
    def _blocks(self) -> InnerBlocks | None:
        return blocks_of(self.layout) if isinstance(self.layout, Layout) else None


def checked_fields(parts: Parts) -> Fields:
    """The fields of the descriptor of these parts.

    Raises:
        InvalidArguments, Unimplemented: as `checked`.
    """
    blocks = checked(parts)
    return parts.dims, parts.data_type, parts.layout, parts.offset0, blocks, parts.extras, parts.spelling


def checked(parts: Parts) -> InnerBlocks | None:
    """Refuse parts that do not fit together; returns the inner blocks where there is a layout that oneDNN can say.

    Strides of 4-bit elements may be odd, as they are in some views.

    Raises:
        InvalidArguments: the parts are those of no descriptor.
        Unimplemented: compressed sparse rows of more than 2 dims.
    """
    placement = parts.layout
    if (parts.data_type is None) != isinstance(placement, kinds.Undefined) or (parts.data_type is None) == bool(
        parts.dims
    ):
        raise InvalidArguments("only the zero descriptor has no dims and no data type, and it has neither")
    if not isinstance(placement, Layout) and (parts.offset0 or parts.extras):
        raise InvalidArguments("offset0 and extras belong to a layout: this descriptor has none")
    match placement:
        case kinds.Undefined():
            return None
        case Layout():
            return _checked_layout(parts, placement)
        case kinds.Any():
            require_dims(parts.dims)
            if RUNTIME in parts.dims:
                raise InvalidArguments(
                    "format any needs known dims: a primitive cannot choose a layout for RUNTIME ones"
                )
        case kinds.Opaque(name=name, nbytes=nbytes):
            checked_opaque(parts.dims, name, nbytes)
        case kinds.CSR(nnz=nnz, index_type=index_type, pointer_type=pointer_type):
            _require_number(parts)
            checked_csr(parts.dims, nnz, index_type, pointer_type)
        case kinds.COO(nnz=nnz, index_type=index_type):
            _require_number(parts)
            checked_coo(parts.dims, nnz, index_type)
        case kinds.Packed(nnz=nnz, tag=tag):
            _require_number(parts)
            said = checked_packed(parts.dims, nnz, tag).tag
            if said != tag:
                raise InvalidArguments(f"tag of the packed encoding is {tag!r}: write it as {said!r}")
        case kinds.HostScalar():
            _require_number(parts)
            if parts.dims != (1,):
                raise InvalidArguments(f"a host scalar has dims (1,), not {parts.dims}")
        case _:
            assert_never(placement)
    return None


def _checked_layout(parts: Parts, layout: Layout) -> InnerBlocks | None:
    assert parts.data_type is not None
    require_placed(parts.dims, layout, parts.offset0)
    parts.extras.require_axes(len(parts.dims))
    blocks = blocks_of(layout)
    if blocks is not None:
        require_nested(layout, parts.data_type, whole_bytes=False)
    if parts.spelling is not None and (parts.offset0 or FormatTag.parse(parts.spelling).layout(layout.dims) != layout):
        raise InvalidArguments(f"format {shown(parts.spelling)} gives dims {layout.dims} another layout than is said")
    return blocks


def _require_number(parts: Parts) -> None:
    if parts.data_type is not None and not parts.data_type.is_number:
        raise InvalidArguments(f"sparse tensors and host scalars hold numbers: {parts.data_type} only moves")


# JSON


VERSIONS = (1, 2)
"""The versions of the form: both are read, and the first that can say a descriptor is written."""

MAX_CHARACTERS = 2**20
"""The longest text that is written or read; descriptors of tags take a few hundred characters."""

_NAME = "memory_desc"

_HEAD = ("inlay", "version", "kind")

_EXTRAS = ("flags", "compensation_mask", "scale_adjust", "asymmetric_mask", "gpu_geometry", "gpu_nbytes")


def json_of(desc: Described, *, spelling: bool = True) -> str:
    """The text of a descriptor, without spaces or line breaks; `spelling` says whether it keeps that of its tag.

    Raises:
        InvalidArguments: the text would be longer than any that is read.
    """
    values = _values_of(desc, spelling)
    text = json.dumps({"inlay": _NAME, "version": 2 if "format" in values else 1, **values}, separators=(",", ":"))
    if len(text) > MAX_CHARACTERS:
        raise InvalidArguments(
            f"the descriptor takes {len(text)} characters of JSON: at most {MAX_CHARACTERS} are read"
        )
    return text


def _values_of(desc: Described, spelling: bool) -> dict[str, Any]:
    """The keys of the kind and their values."""
    placement, data_type = desc.layout, str(desc.data_type)
    typed = {"kind": kind(desc), "dims": _written(desc.dims), "data_type": data_type}
    match placement:
        case Layout():
            also: dict[str, Any] = {"extras": _extras_of(desc.extras)} if desc.extras else {}
            if spelling and desc.spelling is not None and desc.spelling != str(FormatTag.parse(desc.spelling)):
                also["format"] = desc.spelling
            return {**typed, **_layout_of(placement), "offset0": desc.offset0, **also}
        case kinds.Any():
            return typed
        case kinds.Opaque(name=name, nbytes=nbytes):
            return {**typed, "name": name, "nbytes": nbytes}
        case kinds.CSR() | kinds.COO() | kinds.Packed():
            found = {name: str(getattr(placement, name, "")) for name in ("index_type", "pointer_type", "tag")}
            chosen = {name: value for name, value in found.items() if value}
            return {**typed, "encoding": placement.encoding, "nnz": placement.nnz, **chosen}
        case kinds.HostScalar():
            return {"kind": "host_scalar", "data_type": data_type}
        case kinds.Undefined():
            return {"kind": "undef"}
    assert_never(placement)


def _layout_of(layout: Layout) -> dict[str, Any]:
    return {
        "padded_dims": _written(layout.dims),
        "strides": _written(tuple(axis.stride for axis in layout.axes)),
        "inner_digits": [[_written((d.extent, d.stride)) for d in axis.inner] for axis in layout.axes],
    }


def _written(values: Dims) -> list[int | str]:
    return ["RUNTIME" if value == RUNTIME else value for value in values]


def _extras_of(extras: Extras) -> dict[str, Any]:
    values = {name: getattr(extras, name) for name in _EXTRAS if getattr(extras, name) != getattr(NO_EXTRAS, name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def parts_of_json(text: object) -> Parts:
    """The parts that a text says, of the right types, not yet checked against one another.

    Raises:
        InvalidArguments: `text` is no text of this form; the message says where.
    """
    value = _object(_parsed(text), "")
    for key in _HEAD:
        if key not in value:
            _refuse(f"key {key!r} is missing")
    if value["inlay"] != _NAME:
        _refuse(f"inlay is {_shown(value['inlay'])}: give {_NAME!r}")
    if type(value["version"]) is not int or value["version"] not in VERSIONS:
        _refuse(f"version is {_shown(value['version'])}: this Inlay reads 1 and 2; use the Inlay that wrote it")
    kind = _text(value["kind"], "kind")
    if kind not in _READERS:
        _refuse(f"kind is {_shown(kind)}: give one of {', '.join(_READERS)}")
    return _READERS[kind](value)


def _parsed(text: object) -> object:
    if not isinstance(text, str):
        _refuse(f"it is a {type(text).__name__}: give the text that to_json wrote")
    if len(text) > MAX_CHARACTERS:
        _refuse(f"it has {len(text)} characters: at most {MAX_CHARACTERS} are read")
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=lambda name: _refuse(f"{name} is no number"))
    except InvalidArguments:
        raise
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArguments(f"this is no JSON of a descriptor: {reason}") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        _refuse(f"key {_shown(next(key for key in keys if keys.count(key) > 1))} is there twice")
    return value


def _read_undef(value: dict[str, object]) -> Parts:
    _require_keys(value, ())
    return Parts((), None, kinds.Undefined())


def _read_any(value: dict[str, object]) -> Parts:
    _require_keys(value, ("dims", "data_type"))
    return Parts(*_typed(value), kinds.Any())


def _read_layout(value: dict[str, object]) -> Parts:
    wanted = ("dims", "data_type", "padded_dims", "strides", "inner_digits", "offset0")
    _require_keys(value, wanted, optional=("extras",) if value["version"] == 1 else ("extras", "format"))
    padded, strides = _dims(value["padded_dims"], "padded_dims"), _dims(value["strides"], "strides")
    inner = [
        _digits(digits, f"inner_digits[{i}]") for i, digits in enumerate(_list(value["inner_digits"], "inner_digits"))
    ]
    for what, entries in (("strides", strides), ("inner_digits", inner)):
        if len(entries) != len(padded):
            _refuse(f"{what} has {len(entries)} entries: padded_dims has {len(padded)}")
    layout = Layout(padded, tuple(Axis(stride, digits) for stride, digits in zip(strides, inner, strict=True)))
    kind = "digits" if blocks_of(layout) is None else "blocked"
    if value["kind"] == "blocked" and inner_blocks_of(layout) is not None:
        require_nested(layout, _data_type(value["data_type"], "data_type"), whole_bytes=False)
    if value["kind"] != kind:
        _refuse(f"kind is {_shown(value['kind'])}: its digits are those of kind {kind!r}")
    extras = _extras(value["extras"]) if "extras" in value else NO_EXTRAS
    spelling = _text(value["format"], "format") if "format" in value else None
    return Parts(*_typed(value), layout, _integer(value["offset0"], "offset0"), extras, spelling)


def _read_opaque(value: dict[str, object]) -> Parts:
    _require_keys(value, ("dims", "data_type", "name", "nbytes"))
    opaque = kinds.Opaque(_text(value["name"], "name"), _integer(value["nbytes"], "nbytes"))
    return Parts(*_typed(value), opaque)


def _read_sparse(value: dict[str, object]) -> Parts:
    encoding = _text(value.get("encoding", ""), "encoding")
    if encoding not in _METADATA:
        _refuse(f"encoding is {_shown(encoding)}: give one of {', '.join(_METADATA)}")
    make, names = _METADATA[encoding]
    optional = ("tag",) if encoding == "packed" else ()
    _require_keys(value, ("dims", "data_type", "encoding", "nnz", *names), optional)
    types = [_data_type(value[name], name) for name in names]
    chosen = [_text(value["tag"], "tag")] if "tag" in value else []
    if "" in chosen:
        _refuse("tag is empty: leave it out")
    return Parts(*_typed(value), make(_integer(value["nnz"], "nnz"), *types, *chosen))


def _read_host_scalar(value: dict[str, object]) -> Parts:
    _require_keys(value, ("data_type",))
    return Parts((1,), _data_type(value["data_type"], "data_type"), kinds.HostScalar())


_READERS: Mapping[str, Callable[[dict[str, object]], Parts]] = MappingProxyType(
    {
        "undef": _read_undef,
        "any": _read_any,
        "blocked": _read_layout,
        "digits": _read_layout,
        "opaque": _read_opaque,
        "sparse": _read_sparse,
        "host_scalar": _read_host_scalar,
    }
)
"""What reads each kind."""

_METADATA: Mapping[str, tuple[Callable[..., kinds.Sparse], tuple[str, ...]]] = MappingProxyType(
    {
        "csr": (kinds.CSR, ("index_type", "pointer_type")),
        "coo": (kinds.COO, ("index_type",)),
        "packed": (kinds.Packed, ()),
    }
)
"""What makes each sparse encoding, and the keys of its types."""


# Values, each with the place that messages name.


def _typed(value: dict[str, object]) -> tuple[Dims, DataType]:
    dims = _dims(value["dims"], "dims")
    if not dims:
        _refuse("dims has no entries: only kind 'undef' has no dims")
    return dims, _data_type(value["data_type"], "data_type")


def _extras(value: object) -> Extras:
    fields = _object(value, "extras")
    if unknown := sorted(fields.keys() - set(_EXTRAS)):
        _refuse(f"key {_shown(unknown[0])} of extras is unknown: it has {', '.join(_EXTRAS)}")
    said: dict[str, Any] = dict(fields)
    if "gpu_geometry" in said:
        said["gpu_geometry"] = tuple(_list(said["gpu_geometry"], "extras.gpu_geometry"))
    extras = Extras(**said)
    if not extras:
        _refuse("extras has no flags: leave it out")
    return extras


def _digits(value: object, place: str) -> tuple[Digit, ...]:
    digits = []
    for i, pair in enumerate(_list(value, place)):
        numbers = _list(pair, f"{place}[{i}]")
        if len(numbers) != 2:
            _refuse(f"{place}[{i}] has {len(numbers)} entries: a digit has an extent and a stride")
        digits.append(Digit(_integer(numbers[0], f"{place}[{i}][0]"), _integer(numbers[1], f"{place}[{i}][1]")))
    return tuple(digits)


def _dims(value: object, place: str) -> Dims:
    values = _list(value, place)
    if len(values) > MAX_NDIMS:
        _refuse(f"{place} has {len(values)} entries: a descriptor has at most {MAX_NDIMS} dims")
    return tuple(RUNTIME if v == "RUNTIME" else _integer(v, f"{place}[{i}]") for i, v in enumerate(values))


def _integer(value: object, place: str) -> int:
    if type(value) is not int or not RUNTIME < value <= LARGEST:
        _refuse(f"{place} is {_shown(value)}: give an integer of 64 bits")
    return value


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        _refuse(f"{place} is {_shown(value)}: give a text")
    return value


def _data_type(value: object, place: str) -> DataType:
    if not isinstance(value, str) or value not in ALL_TYPES:
        _refuse(f"{place} is {_shown(value)}: give one of {', '.join(ALL_TYPES)}")
    return ALL_TYPES[value]


def _list(value: object, place: str) -> list[object]:
    if not isinstance(value, list):
        _refuse(f"{place} is {_shown(value)}: give a list")
    return value


def _object(value: object, place: str) -> dict[str, object]:
    if not isinstance(value, dict):
        _refuse(f"{place or 'it'} is {_shown(value)}: give an object")
    return value


def _require_keys(value: dict[str, object], wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    missing = [key for key in wanted if key not in value]
    if missing:
        _refuse(f"key {missing[0]!r} is missing: kind {value['kind']!r} has {', '.join(wanted)}")
    unknown = sorted(value.keys() - {*_HEAD, *wanted, *optional})
    if unknown:
        _refuse(f"key {_shown(unknown[0])} is unknown: kind {value['kind']!r} has {', '.join(wanted) or 'no others'}")


def _shown(value: object) -> str:
    if isinstance(value, (list, dict)):
        # What comes from outside may be nested too deeply to print.
        return f"a {'list' if isinstance(value, list) else 'JSON object'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(problem: str) -> NoReturn:
    raise InvalidArguments(f"this is no JSON of a descriptor: {problem}")


# Blobs


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
    # ASCII is a subset of Latin-1, which reads any byte; what is no ASCII is no canonical text.
    return parts_of_json(body.decode("latin-1"))


def require_canonical(desc: Described, data: bytes) -> None:
    """Refuse bytes that are not those of the descriptor that they say.

    Raises:
        InvalidArguments: `blob_of` gives other bytes.
    """
    if blob_of(desc) != data:
        _refuse_blob("their spelling is not the canonical one: to_blob did not write them")


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
    if count > _HEADER.size + MAX_CHARACTERS:
        _refuse_blob(f"they are {count}: at most {_HEADER.size + MAX_CHARACTERS} are read")


def _refuse_blob(problem: str) -> NoReturn:
    raise InvalidArguments(f"these bytes are no descriptor: {problem}")
